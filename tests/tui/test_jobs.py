"""The list of jobs: started with the cost shown first, watched, cancelled, killed, resumed, found again."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories.commands import run_command
from factories.jobs_world import QUERIES, asked, evaluation, leave_nothing_running, make_pool
from factories.reviewing import HOSTILE as TEXTS
from factories.reviewing import is_safe, lines_of, notified, session, settled, text_of, until
from factories.servers import Server
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import Event
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.jobs import folder as folders
from icl_curate.engine.jobs import start as starting
from icl_curate.engine.jobs.child import Recorder
from icl_curate.engine.jobs.folder import find
from icl_curate.engine.jobs.kinds import JobCommand, read
from icl_curate.engine.jobs.lock import hold
from icl_curate.engine.llm.cost import DryRun, Plan
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.jobs import dry_run_rows
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.completion import completed
from icl_curate.tui.dialogs import start as dialogs
from icl_curate.tui.dialogs.jobs import COMMANDS, Jobs
from icl_curate.tui.dialogs.start import Start, propose
from icl_curate.tui.jobs import JobsModel
from icl_curate.tui.tabs.evaluate.tab import EvaluateTab
from icl_curate.tui.widgets.reader import LogView
from icl_curate.tui.widgets.table import LineTable
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Sparkline, Static

pytestmark = pytest.mark.usefixtures("nobody_waits")

HOSTILE = " ".join(text for text in TEXTS if len(text) < 100 and "\n" not in text)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = make_pool(tmp_path)
    yield made
    leave_nothing_running(made)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(delay=0.05) as found:
        yield found


def static(app: ReviewApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


def listed(app: ReviewApp) -> Jobs:
    """The list of jobs, which is open."""
    return next(screen for screen in app.screen_stack if isinstance(screen, Jobs))


def state(app: ReviewApp, number: int) -> str:
    opened = (screen for screen in app.screen_stack if isinstance(screen, Jobs))
    jobs = (seen.job for screen in opened for seen in screen.model.seen)
    return next((job.state for job in jobs if job.number == number), "")


def test_a_job_is_started_once_its_cost_is_known(workspace: Workspace, server: Server) -> None:
    wanted = " ".join(evaluation(server, methods="zero,bm25"))
    told = run_command(*wanted.split(), "-w", workspace.path, "--dry-run", "--json").json

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        await until(pilot, lambda: "no jobs yet" in text_of(app) and listed(app).table.has_focus)
        assert not app.screen.query_one("#job").visible, "no curves of nothing"
        await pilot.press("n")
        dialog = app.screen
        assert isinstance(dialog, Start)
        await until(
            pilot, lambda: "needs validation queries" in static(app, "#cost")
        )  # no validation queries to train on
        await pilot.press("y")
        assert app.screen is dialog  # what failed cannot be started
        dialog.query_one(Input).value = "prune --source s"
        await pilot.press("enter")
        await until(pilot, lambda: "'prune' cannot run in the background" in static(app, "#cost"))
        dialog.query_one(Input).value = "icl-curate " + wanted
        await until(pilot, lambda: "edited" in static(app, "#cost"))
        await pilot.press("enter")
        await until(pilot, lambda: dialog.costed)
        assert dialog.plan == DryRun.from_json(told)
        assert not asked(server)
        assert not folders.jobs(workspace)
        await pilot.press("y")
        await until(pilot, lambda: state(app, 1) == "done")
        await until(pilot, lambda: "best of 2" in text_of(app))
        assert not notified(app), "the tab shows it, and elsewhere the badge"
        assert len(asked(server)) == told["to_ask"]
        await pilot.press("enter")  # from a finished evaluation to its table
        await until(pilot, lambda: app.query_one(EvaluateTab).model.rows)
        assert app.tab is not None
        assert app.tab.NAME == "evaluate"
        assert {name for name, _ in app.query_one(EvaluateTab).model.rows} == {"zero", "bm25"}

    session(workspace.path, script)


def test_a_key_from_before_the_cost_starts_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    known, proposed = asyncio.Event(), "evaluate -m zero"
    begun: list[list[str]] = []

    async def price(folder: Path, line: JobCommand, *_: object) -> DryRun:
        await known.wait()
        return DryRun(
            Plan(requests=9, distinct=9, cached=0, to_ask=9, tokens_in=(90, 90), tokens_out=(9, 9), cost=(1.0, 2.0)), ""
        )

    def begin(workspace: Workspace, line: JobCommand, **_: object) -> folders.Job:
        begun.append([*line.words])
        raise UsageError("begun here only", "")

    monkeypatch.setattr(dialogs, "dry_run_command", price)
    monkeypatch.setattr(dialogs, "start", begin)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        propose(app.tab, [proposed])
        await until(pilot, lambda: isinstance(app.screen, Start))
        early = [events.Key(key, "y" if key == "y" else None) for key in ("enter", "y", "y")]
        known.set()
        dialog: Any = app.screen
        await until(pilot, lambda: dialog.costed == proposed)
        for key in early:
            app.post_message(key)
        await pilot.press("enter", "enter")  # shows a cost, and starts nothing however often it is pressed
        await settled(pilot)
        assert app.screen is dialog and begun == []
        await pilot.press("y")
        await until(pilot, lambda: begun)
        assert begun == [proposed.split()]

    session(workspace.path, script)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that were started, each with a price that comes at once."""
    commands: list[str] = []

    async def price(folder: Path, line: JobCommand, *_: object) -> DryRun:
        plan = Plan(requests=9, distinct=9, cached=0, to_ask=9, tokens_in=(90, 90), tokens_out=(9, 9), cost=(1.0, 2.0))
        return DryRun(plan, "stub at http://127.0.0.1:8000/v1")

    def begin(workspace: Workspace, line: JobCommand, **_: object) -> folders.Job:
        commands.append(shlex.join(line.words))
        raise UsageError("begun here only", "")

    monkeypatch.setattr(dialogs, "dry_run_command", price)
    monkeypatch.setattr(dialogs, "start", begin)
    return commands


