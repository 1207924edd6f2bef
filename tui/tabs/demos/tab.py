"""Demos: every demonstration and query, page by page; search, filters, the ledger, marking and pruning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from ....engine.arrays import Bools
from ....engine.pool.display import display_line
from ....engine.pool.records import SPLITS
from ....engine.ranker.browse import ONLY, SORTS, DemosQuery, FoundRows, Known, Rows, find_rows, in_parts, known_now
from ....engine.store.browse import Stop, ids_of, listed, tally
from ....engine.store.decisions import Action as Verb
from ....engine.store.demonstrations import Filter, Listed
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...dialogs.choose import Choose
from ...tab import Empty, Tab
from ...widgets.detail import Detail, Seen, look_up
from ...widgets.field import Field
from ...widgets.table import LineTable
from ...workers import later
from .rows import columns_for, row_line

STATES: tuple[bool | None, ...] = (None, False, True)
STATE_NAMES = {None: "any", False: "active", True: "pruned"}


class DemosTab(Tab):
    NAME = "demos"
    TITLE = "Demos"
    ABOUT = "All demonstrations: search, filter, inspect effects on answers, prune. ✗ pruned, ≈ duplicate."
    ACTIONS = (
        Action("demos.back", "escape", "Back", "Back to the list"),
        Action(
            "demos.search", "slash", "Search", "Search inputs, outputs and ids as you type", "icl-curate demos -s TEXT"
        ),
        Action("demos.filter", "f", "Filter", "Filter by source, label, split, state"),
        Action("demos.mark", "space", "Mark", "Mark the row for the next decision"),
        Action("demos.mark_all", "a", "Mark all", "Mark all matching rows, or none", footer=False),
        Action(
            "demos.prune",
            "x",
            "Prune",
            "Prune the marked rows, or this one",
            "icl-curate prune --demo ID",
        ),
        Action("demos.keep", "r", "Keep", "Restore the marked rows, or this one", "icl-curate restore --demo ID"),
        Action(
            "demos.only",
            "m",
            "Misleading",
            "Show misleading, helpful or all rows",
            "icl-curate demos --misleading",
        ),
        Action(
            "demos.repeats",
            "d",
            "Repeats",
            "Show only duplicates of earlier rows",
            "icl-curate demos --duplicates",
            footer=False,
        ),
        Action(
            "demos.state", "v", "State", "Show all, active or pruned rows", "icl-curate demos --pruned", footer=False
        ),
        Action("demos.clear", "c", "Clear", "Clear search, filters and marks", footer=False),
        Action("demos.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("demos.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
        Action("demos.read", "enter", "Read", "Show the whole demonstration", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.asked = DemosQuery()
        self.known: Known | None = None
        self.rows: Rows = np.empty(0, np.int64)
        self.marks: Bools = np.zeros(0, np.bool_)
        self.seen: Seen | None = None
        self._shown: FoundRows | None = None
        self._top = 0
        self._stop = Stop()

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="bar"):
            yield Field(placeholder="/ search", compact=True, id="search")
            yield Static(id="asked")
        with Horizontal(id="halves"):
            yield LineTable(columns_for(self.asked), marked=self._is_marked)
            yield Detail()

    def on_mount(self) -> None:
        self._search_soon = later(self, 0.12, self.ask)
        self._look_soon = later(self, 0.06, self._look)

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def current(self) -> int | None:
        """The row number under the cursor."""
        return int(self.rows[self.table.cursor]) if len(self.rows) else None

    def start(self) -> Widget:
        return self.table

    # What is shown.

    def read(self, workspace: Workspace) -> FoundRows | Empty:
        found = find_rows(workspace, self.asked, known_now(workspace), self._shown, self._top, self._stop)
        if not len(found.rows) and self.asked.filter == Filter() and not self.asked.only:
            return Empty(
                "The pool is empty", "Demonstrations appear here after indexing.", "icl-curate index POOL.jsonl"
            )
        return found

    def show(self, found: FoundRows) -> None:
        here = self.current
        same = self._shown is not None and self._shown.asked == found.asked
        self.known, self.rows, self._shown = found.known, found.rows, found
        self._grow_marks()
        table = self.table
        columns = columns_for(found.asked)
        if columns != list(table.columns):
            table.arrange_columns(columns)
        table.sorted_by = found.asked.sort, found.asked.descending
        table.message = "nothing matches; c clears search and filters" if found.whole else "searching …"
        table.size_to(len(found.rows))
        self._put(found, found.first, found.page)
        if same and here is not None:
            at = np.flatnonzero(found.rows == here)
            table.cursor = int(at[0]) if at.size else table.cursor
        elif not same:
            table.cursor = 0
            table.scroll_home(animate=False)
        self._tell()
        self._look_soon()

    def ask(self) -> None:
        """Show what is now asked for; a search under way is stopped."""
        if self.known is None:
            self.reload()
            return
        self._stop.stop()
        self._stop = stop = Stop()
        self._top = round(self.table.scroll_y)
        self._find(self.asked, self.known, stop, in_parts(self.asked, self.known))

    def _find(self, asked: DemosQuery, known: Known, stop: Stop, part: bool) -> None:
        before, top = self._shown, self._top
        self.query_one("#asked", Static).add_class("-busy")

        def found(rows: FoundRows) -> None:
            self._loaded(rows)
            if not rows.whole:
                self._top = round(self.table.scroll_y)
                self._find(asked, known, stop, part=False)

        self.in_thread("load", lambda: find_rows(self.review.opened(), asked, known, before, top, stop, part), found)

    def remember(self) -> dict[str, Any]:
        f = self.asked.filter
        return {
            "source": f.source, "split": f.split, "label": f.label, "pruned": f.pruned, "duplicates": f.duplicates,
            "only": self.asked.only, "sort": self.asked.sort, "descending": self.asked.descending,
        }  # fmt: skip

    def recall(self, said: dict[str, Any]) -> None:
        def text(name: str) -> str | None:
            value = said.get(name)
            return value if isinstance(value, str) else None

        split, sort, only = text("split") or "pool", text("sort") or "row", text("only") or ""
        pruned = said.get("pruned")
        self.asked = DemosQuery(
            Filter(
                text("source"),
                split if split in SPLITS else "pool",
                pruned if isinstance(pruned, bool) else None,
                duplicates=said.get("duplicates") is True,
                label=text("label"),
            ),
            only if only in ONLY else "",
            sort if sort in SORTS else "row",
            said.get("descending") is True,
        )

    def copied(self) -> str:
        if self.seen is None:
            return ""
        d = self.seen.demonstration
        fields = {"id": d.id, "input": d.input, "output": d.output, "source": d.source}
        return json.dumps(fields, ensure_ascii=False)

    def show_source(self, source: str) -> None:
        """As another tab asks for it: the rows of one source."""
        self.clear(replace(self.asked, filter=Filter(source=source), only=""))

    def show_row(self, name: str) -> None:
        """As another tab asks for it: the demonstration of this id."""
        self.clear(DemosQuery(Filter(search=name)))

    # Pages and details.

    def reload(self) -> None:
        self._top = round(self.table.scroll_y)
        super().reload()

    @on(LineTable.Wanted)
    def _page(self, event: LineTable.Wanted) -> None:
        if self.known is None:
            return
        rows, pruned, first = self.rows[event.index : event.last], self.known.pruned, event.index
        shown = self._shown
        self.in_thread(
            "page",
            lambda: listed(self.review.opened(), rows, pruned),
            lambda found: self._put(shown, first, found),
        )

    def _put(self, shown: FoundRows | None, first: int, page: Sequence[Listed]) -> None:
        if shown is self._shown and shown is not None:
            self.table.put(first, [row_line(row, shown) for row in page])

    @on(LineTable.Moved)
    def _moved(self) -> None:
        self._look_soon()

    def _look(self) -> None:
        row, known = self.current, self.known
        if row is None or known is None:
            self.seen = None
            self.query_one(Detail).tell(None)
            return
        self.in_thread("detail", lambda: look_up(self.review.opened(), row, known.ledger.get(row)), self._looked)

    def _looked(self, seen: Seen | None) -> None:
        self.seen = seen
        self.query_one(Detail).tell(seen)

    @on(LineTable.Chosen)
    def action_read(self) -> None:
        self.add_class("-reading")
        self.query_one(Detail).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            return self.screen.focused is not self.table
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        self.remove_class("-reading")
        self.table.focus()

    # Asking.

    def action_search(self) -> None:
        self.action_back()
        self.query_one(Input).focus()

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        if event.value != self.asked.filter.search:
            self.asked = replace(self.asked, filter=replace(self.asked.filter, search=event.value))
            self._search_soon()

    @on(Input.Submitted, "#search")
    def _submitted(self) -> None:
        self.table.focus()

    def action_sort(self) -> None:
        order = [name for name in SORTS if name != "effect" or (self.known and self.known.ledger)]
        at = order.index(self.asked.sort) if self.asked.sort in order else -1
        self._again(sort=order[(at + 1) % len(order)], descending=False)

    def action_reverse(self) -> None:
        self._again(descending=not self.asked.descending)

    @on(LineTable.Sort)
    def _sort_by(self, event: LineTable.Sort) -> None:
        same = event.column == self.asked.sort
        self._again(sort=event.column, descending=same and not self.asked.descending)

    def action_only(self) -> None:
        only = _next(ONLY, self.asked.only)
        self._again(only=only, sort="effect" if only else "row", descending=only == "helpful")

    def action_repeats(self) -> None:
        self._filter(duplicates=not self.asked.filter.duplicates)

    def action_state(self) -> None:
        self._filter(pruned=_next(STATES, self.asked.filter.pruned))

    def action_clear(self) -> None:
        self.marks[:] = False
        self.clear(DemosQuery())

    def clear(self, asked: DemosQuery) -> None:
        """Ask something new altogether."""
        self.asked = asked
        self.query_one(Input).value = asked.filter.search
        self.ask()

    def action_filter(self) -> None:
        f = self.asked.filter
        fields: list[tuple[str, str, Callable[[], None]]] = [
            ("Source", f.source or "all", lambda: self._choose("source", "source")),
            ("Output", f.label or "all", lambda: self._choose("output", "label")),
            ("Split", f.split, self._choose_split),
            ("State", STATE_NAMES[f.pruned], self.action_state),
            ("Ledger", self.asked.only or "all", self.action_only),
            ("Repeats", "only" if f.duplicates else "all", self.action_repeats),
            ("Clear all", "", self.action_clear),
        ]

        def chosen(at: int | None) -> None:
            if at is not None:
                fields[at][2]()

        self.app.push_screen(Choose("Filter by", [(name, display_line(now, 40)) for name, now, _ in fields]), chosen)

    def _choose(self, column: str, field: str) -> None:
        split = self.asked.filter.split

        def pick(found: list[tuple[str, int]]) -> None:
            options = [("all", ""), *((value, f"{count:,}") for value, count in found)]
            now = getattr(self.asked.filter, field)
            at = next((i for i, (value, _) in enumerate(found, 1) if value == now), 0)
            self.app.push_screen(Choose(f"{column} of {split}", options, at), taken)

        def taken(at: int | None) -> None:
            if at is not None:
                self._filter(**{field: None if at == 0 else values[at - 1]})

        def keep(found: list[tuple[str, int]]) -> None:
            values[:] = [value for value, _ in found]
            pick(found)

        values: list[str] = []
        self.in_thread("tally", lambda: tally(self.review.opened(), cast(Any, column), split), keep)

    def _choose_split(self) -> None:
        def taken(at: int | None) -> None:
            if at is not None:
                self._filter(split=SPLITS[at])

        options = [(name, "") for name in SPLITS]
        self.app.push_screen(Choose("split", options, SPLITS.index(self.asked.filter.split)), taken)

    def _filter(self, **changes: Any) -> None:
        self._again(filter=replace(self.asked.filter, **changes))

    def _again(self, **changes: Any) -> None:
        self.asked = replace(self.asked, **changes)
        self._tell()
        self.ask()

    def _tell(self) -> None:
        """What is asked for, and how many rows that is."""
        f = self.asked.filter
        parts = [
            "" if f.split == "pool" else f.split,
            f"source {display_line(f.source, 20)}" if f.source is not None else "",
            f"output {display_line(f.label, 20)}" if f.label is not None else "",
            "" if f.pruned is None else STATE_NAMES[f.pruned],
            self.asked.only,
            "repeats" if f.duplicates else "",
        ]
        told = Text(" · ".join(filter(None, parts)), "accent", no_wrap=True, overflow="ellipsis")
        marked = int(self.marks.sum())
        if marked:
            told.append(f"  {marked:,} marked", "title")
        more = "" if self._shown is None or self._shown.whole else "+"
        told.append(f"  {len(self.rows):,}{more} row{'' if len(self.rows) == 1 else 's'}", "muted")
        status = self.query_one("#asked", Static)
        status.update(told)
        status.remove_class("-busy")

    # Marks and decisions.

    def action_mark(self) -> None:
        if (row := self.current) is not None:
            self.marks[row] = not self.marks[row]
            self.table.redraw()
            self.table.cursor += 1
            self._tell()

    def action_mark_all(self) -> None:
        if len(self.rows):
            self.marks[self.rows] = not bool(self.marks[self.rows].all())
            self.table.redraw()
            self._tell()

    def action_prune(self) -> None:
        self._decide("prune")

    def action_keep(self) -> None:
        self._decide("restore")

    def _decide(self, verb: Verb) -> None:
        rows = np.flatnonzero(self.marks) if self.marks.any() else self.rows[self.table.cursor : self.table.cursor + 1]
        if not len(rows):
            return
        if self.asked.filter.split != "pool":
            self.notify("only demonstrations can be pruned, not queries", severity="warning")
            return
        reason = f"in review, {self.asked.only}" if self.asked.only else "in review"

        def clear() -> None:
            self.marks[:] = False
            self.table.redraw()
            self._tell()

        self.in_thread(
            "ids",
            lambda: ids_of(self.review.opened(), rows),
            lambda ids: self.review.decide(verb, "demonstration", ids, reason, clear),
        )

    def _is_marked(self, index: int) -> bool:
        return index < len(self.rows) and bool(self.marks[self.rows[index]])

    def _grow_marks(self) -> None:
        needed = int(self.rows.max(initial=-1)) + 1
        if needed > len(self.marks):
            self.marks = np.concatenate([self.marks, np.zeros(needed - len(self.marks), np.bool_)])


def _next(values: Sequence[Any], now: Any) -> Any:
    return values[(values.index(now) + 1) % len(values)]
