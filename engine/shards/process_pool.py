"""Shards in processes of this machine. A pool of Python's breaks as a whole when one of its processes is killed: here
it is started again, and the shards that it had are lost, not the run."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from ..base.progress import CancelToken, silent
from .shard import Failure, Lost, Shard, ShardWork, attempt, cores

AHEAD = 2
"""Shards held for each process: the one it computes, and the next."""


class ProcessPool:
    """One process for each core, each on one thread."""

    def __init__(self, fn: ShardWork[Any] | None, processes: int | None = None) -> None:
        self._work = pickle.dumps(fn)
        self._processes = processes or cores()
        self.room = AHEAD * self._processes
        self._executor: ProcessPoolExecutor | None = None
        self._of: dict[Future[Any], ProcessPoolExecutor] = {}

    @property
    def where(self) -> str:
        return f"{self._processes} processes"

    def submit(self, shard: Shard) -> Future[Any]:
        try:
            future = self._started().submit(_computed, self._work, shard)
        except BrokenProcessPool:  # it broke since the last result
            self.close()
            future = self._started().submit(_computed, self._work, shard)
        self._of[future] = self._started()
        return future

    def wait(self, running: Sequence[Future[Any]], seconds: float) -> list[Future[Any]]:
        return [*wait(running, seconds, FIRST_COMPLETED).done]

    def result(self, handle: Future[Any]) -> Any:
        executor = self._of.pop(handle)
        try:
            found = handle.result()
        except BrokenProcessPool as error:
            if executor is self._executor:
                self.close()
            raise Lost("its process died") from error
        if isinstance(found, Failure):
            raise found.raised()
        return found

    def abandon(self, running: Sequence[Future[Any]]) -> None:
        """Kills every process: one cannot be told from another by its future."""
        if self._executor:
            for process in [*(self._executor._processes or {}).values()]:
                process.kill()
        self._of.clear()
        self.close()

    def close(self) -> None:
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._executor = None

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self._processes, context, _prepare)
        return self._executor


def _prepare() -> None:
    """In a new process: one thread for each library, and an end with the driver, even if that is killed; Ctrl-C is for
    the driver alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _computed(work: bytes, shard: Shard) -> Any:
    return attempt(lambda: pickle.loads(work)(shard, silent, CancelToken()), shard, "in a process")
