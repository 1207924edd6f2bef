"""Exact nearest neighbours by cosine over the rows of a vector matrix.

Among millions of vectors the search reads an int8 copy, a quarter of their size. A row's vector v is kept as ``scale *
codes`` with the length e of what that loses, |v - scale * codes|. The cosine with a query q then differs from that with
the copy by at most |q| e (Cauchy-Schwarz). A search that computes the true cosine of every row that may still be among
the best therefore finds what reading all vectors finds.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bools, Float32s, Float64s, Int64s, compiled, positions_of, step_of, top_k
from ..base.packages import installed
from ..base.progress import SILENT, Event, Monitor
from ..shards.shard import cores
from ..store.locks import exclusive
from .checked import cached_check
from .vectors import Vectors, grow

CODED_FROM = 1_000_000
"""Rows from which a pool is searched by codes: the vectors of fewer fit into memory as they are."""
WINDOW = 1 << 16
"""Rows that share a checksum."""
BLOCK = 1 << 11
"""Rows coded at once: they fit into the processor's cache."""
LARGEST = 127
TASK = "codes"
CODES, SCALES, WINDOWS, LOCK = "codes.i8", "codes.f32", "codes.u64", "codes.lock"


class Codes(NamedTuple):
    """``codes`` (n, d) int8 of n rows, and ``scales`` (n, 2) float32: scale and error e of each."""

    codes: NDArray[np.int8]
    scales: Float32s

    def part(self, begin: int, end: int) -> Codes:
        """Those of consecutive rows."""
        return Codes(self.codes[begin:end], self.scales[begin:end])


def coded(vectors: Float32s) -> Codes:
    """The codes of finite vectors (n, d)."""
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(LARGEST)
    codes = np.rint(vectors / np.where(scales > 0, scales, np.float32(1))[:, None]).astype(np.int8)
    lost = vectors - codes * scales[:, None]
    return Codes(codes, np.stack([scales, np.sqrt(np.einsum("ij,ij->i", lost, lost))], axis=1))


def codes_of(vectors: Vectors, monitor: Monitor = SILENT, *, reread: bool = False) -> Codes | None:
    """The codes of all stored vectors, as memory maps; those that are missing, damaged or of other vectors are made and
    stored first. ``reread`` as in `Vectors.damaged`.

    None without numba, which searches them. Raises `OSError` or `WorkspaceError` if they cannot be stored, `Cancelled`
    between windows.
    """
    if not len(vectors) or not installed("numba"):
        return None
    stored = _CodeFiles(vectors)
    if stored.lacking(reread=reread):
        with exclusive(vectors.folder / LOCK):
            lacking = stored.lacking()
            for done, window in enumerate(lacking):
                monitor.check()
                monitor.report(Event(TASK, done * WINDOW, len(lacking) * WINDOW))
                stored.make(window)
            cached_check(stored.files, lambda: "", reread=True)  # just written, so they need not be checked
        monitor.report(Event(TASK, len(lacking) * WINDOW, len(lacking) * WINDOW))
    return stored.codes


