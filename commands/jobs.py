"""`jobs`: background jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError
from ..render.terminal import print_json, say
from .options import DEFAULT_WORKSPACE, JobArgument, JsonOption, WorkspaceOption
from .shared import fail, narrated, open_workspace, tell_all

if TYPE_CHECKING:
    from ..engine.jobs.folder import Job
    from ..engine.store.workspace import Workspace


def jobs(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """List background jobs, latest first. Jobs run one at a time; start one with --background."""
    from ..engine.jobs.folder import jobs as list_jobs

    tell_all("jobs", "jobs", list_jobs(open_workspace(workspace)), as_json)


def jobs_follow(
    number: JobArgument = None, workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False
) -> None:
    """Follow a job until it ends and show its result; exits with its exit code. Ctrl-C leaves it running."""
    from ..engine.jobs import folder
    from ..engine.jobs.follow import follow

    store = open_workspace(workspace)
    job = _job(store, number)
    if job.behind:
        say(f"job {job.number} waits for job {job.behind}", err=True)
    with narrated() as monitor:
        for event in follow(store, job.number, monitor.cancel):
            monitor.report(event)
    job = folder.find(store, job.number)
    if job.live:
        fail(f"job {job.number} is still running", f"to stop it: icl-curate jobs cancel {job.number}", 130)
    if job.state != "done":
        fail(f"job {job.number} {job.state}" + (f": {job.error}" if job.error else ""), job.fix, job.code or 1)
    done = folder.result(job) or {}
    if as_json:
        print_json(done)
        return
    from ..render.jobs import show_result

    show_result(job, done)


def jobs_cancel(
    number: JobArgument = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    kill: Annotated[bool, typer.Option("--kill", help="Kill it at once; calls in flight may be paid again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a job or remove it from the queue. Answers are kept: resume pays only for the rest."""
    from ..engine.jobs.lock import wait_for
    from ..engine.jobs.start import cancel

    store = open_workspace(workspace)
    job = cancel(store, _job(store, number).number, kill=kill)
    wait_for(job.folder)
    show_job(_job(store, job.number), as_json)


def jobs_resume(
    number: JobArgument = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    trust: Annotated[bool, typer.Option("--trust", help="Allow a job that you did not start here.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Queue the command of an ended job again; answers are not paid twice."""
    from ..engine.base.progress import Event
    from ..engine.jobs.start import resumable, resume

    store = open_workspace(workspace)
    job = resumable(store, _job(store, number).number, trusted=trust)
    with narrated() as monitor:
        monitor.report(Event("resume", note=f"in {job.directory}: {job.line}"))
    show_job(resume(store, job.number, trusted=trust), as_json)


def start_job(workspace: Workspace, as_json: bool) -> None:
    """Start the typed command as a job."""
    from ..engine.jobs.kinds import JobCommand
    from ..engine.jobs.start import start

    words = [word for word in sys.argv[1:] if word != "--background"]
    show_job(start(workspace, JobCommand.of(words)), as_json)


def _job(workspace: Workspace, number: int | None) -> Job:
    """The job with this number (default: the latest)."""
    from ..engine.jobs.folder import find
    from ..engine.jobs.folder import jobs as list_jobs

    if number is not None:
        return find(workspace, number)
    for job in list_jobs(workspace):
        return job
    raise UsageError("there are no jobs", "icl-curate evaluate --background")


def show_job(job: Job, as_json: bool) -> None:
    if as_json:
        print_json({"kind": "job", "job": job.as_json()})
        return
    behind = f" behind job {job.behind}" if job.behind else ""
    say(f"job {job.number} {job.state}{behind}: {job.line}")
    if job.live:
        say(f"follow with: icl-curate jobs follow {job.number}")
    elif job.state != "done":
        say(f"resume with: icl-curate jobs resume {job.number}")
