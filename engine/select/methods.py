"""The selection methods, one function each: (view of the pool, queries, k, seed) to picks, best first; at the end the
two greedy algorithms of diverse selection.

`METHODS` lists them all; commands, evaluation and the Python API read it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64s, Int64s, one_blas_thread, step_of, top_k
from ..base.registry import Registry
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..store.workspace import Workspace
from ..trials.fixed import KIND as FIXED
from ..trials.fixed import fixed_rows
from ..trials.ranker import KINDS, RankedCandidates, distinct_seeds, is_untrained, rank, rank_transferred
from ..trials.ranker import Method as Policy


@dataclass(frozen=True, slots=True)
class Need:
    """A topic a query requires (t̂_x) and how well the LLM knows it (t_LM)."""

    topic: str
    required: float
    knowledge: float


@dataclass(frozen=True, slots=True)
class Pick:
    """A selected row: ``score`` is its ranking score, ``parts`` the components of the score.

    ``adds`` (``topick`` only) are the topics it adds most to the earlier picks, with the amounts.
    """

    row: int
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    adds: tuple[tuple[str, float], ...] = ()


Picks = list[Pick]
Choose = Callable[[PoolView, Sequence[Query], int, int], list[Picks]]


@dataclass(frozen=True, slots=True)
class Method:
    """``seeded``: the outcome depends on the seed. ``trained``: the kind of training run that it needs, if any."""

    choose: Choose
    about: str
    seeded: bool = False
    trained: str = ""
    distinct: Callable[[PoolView, Sequence[int]], list[int]] | None = None
    """Those of the given seeds whose picks can differ, if it is known."""
    untrained: Callable[[PoolView, int], bool] | None = None
    """Whether the model of a seed is the start of its training."""
    needs: Callable[[PoolView, Query], list[Need]] | None = None
    """The topics that a query requires most, for the reasons of a pick."""


def zero(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    return [[] for _ in queries]


def random_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Uniform without replacement, from a generator that depends on the seed and the query only: the order of queries,
    a limit or a resumed run cannot change a prompt."""
    picks = []
    for query in queries:
        excluded = set(view.excluded(query).tolist())
        text = f"{seed}\0{query.id}\0{query.input}"
        generator = random.Random(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))
        spare = min(view.rows.size, k + len(excluded))  # enough to still have k after all excluded rows are removed
        drawn = (int(view.rows[i]) for i in generator.sample(range(view.rows.size), spare))
        picks.append([Pick(row, 0.0) for row in drawn if row not in excluded][:k])
    return picks


