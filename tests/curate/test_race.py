"""The race on simulated answers: it prunes nothing by chance, tells the gain truly, and asks less than everything."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from icl_curate.engine.base.arrays import Bools, Float64s
from icl_curate.engine.curate.race import (
    AFTER_TWO_LOOKS,
    FIRST,
    FOUR_OF_FIVE,
    LOST,
    NAMED,
    NEAR,
    SHARED,
    Ask,
    RaceResult,
    gain_of,
    gains_of,
    race,
    span_of,
    visible_gain,
)

CANDIDATES, QUERIES, NOISE = 12, 60, 1.645
FEWER_ROWS = -50.0 * np.arange(CANDIDATES)
"""The preference for candidates that prune fewer rows."""
PLANTED = 7


def _null(draw: np.random.Generator, accuracy: float, shared: float) -> Float64s:
    """Candidates (12, 60) that are equally good; an answer is that of all of them with probability ``shared``."""
    chance = np.clip(accuracy + draw.normal(0, 0.25, QUERIES), 0.02, 0.98)
    common = draw.random(QUERIES) < chance
    own = draw.random((CANDIDATES, QUERIES)) < chance
    same = draw.random((CANDIDATES, QUERIES)) < shared
    return np.where(same, common, own).astype(np.float64)


def _planted(draw: np.random.Generator) -> Float64s:
    """The same, and one candidate mends half of the baseline's wrong answers: +.2."""
    utilities = _null(draw, 0.6, 0.5)
    mended = (utilities[0] == 0) & (draw.random(QUERIES) < 0.5)
    utilities[PLANTED] = np.where(mended, 1.0, utilities[0])
    return utilities


class _Answers:
    """Answers from a full matrix within a number of cells; counts those that were asked."""

    def __init__(self, utilities: Float64s, most: int | None = None) -> None:
        self.utilities, self.most = utilities, most
        self.asked = np.zeros(utilities.shape, np.bool_)

    def __call__(self, wanted: Bools) -> Float64s | None:
        asked = self.asked | wanted
        if self.most is not None and asked.sum() > self.most:
            return None
        self.asked = asked
        return np.where(asked, self.utilities, 0.5)  # a cell that was not asked must not be used


def _run(
    utilities: Float64s, seed: int, most: int | None = None, preference: Float64s = FEWER_ROWS, near: float = 0.0
) -> tuple[RaceResult, _Answers]:
    answers = _Answers(utilities, most)
    ask: Ask = answers
    return race(ask, preference, utilities.shape[1], near=near, seed=seed), answers


@pytest.mark.parametrize(("shared", "near"), [(0.0, 0.0), (0.5, 0.0), (0.9, 0.0), (0.5, NEAR)])
def test_equal_candidates_are_pruned_at_most_at_the_nominal_rate_and_gain_nothing(shared: float, near: float) -> None:
    """However much other evidence prefers some of them."""
    draw, runs = np.random.default_rng(11), 400
    false, gains = 0, []
    for seed in range(runs):
        utilities = _null(draw, draw.choice([0.5, 0.6, 0.7]), shared)
        found, _ = _run(utilities, seed, preference=-FEWER_ROWS if near else FEWER_ROWS, near=near)
        false += found.confirmed(NOISE)
        gains.append(found.gain.mean)
    assert false / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert abs(np.mean(gains)) <= 3 * np.std(gains) / np.sqrt(runs)


