"""Shows one demonstration in full."""

from __future__ import annotations

from rich.text import Text

from .demonstration import Seen, in_full
from .reader import Reader


class Detail(Reader):
    """Shows `demonstration.Seen`."""

    TITLE = "Demonstration"

    def tell(self, seen: Seen | None) -> None:
        self.read(in_full(seen) if seen else Text())
