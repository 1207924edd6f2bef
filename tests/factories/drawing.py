"""Frames that nobody sees: an app without a terminal throws away what it has drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.geometry import Region


def draw_widgets_only(patch: Callable[[object, str, object], None]) -> None:
    """Let each part that has changed draw its lines, and do not put them together into a frame, which took a seventh of
    a session of keys; ``patch`` is ``monkeypatch.setattr``. Whoever looks at the screen has it put together:
    `lines_of`."""

    def render_update(
        self: Compositor, full: bool = False, screen_stack: list[Any] | None = None, simplify: bool = False
    ) -> None:
        visible_screen_stack.set(screen_stack or [])
        screen = self.size.region
        changed = {screen} if full else self._dirty_regions.copy()
        self._dirty_regions.clear()
        if changed:
            for _ in self._get_renders(Region.from_union(changed).intersection(screen)):
                pass

    patch(Compositor, "render_update", render_update)
