"""Lists that the Demos tab shows in place of all rows: rows that repeat each other and rows that queries repeat, group
by group and side by side; and records that the index could not use, as they are in their file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from ....engine.base.errors import CurateError, WorkspaceError
from ....engine.index.results import Skipped
from ....engine.index.skipped import SkippedReason, as_in_file, skipped_records
from ....engine.pool.display import display_line, display_text
from ....engine.store.groups import GroupKind
from ...actions import Action, bindings
from ...model import PoolRow
from ...row_keys import PoolTable, RowTable
from ...tab import RETRY, Part, ReviewSession
from ...widgets.reader import Reader
from ...widgets.table import LineTable
from ...workers import BackgroundWork, at_rest
from .groups import (
    GROUPS,
    MEMBERS,
    REASONS,
    RECORDS,
    GroupPage,
    GroupsModel,
    group_line,
    groups_line,
    member_line,
    reason_line,
    record_line,
    side_by_side,
    skipped_line,
)


class Aside(Part, BackgroundWork):
    """A list; it is read when it is first displayed, and again when the workspace changes."""

    class Left(Message):
        """The user goes back to all demonstrations."""

    @property
    def review(self) -> ReviewSession:
        return cast(ReviewSession, self.app)

    @property
    def table(self) -> LineTable:
        """What takes focus."""
        raise NotImplementedError

    def look_again(self, anew: bool = False) -> None:
        """The workspace may have changed. ``anew``: the list was opened."""
        raise NotImplementedError

    def copied(self) -> str:
        """The text that ``y`` copies."""
        return ""

    def on_show(self) -> None:
        self.look_again(anew=True)


def _actions(name: str, one: tuple[str, str], every: tuple[str, str], cli: str) -> tuple[Action, ...]:
    """Actions of a list of groups; ``one`` and ``every``: label and description of the decision on a group, and on all
    of them."""
    return (
        Action(f"{name}.back", "escape", "Back", "Back to the groups, then to all demonstrations"),
        Action(f"{name}.prune", "x", *one),
        Action(f"{name}.prune_all", "X", *every, cli),
        Action(f"{name}.restore", "r", "Restore", "Restore the pruned rows of the group, or this one"),
        Action(f"{name}.open", "v", "Open only", "Show only groups with several active rows, or all", call="open"),
        Action(f"{name}.rows", "enter", "Rows", "Go to the rows of the group", footer=False),
    )


class GroupsList(Aside):
    """Groups above their rows above two rows side by side."""

    KIND: ClassVar[GroupKind]
    ENTRIES: ClassVar[str]

    def __init__(self, id: str) -> None:
        super().__init__(id=id, classes="aside groups")
        self.model = GroupsModel(self.KIND)

    def compose(self) -> ComposeResult:
        yield Static(classes="told")
        yield RowTable(GROUPS, marked=lambda line: False)
        yield PoolTable(MEMBERS, self._member, marked=lambda line: False)
        yield Reader()

    def on_mount(self) -> None:
        self.table.message = "reading …"

    @property
    def table(self) -> LineTable:
        return self.query(LineTable).first()

    @property
    def members(self) -> PoolTable:
        return self.query_one(PoolTable)

    def copied(self) -> str:
        group = self.model.at(self.table.cursor)
        return json.dumps(group.as_json(), ensure_ascii=False) if group else ""

    # Reading.

    def look_again(self, anew: bool = False) -> None:
        if not self.has_class("-open"):
            return
        top = round(self.table.scroll_y)
        self.in_thread("groups", lambda: self.model.look(self.review.opened(), top), self._take)

    def _take(self, page: GroupPage) -> None:
        cursor = self.model.take(page, self.table.cursor)
        self.table.message = f"no {self.ENTRIES}" + (" with several active rows" if self.model.only_open else "")
        self.table.size_to(len(page.of))
        self.table.cursor = cursor
        self._put(page)
        self._show_status()

    def _put(self, page: GroupPage) -> None:
        if self.model.put(page):
            self.table.put(page.first, [group_line(group) for group in page.groups])
            self._show_members()

    @on(LineTable.Wanted)
    def _page(self, event: LineTable.Wanted) -> None:
        event.stop()
        found, first, last = self.model.found, event.index, event.last
        if event.table is self.table and found is not None:
            self.in_thread("page", lambda: self.model.page(self.review.opened(), found, first, last), self._put)

    def failed(self, kind: str, error: CurateError) -> None:
        if kind != "groups":
            super().failed(kind, error)
            return
        self.model.trouble = f"{error.what}: {error.fix}" if error.fix else error.what
        self._show_status()
        if isinstance(error, WorkspaceError):
            self.set_timer(RETRY, self.look_again)

    # Drawing.

    def _show_status(self) -> None:
        self.query_one(".told", Static).update(groups_line(self.model, self.ENTRIES))

    def _show_members(self) -> None:
        group = self.model.at(self.table.cursor)
        self.members.fill([member_line(row) for row in group.rows] if group else [])
        self._compare()

    def _compare(self) -> None:
        group, reader = self.model.at(self.table.cursor), self.query_one(Reader)
        reader.read(side_by_side(*self.model.pair(group, self.members.cursor)) if group else "")

    @on(LineTable.Moved)
    def _moved(self, event: LineTable.Moved) -> None:
        event.stop()
        if event.table is self.table:
            self.members.cursor = 0
            self._show_members()
        else:
            self._compare()

    # Actions.

    def action_rows(self) -> None:
        """Also what a double click does."""
        self._chosen(LineTable.Chosen(self.table, self.table.cursor))

    @on(LineTable.Chosen)
    def _chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        self.add_class("-reading")
        target = self.members if event.table is self.table else self.query_one(Reader)
        if target is self.members and self.members.count > 1 and self.members.cursor == 0:
            self.members.cursor = 1
        self.call_after_refresh(target.focus)

    def action_back(self) -> None:
        """From the text to the rows, to the groups, to all demonstrations."""
        if self.query_one(Reader).has_focus:
            self.members.focus()
            return
        if self.table.has_focus:
            self.post_message(self.Left())
        self.remove_class("-reading")
        self.table.focus()

    def action_open(self) -> None:
        self.model.only_open = not self.model.only_open
        self.look_again()

    # Decisions.

    def _member(self, at: int) -> PoolRow | None:
        return self.model.member(self.table.cursor, at)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Among the rows of a group, ``x`` is meant for one of them."""
        return action != "prune" or not self.members.has_focus

    def action_prune(self) -> None:
        if group := self.model.at(self.table.cursor):
            self.review.decide("prune", "demonstration", lambda workspace: self.model.pruned(workspace, group))

    def action_prune_all(self) -> None:
        self.review.decide("prune", "demonstration", self.model.all_pruned)

    def action_restore(self) -> None:
        group = self.model.at(self.table.cursor)
        alone = self.members.cursor if self.members.has_focus else None
        names = self.model.restored(group, alone) if group else []
        if names:
            self.review.decide("restore", "demonstration", names, f"in review, {self.KIND}")
        elif group:
            self.app.notify("no pruned row here", timeout=3)


