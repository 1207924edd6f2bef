"""The vectors of a workspace's rows, beside the DuckDB file.

A row's vector stands at its dense row number, so that the numbers DuckDB gives index the matrix directly. What was
written stays readable after a kill at any moment, and what was encoded is not encoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import WorkspaceError
from ..progress import CancelToken, Event, Report, silent
from ..store.locks import exclusive
from .encoder import Encoder
from .files import replace_file

BLOCK = 2048
"""Texts encoded between two commits to disk."""

HEAD, MATRIX, ENCODED = "vectors.json", "vectors.f32", "encoded.u8"
TOKENS, TOKEN_INDEX, TOKEN_HEAD = "tokens.f16", "tokens.npy", "tokens.json"
LOCK = "lock"


def folder_of(workspace: Path, encoder: str) -> Path:
    """Where a workspace keeps the vectors of an encoder, by the encoder's name."""
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", encoder).strip("-.")[-60:]
    if slug != encoder:
        slug += "-" + hashlib.sha256(encoder.encode()).hexdigest()[:8]
    return workspace / "vectors" / slug


class Vectors:
    """One vector for each row of a workspace.

    ``vectors.f32`` is the raw row-major float32 matrix, ``encoded.u8`` one byte a row (1: its vector is there),
    ``vectors.json`` says which encoder and how many dimensions. A row is marked only once its vector is on disk.
    """

    def __init__(self, folder: Path, encoder: str, dimension: int) -> None:
        self.folder = folder
        self.encoder = encoder
        self.dimension = dimension

    @classmethod
    def create(cls, folder: Path, encoder: str, dimension: int) -> Vectors:
        """Open the folder's vectors, or begin with none. `WorkspaceError` when they are another encoder's."""
        head = folder / HEAD
        if not head.exists():
            text = json.dumps({"version": 1, "encoder": encoder, "dimension": dimension})
            replace_file(head, lambda file: file.write(text.encode()))
        found = cls.open(folder)
        if (found.encoder, found.dimension) != (encoder, dimension):
            raise WorkspaceError(
                f"{folder} holds vectors of {found.encoder} with {found.dimension} dimensions,"
                f" not of {encoder} with {dimension}",
                f"rm -r '{folder}' and index again",
            )
        return found

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """Open the folder's vectors without loading their encoder. `WorkspaceError` when there are none."""
        try:
            head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
            return cls(folder, str(head["encoder"]), int(head["dimension"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"no usable vectors at {folder}: {error}", "icl-curate index PATH...") from error

    def __len__(self) -> int:
        """Row numbers there is room for, from 0."""
        return min(_size(self.folder / MATRIX) // (4 * self.dimension), _size(self.folder / ENCODED))

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The vectors as a read-only memory map (rows, dimension); zeros where a row is not encoded."""
        rows = len(self)
        if not rows:
            return np.empty((0, self.dimension), np.float32)
        return np.memmap(self.folder / MATRIX, np.float32, "r", shape=(rows, self.dimension))

    @property
    def encoded(self) -> NDArray[np.bool_]:
        """Which rows have a vector, (rows,)."""
        if not len(self):
            return np.empty(0, np.bool_)
        marks: NDArray[np.bool_] = np.fromfile(self.folder / ENCODED, np.uint8, len(self)) == 1
        return marks

    def missing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of ``rows`` that have no vector yet."""
        encoded = self.encoded
        known = np.zeros(len(rows), np.bool_)
        inside = rows < len(encoded)
        known[inside] = encoded[rows[inside]]
        return rows[~known]

    def write(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Put the vectors (n, dimension) at their rows, then mark the rows. `WorkspaceError` on a full disk."""
        if vectors.shape != (len(rows), self.dimension):
            raise ValueError(f"{len(rows)} rows of {self.dimension} dimensions expected, got {vectors.shape}")
        if not len(rows):
            return
        with exclusive(self.folder / LOCK):
            needed = int(rows.max()) + 1
            _grow(self.folder / MATRIX, needed * 4 * self.dimension)
            matrix = np.memmap(self.folder / MATRIX, np.float32, "r+", shape=(needed, self.dimension))
            matrix[rows] = vectors
            matrix.flush()
            _grow(self.folder / ENCODED, needed)
            encoded = np.memmap(self.folder / ENCODED, np.uint8, "r+", shape=(needed,))
            encoded[rows] = 1
            encoded.flush()

    def fill(
        self,
        encoder: Encoder,
        rows: NDArray[np.int64],
        texts: Sequence[str],
        report: Report = silent,
        cancel: CancelToken | None = None,
    ) -> int:
        """Encode those of ``rows`` (n,) that have no vector, ``texts[i]`` being the text of ``rows[i]``.

        Each `BLOCK` of them is on disk before the next is begun; after `Cancelled` or a kill the same call goes on
        there. Returns how many were encoded. Reports ``encode`` events.
        """
        if encoder.name != self.encoder:
            raise ValueError(f"these are vectors of {self.encoder}, not of {encoder.name}")
        text_of = dict(zip(rows.tolist(), texts, strict=True))
        todo = sorted(self.missing(np.unique(rows)).tolist(), key=lambda row: (-len(text_of[row]), row))
        for start in range(0, len(todo), BLOCK):
            block = todo[start : start + BLOCK]
            vectors = encoder.encode([text_of[row] for row in block], _within(report, start, len(todo)), cancel)
            self.write(np.array(block, np.int64), vectors)
        return len(todo)


class TokenVectors:
    """Token vectors of some rows, kept once they were needed.

    ``tokens.f16`` is an append-only file of float16 vectors, ``tokens.npy`` an int64 table (rows, 3) of row number,
    first vector and number of vectors, replaced in one step after its vectors are on disk. Bytes that no line of the
    table names (a kill in between) are written over by the next append.
    """

    def __init__(self, folder: Path, encoder: str) -> None:
        self.folder = folder
        self.encoder = encoder
        self._spans: dict[int, tuple[int, int]] = {}
        self._width = 0
        self._reload()

    def missing(self, rows: Sequence[int]) -> list[int]:
        """Those of ``rows`` whose tokens are not kept yet, each once."""
        if any(row not in self._spans for row in rows):
            self._reload()  # another process may have added them
        return [row for row in dict.fromkeys(rows) if row not in self._spans]

    def read(self, rows: Sequence[int]) -> list[NDArray[np.float16]]:
        """The token vectors of each row, (tokens, width), as views of a memory map. `KeyError` for a missing row."""
        if self.missing(rows):
            raise KeyError(f"no token vectors for rows {self.missing(rows)[:5]}")
        path = self.folder / TOKENS
        stored = _size(path) // (2 * self._width) if self._width else 0
        data = np.memmap(path, np.float16, "r", shape=(stored, self._width)) if stored else np.empty((0, self._width))
        return [np.asarray(data[start : start + count], np.float16) for start, count in map(self._spans.get, rows)]  # type: ignore[misc]

    def write(self, rows: Sequence[int], vectors: Sequence[NDArray[np.float16]]) -> None:
        """Keep the token vectors (tokens, width) of rows that have none yet; those that have are left alone."""
        with exclusive(self.folder / LOCK):
            self._reload()
            new = {row: tokens for row, tokens in zip(rows, vectors, strict=True) if row not in self._spans}
            if not new:
                return
            width = next((tokens.shape[1] for tokens in new.values() if len(tokens)), self._width)
            if self._width and width != self._width:
                raise ValueError(f"token vectors of width {width} among those of {self._width}")
            self._append(new, width)

    def fill(
        self,
        encoder: Encoder,
        rows: Sequence[int],
        texts: Sequence[str],
        report: Report = silent,
        cancel: CancelToken | None = None,
    ) -> int:
        """Encode the tokens of those of ``rows`` that are missing, as `Vectors.fill` does. Returns how many."""
        if encoder.name != self.encoder:
            raise ValueError(f"these are token vectors of {self.encoder}, not of {encoder.name}")
        text_of = dict(zip(rows, texts, strict=True))
        todo = sorted(self.missing(rows), key=lambda row: (-len(text_of[row]), row))
        for start in range(0, len(todo), BLOCK):
            block = todo[start : start + BLOCK]
            vectors = encoder.encode_tokens([text_of[row] for row in block], _within(report, start, len(todo)), cancel)
            self.write(block, vectors)
        return len(todo)

    def _append(self, new: dict[int, NDArray[np.float16]], width: int) -> None:
        end = max((start + count for start, count in self._spans.values()), default=0)
        spans = dict(self._spans)
        content = []
        for row, tokens in new.items():
            spans[row] = (end, len(tokens))
            end += len(tokens)
            content.append(tokens.astype(np.float16, copy=False).tobytes())
        path = self.folder / TOKENS
        begin = (end * width * 2) - sum(map(len, content))
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(begin)
            file.write(b"".join(content))
            file.flush()
            os.fsync(file.fileno())
        head = json.dumps({"version": 1, "encoder": self.encoder, "width": width})
        replace_file(self.folder / TOKEN_HEAD, lambda file: file.write(head.encode()))
        table = np.array([(row, *span) for row, span in spans.items()], np.int64).reshape(-1, 3)
        replace_file(self.folder / TOKEN_INDEX, lambda file: np.save(file, table, allow_pickle=False))
        self._spans, self._width = spans, width

    def _reload(self) -> None:
        try:
            table = np.load(self.folder / TOKEN_INDEX, allow_pickle=False)
            self._width = int(json.loads((self.folder / TOKEN_HEAD).read_text(encoding="utf-8"))["width"])
            self._spans = {row: (start, count) for row, start, count in table.tolist()}
        except FileNotFoundError:
            self._spans = {}
        except (OSError, ValueError, KeyError) as error:
            raise WorkspaceError(
                f"the token vectors at {self.folder} cannot be read: {error}",
                f"rm '{self.folder / TOKEN_INDEX}'  (they are computed again when needed)",
            ) from error


def _within(report: Report, start: int, total: int) -> Report:
    """Events of one block as events of the whole."""
    return lambda event: report(Event(event.task, start + event.done, total, event.note, event.fields))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _grow(path: Path, size: int) -> None:
    """Make the file at least ``size`` bytes, the new ones zero and really there: writing through a memory map into a
    hole of a full disk would end the process."""
    with path.open("ab") as file:
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
                f"no room to store vectors in {path}: {error.strerror}", "free some disk space"
            ) from error
