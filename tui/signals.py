"""How the app ends after a signal, or when its terminal is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import ReviewApp

WATCH = 1.0
"""Seconds between two checks whether the terminal, or the server, is still there."""

PATIENCE = 5.0
"""Seconds for the app to end normally after a signal."""


class TidyEnd:
    """SIGTERM and SIGHUP end the app normally, so that the terminal is restored; if the terminal is gone or does not
    accept output, it ends at once.

    Uses Python's own signal handlers: they run even while the app waits for a terminal that accepts no output. A served
    session has no terminal and ends with its server.
    """

    def __init__(self, app: ReviewApp) -> None:
        self._app = app
        self._late: threading.Timer | None = None
        """Ends the process if the app does not end after a signal."""

    def watch(self) -> None:
        """Start handling signals; must be called in the app's event loop."""
        app = self._app
        if os.name == "nt" or app.is_headless:
            return
        if app.is_web:
            server = os.getppid()
            app.set_interval(WATCH, lambda: None if os.getppid() == server else self._exit_at_once(signal.SIGHUP))
            return
        loop = asyncio.get_running_loop()

        def ended(number: int, frame: object) -> None:
            if not os.isatty(0):
                self._exit_at_once(number)
            self._late = threading.Timer(PATIENCE, os._exit, (128 + number,))
            self._late.daemon = True
            self._late.start()
            loop.call_soon_threadsafe(self._end, number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, ended)
        app.set_interval(WATCH, lambda: None if os.isatty(0) else self._exit_at_once(signal.SIGHUP))

    def done(self) -> None:
        """The app has ended: stop handling signals."""
        if self._late is not None:
            self._late.cancel()
            self._late.join()

    def _exit_at_once(self, number: int) -> None:
        """Exit without drawing: drawing would block on a terminal that is gone."""
        self._app.save()
        os._exit(128 + number)

    def _end(self, number: int) -> None:
        self._app.save()
        self._app.exit(return_code=128 + number)
