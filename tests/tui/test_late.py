"""Work in threads that ends after what it was for has changed, or that fails once and then would not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import groups_world
from factories.calibrate_world import workspace_of
from factories.late import Late, failing_once
from factories.reviewing import go, named, notified, session, settled, text_of, until
from factories.suspects_world import SUSPECTS, make_pool
from factories.topics_world import learnt_world
from icl_curate.engine.base.errors import DiskError, LockedError, UsageError
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.runs import QueryOutcome
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui import tab as tab_module
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import history as history_module
from icl_curate.tui.dialogs.dialog import Offer, Option, Pick
from icl_curate.tui.dialogs.history import History
from icl_curate.tui.row_keys import RowTable
from icl_curate.tui.tabs.calibrate.model import RoundsRequest
from icl_curate.tui.tabs.demos.model import DemosModel, Search
from icl_curate.tui.tabs.evaluate import tab as evaluate_tab
from icl_curate.tui.tabs.evaluate.tab import OutcomeDialog, OutcomeOf
from icl_curate.tui.tabs.export.model import ExportModel
from icl_curate.tui.tabs.overview import tab as overview_tab
from icl_curate.tui.tabs.preview import tab as preview_tab
from icl_curate.tui.tabs.preview.model import PromptRequest, SelectionRequest
from icl_curate.tui.tabs.problems import lists as lists_module
from icl_curate.tui.tabs.problems import suspects_list as list_module
from icl_curate.tui.tabs.problems.suspects_list import SuspectsList
from icl_curate.tui.tabs.sources import tab as sources_tab
from icl_curate.tui.tabs.sources.model import measure
from icl_curate.tui.tabs.topics.model import TopicsData
from icl_curate.tui.widgets.field import Field
from icl_curate.tui.widgets.reader import Detail, Reader
from textual.pilot import Pilot
from textual.widgets import Static

pytestmark = pytest.mark.usefixtures("nobody_waits")


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "w").path


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> LockedError:
    """What a thread raises while another process has the workspace; it is tried again at once."""
    monkeypatch.setattr(tab_module, "RETRY", 0.01)
    return LockedError("workspace is open in PID 1: python", "wait")


# Older work below newer results.


def test_the_record_of_a_format_that_was_left_is_not_shown_with_another(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab, late = await go(app, pilot, "export"), Late()
        record = tab.query_one("#record", Reader)
        assert "curated.jsonl" in str(record.content)
        monkeypatch.setattr(ExportModel, "record", late.first(ExportModel.record))
        await pilot.press("j")
        await late.awaited(pilot)
        await pilot.press("k")
        await until(pilot, lambda: "curated.jsonl" in str(record.content))
        await late.ends(pilot)
        assert "curated.jsonl" in str(record.content)

    session(taught, script)


def test_no_suspect_is_shown_in_full_where_none_is_listed(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_module, "at_rest", lambda node, seconds, call: call)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "problems")
        part, late = app.query_one(SuspectsList), Late()
        monkeypatch.setattr(list_module, "read_details", late.first(list_module.read_details))
        await pilot.press("j")
        await late.awaited(pilot)
        part.query_one(Field).value = "zzz"  # at once: a letter alone may be found, whose row is then read
        await until(pilot, lambda: not part.model.shown and part.model.seen is None)
        await late.ends(pilot)
        assert part.model.seen is None and not str(part.query_one(Detail).content)

    session(faulty, script)


def test_a_list_that_was_opened_is_checked_though_it_is_read_again_meanwhile(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, find = [], list_module.find_suspects

    def counted(*arguments: Any) -> Any:
        checks.append(arguments)
        return find(*arguments)

    monkeypatch.setattr(list_module, "find_suspects", counted)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "problems")
        late = Late()
        await pilot.press("x")
        await settled(pilot)
        assert len(checks) == 1
        monkeypatch.setattr(list_module, "pool_state", late.first(list_module.pool_state))
        await pilot.press("w")
        await late.awaited(pilot)
        app.action_reload()
        tab = named(app, "problems")
        await until(pilot, lambda: not any(one.group == "load" and one.node is tab for one in app.workers))
        await late.ends(pilot)
        assert len(checks) == 2

    session(faulty, script)


def test_a_search_does_not_drop_what_a_decision_has_changed(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab, late = await go(app, pilot, "demos"), Late()
        monkeypatch.setattr(DemosModel, "read", late.first(DemosModel.read))
        await pilot.press("x")
        await late.awaited(pilot)
        await pilot.press("s")
        await until(pilot, lambda: tab.model.searched)
        await late.ends(pilot)
        assert len(tab.model.known.pruned) == 1 and tab.model.asked.sort != "row"

    session(taught, script)


def test_no_query_is_shown_for_an_empty_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace_of(tmp_path / "w").path

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "topics")
        await pilot.press("tab")
        await settled(pilot)
        tab, late = named(app, "calibrate"), Late()
        assert tab.model.query is not None
        monkeypatch.setattr(RoundsRequest, "read", late.first(RoundsRequest.read))
        await pilot.press("j")
        await late.awaited(pilot)
        await pilot.press("f", "f")  # none is accepted
        await until(pilot, lambda: tab.model.query is None)
        await late.ends(pilot)
        assert tab.model.query is None

    session(folder, script)


def test_rounds_that_were_read_before_an_answer_do_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace_of(tmp_path / "w").path
    (folder / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\n')

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "topics")
        await pilot.press("tab")
        await settled(pilot)
        app.look_again = lambda: None  # type: ignore[method-assign]  # else it is read again, a second later
        tab, answer, before = named(app, "calibrate"), Late(), Late()
        monkeypatch.setattr(RoundsRequest, "read", before.first(RoundsRequest.read))
        monkeypatch.setattr(RoundsRequest, "ask", answer.first(RoundsRequest.ask))
        tab._look()
        await before.awaited(pilot)
        await pilot.press("s")
        await answer.awaited(pilot)
        answer.go_on.set()
        await until(pilot, lambda: tab.model.stepped.rounds)
        await before.ends(pilot)
        assert len(tab.model.stepped.rounds) == 1

    session(folder, script)


def test_a_vote_measured_before_does_not_take_the_place_of_a_newer_one(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, newer = Late(), measure(Workspace.open(taught), Settings(), sources_tab.Monitor())
    monkeypatch.setattr(sources_tab, "measure", late.first(lambda *_: replace(newer, tuned=None)))
    shown: list[Any] = []

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = named(app, "sources")
        monkeypatch.setattr(tab, "read", lambda workspace: shown.append(found := of(workspace)) or found)
        await pilot.press("3")
        await late.awaited(pilot)
        tab.show(replace(shown[0], measured=newer))
        await late.ends(pilot)
        assert tab.model.measured is newer

    def of(workspace: Workspace) -> Any:
        return replace(sources_tab.read(workspace, Settings()), measured=None)  # type: ignore[type-var]

    session(taught, script)


def test_rows_of_a_decision_are_being_read_until_they_have_come(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("noisy-1", "noisy-2"):
        decide(Workspace.open(taught), "prune", "demonstration", [name])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("H")
        await settled(pilot)
        late = Late()
        await pilot.press("enter")
        await settled(pilot)
        assert "noisy-2" in text_of(app)
        monkeypatch.setattr(history_module, "decided_rows", late.first(history_module.decided_rows))
        await pilot.press("escape", "j", "enter")
        await late.awaited(pilot)
        shown = text_of(app)
        assert "reading …" in shown and "none of its rows" not in shown
        await late.ends(pilot)
        assert "noisy-1" in text_of(app)

    session(taught, script)


def test_a_list_that_was_left_tells_no_fault_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, late = groups_world.make_pool(tmp_path / "w").path, Late()

    def broken(*_: Any) -> Any:
        late.first(lambda: None)()
        raise DiskError("a damaged disk")

    monkeypatch.setattr(lists_module, "skipped_records", broken)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "problems")
        await pilot.press("b")
        await late.awaited(pilot)
        await pilot.press("d")
        await late.ends(pilot)
        assert "damaged" not in text_of(app)
        await pilot.press("b")
        await settled(pilot)
        assert "damaged" in text_of(app)

    session(folder, script)


# Keys before what they are meant for.


def query_shown(tab: Any) -> list[str]:
    return [side.chosen.seen.query.input for side in tab.model.sides if side.chosen and side.chosen.seen]


def bm25(folder: Path) -> Path:
    (folder / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\nk = 3\n')
    (folder / "review.json").write_text(json.dumps({"tabs": {"preview": {"methods": ["bm25", "random"]}}}))
    return folder


def test_what_is_typed_is_asked_about_though_it_is_not_selected_for_yet(
    untaught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[Callable[[], None]] = []
    asked: list[PromptRequest] = []

    def held(node: object, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        pauses.append(call)
        return lambda: None

    monkeypatch.setattr(preview_tab, "later", held)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "preview")
        tab.ask_llm = lambda request, *_: asked.append(request)
        await pilot.press("slash", *"noisy", "enter", "a")
        assert not asked
        await pilot.press("x")
        assert "still selecting" in notified(app)
        pauses[0]()
        await settled(pilot)
        assert query_shown(tab) == ["noisy"] * 2
        assert {one.seen.query.input for request in asked for one in request.chosen if one.seen} == {"noisy"}

    session(bm25(untaught), script)


def test_a_query_that_was_left_is_not_asked_about(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab, late, asked = await go(app, pilot, "preview"), Late(), []
        monkeypatch.setattr(PromptRequest, "cost", late.first(PromptRequest.cost))
        monkeypatch.setattr(PromptRequest, "ask", lambda *arguments: asked.append(arguments))
        await pilot.press("a")
        await late.awaited(pilot)
        await pilot.press("n")
        await until(pilot, lambda: query_shown(tab) == ["query 1"] * 2)
        await late.ends(pilot)
        assert not asked and "not asked: something else" in notified(app)

    session(bm25(untaught), script)


def test_enter_that_waits_for_options_is_not_meant_for_what_is_typed_after_it(untaught: Path) -> None:
    late, taken = Late(), list[Any]()

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        picker = Pick("options", more=late.first(lambda: Offer([Option("ab")])))
        app.push_screen(picker, taken.append)
        await pilot.press("a", "enter", "b")
        await late.ends(pilot)
        assert app.screen is picker and not taken
        await pilot.press("enter")
        assert taken == ["ab"]

    session(untaught, script)


# One part of the screen alone.


def test_a_list_shown_alone_is_checked_and_follows_decisions(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    monkeypatch.setattr(list_module, "find_suspects", late.first(list_module.find_suspects))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        await late.awaited(pilot)
        part = app.query_one(SuspectsList)
        await pilot.press("z")
        await until(pilot, lambda: not part.is_on_screen)
        await late.ends(pilot)
        assert len(part.model.shown) == part.table.count == len(SUSPECTS) and "checking" not in text_of(app)
        await pilot.press("x")
        await settled(pilot)
        assert part.table.count == len(SUSPECTS) - 1
        await pilot.press("u")
        await settled(pilot)
        assert part.table.count == len(SUSPECTS)

    session(faulty, script)


@pytest.mark.parametrize("key", ["enter", "d"])
def test_where_the_keys_act_is_seen(faulty: Path, key: str) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "problems")
        await pilot.press("z", key)
        await settled(pilot)
        assert app.focused is not app.query_one(SuspectsList).table
        assert app.screen.maximized is None and app.focused in app.screen._compositor.visible_widgets

    session(faulty, script)


# Work that fails once.


def test_selections_are_made_once_the_workspace_is_free(
    untaught: Path, monkeypatch: pytest.MonkeyPatch, locked: LockedError
) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "preview")
        monkeypatch.setattr(SelectionRequest, "select", failing_once(SelectionRequest.select, locked))
        await pilot.press("n")
        await settled(pilot)
        assert query_shown(tab) == ["query 1"] * 2 and "trying again" not in text_of(app)

    session(bm25(untaught), script)


def test_the_rows_of_a_topic_are_read_once_the_workspace_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: LockedError
) -> None:
    folder = learnt_world(tmp_path / "w", monkeypatch).path
    (folder / "config.toml").write_text('encoder = "words"\ndevice = "cpu"\nk = 3\n')

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "topics")
        monkeypatch.setattr(TopicsData, "look", failing_once(TopicsData.look, locked))
        await pilot.press("j")
        await settled(pilot)
        assert tab.model.shown.topic == tab.model.topics[1].topic and "trying again" not in text_of(app)

    session(folder, script)


def test_what_could_not_be_read_is_not_being_read(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = DiskError("a damaged disk")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "export")
        monkeypatch.setattr(ExportModel, "record", failing_once(ExportModel.record, damaged))
        await pilot.press("j")
        await settled(pilot)
        assert "reading …" not in text_of(app) and "damaged" in str(app.query_one("#record", Reader).content)

        monkeypatch.setattr(history_module, "history", failing_once(history_module.history, damaged))
        await pilot.press("H")
        await settled(pilot)
        assert isinstance(app.screen, History)
        assert "reading …" not in text_of(app) and app.screen.table.message == "a damaged disk"

        monkeypatch.setattr(evaluate_tab, "listed", failing_once(evaluate_tab.listed, damaged))
        outcome = QueryOutcome(0, "q", "input", "wanted", 1.0, "answer", "", None, [0], None, None)
        app.push_screen(OutcomeDialog(outcome, OutcomeOf(1, "bm25", None)))
        await settled(pilot)
        assert app.screen.query_one(RowTable).message == "a damaged disk"

    session(taught, script)


def test_a_tab_that_could_not_be_read_is_not_being_read(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = named(app, "sources")
        monkeypatch.setattr(tab, "read", failing_once(tab.read, DiskError("a damaged disk")))
        await pilot.press("3")
        await settled(pilot)
        shown = text_of(app)
        assert "a damaged disk" in shown and "reading …" not in shown and "f5 tries again" in shown
        await pilot.press("t")
        assert "f5 tries again" in notified(app)
        await pilot.press("f5")
        await settled(pilot)
        assert tab.current is not None and "damaged" not in text_of(app)

    session(taught, script)


def test_a_check_unasked_that_fails_is_over(untaught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icl_curate.engine.checks import suspects

    def broken(*_: Any) -> Any:
        raise OSError(5, "damaged")

    monkeypatch.setattr(overview_tab, "REST", 0.01)
    monkeypatch.setattr(suspects, "find_suspects", broken)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "overview")
        await until(pilot, lambda: tab._checked is not None)
        await settled(pilot)
        assert tab._check is None

    session(untaught, script)


def test_a_search_that_fails_is_over(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "demos")
        monkeypatch.setattr(Search, "find", failing_once(Search.find, DiskError("a damaged disk")))
        tab.show_only(source="clean")
        await settled(pilot)
        assert "searching …" not in text_of(app) and not tab.query_one("#asked").has_class("-busy")
        assert tab.table.message == "a damaged disk" and not str(tab.query_one(Detail).content)
        await pilot.press("x")
        assert "it could not be read: f5 tries again" in notified(app)
        await pilot.press("f5")
        await settled(pilot)
        assert tab.model.searched and not tab.query_one("#trouble").display

    session(taught, script)


def test_a_vote_that_cannot_be_measured_is_not_being_measured(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = failing_once(sources_tab.measure, UsageError("a table without [/b] figures"))
    monkeypatch.setattr(sources_tab, "measure", broken)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "sources")
        shown = text_of(app)
        assert "measuring" not in shown and "a table without [/b] figures" in shown
        await pilot.press("f5")
        await settled(pilot)
        assert "a table without" not in str(app.query_one("#verdict", Static).content)

    session(taught, script)


def test_a_fault_of_a_list_goes_once_it_reads_what_it_could_not(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "problems")
        part, trouble = app.query_one(SuspectsList), app.query_one("ProblemsTab #trouble")
        monkeypatch.setattr(list_module, "pool_state", failing_once(list_module.pool_state, DiskError("damaged")))
        for told in (True, False):
            part.look(False)
            await settled(pilot)
            assert trouble.display is told

    session(faulty, script)


def test_a_query_that_is_asked_about_is_shown_to_be_after_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, late, reads = workspace_of(tmp_path / "w").path, Late(), list[Any]()
    (folder / "config.toml").write_text('llm = "offline"\nmethod = "bm25"\n')

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "topics")
        await pilot.press("tab")
        await settled(pilot)
        tab, read = named(app, "calibrate"), RoundsRequest.read
        monkeypatch.setattr(RoundsRequest, "ask", late.first(RoundsRequest.ask))
        monkeypatch.setattr(RoundsRequest, "read", lambda *given: reads.append(found := read(*given)) or found)
        await pilot.press("s")
        await late.awaited(pilot)
        before = tab.model.stepped
        tab._look()
        await until(pilot, lambda: reads and tab.model.stepped is not before)
        assert "asking offline" in text_of(app)
        await late.ends(pilot)
        assert "asking" not in str(app.query_one("#answer-status", Static).content)

    session(folder, script)
