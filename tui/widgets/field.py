"""A line to type."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Input

from ...engine.pool.display import display_line


class Field(Input):
    """Textual's `Input`, which draws its value as it is: what was pasted, or put there from a workspace, is made
    visible first."""

    def render_line(self, y: int) -> Strip:
        drawn = super().render_line(y)
        segments = [Segment(display_line(text), style, control) for text, style, control in drawn]
        return Strip(segments).adjust_cell_length(self.content_size.width, self.rich_style)
