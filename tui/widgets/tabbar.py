"""The tabs, on one line at any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ...engine.pool.display import display_line


class TabBar(Widget):
    """The names of the tabs with the open one marked; if they do not all fit, those around it."""

    DEFAULT_CSS = "TabBar { height: 1; text-wrap: nowrap; text-overflow: clip; }"
    COMPONENT_CLASSES: ClassVar = {"tabbar--open", "tabbar--key", "tabbar--note"}

    current: reactive[str] = reactive("")
    note: reactive[str] = reactive("")
    """Text at the right end if there is space: the workspace."""
    badge: reactive[tuple[str, ...]] = reactive(())
    """Text before it that is always shown, in several lengths, the longest first: the running job."""

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, tabs: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._tabs = tabs
        self._places: list[tuple[range, str]] = []

    def render(self) -> Text:
        badge, width = self._fitting_badge(), self.size.width
        width -= cell_len(badge) + 2 if badge else 0
        numbered = sum(len(title) + 5 for _, title in self._tabs) <= width
        labels = [f" {i} {title} " if numbered else f" {title} " for i, (_, title) in enumerate(self._tabs, 1)]
        first, last = self._window([len(label) for label in labels], width)
        line = Text("‹" if first else "", no_wrap=True)
        self._places = []
        for i in range(first, last):
            name = self._tabs[i][0]
            at = line.cell_len
            line.append(labels[i], self.get_component_rich_style("tabbar--open") if name == self.current else "")
            if numbered and name != self.current:
                line.stylize(self.get_component_rich_style("tabbar--key"), at + 1, at + 2)
            self._places.append((range(at, line.cell_len), name))
        if last < len(labels):
            line.append("›")
        note = display_line(self.note)
        room = width - line.cell_len - cell_len(note) - 1
        if note and room > 1:
            line.append(" " * room + note + " ", self.get_component_rich_style("tabbar--note"))
        if badge:
            line.append(" " * (width - line.cell_len + 1))
            at = line.cell_len
            line.append(badge, self.get_component_rich_style("tabbar--key"))
            self._places.append((range(at, line.cell_len), "jobs"))
        return line

    def _fitting_badge(self) -> str:
        """The longest badge beside which all tabs fit, else the shortest."""
        tabs = sum(len(title) + 2 for _, title in self._tabs)
        fitting = (text for text in self.badge if tabs + cell_len(text) + 2 <= self.size.width)
        return next(fitting, self.badge[-1] if self.badge else "")

    def on_click(self, event: events.Click) -> None:
        for place, name in self._places:
            if event.x in place:
                self.post_message(self.Picked(name))

    def _window(self, widths: Sequence[int], room: int) -> tuple[int, int]:
        """The tabs to show: the open one, then its neighbours on either side as long as they fit."""
        if sum(widths) <= room:
            return 0, len(widths)
        at = next((i for i, (name, _) in enumerate(self._tabs) if name == self.current), 0)
        first, last = at, at + 1
        while True:
            used = sum(widths[first:last]) + 2
            if last < len(widths) and used + widths[last] <= room:
                last += 1
            elif first and used + widths[first - 1] <= room:
                first -= 1
            else:
                return first, last
