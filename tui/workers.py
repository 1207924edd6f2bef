"""Work in threads for widgets: newer work makes older results void."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textual.dom import DOMNode
from textual.screen import Screen
from textual.timer import Timer

from ..engine.base.errors import CurateError
from ..engine.base.files import fault
from ..engine.base.progress import Event, Report
from ..engine.store.unexpected import unexpected

if TYPE_CHECKING:
    from .app import ReviewApp

T = TypeVar("T")

BETWEEN = 0.1
"""Seconds between two updates of a progress line."""


class BackgroundWork(DOMNode):
    """A widget, or the app, that reads and writes in threads. Must be the last base class."""

    @property
    def review(self) -> ReviewApp:
        """The app, as its tabs and dialogs use it."""
        return cast("ReviewApp", self.app)

    async def thread(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which runs off the event loop. Raises `CurateError`: any other exception is converted
        to one, so that no thread ends the app. The coroutine ends here if this is leaving the screen: it has lost its
        parts."""
        try:
            return await asyncio.to_thread(work)
        except CurateError:
            raise
        except Exception as error:
            refused = fault(error) if isinstance(error, OSError) else None
            raise refused or unexpected(error) from error
        finally:
            if self._pruning or not self.app.is_running:
                raise asyncio.CancelledError

    def in_thread(self, kind: str, work: Callable[[], T], then: Callable[[T], object]) -> None:
        """Run ``work`` off the event loop and then call ``then(result)``, a function or coroutine, on it; an error goes
        to `failed`. Of one ``kind`` only the latest counts: the result of an older one is dropped, since a thread
        cannot be stopped."""

        async def carry_out() -> None:
            try:
                result = await self.thread(work)
            except CurateError as error:
                self.failed(kind, error)
                return
            after = then(result)
            if isawaitable(after):
                await after

        self.in_worker(carry_out, kind, exclusive=True)

    def in_worker(self, work: Callable[[], Coroutine[Any, Any, None]], kind: str, exclusive: bool = False) -> None:
        """Run a coroutine beside the handlers of messages. ``exclusive``: an older one of its ``kind`` is cancelled."""
        self.run_worker(work, group=kind, exclusive=exclusive)  # type: ignore[arg-type]

    def forget(self, kind: str) -> None:
        """Ignore the results of all running work of this kind."""
        self.workers.cancel_group(self, kind)

    def ask(self, dialog: Screen[T | None], then: Callable[[T], object]) -> None:
        """Open a dialog and call ``then`` with what it returns, unless it was left."""

        def answered(answer: T | None) -> None:
            if answer is not None:
                then(answer)

        self.app.push_screen(dialog, answered)

    def failed(self, kind: str, error: CurateError) -> None:
        """Notify the user; a tab also shows the error in place."""
        self.app.notify(error_text(error), severity="error")


def later(node: DOMNode, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    """A function that calls ``call`` once no further call of it has come for ``seconds``."""
    pending: list[Timer] = []

    def soon() -> None:
        while pending:
            pending.pop().stop()
        pending.append(node.set_timer(seconds, call))

    return soon


def at_rest(node: DOMNode, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    """A function that calls ``call`` at once, so that what follows from one key is drawn once; but of calls within
    ``seconds`` of each other, as from a key held down, only the first and, like `later`, the last."""
    soon = later(node, seconds, call)
    last = float("-inf")

    def first_or_last() -> None:
        nonlocal last
        now, before = time.monotonic(), last
        last = now
        if now - before >= seconds:
            call()
        else:
            soon()

    return first_or_last


def seldom(report: Callable[[Event], object]) -> Report:
    """A `Report` that passes on the first event and then at most one in `BETWEEN` seconds. For threads."""
    last = float("-inf")

    def passed(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= BETWEEN:
            last = now
            report(event)

    return passed


def error_text(error: CurateError, between: str = "\n") -> str:
    """What is wrong, and how it is mended."""
    return f"{error.what}{between}{error.fix}" if error.fix else error.what
