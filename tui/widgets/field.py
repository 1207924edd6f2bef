"""An input line."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Input

from ...engine.pool.display import display_line


class Field(Input):
    """Textual's `Input` displays its value unchanged, so control characters in pasted text, or in text from a
    workspace, are made visible first."""

    def render_line(self, y: int) -> Strip:
        drawn = super().render_line(y)
        segments = [Segment(display_line(text), style, control) for text, style, control in drawn]
        return Strip(segments).adjust_cell_length(self.content_size.width, self.rich_style)

    async def complete(self) -> None:
        """Take the suggestion for what is typed. It is computed here, as the one that `Input` displays comes later."""
        typed = self.value
        if self.suggester is None or not typed or not self.cursor_at_end:
            return
        found = await self.suggester.get_suggestion(typed)
        if found is not None and self.value == typed:
            self.value = found
            self.cursor_position = len(found)
