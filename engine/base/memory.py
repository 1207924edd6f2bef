"""How much memory there is: what the system says, and what a container or service may use. Known on Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .progress import MEMORY, Event, Monitor

ROOT = Path("/")
GIB = 1 << 30


def total(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process and its neighbours in the container may use; None: unknown."""
    found = [limit for limit, _ in _groups(root)]
    with suppress(ValueError, OSError, AttributeError):  # not available on every system
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)


def free(root: Path = ROOT) -> int | None:
    """Bytes that may still be taken without swapping; files that the system keeps in memory count as free. None:
    unknown."""
    found = [limit - used for limit, used in _groups(root)]
    with suppress(OSError, ValueError):
        found.append(_fields(root / "proc/meminfo", ":")["MemAvailable"] << 10)
    return max(0, min(found)) if found else None


def shortage(what: str, needed: int, fix: str, *, root: Path = ROOT) -> str:
    """A line that says so if ``what`` needs more bytes than are free, else nothing."""
    left = free(root)
    if left is None or needed <= left:
        return ""
    return f"{what} about {needed / GIB:.1f} GiB of memory, and {left / GIB:.1f} GiB are free: {fix}"


def warn(monitor: Monitor, what: str, needed: int, fix: str) -> None:
    """Report a `shortage` before the work begins."""
    if short := shortage(what, needed, fix):
        monitor.report(Event(MEMORY, note=short))


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each control group of this process that has a limit, with those it is in."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
            files = ("inactive_file", "active_file")
        elif "memory" in kinds.split(","):
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
            files = ("total_inactive_file", "total_active_file")
        else:
            continue
        own = Path(path.lstrip("/"))
        for folder in (own, *own.parents):  # in a container its own group may be shown as the top
            with suppress(OSError, ValueError):  # "max": no limit
                limit, used = (int((top / folder / name).read_text()) for name in names)
                kept = _fields(top / folder / "memory.stat")
                yield limit, used - sum(kept.get(name, 0) for name in files)


def _fields(path: Path, end: str = "") -> dict[str, int]:
    """Names and numbers of a file with one of each in a line."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].removesuffix(end): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
