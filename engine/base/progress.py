"""Progress events and cancellation of long work.

The command line draws these events with rich, the TUI with widgets, tests read them as data.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from .errors import Cancelled


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a task.

    ``task`` names the work ("encode", "ask", …) and is the same in all of its events; ``done`` of ``total`` units are
    finished (``total`` None: unknown); ``note`` is a line that stays on the screen (a warning, a stage reached);
    ``fields`` has live figures such as ``cached`` or ``loss``.
    """

    task: str
    done: int = 0
    total: int | None = None
    note: str = ""
    fields: Mapping[str, float] = field(default_factory=dict)


MEMORY = "memory"
"""The task of notes on a lack of memory."""

STEPS = frozenset({"train"})
"""Tasks of which every event is a point of a curve; of other tasks only the latest event matters."""

Report = Callable[[Event], None]


class CancelToken:
    """Set from any thread or signal handler; long work looks at it between batches."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


def _dropped(event: Event) -> None:
    """Of work that nobody follows."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """What long work is given by those who wait for it: where its events go, and whether it is to end."""

    report: Report = _dropped
    cancel: CancelToken = field(default_factory=CancelToken)

    def check(self) -> None:
        """Raise `Cancelled` when the token was set."""
        if self.cancel.cancelled:
            raise Cancelled

    @property
    def quiet(self) -> Monitor:
        """For a part of the work that reports nothing of its own, and ends with the whole."""
        return replace(self, report=_dropped)

    def within(self, start: int, total: int | None) -> Monitor:
        """For a part of the work that begins after ``start`` of ``total`` units: converts its events to those of the
        whole."""
        report = self.report
        return replace(self, report=lambda event: report(replace(event, done=start + event.done, total=total)))

    def in_steps(self, task: str, places: range, total: int) -> Iterator[int]:
        """The places, with an event of ``task`` at each of them and at the end. Raises `Cancelled` between them."""
        for place in places:
            self.check()
            self.report(Event(task, place, total))
            yield place
        self.report(Event(task, places.stop, total))


SILENT = Monitor()
"""The monitor of work that nobody follows or ends."""


@contextmanager
def stoppable() -> Iterator[CancelToken]:
    """A token that the first Ctrl-C or SIGTERM sets: the work ends cleanly, and raises `Cancelled`. The second one ends
    it at once, with `KeyboardInterrupt`. In another thread than the main one signals are not heard."""
    token = CancelToken()

    def stop(number: int, frame: object) -> None:
        if token.cancelled:
            raise KeyboardInterrupt
        token.cancel()

    heard = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM) if heard}
    try:
        yield token
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
