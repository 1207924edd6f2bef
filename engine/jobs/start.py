"""Starting, cancelling and resuming jobs.

A job is the very command a user would type, in a process of its own session: the program that started it may end,
be killed, or lose its terminal. Jobs of one workspace take turns; a job's process waits for those before it, so the
queue needs nobody to keep it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CurateError, UsageError
from . import VARIABLE
from .folder import CANCEL, JOB, LOG, RESULT, Job, find, home, numbers, read
from .lock import hold

if TYPE_CHECKING:
    from ..store.workspace import Workspace

PROGRAM = (sys.executable, "-P", "-m", f"{__package__.partition('.')[0]}.cli")
"""The command line of this installation."""

_children: list[subprocess.Popen[bytes]] = []


def start(workspace: Workspace, arguments: Sequence[str], directory: Path | None = None) -> Job:
    """Queue a command (``["train", "ranker", …]``) and return at once. It runs in ``directory``, else in this one.

    Raises `UsageError` for a command that would read standard input.
    """
    if "-" in arguments:
        raise UsageError("a job has no standard input", "write the text to a file, or leave out --background")
    parent = home(workspace)
    parent.mkdir(exist_ok=True)
    there = str(directory or Path.cwd())
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        with hold(folder) as lock:
            told = {"arguments": list(arguments), "directory": there, "created": time.time()}
            (folder / JOB).write_text(json.dumps(told), encoding="utf-8")
            folder = _numbered(parent, folder)
            _spawn(workspace, folder, arguments, there, lock.fileno())
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CurateError(f"cannot start a job: {error}", "icl-curate jobs") from error
    except UsageError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return find(workspace, int(folder.name))


def resume(workspace: Workspace, number: int) -> Job:
    """Queue the command of an ended job again; what was answered comes from the call cache."""
    job = find(workspace, number)
    if job.live:
        raise UsageError(f"job {number} is {job.state}", f"icl-curate jobs follow {number}")
    return start(workspace, job.arguments, Path(job.directory))


def cancel(workspace: Workspace, number: int, *, kill: bool = False) -> Job:
    """Ask a job to stop: calls in flight are finished and kept. Asked twice it does not wait for them; ``kill`` ends
    its processes at once. Either way nothing that was answered is paid again. Returns without waiting for the end."""
    job = find(workspace, number)
    if not job.live:
        raise UsageError(f"job {number} is {job.state} already", "icl-curate jobs")
    (job.folder / CANCEL).touch()  # seen by a process too young to have told its pid
    pid = read(job.folder).pid
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
    """Variables for a command on the workspace in a folder."""
    return os.environ | {"ICL_CURATE_WORKSPACE": str(folder.resolve()), "TOKENIZERS_PARALLELISM": "false"}


def _numbered(parent: Path, draft: Path) -> Path:
    """Give a folder, whole and locked, the next number."""
    while True:
        folder = parent / str(max(numbers(parent), default=0) + 1)
        try:
            return draft.rename(folder)
        except OSError:
            if not folder.exists():  # another job took the number
                raise


def _spawn(workspace: Workspace, folder: Path, arguments: Sequence[str], directory: str, lock: int) -> None:
    _children[:] = [child for child in _children if child.poll() is None]  # no zombies
    wanted = [] if "--json" in arguments else ["--json"]
    with (folder / RESULT).open("wb") as out, (folder / LOG).open("wb") as err:
        child = subprocess.Popen(
            [*PROGRAM, *arguments, *wanted],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=directory,
            env=environment(workspace.path) | {VARIABLE: str(folder)},
            pass_fds=(lock,),
            start_new_session=True,
        )
    _children.append(child)
