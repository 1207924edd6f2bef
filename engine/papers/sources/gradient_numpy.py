"""The pass of `gradient` in numpy, where numba is not installed: the same recurrences, many lists in each operation."""

from __future__ import annotations

import numpy as np

from ...base.arrays import Float64s, Int64s
from ...trials.lists import Array

_BLOCK_BYTES = 1 << 26  # for the states of one block, kept from the forward pass for the backward one


def add_lists(
    sums: Float64s,
    values: Float64s,
    items: Array,
    utilities: Array,
    starts: Int64s,
    lengths: Int64s,
    weights: Float64s,
    k: int,
) -> None:
    """Add K·N·gradient to ``sums`` (C,) and K·N·Ũ to ``values`` (1,); arguments as `gradient.flat` returns them.

    Agrees with the compiled form to rounding, which fuses multiplications and additions. Raises ValueError for an item
    outside 0..C−1.
    """
    longest = int(lengths.max(initial=0))
    count = max(1, _BLOCK_BYTES // (8 * max(1, longest) * (k + 4)))
    for first in range(0, len(lengths), count):
        sizes = lengths[first : first + count]
        rank = np.arange(int(sizes.max(initial=0)))[:, None]
        inside = rank < sizes
        at = np.where(inside, starts[first : first + count] + rank, 0)  # position-major: (M, B)
        ids = np.where(inside, items[at], 0) if len(items) else np.zeros(at.shape, np.int64)
        strange = ((ids < 0) | (ids >= len(weights))) & inside
        if strange.any():
            bad = first + int(np.flatnonzero(strange.any(axis=0))[0])
            raise ValueError(f"list {bad} names an item outside 0..{len(weights) - 1}")
        u = utilities[at] * inside if len(utilities) else np.zeros(at.shape)
        w = weights[ids] * inside if len(weights) else np.zeros(at.shape)
        before = np.zeros((len(rank) + 1, k, len(sizes)))
        before[0, 0] = 1
        for i in range(len(rank)):
            before[i + 1] = before[i] * (1 - w[i])
            before[i + 1, 1:] += before[i, :-1] * w[i]
        pushed = np.zeros((k + 1, len(sizes)))
        gradient = np.zeros(at.shape)
        for i in range(len(rank) - 1, -1, -1):
            pushed[k] = u[i]
            gradient[i] = (before[i] * (u[i] - pushed[:k])).sum(axis=0)
            pushed[:k] += w[i] * (pushed[1:] - pushed[:k])
        np.add.at(sums, ids[inside], gradient[inside])
        values += pushed[:k].sum()
