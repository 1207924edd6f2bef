"""Statistics: bootstrap intervals over queries, paired tests between methods.

A query asked under several seeds is one item: its outcomes are averaged first, so that five seeds on 200 queries never
count as 1,000 observations. An item that is nan is missing: it is left out, and so is a pair that lacks one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from ..base.arrays import Float64s

RESAMPLES = 10_000
_BLOCK = 4_000_000  # resampled values in memory at once (32 MB)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``difference`` is a − b in the outcomes' unit; ``test`` names what ``p`` (two-sided) comes from."""

    difference: float
    low: float
    high: float
    p: float
    test: str


def bootstrap_interval(items: Float64s, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of ``items`` (n,), one value from 0 to 1 per query;
    `alike_interval` where all are equal, because resamples of these do not differ.

    Returns (nan, nan) for no items. Efron & Tibshirani 1993, chapter 13. `scipy.stats.bootstrap` draws the same
    resamples from the same generator, in the same time, once it is imported, which takes half a second.
    """
    items = items[~np.isnan(items)]
    if items.size == 0:
        return float("nan"), float("nan")
    if np.ptp(items) == 0.0:
        return alike_interval(float(items[0]), items.size)
    means = _resampled_means(items, seed)
    low, high = np.quantile(means, [(1 - 0.95) / 2, (1 + 0.95) / 2])
    return float(low), float(high)


def interval_of(items: Float64s, seed: int = 0) -> tuple[float, float] | None:
    """`bootstrap_interval`, None without items that are known."""
    return None if np.isnan(items).all() else bootstrap_interval(items, seed)


def mean_of(items: Float64s | Sequence[float | None]) -> float | None:
    """The mean of the items that are known, None without any."""
    values = np.asarray(items, np.float64)
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def over_seeds(outcomes: Sequence[Float64s]) -> Float64s:
    """Of each query (n,) the mean over the seeds in which its outcome is known, nan if it is in none."""
    known = ~np.isnan(outcomes)
    sums, counts = np.where(known, outcomes, 0.0).sum(axis=0), known.sum(axis=0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), np.float64)


def wilson(successes: float, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a share of at least one trial (Wilson 1927); it holds for few trials and for shares of 0 and 1, too,
    where a bootstrap has none."""
    share, z = successes / trials, NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def alike_interval(value: float, items: int, least: float = 0.0) -> tuple[float, float]:
    """Interval of the mean of so many ``items`` that all have one ``value`` of those between ``least`` and 1.

    Other values were seen in none of them, so their share is at most that of `wilson`, and all of those may be the
    least or 1. Where every outcome is 0 or every one is 1, this is `wilson`'s own interval.
    """
    _, others = wilson(0, items)
    return value - others * (value - least), value + others * (1.0 - value)


def compare(a: Float64s, b: Float64s, seed: int = 0) -> Comparison:
    """Paired comparison of two methods on the same queries (n,), (n,), of outcomes from 0 to 1.

    p is that of exchanging the outcomes of a query at random: exact McNemar if every outcome is 0 or 1 (a binomial test
    on the discordant queries), the sign test, the same of other outcomes, if all pairs differ alike, else a permutation
    test, `_permuted`. The interval is the percentile bootstrap's. Of outcomes between 0 and 1 it is as much wider as
    the t interval is than the normal one with the variance of resamples, which matters for few queries (Hesterberg
    2015, What Teachers Should Know About the Bootstrap, narrowness bias). Where all pairs differ alike, it is
    `alike_interval`.
    """
    both = ~np.isnan(a - b)
    a, b = a[both], b[both]
    difference = a - b
    n = difference.size
    if n == 0:
        return Comparison(float("nan"), float("nan"), float("nan"), 1.0, "none")
    mean = float(difference.mean())
    alike, binary = np.ptp(difference) == 0.0, _binary(a) and _binary(b)
    if alike:
        low, high = alike_interval(float(difference[0]), n, least=-1.0)
    else:
        low, high = (float(q) for q in np.quantile(_resampled_means(difference, seed), [0.025, 0.975]))
    if alike or binary:
        better, worse = int((difference > 0).sum()), int((difference < 0).sum())
        p = min(1.0, 2 * _half_binomial(min(better, worse), better + worse))
        return Comparison(mean, low, high, p, "mcnemar" if binary else "sign")
    from scipy.special import ndtri, stdtrit  # a tenth of a second

    wider = float(stdtrit(n - 1, 0.975) / ndtri(0.975)) * sqrt(n / (n - 1))  # t / z · √(n / (n − 1))
    low, high = max(-1.0, mean + wider * (low - mean)), min(1.0, mean + wider * (high - mean))
    return Comparison(mean, low, high, _permuted(difference, seed), "permutation")


def _permuted(difference: Float64s, seed: int) -> float:
    """Share of the ways to give each ``difference`` (n,) either sign whose sum is as far from zero as theirs (Fisher
    1935, The Design of Experiments, section 21; Pitman 1937): of all ways if there are at most `RESAMPLES`, else of so
    many random ones and this one."""
    difference = difference[difference != 0.0]  # the others have no sign
    n, least = difference.size, abs(difference.sum()) - 1e-9
    if 2**n <= RESAMPLES:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        return float((np.abs(signs @ difference) >= least).mean())
    rng = np.random.default_rng([seed, 1])  # apart from the resamples
    step, extreme = max(1, _BLOCK // n), 0
    for start in range(0, RESAMPLES, step):
        drawn = rng.integers(0, 256, (min(step, RESAMPLES - start), (n + 7) // 8), np.uint8)
        heads = np.unpackbits(drawn, axis=1, count=n)  # eight signs a byte: a third of the time
        extreme += int((np.abs(2 * (heads @ difference) - difference.sum()) >= least).sum())
    return (extreme + 1) / (RESAMPLES + 1)


def _half_binomial(k: int, n: int) -> float:
    """Pr[at most k of n fair coins show heads], from exact integers."""
    term = total = 1
    for i in range(k):
        term = term * (n - i) // (i + 1)
        total += term
    return float(total / 2**n)  # a quotient of integers is rounded once, however large they are


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment for a family of tests, in the given order."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = worst
    return [float(p) for p in adjusted]


def _binary(values: Float64s) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _resampled_means(items: Float64s, seed: int) -> Float64s:
    rng = np.random.default_rng(seed)
    step = max(1, _BLOCK // items.size)
    means = [
        items[rng.integers(0, items.size, (min(step, RESAMPLES - start), items.size))].mean(axis=1)
        for start in range(0, RESAMPLES, step)
    ]
    return np.concatenate(means)
