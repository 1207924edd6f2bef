"""Texts of the Demos tab: the search, a row as a line with its ledger entry, and suspects with their evidence."""

from __future__ import annotations

import re

from rich.table import Table
from rich.text import Text

from ....engine.checks.browse import DemosQuery, FoundRows
from ....engine.checks.ledger import LedgerEntry
from ....engine.checks.suspects import LabelCount, Suspect
from ....engine.pool.display import display_line
from ....engine.store.demonstrations import Listed
from ....render.checks import PARTS
from ....render.columns import LineColumn
from ...widgets.lines import Line
from .model import STATE_NAMES, DemosModel
from .suspects import SuspectsModel


def columns_for(asked: DemosQuery) -> list[LineColumn]:
    flips = [
        LineColumn("effect", "effect", 7, right=True),
        LineColumn("flips", "flips", 6, right=True, rank=1, sortable=False),
    ]
    return [
        LineColumn("id", "id", 10, rank=4, grow=1, most=16, cut="start"),
        LineColumn("source", "source", 10, rank=3, grow=1, most=18, cut="middle"),
        *(flips if asked.by_ledger else []),
        LineColumn("input", "input", 20, grow=6),
        LineColumn("output", "output", 10, grow=2, most=32),
    ]


def asked_line(model: DemosModel) -> Text:
    """The search and filters, and the number of rows found."""
    f = model.asked.filter
    parts = [
        model.asked.among.name if model.asked.among else "",
        "" if f.split == "pool" else f.split,
        f"source {display_line(f.source, 20)}" if f.source is not None else "",
        f"output {display_line(f.label, 20)}" if f.label is not None else "",
        "" if f.pruned is None else STATE_NAMES[f.pruned],
        model.asked.only,
        "repeats" if f.duplicates else "",
    ]
    text = Text(" · ".join(filter(None, parts)), "accent", no_wrap=True, overflow="ellipsis")
    if marked := model.marks.count:
        text.append(f"  {marked:,} marked", "title")
        hidden = marked - len(model.marks.among(model.rows))
        text.append(f", {hidden:,} of them not shown" if hidden else "", "warn")
    more = "" if model.found is None or model.found.whole else "+"
    return text.append(f"  {len(model.rows):,}{more} row{'' if len(model.rows) == 1 else 's'}", "muted")


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


SUSPECTS = [
    LineColumn("id", "id", 10, rank=4, grow=1, most=16, cut="start", sortable=False),
    LineColumn("source", "source", 10, rank=3, grow=1, most=18, sortable=False, cut="middle"),
    LineColumn("kind", "kind", 9, grow=1, most=20, sortable=False),
    LineColumn("weight", "how bad", 8, right=True, sortable=False),
    LineColumn("input", "input", 20, grow=6, sortable=False),
    LineColumn("output", "output", 10, grow=2, most=32, sortable=False),
]
LABELS = [
    LineColumn("label", "label", 12, grow=1, most=48, sortable=False),
    LineColumn("active", "active", 7, right=True, sortable=False),
    LineColumn("suspects", "suspects", 8, right=True, sortable=False),
    LineColumn("left", "left", 7, right=True, sortable=False),
]


def suspects_line(model: SuspectsModel) -> Text:
    """What is being computed, or the number of suspects and marks, and what could not be checked."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if model.check is not None:
        now = model.progress
        share = f" {now.done / now.total:.0%}" if now and now.total else ""
        text.append(f"checking the pool: {now.task}{share}" if now else "checking the pool …", "accent")
        if model.found is None:
            return text
        text.append("; below the latest result  ", "muted")
    if model.trouble:
        return text.append(display_line(model.trouble), "bad")
    if model.found is None:
        return text
    text.append(f"{len(model.shown):,} suspect{'' if len(model.shown) == 1 else 's'}", "title")
    if model.kind:
        text.append(f" · {model.kind}", "accent")
    if marked := len(model.marked()):
        text.append(f"  {marked:,} marked", "title")
    return text.append("  " + display_line("; ".join(model.found.notes)), "muted")


def suspect_line(row: Listed, suspect: Suspect) -> Line:
    kinds = suspect.kinds[0] + (f" +{len(suspect.kinds) - 1}" if len(suspect.kinds) > 1 else "")
    cells = (row.id, row.source, kinds, share(suspect.weight), display_line(row.input),
             display_line(row.output))  # fmt: skip
    return Line(cells)


def evidence_table(suspect: Suspect) -> Table:
    """Each finding with its severity and suggestion, then the parts of the posterior as log odds."""
    table = Table(box=None, show_header=False, pad_edge=False, expand=True, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1)
    for finding in suspect.findings:
        text = Text(display_line(finding.evidence, 400))
        text.append(f" → {display_line(finding.suggestion, 120)}", "accent")
        table.add_row(Text(finding.kind, "warn"), share(finding.severity), text)
    posterior = Text("probability that it hurts", "muted")
    if suspect.evidence.suggested:
        posterior = Text.assemble(("more likely: ", "muted"), (display_line(suspect.evidence.suggested, 120), "accent"))
    table.add_row(Text("posterior", "warn"), share(suspect.evidence.posterior), posterior)
    for name, value in sorted(suspect.evidence.parts.items(), key=lambda part: -abs(part[1])):
        style = "bad" if value > 0.05 else "good" if value < -0.05 else "muted"
        text = Text(PARTS[name].format(**suspect.evidence.counts), "muted")
        table.add_row(Text(f"  {name}"), Text(f"{value:+.1f}", style), text)
    return table


def label_line(count: LabelCount) -> Line:
    cells = (count.label, count.active, count.active - count.left, count.left)
    return Line(cells, "bad" if count.vanishes else "", ("✗", "bad") if count.vanishes else (" ", ""))


def share(value: float) -> Text:
    """A share in [0, 1], as ``.93``; what only rounding would make 1 is ``>.99``."""
    text = ">.99" if 0.995 <= value < 1 else f"{value:.2f}".removeprefix("0")
    return Text(text, "bad" if value >= 0.9 else "warn" if value >= 0.5 else "")