class RepeatsList(GroupsList):
    """Duplicates, as the index found them."""

    KIND = "duplicate"
    ENTRIES = "duplicates"
    TITLE = "Repeats"
    ABOUT = "Rows that repeat each other. The first of each output stays. ≈ to prune, ✗ pruned."
    ACTIONS = _actions(
        "repeats",
        ("Keep first", "Keep the first row of the group and prune those that repeat it"),
        ("Keep first of all", "Keep the first row of every group, as one decision"),
        "icl-curate check prune duplicate",
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)


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
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)


class SkippedTable(LineTable, inherit_bindings=False):
    """A table of the list, whose footer says what enter opens."""

    TITLE = "Skipped"
    ACTIONS = (
        Action(
            "skipped.open", "enter", "Open", "Go to the records with this reason, then to the record", call="choose"
        ),
        *(action for action in LineTable.ACTIONS if action.name != "table.choose"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)


class SkippedList(Aside):
    """Reasons above their records above one record. Nothing can be decided here: the file has to be corrected."""

    TITLE = "Skipped"
    ABOUT = "Records that index could not use, by reason, as icl-curate skipped lists them."
    ACTIONS = (Action("skipped.back", "escape", "Back", "Back to the reasons, then to all demonstrations"),)
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self, id: str) -> None:
        super().__init__(id=id, classes="aside groups")
        self._reasons: Sequence[SkippedReason] | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="told")
        yield SkippedTable(REASONS, id="skip-reasons")
        yield SkippedTable(RECORDS, id="skip-records")
        yield Reader()

    def on_mount(self) -> None:
        self.table.message = "reading …"
        self._look_soon = at_rest(self, 0.06, self._look)

    @property
    def table(self) -> LineTable:
        return self.query_one("#skip-reasons", LineTable)

    @property
    def records(self) -> LineTable:
        return self.query_one("#skip-records", LineTable)

    @property
    def current(self) -> Skipped | None:
        """The record under the cursor."""
        records = self._records
        return records[self.records.cursor] if self.records.cursor < len(records) else None

    @property
    def _records(self) -> Sequence[Skipped]:
        reasons, at = self._reasons or (), self.table.cursor
        return reasons[at].records if at < len(reasons) else ()

    def copied(self) -> str:
        one = self.current
        return f"{one.file}:{one.line}: {one.reason}" if one else ""

    def look_again(self, anew: bool = False) -> None:
        if self.has_class("-open"):
            self.in_thread("skipped", lambda: skipped_records(self.review.opened()).reasons, self._take)

    def _take(self, reasons: Sequence[SkippedReason]) -> None:
        if reasons == self._reasons:
            return
        self._reasons = reasons
        self.table.message = "index has skipped no record"
        self.query_one(".told", Static).update(skipped_line(reasons))
        self.table.fill([reason_line(one) for one in reasons])
        self._show_records()

    def _show_records(self) -> None:
        self.records.size_to(len(self._records))
        self.records.cursor = 0
        self.records.put(0, [record_line(one) for one in self._records[:100]])
        self._look_soon()

    @on(LineTable.Wanted, "#skip-records")
    def _page(self, event: LineTable.Wanted) -> None:
        event.stop()
        self.records.put(event.index, [record_line(one) for one in self._records[event.index : event.last]])

    @on(LineTable.Moved)
    def _moved(self, event: LineTable.Moved) -> None:
        event.stop()
        if event.table is self.table:
            self._show_records()
        else:
            self._look_soon()

    def _look(self) -> None:
        one = self.current
        if one is None:
            self.query_one(Reader).read("")
            return

        def read() -> str:
            try:
                return as_in_file(self.review.opened(), one)
            except CurateError as error:
                return f"({error.what})"

        self.in_thread("record", read, lambda line: self._looked(one, line))

    def _looked(self, one: Skipped, line: str) -> None:
        head = Text.assemble(
            (display_line(f"{one.file}:{one.line}", 200), "title"),
            "\n",
            (display_line(one.reason, 400), "warn"),
            "\n\n",
        )
        self.query_one(Reader).read(head.append(display_text(line)))

    @on(LineTable.Chosen)
    def _chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        self.add_class("-reading")
        self.call_after_refresh((self.records if event.table is self.table else self.query_one(Reader)).focus)

    def action_back(self) -> None:
        """From the record to the list, to the reasons, to all demonstrations."""
        if self.query_one(Reader).has_focus:
            self.records.focus()
            return
        if self.table.has_focus:
            self.post_message(self.Left())
        self.remove_class("-reading")
        self.table.focus()
