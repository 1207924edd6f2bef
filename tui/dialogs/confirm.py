"""A confirmation before something large is done."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ...engine.pool.display import display_line
from ..actions import Action, bindings
from ..widgets.keybar import KeyBar
from .dialog import Dialog


class Confirm(Dialog[bool]):
    """Shows what would be done, line by line, and returns whether to do it. Enter does not confirm: it may be on its
    way when the question appears."""

    ACTIONS = (
        Action("confirm.yes", "y", "Yes", "Confirm"),
        Action("confirm.no", "n,escape,q", "No", "Cancel"),
    )
    BINDINGS = bindings(ACTIONS)

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
