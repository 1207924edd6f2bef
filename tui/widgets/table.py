"""A table that draws only the lines in view: a million rows cost as much as forty.

Textual's own `DataTable` measures every row when it is filled (12 s for 100,000). Here the owner sets the number of
lines and provides them on request; a short table can be provided completely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...render.columns import LineColumn, shortened
from ..actions import Acting, Action
from ..model import is_command
from .lines import ColumnLayout, Line

INDENT = 3
"""Cells by which the text below a line is set in."""

MOST_KEPT = 4_000
"""Maximum lines in memory; the oldest are dropped first."""


class LineTable(Acting, ScrollView, can_focus=True, inherit_bindings=False):
    """Lines under a fixed heading, with a cursor, and marks if ``marked`` is given."""

    TITLE = "Table"
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("table.down", "j,down", "Down", "One line down", footer=False, call="move(1)"),
        Action("table.up", "k,up", "Up", "One line up", footer=False, call="move(-1)"),
        Action("table.page_down", "ctrl+d,pagedown,ctrl+f", "Down", "Page down", footer=False, call="page(1)"),
        Action("table.page_up", "ctrl+u,pageup,ctrl+b", "Up", "Page up", footer=False, call="page(-1)"),
        Action("table.first", "g,home", "First", "Go to the first line", footer=False),
        Action("table.last", "G,end", "Last", "Go to the last line", footer=False),
        Action("table.choose", "enter", "Open", "Open the line under the cursor", footer=False),
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--cursor", "table--away", "table--mark"}
    ALLOW_SELECT = False

    cursor: reactive[int] = reactive(0, repaint=False)
    """The line of the cursor; when it moves, only the two lines are drawn again."""

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
        """Lines from ``index`` to ``last`` (excluded) are to be shown and not loaded: `put` them."""

        def __init__(self, table: LineTable, first: int, last: int) -> None:
            super().__init__(table, first)
            self.last = last

    class Sort(Event):
        """The heading of ``column``, which has number ``index``, was clicked."""

        def __init__(self, table: LineTable, index: int) -> None:
            super().__init__(table, index)
            self.column = table.columns[index].name

    def __init__(
        self,
        columns: Sequence[LineColumn],
        *,
        id: str | None = None,
        marked: Callable[[int], bool] | None = None,
        moved: Callable[[], None] | None = None,
        heading: bool = True,
        message: str = "",
    ) -> None:
        """``moved`` is called when the cursor has moved. `Moved` says the same, but some turns of the event loop later:
        what it leads to is painted apart from the cursor."""
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.marked, self.moved = marked, moved
        self.heading = int(heading)
        """Lines of the heading: 1 or 0."""
        self.sorted_by: tuple[str, bool] | None = None
        self.message = message
        """What is shown if there are no lines; it may have several."""
        self.count = 0
        self.range_from: int | None = None
        """The line where a range of marks begins."""
        self.tall = 1
        """Lines of the screen for each: its cells, and below them its text."""
        self._lines: dict[int, Line] = {}
        self._drawn: dict[int, list[Strip]] = {}
        self._asked: tuple[int, int] | None = None
        self._fit: tuple[int, ColumnLayout] | None = None
        self._base = Style()

    # Called by the owner.

    def fill(self, lines: Sequence[Line]) -> None:
        """Show exactly these lines; the cursor stays on its line number."""
        self.size_to(len(lines))
        self.put(0, lines)

    def size_to(self, count: int, same: bool = False) -> None:
        """Set the number of lines to ``count``, all of them still to be `put`. The cursor stays on its line number, and
        a range is over, unless they stand for the ``same`` as before."""
        self.count, self.range_from = count, self.range_from if same else None
        self._lines.clear()
        self._drawn.clear()
        self._asked = None
        self.virtual_size = Size(0, count * self.tall + self.heading)
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

    def promise(self, first: int, last: int) -> None:
        """The owner is about to `put` these lines: they are not to be requested."""
        self._asked = first, last

    def arrange_columns(self, columns: Sequence[LineColumn]) -> None:
        """Replace the columns; the lines must be set again."""
        self.columns = tuple(columns)
        self.redraw()

    def grow_to(self, tall: int) -> None:
        """Show each line with ``tall`` − 1 lines of its text below."""
        if tall != self.tall:
            self.tall = tall
            self.virtual_size = Size(0, self.count * tall + self.heading)
            self.redraw()
            self.show_line(self.cursor)

    def redraw(self) -> None:
        """Marks, styles or widths have changed, the lines have not."""
        self._fit = None
        self._drawn.clear()
        self.refresh()

    # The cursor.

    def begin_range(self) -> None:
        """Lines from here to the cursor look marked; a second time: no more."""
        self.range_from = None if self.range_from is not None else self.cursor
        self.redraw()

    def end_range(self) -> slice:
        """The lines from where a range began to the cursor, which alone is one, too; the range is over."""
        first, last = sorted((self.cursor if self.range_from is None else self.range_from, self.cursor))
        self.range_from = None
        return slice(first, last + 1)

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, self.count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        for index in (old, new):  # the others stay as they are
            for part in range(self.tall):
                self.refresh_line(index * self.tall + part + self.heading)
        self.show_line(new)
        if self.range_from is not None:
            self.redraw()
        if self.moved is not None and new != old:  # equal when the table is mounted
            self.moved()
        self.post_message(self.Moved(self, new))

    def show_line(self, index: int) -> None:
        """Scroll as little as possible to have the line in view, also in a list that grew and has no scrollbar yet."""
        if not self.size:
            return  # it has no place yet: `on_resize` will
        rows = max(1, self.scrollable_content_region.height - self.heading)
        top, first, last = self.scroll_target_y, index * self.tall, (index + 1) * self.tall
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif last > top + rows:
            self.scroll_to(y=min(first, last - rows), animate=False, force=True)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, (self.scrollable_content_region.height - 2) // self.tall)

    def action_first(self) -> None:
        self.cursor = 0

    def action_last(self) -> None:
        self.cursor = self.count - 1

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        if event.y < self.heading:
            index = self._fitted().column_at(event.x)
            if index is not None and self.columns[index].sortable:
                self.post_message(self.Sort(self, index))
            return
        index = (event.y - self.heading + round(self.scroll_y)) // self.tall
        if index < self.count:
            self.cursor = index
            if event.chain == 2:
                self.action_choose()

    # Requesting lines.

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._ask()

    def on_resize(self) -> None:
        self.redraw()
        self.show_line(self.cursor)
        self._ask()

    def _ask(self) -> None:
        """Request missing lines within a screen of those in view, and more around them, so that scrolling shows no
        gap."""
        height = max(1, self.size.height // self.tall)
        top = round(self.scroll_y) // self.tall
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

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # once for all lines: it is computed from all ancestors
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y < self.heading:
            return self._heading(width)
        index, part = divmod(y - self.heading + round(self.scroll_y), self.tall)
        if index >= self.count:
            return self._blank(y, width)
        if index == self.cursor:
            return self._draw(index, width, "table--cursor" if self.has_focus else "table--away")[part]
        if index not in self._drawn:
            if len(self._drawn) > MOST_KEPT:
                self._drawn.clear()
            strips = self._draw(index, width, "")
            if index not in self._lines:
                return strips[part]
            self._drawn[index] = strips
        return self._drawn[index][part]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn.clear()

    def _fitted(self) -> ColumnLayout:
        """The columns fitted into the current width."""
        width = self.scrollable_content_region.width
        if self._fit is None or self._fit[0] != width:
            gutter = 2 if self.marked is not None else 1
            self._fit = width, ColumnLayout.into(self.columns, width, gutter, bool(self.heading))
        return self._fit[1]

    def _heading(self, width: int) -> Strip:
        fitted = self._fitted()
        style = self._base + self._named("primary" if self.has_focus else "muted") + Style(bold=True)
        return self._strip(fitted.heading(self.sorted_by, width), width, style)

    def _draw(self, index: int, width: int, component: str) -> list[Strip]:
        line, fitted = self._lines.get(index), self._fitted()
        first, last = sorted((self.cursor if self.range_from is None else self.range_from, self.cursor))
        ranged = self.range_from is not None and first <= index <= last
        marked = ranged or (self.marked is not None and self.marked(index))
        base = self._base
        if line is not None and line.style:
            base += self._named(line.style)
        for name in ("table--mark" if marked else "", component):
            base += self.get_component_rich_style(name, partial=True) if name else Style()
        lead = Text("● " if marked else " " * fitted.gutter)
        if line is not None and not marked and self.marked is not None:
            lead = Text.assemble(line.sign, " ")
        strips = [self._strip(fitted.joined(fitted.cells(line), lead), width, base)]
        if self.tall > 1:
            indent = fitted.gutter + INDENT
            told = Text(line.below if line is not None else "").wrap(self.app.console, max(1, width - indent - 1))
            for part in range(self.tall - 1):
                text = told[part] if part < len(told) else Text()
                if part == self.tall - 2 and len(told) > self.tall - 1:
                    text = shortened(Text.assemble(text, " …"), width - indent)
                strips.append(self._strip(Text.assemble(" " * indent, text), width, base))
        return strips

    def _strip(self, line: Text, width: int, base: Style) -> Strip:
        drawn = line.render(self.app.console)
        segments = [Segment(text, base + (style or Style()), control) for text, style, control in drawn]
        return Strip(segments).adjust_cell_length(width, base)

    def _blank(self, y: int, width: int) -> Strip:
        base = self._base
        at = y - self.heading - 1
        parts = [] if self.count else self.message.split("\n")
        told = [line for part in parts for line in wrap(part, max(1, width - 2))]
        if not 0 <= at < len(told):
            return Strip.blank(width, base)
        style = "accent" if is_command(told[at]) else "muted"
        return Strip([Segment("  " + told[at], base + self._named(style))]).adjust_cell_length(width, base)

    def _named(self, name: str) -> Style:
        return self.app.console.get_style(name, default="")


def choosing(name: str, label: str, about: str) -> tuple[Action, ...]:
    """The actions of a table whose footer says what enter does there."""
    return (
        Action(name, "enter", label, about, call="choose"),
        *(action for action in LineTable.ACTIONS if action.name != "table.choose"),
    )
