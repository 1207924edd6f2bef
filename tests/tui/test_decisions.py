"""What a decision costs the pool is said before and after it, and a label does not vanish by one key."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from factories.reviewing import go, lines_of, notified, session, settled, text_of, until
from factories.suspects_world import make_pool
from icl_curate.engine.store import decisions
from icl_curate.engine.store.decisions import history, ids_in_pool
from icl_curate.engine.store.demonstrations import active_rows
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.history import History


def test_the_last_row_of_a_label_is_pruned_after_a_question_and_another_at_once(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        await pilot.press("x")  # one of many with its label
        await until(pilot, lambda: "pruned 1 demonstration: 20 → 19\nu: undo" in notified(app))
        app.notices.clear()
        await pilot.press("slash", *"label of its own", "enter")
        await settled(pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = text_of(app)
        assert "active: 19 → 18 demonstrations" in asked and "labels gone: rare" in asked
        await pilot.press("n")
        await settled(pilot)
        assert len(history(made)) == 1
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: "labels gone: rare" in notified(app))
        app.notices.clear()
        await pilot.press("u")
        await until(pilot, lambda: "undid #2: 18 → 19\nlabels added: rare\nU: again" in notified(app))
        assert "undid #2" in lines_of(app)[-1] and "pruned" not in lines_of(app)[-1], "it replaces what it undid"
        app.notices.clear()
        await pilot.press("U")
        await until(pilot, lambda: "did again #2: 19 → 18" in notified(app))
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.screen, History) and "#2" in text_of(app))
        await pilot.press("u")
        await until(pilot, lambda: len(history(made)) == 5)
        await pilot.press("G", "k", "enter")
        await until(pilot, lambda: "label of its own" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Decisions 5" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, History))

    session(made.path, script)
    assert [(entry.action, entry.undone) for entry in history(made)] == [
        ("undo", False), ("redo", False), ("undo", False), ("prune", True), ("prune", False),
    ]  # fmt: skip


def test_a_decision_that_others_made_meanwhile_is_named_before_it_is_undone(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    names = ids_in_pool(made, active_rows(made)[:5].tolist())
    decisions.decide(made, "prune", "demonstration", [names[4]])  # before: it is undone at once

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        await pilot.press("x")
        await until(pilot, lambda: len(history(made)) == 2)
        decisions.decide(made, "prune", "demonstration", [names[3]], who="ann")
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"#3 by ann: prune {names[3]}" in text_of(app)
        await pilot.press("n")
        await settled(pilot)
        assert len(history(made)) == 3
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: "undid #3" in notified(app))
        await pilot.press("u")  # its own
        await until(pilot, lambda: "undid #2" in notified(app))
        await pilot.press("u")
        await until(pilot, lambda: "undid #1" in notified(app))

    session(made.path, script)


def test_only_the_decision_that_was_named_is_undone(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    names = ids_in_pool(made, active_rows(made)[:3].tolist())

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        decisions.decide(made, "prune", "demonstration", [names[1]], who="ann")
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"#1 by ann: prune {names[1]}" in text_of(app)
        decisions.decide(made, "prune", "demonstration", [names[2]], who="ben")
        await pilot.press("y")
        await until(pilot, lambda: not app.undecided)
        assert "the latest decision is #2 by now: nothing was changed" in notified(app)
        assert len(history(made)) == 2
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"#2 by ben: prune {names[2]}" in text_of(app)
        await pilot.press("y")
        await until(pilot, lambda: "undid #2" in notified(app))

    session(made.path, script)


def test_quitting_waits_for_a_decision_unless_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_pool(tmp_path / "w")
    go_on, decide = threading.Event(), decisions.decide
    monkeypatch.setattr(decisions, "decide", lambda *given, **more: (go_on.wait(), decide(*given, **more))[1])

    async def waited(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        await pilot.press("x")
        await until(pilot, lambda: app.undecided)
        app._release_keys()  # as after some seconds
        await pilot.press("q")
        assert app.is_running and "1 decision not made yet" in notified(app)

    async def patient(app: ReviewApp, pilot: Any) -> None:
        await waited(app, pilot)
        go_on.set()
        await until(pilot, lambda: app._exit)

    async def hasty(app: ReviewApp, pilot: Any) -> None:
        await waited(app, pilot)
        await pilot.press("q")
        assert app._exit and app._exit_renderables == ["1 decision not made"]
        go_on.set()

    session(made.path, hasty)
    go_on.clear()
    session(made.path, patient)
    assert history(made)[0].action == "prune"


def test_the_source_of_every_row_goes_with_all_labels(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = text_of(app)
        assert "active: 20 → 0" in asked and "sources gone: s" in asked and "labels gone: a, b, rare" in asked
        await pilot.press("n")
        await settled(pilot)

    session(made.path, script)
    assert not history(made)
