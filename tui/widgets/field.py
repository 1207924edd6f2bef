"""An input line, whose last word can be completed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Input

from ...engine.pool.display import display_line
from ..completion import NextWord


class Field(Input):
    """Textual's `Input` displays its value unchanged, so control characters in pasted text, or in text from a
    workspace, are made visible first."""

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
        drawn = super().render_line(y)
        segments = [Segment(display_line(text), style, control) for text, style, control in drawn]
        return Strip(segments).adjust_cell_length(self.content_size.width, self.rich_style)
