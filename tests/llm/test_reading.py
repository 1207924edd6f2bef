"""What is read out of what an LLM wrote; the texts are such as SmolLM2-135M-Instruct writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icl_curate.engine.backends.hf.model import stop_place
from icl_curate.engine.llm.reading import read
from icl_curate.engine.llm.types import Answer, Request
from icl_curate.engine.pool.choices import choice_of
from icl_curate.engine.pool.open_answers import final_of
from icl_curate.engine.pool.prompts import AnswerForm, EarlierAnswer, Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Options, Query

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LABELS = ("refund_request", "refund_status")
PLAIN = Prompt((Message("user", "Question: q\nAnswer:"),), Query("q"), one_line=True)
LINES = Prompt((Message("user", "Question: q\nAnswer:"),), Query("q"))
CHOICES = Prompt((Message("user", "Question: q\nAnswer:"),), Query("q"), (), LABELS, one_line=True)
ROUNDS = Prompt(
    (Message("user", "Document [1] (Uncertainty Score: 3): d"),),
    Query("q"),
    document_scores=(3,),
    earlier=(EarlierAnswer("x", 12),),
    numbered=True,
    one_line=True,
)


def _answer(text: str, finish: str = "stop") -> Answer:
    """Each letter a token, so that what is kept can be counted."""
    return Answer(text, tuple(text), tuple(-0.1 * (i + 1) for i in range(len(text))), finish=finish)


PREFIXED = Prompt(
    (Message("user", "Question: q\nAnswer: The answer is"),), Query("q"), one_line=True, cue="Answer: The answer is"
)
HASHES = Prompt((Message("user", "q\nAnswer: ####"),), Query("q"), one_line=True, cue="Answer: ####")


@pytest.mark.parametrize(
    ("prompt", "text", "finish", "meant", "usable"),
    [
        (PLAIN, "Paris", "stop", "Paris", True),
        (PLAIN, "Paris\nQuestion: and of Italy?\nAnswer: Rome", "length", "Paris", True),
        (PLAIN, "\n\nAnswer: Paris\n", "stop", "Paris", True),
        (PLAIN, "Answer:\nParis", "stop", "Paris", True),
        (PLAIN, "答案：北京", "stop", "北京", True),
        (PLAIN, "答案是北京。", "stop", "北京。", True),
        (PLAIN, "Réponse : Paris", "stop", "Paris", True),
        (PLAIN, "The answer to this question is a long", "length", "The answer to this question is a long", False),
        (PLAIN, "  \n ", "stop", "", False),
        (PLAIN, "Document [3]: a title", "stop", "Document [3]: a title", True),  # the prompt has no such headers
        (PREFIXED, "Paris", "stop", "Paris", True),
        (PREFIXED, "Answer: the answer is: Paris", "stop", "Paris", True),
        (PREFIXED, "The answer is\nParis", "stop", "Paris", True),
        (PREFIXED, "The answer isn't known", "stop", "The answer isn't known", True),
        (PREFIXED, "The answer is", "stop", "", False),
        (HASHES, "#### 42", "stop", "42", True),
        (HASHES, "####42", "stop", "42", True),
        (PLAIN, "The answer is Paris", "stop", "The answer is Paris", True),  # nobody asked for this prefix
        (LINES, "def f():\n    return 1", "stop", "def f():\n    return 1", True),
        (ROUNDS, "Nils Nevorrander (Uncertainty Score: 12)", "stop", "Nils Nevorrander", True),
        (ROUNDS, "Round 2: Nils Nevorrander (Uncertainty Score: 12)", "stop", "Nils Nevorrander", True),
        (ROUNDS, "Previous Generated Answer: Round 1: Oslo", "stop", "Oslo", True),
        (ROUNDS, "Round 1: (Uncertainty Score: 12)", "stop", "", False),
        (ROUNDS, "Document [5]: Yarira dialect (overview)", "stop", "Yarira dialect (overview)", False),
        (ROUNDS, "1]: Yarira dialect (overview)", "stop", "Yarira dialect (overview)", False),
        (ROUNDS, "1984", "stop", "1984", True),
        (ROUNDS, "(Uncertainty Score: 100)", "stop", "", False),
        (CHOICES, "refund_status\nbecause", "length", "refund_status", True),
        (CHOICES, "I cannot tell", "stop", "I cannot tell", False),
        (CHOICES, "The answer is refund_request", "length", "The answer is refund_request", True),
    ],
)
def test_the_answer_that_was_meant(prompt: Prompt, text: str, finish: str, meant: str, usable: bool) -> None:
    found = read(Request(prompt), _answer(text, finish))
    assert (found.text, found.usable) == (meant, usable)
    assert found.finish == ("stop" if "\n" in text.strip() and prompt.one_line else finish)


def test_only_the_tokens_of_the_answer_count_towards_its_uncertainty() -> None:
    text = "Answer: Paris\nQuestion: next?"
    found = read(Request(PLAIN), _answer(text))
    start = text.index("Paris")
    assert "".join(found.tokens) == "Paris"
    assert found.logprobs == tuple(-0.1 * (i + 1) for i in range(start, start + 5))


def test_parts_of_a_character_without_a_text_belong_to_it() -> None:
    tokens = ("A", ":", " ", "", "", "日", "", "本", "\n", "", "x")
    answer = Answer("A: 日本\nx", tokens, tuple(-0.1 * (i + 1) for i in range(len(tokens))))
    found = read(Request(PLAIN), answer)
    assert (found.text, found.tokens) == ("日本", tokens[3:8])
    assert found.logprobs == answer.logprobs[3:8]


def test_scored_choices_and_texts_that_are_not_their_tokens_stay() -> None:
    scored = Answer("refund_status", option_logprobs=((-3.0,), (-1.0,)))
    assert read(Request(CHOICES, True), scored) == scored
    odd = Answer("日本", ("\ufffd", "\ufffd", "本"), (-1.0, -2.0, -3.0))
    assert read(Request(PLAIN), odd) == odd


THOUGHT = "<think>\nIs it refund_request?\n\nNo.\n</think>\n\n"


@pytest.mark.parametrize(
    ("prompt", "text", "meant", "usable"),
    [
        (PLAIN, f"{THOUGHT}Paris", "Paris", True),
        (LINES, f"{THOUGHT}one\ntwo", "one\ntwo", True),
        (CHOICES, f"{THOUGHT}refund_status", "refund_status", True),
        (CHOICES, "Hm.</reasoning>refund_status", "refund_status", True),
        (CHOICES, "<think>It is refund_status", "", False),
        (PLAIN, "<thinking>Paris", "", False),
        (PLAIN, "```\nParis\n```", "Paris", True),
        (PLAIN, "Here you are:\nParis", "Paris", True),
        (CHOICES, "Sure:\n```\nrefund_status\n```", "refund_status", True),
        (CHOICES, "Let me think.\nAnswer: refund_status", "refund_status", True),
        (CHOICES, "refund_status\nQuestion: what else?\nAnswer: refund_request", "refund_status", True),
        (CHOICES, "I first thought of refund_request.\n**refund_status**", "refund_status", True),
        (CHOICES, "not refund_status", "not refund_status", False),
    ],
)
def test_what_is_not_the_answer_is_left_out(prompt: Prompt, text: str, meant: str, usable: bool) -> None:
    found = read(Request(prompt), _answer(text))
    assert (found.text, found.usable) == (meant, usable)


REASONED = replace(PLAIN, reasons=True, form=AnswerForm("Answer: "))


@pytest.mark.parametrize(
    ("prompt", "meant"),
    [(REASONED, "Paris"), (replace(REASONED, one_line=False), "Paris\n\nI hope this helps!")],
)
def test_an_answer_of_one_line_after_reasons_ends_with_its_line(prompt: Prompt, meant: str) -> None:
    found = read(Request(prompt), _answer("It is the capital.\nAnswer: Paris\n\nI hope this helps!"))
    assert (found.text, found.usable) == (meant, True)
    found = read(Request(prompt), _answer("It is the capital.\nI think of Paris"))
    assert found.text == "It is the capital.\nI think of Paris"


@pytest.mark.parametrize(
    "reply",
    [
        "Answer: Let me think.\n3+4=7\nSo the answer is 7.",
        "Answer:\nWe add.\n3+4=7\n\\boxed{7}",
        "Answer: Step one.\n\nStep two.\n\nSo the answer is 7.",
        "Here is how I got to the answer:\n\n3+4=7.\n\nSo the answer is 7.",
        "To find the answer: add 3 and 4.\nTherefore, the answer is 7.",
    ],
)
def test_reasons_after_the_cue_are_not_the_answer(reply: str) -> None:
    found = read(Request(REASONED), _answer(reply))
    assert final_of(f"\n{found.text}").rstrip(".") == "7"


NUMBERED = replace(LINES, read="number")
LETTERS = replace(CHOICES, choices=Options(LABELS))


@pytest.mark.parametrize(
    ("prompt", "reply", "finish", "how"),
    [
        (PLAIN, "Paris", "stop", "whole"),
        (PLAIN, "Paris\nQuestion: and of Italy?", "stop", "first line"),
        (PLAIN, "a long", "length", "cut off"),
        (PLAIN, f"{THOUGHT}Paris", "stop", "after its thoughts"),
        (PLAIN, "<think>Par", "length", "cut off while thinking"),
        (ROUNDS, "Document [5]: a", "stop", "echo of the prompt"),
        (LINES, "def f():\n    return 1", "stop", "whole"),
        (NUMBERED, f"{THOUGHT}about 42 of them", "stop", "after its thoughts, number"),
        (CHOICES, "refund_status", "stop", "whole"),
        (CHOICES, "Hm.\nAnswer: refund_status\nyes", "stop", "answer line"),
        (CHOICES, "I think of **refund_status** here", "stop", "emphasis"),
        (CHOICES, "Sure:\n```\nrefund_status\n```", "stop", "inside a fence"),
        (CHOICES, "It seems.\nrefund_status", "stop", "last line"),
        (CHOICES, "refund_status\nbecause it is", "stop", "first line"),
        (CHOICES, "they want a refund_status here", "stop", "mention"),
        (LETTERS, "B)", "stop", "whole: letter"),
        (CHOICES, "I cannot tell", "stop", "no option"),
    ],
)
def test_an_answer_says_by_which_rule_it_was_read(prompt: Prompt, reply: str, finish: str, how: str) -> None:
    found = read(Request(prompt), _answer(reply, finish))
    assert (found.how, found.reply) == (how, reply)
    scored = read(Request(prompt, True), replace(_answer(reply), option_logprobs=((-3.0,), (-1.0,))))
    assert (scored.how, scored.reply) == ("likeliest option", reply)


TAGGED = replace(LINES, form=AnswerForm("<team>", "</team>"))


@pytest.mark.parametrize(
    ("prompt", "reader", "reply", "meant"),
    [
        (TAGGED, "regex:<team>(.*?)</team>", f"{THOUGHT}It is <team>billing</team>.", "billing"),
        (TAGGED, r"regex:(\w+)", "It is <team>billing</team>.", "billing"),  # as what stands in the form is enough
        (TAGGED, "text", "It is <team>billing</team>.", "billing"),
        (TAGGED, "number", "<team>none</team> of 3", ""),  # 3 is not the answer
        (replace(LINES, form=AnswerForm('{"answer": ', "}", True)), "json:answer", '{"answer": "billing"}', "billing"),
        (replace(TAGGED, messages=(*LINES.messages, Message("assistant", "<team>"))), "regex:<team>(.*?)</team>",
         "billing</team>", "billing"),
    ],
)  # fmt: skip
def test_a_reader_of_the_users_own_sees_what_the_form_takes_off(
    prompt: Prompt, reader: str, reply: str, meant: str
) -> None:
    found = read(Request(replace(prompt, read=reader)), _answer(reply))
    assert (found.text, found.usable, found.reply) == (meant, bool(meant), reply)
    if meant:
        assert found.logprobs == tuple(
            -0.1 * (i + 1) for i in range(reply.rindex(meant), reply.rindex(meant) + len(meant))
        )


def test_an_answer_that_is_also_in_the_thoughts_keeps_its_own_tokens() -> None:
    text = "<think>refund_status?</think>Not sure. Answer: refund_status"
    found = read(Request(CHOICES), _answer(text))
    assert found.logprobs == tuple(-0.1 * (i + 1) for i in range(text.rindex("refund"), len(text)))


def test_a_prompt_that_shows_fences_gets_one() -> None:
    shot = Demonstration(0, "", "q", "```\n1\n```", "")
    assert read(Request(replace(LINES, demonstrations=(shot,))), _answer("```\n2\n```")).text == "```\n2\n```"


@UNHURRIED
@given(st.text(max_size=60), st.sampled_from([PLAIN, LINES, CHOICES, ROUNDS, PREFIXED]))
def test_any_reply_is_read_and_reads_the_same_again(text: str, prompt: Prompt) -> None:
    for reply in (text, f"{text}\nAnswer: refund_status", f"{THOUGHT}{text}refund_request\n{text}"):
        found = read(Request(prompt), _answer(reply))
        if found.usable and prompt.choices:
            assert choice_of(found.text, LABELS) is not None
            assert read(Request(prompt), _answer(found.text)).text == found.text


def test_a_local_llm_does_not_stop_at_the_lines_of_its_thoughts() -> None:
    said = "<think>\nrefund?\n\nno</think>\n\norder"
    for text, stopped in ((f"{said}\nmore", len(said)), (said, None), (said[:20], None), ("\norder\nmore", 6)):
        assert stop_place(text, ("\n",)) == stopped
