"""What a policy chooses from and sees, ranking with a trained one, and importing one from another workspace."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..base.errors import UsageError
from ..pool.records import Query
from ..retrieval.checked import check_model, seal_model
from ..retrieval.vectors import how_to_get
from ..retrieval.view import PoolView
from ..store import runs
from ..store.demonstrations import source_names
from ..store.settings import Settings
from ..store.workspace import FILE, Workspace
from .policy import DIMENSION, HEAD, WEIGHTS, Candidates, Inputs, Policy, RankerMetadata, load, save, top_candidates

STARTING_ROWS = 20_000
"""Maximum demonstrations for computing the initial policy."""


@dataclass(frozen=True, slots=True)
class Preselected:
    """The candidates of a query, best first: ``rows`` and their scores (c,) by ``named``: bm25 or cosine."""

    rows: Int64s
    scores: Float64s
    named: str


def preselected(view: PoolView, queries: Sequence[Query], inputs: Inputs, least: int = 0) -> list[Preselected]:
    """The demonstrations of each query that the policy chooses from (paper 000, section 5.1), at least ``least``.

    Of ``both``, BM25 and cosine take turns, and a demonstration counts once: BM25 finds rare words and dense retrieval
    other words for the same thing.
    """
    count = max(inputs.candidates, least)
    if inputs.ranking == "bm25":
        return [Preselected(*ranked, "bm25") for ranked in view.bm25_top(queries, count)]
    dense = view.dense_top(queries, count)
    if inputs.ranking == "dense":
        return [Preselected(*ranked, "cosine") for ranked in dense]
    embedded = view.embed(queries)
    chosen = []
    for (near, _), (words, _), query in zip(dense, view.bm25_top(queries, count), embedded, strict=True):
        turns = (row for pair in zip_longest(words.tolist(), near.tolist()) for row in pair if row is not None)
        rows = np.array(list(dict.fromkeys(turns))[:count], np.int64)
        chosen.append(Preselected(rows, np.asarray(view.vectors(rows) @ query, np.float64), "cosine"))
    return chosen


class Features:
    """The inputs of the linear layer for queries and demonstrations of a pool, as `Inputs` says.

    A demonstration is its embedding followed by an indicator of its source, a query its embedding followed by zeros.
    Both are divided by √temperature, so that the logits are divided by it.
    """

    def __init__(self, view: PoolView, inputs: Inputs) -> None:
        self.view, self.inputs = view, inputs
        self._scale = inputs.temperature**-0.5
        self._place = {source: i for i, source in enumerate(inputs.sources)}

    def of_queries(self, queries: Sequence[Query]) -> Float64s:
        """(q, d + sources)"""
        vectors = np.asarray(self.view.embed(queries), np.float64) * self._scale
        return np.pad(vectors, ((0, 0), (0, len(self._place))))

    def of_rows(self, rows: Int64s) -> Float64s:
        """(n, d + sources)"""
        view = self.view
        found = view.example_vectors(rows) if self.inputs.sees == "row" else view.vectors(rows)
        vectors = np.pad(np.asarray(found, np.float64), ((0, 0), (0, len(self._place))))
        if self._place:
            (shots,) = view.demonstrations([rows.tolist()])
            for i, shot in enumerate(shots):
                if shot.source in self._place:
                    vectors[i, self.view.stored.dimension + self._place[shot.source]] = 1.0
        return np.asarray(vectors * self._scale, np.float64)

    def candidates(self, queries: Float64s, rows: Sequence[Int64s]) -> Candidates:
        """The ``rows`` of each of the ``queries``, as `of_queries` returns them, with what the policy sees."""
        width = max((len(chosen) for chosen in rows), default=0)
        padded = np.zeros((len(rows), width), np.int64)
        present = np.zeros((len(rows), width), np.bool_)
        for i, chosen in enumerate(rows):
            padded[i, : len(chosen)] = chosen
            present[i, : len(chosen)] = True
            padded[i, len(chosen) :] = chosen[0] if len(chosen) else self.view.rows[0]
        every, places = np.unique(padded, return_inverse=True)
        seen = self.of_rows(every)
        return Candidates(queries, seen[places.reshape(padded.shape)], present)

    def start(self, outputs: int = DIMENSION, seed: int = 0) -> Policy:
        """The policy before training."""
        extra = len(self._place)
        if self.inputs.start == "random":
            return Policy.random(self.view.stored.dimension + extra, outputs, seed)
        rows = self.view.rows
        return Policy.start(self.view.vectors(rows[:: -(-len(rows) // STARTING_ROWS)]), outputs, extra)


Method = Literal["ranker", "promptpg"]
KINDS: Mapping[Method, str] = {"ranker": "train-ranker", "promptpg": "train-promptpg"}
"""The kind of their runs."""

DEFAULT_INPUTS = Inputs(30, "dense", "row", (), 0.1)
"""What `train ranker` and `curate` train with. The policy sees what the paper writes, e = (x, y). The embeddings have
length 1, so that their cosines differ by tenths: with a temperature of 1 all candidates would have nearly one score."""

BLOCK = 500
"""Queries ranked at once."""

FOLDER = "ranker"
FILES = WEIGHTS, HEAD

_loaded: weakref.WeakKeyDictionary[PoolView, dict[tuple[str, int], tuple[Policy, RankerMetadata]]] = (
    weakref.WeakKeyDictionary()
)


@dataclass(frozen=True, slots=True)
class RankedCandidates:
    """Demonstrations of one query, best first: ``rows``, their S_θ (``policy``) and the scores by which they became
    candidates (``first``), which are ``named`` bm25 or cosine; all (n,)."""

    rows: Int64s
    policy: Float64s
    first: Float64s
    named: str


def inputs_for(view: PoolView, inputs: Inputs, sources: bool) -> Inputs:
    """``inputs`` with the sources of the active pool, if the policy is to see ``sources``."""
    return replace(inputs, sources=tuple(source_names(view.workspace)) if sources else ())


def folder_of(workspace: Workspace, run: int) -> Path:
    """The folder of a run's policy."""
    return workspace.path / FOLDER / str(run)


