"""Shows one demonstration in full."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from .demonstration import RowDetails, in_full
from .reader import Reader


class Detail(Reader):
    """Shows `demonstration.RowDetails`."""

    TITLE = "Demonstration"

    def show_row(self, seen: RowDetails | None, first: RenderableType | None = None) -> None:
        """Show the demonstration, after what is to be read ``first``."""
        text = in_full(seen) if seen else Text()
        self.read(text if first is None else Group(first, "", text))
