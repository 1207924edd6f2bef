"""The thread in which a local backend computes: it stops on request, and no caller has to wait for it.

A thread of `concurrent.futures` is joined before the process ends, however long it computes. This one is not: it checks
a flag as often as possible, and at the end of the process it has at most `LEAVE` seconds to stop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from ..llm.loop import finish
from ..llm.types import Keep, Request, Result

T = TypeVar("T")

LEAVE = 2.0
"""Seconds that a cancelled computation has to stop before the process ends without it."""

INTERRUPTED = 130
"""Exit code of a process that ends while a model still computes: this only happens after an interruption."""

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Stopped(Exception):
    """Raised in the computing thread if no caller waits for its result."""


class Worker:
    """A daemon thread that runs calls one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._stop = threading.Event()
        self._ending = False
        _workers.add(self)

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` in the thread. Cancelling returns at once; ``work`` ends at its next `check`."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        stop = threading.Event()

        def job() -> None:
            self._stop = stop
            result: Any = None
            error: BaseException | None = None
            try:
                self.check()
                result = work()
            except BaseException as caught:
                error = caught
            if isinstance(error, StopIteration) or not isinstance(error, Exception | None):
                # no future passes these on as an error of the work, and the caller would wait for ever
                error = RuntimeError(f"{type(error).__name__}: {error}")
            with suppress(RuntimeError):  # the loop is closed: no one is waiting
                loop.call_soon_threadsafe(finish, done, result, error)

        self._put(job)
        try:
            return await done
        finally:
            stop.set()

    def check(self) -> None:
        """To be called often in the thread: raises `Stopped` if no caller waits any more."""
        if self._stop.is_set() or self._ending:
            raise Stopped

    def end(self) -> None:
        """Let the thread end after its pending calls; a later `run` starts another."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread, self._jobs = None, SimpleQueue()

    def _put(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a forked process does not have the thread
                self._thread = threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
                _threads.add(self._thread)
                self._thread.start()
                # a backend that no one closed: at the end of the process its idle thread would pass for a computing one
                weakref.finalize(self, self._jobs.put, None)
            self._jobs.put(job)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds a reference to the model


def _leave() -> None:
    """At the end of the process. A thread inside a library must not run during interpreter shutdown: it would abort
    there. So if one is still computing, the process ends without the interpreter's clean-up."""
    for worker in list(_workers):
        worker._ending = True
        worker.end()
    deadline = time.monotonic() + LEAVE
    with suppress(KeyboardInterrupt):
        for thread in list(_threads):
            thread.join(max(deadline - time.monotonic(), 0.0))
    if any(thread.is_alive() for thread in _threads):
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(INTERRUPTED)


atexit.register(_leave)


class Computing:
    """What backends share that compute on this machine, in a thread of that name, off the event loop."""

    local = True
    max_in_flight = 1

    def __init__(self, thread: str) -> None:
        self._worker = Worker(thread)

    def compute(self, requests: Sequence[Request], keep: Keep) -> None:
        """Answer the requests, in the worker's thread, with a `Worker.check` as often as possible; ``keep`` gets each
        result as soon as it is there."""
        raise NotImplementedError

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """See `Backend`."""
        results: dict[int, Result] = {}
        await self.ask_each(requests, results.update)
        return [results[i] for i in range(len(requests))]

    async def ask_each(self, requests: Sequence[Request], keep: Keep) -> None:
        """See `Streams`."""
        loop = asyncio.get_running_loop()

        def pass_on(results: Any) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(keep, results)

        await self._worker.run(lambda: self.compute(requests, pass_on))

    async def close(self) -> None:
        """End the thread; a running computation ends by itself soon."""
        self._worker.end()
