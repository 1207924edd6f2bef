"""A list of options: type to filter, enter to select."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ...render.columns import Column
from ..actions import Action, bindings
from ..widgets.field import Field
from ..widgets.lines import Line
from ..widgets.table import LineTable


class Choose(ModalScreen[int | None]):
    """Returns the index of the selected option in ``options`` (label, note), None if none was selected."""

    ACTIONS = (
        Action("choose.cancel", "escape", "Cancel", "Cancel"),
        Action("choose.down", "down,ctrl+n", "", "Next option", footer=False, call="step(1)"),
        Action("choose.up", "up,ctrl+p", "", "Previous option", footer=False, call="step(-1)"),
    )
    BINDINGS = bindings(ACTIONS)

    def __init__(self, title: str, options: Sequence[tuple[str, str]], current: int = 0) -> None:
        super().__init__()
        self._title, self._options, self._current = title, options, current
        self._shown: list[int] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog choose"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Field(placeholder="type to filter", compact=True)
            yield LineTable(
                [
                    Column("label", "", 12, grow=1, sortable=False),
                    Column("note", "", 10, right=True, rank=1, sortable=False),
                ],
                heading=False,
            )

    def on_mount(self) -> None:
        self.query_one(LineTable).styles.height = len(self._options)
        self._narrow("")
        self.query_one(LineTable).cursor = self._current

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._narrow(event.value)

    @on(Input.Submitted)
    @on(LineTable.Chosen)
    def _take(self) -> None:
        at = self.query_one(LineTable).cursor
        self.dismiss(self._shown[at] if self._shown else None)

    def action_step(self, by: int) -> None:
        self.query_one(LineTable).cursor += by

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _narrow(self, typed: str) -> None:
        self._shown = [i for i, (label, _) in enumerate(self._options) if typed.lower() in label.lower()]
        table = self.query_one(LineTable)
        table.message = "no match"
        table.fill([Line((label, Text(note, "muted"))) for label, note in (self._options[i] for i in self._shown)])
        table.cursor = 0
