"""One notice at a time, at the right end of the last line (see `KeyBar`): the next one takes its place, so that
of an undo what it undid is gone."""

from __future__ import annotations

from collections import deque
from typing import Any

from textual import events
from textual.app import App
from textual.notifications import Notification, Notify, SeverityLevel
from textual.reactive import reactive
from textual.timer import Timer

from ..engine.pool.display import display_text

STANDS = 4.0
"""Seconds for which a notice stands; an error stands until the next key after them."""

NARROW = 100
"""Below this width, keys that are the same everywhere have no labels, and a notice covers keys until the next one."""

KEPT = 100
"""Notices of a session that are kept."""


class WithNotices(App[None]):
    """Shows no toasts."""

    notice: reactive[Notification | None] = reactive(None)
    """The one that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: deque[Notification] = deque(maxlen=KEPT)
        """Those of this session, latest first."""
        self._standing: Timer | None = None
        self._has_stood = False

    def notify(self, message: str, *, severity: SeverityLevel = "information", **_: Any) -> None:
        """Show a notice: plain text, with control characters made visible."""
        super().notify(display_text(message), severity=severity, markup=False)

    def on_notify(self, event: Notify) -> None:
        event.prevent_default()
        self.notices.appendleft(event.notification)
        self.notice, self._has_stood = event.notification, False
        if self._standing is not None:
            self._standing.stop()
        self._standing = self.set_timer(STANDS, self._stood)

    def _stood(self) -> None:
        self._has_stood = True
        if self.notice is not None and self.notice.severity != "error":
            self.notice = None

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and self.notice is not None:
            covers = self.size.width < NARROW and self.notice.severity == "information"
            self.notice = None if covers or self._has_stood else self.notice
        await super().on_event(event)
