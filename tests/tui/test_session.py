"""A whole curation session by keys alone: from an empty folder to an exported corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.commands import SAMPLE
from factories.reviewing import go, session, settled, text_of, until
from icl_curate.engine.store.decisions import history
from icl_curate.engine.store.overview import Overview, overview
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.index_form import IndexForm
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.dialogs.walk import CurateWalk
from textual.pilot import Pilot
from textual.widgets import Input

SUPPORT = SAMPLE / "support"
SOURCES = ("helpdesk_team", "archive_2019", "community_forum")
"""A clean one, one with labels out of date, one off topic: what pruning gains is far beyond noise on any processor."""

EACH, QUERIES = 60, 100


def lay_out(folder: Path) -> None:
    """The first rows of a few sources, and queries."""
    (folder / "pool").mkdir()
    for name, count in (*((f"pool/{source}", EACH) for source in SOURCES), ("validation", QUERIES), ("test", 20)):
        lines = (SUPPORT / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / f"{name}.jsonl").write_text("".join(lines[:count]), encoding="utf-8")


async def typed(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*text)


async def started(app: ReviewApp, pilot: Pilot[None], number: int) -> None:
    """The command that stands in the dialog: see what it would do, start it, wait for its end."""
    dialog = app.screen
    assert isinstance(dialog, Start)
    await until(pilot, lambda: dialog._asking is not None and dialog._asking.is_finished)
    if dialog.costed != dialog.query_one(Input).value:
        await pilot.press("enter")
        await until(pilot, lambda: dialog.costed == dialog.query_one(Input).value, "the cost")
    await pilot.press("y")
    await until(pilot, lambda: isinstance(app.screen, Jobs), "the list of jobs")
    jobs: Any = app.screen
    states = {"queued", "running", ""}
    await until(
        pilot,
        lambda: next((seen.job.state for seen in jobs.model.seen if seen.job.number == number), "") not in states,
        f"the end of job {number}",
    )
    assert jobs.model.current is not None
    assert (jobs.model.current.job.number, jobs.model.current.job.state) == (number, "done"), (
        jobs.model.current.job.error
    )


def test_from_index_to_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    whole = len(SOURCES) * EACH
    folder, out = tmp_path / "w", tmp_path / "curated.jsonl"

    def now() -> Overview:
        return overview(Workspace.open(folder))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        # an empty folder says what is missing, and stays as it is
        assert app.tab is not None
        assert all(name in text_of(app) for name in ("pool/*.jsonl", "validation.jsonl", "test.jsonl"))
        await go(app, pilot, "sources")
        assert "icl-curate index POOL.jsonl" in text_of(app)
        assert not folder.exists()

        # index
        await go(app, pilot, "overview")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IndexForm))
        await settled(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Start))
        await started(app, pilot, 1)
        assert (now().pool, now().validation, now().test) == (whole, QUERIES, 20)

        # evaluate, the next step
        await go(app, pilot, "overview")
        await until(pilot, lambda: app.tab is not None and "evaluate" in getattr(app.tab, "step", ""))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Start))
        await typed(pilot, " -m zero,dense")
        await started(app, pilot, 2)
        assert now().evaluations == 1

        # the next step is the whole plan; here only to learn which sources help
        await go(app, pilot, "overview")
        await until(pilot, lambda: app.tab is not None and "curate --" in getattr(app.tab, "step", ""))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, CurateWalk))
        await pilot.press("escape")
        await go(app, pilot, "sources")
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, Start))
        await typed(pilot, " -b 20")
        await started(app, pilot, 3)

        # prune what is advised; take it back; do it again
        await go(app, pilot, "overview")
        await until(pilot, lambda: app.tab is not None and "tune" in getattr(app.tab, "step", ""))
        await pilot.press("enter")
        tab: Any = app.tab
        await until(pilot, lambda: tab.NAME == "sources" and tab.model.measured and tab.model.measured.tuned)
        tuned = tab.model.measured.tuned
        assert tuned.worth_it
        await pilot.press("T")
        await prune_below(app, pilot)
        active = whole - sum(s.demonstrations for s in tab.model.sources if s.source in tuned.pruned)
        await until(pilot, lambda: now().active == active)
        await settled(pilot)
        await pilot.press("u")
        await until(pilot, lambda: now().active == whole)
        await settled(pilot)
        await prune_below(app, pilot)
        await until(pilot, lambda: now().active == active)

        # one demonstration more, found by its text
        demos: Any = await go(app, pilot, "demos")
        await pilot.press("slash")
        await typed(pilot, "refund")
        await until(pilot, lambda: demos.model.found.asked.filter.search == "refund" and demos.model.seen)
        await pilot.press("enter", "v")  # active ones only
        await until(pilot, lambda: demos.model.found.asked.filter.pruned is False)
        await settled(pilot)
        gone = demos.model.seen.demonstration.id
        await pilot.press("x")
        await until(pilot, lambda: now().active == active - 1)

        # what a query gets now
        preview: Any = await go(app, pilot, "preview")
        await pilot.press("slash")
        await typed(pilot, "where is my money")
        await pilot.press("enter")
        await until(
            pilot,
            lambda: (
                preview.model.sides[0].chosen
                and preview.model.query.input == "where is my money"
                and not preview.model.selecting
            ),
        )
        assert not {shot.source for shot in preview.model.sides[0].chosen.shots} & set(tuned.pruned)

        # export
        await go(app, pilot, "export")
        await pilot.press("enter")
        await started(app, pilot, 4)
        assert "wrote curated.jsonl" in " ".join(text_of(app).split())
        written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert len(written) == active - 1
        assert gone not in {row["id"] for row in written}
        assert not {row["source"] for row in written} & set(tuned.pruned)

        # a file that stands there is not written over
        await go(app, pilot, "export")
        await pilot.press("enter")
        await until(pilot, lambda: "curated.jsonl exists" in text_of(app))
        await pilot.press("enter", "y")
        assert isinstance(app.screen, Start)
        await pilot.press("escape")

    session(folder, script)
    told = [(e.action, e.scope, e.undone) for e in reversed(history(Workspace.open(folder)))]
    assert told == [
        ("prune", "source", True),
        ("undo", "batch", False),
        ("prune", "source", False),
        ("prune", "demonstration", False),
    ]


async def prune_below(app: ReviewApp, pilot: Pilot[None]) -> None:
    await pilot.press("p")
    await until(pilot, lambda: isinstance(app.screen, Confirm))
    await pilot.press("y")
    await until(pilot, lambda: not isinstance(app.screen, Confirm))
