"""The result of an index run, the object of ``index --json``; and the records that it could not use, by reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..base.contract import Reported, from_json
from ..base.errors import UsageError
from ..store.workspace import Workspace
from .files import known_path
from .readers.files import open_input
from .readers.formats import decompressed, format_of
from .readers.records import BadRecord, text_lines
from .understood import Understood


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be used."""

    file: str
    line: int
    reason: str


def strictly(first: Skipped, count: int) -> UsageError:
    """The error for ``count`` bad rows with ``--strict``."""
    return UsageError(
        f"{count:,} bad row(s), the first at {first.file}:{first.line}: {first.reason}",
        "fix the rows, or omit --strict to skip them",
    )


@dataclass(frozen=True, slots=True)
class IndexReport(Reported):
    """The state of the workspace and what this run changed; counts are rows. ``duplicates``: by kind. A dry run does
    not search for duplicates and leaks: None. ``warnings``: what may have been misread, a line each."""

    kind = "index"
    demonstrations: int
    sources: int
    validation: int
    test: int
    skipped: tuple[Skipped, ...]
    duplicates: Mapping[str, int] | None
    leaking: tuple[str, ...] | None
    added: int
    retired: int
    revived: int
    unchanged_files: int
    task: str
    encoded: int
    encoder: str | None
    dry_run: bool = False
    warnings: tuple[str, ...] = ()
    readings: tuple[Understood, ...] = ()
    """How the files that were read were understood, the first of each kind."""
    moved: int = 0
    """Rows that are in another split now."""

    def as_json(self) -> dict[str, Any]:
        """The ``index --json`` contract; ``duplicates`` and ``leaks`` are counts, with the details in other keys."""
        return Reported.as_json(self) | {
            "duplicates": None if self.duplicates is None else sum(self.duplicates.values()),
            "duplicates_by_kind": self.duplicates,
            "leaks": None if self.leaking is None else len(self.leaking),
        }

    @classmethod
    def from_json(cls, data: Any) -> IndexReport:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        if not isinstance(data, Mapping):
            raise ValueError("IndexReport is not an object")
        return from_json(cls, {**data, "duplicates": data.get("duplicates_by_kind")})


LONGEST_LINE = 6_000
"""Maximum characters of a record that are read."""

LINES = frozenset({"jsonl", "csv", "tsv"})
"""Formats in which a record begins on its line."""

_TAKEN = re.compile(r"the id .* is taken by .*", re.DOTALL)
_MISSING = re.compile(r"missing field: \w+")
_LENGTH = re.compile(r"has [\d,]+ characters")


@dataclass(frozen=True, slots=True)
class SkippedReason:
    """Why records were skipped, without what differs from one to the next, and these records by file and line."""

    reason: str
    records: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class SkippedRecords(Reported):
    """All records that were skipped, by file and line."""

    kind = "skipped"
    skipped: tuple[Skipped, ...]

    @property
    def reasons(self) -> list[SkippedReason]:
        """By reason, the most frequent first."""
        found: dict[str, list[Skipped]] = defaultdict(list)
        for one in self.skipped:
            found[reason_of(one.reason)].append(one)
        reasons = [SkippedReason(reason, tuple(records)) for reason, records in found.items()]
        return sorted(reasons, key=lambda one: (-len(one.records), one.reason))

    def as_json(self) -> dict[str, Any]:
        """The ``skipped --json`` contract."""
        reasons = [{"reason": one.reason, "count": len(one.records)} for one in self.reasons]
        return Reported.as_json(self) | {"reasons": reasons}


def skipped_records(workspace: Workspace) -> SkippedRecords:
    """The records that the latest index of each file skipped."""
    with workspace.read() as con:
        rows = con.execute("SELECT file, line, reason FROM skipped ORDER BY file, line").fetchall()
    return SkippedRecords(tuple(Skipped(*row) for row in rows))


def reason_of(told: str) -> str:
    """A reason without the values of its record: ``answer not among the options: X`` is one for every X."""
    if _TAKEN.fullmatch(told):
        return "an id that another row has"
    if missing := _MISSING.match(told):
        return missing[0]
    return _LENGTH.sub("has too many characters", told).split(":")[0].split(", more than")[0]


def as_in_file(workspace: Workspace, skip: Skipped) -> str:
    """The line of a record as it is in its file now, at most `LONGEST` characters. Raises `UsageError` if the file
    cannot be read, has fewer lines, or is of a format without lines."""
    path = known_path(workspace, skip.file)
    with open_input(path) as stream:
        if format_of(path, stream) not in LINES:
            raise UsageError(f"{skip.file} is not read line by line", "open it with a program for its format")
        encoding, lines = text_lines(decompressed(path, stream))
        line = next(islice(lines, skip.line - 1, None), None)
    if line is None:
        raise UsageError(f"{skip.file} has fewer lines now", "icl-curate index")
    if isinstance(line, BadRecord):
        raise UsageError(f"{skip.file}: {line.reason}", "open it with a program for such files")
    text = line if isinstance(line, str) else line[: 4 * LONGEST_LINE].decode(encoding, errors="replace")
    return text[:LONGEST_LINE].rstrip("\r\n")
