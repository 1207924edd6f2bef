"""Lines and texts of the files that can be indexed. No Textual."""

from __future__ import annotations

from rich.text import Text

from ..engine.index.chosen import FIELDS, ChosenFiles
from ..engine.index.listing import Look
from ..engine.pool.display import display_line
from ..render.columns import LineColumn
from ..render.files import amount, columns_of
from .widgets.lines import Line

COLUMNS = (
    LineColumn("file", "file", 16, grow=3, most=44, cut="middle"),
    LineColumn("use", "use for", 10),
    LineColumn("rows", "rows", 12, right=True),
    LineColumn("input", "input", 12, grow=2, most=26, cut="middle"),
    LineColumn("output", "output", 12, grow=2, most=26, cut="middle"),
    LineColumn("doubt", "what is doubtful", 28, grow=4, rank=1, picture=True),
)
"""Of the form; what is doubtful stands below the list as well."""


def line_of(files: ChosenFiles, path: str) -> Line:
    """The line of a file in the form."""
    seen, use, why = files.seen(path), files.use(path), files.why(path)
    doubt = Text(display_line(why or "; ".join(files.doubts(path))), "warn" if not why else "bad" if use else "muted")
    names = (path, use or "–", amount(files.here.get(path), seen), *columns_of(seen, files.own(path)))
    sign = ("▲", "bad") if why and use else ("●", "accent") if use else ("○", "muted")
    return Line((*map(display_line, names), doubt), "" if use else "muted", sign)


def held_out(files: ChosenFiles) -> Text:
    """What is held out of the pool, or why it cannot be."""
    if wrong := files.wrong_shares():
        return Text(wrong, "bad")
    shares = ", ".join(f"{name} {float(share):.0%}" for name, share in files.shares.items())
    return Text(f"held out: {shares}" if shares else "", "muted")


def told_of(files: ChosenFiles, path: str, width: int) -> Text:
    """What is wrong or doubtful about a file, and its first row as it will be read."""
    seen, why = files.seen(path), files.why(path)
    lines = [Text(f"▲ {display_line(why)}", "bad")] if why else []
    lines += [Text(f"▲ {display_line(doubt)}", "warn") for doubt in files.doubts(path)]
    if isinstance(seen, Look) and seen.usable:
        lines += [Text(display_line(note), "muted") for note in seen.peek.understood.notes]
        rows = [(read.row, read.source) for read in seen.peek.rows if read.row]
        for row, source in rows[:1]:
            values = (row.input, row.output, source, " | ".join(row.options), row.context)
            told = ((name, value) for name, value in zip(FIELDS, values, strict=True) if value)
            lines += [Text.assemble((f"{name:<9}", "primary"), display_line(value, width)) for name, value in told]
    return Text("\n").join(lines)