def _named(utilities: Float64s, seed: int, named: int) -> RaceResult:
    """A race that prefers the last candidates, as the evidence does that names the last one."""
    return race(
        _Answers(utilities), -FEWER_ROWS[: len(utilities)], utilities.shape[1], near=NEAR, seed=seed, named=named
    )


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9])
def test_a_candidate_named_beforehand_is_pruned_by_chance_at_most_at_the_nominal_rate(shared: float) -> None:
    """Also where the next race of the run, without a name, may prune as well: here of other answers."""
    draw, runs, last = np.random.default_rng(13), 400, CANDIDATES - 1
    once, either, covered, means = 0, 0, 0, []
    for seed in range(runs):
        accuracy = draw.choice([0.5, 0.6, 0.7])
        found = _named(_null(draw, accuracy, shared), seed, last)
        again = _named(_null(draw, accuracy, shared), seed, 0)
        once += found.confirmed(NOISE)
        either += found.confirmed(NOISE) or again.confirmed(NOISE)
        low, high = found.gain.interval
        covered += low <= 0 <= high
        means.append(found.gain.mean)
        assert found.named == (found.winner == last) and not again.named
    assert once / runs <= 0.05
    assert either / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert covered / runs >= 0.95
    assert abs(np.mean(means)) <= 0.01


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9])
def test_a_race_that_goes_on_prunes_by_chance_at_most_at_the_nominal_rate(shared: float) -> None:
    """It is looked at when its calls end, and if something gained, again on all queries; then another one is raced."""
    draw, runs, preference = np.random.default_rng(17), 250, -FEWER_ROWS[:3]
    pruned, went_on = 0, 0
    for seed in range(runs):
        answers = _Answers(_null(draw, draw.choice([0.5, 0.6, 0.7]), shared)[:3], 80)
        found = race(answers, preference, QUERIES, near=NEAR, seed=seed, named=2)
        confirmed = found.confirmed(NOISE)
        if found.stopped and not confirmed and found.gain.mean > 0:
            answers.most = None
            whole = race(answers, preference, QUERIES, near=NEAR, seed=seed, named=2)
            assert whole.queries > found.queries
            confirmed, went_on = whole.confirmed(NOISE), went_on + 1
        other = race(
            _Answers(_null(draw, 0.6, shared)), -FEWER_ROWS, QUERIES, near=NEAR, seed=seed, care=AFTER_TWO_LOOKS
        )
        pruned += confirmed or other.confirmed(NOISE)
    plain, careful = (
        race(_Answers(answers.utilities), preference, QUERIES, near=NEAR, care=care) for care in (1.0, AFTER_TWO_LOOKS)
    )
    assert careful.gain.error == pytest.approx(1.96 / 1.645 * plain.gain.error)
    assert went_on > 0.2 * runs
    assert pruned / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_what_was_named_beforehand_is_confirmed_more_often_and_told_truly() -> None:
    """One of twelve candidates turns .15 of the queries right and .05 wrong; the others do part of that."""
    gain, runs, told, covered = 0.1, 200, {0: 0, CANDIDATES - 1: 0}, 0
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        base, chance, at = draw.random(100) < 0.6, draw.random(100), draw.random(100)
        best = np.where(base, chance >= LOST / 0.6, chance < (gain + LOST) / 0.4)
        shares = np.linspace(0, 1, CANDIDATES)
        utilities = np.array([np.where(at < share, best, base) for share in shares], np.float64)
        for named in told:
            found = _named(utilities, seed, named)
            told[named] += found.confirmed(NOISE)
        low, high = found.gain.interval
        covered += low <= gain <= high
    assert told[CANDIDATES - 1] - told[0] > 0.05 * runs
    assert covered / runs >= 0.95


def test_the_gain_of_what_was_named_is_its_plain_difference_on_all_queries() -> None:
    utilities = _planted(np.random.default_rng(2))
    alone = utilities[[0, PLANTED]]
    found = _named(alone, 0, 1)
    plain = gain_of(alone[1] - alone[0])
    assert (found.winner, found.named, found.gain.mean) == (1, True, plain.mean)
    assert found.gain.error == NAMED * plain.error
    worse = _named(alone[::-1], 0, 1)
    assert worse.gain.mean < 0 and not worse.confirmed(0.0), "a name alone confirms nothing"


