"""A small pool with hostile texts, taught without an LLM, and sessions in `ReviewApp` driven by keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.base.contract import to_json
from icl_curate.engine.llm.graded import graded_by
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import Trials
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Option, Pick
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.walk import CurateWalk
from icl_curate.tui.widgets.table import LineTable
from textual._context import visible_screen_stack
from textual.pilot import Pilot
from textual.screen import Screen

from factories.copies import indexed, lines
from factories.waiting import settled

from .patience import PATIENCE

HOSTILE = [
    "label [/foo] [bold]not bold[/bold] [@click=app.exit]click[/]",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b31m \x07bell \x7f",
    "turned \u202eround\u202c and \u2066isolated\u2069 \u200fmarks",
    "wide 漢字かな交じり文 and 👩‍👩‍👧‍👦 family ｆｕｌｌ width",
    "combining e\u0301\u0323\u0308 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢ zalgo",
    "tabs\tand\r\nlines\u2028separated\u2029so \x0b \x0c",
    "megabyte " + "x" * 999_900,
    "[",
    "]]] ${variable} {braces} \\[escaped] `ticks`",
    "\ufeffbyte order mark \ufffd \U0010ffff",
]
SOURCES = {"clean": 30, "noisy": 24, "odd [/b]\x1b[5m": len(HOSTILE)}
ODD = list(SOURCES)[2]
RIGHT = {"clean": 0.9, "noisy": 0.1, ODD: 0.5}
QUERIES = 24


def make_pool(folder: Path) -> Workspace:
    """Index the pool; ids are ``clean-0``, ``noisy-0``, ``odd-0`` …"""
    rows = [
        {"id": f"{name}-{i}", "input": f"question {i} of the {name} kind", "output": f"answer {i % 4}", "source": name}
        for name in ("clean", "noisy")
        for i in range(SOURCES[name])
    ]
    rows += [
        {"id": f"odd-{i}", "input": text, "output": text[:60], "source": ODD, "note": text[:100]}
        for i, text in enumerate(HOSTILE)
    ]
    asked = [{"id": f"q-{i}", "input": f"query {i}", "output": f"answer {i % 4}"} for i in range(QUERIES)]
    return indexed(folder, 1.0, pool=lines(rows), validation=lines(asked))


def numbers(workspace: Workspace) -> dict[str, int]:
    """Row numbers by id."""
    with workspace.read() as con:
        return dict(con.execute("SELECT id, row FROM demonstrations WHERE retired_at IS NULL").fetchall())


def _graded(workspace: Workspace) -> dict[str, Any]:
    """The grading of a run with the usual settings."""
    return {"graded_by": to_json(graded_by(workspace, Settings()))}


def teach_sources(workspace: Workspace) -> Trials:
    """A finished run of ``train sources`` in which the wrong answers of one source agree, and so win votes."""
    row_of = numbers(workspace)
    draw = np.random.default_rng(0)
    run = runs.start(workspace, trials.KIND, "offline", _graded(workspace))
    tried = [
        (row_of[f"q-{q}"], row_of[f"{'odd' if name == ODD else name}-{(q + j) % 9}"], name, draw.random() < RIGHT[name])
        for q in range(QUERIES)
        for j, name in enumerate(("noisy", "noisy", "noisy", "clean", "clean", ODD))
    ]
    found = Trials(
        run,
        np.array([query for query, *_ in tried]),
        np.array([row for _, row, *_ in tried]),
        [name for *_, name, _ in tried],
        ["right" if right else f"wrong of {name}" for *_, name, right in tried],
        np.array([right for *_, right in tried]),
    )
    scores = {
        "multilinear": {"clean": 1.0, "noisy": 0.0, ODD: 0.5},
        "leave-one-out": {"clean": 0.2, "noisy": -0.3, ODD: 0.0},
        "reliability": {"clean": 0.88, "noisy": 0.12, ODD: 0.5},
    }
    trials.save(workspace, found, scores)
    runs.finish(workspace, run, "done", {})
    return found


HURTFUL, HELPFUL = "noisy-3", "clean-5"


def teach_ledger(workspace: Workspace) -> None:
    """A finished run of ``train ranker`` in which one demonstration hurt nearly always and another one helped."""
    row_of = numbers(workspace)
    run = runs.start(workspace, trials.RANKER, "offline", _graded(workspace))
    steps = []
    for name, before, after in ((HURTFUL, True, False), (HELPFUL, False, True), ("clean-1", True, True)):
        for q in range(12):
            turned = q != 0
            steps.append(
                {
                    "run": run, "batch": 0, "query": row_of[f"q-{q}"], "place": 1, "row": row_of[name],
                    "shown": [row_of[name]], "score": 0.1, "before": before, "after": after if turned else before,
                    "answer_before": "was [/x]", "answer_after": "is \x1b[1m now",
                }
            )  # fmt: skip
    trials.save_ranker_batch(workspace, run, 0, {"loss": 1.0}, steps)
    runs.finish(workspace, run, "done", {})


Script = Callable[[ReviewApp, Pilot[None]], Awaitable[Any]]


def session(
    folder: Path,
    script: Script,
    size: tuple[int, int] = (120, 40),
    limited: bool = False,
    tour: bool = False,
    only: Callable[[], Screen[Any]] | None = None,
) -> ReviewApp:
    """Run the app without a terminal, ``limited`` as when it is served, with the ``tour`` of a first start or with one
    dialog ``only``, let ``script`` use it, and give it back."""

    async def run() -> ReviewApp:
        app = ReviewApp(folder, limited, tour=tour, only=only)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app.tabs) and app.tab is not None)
            await settled(pilot)
            await script(app, pilot)
        return app

    return asyncio.run(run())


async def until(pilot: Pilot[Any], condition: Callable[[], object], what: str = "what was waited for") -> None:
    """Wait until the condition holds; fails after a minute."""
    deadline, pause = time.monotonic() + PATIENCE, 0.01
    while True:
        await pilot.pause()
        if condition():
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about; the screen shows:\n{text_of(pilot.app)}")
        await asyncio.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # looking takes time from what is waited for, such as a job


def notified(app: ReviewApp) -> str:
    """All notices of the session since they were last cleared."""
    return "\n".join(one.message for one in reversed(app.notices))


def is_safe(text: str) -> bool:
    """Does nothing in it move a cursor or turn the writing round?"""
    return not any(c in text for c in "\x1b\x07\x9b\u202e\u2066")


def named(app: ReviewApp, name: str) -> Any:
    """The tab with this name, also if it was never visited."""
    return next(tab for tab in app.tabs if name == tab.NAME)


async def go(app: ReviewApp, pilot: Pilot[None], tab: str) -> Any:
    """Open a tab, or the list of ``jobs``, by its key and give it back; the list of jobs is left first."""
    if isinstance(app.screen, Jobs):
        await pilot.press("escape")
    if tab == "jobs":
        await pilot.press("J")
        await settled(pilot)
        return app.screen
    await pilot.press(str([tab.NAME for tab in app.tabs].index(tab) + 1))
    await settled(pilot)
    return app.tab


async def open_walk(app: ReviewApp, pilot: Pilot[None]) -> CurateWalk:
    """Open the walk through `curate` by its key."""
    await go(app, pilot, "overview")
    await pilot.press("c")
    await settled(pilot)
    assert isinstance(app.screen, CurateWalk)
    return app.screen


async def offered(app: ReviewApp, pilot: Pilot[None]) -> dict[str, Option]:
    """What the finder offers, by label."""
    await pilot.press("colon")
    await settled(pilot)
    assert isinstance(app.screen, Pick)
    options = {option.label: option for option in app.screen._offer.options}
    await pilot.press("escape")
    return options


def lines_of(app: Any) -> list[str]:
    """What stands on the screen, line by line: of a dialog with what it lies over."""
    visible_screen_stack.set(app._background_screens)
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def cells_of(table: LineTable, at: int) -> list[Any]:
    """What a line of a table has been given to show."""
    return [*table._lines[at].cells]


def text_of(app: Any) -> str:
    return "\n".join(lines_of(app))
