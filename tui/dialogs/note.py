"""An input of one line."""

from __future__ import annotations

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ..actions import Action, bindings
from ..widgets.field import Field
from ..widgets.keybar import KeyBar
from .dialog import Dialog


class Note(Dialog[str | None]):
    """Returns the text at enter, None if it was not changed."""

    ACTIONS = (
        Action("note.keep", "enter", "Keep", "Keep the text", call=""),
        Action("note.cancel", "escape", "Cancel", "Cancel"),
    )
    BINDINGS = bindings([action for action in ACTIONS if action.name != "note.keep"])

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

    def action_cancel(self) -> None:
        self.dismiss(None)
