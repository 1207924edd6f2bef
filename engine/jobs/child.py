"""The job's side: its process waits for its turn, reports to its folder, and records how it ended."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from ..base.errors import CurateError
from ..base.progress import STEPS, Event
from ..http import trust
from .folder import CANCEL, CANCELLED_CODE, EVENTS, STATE, numbers, write_object
from .lock import wait_for

EVERY = 0.5
"""Minimum seconds between two recorded events of a task whose latest event replaces earlier ones."""


def work(folder: Path, command: Callable[[], Any]) -> int:
    """Run ``command`` as the job of ``folder`` after the jobs before it have ended; returns its exit code.

    SIGTERM and SIGINT raise `KeyboardInterrupt` if the command does not handle them itself.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    state: dict[str, Any] = {"pid": os.getpid()}
    with suppress(CurateError):  # then `cancel` cannot identify this process and does not signal it
        state["signature"] = trust.sign(["process", str(folder), os.getpid()])
    code = 1
    try:
        write_object(folder / STATE, state)
        if (folder / CANCEL).exists():  # cancelled before the pid was recorded
            raise KeyboardInterrupt
        for earlier in numbers(folder.parent):
            if earlier < int(folder.name):
                wait_for(folder.parent / str(earlier))
        state["started"] = time.time()
        write_object(folder / STATE, state)
        command()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        code = CANCELLED_CODE
    finally:
        if folder.is_dir():  # its workspace may have been moved away: no other is made in its place
            write_object(folder / STATE, state | {"ended": time.time(), "code": code})
    return code


class Recorder:
    """A `Report` that stores events in the job's folder: every note, every step, and of the others at most two per
    second, and how far each task was at the end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._kept: dict[str, float] = {}
        self._last: dict[str, tuple[float, Event]] = {}
        """The latest event of each task, if it is not stored."""

    def __enter__(self) -> Recorder:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for now, event in self._last.values():
            self._store(now, event)
        os.close(self._file)

    def __call__(self, event: Event) -> None:
        now = time.time()
        if not (event.note or event.task in STEPS or event.done == event.total):
            if now - self._kept.get(event.task, 0.0) < EVERY:
                self._last[event.task] = now, event
                return
            self._kept[event.task] = now
        self._last.pop(event.task, None)
        self._store(now, event)

    def _store(self, now: float, event: Event) -> None:
        line = {
            "time": now,
            "task": event.task,
            "done": event.done,
            "total": event.total,
            "note": event.note,
            "fields": dict(event.fields),
        }
        with suppress(OSError):  # a full disk must not stop work that is being paid for
            os.write(self._file, json.dumps(line, default=float).encode() + b"\n")
