"""Valid rows of all files, parsed into a staging file."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path
from typing import Any, BinaryIO

from ..disk import private_folder
from ..errors import UsageError
from ..progress import CancelToken, Event, Report
from ..retrieval import duplicates
from ..store import columns
from ..store.locks import exclusive
from ..store.workspace import Workspace, quoted
from .files import IndexedFile, Reading, default_source, stamp_of
from .readers.files import open_input
from .readers.formats import Records
from .readers.records import BadRecord
from .results import Skipped
from .rows import Mapper, Row
from .understood import Understood, understand

BATCH = 20_000

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


@contextmanager
def _writing(workspace: Workspace, folder: Path) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
    """A function that writes rows into the next file."""
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in STAGED.items())
    numbers = count()
    with workspace.scratch(folder) as con:

        def write(rows: Sequence[tuple[Any, ...]]) -> None:
            values = zip(*rows, strict=True) if rows else repeat(())
            with columns.given(con, "staged", dict(zip(STAGED, values, strict=False))) as chosen:
                con.execute(
                    f"""
                    COPY (SELECT {typed} FROM (SELECT {", ".join(chosen)} FROM staged))
                      TO {quoted(folder / f"{next(numbers):08}.parquet")} (FORMAT parquet, COMPRESSION lz4)
                    """
                )

        yield write


def stage(
    workspace: Workspace,
    files: list[IndexedFile],
    staging: Path,
    strict: bool,
    report: Report,
    cancel: CancelToken,
) -> tuple[list[Skipped], list[Understood]]:
    """Write the valid rows. Returns the bad ones, which are an error with ``strict``, and how the files were
    understood, one of each kind."""
    skipped: list[Skipped] = []
    readings = _Readings(report)
    done = 0
    with _writing(workspace, staging) as write:
        write([])  # so that there is a file to read, even if there is none to index
        for file in files:
            with open_input(file.path) as stream:
                for batch in _row_batches(file, stream, skipped, readings):
                    cancel.check()
                    write([(done + i, *row) for i, row in enumerate(batch)])
                    done += len(batch)
                    report(Event("read", done))
                if file.stamp and stamp_of(stream) != file.stamp:
                    raise UsageError(
                        f"{file.path} changed while being read", "run the same command again when it is complete"
                    )
    if done:
        report(Event("read", done, done))
    if strict and skipped:
        first = skipped[0]
        raise UsageError(
            f"{len(skipped):,} bad row(s), the first at {first.file}:{first.line}: {first.reason}",
            "fix the rows, or omit --strict to skip them",
        )
    return skipped, readings.kinds


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
    file: IndexedFile, stream: BinaryIO, skipped: list[Skipped], readings: _Readings
) -> Iterator[list[tuple[Any, ...]]]:
    mapper = Mapper(file.reading.columns, file.reading.labels)
    stem = default_source(file.path)
    batch: list[tuple[Any, ...]] = []
    good = 0
    first_bad = len(skipped)
    told, rows = understand(Records(file.path, stream), mapper)
    readings.add(told)
    for line, row in rows:
        if isinstance(row, BadRecord):
            skipped.append(Skipped(file.name, line, row.reason))
            continue
        batch.append(_staged(row, file, stem, line))
        good += 1
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
    if not good:
        why = f": line {skipped[first_bad].line}: {skipped[first_bad].reason}" if len(skipped) > first_bad else ""
        lacking = not why or "missing field" in why
        raise UsageError(
            f"{file.path} has no usable row{why}",
            "map its columns: --map input=COLUMN --map output=COLUMN" if lacking else f"index {file.path} --peek",
        )


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