def test_what_was_edited_is_there_again_until_it_is_started(workspace: Workspace, begun: list[str]) -> None:
    proposed = ["evaluate -m zero", "train sources"]

    async def opened(app: ReviewApp, pilot: Pilot[None], commands: list[str]) -> str:
        assert app.tab is not None
        propose(app.tab, commands)
        await until(pilot, lambda: isinstance(app.screen, Start) and app.screen.costed)
        return app.screen.query_one(Input).value

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert await opened(app, pilot, proposed) == proposed[0]
        await pilot.press(*" -k 2", "escape")
        assert await opened(app, pilot, ["evaluate -m dense"]) == "evaluate -m dense", "other ones are as proposed"
        await pilot.press("escape")
        assert await opened(app, pilot, proposed) == "evaluate -m zero -k 2"
        await pilot.press("y")
        await until(pilot, lambda: begun)
        assert begun == ["evaluate -m zero -k 2"]
        assert await opened(app, pilot, proposed) == proposed[0]

    session(workspace.path, script)


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40)])
def test_names_of_the_commands_that_are_proposed_do_not_break(
    workspace: Workspace, begun: list[str], size: tuple[int, int]
) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        propose(app.tab, COMMANDS)
        await until(pilot, lambda: isinstance(app.screen, Start) and app.screen.costed)
        named = [line for line in lines_of(app) if "train all" in line or "calibrate" in line]
        assert "train datamodel" in text_of(app) and len(named) == 2 and "--" not in "".join(named)
        assert "prompts go to" in text_of(app) and "y start   e edit" in text_of(app)

    session(workspace.path, script, size)


def test_below_a_dialog_the_list_stands_still(
    workspace: Workspace, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bool] = []
    monkeypatch.setattr("icl_curate.tui.dialogs.jobs.LOOK", 0.01)
    monkeypatch.setattr(JobsModel, "read", lambda self, opened: reads.append(True) or [])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        ticks: list[bool] = []
        await pilot.press("J")
        await until(pilot, lambda: len(reads) > 1)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, Start) and app.screen.costed)
        before = len(reads)
        app.screen.set_interval(0.01, lambda: ticks.append(True))
        await until(pilot, lambda: len(ticks) > 9)
        assert len(reads) == before
        await pilot.press("escape")
        await until(pilot, lambda: len(reads) > before)

    session(workspace.path, script)


def test_only_the_price_has_the_key_that_starts(workspace: Workspace, begun: list[str]) -> None:
    """In the field it is a letter; what is typed over the price edits the command, and the price goes."""

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        propose(app.tab, ["evaluate -m zero"])
        await until(pilot, lambda: isinstance(app.screen, Start))
        dialog: Any = app.screen
        await until(pilot, lambda: dialog.costed)
        assert dialog.focused.id == "cost" and "y start   e edit   esc back" in text_of(app)
        await pilot.press("enter")
        assert "y starts it" in lines_of(app)[-1]
        await pilot.press(*" -k 2 -m dry")
        assert dialog.query_one(Input).value == "evaluate -m zero -k 2 -m dry" and dialog.costed is None
        assert "y start" not in text_of(app) and "enter show the price" in text_of(app)
        await pilot.press(*["backspace"] * 7, "enter")
        await until(pilot, lambda: dialog.costed == "evaluate -m zero -k 2")
        await pilot.press("e", "y")
        assert dialog.query_one(Input).value.endswith("-k 2y")
        await pilot.press("backspace", "enter")
        await until(pilot, lambda: dialog.costed == "evaluate -m zero -k 2" and "y start" in text_of(app))
        assert begun == []
        await pilot.press("y")
        await until(pilot, lambda: begun)
        assert begun == ["evaluate -m zero -k 2"]

    session(workspace.path, script, (80, 24))


