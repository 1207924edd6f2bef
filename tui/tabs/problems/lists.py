"""Lists of problems: rows that repeat each other and rows that queries repeat, group by group and side by side; and
records that the index could not use, as they are in their file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.index.results import Skipped, SkippedReason, as_in_file, skipped_records
from ....engine.pool.display import display_line, display_text
from ....engine.store.browse import GroupKind
from ....render.pool import NOT_COMPARED
from ...actions import Action
from ...row_keys import NO_ROW, PoolTable, RowTable
from ...tab import Part, Tab
from ...widgets.lines import CUT, Line
from ...widgets.reader import Reader
from ...widgets.table import LineTable, choosing
from ...workers import at_rest
from . import groups as texts
from .groups import GroupPage, GroupsModel

T = TypeVar("T")


class ProblemList(Part):
    """A list; it is read when it is shown, and again when the workspace changes, but not while it is hidden."""

    table: LineTable
    """What takes focus."""

    def __init__(self) -> None:
        super().__init__(id=self.TITLE.lower())
        self._failed = ""
        """The kind of work whose fault the tab may still tell."""

    def on_show(self) -> None:
        self.look_again(anew=True)

    @property
    def is_open(self) -> bool:
        """Whether it is shown, or one of its parts alone."""
        alone = self.screen.maximized
        return self.is_on_screen or (alone is not None and self in alone.ancestors)

    def look_again(self, anew: bool = False) -> None:
        """The workspace may have changed. ``anew``: the list was opened."""
        if self.is_open:
            self.look(anew)

    def look(self, anew: bool) -> None:
        """Read the list and display it."""

    def copied(self) -> str:
        """The text that ``y`` copies."""
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is a way back from everything but the list itself."""
        return action != "back" or not self.table.has_focus

    def in_thread(self, kind: str, work: Callable[[], T], then: Callable[[T], object]) -> None:
        def succeeded(result: T) -> object:
            if self._failed == kind:
                self._failed = ""
                self.query_ancestor(Tab).tell_trouble("")
            return then(result)

        super().in_thread(kind, work, succeeded)

    def failed(self, kind: str, error: CurateError) -> None:
        if self.display:  # it is read again when it is shown
            self._failed = kind
            self.query_ancestor(Tab).failed(kind, error)


class Levels(ProblemList):
    """A list above the rows of its current line above one of these in full: enter goes down, escape up."""

    PANES = "LineTable", "Reader"

    def __init__(self) -> None:
        super().__init__()
        self.table, self.rows = self.tables()
        self.table.message = "reading …"

    def compose(self) -> ComposeResult:
        yield Static(classes="told")
        yield self.table
        yield self.rows
        yield Reader()

    def tables(self) -> tuple[LineTable, LineTable]:
        raise NotImplementedError

    def show_rows(self) -> None:
        """The cursor of the list has moved."""

    def show_text(self) -> None:
        """The cursor of the rows has moved."""

    @on(LineTable.Moved)
    def _moved(self, event: LineTable.Moved) -> None:
        if event.table is self.table:
            self.show_rows()
        else:
            self.show_text()

    @on(LineTable.Chosen)
    def _chosen(self, event: LineTable.Chosen) -> None:
        self.go_down(event.table is self.table)

    def go_down(self, to_rows: bool) -> None:
        self.add_class("-reading")
        self.call_after_refresh((self.rows if to_rows else self.query_one(Reader)).focus)

    def action_back(self) -> None:
        """From the text to the rows, and to the list."""
        if self.query_one(Reader).has_focus:
            self.rows.focus()
        else:
            self.remove_class("-reading")
            self.table.focus()


