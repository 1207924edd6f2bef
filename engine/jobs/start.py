"""Starting, cancelling and resuming jobs.

A job is the command as a user would type it, in a process with its own session: the program that started it may end, be
killed, or lose its terminal. Jobs of one workspace run one at a time. Each job's process waits for those before it, so
the queue needs no manager.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.contract import to_json
from ..base.errors import CurateError, UsageError
from ..base.files import private, private_folder
from ..http import trust
from ..store.numbers import is_number
from ..store.settings import PREFIX, user_config
from . import VARIABLE
from .folder import CANCEL, JOB, LOG, RESULT, Job, find, home, identity, is_own, numbers, own_process, write_object
from .kinds import JobCommand
from .lock import hold
from .standby import Standby

if TYPE_CHECKING:
    from ..store.workspace import Workspace

PROGRAM = (sys.executable, "-P", "-m", f"{__package__.partition('.')[0]}.cli")
"""The command line of this installation."""

_children: list[subprocess.Popen[bytes]] = []


def start(workspace: Workspace, line: JobCommand, directory: Path | None = None, standby: Standby | None = None) -> Job:
    """Queue a command and return at once. It runs in ``directory``, by default the current one, and in the process that
    waits in ``standby``, if one does.

    Raises `UsageError` for a command that cannot be a job, or that would read standard input.
    """
    if "-" in line.checked().words:
        raise UsageError("a job cannot read standard input", "write the input to a file, or omit --background")
    parent = home(workspace)
    private_folder(parent)
    there, after = str(directory or Path.cwd()), _latest_run(workspace)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        with hold(folder) as lock:
            fields = to_json(line) | {"directory": there, "created": time.time()}
            fields["signature"] = trust.sign(identity(workspace.path, line.words, there))
            write_object(folder / JOB, fields)
            folder = _numbered(parent, folder, after)
            _spawn(workspace, folder, line, there, lock.fileno(), standby)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CurateError(f"cannot start a job: {error}", "icl-curate jobs") from error
    except CurateError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return find(workspace, int(folder.name))


def resumable(workspace: Workspace, number: int, *, trusted: bool = False) -> Job:
    """The ended job whose command `resume` would run. Raises `UsageError` if it is still running, or, unless
    ``trusted``, if it has no signature of this user (its folder came from elsewhere or was moved)."""
    job = find(workspace, number)
    if job.live:
        raise UsageError(f"job {number} is {job.state}", f"icl-curate jobs follow {number}")
    if not job.line.words:
        raise UsageError(f"job {number} is {job.error}", job.fix)
    if not trusted and not is_own(job):
        raise UsageError(
            f"job {number} was not started here by you: {job.line}",
            f"run that command yourself, or: icl-curate jobs resume {number} --trust",
        )
    return job


def resume(workspace: Workspace, number: int, *, trusted: bool = False) -> Job:
    """Queue the command of an ended job again; earlier answers come from the call cache. Raises as `resumable`."""
    job = resumable(workspace, number, trusted=trusted)
    return start(workspace, job.line, Path(job.directory))


def cancel(workspace: Workspace, number: int, *, kill: bool = False) -> Job:
    """Ask a job to stop: calls in flight are finished and kept. The second request does not wait for them; ``kill``
    ends its processes at once. In both cases no stored answer is paid for again. Returns without waiting for the end.
    """
    job = find(workspace, number)
    if not job.live:
        raise UsageError(f"job {number} is {job.state} already", "icl-curate jobs")
    if not is_own(job):
        raise UsageError(f"job {number} was not started here by you", "only its owner can cancel it")
    (job.folder / CANCEL).touch()  # read by a process that has not recorded its pid yet
    pid = own_process(job)
    if pid is not None:
        try:
            if kill:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    return find(workspace, number)


def environment(folder: Path) -> dict[str, str]:
    """Environment variables for a command on the workspace in this folder."""
    own = {"ICL_CURATE_WORKSPACE": str(folder.resolve()), "TOKENIZERS_PARALLELISM": "false"}
    if PREFIX + "CONFIG" in os.environ:
        own[PREFIX + "CONFIG"] = str(user_config().absolute())  # it may run in another directory
    return os.environ | own


def _latest_run(workspace: Workspace) -> int:
    """The number of the latest run; 0 if the workspace cannot be read now."""
    from ..store.runs import latest_number  # a job that waits for its turn does not need DuckDB

    with suppress(CurateError):
        return latest_number(workspace)
    return 0


def _numbered(parent: Path, draft: Path, after: int = 0) -> Path:
    """Give a complete and locked folder the next number that no job and no run up to ``after`` has. Raises
    `UsageError` if there is none: a stranger's folder may have the last one."""
    while True:
        latest = max(after, *numbers(parent), 0)
        folder = parent / str(latest + 1)
        if not is_number(folder.name):
            what = f"somebody gave the number {latest} to a job or a run of this workspace, and none comes after it"
            raise UsageError(what, "into a new workspace, index what this writes: icl-curate export POOL.jsonl")
        try:
            return draft.rename(folder)
        except OSError:
            if not folder.exists():  # another job took the number
                raise


def _spawn(
    workspace: Workspace, folder: Path, line: JobCommand, directory: str, lock: int, standby: Standby | None
) -> None:
    _children[:] = [child for child in _children if child.poll() is None]  # no zombies
    words, own = line.adding("--json"), environment(workspace.path) | {VARIABLE: str(folder)}
    with open(folder / RESULT, "wb", opener=private) as out, open(folder / LOG, "wb", opener=private) as err:
        child = standby and standby.take(words, own, out, err, directory, lock)
        child = child or subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=directory,
            env=own,
            pass_fds=(lock,),
            start_new_session=True,
        )
    _children.append(child)
