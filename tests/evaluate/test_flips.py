"""Who flips from zero to k shots, from outcomes that are made up and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.evaluate.figures import flips
from icl_curate.engine.evaluate.results import EvaluationReport
from icl_curate.engine.store import runs
from icl_curate.engine.store.columns import of_rows
from icl_curate.engine.store.workspace import Workspace

ZERO = (True, True, False, False, None, True)
"""Of six queries: right, wrong, or without an answer."""
DENSE = (True, False, True, False, True, None)
RANDOM = ((False, True, True, False, True, True), (True, True, True, True, True, True))


def record(workspace: Workspace, method: str, seed: int, outcomes: tuple[bool | None, ...]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "run": 1, "method": method, "seed": seed, "row": row, "demonstrations": [], "dropped": 0,
            "answer": None if right is None else "x", "failure": "timeout: x" if right is None else "",
            "state": {None: "failed", True: "right", False: "wrong"}[right],
            "correct": right, "f1": None, "uncertainty": None, "tokens_in": 1, "tokens_out": 1,
        }
        for row, right in enumerate(outcomes)
    ]  # fmt: skip
    runs.add_evaluations(workspace, of_rows(rows))


def test_queries_that_both_answered_are_counted_and_seeds_are_averaged(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    record(workspace, "zero", 0, ZERO)
    record(workspace, "dense", 0, DENSE)
    for seed, outcomes in enumerate(RANDOM):
        record(workspace, "random", seed, outcomes)
    record(workspace, "bm25", 0, (None,) * 6)
    found = flips(workspace, 1, ["zero", "random", "dense", "bm25"])
    assert list(found) == ["random", "dense"]
    dense, random = found["dense"], found["random"]
    assert (dense.queries, dense.easy, dense.hard) == (4, 2, 2)  # the fifth and sixth were answered only once
    assert (dense.turned_right, dense.turned_wrong, dense.changed, dense.hard_share) == (1, 1, 0.5, 0.5)
    assert (random.queries, random.easy, random.hard) == (5, 3, 2)
    assert (random.turned_right, random.turned_wrong) == (1.5, 0.5)
    assert random.changed == pytest.approx(2 / 5) and random.hard_share == pytest.approx(0.75)
    assert 0 <= random.ci95[0] < random.changed < random.ci95[1] <= 1


def test_evaluate_shows_them_and_asks_nothing_more(run: Run, support: Path) -> None:
    words = ("evaluate", "-m", "bm25,zero", "-k", 2, "--limit", 20, "-w", support)
    plain = run(*words, "--json").json
    assert "flips" not in plain
    told = run(*words, "--flips", "--json").json
    report = EvaluationReport.from_json(told)
    assert report.flips is not None and set(report.flips) == {"bm25"}
    own = report.flips["bm25"]
    assert (own.easy, own.hard) == (report.easy_queries, report.hard_queries)
    before, after = (told["methods"][name]["accuracy"] * 20 for name in ("zero", "bm25"))
    assert before + own.turned_right - own.turned_wrong == pytest.approx(after)
    assert told["methods"]["bm25"]["cached_calls"] == told["methods"]["bm25"]["calls"] == 20
    shown = run(*words, "--flips").out
    assert f"{own.turned_right:.0f} of {own.hard}" in shown and f"{own.turned_wrong:.0f} of {own.easy}" in shown
    assert "flips" not in runs.runs(Workspace.open(support), "evaluate")[0].summary
