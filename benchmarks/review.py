"""What `review` costs: CPU time of the first and later visits of each tab and of a key on a row, time to the first
paint.

    python benchmarks/review.py [--rows 3500] [--long 20] [--presses 30]

The pool is made here; one row in four has 200 kB, so that the cursor passes both. The app is driven without a terminal.
CPU time of the whole process, threads included, is counted from a key to the end of all that follows from it, less what
the idle app uses meanwhile. `empty DataTable` and `empty OptionList` are apps with nothing else, moved by the same key:
what Textual itself needs for a key and a drawn screen; `DataTable beside a text` also shows a text of its own for each
line, in containers as deep as those of a tab: what it needs for a row that is read, without any work of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.base.contract import to_json
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.graded import graded_by
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import Trials
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.sources import measure_vote
from icl_curate.tui.app import TABS, ReviewApp
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, DataTable, OptionList, Static

ESTIMATORS = "multilinear", "leave-one-out", "reliability"
SIZE = (120, 40)
SETTLE = 0.3
"""Seconds without work after which all that follows from a key has ended."""
KEPT = 0.15
"""Seconds that are enough where nothing is read."""

LONGEST = 5.0
"""Seconds for which a paint is waited for."""

HELD = 0.04
"""Seconds between two keys of one that is held down: the row is not read."""


def make_pool(folder: Path, rows: int, long: int) -> Workspace:
    draw = np.random.default_rng(0)
    words = np.array([f"{a}{b}" for a in ("parcel", "letter", "refund", "card") for b in ("", "s", " late")])
    lines = []
    for i in range(rows):
        text = f"{' '.join(draw.choice(words, 12))} {i}"
        if i % 4 == 2 and long:
            long -= 1
            text += " " + " ".join(draw.choice(words, 30_000))
        lines.append({"id": f"r{i}", "input": text, "output": f"label {i % 12}", "source": f"source {i % 13}"})
    asked = [{"id": f"q{i}", "input": " ".join(draw.choice(words, 9)), "output": f"label {i % 12}"} for i in range(60)]
    for name, found in (("pool", lines), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    workspace = Workspace.create(folder / "w")
    index_pool(
        workspace, IndexPlan(paths=(str(folder / "pool.jsonl"),), validation=(str(folder / "queries.jsonl"),)),
    )  # fmt: skip
    return workspace


def teach_sources(workspace: Workspace) -> None:
    """A finished run of ``train sources``, so that Sources has its curve."""
    with workspace.read() as con:
        asked = con.execute("SELECT row FROM demonstrations WHERE split = 'validation' ORDER BY row").fetchall()
        pool = con.execute("SELECT row, source FROM pool ORDER BY row LIMIT 1300").fetchall()
    draw = np.random.default_rng(1)
    run = runs.start(workspace, trials.KIND, "offline", {"graded_by": to_json(graded_by(workspace, Settings()))})
    tried = [(query, *pool[draw.integers(len(pool))]) for (query,) in asked for _ in range(20)]
    right = draw.random(len(tried)) < 0.6
    names = [name for *_, name in tried]
    answers = ["right" if one else f"wrong {name}" for one, name in zip(right, names, strict=True)]
    found = Trials(run, np.array([q for q, *_ in tried]), np.array([r for _, r, _ in tried]), names, answers, right)
    every = sorted(set(names))
    scores = {name: dict(zip(every, draw.random(len(every)), strict=True)) for name in ESTIMATORS}
    trials.save(workspace, found, scores)
    runs.finish(workspace, run, "done", {})
    measure_vote(workspace, Settings())  # as the command does


async def cost(pilot: Pilot[Any], key: str, seconds: float) -> float:
    """CPU milliseconds from a key until nothing has been under way for ``seconds``."""
    before = time.process_time()
    pilot.app.simulate_key(key)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(min(0.05, seconds))
        if any(not worker.is_finished for worker in pilot.app.workers):
            until = time.monotonic() + seconds
    return (time.process_time() - before) * 1000


async def idle(seconds: float) -> float:
    before = time.process_time()
    for _ in range(max(1, round(seconds / 0.05))):  # as often as `cost` looks
        await asyncio.sleep(min(0.05, seconds))
    return (time.process_time() - before) * 1000


class Floor(App[None]):
    """One widget of Textual's own with some lines, and nothing else."""

    def __init__(self, kind: type[DataTable[str]] | type[OptionList]) -> None:
        super().__init__()
        self._kind = kind

    def compose(self) -> ComposeResult:
        yield self._kind()

    def on_mount(self) -> None:
        widget = self.query_one(self._kind)
        if isinstance(widget, DataTable):
            widget.add_columns("id", "input", "output")
            widget.add_rows([(f"r{i}", f"input {i}", f"label {i % 12}") for i in range(100)])
            widget.cursor_type = "row"
        else:
            widget.add_options([f"option {i}" for i in range(100)])
        widget.focus()


