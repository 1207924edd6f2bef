"""A stage of work over a pool: blocks of arrays in, arrays out, by any engine."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from ..base.errors import CurateError, UsageError, counted
from ..base.packages import VERSION
from ..base.progress import CancelToken, Event, Report, silent, within
from . import storage
from .manifest import Manifest
from .run import map_shards, workers_of
from .shard import INLINE, ONE_CPU, Arrays, Engine, Need, Shard, Summary, cores, host

SHARDS = "shards"
"""The folder, in a workspace or in that of its vectors, of what an engine other than inline is still computing."""

LOST = 1.0
"""Seconds by which an engine may be slower before it is said."""

Step = Callable[[Arrays, Report, CancelToken], Arrays]
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
    need: Need = ONE_CPU,
    kept: bool = False,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Iterator[tuple[int, Arrays]]:
    """``step`` of each block, as ``(index, output)``, as they finish.

    ``blocks`` are ``(rows, arrays)``, read as workers become free; ``total`` is the sum of their rows. Inline, nothing
    is written. Other engines write inputs and outputs, named by their content, to the engine's storage, by default to
    the folder ``beside``, which also gets the manifest: after the driver was killed, the same call goes on with the
    finished shards. An output is removed when the next one is asked for, unless ``kept``: then with the whole stage,
    for callers that store nothing before the last.
    Raises as `map_shards` does.
    """
    if engine.here:
        done = 0
        for index, (rows, arrays) in enumerate(blocks):
            if cancel:
                cancel.check()
            yield index, step(arrays, within(report, done, total), cancel or CancelToken())
            done += rows
        return
    start = time.perf_counter()
    report(Event(stage, 0, total, f"{stage}: {counted(total, 'row')} on {workers_of(engine, need)}"))
    place = _Place(stage, beside, engine, step)
    arrived = map_shards(
        partial(through_storage, step), place.lacking(blocks), engine,
        need=need, total=total, report=report, cancel=cancel,
    )  # fmt: skip
    costs = []
    for shard, summary in chain(arrived, place.finished()):
        if shard.output not in place.known:
            place.manifest.record(shard.output, summary)
            costs.append(summary.seconds)
        yield shard.index, place.content(shard)
        if not kept:
            place.drop(shard)
    report(Event(stage, total, total))
    place.clear()
    _judge(stage, engine, time.perf_counter() - start, sum(costs), need.threads, report)


class _Place:
    """The files of a stage."""

    def __init__(self, stage: str, beside: Path, engine: Engine, step: Step) -> None:
        self._stage, self._beside = stage, beside
        self._root = str(beside.absolute())
        if engine.storage:
            self._root = storage.own(engine.storage, beside)
        self._config = hashlib.blake2b(pickle.dumps(step) + VERSION.encode(), digest_size=16).hexdigest()
        self.manifest = Manifest(beside / f"{stage}.jsonl")
        self.known: dict[str, Shard] = {}
        """Shards that were finished before, by their output."""
        self._used: Counter[str] = Counter()

    def lacking(self, blocks: Iterable[tuple[int, Arrays]]) -> Iterator[Shard]:
        """The shards that are not finished, their inputs just written."""
        for index, (rows, arrays) in enumerate(blocks):
            content = hashlib.blake2b((self._config + storage.digest_of(arrays)).encode(), digest_size=16).hexdigest()
            name = f"{self._stage}-{content}-{self._used[content]}"  # blocks may be equal
            self._used[content] += 1
            given, output = (storage.under(self._root, f"{name}.{kind}") for kind in ("in", "out"))
            shard = Shard(self._stage, self._config, index, (given,), output, rows)
            if self.manifest.get(output) and storage.present(output) is not None:
                self.known[output] = shard
                continue
            storage.write(given, arrays)
            yield shard

    def finished(self) -> Iterator[tuple[Shard, Summary]]:
        """Those that `lacking` has passed over."""
        for output, shard in self.known.items():
            yield shard, self.manifest.get(output) or Summary("")

    def content(self, shard: Shard) -> Arrays:
        """The output. Raises `CurateError` if it is not what the worker wrote."""
        found, summary = storage.present(shard.output), self.manifest.get(shard.output)
        if found is None or summary is None or storage.digest_of(found) != summary.digest:
            storage.remove([shard.output])
            raise CurateError(
                f"{shard.output} is not what a worker wrote", "check that all nodes share the storage, and run again"
            )
        return found

    def drop(self, shard: Shard) -> None:
        """Remove the shard's files."""
        storage.remove([*shard.inputs, shard.output])

    def clear(self) -> None:
        """Remove what is left of the stage, also by a run of other rows that was killed."""
        storage.clear(self._root, f"{self._stage}-")
        self.manifest.remove()
        with suppress(OSError):  # another stage's files are in it, or it was never made
            self._beside.rmdir()


def through_storage(step: Step, shard: Shard, report: Report, cancel: CancelToken) -> Summary:
    """``step`` of a shard's input, written to its output; an output that is there already is not computed again."""
    known = storage.present(shard.output)
    if known is not None:
        return Summary(storage.digest_of(known), 0.0, host())
    start = time.perf_counter()
    try:
        (given,) = map(storage.read, shard.inputs)
    except FileNotFoundError as error:
        raise UsageError(
            f"no access to {error.filename or shard.inputs[0]}",
            "--engine-storage with a folder that all nodes share, or s3://BUCKET/PREFIX",
        ) from error
    found = step(given, report, cancel)
    storage.write(shard.output, found)
    return Summary(storage.digest_of(found), time.perf_counter() - start, host())


def _judge(stage: str, engine: Engine, seconds: float, work: float, threads: int, report: Report) -> None:
    """Say so where the engine took longer than this process would have. ``work``: seconds of all shards together."""
    alone = work / min(threads or cores(), cores())
    if work and seconds > alone + LOST:
        note = f"{stage}: {seconds:.1f} s with --engine {engine.kind}; inline takes about {alone:.1f} s"
        report(Event(stage, note=f"{note}, so it does not pay for this pool"))
