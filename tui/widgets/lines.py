"""Elements of tables: lines, bars, and how they fit into a width by the rules of `render.columns`. No Textual, so that
rows of tabs are written and tested without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from ...engine.base.progress import Event
from ...engine.pool.display import display_line, display_text
from ...render.columns import LineColumn, fit, missing, sized
from ...render.tables import cell

CUT = 300
"""Maximum characters of a text in a table: fields may be a megabyte long."""

MOST = 6_000
"""Maximum characters of a text in full; the rest is counted."""

SIGN = 4
"""Cells kept for the number of columns that do not fit."""


@dataclass(frozen=True, slots=True)
class BarCell:
    """A cell that is a bar, as wide as its column."""

    share: float
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Values of all columns, as `render.tables.cell` formats them; ``style`` (a name of the theme) for the whole line;
    ``sign``: one character before it, with its style. ``below``: a text under its cells, where the table has room."""

    cells: tuple[Any, ...]
    style: str = ""
    sign: tuple[str, str] = (" ", "")
    below: str = ""


def narrowed(columns: Sequence[LineColumn], lines: Sequence[Line]) -> list[LineColumn]:
    """The columns no wider than what stands in them."""
    widest = [
        max(cell_len(str(value)) for value in (column.title, *(line.cells[i] for line in lines)))
        for i, column in enumerate(columns)
    ]
    return [
        replace(column, width=min(column.width, most), most=min(column.most, most))
        for column, most in zip(columns, widest, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Columns in a width: ``shown`` as (number, cells), after a ``gutter`` for marks, with a ``gap`` between two;
    ``missing`` are the titles of those that do not fit."""

    columns: Sequence[LineColumn]
    shown: Sequence[tuple[int, int]]
    gutter: int
    gap: int
    missing: Sequence[str] = ()

    @classmethod
    def into(cls, columns: Sequence[LineColumn], width: int, gutter: int, signed: bool = True) -> ColumnLayout:
        """The columns that fit into ``width`` cells, separated by two if possible. If some do not and it is ``signed``,
        the heading says how many."""
        room = width - gutter
        gap = 2 if sum(column.width + 2 for column in columns) <= room else 1
        shown = fit(columns, room, gap)
        if signed and missing(columns, shown):
            shown = fit(columns, room - SIGN, gap)
        return cls(columns, shown, gutter, gap, missing(columns, shown) if signed else ())

    def column_at(self, x: int) -> int | None:
        """The number of the column at cell ``x``."""
        at = self.gutter
        for i, width in self.shown:
            if at <= x < at + width:
                return i
            at += width + self.gap
        return None

    def heading(self, sorted_by: tuple[str, bool] | None, width: int) -> Text:
        """The titles, and at the end of ``width`` how many are missing; ``sorted_by`` is the column that orders the
        lines, and whether it descends."""
        titles = []
        for i, cells in self.shown:
            column = self.columns[i]
            arrow = ("▾" if sorted_by[1] else "▴") if sorted_by and sorted_by[0] == column.name else ""
            titles.append(sized(Text(column.title + arrow), cells, column.right))
        line = self.joined(titles, Text(" " * self.gutter))
        if not self.missing:
            return line
        sign = f" +{len(self.missing)}"
        return sized(line, max(0, width - len(sign) - 1)).append(sign, "warn")

    def cells(self, line: Line | None) -> list[Text]:
        """The cells of a line; dots if it is not loaded yet."""
        return [
            drawn(line.cells[i] if line is not None else Text("·", "muted"), size, self.columns[i])
            for i, size in self.shown
        ]

    def joined(self, cells: Sequence[Text], lead: Text) -> Text:
        """Cells side by side after a prefix."""
        line = Text(end="", no_wrap=True).append_text(lead)
        for i, text in enumerate(cells):
            line.append(" " * self.gap if i else "").append_text(text)
        return line


def drawn(value: Any, width: int, column: LineColumn) -> Text:
    """A value in exactly ``width`` cells."""
    if isinstance(value, BarCell):
        return stroke(value.share, width, value.style)
    text = cell(value)
    return sized(text.copy() if text is value else text, width, column.right, column.cut)


def stroke(share: float, width: int, style: str) -> Text:
    """A share in [0, 1] as a line, with the rest of the width in the background style."""
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    track = width - full - half
    return Text.assemble(("━" * full + "╸" * half, style), ("─" * track, "track"))


def blocks(values: Sequence[float], low: float | None = None) -> str:
    """A block for each value, as high as it is above the lowest, or above ``low``, where it is a space."""
    signs = "▁▂▃▄▅▆▇█"
    least = min(values) if low is None else low
    span = max(max(values) - least, 1e-9)
    return "".join(" " if value == low else signs[round((value - least) / span * (len(signs) - 1))] for value in values)


def gauge(event: Event, width: int) -> Text:
    """How far a task is: its share as a line and in per cent if its end is known, its name, the units."""
    text = Text()
    if event.total:
        share = event.done / event.total
        text.append_text(stroke(share, width, "primary")).append(f" {share:4.0%} ")
    text.append(display_line(event.task, 30) + " ", "muted")
    return text.append(f"{event.done:,}" + (f" of {event.total:,}" if event.total is not None else ""))


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values below each other; a cost stands out."""
    table = Table.grid(Column(style="muted", no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(Text(name), Text(display_line(value), "bold" if name == "cost" else ""))
    return table


def cut(value: str) -> Text:
    """A text in full, made safe to display."""
    text = Text(display_text(value[:MOST]))
    return text.append(f"\n… {len(value) - MOST:,} more characters", "warn") if len(value) > MOST else text


def short(value: float) -> str:
    """A figure in about five characters."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 2 else f"{value:.3g}"


def names_line(names: Mapping[str, int | None], shown: str, key: str) -> Text:
    """What a place has beside each other, with counts, the ``shown`` one marked, and the ``key`` of the next one; a
    click goes there, see `tab.Tab.on_click`."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for name, count in names.items():
        title = Text(f" {name.capitalize()} " + ("" if count is None else f"{count:,} "))
        title.stylize(Style(meta={"name": name}))
        for style in ("cursor", "bold") if name == shown else ("muted",) if count == 0 else ():
            title.stylize(style)
        line.append_text(title)
    return line.append(f"  {key} ", "key").append("next", "muted")
