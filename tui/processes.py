"""Which of the processes that hold the workspace are this program's own."""

from __future__ import annotations

import os
import re
from pathlib import Path

COMMANDS: set[int] = set()
"""Process ids of the commands that this session has started and that may still be running."""


def own_process(folder: Path, what: str) -> str:
    """What is waited for, if the process that ``what`` describes (`store.locks.process`) is this one, a command of
    it, or a job of the workspace in ``folder``; else empty. For threads."""
    found = re.match(r"PID (\d+)", what)
    if found is None:
        return ""
    pid = int(found[1])
    if job := _job(folder, pid):
        return f"waiting for job {job}: it is writing"
    if pid == os.getpid():
        return "waiting for other work of this session"
    if pid in COMMANDS:
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