class _CodeFiles:
    """The files: ``codes.i8`` and ``codes.f32`` are the arrays of `Codes`, ``codes.u64`` has two numbers for each
    window of rows, written after its codes are on disk: the digest of the vectors' keys and checksums (`Vectors.marks`)
    and the checksum of its codes."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors, self._rows = vectors, len(vectors)
        self.files = [vectors.folder / name for name in (CODES, SCALES, WINDOWS)]

    @property
    def codes(self) -> Codes:
        codes, scales, _ = self._mapped(0, self._rows)
        return Codes(codes, scales)

    def lacking(self, *, reread: bool = False) -> list[int]:
        """The windows that have to be made."""
        present = self._present()
        known = cached_check(self.files, self._damaged, reread=reread) if present else ""
        damaged = {int(name) for name in known.split(",") if name}
        digests = self._mapped(0, self._span(present - 1)[1])[2][:, 0] if present else ()
        whole = {i for i, digest in enumerate(digests) if i not in damaged and digest == self._digest(i)}
        return [i for i in range(-(-self._rows // WINDOW)) if i not in whole]

    def make(self, window: int) -> None:
        """Make and write the codes of a window."""
        begin, end = self._span(window)
        digest = self._digest(window)  # first: if the vectors change meanwhile, the codes count as those of others
        for path, size in zip(
            self.files, (end * self._vectors.dimension, end * 8, -(-end // WINDOW) * 16), strict=True
        ):
            grow(path, size)
        codes, scales, entry = self._mapped(begin, end, "r+")
        entry[:] = 0
        entry.flush()
        matrix = self._vectors.matrix
        for start in range(begin, end, BLOCK):
            found = coded(np.asarray(matrix[start : min(start + BLOCK, end)]))
            codes[start - begin : start - begin + BLOCK] = found.codes
            scales[start - begin : start - begin + BLOCK] = found.scales
        codes.flush()
        scales.flush()
        entry[0] = digest, _checksum(codes, scales)
        entry.flush()

    def _span(self, window: int) -> tuple[int, int]:
        return window * WINDOW, min((window + 1) * WINDOW, self._rows)

    def _present(self) -> int:
        """How many windows, from the first on, the files are long enough for."""
        sizes = [path.stat().st_size if path.exists() else 0 for path in self.files]
        rows = min(sizes[0] // self._vectors.dimension, sizes[1] // 8, sizes[2] // 16 * WINDOW, self._rows)
        return -(-rows // WINDOW) if rows == self._rows else rows // WINDOW

    def _mapped(self, begin: int, end: int, mode: Any = "r") -> tuple[np.memmap, np.memmap, np.memmap]:
        """Codes and scales of rows, and the entries of their windows; ``begin`` is where a window begins."""
        width, first = self._vectors.dimension, begin // WINDOW
        codes, scales, windows = self.files
        return (
            np.memmap(codes, np.int8, mode, begin * width, (end - begin, width)),
            np.memmap(scales, np.float32, mode, begin * 8, (end - begin, 2)),
            np.memmap(windows, np.uint64, mode, first * 16, (-(-end // WINDOW) - first, 2)),
        )

    def _digest(self, window: int) -> int:
        begin, end = self._span(window)
        marks = np.ascontiguousarray(self._vectors.marks[begin:end])
        return int.from_bytes(hashlib.blake2b(marks.data, digest_size=8).digest())

    def _damaged(self) -> str:
        """The windows whose codes differ from what was written, separated by commas."""
        spans = [self._span(window) for window in range(self._present())]
        codes, scales, entries = self._mapped(0, spans[-1][1])
        sums = [_checksum(codes[begin:end], scales[begin:end]) for begin, end in spans]
        return ",".join(str(i) for i, found in enumerate(sums) if found != entries[i, 1])


def _checksum(codes: NDArray[np.int8], scales: Float32s) -> int:
    return zlib.crc32(scales.data, zlib.crc32(codes.data))


class Near(NamedTuple):
    """Rows that may be among the best of a query: their positions ``places`` (n,) int64, and bounds of their cosines,
    ``least`` and ``most`` (n,) float32."""

    places: Int64s
    least: Float32s
    most: Float32s


class CodedQueries:
    """Queries (q, d) float32 as int16 codes, whose products with those of rows are exact in 32 bits."""

    def __init__(self, queries: Float32s, slack: float) -> None:
        """``slack`` widens every bound, for rounding."""
        highest = min(32_767, (2**31 - 1) // (LARGEST * max(queries.shape[1], 1)))
        self._scales = np.abs(queries).max(axis=1, initial=0).astype(np.float64) / highest
        self._codes = np.rint(queries / np.where(self._scales > 0, self._scales, 1)[:, None]).astype(np.int16)
        self._lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
        lost = np.linalg.norm(queries - self._codes * self._scales[:, None], axis=1)
        self._slacks = 2 * lost + slack  # 2: a row of length 1 and its copy are shorter

    def near(self, codes: Codes, wanted: Bools, worst: Float64s) -> dict[int, Near]:
        """Of ``codes`` (n, d), the ``wanted`` rows (n,) whose cosine with query i may be ``worst[i]`` or more, by i.
        Their positions count from the first row of ``codes``."""
        shape = len(self._codes), len(wanted)
        places, least, most = np.empty(shape, np.int32), np.empty(shape, np.float32), np.empty(shape, np.float32)
        counts = np.zeros(shape[0], np.int64)
        _kernel()(
            np.asarray(codes.codes), np.asarray(codes.scales), wanted, self._codes, self._scales, self._lengths,
            self._slacks, worst, places, least, most, counts,
        )  # fmt: skip
        return {
            i: Near(places[i, : counts[i]].astype(np.int64), least[i, : counts[i]].copy(), most[i, : counts[i]].copy())
            for i in np.flatnonzero(counts).tolist()
        }


@cache
def _kernel() -> Callable[..., None]:
    return compiled(_scan)


def _scan(
    codes: Any,
    scales: Any,
    wanted: Any,
    queries: Any,
    factors: Any,
    lengths: Any,
    slacks: Any,
    worst: Any,
    places: Any,
    least: Any,
    most: Any,
    counts: Any,
) -> None:
    """As `CodedQueries.near`: query i's rows are the first ``counts[i]`` of ``places[i]`` (q, n)."""
    width: Any = np.uintp(codes.shape[1])
    tile = np.empty((16, codes.shape[1]), np.int16)  # widened once for all queries; it stays in the fastest cache
    at = np.empty(16, np.int64)
    products = np.empty(16, np.int32)  # an array of its own: so the compiler knows that sums fit into 32 bits
    row = 0
    while row < len(wanted):
        filled = 0
        while row < len(wanted) and filled < 16:
            if wanted[row]:
                for t in range(width):
                    tile[filled, t] = codes[row, t]
                at[filled] = row
                filled += 1
            row += 1
        for i in range(len(queries)):
            query = queries[i]
            for j in range(filled):
                line = tile[j]
                product = np.int32(0)
                for t in range(width):
                    product += np.int32(line[t]) * np.int32(query[t])
                products[j] = product
            for j in range(filled):
                score = products[j] * factors[i] * scales[at[j], 0]
                reach = lengths[i] * scales[at[j], 1] + slacks[i]
                if score + reach >= worst[i]:
                    places[i, counts[i]] = at[j]
                    least[i, counts[i]] = score - reach
                    most[i, counts[i]] = score + reach
                    counts[i] += 1


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
        cosines = np.empty((len(queries), len(self)), np.float32)
        for start in range(0, len(self._vectors), CACHED):
            part = self._vectors[start : start + CACHED]
            columns, span = self._wanted(start, CACHED)
            for scores, query in zip(cosines, queries, strict=True):
                products = part @ query
                scores[span] = products if columns is None else products[columns]
        return cosines

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
        self, queries: Float32s, k: int, exclude: Sequence[Collection[int]] = (), monitor: Monitor = SILENT
    ) -> list[tuple[Int64s, Float64s]]:
        """`top` for each of the queries (q, d), in blocks; ``exclude`` is empty or has one collection for each."""
        nearest = []
        for start in range(0, len(queries), TOGETHER):
            block = queries[start : start + TOGETHER]
            told = monitor.within(start, len(queries))
            nearest += self._searched(block, k, exclude[start : start + TOGETHER] or [()] * len(block), told)
        monitor.report(Event("nearest", len(queries), len(queries)))
        return nearest

    def _searched(
        self, queries: Float32s, k: int, exclude: Sequence[Collection[int]], monitor: Monitor = SILENT
    ) -> list[tuple[Int64s, Float64s]]:
        """`top` for each of the queries (q, d), reading the vectors once."""
        searches = [_Search(k, positions_of(self.rows, rows), self._step) for rows in exclude]
        looks = self._coded_looks(queries, k, searches, monitor) if self._codes else self._looks(queries, searches)
        for done in looks:
            monitor.check()
            monitor.report(Event("nearest", done * len(queries) // len(self._vectors), len(queries)))
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

    def _coded_looks(self, queries: Float32s, k: int, searches: Sequence[_Search], monitor: Monitor) -> Iterator[int]:
        """`_looks` by codes, on all cores once a few rows have shown what the best must exceed."""
        assert self._codes is not None
        codes, asked = self._codes, CodedQueries(queries, ROUNDING)
        wanted = np.ones(len(self._vectors), np.bool_)
        if self._columns is not None:
            wanted[:] = False
            wanted[self._columns] = True

        def near(span: tuple[int, int]) -> dict[int, Near]:
            monitor.check()  # those that wait in the pool end with the others
            start, end = span
            worst = np.array([search.worst for search in searches])
            return asked.near(codes.part(start, end), wanted[start:end], worst)

        def take(start: int, bounds: dict[int, Near]) -> None:
            for i, rows in bounds.items():
                places = rows.places + start
                searches[i].take(places if self._columns is None else np.searchsorted(self._columns, places), rows)

        first, then = _parts(len(wanted), k, max(SCORE_BYTES // (12 * max(len(queries), 1)), 1))
        for span in first:
            yield span[0]
            take(span[0], near(span))
        with ThreadPoolExecutor(cores()) as pool:
            for span, bounds in zip(then, pool.map(near, then), strict=True):
                yield span[0]
                take(span[0], bounds)

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
