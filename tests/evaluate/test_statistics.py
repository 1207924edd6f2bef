"""Intervals and paired tests against scipy and against their own definition."""

from __future__ import annotations

from itertools import product

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


def test_paired_permutations_are_near_the_paired_t_test_on_smooth_differences() -> None:
    rng = np.random.default_rng(5)
    b = rng.random(300)
    a = np.clip(b + rng.normal(0.02, 0.2, 300), 0, 1)
    found, theirs = compare(a, b), stats.ttest_rel(a, b)
    assert found.test == "permutation"
    assert found.p == pytest.approx(theirs.pvalue, abs=0.02)
    assert (found.low, found.high) == pytest.approx(theirs.confidence_interval(), abs=0.002)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=20))
def test_of_few_differences_p_is_exact(thirds: list[tuple[int, int]]) -> None:
    """Shares of three seeds: many sums are equal, and pairs without a difference count for nothing."""
    a, b = (np.array(side) / 3 for side in zip(*thirds, strict=True))
    found = compare(a, b)
    moved = (a - b)[a != b]
    if found.test != "permutation" or moved.size > 13:
        return
    sums = [abs(sum(s * d for s, d in zip(signs, moved, strict=True))) for signs in product((-1, 1), repeat=moved.size)]
    assert found.p == pytest.approx(np.mean(np.array(sums) >= abs(moved.sum()) - 1e-9))


def test_of_many_differences_p_is_scipys() -> None:
    a, b = np.random.default_rng(8).beta(0.5, 0.5, (2, 40))
    mean = lambda x, y, axis: (x - y).mean(axis)  # noqa: E731
    theirs = stats.permutation_test((a, b), mean, permutation_type="samples", vectorized=True, rng=2)
    assert compare(a, b).p == pytest.approx(theirs.pvalue, abs=0.02)
    assert compare(a, b).p == compare(b, a).p


@pytest.mark.parametrize("n", [3, 5, 8, 10, 20])
def test_equal_methods_differ_significantly_in_one_table_of_twenty(n: int) -> None:
    """Twice the share of bootstrapped means beyond zero, in place of p, is below .05 in .32 of the tables for n = 3."""
    pairs = np.random.default_rng(n).beta(0.5, 0.5, (400, 2, n))
    assert np.mean([compare(a, b).p < 0.05 for a, b in pairs]) <= 0.07
    assert compare(np.array([0.9, 0.8, 0.7]), np.array([0.4, 0.3, 0.1])).p == 2 / 2**3


@pytest.mark.parametrize("n", [5, 8, 13, 20])
def test_the_interval_of_a_difference_covers_it_for_few_queries(n: int) -> None:
    """A percentile bootstrap alone does in .83 of the samples for n = 5."""
    draw = np.random.default_rng([n, 1])
    true = 4 / 6 - 2 / 6
    found = [compare(draw.beta(4, 2, n), draw.beta(2, 4, n)) for _ in range(400)]
    assert 0.93 <= np.mean([one.low <= true <= one.high for one in found]) <= 0.98


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


def test_seeds_on_one_side_only_are_compared_by_permutation() -> None:
    rights, means = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.5, 1.0, 0.5, 0.0])
    assert compare(rights, means, 0).test == compare(means, rights, 0).test == "permutation"
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
