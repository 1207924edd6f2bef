"""Shards as tasks of a Ray cluster (Moritz et al. 2018).

Durable state is never in Ray's object store, whose content is lost with a node: tasks write shard files and return
how long they took. Ray's own retries are off: it would try for ever where memory is short.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic

from ..base.errors import CurateError, UsageError
from ..base.packages import VERSION, require
from ..base.progress import SILENT, Event, Monitor
from .shard import Resources, Shard, ShardWork, T, WorkerFailure, attempt, host

AHEAD = 4
"""Tasks in flight for each CPU: each holds memory of the driver and the scheduler."""
LOOK = 0.2
"""Seconds between two looks at the cancel token."""
STORE_BYTES = 200 << 20
"""Object store of a cluster of this machine: tasks return summaries."""
RETRIES = 3
ANSWERS_WITHIN = 5.0
SETTLING = 15.0
"""Seconds in which nodes that were just started join."""


class Lost(Exception):
    """A worker died or hung before it returned its result; the shard can be tried again."""


class RayPool(Generic[T]):
    """``fn`` as tasks of the cluster at ``address``, empty: one that is started on this machine and ends with this
    process. Raises `UsageError` for a cluster that does not answer, or where Ray is not installed."""

    def __init__(self, fn: ShardWork[T], address: str, need: Resources) -> None:
        require("the engine ray", "ray")
        connect(address)
        import ray

        self._ray, self._patience = ray, need.patience
        self._work = ray.put(pickle.dumps(fn))  # once: it may have the weights of a model
        total = _resources(address, need)
        gpus = need.gpus if need.gpus is not None else float(total.get("GPU", 0) > 0)
        slots = total.get("CPU", 1) / need.cpus if not gpus else total["GPU"] / gpus
        self._room = max(1, int(AHEAD * slots))
        # max_calls: by default a GPU task's process ends with it, and the model would be loaded for each
        options: dict[str, Any] = {"num_cpus": need.cpus, "num_gpus": gpus, "max_calls": 0, "max_retries": 0}
        self._task = ray.remote(**options)(_computed)
        nodes = sum(node["Alive"] for node in ray.nodes())
        self.where = f"{nodes} node{'s' * (nodes != 1)} of Ray with {total.get('CPU', 0):g} CPUs" + (
            f" and {total['GPU']:g} GPUs" if gpus else ""
        )

    def map(self, shards: Iterable[Shard], *, total: int = 0, monitor: Monitor = SILENT) -> Iterator[tuple[Shard, T]]:
        """``fn`` of each shard, as they finish: the caller that needs an order sorts by `Shard.index`.

        ``shards`` is read as workers become free, so it may write the inputs of each just before yielding it. A shard
        whose worker dies or hangs is tried `RETRIES` times more; an exception in ``fn`` is raised at once, since the
        same input would raise it again. ``total`` rows, of all shards, are the total of the progress events. Raises
        `Cancelled`.
        """
        running: dict[Any, Shard] = {}
        try:
            yield from self._driven(iter(shards), running, total, monitor)
        except BaseException:  # also where the caller stops asking for results
            self._abandon(running)
            raise

    def _driven(
        self, shards: Iterator[Shard], running: dict[Any, Shard], total: int, monitor: Monitor
    ) -> Iterator[tuple[Shard, T]]:
        """Keep the cluster busy, try lost shards again, hand on what finishes; ``running`` is kept up to date."""
        again: deque[Shard] = deque()
        tries: Counter[int] = Counter()
        done, moved = 0, time.monotonic()

        def lost(shard: Shard, why: str) -> None:
            part = f"part {shard.index + 1} of {shard.stage}"
            tries[shard.index] += 1
            if tries[shard.index] > RETRIES:
                raise CurateError(
                    f"{part} failed {tries[shard.index]} times: {why}",
                    "run the same command again; finished parts are kept. If workers lack memory, use fewer or larger",
                )
            monitor.report(Event(shard.stage, done, total or None, f"{part}: {why}; tried again"))
            again.append(shard)

        while True:
            while len(running) < self._room:
                shard = again.popleft() if again else next(shards, None)
                if shard is None:
                    break
                running[self._task.remote(VERSION, self._work, shard)] = shard
                moved = time.monotonic() if len(running) == 1 else moved
            if not running:
                return
            monitor.check()
            finished: list[Any] = self._ray.wait([*running], num_returns=1, timeout=LOOK)[0]
            for handle in finished:
                shard = running.pop(handle)
                try:
                    result = self._result(handle)
                except Lost as error:
                    lost(shard, str(error))
                    continue
                done += shard.rows
                monitor.report(Event(shard.stage, done, total or None))
                yield shard, result
            if finished:
                moved = time.monotonic()
            elif time.monotonic() - moved > self._patience:
                self._abandon(running)
                hung = [*running.values()]
                running.clear()
                for shard in hung:
                    lost(shard, f"no part finished for {self._patience:g} s")
                moved = time.monotonic()

    def _result(self, handle: Any) -> T:
        """What the shard returned. Raises `Lost`, or the `CurateError` of a shard that failed."""
        errors = self._ray.exceptions
        try:
            returned = self._ray.get(handle)
        except errors.RayTaskError as error:  # `_computed` raises nothing: it could not be called
            raise _uncallable(str(error)) from error
        except (errors.RayError, ConnectionError) as error:
            raise Lost(_line(error)) from error
        if isinstance(returned, WorkerFailure):
            raise returned.raised()
        result: T = returned
        return result

    def _abandon(self, running: Iterable[Any]) -> None:
        for handle in running:
            with contextlib.suppress(Exception):  # it ended meanwhile
                self._ray.cancel(handle, force=True)


def connect(address: str) -> None:
    """Connect this process to the cluster, or start one, and stay connected for the next stage.

    Raises `UsageError` if nothing answers at the address, or if Ray or Python there is another version.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address:  # without this variable a local cluster listens on every interface
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        if _connected.get("address") in (None, address):
            return
        ray.shutdown()
    _answers(address)
    local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        ray.init(
            # without an address Ray would look for a cluster that a killed run has left behind
            address=address or "local",
            logging_level="ERROR",
            log_to_driver=False,
            **({} if address else local),
        )
    except Exception as error:  # Ray raises errors of many kinds, also from its wire
        raise UsageError(f"cannot use Ray at {address or 'this machine'}: {_line(error)}", _mend(address)) from error
    _connected["address"] = address