@pytest.mark.parametrize("command", ["train all", "index", "export out.csv"])
def test_every_kind_of_work_has_a_dry_run(workspace: Workspace, command: str, tmp_path: Path) -> None:
    (tmp_path / "validation.jsonl").write_text((tmp_path / "test.jsonl").read_text().replace("query", "asked"))
    encoder = "all-MiniLM-L6-v2" if command == "train all" else None
    index_pool(workspace, IndexPlan(validation=(str(tmp_path / "validation.jsonl"),), encoder=encoder))
    told = run_command(*command.split(), "-w", workspace.path, "--dry-run", "--json").json
    wanted = [value for _, value in dry_run_rows(read(told))]

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        propose(app.tab, [command])
        await until(pilot, lambda: isinstance(app.screen, Start) and app.screen.costed == command)
        shown = text_of(app)
        assert wanted
        assert all(value in shown for value in wanted)

    session(workspace.path, script)
    assert not folders.jobs(workspace)


def test_file_names_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    for name in ("deep/a.txt", "deep/b.csv", "apple.md", "two words.jsonl", ".hidden"):
        (tmp_path / name).touch()

    def lines(typed: str) -> list[str]:
        return [one.line for one in completed(None, typed)]

    assert lines("index ") == ["index 'two words.jsonl'", "index apple.md", "index deep/"]
    assert lines("index d") == ["index deep/"]
    assert lines("index deep/")[0] == "index deep/b.csv"  # what can be indexed goes first
    assert lines("index deep/a") == ["index deep/a.txt"]
    assert lines(f"index {tmp_path}/de") == [f"index {tmp_path}/deep/"]
    assert lines("index .h") == ["index .hidden"]
    assert lines("index two") == lines("index 'two w") == lines("index WORDS") == ["index 'two words.jsonl'"]
    assert lines("index deep/CS") == ["index deep/b.csv"] and lines("index appmd") == ["index apple.md"]
    assert [lines(t) for t in ("index none/", "index ~nobody-at-all/x", "index zzz")] == [[]] * 3


def test_cancel_and_resume_by_keys(workspace: Workspace, server: Server) -> None:
    server.delay = 0.2

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        starting.start(workspace, JobCommand.of(evaluation(server)))
        await pilot.press("J")
        await until(pilot, lambda: len(asked(server)) >= 6)
        await until(pilot, lambda: state(app, 1) == "running")
        await pilot.press("c")
        await until(pilot, lambda: state(app, 1) == "cancelled")
        assert len(asked(server)) < QUERIES
        assert all(call.answered for call in server.asked("query"))
        await pilot.press("c")
        await pilot.pause()
        assert "select a running or waiting job first" in notified(app)
        await pilot.press("e")
        assert app.screen.query_one(Input).value == " ".join(evaluation(server))
        await pilot.press("escape")
        server.delay = 0.0
        await pilot.press("r")
        await until(pilot, lambda: state(app, 2) == "done" and listed(app).model.selected == 2)
        assert Counter(asked(server)).most_common(1)[0][1] == 1

    session(workspace.path, script)


def test_a_job_just_started_is_shown_also_when_the_cursor_moves_before_it_is_read(
    workspace: Workspace, server: Server
) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        starting.start(workspace, JobCommand.of(evaluation(server)))
        await pilot.press("J")
        tab = listed(app)
        await until(pilot, lambda: tab.model.selected == 1)
        starting.start(workspace, JobCommand.of(evaluation(server, 2)))
        tab.select(2)
        tab.table.post_message(LineTable.Moved(tab.table, 0))  # as of a list that was filled just before
        await until(pilot, lambda: len(tab.model.seen) == 2 and tab.model.selected == 2)
        await pilot.pause()
        assert tab.model.seen[tab.table.cursor].job.number == 2

    session(workspace.path, script)


def test_a_killed_job_is_told_and_the_queue_goes_on(workspace: Workspace, server: Server) -> None:
    server.delay = 3.0  # neither job ends by itself before the screen has seen it run

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        for k in (1, 2):
            starting.start(workspace, JobCommand.of(evaluation(server, k)))
        await pilot.press("J")
        await until(pilot, lambda: asked(server))
        await until(pilot, lambda: (state(app, 1), state(app, 2)) == ("running", "queued"))
        assert "after job 1" in text_of(app)
        pid = find(workspace, 1).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(pilot, lambda: state(app, 1) == "failed")
        await until(pilot, lambda: state(app, 2) == "running")
        await pilot.press("k")
        await pilot.press("K")
        await pilot.press("n")  # no, do not kill it
        await pilot.pause()
        assert find(workspace, 2).live
        listed(app).select(2)
        await until(pilot, lambda: listed(app).model.selected == 2)
        await pilot.press("K")
        await pilot.press("y")
        await until(pilot, lambda: state(app, 2) == "cancelled")

    session(workspace.path, script)


