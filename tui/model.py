"""Shared by the models of tabs. No Textual.

A tab's model (``tabs/<name>/model.py``) holds the tab's state (selection, filters, requests, answers) and implements
what keys do: what to read or ask next. The tab draws it and calls its methods. Cursors, focus and collapsed parts stay
with the widgets; the tab passes the line of a cursor to methods that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

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


def missing(error: CurateError) -> str:
    """Why something cannot be shown, for its place: what is missing, and the command that mends it."""
    fix = display_line(error.fix)
    shown = f"$ {fix}\ny copies the command" if is_command(f"$ {fix}") else fix
    return f"{display_line(error.what)}\n{shown}"


def is_command(line: str) -> bool:
    """Whether a line of `missing` is a command."""
    return line.startswith("$ icl-curate ")


READING = Empty("reading …", "", "")


def under_way(empty: Empty, workspace: Workspace) -> Empty:
    """What is missing, or if a job is creating it, that job. For threads."""
    job = doing(jobs(workspace), JobCommand.typed(empty.command).kind)
    if job is None:
        return empty
    why = "Its result will be shown here. Tab 8 shows how far it is."
    return Empty(job.in_words, why, f"icl-curate jobs follow {job.number}")


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A demonstration that is shown, as decisions on it need it: ``reason`` is for the history; ``awaited``: others are
    about to be shown in its place, so a key is not meant for it."""

    row: int
    id: str
    reason: str = ""
    awaited: bool = False


class TabModel:
    """A tab's state."""

    selecting = False
    """Whether more content is being made of what was read."""

    def remember(self) -> dict[str, Any]:
        """The state to restore in the next session, as plain JSON values."""
        return {}

    def recall(self, stored: dict[str, Any]) -> None:
        """Restores the result of `remember`; called once, before anything is read. Values may be outdated."""


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

    def next_sort(self, by: int = 1) -> None:
        """Sort by the next column, or the previous one."""
        names = list(self.SORTS)
        self.sort_by(names[(names.index(self.sort) + by) % len(names)])
