"""Intervals below each other on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.geometry import Size
from textual.widget import Widget

from ...engine.pool.display import display_line


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
    ``bounds`` the range of the axis, by default that of the spans; ``about`` is the axis label; ``names`` the maximum
    width of names in cells."""

    about: str
    ends: tuple[tuple[str, str], tuple[str, str]]
    level: float | None = None
    bounds: tuple[float, float] | None = None
    names: int = 18


class Forest(Widget):
    """Draws spans in the given order; if not all fit, those around the one at ``at`` are drawn."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.spans: Sequence[Span] = ()
        self.look: ForestScale | None = None
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
        if not self.spans or self.look is None:
            return Text()
        names = min(
            self.look.names, max(len(display_line(name)) for name in [self.look.about, *(s.name for s in self.spans)])
        )
        width, height = self.size.width - names - 3, self.size.height - 1
        if width < 16 or height < 1:
            return Text()
        low, high = self.look.bounds or _reach(self.spans)
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

    def _line(self, span: Span, names: int, width: int, place: object, here: bool) -> Text:
        assert self.look is not None
        assert callable(place)
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

    def _axis(self, ticks: Sequence[float], names: int, width: int, place: object) -> Text:
        assert self.look is not None
        assert callable(place)
        line = [" "] * width
        for tick in ticks:
            label = f"{tick:.2f}"
            start = max(0, min(place(tick) - 2, width - len(label)))
            if all(sign == " " for sign in line[max(0, start - 1) : start + len(label) + 1]):
                line[start : start + len(label)] = label
        about = Text(display_line(self.look.about), "muted", no_wrap=True)
        about.truncate(names, overflow="ellipsis", pad=True)
        return Text.assemble(" ", about, " ", ("".join(line), "muted"))


def _reach(spans: Sequence[Span]) -> tuple[float, float]:
    low, high = min(span.low for span in spans), max(span.high for span in spans)
    return (low, high) if high > low else (low - 0.05, high + 0.05)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round figures from at or below ``low`` to at or above ``high``, ``most`` of them or a few more."""
    rough = (high - low) / max(most, 2)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]
