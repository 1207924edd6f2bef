"""The files of a pool: how each is read, and which have changed since."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import duckdb

from ..base.errors import CurateError, UsageError
from ..http import trust
from ..store.workspace import Workspace
from .readers.files import STDIN, open_input, source_of


@dataclass(frozen=True, slots=True)
class Reading:
    """How one file is read; stored with it, so that it can be read in the same way again."""

    split: str | None
    columns: dict[str, str]
    source: str | None
    validation_fraction: float
    test_fraction: float
    labels: tuple[str, ...] = ()

    def text(self) -> str:
        """As stored with the file."""
        told = asdict(self)
        if not self.labels:  # as it was written before there were labels: the file has not changed
            del told["labels"]
        return json.dumps(told, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Reading:
        """The inverse of `text`."""
        told = json.loads(text)
        return cls(**told | {"labels": tuple(told.get("labels", ()))})


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file to index: ``path`` as given, ``name`` relative to the folder of the workspace if it is below it."""

    path: str
    name: str
    reading: Reading
    digest: str
    stamp: tuple[int, ...]
    """The stamp of the file when ``digest`` was computed; empty for standard input."""


def known_files(workspace: Workspace) -> list[IndexedFile]:
    """The files indexed before, as they are now. Raises `UsageError` if there are none, or if one cannot be read."""
    with workspace.read() as con:
        known = con.execute("SELECT path, reading FROM files WHERE path <> ? ORDER BY path", [STDIN]).fetchall()
    if not known:
        raise UsageError("no file has been indexed yet", "icl-curate index POOL.jsonl")
    return [indexed_file(workspace, known_path(workspace, path), Reading.from_text(reading)) for path, reading in known]


def known_path(workspace: Workspace, name: str) -> str:
    """Where a file lies that the workspace names. Outside of the folder that the workspace lies in, also by a link, it
    must have been named on this user's command line before: the workspace may be a stranger's. Else raises
    `UsageError`."""
    path = workspace.path.parent / name  # an absolute name stays as it is
    full = path.resolve()
    if not full.is_relative_to(workspace.path.parent):
        with workspace.read() as con:
            found = con.execute("SELECT value FROM meta WHERE key = ?", [_SIGNED + str(full)]).fetchone()
        if found is None or not trust.is_signed(_signed(workspace, str(full)), found[0]):
            raise UsageError(
                f"the workspace names a file outside of its folder: {full}",
                f"if it is yours: icl-curate index '{full}'",
            )
    return str(path)


def sign_outside(con: duckdb.DuckDBPyConnection, workspace: Workspace, files: Sequence[IndexedFile]) -> None:
    """Note that this user has named these files, for `known_path`."""
    for file in files:
        if file.path != STDIN and Path(file.name).is_absolute():
            with suppress(CurateError):  # where nothing can be signed, it is to be named each time
                signature = trust.sign(_signed(workspace, file.name))
                con.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [_SIGNED + file.name, signature])


_SIGNED = "file "


def _signed(workspace: Workspace, full: str) -> list[str]:
    return ["file", str(workspace.path), full]


def indexed_file(workspace: Workspace, path: str, reading: Reading) -> IndexedFile:
    """The file with its current digest. Raises `UsageError` if it cannot be read."""
    if path == STDIN:
        return IndexedFile(STDIN, STDIN, reading, "", ())
    with open_input(path) as stream:
        stamp = stamp_of(stream)
        digest = hashlib.file_digest(stream, _digest)  # type: ignore[arg-type]  # BinaryIO has readinto, its stub not
    full = Path(path).resolve()
    root = workspace.path.parent
    name = full.relative_to(root).as_posix() if full.is_relative_to(root) else str(full)
    return IndexedFile(path, name, reading, digest.hexdigest(), stamp)


def default_source(path: str) -> str:
    """The source of rows that do not name one."""
    return "stdin" if path == STDIN else source_of(path) or Path(path).name.split(".")[0]


def stamp_of(stream: BinaryIO) -> tuple[int, ...]:
    """Changes if the file is modified or replaced."""
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


def changed_files(workspace: Workspace, files: list[IndexedFile]) -> list[IndexedFile]:
    """The files whose content or way of reading differs from what was indexed."""
    with workspace.read() as con:
        known = {path: (d, r) for path, d, r in con.execute("SELECT path, digest, reading FROM files").fetchall()}
    return [file for file in files if known.get(file.name) != (file.digest, file.reading.text())]
