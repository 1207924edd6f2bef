"""The lines above and below: the tabs, on one line at any width, and the keys of the open tab and of the frame, or
those of a dialog."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from textwrap import wrap
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.notifications import Notification
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from ...engine.pool.display import display_line
from ..actions import Action
from ..notices import WithNotices


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A key as the footer shows it; ``press`` is the key itself, ``off``: it currently does nothing."""

    press: str
    key: str
    label: str
    action: str
    about: str
    off: bool

    @property
    def text(self) -> str:
        return f" {self.key} {self.label} " if self.label else f" {self.key} "


MOST_LINES = 5
"""Lines of a notice."""

COLOURS = {"information": "accent", "warning": "warn", "error": "bad"}
"""Of notices, by severity."""

NARROW = 100
"""Below this width, keys that are the same everywhere have no labels."""

LABELLED = "help"
"""The action that leads to all others: its key keeps its label."""


def fitted(keys: Sequence[KeyHint], stay: Collection[str], width: int) -> list[KeyHint]:
    """The keys that fit. If not all do, those that are to ``stay``, which are the same everywhere, lose their labels in
    a narrow terminal; then the last of the others are left to help and palette, then the first of those that stay."""
    shown, over = list(keys), sum(cell_len(key.text) for key in keys) - width
    if over > 0 and width < NARROW:
        shown = [replace(key, label="") if key.action in stay and key.action != LABELLED else key for key in keys]
        over = sum(cell_len(key.text) for key in shown) - width
    own = [key for key in shown if key.action not in stay]
    for key in chain(reversed(own), [key for key in shown if key.action in stay]):
        if over <= 0:
            break
        shown.remove(key)
        over -= cell_len(key.text)
    return shown


class KeyBar(Widget):
    """The keys that `fitted` shows.

    One widget: Textual's `Footer` mounts a new widget for each key at every change of focus, which takes longer than
    everything else in a change of focus.
    """

    DEFAULT_CSS = "KeyBar { dock: bottom; height: 1; text-wrap: nowrap; text-overflow: clip; }"
    COMPONENT_CLASSES: ClassVar = {"keybar--key", "keybar--hover"}
    ALLOW_SELECT = False

    shown: reactive[tuple[KeyHint, ...]] = reactive(())
    hovered: reactive[int] = reactive(-1)
    """Position of the key under the mouse among those shown; -1: none."""

    def __init__(self, stay: Collection[str] = (), actions: Sequence[Action] = ()) -> None:
        """``actions`` are shown as they are, for a dialog; without them, what can be done where the focus is."""
        super().__init__()
        self._stay, self._actions = stay, actions
        self._notice: tuple[str, ...] = ()
        """Lines of the notice, and the colour of them all."""
        self._colour = ""

    def on_mount(self) -> None:
        if isinstance(self.app, WithNotices):
            self.watch(self.app, "notice", self.tell)
        if self._actions:
            self.shown = tuple(self._hint(action) for action in self._actions if action.footer)
        else:
            self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _hint(self, action: Action) -> KeyHint:
        key = action.keys.partition(",")[0]
        return KeyHint(key, self.app.get_key_display(Binding(key, "")), action.label, action.run, action.about, False)

    def tell(self, notice: Notification | None) -> None:
        """Show a notice at the right end, on more lines if it needs them; None: no more."""
        told = notice.message.split("\n") if notice else []
        width = max(1, self.size.width - 2)
        lines = ["  ·  ".join(told)] if told else []
        if lines and cell_len(lines[0]) > width:
            lines = [part for line in told for part in wrap(line, width)][:MOST_LINES]
        self._notice, self._colour = tuple(lines), COLOURS[notice.severity] if notice else ""
        self.styles.height = max(1, len(lines))
        self.refresh()

    def on_resize(self) -> None:
        if isinstance(self.app, WithNotices):
            self.tell(self.app.notice)

    def render(self) -> Text:
        if len(self._notice) > 1:
            return Text("\n").join(Text(f" {line}", self._colour) for line in self._notice)
        line = self._keys()
        if self._notice:
            [told] = self._notice
            line.append(" " * (self.size.width - line.cell_len - cell_len(told) - 1)).append(told, self._colour)
        return line

    def _keys(self) -> Text:
        line = Text(no_wrap=True)
        for i, key in enumerate(self._fitting()):
            style = "dim" if key.off else self.get_component_rich_style("keybar--hover") if i == self.hovered else ""
            start = line.cell_len
            line.append(key.text, style)
            line.stylize(
                self.get_component_rich_style("keybar--key", partial=True), start + 1, start + 1 + len(key.key)
            )
        return line

    def on_mouse_move(self, event: events.MouseMove) -> None:
        at, key = self._under(event.x)
        if at != self.hovered:
            self.hovered = at
            self.tooltip = key.about if key else None

    def on_leave(self) -> None:
        self.hovered = -1

    def on_mouse_down(self, event: events.MouseDown) -> None:
        _, key = self._under(event.x)
        if key and key.off:
            self.app.bell()
        elif key:
            self.app.simulate_key(key.press)

    def _changed(self, screen: Screen[Any]) -> None:
        if (self.shown and not self.app.app_focus) or not self.is_attached or screen is not self.screen:
            return  # a page in a browser begins without the focus
        hints: dict[str, KeyHint] = {}
        for _, binding, enabled, tooltip in screen.active_bindings.values():
            if binding.show and binding.action not in hints:
                display = self.app.get_key_display(binding)
                about = tooltip or binding.tooltip
                hints[binding.action] = KeyHint(
                    binding.key, display, binding.description, binding.action, about, not enabled
                )
        self.shown = tuple(hints.values())

    def _fitting(self) -> list[KeyHint]:
        return fitted(self.shown, self._stay, self.size.width - sum(cell_len(line) + 3 for line in self._notice))

    def _under(self, x: int) -> tuple[int, KeyHint | None]:
        """The key at a column, and its position."""
        end = 0
        for i, key in enumerate(self._fitting()):
            end += cell_len(key.text)
            if x < end:
                return i, key
        return -1, None


FEWEST_LETTERS = 3
"""Of a title in the tab bar; where these do not fit, tabs are left out."""


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
        labels = self._labels(width)
        first, last = self._window([len(label) for label in labels], width)
        line = Text("‹" if first else "", no_wrap=True)
        self._places = []
        for i in range(first, last):
            name = self._tabs[i][0]
            at = line.cell_len
            line.append(labels[i], self.get_component_rich_style("tabbar--open") if name == self.current else "")
            if name != self.current:
                digit = at + labels[i].index(str(i + 1))
                line.stylize(self.get_component_rich_style("tabbar--key"), digit, digit + 1)
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

    def _labels(self, width: int) -> list[str]:
        """Number and title of each tab: with less space between them if they do not fit, then with fewer letters in
        the titles of those that are not open, the last ones first."""
        labels = [f" {i} {title} " for i, (_, title) in enumerate(self._tabs, 1)]
        over = sum(map(len, labels)) - width
        if over <= 0:
            return labels
        over -= len(labels)
        shown = []
        for i, (name, title) in reversed([*enumerate(self._tabs, 1)]):
            cut = 0 if name == self.current else max(0, min(over, len(title) - FEWEST_LETTERS))
            over -= cut
            shown.append(f"{i} {title[: len(title) - cut]} ")
        return shown[::-1]

    def _fitting_badge(self) -> str:
        """The longest badge beside which all tabs fit, else the shortest."""
        tabs = sum(len(title) + 3 for _, title in self._tabs)
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
