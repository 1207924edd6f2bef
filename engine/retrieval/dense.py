"""Exact nearest neighbours by cosine over the rows of a vector matrix."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..arrays import Float32s, Float64s, Int64s
from ..progress import CancelToken, Event, Report, silent, within
from .ranking import positions_of, top_k

SCORE_BYTES = 64 << 20
"""Maximum memory for the scores of one block of queries and rows."""
TOGETHER = 256
"""Queries for which the vectors are read once: those of a large pool come from the disk."""

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
        return self._searched(query[None], k, [exclude])[0]

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
        for start in range(0, len(queries), TOGETHER):
            block = queries[start : start + TOGETHER]
            told = within(report, start, len(queries))
            found += self._searched(block, k, exclude[start : start + TOGETHER] or [()] * len(block), told, cancel)
        report(Event("nearest", len(queries), len(queries)))
        return found

    def _searched(
        self,
        queries: Float32s,
        k: int,
        exclude: Sequence[Collection[int]],
        report: Report = silent,
        cancel: CancelToken | None = None,
    ) -> list[tuple[Int64s, Float64s]]:
        """`top` for each of the queries (q, d), reading the vectors once."""
        searches = [_Search(k, positions_of(self.rows, rows)) for rows in exclude]
        size = max(SCORE_BYTES // (4 * max(len(queries), 1)), 1)
        for start in range(0, len(self._vectors), size):
            if cancel:
                cancel.check()
            report(Event("nearest", start * len(queries) // len(self._vectors), len(queries)))
            products = queries @ self._vectors[start : start + size].T
            begin, columns = start, None
            if self._columns is not None:
                begin, end = np.searchsorted(self._columns, [start, start + size]).tolist()
                columns = self._columns[begin:end] - start
            for search, scores in zip(searches, products, strict=True):
                search.look(begin, scores if columns is None else scores[columns])
        return [self._best(search.near(), query, k) for search, query in zip(searches, queries, strict=True)]

    def _best(self, near: Int64s, query: Float32s, k: int) -> tuple[Int64s, Float64s]:
        """The ``k`` nearest of some positions, ascending, by their exact cosines."""
        vectors = self._vectors[near if self._columns is None else self._columns[near]]
        exact = (vectors.astype(np.float64) * query).sum(axis=1)
        best = top_k(exact, k)
        return self.rows[near[best]], exact[best]


class _Search:
    """Positions whose scores may be among the ``k`` best of a query, from scores that are given block by block."""

    def __init__(self, k: int, left_out: Int64s) -> None:
        self._k, self._left_out = k, left_out
        self._worst = -np.inf
        """At most the k-th best score."""
        self._places: list[Int64s] = []
        self._scores: list[Float32s] = []

    def look(self, begin: int, scores: Float32s) -> None:
        """The scores (n,) of the positions from ``begin`` on; they are overwritten."""
        if self._k <= 0:
            return
        first, last = np.searchsorted(self._left_out, [begin, begin + len(scores)]).tolist()
        scores[self._left_out[first:last] - begin] = -np.inf
        if len(scores) - (last - first) >= self._k:
            self._worst = max(self._worst, float(scores[top_k(scores, self._k)[-1]]))
        near = np.flatnonzero((scores >= self._worst - ROUNDING) & (scores > -np.inf))
        self._places.append(near + begin)
        self._scores.append(scores[near])

    def near(self) -> Int64s:
        """The positions, ascending: all whose scores are at most `ROUNDING` below the k-th best."""
        if not self._places:
            return np.empty(0, np.int64)
        places, scores = np.concatenate(self._places), np.concatenate(self._scores)
        if len(scores) > self._k:
            places = places[scores >= scores[top_k(scores, self._k)[-1]] - ROUNDING]
        return places
