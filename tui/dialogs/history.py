"""List decisions, latest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ...engine.store.decisions import DecisionBatch, history
from ...render.columns import LineColumn
from ..actions import Action
from ..widgets.bars import KeyBar
from ..widgets.lines import Line
from ..widgets.table import LineTable
from ..workers import BackgroundWork
from .dialog import Dialog

if TYPE_CHECKING:
    pass

MOST = 500


class History(Dialog[None], BackgroundWork):
    """Who decided what, when and why; ``u`` undoes the latest decision and updates the list."""

    TITLE = "History"
    ACTIONS = (
        Action("history.undo", "u", "Undo latest", "Undo the latest decision", "icl-curate undo"),
        Action("history.close", "escape,q,H", "Close", "Back to the tab"),
    )

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog history"):
            yield Static(Text("Decisions, latest first", "bold"), classes="heading")
            yield LineTable(
                [
                    LineColumn("batch", "#", 4, right=True, rank=4, sortable=False),
                    LineColumn("when", "when", 16, rank=3, sortable=False),
                    LineColumn("who", "who", 8, rank=5, sortable=False),
                    LineColumn("did", "did", 8, sortable=False),
                    LineColumn("targets", "which", 16, grow=2, sortable=False),
                    LineColumn("reason", "why", 10, grow=1, rank=2, sortable=False),
                    LineColumn("undone", "", 6, rank=1, sortable=False),
                ]
            )
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        self.reload()

    def reload(self) -> None:
        self.in_thread("load", lambda: history(self.review.opened(), MOST), self._show)

    def _show(self, entries: Sequence[DecisionBatch]) -> None:
        table = self.query_one(LineTable)
        table.message = "no decisions yet"
        table.fill([_line(entry) for entry in entries])

    def action_undo(self) -> None:
        self.review.undo(self.reload)


def _line(entry: DecisionBatch) -> Line:
    targets = ", ".join(entry.targets[:5]) + (f" … {len(entry.targets):,} in all" if len(entry.targets) > 5 else "")
    cells = (
        entry.batch, f"{entry.decided_at:%Y-%m-%d %H:%M}", entry.who, entry.action, f"{entry.scope} {targets}",
        entry.reason, "undone" if entry.undone else "",
    )  # fmt: skip
    return Line(cells, "muted" if entry.undone or entry.action == "undo" else "")
