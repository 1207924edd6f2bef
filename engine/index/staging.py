"""Valid rows of all files, parsed into a staging file."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

from ..disk import private_folder
from ..errors import CurateError, UsageError
from ..progress import CancelToken, Event, Report, within
from ..retrieval import duplicates
from ..shards.run import map_shards
from ..shards.shard import INLINE, Engine, Shard
from ..store import columns
from ..store.locks import exclusive
from ..store.workspace import Workspace, quoted
from .files import IndexedFile, Reading, default_source, stamp_of
from .parts import Part, divided, whole
from .readers.files import open_input
from .readers.formats import Records
from .readers.records import BadRecord
from .results import Skipped
from .rows import Mapper, Row
from .understood import Understood, rows_of, understand

BATCH = 20_000
TASK = "read"
COLUMNS = "columns"
"""The task of events that say how a file was understood."""
MOST_TOLD = 5
"""Of how many kinds of files this is reported."""

STAGED = {
    "ordinal": "BIGINT",
    "id": "VARCHAR",
    "named": "BOOLEAN",
    "input": "VARCHAR",
    "output": "VARCHAR",
    "options": "VARCHAR[]",
    "answers": "VARCHAR[]",
    "context": "VARCHAR",
    "source": "VARCHAR",
    "split": "VARCHAR",
    "metadata": "VARCHAR",
    "hash": "BLOB",
    "file": "VARCHAR",
    "line": "BIGINT",
    "history": "VARCHAR",
}


@contextmanager
def staging_folder(workspace: Workspace) -> Iterator[Path]:
    """The folder for the Parquet files of valid rows; removed afterwards, also after a killed run. One at a time."""
    folder = workspace.path / "tmp" / "staged"
    with exclusive(folder.with_name("index.lock")):
        shutil.rmtree(folder, ignore_errors=True)
        private_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


Write = Callable[[str, Sequence[tuple[Any, ...]]], None]
"""Writes rows into a new file of this name in the staging folder."""


@contextmanager
def _writing(workspace: Workspace, folder: Path, scratch: Path, threads: int = 0) -> Iterator[Write]:
    """A function that writes into the staging ``folder``. What does not fit into memory is put into ``scratch``, by
    ``threads`` (0: as many as there are cores)."""
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in STAGED.items())
    with workspace.scratch(scratch) as con:
        if threads:
            con.execute(f"SET threads = {threads}")

        def write(file: str, rows: Sequence[tuple[Any, ...]]) -> None:
            values = zip(*rows, strict=True) if rows else repeat(())
            with columns.given(con, "staged", dict(zip(STAGED, values, strict=False))) as chosen:
                con.execute(
                    f"""
                    COPY (SELECT {typed} FROM (SELECT {", ".join(chosen)} FROM staged))
                      TO {quoted(folder / f"{file}.parquet")} (FORMAT parquet, COMPRESSION lz4)
                    """
                )

        yield write


@dataclass(frozen=True, slots=True)
class _Read:
    """A part whose valid rows are written; ``last`` of its file."""

    rows: int
    skipped: list[Skipped]
    understood: list[Understood]
    path: str
    last: bool


def stage(
    workspace: Workspace,
    files: list[IndexedFile],
    staging: Path,
    strict: bool,
    report: Report,
    cancel: CancelToken,
    engine: Engine = INLINE,
) -> tuple[list[Skipped], list[Understood]]:
    """Write the valid rows. Returns the bad ones, which are an error with ``strict``, and how the files were
    understood, one of each kind. Large files are read by several processes if that is the ``engine``."""
    skipped: list[Skipped] = []
    readings = _Readings(report)
    done = 0
    with _writing(workspace, staging, staging) as write:
        write("none", [])  # so that there is a file to read, even if there is none to index
        parts, ranges = divided(files) if engine.kind == "process" else (whole(files), [])
        if len(ranges) > 1:
            found = _read_apart(workspace, files, parts, ranges, staging, engine, report, cancel)
        else:
            found = _read_here(write, files, parts, readings, report, cancel)
        for read in _usable(found):
            skipped += read.skipped
            done += read.rows
            for told in read.understood:
                readings.add(told)
    if done:
        report(Event(TASK, done, done))
    if strict and skipped:
        first = skipped[0]
        raise UsageError(
            f"{len(skipped):,} bad row(s), the first at {first.file}:{first.line}: {first.reason}",
            "fix the rows, or omit --strict to skip them",
        )
    return skipped, readings.kinds


def _read_here(
    write: Write,
    files: Sequence[IndexedFile],
    parts: Sequence[Part],
    readings: _Readings,
    report: Report,
    cancel: CancelToken,
) -> Iterator[_Read]:
    done = 0
    for number, part in enumerate(parts):
        read = _read(write, number, part, files[part.file], readings.add, within(report, done, None), cancel)
        done += read.rows
        yield read


def _read(
    write: Write,
    number: int,
    part: Part,
    file: IndexedFile,
    understood: Callable[[Understood], None],
    report: Report,
    cancel: CancelToken,
) -> _Read:
    """Write the valid rows of a part, the ``number``-th; their ordinals tell the order of parts and rows."""
    skipped: list[Skipped] = []
    done = 0
    with open_input(file.path) as stream:
        for several, batch in enumerate(_row_batches(file, part, stream, skipped, understood)):
            cancel.check()
            write(f"{number:08}-{several:08}", [((number << 40) + done + i, *row) for i, row in enumerate(batch)])
            done += len(batch)
            report(Event(TASK, done))
        if file.stamp and stamp_of(stream) != file.stamp:
            raise UsageError(f"{file.path} changed while being read", "run the same command again when it is complete")
    return _Read(done, skipped, [], file.path, part.last)


def _usable(found: Iterable[_Read]) -> Iterator[_Read]:
    """The parts in their order. Raises `UsageError` behind the last of a file that has no valid row."""
    rows, first_bad = 0, None
    for read in found:
        rows += read.rows
        first_bad = first_bad or next(iter(read.skipped), None)
        yield read
        if not read.last:
            continue
        if not rows:
            why = f": line {first_bad.line}: {first_bad.reason}" if first_bad else ""
            lacking = not why or "missing field" in why
            raise UsageError(
                f"{read.path} has no usable row{why}",
                "map its columns: --map input=COLUMN --map output=COLUMN" if lacking else f"index {read.path} --peek",
            )
        rows, first_bad = 0, None


def _read_apart(
    workspace: Workspace,
    files: Sequence[IndexedFile],
    parts: Sequence[Part],
    ranges: Sequence[tuple[int, int]],
    staging: Path,
    engine: Engine,
    report: Report,
    cancel: CancelToken,
) -> Iterator[_Read]:
    """Read the parts by the ``engine``. They come back in their order, and so does the first error among them."""
    shards = [Shard(TASK, "", i, (), str(staging / f"scratch-{i}"), 0) for i in range(len(ranges))]
    step = partial(read_shard, workspace.path, staging, tuple(files), tuple(parts), tuple(ranges))
    found: dict[int, list[_Read | CurateError]] = {}
    for shard, reads in map_shards(step, shards, engine, cancel=cancel):
        found[shard.index] = reads
        report(Event(TASK, sum(read.rows for some in found.values() for read in some if isinstance(read, _Read))))
    for i in range(len(ranges)):
        for read in found[i]:
            if isinstance(read, CurateError):
                raise read
            yield read


def read_shard(
    workspace: Path,
    staging: Path,
    files: Sequence[IndexedFile],
    parts: Sequence[Part],
    ranges: Sequence[tuple[int, int]],
    shard: Shard,
    report: Report,
    cancel: CancelToken,
) -> list[_Read | CurateError]:
    """Write the valid rows of a range of parts, up to the first that cannot be read."""
    found: list[_Read | CurateError] = []
    scratch = Path(shard.output)
    private_folder(scratch)  # its own: DuckDB's names for temporary files are the same in every process
    with _writing(Workspace(workspace), staging, scratch, threads=1) as write:
        for number in range(*ranges[shard.index]):
            told: list[Understood] = []
            part = parts[number]
            try:
                read = _read(write, number, part, files[part.file], told.append, report, cancel)
            except CurateError as error:
                return [*found, error]
            found.append(replace(read, understood=told))
    return found


class _Readings:
    """How the files were understood: the first of each kind, reported if it is among the first kinds."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.kinds: list[Understood] = []

    def add(self, told: Understood) -> None:
        if any(replace(known, path=told.path) == told for known in self.kinds):
            return
        self.kinds.append(told)
        if len(self.kinds) <= MOST_TOLD:
            for line in (told.line, *told.notes):
                self._report(Event(COLUMNS, note=f"{told.path}: {line}"))


