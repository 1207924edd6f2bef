"""A table that draws the lines in view and no others: a million rows cost what forty do.

Textual's own `DataTable` measures every row when it is filled (12 s for 100,000). Here the owner says how many lines
there are and hands them over as they are asked for; a short table can be handed over whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...render.tables import cell
from ..actions import Action, bindings

MOST_KEPT = 4_000
"""Lines held at once; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` cells at least; ``grow`` is its share of the room left over, up to ``most`` cells. Where the columns do
    not all fit, those of the highest ``rank`` are left out; rank 0 always stays. ``tail``: of a long text the end is
    shown."""

    name: str
    title: str
    width: int
    right: bool = False
    rank: int = 0
    grow: int = 0
    most: int = 1 << 20
    sortable: bool = True
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell that is a bar, as wide as its column."""

    share: float
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Values of all columns, as `plain.cell` draws them; ``style`` (a name of the theme) for the whole line; ``sign``:
    one character before it, with its style."""

    cells: tuple[Any, ...]
    style: str = ""
    sign: tuple[str, str] = (" ", "")


class LineTable(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines under a heading that stays, with a cursor, and marks where ``marked`` is given."""

    TITLE = "Table"
    ACTIONS = (
        Action("table.down", "j,down", "Down", "One line down", footer=False, call="move(1)"),
        Action("table.up", "k,up", "Up", "One line up", footer=False, call="move(-1)"),
        Action("table.page_down", "ctrl+d,pagedown,ctrl+f", "Down", "Page down", footer=False, call="page(1)"),
        Action("table.page_up", "ctrl+u,pageup,ctrl+b", "Up", "Page up", footer=False, call="page(-1)"),
        Action("table.first", "g,home", "First", "Go to the first line", footer=False),
        Action("table.last", "G,end", "Last", "Go to the last line", footer=False),
        Action("table.choose", "enter", "Open", "Open the line under the cursor", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--cursor", "table--away", "table--mark",
    }  # fmt: skip
    ALLOW_SELECT = False

    cursor: reactive[int] = reactive(0)

    class Event(Message):
        """Something happened to the line ``index`` of ``table``."""

        def __init__(self, table: LineTable, index: int) -> None:
            super().__init__()
            self.table, self.index = table, index

        @property
        def control(self) -> LineTable:
            return self.table

    class Moved(Event):
        """The cursor moved to another line."""

    class Chosen(Event):
        """Enter, or a double click."""

    class Wanted(Event):
        """Lines from ``index`` to ``last`` (not included) are to be shown and not there: `put` them."""

        def __init__(self, table: LineTable, first: int, last: int) -> None:
            super().__init__(table, first)
            self.last = last

    class Sort(Message):
        """The heading of a column was clicked."""

        def __init__(self, table: LineTable, column: str) -> None:
            super().__init__()
            self.table, self.column = table, column

        @property
        def control(self) -> LineTable:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        id: str | None = None,
        marked: Callable[[int], bool] | None = None,
        heading: bool = True,
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.marked = marked
        self.heading = int(heading)
        """Lines the heading takes: 1 or 0."""
        self.sorted_by: tuple[str, bool] | None = None
        self.message = ""
        self.count = 0
        self._lines: dict[int, Line] = {}
        self._drawn: dict[int, Strip] = {}
        self._asked: tuple[int, int] | None = None
        self._fitted: tuple[int, list[tuple[int, int]], int] | None = None

    # What the owner calls.

    def fill(self, lines: Sequence[Line]) -> None:
        """Show exactly these lines; the cursor stays on its line number."""
        self.size_to(len(lines))
        self.put(0, lines)

    def size_to(self, count: int) -> None:
        """There are now ``count`` lines, all of them yet to be `put`. The cursor stays on its line number."""
        self.count = count
        self._lines.clear()
        self._drawn.clear()
        self._asked = None
        self.virtual_size = Size(0, count + self.heading)
        self.cursor = self.validate_cursor(self.cursor)
        self.refresh()

    def put(self, first: int, lines: Sequence[Line]) -> None:
        """Lines from number ``first`` on."""
        for i, line in enumerate(lines, first):
            self._lines.pop(i, None)  # so that it counts as new
            self._lines[i] = line
            self._drawn.pop(i, None)
        if len(self._lines) > MOST_KEPT:
            for i in list(self._lines)[: len(self._lines) - MOST_KEPT]:
                del self._lines[i]
                self._drawn.pop(i, None)
        self._asked = None
        self._ask()
        self.refresh()

    def line(self, index: int) -> Line | None:
        return self._lines.get(index)

    def arrange_columns(self, columns: Sequence[Column]) -> None:
        """Replace the columns; the lines must be set again."""
        self.columns = tuple(columns)
        self.redraw()

    def redraw(self) -> None:
        """Marks, styles or widths changed, the lines did not."""
        self._fitted = None
        self._drawn.clear()
        self.refresh()

    # The cursor.

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, self.count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh()
        self.show_line(new)
        self.post_message(self.Moved(self, new))

    def show_line(self, index: int) -> None:
        """Scroll no further than needed to have the line in view."""
        rows = max(1, self.scrollable_content_region.height - self.heading)
        top = self.scroll_target_y
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif index >= top + rows:
            self.scroll_to(y=index - rows + 1, animate=False)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, self.scrollable_content_region.height - 2)

    def action_first(self) -> None:
        self.cursor = 0

    def action_last(self) -> None:
        self.cursor = self.count - 1

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        if event.y < self.heading:
            self._click_heading(event.x)
            return
        index = event.y - self.heading + round(self.scroll_y)
        if index < self.count:
            self.cursor = index
            if event.chain == 2:
                self.action_choose()

    def _click_heading(self, x: int) -> None:
        at = self._gutter
        for i, width in self._fit():
            if at <= x < at + width and self.columns[i].sortable:
                self.post_message(self.Sort(self, self.columns[i].name))
            at += width + self._gap

    # Asking for lines.

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._ask()

    def on_resize(self) -> None:
        self.redraw()
        self.show_line(self.cursor)
        self._ask()

    def _ask(self) -> None:
        """Want what is missing within a screen of those in view, and more around it, so that scrolling meets no gap."""
        height = max(1, self.size.height)
        top = round(self.scroll_y)
        if not self._missing(top - height, top + 2 * height):
            return
        missing = self._missing(top - 3 * height, top + 4 * height)
        span = missing[0], missing[-1] + 1
        if self._asked and self._asked[0] <= span[0] and span[1] <= self._asked[1]:
            return
        self._asked = span
        self.post_message(self.Wanted(self, *span))

    def _missing(self, first: int, last: int) -> list[int]:
        return [i for i in range(max(0, first), min(self.count, last)) if i not in self._lines]

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y < self.heading:
            return self._heading(width)
        index = y - self.heading + round(self.scroll_y)
        if index >= self.count:
            return self._blank(y, width)
        if index == self.cursor:
            return self._draw(index, width, "table--cursor" if self.has_focus else "table--away")
        if index not in self._drawn:
            if len(self._drawn) > MOST_KEPT:
                self._drawn.clear()
            strip = self._draw(index, width, "")
            if index not in self._lines:
                return strip
            self._drawn[index] = strip
        return self._drawn[index]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn.clear()

    @property
    def _gutter(self) -> int:
        return 2 if self.marked is not None else 1

    @property
    def _gap(self) -> int:
        self._fit()
        return self._fitted[2] if self._fitted else 1

    def _fit(self) -> list[tuple[int, int]]:
        """Which columns are shown, as (number, width)."""
        width = self.scrollable_content_region.width
        if self._fitted is None or self._fitted[0] != width:
            room = width - self._gutter
            gap = 2 if sum(column.width + 2 for column in self.columns) <= room else 1
            self._fitted = width, _fit(self.columns, room, gap), gap
        return self._fitted[1]

    def _heading(self, width: int) -> Strip:
        heads = []
        for i, cells in self._fit():
            column = self.columns[i]
            name, arrow = column.title, ""
            if self.sorted_by and self.sorted_by[0] == column.name:
                arrow = "▾" if self.sorted_by[1] else "▴"
            heads.append(_sized(Text(name + arrow), cells, column.right))
        style = self.rich_style + self._named("primary" if self.has_focus else "muted") + Style(bold=True)
        return self._strip(heads, Text(" " * self._gutter), width, style)

    def _draw(self, index: int, width: int, component: str) -> Strip:
        line = self._lines.get(index)
        marked = self.marked is not None and self.marked(index)
        cells = []
        for i, size in self._fit():
            cells.append(_drawn(line.cells[i] if line is not None else Text("·", "muted"), size, self.columns[i]))
        base = self.rich_style
        if line is not None and line.style:
            base += self._named(line.style)
        if marked:
            base += self._style("table--mark")
        if component:
            base += self._style(component)
        lead = Text("● " if marked else " " * self._gutter)
        if line is not None and not marked and self.marked is not None:
            lead = Text.assemble(line.sign, " ")
        return self._strip(cells, lead, width, base)

    def _strip(self, cells: Iterable[Text], lead: Text, width: int, base: Style) -> Strip:
        line = Text(end="", no_wrap=True).append_text(lead)
        for i, text in enumerate(cells):
            if i:
                line.append(" " * self._gap)
            line.append_text(text)
        segments = [
            Segment(text, base + (style or Style()), control) for text, style, control in line.render(self.app.console)
        ]
        return Strip(segments).adjust_cell_length(width, base)

    def _blank(self, y: int, width: int) -> Strip:
        base = self.rich_style
        if self.count == 0 and self.message and y == self.heading + 1:
            return Strip([Segment("  " + self.message, base + self._named("muted"))]).adjust_cell_length(width, base)
        return Strip.blank(width, base)

    def _named(self, name: str) -> Style:
        return self.app.console.get_style(name, default="")

    def _style(self, component: str) -> Style:
        return self.get_component_rich_style(component, partial=True)


def _drawn(value: Any, width: int, column: Column) -> Text:
    if isinstance(value, Bar):
        return stroke(value.share, width, value.style)
    text = cell(value)
    if column.tail and text.cell_len > width:
        text = Text("…") + text[-(width - 1) :]
    return _sized(text.copy() if text is value else text, width, column.right)


def stroke(share: float, width: int, style: str) -> Text:
    """A share in [0, 1] as a line, with the rest of the width as its track."""
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    track = width - full - half
    return Text.assemble(("━" * full + "╸" * half, style), ("─" * track, "track"))


def _sized(text: Text, width: int, right: bool) -> Text:
    """Exactly ``width`` cells of a text, cut with an ellipsis; half a wide character is a space."""
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    space = width - text.cell_len
    if right:
        text.pad_left(space)
    else:
        text.pad_right(space)
    return text


def _fit(columns: Sequence[Column], room: int, gap: int) -> list[tuple[int, int]]:
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
    if left < 0:  # even those that always stay are too wide: the growing ones give way
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
