"""The multilinear gradient against enumeration of all subsets, finite differences and the published package."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.papers.sources.estimators import multilinear as learn_weights
from icl_curate.engine.papers.sources.gradient import (
    EPSILON,
    Accumulator,
    flat,
    multilinear_gradient,
)
from icl_curate.engine.trials.lists import ranked_lists


def top_k_utility(utilities: np.ndarray[Any, Any], present: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Paper 003, equation 5, for every row of ``present`` (subsets, items)."""
    first_k = present & (np.cumsum(present, axis=1) <= k)
    return np.asarray((first_k * utilities).sum(axis=1) / k)


def enumerated(
    items: Any, utilities: Any, weights: Any, k: int, lengths: Any
) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]]:
    """Value and gradient by the definition: the sum over all subsets of each list (equations 2 and 4)."""
    value, gradient = 0.0, np.zeros(len(weights))
    for row, u, length in zip(items, utilities, lengths, strict=True):
        ids, u = np.asarray(row[:length], int), np.asarray(u[:length], float)
        w = np.asarray(weights, float)[ids]
        subsets = (np.arange(2**length)[:, None] >> np.arange(length)) & 1 == 1
        value += float((top_k_utility(u, subsets, k) * np.where(subsets, w, 1 - w).prod(axis=1)).sum())
        for i in range(length):
            without = subsets[~subsets[:, i]]
            joined = without.copy()
            joined[:, i] = True
            others = np.delete(np.where(without, w, 1 - w), i, axis=1).prod(axis=1)
            gradient[ids[i]] += ((top_k_utility(u, joined, k) - top_k_utility(u, without, k)) * others).sum()
    return value / len(items), gradient / len(items)


def value_of(items: Any, utilities: Any, weights: Any, k: int, lengths: Any) -> float:
    """Mean Ũ by the first formula of the module: each item's utility, if it and fewer than k before it are present."""
    total = 0.0
    for row, u, length in zip(items, utilities, lengths, strict=True):
        before = np.eye(1, k)[0]  # Pr[0 .. k − 1 of the items before are present]
        for item, utility in zip(row[:length], u[:length], strict=True):
            total += utility * weights[item] * before.sum() / k
            before = before * (1 - weights[item]) + np.concatenate([[0.0], before[:-1]]) * weights[item]
    return total / len(items)


def in_blocks(blocks: Any, weights: Any, k: int, threads: int | None = None) -> np.ndarray[Any, Any]:
    total = Accumulator(weights, k, EPSILON, threads)
    for block in blocks:
        total.add(*flat(*block))
    return total.gradient()


def instance(seed: int, lists: int = 7, width: int = 9, sources: int = 6) -> tuple[Any, Any, Any, Any]:
    draw = np.random.default_rng(seed)
    items = draw.integers(0, sources, (lists, width))  # more places than sources: every list repeats some
    utilities = draw.choice([0.0, 1.0, 0.25, -2.0], (lists, width))  # few values: many ties
    weights = draw.choice([0.0, 1.0, 0.3, 0.7, 0.999], sources)
    return items, utilities, weights, draw.integers(0, width + 1, lists)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 15])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_value_and_gradient_equal_the_sum_over_all_subsets(k: int, seed: int) -> None:
    items, utilities, weights, lengths = instance(seed)
    value, gradient = enumerated(items, utilities, weights, k, lengths)
    np.testing.assert_allclose(multilinear_gradient(items, utilities, weights, k, lengths), gradient, atol=1e-13)
    assert value_of(items, utilities, weights, k, lengths) == pytest.approx(value, abs=1e-13)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_all_present_still_counts_what_an_item_pushes_out(k: int) -> None:
    draw = np.random.default_rng(k)
    items, utilities = np.tile(np.arange(12), (3, 1)), draw.normal(size=(3, 12))
    for weights in (np.ones(12), np.zeros(12), (np.arange(12) % 3 > 0).astype(float)):
        expected = enumerated(items, utilities, weights, k, [12] * 3)[1]
        np.testing.assert_allclose(multilinear_gradient(items, utilities, weights, k), expected, atol=1e-13)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_small_instance_equals_enumeration(data: st.DataObject) -> None:
    sources = data.draw(st.integers(1, 4))
    row = st.lists(st.tuples(st.integers(0, sources - 1), st.floats(-5, 5)), max_size=7)
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    weights = data.draw(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=sources, max_size=sources))
    k = data.draw(st.sampled_from([1, 2, 3, 5]))
    lengths = [len(r) for r in rows]
    ids = [[i for i, _ in r] for r in rows]
    utilities = [[u for _, u in r] for r in rows]
    expected = enumerated(ids, utilities, weights, k, lengths)[1]
    flat_ids = np.array([i for r in ids for i in r], dtype=np.int64)
    flat_utilities = np.array([u for r in utilities for u in r], dtype=np.float64)
    got = multilinear_gradient(flat_ids, flat_utilities, weights, k, lengths)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_gradient_equals_finite_differences_of_the_value() -> None:
    draw = np.random.default_rng(5)
    items, utilities = draw.integers(0, 40, (30, 60)), draw.normal(size=(30, 60))
    weights = draw.uniform(0.1, 0.9, 40)
    lengths = draw.integers(0, 61, 30)
    gradient = multilinear_gradient(items, utilities, weights, 10, lengths)
    step = 1e-5
    for source in range(40):
        up, down = weights.copy(), weights.copy()
        up[source] += step
        down[source] -= step
        above, below = (value_of(items, utilities, moved, 10, lengths) for moved in (up, down))
        slope = (above - below) / (2 * step)
        assert gradient[source] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("presence", [0.2, 0.6, 1.0])
