"""Dialogs, and what lies around the tabs: work that ends late, fails once, or is begun twice."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world, make_held_world
from factories.late import Late, failing_once
from factories.reviewing import go, notified, open_walk, session, settled, text_of, until
from icl_curate.engine.base.errors import DiskError, LockedError
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.plan import CurationDryRun
from icl_curate.engine.index.chosen import Wanted
from icl_curate.engine.jobs import follow
from icl_curate.engine.jobs.folder import Job
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.cost import DryRun, Plan
from icl_curate.engine.store import decisions as store_decisions
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui import app as app_module
from icl_curate.tui import walk as walk_module
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import dialog as dialog_module
from icl_curate.tui.dialogs import index_form as form_module
from icl_curate.tui.dialogs import jobs as jobs_module
from icl_curate.tui.dialogs import run as run_module
from icl_curate.tui.dialogs import start as start_module
from icl_curate.tui.dialogs import walk as dialog
from icl_curate.tui.dialogs.dialog import Confirm, Offer, Option, Pick, Write
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.dialogs.index_form import IndexForm
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.run import CommandDialog
from icl_curate.tui.dialogs.start import Start, begin, propose
from icl_curate.tui.jobs import JobsModel, JobView
from icl_curate.tui.session import load, save
from icl_curate.tui.tabs.preview.model import PromptRequest
from textual.pilot import Pilot

pytestmark = pytest.mark.usefixtures("nobody_waits")

PAID = Plan(requests=9, distinct=9, cached=0, to_ask=9, tokens_in=(90, 90), tokens_out=(9, 9), cost=(1.0, 2.0))


def job(number: int, state: str, *words: str) -> Job:
    return Job(number, Path("none"), JobCommand.of(words or ["curate", "--yes"]), "", state, 0.0)  # type: ignore[arg-type]


# The walk through `curate`.


@pytest.fixture
def walked(tmp_path: Path) -> Workspace:
    made = make_gullible_world(tmp_path / "w")
    (made.path / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\nk = 3\n')
    return made


@pytest.fixture
def prices(walked: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], asyncio.Event]]:
    """The commands that were priced, each with what lets its price come."""
    asked: list[tuple[list[str], asyncio.Event]] = []

    async def price(folder: Path, line: JobCommand, *_: object) -> CurationDryRun:
        asked.append(([*line.words], asyncio.Event()))
        await asked[-1][1].wait()
        work = Curation.prepare(LLMClient(walked, Gullible(), SETTINGS), CurationPlan(max_calls=100))
        return CurationDryRun(tuple(work.steps), DryRun(work.cost(), ""))

    monkeypatch.setattr(start_module, "dry_run_command", price)
    return asked


def test_a_price_is_not_shown_for_a_new_run_or_another_budget(walked: Workspace, prices: list[Any]) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: len(prices) == 1)
        await pilot.press("n")
        prices[0][1].set()
        await until(pilot, lambda: walk._pricing is None)
        assert walk.model.anew and walk.model.phase == "budget" and walk.costed is None
        await pilot.press("enter")
        await until(pilot, lambda: len(prices) == 2)
        await pilot.press("b", *"50", "enter")
        await until(pilot, lambda: len(prices) == 3)
        prices[2][1].set()
        await until(pilot, lambda: walk.model.phase == "plan")
        assert "--restart" in prices[2][0] and walk.model.budget == prices[2][0][2]

    session(walked.path, script)


def test_a_step_is_begun_once_though_the_one_before_is_seen_to_have_ended(
    walked: Workspace, prices: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, begun = Late(), list[int]()

    def start(*_: object, **__: object) -> Job:
        begun.append(len(begun) + 2)
        return job(begun[-1], "running")

    monkeypatch.setattr(dialog, "start", late.first(start))
    monkeypatch.setattr(walk_module, "jobs", lambda workspace: [job(1, "done")])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        walk.model.watched = 1
        await pilot.press("enter")
        await until(pilot, lambda: len(prices) == 1)
        prices[0][1].set()
        await until(pilot, lambda: walk.costed)
        await pilot.press("y")
        await late.awaited(pilot)
        looked = walk.model.found
        await until(pilot, lambda: walk.model.found is not looked)
        await pilot.press("y")
        await late.ends(pilot)
        assert begun == [2]

    session(walked.path, script)


def test_rows_that_come_while_help_lies_over_the_walk_are_not_gone_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late()
    monkeypatch.setattr(dialog, "active_rows", late.first(dialog.active_rows))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        await pilot.press("v")
        await late.awaited(pilot)
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help) and app.tab is not None
        before = app.tab.NAME
        await late.ends(pilot)
        await settled(pilot)
        await pilot.press("escape")
        assert app.screen is walk and app.tab is not None and app.tab.NAME == before != "demos"

    session(make_held_world(tmp_path / "w").path, script)


def test_what_could_not_be_read_once_is_not_told_for_good(walked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    held = LockedError("workspace is open in PID 1: python", "wait")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        monkeypatch.setattr(dialog, "read_walk", failing_once(dialog.read_walk, held))
        walk._looking = False
        walk._look()
        await until(pilot, lambda: "PID 1" in text_of(app) or walk._looking)
        before = walk.model.found
        await until(pilot, lambda: walk.model.found is not before)
        await settled(pilot)
        assert "PID 1" not in text_of(app)

    session(walked.path, script)


def test_what_was_answered_is_not_offered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, answer, before = make_held_world(tmp_path / "w").path, Late(), Late()

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        walk = await open_walk(app, pilot)
        monkeypatch.setattr(dialog, "answer", answer.first(dialog.answer))
        read = dialog.read_walk
        monkeypatch.setattr(dialog, "read_walk", before.first(read))
        await before.awaited(pilot)
        await pilot.press("r")
        await answer.awaited(pilot)
        answer.go_on.set()
        await until(pilot, lambda: walk.model.held is None and not walk.model.deciding)
        before.go_on.set()
        taken, take = list[Any](), walk.model.take
        monkeypatch.setattr(walk.model, "take", lambda found: taken.append(found.state) or take(found))
        await until(pilot, lambda: len(taken) > 1)
        assert not any(state is not None and state.held for state in taken)

    session(folder, script)


def test_the_state_is_as_the_job_that_has_ended_left_it(walked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def ends(workspace: Workspace) -> list[Job]:
        left.append("its state")
        return [job(1, "done")]

    monkeypatch.setattr(walk_module, "jobs", ends)
    monkeypatch.setattr(walk_module, "kept", lambda workspace: left.append("read") or None)
    walk_module.read_walk(walked, SETTINGS, None, 1)
    assert left == ["its state", "read"]


# The form of the index.


def test_enter_that_waits_for_files_opens_nothing_over_another_dialog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.jsonl").write_text('{"input": "a", "output": "b", "c": "d"}\n' * 9)
    late, taken = Late(), list[Any]()

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        form = IndexForm()
        app.push_screen(form, taken.append)
        await settled(pilot)
        monkeypatch.setattr(Wanted, "look", late.first(Wanted.look))
        form._change("pool.jsonl", "output", "c")
        await late.awaited(pilot)
        await pilot.press("enter", "i")
        assert isinstance(app.screen, Pick) or form._wanted
        if not isinstance(app.screen, Pick):
            app.push_screen(Help([], ()))
        over = app.screen
        await late.ends(pilot)
        assert app.screen is over
        await pilot.press("escape")
        assert app.screen is form

    session(tmp_path / "w", script)


# The dialog that proposes a command.


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def price(*_: object) -> DryRun:
        return DryRun(PAID, "")

    monkeypatch.setattr(start_module, "dry_run_command", price)


async def proposed(app: ReviewApp, pilot: Pilot[None], *commands: str) -> Start:
    assert app.tab is not None
    propose(app.tab, commands)
    await until(pilot, lambda: isinstance(app.screen, Start))
    assert isinstance(app.screen, Start)
    return app.screen


@pytest.mark.parametrize("what", ["files", "look"])
def test_a_form_whose_files_could_not_be_read_is_not_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "what is it", "answer": "a cat"}\n')
    monkeypatch.chdir(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        if what == "files":
            monkeypatch.setattr(form_module, "files_here", failing_once(form_module.files_here, RuntimeError("odd")))
        else:
            app.draft["a.jsonl"] = {"use": "pool", "input": "question"}
            monkeypatch.setattr(Wanted, "look", failing_once(Wanted.look, RuntimeError("odd")))
        app.push_screen(IndexForm())
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        form = app.screen
        assert isinstance(form, IndexForm) and "reading …" not in text_of(app)
        assert not form._wanted and not form.files.unseen()

    session(tmp_path / "w", script)


@pytest.mark.usefixtures("priced")
def test_a_letter_before_another_command_does_not_take_its_price(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        start = await proposed(app, pilot, "evaluate -m zero", "evaluate -m bm25")
        await until(pilot, lambda: start.costed)
        start.field.value += " -k 2"  # its change is told after the next key
        start.action_other(1)
        await settled(pilot)
        assert start.costed == "evaluate -m bm25"

    session(untaught, script)


@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_for_a_list_below_help_waits_until_help_is_left(
    untaught: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def read() -> Offer:
        if fails:
            raise DiskError("a damaged disk")
        return Offer(text="one line\nand another")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        late, given = Late(), list[Any]()
        picked, gate = Pick("Correct", more=read), late.first(lambda: None)
        picked._more = lambda: (gate(), read())[1]
        app.push_screen(picked, given.append)
        await late.awaited(pilot)
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await late.ends(pilot)
        assert isinstance(app.screen, Help)
        await pilot.press("escape")
        await settled(pilot)
        if not fails:
            assert isinstance(app.screen, Write)
            await pilot.press("N", "ctrl+s")
            await settled(pilot)
        assert len(app.screen_stack) == 1 and given == ([None] if fails else ["None line\nand another"])

    session(untaught, script)


def test_a_price_for_which_there_is_no_room_on_the_disk_is_not_being_made(
    untaught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(start_module, "TemporaryDirectory", full)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await proposed(app, pilot, "evaluate -m zero")
        await settled(pilot)
        assert "No space left" in text_of(app) and "pricing" not in text_of(app)

    session(untaught, script)


def test_the_list_of_jobs_does_not_take_keys_from_a_dialog_opened_meanwhile(
    untaught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late()
    monkeypatch.setattr(start_module, "start", late.first(lambda *_, **__: job(7, "queued")))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert app.tab is not None
        begin(app.tab, JobCommand.of(["evaluate"]))
        await late.awaited(pilot)
        await pilot.press("colon", "c")
        finder = app.screen
        await late.ends(pilot)
        assert isinstance(finder, Pick) and app.screen is finder and "job 7 is started" in notified(app)

    session(untaught, script)


def test_a_command_that_cannot_be_run_is_not_running(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_module, "TemporaryFile", full)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        run = CommandDialog(app.folder)
        app.push_screen(run)
        await pilot.press(*"status", "enter")
        await settled(pilot)
        assert "No space left" in text_of(app)
        assert not [timer for timer in run._timers if timer._interval == 1.0]

    session(untaught, script)


# The finder, and questions.


def test_rows_for_fewer_letters_do_not_answer_enter(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, taken = Late(), list[Any]()
    monkeypatch.setattr(dialog_module, "PAUSE", 0.001)

    def rows(typed: str) -> Offer:
        return Offer([Option(f"row {typed}")] if typed == "abcd" else [])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        picker = Pick("find", beyond=late.first(rows))
        app.push_screen(picker, taken.append)
        await pilot.press("a", "b", "c")
        await late.awaited(pilot)
        picker._look_beyond_soon = lambda: None  # the pause after the letter
        await pilot.press("d", "enter")
        await late.ends(pilot)
        picker._look_beyond()
        await settled(pilot)
        assert taken == ["row abcd"]

    session(untaught, script)


def test_a_price_is_not_asked_about_over_another_dialog(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (untaught / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\nk = 3\n')
    late = Late()
    monkeypatch.setattr(PromptRequest, "cost", late.first(lambda *_: PAID))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "preview")
        await pilot.press("a")
        await late.awaited(pilot)
        await pilot.press("colon")
        finder = app.screen
        await late.ends(pilot)
        assert app.screen is finder and "not asked" in notified(app)
        await pilot.press("escape", "a")
        await settled(pilot)
        assert isinstance(app.screen, Confirm)

    session(untaught, script)


# Jobs.


def view(number: int, state: str) -> JobView:
    return JobView(job(number, state, "evaluate"), follow.JobProgress(), "", "")


def test_a_read_that_fails_once_leaves_the_cursor_on_its_job(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobsModel, "read", lambda self, opened: [view(2, "queued"), view(1, "running")])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        jobs = await go(app, pilot, "jobs")
        jobs.select(1)
        await settled(pilot)
        assert jobs.model.selected == 1
        read = JobsModel.read
        monkeypatch.setattr(JobsModel, "read", failing_once(read, DiskError("a damaged disk")))
        jobs.reload()
        await settled(pilot)
        assert jobs.model.current is None or "damaged" not in text_of(app)
        jobs.reload()
        await settled(pilot)
        assert jobs.model.selected == 1 and jobs.table.cursor == 1

    session(untaught, script)


def test_a_job_is_resumed_once(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, resumed = Late(), list[int]()
    monkeypatch.setattr(JobsModel, "read", lambda self, opened: [view(1, "cancelled")])

    def resume(workspace: Workspace, number: int) -> Job:
        resumed.append(number)
        return job(2, "queued", "evaluate")

    monkeypatch.setattr(jobs_module, "resume", late.first(resume))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "jobs")
        assert isinstance(app.screen, Jobs)
        await pilot.press("r")
        await late.awaited(pilot)
        await pilot.press("r")
        await late.ends(pilot)
        assert resumed == [1]
        await pilot.press("r")
        await settled(pilot)
        assert resumed == [1, 1]

    session(untaught, script)


def test_live_jobs_are_looked_at_by_two_threads_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs" / "1").mkdir(parents=True)
    monkeypatch.setattr(follow, "read_job", lambda folder: replace(job(1, "running"), folder=folder))
    looks, tasks = follow.LiveJobs(tmp_path), iter(["index", "embed", "check", "more", "last"])

    class Told(SimpleNamespace):
        @property
        def total(self) -> int:
            """While one thread adds up, another one looks, too."""
            if not self.seen:
                self.seen.append(True)
                other = threading.Thread(target=looks.look)
                other.start()
                other.join()
            return 9

    seen: list[bool] = []

    def events(folder: Path, offset: int = 0) -> tuple[list[follow.RecordedEvent], int]:
        told = Told(task=next(tasks), done=1, note="", fields={}, seen=[True] if offset else seen)
        return [follow.RecordedEvent(1.0, told)], offset + 1  # type: ignore[arg-type]

    monkeypatch.setattr(follow, "recorded_events", events)
    assert [live.number for live in looks.look()] == [1] and seen


# Decisions, and what is remembered.


def test_keys_wait_for_the_question_of_a_decision_behind_another(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, decide = Late(), Late(), store_decisions.decide

    def slowly(workspace: Workspace, verb: Any, scope: Any, *given: Any, **more: Any) -> Any:
        (second if scope == "source" else first).first(lambda: None)()
        return decide(workspace, verb, scope, *given, **more)

    monkeypatch.setattr(store_decisions, "decide", slowly)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "demos")
        app.decide("prune", "demonstration", ["noisy-1"])
        await first.awaited(pilot)
        app._release_keys()  # as after some seconds
        app.decide("prune", "source", ["clean"])
        first.go_on.set()
        await second.awaited(pilot)
        assert app.deciding
        await pilot.press("n")
        second.go_on.set()
        await until(pilot, lambda: not app.undecided)
        assert not app.deciding and app.tab is not None and app.tab.NAME == "demos"
        assert [made.scope for made in store_decisions.history(Workspace.open(taught))] == ["demonstration"]

    session(taught, script)


def test_of_two_sessions_each_leaves_what_the_other_has_changed(untaught: Path) -> None:
    draft = {"a.csv": {"use": "pool", "input": "body"}}

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.save()
        other = json.loads((untaught / "review.json").read_text())
        other["tabs"]["sources"]["sort"] = "reliability"
        (untaught / "review.json").write_text(json.dumps({**other, "draft": draft}))
        await go(app, pilot, "demos")
        await pilot.press("s")
        await pilot.press("q")

    session(untaught, script)
    kept = load(untaught)
    assert (kept.tab, kept.draft, kept.tabs["sources"]["sort"]) == ("demos", draft, "reliability")
    save(untaught, replace(kept, draft={}), kept)
    assert load(untaught) == replace(kept, draft={})


def test_what_could_not_be_saved_once_is_saved_later(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "save", failing_once(save, OSError(28, "No space left on device")))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.recent = ["found last"]
        app.save()
        app.save()
        assert load(untaught).recent == ["found last"]

    session(untaught, script)
