"""Valid rows of all files, parsed into a staging file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..base.errors import UsageError
from ..base.files import private_folder
from ..base.progress import CancelToken, Event, Report, within
from ..shards.shard import INLINE, Engine
from ..store.locks import exclusive
from ..store.workspace import Workspace
from .apart import Site, read_apart
from .files import IndexedFile
from .part_read import TASK, PartRead, Write, read_part, writing
from .parts import FilePart, divided, whole
from .results import Skipped
from .understood import Understood

COLUMNS = "columns"
"""The task of events that say how a file was understood."""
MOST_TOLD = 5
"""Of how many kinds of files this is reported."""


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
    understood, one of each kind. Large files are read by the workers of the ``engine`` where these see them."""
    skipped: list[Skipped] = []
    readings = _Readings(report)
    done = 0
    with writing(workspace, staging, staging) as write:
        write("none", [])  # so that there is a file to read, even if there is none to index
        elsewhere = Site.of(engine, workspace, files)
        parts, ranges = divided(files, elsewhere.workers) if elsewhere else (whole(files), [])
        if elsewhere and len(ranges) > 1:
            found = read_apart(elsewhere, workspace, parts, ranges, staging, report, cancel)
        else:
            found = _read_here(write, parts, readings, report, cancel)
        for read in _usable(found):
            skipped += read.skipped
            done += read.rows
            readings.add(read.understood)
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
    write: Write, parts: Sequence[FilePart], readings: _Readings, report: Report, cancel: CancelToken
) -> Iterator[PartRead]:
    done = 0
    for number, part in enumerate(parts):
        read = read_part(write, number, part, readings.add, within(report, done, None), cancel)
        done += read.rows
        yield read


def _usable(found: Iterable[PartRead]) -> Iterator[PartRead]:
    """The parts in their order. Raises `UsageError` behind the last of a file that has no valid row."""
    rows, first_bad = 0, None
    for read in found:
        rows += read.rows
        first_bad = first_bad or next(iter(read.skipped), None)
        yield read
        if not read.part.last:
            continue
        if not rows:
            path = read.part.file.path
            why = f": line {first_bad.line}: {first_bad.reason}" if first_bad else ""
            lacking = not why or "missing field" in why
            raise UsageError(
                f"{path} has no usable row{why}",
                f"map its columns: --map '{Path(path).name}::input=COLUMN'" if lacking else f"index {path} --peek",
            )
        rows, first_bad = 0, None


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