_connected: dict[str, str] = {}


def _answers(address: str) -> None:
    """Raise `UsageError` if nothing listens at host and port of an address: Ray itself would try for minutes."""
    name, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto", "local" or empty
    try:
        with socket.create_connection((name.strip("[]"), int(port)), timeout=ANSWERS_WITHIN):
            return
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster answers at {address}: {_line(error)}", _mend(address)) from error


def _mend(address: str) -> str:
    if not address:
        return "the same command with --engine inline"
    python = ".".join(map(str, sys.version_info[:3]))
    return f"ray status --address {address}   (all nodes need the same Ray, and Python {python})"


def _resources(address: str, need: Resources) -> dict[str, float]:
    """What the nodes have. `UsageError` if no node that is there within `SETTLING` seconds can run a shard."""
    import ray

    until = time.monotonic() + SETTLING
    while True:
        total: dict[str, float] = ray.cluster_resources()
        lacking = [
            name for name, wanted in (("CPU", need.cpus), ("GPU", need.gpus or 0)) if total.get(name, 0) < wanted
        ]
        if not lacking:
            return total
        if time.monotonic() > until:
            what = " and ".join(lacking)
            raise UsageError(
                f"no node of Ray at {address or 'this machine'} has a free {what}",
                "--device cpu" if lacking == ["GPU"] else "ray status, to see the nodes",
            )
        time.sleep(0.2)


def _uncallable(text: str) -> CurateError:
    """The error for a worker that cannot even begin."""
    if "No module named" in text or "failed to import" in text or "ModuleNotFoundError" in text:
        return UsageError(
            f"the nodes of Ray lack the package icl-curate {VERSION}",
            f"pip install 'icl-curate-core[ray]=={VERSION}' on every node, for the Python that runs ray",
        )
    return CurateError(f"a task of Ray failed: {text.strip().splitlines()[-1]}", "ray status")


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def _computed(version: str, work: bytes, shard: Shard) -> Any:
    """Runs in a worker, which has this module by installation: what is sent are the names of functions, and values."""
    where = f"on {host()}"
    if version != VERSION:
        return WorkerFailure(
            f"{where}: icl-curate is {VERSION}, here it is {version}",
            f"pip install icl-curate=={version} on every node",
            UsageError.exit_code,
        )
    return attempt(lambda: pickle.loads(work)(shard, SILENT), shard, where)
