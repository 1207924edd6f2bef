"""The tab Evaluate against evaluations whose every outcome is made up here, and counted here again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from factories.copies import indexed, lines
from factories.reviewing import HOSTILE as TEXTS
from factories.reviewing import go, is_safe, lines_of, notified, session, settled, text_of, until
from icl_curate.engine.evaluate.figures import Confusion, confusion
from icl_curate.engine.evaluate.results import EvaluationReport, MethodFigures, Setup, Versus
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import history, undo
from icl_curate.engine.store.demonstrations import fetch, queries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.tabs.evaluate.model import command_for
from icl_curate.tui.tabs.evaluate.tab import EvaluateTab, OutcomeDialog
from icl_curate.tui.widgets.matrix import Matrix
from icl_curate.tui.widgets.plots import Forest, ForestScale, Span
from textual.pilot import Pilot
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")

HOSTILE = " ".join(text for text in TEXTS if len(text) < 100 and "\n" not in text)

QUERIES = 40
METHODS = {"zero": 1, "dense": 1, "ranker": 3}
"""Seeds of each."""


def index(folder: Path, count: int = QUERIES) -> Workspace:
    pool = lines({"input": f"shot {i} {HOSTILE}", "output": "o"} for i in range(6))
    texts = [f"query{i} {HOSTILE} " + ("x" * 999_000 if i == 3 else "") for i in range(count)]
    rows = [{"id": f"q{i}", "input": text, "output": f"o{i % 3}"} for i, text in enumerate(texts)]
    return indexed(folder / "w", pool=pool, **({"test": lines(rows)} if rows else {}))


def record(workspace: Workspace, seed: int) -> dict[tuple[str, int, str], bool | None]:
    """Keep an evaluation with outcomes at random; returns them by method, seed and query (None: a failure)."""
    chance = random.Random(seed)
    asked = queries(workspace, "test", None)
    run = runs.start(workspace, "evaluate", "openai:stub", {})
    outcomes: dict[tuple[str, int, str], bool | None] = {}
    columns: dict[str, list[Any]] = {}
    for method, seeds in METHODS.items():
        for at in range(seeds):
            for query in asked:
                right = chance.choice([True, True, False, None])
                outcomes[method, at, query.id] = right
                said = None if right is None else (query.answers[0] if right else f"wrong {HOSTILE}")
                cells = {
                    "run": run, "method": method, "seed": at, "row": query.row, "demonstrations": [0, 1], "dropped": 0,
                    "answer": said, "failure": "" if said else f"timeout: {HOSTILE}", "correct": right, "f1": 0.5,
                    "state": {None: "failed", True: "right", False: "wrong"}[right],
                    "uncertainty": chance.random(), "tokens_in": 10, "tokens_out": 1,
                }  # fmt: skip
                for name, cell in cells.items():
                    columns.setdefault(name, []).append(cell)
    runs.add_evaluations(workspace, columns)
    runs.finish(workspace, run, "done", report(run, outcomes).summary())
    return outcomes


def report(run: int, outcomes: dict[tuple[str, int, str], bool | None]) -> EvaluationReport:
    right = {name: [bool(o) for (method, _, _), o in outcomes.items() if method == name] for name in METHODS}
    accuracy = {name: sum(marks) / len(marks) for name, marks in right.items()}
    methods = {}
    for name, own in accuracy.items():
        other = "zero" if name == "dense" else "dense"
        methods[name] = MethodFigures(
            accuracy=own,
            std=0.01,
            ci95=(own - 0.1, own + 0.07),
            easy=own / 2,
            hard=None if name == "zero" else own / 3,
            seeds=METHODS[name],
            usage=Usage(len(right[name]), 0, 0, 10 * len(right[name]), 1),
            shots=2.0,
            versus=Versus(other, own - accuracy[other], -0.1, 0.1, 0.01, "mcnemar", 0.01),
        )
    setup = Setup("test", QUERIES, 2, "openai:stub", "labels", "accuracy", "generate", 3, {}, "0")
    return EvaluationReport(run, setup, 11, 29, methods)


def shares(outcomes: dict[tuple[str, int, str], bool | None], method: str) -> dict[str, float | None]:
    """Share of right seeds by query, of those that did not fail; None if all failed."""
    found: dict[str, list[bool]] = {}
    for (name, _, query), right in outcomes.items():
        if name == method:
            found.setdefault(query, []).extend([] if right is None else [right])
    return {query: sum(right) / len(right) if right else None for query, right in found.items()}


def gain(mine: float | None, other: float | None) -> float:
    return 0.0 if mine is None or other is None else mine - other


def test_outcomes_are_shares_of_seeds_with_what_was_lost_first(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    record(workspace, 1)
    truth = record(workspace, 2)
    found = runs.outcomes(workspace, 2, "ranker", "dense")
    mine, others = shares(truth, "ranker"), shares(truth, "dense")
    assert {o.id: o.right for o in found} == pytest.approx(mine)
    assert {o.id: o.other_right for o in found} == others
    gains = [o.gain for o in found]
    assert gains == sorted(gains)
    assert min(gains) < 0 < max(gains)
    for o in found:
        first = truth["ranker", 0, o.id]
        assert (o.answer is None, o.failure != "") == ((True, True) if first is None else (False, False))
        assert first is None or (o.answer == o.wanted) == first
    alone = runs.outcomes(workspace, 2, "ranker")
    assert {(o.gain, o.other_right, o.other_answer) for o in alone} == {(0.0, None, None)}
    assert not runs.outcomes(workspace, 9, "ranker")


def test_runs_methods_and_queries_by_keys(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    first, second = record(workspace, 1), record(workspace, 2)
    begun = runs.start(workspace, "evaluate", "openai:stub", {})
    runs.finish(workspace, begun, "interrupted", {"error": "never shown"})

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        tab = app.query_one(EvaluateTab)
        await until(pilot, lambda: tab.model.shown)

        def scores(name: str) -> list[float]:
            return [getattr(row, name) for _, row in tab.model.rows]

        assert tab.model.run is not None
        assert tab.model.run.report.run == 2
        assert scores("accuracy") == sorted(scores("accuracy"), reverse=True)
        await pilot.press("S")
        assert scores("accuracy") == sorted(scores("accuracy"))
        await pilot.press("h")
        assert tab.model.run.report.run == 1
        assert dict(tab.model.rows)["zero"].accuracy == pytest.approx(
            sum(share or 0.0 for share in shares(first, "zero").values()) / QUERIES  # as `record` has it
        )
        await pilot.press("h")
        assert tab.model.run.report.run == 1 and "there is no older run" in notified(app)
        await pilot.press("l")
        assert tab.model.run.report.run == 2
        await pilot.press("s", "s")  # by hard, where zero has none: it stands last
        assert tab.model.sort == "hard"
        assert tab.model.rows[-1][0] == "zero"
        while tab.model.rows[tab.table.cursor][0] != "ranker":
            await pilot.press("j" if tab.table.cursor < 1 else "k")
        await until(pilot, lambda: tab.model.pair == ("ranker", "dense"))
        mine, others = shares(second, "ranker"), shares(second, "dense")
        for kept in (
            {q for q in mine if gain(mine[q], others[q]) < 0},
            {q for q in mine if gain(mine[q], others[q]) > 0},
            {q for q, share in mine.items() if share is not None and share < 1},
            set(mine),
        ):
            await pilot.press("f")
            await until(pilot, lambda kept=kept: {o.id for o in tab.model.shown} == kept)
        assert f"{sum(gain(mine[q], others[q]) > 0 for q in mine)} won" in text_of(app)
        await pilot.press("o", "enter")
        await until(pilot, lambda: isinstance(app.screen, OutcomeDialog))
        await pilot.pause()
        text = text_of(app)
        assert is_safe(text)
        assert "shown by ranker, best first" in text
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.focused is tab.table)
        await pilot.press("y")
        table = app.clipboard.splitlines()
        assert len(table) == 2 + len(METHODS)
        assert table[-1].startswith("| zero | ")
        assert is_safe(text_of(app))
        await pilot.press("q")

    session(workspace.path, script)
    session(workspace.path, _remembers)


def test_what_was_in_the_prompt_of_a_lost_query_is_pruned_and_corrected_there(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    record(workspace, 1)
    names = [row.id for row in fetch(workspace, [0, 1])]

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab: Any = app.tab
        await settled(pilot)
        await pilot.press("o", "enter")
        await settled(pilot)
        dialog: Any = app.screen
        assert isinstance(dialog, OutcomeDialog) and dialog.table.count == 2
        footer = lines_of(app)[-1]
        assert all(key in footer for key in ("x Prune", "e Relabel", "Inspect", "u Undo", "esc Close"))
        await pilot.press("j", "x")
        await until(pilot, lambda: any("✗" in line and "pruned" in line for line in lines_of(app)))
        await settled(pilot)
        entry = history(workspace)[0]
        assert entry.targets == (names[1],)
        assert entry.reason == f"in review, in the prompt of {tab.model.shown[0].id} ({tab.model.pair[0]}, run 1)"
        assert app.screen is dialog and dialog.table.cursor == 1 and "pruned by" in text_of(app)
        await pilot.press("x")
        await until(pilot, lambda: "pruned already" in notified(app))
        await pilot.press("u")
        await until(pilot, lambda: not any("✗" in line for line in lines_of(app)))
        await settled(pilot)
        await pilot.press("enter", "x")
        await until(pilot, lambda: "pruned by" in text_of(app))
        await pilot.press("escape")
        assert app.screen is dialog and app.focused is dialog.table
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help) and "Prune the demonstration" in text_of(app)
        await pilot.press("escape", "escape")
        assert app.screen is not dialog and app.tab is tab

    (workspace.path / "review.json").write_text(json.dumps({"tab": "evaluate"}))
    for size in ((120, 40), (80, 24)):
        session(workspace.path, script, size)
        undo(workspace)


async def _remembers(app: ReviewApp, pilot: Pilot[None]) -> None:
    tab = app.query_one(EvaluateTab)
    await until(pilot, lambda: tab.model.rows)
    assert (tab.model.sort, tab.model.descending) == ("hard", True)


def test_a_small_terminal_shows_the_whole_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = index(tmp_path)
    monkeypatch.setattr("icl_curate.tui.tabs.evaluate.model.is_stand_in", lambda llm: True)
    record(workspace, 2)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "evaluate")
        assert "offline is not an LLM: these figures say nothing about your LLM" in " ".join(text_of(app).split())

    session(workspace.path, script, (60, 20))


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_small_terminals_keep_the_figures_and_the_queries(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = index(tmp_path)
    record(workspace, 2)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        tab = app.query_one(EvaluateTab)
        await until(pilot, lambda: tab.model.shown)
        await pilot.pause()
        for name, row in tab.model.rows:
            assert f"{row.accuracy:.3f}" in text_of(app)
            assert name in text_of(app)
        await pilot.press("o")
        await until(pilot, lambda: "lost" in text_of(app))
        assert is_safe(text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: f"{tab.model.rows[0][1].accuracy:.3f}" in text_of(app))

    session(workspace.path, script, size)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_the_confusion_of_a_method_and_the_queries_of_a_cell(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = index(tmp_path)
    record(workspace, 2)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        tab = app.query_one(EvaluateTab)
        await until(pilot, lambda: tab.model.shown)
        await pilot.press("c")
        matrix = app.query_one(Matrix)
        await until(pilot, lambda: app.focused is matrix and "answered as" in text_of(app))
        found = confusion(workspace, 1, tab.model.pair[0])
        assert matrix.found == found
        largest = found.cells[0]
        assert matrix.current == (largest.wanted, largest.answer) == (largest.wanted, None)
        shown = text_of(app)
        assert f"{largest.wanted} answered as no label: {largest.count} of " in shown and is_safe(shown)
        for label in ("o0", "o1", "o2"):
            right = found.cell(label, label)
            counts = ["·"] * 3 + [str(sum(c.count for c in found.cells if c.wanted == label and c.answer is None))]
            at = found.labels.index(label)
            counts[at] = str(right.count if right else "·")
            assert any(
                line.split()[:7] == ["abc"[at], label, *counts, str(total(found, label))] for line in lines_of(app)
            )
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is tab.queries)
        assert {one.id for one in tab.model.shown} == set(largest.queries)
        assert "answered as no label" in text_of(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is matrix)
        assert len(tab.model.shown) == QUERIES and matrix.current == (largest.wanted, None)
        row, column = matrix.at
        await pilot.press("h", "j", "k")
        assert matrix.at == (min(row, 1), column - 1)
        await pilot.press("k", "k", "h", "h", "h", "h", "l")  # a label that is never answered for this one
        assert matrix.at == (0, 1)
        await pilot.press("enter")
        await until(pilot, lambda: "no answers in this cell" in notified(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is tab.table and not tab.has_class("-confusing"))
        await pilot.press("c")
        await until(pilot, lambda: app.focused is matrix)
        await pilot.press("o")
        await until(pilot, lambda: app.focused is tab.queries and len(tab.model.shown) == QUERIES)

    session(workspace.path, script, size)


def total(found: Confusion, label: str) -> int:
    return sum(cell.count for cell in found.cells if cell.wanted == label)


def test_open_answers_have_no_confusion(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    record(workspace, 2)
    with workspace.write() as con:
        con.execute('UPDATE runs SET summary = replace(summary, \'"task": "labels"\', \'"task": "open"\')')

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        tab = app.query_one(EvaluateTab)
        await until(pilot, lambda: tab.model.shown)
        await pilot.press("c")
        await until(pilot, lambda: "are not labels" in notified(app))
        assert app.focused is tab.table

    session(workspace.path, script)


def test_without_evaluations_n_proposes_the_first(tmp_path: Path) -> None:
    workspace = index(tmp_path, 1)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        tab = app.query_one(EvaluateTab)
        await until(pilot, lambda: tab.to_copy() and tab in (app.focused or app).ancestors)
        assert tab.to_copy() == "icl-curate evaluate --methods zero,random,bm25,dense"
        await pilot.press("n")
        assert isinstance(app.screen, Start)
        assert app.screen.query_one(Input).value == tab.to_copy().removeprefix("icl-curate ")
        await pilot.press("escape")
        assert app.screen.id == "_default"

    session(workspace.path, script)


def test_the_proposed_comparison_names_what_is_trained() -> None:
    assert command_for(set(), "test") == "evaluate --methods zero,random,bm25,dense"
    assert command_for({"train-ranker", "train-topics", "train-sources"}, "validation") == (
        "evaluate --methods zero,random,bm25,dense,ranker,topick --split validation"
    )


def test_intervals_are_drawn_to_one_scale(tmp_path: Path) -> None:
    spans = [Span("a", 0.2, 0.4, 0.3), Span("bb [/x]", 0.3, 0.8, 0.6), Span("c", 0.55, 0.65, 0.6)]
    look = ForestScale("95 %", (("├", ""), ("┤", "")), level=0.6)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        forest = Forest()
        await app.mount(forest)
        forest.styles.width, forest.styles.height = 90, 5
        await pilot.pause()
        forest.draw(spans, look, 0)
        await pilot.pause()
        *rows, axis = str(forest.render()).split("\n")
        places = [(row.index("├"), row.index("●"), row.index("┤")) for row in rows]
        values = [(span.low, span.mark or 0.0, span.high) for span in spans]
        pairs = [pair for row in zip(values, places, strict=True) for pair in zip(*row, strict=True)]
        (low, first), (high, last) = min(pairs), max(pairs)
        scale = (last - first) / (high - low)
        for value, at in pairs:
            assert abs(first + (value - low) * scale - at) <= 1
        assert rows[0][places[1][1]] == "┊"  # the level stands where 0.6 is marked
        assert axis.startswith(" 95 %")
        for tick in axis[9:].split():
            assert abs(axis.index(tick) + 2 - (first + (float(tick) - low) * scale)) <= 3

    workspace = index(tmp_path, 1)
    session(workspace.path, script)


def test_the_border_between_methods_and_queries_is_moved(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    record(workspace, 1)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab: Any = await go(app, pilot, "evaluate")
        await until(pilot, lambda: tab.queries.count > 0)
        before = tab.queries.outer_size.height
        await pilot.press(*["less_than_sign"] * 4)
        await settled(pilot)
        assert tab.queries.outer_size.height > before
        await pilot.press(*["greater_than_sign"] * 30)
        await settled(pilot)
        assert 0 < tab.queries.outer_size.height < before

    session(workspace.path, script, (120, 40))
