"""Records that the index could not use: listed by reason, with file and line, and as they are in their file."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..base.contract import Reported
from ..base.errors import UsageError
from ..store.workspace import Workspace
from .files import known_path
from .readers.files import open_input
from .readers.formats import format_of
from .readers.records import BadRecord, text_lines
from .results import Skipped

LONGEST = 6_000
"""Maximum characters of a record that are read."""

LINES = frozenset({"jsonl", "csv", "tsv"})
"""Formats in which a record begins on its line."""

ZIPPED = b"\x1f\x8b"

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
        zipped = stream.read(2) == ZIPPED
        stream.seek(0)
        encoding, lines = text_lines(gzip.GzipFile(fileobj=stream) if zipped else stream)
        line = next(islice(lines, skip.line - 1, None), None)
    if line is None:
        raise UsageError(f"{skip.file} has fewer lines now", "icl-curate index")
    if isinstance(line, BadRecord):
        raise UsageError(f"{skip.file}: {line.reason}", "open it with a program for such files")
    text = line if isinstance(line, str) else line[: 4 * LONGEST].decode(encoding, errors="replace")
    return text[:LONGEST].rstrip("\r\n")
