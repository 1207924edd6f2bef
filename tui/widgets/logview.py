"""A log, scrolled with the keys of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from ..actions import Action, bindings

MOST = 1_000
"""Maximum lines shown, the last ones."""


class LogView(VerticalScroll, can_focus=True, inherit_bindings=False):
    """Shows texts below each other and stays at the end, unless it was scrolled away from there."""

    TITLE = "Log"
    ACTIONS = (
        Action("log.down", "j,down", "Down", "Scroll down", footer=False, call="scroll(1)"),
        Action("log.up", "k,up", "Up", "Scroll up", footer=False, call="scroll(-1)"),
        Action("log.page_down", "ctrl+d,pagedown", "Page down", "Page down", footer=False, call="page_down"),
        Action("log.page_up", "ctrl+u,pageup", "Page up", "Page up", footer=False, call="page_up"),
        Action("log.first", "g,home", "First", "Go to the first line", footer=False, call="scroll_home"),
        Action("log.last", "G,end", "Last", "Go to the last line", footer=False, call="scroll_end"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown: list[Text] = []

    def compose(self) -> ComposeResult:
        yield Static()

    def set_lines(self, lines: Sequence[Text]) -> None:
        """Show exactly these lines."""
        lines = list(lines[-MOST:])
        if lines == self.shown:
            return
        at_end = self.is_vertical_scroll_end
        self.shown = lines
        self.query_one(Static).update(Text("\n").join(lines))
        if at_end:
            self.call_after_refresh(self.scroll_end, animate=False)

    def action_scroll(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)
