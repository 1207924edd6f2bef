"""What the tab Demos writes: a row as a line, with what the ledger knows of it."""

from __future__ import annotations

import re

from rich.text import Text

from ....engine.pool.display import display_line
from ....engine.ranker.browse import DemosQuery, FoundRows
from ....engine.ranker.ledger import LedgerEntry
from ....engine.store.demonstrations import Listed
from ...widgets.lines import Column, Line


def columns_for(asked: DemosQuery) -> list[Column]:
    flips = [
        Column("effect", "effect", 7, right=True),
        Column("flips", "flips", 6, right=True, rank=1, sortable=False),
    ]
    return [
        Column("id", "id", 10, rank=4, grow=1, most=16, tail=True),
        Column("source", "source", 10, rank=3, grow=1, most=18),
        *(flips if asked.by_ledger else []),
        Column("input", "input", 20, grow=6),
        Column("output", "output", 10, grow=2, most=32),
    ]


def row_line(row: Listed, shown: FoundRows) -> Line:
    sign = ("✗", "bad") if row.pruned else ("≈", "warn") if row.duplicate_of is not None else (" ", "")
    flips = _flips(shown.known.ledger.get(row.row)) if shown.asked.by_ledger else ()
    sought = shown.asked.filter.search
    cells = (row.id, row.source, *flips, _lit(row.input, sought), _lit(row.output, sought))
    return Line(cells, "muted" if row.pruned else "", sign)


def _lit(value: str, sought: str) -> Text:
    """A text with what was searched for lit up."""
    text = Text(display_line(value))
    if sought:
        text.highlight_regex(re.compile(re.escape(display_line(sought)), re.IGNORECASE), "title")
    return text


def _flips(entry: LedgerEntry | None) -> tuple[Text, Text]:
    if entry is None:
        return Text(), Text()
    sure = "bad" if entry.high < 0 else "good" if entry.low > 0 else ""
    turned = Text.assemble(
        (f"+{entry.helped}", "good" if entry.helped else "muted"), " ",
        (f"-{entry.hurt}", "bad" if entry.hurt else "muted"),
    )  # fmt: skip
    return Text(f"{entry.estimate:+.3f}", sure), turned
