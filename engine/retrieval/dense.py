"""Exact nearest neighbours by cosine over the rows of a vector matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s, positions_of, step_of, top_k
from ..base.progress import CancelToken, Event, Report, silent, within
from ..shards.shard import cores
from .codes import CodedQueries, Codes, Near

SCORE_BYTES = 64 << 20
"""Maximum memory for the scores of one block of queries and rows."""
TOGETHER = 256
"""Queries for which the vectors are read once: those of a large pool come from the disk."""

SPARSE = 8
"""If fewer than one in this many rows is wanted, their vectors are gathered instead of multiplying the whole matrix."""

PART = 1 << 16
"""Maximum rows of codes that are looked at between two looks at the cancel token."""

CACHED = 1 << 12
"""Vectors that stay in the processor's cache for the next query."""

ROUNDING = 1e-4
"""Upper bound for the error of a float32 dot product of two unit vectors, in any order of summation."""


class DenseIndex:
    """Top-k by cosine over ``matrix[rows]``.

    ``matrix`` (any, d) float32 has vectors of length 1 and may be a memory map; ``rows`` (n,) int64 are the row numbers
    to search, each once. A matrix product finds the candidates; their scores are then computed in float64 in one fixed
    order, so that equal vectors have equal scores and a query gets the same result alone as in a batch. Cosines that
    float32 does not tell apart (`step_of`) are ties, which go to the lower row number. With ``codes`` (any, d) of the
    matrix, candidates are found by those: the result is the same, and a quarter of the bytes are read.
    """

    def __init__(self, matrix: Float32s, rows: Int64s, codes: Codes | None = None) -> None:
        self.rows = np.sort(np.asarray(rows, np.int64))
        if len(self.rows) and not 0 <= self.rows[0] <= self.rows[-1] < len(matrix):
            raise ValueError(f"rows reach from {self.rows[0]} to {self.rows[-1]}, the matrix has {len(matrix)}")
        first = int(self.rows[0]) if len(self.rows) else 0
        last = int(self.rows[-1]) + 1 if len(self.rows) else 0
        span = matrix[first:last]
        self._step = step_of(matrix.shape[1])
        self._codes = codes.part(first, last) if codes else None
        if len(self.rows) * SPARSE < len(span) and not codes:
            self._vectors, self._columns = np.asarray(matrix[self.rows]), None
        else:
            self._vectors = np.asarray(span)
            self._columns = None if len(span) == len(self.rows) else self.rows - first

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes that a search reads."""
        parts = [self._vectors] if self._codes is None else self._codes
        return sum(part.nbytes for part in parts)

    def scores(self, queries: Float32s) -> Float32s:
        """Cosines of all rows to the queries (q, d): float32 (q, n), aligned with `rows`, to float32 rounding. The
        vectors are read once, and a query has the same cosines alone as in a batch."""
        found = np.empty((len(queries), len(self)), np.float32)
        for start in range(0, len(self._vectors), CACHED):
            part = self._vectors[start : start + CACHED]
            columns, span = self._wanted(start, CACHED)
            for scores, query in zip(found, queries, strict=True):
                products = part @ query
                scores[span] = products if columns is None else products[columns]
        return found

    def _wanted(self, start: int, size: int) -> tuple[Int64s | None, slice]:
        """Which of the ``size`` vectors from ``start`` on are searched, None for all, and their places in `rows`."""
        if self._columns is None:
            return None, slice(start, start + size)
        begin, end = np.searchsorted(self._columns, [start, start + size]).tolist()
        return self._columns[begin:end] - start, slice(begin, end)

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
        searches = [_Search(k, positions_of(self.rows, rows), self._step) for rows in exclude]
        looks = self._coded_looks(queries, k, searches, cancel) if self._codes else self._looks(queries, searches)
        for done in looks:
            if cancel:
                cancel.check()
            report(Event("nearest", done * len(queries) // len(self._vectors), len(queries)))
        return [self._best(search.near(), query, k) for search, query in zip(searches, queries, strict=True)]

    def _looks(self, queries: Float32s, searches: Sequence[_Search]) -> Iterator[int]:
        """Show the searches all rows, block by block; before each, how many rows of the span they have seen."""
        size = max(SCORE_BYTES // (4 * max(len(queries), 1)), 1)
        for start in range(0, len(self._vectors), size):
            yield start
            products = queries @ self._vectors[start : start + size].T
            columns, span = self._wanted(start, size)
            for search, scores in zip(searches, products, strict=True):
                search.look(span.start, scores if columns is None else scores[columns])

    def _coded_looks(
        self, queries: Float32s, k: int, searches: Sequence[_Search], cancel: CancelToken | None
    ) -> Iterator[int]:
        """`_looks` by codes, on all cores once a few rows have shown what the best must exceed."""
        assert self._codes is not None
        codes, asked = self._codes, CodedQueries(queries, ROUNDING)
        wanted = np.ones(len(self._vectors), np.bool_)
        if self._columns is not None:
            wanted[:] = False
            wanted[self._columns] = True

        def near(span: tuple[int, int]) -> dict[int, Near]:
            if cancel:
                cancel.check()  # those that wait in the pool end with the others
            start, end = span
            worst = np.array([search.worst for search in searches])
            return asked.near(codes.part(start, end), wanted[start:end], worst)

        def take(start: int, found: dict[int, Near]) -> None:
            for i, rows in found.items():
                places = rows.places + start
                searches[i].take(places if self._columns is None else np.searchsorted(self._columns, places), rows)

        first, then = _parts(len(wanted), k, max(SCORE_BYTES // (12 * max(len(queries), 1)), 1))
        for span in first:
            yield span[0]
            take(span[0], near(span))
        with ThreadPoolExecutor(cores()) as pool:
            for span, found in zip(then, pool.map(near, then), strict=True):
                yield span[0]
                take(span[0], found)

    def _best(self, near: Int64s, query: Float32s, k: int) -> tuple[Int64s, Float64s]:
        """The ``k`` nearest of some positions, ascending, by their exact cosines."""
        vectors = self._vectors[near if self._columns is None else self._columns[near]]
        exact = (vectors.astype(np.float64) * query).sum(axis=1)
        best = top_k(exact, k, self._step)
        return self.rows[near[best]], exact[best]


def _parts(rows: int, k: int, most: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Spans of consecutive rows of at most ``most``: first ones that begin small and double, then the others."""
    most = min(most, PART)
    ends, size = [0], min(max(4 * k, 1024), most)
    while size < most and ends[-1] < rows:
        ends.append(min(ends[-1] + size, rows))
        size = min(2 * size, most)
    grown = len(ends) - 1
    ends += [*range(ends[-1] + most, rows, most), rows] if ends[-1] < rows else []
    spans = [*pairwise(ends)]
    return spans[:grown], spans[grown:]


