"""A curve in braille, with a vertical line at one of its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a cell


@dataclass(frozen=True, slots=True)
class CurveData:
    """``points`` (x, y) with x ascending and one ``label`` each; ``level``: a dashed horizontal line; ``star``: the
    index of a highlighted point."""

    points: Sequence[tuple[float, float]]
    labels: Sequence[str]
    level: float | None = None
    star: int | None = None


class Curve(Widget):
    """Draws `CurveData` in the available space; ``at`` is the index of the marked point."""

    at: reactive[int] = reactive(0)

    class Picked(Message):
        """A place on the curve was clicked; ``at`` is the nearest point."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: CurveData | None = None

    def draw(self, drawn: CurveData, at: int) -> None:
        self._drawn = drawn
        self.at = at
        self.refresh()

    def validate_at(self, at: int) -> int:
        return max(0, min(at, len(self._drawn.points) - 1)) if self._drawn else 0

    def on_click(self, event: events.Click) -> None:
        if self._drawn:
            columns = [self._place(point)[0] // 2 for point in self._drawn.points]
            wanted = event.x - self._margin
            self.post_message(self.Picked(min(range(len(columns)), key=lambda i: abs(columns[i] - wanted))))

    def render(self) -> Text:
        width, height = self.size.width - self._margin, self.size.height - 1
        if self._drawn is None or width < 4 or height < 2:
            return Text()
        points = [self._place(point) for point in self._drawn.points]
        dots = strokes(points, width, height)
        low, high = self._range()
        lines = []
        mark, star = points[self.at], self._drawn.star
        steps = {(x // 2, y // 4) for x, y in points} if len(points) * 4 <= width else set()
        level = None if self._drawn.level is None else self._row(self._drawn.level) // 4
        for row in range(height):
            label = {0: f"{high:.3f}", height - 1: f"{low:.3f}"}.get(row, "")
            line = Text(label.rjust(self._margin - 1) + " ", "muted")
            for column in range(width):
                code = dots[row][column]
                here = (column, row)
                if here == (mark[0] // 2, mark[1] // 4):
                    line.append("●", "accent")
                elif star is not None and here == (points[star][0] // 2, points[star][1] // 4):
                    line.append("◆", "good")
                elif here in steps:
                    line.append("•", "primary")
                elif code:
                    line.append(chr(0x2800 + code), "primary")
                elif column == mark[0] // 2:
                    line.append("│", "accent")
                elif row == level:
                    line.append("┈", "muted")
                else:
                    line.append(" ")
            lines.append(line)
        lines.append(self._axis(width, [x // 2 for x, _ in points]))
        return Text("\n").join(lines)

    _margin = 7

    def _axis(self, width: int, columns: Sequence[int]) -> Text:
        """The marked point's label under its line, the first and the last if they fit."""
        assert self._drawn is not None
        taken: list[tuple[int, int, str, str]] = []
        for i, style in ((self.at, "accent"), (0, "muted"), (len(columns) - 1, "muted")):
            label = self._drawn.labels[i]
            start = max(0, min(columns[i] - len(label) // 2, width - len(label)))
            if all(start + len(label) < other or start > end for other, end, _, _ in taken):
                taken.append((start, start + len(label), label, style))
        line = Text(" " * self._margin)
        for start, _, label, style in sorted(taken):
            line.append(" " * (start + self._margin - len(line)))
            line.append(label, style)
        return line

    def _range(self) -> tuple[float, float]:
        assert self._drawn is not None
        values = [y for _, y in self._drawn.points] + ([] if self._drawn.level is None else [self._drawn.level])
        low, high = min(values), max(values)
        return (low, high) if high > low else (low - 0.01, high + 0.01)

    def _place(self, point: tuple[float, float]) -> tuple[int, int]:
        """A point's dot: (column, row) from the top left."""
        assert self._drawn is not None
        xs = [x for x, _ in self._drawn.points]
        span = (max(xs) - min(xs)) or 1
        across = (self.size.width - self._margin) * 2 - 1
        return round((point[0] - min(xs)) / span * across), self._row(point[1])

    def _row(self, value: float) -> int:
        low, high = self._range()
        return round((high - value) / (high - low) * ((self.size.height - 1) * 4 - 1))


def strokes(points: Sequence[tuple[int, int]], width: int, height: int) -> list[list[int]]:
    """Braille codes (height, width) of straight strokes from point to point."""
    cells = [[0] * width for _ in range(height)]
    for (x, y), (to_x, to_y) in zip(points, [*points[1:], points[-1]], strict=True):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            column, row = round(x + (to_x - x) * step / steps), round(y + (to_y - y) * step / steps)
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    return cells
