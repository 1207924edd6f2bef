"""Records that the index could not use: by reason, with file and line, and as they are in their file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.index.results import Skipped, SkippedReason, as_in_file, skipped_records
from ....engine.pool.display import display_line, display_text
from ...actions import Action, bindings
from ...widgets.reader import Reader
from ...widgets.table import LineTable
from ...workers import at_rest
from .aside import Aside
from .group_rows import REASONS, RECORDS, reason_line, record_line, skipped_line


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
