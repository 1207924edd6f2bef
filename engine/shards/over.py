"""A stage of work over a pool: blocks of arrays in, arrays out, here or by a cluster."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from ..base.errors import CurateError, UsageError, counted
from ..base.packages import VERSION
from ..base.progress import SILENT, Event, Monitor
from . import storage
from .ray_pool import RayPool
from .shard import INLINE, ONE_CPU, Arrays, Engine, Resources, Shard, cores

SHARDS = "shards"
"""The folder, in a workspace or in that of its vectors, of what a cluster is still computing."""

LOST = 1.0
"""Seconds by which a cluster may be slower before it is said."""

Step = Callable[[Arrays, Monitor], Arrays]
"""What is done with a shard: a module-level function or a partial of one, pure: its result depends on the arrays alone,
not on the machine or on other shards."""


def over_shards(
    step: Step,
    blocks: Iterable[tuple[int, Arrays]],
    *,
    stage: str,
    total: int,
    beside: Path,
    engine: Engine = INLINE,
    need: Resources = ONE_CPU,
    held: bool = False,
    monitor: Monitor = SILENT,
) -> Iterator[tuple[int, Arrays]]:
    """``step`` of each block, as ``(index, output)``, as they finish.

    ``blocks`` are ``(rows, arrays)``, read as workers become free; ``total`` is the sum of their rows. Inline, nothing
    is written. A cluster writes inputs and outputs, named by their content, to the engine's storage, by default to the
    folder ``beside``: after the driver was killed, the same call goes on with the finished shards. An output is removed
    when the next one is asked for, unless ``held``: then with the whole stage, for callers that store nothing before
    the last. Raises as `RayPool` does.
    """
    if engine.here:
        done = 0
        for index, (rows, arrays) in enumerate(blocks):
            monitor.check()
            yield index, step(arrays, monitor.within(done, total))
            done += rows
        return
    start, work = time.perf_counter(), 0.0
    pool = RayPool(partial(through_storage, step), engine.address, need)
    monitor.report(Event(stage, 0, total, f"{stage}: {counted(total, 'row')} on {pool.where}"))
    place = _Place(stage, beside, engine, step)
    arrived = pool.map(place.lacking(blocks), total=total, monitor=monitor)
    for shard, seconds in chain(arrived, ((shard, 0.0) for shard in place.finished)):
        work += seconds
        yield shard.index, place.content(shard)
        if not held:
            storage.remove([shard.given, shard.output])
    monitor.report(Event(stage, total, total))
    place.clear()
    took, alone = time.perf_counter() - start, work / min(need.threads or cores(), cores())
    if work and took > alone + LOST:
        note = f"{stage}: {took:.1f} s with --engine {engine.kind}; inline takes about {alone:.1f} s"
        monitor.report(Event(stage, note=f"{note}, so it does not pay for this pool"))


class _Place:
    """The files of a stage. ``finished``: the shards that `lacking` has passed over."""

    def __init__(self, stage: str, beside: Path, engine: Engine, step: Step) -> None:
        self._stage = stage
        self._root = storage.own(engine.storage, beside) if engine.storage else str(beside.absolute())
        self._config = hashlib.blake2b(pickle.dumps(step) + VERSION.encode(), digest_size=16).hexdigest()
        self.finished: list[Shard] = []
        self._used: Counter[str] = Counter()

    def lacking(self, blocks: Iterable[tuple[int, Arrays]]) -> Iterator[Shard]:
        """The shards that are not finished, their inputs just written."""
        for index, (rows, arrays) in enumerate(blocks):
            content = hashlib.blake2b((self._config + storage.digest_of(arrays)).encode(), digest_size=16).hexdigest()
            name = f"{self._stage}-{content}-{self._used[content]}"  # blocks may be equal
            self._used[content] += 1
            given, output = (storage.under(self._root, f"{name}.{kind}") for kind in ("in", "out"))
            shard = Shard(self._stage, index, given, output, rows)
            if storage.present(output) is not None:
                self.finished.append(shard)
                continue
            storage.write(given, arrays)
            yield shard

    def content(self, shard: Shard) -> Arrays:
        """The output. Raises `CurateError` if it is not what the worker wrote."""
        output = storage.present(shard.output)
        if output is None:
            storage.remove([shard.output])
            raise CurateError(
                f"{shard.output} is not what a worker wrote", "check that all nodes share the storage, and run again"
            )
        return output

    def clear(self) -> None:
        """Remove what is left of the stage, also by a run of other rows that was killed."""
        storage.clear(self._root, f"{self._stage}-")


def through_storage(step: Step, shard: Shard, monitor: Monitor) -> float:
    """``step`` of a shard's input, written to its output; the seconds it took. An output that is there already is not
    computed again."""
    if storage.present(shard.output) is not None:
        return 0.0
    start = time.perf_counter()
    try:
        given = storage.read(shard.given)
    except FileNotFoundError as error:
        raise UsageError(
            f"no access to {error.filename or shard.given}",
            "--engine-storage with a folder that all nodes share, or s3://BUCKET/PREFIX",
        ) from error
    storage.write(shard.output, step(given, monitor))
    return time.perf_counter() - start
