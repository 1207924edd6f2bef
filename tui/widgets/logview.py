"""Lines to read, scrolled with the keys of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.widgets import RichLog

from ..actions import Action, bindings


class LogView(RichLog, inherit_bindings=False):
    """Shows texts one below the other and stays at the end, unless it was scrolled away from there."""

    TITLE = "Log"
    ACTIONS = (
        Action("log.down", "j,down", "Down", "Further down", footer=False, call="scroll(1)"),
        Action("log.up", "k,up", "Up", "Further up", footer=False, call="scroll(-1)"),
        Action("log.page_down", "ctrl+d,pagedown", "Page down", "One screen down", footer=False),
        Action("log.page_up", "ctrl+u,pageup", "Page up", "One screen up", footer=False),
        Action("log.first", "g,home", "First", "To the first line", footer=False, call="scroll_home"),
        Action("log.last", "G,end", "Last", "To the last line", footer=False, call="scroll_end"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, wrap=True, markup=False, highlight=False, min_width=1, max_lines=5000)
        self.shown: list[Text] = []

    def tell(self, lines: Sequence[Text]) -> None:
        """Show exactly these lines; those already there are left as they are."""
        if self.shown != list(lines[: len(self.shown)]):
            self.clear()
            self.shown = []
        for line in lines[len(self.shown) :]:
            self.write(line, scroll_end=self.is_vertical_scroll_end)
        self.shown = list(lines)

    def action_scroll(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)
