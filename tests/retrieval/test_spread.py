"""A random order whose beginning is spread over all."""

from __future__ import annotations

import numpy as np
import pytest
from icl_curate.engine.retrieval.spread import spread


@pytest.mark.parametrize("n", [6, 7])
def test_each_is_equally_likely_everywhere(n: int) -> None:
    vectors, draw = np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32), np.random.default_rng(2)
    draws, counts = 6_000, np.zeros((n, n))
    for _ in range(draws):
        order = spread(vectors, draw)
        assert sorted(order.tolist()) == [*range(n)]
        counts[order, np.arange(n)] += 1
    deviation = np.sqrt(draws * (1 / n) * (1 - 1 / n))
    assert np.abs(counts - draws / n).max() < 5 * deviation


def test_every_beginning_has_as_many_of_either_half() -> None:
    draw = np.random.default_rng(3)
    vectors = (draw.normal(size=(64, 5)) * [9, 3, 1, 1, 1]).astype(np.float32)
    centred = vectors - vectors.mean(axis=0)
    along = centred @ np.linalg.svd(centred)[2][0]  # an independent reference: the exact first axis
    upper = along > np.median(along)
    for _ in range(20):
        seen = np.cumsum(upper[spread(vectors, draw)])
        assert np.abs(seen - np.arange(1, 65) / 2).max() <= 0.5


def test_a_few_have_something_of_everything() -> None:
    draw = np.random.default_rng(4)
    centres = np.repeat(draw.normal(size=(8, 16)), 16, axis=0)
    vectors = (centres + 0.05 * draw.normal(size=centres.shape)).astype(np.float32)
    of = np.repeat(np.arange(8), 16)
    first = [len(set(of[spread(vectors, draw)[:8]])) for _ in range(50)]
    chance = [len(set(of[draw.permutation(128)[:8]])) for _ in range(50)]
    assert np.mean(first) > 7.9 and np.mean(chance) < 6


@pytest.mark.parametrize("n", [0, 1, 5])
def test_vectors_that_are_all_the_same_have_an_order_too(n: int) -> None:
    assert sorted(spread(np.ones((n, 2), np.float32), np.random.default_rng(5)).tolist()) == [*range(n)]
