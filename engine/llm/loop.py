"""One event loop in one thread, for all LLM traffic of the process.

The rest of the engine is synchronous and may run in any thread, also in one with its own loop for a screen. A loop that
outlives a single `ask` keeps connections alive between the many small batches of a training run.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from .types import Backend

T = TypeVar("T")

CLOSING = 2.0
"""Maximum seconds for closing a backend: nothing depends on it."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_open: weakref.WeakSet[Any] = weakref.WeakSet()


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start ``work`` on the shared loop, from any other thread."""
    global _loop, _thread
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():  # a forked process has no thread
            first = _loop is None
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_run, args=(_loop,), name="icl-curate-llm", daemon=True)
            _thread.start()
            if first:
                atexit.register(_stop)
        return asyncio.run_coroutine_threadsafe(work, _loop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped: a `SystemExit` in one task must not leave the others waiting forever."""
    while True:
        try:
            return loop.run_forever()
        except BaseException:  # the work that raised it has it as its result
            continue


def call_soon(function: Any, *arguments: Any) -> None:
    """Run a plain function on the loop."""
    if _loop is not None:
        _loop.call_soon_threadsafe(function, *arguments)


def finish(done: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    """End what a caller waits for, unless it waits no more."""
    if not done.done():
        done.set_result(result) if error is None else done.set_exception(error)


def remember(backend: Backend) -> None:
    """Close this backend at exit unless it was closed before."""
    _open.add(backend)


def close(backend: Backend) -> None:
    """Close a backend's connections, or drop its model; it may be used again afterwards. Never raises."""
    _open.discard(backend)
    closing = submit(backend.close())
    with suppress(Exception):  # no answer is lost by it, and the original error matters more
        closing.result(timeout=CLOSING)
    closing.cancel()


def _stop() -> None:
    """Connections belong to the loop, so they are closed before it ends."""
    global _loop, _thread
    for backend in list(_open):
        close(backend)
    with _lock:
        loop, thread, _loop, _thread = _loop, _thread, None, None
    if loop is None or thread is None:
        return
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=CLOSING)
    if not thread.is_alive():
        loop.close()
