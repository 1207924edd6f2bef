"""The estimators of source importance against enumeration over sources, their bounds and their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from factories.toggling import Present, set_marginals
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.papers.sources.estimators import (
    grouped,
    grouped_gradient,
    monte_carlo,
    multilinear,
    sampled_ascent,
    sampled_gradient,
)
from icl_curate.engine.papers.sources.gradient import multilinear_gradient
from icl_curate.engine.trials.estimators import ESTIMATORS, leave_one_out, reliability, reliability_error
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from icl_curate.engine.trials.votes import vote, vote_marginals
from scipy import stats


def small(seed: int, sources: int = 6, rows: int = 8) -> RankedLists:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 14, rows)
    answers = [draw.integers(0, 4, n).tolist() for n in lengths]
    return ranked_lists(
        [[f"s{i}" for i in draw.integers(0, sources, n)] for n in lengths],
        answers,
        [[float(a == 0) for a in row] for row in answers],
        names=[f"s{i}" for i in range(sources)],
    )


def additive(lists: RankedLists, k: int) -> Callable[[Present], float]:
    def utility(present: Present) -> float:
        total = 0.0
        for n in range(len(lists)):
            own = slice(lists.offsets[n], lists.offsets[n + 1])
            total += float(lists.utilities[own][present[lists.sources[own]]][:k].sum()) / k
        return total / len(lists)

    return utility


def voted(lists: RankedLists, k: int) -> Callable[[Present], float]:
    return lambda present: float(vote(lists, k, present).mean())


def enumerated(utility: Callable[[Present], float], weights: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    gradient = np.zeros(len(weights))
    for bits in itertools.product((False, True), repeat=len(weights)):
        present = np.array(bits)
        value = utility(present)
        chance = np.where(present, weights, 1 - np.asarray(weights))
        for source in range(len(weights)):
            gradient[source] += (1 if present[source] else -1) * value * np.delete(chance, source).prod()
    return gradient


@pytest.mark.parametrize("k", [1, 3, 5, 20])
@pytest.mark.parametrize("seed", [0, 1])
def test_grouped_gradient_equals_enumeration_over_sources(k: int, seed: int) -> None:
    lists = small(seed)
    for weights in ([0.5] * 6, [0.0, 1.0, 0.3, 0.9, 1.0, 0.0]):
        expected = enumerated(additive(lists, k), weights)
        np.testing.assert_allclose(grouped_gradient(lists, weights, k), expected, atol=1e-13)


def test_grouped_is_multilinear_where_no_list_repeats_a_source() -> None:
    draw = np.random.default_rng(4)
    rows = [draw.permutation(12)[: draw.integers(1, 13)] for _ in range(40)]
    utilities = [draw.random(len(row)).tolist() for row in rows]
    lists = ranked_lists([[f"{i:02}" for i in row] for row in rows], rows, utilities)
    weights = draw.random(12)
    flat = multilinear_gradient(lists.sources, lists.utilities, weights, 3, lists.lengths)
    np.testing.assert_allclose(grouped_gradient(lists, weights, 3), flat, atol=1e-13)
    np.testing.assert_allclose(grouped(lists, 3, rate=5, epochs=5), multilinear(lists, 3, rate=5, epochs=5), atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_vote_marginals_equal_toggling_each_source(k: int) -> None:
    for seed in range(5):
        lists = small(seed)
        present = np.random.default_rng(seed).random(6) < 0.6
        by_toggling = set_marginals(voted(lists, k), 6)(present)
        np.testing.assert_allclose(vote_marginals(lists, present, k), by_toggling, atol=1e-13)
        everything = voted(lists, k)(np.ones(6, bool))
        without = [voted(lists, k)(np.arange(6) != source) for source in range(6)]
        np.testing.assert_allclose(leave_one_out(lists, k), everything - np.array(without), atol=1e-13)


def test_monte_carlo_keeps_its_promise_and_stops_early() -> None:
    lists, weights, delta = small(3), np.full(6, 0.5), 0.1
    exact = enumerated(voted(lists, 3), weights)
    epsilon, broken, runs = 0.1, 0, 20
    for seed in range(runs):
        estimate = sampled_gradient(
            lambda present: vote_marginals(lists, present, 3), weights, epsilon=epsilon, delta=delta, seed=seed
        )
        assert estimate.samples <= estimate.bound
        broken += bool((np.abs(estimate.gradient - exact) > np.minimum(estimate.error, epsilon)).any())
    assert broken / runs <= delta
    tight = sampled_gradient(lambda p: vote_marginals(lists, p, 3), weights, epsilon=0.02, delta=delta)
    assert tight.samples < tight.bound
    assert (np.abs(tight.gradient - exact) <= tight.error).all()


def test_monte_carlo_takes_any_utility_and_asks_for_hoeffdings_samples() -> None:
    def product(present: Present) -> float:  # far from additive: all of three sources, or nothing
        return float(present.all())

    weights = np.array([0.9, 0.5, 0.7])
    estimate = sampled_gradient(set_marginals(product, 3), weights, epsilon=0.1, delta=0.05)
    assert estimate.bound == math.ceil(2 * math.log(4 * 3 / 0.05) / 0.1**2)
    np.testing.assert_allclose(estimate.gradient, enumerated(product, weights), atol=0.1)


def test_sampling_stops_at_the_bound_of_maurer_and_pontil() -> None:
    """Without variance only the second term of theorem 4 is left: 7 R ln(2/δ') / (3 (n − 1)), R the range."""
    epsilon, delta, sources, span = 0.01, 0.05, 5, 0.5
    found = sampled_gradient(lambda _: np.full(5, 0.3), np.full(5, 0.5), epsilon=epsilon, delta=delta, span=span)
    each = delta / 2 / (sources * found.bound.bit_length()) / 2  # half of δ, over sources, looks and both sides
    halfwidths = {2**i: 7 * 2 * span * math.log(2 / each) / (3 * (2**i - 1)) for i in range(1, 20)}
    assert found.samples == min(n for n, half in halfwidths.items() if half <= epsilon) < found.bound
    assert found.error == pytest.approx(halfwidths[found.samples])


@pytest.mark.parametrize("utility", [voted, additive])
def test_sampled_weights_follow_the_ascent_on_the_exact_gradient(utility: Any) -> None:
    """By enumeration over all sets of sources; each epoch adds at most rate · ε to the distance."""
    lists, rate, epochs, epsilon = small(5, sources=4, rows=6), 2.0, 3, 0.05
    weights = np.full(4, 0.5)
    for _ in range(epochs):
        weights = np.clip(weights + rate * enumerated(utility(lists, 3), weights), 0.0, 1.0)
    found = sampled_ascent(set_marginals(utility(lists, 3), 4), 4, rate=rate, epochs=epochs, epsilon=epsilon, delta=0.1)
    assert np.abs(found - weights).max() < epochs * rate * epsilon
    assert np.abs(weights - 0.5).max() > epochs * rate * epsilon  # staying at the start is not enough
    if utility is voted:
        vote_weights = monte_carlo(lists, 3, rate=rate, epochs=epochs, epsilon=epsilon, delta=0.1)
        assert np.abs(vote_weights - weights).max() < epochs * rate * epsilon
    else:  # the gradient that appendix C computes exactly
        exact = grouped(lists, 3, rate=rate, epochs=epochs)
        assert np.abs(found - exact).max() < epochs * rate * epsilon


def test_every_epoch_gets_its_share_of_delta() -> None:
    """Two right and two wrong sources of a utility that is far from additive: all right ones or nothing."""

    def both(present: Present) -> float:
        return float(present[:2].all() and not present[2:].any())

    learnt = sampled_ascent(set_marginals(both, 4), 4, rate=4.0, epochs=6, epsilon=0.1)
    assert learnt == pytest.approx([1, 1, 0, 0], abs=0.02)


def test_reliability_is_the_posterior_mean_and_beats_raw_means() -> None:
    draw = np.random.default_rng(0)
    truth = draw.beta(6, 4, 200)
    counts = draw.integers(1, 30, 200)
    names, right = [], []
    for source, (p, n) in enumerate(zip(truth, counts, strict=True)):
        for _ in range(n):
            names.append([f"{source:03}"])
            right.append([float(draw.random() < p)])
    lists = ranked_lists(names, [["a"]] * len(names), right)
    raw = np.bincount(lists.sources, lists.utilities) / counts
    scores = reliability(lists)
    bayes = (raw * counts + 6) / (counts + 10)  # with the prior that drew them
    assert np.square(scores - truth).mean() < 0.7 * np.square(raw - truth).mean()
    assert np.abs(scores - bayes).mean() < 0.03
    errors = reliability_error(lists)
    assert (np.abs(scores - truth) < 1.96 * errors).mean() > 0.85
    assert errors[counts.argmax()] < errors[counts.argmin()]


def test_a_source_without_answers_has_the_neutral_score() -> None:
    lists = ranked_lists(
        [["a", "b"]] * 50, [["x", "y"]] * 50, [[1.0, 0.0]] * 25 + [[1.0, 1.0]] * 25, names=["a", "b", "none"]
    )
    scores = {name: estimator.scores(lists, 1) for name, estimator in ESTIMATORS.items()}
    for name, neutral in (("multilinear", 0.5), ("grouped", 0.5), ("leave-one-out", 0.0), ("monte-carlo", 0.5)):
        assert scores[name][2] == neutral
    assert scores["reliability"][2] == pytest.approx(0.75)
    for name in ("leave-one-out", "monte-carlo", "reliability"):
        assert scores[name][0] > scores[name][1]
    constant = ranked_lists([["a", "b"]] * 10, [["x", "y"]] * 10, [[1.0, 0.0]] * 10, names=["a", "b", "none"])
    assert reliability(constant).tolist() == pytest.approx([1.0, 0.0, 0.5], abs=0.01)
    assert reliability_error(constant)[2] > reliability_error(constant)[0] > 0


@pytest.mark.parametrize("prior", [(4, 4), (20, 20), (1, 1), (2, 8)])
@pytest.mark.parametrize(("sources", "least", "most"), [(6, 1, 6), (20, 1, 1), (20, 1, 6), (20, 5, 20), (20, 50, 300)])
def test_the_error_of_reliability_says_how_far_it_is_off(
    sources: int, least: int, most: int, prior: tuple[int, int]
) -> None:
    """Shares drawn from a beta distribution. A posterior deviation with the squares within sources alone covers none of
    those with one answer each, and .80 to .86 of many with one to six."""
    draw = np.random.default_rng([sources, least, most, *prior])
    covered = []
    for _ in range(60):
        truth, counts = draw.beta(*prior, sources), draw.integers(least, most + 1, sources)
        right = draw.random(counts.sum()) < np.repeat(truth, counts)
        names = [f"{i:02}" for i in np.repeat(np.arange(sources), counts)]
        lists = ranked_lists([names], [names], [right.astype(float).tolist()])
        covered.append(np.abs(reliability(lists) - truth) <= 1.96 * reliability_error(lists))
    assert np.mean(covered) >= 0.9


def test_of_hundreds_of_answers_reliability_is_the_beta_binomial_posterior() -> None:
    draw = np.random.default_rng(3)
    counts, truth = draw.integers(200, 400, 30), draw.beta(8, 4, 30)
    right = draw.binomial(counts, truth)
    utilities = [float(i < hits) for hits, n in zip(right, counts, strict=True) for i in range(n)]
    names = [[f"{i:02}"] for i in np.repeat(np.arange(30), counts)]
    lists = ranked_lists(names, [["a"]] * len(names), [[u] for u in utilities])
    posterior = [stats.beta(8 + hits, 4 + n - hits) for hits, n in zip(right, counts, strict=True)]
    assert reliability(lists) == pytest.approx([one.mean() for one in posterior], abs=0.01)
    assert np.sqrt(np.mean(reliability_error(lists) ** 2)) == pytest.approx(
        np.sqrt(np.mean([one.var() for one in posterior])), rel=0.05
    )


def test_learning_reports_each_epoch_and_can_be_stopped() -> None:
    lists, token, seen = small(1), CancelToken(), []

    def report(event: Event) -> None:
        seen.append(event.done)
        if event.done == 3:
            token.cancel()

    with pytest.raises(Cancelled):
        monte_carlo(lists, 2, epochs=10, monitor=Monitor(report, token))
    assert seen == [1, 2, 3]
