"""What scores do to the offline reader: exactly what its rules say, and nothing without them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.offline_prompts import LABELS, OPEN, PASSAGE, bag_of_words, prompt, shot
from icl_curate.engine.backends.offline.reader import COUNT, OfflineReader, entropy_of
from icl_curate.engine.llm.cache import to_answer, to_call
from icl_curate.engine.llm.types import Answer, Request
from icl_curate.engine.pool.prompts import EarlierAnswer, Prompt
from icl_curate.engine.pool.records import Query, Task
from icl_curate.engine.prompting.template import build_prompt
from icl_curate.engine.store import calls
from icl_curate.engine.store.workspace import Workspace

QUESTION = "When did the work on Mount Rushmore begin?"


def probabilities(asked: Prompt) -> Mapping[str, float]:
    [found] = OfflineReader(bag_of_words).distributions([asked], copies=False)
    return dict(zip(found.texts, found.probabilities.tolist(), strict=True))


def odds(asked: Prompt, text: str) -> float:
    p = probabilities(asked)[text]
    return p / (1 - p)


@pytest.mark.parametrize(
    ("asked", "answer"), [(prompt(QUESTION, task=OPEN, context=PASSAGE), "1927"), (prompt("lost my card"), "lost_card")]
)
def test_an_earlier_answer_shifts_its_own_odds_by_its_score(asked: Prompt, answer: str) -> None:
    def shifted(*earlier: EarlierAnswer) -> float:
        return odds(replace(asked, earlier=earlier), answer) / odds(asked, answer)

    assert shifted(EarlierAnswer(answer, 0)) == pytest.approx(math.e)
    assert shifted(EarlierAnswer(answer.upper(), 100)) == pytest.approx(1 / math.e)
    twice = shifted(EarlierAnswer(answer, 25), EarlierAnswer(answer, 25))
    assert twice == pytest.approx(math.exp(0.5))  # the same answer counts once
    for neutral in (EarlierAnswer(answer, 50), EarlierAnswer(answer), EarlierAnswer("else", 0)):
        assert shifted(neutral) == pytest.approx(1.0)


def test_a_documents_score_weighs_its_spans() -> None:
    asked = prompt(QUESTION, task=OPEN, context=PASSAGE)
    plain = probabilities(asked)
    assert probabilities(replace(asked, document_scores=(0, None))) == plain
    scored = probabilities(replace(asked, document_scores=(0, 100)))

    def against_unknown(found: Mapping[str, float], text: str) -> float:
        return found[text] / found["unknown"]

    assert against_unknown(scored, "1930s") == pytest.approx(0.1 * against_unknown(plain, "1930s"))
    assert against_unknown(scored, "1927") == pytest.approx(against_unknown(plain, "1927"))
    half = probabilities(replace(asked, document_scores=(50, 0)))
    assert against_unknown(half, "1927") == pytest.approx(0.55 * against_unknown(plain, "1927"))


def test_a_demonstrations_score_weighs_its_vote() -> None:
    shots = [shot("lost my card", "card_arrival")]
    prior = probabilities(prompt("my card is lost"))["card_arrival"]
    asked = build_prompt(Query("my card is lost"), shots, LABELS)
    full = probabilities(replace(asked, shot_scores=(0,)))["card_arrival"]
    assert full == probabilities(asked)["card_arrival"]
    vote = COUNT * (full - prior) / (1 - full)  # from p = (COUNT·prior + k) / (COUNT + k)
    weighed = probabilities(replace(asked, shot_scores=(100,)))["card_arrival"]
    assert weighed == pytest.approx((COUNT * prior + 0.1 * vote) / (COUNT + 0.1 * vote))


def test_a_demonstrations_score_weighs_its_copy_in_open_questions() -> None:
    asked = build_prompt(Query("who sings it"), [shot("who sings this", "Ann Smith")], Task("open"))
    plain, scored = probabilities(asked), probabilities(replace(asked, shot_scores=(100,)))
    ratio = (scored["Ann Smith"] / scored["unknown"]) / (plain["Ann Smith"] / plain["unknown"])
    assert ratio == pytest.approx(0.1)


def test_entropies_are_those_of_the_distribution_and_survive_the_cache(tmp_path: Path) -> None:
    reader = OfflineReader(bag_of_words)
    asked = prompt(QUESTION, task=OPEN, context=PASSAGE)
    [answer] = reader.answer([Request(asked)])
    assert isinstance(answer, Answer)
    [found] = reader.distributions([asked])
    rest = 1 - sum(found.probabilities)
    by_hand = -sum(p * math.log(p) for p in [*found.probabilities, rest] if p > 0)
    assert sum(answer.entropies) == pytest.approx(by_hand) == pytest.approx(entropy_of(found))
    assert len(answer.entropies) == len(answer.tokens)
    workspace = Workspace.create(tmp_path)
    calls.record(workspace, [to_call(b"k" * 16, "offline", answer)])
    kept: Any = to_answer(calls.lookup(workspace, [b"k" * 16])[b"k" * 16])
    assert kept == replace(answer, cached=True)
