"""Which columns of a table fit into a width, and how long texts are cut: one rule for commands and tabs.

A column that does not fit is left out by its rank, never in silence: `missing` names it, and the table shows how many
there are. Figures are never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import chop_cells
from rich.text import Text

Cut = Literal["end", "middle", "start", "wrap"]
"""Where an ellipsis replaces what does not fit: prose is cut at its end, names in the middle, because names that begin
alike often end differently, and numbered ids at the start. Commands also continue a text on the next line."""

LEAST_CELLS = 8
"""Characters looked at for each cell: a text may be a megabyte long, and some of its characters have no width."""


@dataclass(frozen=True, slots=True)
class LineColumn:
    """At least ``width`` cells; ``grow`` is its share of the remaining space, up to ``most`` cells. If the columns do
    not all fit, those with the highest ``rank`` are left out; rank 0 always stays. ``picture``: it only draws what
    another column says."""

    name: str
    title: str
    width: int
    right: bool = False
    rank: int = 0
    grow: int = 0
    most: int = 1 << 20
    sortable: bool = False
    cut: Cut = "end"
    picture: bool = False


def fit(columns: Sequence[LineColumn], room: int, gap: int) -> list[tuple[int, int]]:
    """Which columns are shown in ``room`` cells, as (number, width)."""
    shown = list(range(len(columns)))

    def least() -> int:
        return sum(columns[i].width for i in shown) + gap * (len(shown) - 1)

    while len(shown) > 1 and least() > room:
        worst = max(shown, key=lambda i: (columns[i].rank, i))
        if columns[worst].rank == 0:
            break
        shown.remove(worst)
    widths = {i: columns[i].width for i in shown}
    left = room - least()
    if left < 0:  # even the columns that always stay are too wide: shrink the growing ones
        for i in sorted((i for i in shown if columns[i].grow), key=lambda i: -widths[i]):
            cut = min(-left, widths[i] - 4)
            widths[i] -= max(0, cut)
            left += max(0, cut)
    while left > 0 and (hungry := [i for i in shown if columns[i].grow and widths[i] < columns[i].most]):
        shares = sum(columns[i].grow for i in hungry)
        given = 0
        for i in hungry:
            more = min(columns[i].most - widths[i], max(1, left * columns[i].grow // shares), left - given)
            widths[i] += more
            given += more
        left -= given
    return [(i, widths[i]) for i in shown]


def missing(columns: Sequence[LineColumn], shown: Sequence[tuple[int, int]]) -> list[str]:
    """The titles of the columns that are left out, without pictures."""
    kept = {i for i, _ in shown}
    return [column.title or column.name for i, column in enumerate(columns) if i not in kept and not column.picture]


def sized(text: Text, width: int, right: bool = False, cut: Cut = "end") -> Text:
    """Exactly ``width`` cells of a text; half a wide character is a space."""
    text = shortened(text, width, cut)
    text.no_wrap = True
    space = width - text.cell_len
    if right:
        text.pad_left(space)
    else:
        text.pad_right(space)
    return text


def shortened(text: Text, width: int, cut: Cut = "end") -> Text:
    """At most ``width`` cells of a text, with an ellipsis where it is cut."""
    if text.cell_len <= width:
        return text
    if cut in ("end", "wrap") or width < 5:
        text.truncate(width, overflow="ellipsis")
        return text
    last = width - 1 if cut == "start" else (width - 1) // 2
    first = width - 1 - last
    head = len(chop_cells(text.plain[: LEAST_CELLS * first], first)[0]) if first else 0
    tail = len(chop_cells(text.plain[: -LEAST_CELLS * last - 1 : -1], last)[0])
    cut_text = Text.assemble(text[:head] if head else "", "…", text[len(text.plain) - tail :] if tail else "")
    cut_text.truncate(width)  # characters that belong together are narrower, and wider apart
    return cut_text