def _actions(name: str, single: tuple[str, str], every: tuple[str, str], cli: str) -> tuple[Action, ...]:
    """Actions of a list of groups; ``single`` and ``every``: label and description of the decision on a group, and on
    all of them."""
    return (
        Action(f"{name}.back", "escape", "Back", "Back to the rows, then to the groups"),
        Action(f"{name}.prune", "x", *single),
        Action(f"{name}.prune_all", "X", *every, cli),
        Action(f"{name}.restore", "r", "Restore", "Restore the pruned rows of the group, or this one"),
        Action(f"{name}.open", "v", "Open only", "Show only groups with several active rows, or all", call="open"),
        Action(f"{name}.rows", "enter", "Rows", "Go to the rows of the group", footer=False),
    )


class GroupsList(Levels):
    """Groups above their rows above two rows side by side."""

    KIND: ClassVar[GroupKind]
    ENTRIES: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.model = GroupsModel(self.KIND)

    def tables(self) -> tuple[LineTable, LineTable]:
        member = lambda at: self.model.member(self.table.cursor, at)  # noqa: E731
        groups = RowTable(texts.GROUPS, marked=lambda line: False)
        return groups, PoolTable(texts.MEMBERS, member, marked=lambda line: False)

    def copied(self) -> str:
        group = self.model.at(self.table.cursor)
        return json.dumps(group.as_json(), ensure_ascii=False) if group else ""

    # Reading.

    def look(self, anew: bool) -> None:
        top = round(self.table.scroll_y)
        self.in_thread("load", lambda: self.model.look(self.review.opened(), top), self._take)

    def _take(self, page: GroupPage) -> None:
        cursor = self.model.take(page, self.table.cursor)
        none = f"no {self.ENTRIES}" + (" with several active rows" if self.model.only_open else "")
        self.table.message = none if page.of.compared else NOT_COMPARED
        self.table.size_to(len(page.of))
        self.table.cursor = cursor
        self._put(page)
        self.query_one(".told", Static).update(texts.groups_line(self.model, self.ENTRIES))

    def _put(self, page: GroupPage) -> None:
        if self.model.put(page):
            self.table.put(page.first, [texts.group_line(group) for group in page.groups])
            self._show_members()

    @on(LineTable.Wanted)
    def _page(self, event: LineTable.Wanted) -> None:
        found, first, last = self.model.found, event.index, event.last
        if event.table is self.table and found is not None:
            self.in_thread("page", lambda: self.model.page(self.review.opened(), found, first, last), self._put)

    # Drawing.

    def show_rows(self) -> None:
        self.rows.cursor = 0
        self._show_members()

    def _show_members(self) -> None:
        group = self.model.at(self.table.cursor)
        self.rows.fill([texts.member_line(row) for row in group.rows] if group else [])
        self.show_text()

    def show_text(self) -> None:
        group, reader = self.model.at(self.table.cursor), self.query_one(Reader)
        reader.read(texts.side_by_side(*self.model.pair(group, self.rows.cursor)) if group else "")

    # Actions.

    def action_rows(self) -> None:
        """Also what a double click does."""
        self.go_down(to_rows=True)

    def go_down(self, to_rows: bool) -> None:
        if to_rows and self.rows.count > 1 and self.rows.cursor == 0:
            self.rows.cursor = 1
        super().go_down(to_rows)

    def action_open(self) -> None:
        self.model.only_open = not self.model.only_open
        self.look_again()

    # Decisions.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Among the rows of a group, ``x`` is meant for one of them."""
        return super().check_action(action, parameters) and not (action == "prune" and self.rows.has_focus)

    def action_prune(self) -> None:
        if group := self.model.at(self.table.cursor):
            self.review.decide("prune", "demonstration", lambda workspace: self.model.pruned(workspace, group))
        else:
            self.app.notify(NO_ROW)

    def action_prune_all(self) -> None:
        self.review.decide("prune", "demonstration", self.model.all_pruned)

    def action_restore(self) -> None:
        group = self.model.at(self.table.cursor)
        alone = self.rows.cursor if self.rows.has_focus else None
        rows = self.model.restored(group, alone) if group else []
        if rows:
            self.review.decide_rows("restore", rows, f"in review, {self.KIND}")
        else:
            self.app.notify("no pruned row here")


