"""What tests of jobs share: a pool without an encoder, a command that asks about it, and an end to all jobs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.jobs import folder as folders
from icl_curate.engine.jobs.folder import Job
from icl_curate.engine.jobs.lock import wait_for
from icl_curate.engine.store.workspace import Workspace

from factories.copies import copied
from factories.patience import PATIENCE
from factories.servers import Server

QUERIES = 24
CONCURRENCY = 4


def make_pool(folder: Path) -> Workspace:
    """Twelve demonstrations and `QUERIES` test queries, each with a word of its own."""
    return Workspace.open(copied(folder / "w", "jobs", _index))


def _index(folder: Path) -> None:
    pool, test = folder.parent / "pool.jsonl", folder.parent / "test.jsonl"
    pool.write_text("".join(json.dumps({"input": f"shot {i} tells", "output": f"o{i % 3}"}) + "\n" for i in range(12)))
    rows = [{"input": f"query{i} tells what", "output": f"o{i % 3}"} for i in range(QUERIES)]
    test.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index_pool(Workspace.create(folder), IndexPlan(paths=(str(pool),), test=(str(test),), encoder=None))


def evaluation(server: Server, k: int = 1, methods: str = "zero") -> list[str]:
    """Arguments of a job that asks one prompt a query, or two with ``methods`` bm25."""
    return [
        "evaluate", "-m", methods, "-k", str(k), "--llm", "openai:stub", "--base-url", server.url,
        "-j", str(CONCURRENCY), "--answers", "generate",
    ]  # fmt: skip


def asked(server: Server) -> list[str]:
    """The prompts that came, probes left out."""
    return [call.text for call in server.asked("query")]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(workspace: Workspace, number: int) -> Job:
    wait_for(folders.find(workspace, number).folder)
    return folders.find(workspace, number)


def leave_nothing_running(workspace: Workspace) -> None:
    """Kill what a test left behind."""
    for path in folders.home(workspace).glob("[0-9]*"):
        job = folders.read(path)
        if job.live and job.pid:
            with suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGKILL)
                wait_for(path)
