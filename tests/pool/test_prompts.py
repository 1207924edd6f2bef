"""What the LLM reads: formats, order, templates, and what happens when it does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.display import display_line, display_text
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Query, Task
from icl_curate.engine.prompting.template import (
    AUTO,
    FORMATS,
    FileTemplate,
    build_prompt,
    built_in,
    fit_prompt,
    question_of,
)

OPEN = Task("open")
SHOTS = [Demonstration(i, f"d{i}", f"question {i}?", f"answer {i}", "s") for i in range(3)]


def test_a_question_with_passage_and_options_is_written_as_sqo_a() -> None:
    query = Query("Is it safe?", ("yes", "no"), "A trial was run.")
    assert question_of(AUTO, query, OPEN) == (
        "Statement: A trial was run.\nQuestion: Is it safe?\nOptions:\n(A) yes\n(B) no"
    )
    assert question_of(FileTemplate(built_in("auto", "Q-A")), query, OPEN) == "Question: Is it safe?"


def test_best_last_puts_the_best_demonstration_next_to_the_query() -> None:
    prompt = build_prompt(Query("now?"), SHOTS, OPEN)
    assert [shot.id for shot in prompt.demonstrations] == ["d2", "d1", "d0"]
    roles = [message.role for message in prompt.messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    assert prompt.text.endswith("Question: question 0?\nAnswer: answer 0\n\nQuestion: now?\nAnswer:")
    first = build_prompt(Query("now?"), SHOTS, OPEN, order="best-first")
    assert [shot.id for shot in first.demonstrations] == ["d0", "d1", "d2"]


def test_a_conversation_is_shown_with_what_was_said_before() -> None:
    before = (Message("system", "Count."), Message("user", "2+2?"), Message("assistant", "4"))
    shot = Demonstration(0, "d", "And 3+3?", "6", "s", history=before)
    own = (Message("system", "Be brief."), Message("user", "4+4?"), Message("assistant", "8"))
    query = Query("And 5+5?", history=own)
    prompt = build_prompt(query, [shot, SHOTS[0]], OPEN)
    cued = "Question: {}\nAnswer:"
    assert [(message.role, message.content) for message in prompt.messages] == [
        ("system", "Be brief."),
        ("user", cued.format("question 0?")), ("assistant", "answer 0"),
        ("user", "Count.\n\n" + cued.format("2+2?")), ("assistant", "4"),
        ("user", cued.format("And 3+3?")), ("assistant", "6"),
        ("user", cued.format("4+4?")), ("assistant", "8"),
        ("user", cued.format("And 5+5?")),
    ]  # fmt: skip
    same = build_prompt(Query("?", history=before[:1]), [shot], OPEN)
    assert [message.content.startswith("Count.") for message in same.messages] == [True, *[False] * 5]


def test_a_prefix_of_answers_stands_before_each_output_and_ends_the_prompt() -> None:
    template = FileTemplate(answer_prefix="The answer is")
    prompt = build_prompt(Query("now?"), SHOTS[:1], OPEN, template)
    ending = "Question: question 0?\nAnswer: The answer is answer 0\n\nQuestion: now?\nAnswer: The answer is"
    assert prompt.text.endswith(ending)
    turns = [(message.role, message.content) for message in prompt.messages[1:]]
    assert turns == [
        ("user", "Question: question 0?\nAnswer: The answer is"),
        ("assistant", "answer 0"),
        ("user", "Question: now?\nAnswer: The answer is"),
    ]


def test_labels_stand_in_the_instruction_and_are_the_choices() -> None:
    prompt = build_prompt(Query("hi"), [], Task("labels", ("greet", "leave")))
    assert prompt.messages[0].content.splitlines()[1:] == ["greet", "leave"]
    assert prompt.choices == ("greet", "leave")


def test_braces_in_a_pool_are_text_not_fields() -> None:
    assert (
        question_of(AUTO, Query("what is {input}? {{ labels }} {% user %}"), OPEN)
        == "Question: what is {input}? {{ labels }} {% user %}"
    )


@pytest.mark.parametrize("good", ["auto", *FORMATS, "Q: {input}", "{context} {input} {{}} {options}"])
def test_named_formats_and_those_with_the_input_are_accepted(good: str) -> None:
    assert "now?" in build_prompt(Query("now?"), [], OPEN, FileTemplate(built_in("auto", good))).text


@pytest.mark.parametrize("bad", ["{question}", "{input", "{}", "no field"])
def test_a_bad_template_is_refused_with_the_mend(bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        built_in("auto", bad)
    assert caught.value.fix


@given(st.integers(0, 400))
def test_a_long_prompt_loses_its_weakest_demonstrations_and_no_more_than_it_must(limit: int) -> None:
    def build(query: Query, best_first: object) -> Prompt:
        return build_prompt(query, list(best_first), OPEN)  # type: ignore[call-overload]

    def count(prompt: Prompt) -> int:
        return len(prompt.text)

    prompt, dropped = fit_prompt(Query("now?"), SHOTS, build, count, limit)
    fitting = [n for n in range(4) if count(build(Query("now?"), SHOTS[:n])) <= limit]
    assert dropped == 3 - max(fitting, default=0)
    assert {shot.id for shot in prompt.demonstrations} == {f"d{i}" for i in range(3 - dropped)}


@given(st.text())
def test_shown_text_holds_nothing_that_moves_a_cursor_or_turns_writing(text: str) -> None:
    shown = display_text(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)
    assert not any(c in shown for c in "\u202e\u2066\u200f\u061c")
    assert "\n" not in display_line(text)


def test_an_escape_sequence_is_shown_not_sent() -> None:
    assert display_text("\x1b[31mred\x9b1m") == "␛[31mred<9B>1m"
    assert len(display_line("x" * 50, 20)) == 20


def test_an_instruction_names_the_labels_where_it_says_so() -> None:
    task = Task("labels", ("billing", "order"))

    def opening(instruction: str, task: Task) -> str:
        return build_prompt(Query("now?"), [], task, FileTemplate(instruction=instruction)).messages[0].content

    assert opening("Route the ticket. Teams: {labels}.", task) == "Route the ticket. Teams: billing, order."
    assert opening("Route {it}.", task) == "Route {it}."
    assert opening("Say {labels}.", OPEN) == "Say {labels}."
