"""How the app ends after a signal, after a fault, or when its terminal is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.worker import WorkerFailed

from ..render.console import give_back_screen
from ..render.terminal import narrate

if TYPE_CHECKING:
    from .app import ReviewApp

WATCH = 1.0
"""Seconds between two checks whether the terminal, or the server, is still there."""

PATIENCE = 5.0
"""Seconds for the app to end normally after a signal."""

SILENT = 0.5
"""Seconds for which the process may live on without a word after the terminal was given back."""


class TidyEnd:
    """SIGTERM and SIGHUP end the app normally, so that the terminal is restored. An app that does not end in time, as
    on a busy machine, is ended after the terminal was given back; if that is gone or accepts no output, without.

    Uses Python's own signal handlers: they run even while the app waits for a terminal that accepts no output. A served
    session has no terminal and ends with its server.
    """

    def __init__(self, app: ReviewApp) -> None:
        self._app = app
        self._late: threading.Timer | None = None
        """Ends the process if the app does not end after a signal."""
        self._waits: threading.Timer | None = None
        self._before = _terminal_mode()

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
            self._late = threading.Timer(PATIENCE, self._give_up, (number,))
            self._late.daemon = True
            self._late.start()
            loop.call_soon_threadsafe(self._end, number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, ended)
        app.set_interval(WATCH, lambda: None if os.isatty(0) else self._exit_at_once(signal.SIGHUP))

    def left(self) -> None:
        """The terminal was given back. Threads cannot be stopped, and the process ends with the last of them."""
        self._waits = threading.Timer(SILENT, narrate, ["waiting for running work to finish"])
        self._waits.daemon = True
        self._waits.start()

    def done(self) -> None:
        """The app has ended, and its threads: stop handling signals."""
        for timer in filter(None, (self._late, self._waits)):
            timer.cancel()
            timer.join()

    def _give_up(self, number: int) -> None:
        """End the process, and what it did to the terminal as far as that accepts output. Called in a thread."""
        with suppress(Exception):  # nobody is left to tell it to
            give_back_screen()
            if self._before is not None:
                import termios

                termios.tcsetattr(0, termios.TCSANOW, self._before)
        os._exit(128 + number)

    def _exit_at_once(self, number: int) -> None:
        """Exit without drawing: drawing would block on a terminal that is gone."""
        self._app.save()
        os._exit(128 + number)

    def _end(self, number: int) -> None:
        self._app.save()
        self._app.exit(return_code=128 + number)


class FaultKept(App[None]):
    """A fault of the program ends the app and is kept for whoever has run it."""

    fault: Exception | None = None

    def _handle_exception(self, error: Exception) -> None:
        """Once the app is ending, Textual mounts nothing more: errors of a half-mounted tab are ignored."""
        if self._exit:
            return
        cause = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(cause, Exception):
            self.fault = self.fault or cause
        super()._handle_exception(self.fault or error)

    def _fatal_error(self) -> None:
        """Textual would print a traceback with the values of variables: prompts and keys."""
        self._close_messages_no_wait()


def _terminal_mode() -> list[Any] | None:
    """How the terminal treats input; None without one."""
    try:
        import termios

        return termios.tcgetattr(0)
    except Exception:  # not on this system, or standard input is no terminal: `termios.error` is no `OSError`
        return None