class RepeatsList(GroupsList):
    """Duplicates, as the index found them."""

    KIND = "duplicate"
    ENTRIES = "duplicates"
    TITLE = "Repeats"
    ABOUT = "Rows that repeat each other. The first of each output stays. ≈ to prune, ✗ pruned."
    ACTIONS = _actions(
        "repeats",
        ("Keep first", "Keep the first row of the group and prune those that repeat it"),
        ("Keep first of each", "Keep the first of each group, prune the others, as one decision"),
        "icl-curate check prune duplicate",
    )


class LeaksList(GroupsList):
    """Rows of the pool that are in the validation or test set as well."""

    KIND = "leak"
    ENTRIES = "leaks"
    TITLE = "Leaks"
    ABOUT = "Rows of the pool beside the validation and test queries that they repeat. ≈ to prune, ✗ pruned."
    ACTIONS = _actions(
        "leaks",
        ("Prune", "Prune the rows of the pool that the query repeats"),
        ("Prune all", "Prune every row that a query repeats, as one decision"),
        "icl-curate check prune leak",
    )


class SkippedTable(LineTable, inherit_bindings=False):
    """A table of the list, whose footer says what enter opens."""

    TITLE = "Skipped"
    ACTIONS = choosing("skipped.open", "Open", "Go to the records with this reason, then to the record")


class SkippedList(Levels):
    """Reasons above their records above one record. Nothing can be decided here: the file has to be corrected."""

    TITLE = "Skipped"
    ABOUT = "Records that index could not use, by reason, as icl-curate skipped lists them."
    ACTIONS = (Action("skipped.back", "escape", "Back", "Back to the records, then to the reasons"),)

    def __init__(self) -> None:
        super().__init__()
        self._reasons: Sequence[SkippedReason] | None = None
        self._look_soon = at_rest(self, 0.06, self._look)

    def tables(self) -> tuple[LineTable, LineTable]:
        return SkippedTable(texts.REASONS, id="skip-reasons"), SkippedTable(texts.RECORDS, id="skip-records")

    @property
    def current(self) -> Skipped | None:
        """The record under the cursor."""
        records = self._records
        return records[self.rows.cursor] if self.rows.cursor < len(records) else None

    @property
    def _records(self) -> Sequence[Skipped]:
        reasons, at = self._reasons or (), self.table.cursor
        return reasons[at].records if at < len(reasons) else ()

    def copied(self) -> str:
        record = self.current
        return f"{record.file}:{record.line}: {record.reason}" if record else ""

    def look(self, anew: bool) -> None:
        self.in_thread("load", lambda: skipped_records(self.review.opened()).reasons, self._take)

    def _take(self, reasons: Sequence[SkippedReason]) -> None:
        if reasons == self._reasons:
            return
        self._reasons = reasons
        self.table.message = "index has skipped no record"
        self.query_one(".told", Static).update(texts.skipped_line(reasons))
        self.table.fill([Line((len(reason.records), display_line(reason.reason, CUT))) for reason in reasons])
        self.show_rows()

    def show_rows(self) -> None:
        self.rows.size_to(len(self._records))
        self.rows.cursor = 0
        self.rows.put(0, [texts.record_line(record) for record in self._records[:100]])
        self.show_text()

    def show_text(self) -> None:
        self._look_soon()

    @on(LineTable.Wanted, "#skip-records")
    def _page(self, event: LineTable.Wanted) -> None:
        self.rows.put(event.index, [texts.record_line(record) for record in self._records[event.index : event.last]])

    def _look(self) -> None:
        reader, record = self.query_one(Reader), self.current
        if record is None:
            self.forget("record")
            reader.read("")
            return
        head = Text.assemble((display_line(f"{record.file}:{record.line}", 200), "title"), "\n")
        head.append(display_line(record.reason, 400), "warn").append("\n\n")

        def read() -> str:
            try:
                return as_in_file(self.review.opened(), record)
            except CurateError as error:
                return f"({error.what})"

        self.in_thread("record", read, lambda line: reader.read(head.append(display_text(line))))