class BesideText(App[None]):
    """A table of Textual's own, and beside it a text for the line under the cursor."""

    CSS = "Vertical, Horizontal { height: 1fr; } DataTable { width: 3fr; } Static { width: 2fr; height: 1fr; }"
    LINES = "\n".join(f"a line of the text, number {i}" for i in range(30))

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="tab"), Vertical(id="tab"), Vertical(), Horizontal():
            yield DataTable()
            yield Static(markup=False)

    def on_mount(self) -> None:
        table: DataTable[str] = self.query_one(DataTable)
        table.add_columns("id", "input", "output")
        table.add_rows([(f"r{i}", f"input {i}", f"label {i % 12}") for i in range(100)])
        table.cursor_type = "row"
        table.focus()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.query_one(Static).update(f"{event.cursor_row}\n{self.LINES}")


async def keys(pilot: Pilot[Any], key: str, presses: int, seconds: float) -> list[float]:
    """A key's CPU milliseconds, press by press, without those of the idle app."""
    rest = min([await idle(seconds) for _ in range(8)])
    return [await cost(pilot, key, seconds) - rest for _ in range(presses)]


def spread(found: list[float]) -> tuple[float, float]:
    """Median and 90th percentile."""
    return statistics.median(found), sorted(found)[int(len(found) * 0.9)]


def show(name: str, *figures: float) -> None:
    print(f"{name:<34}" + "".join(f"{figure:9.1f}" for figure in figures), flush=True)


async def floors(presses: int) -> None:
    for kind in (DataTable, OptionList):
        async with Floor(kind).run_test(size=SIZE) as pilot:
            await asyncio.sleep(SETTLE)
            show(f"down, empty {kind.__name__}", *spread(await keys(pilot, "down", presses, KEPT)))
    async with BesideText().run_test(size=SIZE) as beside:
        await asyncio.sleep(SETTLE)
        show("down, DataTable beside a text", *spread(await keys(beside, "down", presses, KEPT)))


async def visits(path: Path) -> None:
    app = ReviewApp(path)
    app.save = lambda: None  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(4)
        rest = min([await idle(SETTLE) for _ in range(8)])
        order = [*list(TABS)[1:], next(iter(TABS))]
        first = {name: await cost(pilot, str([*TABS].index(name) + 1), SETTLE) - rest for name in order}
        later = {name: await cost(pilot, str([*TABS].index(name) + 1), SETTLE) - rest for name in order}
        for name in order:
            show(f"visit {name}", first[name], later[name])


async def rows(path: Path, presses: int) -> None:
    app = ReviewApp(path)
    app.save = lambda: None  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(3)
        await cost(pilot, "3", 2.0)
        show("j in sources", *spread(await keys(pilot, "j", 10, KEPT)))
        await cost(pilot, "5", 2.0)
        for what, seconds in (("held", HELD), ("read", SETTLE)):
            await cost(pilot, "g", 1.0)
            found = await keys(pilot, "j", presses, seconds)  # lines 1, 2, 3 …
            show(f"j in demos, {what}, short row", *spread([one for i, one in enumerate(found, 1) if i % 4 != 2]))
            show(f"j in demos, {what}, 200 kB", *spread([one for i, one in enumerate(found, 1) if i % 4 == 2]))


async def paints(path: Path) -> None:
    """Milliseconds by the clock from a key to the first screen that is drawn after it: median, 95 %, number."""
    app, drawn = ReviewApp(path), asyncio.Event()
    app.save = lambda: None  # type: ignore[method-assign]
    display = app._display

    def noted(*given: Any) -> None:
        display(*given)
        drawn.set()

    app._display = noted  # type: ignore[method-assign]

    async def painted(key: str, seconds: float) -> float:
        drawn.clear()
        began = time.perf_counter()
        app.simulate_key(key)
        await asyncio.wait_for(drawn.wait(), LONGEST)
        took = time.perf_counter() - began
        await asyncio.sleep(seconds)
        return 1000 * took

    digits = [str([*TABS].index(name) + 1) for name in ("sources", "overview", "preview", "evaluate", "demos")]
    tried = {"place": (digits, 0.4), "j held": ("j" * 16, HELD), "j read": ("j" * 6, SETTLE), "x u": ("xuxu", 0.7)}
    tried |= {"page": (["ctrl+d"] * 6, SETTLE), "last and first line": ("GgGg", 0.4)}
    async with app.run_test(size=SIZE):
        await asyncio.sleep(6)
        for digit in digits:
            await painted(digit, 2.5)
        for name, (pressed, seconds) in tried.items():
            found = sorted([await painted(key, seconds) for key in [*pressed] * 5])
            show(f"to the first paint: {name}", statistics.median(found), found[int(len(found) * 0.95)], len(found))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("rows", 3500), ("long", 20), ("presses", 30)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        workspace = make_pool(Path(folder), given.rows, given.long)
        teach_sources(workspace)
        parts: tuple[Callable[[], Awaitable[None]], ...] = (
            lambda: floors(given.presses),
            lambda: visits(workspace.path),
            lambda: rows(workspace.path, given.presses),
            lambda: paints(workspace.path),
        )
        print(f"{'CPU in ms':<34}{'first':>9}{'later':>9}   (visits);  {'median':>9}{'90 %':>9}   (keys)")
        for part in parts:
            with suppress(KeyboardInterrupt):
                asyncio.run(part())


if __name__ == "__main__":
    main()
