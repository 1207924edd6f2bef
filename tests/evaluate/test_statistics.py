"""Intervals and paired tests against scipy and against their own definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.evaluate.statistics import alike_interval, bootstrap_interval, compare, holm, wilson
from scipy import stats


def test_bootstrap_interval_agrees_with_scipy() -> None:
    items = np.random.default_rng(3).random(400)
    ours = bootstrap_interval(items)
    theirs = stats.bootstrap((items,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.003)


def test_bootstrap_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_interval((rng.random(150) < 0.6).astype(float), seed=trial)
        covered += low <= 0.6 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_seeds_of_one_query_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(1)
    once = (rng.random(200) < 0.5).astype(float)
    width = np.diff(bootstrap_interval(once))
    as_if_independent = np.diff(bootstrap_interval(np.repeat(once, 5)))
    assert width > 2 * as_if_independent  # why outcomes are averaged over seeds before they come here


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(better: int, worse: int, same: int) -> None:
    a = np.array([1.0] * better + [0.0] * worse + [1.0] * same)
    b = np.array([0.0] * better + [1.0] * worse + [1.0] * same)
    found = compare(a, b)
    if better + worse + same == 0:
        assert found.test == "none"
        return
    n = better + worse
    tail = sum(stats.binom.pmf(i, n, 0.5) for i in range(min(better, worse) + 1))
    assert found.test == "mcnemar"
    assert found.p == pytest.approx(min(1.0, 2 * tail), abs=1e-9)
    assert found.difference == pytest.approx((better - worse) / (n + same))


def test_paired_bootstrap_is_near_the_paired_t_test_on_smooth_differences() -> None:
    rng = np.random.default_rng(5)
    b = rng.random(300)
    a = b + rng.normal(0.02, 0.2, 300)
    found = compare(a, b)
    assert found.test == "bootstrap"
    assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert found.low < found.difference < found.high


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_textbook_procedure(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    ordered = sorted(p_values)
    m = len(ordered)
    for alpha in (0.01, 0.05, 0.2):
        rejected = 0
        for i, p in enumerate(ordered):
            if p * (m - i) > alpha:
                break
            rejected += 1
        assert sum(p <= alpha for p in adjusted) == rejected


def test_seeds_on_one_side_only_are_compared_by_bootstrap() -> None:
    rights, means = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.5, 1.0, 0.5, 0.0])
    assert compare(rights, means, 0).test == compare(means, rights, 0).test == "bootstrap"
    assert compare(rights, 1 - rights, 0).test == "mcnemar"


@pytest.mark.parametrize("p", [0.0, 0.02, 0.98, 1.0])
@pytest.mark.parametrize("n", [5, 8, 13, 20, 35, 60])
def test_the_interval_covers_shares_near_0_and_1_although_outcomes_hardly_vary(n: int, p: float) -> None:
    """A bootstrap alone covers .02 of 20 queries in one of three samples: the others have no right answer."""
    right = np.random.default_rng([n, int(100 * p)]).binomial(n, p, 400)
    intervals = {k: bootstrap_interval((np.arange(n) < k).astype(float), seed=1) for k in set(right.tolist())}
    covered = [intervals[k][0] - 1e-9 <= p <= intervals[k][1] + 1e-9 for k in right.tolist()]
    assert np.mean(covered) >= 0.93


@settings(deadline=None)
@given(st.integers(1, 80), st.booleans())
def test_outcomes_that_are_all_alike_are_no_certainty(n: int, right: bool) -> None:
    found = bootstrap_interval(np.full(n, float(right)))
    theirs = stats.binomtest(n * right, n).proportion_ci(method="wilson")
    assert found == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert found == pytest.approx(wilson(n * right, n), abs=1e-9)
    thirds = bootstrap_interval(np.full(n, 1 / 3))  # of three seeds
    assert thirds[0] < 1 / 3 < thirds[1]
    assert alike_interval(1 / 3, n) == thirds


@settings(deadline=None)
@given(st.integers(1, 40), st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]))
def test_pairs_that_all_differ_alike_are_no_certainty(n: int, by: float) -> None:
    b = np.full(n, 0.0 if by > 0 else -by)
    found = compare(b + by, b)
    assert -1 <= found.low <= by <= found.high <= 1 and found.high - found.low > 0
    assert found.p == pytest.approx(stats.binomtest(n, n).pvalue if by else 1.0)  # of n pairs on one side


def test_equal_methods_may_differ_on_other_queries() -> None:
    """By the rule of three, 20 pairs without a difference exclude one of more than .15."""
    found = compare(np.ones(20), np.ones(20))
    assert (found.difference, found.p) == (0.0, 1.0)
    assert 0.14 < found.high == -found.low < 0.17


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=1, max_size=12), st.integers(0, 2**12 - 1))
def test_what_is_missing_is_left_out_on_both_sides(values: list[float], bits: int) -> None:
    a, b = np.array(values), np.array([float(bits >> i & 1) for i in range(len(values))])
    there = ~np.isnan(a)
    assert bootstrap_interval(a) == pytest.approx(bootstrap_interval(a[there]), nan_ok=True)
    assert compare(a, b) == compare(a[there], b[there]) or not there.any()
