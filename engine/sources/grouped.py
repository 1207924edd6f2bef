"""Exact gradient of the multilinear extension when whole sources are in or out (paper 003, appendix C).

A present source brings all its items, so items of one source are not independent. With c_h items of source h among
items 1..i−1 and B_h its presence, item i of source g contributes

  u_i w_g Pr[c_g + Σ_{h≠g} c_h B_h < K],

a product of probabilities whose derivative with respect to any w_h is exact from the distributions without g and h.
These come from running sums forward and backward over the sources in the list: O(M · sources · K) per list, against the
appendix's O(T² M²).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arrays import Float64s, compiled
from .lists import RankedLists


def grouped_gradient(lists: RankedLists, weights: npt.ArrayLike, k: int) -> Float64s:
    """(C,) gradient of the mean Ũ(weights) over the lists; see the module. Raises ValueError as `gradient` does."""
    at = np.ascontiguousarray(weights, dtype=np.float64)
    if at.shape != (len(lists.names),) or not ((at >= 0) & (at <= 1)).all():
        raise ValueError(f"weights must be {len(lists.names)} probabilities")
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    sums = np.zeros(len(at))
    _kernel()(lists.sources, lists.utilities, lists.offsets, at, k, sums)
    return sums / (k * max(1, len(lists)))


@cache
def _kernel() -> Callable[..., None]:
    def run(sources: Any, utilities: Any, offsets: Any, weights: Any, k: int, sums: Any) -> None:
        longest = 0
        for n in range(len(offsets) - 1):
            longest = max(longest, offsets[n + 1] - offsets[n])
        met = np.zeros(longest, np.int64)
        items = np.zeros(longest, np.int64)  # c_h
        place = np.full(len(weights), -1, np.int64)
        forward = np.zeros((longest + 1, k))  # Pr[sum = j] over the first sources
        backward = np.zeros((longest + 1, k + 1))  # Pr[sum < j] over the others
        for n in range(len(offsets) - 1):
            distinct = 0
            for i in range(offsets[n], offsets[n + 1]):
                g = sources[i]
                own = items[place[g]] if place[g] >= 0 else 0
                room = k - own  # the others must contribute fewer than this
                if room > 0:
                    forward[0, 0] = 1.0
                    for j in range(1, room):
                        forward[0, j] = 0.0
                    for s in range(distinct):
                        c, w = items[s], weights[met[s]]
                        for j in range(room):
                            p = forward[s, j]
                            if met[s] != g:
                                p = (1 - w) * p + (w * forward[s, j - c] if j >= c else 0.0)
                            forward[s + 1, j] = p
                    for j in range(room + 1):
                        backward[distinct, j] = 1.0 if j > 0 else 0.0
                    for s in range(distinct - 1, -1, -1):
                        c, w = items[s], weights[met[s]]
                        for j in range(room + 1):
                            p = backward[s + 1, j]
                            if met[s] != g:
                                p = (1 - w) * p + (w * backward[s + 1, j - c] if j >= c else 0.0)
                            backward[s, j] = p
                    sums[g] += utilities[i] * backward[0, room]
                    for s in range(distinct):
                        h = met[s]
                        if h == g:
                            continue
                        c = items[s]
                        change = 0.0  # Pr[fewer than room | h in] − Pr[… | h out]
                        for j in range(room):
                            rest = room - j
                            within = backward[s + 1, rest - c] if rest >= c else 0.0
                            change += forward[s, j] * (within - backward[s + 1, rest])
                        sums[h] += weights[g] * utilities[i] * change
                if place[g] < 0:
                    place[g] = distinct
                    met[distinct] = g
                    items[distinct] = 0
                    distinct += 1
                items[place[g]] += 1
            for s in range(distinct):
                place[met[s]] = -1

    return compiled(run)
