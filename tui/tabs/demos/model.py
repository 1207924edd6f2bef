"""State of the Demos tab: search and filters, the rows found, and the marked rows. No Textual.

Keys become calls of `DemosModel`; a search is a `Search` that a thread executes, and its result is passed back to the
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.text import Text

from ....engine.checks.browse import (
    ONLY,
    SORTS,
    DemosQuery,
    FoundRows,
    LedgerState,
    Rows,
    RowSet,
    find_rows,
    ledger_state,
    shows_parts,
)
from ....engine.checks.ledger import LedgerEntry
from ....engine.pool.display import display_line
from ....engine.pool.records import SPLITS
from ....engine.store.browse import Filter, Listed, Stop
from ....engine.store.settings import Settings
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ...model import POOL_EMPTY, Empty, MarkedRows, TabModel, beside, with_hits
from ...widgets.demonstration import RowDetails
from ...widgets.lines import Line

BEHIND, AHEAD = 2, 8
"""Rows read with the one under the cursor, before and from it on: for the next keys, nothing is read."""

STATES: tuple[bool | None, ...] = (None, False, True)
STATE_NAMES = {None: "any", False: "active", True: "pruned"}

CHOICES = ("Source", "Output", "Split", "State", "Ledger", "Repeats", "Clear all")
"""What rows can be filtered by, as a list offers it."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for rows; ``top`` is the line at the top of the screen, ``part``: only the first matches."""

    asked: DemosQuery
    known: LedgerState
    before: FoundRows | None
    top: int
    stop: Stop
    part: bool

    def find(self, workspace: Workspace) -> FoundRows:
        """The rows. For threads."""
        return find_rows(workspace, self.asked, self.known, self.before, self.top, self.stop, self.part)


class Nearby:
    """Rows in full that were read with the one under the cursor."""

    def __init__(self) -> None:
        self._rows: Mapping[int, RowDetails] = {}
        self._known: LedgerState | None = None

    def take(self, rows: Mapping[int, RowDetails], known: LedgerState) -> None:
        """These were read, in the state of the workspace in which ``known`` was."""
        self._rows, self._known = rows, known

    def get(self, row: int, known: LedgerState) -> RowDetails | None:
        """The row, if it was read in the same state; the workspace may have changed since another one."""
        return self._rows.get(row) if known is self._known else None


def around(rows: Rows, at: int) -> list[int]:
    """Those of the ``rows`` in the lines about ``at``."""
    return [int(row) for row in rows[max(0, at - BEHIND) : at + AHEAD]]


