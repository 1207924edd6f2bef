"""Arrays: names for their types, compiled loops, small products on one thread, and the definition of "the k best".

The k best are those of the highest scores, ties to the lower position. Scores that come from vectors are compared on a
grid of `step_of`: two that float32 does not tell apart are a tie. Else copies whose vectors differ in their last bits,
which depend on the processor, would be shown in another order on another machine. Scores without such an error, as
those of BM25, are compared as they are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .packages import installed

Float32s = NDArray[np.float32]
"""Vectors and weights of models."""

Float64s = NDArray[np.float64]
"""Scores, utilities and everything that is summed over many items."""

Int64s = NDArray[np.int64]
"""Row numbers, positions, counts."""

Bools = NDArray[np.bool_]
"""Masks."""


def compiled(run: Callable[..., Any], *, fused: bool = False) -> Callable[..., Any]:
    """``run`` as machine code that releases the interpreter's lock; without numba as it is, with the same result to the
    bit, but some hundred times slower: enough for the pools of one task. ``fused`` rounds a product and a sum once."""
    if not installed("numba"):
        return run
    from numba import njit

    fast: Callable[..., Any] = njit(nogil=True, cache=True, fastmath={"contract"} if fused else False)(run)
    return fast


BLOCK = 64
"""Scores per block; block maxima bound the k-th best."""

UNIT = 2.0**-24
"""The largest relative error of one operation in float32."""
DEVIATIONS = 9
"""In a sum of n terms at most 2n·exp(−9²/2) of all roundings exceed this many standard deviations."""


def step_of(terms: int, size: float = 1.0) -> float:
    """What float32 does not tell in an inner product of ``terms`` terms whose magnitudes sum to ``size`` at most, 1 for
    unit vectors: 2⁻¹⁶ for 384.

    A power of two at or above 9·√terms·2⁻²⁴·size, which the error exceeds with a probability of at most 10⁻¹⁴ in any
    order of summation, fused or not (Higham and Mary 2019, theorem 2.4; the bound for the worst case has ``terms``
    instead of the root, and no sum comes near it). Vectors of the default encoder, computed by SSE or by AVX2, have
    cosines that differ by 5·10⁻⁷ at most, far less. A power of two, since a size differs in its last bits, too.
    """
    return 2.0 ** math.ceil(math.log2(DEVIATIONS * math.sqrt(terms) * UNIT * size)) if size > 0 else 0.0


def top_k(scores: NDArray[np.floating], k: int, step: float = 0.0) -> Int64s:
    """Positions of the ``k`` highest of ``scores`` (n,), best first, ties to the lower position; scores that are the
    same multiple of ``step`` when rounded are ties.

    Returns min(k, n) positions. The scores must not contain NaN. Exact: the k-th largest of the block maxima bounds the
    k-th best score from below, so only the scores at or above it are sorted.
    """
    n = len(scores)
    k = min(k, n)
    if k <= 0:
        return np.empty(0, np.int64)
    if step:
        near = np.flatnonzero(scores >= scores[top_k(scores, k)[-1]] - 2 * step)  # the others tie with none of the k
        return near[top_k(np.rint(scores[near] / step), k)]
    whole = n // BLOCK
    if whole > 4 * k:
        peaks = scores[: whole * BLOCK].reshape(whole, BLOCK).max(axis=1)
        positions = np.flatnonzero(scores >= np.partition(peaks, whole - k)[whole - k])
    else:
        positions = np.arange(n)
    candidates = scores[positions]
    if len(positions) > k:
        worst = np.partition(candidates, len(candidates) - k)[len(candidates) - k]
        better, level = positions[candidates > worst], positions[candidates == worst]
        positions = np.concatenate([better, level[: k - len(better)]])
        candidates = scores[positions]
    return positions[np.lexsort((positions, -candidates))].astype(np.int64, copy=False)


def positions_of(rows: Int64s, wanted: Collection[int]) -> Int64s:
    """Positions of the ``wanted`` row numbers in the ascending ``rows``; missing ones are left out."""
    if not len(wanted) or not len(rows):
        return np.empty(0, np.int64)
    sought = np.unique(np.fromiter(wanted, np.int64, len(wanted)))
    at = np.minimum(np.searchsorted(rows, sought), len(rows) - 1)
    found: Int64s = at[rows[at] == sought]
    return found


_lock = threading.RLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run numpy's matrix products on one thread for the length of the block.

    As soon as another process is busy, threads that share a product of a few milliseconds wait for each other far
    longer than they compute (8 ms instead of under 1 ms for one, 420 ms instead of 15 ms for the layers of an encoder).
    The limit applies to the whole process, so blocks take turns: two that set and restore it independently could leave
    it in place permanently.
    """
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
