"""Pictures as SVG within a page: bars, dots with whiskers, steps. Colours come from the page's style, so that they
follow light, dark and print; shapes alone tell before from after."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...engine.base.errors import counted
from ...engine.pool.display import display_line
from .document import BarPair, Dot, Mark, Picture, StepBar

WIDTH, ROW, BAR, EDGE = 400, 38, 12, 4
"""Of the drawing, in its own units: a phone shows it at four fifths of this size. Each mark has a line of text and a
bar below it."""

LONGEST = 34
"""Characters of a name that fit beside its value."""


def drawn(picture: Picture, number: int) -> str:
    """The picture as an ``svg`` element; ``number`` makes its ids unique within the page."""
    marks, axis = "", 0
    for place, mark in enumerate(picture.marks):
        marks += _mark(mark, picture.marks, place * ROW)
    height = len(picture.marks) * ROW
    if isinstance(picture.marks[0], Dot):
        marks, axis = _axis(height) + marks, 22
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + axis}" role="img" aria-labelledby="picture-{number} about-{number}">'
        f'<title id="picture-{number}">{_text(picture.title)}</title>'
        f'<desc id="about-{number}">{_text(picture.about)}</desc>{marks}</svg>'
    )


def _mark(mark: Mark, marks: Sequence[Mark], top: int) -> str:
    if isinstance(mark, BarPair):
        most = max(one.before for one in marks if isinstance(one, BarPair)) or 1
        label = _label(mark.name, f"{mark.before:,} → {mark.after:,}", top)
        return label + _bar("before", mark.before / most, top) + _bar("after", mark.after / most, top)
    if isinstance(mark, StepBar):
        most = max(one.calls for one in marks if isinstance(one, StepBar)) or 1
        told = counted(mark.calls, "call") + (f", {mark.gain}" if mark.gain else "")
        return _label(mark.name, told, top) + _bar("after", mark.calls / most, top)
    return _label(mark.name, f"{mark.value:.3f}", top) + _whiskers(mark, top)


def _label(name: str, value: str, top: int) -> str:
    """A name on the left and its value on the right."""
    return (
        f'<text x="{EDGE}" y="{top + 14}">{_text(name, LONGEST)}</text>'
        f'<text x="{WIDTH - EDGE}" y="{top + 14}" text-anchor="end">{_text(value)}</text>'
    )


def _bar(kind: str, share: float, top: int) -> str:
    inset = 0 if kind == "before" else 3
    size = f'width="{share * (WIDTH - 2 * EDGE):.1f}" height="{BAR - 2 * inset}"'
    return f'<rect class="{kind}" x="{EDGE}" y="{top + 20 + inset}" {size} rx="1"/>'


def _whiskers(mark: Dot, top: int) -> str:
    middle, low, high = top + 26, _at(mark.low), _at(mark.high)
    ends = "".join(f'<path class="line" d="M{x:.1f} {middle - 5}v10"/>' for x in (low, high))
    kind = "hollow" if mark.hollow else "filled"
    return (
        f'<path class="line" d="M{low:.1f} {middle}H{high:.1f}"/>{ends}'
        f'<circle class="{kind}" cx="{_at(mark.value):.1f}" cy="{middle}" r="5"/>'
    )


def _axis(height: int) -> str:
    """Lines at quarters from 0 to 1, with their values below."""
    marks = ""
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _at(tick)
        marks += f'<path class="grid" d="M{x:.1f} 0V{height}"/>'
        marks += f'<text class="tick" x="{x:.1f}" y="{height + 15}" text-anchor="middle">{tick:g}</text>'
    return marks


def _at(share: float) -> float:
    """Where a share is drawn, with room for the axis' texts."""
    return 4 * EDGE + share * (WIDTH - 8 * EDGE)


def _text(text: str, width: int = 0) -> str:
    return escape(display_line(text, width))
