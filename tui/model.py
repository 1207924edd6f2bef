"""Shared by the models of tabs. No Textual.

A tab's model (``tabs/<name>/model.py``) holds the tab's state (selection, filters, requests, answers) and implements
what keys do: what to read or ask next. The tab draws it and calls its methods. Cursors, focus and collapsed parts stay
with the widgets; the tab passes the line of a cursor to methods that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from rich.text import Text

from ..engine.base.arrays import Bools, Int64s
from ..engine.base.errors import CurateError
from ..engine.jobs.folder import doing, jobs
from ..engine.jobs.kinds import JobCommand
from ..engine.pool.display import display_line
from ..engine.store.workspace import Workspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to show yet: ``what`` is missing, ``why`` it is needed, and the ``command`` that creates it."""

    what: str
    why: str
    command: str


MOST_WRONG = 400
"""Maximum characters of what is wrong; how it is mended is never cut."""


def told(error: CurateError) -> Text:
    """What is wrong, and on a line of its own how it is mended."""
    fix = f"\n{display_line(error.fix)}" if error.fix else ""
    return Text.assemble((display_line(error.what, MOST_WRONG), "bad"), (fix, "muted"))


def missing(error: CurateError) -> str:
    """Why something cannot be shown, for its place: what is missing, and the command that mends it."""
    fix = display_line(error.fix)
    shown = f"$ {fix}\ny copies the command" if is_command(f"$ {fix}") else fix
    return f"{display_line(error.what)}\n{shown}"


def is_command(line: str) -> bool:
    """Whether a line of `missing` is a command."""
    return line.startswith("$ icl-curate ")


READING = Empty("reading …", "", "")

POOL_EMPTY = Empty("The pool is empty", "Demonstrations appear here after indexing.", "icl-curate index POOL.jsonl")

PROBLEMS = {
    "suspects": ("w", "rows that may be wrong", "icl-curate check"),
    "repeats": ("d", "duplicates side by side", "icl-curate check --kind duplicate"),
    "leaks": ("l", "rows beside the queries they repeat", "icl-curate check --kind leak"),
    "skipped": ("b", "the records that index skipped", "icl-curate skipped"),
}
"""The lists of the tab Problems: the key of each, what it shows, and the command that shows the same."""


def under_way(empty: Empty, workspace: Workspace) -> Empty:
    """What is missing, or if a job is creating it, that job. For threads."""
    job = doing(jobs(workspace), JobCommand.typed(empty.command).kind)
    if job is None:
        return empty
    why = "Its result will be shown here. J shows how far it is."
    return Empty(job.in_words, why, f"icl-curate jobs follow {job.number}")


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A demonstration that is shown, as decisions on it need it: ``reason`` is for the history; ``awaited``: others are
    about to be shown in its place, so a key is not meant for it."""

    row: int
    id: str
    reason: str = ""
    awaited: bool = False


def beside(values: Iterable[T], now: T, by: int = 1) -> T:
    """The value ``by`` places after another one, round the end."""
    listed = list(values)
    return listed[(listed.index(now) + by) % len(listed)]


def with_hits(value: str, sought: str) -> Text:
    """A text from the pool, in which what is sought is underlined."""
    text = Text(display_line(value))
    if sought:
        text.highlight_regex(re.compile(re.escape(display_line(sought)), re.IGNORECASE), "hit")
    return text


class Marks:
    """Rows marked for the next decision, by number."""

    def __init__(self) -> None:
        self._marked: Bools = np.zeros(0, np.bool_)

    @property
    def rows(self) -> Int64s:
        """The marked rows, in ascending order."""
        return np.flatnonzero(self._marked)

    @property
    def count(self) -> int:
        """How many rows are marked."""
        return int(self._marked.sum())

    def among(self, rows: Int64s) -> Int64s:
        """Those of the rows that are marked, in ascending order."""
        known = rows[rows < len(self._marked)]
        return np.sort(known[self._marked[known]])

    def __contains__(self, row: int) -> bool:
        return row < len(self._marked) and bool(self._marked[row])

    def switch(self, rows: Int64s) -> None:
        """Mark these rows, or unmark them if all are marked."""
        if len(self.among(rows)) == len(rows):
            self.drop(rows)
        else:
            self.add(rows)

    def add(self, rows: Int64s) -> None:
        """Mark these rows."""
        needed = int(rows.max(initial=-1)) + 1
        self._marked = np.pad(self._marked, (0, max(0, needed - len(self._marked))))
        self._marked[rows] = True

    def clear(self) -> None:
        """Unmark all rows."""
        self._marked[:] = False

    def drop(self, rows: Int64s) -> None:
        """Unmark these rows."""
        self._marked[rows[rows < len(self._marked)]] = False


class TabModel:
    """A tab's state."""

    selecting = False
    """Whether more content is being made of what was read."""

    def remember(self) -> dict[str, Any]:
        """The state to restore in the next session, as plain JSON values."""
        return {}

    def recall(self, stored: dict[str, Any]) -> None:
        """Restores the result of `remember`; called once, before anything is read. Values may be outdated."""


class MarkedRows:
    """Rows in a table, each of which can be marked for the next decision."""

    def __init__(self) -> None:
        self.rows: Int64s = np.empty(0, np.int64)
        """Their numbers, in the order of the table."""
        self.marks = Marks()

    def is_marked(self, at: int) -> bool:
        """Whether the row in line ``at`` is marked."""
        return at < len(self.rows) and int(self.rows[at]) in self.marks


class SortedModel(TabModel):
    """A tab's state with a table that one of its columns sorts."""

    SORTS: ClassVar[Mapping[str, Callable[[Any], Any]]]
    """Sort keys by column; what has none there (None) comes last."""

    RISING: ClassVar[frozenset[str]]
    """Columns that are sorted in ascending order first."""

    def __init__(self, sort: str) -> None:
        self.sort, self.descending = sort, True

    def remember(self) -> dict[str, Any]:
        return {"sort": self.sort, "descending": self.descending}

    def recall(self, stored: dict[str, Any]) -> None:
        if stored.get("sort") in self.SORTS:
            self.sort, self.descending = stored["sort"], bool(stored.get("descending"))

    def in_order(self, items: Iterable[T]) -> list[T]:
        """The items as the column sorts them."""
        key, items = self.SORTS[self.sort], list(items)
        valued = [item for item in items if key(item) is not None]
        return sorted(valued, key=key, reverse=self.descending) + [item for item in items if key(item) is None]

    def sort_by(self, column: str) -> bool:
        """Sort by this column, reversed if it is the current one; False if it cannot be sorted by."""
        if column in self.SORTS:
            self.descending = not self.descending if column == self.sort else column not in self.RISING
            self.sort = column
        return column in self.SORTS

    def next_sort(self) -> None:
        """Sort by the next column."""
        self.sort_by(beside(self.SORTS, self.sort))
