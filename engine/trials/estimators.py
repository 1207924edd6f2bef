"""Estimators of what sources contribute: scores of sources from ranked lists, ``(lists, k) -> (C,) float64``; the
higher, the more a source helps. Those that learn weights register from the room of their paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..base.arrays import Float64s
from ..base.registry import Registry
from .lists import RankedLists
from .votes import vote_marginals

Estimator = Callable[[RankedLists, int], Float64s]

EPSILON_SAMPLED = DELTA = 0.05
"""Of an estimator that samples: the error that is allowed, and the probability of a larger one."""


@dataclass(frozen=True, slots=True)
class SourceEstimator:
    """``default``: it is compared unless others are named. ``weights``: its scores are learnt probabilities of
    presence."""

    scores: Estimator
    default: bool = False
    weights: bool = False


def leave_one_out(lists: RankedLists, k: int) -> Float64s:
    """(C,) mean utility of the majority vote of the first k answers (`votes`) with all sources, minus that without this
    one."""
    return vote_marginals(lists, np.ones(len(lists.names), bool), k)


def reliability(lists: RankedLists, k: int = 0) -> Float64s:
    """(C,) empirical-Bayes mean utility of each source's own answers; k is not used.

    A source's mean is shrunk towards that of all sources by n/(n + σ²/τ²), n being its number of answers, σ² the
    variance within sources and τ² that between them (Bühlmann and Straub 1970, by moments). For right and wrong answers
    this is the beta-binomial posterior mean. To the squares within sources those of one answer at random are added, so
    that sources with one answer each differ by chance. A source without answers gets the mean of all.
    """
    return _credible(lists)[0]


def reliability_error(lists: RankedLists) -> Float64s:
    """(C,) standard error of `reliability`, of which the mean of all and τ² are estimates, too."""
    return _credible(lists)[1]


def _credible(lists: RankedLists) -> tuple[Float64s, Float64s]:
    sources, utilities = lists.sources, lists.utilities
    count = len(lists.names)
    n = np.bincount(sources, minlength=count).astype(np.float64)
    total = n.sum()
    if not total:
        return np.zeros(count), np.zeros(count)
    means = np.bincount(sources, utilities, count) / np.maximum(n, 1)
    everywhere = float(utilities.mean())
    met = int((n > 0).sum())
    likely = (float(utilities.sum()) + 0.5) / (total + 1)
    # one more square, that of an answer at random: few answers that are all alike within sources are no certainty
    squares = float(np.square(utilities - means[sources]).sum()) + likely * (1 - likely)
    within = squares / (total - met + 1)  # σ²
    spread = float((n * np.square(means - everywhere)).sum()) - (met - 1) * within
    every = float(np.square(n).sum()) / total
    between = max(0.0, spread / (total - every)) if met > 1 else 0.0  # τ²
    trust = n * between / (n * between + within)  # n / (n + σ²/τ²)
    # few sources tell little of τ²: it may be larger by as much as chance moves the spread, whose squares are χ²
    larger = between + (within * sqrt(2 * (met - 1)) / (total - every) if met > 1 else 0.0)
    of_mean = within / total + larger * every / total  # variance of the mean of all
    variance = np.square(trust) * within / np.maximum(n, 1) + np.square(1 - trust) * (larger + of_mean)
    return everywhere + trust * (means - everywhere), np.sqrt(variance)


ESTIMATORS: Registry[SourceEstimator] = Registry(
    "estimators",
    {
        "leave-one-out": SourceEstimator(leave_one_out, default=True),
        "reliability": SourceEstimator(reliability, default=True),
    },
)


def default_estimators() -> list[str]:
    """Those compared unless others are named, the ones that learn weights first: ties go to them."""
    return sorted((n for n, e in ESTIMATORS.items() if e.default), key=lambda n: not ESTIMATORS[n].weights)


def learning_estimators() -> list[str]:
    """Those that learn weights, the usual one first."""
    return [name for name, estimator in ESTIMATORS.items() if estimator.weights]
