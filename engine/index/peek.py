"""The first rows of a file as ``index`` will read them; nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from .files import default_source
from .readers.files import expand, open_input
from .readers.formats import records
from .readers.records import BadRecord
from .rows import SURVEYED, Mapper, Row
from .staging import mapped_rows


@dataclass(frozen=True, slots=True)
class PeekedRow:
    """The demonstration of a record with its source, or the reason why there is none."""

    line: int
    row: Row | None
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Peek:
    """The first rows of ``path``, its columns in the first record, and the column of each field that was found."""

    path: str
    files: int
    """How many files the pattern matches."""
    columns: tuple[str, ...]
    fields: Mapping[str, str]
    rows: tuple[PeekedRow, ...]


def peek(pattern: str, columns: Mapping[str, str], source: str | None = None, most: int = 3) -> Peek:
    """The first ``most`` rows of a file, or of the first one that matches a pattern. ``columns`` maps fields to column
    names, ``source`` is that of all rows, as in `IndexPlan`.

    A column that the file lacks is ignored, as there. Raises `UsageError` for a file that cannot be read.
    """
    paths, _ = expand([pattern])
    mapper = Mapper(columns)
    with open_input(paths[0]) as stream:
        first = list(islice(records(paths[0], stream), SURVEYED))
    named: tuple[str, ...] = next((tuple(record) for _, record in first if not isinstance(record, BadRecord)), ())
    found = []
    for line, row in islice(mapped_rows(iter(first), mapper), most):
        if isinstance(row, BadRecord):
            found.append(PeekedRow(line, None, "", row.reason))
        else:
            found.append(PeekedRow(line, row, source or row.source or default_source(paths[0]), ""))
    return Peek(paths[0], len(paths), named, mapper.fields(named), tuple(found))
