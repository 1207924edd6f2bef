"""What works on the workspace beside the app: jobs that run or wait, for the badge at the tabs and the line on leaving;
and which of the processes that hold the workspace are this program's own. No Textual."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..engine.jobs.folder import State, numbers, read
from ..engine.jobs.follow import LiveJob, LiveJobs
from ..engine.pool.display import display_line

_SIGNS: dict[State, tuple[str, str]] = {"failed": ("✗", "failed"), "cancelled": ("✗", "was cancelled")}


def badge(jobs: Sequence[LiveJob], ended: tuple[int, State] | None = None) -> tuple[str, ...]:
    """The jobs in one line, in several lengths, the longest first; without any the one that has ``ended``, and how;
    else empty."""
    if not jobs:
        if ended is None:
            return ()
        number, (sign, how) = ended[0], _SIGNS.get(ended[1], ("✓", "has ended"))
        return f"{sign} job {number} {how}", f"{sign} job {number}", f"{sign}{number}"
    first = next((job for job in jobs if job.running), jobs[0])
    share = "" if first.share is None else f" {first.share:.0%}"
    more = f" +{len(jobs) - 1}" if len(jobs) > 1 else ""
    return f"⟳ {display_line(first.what, 40)}{share}{more}", f"⟳ job {first.number}{share}{more}", f"⟳{share[1:-1]}"


def how_ended(folder: Path, number: int) -> tuple[int, State]:
    """A job of the workspace in ``folder``, and its state."""
    return number, read(folder / "jobs" / str(number)).state


def on_leaving(folder: Path, default: Path) -> str:
    """What goes on after the program was left, and how to see it; empty: nothing. ``default``: a command needs no
    ``-w`` for this workspace."""
    found = LiveJobs(folder).look()
    if not found:
        return ""
    first = next((job for job in found if job.running), found[0])
    others = f", {len(found) - 1} more wait" if len(found) > 1 else ""
    where = "" if folder.resolve() == default.resolve() else f" -w {shlex.quote(str(folder))}"
    return display_line(f"{first.what} goes on{others}; to see it: icl-curate jobs follow {first.number}{where}")


STARTED: set[int] = set()
"""Process ids of the commands that this session has started and that may still be running."""


def own_process(folder: Path, what: str) -> str:
    """What is waited for, if the process that ``what`` describes (`store.locks.process`) is this one, a command of
    it, or a job of the workspace in ``folder``; else empty. For threads."""
    held = re.match(r"PID (\d+)", what)
    if held is None:
        return ""
    pid = int(held[1])
    for number in reversed(numbers(folder / "jobs")):
        job = read(folder / "jobs" / str(number))
        if job.pid == pid and job.live:
            return f"waiting for job {number}: it is writing"
    if pid == os.getpid():
        return "waiting for other work of this session"
    return "waiting for a command of this session" if pid in STARTED else ""
