"""The files of a pool: how each is read, and which have changed since; data sets from the hub, which become files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

import duckdb

from ..base.contract import from_json
from ..base.errors import CurateError, UsageError
from ..base.files import replace_file
from ..base.packages import require
from ..base.progress import SILENT, Monitor
from ..http import trust
from ..store import columns
from ..store.workspace import Workspace
from .databases import SQL, parted, write_rows
from .readers.files import COMPRESSED, SPLITS, STDIN, SUFFIXES, has_card, open_input, source_of
from .remote import fetch, is_remote, kept_file
from .rows import SPLIT_NAMES


@dataclass(frozen=True, slots=True)
class Reading:
    """How one file is read; stored with it, so that it can be read in the same way again."""

    split: str | None
    columns: dict[str, str]
    source: str | None
    validation_fraction: float
    test_fraction: float
    labels: tuple[str, ...] = ()
    query: str = ""
    """``FILE?QUERY`` if the file holds what a query gave; the database is named as in `IndexedFile`."""

    def text(self) -> str:
        """As stored with the file."""
        told = asdict(self)
        for later in ("labels", "query"):  # as it was written before there were any: the file has not changed
            if not told[later]:
                del told[later]
        return json.dumps(told, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Reading:
        """The inverse of `text`. Raises `ValueError` for what a later version or somebody else wrote."""
        told = from_json(cls, read := json.loads(text))
        if unknown := read.keys() - asdict(told).keys():
            raise ValueError(f"unknown: {min(unknown)}")
        return told


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file to index: ``path`` as given, ``name`` relative to the folder of the workspace if it is below it."""

    path: str
    name: str
    reading: Reading
    digest: str
    stamp: tuple[int, ...]
    """The stamp of the file when ``digest`` was computed; empty for standard input."""


def dropped_files(workspace: Workspace, named: Sequence[str]) -> list[str]:
    """The names of known files that are ``named``, by path or as the workspace names them. Raises `UsageError` for one
    that is not known."""
    with workspace.read() as con:
        known = {name for (name,) in con.execute("SELECT path FROM files").fetchall()}
    found = [name if name in known else _name(workspace.path, name) for name in named]
    for name, given in zip(found, named, strict=True):
        if name not in known:
            raise UsageError(f"{given} is not indexed", f"name one of: {', '.join(sorted(known))}")
    return found


def taken_over(workspace: Workspace, reading: Reading, dropped: str) -> Reading:
    """How a file is read that takes the place of one that is ``dropped``: as that was, if nothing is given for it."""
    if reading != Reading(reading.split, {}, None, 0.0, 0.0):
        return reading
    with workspace.read() as con:
        stored = con.execute("SELECT reading FROM files WHERE path = ?", [dropped]).fetchone()
    with suppress(ValueError, RecursionError):  # what a later version wrote
        return replace(Reading.from_text(stored[0] if stored else "{}"), split=reading.split, query="")
    return reading


def known_files(workspace: Workspace, monitor: Monitor = SILENT, dropped: Collection[str] = ()) -> list[IndexedFile]:
    """The files indexed before, as they are now, but those ``dropped``; databases are asked again. Raises `UsageError`
    if there are none, or if one cannot be read."""
    with workspace.read() as con:
        stored = con.execute("SELECT path, reading FROM files WHERE path <> ? ORDER BY path", [STDIN]).fetchall()
    stored = [(path, reading) for path, reading in stored if path not in dropped]
    if not stored and not dropped:
        raise UsageError("no file has been indexed yet", "icl-curate index POOL.jsonl")
    files = []
    for path, text in stored:
        try:
            reading = Reading.from_text(text)
        except (ValueError, RecursionError) as error:
            what = f"the workspace tells in an unknown way how {path} was read"
            raise UsageError(what, f"name it again: icl-curate index {quote(path)}") from error
        if reading.query:
            file, query = parted(reading.query)
            again, part = f"{SQL}{known_path(workspace, file, query)}?{query}", reading.split or "pool"
            name = _name(workspace.path, str(rows_file(workspace.path, again, part)))
            if name != path and any(name == other for other, _ in stored):  # its old name: the workspace was moved
                continue
            [path] = download(workspace.path, [again], monitor, part)
        else:
            name, path = path, known_path(workspace, path)
            if not os.path.lexists(path):
                raise UsageError(
                    f"{name} is gone",
                    f"bring it back; if it has another name now: icl-curate index FILE --drop {quote(name)}; "
                    f"or leave its rows out: icl-curate index --drop {quote(name)}",
                )
        files.append(indexed_file(workspace, path, reading))
    return files


