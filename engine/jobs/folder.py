"""The files of a job, and the state they describe.

Each job has a folder ``<workspace>/jobs/<number>/``:

    job.json       what to run, signed; written once, before the folder gets its number
    lock           held (``flock``) by the job's process while it runs
    state.json     written by the job's process: its pid, signed; start of its turn, end, and outcome
    events.jsonl   progress events, one per line
    result.json    the command's stdout: the object of its ``--json``
    log.txt        the command's stderr
    cancel         present once the job was asked to stop

These files alone determine the state of a job, so any number of programs can read it at once and none has to keep
running. Whether the process is running is determined by its lock, not by pid and start time, which can be ambiguous:
the kernel releases the lock when the holder ends, however it ends, and no other process can be mistaken for it.

A folder may have been copied from elsewhere, with any content. It is displayed, but only what has this user's signature
is run or stopped.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ..base.contract import SPREAD, Reported, to_json
from ..base.errors import UsageError
from ..base.files import open_regular, replace_file
from ..http import trust
from ..store.numbers import JOBS, job_numbers
from .kinds import KINDS, JobCommand
from .lock import alive

if TYPE_CHECKING:  # a job that waits for its turn does not need DuckDB
    from ..store.workspace import Workspace

State = Literal["queued", "running", "done", "failed", "cancelled"]
LIVE: tuple[State, ...] = ("queued", "running")

JOB, STATE, EVENTS, RESULT, LOG, CANCEL = (
    "job.json", "state.json", "events.jsonl", "result.json", "log.txt", "cancel",
)  # fmt: skip
CANCELLED_CODE = 130

MOST = 1 << 26
"""Maximum bytes read from a file; no job writes as much."""


@dataclass(frozen=True, slots=True)
class Job(Reported):
    """The state of a job; times are seconds since the epoch. ``code`` is the exit code of its command, None if it was
    killed; ``error`` and ``fix`` say why it failed; ``behind`` is the job that a queued one waits for."""

    number: int
    folder: Path
    line: JobCommand = field(metadata=SPREAD)
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
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def in_words(self) -> str:
        """``training sources (job 3)``, or that it waits."""
        what = KINDS[self.line.kind].title if self.line.kind in KINDS else " ".join(self.line.name)
        return f"{what} (job {self.number}{'' if self.state == 'running' else ' waits'})"

    def as_json(self) -> dict[str, Any]:
        """One of ``jobs --json``, and ``job`` of what starts or stops one."""
        return to_json(self) | {"folder": str(self.folder), "arguments": list(self.line.words)}


def jobs(workspace: Workspace, ended: Mapping[int, Job] = MappingProxyType({})) -> list[Job]:
    """All jobs of a workspace, latest first. Ended jobs are not read again, because they no longer change."""
    listed: list[Job] = []
    for number in numbers(home(workspace)):
        job = ended.get(number) or read(home(workspace) / str(number))
        if job.state == "queued":
            before = [earlier.number for earlier in listed if earlier.live]
            job = replace(job, behind=before[-1] if before else None)
        listed.append(job)
    return listed[::-1]


def find(workspace: Workspace, number: int) -> Job:
    """The job with this number; `UsageError` if there is none."""
    for job in jobs(workspace):
        if job.number == number:
            return job
    raise UsageError(f"there is no job {number}", "icl-curate jobs")


def doing(jobs: Iterable[Job], kind: str) -> Job | None:
    """The running or waiting job of a kind, or one that does its work, too."""
    kinds = {kind, *(name for name, other in KINDS.items() if kind in other.parts)} if kind else ()
    return next((job for job in jobs if job.live and job.line.kind in kinds), None)


def is_own(job: Job) -> bool:
    """Whether this user started it in this workspace."""
    job_fields, _ = _fields(job.folder / JOB, {"signature": _is_text})
    return trust.is_signed(
        identity(job.folder.parent.parent, job.line.words, job.directory), job_fields.get("signature")
    )


def own_process(job: Job) -> int | None:
    """The process id of a live job; None if it is not recorded yet. Raises `UsageError` if the record is not signed."""
    state_fields, wrong = _fields(job.folder / STATE, _STATE)
    pid = state_fields.get("pid")
    if wrong or (
        pid is not None and not trust.is_signed(["process", str(job.folder), pid], state_fields.get("signature"))
    ):
        raise UsageError(
            f"job {job.number} names a process that is not its own, so nothing is killed",
            "if it is a job, kill it yourself",
        )
    return pid


def identity(workspace: Path, arguments: Sequence[str], directory: str) -> list[object]:
    """The content that the signature of a job covers."""
    return ["job", str(workspace), list(arguments), directory]


def result(job: Job) -> dict[str, Any] | None:
    """What the command of a finished job printed with ``--json``; None before its end."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(_bytes(job.folder / RESULT))
        return found if isinstance(found, dict) else None
    return None


