"""What a job leaves on the disk, and what that says about it.

Each job has a folder ``<workspace>/jobs/<number>/``:

    job.json       what to run, signed; written once, before the folder appears under its number
    lock           held (``flock``) by the job's process for as long as it lives
    state.json     written by the job's process: its pid, signed; when its turn came, when and how it ended
    events.jsonl   progress as it is reported, one event a line
    result.json    the command's stdout: the object of its ``--json``
    log.txt        the command's stderr
    cancel         present once it was asked to stop

Nothing but these files is needed to tell how a job stands, so any number of programs may look at once, and none has
to stay. Whether a process lives is asked of the kernel by its lock, which a pid and a start time would only imply:
the lock is gone the moment its holder is, however it ended, and no other process can be taken for it.

A folder may have come from elsewhere, with anything in it: it is looked at, but only what bears this user's signature
is run or stopped.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from .. import trust
from ..disk import open_regular
from ..errors import UsageError
from ..files import replace_file
from .lock import alive

if TYPE_CHECKING:  # a job that waits for its turn has no need of DuckDB
    from ..store.workspace import Workspace

State = Literal["queued", "running", "done", "failed", "cancelled"]
LIVE: tuple[State, ...] = ("queued", "running")

JOB, STATE, EVENTS, RESULT, LOG, CANCEL = (
    "job.json", "state.json", "events.jsonl", "result.json", "log.txt", "cancel",
)  # fmt: skip
CANCELLED_CODE = 130

MOST = 1 << 26
"""Bytes of a file that are read; no job writes as much."""


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


def is_own(job: Job) -> bool:
    """Whether this user started it, in this workspace."""
    said, _ = _fields(job.folder / JOB, {"signature": _is_text})
    return trust.is_signed(identity(job.folder.parent.parent, job.arguments, job.directory), said.get("signature"))


def own_process(job: Job) -> int | None:
    """The process id of a live job; None if it is not recorded yet. Raises `UsageError` if the record is not signed."""
    said, wrong = _fields(job.folder / STATE, _STATE)
    pid = said.get("pid")
    if wrong or (pid is not None and not trust.is_signed(["process", str(job.folder), pid], said.get("signature"))):
        raise UsageError(
            f"job {job.number} names a process that is not its own, so nothing is killed",
            "if it is a job, kill it yourself",
        )
    return pid


def identity(workspace: Path, arguments: Sequence[str], directory: str) -> list[object]:
    """What the signature of a job is over."""
    return ["job", str(workspace), list(arguments), directory]


def result(job: Job) -> dict[str, Any] | None:
    """What the command of a finished job printed with ``--json``; None before its end."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(_bytes(job.folder / RESULT))
        return found if isinstance(found, dict) else None
    return None


def log(job: Job, limit: int = 65_536) -> str:
    """The end of what its process wrote to stderr; at most ``limit`` bytes."""
    with suppress(OSError), open_regular(job.folder / LOG) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        return file.read().decode("utf-8", "replace")
    return ""


def home(workspace: Workspace) -> Path:
    """Where the folders of a workspace's jobs lie."""
    return workspace.path / "jobs"


def numbers(parent: Path) -> list[int]:
    """The jobs that exist, in the order in which their turns come."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(int(path.name) for path in parent.iterdir() if _is_number(path.name))
    return []


def read(folder: Path) -> Job:
    """How the job of a folder stands."""
    # the lock is looked at first: what a process that is gone has written is then complete
    lives = alive(folder)
    (told, wrong), (said, odd) = _fields(folder / JOB, _JOB), _fields(folder / STATE, _STATE)
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
    if wrong or odd or not job.arguments:
        fix = f"rm -r {shlex.quote(str(folder))}"
        return replace(job, state="failed", error=f"damaged: {wrong or odd or 'there is no job.json'}", fix=fix)
    if job.code == 0:
        return replace(job, state="done")
    if job.code == CANCELLED_CODE or (job.ended is None and (folder / CANCEL).exists()):
        return replace(job, state="cancelled")
    if job.ended is None:
        fix = f"icl-curate jobs resume {job.number}"
        return replace(job, state="failed", error="its process was killed; paid answers are kept", fix=fix)
    error, fix = complaint(log(job))
    return replace(job, state="failed", error=error or f"ended with exit code {job.code}", fix=fix)


def complaint(said: str) -> tuple[str, str]:
    """The error and its fix, from the stderr of a command with ``--json``: the promised object, else the
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
    replace_file(path, lambda file: file.write(json.dumps(fields).encode()))


def is_time(value: Any) -> bool:
    """Seconds since the epoch that a clock may have shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11  # the year 5138


def is_figure(value: Any) -> bool:
    """A number that can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and not name.startswith("0")


_JOB: Mapping[str, Callable[[Any], bool]] = {
    "arguments": lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
    "directory": _is_text,
    "created": is_time,
}
_STATE: Mapping[str, Callable[[Any], bool]] = {
    "pid": lambda value: _is_count(value, 2, 2**31 - 1),  # 0 and negative numbers name groups of processes
    "signature": _is_text,
    "started": is_time,
    "ended": is_time,
    "code": lambda value: _is_count(value, -255, 255),
}


def _fields(path: Path, kinds: Mapping[str, Callable[[Any], bool]]) -> tuple[dict[str, Any], str]:
    """The fields of a JSON object that are as they must be, and what is wrong with the file; nothing where there is
    none."""
    try:
        found = json.loads(_bytes(path))
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError):
        return {}, f"{path.name} cannot be read"
    if not isinstance(found, dict):
        return {}, f"{path.name} is not a JSON object"
    given = {name: value for name, value in found.items() if name in kinds and value is not None}
    wrong = [name for name, value in given.items() if not kinds[name](value)]
    right = {name: value for name, value in given.items() if name not in wrong}
    return right, f"{path.name} has a wrong {' and '.join(wrong)}" if wrong else ""


def _bytes(path: Path) -> bytes:
    with open_regular(path) as file:
        found = file.read(MOST + 1)
    if len(found) > MOST:
        raise ValueError(f"{path} is too large")
    return found
