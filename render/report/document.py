"""A page as plain data, written as HTML by `html` and as Markdown by `markdown`.

Every text is escaped by both, whoever wrote it. `Said` marks texts of the pool, which may run from right to left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 1_000
"""Characters shown of a text of the pool, at most: an id may have a million."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text of the pool; ``length``: its characters, if it was cut before."""

    text: str
    length: int = 0

    @property
    def shown(self) -> str:
        return self.text[:LONGEST]

    @property
    def left(self) -> int:
        """Characters that are not shown."""
        return max(self.length, len(self.text)) - len(self.shown)


@dataclass(frozen=True, slots=True)
class Code:
    """A command, a hash, a name of a file."""

    text: str


Part = str | Said | Code
Line = Part | tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    line: Line
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Points:
    """A list without order."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    number: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The first cell of a row is its head. ``note`` stands below it, such as what was left out."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Line, ...], ...]
    note: str = ""


def table(caption: str, heads: Iterable[str], rows: Iterable[tuple[Line, ...]], *notes: str) -> Table:
    """A table by its heads: ``#n`` for a column of numbers, ``text>`` for a wide one."""
    columns = tuple(Column(head.strip("#>"), head.startswith("#"), head.endswith(">")) for head in heads)
    return Table(caption, columns, tuple(rows), " ".join(notes))


@dataclass(frozen=True, slots=True)
class BarPair:
    """A count before and after."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Dot:
    """A value from 0 to 1 with its interval. ``hollow``: of the pool as it was."""

    name: str
    value: float
    low: float
    high: float
    hollow: bool


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step with its calls and, if it measured one, the gain as a text."""

    name: str
    calls: int
    gain: str


Mark = BarPair | Dot | StepBar


@dataclass(frozen=True, slots=True)
class Picture:
    """``title`` and ``about`` are what a screen reader says. The figures are also in a table: Markdown has no
    pictures."""

    title: str
    about: str
    marks: tuple[Mark, ...]


Block = Paragraph | Points | Table | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """``name``: its address within the page."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ReportPage:
    title: str
    subtitle: str
    sections: tuple[Section, ...]
