"""A text, scrolled with the keys of tables."""

from __future__ import annotations

from typing import ClassVar

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from ..actions import Action, bindings


class Reader(VerticalScroll, can_focus=True, inherit_bindings=False):
    """Shows one text or table."""

    TITLE = "Text"
    ACTIONS = (
        Action("detail.down", "j,down", "Down", "One line down", footer=False, call="scroll_by(1)"),
        Action("detail.up", "k,up", "Up", "One line up", footer=False, call="scroll_by(-1)"),
        Action("detail.page_down", "ctrl+d,pagedown", "Down", "Page down", footer=False, call="page(1)"),
        Action("detail.page_up", "ctrl+u,pageup", "Up", "Page up", footer=False, call="page(-1)"),
        Action("detail.top", "g,home", "Top", "Go to the top", footer=False, call="edge(False)"),
        Action("detail.bottom", "G,end", "Bottom", "Go to the bottom", footer=False, call="edge(True)"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def read(self, content: RenderableType) -> None:
        """Show this from its beginning. The caller has made it safe to display."""
        self.query_one(Static).update(content)
        self.scroll_home(animate=False)

    def action_scroll_by(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)

    def action_edge(self, bottom: bool) -> None:
        self.scroll_to(y=self.max_scroll_y if bottom else 0, animate=False)

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * max(1, self.size.height - 2), animate=False)
