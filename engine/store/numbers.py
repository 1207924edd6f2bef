"""One number for one thing: a job and the run that it records share theirs, so both count on together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

JOBS = "jobs"
"""The folder of a workspace with a folder for each job, named by its number."""

JOB = "ICL_CURATE_JOB"
"""An environment variable of a job's process: the job's folder."""


def next_run(workspace: Path, latest: int) -> int:
    """The number of a new run after ``latest``: that of the job in which it is recorded, unless an earlier run of the
    job or a later one took it; else one that no job has."""
    job = _own_job(workspace)
    return job if job > latest else max(latest, *job_numbers(workspace / JOBS), 0) + 1


def job_numbers(folder: Path) -> Iterator[int]:
    """The numbers of existing jobs, in no order."""
    try:
        yield from (int(path.name) for path in folder.iterdir() if is_number(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return


def _own_job(workspace: Path) -> int:
    """The number of the job that this process is; 0 if it is none of this workspace."""
    folder = Path(os.environ.get(JOB, ""))
    return int(folder.name) if is_number(folder.name) and folder.resolve().parent == workspace / JOBS else 0


def is_number(name: str) -> bool:
    """Whether it can be a job's; a number of a stranger's that is too large would leave none for later runs."""
    return name.isascii() and name.isdecimal() and not name.startswith("0") and len(name) <= 15
