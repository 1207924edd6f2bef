"""The one thread that commits answers, in batches, while calls go on."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence

from ..errors import WorkspaceError
from ..store import calls
from ..store.calls import Call, FailedCall
from ..store.workspace import Workspace

LARGEST = 200
LINGER = 0.05
"""Seconds the first answer of a batch waits for others: a commit costs about as much."""
PATIENCE = 60.0
"""Seconds to go on trying when another process holds the workspace: what is in hand was paid for."""

_Item = tuple[list[Call], list[FailedCall], "asyncio.Future[None]"]


class Writer:
    """Commits what it is given; `put` is called on an event loop and its future is done once the rows are safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, answers: list[Call], failures: list[FailedCall]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="icl-curate-calls", daemon=True)
            self._thread.start()
        self._queue.put((answers, failures, done))
        return done

    def hurry(self) -> None:
        """Nothing more will come before what is here is committed: do not linger."""
        self._hurry.set()

    def close(self) -> None:
        """Commit what is left and end the thread."""
        if self._thread is not None:
            self._hurry.set()
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = self._next_batch()
            ended = batch[-1] is None
            items = [item for item in batch if item is not None]
            if items:
                self._commit(items)

    def _next_batch(self) -> list[_Item | None]:
        batch = [self._queue.get()]
        deadline = time.monotonic() + LINGER
        while batch[-1] is not None and sum(len(item[0]) for item in batch if item) < LARGEST:
            left = 0.0 if self._hurry.is_set() else deadline - time.monotonic()
            try:
                # short naps, so that `hurry` is noticed while lingering
                batch.append(self._queue.get(timeout=min(left, 0.005)) if left > 0 else self._queue.get_nowait())
            except queue.Empty:
                if left <= 0:
                    break
        self._hurry.clear()
        return batch

    def _commit(self, items: Sequence[_Item]) -> None:
        error: BaseException | None = None
        try:
            self._record([c for item in items for c in item[0]], [f for item in items for f in item[1]])
        except BaseException as caught:  # whatever it was, those who wait must hear of it
            error = caught
        loops = {item[2].get_loop() for item in items}
        for loop in loops:
            loop.call_soon_threadsafe(_finish, [item[2] for item in items if item[2].get_loop() is loop], error)

    def _record(self, answers: list[Call], failures: list[FailedCall]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return calls.record(self._workspace, answers, failures)
            except WorkspaceError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


def _finish(futures: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
