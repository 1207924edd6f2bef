"""DPP against maximising determinants outright; Set-BSR against its definition, line by line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.retrieval.encoder import unit
from icl_curate.engine.select.methods import dpp, set_bsr, token_recalls


def unit_vectors(n: int, d: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32))


def kernel(relevance: np.ndarray, similarity: np.ndarray, scale: float) -> np.ndarray:
    r = (relevance + 1) / 2
    q = np.diag(np.exp((r - r.max()) / (2 * scale)))
    return q @ ((similarity + 1) / 2) @ q


def greedy_by_determinants(matrix: np.ndarray, k: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(k):
        left = [i for i in range(len(matrix)) if i not in chosen]
        chosen.append(max(left, key=lambda i: np.linalg.slogdet(matrix[np.ix_([*chosen, i], [*chosen, i])])[1]))
    return chosen


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.sampled_from([0.05, 0.1, 0.5]), st.integers(0, 2**32 - 1))
def test_dpp_maximises_the_determinant_greedily(n: int, k: int, scale: float, seed: int) -> None:
    vectors = unit_vectors(n + 1, 24, seed).astype(np.float64)
    relevance, similarity = vectors[1:] @ vectors[0], vectors[1:] @ vectors[1:].T
    matrix = kernel(relevance, similarity, scale)
    picks = dpp(relevance, similarity, k, scale)
    assert picks.order.tolist() == greedy_by_determinants(matrix, min(k, n))
    chosen = picks.order
    assert np.prod(picks.gains) == pytest.approx(np.linalg.det(matrix[np.ix_(chosen, chosen)]), rel=1e-6)


def test_dpp_of_repeated_candidates_returns_distinct_ones_and_fills_by_relevance() -> None:
    distinct = unit_vectors(3, 8, 1)
    candidates = distinct[np.arange(15) % 3]
    relevance = (candidates @ unit_vectors(1, 8, 2)[0]).astype(np.float64)
    picks = dpp(relevance, candidates @ candidates.T, 8)
    assert len(set(picks.order.tolist())) == 8
    assert {i % 3 for i in picks.order[:3].tolist()} == {0, 1, 2}
    assert (picks.gains[:3] > 0).all()
    assert (picks.gains[3:] == 0).all()
    filled = picks.order[3:].tolist()
    others = [i for i in range(15) if i not in picks.order[:3]]
    assert filled == sorted(others, key=lambda i: -relevance[i])[:5]


def test_dpp_prefers_the_second_topic_to_a_copy_of_the_first() -> None:
    similarity = np.array([[1, 0.999, 0], [0.999, 1, 0], [0, 0, 1]])
    relevance = np.array([0.80, 0.79, 0.70])
    assert dpp(relevance, similarity, 2).order.tolist() == [0, 2]


@pytest.mark.parametrize(("n", "k", "expected"), [(0, 3, 0), (3, 0, 0), (3, 9, 3)])
def test_dpp_sizes(n: int, k: int, expected: int) -> None:
    vectors = unit_vectors(max(n, 1), 4, 0)[:n]
    picks = dpp(vectors @ np.ones(4), vectors @ vectors.T, k)
    assert sorted(picks.order.tolist()) == list(range(expected))
    assert len(picks.gains) == expected


def straight_set_bsr(query: np.ndarray, candidates: list[np.ndarray], k: int) -> list[int]:
    def score(chosen: list[int]) -> float:
        pooled = np.concatenate([candidates[i] for i in chosen]).astype(np.float32)
        return float((pooled @ query.astype(np.float32).T).max(axis=0).astype(np.float64).mean())

    order: list[int] = []
    covering: list[int] = []
    while len(order) < min(k, len(candidates)):
        left = [i for i in range(len(candidates)) if i not in order]
        best = max(left, key=lambda i: (score([*covering, i]), -i))
        if covering and score([*covering, best]) <= score(covering):
            covering = []
            continue
        order.append(best)
        covering.append(best)
    return order


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 10), st.integers(0, 999))
def test_set_bsr_follows_its_definition(query_length: int, lengths: list[int], k: int, seed: int) -> None:
    # one-hot tokens of a small alphabet: ties and resets happen, and cosines are exact
    rng = np.random.default_rng(seed)
    query = np.eye(6, dtype=np.float16)[rng.integers(0, 6, query_length)]
    candidates = [np.eye(6, dtype=np.float16)[rng.integers(0, 6, length)] for length in lengths]
    assert set_bsr(query, candidates, k).order.tolist() == straight_set_bsr(query, candidates, k)


def test_set_bsr_on_dense_tokens_and_what_its_gains_add_up_to() -> None:
    rng = np.random.default_rng(5)
    query = unit_vectors(7, 16, 1).astype(np.float16)
    candidates = [unit_vectors(int(rng.integers(1, 9)), 16, 10 + i).astype(np.float16) for i in range(12)]
    picks = set_bsr(query, candidates, 4)
    assert picks.order.tolist() == straight_set_bsr(query, candidates, 4)
    together = np.concatenate([candidates[i] for i in picks.order]).astype(np.float32) @ query.astype(np.float32).T
    assert picks.gains.sum() == pytest.approx(together.max(axis=0).mean(), abs=1e-6)


def test_set_bsr_covers_what_is_left_of_the_query() -> None:
    tokens = np.eye(4, dtype=np.float16)
    # the second candidate repeats the first; the third is shorter but brings the missing word
    picks = set_bsr(tokens[[0, 1, 2]], [tokens[[0, 1]], tokens[[0, 1]], tokens[[2]]], 3)
    assert picks.order.tolist() == [0, 2, 1]
    assert picks.gains.tolist() == pytest.approx([2 / 3, 1 / 3, 2 / 3])  # the third begins a new cover


def test_set_bsr_with_empty_texts_and_more_wanted_than_there_are() -> None:
    tokens = np.eye(3, dtype=np.float16)
    empty = np.empty((0, 3), np.float16)
    assert set_bsr(tokens[:1], [empty, tokens[:1], empty], 9).order.tolist() == [1, 0, 2]
    assert set_bsr(empty, [tokens, tokens], 2).order.tolist() == [0, 1]
    assert set_bsr(tokens, [], 2).order.tolist() == []
    assert token_recalls(tokens, [tokens[:2], empty]).tolist() == [[1, 1, 0], [-1, -1, -1]]
