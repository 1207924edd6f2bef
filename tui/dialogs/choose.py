"""A list of options: type to filter, enter to select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ...render.columns import LineColumn
from ..actions import Action, bindings
from ..widgets.field import Field
from ..widgets.keybar import KeyBar
from ..widgets.lines import Line
from ..widgets.table import LineTable
from .dialog import Dialog

LABEL, NOTE = 12, 10
"""Cells of a label and a note that stay beside each other."""

ROOM = 60
"""Cells of a line in most terminals."""


class Choose(Dialog[int | None]):
    """Returns the index of the selected option in ``options`` (label, note), None if none was selected. Without options
    they are still to come: what is typed, Enter too, waits for `fill`."""

    ACTIONS = (
        Action("choose.take", "enter", "Choose", "Choose the option under the cursor", call=""),
        Action("choose.cancel", "escape", "Cancel", "Cancel"),
        Action("choose.down", "down,ctrl+n", "", "Next option", footer=False, call="step(1)"),
        Action("choose.up", "up,ctrl+p", "", "Previous option", footer=False, call="step(-1)"),
    )
    BINDINGS = bindings([action for action in ACTIONS if action.name != "choose.take"])

    def __init__(self, title: str, options: Sequence[tuple[str, str]] | None = None, current: int = 0) -> None:
        super().__init__()
        self._title, self._options, self._current = title, options or (), current
        self._awaited, self._taken = options is None, False
        self._shown: list[int] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog choose"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Field(placeholder="type to filter", compact=True)
            yield LineTable((), heading=False)
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        self._arrange()

    def fill(self, options: Sequence[tuple[str, str]], current: int = 0) -> None:
        """The options have come."""
        self._options, self._current, self._awaited = options, current, False
        if self.is_mounted:
            self._arrange()
            if self._taken:
                self._take()

    def _arrange(self) -> None:
        """Show the options that match what is typed, with the cursor on the current one."""
        table = self.query_one(LineTable)
        label, note = (max((cell_len(display_line(one[i])) for one in self._options), default=0) for i in (0, 1))
        columns = [
            LineColumn("label", "", min(label, LABEL), grow=2, most=label, sortable=False, cut="middle"),
            LineColumn("note", "", min(note, NOTE), right=True, grow=1, most=note, sortable=False),
        ]
        if label + note < ROOM:  # the notes stand at the right edge
            columns[1] = replace(columns[1], most=1 << 20)
        table.arrange_columns(columns if note else [replace(columns[0], most=1 << 20)])
        table.styles.height = len(self._options) or 2
        typed = self.query_one(Input).value
        self._narrow(typed)
        if not typed:
            table.cursor = self._current

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._narrow(event.value)

    @on(Input.Submitted)
    @on(LineTable.Chosen)
    def _take(self) -> None:
        self._taken = True
        if self._awaited:
            return
        at = self.query_one(LineTable).cursor
        self.dismiss(self._shown[at] if self._shown else None)

    def action_step(self, by: int) -> None:
        self.query_one(LineTable).cursor += by

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _narrow(self, typed: str) -> None:
        self._shown = [i for i, (label, _) in enumerate(self._options) if typed.lower() in label.lower()]
        table = self.query_one(LineTable)
        table.message = "reading …" if self._awaited else "no match"
        table.fill([Line((label, Text(note, "muted"))) for label, note in (self._options[i] for i in self._shown)])
        table.cursor = 0
