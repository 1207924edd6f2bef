"""The list of suspects in the tab Demos, by keys: accept, reject, undo, labels, and a check that leaving ends."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.copies import indexed, lines
from factories.patience import PATIENCE
from factories.reviewing import cells_of, go, is_safe, lines_of, notified, offered, session, settled, text_of, until
from factories.suspects_world import SUSPECTS, WORDS, make_pool
from icl_curate.engine.base.errors import WorkspaceError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.checks.suspects import PoolSuspects, find_suspects, pool_state
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.browse import pruned_rows
from icl_curate.engine.store.decisions import decide, history, kept_rows
from icl_curate.engine.store.outputs import relabelled
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui import decisions
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm, Pick
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.tabs.problems import suspects_list as list_module
from icl_curate.tui.tabs.problems.suspects_list import SuspectsList


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "w").path


async def opened(app: ReviewApp, pilot: Any) -> SuspectsList:
    """Open the list of suspects and wait for the check."""
    await go(app, pilot, "problems")
    return app.query_one(SuspectsList)


def ids(part: SuspectsList) -> list[str]:
    return [one.id for one in part.model.shown]


def test_suspects_are_listed_accepted_rejected_and_put_back(faulty: Path) -> None:
    made = Workspace.open(faulty)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        whole = ids(part)
        assert set(whole) == set(SUSPECTS) and app.focused is part.table
        shown = text_of(app)
        for one in part.model.shown:
            assert any(one.kinds[0] in line and one.id in line for line in lines_of(app)), one.id
        first = part.model.shown[0]
        assert "→ prune" in shown and "posterior" in shown and "6 suspects" in shown
        await pilot.press("x")
        await until(pilot, lambda: ids(part) == whole[1:])
        entry = history(made)[0]
        assert (entry.action, entry.targets, entry.reason) == ("prune", (first.id,), first.findings[0].reason)
        await settled(pilot)
        assert whole[1] in text_of(app) and part.table.cursor == 0
        await pilot.press("r")
        await until(pilot, lambda: ids(part) == whole[2:])
        assert history(made)[0].action == "keep" and len(kept_rows(made)) == 1
        await pilot.press("u")
        await until(pilot, lambda: ids(part) == whole[1:])
        await settled(pilot)
        await pilot.press("g", "space", "space", "x")
        await until(pilot, lambda: ids(part) == whole[3:])
        assert history(made)[0].targets == tuple(whole[1:3]) and not part.model.marks.count
        await pilot.press("u")
        await until(pilot, lambda: [one.id for one in part.model.marked()] == whole[1:3])
        await pilot.press("escape", "G", "space", "U")
        await until(pilot, lambda: ids(part) == whole[3:])
        assert [one.id for one in part.model.marked()] == whole[-1:], "it was for another decision"
        await pilot.press("escape", "u")
        await until(pilot, lambda: [one.id for one in part.model.marked()] == whole[1:3])
        await pilot.press("x")
        await until(pilot, lambda: ids(part) == whole[3:])
        await settled(pilot)
        demos: Any = await go(app, pilot, "demos")
        assert len(demos.model.known.pruned) == 3

    session(faulty, script, (160, 50))
    assert len(pruned_rows(made)) == 3


def overview_text(folder: Path) -> str:
    """The first tab of a new window."""
    seen: list[str] = []
    (folder / "review.json").unlink(missing_ok=True)  # at Problems it would check again

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "overview")
        seen.append(text_of(app))

    session(folder, script)
    return seen[0]


def test_what_was_found_is_told_in_every_window_and_follows_decisions(tmp_path: Path, run: Run) -> None:
    pool = [{"id": f"p{i}", "input": f"message {word}", "output": "ab"[i % 2]} for i, word in enumerate(WORDS)]
    asked = [row | {"id": f"q-{row['id']}"} for row in pool[:2]]
    pool += [pool[2] | {"id": "again"}, {"id": "e1", "input": "?!…", "output": "b"}]
    made = indexed(tmp_path / "w", 1.0, pool=lines(pool), validation=lines(asked))
    assert "not looked for" in overview_text(made.path) and overview(made).suspects is None

    async def look(app: ReviewApp, pilot: Any) -> None:
        assert {"p0", "p1", "again", "e1"} <= set(ids(await opened(app, pilot)))
        assert "icl-curate index --encoder" in text_of(app)  # what mends that labels were not looked at

    session(made.path, look)
    found = overview(made)
    whole = found.suspects
    assert (found.leaks_open, found.leaks, found.duplicates_open) == (2, 2, {"exact": 1})
    assert whole and found.suspects_open == whole
    decide(made, "prune", "demonstration", ["p0", "p1", "again"])
    decide(made, "keep", "demonstration", ["e1"])
    told = run("status", "-w", made.path, "--json").json
    assert (told["leaks_open"], told["leaks"], told["duplicates_open"]) == (0, 2, {"exact": 0})
    assert (told["suspects_open"], told["suspects"]) == (whole - 4, whole)
    for shown in (overview_text(made.path), run("status", "-w", made.path).out):
        assert "0 open of 2 queries" in shown and "0 open of 1 exact" in shown
        assert f"{whole - 4} open of {whole} rows" in shown
    (tmp_path / "more.jsonl").write_text(lines([*pool, {"id": "new", "input": "not seen before", "output": "a"}]))
    index_pool(made, IndexPlan(paths=(str(tmp_path / "more.jsonl"),)))
    assert overview(made).suspects is None  # one row was not looked at


def test_many_suspects_are_accepted_after_a_question_each_with_its_own_reason(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.tui.decisions.SMALL_CHANGE", 2)
    made = Workspace.open(faulty)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("f", *"dup", "enter")
        await settled(pilot)
        assert sorted(ids(part)) == ["c3", "d2"] and "2 suspects · duplicate" in text_of(app)
        await pilot.press("f", *"all", "enter")
        await settled(pilot)
        await pilot.press("a", "x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("enter")
        assert isinstance(app.screen, Confirm)
        await pilot.press("y")
        await until(pilot, lambda: not part.model.shown)
        await settled(pilot)
        assert "no suspects" in text_of(app)

    session(faulty, script)
    with made.read() as con:
        reasons = {reason for (reason,) in con.execute("SELECT reason FROM decisions").fetchall()}
    assert len(reasons) == len(SUSPECTS)


def test_a_suspect_is_relabelled_by_choice_and_several_as_suggested(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Workspace.open(faulty)
    given = {"e1": "b", "m1": "a", "c1": "a", "d2": "a", "c3": "b", "r1": "rare"}

    def suggesting(*given: Any, **more: Any) -> Any:
        found = find_suspects(*given, **more)
        rows = [
            replace(one, evidence=replace(one.evidence, suggested="b" if one.evidence.output == "a" else ""))
            for one in found.rows
        ]
        return replace(found, rows=tuple(rows))

    monkeypatch.setattr(list_module, "find_suspects", suggesting)
    monkeypatch.setattr(decisions, "SMALL_CHANGE", 2)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        at = ids(part).index("c1")
        await pilot.press("g", *["j"] * at)
        await until(pilot, lambda: "probability that it hurts, by the parts below; more likely: b" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        assert "Correct label of c1" in text_of(app)
        assert "suggested" in text_of(app)
        await pilot.press(*"rar", "enter")
        await until(pilot, lambda: "c1" not in ids(part))
        assert {each.id: each.output for each in relabelled(made)} == {"c1": "rare"}
        assert history(made)[0].reason == "in review: conflict"
        await settled(pilot)
        await pilot.press("u")
        await until(pilot, lambda: "c1" in ids(part))
        await settled(pilot)
        await pilot.press("a", "e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        left = "the other 3 stay as they are"
        assert "as suggested" in text_of(app) and "3 of 6; others stay" in text_of(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"; {left}" in text_of(app)
        await pilot.press("y")
        await until(pilot, lambda: sorted(ids(part)) == ["c3", "e1", "r1"])
        await pilot.press("e", "escape")
        await settled(pilot)

    session(faulty, script, (120, 40))
    assert {each.id: (each.has, each.output) for each in relabelled(made)} == {
        name: ("a", "b") for name, output in given.items() if output == "a"
    }


def test_keys_in_quick_succession_go_down_the_list(faulty: Path) -> None:
    made = Workspace.open(faulty)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        app.look_again = lambda: None  # type: ignore[method-assign]  # as on a busy machine: it is read again much later
        whole = ids(part)
        await pilot.press("x", "x", "r")
        await until(pilot, lambda: len(history(made)) == 3)
        assert [one.targets for one in reversed(history(made))] == [(name,) for name in whole[:3]]
        await until(pilot, lambda: ids(part) == whole[3:])
        assert not [one for one in app.notices if one.severity == "error"]

    session(faulty, script)


def test_escape_leaves_one_level_in_suspects_and_in_demos(faulty: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        for place in ("problems", "demos"):
            tab: Any = await go(app, pilot, place)
            part = app.query_one(SuspectsList) if place == "problems" else tab
            model: Any = part.model
            whole = len(model.rows)
            await pilot.press("slash", *"parcel", "enter")
            await until(pilot, lambda model=model, whole=whole: 0 < len(model.rows) < whole)
            await settled(pilot)
            await pilot.press("space", "V", "escape")
            assert part.table.range_from is None and model.marks.count == 1
            await pilot.press("escape")
            assert not model.marks.count and len(model.rows) < whole
            await pilot.press("escape")
            await until(pilot, lambda model=model, whole=whole: len(model.rows) == whole)
            await settled(pilot)
            await pilot.press("slash", *"parcel", "escape")
            await until(pilot, lambda model=model, whole=whole: len(model.rows) == whole)
            assert app.focused is part.table

    session(faulty, script)


def test_a_search_that_was_left_finds_nothing_afterwards(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, holding = threading.Event(), list_module.holding

    def held(*search: Any) -> Any:
        assert release.wait(PATIENCE)
        return holding(*search)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        part = app.query_one(SuspectsList)
        whole = len(part.model.rows)
        monkeypatch.setattr(list_module, "holding", held)
        await pilot.press("slash", *"parcel", "escape")
        await pilot.pause()
        release.set()
        await settled(pilot)
        assert len(part.model.rows) == whole

    session(faulty, script)


def test_a_range_outlasts_what_is_written_meanwhile_in_suspects_and_in_demos(faulty: Path) -> None:
    made = Workspace.open(faulty)

    async def script(app: ReviewApp, pilot: Any) -> None:
        for place, name in (("problems", "f1"), ("demos", "f2")):
            tab: Any = await go(app, pilot, place)
            await pilot.press("g", "V", "j")
            decide(made, "prune", "demonstration", [name])
            app.look_again()
            await settled(pilot)
            assert tab.table.range_from == 0
            await pilot.press("space")
            part: Any = app.query_one(SuspectsList) if place == "problems" else tab
            assert part.model.marks.count == 2
        await pilot.press("V", "c")
        await settled(pilot)
        assert tab.table.range_from is None

    session(faulty, script)


def test_a_row_that_its_file_has_anew_is_not_decided_on(faulty: Path) -> None:
    made, file = Workspace.open(faulty), faulty.parent / "faulty.jsonl"

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        app.look_again = lambda: None  # type: ignore[method-assign]  # the list is drawn, and its file changes
        one = part.model.shown[0]
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [row | {"input": "new and sound", "output": "a"} if row["id"] == one.id else row for row in rows]
        file.write_text(lines(rows))
        index_pool(made, IndexPlan(paths=(str(file),)))
        for keys in ("x", "r", ("e", "a", "enter")):
            app._notifications.clear()
            await pilot.press(*keys)
            await until(pilot, lambda: f"'{one.id}' is no longer in its file as it is shown" in notified(app))
        part.model.pool_state = pool_state(made, Settings())
        assert one.row not in [left.row for left in part.model.left or ()]

    session(faulty, script)
    assert not history(made)


def test_labels_that_would_vanish_are_marked(faulty: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("l")
        await settled(pilot)
        lines = [line.split() for line in lines_of(app)]
        assert any(line[-4:] == ["rare", "1", "1", "0"] for line in lines) and "✗ rare" in text_of(app)
        assert any(line[-4:] == ["a", "10", "3", "7"] for line in lines)
        await pilot.press("escape")
        assert not part.has_class("-labels") and part.is_on_screen and "Back" not in lines_of(app)[-1]
        await pilot.press("escape")
        await settled(pilot)
        assert part.is_on_screen and app.focused is part.table

    session(faulty, script, (120, 40))
    session(faulty, script, (80, 24))


def test_the_list_is_checked_once_until_the_pool_changes(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = []

    def counted(*arguments: Any) -> Any:
        checks.append(1)
        return find_suspects(*arguments)

    monkeypatch.setattr(list_module, "find_suspects", counted)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("tab", "w")
        await settled(pilot)
        assert len(checks) == 1
        await pilot.press("x")
        await until(pilot, lambda: len(part.model.shown) == len(SUSPECTS) - 1)
        await settled(pilot)
        assert len(checks) == 1
        await pilot.press("w")  # what is left may be judged otherwise
        await settled(pilot)
        assert len(checks) == 2 and len(part.model.shown) == len(SUSPECTS) - 1
        await pilot.press("u")
        await until(pilot, lambda: len(part.model.shown) == len(SUSPECTS))
        await settled(pilot)
        assert len(checks) == 3, "that row was not checked"

    session(faulty, script)


def test_a_check_that_ends_under_a_question_changes_the_list_after_the_answer(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "SMALL_CHANGE", 2)
    wait, ends = threading.Event(), list[PoolSuspects]()

    def fewer(*arguments: Any) -> PoolSuspects:
        found = find_suspects(*arguments)
        if ends:
            wait.wait(PATIENCE)
            found = replace(found, rows=found.rows[:-2])
        ends.append(found)
        return found

    monkeypatch.setattr(list_module, "find_suspects", fewer)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: len(part.model.shown) == len(SUSPECTS) - 1)
        await pilot.press("w")
        await until(pilot, lambda: part.model.check)
        await pilot.press("a", "x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        wait.set()
        await until(pilot, lambda: len(ends) == 2 and app.in_turn._waiters)
        assert f"prune {len(SUSPECTS) - 1} demonstrations?" in text_of(app) and len(ids(part)) == len(SUSPECTS) - 1
        await pilot.press("n")
        await until(pilot, lambda: len(ids(part)) == len(SUSPECTS) - 3)

    session(faulty, script)


def test_leaving_ends_the_check_and_coming_back_begins_it_anew(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[CancelToken] = []
    wait = threading.Event()

    def slow(workspace: Workspace, settings: Settings, monitor: Monitor) -> Any:
        tokens.append(monitor.cancel)
        monitor.report(Event("labels", 3, 10))
        while not wait.wait(0.005):
            monitor.check()
        return find_suspects(workspace, settings, monitor)

    monkeypatch.setattr(list_module, "find_suspects", slow)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("2")
        await until(pilot, lambda: "checking the pool: labels 30%" in text_of(app))
        await pilot.press("j", "x", "r", "space", "a", "l", "l")  # nothing is there to decide on
        await pilot.press("tab")
        await until(pilot, lambda: tokens[0].cancelled)
        await settled(pilot)
        assert not history(Workspace.open(faulty))
        await pilot.press("w")
        await until(pilot, lambda: len(tokens) == 2)
        await pilot.press("4")
        await until(pilot, lambda: tokens[1].cancelled)
        await settled(pilot)
        wait.set()
        part = await opened(app, pilot)
        assert len(tokens) == 3 and len(part.model.shown) == len(SUSPECTS)
        assert "interrupted" not in notified(app)

    session(faulty, script)


def test_a_lasting_fault_is_told_once_and_the_check_begins_anew_when_the_workspace_changes(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.tui.tab.RETRY", 0.01)
    checks: list[int] = []

    def refused(*given: Any) -> Any:
        checks.append(1)
        if len(checks) == 1:
            raise WorkspaceError("20 stored vectors are damaged", "icl-curate index --encoder e")
        return find_suspects(*given)

    monkeypatch.setattr(list_module, "find_suspects", refused)

    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        shown = text_of(app)
        assert "vectors are damaged" in shown and "trying again" not in shown and "checking" not in shown
        assert len(checks) == 1
        decide(Workspace.open(faulty), "prune", "demonstration", ["d2"])
        app.look_again()
        await settled(pilot)
        assert len(checks) == 2 and "d2" not in ids(part) and ids(part) and "damaged" not in text_of(app)

    session(faulty, script)


def test_a_suspect_is_copied(faulty: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("y")
        assert f'"id": "{ids(part)[0]}"' in app.clipboard

    session(faulty, script)


def test_suspects_narrow_while_a_text_is_typed(faulty: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        every = ids(part)
        await pilot.press("slash", *"PLEASE cancel")
        await settled(pilot)
        shown = ids(part)
        assert 0 < len(shown) < len(every) and f"{len(shown)} of {len(every)} suspects" in text_of(app)
        assert [str(span.style) for span in cells_of(part.table, 0)[4].spans] == ["hit"]
        await pilot.press("enter", "a")
        assert len(part.model.marked()) == len(shown)
        await pilot.press("escape")
        await settled(pilot)
        assert not part.model.marked() and ids(part) == shown, "one level at a time"
        await pilot.press("escape")
        await settled(pilot)
        assert ids(part) == every and app.focused is part.table

    session(faulty, script)


def test_a_search_holds_for_rows_of_other_kinds_and_for_those_that_come_back(faulty: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        await pilot.press("f", *"dup", "enter", "slash", *"cancel", "enter")
        await settled(pilot)
        assert ids(part) == ["c3"]
        await pilot.press("f", *"all", "enter")
        await settled(pilot)
        every = ids(part)
        assert {"c1", "c3"} <= {*every} and f"{len(every)} of {len(SUSPECTS)} suspects" in text_of(app)
        await pilot.press("x")
        await settled(pilot)
        await pilot.press("slash", "end", "backspace", "enter", "u")
        await settled(pilot)
        assert ids(part) == every

    session(faulty, script)


def test_the_keys_of_the_list_are_in_help_palette_and_footer_and_can_be_changed(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(faulty.parent / "config.toml"))
    (faulty.parent / "keys.toml").write_text('[suspects]\nkeep = "K"\n')

    async def script(app: ReviewApp, pilot: Any) -> None:
        titles = await offered(app, pilot)
        assert "Problems: Suspects" in titles and "Suspects: Prune" not in titles
        part = await opened(app, pilot)
        await pilot.resize_terminal(80, 24)  # most suggestions are to relabel
        await until(pilot, lambda: "e Relabel" in lines_of(app)[-1])
        await pilot.resize_terminal(120, 34)
        await until(pilot, lambda: "K Keep" in lines_of(app)[-1])
        assert "x Prune" in lines_of(app)[-1] and "K Keep" in lines_of(app)[-1] and "m Misl" not in lines_of(app)[-1]
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help)
        assert set(SuspectsList.ACTIONS) <= {action for _, _, actions in app.screen._sections for action in actions}
        await pilot.press("escape", "r")
        await settled(pilot)
        assert len(part.model.shown) == len(SUSPECTS)
        await pilot.press("4", "colon", *"Suspects: Keep")
        await until(pilot, lambda: "Reject: keep" in text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: len(part.model.shown) == len(SUSPECTS) - 1)

    session(faulty, script)


@pytest.mark.parametrize("size", [(1, 1), (40, 12), (80, 24), (200, 60)])
def test_any_size_will_do_and_no_text_reaches_the_terminal_raw(faulty: Path, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        for key in ("G", "enter", "escape", "l", "escape", "j", "k", "space", "question_mark", "escape"):
            await pilot.press(key)
            await settled(pilot)
            assert is_safe(text_of(app))
        if size[0] < 80:
            return
        while (at := ids(part).index("m1")) != part.table.cursor:
            await pilot.press("j" if part.table.cursor < at else "k")
        await settled(pilot)
        assert "[/b]" in text_of(app) and "mojibake" in text_of(app)

    session(faulty, script, size)


def test_a_pool_pruned_to_nothing_says_so(faulty: Path) -> None:
    decide(Workspace.open(faulty), "prune", "source", ["s"])

    async def script(app: ReviewApp, pilot: Any) -> None:
        await opened(app, pilot)
        assert "the active pool is empty" in text_of(app)

    session(faulty, script)


@pytest.mark.parametrize("size", [(120, 40), (160, 50)])
def test_labels_suspected_in_the_sample_pool_bring_their_suggestion(support: Path, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        part = await opened(app, pilot)
        first = part.model.shown[0]
        assert first.findings[0].kind == "label" and first.evidence.posterior > 0.9
        told = " ".join(" ".join(line.rpartition("│")[2] for line in lines_of(app)).split())  # in the pane, wrapped
        assert f"relabel: {first.evidence.suggested}" in told and "label +" in told and "source +" in told
        listed = [line for line in lines_of(app) if f"→ {first.evidence.suggested[:6]}" in line]
        assert listed[0].index(first.evidence.output) < listed[0].index("→")

    session(support, script, size)
