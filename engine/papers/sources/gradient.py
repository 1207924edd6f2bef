"""The multilinear extension of an additive top-K utility and its exact gradient, in O(elements · K).

Paper 003, section 2.1 and appendix A, computes the gradient in O(M(K² + KV)) for V distinct utilities; the recurrence
below needs O(MK) for any utilities. For one ranked list, best first, with utilities u_i and probabilities of presence
w_i:

  Ũ(w) = (1/K) Σ_i u_i w_i Pr[fewer than K of items 1..i−1 are present]

Let P_i[k] = Pr[k of the items before i are present], and E_i[k] the expected utility of the one item, from i on, that
an extra item in front of i pushes out of the top K if k present items come before it (0 if none is pushed out). Then

  P_{i+1}[k] = P_i[k] + w_i (P_i[k−1] − P_i[k])
  E_i[k]     = E_{i+1}[k] + w_i (E_{i+1}[k+1] − E_{i+1}[k]),   E_{i+1}[K] := u_i
  ∂Ũ/∂w_i    = (1/K) Σ_{k<K} P_i[k] (u_i − E_{i+1}[k]).

Both recurrences only take convex combinations, so there is no cancellation. An item's gradient equals the brute-force
sum over all subsets. If a source occurs several times in a list, the gradients of its positions are summed, each
position being present independently of the others (for whole sources in or out see `grouped`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.arrays import Float64s, Int64s, compiled
from ...base.packages import installed
from ...trials.lists import Array

EPSILON = 1e-16  # below the rounding of a double: the truncation does not change the result
_SIDE = 16  # lists worked on side by side
_CHECK = 8  # positions between two checks of the tail: a check costs about as much as a position
_MAX_WAYS = 16
_WAYS_BYTES = 1 << 28
_NUMPY_BYTES = 1 << 26  # for the states of the lists that numpy works on at once
_WORTH_A_THREAD = 1 << 20  # elements · K below which starting a thread costs more than it saves


def multilinear_gradient(
    items: npt.ArrayLike,
    utilities: npt.ArrayLike,
    weights: npt.ArrayLike,
    k: int,
    lengths: npt.ArrayLike | None = None,
    *,
    epsilon: float = EPSILON,
    threads: int | None = None,
) -> Float64s:
    """Exact gradient of the mean multilinear extension over N ranked lists (paper 003, equation 4, appendix A).

    Args:
        items: (N, M) int, the source at each rank, best first, in 0..C−1; or (T,) when ``lengths`` says where lists
            end.
        utilities: like items, any real numbers: the utility of the answer that each item alone gives.
        weights: (C,) in [0, 1], the probability that a source is present.
        k: how many present items, from the top, contribute; the utility of a set divides by k.
        lengths: (N,) int, how many items of each row count; without it every row is full.
        epsilon: a list is cut at item i once Pr[at most K of the items before i are present] < epsilon; the gradient
            of a list then errs by less than 2·epsilon·max|u|. K + 1 states, not K: an item also changes what it
            pushes out.
        threads: None for one per core; the result has the same bits for any number.

    Returns (C,) float64; a source in no list has 0. Raises ValueError when shapes or values do not fit.
    """
    total = Accumulator(checked_weights(weights), checked_k(k), epsilon=epsilon, threads=threads)
    total.add(*flat(items, utilities, lengths))
    return total.gradient()


def flat(
    items: npt.ArrayLike, utilities: npt.ArrayLike, lengths: npt.ArrayLike | None
) -> tuple[Array, Array, Int64s, Int64s]:
    """Lists in either shape as ``(items (T,), utilities (T,), starts (N,), lengths (N,))``, without a copy if possible.

    items become int32 or int64, utilities float32 or float64. Raises ValueError when shapes do not fit.
    """
    ids, values = np.asarray(items), np.asarray(utilities)
    if ids.shape != values.shape or ids.ndim not in (1, 2):
        raise ValueError(f"items {ids.shape} and utilities {values.shape} must have one shape, (N, M) or (T,)")
    if ids.size and ids.dtype.kind not in "iu":
        raise ValueError(f"items must be integers, not {ids.dtype}")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"utilities must be real numbers, not {values.dtype}")
    ids = np.ascontiguousarray(ids, dtype=ids.dtype if ids.dtype in (np.int32, np.int64) else np.int64)
    small = values.dtype in (np.float32, np.float16, np.bool_, np.int8, np.uint8, np.int16, np.uint16)
    values = np.ascontiguousarray(values, dtype=np.float32 if small else np.float64)
    if lengths is None:
        if ids.ndim == 1:
            raise ValueError("flat items need lengths")
        count, width = ids.shape
        return ids.ravel(), values.ravel(), np.arange(count, dtype=np.int64) * width, np.full(count, width, np.int64)
    sizes = np.ascontiguousarray(lengths, dtype=np.int64)
    if sizes.ndim != 1 or (sizes < 0).any():
        raise ValueError("lengths must be one non-negative integer a list")
    if ids.ndim == 2:
        if len(sizes) != len(ids) or (sizes > ids.shape[1]).any():
            raise ValueError(f"{len(sizes)} lengths up to {sizes.max(initial=0)} do not fit items of shape {ids.shape}")
        return ids.ravel(), values.ravel(), np.arange(len(ids), dtype=np.int64) * ids.shape[1], sizes
    if sizes.sum() != len(ids):
        raise ValueError(f"lengths add up to {sizes.sum()}, but there are {len(ids)} items")
    return ids, values, np.cumsum(sizes) - sizes, sizes


@dataclass
class Accumulator:
    """Running sum of the gradient over lists that are added block by block, so that these may be larger than memory.

    Lists are assigned in turn, ``_SIDE`` at a time, to a fixed number of partial sums (which depends only on the
    number of sources). Within one partial sum they are added in the order of the lists, and a thread works on whole
    partial sums: so the bits are the same for any blocks and any number of threads.
    """

    weights: Float64s
    k: int
    epsilon: float = EPSILON
    threads: int | None = None
    lists: int = 0
    _sums: Float64s = field(init=False)

    def __post_init__(self) -> None:
        ways = max(2, min(_MAX_WAYS, _WAYS_BYTES // (8 * max(1, len(self.weights)))))
        self._sums = np.zeros((ways, len(self.weights)))

    def add(self, items: Array, utilities: Array, starts: Int64s, lengths: Int64s) -> None:
        """Add lists as `flat` returns them. Raises ValueError for an item outside 0..C−1."""
        if not installed("numba"):
            _add_by_numpy(self._sums[0], items, utilities, starts, lengths, self.weights, self.k)
            self.lists += len(lengths)
            return
        kernel, longest = _kernel(self.k), int(lengths.max(initial=0))

        def run(way: int) -> int:
            return kernel(
                items, utilities, starts, lengths, self.weights, self.epsilon,
                self.lists, longest, way, self._sums,
            )  # fmt: skip

        ways = range(len(self._sums))
        threads = self.threads or (1 if len(items) * self.k < _WORTH_A_THREAD else os.cpu_count() or 1)
        if threads == 1:
            bad = max(map(run, ways))
        else:
            with ThreadPoolExecutor(threads) as pool:
                bad = max(pool.map(run, ways))
        if bad >= 0:
            raise ValueError(f"list {bad} names an item outside 0..{len(self.weights) - 1}")
        self.lists += len(lengths)

    def gradient(self) -> Float64s:
        """(C,) gradient of the mean Ũ over the lists added so far."""
        gradient: Float64s = self._sums.sum(axis=0) / (self.k * max(1, self.lists))
        if not np.isfinite(gradient).all():
            raise ValueError("utilities must be finite numbers")
        return gradient


def checked_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    return int(k)


def checked_weights(weights: npt.ArrayLike) -> Float64s:
    checked = np.ascontiguousarray(weights, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"weights must have shape (C,), not {checked.shape}")
    if not ((checked >= 0) & (checked <= 1)).all():
        raise ValueError("weights are probabilities: each in [0, 1]")
    return checked


@cache
def _kernel(k: int) -> Callable[..., int]:
    """The recurrences of the module, compiled for one K.

    The last axis of every array is a number of lists side by side, which no equation mixes: a loop over it, of a length
    known at compile time, becomes a few instructions on several lists each.
    """

    def run(
        items: Any, utilities: Any, starts: Any, lengths: Any, weights: Any, epsilon: float,
        before: int, longest: int, way: int, sums: Any,
    ) -> int:  # fmt: skip
        """Add the lists of one partial sum, ``before`` lists being in it and the others already; -1, or the number of a
        list with an item out of range."""
        count, ways, total = len(lengths), len(sums), sums[way]
        w, u, slopes = np.empty((longest, _SIDE)), np.empty((longest, _SIDE)), np.empty((longest, _SIDE))
        P, E = np.empty((longest + 1, k + 1, _SIDE)), np.empty((k + 1, _SIDE))
        ends = np.empty(_SIDE, np.int64)
        for block in range(before // _SIDE, (before + count + _SIDE - 1) // _SIDE):
            if block % ways != way:
                continue
            first = max(block * _SIDE - before, 0)
            used = min((block + 1) * _SIDE - before, count) - first
            end = 0
            for n in range(_SIDE):
                ends[n] = lengths[first + n] if n < used else 0
                end = max(end, ends[n])
            w[:end] = 0.0  # behind the end of a list nothing is present
            u[:end] = 0.0
            for n in range(used):
                at = starts[first + n]
                for i in range(ends[n]):
                    item = items[at + i]
                    if item < 0 or item >= len(weights):
                        return int(first + n)
                    w[i, n] = weights[item]
                    u[i, n] = utilities[at + i]

            P[0] = 0.0
            P[0, 0] = 1.0  # no item stands before the first
            for i in range(end):
                if i > k and i % _CHECK == 0:
                    for n in range(_SIDE):
                        at_most_k = 0.0  # Pr[at most K of the items before i are present]
                        for q in range(k + 1):
                            at_most_k += P[i, q, n]
                        if at_most_k < epsilon and ends[n] > i:  # the list ends here
                            w[i:end, n] = 0.0
                            ends[n] = i
                    if ends.max() <= i:
                        end = i
                        break
                for n in range(_SIDE):
                    w_i, fewer = w[i, n], 0.0
                    for q in range(k + 1):  # P_{i+1}[k] = P_i[k] + w_i (P_i[k−1] − P_i[k])
                        P[i + 1, q, n] = P[i, q, n] + w_i * (fewer - P[i, q, n])
                        fewer = P[i, q, n]

            E[:] = 0.0  # behind the last item nothing is pushed out
            for back in range(1, end + 1):
                i = end - back
                for n in range(_SIDE):
                    w_i, u_i, slope = w[i, n], u[i, n], 0.0
                    E[k, n] = u_i  # E_{i+1}[K] := u_i
                    for q in range(k):  # K ∂Ũ/∂w_i = Σ P_i[k] (u_i − E_{i+1}[k]), and E_i[k] from E_{i+1}
                        slope += P[i, q, n] * (u_i - E[q, n])
                        E[q, n] += w_i * (E[q + 1, n] - E[q, n])
                    slopes[i, n] = slope

            for n in range(used):  # list after list, so that the sums do not depend on the division into blocks
                at = starts[first + n]
                for i in range(ends[n]):
                    total[items[at + i]] += slopes[i, n]
        return -1

    return compiled(run, fused=True)


def _add_by_numpy(
    sums: Float64s, items: Array, utilities: Array, starts: Int64s, lengths: Int64s, weights: Float64s, k: int
) -> None:
    """The same where numba is not installed, many lists in each operation: as loops of Python the kernel would take ten
    times as long for a few lists, and a hundred times for many. Agrees to rounding, and raises `ValueError` itself."""
    count = max(1, _NUMPY_BYTES // (8 * max(1, int(lengths.max(initial=0))) * (k + 4)))
    for first in range(0, len(lengths), count):
        sizes = lengths[first : first + count]
        rank = np.arange(int(sizes.max(initial=0)))[:, None]
        inside = rank < sizes
        at = np.where(inside, starts[first : first + count] + rank, 0)  # (positions, lists)
        ids = np.where(inside, items[at], 0) if len(items) else np.zeros(at.shape, np.int64)
        strange = ((ids < 0) | (ids >= len(weights))) & inside
        if strange.any():
            bad = first + int(np.flatnonzero(strange.any(axis=0))[0])
            raise ValueError(f"list {bad} names an item outside 0..{len(weights) - 1}")
        u = utilities[at] * inside if len(utilities) else np.zeros(at.shape)
        w = weights[ids] * inside if len(weights) else np.zeros(at.shape)
        P, E, slopes = np.zeros((len(rank) + 1, k, len(sizes))), np.zeros((k + 1, len(sizes))), np.zeros(at.shape)
        P[0, 0] = 1.0
        for i in range(len(rank)):
            P[i + 1] = P[i] * (1 - w[i])
            P[i + 1, 1:] += P[i, :-1] * w[i]
        for i in range(len(rank) - 1, -1, -1):
            E[k] = u[i]
            slopes[i] = (P[i] * (u[i] - E[:k])).sum(axis=0)
            E[:k] += w[i] * (E[1:] - E[:k])
        np.add.at(sums, ids[inside], slopes[inside])
