"""The lines above and below: the tabs, on one line at any width, and the keys of the open tab and of the frame, or
those of a dialog."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from ..notices import NARROW, WithNotices


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
"""Lines of a notice, of which the last part, how something is mended or taken back, is cut last."""

COLOURS = {"information": "accent", "warning": "warn", "error": "bad"}
"""Of notices, by severity."""

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
            *before, last = (wrap(line, width) for line in told)
            lines, room = [*chain(*before)], max(1, MOST_LINES - len(last))
            lines = [*(lines if len(lines) <= room else [*lines[: room - 1], "…"]), *last][:MOST_LINES]
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
        line, pressed = Text(no_wrap=True), self.get_component_rich_style("keybar--key", partial=True)
        for i, key in enumerate(self._fitting()):
            style = "dim" if key.off else self.get_component_rich_style("keybar--hover") if i == self.hovered else ""
            start = line.cell_len
            line.append(key.text, style)
            line.stylize(pressed, start + 1, start + 1 + len(key.key))
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
        if not self.is_attached or screen is not self.screen:
            return
        bound = [*screen.active_bindings.values()]
        # a key with priority stands in the place of the one it takes from what has the focus
        nodes = [*dict.fromkeys(active.node for active in sorted(bound, key=lambda each: each.binding.priority))]

        def place(active: Any) -> tuple[int, int]:
            """What has the focus first, and its actions as it lists them: Textual has keys of a base class first."""
            names = [action.name for action in getattr(active.node, "ACTIONS", ())]
            name = active.binding.id
            return nodes.index(active.node), names.index(name) if name in names else len(names)

        hints: dict[str, KeyHint] = {}
        for _, binding, enabled, tooltip in sorted(bound, key=place):
            if binding.show and binding.action not in hints:
                display, about = self.app.get_key_display(binding), tooltip or binding.tooltip
                hints[binding.action] = KeyHint(
                    binding.key, display, binding.description, binding.action, about, not enabled
                )
        if self.app.app_focus or len(hints) > len(self.shown):  # a page in a browser begins without the focus
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


MORE = "topics", "calibrate"
"""The tabs that share a place of this name."""


class TabBar(Widget):
    """The numbered places, the open one marked. Where not all names fit, the last ones leave their number."""

    DEFAULT_CSS = "TabBar { height: 1; text-wrap: nowrap; text-overflow: clip; }"
    COMPONENT_CLASSES: ClassVar = {"tabbar--open", "tabbar--key", "tabbar--note"}

    current: reactive[str] = reactive("")
    """The name of the open tab."""
    note: reactive[str] = reactive("")
    """Text at the right end if there is space: the workspace."""
    badge: reactive[tuple[str, ...]] = reactive(())
    """Text before it that is always shown, in several lengths, the longest first: the running job."""

    class Picked(Message):
        """A place, or the badge (``jobs``), was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, places: Mapping[str, Sequence[str]]) -> None:
        """``places``: the names of their tabs by theirs."""
        super().__init__()
        self._places = places
        self._clickable: list[tuple[range, str]] = []

    def render(self) -> Text:
        width = self.size.width
        names = sum(len(name) + 3 for name in self._places)
        fitting = (text for text in self.badge if names + cell_len(text) + 2 <= width)
        badge = next(fitting, self.badge[-1] if self.badge else "")
        line, self._clickable = Text(no_wrap=True), []
        for label, tabs in zip(self._labels(width - cell_len(badge)), self._places.values(), strict=True):
            at = line.cell_len
            line.append(label, self.get_component_rich_style("tabbar--open") if self.current in tabs else "")
            if self.current not in tabs:
                digit = at + len(label) - len(label.lstrip())
                line.stylize(self.get_component_rich_style("tabbar--key"), digit, digit + 1)
            self._clickable.append((range(at, line.cell_len), tabs[0]))
        note = display_line(self.note)
        room = width - line.cell_len - cell_len(note) - cell_len(badge) - 3
        if note and room > 1:
            line.append(" " * room).append(note + " ", self.get_component_rich_style("tabbar--note"))
        if badge:
            line.append(" " * (width - line.cell_len - cell_len(badge)))
            self._clickable.append((range(line.cell_len, width), "jobs"))
            line.append(badge, self.get_component_rich_style("tabbar--key"))
        return line

    def _labels(self, width: int) -> list[str]:
        """Number and name of each place: with less space between them if they do not fit, then without the names of
        those that are not open, the last ones first."""
        labels = [f" {i} {name.capitalize()} " for i, name in enumerate(self._places, 1)]
        if sum(map(len, labels)) > width:
            labels = [label[1:] for label in labels[:-1]] + [labels[-1].strip()]
        for i, tabs in reversed([*enumerate(self._places.values())]):
            if sum(map(len, labels)) > width and self.current not in tabs:
                labels[i] = f"{i + 1} "
        return labels

    def on_click(self, event: events.Click) -> None:
        for place, name in self._clickable:
            if event.x in place:
                self.post_message(self.Picked(name))