def test_a_planted_gain_is_found_with_fewer_answers_and_told_truly() -> None:
    draw, runs = np.random.default_rng(12), 300
    found, share, winners, covered = [], [], 0, 0
    for seed in range(runs):
        outcome, answers = _run(_planted(draw), seed)
        found.append(outcome.confirmed(NOISE))
        share.append(answers.asked.mean())
        winners += outcome.winner == PLANTED
        low, high = outcome.gain.interval
        covered += low <= 0.2 <= high
    assert np.mean(found) > 0.8
    assert winners / runs > 0.85
    assert np.mean(share) < 0.7
    assert covered / runs > 0.9


def test_the_gain_is_that_of_queries_that_did_not_choose() -> None:
    """Every candidate is worse on all queries but its own ten: on other queries the winner is as bad as any."""
    utilities = np.full((CANDIDATES, QUERIES), 0.0)
    utilities[0] = np.arange(QUERIES) % 2
    for candidate in range(1, CANDIDATES):
        utilities[candidate, 5 * (candidate - 1) : 5 * candidate] = 1.0
    found, _ = _run(utilities, 0)
    assert found.winner == 0 and not found.confirmed(0.0)


def test_a_candidate_whose_hard_queries_got_no_answer_does_not_lead() -> None:
    for seed in range(20):
        hard = np.random.default_rng(seed).permutation(100) < 40
        baseline = (~hard).astype(np.float64)
        better, unanswered = baseline.copy(), baseline.copy()
        better[np.flatnonzero(hard)[:20]] = 1.0
        unanswered[np.flatnonzero(hard)[-28:]] = np.nan  # below a tenth of the cells: more would end the race
        found = race(_Answers(np.stack([baseline, better, unanswered])), np.zeros(3), 100, seed=seed)
        assert found.winner == 1 and found.confirmed(NOISE)


def test_ties_go_to_the_candidate_that_prunes_fewer_rows() -> None:
    found, answers = _run(np.ones((CANDIDATES, QUERIES)), 3)
    assert (found.winner, found.gain.mean) == (0, 0.0)
    assert answers.asked.all()
    better = np.ones((CANDIDATES, QUERIES))
    better[0, ::2] = 0.0
    assert _run(better, 3)[0].winner == 1


def _three(behind: int) -> Float64s:
    """The baseline is never right, the first candidate always, and the second on all but ``behind`` of the queries."""
    utilities = np.ones((3, QUERIES))
    utilities[0] = 0.0
    utilities[2, np.random.default_rng(0).permutation(QUERIES)[:behind]] = 0.0
    return utilities


def test_what_the_answers_do_not_tell_apart_other_evidence_decides() -> None:
    preference = np.array([0.0, -100.0, 100.0])
    assert _run(_three(2), 1, preference=preference)[0].winner == 1
    assert _run(_three(2), 1, preference=preference, near=NEAR)[0].winner == 2
    assert _run(_three(2), 1, preference=-preference, near=NEAR)[0].winner == 1
    far, _ = _run(_three(20), 1, preference=preference, near=NEAR)
    assert far.winner == 1 and far.dropped[2], "answers that do tell them apart count for more"


def test_of_several_that_other_evidence_prefers_alike_the_best_answers_decide() -> None:
    draw = np.random.default_rng(5)
    base = (draw.random(QUERIES) < 0.5).astype(np.float64)
    better, best = base.copy(), base.copy()
    better[np.flatnonzero(base == 0)[:8]] = 1.0
    best[np.flatnonzero(base == 0)[:10]] = 1.0
    found = np.stack([base, better, best, better])
    assert race(lambda wanted: found, np.array([0.0, 5.0, 5.0, 1.0]), QUERIES, near=NEAR).winner == 2
    assert race(lambda wanted: found, np.array([0.0, 5.0, 4.9, 1.0]), QUERIES, near=NEAR).winner == 1


def test_what_other_evidence_prefers_is_not_dropped_for_some_bad_luck() -> None:
    unlucky = np.ones((3, QUERIES))
    unlucky[0] = 0.0
    order = np.random.default_rng(7).permutation(QUERIES)
    unlucky[2, order[:3]] = 0.0
    preference = np.array([0.0, -100.0, 100.0])
    assert _run(unlucky, 7, preference=preference)[0].dropped[2] == FIRST
    kept, _ = _run(unlucky, 7, preference=preference, near=NEAR)
    assert (kept.winner, kept.dropped[2]) == (2, 0)


