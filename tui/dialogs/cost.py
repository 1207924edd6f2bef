"""A dialog that starts work whose cost it shows first."""

from __future__ import annotations

import time
from typing import Any

from textual import events

from .dialog import Dialog


class CostFirst(Dialog[Any]):
    """Enter never starts anything here: it may be on its way when a cost appears. Another key does, and only if the
    cost was on the screen before that key went down."""

    costed: str | None = None
    """The command whose cost is on the screen."""
    _to_stand: str | None = None
    _stands_since = _pressed = 0.0

    def show_cost_of(self, command: str | None) -> None:
        """``command``: the one whose cost the next refresh draws; None: no cost is shown."""
        if command != self._to_stand:
            self._to_stand, self.costed = command, None
            self.call_after_refresh(self._drawn, command)

    def _drawn(self, command: str | None) -> None:
        if command == self._to_stand:
            self.costed, self._stands_since = command, time.monotonic()
            self.cost_stands()

    def cost_stands(self) -> None:
        """`costed` has changed."""

    def on_key(self, event: events.Key) -> None:
        self._pressed = event.time

    @property
    def cost_was_seen(self) -> bool:
        """Whether the latest key was pressed with the cost before the user's eyes."""
        return self.costed is not None and self._stands_since < self._pressed
