"""Tables and lines of text on stdout, shared by all commands.

Texts are passed to rich as plain text, never as markup; `console.SafeConsole` makes control characters visible on
output. `cell` and `display_line` are for text that has to stay on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..engine.pool.display import display_line, display_text
from .columns import Cut, LineColumn, fit, missing, sized
from .console import stdout
from .suggested import completed

NARROW = 16
"""A column no wider than this is not cut."""

LEAST, MOST_LEAST = 12, 20
"""Cells that a column of longer texts keeps beside others: between these, so many that most of its texts are whole."""

ENDLESS = 1 << 30
"""The width of a pipe."""

PICTURE = 90
"""Rank of bars: their figures stand beside them."""


@dataclass(frozen=True, slots=True)
class Head:
    """A column of `show_table`: columns of the highest ``rank`` are the first to be left out, 0 stays. Cells of a
    ``whole`` one are figures, which are not cut."""

    title: str
    rank: int = 0
    cut: Cut = "end"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A share in [0, 1], drawn in ``width`` cells."""

    share: float
    width: int = 10


T = TypeVar("T")
Column = tuple[str | Head, Callable[[T], Any]]
"""Its head, and what it shows of a row."""


def show_table(columns: Sequence[str | Head], rows: Sequence[Sequence[Any]], title: str = "", note: str = "") -> None:
    """A table with right-aligned numbers. Of columns given as texts, the first, those without a title, and those named
    ``x>``, which are wrapped, stay; the others are left out from the right. A line below names what is left out. A
    column without title and texts is never shown. Without titles there is no heading, and the last column is wrapped.
    """
    heads = [_head(column, i) for i, column in enumerate(columns)]
    named = any(head.title for head in heads)
    if heads and not named:
        heads[-1] = Head("", cut="wrap")
    used = [i for i, head in enumerate(heads) if head.title or any(row[i] not in ("", None) for row in rows)]
    wanted = [_column(heads[i], [row[i] for row in rows]) for i in used]
    console = stdout()
    fitted = [
        (wanted[i], used[i], width) for i, width in fit(wanted, ENDLESS if console.soft_wrap else console.width, 1)
    ]
    if title:
        console.print(Text(display_line(title), "italic"))
    if named:
        _show_line(console, [(column, width, Text(column.title, "bold")) for column, _, width in fitted])
    for row in rows:
        _show_line(console, [(column, width, cell(row[i])) for column, i, width in fitted])
    if left_out := missing(wanted, [(used.index(i), width) for _, i, width in fitted]):
        counted = f"+{len(left_out)} column{'' if len(left_out) == 1 else 's'}"
        console.print(Text(f"{counted} in a wider terminal: {', '.join(left_out)}", "dim"))
    if note:
        console.print(Text(completed(note), style="dim"))


def show_rows(rows: Sequence[T], columns: Sequence[Column[T]], title: str = "", note: str = "") -> None:
    """As `show_table`, with a row for each of these: a column is its head, and what it shows of a row."""
    heads, cells = [head for head, _ in columns], [cell for _, cell in columns]
    show_table(heads, [[shown(row) for shown in cells] for row in rows], title, note)


def ends(rows: Sequence[T], most: int) -> tuple[list[T], int]:
    """The first and the last of many, ``most`` together, and how many are left out between."""
    if len(rows) <= most:
        return list(rows), 0
    return [*rows[: most // 2], *rows[-most // 2 :]], len(rows) - most


def change(value: float, low: float, high: float, level: str = "95 %: ") -> str:
    """A difference with its 95 % interval. ``level``: empty in a table that says it of all."""
    return f"{value:+.3f} ({level}{low:+.3f} to {high:+.3f})"


def _head(column: str | Head, i: int) -> Head:
    if isinstance(column, Head):
        return column
    title = column.removesuffix(">")
    if title != column:
        return Head(title, cut="wrap")
    return Head(title, rank=i if title else 0)


def _column(head: Head, values: Sequence[Any]) -> LineColumn:
    """The room that a column needs: what is short keeps its width, longer texts share what is left."""
    title = display_line(head.title)
    widest = max([cell_len(title), *(cell(value).cell_len for value in values)])
    right = bool(values) and all(isinstance(value, (int, float, type(None))) for value in values)
    drawn = [value for value in values if value not in ("", None)]
    if drawn and all(isinstance(value, Bar) for value in drawn):
        return LineColumn(title, title, widest, rank=PICTURE, picture=True)
    if head.whole or widest <= NARROW:
        return LineColumn(title, title, widest, right, head.rank, cut=head.cut)
    wraps = head.cut == "wrap"
    usual = sorted(cell(value).cell_len for value in values)[3 * len(values) // 4] if values else 0
    least = MOST_LEAST if wraps else max(LEAST, cell_len(title), min(usual, MOST_LEAST))
    return LineColumn(
        title, title, min(least, widest), right, head.rank, grow=2 if wraps else 1, most=widest, cut=head.cut
    )


def _show_line(console: Console, cells: Sequence[tuple[LineColumn, int, Text]]) -> None:
    """Cells with their columns and widths as a line, or as several if a text is wrapped."""
    parts = [
        text.wrap(console, width) if column.cut == "wrap" and text.cell_len > width else [text]
        for column, width, text in cells
    ]
    for n in range(max(map(len, parts), default=0)):
        line = Text()
        for i, ((column, width, text), part) in enumerate(zip(cells, parts, strict=True)):
            shown = part[n] if n < len(part) else Text()
            line.append(" " if i else "")
            line.append_text(sized(shown, width, column.right or text.justify == "right", column.cut))
        line.rstrip()
        console.print(line, crop=False, overflow="ignore", no_wrap=True)


def cell(value: Any) -> Text:
    """A value formatted for a table."""
    if isinstance(value, Bar):
        return Text(bar(value.share, value.width))
    if value is None:
        return Text("–", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return value if isinstance(value, Text) else Text(display_line(str(value)))


def show_text(text: str, style: str = "") -> None:
    """Lines of a pool's or an LLM's text, made safe to display."""
    stdout().print(Text(display_text(text), style=style))


def show_hint(text: str, style: str = "") -> None:
    """Lines of our own, with commands that can be pasted."""
    show_text(completed(text), style)


def bar(share: float, width: int = 10) -> str:
    """A share in [0, 1] as a bar of eighth blocks."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