def test_looking_after_every_batch_drops_what_other_evidence_prefers_in_few_races() -> None:
    """All candidates but the baseline are equally good, and agree on most queries."""
    preference, runs, dropped = np.array([0.0, 10.0, 5.0, 0.0, 0.0, 0.0]), 300, 0
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        hardness = np.where(draw.random((6, 200)) < 0.8, draw.random(200), draw.random((6, 200)))
        utilities = (hardness < np.array([0.5, *[0.76] * 5])[:, None]).astype(np.float64)
        found, _ = _run(utilities, seed, preference=preference, near=NEAR)
        dropped += found.dropped[1] > 0
    assert dropped / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_a_hopeless_pruning_is_dropped_at_the_first_batch_and_the_race_ends_when_only_the_baseline_is_left() -> None:
    utilities = np.zeros((CANDIDATES, QUERIES))
    utilities[0] = 1.0
    found, answers = _run(utilities, 0)
    assert (found.winner, found.stopped) == (0, False)
    assert found.dropped[1:].tolist() == [FIRST] * (CANDIDATES - 1)
    assert answers.asked.sum() < utilities.size / 2
    assert found.against_baseline(1).mean == -1.0


@pytest.mark.parametrize("most", [0, 100, 130, 250, 400])
def test_a_budget_ends_the_race_with_what_is_known(most: int) -> None:
    utilities = _planted(np.random.default_rng(4))
    found, answers = _run(utilities, 4, most)
    assert answers.asked.sum() <= most
    assert found.stopped
    assert (found.queries == 0) == (most < CANDIDATES * FIRST)
    if not found.queries:
        assert (found.winner, found.confirmed(0.0)) == (0, False)
    else:
        assert not np.isnan(found.utilities[0]).all()
        assert int((~np.isnan(found.utilities[0])).sum()) == found.queries == found.gain.queries


def test_a_race_repeats_itself_and_depends_on_its_seed_alone() -> None:
    utilities = _planted(np.random.default_rng(5))
    (one, asked), (two, again) = _run(utilities, 1), _run(utilities, 1)
    assert (one.winner, one.gain) == (two.winner, two.gain)
    assert (asked.asked == again.asked).all()


def test_few_differences_are_not_taken_for_many() -> None:
    """Three wins and no loss: by chance once in eight times."""
    few = np.zeros(QUERIES)
    few[:3] = 1.0
    assert gain_of(few).mean < NOISE * gain_of(few).error
    many = np.zeros(QUERIES)
    many[:8] = 1.0
    assert gain_of(many).mean > NOISE * gain_of(many).error
    assert gain_of(np.zeros(QUERIES)).error > 0


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gains_are_the_formula_written_out(missing: float) -> None:
    draw = np.random.default_rng(3)
    differences = draw.beta(0.5, 0.5, (CANDIDATES, 203)) - draw.beta(0.5, 0.5, (CANDIDATES, 203))
    differences[draw.random(differences.shape) < missing] = np.nan
    differences[0] = np.nan
    for one, mean, error, known in zip(differences.tolist(), *gains_of(differences, 0.7), strict=True):
        values = [value for value in one if not math.isnan(value)]
        n, total = len(values), sum(values)
        spread = sum(value * value for value in values) + 0.7**2 - total**2 / (n + 2)
        assert known == n and mean == pytest.approx(total / n if n else 0.0)
        assert error == pytest.approx(math.sqrt(spread) / n if n else math.inf)