def known_path(workspace: Workspace, name: str, query: str = "") -> str:
    """Where a file lies that the workspace names. Outside of the folder that the workspace lies in, also by a link, it
    must have been named on this user's command line before, with the same query if it is a database: the workspace may
    be a stranger's. Else raises `UsageError`."""
    path = workspace.path.parent / name  # an absolute name stays as it is
    full = path.resolve()
    if not full.is_relative_to(workspace.path.parent):
        named = f"{full}?{query}" if query else str(full)
        with workspace.read() as con:
            signature = columns.noted(con, _SIGNED + named)
        if not trust.is_signed(_signed(workspace, named), signature):
            raise UsageError(
                f"the workspace names a file outside of its folder: {full}",
                f"if it is yours: icl-curate index {quote(str(full))}{f' --sql {quote(query)}' if query else ''}",
            )
    return str(path)


def sign_outside(con: duckdb.DuckDBPyConnection, workspace: Workspace, files: Sequence[IndexedFile]) -> None:
    """Note that this user has named these files, for `known_path`."""
    for file in files:
        name = file.reading.query or file.name
        if file.path != STDIN and Path(name).is_absolute():
            with suppress(CurateError):  # where nothing can be signed, it is to be named each time
                columns.note(con, _SIGNED + name, trust.sign(_signed(workspace, name)))


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
    return IndexedFile(path, _name(workspace.path, path), reading, digest.hexdigest(), stamp)


def _name(home: Path, path: str) -> str:
    """The name of a file for the workspace ``home``, see `IndexedFile`."""
    full, root = Path(path).resolve(), home.resolve().parent
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else str(full)


def default_source(path: str) -> str:
    """The source of rows that do not name one: the name of the data set, or that of the file without its ending."""
    if path == STDIN:
        return "stdin"
    file = Path(path)
    for endings in (COMPRESSED, SUFFIXES):  # others may be part of the name, as in v1.2
        file = file.with_suffix("") if file.suffix.lower() in endings else file
    return source_of(path) or file.name


def stamp_of(stream: BinaryIO) -> tuple[int, ...]:
    """Changes if the file is modified or replaced."""
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


def changed_files(workspace: Workspace, files: list[IndexedFile], dropped: Collection[str] = ()) -> list[IndexedFile]:
    """The files whose content or way of reading differs from what was indexed, and those with a row that was refused
    because another file had its id, which may be free now."""
    with workspace.read() as con:
        indexed = {path: (d, r) for path, d, r in con.execute("SELECT path, digest, reading FROM files").fetchall()}
        free = dict(
            con.execute(
                """
                SELECT s.file, bool_or(d.id IS NULL) FROM skipped s
                  LEFT JOIN demonstrations d ON d.retired_at IS NULL
                       AND s.reason = 'the id ' || d.id || ' is taken by ' || d.file || ':' || d.line
                 WHERE s.reason LIKE 'the id % is taken by %' AND NOT contains(s.reason, ' by ' || s.file || ':')
                 GROUP BY s.file
                """
            ).fetchall()
        )
    changed = {file.name for file in files if indexed.get(file.name) != (file.digest, file.reading.text())}
    again = {name for name, is_free in free.items() if is_free or changed or dropped}
    return [file for file in files if file.name in changed | again]


