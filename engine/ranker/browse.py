"""What the tab Demos is asked for, and the rows that are found: their order first, then those in view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np

from ..arrays import Int64s
from ..store.browse import SortKey, Stop, listed, matching, pruned_rows, row_numbers
from ..store.demonstrations import Filter, Listed
from ..store.workspace import Workspace
from .ledger import LedgerEntry, ledger

Rows = Int64s
SORTS = ("row", "effect", "source", "id", "input", "output", "length")
ONLY = ("", "misleading", "helpful")
PAGE = 60
"""Lines of a tall screen."""

NARROWING = 200_000
"""A search that goes on from at most so many rows looks through these alone."""

PART = 100_000
"""Of a large pool so many rows are searched first, so that matches are seen while the rest is still searched."""


@dataclass(frozen=True, slots=True)
class DemosQuery:
    """What is to be shown: `Filter`, what the ledger says (``only``: misleading or helpful), and the order."""

    filter: Filter = Filter()
    only: str = ""
    sort: str = "row"
    descending: bool = False

    @property
    def by_ledger(self) -> bool:
        return bool(self.only) or self.sort == "effect"


@dataclass(frozen=True, slots=True)
class Known:
    """What stays the same while only the question changes. ``numbers``: every row number lies below."""

    pruned: Rows
    ledger: Mapping[int, LedgerEntry]
    numbers: int


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Row numbers in their order, and the lines from ``first`` on that come into view. Not ``whole``: more matches
    may follow."""

    asked: DemosQuery
    known: Known
    rows: Rows
    first: int
    page: Sequence[Listed]
    whole: bool


def known_now(workspace: Workspace) -> Known:
    """As the workspace stands at this moment."""
    return Known(pruned_rows(workspace), {s.row: s for s in ledger(workspace)}, row_numbers(workspace))


def in_parts(asked: DemosQuery, known: Known) -> bool:
    """Is it a search long enough that its first matches should not wait for the others?"""
    plain = asked.sort == "row" and not asked.descending and not asked.only
    return bool(asked.filter.search) and plain and known.numbers > 2 * PART


def find_rows(
    workspace: Workspace,
    asked: DemosQuery,
    known: Known,
    before: FoundRows | None,
    top: int,
    stop: Stop,
    part: bool = False,
) -> FoundRows:
    """The rows asked for, in order, and the page that is seen first: the same place where the question is the same.
    ``part``: among the first `PART` rows alone."""
    among = None
    if asked.only:
        hurtful = asked.only == "misleading"
        among = np.array(
            [s.row for s in known.ledger.values() if (s.hurt > s.helped if hurtful else s.helped > s.hurt)], np.int64
        )
    elif before is not None and before.known is known and _narrows(asked, before):
        among, part = before.rows, False
    order = cast(SortKey, asked.sort) if asked.sort in get_args(SortKey) else "row"
    rows = matching(workspace, asked.filter, order, asked.descending, among, PART if part else None, stop)
    if asked.sort == "effect":
        rows = _by_effect(rows, known.ledger, asked.descending)
    first = max(0, min(top, len(rows)) - PAGE) if before is not None and before.asked == asked else 0
    page = listed(workspace, rows[first : first + 3 * PAGE], known.pruned)
    return FoundRows(asked, known, rows, first, page, whole=not part)


def _narrows(asked: DemosQuery, before: FoundRows) -> bool:
    """Only more letters were typed, so that every match is among the earlier ones."""
    old, new = before.asked.filter, asked.filter
    typed = old.search and new.search.lower().startswith(old.search.lower())
    same = bool(typed) and replace(new, search=old.search) == old
    return same and before.whole and len(before.rows) <= NARROWING


def _by_effect(rows: Rows, ledger: Mapping[int, LedgerEntry], descending: bool) -> Rows:
    """Rows of the ledger by their effect, then those that training never showed."""
    known = sorted(ledger, key=lambda row: ledger[row].estimate, reverse=descending)
    asked = np.array(known, np.int64)
    metadata = asked[np.isin(asked, rows)]
    return np.concatenate([metadata, rows[~np.isin(rows, metadata)]])
