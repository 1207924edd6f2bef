"""The rows behind the counts of Overview: duplicates and leaks side by side, skipped records, pruned rows, suspects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.copies import lines
from factories.groups_world import make_pool
from factories.reviewing import go, is_safe, lines_of, named, notified, session, settled, text_of, until
from factories.suspects_world import SOUND
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.browse import pruned_rows
from icl_curate.engine.store.decisions import decide, history, ids_in_pool, undo
from icl_curate.engine.store.demonstrations import fetch
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Pick
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.dialogs.history import History
from icl_curate.tui.tabs.overview import tab as overview_tab
from icl_curate.tui.tabs.problems.groups import MOST, GroupsModel, compared
from icl_curate.tui.tabs.problems.lists import LeaksList, RepeatsList, SkippedList
from icl_curate.tui.tabs.problems.suspects_list import SuspectsList
from textual.widgets import Input

SIZES = [(80, 24), (120, 40)]


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    return make_pool(tmp_path / "w")


def pruned(made: Workspace) -> list[str]:
    return [row.id for row in fetch(made, pruned_rows(made))]


@pytest.mark.parametrize("size", SIZES)
def test_every_count_of_overview_leads_to_its_rows(
    made: Workspace, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_tab, "REST", 1000.0)  # so long the count is not looked for
    decide(made, "prune", "demonstration", ["t1"])

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos, problems = named(app, "demos"), named(app, "problems")
        overview: Any = await go(app, pilot, "overview")
        assert "Open" in lines_of(app)[-1]
        for way, part in (("repeats", RepeatsList), ("leaks", LeaksList), ("skipped", SkippedList)):
            while overview.at != way:
                await pilot.press("j")
            assert any(way in line and "›" in line for line in lines_of(app))
            await pilot.press("enter")
            await settled(pilot)
            assert app.tab is problems and isinstance(problems.shown, part) and app.focused is problems.table
            await pilot.press("1")
            await settled(pilot)
        while overview.at != "pruned":
            await pilot.press("k")
        await pilot.press("enter")
        await settled(pilot)
        assert app.tab is demos and [int(row) for row in demos.model.rows] == pruned_rows(made).tolist()
        await pilot.press("1", "k", "enter")
        await settled(pilot)
        assert overview.at == "active" and demos.model.asked.filter.pruned is False and len(demos.model.rows) == 7
        await pilot.press("1")
        while overview.at != "suspects":
            await pilot.press("j")
        assert "2 looks for them" in text_of(app)
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(problems.shown, SuspectsList)
        await pilot.press("1")
        await settled(pilot)
        found = f"{len(app.query_one(SuspectsList).model.shown)} rows ›"
        await until(pilot, lambda: found in text_of(app))  # what was written is read at the next look
        while overview.at != "decisions":
            await pilot.press("j")
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, History)
        await pilot.press("escape")
        for _ in range(20):
            await pilot.press("k")
        assert overview.at == "problems"  # the first step of the road
        at = next((x, y) for y, line in enumerate(lines_of(app)) if (x := line.find("skipped")) > 0)
        await pilot.click(offset=at)
        await settled(pilot)
        assert isinstance(problems.shown, SkippedList)

    session(made.path, script, size)


def test_counts_of_nothing_lead_nowhere(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        overview: Any = app.tab
        assert overview._ways() == ["problems", "sources", "evaluate", "export", "next", "active", "suspects"]

    session(untaught, script)


@pytest.mark.parametrize("size", SIZES)
def test_the_first_of_a_group_is_kept_and_the_view_stays(made: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        problems: Any = await go(app, pilot, "problems")
        await pilot.press("d")
        await settled(pilot)
        part = problems.shown
        assert "3 groups of duplicates" in text_of(app) and "x Keep first" in lines_of(app)[-1]
        assert "repeats d1" in text_of(app) and "pool.jsonl:2" in text_of(app)
        await pilot.press("x")
        await until(pilot, lambda: any("✗" in line and "repeats d1" in line for line in lines_of(app)))
        await settled(pilot)
        assert pruned(made) == ["d2"] and history(made)[0].reason == "check: duplicate, repeats d1"
        assert part.table.cursor == 0 and part.model.found is not None and len(part.model.found) == 3
        await pilot.press("x")
        await until(pilot, lambda: "no row to prune here" in notified(app))
        await pilot.press("r")
        await until(pilot, lambda: not pruned(made))
        await settled(pilot)
        await pilot.press("r")
        assert "no pruned row here" in notified(app)
        await pilot.press("X")
        await until(pilot, lambda: pruned(made) == ["d2", "c3", "n2"])
        await settled(pilot)
        assert len(history(made)[0].targets) == 3, "one decision"
        await pilot.press("v")
        await settled(pilot)
        assert part.model.found is not None and len(part.model.found) == 1 and "c1" in text_of(app)
        await pilot.press("X")
        await until(pilot, lambda: "no row to prune in any group" in notified(app))
        await pilot.press("u")
        await until(pilot, lambda: not pruned(made))
        await settled(pilot)
        assert len(part.model.found) == 3

    session(made.path, script, size)


@pytest.mark.parametrize("size", [*SIZES, (40, 12)])
def test_rows_of_a_group_are_read_side_by_side_and_mended_one_by_one(made: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        problems: Any = await go(app, pilot, "problems")
        await pilot.press("d")
        await settled(pilot)
        part = problems.shown
        await pilot.press("j", "enter")
        await settled(pilot)
        assert app.focused is part.rows and part.rows.cursor == 1
        shown = text_of(app)
        assert is_safe(shown) and (size[1] < 20 or shown.count("please cancel [/b] the order") >= 2)
        assert "x Keep first" not in lines_of(app)[-1] and (size[0] < 80 or "x Prune" in lines_of(app)[-1])
        await pilot.press("x")
        await until(pilot, lambda: pruned(made) == ["c2"])
        await settled(pilot)
        assert app.focused is part.rows and part.rows.cursor == 1 and part.table.cursor == 1
        await pilot.press("r")
        await until(pilot, lambda: not pruned(made))
        await settled(pilot)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick) and app.screen.query_one(Input).value == "b")
        await pilot.press("escape", "enter")
        await settled(pilot)
        await pilot.press("escape")
        assert app.focused is part.rows
        await pilot.press("escape", "y")
        assert json.loads(app.clipboard)["rows"][0]["id"] == "c1"
        await pilot.press("escape")
        await settled(pilot)
        assert problems.shown is part and app.focused is part.table and "Back" not in lines_of(app)[-1]

    session(made.path, script, size)


@pytest.mark.parametrize("size", SIZES)
def test_a_leak_is_shown_with_its_query_and_only_its_row_is_pruned(made: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await pilot.press("tab", "l")
        await settled(pilot)
        assert "1 group of leaks" in text_of(app) and "validation query" in text_of(app)
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("x", "e")  # the cursor is on the query
        await settled(pilot)
        assert not history(made) and len(app.screen_stack) == 1
        await pilot.press("k", "x")
        await until(pilot, lambda: pruned(made) == ["t1"])
        await pilot.press("u")
        await until(pilot, lambda: not pruned(made))
        await settled(pilot)
        await pilot.press("escape", "X")
        await until(pilot, lambda: pruned(made) == ["t1"])
        await settled(pilot)
        assert history(made)[0].reason == "check: leak, repeats the validation query q1"
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help) and "Prune every row that a query repeats" in text_of(app)

    session(made.path, script, size)
    undo(made)


@pytest.mark.parametrize("size", [*SIZES, (40, 12)])
def test_skipped_records_are_listed_by_reason_and_read_from_their_file(made: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        problems: Any = await go(app, pilot, "problems")
        await pilot.press("b")
        await settled(pilot)
        shown = text_of(app)
        assert size[0] < 80 or "⏎ Open" in lines_of(app)[-1], "the footer says how to come to the records"
        assert "5 skipped records" in shown and "missing field: output" in shown and "not JSON" in shown
        await pilot.press("enter", "j")
        await settled(pilot)
        if size[1] > 20:
            assert "pool.jsonl:12" in text_of(app) and "no output [/b]" in text_of(app)
        assert is_safe(text_of(app))
        await pilot.press("y")
        assert app.clipboard.startswith("pool.jsonl:12: missing field: output")
        await pilot.press("enter", "escape", "escape", "escape")
        await settled(pilot)
        assert app.focused is problems.table

    session(made.path, script, size)


def test_a_list_follows_changes_made_elsewhere_and_keeps_its_group(made: Workspace) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        problems: Any = await go(app, pilot, "problems")
        await pilot.press("d", "v")
        await settled(pilot)
        await pilot.press("G")
        await settled(pilot)
        decide(made, "prune", "demonstration", ["d2"])
        app.look_again()
        await settled(pilot)
        group = problems.shown.model.at(problems.table.cursor)
        assert [row.id for row in group.rows] == ["n1", "n2"] and len(problems.shown.model.found) == 2

    session(made.path, script)


def test_a_group_that_changed_meanwhile_is_not_decided_on(made: Workspace) -> None:
    model = GroupsModel("duplicate")
    model.take(model.look(made, 0), 0)
    group = model.at(0)
    assert group is not None and model.pruned(made, group) == {"d2": "check: duplicate, repeats d1"}
    decide(made, "prune", "demonstration", ["d2"])
    with pytest.raises(UsageError, match="'d2' is pruned already"):
        decide(made, "prune", "demonstration", [*model.pruned(made, group)])
    model.take(model.look(made, 0), 0)
    rows = model.restored(group := model.at(0), None)  # type: ignore[arg-type]
    assert group is not None and rows == [row.row for row in group.rows if row.id == "d2"]
    file = made.path.parent / "pool.jsonl"
    file.write_text(file.read_text().replace(json.dumps(group.rows[1].input), json.dumps("another text")))
    index_pool(made, IndexPlan(paths=(str(file),)))
    with pytest.raises(UsageError, match="'d2' is no longer in its file"):
        ids_in_pool(made, rows)


def test_words_that_differ_are_marked() -> None:
    left, right = compared("the lamp in the hall", "the lamp, in my hall")
    assert (left.plain, right.plain) == ("the lamp in the hall", "the lamp, in my hall")
    marked = [{text.plain[span.start : span.end] for span in text.spans} for text in (left, right)]
    assert marked == [{"the"}, {",", "my"}]
    same, _ = compared("x" * (MOST + 7), "x")
    assert "7 more characters" in same.plain


def test_a_key_for_a_row_says_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "sound.jsonl"
    path.write_text(lines(SOUND), encoding="utf-8")
    made = Workspace.create(tmp_path / "w")
    index_pool(made, IndexPlan(paths=(str(path),)))

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "problems")
        for name, keys in (("suspects", "xer"), ("repeats", "xr"), ("leaks", "xr")):
            await tab.action_list(name)
            await settled(pilot)
            assert tab.shown.id == name and not tab.table.count
            for key in (*keys, "space", "a", "V", "space", "enter", "escape"):
                app.notices.clear()
                await pilot.press(key)
                await settled(pilot)
                assert key not in keys or "row here" in notified(app), (name, key)
        await go(app, pilot, "demos")
        await pilot.press("slash", *"nowhere", "enter")
        await settled(pilot)
        for key in "xer":
            app.notices.clear()
            await pilot.press(key)
            assert "no row here" in notified(app), key
        assert not history(made)

    session(made.path, script)
