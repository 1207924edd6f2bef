"""How ``index`` will read files: what their columns mean, and their first rows; nothing is stored."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..base.contract import Reported, to_json
from ..base.errors import UsageError
from .build import IndexPlan
from .files import default_source, download
from .readers.files import expand, open_input
from .readers.formats import Records
from .readers.records import BadRecord
from .rows import SURVEYED, Mapper, Row, check_globs, columns_of
from .understood import Understood, absent_line, name_them, understand, unnamed_labels


@dataclass(frozen=True, slots=True)
class PeekedRow:
    """The demonstration of a record with its source, or the reason why there is none."""

    line: int
    row: Row | None
    source: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        """One of ``rows`` of ``index --peek --json``."""
        if self.row is None:
            return {"line": self.line, "reason": self.reason}
        history = None if self.row.history is None else [
            {"role": role, "content": content} for role, content in json.loads(self.row.history)
        ]  # fmt: skip
        told = self.row._asdict() | {"source": self.source, "history": history}
        return {"line": self.line, **told, "metadata": json.loads(self.row.metadata), "reason": ""}


@dataclass(frozen=True, slots=True)
class Peek:
    """The first rows of ``path``, how its columns were understood, and what may be misread. ``read`` records were
    looked at, and ``bad`` rows among them cannot be used."""

    path: str
    files: int
    """How many files of the pattern are read so."""
    understood: Understood
    rows: tuple[PeekedRow, ...]
    read: int
    bad: int
    warnings: tuple[str, ...] = ()
    fault: tuple[int, str] | None = None
    """The line of the first row that cannot be used, and why."""

    def as_json(self) -> dict[str, Any]:
        """One of ``files`` of ``index --peek --json``."""
        return to_json(self.understood) | {
            "files": self.files,
            "read": self.read,
            "bad": self.bad,
            "warnings": list(self.warnings),
            "rows": [row.as_json() for row in self.rows],
        }


def peek(
    pattern: str, columns: Mapping[str, str], source: str | None = None, most: int = 3, labels: Sequence[str] = ()
) -> Peek:
    """The first ``most`` rows of a file, or of the first one that matches a pattern. ``columns`` maps fields to column
    names, ``source`` is that of all rows and ``labels`` are names, as in `IndexPlan`.

    Rows without a column that is mapped are unusable, as there. Raises `UsageError` for a file that cannot be read.
    """
    paths, _ = expand([pattern])
    if not paths:
        raise UsageError(f"{pattern} has no file to read", "check the path")
    mapper = Mapper(columns_of(paths[0], columns), labels)
    with open_input(paths[0]) as stream:
        return replace(peek_stream(paths[0], stream, mapper, source, most), files=len(paths))


def peek_stream(
    path: str, stream: BinaryIO, mapper: Mapper, source: str | None = None, most: int = 3, read: int = SURVEYED
) -> Peek:
    """As `peek`, of a file that is open; ``read`` is the most rows that are looked at."""
    told, rows = understand(Records(path, stream), mapper)
    first = list(islice(rows, read))
    peeked = []
    for line, row in first[:most]:
        if isinstance(row, BadRecord):
            peeked.append(PeekedRow(line, None, "", row.reason))
        else:
            peeked.append(PeekedRow(line, row, source or row.source or default_source(path), ""))
    good = [row for _, row in first if not isinstance(row, BadRecord)]
    fault = next(((line, row.reason) for line, row in first if isinstance(row, BadRecord)), None)
    optionless = [] if any(row.options for row in good) else good
    unnamed = unnamed_labels({row.output for row in optionless}, len(optionless))
    absent = {name: column for name, column in mapper.mapped.items() if column in told.absent}
    warnings = (
        *((name_them(path, *unnamed),) if unnamed else ()),
        *(absent_line(name, column, told.columns) for name, column in absent.items()),
    )
    return Peek(path, 1, told, tuple(peeked), len(first), len(first) - len(good), warnings, fault)


@dataclass(frozen=True, slots=True)
class PeekReport(Reported):
    """How the files of an `IndexPlan` will be read, of each pattern one of each kind."""

    kind = "index-peek"
    files: tuple[Peek, ...]

    def as_json(self) -> dict[str, Any]:
        """The ``index --peek --json`` contract."""
        return {"kind": self.kind, "files": [each.as_json() for each in self.files]}


LOOKED_AT = 20
"""Files of a pattern that are looked at; those behind them are taken to be like the first."""


def _kinds(pattern: str, plan: IndexPlan) -> list[Peek]:
    """The first rows of a file of each kind among those that match a pattern."""
    paths, _ = expand([pattern])
    kinds: list[Peek] = []
    for path in paths[:LOOKED_AT] or [pattern]:
        found = peek(path, plan.columns, plan.source, labels=plan.labels)
        alike = next((i for i, kind in enumerate(kinds) if kind.understood.is_like(found.understood)), None)
        if alike is None:
            kinds.append(found)
        else:
            kinds[alike] = replace(kinds[alike], files=kinds[alike].files + 1)
    return [replace(kinds[0], files=kinds[0].files + max(len(paths) - LOOKED_AT, 0)), *kinds[1:]]


def peek_plan(plan: IndexPlan) -> PeekReport:
    """The first rows of each file or pattern of a plan. What is no file is downloaded or asked for, and thrown away.
    Raises `UsageError` as `peek` does, and if the plan names no file."""
    patterns = {"pool": plan.paths, "validation": plan.validation, "test": plan.test}
    if not any(patterns.values()):
        raise UsageError("no file to look at", "icl-curate index POOL.jsonl --peek")
    with tempfile.TemporaryDirectory() as scratch:
        named = [path for part, some in patterns.items() for path in download(Path(scratch), some, part=part)]
        check_globs(plan.columns, expand(named)[0])
        return PeekReport(tuple(kind for each in named for kind in _kinds(each, plan)))
