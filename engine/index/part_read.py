"""The valid rows of a file, or of a part of it, written as Parquet files for the merge."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UsageError
from ..progress import CancelToken, Event, Report
from ..retrieval import duplicates
from ..store import columns
from ..store.workspace import Workspace, quoted
from .files import IndexedFile, Reading, stamp_of
from .parts import Part
from .readers.files import open_input
from .readers.formats import Records
from .readers.records import BadRecord
from .results import Skipped
from .rows import Mapper, Row
from .understood import Understood, rows_of, understand

BATCH, CHARACTERS = 20_000, 1 << 25
"""Rows that are written at once, and about how many characters of them: all may be a megabyte."""
TASK = "read"

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


Write = Callable[[str, Sequence[tuple[Any, ...]]], None]
"""Writes rows into a new file of this name."""


@contextmanager
def writing(workspace: Workspace, folder: Path, scratch: Path, threads: int = 0) -> Iterator[Write]:
    """A function that writes into ``folder``. What does not fit into memory is put into ``scratch``, by
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
class PartRead:
    """A part whose valid ``rows`` are written."""

    part: Part
    rows: int
    skipped: list[Skipped]
    understood: Understood


def read_part(
    write: Write,
    number: int,
    part: Part,
    understood: Callable[[Understood], None],
    report: Report,
    cancel: CancelToken,
) -> PartRead:
    """Write the valid rows of a part, the ``number``-th; their ordinals tell the order of parts and rows. How it is
    ``understood`` is told before. Raises `UsageError` for a file that cannot be read or changes meanwhile."""
    skipped: list[Skipped] = []
    done = 0
    with open_input(part.file.path) as stream:
        told, rows = _understood(part, stream)
        understood(told)
        for several, batch in enumerate(_row_batches(part, rows, skipped)):
            cancel.check()
            write(f"{number:08}-{several:08}", [((number << 40) + done + i, *row) for i, row in enumerate(batch)])
            done += len(batch)
            report(Event(TASK, done))
        check_unchanged(part.file, stream)
    return PartRead(part, done, skipped, told)


def check_unchanged(file: IndexedFile, stream: BinaryIO) -> None:
    """Raise `UsageError` if the open file is not what it was when its digest was computed."""
    if file.stamp and stamp_of(stream) != file.stamp:
        raise UsageError(f"{file.path} changed while being read", "run the same command again when it is complete")


def _understood(part: Part, stream: BinaryIO) -> tuple[Understood, Iterator[tuple[int, Row | BadRecord]]]:
    """How the file is understood, and the rows of a part of it."""
    file = part.file
    if part.understood is None or part.mapper is None:
        return understand(Records(file.path, stream), Mapper(file.reading.columns, file.reading.labels))
    return part.understood, rows_of(Records(file.path, stream, part.span), part.mapper)


def _row_batches(
    part: Part, rows: Iterable[tuple[int, Row | BadRecord]], skipped: list[Skipped]
) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    characters = 0
    for line, row in rows:
        if isinstance(row, BadRecord):
            skipped.append(Skipped(part.file.name, line, row.reason))
            continue
        batch.append(_staged(row, part.file, part.stem, line))
        characters += row.characters()
        if len(batch) >= BATCH or characters >= CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


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
