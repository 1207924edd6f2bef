"""Do two sets of queries come from the same distribution, and if not, what has changed?

The test asks whether a classifier can tell the sets apart (Lopez-Paz and Oquab 2017, Revisiting classifier two-sample
tests, section 3). The classifier is Fisher's linear discriminant with a shrunk covariance, cross-fitted: every query is
judged by one that was fitted without it. It has a closed form, so that it is fitted anew for each permutation of the
sets; p is exact (Kim, Ramdas, Singh and Wasserman 2021, Classification accuracy as a proxy for two-sample testing,
section 4).

With many queries the smallest difference is significant, so the size of a change is given beside p: Youden's J of the
held-out decisions, the share of one set told right less the share of the other told wrong. No event differs in its
probability by more than the total variation distance, so J estimates a lower bound of that distance: of the share of
queries that would have to be other ones for the sets to be alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..base.arrays import Bools, Float32s, Int64s, one_blas_thread
from ..evaluate.statistics import wilson

MOST = 2_000
"""Queries of a set that are compared; a larger set is sampled."""

LEAST = 20
"""Fewest queries of a set that can be compared."""

FOLDS = 5
PERMUTATIONS = 999
LEVEL = 0.05
"""Probability with which any of the intervals of shares misses what it is about."""


@dataclass(frozen=True, slots=True)
class TwoSamples:
    """``changed`` is J with its 95 % interval, ``p`` that of the permutation test; ``now`` and ``before`` queries were
    compared."""

    changed: float
    low: float
    high: float
    p: float
    now: int
    before: int


def two_samples(now: Float32s, before: Float32s, seed: int = 0, permutations: int = PERMUTATIONS) -> TwoSamples | None:
    """Compare vectors (n, d) and (m, d), the same for a seed; None if there are fewer than `LEAST` of either."""
    if min(len(now), len(before)) < LEAST:
        return None
    rng = np.random.default_rng(seed)
    now, before = _sampled(now, rng), _sampled(before, rng)
    with one_blas_thread():
        vectors, dimension = _rotated(np.concatenate([now, before]).astype(np.float32)), now.shape[1]
    size, new = len(vectors), len(now)
    labels = np.zeros((size, permutations + 1), np.bool_)
    labels[:new, 0] = True
    for i in range(1, permutations + 1):
        labels[rng.permutation(size)[:new], i] = True
    # the folds do not depend on who is in which set, or the permutations would not be exchangeable
    folds = rng.permutation(size) % FOLDS
    separation = np.zeros(permutations + 1)
    told = np.zeros(size, np.bool_)
    with one_blas_thread():
        for fold in range(FOLDS):
            held = folds == fold
            scores = _scores(vectors[~held], labels[~held], vectors[held], dimension)
            own = labels[held]
            separation += np.where(own, scores, 0).sum(axis=0) / new
            separation -= np.where(own, 0, scores).sum(axis=0) / (size - new)
            told[held] = scores[:, 0] > 0
    p = float((separation >= separation[0] - 1e-12).sum()) / (permutations + 1)
    right, wrong = int(told[:new].sum()), int(told[new:].sum())
    low, high = difference_interval(right, new, wrong, size - new)
    return TwoSamples(right / new - wrong / (size - new), low, high, p, new, size - new)


def _rotated(vectors: Float32s) -> Float32s:
    """The same distances in as many dimensions as there are vectors, if these are fewer."""
    if len(vectors) >= vectors.shape[1]:
        return vectors
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    sizes, left = np.linalg.eigh(centred @ centred.T)
    return np.asarray(left * np.sqrt(np.maximum(sizes, 0)), np.float32)


def _scores(vectors: Float32s, labels: Bools, held: Float32s, dimension: int) -> Float32s:
    """Scores (h, p) of ``held`` (h, d) by the discriminants of ``vectors`` (n, d) under each column of ``labels``
    (n, p): above 0 for the set that is labelled. ``dimension``: d before `_rotated`."""
    count, width = vectors.shape
    ones = labels.astype(np.float32)
    inside, total = ones.sum(axis=0), vectors.sum(axis=0)
    centre = total / count
    spread = np.cov(vectors, rowvar=False).reshape(width, width)
    shrunk = dimension / (dimension + count)
    ridge = shrunk * np.trace(spread) / dimension + 1e-9
    spread = (1 - shrunk) * spread + ridge * np.eye(width)
    sums = vectors.T @ ones
    one = sums / np.maximum(inside, 1)
    other = (total[:, None] - sums) / np.maximum(count - inside, 1)
    weights = np.linalg.solve(spread, one - other).astype(np.float32)
    middle = (((one + other) / 2 - centre[:, None]) * weights).sum(axis=0)
    found: Float32s = (held - centre) @ weights - middle
    return found


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A topic, label or word: its share ``now`` and ``before``, and the interval of the difference. The intervals of
    all that were compared hold together, with probability 95 %."""

    name: str
    now: float
    before: float
    difference: float
    low: float
    high: float


def share_changes(
    names: Sequence[str], now: Int64s, asked: int, before: Int64s, compared: int, most: int = 5
) -> tuple[ShareChange, ...]:
    """The ``most`` groups whose share changed most beyond chance: ``now`` (g,) of ``asked`` queries belong to each, and
    ``before`` (g,) of ``compared``. Bonferroni over the groups that any query belongs to."""
    if not asked or not compared:
        return ()
    candidates = np.flatnonzero(now + before)
    level = 1 - LEVEL / max(len(candidates), 1)
    changes = []
    for i in candidates.tolist():
        a, b = int(now[i]), int(before[i])
        low, high = difference_interval(a, asked, b, compared, level)
        if low > 0 or high < 0:
            changes.append(ShareChange(names[i], a / asked, b / compared, a / asked - b / compared, low, high))
    return tuple(sorted(changes, key=lambda each: (-abs(each.difference), each.name))[:most])


def difference_interval(a: int, n: int, b: int, m: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a/n − b/m for independent counts (Newcombe 1998, method 10: from Wilson's intervals of both)."""
    (la, ua), (lb, ub), p, q = wilson(a, n, level), wilson(b, m, level), a / n, b / m
    return (
        p - q - sqrt((p - la) ** 2 + (ub - q) ** 2),
        p - q + sqrt((ua - p) ** 2 + (q - lb) ** 2),
    )


def _sampled(vectors: Float32s, rng: np.random.Generator) -> Float32s:
    if len(vectors) <= MOST:
        return vectors
    return vectors[np.sort(rng.choice(len(vectors), MOST, replace=False))]