def bm25(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Highest BM25Okapi scores (Robertson & Walker; parameters of rank-bm25)."""
    return ranked(view.bm25_top(queries, k), "bm25")


def dense(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Highest cosine between the embeddings of query and input (Liu et al. 2022, KATE)."""
    return ranked(view.dense_top(queries, k), "cosine")


def ranked(tops: Iterable[tuple[Int64s, NDArray[np.floating]]], name: str) -> list[Picks]:
    """Rows with their scores by one measure, best first, as picks."""
    return [
        [Pick(int(row), float(score), {name: float(score)}) for row, score in zip(rows, scores, strict=True)]
        for rows, scores in tops
    ]


def dpp_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Greedy MAP of a determinantal point process over the nearest candidates (Ye et al. 2023, CEIL, its
    training-free variant)."""
    picks = []
    for rows, cosines in view.dense_top(queries, max(k, view.preselect)):
        vectors = view.vectors(rows)
        chosen = dpp(cosines, vectors @ vectors.T, k, step=step_of(vectors.shape[1]))
        picks.append(_diverse(rows, cosines, chosen, "det_ratio"))
    return picks


def set_bsr_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Greedy coverage of the query's tokens by BERTScore recall over the nearest candidates (Gupta et al. 2023,
    Set-BSR)."""
    found = view.dense_top(queries, max(k, view.preselect))
    tokens = view.tokens_of([rows for rows, _ in found])
    picks = []
    for query_tokens, (rows, cosines) in zip(view.query_tokens(queries), found, strict=True):
        chosen = set_bsr(query_tokens, tokens(rows), k)
        picks.append(_diverse(rows, cosines, chosen, "coverage_gain"))
    return picks


def fixed_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """The first ``k`` of the set that `train fixed` chose, less what is pruned and the query's own repeats."""
    chosen = fixed_rows(view)
    repeats = view.excluded_each(queries)
    return [[Pick(row, 0.0) for row in chosen[~np.isin(chosen, own)][:k].tolist()] for own in repeats]


def learnt(method: Policy) -> Choose:
    """The best by the policy of ``train ranker``, among the first candidates by BM25 (paper 000, eq. 5)."""

    def choose(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
        return [picks_of(found) for found in rank(view, queries, k, method, seed)]

    return choose


def picks_of(found: RankedCandidates) -> Picks:
    """What a policy ranked, as picks."""
    return [
        Pick(int(row), float(share), {"policy": float(share), found.named: float(first)})
        for row, share, first in zip(found.rows, found.policy, found.first, strict=True)
    ]


def by_policy(method: Policy, about: str) -> Method:
    """The method of a trained policy."""
    return Method(
        learnt(method), about, seeded=True, trained=KINDS[method],
        distinct=lambda view, seeds: distinct_seeds(view.workspace, method, view.settings.llm, seeds),
        untrained=lambda view, seed: is_untrained(view, method, seed),
    )  # fmt: skip


def transferred(other: Workspace) -> Method:
    """The rankers that were trained in another workspace, on other queries and demonstrations (paper 000, table 3)."""

    def choose(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
        return [picks_of(found) for found in rank_transferred(view, queries, k, other, seed)]

    return Method(
        choose, "as ranker, trained in another workspace", seeded=True,
        distinct=lambda view, seeds: distinct_seeds(other, "ranker", view.settings.llm, seeds),
        untrained=lambda view, seed: is_untrained(view, "ranker", seed, other),
    )  # fmt: skip


METHODS: Registry[Method] = Registry(
    "methods",
    {
        "zero": Method(zero, "no demonstrations"),
        "random": Method(random_shots, "drawn at random from the active pool", seeded=True),
        "bm25": Method(bm25, "best word overlap (BM25Okapi)"),
        "dense": Method(dense, "nearest by embedding"),
        "dpp": Method(dpp_shots, "near and unlike each other (greedy DPP)"),
        "set-bsr": Method(set_bsr_shots, "cover the query's tokens together (Set-BSR)"),
        "fixed": Method(fixed_shots, "the same set for every query (train fixed)", trained=FIXED),
        "ranker": by_policy("ranker", "ranked by what the LLM got right (train ranker)"),
    },
)


def _diverse(rows: Int64s, cosines: Float64s, chosen: Chosen, name: str) -> Picks:
    return [
        Pick(int(rows[i]), float(gain), {name: float(gain), "cosine": float(cosines[i])})
        for i, gain in zip(chosen.order, chosen.gains, strict=True)
    ]


SCALE = 0.05
"""The trade-off lambda of CEIL's training-free variant; smaller gives relevance more weight."""

EXHAUSTED = 1e-10
"""A determinant ratio below this means that the selected items already span the remaining candidates."""


class Chosen(NamedTuple):
    """``order`` (k,) int64: positions among the candidates in the order of selection; ``gains`` (k,) float64: what each
    added to the set when it was selected."""

    order: Int64s
    gains: Float64s


def dpp(
    relevance: NDArray[np.floating], similarity: NDArray[np.floating], k: int, scale: float = SCALE, step: float = 0.0
) -> Chosen:
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
    k = max(min(k, n), 0)
    order, gains = np.empty(k, np.int64), np.zeros(k)
    if not k:
        return Chosen(order, gains)
    shifted = (relevance + 1) / 2
    quality = np.exp((shifted - shifted.max()) / (2 * scale))  # q
    likeness = (np.asarray(similarity, np.float64) + 1) / 2  # S
    residual = quality**2 * np.diagonal(likeness)  # the diagonal of L = q S q: det of each candidate alone
    apart = step / scale  # a gain is exp(r / (2 scale)) times what the likeness leaves: as much again for that
    rows = np.zeros((k, n))  # row t: the Cholesky coefficients of every candidate against pick t
    for t in range(k):
        pick = int(top_k(np.log(np.maximum(residual, EXHAUSTED)), 1, apart)[0])
        if residual[pick] < EXHAUSTED:
            order[t:] = np.delete(np.arange(n), order[:t])[top_k(np.delete(relevance, order[:t]), k - t, step)]
            break
        order[t], gains[t] = pick, residual[pick]
        kernel_row = quality[pick] * likeness[pick] * quality  # L[pick]
        rows[t] = (kernel_row - rows[:t, pick] @ rows[:t]) / np.sqrt(residual[pick])  # algorithm 1: e_i
        residual = residual - rows[t] ** 2  # d_i², now the ratio det L(chosen and i) / det L(chosen)
        residual[order[: t + 1]] = -np.inf
    return Chosen(order, gains)


def set_bsr(query_tokens: NDArray[np.floating], candidate_tokens: Sequence[NDArray[np.floating]], k: int) -> Chosen:
    """Greedy Set-BSR: cover the query's tokens (Gupta, Gardner and Singh 2023, section 3; BERTScore recall of a set).

    ``query_tokens`` (t, d) and each of ``candidate_tokens`` (t_i, d) are token vectors of length 1 without special
    tokens. The score of a set is the mean over query tokens of the highest cosine any token of the set has. When no
    candidate increases it by more than float32 tells (`step_of`), coverage is reset and selection continues among the
    rest. Returns min(k, n) picks; a gain is by how much the pick raised the score (from 0 at the start and after each
    new start). Ties go to the earlier candidate.
    """
    recalls = token_recalls(query_tokens, candidate_tokens)
    k = max(min(k, len(recalls)), 0)
    order, gains, left = np.empty(k, np.int64), np.zeros(k), np.ones(len(recalls), np.bool_)
    covered, score = np.full(recalls.shape[1], -np.inf), -np.inf
    step = step_of(np.shape(query_tokens)[-1])
    t = 0
    while t < k:
        reached = np.where(left, np.maximum(recalls, covered).mean(axis=1), -np.inf)  # the score with each candidate
        pick = int(top_k(reached, 1, step)[0])
        if reached[pick] <= score + step:  # nothing more is covered: start anew among the rest
            covered, score = np.full_like(covered, -np.inf), -np.inf
            continue
        order[t] = pick
        gains[t] = reached[pick] - (score if np.isfinite(score) else 0.0)
        covered, score = np.maximum(covered, recalls[pick]), float(reached[pick])
        left[pick] = False
        t += 1
    return Chosen(order, gains)


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