def _row_batches(
    file: IndexedFile,
    part: Part,
    stream: BinaryIO,
    skipped: list[Skipped],
    understood: Callable[[Understood], None],
) -> Iterator[list[tuple[Any, ...]]]:
    stem = default_source(file.path)
    batch: list[tuple[Any, ...]] = []
    told, rows = _understood(file, part, stream)
    understood(told)
    for line, row in rows:
        if isinstance(row, BadRecord):
            skipped.append(Skipped(file.name, line, row.reason))
            continue
        batch.append(_staged(row, file, stem, line))
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _understood(
    file: IndexedFile, part: Part, stream: BinaryIO
) -> tuple[Understood, Iterator[tuple[int, Row | BadRecord]]]:
    """How the file is understood, and the rows of a part of it."""
    if part.understood is None or part.mapper is None:
        return understand(Records(file.path, stream), Mapper(file.reading.columns, file.reading.labels))
    return part.understood, rows_of(Records(file.path, stream, part.span), part.mapper)


def _staged(row: Row, file: IndexedFile, stem: str, line: int) -> tuple[Any, ...]:
    source = file.reading.source or row.source or stem
    digest = row.digest(source)
    return (
        row.id or digest[:8].hex(), bool(row.id), row.input, row.output, row.options, row.answers, row.context, source,
        _split_of(row, file.reading), row.metadata, digest, file.name, line, row.history,
    )  # fmt: skip


def _split_of(row: Row, reading: Reading) -> str:
    split = reading.split or row.split or "pool"
    if split != "pool" or not (reading.validation_fraction or reading.test_fraction):
        return split
    digest = hashlib.blake2b(duplicates.normalised(row.input).encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    if share < reading.validation_fraction:
        return "validation"
    return "test" if share < reading.validation_fraction + reading.test_fraction else "pool"
