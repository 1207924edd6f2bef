"""Keys that nobody meant: Enter held down everywhere, and keys at random."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from factories.drawing import draw_changes
from factories.reviewing import go, session, settled, text_of
from icl_curate.engine.base.contract import Reported
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.jobs.folder import jobs
from icl_curate.engine.store.decisions import history, redo, undo
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import TABS, ReviewApp
from icl_curate.tui.dialogs import start
from textual.pilot import Pilot

pytestmark = pytest.mark.usefixtures("nobody_waits")

OPENING = ("H", "J", "i", "t", "w", "n", "c", "v", "question_mark")
"""Keys that open dialogs, in the tabs that have them."""

KEYS = (
    *"123456789", *"jjjkkgGhl", *"xxxr", *"uU", *" aV", *"sSfyn", "H", "J", "w", "d", "e", "z", "X", "b", "o", "t",
    "enter", "escape", "escape", "tab", "ctrl+d", "slash", "plus", "minus", "m", "full_stop", "question_mark",
    "less_than_sign", "greater_than_sign", "f5",
)  # fmt: skip
"""None of these leaves, or starts a job without a price."""

CHUNKS, STROKES = 4, 60
"""Sessions of so many times five keys, 1,200 in all: 15 seconds of a core each."""


def state(store: Workspace) -> list[tuple[object, ...]]:
    """Each row of the pool, its output, and whether it is active."""
    with store.read() as con:
        return con.execute("SELECT row, output, row IN (SELECT row FROM active) FROM pool ORDER BY row").fetchall()


@pytest.mark.parametrize("tab", TABS)
def test_enter_held_down_starts_nothing_and_decides_nothing(
    taught: Path, tab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where rows that were verified are written
    store = Workspace.open(taught)
    first = state(store)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        for key in ("", *OPENING):
            await go(app, pilot, tab)
            if key:
                before = app.screen, app.focused, text_of(app)
                await pilot.press(key)
                await settled(pilot)
                if (app.screen, app.focused, text_of(app)) == before:
                    continue  # nothing was opened: Enter leads where it leads without the key
            for _ in range(2):
                await pilot.press(*["enter"] * 10)
                await settled(pilot)
            for _ in range(6):
                await pilot.press("escape")
            await settled(pilot)
            assert len(app.screen_stack) == 1, f"{key!r} leads to {app.screen!r}, which escape does not leave"

    session(taught, script)
    assert (jobs(store), history(store), state(store)) == ([], [], first)


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_what_keys_at_random_do_is_undone_and_done_again(
    taught: Path, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where rows that were verified are written
    draw, store = random.Random(seed), Workspace.open(taught)
    first = state(store)

    async def no_price(*_: object) -> Reported:
        raise UsageError("no price here", "so y starts nothing")

    monkeypatch.setattr(start, "dry_run_command", no_price)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        for _ in range(STROKES):
            await pilot.press(*draw.choices(KEYS, k=5))
            draw_changes(app)
            await pilot.press("escape", "escape")
        await settled(pilot)
        for _ in range(6):
            await pilot.press("escape")
        await settled(pilot)
        await go(app, pilot, "sources")  # keys may have undone all they did: one decision stands in any case
        await pilot.press("g", "x", "y")
        await settled(pilot)
        assert app.is_running and app.fault is None

    session(taught, script)
    assert jobs(store) == []
    reached, undone = state(store), 0
    with pytest.raises(UsageError, match="no decision left"):
        while True:
            undo(store)
            undone += 1
    assert undone and state(store) == first
    for _ in range(undone):
        redo(store)
    assert state(store) == reached
