"""The footer: keys of the open tab and of the frame, each shown completely or not at all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget


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
        return f" {self.key} {self.label} "


class KeyBar(Widget):
    """If not all keys fit, the tab's last keys are shown in help and palette only, then the first of those that are to
    ``stay``.

    One widget: Textual's `Footer` mounts a new widget for each key at every change of focus, which takes longer than
    everything else in a change of focus.
    """

    DEFAULT_CSS = "KeyBar { dock: bottom; height: 1; text-wrap: nowrap; text-overflow: clip; }"
    COMPONENT_CLASSES: ClassVar = {"keybar--key", "keybar--hover"}
    ALLOW_SELECT = False

    shown: reactive[tuple[KeyHint, ...]] = reactive(())
    hovered: reactive[int] = reactive(-1)
    """Position of the key under the mouse among those shown; -1: none."""

    def __init__(self, stay: Collection[str]) -> None:
        super().__init__()
        self._stay = stay

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def render(self) -> Text:
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
        if not self.app.app_focus or not self.is_attached or screen is not self.screen:
            return
        found: dict[str, KeyHint] = {}
        for _, binding, enabled, tooltip in screen.active_bindings.values():
            if binding.show and binding.action not in found:
                display = self.app.get_key_display(binding)
                about = tooltip or binding.tooltip
                found[binding.action] = KeyHint(
                    binding.key, display, binding.description, binding.action, about, not enabled
                )
        self.shown = tuple(found.values())

    def _fitting(self) -> list[KeyHint]:
        keys = list(self.shown)
        over = sum(cell_len(key.text) for key in keys) - self.size.width
        own = [key for key in keys if key.action not in self._stay]
        for key in chain(reversed(own), [key for key in keys if key.action in self._stay]):
            if over <= 0:
                break
            keys.remove(key)
            over -= cell_len(key.text)
        return keys

    def _under(self, x: int) -> tuple[int, KeyHint | None]:
        """The key at a column, and its position."""
        end = 0
        for i, key in enumerate(self._fitting()):
            end += cell_len(key.text)
            if x < end:
                return i, key
        return -1, None
