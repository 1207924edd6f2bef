"""Figures of a set against counting by hand, brute force and scikit-learn."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from icl_curate.engine.evaluate.statistics import compare
from icl_curate.engine.papers.calibrate.prompts import Case, Document
from icl_curate.engine.papers.calibrate.reports import auroc, histogram, reliability, report_of
from icl_curate.engine.papers.calibrate.results import (
    WORTH,
    CalibrationVersus,
    RoundsVerdict,
    SetFigures,
    Transition,
    Transitions,
)
from icl_curate.engine.papers.calibrate.rounds import Grades, QueryRounds, Round
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Query, Task
from icl_curate.render.calibration import verdict_line
from sklearn.metrics import roc_auc_score

OPEN = Grades(Task("open"))


def query_rounds(
    name: str, answers: str, uncertainties: list[float], scores: tuple[float | None, ...] = ()
) -> QueryRounds:
    """Answers a letter a round; "r" is right. Two documents, the first relevant."""
    query = Query(name, answers=("r",), id=name)
    case = Case(query, (Document("1", "x", True), Document("2", "y", False)), "documents")
    prompt = Prompt((), query)
    done_rounds = [Round(i, prompt, a, u, 100 * u) for i, (a, u) in enumerate(zip(answers, uncertainties, strict=True))]
    return QueryRounds(case, "full", scores, done_rounds)


def figures(*all_rounds: QueryRounds, rounds: int = 2) -> SetFigures:
    return report_of({"full": list(all_rounds)}, OPEN, rounds)


def test_rounds_and_what_stands_after_each() -> None:
    told = figures(
        query_rounds("a", "wrr", [0.9, 0.2, 0.8]),
        query_rounds("b", "rrw", [0.1, 0.4, 0.7]),
        query_rounds("c", "wwr", [0.3, 0.5, 0.6]),
        query_rounds("d", "r", [0.2]),  # stopped: its answer is carried on
    )
    arm = told.arms["full"]
    assert [row.accuracy for row in arm.rounds] == [0.5, 0.75, 0.75]
    assert [row.final_accuracy for row in arm.rounds] == [0.5, 0.75, 0.75]
    assert [row.stopped for row in arm.rounds] == [0, 1, 1]
    assert arm.rounds[1].uncertainty == pytest.approx((0.2 + 0.4 + 0.5 + 0.2) / 4)
    assert arm.accuracy == 0.75  # finals: a at round 1, b and c at 0, d
    assert arm.auroc == 1.0  # 0.2, 0.1, 0.2 right; 0.3 wrong


def test_transitions_with_the_mean_uncertainty_of_the_new_answers() -> None:
    told = figures(
        query_rounds("a", "wrr", [0.9, 0.2, 0.8]),
        query_rounds("b", "rrw", [0.1, 0.4, 0.7]),
        query_rounds("c", "wwr", [0.3, 0.5, 0.6]),
        query_rounds("d", "r", [0.2]),
    )
    first, second = told.arms["full"].transitions
    assert first == Transitions(
        round=1,
        right_right=Transition(1, 0.4),
        right_wrong=Transition(0, None),
        wrong_right=Transition(1, 0.2),
        wrong_wrong=Transition(1, 0.5),
    )
    ways = (second.right_right, second.right_wrong, second.wrong_right, second.wrong_wrong)
    assert [way.queries for way in ways] == [1, 1, 1, 0]


def test_a_query_without_answers_is_missing_and_one_without_reference_does_not_count() -> None:
    silent, unknown = query_rounds("a", "", []), query_rounds("b", "r", [0.1])
    unknown.case = Case(Query("b"), (), "documents")
    told = figures(silent, query_rounds("c", "r", [0.1]), unknown, rounds=0)
    assert told.marked == 2
    found = told.arms["full"]
    assert (found.accuracy, found.outcomes.right, found.outcomes.failed) == (1.0, 1, 1)
    assert figures(unknown).arms == {}


def test_document_scores_of_relevant_and_other_documents() -> None:
    told = figures(
        query_rounds("a", "r", [0.1], (0.0, 100.0)),
        query_rounds("b", "r", [0.1], (80.0, 20.0)),
        query_rounds("c", "r", [0.1], (None, 100.0)),
    ).relevance
    assert told.documents == 5
    assert told.auroc == pytest.approx((3 + 2) / 6)  # 0 below all three, 80 below two
    assert (told.auroc_within, told.queries_within) == (0.5, 2)
    assert (told.relevant.bins[0], told.relevant.bins[8], told.others.bins[9]) == (1, 1, 2)


def test_auroc_equals_brute_force_and_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        low = rng.integers(0, 6, rng.integers(1, 12)) / 5
        high = rng.integers(0, 6, rng.integers(1, 12)) / 5
        pairs = [(h > w) + 0.5 * (h == w) for h in high for w in low]
        found = auroc(low, high)
        assert found == pytest.approx(np.mean(pairs))
        labels = [0] * len(low) + [1] * len(high)
        assert found == pytest.approx(roc_auc_score(labels, np.concatenate([low, high])))
    assert auroc(np.array([]), np.array([0.5])) is None


def test_reliability_bins_and_expected_calibration_error() -> None:
    uncertainty = np.array([0.05, 0.15, 0.95, 0.92, 0.0])  # confidence 0.95, 0.85, 0.05, 0.08, 1
    told = reliability(uncertainty, np.array([1.0, 0.0, 0.0, 1.0, 1.0]))
    assert [row.answers for row in told.bins] == [2, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    assert told.bins[0].accuracy == 0.5
    assert told.bins[9].confidence == pytest.approx(0.975)
    by_hand = (2 * abs(0.5 - 0.065) + 1 * abs(0.0 - 0.85) + 2 * abs(1.0 - 0.975)) / 5
    assert told.error == pytest.approx(by_hand)


def test_histograms_keep_every_value() -> None:
    assert histogram(np.array([0.0, 0.099, 0.1, 1.0, 1.0000001])).bins == (2, 1, 0, 0, 0, 0, 0, 0, 0, 2)


def test_arms_are_compared_with_the_first_in_pairs() -> None:
    one, two = (
        [query_rounds(str(i), "r", [0.1]) for i in range(6)],
        [query_rounds(str(i), "w", [0.1]) for i in range(6)],
    )
    for c in two:
        c.arm = "plain"
    versus = report_of({"full": one, "plain": two}, OPEN, 0).arms["plain"].versus
    assert (versus.arm, versus.difference, versus.test) == ("full", -1.0, "mcnemar")
    assert versus.p == pytest.approx(2 * 0.5**6)


def _of(rounds: list[str], arm: str = "full") -> QueryRounds:
    """A query with an answer a round, ``r`` for right; the later the surer."""
    done = query_rounds("q", "".join(rounds), [0.5 - 0.1 * i for i in range(len(rounds))])
    done.arm = arm
    return done


def _verdict(full: list[list[str]], sampling: list[list[str]] | None = None) -> RoundsVerdict | None:
    arms = {"full": [_of(rounds) for rounds in full]}
    if sampling:
        arms["sampling"] = [_of(rounds, "sampling") for rounds in sampling]
    return report_of(arms, OPEN, 1).verdict


def test_rounds_help_where_final_answers_are_better_than_samples_beyond_noise() -> None:
    worse, better, same = ["w", "w"], ["w", "r"], ["r", "r"]
    found = _verdict([better] * 20 + [same] * 20, [worse] * 20 + [same] * 20)
    assert found is not None and (found.says, found.versus.arm, found.queries) == ("help", "sampling", 40)
    assert found.versus.p == pytest.approx(2 * 0.5**20)
    told = verdict_line(found, "stub")
    assert told.startswith("the rounds help stub: +0.500 (95 %: ") and told.endswith(
        "against sampling as often, 40 queries"
    )


def test_without_samples_the_first_answers_are_what_rounds_are_held_against() -> None:
    found = _verdict([["w", "r"]] * 20 + [["r", "r"]] * 20)
    assert found is not None and (found.says, found.versus.arm) == ("help", "first answers")
    assert verdict_line(found, "stub").endswith("--arms full,sampling")
    spoiled = _verdict([["r", "w"]] * 10 + [["r", "r"]] * 30)
    assert spoiled is not None and spoiled.says == "not help"
    assert "the rounds do not help stub: -0.250" in verdict_line(spoiled, "stub")


def test_few_queries_leave_it_open_and_say_how_many_would_tell() -> None:
    mixed = [["w", "r"]] * 3 + [["r", "w"]] * 2 + [["r", "r"]] * 15
    found = _verdict(mixed)
    assert found is not None and found.says == "open" and found.needed is not None
    assert f"about {found.needed:,} queries would tell a gain of 0.05" in verdict_line(found, "stub")
    more = _verdict(mixed * (found.needed // len(mixed) + 1))
    assert more is not None
    assert (more.versus.high - more.versus.low) / 2 <= WORTH * 1.1  # what it promised
    assert _verdict([["r"]] * 20) is None  # no rounds


def test_where_rounds_change_nothing_they_are_seldom_said_to_help() -> None:
    """Both arms right with the same chance, one random pair of arms after the other."""
    draw = np.random.default_rng(0)
    said = Counter[str]()
    for _ in range(200):
        shown = [draw.random(60) < 0.6 for _ in range(2)]
        versus = compare(*(right.astype(np.float64) for right in shown))
        said[RoundsVerdict.of("full", 60, CalibrationVersus("sampling", **asdict(versus))).says] += 1
    assert said["help"] <= 10  # 2.5 % of 200 are expected; with 5 %, 16 or fewer in 97 of 100 cases
