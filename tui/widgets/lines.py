"""Elements of tables: columns, lines, bars, and how they fit into a width. No Textual, so that rows of tabs are written
and tested without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ...render.tables import cell


@dataclass(frozen=True, slots=True)
class Column:
    """At least ``width`` cells; ``grow`` is its share of the remaining space, up to ``most`` cells. If the columns do
    not all fit, those with the highest ``rank`` are left out; rank 0 always stays. ``tail``: the end of a long text is
    shown."""

    name: str
    title: str
    width: int
    right: bool = False
    rank: int = 0
    grow: int = 0
    most: int = 1 << 20
    sortable: bool = True
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell that is a bar, as wide as its column."""

    share: float
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Values of all columns, as `render.tables.cell` formats them; ``style`` (a name of the theme) for the whole line;
    ``sign``: one character before it, with its style."""

    cells: tuple[Any, ...]
    style: str = ""
    sign: tuple[str, str] = (" ", "")


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Columns in a width: ``shown`` as (number, cells), after a ``gutter`` for marks, with a ``gap`` between two."""

    columns: Sequence[Column]
    shown: Sequence[tuple[int, int]]
    gutter: int
    gap: int

    @classmethod
    def into(cls, columns: Sequence[Column], width: int, gutter: int) -> ColumnLayout:
        """The columns that fit into ``width`` cells, separated by two if possible."""
        room = width - gutter
        gap = 2 if sum(column.width + 2 for column in columns) <= room else 1
        return cls(columns, fit(columns, room, gap), gutter, gap)

    def column_at(self, x: int) -> Column | None:
        """The column at cell ``x``."""
        at = self.gutter
        for i, width in self.shown:
            if at <= x < at + width:
                return self.columns[i]
            at += width + self.gap
        return None

    def heads(self, sorted_by: tuple[str, bool] | None) -> list[Text]:
        """The titles; ``sorted_by`` is the column that orders the lines, and whether it descends."""
        found = []
        for i, cells in self.shown:
            column = self.columns[i]
            arrow = ("▾" if sorted_by[1] else "▴") if sorted_by and sorted_by[0] == column.name else ""
            found.append(sized(Text(column.title + arrow), cells, column.right))
        return found

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


def drawn(value: Any, width: int, column: Column) -> Text:
    """A value in exactly ``width`` cells."""
    if isinstance(value, Bar):
        return stroke(value.share, width, value.style)
    text = cell(value)
    if column.tail and text.cell_len > width:
        text = Text("…") + text[-(width - 1) :]
    return sized(text.copy() if text is value else text, width, column.right)


def stroke(share: float, width: int, style: str) -> Text:
    """A share in [0, 1] as a line, with the rest of the width in the background style."""
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    track = width - full - half
    return Text.assemble(("━" * full + "╸" * half, style), ("─" * track, "track"))


def short(value: float) -> str:
    """A figure in about five characters."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 2 else f"{value:.3g}"


def sized(text: Text, width: int, right: bool) -> Text:
    """Exactly ``width`` cells of a text, cut with an ellipsis; half a wide character is a space."""
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    space = width - text.cell_len
    if right:
        text.pad_left(space)
    else:
        text.pad_right(space)
    return text


def fit(columns: Sequence[Column], room: int, gap: int) -> list[tuple[int, int]]:
    """Which columns are shown in ``room`` cells, as (number, width)."""
    shown = list(range(len(columns)))

    def least() -> int:
        return sum(columns[i].width for i in shown) + gap * (len(shown) - 1)

    while len(shown) > 1 and least() > room:
        worst = max(shown, key=lambda i: (columns[i].rank, i))
        if columns[worst].rank == 0:
            break
        shown.remove(worst)
    widths = {i: columns[i].width for i in shown}
    left = room - least()
    if left < 0:  # even the columns that always stay are too wide: shrink the growing ones
        for i in sorted((i for i in shown if columns[i].grow), key=lambda i: -widths[i]):
            cut = min(-left, widths[i] - 4)
            widths[i] -= max(0, cut)
            left += max(0, cut)
    while left > 0 and (hungry := [i for i in shown if columns[i].grow and widths[i] < columns[i].most]):
        shares = sum(columns[i].grow for i in hungry)
        given = 0
        for i in hungry:
            more = min(columns[i].most - widths[i], max(1, left * columns[i].grow // shares), left - given)
            widths[i] += more
            given += more
        left -= given
    return [(i, widths[i]) for i in shown]
