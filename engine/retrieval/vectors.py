"""The vectors of a workspace's rows, beside the DuckDB file.

A row's vector is stored at its dense row number, so row numbers from DuckDB index the matrix directly. After a kill at
any moment, what was written is readable, and what was encoded is not encoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bools, Float32s, Int64s
from ..base.errors import UsageError, WorkspaceError
from ..base.files import private, replace_file
from ..base.progress import SILENT, Monitor
from ..shards.over import SHARDS, over_shards
from ..shards.shard import INLINE, ONE_CPU, Arrays, Engine, Resources, packed, unpacked
from ..store.locks import exclusive
from .checked import cached_check
from .encoder import Encoder

BLOCK = 2048
"""Texts encoded between two commits to disk."""
WINDOW = 1 << 17
"""Rows whose texts are held in memory while they are encoded."""

HEAD, MATRIX, ROWS = "vectors.json", "vectors.f32", "rows.u64"
TOKENS, TOKEN_INDEX = "tokens.f16", "tokens.u64"
LOCK = "lock"

MOST_DIMENSIONS = 1 << 16


def folder_of(workspace: Path, encoder: str) -> Path:
    """The folder of an encoder's vectors in the workspace, by the encoder's name."""
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", encoder).strip("-.")[-60:]
    if slug != encoder:
        slug += "-" + hashlib.sha256(encoder.encode()).hexdigest()[:8]
    return workspace / "vectors" / slug


_PASSAGES = " with passages"


def with_passages(encoder: str) -> str:
    """The name under which vectors of texts with their passages are kept."""
    return encoder + _PASSAGES


def how_to_get(wanted: str, present: str) -> str:
    """What to do to have the ``wanted`` vectors instead of those that are ``present``, both by their names."""
    plain = wanted.removesuffix(_PASSAGES)
    if plain == present.removesuffix(_PASSAGES):
        return f"the setting retrieval_text = {'passage' if wanted != plain else 'input'}"
    return f"icl-curate index --encoder {plain}"


TextsOf = Callable[[Int64s], Sequence[str]]
"""Returns the texts of ascending rows."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that are encoded together, (n,), their content keys and their texts."""

    rows: Int64s
    keys: NDArray[np.uint64]
    texts: Sequence[str]


def _blocks(rows: Int64s, keys: NDArray[np.uint64], texts: TextsOf) -> Iterator[_Block]:
    """The blocks of ascending rows, of each window those with the longest texts first."""
    # windows by row number, whatever is missing: after a kill, blocks are the same
    for window in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows // WINDOW)) + 1):
        read = texts(rows[window])
        by_length = np.argsort([-len(text) for text in read], kind="stable")
        for start in range(0, len(window), BLOCK):
            places = by_length[start : start + BLOCK]
            yield _Block(rows[window[places]], keys[window[places]], [read[i] for i in places.tolist()])


def _sent(blocks: Iterable[_Block], sent: dict[int, _Block]) -> Iterator[tuple[int, Arrays]]:
    """The blocks as shards; each is put into ``sent`` under its number."""
    for number, block in enumerate(blocks):
        sent[number] = replace(block, texts=())
        yield len(block.rows), packed(block.texts)


