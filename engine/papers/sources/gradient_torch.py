"""The pass of `gradient` in torch, for a GPU: the same recurrences, a whole block of lists in each operation."""

from __future__ import annotations

import numpy as np

from ...base.arrays import Float64s, Int64s
from ...trials.lists import Array

_BLOCK_BYTES = 1 << 29  # for the states of one block, kept from the forward pass for the backward one


def add_lists(
    sums: Float64s,
    values: Float64s,
    items: Array,
    utilities: Array,
    starts: Int64s,
    lengths: Int64s,
    weights: Float64s,
    k: int,
    device: str,
) -> None:
    """Add K·N·gradient to ``sums`` (C,) and K·N·Ũ to ``values`` (1,); arguments as `gradient.flat` returns them.

    float64 throughout; agrees with the compiled form to rounding. The order of additions on a GPU is not fixed, so
    the last bits may differ between runs. Raises ValueError for an item outside 0..C−1.
    """
    import torch

    if not len(items):
        return
    used = np.repeat(starts, lengths) + np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    named = items[used]
    if len(named) and (named.min() < 0 or named.max() >= len(weights)):
        bad = int(np.repeat(np.arange(len(lengths)), lengths)[(named < 0) | (named >= len(weights))][0])
        raise ValueError(f"list {bad} names an item outside 0..{len(weights) - 1}")
    w_all = torch.tensor(weights, device=device)
    total = torch.zeros(len(weights), dtype=torch.float64, device=device)
    value = 0.0
    longest = int(lengths.max())
    count = max(1, _BLOCK_BYTES // (8 * max(1, longest) * (k + 4)))
    for first in range(0, len(lengths), count):
        sizes = lengths[first : first + count]
        rank = np.arange(int(sizes.max(initial=0)))[:, None]
        present = rank < sizes
        at = np.where(present, starts[first : first + count] + rank, 0)  # position-major: (M, B)
        ids = torch.from_numpy(items[at].astype(np.int64)).to(device)
        inside = torch.from_numpy(present).to(device)
        u = torch.from_numpy(utilities[at].astype(np.float64)).to(device) * inside
        w = w_all[ids] * inside
        before = torch.zeros((len(rank) + 1, k, len(sizes)), dtype=torch.float64, device=device)
        before[0, 0] = 1
        for i in range(len(rank)):
            torch.sub(before[i], before[i] * w[i], out=before[i + 1])
            before[i + 1, 1:].addcmul_(before[i, :-1], w[i])
        pushed = torch.zeros((k + 1, len(sizes)), dtype=torch.float64, device=device)
        gradient = torch.zeros_like(u)
        for i in range(len(rank) - 1, -1, -1):
            pushed[k] = u[i]
            gradient[i] = (before[i] * (u[i] - pushed[:k])).sum(0)
            pushed[:k] = torch.lerp(pushed[:k], pushed[1:], w[i].expand(k, -1))
        total.index_add_(0, ids[inside], gradient[inside])
        value += float(pushed[:k].sum())
    sums += total.cpu().numpy()
    values += value
