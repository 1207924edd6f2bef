"""The selection methods, one function each: (view of the pool, queries, k, seed) to picks, best first.

`METHODS` lists them all; commands, evaluation and the Python API read it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.arrays import Float64s, Int64s, step_of
from ..base.registry import Registry
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..store.workspace import Workspace
from ..trials.ranker import KINDS, RankedCandidates, distinct_seeds, is_untrained, rank, rank_transferred
from ..trials.ranker import Method as Policy
from .diversity import dpp, set_bsr


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
        generator = random.Random(_seed(seed, query))
        spare = min(view.rows.size, k + len(excluded))  # enough to still have k after all excluded rows are removed
        drawn = (int(view.rows[i]) for i in generator.sample(range(view.rows.size), spare))
        picks.append([Pick(row, 0.0) for row in drawn if row not in excluded][:k])
    return picks


def bm25(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Highest BM25Okapi scores (Robertson & Walker; parameters of rank-bm25)."""
    found = view.bm25_top(queries, k)
    return [
        [Pick(int(r), float(s), {"bm25": float(s)}) for r, s in zip(rows, scores, strict=True)]
        for rows, scores in found
    ]


def dense(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Highest cosine between the embeddings of query and input (Liu et al. 2022, KATE)."""
    found = view.dense_top(queries, k)
    return [
        [Pick(int(r), float(s), {"cosine": float(s)}) for r, s in zip(rows, scores, strict=True)]
        for rows, scores in found
    ]


def dpp_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Greedy MAP of a determinantal point process over the nearest candidates (Ye et al. 2023, CEIL, its
    training-free variant)."""
    picks = []
    for rows, cosines in view.dense_top(queries, max(k, view.preselect)):
        vectors = view.vectors(rows)
        chosen = dpp(cosines, vectors @ vectors.T, k, step=step_of(vectors.shape[1]))
        picks.append(_diverse(rows, cosines, chosen.order, chosen.gains, "det_ratio"))
    return picks


def set_bsr_shots(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Greedy coverage of the query's tokens by BERTScore recall over the nearest candidates (Gupta et al. 2023,
    Set-BSR)."""
    found = view.dense_top(queries, max(k, view.preselect))
    tokens = view.tokens_of([rows for rows, _ in found])
    picks = []
    for query_tokens, (rows, cosines) in zip(view.query_tokens(queries), found, strict=True):
        chosen = set_bsr(query_tokens, tokens(rows), k)
        picks.append(_diverse(rows, cosines, chosen.order, chosen.gains, "coverage_gain"))
    return picks


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
        "ranker": by_policy("ranker", "ranked by what the LLM got right (train ranker)"),
    },
)


def _diverse(
    rows: Int64s,
    cosines: Float64s,
    order: Int64s,
    gains: Float64s,
    name: str,
) -> Picks:
    return [
        Pick(int(rows[i]), float(gain), {name: float(gain), "cosine": float(cosines[i])})
        for i, gain in zip(order, gains, strict=True)
    ]


def _seed(seed: int, query: Query) -> int:
    text = f"{seed}\0{query.id}\0{query.input}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
