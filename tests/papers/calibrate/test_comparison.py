"""LLMs side by side on a split, from stored calibrations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories.calibrate_world import SCRIPT, SETTINGS, Scripted, ScriptedAnswer, workspace_of
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.reports import comparison
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.store.workspace import Workspace

BETTER: dict[tuple[str, object], ScriptedAnswer] = {**SCRIPT, ("capital", 0): ("Oslo", 0.95)}


def calibrated(workspace: Workspace, name: str, script: dict[tuple[str, object], ScriptedAnswer], count: int) -> None:
    backend = Scripted(script)
    backend.spec = name
    plan = CalibrationPlan(rounds=3, split="validation", arms=("full", "plain"))
    asked = queries_of(workspace, "validation", count)
    Calibration.prepare(LLMClient(workspace, backend, replace(SETTINGS, llm=name)), asked, plan).ask(Budget())


def test_each_llm_is_compared_with_the_first_on_the_queries_of_both(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w")
    with pytest.raises(UsageError, match="no validation queries have been calibrated"):
        comparison(workspace, "validation")
    calibrated(workspace, "base", dict(SCRIPT), 1)
    calibrated(workspace, "tuned", BETTER, 2)
    calibrated(workspace, "base", dict(SCRIPT), 2)  # the latest run counts, but the order stays
    found = comparison(workspace, "validation")
    assert [(row.llm, row.arm, row.run, row.queries, row.rounds) for row in found.runs] == [
        ("base", "full", 3, 2, 3),
        ("base", "plain", 3, 2, 3),
        ("tuned", "full", 2, 2, 3),
        ("tuned", "plain", 2, 2, 3),
    ]
    base, plain, tuned, _ = found.runs
    assert (base.first.accuracy, base.final.accuracy, tuned.first.accuracy) == (0.5, 1.0, 1.0)
    assert base.first.versus is None
    assert base.final.versus
    assert (base.final.versus.arm, base.final.versus.difference) == ("base", 0.5)
    assert plain.first.versus  # another row of the same LLM: no difference to itself
    assert plain.first.versus.difference == 0.0
    assert tuned.first.versus
    assert (tuned.first.versus.difference, tuned.first.f1) == (0.5, 1.0)
    with pytest.raises(UsageError):
        comparison(workspace, "test")
