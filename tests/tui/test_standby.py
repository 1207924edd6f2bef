"""The process that waits for the screen's next command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from subprocess import Popen

import pytest
from factories.jobs_world import make_pool
from factories.patience import PATIENCE
from factories.reviewing import session, until
from icl_curate.engine.jobs import standby
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.jobs.standby import Standby
from icl_curate.engine.jobs.start import PROGRAM, environment
from icl_curate.engine.llm.cost import DryRun
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.start import dry_run_command
from textual.pilot import Pilot


def test_it_follows_a_command_but_no_job_and_ends_with_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Popen[bytes]] = []

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        async def stood_by() -> bool:
            app.stand_by()
            await until(pilot, lambda: all(worker.is_finished for worker in app.workers if worker.group == "standby"))
            return app.standby._waiting is not None

        assert not await stood_by()
        app.standby.used = True
        with monkeypatch.context() as beside:
            beside.setattr(ReviewApp, "job_runs", True)
            assert not await stood_by()
        assert await stood_by() and app.standby._waiting is not None
        found.append(app.standby._waiting[0])

    session(make_pool(tmp_path).path, script, (80, 24))
    assert found[0].poll() is not None


def test_a_dry_run_is_carried_out_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "ANSWER", PATIENCE)
    folder = make_pool(tmp_path).path
    waiting = Standby(PROGRAM, lambda: environment(folder))
    waiting.prepare()
    assert waiting._waiting is not None
    process, line = waiting._waiting[0], JobCommand.of(["evaluate", "-m", "zero", "--llm", "openai:stub"])
    try:
        plan = asyncio.run(dry_run_command(folder, line, None, waiting))
    finally:
        waiting.close()
    assert isinstance(plan, DryRun) and process.poll() == 0