def level_of(draw: Callable[[np.random.Generator, int], Float64s], n: int) -> float:
    """How often, of 1,000 races of two equal candidates, one is said to gain: differences of mean 0."""
    chance = np.random.default_rng(n)
    told = 0
    for _ in range(1000):
        utilities = draw(chance, n)
        gain = gain_of(utilities[1] - utilities[0], span_of(utilities))
        told += gain.mean > 1.96 * SHARED * gain.error
    return told / 1000


def as_rouge(chance: np.random.Generator, n: int) -> Float64s:
    base = chance.uniform(0.1, 0.6, n)
    return np.clip(np.stack([base, base + chance.normal(0.0, 0.05, n)]), 0, 1)


def as_f1(chance: np.random.Generator, n: int) -> Float64s:
    first, second, same = chance.beta(0.5, 0.5, n), chance.beta(0.5, 0.5, n), chance.random(n) < 0.6
    return np.stack([first, np.where(same, first, second)])


def rarely_lost(chance: np.random.Generator, n: int) -> Float64s:
    """Many small gains, and once in twenty nearly all is lost."""
    base = chance.uniform(0.76, 0.9, n)
    return np.stack([base, np.where(chance.random(n) < 0.05, base - 0.76, base + 0.04)])


@pytest.mark.parametrize("n", [20, 40, 60, 200])
@pytest.mark.parametrize("draw", [as_rouge, as_f1, rarely_lost])
def test_values_between_0_and_1_gain_by_chance_no_more_often_than_the_level(
    draw: Callable[[np.random.Generator, int], Float64s], n: int
) -> None:
    assert level_of(draw, n) <= 0.05


def test_a_metric_of_small_differences_has_power() -> None:
    """A gain of .03 in values that differ by .05 a query, over 120 of them: with a span of 1 it is hardly ever told."""

    def better(chance: np.random.Generator, n: int) -> Float64s:
        return as_rouge(chance, n) + np.array([[0.0], [0.03]])

    assert level_of(better, 120) > 0.9
    chance = np.random.default_rng(1)
    utilities = better(chance, 120)
    plain = gain_of(utilities[1] - utilities[0])
    assert plain.mean < 1.96 * SHARED * plain.error


def test_right_and_wrong_are_told_as_before() -> None:
    """The span of 0 and 1 is 1, whatever was seen of them."""
    for utilities in (np.array([[0.0, 1.0], [1.0, 1.0]]), np.ones((2, 5)), np.zeros((2, 5)), np.full((2, 3), np.nan)):
        assert span_of(utilities) == 1.0


@pytest.mark.parametrize(("queries", "deviation", "low", "high"), [
    (40, 0.0, 0.35, 0.65), (200, 0.0, 0.35, 0.65), (60, FOUR_OF_FIVE, 0.7, 0.97), (200, FOUR_OF_FIVE, 0.7, 0.97),
])  # fmt: skip
def test_a_planted_gain_is_confirmed_as_often_as_foretold(
    queries: int, deviation: float, low: float, high: float
) -> None:
    """Beside five candidates as good as the baseline, one turns gain + LOST of the queries right and LOST wrong."""
    gain, runs, found = visible_gain(queries, NOISE, deviation), 120, 0
    for seed in range(runs):
        draw = np.random.default_rng([seed, queries])
        base = draw.random(queries) < 0.6
        equal = [np.where(draw.random(queries) < 2 * LOST, draw.random(queries) < 0.6, base) for _ in range(5)]
        chance = draw.random(queries)
        planted = np.where(base, chance >= LOST / 0.6, chance < (gain + LOST) / 0.4)
        utilities = np.array([base, *equal, planted], np.float64)
        done = race(_Answers(utilities), np.zeros(len(utilities)), queries, seed=seed)
        found += done.winner == 6 and done.confirmed(NOISE)
    assert low <= found / runs <= high
    assert visible_gain(10 * queries, NOISE, deviation) < gain / 2  # as the root of the queries, or faster


def test_an_interval_of_a_difference_of_shares_ends_at_one() -> None:
    assert gain_of(np.ones(10)).interval[1] == 1.0 and gain_of(-np.ones(10)).interval[0] == -1.0