def log(job: Job, limit: int = 65_536) -> str:
    """The last ``limit`` bytes at most of what its process wrote to stderr."""
    with suppress(OSError), open_regular(job.folder / LOG) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        return file.read().decode("utf-8", "replace")
    return ""


def home(workspace: Workspace) -> Path:
    """The folder of a workspace's jobs."""
    return workspace.path / JOBS


def numbers(parent: Path) -> list[int]:
    """The numbers of existing jobs, in the order of their turns."""
    return sorted(job_numbers(parent))


def read(folder: Path) -> Job:
    """The state of the job in a folder."""
    # check the lock first: what an ended process has written is then complete
    lives = alive(folder)
    (job_fields, wrong), (state_fields, odd) = _fields(folder / JOB, _JOB), _fields(folder / STATE, _STATE)
    job = Job(
        number=int(folder.name),
        folder=folder,
        line=_line(job_fields),
        directory=job_fields.get("directory", ""),
        state="queued",
        created=job_fields.get("created", 0.0),
        pid=state_fields.get("pid"),
        started=state_fields.get("started"),
        ended=state_fields.get("ended"),
        code=state_fields.get("code"),
    )
    if job.ended is None and lives:
        return job if job.started is None else replace(job, state="running")
    if wrong or odd or not job.line.words:
        fix = f"rm -r {shlex.quote(str(folder))}"
        return replace(job, state="failed", error=f"damaged: {wrong or odd or 'there is no job.json'}", fix=fix)
    if job.code == 0:
        return replace(job, state="done")
    killed = job.ended is None
    for told in (STATE, EVENTS) if killed else ():
        with suppress(OSError):  # when it last said something
            job = replace(job, ended=(folder / told).stat().st_mtime)
    if job.code == CANCELLED_CODE or (killed and (folder / CANCEL).exists()):
        return replace(job, state="cancelled")
    if killed:
        fix = f"icl-curate jobs resume {job.number}"
        return replace(job, state="failed", error="its process was killed; paid answers are kept", fix=fix)
    error, fix = error_and_fix(log(job))
    return replace(job, state="failed", error=error or f"ended with exit code {job.code}", fix=fix)


def error_and_fix(text: str) -> tuple[str, str]:
    """The error and its fix, from the stderr of a command with ``--json``: the JSON object if there is one, else the
    last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        with suppress(ValueError):
            printed = json.loads(line)
            if isinstance(printed, dict) and "error" in printed:
                return str(printed["error"]), str(printed.get("fix", ""))
    return (lines[-1] if lines else ""), ""


def write_object(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a JSON object atomically."""
    replace_file(path, lambda file: file.write(json.dumps(fields).encode()))


def is_figure(value: Any, least: float = -1e300, most: float = 1e300) -> bool:
    """Whether the value is a number that can be displayed, and in this range."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < most


is_time = partial(is_figure, least=0, most=1e11)
"""Whether a value is a plausible time in seconds since the epoch, before the year 5138."""


def _line(told: Mapping[str, Any]) -> JobCommand:
    """The command in the right fields of a job, without words if one is wrong; those of before had one list of all its
    words."""
    parts = [told[part] for part in ("flags", "command", "options") if part in told]
    if len(parts) < 3:
        return JobCommand.of([] if parts else told.get("arguments", []))
    return JobCommand(told.get("kind", ""), *map(tuple, parts))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_JOB: Mapping[str, Callable[[Any], bool]] = {
    "arguments": lambda value: _are_texts(value) and bool(value),
    "kind": _is_text,
    "flags": lambda value: _are_texts(value) and all(word.startswith("-") for word in value),
    "command": lambda value: _are_texts(value) and bool(value),
    "options": _are_texts,
    "directory": _is_text,
    "created": is_time,
}
_STATE: Mapping[str, Callable[[Any], bool]] = {
    # 0 and negative numbers name groups of processes
    "pid": lambda value: isinstance(value, int) and is_figure(value, 2, 2**31),
    "signature": _is_text,
    "started": is_time,
    "ended": is_time,
    "code": lambda value: isinstance(value, int) and is_figure(value, -255, 256),
}


def _fields(path: Path, kinds: Mapping[str, Callable[[Any], bool]]) -> tuple[dict[str, Any], str]:
    """The valid fields of a JSON object, and what is wrong with the file; nothing if there is no file."""
    try:
        data = json.loads(_bytes(path))
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError):
        return {}, f"{path.name} cannot be read"
    if not isinstance(data, dict):
        return {}, f"{path.name} is not a JSON object"
    given = {name: value for name, value in data.items() if name in kinds and value is not None}
    wrong = [name for name, value in given.items() if not kinds[name](value)]
    right = {name: value for name, value in given.items() if name not in wrong}
    return right, f"{path.name} has a wrong {' and '.join(wrong)}" if wrong else ""


def _bytes(path: Path) -> bytes:
    with open_regular(path) as file:
        found = file.read(MOST + 1)
    if len(found) > MOST:
        raise ValueError(f"{path} is too large")
    return found