def rank(
    view: PoolView, queries: Sequence[Query], k: int, method: Method = "ranker", seed: int = 0
) -> list[RankedCandidates]:
    """The best ``k`` demonstrations of each query by the trained policy (paper 000, eq. 5: no threshold, no LLM).

    Among finished runs, those trained with the configured LLM are preferred, then those with this seed, then the
    latest. Raises `UsageError` if there is none, or if it was trained with another encoder.
    """
    policy, metadata = _policy(view, method, seed)
    return _ranked(view, queries, k, policy, metadata.inputs)


def rank_untrained(view: PoolView, queries: Sequence[Query], k: int, seed: int = 0) -> list[RankedCandidates]:
    """As `rank` with the policy before its training, so that what training changed can be told from what the start
    does: with the inputs of the ranker that `rank` would use, or the default ones before the first training."""
    run = latest(view.workspace, "ranker", view.settings.llm, seed)
    if run is None:
        inputs = DEFAULT_INPUTS
    else:
        _, metadata = _policy(view, "ranker", seed)
        inputs, seed = metadata.inputs, metadata.seed
    return _ranked(view, queries, k, Features(view, inputs).start(seed=seed), inputs)


def rank_transferred(
    view: PoolView, queries: Sequence[Query], k: int, other: Workspace, seed: int = 0
) -> list[RankedCandidates]:
    """As `rank` with a ranker of the ``other`` workspace, used here as it is (the paper's table 3)."""
    policy, metadata = _transferred(view, other, seed)
    return _ranked(view, queries, k, policy, metadata.inputs)


def is_untrained(view: PoolView, method: Method, seed: int, other: Workspace | None = None) -> bool:
    """Whether the policy that `rank` uses, or with ``other`` `rank_transferred`, is known to be the start of its
    training."""
    _, metadata = _policy(view, method, seed) if other is None else _transferred(view, other, seed)
    return bool(metadata.untrained)


def _ranked(view: PoolView, queries: Sequence[Query], k: int, policy: Policy, inputs: Inputs) -> list[RankedCandidates]:
    inputs = replace(inputs, candidates=view.settings.policy_candidates or inputs.candidates)
    features = Features(view, inputs)
    found = preselected(view, queries, inputs, k)
    scored: list[RankedCandidates] = []
    for start in range(0, len(found), BLOCK):  # bounded memory for many queries
        block = found[start : start + BLOCK]
        seen = features.of_queries(queries[start : start + BLOCK])
        candidates = features.candidates(seen, [each.rows for each in block])
        shares = policy.scores(candidates)
        for i, best in enumerate(top_candidates(shares, candidates.present, k, policy.steps(candidates))):
            each = block[i]
            scored.append(RankedCandidates(each.rows[best], shares[i, best], each.scores[best], each.named))
    return scored


