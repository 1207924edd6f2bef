"""Plots: a curve in braille with one of its points marked, and intervals below each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ...engine.pool.display import display_line

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

    def __init__(self) -> None:
        super().__init__()
        self._drawn = CurveData((), ())

    def draw(self, drawn: CurveData, at: int) -> None:
        self._drawn = drawn
        self.at = at
        self.refresh()

    def validate_at(self, at: int) -> int:
        return max(0, min(at, len(self._drawn.points) - 1))

    def on_click(self, event: events.Click) -> None:
        if self._drawn.points:
            columns = [self._place(point)[0] // 2 for point in self._drawn.points]
            wanted = event.x - self._margin
            self.post_message(self.Picked(min(range(len(columns)), key=lambda i: abs(columns[i] - wanted))))

    _margin = 7

    @property
    def _named(self) -> bool:
        """Whether there are lines to spare for the names of the axes."""
        return bool(self._drawn.x or self._drawn.y) and self.size.height >= 7

    @property
    def _rows(self) -> int:
        """Lines of the plot itself, without those of the axes."""
        return self.size.height - 1 - 2 * self._named

    def render(self) -> Text:
        width, height, drawn = self.size.width - self._margin, self._rows, self._drawn
        if not drawn.points or width < 4 or height < 2:
            return Text()
        points, labels = [self._place(point) for point in drawn.points], self._labels(height)
        cells = dict[tuple[int, int], tuple[str, str]]()  # what is drawn later lies above
        if drawn.level is not None:
            cells |= {(column, self._row(drawn.level) // 4): ("┈", "muted") for column in range(width)}
        cells |= {here: ("╎", style) for here, style in self._bars(points, width).items()}
        cells |= {here: (chr(0x2800 + code), "primary") for here, code in levels(points).items()}
        for i, (x, y) in enumerate(points):
            if self._is_below(i) or _sparse(points, width):
                cells[x // 2, y // 4] = ("▾", "muted") if self._is_below(i) else ("•", "primary")
        for at, sign in ((drawn.star, ("◆", "good")), (self.at, ("●", "accent"))):
            if at is not None:
                cells[points[at][0] // 2, points[at][1] // 4] = sign
        lines = [
            Text.assemble(
                (labels.get(row, "").rjust(self._margin - 1) + " ", "muted"),
                *(cells.get((column, row), " ") for column in range(width)),
            )
            for row in range(height)
        ]
        lines.append(self._axis(width, [x // 2 for x, _ in points]))
        if self._named:
            lines = [Text(drawn.y[: self.size.width], "muted"), *lines, self._x_name(width)]
        return Text("\n").join(lines)

    def _labels(self, height: int) -> dict[int, str]:
        """Values at the upper and the lower edge, and that of the level on its own line, which may be one of them; none
        twice."""
        low, high = self._drawn.span()
        labels = {0: f"{high:.3f}", height - 1: f"{low:.3f}"}
        if self._drawn.level is not None:
            row = self._row(self._drawn.level) // 4
            label = f"{self._drawn.level:.3f}"
            if row in labels or label not in labels.values():
                labels[row] = label
        return labels

    def _bars(self, points: Sequence[tuple[int, int]], width: int) -> dict[tuple[int, int], str]:
        """Cells of the intervals with their styles: of all points if there is room, else of those marked."""
        drawn, cells = self._drawn, dict[tuple[int, int], str]()
        shown = [i for i in range(len(points)) if i in (self.at, drawn.star) or _sparse(points, width)]
        for i in shown if drawn.reaches else ():
            value, reach = drawn.points[i][1], drawn.reaches[i]
            if reach <= 0 or self._is_below(i):
                continue
            style = "accent" if i == self.at else "good" if i == drawn.star else "muted"
            for row in range(self._row(value + reach) // 4, self._row(value - reach) // 4 + 1):
                cells[points[i][0] // 2, row] = style
        return cells

    def _is_below(self, i: int) -> bool:
        """Whether a point lies below what is drawn."""
        return self._drawn.points[i][1] < self._drawn.span()[0]

    def _x_name(self, width: int) -> Text:
        below = sum(map(self._is_below, range(len(self._drawn.points))))
        name = self._drawn.x + (f"   ▾ {below} lower" if below else "")
        return Text(" " * self._margin + name[:width].center(width).rstrip(), "muted")

    def _axis(self, width: int, columns: Sequence[int]) -> Text:
        """The marked point's label under its line, the first and the last if they fit."""
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
        xs = [x for x, _ in self._drawn.points]
        span = (max(xs) - min(xs)) or 1
        across = (self.size.width - self._margin) * 2 - 1
        return round((point[0] - min(xs)) / span * across), self._row(point[1])

    def _row(self, value: float) -> int:
        """The dot row of a value, that of the nearest edge for one beyond it."""
        low, high = self._drawn.span()
        value = max(low, min(high, value))
        return round((high - value) / (high - low) * (self._rows * 4 - 1))


