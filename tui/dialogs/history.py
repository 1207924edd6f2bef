"""Decisions as a stack: what each was about, its rows, undo and redo; and the notices of this session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.notifications import Notification
from textual.widgets import Static

from ...engine.base.errors import CurateError
from ...engine.pool.display import display_line
from ...engine.store.decisions import DecidedRow, DecisionBatch, decided_rows, history
from ...render.columns import LineColumn
from ...render.pool import decided
from ..actions import FIND, Action
from ..widgets.bars import COLOURS, KeyBar
from ..widgets.lines import Line, names_line
from ..widgets.table import LineTable
from ..workers import BackgroundWork, error_text
from .dialog import Dialog

MOST = 500
"""Decisions that are listed, and rows of one."""

DECISIONS = (
    LineColumn("batch", "#", 4, right=True),
    LineColumn("when", "when", 12, rank=3),
    LineColumn("did", "did", 8, grow=1, most=18),
    LineColumn("rows", "rows", 6, right=True, rank=1),
    LineColumn("what", "what", 20, grow=4),
    LineColumn("reason", "why", 12, grow=2, rank=2),
    LineColumn("who", "who", 8, rank=4),
)
ROWS = (
    LineColumn("id", "id", 10, rank=2, grow=1, most=16, cut="start"),
    LineColumn("source", "source", 10, rank=1, grow=1, most=18, cut="middle"),
    LineColumn("before", "output", 12, grow=3, most=28, cut="middle"),
    LineColumn("after", "→", 12, grow=3, most=28, cut="middle"),
    LineColumn("input", "input", 16, grow=6),
)


NOTICES = (
    LineColumn("when", "when", 8),
    LineColumn("told", "notices of this session, latest first", 20, grow=1, most=1 << 20),
)


class History(Dialog[None], BackgroundWork):
    """Who decided what, when and why; ``u`` and ``U`` go back and forth, Enter shows the rows. Beside it, notices."""

    TITLE = "History"
    ACTIONS = (
        Action("history.rows", "enter", "Rows", "Show the rows of the decision under the cursor", bound=False),
        Action("history.undo", "u", "Undo latest", "Undo the latest decision", "icl-curate undo"),
        Action("history.redo", "U", "Redo", "Bring back what was undone last", "icl-curate redo"),
        Action("history.other", "tab", "Notices", "Go to the notices of this session, or back to the decisions"),
        Action("history.close", "escape,q,H", "Close", "Back to the list, then to the tab"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._listed: Sequence[DecisionBatch] = ()
        self.rows: LineTable = LineTable(ROWS, id="decided", message="reading …")
        """Rows of one decision, in place of the list."""
        self.notices = LineTable(NOTICES, id="notices", moved=self._show_whole, message="no notices yet")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog history"):
            yield Static(id="heading")
            yield LineTable(DECISIONS, id="decisions", message="reading …")
            yield self.rows
            yield self.notices
            yield Static(id="whole", markup=False)
        yield KeyBar(actions=[*self.ACTIONS, FIND])

    def on_mount(self) -> None:
        self._show_only(self.table)
        self.watch(self.review, "notice", self._show_notices)
        self.reload()

    def reload(self) -> None:
        self.in_thread("load", lambda: history(self.review.opened(), MOST), self._show)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        unread = self.rows if kind == "rows" else self.table
        unread.message = error_text(error, ": ")
        unread.refresh()

    @property
    def table(self) -> LineTable:
        return self.query_one("#decisions", LineTable)

    def _show(self, entries: Sequence[DecisionBatch]) -> None:
        self._listed = entries
        self.table.message = "no decisions yet"
        self.table.fill([_line(entry) for entry in entries])
        self._name_parts()

    def _name_parts(self) -> None:
        counts = {"decisions": len(self._listed), "notices": len(self.review.notices)}
        if not self.rows.display:
            shown = "notices" if self.notices.display else "decisions"
            self.query_one("#heading", Static).update(names_line(counts, shown, "tab"))

    def _show_only(self, shown: LineTable) -> None:
        """One of the lists, with the focus."""
        for table in (self.table, self.rows, self.notices):
            table.display = table is shown
        self.query_one("#whole").display = shown is self.notices
        self._name_parts()
        shown.focus()

    def _show_notices(self) -> None:
        self.notices.fill([_notice_line(notice) for notice in self.review.notices])
        self._name_parts()
        self._show_whole()

    def _show_whole(self) -> None:
        """The notice under the cursor, which its line may cut."""
        told = [notice.message for notice in self.review.notices][self.notices.cursor :][:1]
        self.query_one("#whole", Static).update("".join(told))

    def action_other(self) -> None:
        self._show_only(self.table if self.notices.display else self.notices)

    def on_click(self, event: events.Click) -> None:
        if event.style.meta.get("name"):
            self.action_other()

    @on(LineTable.Chosen, "#decisions")
    def _open(self, event: LineTable.Chosen) -> None:
        event.stop()
        made = self._listed[event.index]
        if made.scope == "batch":  # an undo or a redo: those of the decision that it meant
            made = next((one for one in self._listed if str(one.batch) == made.targets[0]), made)
        head = f"#{made.batch}  {made.action}  {decided(made)}  {made.reason}"
        self.query_one("#heading", Static).update(Text(display_line(head, 200), "bold"))
        self.rows.message = "reading …"
        self.rows.fill([])
        self._show_only(self.rows)
        self.in_thread("rows", lambda: decided_rows(self.review.opened(), made.batch, MOST), self._show_rows)

    def _show_rows(self, found: Sequence[DecidedRow]) -> None:
        self.rows.message = "none of its rows are in the pool"
        self.rows.fill([_row_line(one) for one in found])

    def action_undo(self) -> None:
        self.review.undo(self.reload)

    def action_redo(self) -> None:
        self.review.redo(self.reload)

    def action_close(self) -> None:
        if self.rows.display:
            self._show_only(self.table)
        else:
            self.dismiss()


def _line(entry: DecisionBatch) -> Line:
    cells = (
        entry.batch, f"{entry.decided_at:%d %b %H:%M}", entry.action, sum(entry.by.values()) or "",
        display_line(decided(entry)), display_line(entry.reason), entry.who,
    )  # fmt: skip
    gone = entry.undone or entry.scope == "batch"
    return Line(cells, "muted" if gone else "", ("✗", "muted") if entry.undone else (" ", ""))


def _notice_line(notice: Notification) -> Line:
    told = Text("  ·  ".join(map(display_line, notice.message.split("\n"))), COLOURS[notice.severity])
    return Line((f"{datetime.fromtimestamp(notice.raised_at):%H:%M:%S}", told))


def _row_line(one: DecidedRow) -> Line:
    after = Text(f"→ {display_line(one.after)}", "accent") if one.after else ""
    return Line((one.id, one.source, display_line(one.before), after, display_line(one.input)))
