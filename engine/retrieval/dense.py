"""Exact nearest neighbours by cosine over the rows of a vector matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ..arrays import Float32s, Float64s, Int64s
from ..progress import CancelToken, Event, Report, silent
from .ranking import positions_of, top_k

SCORE_BYTES = 64 << 20
"""Maximum memory for the scores of one block of queries."""

SPARSE = 8
"""If fewer than one in this many rows is wanted, their vectors are gathered instead of multiplying the whole matrix."""

ROUNDING = 1e-4
"""Upper bound for the error of a float32 dot product of two unit vectors, in any order of summation."""


class DenseIndex:
    """Top-k by cosine over ``matrix[rows]``.

    ``matrix`` (any, d) float32 has vectors of length 1 and may be a memory map; ``rows`` (n,) int64 are the row numbers
    to search, each once. A matrix product finds the candidates; their scores are then computed in float64 in one fixed
    order, so that equal vectors have equal scores, ties go to the lower row number, and a query gets the same result
    alone as in a batch.
    """

    def __init__(self, matrix: Float32s, rows: Int64s) -> None:
        self.rows = np.sort(np.asarray(rows, np.int64))
        if len(self.rows) and not 0 <= self.rows[0] <= self.rows[-1] < len(matrix):
            raise ValueError(f"rows reach from {self.rows[0]} to {self.rows[-1]}, the matrix has {len(matrix)}")
        first = int(self.rows[0]) if len(self.rows) else 0
        span = matrix[first : int(self.rows[-1]) + 1 if len(self.rows) else 0]
        if len(self.rows) * SPARSE < len(span):
            self._vectors, self._columns = np.asarray(matrix[self.rows]), None
        else:
            self._vectors = np.asarray(span)
            self._columns = None if len(span) == len(self.rows) else self.rows - first

    def __len__(self) -> int:
        return len(self.rows)

    def scores(self, query: Float32s) -> Float32s:
        """Cosine of every row to the query (d,): float32 (n,), aligned with `rows`, to float32 rounding."""
        scores = self._vectors @ query
        return scores if self._columns is None else scores[self._columns]

    def top(self, query: Float32s, k: int, exclude: Collection[int] = ()) -> tuple[Int64s, Float64s]:
        """The ``k`` rows nearest to the query (d,) of length 1 and their cosines, best first.

        Rows in ``exclude`` are never returned; fewer than ``k`` are returned if there are no more.
        """
        return self._best(self.scores(query), query, k, exclude)

    def top_many(
        self,
        queries: Float32s,
        k: int,
        exclude: Sequence[Collection[int]] = (),
        report: Report = silent,
        cancel: CancelToken | None = None,
    ) -> list[tuple[Int64s, Float64s]]:
        """`top` for each of the queries (q, d), in blocks; ``exclude`` is empty or has one collection for each."""
        found = []
        for block in self._blocks(len(queries)):
            if cancel:
                cancel.check()
            report(Event("nearest", block.start, len(queries)))
            products = queries[block] @ self._vectors.T
            for i, scores in enumerate(products, block.start):
                picked = scores if self._columns is None else scores[self._columns]
                found.append(self._best(picked, queries[i], k, exclude[i] if exclude else ()))
        report(Event("nearest", len(queries), len(queries)))
        return found

    def _best(self, scores: Float32s, query: Float32s, k: int, exclude: Collection[int]) -> tuple[Int64s, Float64s]:
        left_out = positions_of(self.rows, exclude)
        scores[left_out] = -np.inf
        k = min(k, len(scores) - len(left_out))
        if k <= 0:
            return np.empty(0, np.int64), np.empty(0)
        worst = scores[top_k(scores, k)[-1]]
        near = np.flatnonzero(scores >= worst - ROUNDING)
        vectors = self._vectors[near if self._columns is None else self._columns[near]]
        exact = (vectors.astype(np.float64) * query).sum(axis=1)
        best = top_k(exact, k)
        return self.rows[near[best]], exact[best]

    def _blocks(self, queries: int) -> Iterator[slice]:
        size = max(SCORE_BYTES // (4 * max(len(self._vectors), 1)), 1)
        return (slice(i, min(i + size, queries)) for i in range(0, queries, size))
