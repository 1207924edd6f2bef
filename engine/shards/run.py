"""`map_shards`: a function over shards, by any engine."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from ..base.errors import CurateError, UsageError
from ..base.progress import CancelToken, Event, Report, silent, within
from ..store.settings import ENGINES
from .shard import INLINE, ONE_CPU, Engine, Lost, Need, Shard, ShardWork

T = TypeVar("T")

LOOK = 0.2
"""Seconds between two looks at the cancel token."""


class Pool(Protocol):
    """Workers that compute shards. ``room`` is the number of shards to hold at once: running, and queued for the
    next free worker."""

    room: int

    @property
    def where(self) -> str:
        """The workers, for the user."""

    def submit(self, shard: Shard) -> Any: ...

    def wait(self, running: list[Any], seconds: float) -> list[Any]:
        """Those of the ``running`` that are finished, after at most this time."""

    def result(self, handle: Any) -> Any:
        """What the shard returned. Raises `Lost`, or the `CurateError` of a shard that failed."""

    def abandon(self, running: list[Any]) -> None:
        """Stop them, whatever they do; the pool stays usable."""

    def close(self) -> None: ...


def map_shards(
    fn: ShardWork[T],
    shards: Iterable[Shard],
    engine: Engine = INLINE,
    *,
    need: Need = ONE_CPU,
    retries: int = 3,
    total: int = 0,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Iterator[tuple[Shard, T]]:
    """``fn`` of each shard, as they finish: the caller that needs an order sorts by `Shard.index`.

    ``shards`` is read as workers become free, so it may write the inputs of each just before yielding it. A shard whose
    worker dies or hangs is tried ``retries`` times more; an exception in ``fn`` is raised at once, since the same input
    would raise it again. ``total`` rows, of all shards, are the total of the progress events. Raises `Cancelled`, and
    `UsageError` for an engine that is unknown, not installed or does not answer.
    """
    cancel = cancel or CancelToken()
    if engine.here:
        done = 0
        for shard in shards:
            cancel.check()
            found = fn(shard, within(report, done, total or shard.rows), cancel)
            done += shard.rows
            yield shard, found
        return
    pool = _opened(engine, fn, need)
    running: dict[Any, Shard] = {}
    try:
        yield from _driven(pool, iter(shards), running, retries, need.patience, total, report, cancel)
    except BaseException:  # also where the caller stops asking for results
        pool.abandon(list(running))
        raise
    finally:
        pool.close()


def workers_of(engine: Engine, need: Need) -> str:
    """What the engine's workers are, for the user; empty inline. Raises as `map_shards` does."""
    if engine.here:
        return ""
    pool = _opened(engine, None, need)
    try:
        return pool.where
    finally:
        pool.close()


def _opened(engine: Engine, fn: ShardWork[Any] | None, need: Need) -> Pool:
    if engine.kind == "process":
        from .process_pool import ProcessPool

        return ProcessPool(fn)
    if engine.kind == "ray":
        from .ray_pool import RayPool

        return RayPool(fn, engine.address, need)
    raise UsageError(f"engine is '{engine.kind}'", f"use one of: {', '.join(ENGINES)}")


def _driven(
    pool: Pool,
    shards: Iterator[Shard],
    running: dict[Any, Shard],
    retries: int,
    patience: float,
    total: int,
    report: Report,
    cancel: CancelToken,
) -> Iterator[tuple[Shard, Any]]:
    """Keep the pool full, try lost shards again, hand on what finishes; ``running`` is kept up to date."""
    again: deque[Shard] = deque()
    tries: Counter[int] = Counter()
    done, moved = 0, time.monotonic()

    def lost(shard: Shard, why: str) -> None:
        tries[shard.index] += 1
        if tries[shard.index] > retries:
            raise CurateError(
                f"part {shard.index + 1} of {shard.stage} failed {tries[shard.index]} times: {why}",
                "run the same command again; finished parts are kept. If workers lack memory, use fewer or larger ones",
            )
        report(Event(shard.stage, done, total or None, f"part {shard.index + 1} of {shard.stage}: {why}; tried again"))
        again.append(shard)

    while True:
        while len(running) < pool.room:
            shard = again.popleft() if again else next(shards, None)
            if shard is None:
                break
            running[pool.submit(shard)] = shard
            moved = time.monotonic() if len(running) == 1 else moved
        if not running:
            return
        cancel.check()
        finished = pool.wait(list(running), LOOK)
        for handle in finished:
            shard = running.pop(handle)
            try:
                found = pool.result(handle)
            except Lost as error:
                lost(shard, str(error))
                continue
            done += shard.rows
            report(Event(shard.stage, done, total or None))
            yield shard, found
        if finished:
            moved = time.monotonic()
        elif time.monotonic() - moved > patience:
            pool.abandon(list(running))
            hung = [*running.values()]
            running.clear()
            for shard in hung:
                lost(shard, f"no part finished for {patience:g} s")
            moved = time.monotonic()
