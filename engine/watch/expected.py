"""The accuracy to expect on queries without answers, from answers to other queries.

Post-stratification: the evaluated queries are cut into strata of equal size by their similarity to the nearest
demonstration, and the accuracies of the strata are weighted by how many of the new queries are in each (Little 1993,
Post-stratification: a modeler's perspective, section 2). It is right as far as queries of the same similarity are
answered equally well; what else has changed is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..evaluate.statistics import alike_interval

STRATA = 5
FEWEST = 20
"""Evaluated queries of a stratum."""

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Stratum:
    """Queries whose similarity is at least ``above``: ``evaluated`` of them were right with ``accuracy``; ``share`` of
    the new queries are such."""

    above: float
    evaluated: int
    accuracy: float
    share: float


@dataclass(frozen=True, slots=True)
class Weighted:
    """The expected accuracy with its 95 % interval by bootstrap over evaluated and new queries, and the ``strata``,
    farthest first. ``outside``: share of the new queries that are farther than every evaluated one, about which nothing
    was measured; they count as those of the first stratum."""

    accuracy: float
    low: float
    high: float
    strata: tuple[Stratum, ...]
    outside: float


def strata_edges(similarity: Float64s) -> Float64s:
    """Where the strata begin, (s,), the first at −∞: quantiles of the evaluated queries' similarities (n,)."""
    count = max(1, min(STRATA, len(similarity) // FEWEST))
    inner = np.quantile(similarity, np.arange(1, count) / count) if count > 1 else np.empty(0)
    return np.concatenate([[-np.inf], np.unique(inner)])


def reweighted(
    right: Float64s, similarity: Float64s, new: Float64s, weights: Int64s, seed: int = 0, resamples: int = RESAMPLES
) -> Weighted:
    """The accuracy to expect on queries with similarities ``new`` (m,), asked ``weights`` (m,) times, from evaluated
    ones that were ``right`` (n,), 0 to 1, with ``similarity`` (n,). A stratum that a resample leaves empty has the
    accuracy of the resample."""
    edges = strata_edges(similarity)
    count = len(edges)
    own = np.searchsorted(edges, similarity, "right") - 1
    theirs = np.searchsorted(edges, new, "right") - 1
    totals = _sums(theirs, weights, count)
    sizes, sums = np.bincount(own, minlength=count), _sums(own, right, count)
    rng = np.random.default_rng(seed)
    drawn = np.array([_once(rng, own, right, theirs, weights, count) for _ in range(resamples)])
    low, high = np.quantile(drawn, [0.025, 0.975])
    if np.ptp(right) == 0.0:  # whatever is drawn again, it is the same
        low, high = alike_interval(float(right[0]), len(right))
    return Weighted(
        _mean(sizes, sums, totals),
        float(low),
        float(high),
        tuple(
            Stratum(float(max(edge, similarity.min())), int(size), float(total / max(size, 1)), float(share))
            for edge, size, total, share in zip(edges, sizes, sums, totals / totals.sum(), strict=True)
        ),
        float(weights[new < similarity.min()].sum() / weights.sum()),
    )


def _once(rng: np.random.Generator, own: Int64s, right: Float64s, theirs: Int64s, weights: Int64s, count: int) -> float:
    a = rng.integers(0, len(own), len(own))
    b = rng.integers(0, len(theirs), len(theirs))
    return _mean(
        np.bincount(own[a], minlength=count),
        _sums(own[a], right[a], count),
        _sums(theirs[b], weights[b], count),
    )


def _sums(strata: Int64s, values: Float64s | Int64s, count: int) -> Float64s:
    """Σ of the values in each stratum, (count,)."""
    return np.bincount(strata, values.astype(np.float64), count).astype(np.float64)


def _mean(sizes: Int64s, sums: Float64s, totals: Float64s) -> float:
    """Σ share of a stratum · its accuracy."""
    overall = sums.sum() / sizes.sum()
    accuracies = np.where(sizes > 0, sums / np.maximum(sizes, 1), overall)
    return float(accuracies @ totals / totals.sum())
