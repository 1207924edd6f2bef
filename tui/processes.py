"""Which of the processes that hold the workspace are this program's own."""

from __future__ import annotations

import os
import re
from pathlib import Path


def own_process(folder: Path, what: str) -> str:
    """What is waited for, if the process that ``what`` describes (`store.locks.process`) is this one, was started by
    it, or is a job of the workspace in ``folder``; else empty. For threads."""
    found = re.match(r"PID (\d+)", what)
    if found is None:
        return ""
    pid = int(found[1])
    if job := _job(folder, pid):
        return f"waiting for job {job}: it is writing"
    if pid == os.getpid():
        return "waiting for other work of this session"
    if _parent(pid) == os.getpid():
        return "waiting for a command of this session"
    return ""


def _job(folder: Path, pid: int) -> int | None:
    """The number of the running job with this process."""
    from ..engine.jobs.folder import numbers, read  # after the first paint

    for number in reversed(numbers(folder / "jobs")):
        job = read(folder / "jobs" / str(number))
        if job.pid == pid and job.live:
            return number
    return None


def _parent(pid: int) -> int | None:
    """The parent of a process, where the system tells it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^PPid:\t(\d+)$", status, re.MULTILINE)
    return int(found[1]) if found else None
