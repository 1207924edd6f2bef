"""The thread that commits all answers, in batches, while calls continue."""

from __future__ import annotations

import asyncio
import queue
import shutil
import threading
import time
from collections.abc import Sequence

from ..base import files
from ..base.errors import CurateError, LockedError, WorkspaceError, counted
from ..store import calls
from ..store.calls import Call, FailedCall
from ..store.workspace import Workspace
from .loop import finish

LARGEST = 200
LINGER = 0.05
"""Seconds that the first answer of a batch waits for others: a commit takes about as long."""
PATIENCE = 60.0
"""Seconds to retry while another process holds the workspace: these answers were paid for."""
RETRYING = 5.0
"""Seconds to retry if the workspace cannot be written for any other reason."""
ROOM = 16 << 20
"""Minimum free bytes on the disk for sending requests: a commit needs some, and every answer must be stored."""

_Item = tuple[list[Call], list[FailedCall], "asyncio.Future[None]"]


class Writer:
    """Commits the given answers, as those that run number ``run`` asked for if there is one; `put` is called on an
    event loop and its future is done once the rows are stored.

    The future raises `WorkspaceError` if they could not be stored. ``trouble`` is the current problem while a commit is
    retried: no more requests should be sent meanwhile. ``lost`` counts answers that could not be stored and ``full`` is
    set if the disk has less than `ROOM` left.
    """

    def __init__(self, workspace: Workspace, run: int | None = None) -> None:
        self._workspace = workspace
        self._of_run = run
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._given_up = threading.Event()
        self.trouble = ""
        self.lost = 0
        self.full: WorkspaceError | None = None
        self.error: WorkspaceError | None = None

    def put(self, answers: list[Call], failures: list[FailedCall]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="icl-curate-calls", daemon=True)
            self._thread.start()
        self._queue.put((answers, failures, done))
        return done

    def flush(self) -> None:
        """Nothing more will arrive before the pending answers are committed: do not wait."""
        self._hurry.set()

    def give_up(self) -> None:
        """Try pending commits once more and then stop."""
        self._given_up.set()

    def close(self) -> None:
        """Commit what is left and end the thread. Raises `WorkspaceError`, with their number, if answers were lost."""
        if self._thread is not None:
            self._hurry.set()
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self.lost and self.error is not None:
            answers = counted(self.lost, "answer")
            raise WorkspaceError(f"{self.error.what}: {answers} could not be saved", self.error.fix)

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
                # short sleeps, so that `flush` is noticed while waiting
                batch.append(self._queue.get(timeout=min(left, 0.005)) if left > 0 else self._queue.get_nowait())
            except queue.Empty:
                if left <= 0:
                    break
        self._hurry.clear()
        return batch

    def _commit(self, items: Sequence[_Item]) -> None:
        error = self._stored([c for item in items for c in item[0]], [f for item in items for f in item[1]])
        self.full = disk_full(self._workspace)
        futures = [item[2] for item in items]
        futures[0].get_loop().call_soon_threadsafe(_finish, futures, error)

    def _stored(self, answers: list[Call], failures: list[FailedCall]) -> WorkspaceError | None:
        """Commit; None once the rows are stored, else the reason."""
        started = time.monotonic()
        while True:
            try:
                calls.record(self._workspace, answers, failures, self._of_run)
            except (ValueError, TypeError, OverflowError) as error:  # a row that no column accepts: reject it alone
                if len(answers) + len(failures) == 1:
                    return self._fail_commit(answers, explained(error, self._workspace))
                alone = [self._stored([call], []) for call in answers] + [self._stored([], [call]) for call in failures]
                return next((failed for failed in alone if failed), None)
            except Exception as error:  # the waiting callers must be notified of any error
                failed = explained(error, self._workspace)
                patience = PATIENCE if isinstance(error, LockedError) else RETRYING
                if self._given_up.is_set() or time.monotonic() - started > patience:
                    self.give_up()  # later answers get one attempt each: space may have been freed
                    return self._fail_commit(answers, failed)
                self.trouble = failed.what
                self._given_up.wait(0.5)
            else:
                self.trouble = ""
                return None

    def _fail_commit(self, answers: Sequence[Call], failed: WorkspaceError) -> WorkspaceError:
        self.error = failed
        self.lost += len(answers)
        return failed


def explained(error: Exception, workspace: Workspace) -> WorkspaceError:
    """The error that prevents a commit, with its fix."""
    if isinstance(error, CurateError):
        return WorkspaceError(error.what, error.fix)
    line = next(iter(str(error).splitlines()), "")[:300] or type(error).__name__
    return WorkspaceError(f"cannot write {workspace.path}: {line}", "fix that and run the same command again")


def disk_full(workspace: Workspace) -> WorkspaceError | None:
    """Why no request should be sent now, None while the disk has space for answers."""
    try:
        free = shutil.disk_usage(workspace.path).free
    except OSError:  # not every file system reports free space; the commit will
        return None
    if free >= ROOM:
        return None
    return WorkspaceError(f"the disk of {workspace.path} is nearly full ({free / 2**20:.1f} MB left)", files.ROOM)


def _finish(futures: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        finish(future, None, error)
