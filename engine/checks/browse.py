"""Queries of the Demos tab: first the order of the rows found, then the rows in view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np

from ..base.arrays import Int64s
from ..llm.graded import grading_set
from ..store.browse import Filter, Listed, SortKey, Stop, listed, matching, pruned_rows, row_numbers
from ..store.settings import Settings
from ..store.trials import Grading
from ..store.workspace import Workspace
from .ledger import LedgerEntry, ledger

Rows = Int64s
SORTS = ("row", "effect", "source", "id", "input", "output", "length")
ONLY = ("", "misleading", "helpful")
PAGE = 60
"""Lines of a tall screen."""

NARROWING = 200_000
"""A search that narrows at most this many rows searches only these."""

PART = 100_000
"""The first part of a large pool to search, so that its matches are shown while the rest is searched."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """Certain rows, by number, and what they are."""

    name: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class DemosQuery:
    """What to show: `Filter`, the kind of ledger entries (``only``: misleading or helpful), the order, and if only
    certain rows are looked at, those."""

    filter: Filter = Filter()
    only: str = ""
    sort: str = "row"
    descending: bool = False
    among: RowSet | None = None

    @property
    def by_ledger(self) -> bool:
        return bool(self.only) or self.sort == "effect"


@dataclass(frozen=True, slots=True)
class LedgerState:
    """State that does not depend on the query. ``ledger``: by answers that are graded as the settings say, which is
    ``grading``; ``numbers``: every row number is below it."""

    pruned: Rows
    ledger: Mapping[int, LedgerEntry]
    numbers: int
    grading: Grading


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Row numbers in order, and the lines from ``first`` on that are in view. Not ``whole``: more matches may
    follow."""

    asked: DemosQuery
    known: LedgerState
    rows: Rows
    first: int
    page: Sequence[Listed]
    whole: bool


def ledger_state(workspace: Workspace, settings: Settings) -> LedgerState:
    grading = grading_set(workspace, settings)
    entries = {entry.row: entry for entry in ledger(workspace, grading=grading)}
    return LedgerState(pruned_rows(workspace), entries, row_numbers(workspace), grading)


def shows_parts(asked: DemosQuery, known: LedgerState) -> bool:
    """Whether a search takes so long that its first matches should be shown before the others."""
    plain = asked.sort == "row" and not (asked.descending or asked.only or asked.among)
    return bool(asked.filter.search) and plain and known.numbers > 2 * PART


def find_rows(
    workspace: Workspace,
    asked: DemosQuery,
    state: LedgerState,
    before: FoundRows | None,
    top: int,
    stop: Stop,
    part: bool = False,
) -> FoundRows:
    """The matching rows, in order, and the first page: the same position if the query is the same. ``part``: only among
    the first `PART` rows."""
    among = None
    if asked.only:
        hurtful = asked.only == "misleading"
        among = np.array(
            [s.row for s in state.ledger.values() if (s.hurt > s.helped if hurtful else s.helped > s.hurt)], np.int64
        )
    elif before is not None and before.known is state and _narrows(asked, before):
        among, part = before.rows, False
    if asked.among is not None:
        among = asked.among.rows if among is None else np.intersect1d(among, asked.among.rows)
    order = cast(SortKey, asked.sort) if asked.sort in get_args(SortKey) else "row"
    rows = matching(workspace, asked.filter, order, asked.descending, among, PART if part else None, stop)
    if asked.sort == "effect":
        rows = _by_effect(rows, state.ledger, asked.descending)
    first = max(0, min(top, len(rows)) - PAGE) if before is not None and before.asked == asked else 0
    page = listed(workspace, rows[first : first + 3 * PAGE], state.pruned)
    return FoundRows(asked, state, rows, first, page, whole=not part)


def _narrows(asked: DemosQuery, before: FoundRows) -> bool:
    """Whether letters were only added, so that every match is among the earlier ones."""
    old, new = before.asked.filter, asked.filter
    typed = old.search and new.search.lower().startswith(old.search.lower())
    same = bool(typed) and replace(new, search=old.search) == old
    return same and asked.among is before.asked.among and before.whole and len(before.rows) <= NARROWING


def _by_effect(rows: Rows, ledger: Mapping[int, LedgerEntry], descending: bool) -> Rows:
    """Rows of the ledger by effect, then those that training never showed."""
    shown = np.array(sorted(ledger, key=lambda row: ledger[row].estimate, reverse=descending), np.int64)
    shown = shown[np.isin(shown, rows)]
    return np.concatenate([shown, rows[~np.isin(rows, shown)]])
