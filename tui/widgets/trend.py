"""A small plot of a figure over time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from .curve import strokes
from .lines import short


class Trend(Widget):
    """The values of one figure in the order received, its name and the latest above them."""

    def __init__(self, title: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title = title
        self.values: Sequence[float] = ()

    def draw(self, values: Sequence[float]) -> None:
        if list(values) != list(self.values):
            self.values = tuple(values)
            self.refresh()

    def render(self) -> Text:
        width, height = self.size.width, self.size.height - 1
        if not self.values or width < 8:
            return Text()
        low, high = min(self.values), max(self.values)
        head = Text.assemble((self.title, "muted"), " ", (short(self.values[-1]), "title"))
        scale = f"{short(low)}–{short(high)}"
        if head.cell_len + len(scale) + 2 <= width and high > low:
            head.append(" " * (width - head.cell_len - len(scale)))
            head.append(scale, "muted")
        if height < 1:
            return head
        rows = strokes(self._points(width, height, low, high), width, height)
        lines = ["".join(chr(0x2800 + code) if code else " " for code in row) for row in rows]
        return Text("\n").join([head, Text("\n".join(lines), "primary")])

    def _points(self, width: int, height: int, low: float, high: float) -> list[tuple[int, int]]:
        last = max(len(self.values) - 1, 1)
        span = (high - low) or 1.0
        return [
            (round(i / last * (width * 2 - 1)), round((high - value) / span * (height * 4 - 1)))
            for i, value in enumerate(self.values)
        ]
