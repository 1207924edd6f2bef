"""Intervals and paired tests against scipy and against their own definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.evaluate.statistics import bootstrap_interval, compare, holm
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
