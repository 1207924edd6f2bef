"""An int8 copy of the vectors, a quarter of their size, for an exact search among millions of them.

A row's vector v is kept as ``scale * codes`` with the length e of what that loses, |v - scale * codes|. The cosine with
a query q then differs from that with the copy by at most |q| e (Cauchy-Schwarz). A search that computes the true cosine
of every row that may still be among the best therefore finds what reading all vectors finds.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bools, Float32s, Float64s, Int64s, compiled
from ..base.packages import installed
from ..base.progress import CancelToken, Event, Report, silent
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


def codes_of(
    vectors: Vectors, report: Report = silent, cancel: CancelToken | None = None, *, reread: bool = False
) -> Codes | None:
    """The codes of all stored vectors, as memory maps; those that are missing, damaged or of other vectors are made and
    stored first. ``reread`` as in `Vectors.damaged`.

    None without numba, which searches them. Raises `OSError` or `WorkspaceError` if they cannot be stored, `Cancelled`
    between windows.
    """
    if not len(vectors) or not installed("numba"):
        return None
    kept = _Kept(vectors)
    if kept.lacking(reread=reread):
        with exclusive(vectors.folder / LOCK):
            lacking = kept.lacking()
            for done, window in enumerate(lacking):
                if cancel:
                    cancel.check()
                report(Event(TASK, done * WINDOW, len(lacking) * WINDOW))
                kept.make(window)
            cached_check(kept.files, lambda: "", reread=True)  # just written, so they need not be checked
        report(Event(TASK, len(lacking) * WINDOW, len(lacking) * WINDOW))
    return kept.codes


class _Kept:
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
        for path, size in zip(self.files, self._sizes(end), strict=True):
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

    def _sizes(self, rows: int) -> tuple[int, int, int]:
        """Bytes of the files with so many rows."""
        return rows * self._vectors.dimension, rows * 8, -(-rows // WINDOW) * 16

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
