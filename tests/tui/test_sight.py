"""Keys act on what is seen, never on what is hidden or still to come; and nothing false is said meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.patience import PATIENCE
from factories.reviewing import SOURCES, go, lines_of, notified, numbers, session, settled, text_of, until
from factories.topics_world import LOST, learnt_world
from icl_curate.engine.base.errors import CurateError
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.jobs.lock import hold
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import start
from icl_curate.tui.dialogs.dialog import Offer, Option, Pick
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.live_jobs import STARTED, own_process
from icl_curate.tui.tabs.demos import model as demos_model
from icl_curate.tui.tabs.demos import tab as demos_tab
from icl_curate.tui.tabs.preview import model as preview_model
from icl_curate.tui.tabs.sources.tab import SourcesTab
from icl_curate.tui.tabs.topics.model import TopicsData
from textual.widgets import Input


def job(folder: Path, number: int, *arguments: str) -> Path:
    """The folder of a job that waits; it runs for as long as its lock is held."""
    path = folder / "jobs" / str(number)
    path.mkdir(parents=True)
    fields = {"arguments": list(arguments), "directory": str(folder), "created": 1.0}
    (path / "job.json").write_text(json.dumps(fields))
    (path / "state.json").write_text(json.dumps({"pid": os.getpid(), "started": 1.0}))
    return path


class Gate:
    """Holds calls of a function up until it is opened."""

    def __init__(self, call: Any) -> None:
        self.call, self.opened, self.reached = call, threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
        return self.call(*arguments, **more)


# What is not seen.


def test_x_leaves_marked_rows_alone_that_the_filter_hides(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        await pilot.press("space", "space")
        demos.show_only(source="noisy")
        await settled(pilot)
        assert "2 marked, 2 of them not shown" in text_of(app)
        here = demos.model.rows[demos.table.cursor]
        await pilot.press("x")
        await until(pilot, lambda: len(demos.model.known.pruned))
        await settled(pilot)
        assert demos.model.known.pruned.tolist() == [here]
        assert "2 marked rows not shown: left as they are" in notified(app)
        assert demos.model.marks.count == 2
        await pilot.press("j", "space", "x")
        await until(pilot, lambda: len(demos.model.known.pruned) == 2)
        await settled(pilot)
        assert demos.model.marks.count == 2, "only the marks that were seen are gone"
        await go(app, pilot, "overview")
        await pilot.press("u")
        await settled(pilot)
        app.notices.clear()
        await pilot.press("U")
        await settled(pilot)
        assert "did again" in notified(app) and "not shown" not in notified(app), "marks are no matter of this place"
        await go(app, pilot, "demos")
        await pilot.press("c")
        await settled(pilot)
        assert not demos.model.marks.count

    session(taught, script)
    assert [len(entry.targets) for entry in history(Workspace.open(taught)) if entry.action == "prune"] == [1, 1]


# What is still to come.


def test_keys_typed_ahead_wait_for_the_list_that_opens(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(demos_tab.tally)
    monkeypatch.setattr(demos_tab, "tally", gate)

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        await pilot.press("f", "enter", *"xnoisyx")
        await pilot.press("backspace", "home", "delete", "enter")
        assert isinstance(app.screen, Pick) and "reading …" in text_of(app)
        gate.opened.set()
        await settled(pilot)
        assert not isinstance(app.screen, Pick)
        assert demos.model.asked.filter.source == "noisy"
        assert not len(demos.model.known.pruned)
        await pilot.press("f", "enter")
        await settled(pilot)
        await pilot.press("escape")
        await settled(pilot)
        assert demos.model.asked.filter.source == "noisy"

    session(taught, script)
    assert not history(Workspace.open(taught))


def test_the_list_of_queries_takes_its_keys_before_it_is_read(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(preview_model.PreviewData.listed_queries)
    monkeypatch.setattr(preview_model.PreviewData, "listed_queries", lambda *given: gate(*given))

    async def script(app: ReviewApp, pilot: Any) -> None:
        preview = await go(app, pilot, "preview")
        preview.action_pick()
        await pilot.press(*"query 7", "enter")
        assert isinstance(app.screen, Pick)
        gate.opened.set()
        await settled(pilot)
        assert not isinstance(app.screen, Pick)
        assert preview.model.place == 7

    session(taught, script)


def test_a_key_does_not_act_on_the_rows_of_an_earlier_search(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(demos_model.find_rows)
    gate.opened.set()
    monkeypatch.setattr(demos_model, "find_rows", gate)

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        gate.opened.clear()
        await pilot.press("slash", *"noisy", "enter", "x", "space", "a", "r")
        assert "still searching: nothing was done" in notified(app)
        gate.opened.set()
        await settled(pilot)
        assert not demos.model.marks.count and not len(demos.model.known.pruned)
        await go(app, pilot, "sources")
        gate.opened.clear()
        await pilot.press("enter", "x")
        assert "searching …" in text_of(app)
        gate.opened.set()
        await settled(pilot)
        assert app.tab is demos and demos.model.asked.filter.source
        assert not len(demos.model.known.pruned)

    session(taught, script)
    assert not history(Workspace.open(taught))


# What is not so yet.


def test_what_a_job_is_doing_is_said_where_its_result_will_stand(untaught: Path) -> None:
    with hold(job(untaught, 3, "train", "sources")), hold(job(untaught, 4, "evaluate", "-k", "1")):

        async def script(app: ReviewApp, pilot: Any) -> None:
            words = text_of(app)
            assert "training sources (job 3)" in words and "evaluate (job 4)" in words
            await go(app, pilot, "evaluate")
            assert "evaluate (job 4)" in text_of(app) and "Nothing evaluated yet" not in text_of(app)
            await pilot.press("n")
            await settled(pilot)
            assert "wait: evaluate (job 4)" in notified(app)
            await go(app, pilot, "sources")
            assert "training sources (job 3)" in text_of(app) and "not learned yet" not in text_of(app)
            (untaught / "jobs" / "4" / "state.json").write_text(
                json.dumps({"pid": 1 << 20, "started": 1.0, "ended": 2.0, "code": 1})
            )
            await go(app, pilot, "evaluate")
            app.look_again()
            await until(pilot, lambda: "Nothing evaluated yet" in text_of(app))

        session(untaught, script)


def test_lists_under_a_topic_say_nothing_of_it_until_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch, LOST)
    (workspace.path / "config.toml").write_text('encoder = "words"\ndevice = "cpu"\nk = 3\n')
    gate = Gate(TopicsData.look)
    monkeypatch.setattr(TopicsData, "look", lambda *given: gate(*given))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("8")
        await until(pilot, gate.reached.is_set)
        assert "reading …" in text_of(app)
        assert "no validation query needs it" not in text_of(app)
        gate.opened.set()
        await settled(pilot)
        assert "reading …" not in text_of(app)

    session(workspace.path, script)


def test_the_curve_is_said_to_be_measured_until_it_is(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icl_curate.tui.tabs.sources import tab as sources_tab

    gate = Gate(sources_tab.measure)
    monkeypatch.setattr(sources_tab, "measure", gate)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("3")
        await until(pilot, gate.reached.is_set)
        await pilot.pause()
        assert "measuring …" in text_of(app) and "not learned" not in text_of(app)
        gate.opened.set()
        await settled(pilot)
        assert "measuring …" not in text_of(app) and "drops" in text_of(app)

    session(taught, script)


# Who holds the workspace.


def test_a_process_of_ours_is_no_intruder(tmp_path: Path) -> None:
    folder = Workspace.create(tmp_path / "w").path
    me = os.getpid()
    assert own_process(folder, f"PID {me} (icl-curate review)") == "waiting for other work of this session"
    path = job(folder, 7, "train", "sources")
    with hold(path):
        assert own_process(folder, f"PID {me} (icl-curate train sources)") == "waiting for job 7: it is writing"
    assert own_process(folder, "PID 1 (init)") == own_process(folder, "another process") == ""


def test_a_dry_run_is_no_intruder_and_leaves_nothing_behind_when_the_app_ends(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(60)"))
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    async def ended() -> int:
        before = set(STARTED)
        asking = asyncio.create_task(start.dry_run_command(taught, JobCommand.of(["evaluate"])))
        while not (started := STARTED - before):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        [pid] = started
        assert own_process(taught, f"PID {pid} (icl-curate)") == "waiting for a command of this session"
        asking.cancel()  # by the dialog that closes
        for _ in range(5):
            await asyncio.sleep(0)
        asking.cancel()  # by the app that ends
        with pytest.raises(asyncio.CancelledError):
            await asking
        return pid

    pid = asyncio.run(ended())
    gc.collect()
    assert not lost, "the event loop is closed"
    assert own_process(taught, f"PID {pid} (icl-curate)") == ""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_failed_dry_run_says_why(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = """import sys; print('{"error": "no file", "fix": "name one"}', file=sys.stderr); sys.exit(2)"""
    monkeypatch.setattr(start, "PROGRAM", (sys.executable, "-c", told))
    with pytest.raises(CurateError, match="no file"):
        asyncio.run(start.dry_run_command(taught, JobCommand.of(["evaluate"])))


def test_what_a_job_of_ours_writes_is_no_notice(taught: Path) -> None:
    with hold(job(taught, 5, "train", "ranker")):

        async def script(app: ReviewApp, pilot: Any) -> None:
            worker = threading.Thread(target=app.waits, args=(f"PID {os.getpid()} (icl-curate train ranker)", 2.0))
            worker.start()
            worker.join()
            await settled(pilot)
            assert not notified(app), "the badge tells of it"

        session(taught, script)


# Leaving.


def test_ctrl_c_says_how_to_leave_and_a_second_one_leaves(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help)
        await pilot.press("ctrl+c")
        await settled(pilot)
        assert not isinstance(app.screen, Help), "a dialog is left as by escape"
        await go(app, pilot, "demos")
        await pilot.press("slash", *"noisy")
        app.query_one("#search", Input).action_select_all()
        await pilot.press("ctrl+c")
        assert app.clipboard == "noisy" and not notified(app)
        app.query_one("#search", Input).action_end()
        await pilot.press("ctrl+c")
        assert "Ctrl-C again, or q, quits" in notified(app) and not app._exit
        await pilot.press("ctrl+c")
        assert app._exit

    session(taught, script)


# What there is to see.


def test_the_overview_uses_its_room(taught: Path) -> None:
    made = Workspace.open(taught)
    long = "customer-conversations-2021-to-2023-exported-from-the-archive-of-emea"
    with made.write() as con:
        con.execute("UPDATE demonstrations SET source = 'branch-' || row WHERE source = 'noisy'")
        con.execute("UPDATE demonstrations SET source = ? WHERE id = 'noisy-1'", [long])
    decide(made, "prune", "source", [long])

    async def script(app: ReviewApp, pilot: Any) -> None:
        for width, height in ((120, 60), (100, 24), (80, 40)):
            await pilot.resize_terminal(width, height)
            await settled(pilot)
            lines = [line.rstrip() for line in lines_of(app)]
            assert not any(line.split()[-1:] == ["pruned"] and len(line.split()) < 4 for line in lines), lines
        await pilot.resize_terminal(120, 60)
        await settled(pilot)
        shown = [line for line in lines_of(app) if "branch-" in line]
        assert len(shown) == SOURCES["noisy"] - 1 and "more in Sources" not in text_of(app)

    session(taught, script)


def test_a_picker_shows_what_its_notes_say() -> None:
    from textual.app import App

    about = "the nearest by meaning, one of each group of repeats"

    class Stage(App[None]):
        pass

    async def run(size: tuple[int, int]) -> list[str]:
        app = Stage()
        async with app.run_test(size=size) as pilot:
            app.console.push_theme(_theme(app))
            app.push_screen(Pick("Method", Offer([Option("dense", about), Option("bm25", "words in common")])))
            await pilot.pause()
            await pilot.pause()
            return lines_of(app)

    assert any(about in line and "dense" in line for line in asyncio.run(run((120, 30))))
    assert any("the nearest" in line and "dense" in line for line in asyncio.run(run((50, 20))))


def _theme(app: Any) -> Any:
    from icl_curate.tui.themes import named_styles
    from rich.theme import Theme

    return Theme(named_styles(app.theme_variables))


# Words of commands.


def test_what_is_pruned_below_the_curve_is_what_its_help_names() -> None:
    cut = next(action for action in SourcesTab.ACTIONS if action.name == "sources.cut")
    assert cut.cli == "icl-curate prune --source NAME", "--below goes by weight alone, the curve by any estimator"


def test_a_source_that_is_not_there_is_an_error_with_its_fix(taught: Path, run: Run) -> None:
    done = run("demos", "--source", "nosy", "-w", taught)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "error: no source named 'nosy'; did you mean 'noisy'?",
        f"fix: icl-curate sources -w {taught}",
    ]
    assert run("demos", "--source", "noisy", "--search", "nothing like it", "-w", taught).code == 0
    assert run("demos", "--source", "clean", "--after", 10_000, "--json", "-w", taught).json["demonstrations"] == []
    assert run("demos", "--source", "nosuch", "--json", "-w", taught).code == 2


def test_quiet_commands_say_nothing_of_what_they_did(taught: Path, tmp_path: Path, run: Run) -> None:
    pool = tmp_path / "more.jsonl"
    pool.write_text('{"input": "a", "output": "b"}\n')
    assert numbers(Workspace.open(taught))
    for arguments in (
        ["index", pool, "--no-encode", "-w", tmp_path / "new"],
        ["prune", "--source", "noisy", "-w", taught],
        ["undo", "-w", taught],
        ["export", tmp_path / "out.jsonl", "-w", taught],
    ):
        done = run("-q", *arguments)
        assert (done.code, done.out, done.err) == (0, "", ""), arguments
    assert run("-q", "status", "-w", taught).out and run("-q", "index", pool, "--dry-run", "-w", taught).out


def test_status_begins_with_what_it_is_about(taught: Path, run: Run) -> None:
    assert run("status", "-w", taught).out.splitlines()[0].split()[0] == "workspace"


def test_errors_name_the_command_however_it_was_started() -> None:
    for words in (["nosuch"], ["demos", "--nosuch"], ["train", "nosuch"]):
        command = [sys.executable, "-m", "icl_curate.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "fix: icl-curate " in done.stderr and "cli" not in done.stderr.split("fix:")[0]
        assert "-m icl_curate" not in done.stderr
