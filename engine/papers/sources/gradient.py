"""The multilinear extension of an additive top-K utility and its exact gradient, in O(elements · K).

Paper 003, section 2.1 and appendix A, computes the gradient in O(M(K² + KV)) for V distinct utilities; the recurrence
below needs O(MK) for any utilities. For one ranked list, best first, with utilities u_i and probabilities of presence
w_i:

  Ũ(w) = (1/K) Σ_i u_i w_i Pr[fewer than K of items 1..i−1 are present]

Let P_i[k] = Pr[k of the items before i are present], and E_i[k] the expected utility of the one item, from i on, that
an extra item in front of i pushes out of the top K if k present items come before it (0 if none is pushed out). Then

  P_{i+1}[k] = P_i[k] + w_i (P_i[k−1] − P_i[k])
  E_i[k]     = E_{i+1}[k] + w_i (E_{i+1}[k+1] − E_{i+1}[k]),   E_{i+1}[K] := u_i
  ∂Ũ/∂w_i    = (1/K) Σ_{k<K} P_i[k] (u_i − E_{i+1}[k]),        Ũ = (1/K) Σ_{k<K} E_1[k].

Both recurrences only take convex combinations, so there is no cancellation. An item's gradient equals the brute-force
sum over all subsets. If a source occurs several times in a list, the gradients of its positions are summed, each
position being present independently of the others (for whole sources in or out see `grouped`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.arrays import Float64s, Int64s
from ...base.packages import installed
from ...trials.lists import Array

Block = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike | None]

EPSILON = 1e-16  # below the rounding of a double: the truncation does not change the result
_LANES = 16  # lists processed side by side; their states stay in the level-1 cache for K around 10
_CHECK = 8  # positions between two checks of the tail: a check costs about as much as a position
_MAX_WAYS = 16
_ALL_WAYS = -1
_WAYS_BYTES = 1 << 28
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
    device: str | None = None,
) -> Float64s:
    """Exact gradient of the mean multilinear extension over N ranked lists (paper 003, equation 4, appendix A).

    items: (N, M) int, the source at each rank, best first, in 0..C−1; or (T,) when ``lengths`` says where lists end.
    utilities: like items, any real numbers: the utility of the answer that each item alone gives.
    weights: (C,) in [0, 1], the probability that a source is present.
    k: how many present items, from the top, contribute; the utility of a set divides by k.
    lengths: (N,) int, how many items of each row count; without it every row is full.
    epsilon: a list is cut at item i once Pr[at most K of the items before i are present] < epsilon; the gradient of
      a list then errs by less than 2·epsilon·max|u|. K + 1 states, not K: an item also changes what it pushes out.
    threads: None for one per core; the result has the same bits for any number.
    device: None or "cpu" for the compiled form, a torch device ("cuda") for the same on a GPU.

    Returns (C,) float64; a source in no list has 0. Raises ValueError when shapes or values do not fit.
    """
    return multilinear([(items, utilities, lengths)], weights, k, epsilon=epsilon, threads=threads, device=device)[1]


def multilinear_utility(
    items: npt.ArrayLike,
    utilities: npt.ArrayLike,
    weights: npt.ArrayLike,
    k: int,
    lengths: npt.ArrayLike | None = None,
) -> float:
    """Mean Ũ(weights) over the lists (paper 003, equation 2 with the utility of equation 5); arguments as for the
    gradient."""
    return multilinear([(items, utilities, lengths)], weights, k)[0]


def multilinear(
    blocks: Iterable[Block],
    weights: npt.ArrayLike,
    k: int,
    *,
    epsilon: float = EPSILON,
    threads: int | None = None,
    device: str | None = None,
) -> tuple[float, Float64s]:
    """Value and gradient over lists given in blocks ``(items, utilities, lengths)``, each as for the gradient.

    Only one block is in memory at a time, so the lists may be larger than memory. The result has the same bits for any
    division into blocks, and for any number of threads.
    """
    total = Accumulator(_checked_weights(weights), _checked_k(k), epsilon=epsilon, threads=threads, device=device)
    for items, utilities, lengths in blocks:
        total.add(*flat(items, utilities, lengths))
    return total.value(), total.gradient()


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
    """Running sums of value and gradient over lists that are added block by block.

    Lists are assigned in turn, ``_LANES`` at a time, to a fixed number of partial sums (which depends only on the
    number of sources). Within one partial sum they are added in the order of the lists, and a thread works on whole
    partial sums: so the bits are the same for any blocks and any number of threads.
    """

    weights: Float64s
    k: int
    epsilon: float = EPSILON
    threads: int | None = None
    device: str | None = None
    lists: int = 0
    _sums: Float64s = field(init=False)
    _values: Float64s = field(init=False)

    def __post_init__(self) -> None:
        ways = max(2, min(_MAX_WAYS, _WAYS_BYTES // (8 * max(1, len(self.weights)))))
        self._sums = np.zeros((ways, len(self.weights)))
        self._values = np.zeros(ways)

    def add(self, items: Array, utilities: Array, starts: Int64s, lengths: Int64s) -> None:
        """Add lists as `flat` returns them. Raises ValueError for an item outside 0..C−1."""
        if self.device is not None and self.device != "cpu":
            from .gradient_torch import add_lists

            add_lists(
                self._sums[0], self._values[:1], items, utilities, starts, lengths, self.weights, self.k, self.device
            )
        elif installed("numba"):
            self._add_compiled(items, utilities, starts, lengths)
        else:
            from .gradient_numpy import add_lists as add

            add(self._sums[0], self._values[:1], items, utilities, starts, lengths, self.weights, self.k)
        self.lists += len(lengths)

    def _add_compiled(self, items: Array, utilities: Array, starts: Int64s, lengths: Int64s) -> None:
        kernel = _kernel(self.k)
        longest = int(lengths.max(initial=0))
        work = len(items) * self.k
        threads = self.threads or (1 if work < _WORTH_A_THREAD else os.cpu_count() or 1)
        threads = max(1, min(threads, len(self._values)))

        def run(way: int) -> int:
            bad: int = kernel(
                items, utilities, starts, lengths, self.weights, self.epsilon,
                self.lists, longest, way, self._sums, self._values,
            )  # fmt: skip
            return bad

        if threads == 1:
            bad = run(_ALL_WAYS)
        else:
            ways = iter(range(len(self._values)))  # taken by whichever thread is free: cores may be busy

            def run_some() -> int:
                return max((run(way) for way in ways), default=-1)

            with ThreadPoolExecutor(threads - 1) as pool:
                others = [pool.submit(run_some) for _ in range(threads - 1)]
                bad = max(run_some(), *(other.result() for other in others))
        if bad >= 0:
            raise ValueError(f"list {bad} names an item outside 0..{len(self.weights) - 1}")

    def gradient(self) -> Float64s:
        """(C,) gradient of the mean Ũ over the lists added so far."""
        gradient: Float64s = self._sums.sum(axis=0) / (self.k * max(1, self.lists))
        if not np.isfinite(gradient).all():
            raise ValueError("utilities must be finite numbers")
        return gradient

    def value(self) -> float:
        """Mean Ũ over the lists added so far."""
        return float(self._values.sum()) / (self.k * max(1, self.lists))


def _checked_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    return int(k)


def _checked_weights(weights: npt.ArrayLike) -> Float64s:
    checked = np.ascontiguousarray(weights, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"weights must have shape (C,), not {checked.shape}")
    if not ((checked >= 0) & (checked <= 1)).all():
        raise ValueError("weights are probabilities: each in [0, 1]")
    return checked


@cache
def _kernel(k: int) -> Callable[..., int]:
    """The compiled pass over the lists for one K.

    Everything that a lane loop reads or writes is at offsets known at compile time, in one flat buffer: only then does
    the compiler see that nothing overlaps, unroll the loop over states and process several lists per instruction.
    Offsets are unsigned for the same reason (a signed index may wrap around). Layout, in rows of ``_LANES`` numbers:
    E (K+1) | current position: w, u, P (K+1), gradient | position 0: w, u, P (K), gradient | position 1 …
    """
    from numba import njit

    u: Any = np.uintp
    lanes, one = u(_LANES), u(1)
    states, below_k = u(k + 1), u(k)
    current = u((k + 1) * _LANES)
    w_row, u_row, p_row, g_row, stride = (u(row * _LANES) for row in (0, 1, 2, k + 2, k + 3))
    current_w, current_u, current_p = current + w_row, current + u_row, current + p_row
    current_g = current + stride  # behind state K, which is never stored
    first_position = current_g + lanes
    every = u(_CHECK)

    def run(
        items: Any,
        utilities: Any,
        starts: Any,
        lengths: Any,
        weights: Any,
        epsilon: float,
        before: Any,
        longest: Any,
        only: int,
        sums: Any,
        values: Any,
    ) -> int:
        """Add the lists of one partial sum, or of all; -1, or the number of a list with an item out of range."""
        count: Any = len(lengths)
        ways = len(values)
        h = np.empty(first_position + u(longest) * stride)
        ends = np.zeros(lanes, np.int64)
        for block in range(before // lanes, (before + count + lanes - one) // lanes):
            way = block % ways
            if only != _ALL_WAYS and way != only:
                continue
            start = max(block * lanes - before, 0)
            used = min((block + 1) * lanes - before, count) - start

            # gather: each list's weights and utilities into its lane
            top: Any = 0
            for lane in range(used):
                ends[lane] = lengths[start + lane]
                top = max(top, ends[lane])
            for lane in range(used, lanes):
                ends[lane] = 0
            for lane in range(lanes):
                at = u(starts[start + lane] if lane < used else 0)
                cell = first_position + u(lane)
                for place in range(u(ends[lane])):
                    item = items[at + place]
                    if item < 0 or item >= len(weights):
                        return int(start + lane)
                    h[cell + w_row] = weights[item]
                    h[cell + u_row] = utilities[at + place]
                    cell += stride
                for _ in range(ends[lane], top):
                    h[cell + w_row] = 0.0
                    h[cell + u_row] = 0.0
                    cell += stride

            # forward: P for every position, cut when the rest can no longer matter
            for c in range(first_position):
                h[c] = 0.0
            for lane in range(lanes):
                h[current_p + lane] = 1.0
            positions = u(top)
            i: Any = u(0)
            while i < positions:
                position = first_position + i * stride
                if i > below_k and i % every == u(0):
                    for lane in range(lanes):
                        tail = 0.0
                        for q in range(states):
                            tail += h[current_p + q * lanes + lane]
                        h[current_g + lane] = tail
                    reach = u(0)
                    for lane in range(lanes):
                        if h[current_g + lane] < epsilon and u(ends[lane]) > i:
                            ends[lane] = i
                            for j in range(i, positions):
                                h[first_position + j * stride + w_row + lane] = 0.0
                        reach = max(reach, u(ends[lane]))
                    if reach <= i:
                        positions = i
                        break
                for c in range(p_row, g_row):
                    h[position + c] = h[current + c]
                for lane in range(lanes):
                    h[current_w + lane] = h[position + w_row + lane]
                for lane in range(lanes):
                    w = h[current_w + lane]
                    previous = 0.0
                    for q in range(states):
                        p = h[current_p + q * lanes + lane]
                        h[current_p + q * lanes + lane] = p + w * (previous - p)
                        previous = p
                i += one

            # backward: E, and with P the gradient
            for back in range(positions):
                position = first_position + (positions - one - back) * stride
                for c in range(g_row):
                    h[current + c] = h[position + c]
                for lane in range(lanes):
                    w = h[current_w + lane]
                    own = h[current_u + lane]
                    gradient = 0.0
                    e = h[lane]
                    for q in range(below_k):
                        pushed_next = own if q == below_k - one else h[(q + one) * lanes + lane]
                        gradient += h[current_p + q * lanes + lane] * (own - e)
                        h[q * lanes + lane] = e + w * (pushed_next - e)
                        e = pushed_next
                    h[current_g + lane] = gradient
                for lane in range(lanes):
                    h[position + g_row + lane] = h[current_g + lane]

            # scatter, list after list, so that the sums do not depend on the division into blocks
            for lane in range(used):
                at = u(starts[start + lane])
                cell = first_position + g_row + u(lane)
                for place in range(u(ends[lane])):
                    sums[way, items[at + place]] += h[cell]
                    cell += stride
                value = 0.0
                for q in range(below_k):
                    value += h[q * lanes + u(lane)]
                values[way] += value
        return -1

    compiled: Callable[..., int] = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")(run)
    return compiled
