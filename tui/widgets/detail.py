"""Shows one demonstration in full."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from .demonstration import RowDetails, in_full
from .reader import Reader


class Detail(Reader):
    """Shows `demonstration.RowDetails`."""

    TITLE = "Demonstration"

    def tell(self, seen: RowDetails | None, first: RenderableType | None = None) -> None:
        """Show the demonstration, after what is to be read ``first``."""
        told = in_full(seen) if seen else Text()
        self.read(told if first is None else Group(first, "", told))
