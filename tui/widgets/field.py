"""An input line, whose last word can be completed, and an area of several lines. Textual's own display their text
unchanged, so control characters in what is pasted, or in text from a workspace, are made visible first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widgets import Input, TextArea

from ...engine.pool.display import display_line
from ..completion import NextWord


class Field(Input):
    """An input line."""

    def __init__(
        self, value: str = "", *, completed: Callable[[str], Sequence[NextWord]] | None = None, **more: Any
    ) -> None:
        """``completed``: what the text can become; it is called in a thread."""
        super().__init__(value, **more)
        self.completed = completed

    def put(self, text: str) -> None:
        """Replace the text, with the cursor behind it."""
        self.value = text
        self.cursor_position = len(text)

    def render_line(self, y: int) -> Strip:
        return _visible(super().render_line(y), self.rich_style)


class Area(TextArea):
    """Lines of text."""

    def render_line(self, y: int) -> Strip:
        return _visible(super().render_line(y), self.rich_style)


def _visible(drawn: Strip, style: Style) -> Strip:
    """The line with the width that it had."""
    segments = [Segment(display_line(text), style, control) for text, style, control in drawn]
    return Strip(segments).adjust_cell_length(drawn.cell_length, style)