class Vectors:
    """One vector for each row of a workspace.

    ``vectors.f32`` is the raw row-major float32 matrix, ``vectors.json`` has the encoder and the number of dimensions,
    and ``rows.u64`` has two numbers per row, written after its vector is on disk: the key of the encoded content (0:
    none) and the checksum of the vector's bytes. A key is that of the row's content (`content_keys`) mixed with encoder
    and dimension. So a row has a vector only if key and checksum agree: after a database was restored, an encoder
    changed or bytes were damaged, the affected rows count as not encoded.
    """

    def __init__(self, folder: Path, encoder: str, dimension: int) -> None:
        self.folder = folder
        self.encoder = encoder
        self.dimension = dimension
        self._salt = _salt(encoder, dimension)
        self._damaged: Int64s | None = None

    @classmethod
    def create(cls, folder: Path, encoder: str, dimension: int) -> Vectors:
        """Open the folder's vectors, or start without any. If the header differs it is rewritten: the rows' keys
        identify the vectors."""
        try:
            stored = cls.open(folder)
        except WorkspaceError:
            stored = None
        if stored is None or (stored.encoder, stored.dimension) != (encoder, dimension):
            text = json.dumps({"version": 2, "encoder": encoder, "dimension": dimension})
            replace_file(folder / HEAD, lambda file: file.write(text.encode()))
            stored = cls(folder, encoder, dimension)
        return stored

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """Open the folder's vectors without loading their encoder. `WorkspaceError` if there are none."""
        try:
            head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
            encoder, dimension = head["encoder"], head["dimension"]
            if not isinstance(encoder, str) or type(dimension) is not int or not 0 < dimension <= MOST_DIMENSIONS:
                raise ValueError(f"{encoder!r} of {dimension!r} dimensions")
            return cls(folder, encoder, dimension)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkspaceError(f"no usable vectors at {folder}: {error}", "icl-curate index PATH...") from error

    def __len__(self) -> int:
        """Number of rows that fit, counted from row 0."""
        return min(_size(self.folder / MATRIX) // (4 * self.dimension), _size(self.folder / ROWS) // 16)

    @property
    def matrix(self) -> Float32s:
        """The vectors as a read-only memory map (rows, dimension); zeros for rows that are not encoded."""
        rows = len(self)
        if not rows:
            return np.empty((0, self.dimension), np.float32)
        return np.memmap(self.folder / MATRIX, np.float32, "r", shape=(rows, self.dimension))

    @property
    def encoded(self) -> Bools:
        """Which rows have any vector, (rows,)."""
        known = np.array(self.marks[:, 0] != 0)
        known[self.damaged()] = False
        return known

    def holds(self, rows: Int64s, keys: NDArray[np.uint64]) -> Bools:
        """Mask of the ``rows`` (n,) whose vector matches their content keys ``keys`` (n,)."""
        kept = self.marks[:, 0]
        inside = (rows >= 0) & (rows < len(kept))
        known = np.zeros(len(rows), np.bool_)
        known[inside] = kept[rows[inside]] == self._salted(keys[inside])
        damaged = self.damaged()
        return known & ~np.isin(rows, damaged) if damaged.size else known

    def missing(self, rows: Int64s, keys: NDArray[np.uint64]) -> Int64s:
        """Those of ``rows`` without a vector that matches ``keys``."""
        return rows[~self.holds(rows, keys)]

    def unfit(self, rows: Int64s, keys: NDArray[np.uint64]) -> int:
        """How many of ``rows`` have a vector that is damaged or of other content."""
        kept = self.marks[:, 0]
        lacking = self.missing(rows, keys)
        return int(np.count_nonzero(kept[lacking[lacking < len(kept)]]))

    def damaged(self, *, reread: bool = False) -> Int64s:
        """Rows whose vector differs from what was written, ascending.

        Computed once, by reading all of them, and remembered as long as the files do not change; ``reread`` always
        reads them.
        """
        if self._damaged is None or reread:
            self._damaged = np.empty(0, np.int64)
            if len(self):
                looked: list[Int64s] = []

                def look() -> str:
                    looked.append(self._disagreeing())
                    return str(len(looked[-1]))

                count = cached_check([self.folder / MATRIX, self.folder / ROWS], look, reread=reread)
                if count != "0":
                    self._damaged = looked[-1] if looked else self._disagreeing()
        return self._damaged

    def write(self, rows: Int64s, vectors: Float32s, keys: NDArray[np.uint64]) -> None:
        """Write the vectors (n, dimension) of the rows, then their keys. `WorkspaceError` on a full disk."""
        if vectors.shape != (len(rows), self.dimension) or len(keys) != len(rows):
            raise ValueError(f"{len(rows)} rows of {self.dimension} dimensions expected, got {vectors.shape}")
        if not len(rows):
            return
        vectors = np.ascontiguousarray(vectors, np.float32)
        damaged = self.damaged()
        with exclusive(self.folder / LOCK):
            needed = int(rows.max()) + 1
            grow(self.folder / ROWS, needed * 16)
            marks = np.memmap(self.folder / ROWS, np.uint64, "r+", shape=(needed, 2))
            if marks[rows, 0].any():
                marks[rows, 0] = 0  # otherwise the new vector would for a moment count as that of the old content
                marks.flush()
            grow(self.folder / MATRIX, needed * 4 * self.dimension)
            matrix = np.memmap(self.folder / MATRIX, np.float32, "r+", shape=(needed, self.dimension))
            matrix[rows] = vectors
            matrix.flush()
            marks[rows, 1] = _checksums(vectors, range(len(rows)))
            marks.flush()  # a key without its checksum would be a lost vector
            marks[rows, 0] = self._salted(keys)
            marks.flush()
        self._damaged = np.setdiff1d(damaged, rows)

    def fill(
        self,
        encoder: Encoder,
        rows: Int64s,
        texts: TextsOf,
        keys: NDArray[np.uint64],
        monitor: Monitor = SILENT,
        *,
        engine: Engine = INLINE,
        need: Resources = ONE_CPU,
    ) -> int:
        """Encode those of ``rows`` (n,) that have no vector for their content keys ``keys`` (n,). ``texts`` is asked
        for the texts of at most `WINDOW` ascending rows at a time.

        Each `BLOCK` of them is a shard of ``engine``, and on disk before the next is asked for; after `Cancelled` or a
        kill the same call continues there, with the same blocks. Returns how many were encoded. Reports ``encode``
        events. Raises `UsageError` for an encoder that returns NaN or infinity, and what `over_shards` raises. An
        encoder behind an API is asked by this process, whatever the engine, and what it returns is on disk request by
        request: each was paid for.
        """
        if self.encoder not in (encoder.name, with_passages(encoder.name)):
            raise ValueError(f"these are vectors of {self.encoder}, not of {encoder.name}")
        lacking = np.flatnonzero(~self.holds(rows, keys))
        lacking = lacking[np.unique(rows[lacking], return_index=True)[1]]
        rows, keys = rows[lacking], keys[lacking]
        total, done = len(rows), 0
        blocks = _blocks(rows, keys, texts)
        if engine.here or not encoder.local:
            for block in blocks:
                monitor.check()
                encoder.encode_each(block.texts, partial(self._keep, block), monitor.within(done, total))
                done += len(block.rows)
            return total
        sent: dict[int, _Block] = {}
        arrived = over_shards(
            partial(encode_shard, encoder), _sent(blocks, sent), stage="encode", total=total,
            beside=self.folder / SHARDS, engine=engine, need=need, monitor=monitor,
        )  # fmt: skip
        for number, arrays in arrived:
            block = sent.pop(number)
            self._keep(block, np.arange(len(block.rows)), arrays["vectors"])
        return total

    def _keep(self, block: _Block, places: Int64s, vectors: Float32s) -> None:
        """Write vectors that an encoder returned for the texts at some places of a block."""
        if not np.isfinite(vectors).all():
            raise UsageError(
                f"the encoder {self.encoder} returns vectors that are not finite",
                "choose another: icl-curate index --encoder NAME",
            )
        self.write(block.rows[places], vectors, block.keys[places])

    @property
    def marks(self) -> NDArray[np.uint64]:
        """Key and checksum of each row, (rows, 2), a read-only memory map."""
        rows = len(self)
        if not rows:
            return np.empty((0, 2), np.uint64)
        return np.memmap(self.folder / ROWS, np.uint64, "r", shape=(rows, 2))

    def _disagreeing(self) -> Int64s:
        kept, matrix = self.marks, self.matrix
        found = [np.empty(0, np.int64)]
        for start in range(0, len(kept), WINDOW):
            rows = np.flatnonzero(kept[start : start + WINDOW, 0]) + start
            found.append(rows[_checksums(matrix, rows.tolist()) != kept[rows, 1]])
        return np.concatenate(found)

    def _salted(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return keys ^ self._salt


def encoded(
    encoder: Encoder,
    texts: Sequence[str],
    beside: Path,
    monitor: Monitor = SILENT,
    *,
    engine: Engine = INLINE,
    need: Resources = ONE_CPU,
) -> Float32s:
    """Vectors (n, dimension) of texts that are no rows, by shards as in `Vectors.fill`, with files in the folder
    ``beside``."""
    if not encoder.local:
        return encoder.encode(texts, monitor)
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    arrived = over_shards(
        partial(encode_shard, encoder), ((len(block), packed(block)) for block in blocks), stage="encode",
        total=len(texts), beside=beside, engine=engine, need=need, held=True, monitor=monitor,
    )  # fmt: skip
    for i, arrays in arrived:
        vectors[i * BLOCK : i * BLOCK + len(blocks[i])] = arrays["vectors"]
    return vectors


def encode_shard(encoder: Encoder, arrays: Arrays, monitor: Monitor) -> Arrays:
    """Vectors (n, dimension) of packed texts. In a worker the encoder is the one that `load_encoder` keeps there."""
    return {"vectors": encoder.encode(unpacked(arrays), monitor)}


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a row's token vectors are stored, with their key and checksum: a line of ``tokens.u64``."""

    row: int
    start: int  # bytes
    tokens: int
    width: int
    key: int
    checksum: int

    @property
    def end(self) -> int:
        return self.start + 2 * self.tokens * self.width


SPAN = 6
"""Numbers in a line of ``tokens.u64``."""


class TokenVectors:
    """Token vectors of some rows, stored after their first use.

    ``tokens.f16`` is an append-only file of float16 vectors, ``tokens.u64`` a uint64 table with a line per row
    (`_Span`), replaced atomically after its vectors are on disk. Bytes without a line (after a kill in between) are
    overwritten by the next append. As with `Vectors`, a row has tokens only if key and checksum agree. Missing ones are
    computed again when needed, so this never causes an error.
    """

    def __init__(self, folder: Path, encoder: str) -> None:
        self.folder = folder
        self.encoder = encoder
        self._salt = int(_salt(encoder, 0))
        self._spans: dict[int, _Span] = {}
        self._whole: set[_Span] = set()
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._reload()

    def missing(self, rows: Sequence[int], keys: Sequence[int]) -> list[int]:
        """Those of ``rows`` whose tokens are not stored yet, each once; ``keys`` are the content keys of the rows."""
        wanted = dict(zip(rows, keys, strict=True))
        if not all(self._holds(row, key) for row, key in wanted.items()):
            self._reload()  # another process may have added them
        return [row for row, key in wanted.items() if not self._holds(row, key)]

    def read(self, rows: Sequence[int], keys: Sequence[int]) -> list[NDArray[np.float16]]:
        """The token vectors of each row, (tokens, width), as views of a memory map. `KeyError` for a missing row."""
        missing = self.missing(rows, keys)
        if missing:
            raise KeyError(f"no token vectors for rows {missing[:5]}")
        spans = [self._spans[row] for row in rows]
        return [self._bytes[s.start : s.end].view(np.float16).reshape(s.tokens, s.width) for s in spans]

    def write(self, rows: Sequence[int], vectors: Sequence[NDArray[np.float16]], keys: Sequence[int]) -> None:
        """Store the token vectors (tokens, width) of rows that have none yet; existing ones are not changed."""
        with exclusive(self.folder / LOCK):
            self._reload()
            given = zip(rows, vectors, keys, strict=True)
            self._append({row: (tokens, key) for row, tokens, key in given if not self._holds(row, key)})

    def fill(
        self,
        encoder: Encoder,
        rows: Sequence[int],
        texts: Sequence[str],
        keys: Sequence[int],
        monitor: Monitor = SILENT,
    ) -> int:
        """Encode the tokens of those of ``rows`` that are missing, as `Vectors.fill` does. Returns how many."""
        if self.encoder not in (encoder.name, with_passages(encoder.name)):
            raise ValueError(f"these are token vectors of {self.encoder}, not of {encoder.name}")
        wanted = dict(zip(rows, zip(texts, keys, strict=True), strict=True))
        todo = sorted(self.missing(rows, keys), key=lambda row: (-len(wanted[row][0]), row))
        for start in range(0, len(todo), BLOCK):
            block = todo[start : start + BLOCK]
            texts = [wanted[row][0] for row in block]
            vectors = encoder.encode_tokens(texts, monitor.within(start, len(todo)))
            self.write(block, vectors, [wanted[row][1] for row in block])
        return len(todo)

    def _append(self, new: dict[int, tuple[NDArray[np.float16], int]]) -> None:
        if not new:
            return
        begin = end = max((span.end for span in self._spans.values()), default=0)
        spans = dict(self._spans)
        content = []
        for row, (tokens, key) in new.items():
            content.append(tokens.astype(np.float16, copy=False).tobytes())
            count, width = tokens.shape
            spans[row] = _Span(row, end, count, width, key ^ self._salt, zlib.crc32(content[-1]))
            end = spans[row].end
        path = self.folder / TOKENS
        with open(path, "r+b" if path.exists() else "w+b", opener=private) as file:
            file.seek(begin)
            file.write(b"".join(content))
            file.flush()
            os.fsync(file.fileno())
        table = np.array([astuple(span) for span in spans.values()], np.uint64)
        replace_file(self.folder / TOKEN_INDEX, lambda file: file.write(table.tobytes()))
        self._reload()

    def _holds(self, row: int, key: int) -> bool:
        span = self._spans.get(row)
        if span is None or span.key != key ^ self._salt:
            return False
        if span not in self._whole and zlib.crc32(self._bytes[span.start : span.end].data) == span.checksum:
            self._whole.add(span)
        return span in self._whole

    def _reload(self) -> None:
        """Load the table and the map from disk; lines that refer to missing data are dropped."""
        content = (self.folder / TOKEN_INDEX).read_bytes() if (self.folder / TOKEN_INDEX).exists() else b""
        table = np.frombuffer(content, np.uint64, len(content) // (8 * SPAN) * SPAN).reshape(-1, SPAN)
        size = _size(self.folder / TOKENS)
        if size != len(self._bytes):
            self._bytes = np.asarray(np.memmap(self.folder / TOKENS, np.uint8, "r")) if size else self._bytes[:0]
        spans = [_Span(*line) for line in table.tolist()]
        self._spans = {span.row: span for span in spans if span.end <= size}


def _salt(encoder: str, dimension: int) -> np.uint64:
    text = f"{dimension} {encoder}".encode("utf-8", "surrogatepass")
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))


def _checksums(vectors: Float32s, rows: Iterable[int]) -> NDArray[np.uint64]:
    """CRC-32 of the bytes of some rows of a contiguous matrix; 2 GB per second."""
    content = vectors.reshape(-1).data.cast("B") if vectors.size else memoryview(b"")
    width, crc = 4 * vectors.shape[1], zlib.crc32
    return np.fromiter((crc(content[row * width : (row + 1) * width]) for row in rows), np.uint64)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def grow(path: Path, size: int) -> None:
    """Make the file at least ``size`` bytes, the new ones zero and actually allocated: on a full disk, writing through
    a memory map into a hole would end the process."""
    with open(path, "ab", opener=private) as file:
        held = os.fstat(file.fileno()).st_size
        if held >= size:
            return
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), held, size - held)
            else:
                os.truncate(file.fileno(), size)
        except OSError as error:
            raise WorkspaceError(
                f"not enough space to store vectors in {path}: {error.strerror}", "free some disk space"
            ) from error
