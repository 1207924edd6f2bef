"""Demos: every demonstration and query, page by page; search, filters, the ledger, marking and pruning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import Any, Literal

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ....engine.base.arrays import Int64s
from ....engine.base.errors import CurateError, LockedError, counted
from ....engine.checks.browse import DemosQuery, FoundRows, RowSet
from ....engine.pool.records import SPLITS
from ....engine.store.browse import Listed, listed, tally
from ....engine.store.decisions import Action as Verb
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.dialog import Offer, Option, Pick
from ...model import PROBLEMS, Empty, PoolRow
from ...row_keys import NO_ROW, MarkKeys, relabel_row, relabel_rows
from ...tab import UNREAD, Tab
from ...widgets.demonstration import RowDetails, as_json, read_several
from ...widgets.field import Field
from ...widgets.reader import Detail
from ...widgets.table import LineTable
from ...workers import at_rest, error_text, later
from .model import DemosModel, Search, around, asked_line, columns_for, row_line


class DemosTab(Tab, MarkKeys):
    NAME = "demos"
    TITLE = "Demos"
    ABOUT = "All demonstrations: search, filter, inspect effects on answers, prune. ✗ pruned, ≈ duplicate."
    TERMS = ("demonstration", "split", "duplicate", "ledger", "flip", "prune, restore", "retired")
    PANES = "LineTable", "Detail"
    ACTIONS = (
        Action("demos.back", "escape", "Back", "Back to the list"),
        Action("demos.search", "slash", "Search", "Search inputs, outputs and beginnings of ids",
               "icl-curate demos -s TEXT"),
        Action("demos.filter", "f", "Filter", "Filter by source, label, split, state"),
        Action("demos.mark", "space", "Mark", "Mark the row for the next decision"),
        Action("demos.range", "V", "Range", "Mark from here to where space is pressed", footer=False),
        Action("demos.mark_all", "a", "Mark all", "Mark all matching rows, or none", footer=False),
        Action("demos.prune", "x", "Prune", "Prune the marked rows, or this one", "icl-curate prune --demo ID",
               call="decide('prune')"),
        Action("demos.keep", "r", "Keep", "Restore the marked rows, or this one", "icl-curate restore --demo ID",
               call="decide('restore')"),
        Action("demos.relabel", "e", "Relabel", "Correct the output of this row, or of those marked",
               "icl-curate relabel ID OUTPUT"),
        Action("demos.only", "m", "Misleading", "Show misleading, helpful or all rows",
               "icl-curate flips --misleading", call="change('next_only')"),
        Action("demos.state", "v", "State", "Show all, active or pruned rows", "icl-curate demos --pruned",
               footer=False, call="change('next_state')"),
        Action("demos.clear", "c", "Clear", "Clear search, filters and marks", footer=False),
        Action("demos.sort", "s", "Sort", "Sort by the next column", footer=False, call="change('next_sort')"),
        Action("demos.reverse", "S", "Reverse", "Reverse the sort order", footer=False, call="change('reverse')"),
        Action("demos.read", "enter", "Read", "Show the whole demonstration", footer=False),
        *(  # for one release: these lists were here
            Action(f"demos.{name}", key, name.capitalize(), f"Show {what}, in Problems", cli, False, f"list('{name}')")
            for name, (key, what, cli) in PROBLEMS.items()
        ),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: DemosModel = DemosModel()
        self._top = 0
        """The line at the top of the screen when a search began: threads must not access widgets."""
        self._failed: DemosQuery | None = None
        """The latest search that found nothing for a fault that lasts."""

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="bar"):
            yield Field(placeholder="/ search", compact=True, id="search")
            yield Static(id="asked")
        with Horizontal(id="halves"):
            yield LineTable(columns_for(self.model.asked), marked=self.model.is_marked, moved=lambda: self._look_soon())
            yield Detail()

    def on_mount(self) -> None:
        self._search_soon = later(self, 0.12, self.search)
        self._look_soon = at_rest(self, 0.06, self._look)

    @property
    def current(self) -> int | None:
        """The row number under the cursor."""
        return self.model.row(self.table.cursor)

    # Content.

    def reload(self) -> None:
        self._top, self.model.unread = round(self.table.scroll_y), True
        super().reload()

    def read(self, workspace: Workspace) -> FoundRows | Empty:
        return self.model.read(workspace, self.review.settings(), self._top)

    def show(self, matches: FoundRows) -> None:
        table, before = self.table, self.model.rows
        cursor = self.model.take(matches, table.cursor)
        columns = columns_for(matches.asked)
        if columns != list(table.columns):
            table.arrange_columns(columns)
        table.sorted_by = matches.asked.sort, matches.asked.descending
        table.message = "nothing matches; c clears search and filters" if matches.whole else "searching …"
        table.size_to(len(matches.rows), same=np.array_equal(before, matches.rows))
        self._put(matches, matches.first, matches.page)
        table.cursor = cursor or 0
        if cursor is None:
            table.scroll_home(animate=False)
        self.show_status()
        self._look_soon()

    def search(self) -> None:
        """Run the current search."""
        search = self.model.search(round(self.table.scroll_y))
        if search is None:
            self.reload()
        else:
            self._find(search)

    def _find(self, search: Search) -> None:
        self.query_one("#asked", Static).add_class("-busy")

        def found(rows: FoundRows) -> None:
            self._loaded(rows)
            if rest := self.model.rest_of(search, rows, round(self.table.scroll_y)):
                self._find(rest)

        self.in_thread("load", lambda: search.find(self.review.opened()), found)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "load":
            self._failed = None if isinstance(error, LockedError) else self.model.asked
            self.query_one("#asked").remove_class("-busy")
            self.table.message = error_text(error, ": ")
            self.table.refresh()
            self._look()

    def show_status(self) -> None:
        """Show the search and the number of rows."""
        status = self.query_one("#asked", Static)
        status.update(asked_line(self.model))
        status.remove_class("-busy")

    def copied(self) -> str:
        return as_json(self.model.seen.demonstration) if self.model.seen else ""

    def command(self) -> str:
        asked, f = self.model.asked, self.model.asked.filter
        if asked.only or asked.among is not None or f.label is not None:  # these have no option
            return ""
        state = {None: "", True: " --pruned", False: " --active"}[f.pruned] + (" --duplicates" if f.duplicates else "")
        options = {"--source": f.source, "--search": f.search, "--split": f.split if f.split != "pool" else ""}
        named = [f" {name} {quote(value)}" for name, value in options.items() if value]
        return "".join(["icl-curate demos", state, *named])

    # Pages and details.

    @on(LineTable.Wanted)
    def _page(self, event: LineTable.Wanted) -> None:
        shown, first = self.model.found, event.index
        if shown is None:
            return
        rows, pruned = shown.rows[first : event.last], shown.known.pruned
        put = lambda page: self._put(shown, first, page)  # noqa: E731
        self.in_thread("page", lambda: listed(self.review.opened(), rows, pruned), put)

    def _put(self, shown: FoundRows, first: int, page: Sequence[Listed]) -> None:
        if shown is self.model.found:
            self.table.put(first, [row_line(row, shown) for row in page])

    def _look(self) -> None:
        row, ledger, near = self.current, self.model.known, self.model.near
        seen = near.get(row, ledger) if row is not None and ledger is not None else None
        if row is None or ledger is None or seen is not None:
            self.forget("detail")
            self._looked(seen)
            return

        def read(found: Mapping[int, RowDetails]) -> None:
            near.take(found, ledger)
            self._looked(found.get(row))

        rows = around(self.model.rows, self.table.cursor)
        self.in_thread("detail", lambda: read_several(self.review.opened(), rows, ledger.ledger, ledger.grading), read)

    def _looked(self, seen: RowDetails | None) -> None:
        self.model.seen = seen
        self.query_one(Detail).show_row(seen)

    @on(LineTable.Chosen)
    def action_read(self) -> None:
        self.add_class("-reading")
        self.query_one(Detail).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """``esc`` also leaves marks and what was searched for."""
        left = action == "back" and bool(self.model.asked.filter.search or self.has_level())
        return left or super().check_action(action, parameters)

    def action_back(self) -> None:
        """One level back: from the field or the text to the list, from a range, from the marks, from the search."""
        field, at_list = self.query_one("#search", Input), self.table.has_focus
        typing = field.has_focus
        super().action_back()
        if typing or (at_list and not self.clear_level()):
            field.value = ""

    async def action_list(self, name: str) -> None:
        await (await self.review.visit("problems")).action_list(name)

    # Search and filters.

    def show_only(self, among: RowSet | None = None, **fields: Any) -> None:
        """For other tabs: show the rows with these fields of `Filter`, or certain rows."""
        self.model.of(among, **fields)
        self._search_anew(elsewhere=True)

    def show_row(self, row: int) -> None:
        """For the finder: show this row in its place."""
        self.model.at_row(row)
        self._search_anew(elsewhere=True)

    def action_clear(self) -> None:
        self.model.clear()
        self.table.range_from = None
        self._search_anew()

    def _search_anew(self, elsewhere: bool = False) -> None:
        """Start a new search among all rows, replacing the typed text. ``elsewhere``: another tab asks for it, so none
        of the rows shown is meant by the next key."""
        if elsewhere:
            self.model.leave_rows()
            self.table.message = "searching …"
            self.table.size_to(0)
        self.query_one(Input).value = self.model.asked.filter.search
        self.search()

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        if self.model.type_search(event.value):
            self._search_soon()

    @on(LineTable.Sort)
    def _sort_by(self, event: LineTable.Sort) -> None:
        self._change(lambda: self.model.sort_by(event.column))

    def action_change(self, name: str) -> None:
        self._change(getattr(self.model, name))

    def _change(self, change: Callable[[], None]) -> None:
        """Change the search, and run it."""
        change()
        self.show_status()
        self.search()

    def action_filter(self) -> None:
        """Choose a filter and then its value, or switch to its next one."""
        model = self.model
        splits = Pick("split", Offer([*map(Option, SPLITS)]), now=model.asked.filter.split)
        of_split = lambda split: self._change(lambda: model.filter_by(split=split))  # noqa: E731
        calls = (
            lambda: self._choose_value("source"), lambda: self._choose_value("output"),
            lambda: self.ask(splits, of_split),
            lambda: self._change(model.next_state), lambda: self._change(model.next_only),
            lambda: self._change(model.switch_repeats), self.action_clear,
        )  # fmt: skip
        options = [Option(*choice, value=call) for choice, call in zip(model.choices(), calls, strict=True)]
        self.ask(Pick("Filter by", Offer(options)), lambda call: call())

    def _choose_value(self, column: Literal["source", "output"]) -> None:
        """Choose an existing value of a column. The list opens at once, so that it gets the keys, and is filled when
        the values were counted."""
        asked, review = self.model.asked.filter, self.review
        field, now = ("label", asked.label) if column == "output" else ("source", asked.source)

        def counted_values() -> Offer:
            counts = tally(review.opened(), column, asked.split)
            return Offer([Option("all", value=""), *(Option(value, f"{count:,}") for value, count in counts)])

        change = lambda value: self._change(lambda: self.model.filter_by(**{field: value or None}))  # noqa: E731
        self.ask(Pick(f"{field} of {asked.split}", more=counted_values, now=now or ""), change)

    # Marks and decisions.

    def stand(self) -> bool:
        """Not while the rows of the current search are still to come: no key acts on those of another one."""
        if not self.model.searched:
            failed = self._failed == self.model.asked
            self.notify(UNREAD.what if failed else "still searching: nothing was done", severity="warning")
        return self.model.searched

    def row_here(self) -> PoolRow | None:
        """The demonstration under the cursor."""
        seen, row = self.model.seen, self.current
        if row is None or self.model.asked.filter.split != "pool":
            return None
        name = seen.demonstration.id if seen and seen.demonstration.row == row else f"row {row:,}"
        return PoolRow(row, name, self.model.reason, not self.model.searched)

    def action_relabel(self) -> None:
        rows = self._targets("corrected")
        if len(rows) > 1:
            relabel_rows(self, rows, self.model.reason, partial(self._clear, rows))
        elif len(rows):
            here, number = self.row_here(), int(rows[0])  # a marked row need not be under the cursor
            row = here if here and here.row == number else PoolRow(number, f"row {number:,}", self.model.reason)
            relabel_row(self, row, partial(self._clear, rows))

    def action_decide(self, verb: Verb) -> None:
        if len(rows := self._targets("pruned")):
            self.review.decide_rows(verb, rows.tolist(), self.model.reason, partial(self._clear, rows))

    def _targets(self, what: str) -> Int64s:
        """The rows of a decision, by which they are ``what``; none if they are not the pool's."""
        if not self.stand():
            return self.model.rows[:0]
        if self.table.range_from is not None:
            self.action_mark()
        rows = self.model.targets(self.table.cursor)
        if not len(rows):
            self.notify(NO_ROW)
        elif self.model.asked.filter.split != "pool":
            self.notify(f"only demonstrations can be {what}, not queries", severity="warning")
            return rows[:0]
        return rows

    def _clear(self, rows: Int64s) -> Callable[[], None]:
        """Take the marks of the rows away once they are decided on; returns what brings them back."""
        marks = self.model.marks
        taken = marks.among(rows)
        hidden = marks.count - len(marks.among(self.model.rows))
        marks.drop(rows)
        self.show_marks()
        if hidden and self.display:  # from another place the decision may be made again
            self.notify(f"{counted(hidden, 'marked row')} not shown: left as they are, c clears marks")
        return partial(self.mark_again, taken)