def test_cutting_long_lists_stays_within_its_bound(k: int, presence: float) -> None:
    draw = np.random.default_rng(k)
    items = draw.integers(0, 50, (40, 400))
    utilities = draw.uniform(-1, 1, (40, 400))
    weights = np.where(draw.random(50) < presence, draw.choice([0.5, 1.0], 50), 0.0)
    whole = multilinear_gradient(items, utilities, weights, k, epsilon=0.0)
    np.testing.assert_allclose(multilinear_gradient(items, utilities, weights, k), whole, atol=1e-14)
    for epsilon in (1e-6, 1e-2):
        places = np.bincount(items.ravel(), minlength=50) / 40  # the bound holds for each place in a list
        cut = multilinear_gradient(items, utilities, weights, k, epsilon=epsilon)
        assert (np.abs(cut - whole) <= 2 * epsilon * places + 1e-15).all()


def test_the_bits_do_not_depend_on_blocks_or_threads() -> None:
    draw = np.random.default_rng(8)
    lengths = draw.integers(0, 90, 3000)
    items = draw.integers(0, 300, lengths.sum()).astype(np.int32)
    utilities = draw.random(lengths.sum())
    weights = draw.choice([0.0, 0.4, 0.8, 1.0], 300)
    gradient = multilinear_gradient(items, utilities, weights, 5, lengths, threads=1)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for cuts in ([0, 3000], [0, 1, 3000], [0, 7, 500, 517, 2048, 2999, 3000]):
        blocks = [
            (items[ends[a] : ends[b]], utilities[ends[a] : ends[b]], lengths[a:b]) for a, b in itertools.pairwise(cuts)
        ]
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(in_blocks(blocks, weights, 5, threads), gradient)


def test_integer_and_short_types_mean_the_same_as_doubles() -> None:
    items, _, weights, lengths = instance(3)
    right = items % 2
    expected = multilinear_gradient(items, right.astype(float), weights, 3, lengths)
    for kind in (np.int64, np.float32, np.int8, bool):
        np.testing.assert_array_equal(
            multilinear_gradient(items.astype(np.int16), right.astype(kind), weights, 3, lengths), expected
        )


def test_sources_in_no_list_and_empty_lists_have_no_gradient() -> None:
    gradient = multilinear_gradient([[0, 1], [7, 7]], [[1.0, 0.0], [9.0, 9.0]], np.full(8, 0.5), 2, [2, 0])
    assert gradient[7] == 0
    assert gradient[0] == pytest.approx(1 / 4)
    assert not multilinear_gradient(np.zeros((0, 5), int), np.zeros((0, 5)), np.full(3, 0.5), 2).any()


