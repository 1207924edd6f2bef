"""What all dialogs share, and the small ones: a confirmation before something large is done, an input of one line, and
a list of options: type to filter, enter to select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ...render.columns import LineColumn
from ..actions import Acting, Action
from ..widgets.bars import KeyBar
from ..widgets.field import Field
from ..widgets.lines import Line
from ..widgets.table import LineTable


class Dialog(Acting, ModalScreen[ScreenResultType]):
    """Can be dismissed once: a second key may be queued before the first one has closed it. Textual would call back
    again, and then close what lies below."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_close(self) -> None:
        self.dismiss()

    async def action_help(self) -> None:
        await self.app.run_action("help", default_namespace=self.app)

    async def action_complete(self) -> None:
        """Where a command line is typed."""
        await self.query_one(Field).complete()


LABEL, NOTE = 12, 10
"""Cells of a label and a note that stay beside each other."""

ROOM = 60
"""Cells of a line in most terminals."""


class Choose(Dialog[int | None]):
    """Returns the index of the selected option in ``options`` (label, note), None if none was selected. Without options
    they are still to come: what is typed, Enter too, waits for `fill`."""

    ACTIONS = (
        Action("choose.take", "enter", "Choose", "Choose the option under the cursor", bound=False),
        Action("choose.cancel", "escape", "Cancel", "Cancel", call="close"),
        Action("choose.down", "down,ctrl+n", "", "Next option", footer=False, call="step(1)"),
        Action("choose.up", "up,ctrl+p", "", "Previous option", footer=False, call="step(-1)"),
    )

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

    def _narrow(self, typed: str) -> None:
        self._shown = [i for i, (label, _) in enumerate(self._options) if typed.lower() in label.lower()]
        table = self.query_one(LineTable)
        table.message = "reading …" if self._awaited else "no match"
        table.fill([Line((label, Text(note, "muted"))) for label, note in (self._options[i] for i in self._shown)])
        table.cursor = 0


class Confirm(Dialog[bool]):
    """Shows what would be done, line by line, and returns whether to do it. Enter does not confirm: it may be on its
    way when the question appears."""

    ACTIONS = (
        Action("confirm.yes", "y", "Yes", "Confirm"),
        Action("confirm.no", "n,escape,q", "No", "Cancel"),
    )

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Static(Text("\n".join(map(display_line, self._lines))), classes="message")
            yield Static(Text.assemble(("y", "key"), " yes   ", ("n", "key"), " no"), classes="keys")
        yield KeyBar(actions=self.ACTIONS)

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class Note(Dialog[str | None]):
    """Returns the text at enter, None if it was not changed."""

    ACTIONS = (
        Action("note.keep", "enter", "Keep", "Keep the text", bound=False),
        Action("note.cancel", "escape", "Cancel", "Cancel", call="close"),
    )

    def __init__(self, title: str, line: str = "", does: str = "save, empty deletes it") -> None:
        """``does``: what enter does."""
        super().__init__()
        self._title, self._line, self._does = title, line, does

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog note"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Field(display_line(self._line), select_on_focus=False)
            yield Static(
                Text.assemble(("enter", "key"), f" {self._does}   ", ("esc", "key"), " cancel"),
                classes="keys",
            )
        yield KeyBar(actions=self.ACTIONS)

    @on(Input.Submitted)
    def _keep(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
