"""A random order in which the first few are spread over all: balanced in the space of the vectors, like a generalised
random tessellation stratified sample (Stevens and Olsen 2004)."""

from __future__ import annotations

import numpy as np

from ..base.arrays import Float32s, Int64s

STEPS = 8
"""Of the power iteration: the halves need not be the very best ones."""


def spread(vectors: Float32s, draw: np.random.Generator) -> Int64s:
    """Places (n,) of the ``vectors`` (n, d) in a random order. Each is equally likely to be anywhere in it, and any
    beginning of it has as many, but for one, of one half of the vectors as of the other, by their first principal axis,
    of each half as many of either quarter, and so on. Of an odd number one comes last, whichever it is."""

    def ordered(places: Int64s) -> Int64s:
        if len(places) < 2:
            return places
        if len(places) % 2:  # any one comes last, so that the halves are equal
            last = int(draw.integers(len(places)))
            return np.append(ordered(np.delete(places, last)), places[last])
        halves = places[np.argsort(_along(vectors[places], draw), kind="stable")].reshape(2, -1)
        return np.stack([ordered(half) for half in draw.permutation(halves)], axis=1).ravel()

    return ordered(np.arange(len(vectors)))


def _along(vectors: Float32s, draw: np.random.Generator) -> Float32s:
    """Where vectors (n, d) are along their first principal axis, (n,)."""
    centred = vectors - vectors.mean(axis=0)
    axis = draw.standard_normal(vectors.shape[1], dtype=np.float32)
    for _ in range(STEPS):
        axis = centred.T @ (centred @ axis)
        axis /= np.linalg.norm(axis) or 1
    along: Float32s = centred @ axis
    return along
