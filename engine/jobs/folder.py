"""What a job leaves on the disk, and what that says about it.

Each job has a folder ``<workspace>/jobs/<number>/``:

    job.json       what to run; written once, before the folder appears under its number
    lock           held (``flock``) by the job's process for as long as it lives
    state.json     written by the job's process: its pid, when its turn came, when and how it ended
    events.jsonl   progress as it is reported, one event a line
    result.json    the command's stdout: the object of its ``--json``
    log.txt        the command's stderr
    cancel         present once somebody asked it to stop

Nothing but these files is needed to tell how a job stands, so any number of programs may look at once, and none has
to stay. Whether a process lives is asked of the kernel by its lock, which a pid and a start time would only imply:
the lock is gone the moment its holder is, however it ended, and no other process can be taken for it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UsageError
from .lock import alive

if TYPE_CHECKING:  # a job that waits for its turn has no need of DuckDB
    from ..store.workspace import Workspace

State = Literal["queued", "running", "done", "failed", "cancelled"]
LIVE: tuple[State, ...] = ("queued", "running")

JOB, STATE, EVENTS, RESULT, LOG, CANCEL = (
    "job.json", "state.json", "events.jsonl", "result.json", "log.txt", "cancel",
)  # fmt: skip
CANCELLED_CODE = 130


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands; times are seconds since the epoch. ``code`` is the exit code of its command, None where
    it was killed; ``error`` and ``fix`` say why it failed; ``behind`` is the job that a queued one waits for."""

    number: int
    folder: Path
    arguments: tuple[str, ...]
    directory: str
    state: State
    created: float
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    error: str = ""
    fix: str = ""
    behind: int | None = None

    @property
    def command(self) -> str:
        """What it runs, as it would be typed."""
        return shlex.join(["icl-curate", *self.arguments])

    @property
    def live(self) -> bool:
        return self.state in LIVE


def jobs(workspace: Workspace, ended: Mapping[int, Job] = MappingProxyType({})) -> list[Job]:
    """All jobs of a workspace, latest first. Those known to have ended are not read again: they stay as they are."""
    found: list[Job] = []
    for number in numbers(home(workspace)):
        job = ended.get(number) or read(home(workspace) / str(number))
        if job.state == "queued":
            before = [earlier.number for earlier in found if earlier.live]
            job = replace(job, behind=before[-1] if before else None)
        found.append(job)
    return found[::-1]


def find(workspace: Workspace, number: int) -> Job:
    """One job; `UsageError` where there is none of this number."""
    for job in jobs(workspace):
        if job.number == number:
            return job
    raise UsageError(f"there is no job {number}", "icl-curate jobs")


def result(job: Job) -> dict[str, Any] | None:
    """What the command of a finished job printed with ``--json``; None before its end."""
    return _object(job.folder / RESULT)


def log(job: Job, limit: int = 65_536) -> str:
    """The end of what its process wrote to stderr; at most ``limit`` bytes."""
    with suppress(OSError), (job.folder / LOG).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        return file.read().decode("utf-8", "replace")
    return ""


def home(workspace: Workspace) -> Path:
    """Where the folders of a workspace's jobs lie."""
    return workspace.path / "jobs"


def numbers(parent: Path) -> list[int]:
    """The jobs that exist, in the order in which their turns come."""
    with suppress(FileNotFoundError):
        return sorted(int(path.name) for path in parent.iterdir() if path.name.isdecimal())
    return []


def read(folder: Path) -> Job:
    """How the job of a folder stands."""
    # the lock is looked at first: what a process that is gone has written is then complete
    lives = alive(folder)
    told, said = _object(folder / JOB) or {}, _object(folder / STATE) or {}
    job = Job(
        number=int(folder.name),
        folder=folder,
        arguments=tuple(told.get("arguments", ())),
        directory=told.get("directory", ""),
        state="queued",
        created=told.get("created", 0.0),
        pid=said.get("pid"),
        started=said.get("started"),
        ended=said.get("ended"),
        code=said.get("code"),
    )
    if job.ended is None and lives:
        return job if job.started is None else replace(job, state="running")
    if job.code == 0:
        return replace(job, state="done")
    if job.code == CANCELLED_CODE or (job.ended is None and (folder / CANCEL).exists()):
        return replace(job, state="cancelled")
    if job.ended is None:
        fix = f"icl-curate jobs resume {job.number}"
        return replace(job, state="failed", error="its process was killed; what it paid for is kept", fix=fix)
    error, fix = complaint(log(job))
    return replace(job, state="failed", error=error or f"ended with exit code {job.code}", fix=fix)


def complaint(said: str) -> tuple[str, str]:
    """What went wrong and what mends it, from the stderr of a command with ``--json``: the promised object, else the
    last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    for line in reversed(lines):
        with suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict) and "error" in told:
                return str(told["error"]), str(told.get("fix", ""))
    return (lines[-1] if lines else ""), ""


def write_object(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a JSON object so that no reader sees half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(fields), encoding="utf-8")
    draft.replace(path)


def _object(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None
