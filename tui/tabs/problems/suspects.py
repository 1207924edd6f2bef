"""State of the list of suspects: the latest check, what is left of it, its marks. No Textual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np
from rich.table import Column, Table
from rich.text import Text

from ....engine.base.arrays import Int64s
from ....engine.base.progress import CancelToken, Event
from ....engine.checks.suspects import LabelCount, PoolSuspects, Suspect, SuspectsState, label_counts
from ....engine.pool.display import display_line
from ....engine.store.browse import Listed
from ....render.checks import PARTS
from ....render.columns import LineColumn
from ...model import MarkedRows, with_hits
from ...widgets.demonstration import RowDetails
from ...widgets.lines import Line, blocks


class SuspectsModel(MarkedRows):
    """The suspects of the latest check that are neither pruned nor kept, those of one kind if ``kind`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.found: PoolSuspects | None = None
        self.pool_state: SuspectsState | None = None
        self.kind = self.sought = ""
        self._holding: Set[int] = frozenset()
        """Rows that have the text that is ``sought``."""
        self.shown: list[Suspect] = []
        """The suspects in the table, in its order."""
        self.seen: RowDetails | None = None
        """The demonstration in full."""
        self.check: CancelToken | None = None
        """Cancels the check under way."""
        self.progress: Event | None = None

    # The check.

    def begin(self, again: bool) -> CancelToken | None:
        """The token of a check, if one is needed and none is under way. Decisions make the list shorter and nothing
        else, so they need a new one only if it was asked for ``again``."""
        now, found = self.pool_state, self.found
        if now is None or self.check is not None:
            return None
        if found is not None and not (now.key != found.key if again else now.outdates(found)):
            return None
        self.check, self.progress = CancelToken(), None
        return self.check

    def stop(self) -> None:
        """Cancel the check under way."""
        if self.check is not None:
            self.check.cancel()
        self.check = self.progress = None

    def take(self, found: PoolSuspects) -> None:
        """Set the result of the check."""
        self.found, self.check, self.progress = found, None, None

    @property
    def left(self) -> list[Suspect] | None:
        """The suspects that are neither settled, nor pruned, nor gone from their file; None before the first check."""
        if self.found is None or (now := self.pool_state) is None:
            return [*self.found.rows] if self.found else None
        here = np.isin([one.row for one in self.found.rows], now.active).tolist()
        return [one for one, is_here in zip(self.found.rows, here, strict=True) if is_here and one.row not in now.gone]

    def leave_out(self, rows: Sequence[int]) -> None:
        """A decision was made on these."""
        if self.pool_state is not None:
            self.pool_state = replace(self.pool_state, gone=self.pool_state.gone.union(rows))

    # The list.

    def arrange(self, cursor: int) -> int:
        """Choose the suspects to show; returns the line of the one that was at ``cursor``, or that line."""
        here = self.at(cursor)
        self.shown = [one for one in self.listed if not self.sought or one.row in self._holding]
        self.rows = np.array([one.row for one in self.shown], np.int64)
        at = np.flatnonzero(self.rows == here.row) if here is not None else self.rows[:0]
        return int(at[0]) if at.size else cursor

    @property
    def listed(self) -> list[Suspect]:
        """Those of the kind, before what is sought."""
        return [one for one in self.left or () if not self.kind or self.kind in one.kinds]

    def search(self, sought: str, rows: Int64s) -> None:
        """Show those of the rows, which have what is sought."""
        self.sought, self._holding = sought, frozenset(rows.tolist())

    def at(self, line: int) -> Suspect | None:
        """The suspect in this line."""
        return self.shown[line] if line < len(self.shown) else None

    def kinds(self) -> list[tuple[str, int]]:
        """Kinds of the suspects that are left, with their numbers, the most frequent first."""
        return Counter(kind for one in self.left or () for kind in one.kinds).most_common()

    def labels(self) -> list[LabelCount]:
        """Labels before and after all suspects shown are pruned; empty if the answers are not labels."""
        if self.pool_state is None:
            return []
        return label_counts(self.pool_state.labels, Counter(one.evidence.output for one in self.shown))

    # Marks and decisions.

    def marked(self) -> list[Suspect]:
        """The suspects shown that are marked."""
        return [one for one in self.shown if one.row in self.marks] if self.marks.count else []

    def targets(self, line: int) -> list[Suspect]:
        """The suspects of a decision: the marked ones, or that in this line."""
        return self.marked() or self.shown[line : line + 1]


SUSPECTS = [
    LineColumn("weight", "doubt", 6, right=True),
    LineColumn("output", "given", 13, grow=4, most=24, cut="middle"),
    LineColumn("suggested", "→ suggested", 16, grow=6, most=26, cut="middle"),
    LineColumn("source", "source", 10, rank=2, grow=1, most=18, cut="middle"),
    LineColumn("input", "input", 20, grow=8),
    LineColumn("kind", "kind", 9, rank=3, grow=1, most=12),
    LineColumn("id", "id", 10, rank=4, grow=1, most=16, cut="start"),
]
LABELS = [
    LineColumn("label", "label", 12, grow=1, most=48),
    LineColumn("active", "active", 7, right=True),
    LineColumn("suspects", "suspects", 8, right=True),
    LineColumn("left", "left", 7, right=True),
]


def suspects_line(model: SuspectsModel) -> Text:
    """What is being computed, or the number of suspects and marks, and what could not be checked."""
    text = Text()
    if model.check is not None:
        now = model.progress
        share = f" {now.done / now.total:.0%}" if now and now.total else ""
        text.append(f"checking the pool: {now.task}{share}" if now else "checking the pool …", "accent")
        if model.found is None:
            return text
        text.append("; below the latest result  ", "muted")
    if model.found is None:
        return text
    of = f" of {len(model.listed):,}" if model.sought else ""
    text.append(f"{len(model.shown):,}{of} suspect{'' if len(model.shown) == 1 and not of else 's'}", "title")
    if model.kind:
        text.append(f" · {model.kind}", "accent")
    if marked := len(model.marked()):
        text.append(f"  {marked:,} marked", "title")
    if model.shown:  # how many in how much doubt
        tenths = Counter(min(9, int(10 * one.weight)) for one in model.shown)
        text.append("  doubt 0 ", "muted").append(blocks([tenths[at] for at in range(10)], 0)).append(" 1", "muted")
    if model.found.notes:
        text.append("\n" + display_line("; ".join(model.found.notes)), "muted")
    return text


def suspect_line(row: Listed, suspect: Suspect, sought: str = "") -> Line:
    kinds = suspect.kinds[0] + (f" +{len(suspect.kinds) - 1}" if len(suspect.kinds) > 1 else "")
    suggested = Text(f"→ {display_line(suspect.suggested)}", "accent") if suspect.suggested else ""
    given, asked = with_hits(row.output, sought), with_hits(row.input, sought)
    return Line((share(suspect.weight), given, suggested, row.source, asked, kinds, row.id))


def evidence_table(suspect: Suspect) -> Table:
    """Each finding with its severity and suggestion, then the parts of the posterior as log odds."""
    columns = Column(no_wrap=True), Column(no_wrap=True, justify="right"), Column(ratio=1)
    table = Table.grid(*columns, padding=(0, 1, 0, 0), expand=True)
    for finding in suspect.findings:
        text = Text(display_line(finding.evidence, 400))
        text.append(f" → {display_line(finding.suggestion, 120)}", "accent")
        table.add_row(Text(finding.kind, "warn"), share(finding.severity), text)
    posterior = Text("probability that it hurts, by the parts below", "muted")
    if suspect.evidence.suggested:
        posterior.append("; more likely: ").append(display_line(suspect.evidence.suggested, 120), "accent")
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
