"""The expected accuracy against brute force, and against a truth that is known."""

from __future__ import annotations

import numpy as np
import pytest
from icl_curate.engine.evaluate.statistics import wilson
from icl_curate.engine.watch.expected import reweighted, strata_edges


def test_the_weighted_accuracy_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    similarity, new = rng.random(130), rng.random(40) ** 2
    right = (rng.random(130) < similarity).astype(float)
    weights = rng.integers(1, 5, 40)
    found = reweighted(right, similarity, new, weights, resamples=10)
    edges = strata_edges(similarity)
    assert len(edges) == 5
    total = 0.0
    for value, times in zip(new, weights, strict=True):
        stratum = sum(value >= edge for edge in edges)
        own = [r for r, s in zip(right, similarity, strict=True) if sum(s >= edge for edge in edges) == stratum]
        total += times * sum(own) / len(own)
    assert found.accuracy == pytest.approx(total / weights.sum())
    assert sum(one.share for one in found.strata) == pytest.approx(1)
    assert sum(one.evaluated for one in found.strata) == 130
    assert found.outside == pytest.approx(weights[new < similarity.min()].sum() / weights.sum())


def test_on_the_evaluated_queries_themselves_it_is_their_accuracy() -> None:
    rng = np.random.default_rng(1)
    similarity, right = rng.random(300), (rng.random(300) < 0.7).astype(float)
    found = reweighted(right, similarity, similarity, np.ones(300, np.int64), resamples=100)
    assert found.accuracy == pytest.approx(right.mean())
    assert found.low < right.mean() < found.high
    assert found.outside == 0


def test_the_interval_holds_what_is_true_about_as_often_as_it_says() -> None:
    """Accuracy that depends on similarity alone, in steps at the borders of the strata."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(60):
        similarity, new = rng.random(400), rng.random(300) ** 2
        right = (rng.random(400) < 0.2 + 0.7 * similarity).astype(float)
        found = reweighted(right, similarity, new, np.ones(300, np.int64), resamples=100)
        held += found.low <= 0.2 + 0.7 / 3 <= found.high
    assert held >= 50


def test_evaluated_queries_that_were_all_right_are_no_certainty() -> None:
    same = np.linspace(0.1, 0.9, 20)
    found = reweighted(np.ones(20), same, same, np.ones(20, np.int64), resamples=50)
    assert (found.low, found.high) == pytest.approx(wilson(20, 20))


def test_few_queries_are_one_stratum_and_equal_similarities_too() -> None:
    assert strata_edges(np.array([0.1, 0.2, 0.3])).tolist() == [-np.inf]
    assert len(strata_edges(np.full(200, 0.5))) == 2
    one = reweighted(np.array([1.0, 0.0]), np.array([0.5, 0.6]), np.array([0.1]), np.array([3]), resamples=10)
    assert one.accuracy == 0.5
    assert one.outside == 1.0


def test_wilson_is_that_of_the_literature() -> None:
    """Newcombe 1998, Two-sided confidence intervals for the single proportion, table I, method 3."""
    for (successes, trials), wanted in {
        (81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611), (1, 29): (0.0061, 0.1718),
    }.items():  # fmt: skip
        assert wilson(successes, trials) == pytest.approx(wanted, abs=1e-4)
