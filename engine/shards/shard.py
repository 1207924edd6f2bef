"""What is handed from the driver to a worker and back: small, frozen, picklable."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import CurateError
from ..base.packages import require
from ..base.progress import Monitor
from ..store.settings import Settings

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Arrays = Mapping[str, NDArray[Any]]
"""Content of a shard's input or output, by name."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a stage's work: ``rows`` rows, of which the input ``given`` (a URI, or empty) is written and the
    ``output`` (URI) is not. ``stage`` is the task of its progress events."""

    stage: str
    index: int
    given: str
    output: str
    rows: int


@dataclass(frozen=True, slots=True)
class Resources:
    """What a shard needs of a Ray cluster: ``cpus``; ``gpus``, None: one if the cluster has any. If no shard at all
    finishes within ``patience`` seconds, those that run count as hung. ``threads`` are those that one shard keeps busy
    inline (0: all cores), to judge whether a cluster pays."""

    cpus: float = 1.0
    gpus: float | None = 0.0
    patience: float = 1800.0
    threads: int = 1


ONE_CPU = Resources()


@dataclass(frozen=True, slots=True)
class Engine:
    """Where shards are computed: ``kind`` is inline or ray. ``address`` is that of a Ray cluster (empty: one
    is started on this machine). ``storage``: a folder or URI that all workers reach, empty: in the workspace."""

    kind: str = "inline"
    address: str = ""
    storage: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Engine:
        """The engine of the settings. `UsageError` if it is not installed, or if only a workspace's own file names
        address or storage."""
        if settings.engine == "inline":
            return INLINE
        settings.check_places()
        require("the engine ray", "ray")
        return cls(settings.engine, settings.engine_address, settings.engine_storage)

    @property
    def here(self) -> bool:
        """Whether shards are computed in this process."""
        return self.kind == "inline"


INLINE = Engine()


class ShardWork(Protocol[T_co]):
    """Called with each shard: a module-level function, or a `functools.partial` of one, pure and idempotent."""

    def __call__(self, shard: Shard, monitor: Monitor) -> T_co: ...


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """An exception in a worker, as data: exceptions of libraries need not survive pickling."""

    what: str
    fix: str
    exit_code: int

    def raised(self) -> CurateError:
        error = CurateError(self.what, self.fix)
        error.exit_code = self.exit_code
        return error


def attempt(call: Callable[[], T], shard: Shard, elsewhere: str) -> T | WorkerFailure:
    """The result of ``call`` in a worker, or how it failed; ``elsewhere`` precedes what is said of it."""
    from ..base.files import fault
    from ..base.packages import lacking

    try:
        return call()
    except CurateError as error:
        return WorkerFailure(f"{elsewhere}: {error.what}", error.fix, error.exit_code)
    except Exception as error:
        known = fault(error) or (lacking(error) if isinstance(error, ImportError) else None)
        if known:
            return WorkerFailure(f"{elsewhere}: {known.what}", known.fix, known.exit_code)
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        return WorkerFailure(
            f"{elsewhere}: {shard.stage} failed with {line}", "the same command with --engine inline", 1
        )


def host() -> str:
    return platform.node()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def packed(texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Texts as arrays: their UTF-8, one after the other, and where each ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"text": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def unpacked(arrays: Arrays) -> list[str]:
    """The texts that `packed` packed."""
    return [*_unpacked(memoryview(np.ascontiguousarray(arrays["text"]).data), arrays["ends"].tolist())]


def _unpacked(text: memoryview, ends: Sequence[int]) -> Iterator[str]:
    start = 0
    for end in ends:
        yield str(text[start:end], "utf-8", "surrogatepass")
        start = end
