"""Figures by a field of the queries, against the stored outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from factories.asked_world import Scripted, make_world
from factories.asked_world import evaluation as of_world
from factories.commands import Run
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import EvaluationReport, QueryGroups, SweepReport
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    pool = [{"id": f"p{i}", "input": f"what is thing {i}", "output": f"word {i}"} for i in range(6)]
    kinds = ("easy", "hard", "hard", None)
    test = [
        {"id": f"q{i}", "input": f"which is {i}", "output": f"word {i}"} | ({"kind": kind} if kind else {})
        for i, kind in enumerate(kinds)
    ]
    return make_world(tmp_path / "w", pool, test)


def test_each_group_has_the_figures_of_its_queries(world: Workspace, run: Run) -> None:
    def say(request: object) -> str:
        prompt = request.prompt  # type: ignore[attr-defined]
        number = prompt.query.id[1:]
        right = number == "0" or (number == "1" and prompt.demonstrations)
        return f"word {number}" if right else "word and more"

    made = of_world(world, Scripted(say))
    plan = EvaluationPlan(methods=("bm25", "zero", "random"), seeds=2, by="kind")
    report = Evaluation.prepare(made.llm, plan).ask(Budget())
    found = report.by
    assert found and found.field == "kind" and [*found.groups] == ["(none)", "easy", "hard"]
    assert [(group.queries, group.easy) for group in found.groups.values()] == [(1, 0), (1, 1), (2, 0)]
    assert [*found.groups["hard"].methods] == ["bm25", "zero", "random"]
    assert [found.groups[value].methods["bm25"].accuracy for value in found.groups] == [0, 1, 0.5]
    assert [found.groups[value].methods["zero"].accuracy for value in found.groups] == [0, 1, 0]
    assert found.groups["hard"].methods["random"].ci95 == (0, 1)
    assert found.groups["(none)"].methods["bm25"].f1 == pytest.approx(0.4)  # word: 1 of 4 and of 2 tokens shared
    for name, figures in report.methods.items():
        groups = found.groups.values()
        whole = np.average([g.methods[name].accuracy for g in groups], weights=[g.queries for g in groups])
        assert figures.accuracy == pytest.approx(whole)
    assert EvaluationReport.from_json(report.as_json()) == report


def test_the_command_prints_them_or_names_the_fields(run: Run, world: Workspace) -> None:
    words = ("evaluate", "-m", "bm25", "-k", 1, "-w", world.path)
    told = run(*words, "--by", "kind", "--json").json
    assert isinstance(QueryGroups(told["by"]["field"], {}), QueryGroups) and set(told["by"]["groups"]) == {
        "easy", "hard", "(none)"
    }  # fmt: skip
    shown = run(*words, "--by", "kind").out
    assert "By kind" in shown and "(none)" in shown and "F1" in shown
    swept = run(*words, "--by", "kind", "--sweep", "k=1,2")
    assert "By kind with k = 1" in swept.out and "By kind with k = 2" in swept.out
    points = SweepReport.from_json(run(*words, "--by", "kind", "--sweep", "k=1,2", "--json").json).points
    assert all(point.report.by for point in points)
    refused = run(*words, "--by", "nothing")
    assert refused.code == 2 and "no query has a field 'nothing'" in refused.err and "kind" in refused.err