def test_a_job_goes_on_while_the_app_is_closed(workspace: Workspace, server: Server) -> None:
    server.delay = 0.2

    async def begin(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        starting.start(workspace, JobCommand.of(evaluation(server)))
        await until(pilot, lambda: state(app, 1) == "running")
        await pilot.press("q", "q")

    async def again(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        await until(pilot, lambda: state(app, 1) == "done")  # it may be, before the app has begun

    session(workspace.path, begin)
    before = find(workspace, 1)
    assert before.live
    session(workspace.path, again)
    assert find(workspace, 1).pid == before.pid
    assert len(asked(server)) == QUERIES


@pytest.mark.parametrize("size", [(200, 60), (80, 24), (40, 12)])
def test_a_training_run_on_every_terminal_and_with_hostile_text(workspace: Workspace, size: tuple[int, int]) -> None:
    path = folders.home(workspace) / "1"
    path.mkdir(parents=True)
    told = {"arguments": ["train", "ranker", "--llm", HOSTILE], "directory": "/", "created": 1.0}
    (path / folders.JOB).write_text(json.dumps(told))
    (path / folders.STATE).write_text(json.dumps({"pid": 1 << 22, "started": 2.0}))
    (path / folders.LOG).write_text("x" * 1_000_000 + f"\na warning {HOSTILE}\n")
    lock = hold(path)
    losses = [1 / (i + 1) for i in range(30)]
    with Recorder(path) as report:
        for i, loss in enumerate(losses):
            fields = {"loss": loss, "sigma": 0.1 * i, "shots": 300.0 - i, "accuracy": 0.5}
            report(Event("train", i + 1, 60, HOSTILE if i == 3 else "", fields))
            report(Event("ask", i, 30, fields={"calls": 10.0 * i, "tokens_in": 1e6, "tokens_out": 5.0, "cost": 1.25}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        await until(pilot, lambda: state(app, 1) == "running")
        await pilot.pause()
        text = text_of(app)
        assert is_safe(text)
        assert "50%" in text
        assert "train 30 of 60" in text or size[0] < 80
        assert app.screen.query_one("#curve-loss Sparkline", Sparkline).data == losses
        log = app.screen.query_one(LogView)
        if size[1] >= 24:
            assert "$1.2500" in text
            assert not [line for line in lines_of(app) if "loss" in line and "…" in line], "no figure is cut"
            assert any("a warning" in line.plain for line in log.shown)
            await pilot.press("l", "g")
            assert app.focused is log
        lock.close()  # its process is gone without a word
        await until(pilot, lambda: state(app, 1) == "failed")
        await pilot.pause()
        assert is_safe(text_of(app))

    session(workspace.path, script, size)


def test_a_job_from_elsewhere_is_not_resumed_by_a_key(workspace: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    for number, arguments in enumerate((["export", str(out), "--force"], 3), 1):
        path = folders.home(workspace) / str(number)
        path.mkdir(parents=True)
        (path / folders.JOB).write_text(json.dumps({"arguments": arguments, "directory": "/", "created": 1.0}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        await until(pilot, lambda: state(app, 1) == "failed")
        assert "damaged" in text_of(app)
        listed(app).select(1)
        await until(pilot, lambda: "job 1" in static(app, "#what"))
        await pilot.press("r")
        await until(pilot, lambda: "not started here by you" in notified(app))
        assert len(folders.jobs(workspace)) == 2
        assert out.read_text() == "precious"

    session(workspace.path, script)


def test_how_a_failed_job_is_mended_is_shown_whole(workspace: Workspace) -> None:
    path = folders.home(workspace) / "1"
    path.mkdir(parents=True)
    command = ["evaluate", "-m", ",".join(["zero"] * 30)]
    (path / folders.JOB).write_text(json.dumps({"arguments": command, "directory": "/", "created": 1.0}))
    (path / folders.STATE).write_text(json.dumps({"started": 1.0, "ended": 2.0, "code": 3}))
    (path / folders.LOG).write_text(json.dumps({"error": "refused " * 45, "fix": "mend " * 60 + "and go on"}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J")
        await until(pilot, lambda: "mend and go on" in " ".join(text_of(app).split()))
        assert "refused refused" in text_of(app)

    session(workspace.path, script, (100, 30))