def keep(workspace: Workspace, run: int, policy: Policy, metadata: RankerMetadata) -> None:
    """Write a run's policy, and store its digests with the run."""
    save(folder_of(workspace, run), policy, metadata)
    seal_model(workspace, run, folder_of(workspace, run), FILES)


def opened(workspace: Workspace, run: int) -> tuple[Policy, RankerMetadata]:
    """A run's policy. Raises `WorkspaceError` if it differs from what was written."""
    folder = folder_of(workspace, run)
    check_model(workspace, run, folder, "ranker", "icl-curate train ranker")
    return load(folder)


def latest(workspace: Workspace, method: Method = "ranker", llm: str = "", seed: int = 0) -> int | None:
    """The run whose policy `rank` uses, None before the first training."""
    kept = runs.files(workspace)
    done = [run for run in runs.runs(workspace, KINDS[method], limit=1000) if run.status == "done" and run.run in kept]
    best = max(done, key=lambda run: (run.llm == llm, run.settings.get("seed") == seed, run.run), default=None)
    return best.run if best else None


def distinct_seeds(workspace: Workspace, method: Method, llm: str, seeds: Sequence[int]) -> list[int]:
    """Those of the ``seeds`` for which `rank` uses a policy of its own: several seeds without a training run share one,
    and would count the same picks again."""
    first = {latest(workspace, method, llm, seed): seed for seed in reversed(seeds)}
    return sorted(first.values())


def import_ranker(workspace: Workspace, path: Path, settings: Settings) -> int:
    """Import a policy trained elsewhere (the paper's table 3) and return its run number here.

    ``path`` is the folder of a ranker or another workspace, whose latest ranker is then used. Raises `UsageError` if
    there is none, or if it was trained with another encoder.
    """
    folder, view = path, PoolView(workspace, settings)
    if (path / FILE).exists():
        folder = _trained_in(Workspace.open(path), settings.llm, settings.seed)
    policy, metadata = load(folder)
    _check(view, metadata)
    method: Method = "promptpg" if metadata.method == "promptpg" else "ranker"
    described = {"seed": metadata.seed, "imported_from": str(folder), "encoder": metadata.encoder}
    with runs.recorded(workspace, KINDS[method], metadata.llm, described) as record:
        keep(workspace, record.run, policy, metadata)
        record.summary = {"run": record.run, "imported_from": str(folder)}
    return record.run


def _trained_in(other: Workspace, llm: str, seed: int) -> Path:
    """The folder of the ranker that `latest` names in another workspace. Raises `UsageError` if there is none, and
    `WorkspaceError` if it differs from what was written."""
    run = latest(other, llm=llm, seed=seed)
    if run is None:
        fix = f"icl-curate train ranker -w '{other.path}'"
        raise UsageError(f"no ranker has been trained in {other.path}", fix)
    folder = folder_of(other, run)
    check_model(other, run, folder, "ranker", f"icl-curate train ranker -w '{other.path}'")
    return folder


def _policy(view: PoolView, method: Method, seed: int) -> tuple[Policy, RankerMetadata]:
    policies = _loaded.setdefault(view, {})
    if (method, seed) not in policies:
        run = latest(view.workspace, method, view.settings.llm, seed)
        if run is None:
            flag = "" if method == "ranker" else f" --method {method}"
            raise UsageError(f"no {method} has been trained yet", f"icl-curate train ranker{flag}")
        policy, metadata = opened(view.workspace, run)
        _check(view, metadata)
        policies[method, seed] = policy, metadata
    return policies[method, seed]


def _transferred(view: PoolView, other: Workspace, seed: int) -> tuple[Policy, RankerMetadata]:
    policy, metadata = load(_trained_in(other, view.settings.llm, seed))
    _check(view, metadata)
    return policy, metadata


def _check(view: PoolView, metadata: RankerMetadata) -> None:
    stored = view.stored
    if (stored.encoder, stored.dimension) != (metadata.encoder, metadata.dimension):
        raise UsageError(
            f"the ranker was trained with {metadata.encoder} ({metadata.dimension} dimensions), "
            f"but the workspace uses {stored.encoder} ({stored.dimension})",
            f"{how_to_get(metadata.encoder, stored.encoder)}, or train a ranker on {stored.encoder}",
        )