HUB = "hf://"
HUB_FOLDER = "hub"
"""Where a workspace keeps what it took from the hub."""

_NAME = re.compile(r"hf://(?P<name>[^:@]+)(@(?P<config>[^:]+))?(:(?P<split>.+))?")


def split_of(path: str) -> str | None:
    """The split that a name tells: of an Arrow file's folder in a folder of splits, or of a file from the hub, or in a
    folder with a card as there."""
    folder = Path(path).parent
    if folder.name == "data" and has_card(folder.parent):
        return SPLIT_NAMES.get(Path(path).stem.partition("-")[0])
    if (folder.parent / SPLITS).is_file():
        return SPLIT_NAMES.get(folder.name)
    if folder.parent.name == HUB_FOLDER:
        return SPLIT_NAMES.get(Path(path).stem)
    return None


def download(home: Path, patterns: Sequence[str], monitor: Monitor = SILENT, part: str = "pool") -> Iterator[str]:
    """The patterns, with files below ``home`` for those that name something else than files:

    - ``hf://org/name``, a data set, with a configuration ``@config`` and a split ``:train`` if wanted. Each split is a
      Parquet file, so that it can be read again without the hub.
    - ``sql:FILE?QUERY``: what a query gives of a database of DuckDB or SQLite, as JSON lines. A database is one file
      for each ``part``, however it is asked: another query takes the place of the earlier one.
    - ``https://…`` and ``s3://…``: a file, fetched now and not when it is read again.

    Raises `UsageError` where `datasets` is not installed or does not find the data set, and as `write_rows` and
    `fetch`.
    """
    asked: dict[Path, str] = {}
    for pattern in patterns:
        if pattern.startswith(HUB):
            yield from _downloaded(home, pattern)
        elif pattern.startswith(SQL):
            file, query = parted(pattern)
            path = rows_file(home, pattern, part)
            if asked.setdefault(path, query) != query:
                raise UsageError(f"two queries of {file}", "make it one: select … from a UNION ALL select … from b")
            replace_file(path, partial(write_rows, file, query, monitor=monitor))
            yield str(path)
        elif is_remote(pattern):
            path = kept_file(home, pattern)
            replace_file(path, partial(fetch, pattern, monitor=monitor))
            yield str(path)
        else:
            yield pattern


def rows_file(home: Path, pattern: str, part: str) -> Path:
    """Where `download` puts the rows of a query, with the name of the database, which is their source. A ``part`` that
    a workspace names may be anything."""
    file, part = parted(pattern)[0], part if part in ("validation", "test") else "pool"
    digest = hashlib.blake2b(_name(home, file).encode(), digest_size=8).hexdigest()
    return home / "sql" / part / digest / f"{Path(file).stem}.jsonl"


def stored_query(home: Path, pattern: str) -> str:
    """A query as a `Reading` has it."""
    file, query = parted(pattern)
    return f"{_name(home, file)}?{query}"


def _downloaded(home: Path, pattern: str) -> list[str]:
    if (named := _NAME.fullmatch(pattern)) is None:
        raise UsageError(f"'{pattern}' names no data set", "hf://org/name, hf://org/name:train or hf://org/name@config")
    require(pattern, "datasets")
    import datasets

    try:
        found = datasets.load_dataset(named["name"], named["config"], split=named["split"])
    except Exception as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{pattern}: {what}", "check the name, the configuration and the split") from error
    splits = {named["split"]: found} if named["split"] else dict(found)
    parts = [*Path(named["name"].strip("/")).parts[-2:], *([named["config"]] if named["config"] else [])]
    folder = home / HUB_FOLDER / "--".join(parts)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for split, rows in splits.items():
        file = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', str(split))}.parquet"
        part = file.with_suffix(".part")
        rows.to_parquet(str(part))
        part.replace(file)
        files.append(str(file))
    return files
