"""The walk through `curate` by keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world, make_held_world
from factories.jobs_world import leave_nothing_running
from factories.reviewing import is_safe, lines_of, open_walk, session, settled, text_of, until
from icl_curate.cli import app as command_line
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.plan import CurationDryRun
from icl_curate.engine.curate.state import keep, kept
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.cost import DryRun
from icl_curate.engine.store.decisions import history
from icl_curate.engine.store.outputs import relabelled
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import start as dialog
from icl_curate.tui.dialogs.dialog import Pick
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.dialogs.walk import CurateWalk
from textual.pilot import Pilot
from typer.main import get_command


def test_corrections_that_wait_are_shown_and_made(tmp_path: Path) -> None:
    workspace = make_held_world(tmp_path / "w")
    state = kept(workspace)
    assert state is not None and state.pending is not None
    state.pending = replace(state.pending, sources=(), rows=("p-1",), outputs={"p-3": "yes", "p-5": "yes"})
    keep(workspace, state)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        shown = text_of(app)
        assert "relabelled: 2 rows: p-3 → yes, p-5 → yes" in shown and "active: 120 → 119" in shown
        await pilot.press("v")
        await until(pilot, lambda: app.tab is not None and app.tab.NAME == "demos")
        await settled(pilot)
        assert "would be changed" in text_of(app) and "3 rows" in text_of(app)
        walk = await open_walk(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: walk.model.held is None and not walk.model.deciding)
        assert {each.id: each.output for each in relabelled(workspace)} == {"p-3": "yes", "p-5": "yes"}

    session(workspace.path, script, size=(120, 40))


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
def test_what_waits_is_looked_at_and_decided(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = make_held_world(tmp_path / "w")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        shown = text_of(app)
        assert "active: 120 → 60" in shown and "sources gone: bad" in shown and is_safe(shown)
        assert all(key in shown for key in ("a Accept", "r Reject", "v Rows")) and "b Budget" not in shown
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help) and "Carry out what waits" in text_of(app)
        await pilot.press("escape", "v")
        await until(pilot, lambda: app.tab is not None and app.tab.NAME == "demos")
        await settled(pilot)
        assert "would be pruned" in text_of(app) and "60 rows" in text_of(app)
        walk = await open_walk(app, pilot)
        await pilot.press("a" if size[0] > 100 else "r")
        await until(pilot, lambda: walk.model.held is None and not walk.model.deciding)
        await settled(pilot)
        assert [entry.targets for entry in history(workspace)] == ([("bad",)] if size[0] > 100 else [])
        assert "left at most" in text_of(app) and "Go on" in text_of(app)
        await pilot.press("q")
        assert not isinstance(app.screen, CurateWalk)

    session(workspace.path, script, size)


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
def test_which_answers_are_right_is_typed_with_the_options_of_the_command_line(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    workspace = make_gullible_world(tmp_path / "w")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = get_command(command_line)
        walk = await open_walk(app, pilot)
        await pilot.press("m")
        await until(pilot, lambda: app.focused is walk.grading)
        await pilot.press(*"--met")
        await pilot.press("tab")
        await until(pilot, lambda: walk.grading.value == "--metric")
        await pilot.press(*" json-f")
        await pilot.press("tab")
        await settled(pilot)
        if isinstance(app.screen, Pick):
            await pilot.press(*"f1", "enter")
        await until(pilot, lambda: walk.model.grading == "--metric json-f1")
        assert walk.model.words()[3:5] == ["--metric", "json-f1"]
        await pilot.press(*" --encoder")
        await settled(pilot)
        await pilot.press("tab")
        await settled(pilot)
        assert "no match" in lines_of(app)[-1], "only the options that say which answers are right"

    session(workspace.path, script, size)


def test_the_plan_is_priced_and_its_first_step_is_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    asked: list[list[str]] = []

    async def price(folder: Path, line: JobCommand, *_: object) -> CurationDryRun:
        """In this process: another one takes seconds to start."""
        asked.append([*line.words])
        client = LLMClient(workspace, Gullible(), SETTINGS)
        work = Curation.prepare(client, CurationPlan(max_calls=100))
        return CurationDryRun(tuple(work.steps), DryRun(work.cost(), ""))

    monkeypatch.setattr(dialog, "dry_run_command", price)
    (workspace.path / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\nk = 3\n')

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        await pilot.press("b", *"100x", "enter")
        await until(pilot, lambda: "'100x' is no budget" in text_of(app))
        await pilot.press("b", *"100", "enter")
        await until(pilot, lambda: walk.model.phase == "plan")
        await pilot.pause()
        assert "about 100" in text_of(app) and "tokens in" in text_of(app) and kept(workspace) is None
        await until(pilot, lambda: walk.costed)
        await pilot.press("s", "s")
        await until(pilot, lambda: walk.model.state is not None and walk.model.phase == "plan")
        await pilot.pause()
        assert asked == [["curate", "--max-calls", "100", "--next", "--hold", "--yes"]]
        assert walk.model.steps()[0].sign == "done" and "no row repeats a query" in text_of(app)
        assert history(workspace) == []

    try:
        session(workspace.path, script, (80, 24))
    finally:
        leave_nothing_running(workspace)
