"""Tables and lines of text on stdout, shared by all commands.

Texts are passed to rich as plain text, never as markup; `console.SafeConsole` makes control characters visible on
output. `cell` and `display_line` are for text that has to stay on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..engine.pool.display import display_line, display_text
from .console import stdout

NARROW = 16
"""A column no wider than this keeps its width on a small terminal."""


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "", note: str = "") -> None:
    """A table with right-aligned numbers; a column named ``x>`` takes the remaining width."""
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float, type(None))) for row in rows) for i in range(len(columns))
    ]
    table = Table(
        title=display_line(title) or None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    cells = [[cell(value) for value in row] for row in rows]
    for i, (name, right) in enumerate(zip(columns, numeric, strict=True)):
        wide = name.endswith(">")
        widest = max([len(name), *(row[i].cell_len for row in cells)])
        table.add_column(
            display_line(name.rstrip(">")),
            justify="right" if right else "left",
            no_wrap=not wide,
            ratio=1 if wide else None,
            min_width=widest if widest <= NARROW else None,  # figures are never cut, texts are
            overflow="ellipsis",
        )
    for line in cells:
        table.add_row(*line)
    console = stdout()
    console.print(table)
    if note:
        console.print(Text(note, style="dim"))


def cell(value: Any) -> Text:
    """A value formatted for a table."""
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


def bar(share: float, width: int = 10) -> str:
    """A share in [0, 1] as a bar of eighth blocks."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
