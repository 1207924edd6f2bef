"""Work in threads for widgets: the result comes back as a message, and newer work makes older results void."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, TypeVar

from textual.dom import DOMNode
from textual.message import Message
from textual.timer import Timer

from ..engine.base.errors import CurateError
from ..engine.base.files import fault
from ..engine.base.progress import Event, Report
from ..engine.store.unexpected import unexpected

T = TypeVar("T")

BETWEEN = 0.1
"""Seconds between two updates of a progress line."""


class Done(Message):
    """A widget's work has ended: ``result``, or ``error``."""

    bubble = False

    def __init__(
        self, kind: str, turn: int, then: Callable[[Any], object], result: Any = None, error: CurateError | None = None
    ) -> None:
        super().__init__()
        self.kind, self.turn, self.then, self.result, self.error = kind, turn, then, result, error


class BackgroundWork(DOMNode):
    """A widget, or the app, that reads and writes in threads. Must be the last base class.

    `in_thread` runs ``work`` off the event loop and then calls ``then(result)``, a function or coroutine, on it. Of one
    ``kind`` only the latest counts: the result of an older one is dropped, since a thread cannot be stopped.
    `CurateError`s go to `failed`; any other exception does too, converted to one, so that no thread ends the app.
    `in_turn` is for work that must all be done, in the order requested: writing.
    """

    def in_thread(self, kind: str, work: Callable[[], T], then: Callable[[T], object]) -> None:
        turns = self._turns()
        turn = turns[kind] = turns.get(kind, 0) + 1

        def carry_out() -> None:
            result, error = _tried(work)
            self.post_message(Done(kind, turn, then, result, error))

        self.run_worker(carry_out, name=f"{self.id}:{kind}", group=kind, thread=True, exit_on_error=False)

    def in_turn(self, kind: str, work: Callable[[], T], then: Callable[[T], object]) -> None:
        waiting = self._queue(kind)
        waiting.append((work, then))
        if len(waiting) == 1:
            self._next(kind)

    def _next(self, kind: str) -> None:
        waiting = self._queue(kind)
        if not waiting:
            return
        work, then = waiting[0]

        def came(tried: tuple[Any, CurateError | None]) -> None:
            waiting.popleft()
            result, error = tried
            if error is not None:
                self.failed(kind, error)
            else:
                then(result)
            self._next(kind)

        self.in_thread(kind, lambda: _tried(work), came)

    def _queue(self, kind: str) -> deque[tuple[Callable[[], Any], Callable[[Any], object]]]:
        queues: dict[str, deque[Any]] = self.__dict__.setdefault("_queues_by_kind", {})
        return queues.setdefault(kind, deque())

    def forget(self, kind: str) -> None:
        """Ignore the results of all running work of this kind."""
        self._turns()[kind] = self._turns().get(kind, 0) + 1

    def failed(self, kind: str, error: CurateError) -> None:
        """Notify the user; a tab also shows the error in place."""
        self.app.notify(error_text(error), severity="error", timeout=8, markup=False)

    async def on_done(self, message: Done) -> None:
        message.stop()
        if message.turn != self._turns().get(message.kind):
            return
        if message.error is not None:
            self.failed(message.kind, message.error)
        else:
            after = message.then(message.result)
            if isawaitable(after):
                await after

    def _turns(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__.setdefault("_turns_by_kind", {})
        return found


def _tried(work: Callable[[], T]) -> tuple[T | None, CurateError | None]:
    """The result of the work, or why there is none."""
    try:
        return work(), None
    except CurateError as error:
        return None, error
    except Exception as error:
        if isinstance(error, OSError) and (refused := fault(error)):
            return None, refused
        return None, unexpected(error)


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


def error_text(error: CurateError) -> str:
    """The text of a notification for an error."""
    return f"{error.what}\n{error.fix}" if error.fix else error.what
