"""Frames that nobody sees: an app without a terminal throws away what it has drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.geometry import Region


def draw_at_rest_only(patch: Callable[[object, str, object], None]) -> None:
    """Draw what has changed when nothing is left to do (`draw_changes`), not after each key and message, which took a
    third of a session of keys; ``patch`` is ``monkeypatch.setattr``. Whoever looks at the screen has it put together:
    `lines_of`."""

    def render_update(
        self: Compositor, full: bool = False, screen_stack: list[Any] | None = None, simplify: bool = False
    ) -> None:
        visible_screen_stack.set(screen_stack or [])
        if full:
            self._dirty_regions.add(self.size.region)

    patch(Compositor, "render_update", render_update)


def draw_changes(app: App[Any]) -> None:
    """Let each part of the open screen that has changed draw its lines; there is none once the app has been left."""
    for screen in app.screen_stack[-1:]:
        drawing = screen._compositor
        visible_screen_stack.set(app._background_screens)  # what a dialog lies over is drawn with it, and kept so
        changed = Region.from_union(drawing._dirty_regions) if drawing._dirty_regions else Region()
        drawing._dirty_regions.clear()
        for _ in drawing._get_renders(changed.intersection(drawing.size.region)):
            pass
