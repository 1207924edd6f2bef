"""Exact search, and what "the k best" means, against sorting everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.arrays import step_of, top_k
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.retrieval import dense
from icl_curate.engine.retrieval.dense import DenseIndex
from icl_curate.engine.retrieval.encoder import unit


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 30), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_top_k_is_the_head_of_a_full_stable_sort(n: int, k: int, distinct: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, distinct, n).astype(np.float64)
    scores[: n // 7] = -np.inf
    expected = np.argsort(-scores, kind="stable")[:k]
    assert top_k(scores, k).tolist() == expected.tolist()
    torn = scores + np.random.default_rng(seed).uniform(-0.4, 0.4, n)
    assert top_k(torn, k, 1.0).tolist() == expected.tolist()


@given(terms=st.integers(1, 1 << 16), size=st.floats(1e-9, 1e9))
def test_a_step_is_a_power_of_two_above_the_error_of_a_sum(terms: int, size: float) -> None:
    step, bound = step_of(terms, size), 9 * terms**0.5 * 2.0**-24 * size
    assert np.frexp(step)[0] == 0.5 and bound * (1 - 1e-12) <= step <= 2.001 * bound
    assert step_of(terms, 0.0) == 0.0


def test_the_error_of_a_cosine_in_float32_is_below_the_step(matrix: np.ndarray) -> None:
    exact = matrix.astype(np.float64) @ matrix.T.astype(np.float64)
    assert 0 < np.abs(exact - matrix @ matrix.T).max() < step_of(matrix.shape[1])


def brute_force(matrix: np.ndarray, rows: np.ndarray, query: np.ndarray, k: int, exclude: set[int]) -> list[int]:
    rows = np.array([row for row in sorted(rows.tolist()) if row not in exclude], np.int64)
    scores = (matrix[rows].astype(np.float64) * query).sum(axis=1)
    told = np.rint(scores / step_of(matrix.shape[1]))
    return rows[np.argsort(-told, kind="stable")[:k]].tolist()


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    vectors = unit(np.random.default_rng(0).normal(size=(900, 48)).astype(np.float32))
    vectors[[5, 300, 301, 899]] = vectors[17]  # equal vectors, far apart
    return vectors


# contiguous, most of a span, a few of a span
@pytest.mark.parametrize("rows", [np.arange(900), np.arange(0, 900, 2), np.arange(5, 900, 49), np.arange(3, 4)])
def test_top_agrees_with_brute_force_alone_and_in_batches(
    matrix: np.ndarray, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "SCORE_BYTES", 4 * 900 * 5)  # several blocks
    index = DenseIndex(matrix, rows)
    queries = matrix[:23]
    exclude = [{i, 5} for i in range(23)]
    many = index.top_many(queries, 12, exclude)
    for i, query in enumerate(queries):
        found, cosines = index.top(query, 12, exclude[i])
        assert found.tolist() == brute_force(matrix, rows, query, 12, exclude[i])
        assert np.allclose(cosines, matrix[found] @ query, atol=1e-6)
        assert many[i][0].tolist() == found.tolist()
        assert many[i][1].tolist() == cosines.tolist()
        several = np.stack([query, -query, query])
        found = index.scores(several)
        assert np.allclose(found, several @ matrix[np.sort(rows)].T, atol=1e-5)
        assert found[0].tobytes() == found[2].tobytes() == index.scores(query[None])[0].tobytes()


def test_the_matrix_is_read_once_for_many_queries_block_by_block(matrix: np.ndarray, monkeypatch: Any) -> None:
    monkeypatch.setattr(dense, "SCORE_BYTES", 4 * 7 * 64)  # 64 rows for 7 queries
    index, reads = DenseIndex(matrix, np.arange(0, 900)), []

    class Counted(np.ndarray):
        def __getitem__(self, at: Any) -> Any:
            if isinstance(at, slice):
                reads.append((at.start, at.stop))
            return np.asarray(self)[at]

    index._vectors = matrix.view(Counted)
    found = index.top_many(matrix[:7], 100)  # more than a block has
    assert reads == [(start, start + 64) for start in range(0, 900, 64)]
    for query, (rows, _) in zip(matrix, found, strict=False):
        assert rows.tolist() == brute_force(matrix, np.arange(900), query, 100, set())


def test_equal_vectors_score_equal_and_rank_by_row(matrix: np.ndarray) -> None:
    rows, cosines = DenseIndex(matrix, np.arange(900)).top(matrix[17], 5)
    assert rows.tolist() == [5, 17, 300, 301, 899]
    assert len(set(cosines.tolist())) == 1


def test_edges(matrix: np.ndarray) -> None:
    assert DenseIndex(matrix, np.empty(0, np.int64)).top(matrix[0], 3)[0].tolist() == []
    assert DenseIndex(matrix, np.array([4])).top(matrix[0], 3, [4])[0].tolist() == []
    assert DenseIndex(matrix, np.array([9, 4])).top(matrix[4], 3)[0].tolist() == [4, 9]
    with pytest.raises(ValueError, match="matrix has 900"):
        DenseIndex(matrix, np.array([900]))
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        DenseIndex(matrix, np.arange(900)).top_many(matrix[:2], 3, monitor=Monitor(cancel=token))