class DemosModel(TabModel, MarkedRows):
    """One search at a time, its rows, and marks, which are kept across searches."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = DemosQuery()
        self.known: LedgerState | None = None
        self.unread = False
        """The workspace may have changed since that was ``known``."""
        self.unsearched: tuple[DemosQuery, int] = self.asked, 0
        """The latest query without a text to search, and how many rows it found."""
        self.found: FoundRows | None = None
        """The rows shown; they may belong to an earlier search than ``asked``."""
        self.seen: RowDetails | None = None
        """The demonstration in full."""
        self.near = Nearby()
        self._wanted: int | None = None
        """The row that the cursor goes to."""
        self._stop = Stop()

    def remember(self) -> dict[str, Any]:
        f = self.asked.filter
        return {
            "source": f.source, "split": f.split, "label": f.label, "pruned": f.pruned, "duplicates": f.duplicates,
            "only": self.asked.only, "sort": self.asked.sort, "descending": self.asked.descending,
        }  # fmt: skip

    def recall(self, stored: dict[str, Any]) -> None:
        def text(name: str) -> str | None:
            value = stored.get(name)
            return value if isinstance(value, str) else None

        split, sort, only = text("split") or "pool", text("sort") or "row", text("only") or ""
        pruned = stored.get("pruned")
        self.asked = DemosQuery(
            Filter(
                text("source"),
                split if split in SPLITS else "pool",
                pruned if isinstance(pruned, bool) else None,
                duplicates=stored.get("duplicates") is True,
                label=text("label"),
            ),
            only if only in ONLY else "",
            sort if sort in SORTS else "row",
            stored.get("descending") is True,
        )

    # Results.

    def read(self, workspace: Workspace, settings: Settings, top: int) -> FoundRows | Empty:
        """The matching rows of the current workspace. For threads."""
        matches = find_rows(workspace, self.asked, ledger_state(workspace, settings), self.found, top, self._stop)
        if not len(matches.rows) and self.asked.filter == Filter() and not (self.asked.only or self.asked.among):
            return POOL_EMPTY
        return matches

    def search(self, top: int) -> Search | None:
        """The current search; a running one is stopped. None if the workspace has to be read first."""
        if self.known is None or self.unread:
            return None
        self._stop.stop()
        self._stop = Stop()
        return Search(self.asked, self.known, self.found, top, self._stop, shows_parts(self.asked, self.known))

    def rest_of(self, search: Search, found: FoundRows, top: int) -> Search | None:
        """The rest of a search whose first matches were found."""
        return None if found.whole else replace(search, before=found, top=top, part=False)

    def take(self, matches: FoundRows, cursor: int) -> int | None:
        """Set the rows found; returns the line of the row that was at ``cursor``, or None if the search has changed.
        The line number stays if that row is no longer found."""
        here = self.row(cursor)
        same = self.found is not None and self.found.asked == matches.asked
        if self._wanted is not None and matches.asked == self.asked:
            here, same, self._wanted = self._wanted, True, None
        self.unread = self.unread and matches.known is self.known
        self.known, self.rows, self.found = matches.known, matches.rows, matches
        if not matches.asked.filter.search:
            self.unsearched = matches.asked, len(matches.rows)
        if not same:
            return None
        at = np.flatnonzero(matches.rows == here) if here is not None else matches.rows[:0]
        return int(at[0]) if at.size else cursor

    def row(self, at: int) -> int | None:
        """The row number in line ``at``."""
        return int(self.rows[at]) if at < len(self.rows) else None

    # Search and filters.

    def type_search(self, value: str) -> bool:
        """Set the search text; returns whether it has changed."""
        if value == self.asked.filter.search:
            return False
        self.filter_by(search=value)
        return True

    def filter_by(self, **changes: Any) -> None:
        """Change fields of `Filter`."""
        self.asked = replace(self.asked, filter=replace(self.asked.filter, **changes))

    def of(self, among: RowSet | None = None, **fields: Any) -> None:
        """The rows with these fields of `Filter` alone, or certain rows, in the current order."""
        self.asked = replace(self.asked, filter=Filter(**fields), only="", among=among)

    def at_row(self, row: int) -> None:
        """All rows, in the current order, with the cursor on this one."""
        self.of()
        self._wanted = row

    def clear(self) -> None:
        """Clear search, filters and marks."""
        self.asked = DemosQuery()
        self.marks.clear()

    def next_sort(self) -> None:
        """Sort by the next column; by effect only if the ranker was trained."""
        order = [name for name in SORTS if name != "effect" or (self.known and self.known.ledger)]
        at = order.index(self.asked.sort) if self.asked.sort in order else -1
        self.asked = replace(self.asked, sort=order[(at + 1) % len(order)], descending=False)

    def sort_by(self, column: str) -> None:
        """Sort by this column, or reverse the order if it is the current one."""
        same = column == self.asked.sort
        self.asked = replace(self.asked, sort=column, descending=same and not self.asked.descending)

    def reverse(self) -> None:
        self.asked = replace(self.asked, descending=not self.asked.descending)

    def next_only(self) -> None:
        """All; those that mislead, the worst first; those that help, the best first."""
        only = beside(ONLY, self.asked.only)
        self.asked = replace(self.asked, only=only, sort="effect" if only else "row", descending=only == "helpful")

    def next_state(self) -> None:
        """Any, active only, pruned only."""
        self.filter_by(pruned=beside(STATES, self.asked.filter.pruned))

    def switch_repeats(self) -> None:
        """Only rows that repeat an earlier one, or all."""
        self.filter_by(duplicates=not self.asked.filter.duplicates)

    def choices(self) -> list[tuple[str, str]]:
        """`CHOICES` with their current values."""
        f = self.asked.filter
        repeats = "only" if f.duplicates else "all"
        now = (f.source or "all", f.label or "all", f.split, STATE_NAMES[f.pruned], self.asked.only or "all", repeats)
        return [(name, display_line(value, 40)) for name, value in zip(CHOICES, (*now, ""), strict=True)]

    # Marks and decisions.

    @property
    def searched(self) -> bool:
        """Whether the rows shown are those of the current search."""
        return self.found is not None and self.found.asked == self.asked

    def targets(self, at: int) -> Rows:
        """The rows of a decision: the marked ones among those shown, or that in line ``at`` if none of them is."""
        marked = self.marks.among(self.rows)
        return marked if len(marked) else self.rows[at : at + 1]

    def leave_rows(self) -> None:
        """Show no row until the current search has found some."""
        self.rows, self.found, self.seen = self.rows[:0], None, None

    @property
    def reason(self) -> str:
        """The reason of a decision, for the history."""
        return f"in review, {self.asked.only}" if self.asked.only else "in review"


def columns_for(asked: DemosQuery) -> list[LineColumn]:
    flips = [
        LineColumn("effect", "effect", 7, right=True, sortable=True),
        LineColumn("flips", "flips", 6, right=True, rank=1),
    ]
    return [
        LineColumn("id", "id", 10, rank=4, grow=1, most=16, cut="start", sortable=True),
        LineColumn("source", "source", 10, rank=3, grow=1, most=18, cut="middle", sortable=True),
        *(flips if asked.by_ledger else []),
        LineColumn("input", "input", 20, grow=6, sortable=True),
        LineColumn("output", "output", 10, grow=2, most=32, sortable=True),
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
    among, count = model.unsearched
    of = f" of {count:,}" if count and f.search and among == replace(model.asked, filter=replace(f, search="")) else ""
    return text.append(f"  {len(model.rows):,}{more}{of} row{'' if len(model.rows) == 1 and not of else 's'}", "muted")


def row_line(row: Listed, shown: FoundRows) -> Line:
    sign = ("✗", "bad") if row.pruned else ("≈", "warn") if row.duplicate_of is not None else (" ", "")
    flips = _flips(shown.known.ledger.get(row.row)) if shown.asked.by_ledger else ()
    sought = shown.asked.filter.search
    cells = (row.id, row.source, *flips, with_hits(row.input, sought), with_hits(row.output, sought))
    return Line(cells, "muted" if row.pruned else "", sign)


def _flips(entry: LedgerEntry | None) -> tuple[Text, Text]:
    if entry is None:
        return Text(), Text()
    sure = "bad" if entry.high < 0 else "good" if entry.low > 0 else ""
    turned = Text.assemble(
        (f"+{entry.helped}", "good" if entry.helped else "muted"), " ",
        (f"-{entry.hurt}", "bad" if entry.hurt else "muted"),
    )  # fmt: skip
    return Text(f"{entry.estimate:+.3f}", sure), turned
