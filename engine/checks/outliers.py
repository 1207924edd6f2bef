"""Outliers: rows far from their nearest neighbours, by cosine."""

from __future__ import annotations

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.progress import CancelToken, Event, Report, silent

NEIGHBOURS = 5
SPREADS = 4.5
"""A row is an outlier from this many robust standard errors (1.4826 × the median absolute deviation) above the
median."""

LEAST = 30
"""With fewer rows the distribution of distances cannot be estimated."""

EXACT = 4_096
"""Number of rows whose neighbours are always searched among all rows."""

CELLS = 1 << 24
"""Maximum number of cosines in memory."""


def far_rows(
    vectors: Float32s, groups: Int64s, report: Report = silent, cancel: CancelToken | None = None
) -> tuple[Int64s, Float64s, float, float]:
    """Positions of outliers, their distances, the usual distance and the limit.

    Distance: 1 − the mean cosine with the `NEIGHBOURS` nearest rows of other ``groups`` (n,). The usual distance is
    estimated from at most `EXACT` rows. The distance to neighbours in a subset is never less than in the whole, so rows
    near enough to a subset need no further search. Raises `Cancelled` between blocks.
    """
    n = len(vectors)
    if n < LEAST:
        return np.empty(0, np.int64), np.empty(0), 0.0, 0.0
    part = np.sort(np.random.default_rng(0).permutation(n)[:EXACT])
    everyone = np.arange(n)
    usual = _distances(vectors, groups, part, everyone, report, cancel)
    middle = float(np.median(usual))
    limit = middle + SPREADS * 1.4826 * float(np.median(np.abs(usual - middle)))
    bound = usual if n <= EXACT else _distances(vectors, groups, everyone, part, report, cancel)
    places = np.flatnonzero(bound > limit)
    distances = bound[places] if n <= EXACT else _distances(vectors, groups, places, everyone, report, cancel)
    far = distances > limit
    return places[far], distances[far], middle, limit


def _distances(
    vectors: Float32s, groups: Int64s, of: Int64s, among: Int64s, report: Report, cancel: CancelToken | None
) -> Float64s:
    """Distance of the positions ``of`` to their neighbours ``among`` others, (len(of),)."""
    others, theirs = vectors[among], groups[among]
    found = np.ones(len(of))
    size = max(CELLS // max(len(among), 1), 1)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    for start in range(0, len(of), size):
        if cancel:
            cancel.check()
        report(Event("outliers", start, len(of)))
        block = of[start : start + size]
        cosines = vectors[block] @ others.T
        own = groups[block]
        begin, end = np.searchsorted(ordered, own), np.searchsorted(ordered, own, "right")
        for i in range(len(block)):
            cosines[i, order[begin[i] : end[i]]] = -1.0
        k = min(NEIGHBOURS, cosines.shape[1])
        nearest = np.partition(cosines, cosines.shape[1] - k, axis=1)[:, -k:]
        found[start : start + size] = 1.0 - nearest.mean(axis=1)
    report(Event("outliers", len(of), len(of)))
    return found
