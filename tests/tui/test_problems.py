"""The tab Problems: four lists, one at a time, and the ways to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.groups_world import make_pool
from factories.reviewing import go, lines_of, named, notified, session, settled, text_of, until
from icl_curate.engine.base.errors import LockedError
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.tabs.problems import suspects_list
from icl_curate.tui.tabs.problems.groups import GroupsModel
from icl_curate.tui.tabs.problems.model import NAMES, ProblemsModel
from icl_curate.tui.widgets.table import LineTable

SIZES = [(80, 24), (120, 40)]
LETTERS = dict(zip("wdlb", NAMES, strict=True))


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    return make_pool(tmp_path / "w")


def shown(app: ReviewApp) -> str:
    """The name of the list that is shown, if it alone is on the screen and has the focus."""
    tab: Any = app.tab
    assert [part.id for part in tab.query("ProblemList") if part.is_on_screen] == [tab.shown.id]
    assert app.focused is tab.table and isinstance(app.focused, LineTable)
    return str(tab.shown.id)


@pytest.mark.parametrize("size", SIZES)
def test_keys_and_mouse_go_from_list_to_list(made: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await until(pilot, lambda: "Suspects 5 " in lines_of(app)[1], "the count of what the check found")
        assert " ".join(lines_of(app)[1].split()) == "Suspects 5 Repeats 4 Leaks 1 Skipped 5 tab next"
        assert shown(app) == "suspects" and "5 suspects" in lines_of(app)[2]
        assert "Back" not in lines_of(app)[-1]
        await pilot.press("escape", "escape")
        assert shown(app) == "suspects", "nothing lies above the list"
        for key, name in [("tab", name) for name in NAMES[1:]] + [("tab", "suspects"), ("shift+tab", "skipped")]:
            await pilot.press(key)
            await settled(pilot)
            assert shown(app) == name
        for key, name in reversed(LETTERS.items()):
            await pilot.press(key)
            await settled(pilot)
            assert shown(app) == name
        await pilot.press("l")  # of suspects, these are the labels
        await settled(pilot)
        assert shown(app) == "suspects" and "Back" in lines_of(app)[-1]
        await pilot.click(offset=(lines_of(app)[1].index("Leaks"), 1))
        await settled(pilot)
        assert shown(app) == "leaks"
        await pilot.press("x")
        await until(pilot, lambda: "Leaks 0 " in lines_of(app)[1])

    session(made.path, script, size)


@pytest.mark.parametrize(("key", "name"), LETTERS.items())
def test_the_letters_of_earlier_releases_lead_there_from_demos(made: Workspace, key: str, name: str) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        await pilot.press(key)
        await settled(pilot)
        assert app.tab is named(app, "problems") and shown(app) == name

    session(made.path, script)


def test_what_an_earlier_release_kept_is_read(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(made.path / "config.toml"))
    (made.path / "keys.toml").write_text('"go.demos" = "D"\n[demos]\nsuspects = "W"\n[repeats]\nprune_all = "Z"\n')
    kept = {"tab": "demos", "theme": "", "tabs": {"demos": {"sort": "input"}, "problems": {"shown": [1]}}}
    (made.path / "review.json").write_text(json.dumps(kept))

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = named(app, "demos")
        assert app.tab is demos and demos.model.asked.sort == "input" and not notified(app)
        await pilot.press("W")
        await settled(pilot)
        assert shown(app) == "suspects"
        await pilot.press("D")
        await settled(pilot)
        assert app.tab is demos
        await pilot.press("d")
        await settled(pilot)
        assert shown(app) == "repeats" and "Z Keep first of each" in lines_of(app)[-1]
        await pilot.press("q")

    async def again(app: ReviewApp, pilot: Any) -> None:
        assert app.tab is named(app, "problems") and shown(app) == "repeats"

    session(made.path, script)
    session(made.path, again)


def test_only_the_list_in_sight_is_read(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    look, state = GroupsModel.look, suspects_list.pool_state
    monkeypatch.setattr(GroupsModel, "look", lambda model, *given: read.append(model.kind) or look(model, *given))
    monkeypatch.setattr(suspects_list, "pool_state", lambda *given: read.append("suspects") or state(*given))

    async def script(app: ReviewApp, pilot: Any) -> None:
        overview: Any = app.tab
        await overview.action_open("leaks")
        await settled(pilot)
        assert shown(app) == "leaks" and set(read) == {"leak"}
        for key in "2", "6":
            await pilot.press(key)
        await settled(pilot)
        read.clear()
        decide(made, "prune", "demonstration", ["d2"])
        app.look_again()
        await settled(pilot)
        assert read == []
        await go(app, pilot, "problems")
        assert set(read) == {"leak"}

    session(made.path, script)


def test_an_error_stands_above_its_list_and_goes_with_it(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icl_curate.tui.tab.RETRY", 0.05)
    decide(made, "prune", "source", ["s"])
    refused: list[int] = []
    look = GroupsModel.look

    def locked(model: GroupsModel, *given: Any) -> Any:
        refused.append(1)
        if len(refused) < 5:
            raise LockedError("workspace is open in another process")
        return look(model, *given)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        assert "the active pool is empty" in text_of(app)
        monkeypatch.setattr(GroupsModel, "look", locked)
        await pilot.press("tab")
        await until(pilot, lambda: "(trying again)" in text_of(app) or len(refused) > 4)
        await until(pilot, lambda: "3 groups of duplicates" in text_of(app))
        await settled(pilot)
        assert "the active pool is empty" not in text_of(app) and "trying again" not in text_of(app)
        await pilot.press("shift+tab")
        await settled(pilot)
        assert "the active pool is empty" in text_of(app)

    session(made.path, script)


def test_without_a_pool_there_is_no_list(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "w")
    for folder, told in (("w", "The pool is empty"), ("none", "no workspace")):

        async def script(app: ReviewApp, pilot: Any, told: str = told) -> None:
            await go(app, pilot, "problems")
            await pilot.press("tab", "d", "y", "escape")
            await settled(pilot)
            assert told in text_of(app) and app.clipboard.startswith("icl-curate index")

        session(tmp_path / folder, script)


def test_the_list_is_remembered_and_odd_memories_are_not() -> None:
    model = ProblemsModel()
    for stored, name in (({}, "suspects"), ({"shown": "leaks"}, "leaks"), ({"shown": {}}, "leaks")):
        model.recall(stored)
        assert model.remember() == {"shown": name}