def _sparse(points: Sequence[tuple[int, int]], width: int) -> bool:
    """Whether every point can be told from its neighbours."""
    return len(points) * 3 <= width


def levels(points: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], int]:
    """Braille codes, by column and row, of a step function: each point's value holds from the point before it on."""
    cells = Counter[tuple[int, int]]()
    for (last, _), (x, y) in pairwise((points[0], *points)):
        for column in range(min(last + 1, x), x + 1):
            cells[column // 2, y // 4] |= _DOTS[y % 4][column % 2]
    return cells


@dataclass(frozen=True, slots=True)
class Span:
    """From ``low`` to ``high``, with the ``mark`` between them if there is one."""

    name: str
    low: float
    high: float
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class ForestScale:
    """How spans are drawn: ``ends`` the signs at low and high with their styles; ``level`` a vertical reference line;
    ``bounds`` the range of the axis, by default that of the spans; ``about`` is the axis label; ``names``: cells of
    names at most, or a third of the width."""

    about: str
    ends: tuple[tuple[str, str], tuple[str, str]] = (("├", "muted"), ("┤", "muted"))
    level: float | None = None
    bounds: tuple[float, float] | None = None
    names: int = 18


class Forest(Widget):
    """Draws spans in the given order; if not all fit, those around the one at ``at`` are drawn."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.spans: Sequence[Span] = ()
        self.look = ForestScale("")
        self.at = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.spans) + 1

    def draw(self, spans: Sequence[Span], look: ForestScale, at: int) -> None:
        self.spans, self.look, self.at = spans, look, at
        self.refresh(layout=True)

    def point(self, at: int) -> None:
        """Another line is the current one."""
        self.at = at
        self.refresh()

    def render(self) -> Text:
        if not self.spans:
            return Text()
        longest = max(len(display_line(name)) for name in [self.look.about, *(span.name for span in self.spans)])
        names = min(max(self.look.names, self.size.width // 3), longest)
        width, height = self.size.width - names - 3, self.size.height - 1
        if width < 16 or height < 1:
            return Text()
        low, high = min(span.low for span in self.spans), max(span.high for span in self.spans)
        if self.look.bounds:
            low, high = self.look.bounds
        elif high <= low:
            low, high = low - 0.05, high + 0.05
        ticks = _ticks(low, high, width // 10)
        low, high = min(low, ticks[0]), max(high, ticks[-1])

        def place(value: float) -> int:
            return round((value - low) / (high - low) * (width - 1))

        first = max(0, min(self.at - height // 2, len(self.spans) - height))
        lines = [
            self._line(span, names, width, place, i == self.at)
            for i, span in enumerate(self.spans[first : first + height], first)
        ]
        return Text("\n").join([*lines, self._axis(ticks, names, width, place)])

    def _line(self, span: Span, names: int, width: int, place: Callable[[float], int], here: bool) -> Text:
        cells: list[tuple[str, str]] = [(" ", "")] * width
        start, end = place(span.low), place(span.high)
        for i in range(start, end + 1):
            cells[i] = ("─", "primary" if here else "muted")
        if self.look.level is not None:
            at = place(self.look.level)
            cells[at] = ("┼" if start < at < end else "┊", "muted")
        cells[start], cells[end] = self.look.ends
        if span.mark is not None:
            cells[place(span.mark)] = ("●", "accent" if here else "primary")
        name = Text(display_line(span.name), "bold" if here else "", no_wrap=True)
        name.truncate(names, overflow="ellipsis", pad=True)
        return Text.assemble(" ", name, " ", *cells)

    def _axis(self, ticks: Sequence[float], names: int, width: int, place: Callable[[float], int]) -> Text:
        line = [" "] * width
        for tick in ticks:
            label = f"{tick:.2f}"
            start = max(0, min(place(tick) - 2, width - len(label)))
            if all(sign == " " for sign in line[max(0, start - 1) : start + len(label) + 1]):
                line[start : start + len(label)] = label
        about = Text(display_line(self.look.about), "muted", no_wrap=True)
        about.truncate(names, overflow="ellipsis", pad=True)
        return Text.assemble(" ", about, " ", ("".join(line), "muted"))


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round figures from at or below ``low`` to at or above ``high``, ``most`` of them or a few more."""
    rough = (high - low) / max(most, 2)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]
