"""Votes against a plain count, and the choice of what to do with sources on validation alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.trials.estimators import leave_one_out, reliability
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from icl_curate.engine.trials.uses import choose, expected_votes, outcomes, pruning_curve
from icl_curate.engine.trials.votes import vote, vote_curve

Rows = list[list[tuple[str, str]]]


def counted(row: list[tuple[str, str]], kept: set[str], voters: int) -> str | None:
    """The answer met first among those with most votes (Counter keeps the order of insertion)."""
    votes = Counter([answer for source, answer in row if source in kept][:voters])
    return max(votes, key=lambda answer: votes[answer]) if votes else None


def as_lists(rows: Rows, right: str = "a") -> RankedLists:
    return ranked_lists(
        [[s for s, _ in row] for row in rows],
        [[a for _, a in row] for row in rows],
        [[float(a == right) for _, a in row] for row in rows],
        names=list("uvwxyz"),
    )


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from("uvwxyz"), st.sampled_from("abc")), max_size=12), min_size=1, max_size=6
    ),
    kept=st.sets(st.sampled_from("uvwxyz")),
)
@settings(max_examples=80, deadline=None)
def test_votes_equal_a_plain_count(rows: Rows, kept: set[str]) -> None:
    lists = as_lists(rows)
    mask = np.array([name in kept for name in lists.names])
    sizes = [1, 2, 5, 20]
    for size in sizes:
        expected = [float(counted(row, kept, size) == "a") for row in rows]
        assert vote(lists, size, mask).tolist() == expected
    curve = vote_curve(lists, np.arange(6), np.arange(7), sizes)
    for cut in range(7):
        left = set(lists.names[cut:])
        for column, size in enumerate(sizes):
            assert curve[cut, column].tolist() == [float(counted(row, left, size) == "a") for row in rows]


def test_weights_and_decay_decide_votes() -> None:
    lists = as_lists([[("u", "b"), ("v", "a"), ("w", "a")]])
    everything = np.ones(6, bool)
    assert vote(lists, 3, everything).tolist() == [1.0]
    assert vote(lists, 3, everything, decay=0.5).tolist() == [0.0]  # 1 against 0.5 + 0.25
    assert vote(lists, 3, everything, np.array([5.0, 1, 1, 1, 1, 1])).tolist() == [0.0]
    assert vote(lists, 3, everything, np.array([1.0, 1, 1, 1, 1, 1]), decay=0.9).tolist() == [1.0]


def planted(seed: int, questions: int, bad: int = 4, accuracy: float = 0.7) -> RankedLists:
    """Ten sources in random order on each question; the first ``bad`` agree on one wrong answer most of the time."""
    draw = np.random.default_rng(seed)
    names, answers = [], []
    for _ in range(questions):
        order = draw.permutation(10)
        names.append([f"s{i}" for i in order])
        trusted = draw.random(10) < np.where(np.arange(10) < bad, 0.1, accuracy)
        answers.append(["right" if trusted[i] else ("lie" if i < bad else f"slip{i}") for i in order])
    return ranked_lists(names, answers, [[float(a == "right") for a in row] for row in answers])


def test_planted_bad_sources_are_found_on_validation_and_the_gain_holds_on_test() -> None:
    validation, test = planted(1, 300), planted(2, 600)
    choice = choose(validation, 5)
    assert choice.applied is not None
    assert choice.gain > 2 * choice.gain_error
    gained = outcomes(test, choice.applied).mean() - vote(test, 5).mean()
    assert gained == pytest.approx(choice.gain, abs=0.08)
    for applied in choice.tuned.values():
        assert applied.setting.use == "prune"
        assert applied.setting.voters == 5
    assert not choice.tuned["reliability"].kept[:4].any()
    assert choice.tuned["reliability"].kept[4:].any()


def test_sources_that_are_all_alike_are_all_kept() -> None:
    wrongly = sum(
        choose(planted(seed, 200, bad=0), 5, voters=[5], decays=[1.0]).applied is not None for seed in range(10)
    )
    assert wrongly <= 2


def test_a_choice_is_the_same_again() -> None:
    lists = planted(3, 120)
    first, second = choose(lists, 5), choose(lists, 5)
    assert first.best.setting == second.best.setting
    assert first.gain == second.gain


def test_equal_scores_are_never_parted() -> None:
    lists = planted(4, 100)

    def two_levels(train: RankedLists, k: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.repeat([0.0, 1.0], [4, 6])

    choice = choose(lists, 5, estimators={"two": two_levels}, uses=["prune"])
    assert choice.applied is not None
    assert choice.applied.kept.tolist() == [False] * 4 + [True] * 6
    curve = pruning_curve(lists, two_levels(lists, 5), 5)
    assert [point.dropped for point in curve] == [0, 4]
    assert curve[1].accuracy == pytest.approx(vote(lists, 5, choice.applied.kept).mean())


def test_reweighting_is_an_expectation_between_its_extremes() -> None:
    lists = planted(5, 100)
    assert expected_votes(lists, np.ones(10), 5).tolist() == vote(lists, 5).tolist()
    good = np.arange(10) >= 4
    assert expected_votes(lists, good.astype(float), 5).tolist() == vote(lists, 5, good).tolist()
    alone = as_lists([[("u", "a")]])
    drawn = expected_votes(alone, np.array([0.3, 0, 0, 0, 0, 0]), 1, samples=4000)
    assert drawn[0] == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 4000))


def test_reweighting_by_points_draws_each_item_for_itself() -> None:
    """Three right answers of a source and one of a surer one that lies: by the source they stand or fall together."""
    lists = as_lists([[("u", "a"), ("u", "a"), ("u", "a"), ("v", "b")]])
    weights = np.array([0.5, 1.0, 0, 0, 0, 0])
    by_source, by_point = (expected_votes(lists, weights, 4, samples=4000, points=p)[0] for p in (False, True))
    assert by_source == pytest.approx(0.5, abs=0.04)
    assert by_point == pytest.approx(7 / 8, abs=0.03)  # any of the three comes first and ties or wins
    many = planted(5, 100)
    good = (np.arange(10) >= 4).astype(float)
    assert expected_votes(many, good, 5, points=True).tolist() == vote(many, 5, good > 0).tolist()
    choice = choose(many, 5, estimators=["multilinear"], uses=["reweight-points"])
    assert choice.best.setting.use == "reweight-points" and choice.best.kept.all() and choice.gain > 0
    assert outcomes(many, choice.best).mean() > vote(many, 5).mean()


def test_choosing_needs_enough_questions_and_known_estimators() -> None:
    with pytest.raises(UsageError, match="too few"):
        choose(planted(6, 3), 5)
    with pytest.raises(UsageError, match="unknown estimator"):
        choose(planted(6, 30), 5, estimators=["magic"])


def test_scores_come_from_the_training_folds_alone() -> None:
    """An estimator that memorises its lists gains nothing: each fold is judged by scores that never saw it."""
    draw = np.random.default_rng(0)
    rows = [[(f"s{n}", "a"), ("t", "b")] for n in range(100)]
    lists = ranked_lists(
        [[s for s, _ in row] for row in rows],
        [[a for _, a in row] for row in rows],
        [[float(x), float(not x)] for x in draw.random(100) < 0.5],
    )
    choice = choose(lists, 1, estimators={"own": lambda train, k: reliability(train)})
    assert abs(choice.gain) < 3 * max(choice.gain_error, 0.02)


@pytest.mark.parametrize("seed", range(4))
def test_the_gain_of_each_fold_is_that_of_a_choice_without_it(seed: int) -> None:
    """The nested folds, written out: neither scores nor threshold nor estimator of a fold saw its questions."""
    lists, k, folds = planted(seed, 40, bad=3, accuracy=0.55), 3, 4
    estimators = {"reliability": reliability, "leave-one-out": leave_one_out}
    fold = np.random.default_rng(seed).permutation(40) % folds

    def kept(scores: list[float], share: float) -> list[bool]:
        allowed = int(share * 10 + 1e-9)  # never more than asked for, and equal scores together
        bar = max(bar for bar in scores if sum(score < bar for score in scores) <= allowed)
        return [score >= bar for score in scores]

    def votes(on: RankedLists, learnt: list[float], share: float) -> list[float]:
        return vote(on, k, np.array(kept(learnt, share))).tolist()

    gains = np.zeros(40)
    for f in range(folds):
        totals: dict[tuple[str, float], float] = {}
        for name, estimator in estimators.items():
            for g in set(range(folds)) - {f}:
                learnt = estimator(lists.take((fold != f) & (fold != g)), k).tolist()
                for share in np.arange(10) / 10:
                    key = name, float(share)
                    totals[key] = totals.get(key, 0.0) + sum(votes(lists.take(fold == g), learnt, key[1]))
        best, share = max(totals, key=lambda key: round(totals[key], 9))  # the first of equals
        learnt = estimators[best](lists.take(fold != f), k).tolist()
        judged = lists.take(fold == f)
        gains[fold == f] = np.array(votes(judged, learnt, share)) - vote(judged, k)
    choice = choose(lists, k, estimators=estimators, uses=["prune"], voters=[k], decays=[1.0], folds=folds, seed=seed)
    assert choice.gain == pytest.approx(gains.mean())
    assert choice.gain_error == pytest.approx(gains.std(ddof=1) / np.sqrt(40))


def test_the_best_of_many_worthless_estimators_gains_nothing() -> None:
    """Scores drawn at random, without a look at the lists: only a choice that saw its judges can seem to gain."""
    lists = planted(7, 60, bad=0, accuracy=0.5)
    drawn = np.random.default_rng(0).random((40, 10))
    worthless = {str(i): (lambda train, k, i=i: drawn[i]) for i in range(40)}
    choice = choose(lists, 3, estimators=worthless, uses=["prune"], voters=[3], decays=[1.0])
    chosen = vote(lists, 3, choice.best.kept).mean() - choice.baseline
    assert chosen > 0.1  # on the questions that chose it
    assert choice.gain < choice.gain_error


def test_a_threshold_drops_exactly_its_share_of_the_sources() -> None:
    lists = planted(9, 100)
    choice = choose(lists, 5, estimators=["reliability"], uses=["prune"])
    assert (~choice.best.kept).sum() == round(choice.best.setting.fraction * 10) > 0
    needed = ranked_lists([[f"s{n % 4}"] for n in range(40)], [["right"]] * 40, [[1.0]] * 40)
    best = choose(needed, 1, estimators={"any": lambda train, k: np.arange(4.0)}, uses=["prune"]).best
    assert (best.setting.fraction, best.kept.tolist()) == (0.0, [True] * 4)


@pytest.mark.parametrize("lies", [False, True])
def test_a_source_without_answers_is_not_dropped_with_worse_ones(lies: bool) -> None:
    rows = [[("u", "b" if lies else "a"), ("v", "a")]] * 40
    scores = np.array([0.0, 1.0, 0.5, 0.5, 0.5, 0.5]) if lies else np.array([1.0, 0.9, 0.5, 0.5, 0.5, 0.5])
    best = choose(as_lists(rows), 1, estimators={"given": lambda train, k: scores}, uses=["prune"]).best
    assert best.kept.tolist() == [not lies, True, True, True, True, True]
