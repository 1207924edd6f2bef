"""The definition of "the k best" for all modules: highest score first, ties to the lower position."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s

BLOCK = 64
"""Scores per block; block maxima bound the k-th best."""


def top_k(scores: NDArray[np.floating], k: int) -> Int64s:
    """Positions of the ``k`` highest of ``scores`` (n,), best first, ties to the lower position.

    Returns min(k, n) positions. The scores must not contain NaN. Exact: the k-th largest of the block maxima bounds the
    k-th best score from below, so only the scores at or above it are sorted.
    """
    n = len(scores)
    k = min(k, n)
    if k <= 0:
        return np.empty(0, np.int64)
    whole = n // BLOCK
    if whole > 4 * k:
        peaks = scores[: whole * BLOCK].reshape(whole, BLOCK).max(axis=1)
        positions = np.flatnonzero(scores >= np.partition(peaks, whole - k)[whole - k])
    else:
        positions = np.arange(n)
    found = scores[positions]
    if len(positions) > k:
        worst = np.partition(found, len(found) - k)[len(found) - k]
        better, level = positions[found > worst], positions[found == worst]
        positions = np.concatenate([better, level[: k - len(better)]])
        found = scores[positions]
    return positions[np.lexsort((positions, -found))].astype(np.int64, copy=False)


def positions_of(rows: Int64s, wanted: Collection[int]) -> Int64s:
    """Positions of the ``wanted`` row numbers in the ascending ``rows``; missing ones are left out."""
    if not len(wanted) or not len(rows):
        return np.empty(0, np.int64)
    sought = np.unique(np.fromiter(wanted, np.int64, len(wanted)))
    at = np.minimum(np.searchsorted(rows, sought), len(rows) - 1)
    found: Int64s = at[rows[at] == sought]
    return found