@pytest.mark.parametrize(
    ("items", "utilities", "weights", "k", "lengths"),
    [
        ([[0, 1]], [[1.0]], [0.5, 0.5], 1, None),
        ([[0, 2]], [[1.0, 1.0]], [0.5, 0.5], 1, None),
        ([[0, -1]], [[1.0, 1.0]], [0.5, 0.5], 1, None),
        ([[0, 1]], [[1.0, 1.0]], [0.5, 1.5], 1, None),
        ([[0, 1]], [[1.0, 1.0]], [0.5, float("nan")], 1, None),
        ([[0, 1]], [[1.0, float("nan")]], [0.5, 0.5], 1, None),
        ([[0, 1]], [[1.0, 1.0]], [0.5, 0.5], 0, None),
        ([[0, 1]], [[1.0, 1.0]], [0.5, 0.5], 1, [3]),
        ([[0, 1]], [[1.0, 1.0]], [0.5, 0.5], 1, [1, 1]),
        ([0, 1], [1.0, 1.0], [0.5, 0.5], 1, [1]),
        ([[0.0, 1.0]], [[1.0, 1.0]], [0.5, 0.5], 1, None),
    ],
)
def test_arrays_that_do_not_fit_are_refused(items: Any, utilities: Any, weights: Any, k: int, lengths: Any) -> None:
    with pytest.raises(ValueError):
        multilinear_gradient(items, utilities, weights, k, lengths)


def test_what_stands_behind_the_length_is_not_read() -> None:
    expected = multilinear_gradient([[0, 1]], [[1.0, 0.0]], [0.5, 0.5], 1)
    got = multilinear_gradient([[0, 1, -9]], [[1.0, 0.0, float("nan")]], [0.5, 0.5], 1, [2])
    np.testing.assert_array_equal(got, expected)


def published_instance() -> tuple[list[list[int]], list[list[float]], list[int]]:
    draw = random.Random(7)
    source_of = [document % 8 for document in range(24)]
    lists = [draw.sample(range(24), draw.randint(4, 20)) for _ in range(60)]
    quality = [draw.random() for _ in range(8)]
    utilities = [[float(draw.random() < quality[source_of[d]]) for d in row] for row in lists]
    return lists, utilities, source_of


# What ragbooster 0.1.1 learns on `published_instance` in 50 epochs: (rate, k, weights of documents, weights of sources)
PUBLISHED = [
    (
        500.0,
        5,
        [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1],
        [0, 0, 0.3333333333333333, 0, 0.23733416697152884, 0.3333333333333333, 1, 1],
    ),
    (
        1.0,
        3,
        [
            *[0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0.7183458108449468, 0, 0, 0.46508296688709133, 0.7478369161087072, 1],
            *[0, 0, 0.34029252613273453, 0, 0, 0, 1, 1],
        ],
        [0, 0, 0.22148382153633892, 0, 0, 0, 1, 1],
    ),
]


@pytest.mark.parametrize(("rate", "k", "documents", "sources"), PUBLISHED)
def test_weights_equal_the_published_package(rate: float, k: int, documents: list[float], sources: list[float]) -> None:
    rows, utilities, source_of = published_instance()
    names = [[f"{d:02}" for d in row] for row in rows]
    alone = ranked_lists(names, rows, utilities)
    np.testing.assert_allclose(learn_weights(alone, k, rate=rate), documents, atol=1e-9)
    together = ranked_lists([[str(source_of[d]) for d in row] for row in rows], rows, utilities, documents=names)
    np.testing.assert_allclose(learn_weights(together, k, rate=rate), sources, atol=1e-9)


def test_lists_in_blocks_give_the_same_bits() -> None:
    draw = np.random.default_rng(2)
    lengths = draw.integers(0, 30, 5000)
    items, utilities = draw.integers(0, 20, lengths.sum()), draw.random(lengths.sum())
    ends = np.cumsum(lengths)[:-1]
    weights = np.full(20, 0.5)
    whole = multilinear_gradient(items, utilities, weights, 5, lengths)
    cuts = range(512, 5000, 512)
    parts = (np.split(values, ends[np.array(cuts) - 1]) for values in (items, utilities))
    split = in_blocks(zip(*parts, np.split(lengths, cuts), strict=True), weights, 5)
    np.testing.assert_array_equal(split, whole)


def test_an_accumulator_starts_at_nothing() -> None:
    assert not Accumulator(np.full(3, 0.5), 2).gradient().any()
