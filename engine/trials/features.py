"""What a policy chooses from, and what it sees of queries and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..pool.records import Query
from ..retrieval.view import PoolView
from .policy import DIMENSION, Candidates, Inputs, Policy

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
