"""Texts of the Demos tab: the search, and a row as a line with its ledger entry."""

from __future__ import annotations

import re

from rich.text import Text

from ....engine.pool.display import display_line
from ....engine.ranker.browse import DemosQuery, FoundRows
from ....engine.ranker.ledger import LedgerEntry
from ....engine.store.demonstrations import Listed
from ...widgets.lines import Column, Line
from .model import STATE_NAMES, DemosModel


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


def asked_line(model: DemosModel) -> Text:
    """The search and filters, and the number of rows found."""
    f = model.asked.filter
    parts = [
        "" if f.split == "pool" else f.split,
        f"source {display_line(f.source, 20)}" if f.source is not None else "",
        f"output {display_line(f.label, 20)}" if f.label is not None else "",
        "" if f.pruned is None else STATE_NAMES[f.pruned],
        model.asked.only,
        "repeats" if f.duplicates else "",
    ]
    told = Text(" · ".join(filter(None, parts)), "accent", no_wrap=True, overflow="ellipsis")
    if marked := model.marks.count:
        told.append(f"  {marked:,} marked", "title")
    more = "" if model.found is None or model.found.whole else "+"
    return told.append(f"  {len(model.rows):,}{more} row{'' if len(model.rows) == 1 else 's'}", "muted")


def row_line(row: Listed, shown: FoundRows) -> Line:
    sign = ("✗", "bad") if row.pruned else ("≈", "warn") if row.duplicate_of is not None else (" ", "")
    flips = _flips(shown.known.ledger.get(row.row)) if shown.asked.by_ledger else ()
    sought = shown.asked.filter.search
    cells = (row.id, row.source, *flips, _highlighted(row.input, sought), _highlighted(row.output, sought))
    return Line(cells, "muted" if row.pruned else "", sign)


def _highlighted(value: str, sought: str) -> Text:
    """A text with the search text highlighted."""
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
