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


ROOM = 1.5
"""A point decides while it lies at most this many times the best gain below the level."""

LEAST = 0.02
"""At least so far below the level points are drawn where they are."""


@dataclass(frozen=True, slots=True)
class CurveData:
    """``points`` (x, y) with x ascending and one ``label`` each; ``level``: a dashed horizontal line; ``star``: the
    index of a highlighted point. ``reaches`` (n,): half widths of the points' intervals. ``x`` and ``y`` name the
    axes."""

    points: Sequence[tuple[float, float]]
    labels: Sequence[str]
    level: float | None = None
    star: int | None = None
    reaches: Sequence[float] = ()
    x: str = ""
    y: str = ""

    def span(self) -> tuple[float, float]:
        """The lowest and the highest value drawn. The range is that of the points that decide: one far below the level,
        which nobody would choose, must not flatten the others; it is drawn at the lower edge."""
        values = [y for _, y in self.points] + ([] if self.level is None else [self.level])
        high = max(values)
        if self.level is not None:
            floor = self.level - max(ROOM * (high - self.level), LEAST)
            values = [value for value in values if value >= floor]
        low = min(values)
        edge = 0.08 * (high - low) or 0.01
        return low - edge, high + edge


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

    _margin = 7

    @property
    def _named(self) -> bool:
        """Whether there are lines to spare for the names of the axes."""
        return bool(self._drawn and (self._drawn.x or self._drawn.y)) and self.size.height >= 7

    @property
    def _rows(self) -> int:
        """Lines of the plot itself, without those of the axes."""
        return self.size.height - 1 - 2 * self._named

    def render(self) -> Text:
        width, height, drawn = self.size.width - self._margin, self._rows, self._drawn
        if drawn is None or width < 4 or height < 2:
            return Text()
        points = [self._place(point) for point in drawn.points]
        dots, labels, bars = strokes(points, width, height), self._labels(height), self._bars(points, width)
        mark, star = points[self.at], drawn.star
        steps = {
            (x // 2, y // 4): self._is_below(i)
            for i, (x, y) in enumerate(points)
            if self._is_below(i) or _sparse(points, width)
        }
        level = None if drawn.level is None else self._row(drawn.level) // 4
        lines = []
        for row in range(height):
            line = Text(labels.get(row, "").rjust(self._margin - 1) + " ", "muted")
            for column in range(width):
                code = dots[row][column]
                here = (column, row)
                if here == (mark[0] // 2, mark[1] // 4):
                    line.append("●", "accent")
                elif star is not None and here == (points[star][0] // 2, points[star][1] // 4):
                    line.append("◆", "good")
                elif here in steps:
                    line.append("▾" if steps[here] else "•", "muted" if steps[here] else "primary")
                elif code:
                    line.append(chr(0x2800 + code), "primary")
                elif here in bars:
                    line.append("╎", bars[here])
                elif row == level:
                    line.append("┈", "muted")
                else:
                    line.append(" ")
            lines.append(line)
        lines.append(self._axis(width, [x // 2 for x, _ in points]))
        if self._named:
            lines = [Text(drawn.y[: self.size.width], "muted"), *lines, self._x_name(width)]
        return Text("\n").join(lines)

    def _labels(self, height: int) -> dict[int, str]:
        """Values at the upper and the lower edge, and that of the level where it is apart from both; none twice."""
        assert self._drawn is not None
        low, high = self._drawn.span()
        found = {0: f"{high:.3f}", height - 1: f"{low:.3f}"}
        if self._drawn.level is not None:
            row = self._row(self._drawn.level) // 4
            if 0 < row < height - 1 and f"{self._drawn.level:.3f}" not in found.values():
                found[row] = f"{self._drawn.level:.3f}"
        return found

    def _bars(self, points: Sequence[tuple[int, int]], width: int) -> dict[tuple[int, int], str]:
        """Cells of the intervals with their styles: of all points if there is room, else of those marked."""
        drawn, found = self._drawn, dict[tuple[int, int], str]()
        assert drawn is not None
        shown = range(len(points)) if _sparse(points, width) else {self.at, drawn.star} - {None}
        for i in shown if drawn.reaches else ():
            assert i is not None
            value, reach = drawn.points[i][1], drawn.reaches[i]
            if reach <= 0 or self._is_below(i):
                continue
            style = "accent" if i == self.at else "good" if i == drawn.star else "muted"
            for row in range(self._row(value + reach) // 4, self._row(value - reach) // 4 + 1):
                found[points[i][0] // 2, row] = style
        return found

    def _is_below(self, i: int) -> bool:
        """Whether a point lies below what is drawn."""
        assert self._drawn is not None
        return self._drawn.points[i][1] < self._drawn.span()[0]

    def _x_name(self, width: int) -> Text:
        assert self._drawn is not None
        below = sum(map(self._is_below, range(len(self._drawn.points))))
        name = self._drawn.x + (f"   ▾ {below} lower" if below else "")
        return Text(" " * self._margin + name[:width].center(width).rstrip(), "muted")

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

    def _place(self, point: tuple[float, float]) -> tuple[int, int]:
        """A point's dot: (column, row) from the top left."""
        assert self._drawn is not None
        xs = [x for x, _ in self._drawn.points]
        span = (max(xs) - min(xs)) or 1
        across = (self.size.width - self._margin) * 2 - 1
        return round((point[0] - min(xs)) / span * across), self._row(point[1])

    def _row(self, value: float) -> int:
        """The dot row of a value, that of the nearest edge for one beyond it."""
        assert self._drawn is not None
        low, high = self._drawn.span()
        value = max(low, min(high, value))
        return round((high - value) / (high - low) * (self._rows * 4 - 1))


def _sparse(points: Sequence[tuple[int, int]], width: int) -> bool:
    """Whether every point can be told from its neighbours."""
    return len(points) * 3 <= width


def strokes(points: Sequence[tuple[int, int]], width: int, height: int) -> list[list[int]]:
    """Braille codes (height, width) of straight strokes from point to point."""
    cells = [[0] * width for _ in range(height)]
    for (x, y), (to_x, to_y) in zip(points, [*points[1:], points[-1]], strict=True):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            column, row = round(x + (to_x - x) * step / steps), round(y + (to_y - y) * step / steps)
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    return cells
