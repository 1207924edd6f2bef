"""Which labels are answered for which: counted again here, from outcomes that are made up."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.copies import indexed, lines
from icl_curate.engine.evaluate.figures import Confusion, ConfusionCell, confusion
from icl_curate.engine.evaluate.results import EvaluationReport, SweepReport
from icl_curate.engine.store import runs
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.workspace import Workspace

LABELS = ("red", "dark red", "blue", "green")
ODD = ("", "no idea", "red or blue", None)
"""Answers that name no label; "dark red" also has the word red, and is not red."""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    rows = [{"id": f"p{i}", "input": f"shot {i} of a kind", "output": LABELS[i % 4]} for i in range(24)]
    asked = [{"id": f"q{i}", "input": f"query {i} of a sort", "output": LABELS[i % 3]} for i in range(30)]
    return indexed(tmp_path / "w", pool=lines(rows), test=lines(asked))


def record(workspace: Workspace, run: int) -> dict[tuple[str, str | None], Counter[str]]:
    """Store answers of two seeds; returns the queries by true label and label named."""
    chance = random.Random(run)
    columns: dict[str, list[Any]] = {}
    wanted: dict[tuple[str, str | None], Counter[str]] = {}
    for seed in range(2):
        for query in queries(workspace, "test", None):
            label = query.answers[0]
            said = chance.choice([*LABELS, *ODD, label, label])
            right = None if said is None else said == label
            named = said if said in LABELS else None
            if said is not None:  # without an answer nothing was confused
                wanted.setdefault((label, named), Counter())[query.id] += 1
            text = f"The answer is: {said.upper()}." if named else said
            cells = {
                "run": run, "method": "bm25", "seed": seed, "row": query.row, "demonstrations": [], "dropped": 0,
                "answer": text, "failure": "" if said is not None else "timeout: x", "correct": right, "f1": None,
                "state": {None: "failed", True: "right", False: "wrong"}[right],
                "uncertainty": None, "tokens_in": 1, "tokens_out": 1,
            }  # fmt: skip
            for name, cell in cells.items():
                columns.setdefault(name, []).append(cell)
    runs.add_evaluations(workspace, columns)
    return wanted


@pytest.mark.parametrize("run", [1, 2, 3])
def test_every_answer_is_counted_once_where_it_belongs(workspace: Workspace, run: int) -> None:
    wanted = record(workspace, run)
    found = confusion(workspace, run, "bm25")
    assert {(c.wanted, c.answer): (c.count, sorted(c.queries)) for c in found.cells} == {
        pair: (counts.total(), sorted(counts)) for pair, counts in wanted.items()
    }
    assert found.answers == sum(counts.total() for counts in wanted.values()) < 60
    assert found.right == sum(counts.total() for (label, named), counts in wanted.items() if label == named)
    wrong = [cell.count for cell in found.cells if not cell.is_right]
    assert wrong == sorted(wrong, reverse=True) and all(cell.is_right for cell in found.cells[len(wrong) :])
    assert confusion(workspace, run, "dense") == Confusion(0, 0, ())


def cell(wanted: str, answer: str | None, count: int) -> ConfusionCell:
    return ConfusionCell(wanted, answer, count, tuple(map(str, range(count))))


FOUND = Confusion(
    30, 13, (cell("b", "c", 6), cell("a", "never", 4), cell("b", None, 4), cell("c", "a", 3), cell("a", "a", 8),
             cell("c", "c", 5)),
)  # fmt: skip


def test_a_matrix_that_is_too_small_keeps_the_largest_confusions_and_every_answer() -> None:
    whole = FOUND.matrix(9)
    assert (whole.labels, whole.wanted, whole.hidden) == (("b", "c", "a", "never"), ("b", "c", "a"), 0)
    assert whole.counts == ((0, 6, 0, 0, 0, 4), (0, 5, 3, 0, 0, 0), (0, 0, 8, 4, 0, 0))
    small = FOUND.matrix(2)
    assert (small.labels, small.wanted, small.hidden) == (("b", "c"), ("b", "c"), 2)
    assert small.counts == ((0, 6, 0, 4), (0, 5, 3, 0))
    flat = FOUND.matrix(9, rows=1)
    assert (flat.labels, flat.wanted, flat.counts) == (("b",), ("b",), ((0, 6, 4),))
    for matrix in (whole, small, flat):
        for label, counts in zip(matrix.wanted, matrix.counts, strict=True):
            assert sum(counts) == sum(one.count for one in FOUND.cells if one.wanted == label)


def test_evaluate_shows_it_and_keeps_it_out_of_what_is_stored(run: Run, workspace: Workspace) -> None:
    words = ("evaluate", "-m", "bm25,zero", "-k", 2, "--limit", 12, "--confusion", "-w", workspace.path)
    done = run(*words, "--json")
    assert done.code == 0, done.err
    told = done.json
    report = EvaluationReport.from_json(told)
    assert set(told["confusion"]) == {"bm25", "zero"} and report.as_json() == {
        key: value for key, value in told.items() if key != "schema_version"
    }
    for name, own in told["confusion"].items():
        assert own["answers"] == sum(one["count"] for one in own["cells"]) == 12
        assert own["right"] / 12 == pytest.approx(told["methods"][name]["accuracy"])
    assert "confusion" not in runs.runs(workspace, "evaluate")[0].summary
    shown = " ".join(run(*words).out.split())
    best = told["confusion"][report.best]
    assert f"{report.best}: {best['right']} of 12 answers right" in shown
    assert all(f" {label} " in shown for label in ("blue", "dark red"))
    assert "confusion" not in run("evaluate", "-m", "zero", "--limit", 2, "-w", workspace.path, "--json").json


def test_a_sweep_shows_it_for_the_best_value(run: Run, workspace: Workspace) -> None:
    words = ("evaluate", "-m", "bm25", "--limit", 12, "--confusion", "--sweep", "k=1,2", "-w", workspace.path)
    report = SweepReport.from_json(run(*words, "--json").json)
    point, best = report.best
    assert point.report.confusion
    right = point.report.confusion[best].right
    shown = " ".join(run(*words).out.split())
    assert f"{best} with k = {point.value}: {right} of 12 answers right" in shown
    assert shown.count("answers right") == 1


def test_answers_that_are_no_labels_have_none(run: Run, workspace: Workspace) -> None:
    with workspace.write() as con:
        con.execute("UPDATE meta SET value = 'open' WHERE key = 'task'")
    done = run("evaluate", "-m", "zero", "--confusion", "-w", workspace.path)
    assert (done.code, done.out) == (2, "") and "answers are labels" in done.err
