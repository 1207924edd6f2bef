"""Sources: what the served prompts measured, beside the vote; the race as a job, and the user's decision on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.copies import indexed, lines
from factories.jobs_world import leave_nothing_running
from factories.reviewing import ODD, SOURCES, go, lines_of, notified, session, settled, text_of, until
from factories.servers import Server
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.curate.results import (
    KIND,
    CandidateResult,
    Confirmation,
    Difference,
    ServingSettings,
    TuneReport,
)
from icl_curate.engine.curate.stored import prune_proposed, stored_tuning
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.store import runs
from icl_curate.engine.store.browse import pruned_rows
from icl_curate.engine.store.decisions import Revision, decide, history, relabel
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.curate import tuning_verdict as verdict_lines
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.widgets.plots import Forest
from textual.widgets import Input, Static

pytestmark = pytest.mark.usefixtures("nobody_waits")

CANDIDATES = (
    CandidateResult("keep everything", "the baseline", (), 0, 20, 0.5, None, None, False),
    CandidateResult("worst 2 sources", "", ("noisy", ODD), 34, 10, 0.4, Difference(-0.1, -0.3, 0.1), 10, False),
    CandidateResult(
        "noisy and suspects", "", ("noisy",), 26, 20, 0.7, Difference(0.2, 0.05, 0.35), None, True,
    ),
    CandidateResult("rows with hurts > 0.9", "", (), 3, 0, None, None, None, False),
)  # fmt: skip
REPORT = TuneReport(
    run=None,
    llm="openai:stub",
    usage=Usage(40, 0, 0, 400, 40),
    served=ServingSettings("bm25", 3, "best-last"),
    estimator="reliability",
    proposed="noisy and suspects",
    pruned=("noisy",),
    pruned_rows=("clean-1", "odd-2"),
    kept=("clean", ODD),
    validation_before=0.5,
    validation_after=0.7,
    gain=0.15,
    gain_error=0.05,
    worth_it=True,
    confirmed=Confirmation(0.5, 0.65, 0.15, 0.052, 0.248, 40, 20, 24),
    candidates=CANDIDATES,
    stopped="",
    known=(),
    instead=(),
)


def verdict(app: ReviewApp) -> str:
    """What the tab says about the served prompts."""
    return str(app.query_one("#served-verdict", Static).render())


def store(workspace: Workspace, report: TuneReport) -> int:
    """A finished race."""
    run = runs.start(workspace, KIND, report.llm, {})
    runs.finish(workspace, run, "done", replace(report, run=run).as_json())
    return run


def not_told_apart() -> TuneReport:
    """The race in which another candidate has more right answers than the chosen one."""
    more = replace(CANDIDATES[1], queries=20, accuracy=0.75, dropped_after=None, agreement=-21.6)
    return replace(REPORT, candidates=(CANDIDATES[0], more, replace(CANDIDATES[2], agreement=11.5), CANDIDATES[3]))


@pytest.fixture
def made(taught: Path) -> Iterator[Workspace]:
    workspace = Workspace.open(taught)
    yield workspace
    leave_nothing_running(workspace)


def test_the_interval_of_an_accuracy_is_that_of_wilson() -> None:
    low, high = CANDIDATES[2].interval or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.4810, 0.8545), abs=1e-4)  # scipy: binomtest(14, 20).proportion_ci
    assert CANDIDATES[3].interval is None


def test_the_latest_race_with_answers_counts_and_what_it_prunes_is_left_until_it_is_decided(made: Workspace) -> None:
    assert stored_tuning(made) is None
    with pytest.raises(UsageError, match="no pruning was measured"):
        prune_proposed(made)
    run = store(made, REPORT)
    store(made, replace(REPORT, confirmed=None, worth_it=False))  # a budget of nothing
    runs.finish(made, runs.start(made, KIND, "x", {}), "done", {"of": "an older version"})
    runs.finish(made, runs.start(made, KIND, "x", {}), "interrupted", {})
    found = stored_tuning(made)
    assert found is not None and found.report.run == run
    assert (found.is_open, found.left, found.decisions) == (True, Revision(("noisy",), ("clean-1", "odd-2")), 0)
    decide(made, "prune", "demonstration", ["odd-2"])
    found = stored_tuning(made)
    assert found is not None and (found.left.rows, found.decisions) == (("clean-1",), 1)
    assert prune_proposed(made, dry_run=True).active_after == prune_proposed(made).active_after
    assert history(made)[0].reason.startswith(f"run {run}: noisy and suspects")
    with pytest.raises(UsageError, match="is pruned already"):
        prune_proposed(made)
    run = store(made, replace(REPORT, worth_it=False, pruned=(), pruned_rows=()))
    with pytest.raises(UsageError, match=f"run {run} confirmed no pruning"):
        prune_proposed(made)


def test_what_a_race_relabels_is_left_until_it_is_so(made: Workspace) -> None:
    with made.read() as con:
        one, other = (
            con.execute("SELECT id, output FROM active WHERE source = ? ORDER BY row LIMIT 1", [source]).fetchone()
            for source in ("clean", "noisy")
        )
    assert one and other
    changed = {one[0]: f"not {one[1]}", other[0]: other[1]}
    store(made, replace(REPORT, pruned=(), pruned_rows=(), relabelled=changed))
    found = stored_tuning(made)
    assert found is not None and found.left == Revision((), (), {one[0]: f"not {one[1]}"}), "the other is so already"
    relabel(made, {one[0]: f"not {one[1]}"}, new=True)
    found = stored_tuning(made)
    assert found is not None and not found.is_open


def test_why_the_most_accurate_candidate_is_not_the_best_is_said(made: Workspace) -> None:
    assert REPORT.more_accurate is None, "the one with .4 was dropped, and the chosen one has .7"
    report = not_told_apart()
    assert (
        "worst 2 sources has 0.750, which these queries do not tell apart from noisy and suspects; the evidence on "
        "rows agrees more with the latter (+12 against -22: rows that hurt, less those that do not)"
    ) in verdict_lines(report)
    nothing = replace(report, candidates=(replace(CANDIDATES[0], chosen=True), report.candidates[1]))
    assert "the evidence on rows speaks against it (-22 rows that hurt)" in "\n".join(verdict_lines(nothing))
    store(made, report)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        assert "not told apart from worst 2 sources (0.750); evidence on rows decided" in verdict(app)

    session(made.path, script)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_candidates_are_shown_with_intervals_and_the_confirmed_one_is_one_decision(
    made: Workspace, size: tuple[int, int]
) -> None:
    run = store(made, REPORT)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        told, shown = verdict(app), text_of(app)
        assert told.startswith("Served prompts: gain beyond noise, a prunes it")
        assert f"k-shot, bm25, k = 3, openai:stub; 20 of 24 queries, run {run}" in told
        assert "best noisy and suspects accuracy 0.700 (95 %: 0.481–0.855), prunes 26 rows" in told
        assert "expected gain +0.150 (95 %: +0.052 to +0.248)" in told
        assert "Served prompts" in shown and "a prunes" in shown
        drawn = [span.name for span in tab.query_one(Forest).spans]
        assert drawn == ["keep everything", "noisy and suspects", "worst 2 sources"]
        assert all(name in shown for name in drawn)
        assert ("Vote of single answers" in shown) == (size[0] >= 100)
        await pilot.press("v")
        await settled(pilot)
        assert "Vote of single answers" in text_of(app) and ("Served" in text_of(app)) == (size[0] >= 100)
        assert ("there is room for both" in notified(app)) == (size[0] >= 100)
        await pilot.press("v", "a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"active: {sum(SOURCES.values())} → {sum(SOURCES.values()) - 26}" in text_of(app)
        await pilot.press("n")
        await settled(pilot)
        assert not history(made)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: ": pruned" in text_of(app))
        assert "since then" not in text_of(app)
        await pilot.press("a")
        await until(pilot, lambda: "no confirmed pruning is left" in notified(app))
        (entry,) = history(made)
        assert set(entry.targets) == {"noisy", "clean-1", "odd-2"}
        assert entry.reason.startswith(f"run {run}: noisy and suspects")
        await pilot.press("u")
        await until(pilot, lambda: "a prunes" in text_of(app))

    session(made.path, script, size)
    assert not len(pruned_rows(made))


def test_an_unconfirmed_race_on_another_pool_says_both(made: Workspace) -> None:
    store(made, replace(REPORT, llm="offline", worth_it=False, pruned=(), pruned_rows=(), stopped="the budget ended"))
    decide(made, "prune", "demonstration", ["odd-2"])

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        for said in ("not beyond noise", "not an LLM", "the budget ended", "since then changed: 1 decision"):
            assert said in verdict(app)
        assert "since then changed" in text_of(app)
        await pilot.press("a")
        await until(pilot, lambda: "no confirmed pruning is left" in notified(app))

    session(made.path, script, (150, 40))

    async def small(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        told = " ".join(text_of(app).split())
        for said in ("not beyond noise, nothing to prune", "not an LLM", "the budget ended", "since then changed"):
            assert said in told

    session(made.path, small, (60, 20))


@pytest.mark.parametrize("size", [(100, 30), (160, 45)])
def test_before_anything_is_learnt_both_parts_say_how(tmp_path: Path, size: tuple[int, int]) -> None:
    pool = [{"input": f"{word} {n}", "output": "ab"[n % 2], "source": f"s{n % 2}"} for n, word in enumerate("xyzw")]
    made = indexed(tmp_path / "w", pool=lines(pool))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        said = " ".join(line.rpartition("│")[2].strip() for line in lines_of(app))
        assert "t shows what it costs" in said and (size[0] < 160 or "w shows what that costs" in said), text_of(app)

    session(made.path, script, size)


def test_the_race_is_a_job_whose_cost_is_shown_first(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        assert "not measured yet: t shows what it costs" in verdict(app) and "not measured yet" in text_of(app)
        await pilot.press("t")
        dialog: Any = app.screen
        assert isinstance(dialog, Start) and dialog.query_one(Input).value == "tune --propose"
        await until(pilot, lambda: dialog.costed)
        assert "to ask" in text_of(app) and not server.asked("query")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, Jobs))  # runs 1 and 2 were made without a job
        jobs: Any = app.screen
        await until(pilot, lambda: jobs.model.current and jobs.model.current.job.state == "done")
        assert jobs.model.current.job.number == 3
        await pilot.press("enter")  # from the finished job to what it measured
        await until(pilot, lambda: app.screen is not jobs and app.tab is not None and app.tab.NAME == "sources")
        await until(pilot, lambda: "bm25, k = 2, openai:stub" in verdict(app))

    with Server() as server:
        settings = {"METHOD": "bm25", "K": "2", "LLM": "openai:stub", "BASE_URL": server.url}
        for name, value in settings.items():
            monkeypatch.setenv(f"ICL_CURATE_{name}", value)
        session(made.path, script)
    assert stored_tuning(made) is not None and not history(made)
