"""Diverse selection: determinantal point process and Set-BSR.

Both take candidates already ranked, most relevant first, and return each candidate at most once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64s, Int64s, one_blas_thread, step_of, top_k

SCALE = 0.05
"""The trade-off lambda of CEIL's training-free variant; smaller gives relevance more weight."""

EXHAUSTED = 1e-10
"""A determinant ratio below this means that the selected items already span the remaining candidates."""


class Picks(NamedTuple):
    """``order`` (k,) int64: positions among the candidates in the order of selection; ``gains`` (k,) float64: what each
    added to the set when it was selected."""

    order: Int64s
    gains: Float64s


def dpp(
    relevance: NDArray[np.floating],
    similarity: NDArray[np.floating],
    k: int,
    scale: float = SCALE,
    step: float = 0.0,
) -> Picks:
    """Greedy maximum a posteriori of a determinantal point process, as CEIL uses it without training.

    ``relevance`` (n,) are cosines to the query, ``similarity`` (n, n) cosines between candidates. The kernel is
    L = q S q with S = (cos + 1) / 2, q = exp(r / (2 ``scale``)), r = (relevance + 1) / 2 less its maximum (Ye et al.
    2023, CEIL; code of HKUNLP/icl-ceil). The incremental Cholesky update is Chen, Zhang and Zhou 2018, algorithm 1,
    O(n k²). Returns min(k, n) picks; a gain is the ratio det L(chosen and new) / det L(chosen). When the chosen items
    span what is left (ratio below `EXHAUSTED`), the rest follows by relevance with gain 0. Ties go to the earlier
    candidate; ``step`` is what the cosines do not tell (`step_of`).
    """
    relevance = np.asarray(relevance, np.float64)
    n = len(relevance)
    k = min(k, n)
    if k <= 0:
        return Picks(np.empty(0, np.int64), np.empty(0))
    shifted = (relevance + 1) / 2
    quality = np.exp((shifted - shifted.max()) / (2 * scale))
    likeness = (np.asarray(similarity, np.float64) + 1) / 2
    residual = quality**2 * np.diagonal(likeness)
    apart = step / scale  # a gain is exp(r / (2 scale)) times what the likeness leaves: as much again for that
    rows = np.zeros((k, n))  # row t: the Cholesky coefficients of every candidate against pick t
    order = np.empty(k, np.int64)
    gains = np.zeros(k)
    for t in range(k):
        pick = int(top_k(np.log(np.maximum(residual, EXHAUSTED)), 1, apart)[0])
        if residual[pick] < EXHAUSTED:
            order[t:] = np.delete(np.arange(n), order[:t])[top_k(np.delete(relevance, order[:t]), k - t, step)]
            break
        order[t], gains[t] = pick, residual[pick]
        kernel_row = quality[pick] * likeness[pick] * quality
        rows[t] = (kernel_row - rows[:t, pick] @ rows[:t]) / np.sqrt(residual[pick])
        residual = residual - rows[t] ** 2
        residual[order[: t + 1]] = -np.inf
    return Picks(order, gains)


def set_bsr(query_tokens: NDArray[np.floating], candidate_tokens: Sequence[NDArray[np.floating]], k: int) -> Picks:
    """Greedy Set-BSR: cover the query's tokens (Gupta, Gardner and Singh 2023, section 3; BERTScore recall of a set).

    ``query_tokens`` (t, d) and each of ``candidate_tokens`` (t_i, d) are token vectors of length 1 without special
    tokens. The score of a set is the mean over query tokens of the highest cosine any token of the set has. When no
    candidate increases it by more than float32 tells (`step_of`), coverage is reset and selection continues among the
    rest. Returns min(k, n) picks; a gain is by how much the pick raised the score (from 0 at the start and after each
    new start). Ties go to the earlier candidate.
    """
    recalls = token_recalls(query_tokens, candidate_tokens)
    n = len(recalls)
    k = min(k, n)
    order = np.empty(max(k, 0), np.int64)
    gains = np.zeros(max(k, 0))
    left = np.ones(n, np.bool_)
    covered, score = np.full(recalls.shape[1], -np.inf), -np.inf
    step = step_of(np.shape(query_tokens)[-1])
    t = 0
    while t < k:
        reached = np.where(left, np.maximum(recalls, covered).mean(axis=1), -np.inf)
        pick = int(top_k(reached, 1, step)[0])
        if reached[pick] <= score + step:
            covered, score = np.full_like(covered, -np.inf), -np.inf
            continue
        order[t] = pick
        gains[t] = reached[pick] - (score if np.isfinite(score) else 0.0)
        covered, score = np.maximum(covered, recalls[pick]), float(reached[pick])
        left[pick] = False
        t += 1
    return Picks(order, gains)


def token_recalls(query_tokens: NDArray[np.floating], candidate_tokens: Sequence[NDArray[np.floating]]) -> Float64s:
    """For each candidate and query token, the highest cosine: (n, t).

    A candidate without tokens recalls nothing (−1); a query without tokens is recalled equally by every candidate.
    """
    lengths = np.array([len(tokens) for tokens in candidate_tokens], np.int64)
    recalls = np.full((len(lengths), max(len(query_tokens), 1)), -1.0)
    filled = np.flatnonzero(lengths)
    if len(filled) and len(query_tokens):
        tokens = np.concatenate([candidate_tokens[i] for i in filled.tolist()], dtype=np.float32)
        with one_blas_thread():
            cosines = tokens @ np.asarray(query_tokens, np.float32).T
        starts = np.cumsum(lengths[filled]) - lengths[filled]
        recalls[filled] = np.maximum.reduceat(cosines, starts, axis=0)
    return recalls