class _Search:
    """Positions whose cosines may be among the ``k`` best of a query, from bounds that are given part by part."""

    def __init__(self, k: int, left_out: Int64s, step: float) -> None:
        self._k, self._left_out, self._step = k, left_out, step
        self.worst = -np.inf if k > 0 else np.inf
        """At most the k-th best cosine less the ``step`` by which a worse one may tie with it."""
        self._kept: list[Near] = []
        self._new = 0
        """Of how many positions `worst` does not know."""

    def look(self, begin: int, scores: Float32s) -> None:
        """The cosines (n,) to float32 rounding of the positions from ``begin`` on; they are overwritten."""
        if self._k <= 0:
            return
        first, last = np.searchsorted(self._left_out, [begin, begin + len(scores)]).tolist()
        scores[self._left_out[first:last] - begin] = -np.inf
        if len(scores) - (last - first) >= self._k:
            self.worst = max(self.worst, float(scores[top_k(scores, self._k)[-1]]) - self._step)
        near = np.flatnonzero((scores >= self.worst - ROUNDING) & (scores > -np.inf))
        self._kept.append(Near(near + begin, scores[near], scores[near] + np.float32(ROUNDING)))

    def take(self, places: Int64s, near: Near) -> None:
        """Positions (n,), ascending, with their bounds."""
        free = np.isin(places, self._left_out, invert=True) if self._left_out.size else np.ones(len(places), np.bool_)
        self._kept.append(Near(places[free], near.least[free], near.most[free]))
        self._new += int(np.count_nonzero(free))
        if self._new >= self._k:
            self._drop()

    def near(self) -> Int64s:
        """The positions, ascending: all whose cosines may be the k-th best or better."""
        self._drop()
        return self._kept[0].places

    def _drop(self) -> None:
        """Drop the positions that are known to be worse than ``k`` others, and no tie with them."""
        kept = [Near(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)), *self._kept]
        places = np.concatenate([part.places for part in kept])
        least, most = (np.concatenate([part[i] for part in kept], dtype=np.float32) for i in (1, 2))
        if len(least) >= self._k > 0:
            self.worst = max(self.worst, float(least[top_k(least, self._k)[-1]]) - self._step)
        left = most >= self.worst
        self._kept, self._new = [Near(places[left], least[left], most[left])], 0
