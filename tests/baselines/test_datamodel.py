"""Datamodels: who is drawn, effects against least squares with a dummy for each query, and planted faults found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.asked_world import SCORES, Scripted
from factories.commands import Run
from factories.truth import is_wrong
from icl_curate.engine.base.errors import BudgetError, UsageError
from icl_curate.engine.baselines.datamodel import DatamodelPlan, DatamodelTraining, source_effects
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.evidence import row_effects, row_evidence
from icl_curate.engine.checks.results import DatamodelRun
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Request
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.decisions import relabel
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import PromptTrials
from icl_curate.engine.store.workspace import Workspace
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score

SETTINGS = Settings(llm="offline", k=3)
PLAN = DatamodelPlan(prompts=14, candidates=21, limit=40)


def _training(workspace: Workspace, backend: Scripted, plan: DatamodelPlan = PLAN, **more: Any) -> DatamodelTraining:
    backend.capabilities = SCORES
    return DatamodelTraining.prepare(LLMClient(workspace, backend, replace(SETTINGS, **more)), plan)


def _simulated(seed: int, effect: float = 0.1, prompts: int = 30) -> tuple[PromptTrials, dict[int, str], set[int]]:
    """Prompts of 3 out of 12 rows for each of 40 queries; rows of ``bad`` lower the accuracy by ``effect``."""
    draw = np.random.default_rng(seed)
    source_of = {row: "abc"[row % 3] for row in range(60)}
    bad = {row for row in range(60) if row % 3 == 2 or (row % 3 == 1 and row % 2)}
    asked, shown, right = [], [], []
    for query in range(40):
        easy, rows = draw.uniform(0.4, 0.9), draw.permutation(60)[:12]
        for _ in range(prompts):
            chosen = draw.permutation(rows)[:3].tolist()
            asked.append(query)
            shown.append(chosen)
            right.append(draw.random() < easy - effect * len(bad.intersection(chosen)))
    return PromptTrials(1, np.array(asked), shown, np.array(right)), source_of, bad


def test_effects_of_sources_are_least_squares_with_a_dummy_for_each_query() -> None:
    found, source_of, _ = _simulated(0)
    effects = source_effects(found, source_of)
    counts = np.array([[sum(source_of[row] == name for row in rows) for name in "abc"] for rows in found.shown], float)
    dummies = (found.queries[:, None] == np.arange(40)).astype(float)
    design = np.column_stack([counts[:, :2], dummies])  # the third source is what the others are compared with
    beta, *_ = np.linalg.lstsq(design, found.right.astype(float), rcond=None)
    share = counts.sum(axis=0) / counts.sum()
    raw = np.array([beta[0], beta[1], 0.0])
    wanted = raw - share @ raw
    assert [effects[name].effect for name in "abc"] == pytest.approx(wanted.tolist())
    assert [effects[name].shown for name in "abc"] == counts.sum(axis=0).tolist()
    assert effects["a"].effect > effects["b"].effect > effects["c"].effect


def test_values_between_0_and_1_are_regressed_as_they_are() -> None:
    found, source_of, bad = _simulated(0)
    draw, hurts = np.random.default_rng(1), np.array([len(bad.intersection(shown)) for shown in found.shown])
    values = np.clip(0.7 - 0.1 * hurts + draw.normal(0, 0.05, len(hurts)), 0, 1)
    graded = replace(found, right=values >= 0.99, grades=values)
    counts = np.array([[sum(source_of[row] == name for row in rows) for name in "abc"] for rows in found.shown], float)
    design = np.column_stack([counts[:, :2], (found.queries[:, None] == np.arange(40)).astype(float)])
    beta, *_ = np.linalg.lstsq(design, values, rcond=None)
    share = counts.sum(axis=0) / counts.sum()
    wanted = np.array([beta[0], beta[1], 0.0]) - share @ np.array([beta[0], beta[1], 0.0])
    assert [effect.effect for effect in source_effects(graded, source_of).values()] == pytest.approx(wanted.tolist())
    effects = row_effects(graded, np.arange(60))
    assert average_precision_score([row in bad for row in range(60)], -effects) > 0.95


def test_errors_of_sources_are_those_of_simulations() -> None:
    drawn = [source_effects(*_simulated(seed, prompts=10)[:2]) for seed in range(150)]
    for name in "abc":
        values = np.array([each[name].effect for each in drawn])
        errors = np.array([each[name].error for each in drawn])
        assert np.sqrt((errors**2).mean()) == pytest.approx(values.std(ddof=1), rel=0.2)
    covered = [low <= -0.05 <= high for low, high in (each["c"].interval for each in drawn)]
    assert 0.85 <= np.mean(covered) <= 0.99, "the true effect of c: its rows are all bad, on average half of them are"


def test_effects_of_rows_are_a_ridge_regression_and_rank_the_bad_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icl_curate.engine.checks.evidence.PENALTIES", np.array([5.0]))
    found, _, bad = _simulated(1)
    rows = np.arange(0, 61)
    effects = row_effects(found, rows)
    x = np.array([[float(row in shown) for row in rows] for shown in found.shown])
    right = found.right.astype(float)
    rest = np.empty(len(right))
    for i, query in enumerate(found.queries):
        others = np.delete(right[found.queries == query], np.flatnonzero(found.queries[: i + 1] == query).size - 1)
        rest[i] = right[i] - (others.sum() + 2 * right.mean()) / (len(others) + 2)
    wanted = Ridge(alpha=5.0, fit_intercept=False, tol=1e-10).fit(x, rest).coef_
    assert effects[:60] == pytest.approx(wanted[:60], abs=1e-4) and np.isnan(effects[60])
    assert average_precision_score([row in bad for row in range(60)], -effects[:60]) > 0.75
    part = row_effects(found, np.arange(0, 60, 2))
    assert np.isfinite(part).all() and part.shape == (30,)


def test_every_candidate_is_drawn_before_any_is_drawn_again(support: Path) -> None:
    workspace = Workspace.open(support)
    training = _training(workspace, Scripted(lambda _: "login_problem"))
    ranked = PoolView(workspace, SETTINGS).dense_top(queries(workspace, "validation", 40), 21)
    assert len(training.subsets) == 40 * 14 == training.cost().requests
    for place in range(40):
        own = [rows.tolist() for at, rows in training.subsets if at == place]
        order = {row: i for i, row in enumerate(ranked[place][0].tolist())}
        assert all(len(set(rows)) == 3 and rows == sorted(rows, key=order.__getitem__) for rows in own)
        for half in (own[:7], own[7:]):
            assert sorted(row for rows in half for row in rows) == sorted(order), "7 prompts of 3 show all 21"
    same = _training(workspace, Scripted(lambda _: "login_problem"))
    other = _training(workspace, Scripted(lambda _: "login_problem"), seed=1)
    drawn = [[rows.tolist() for _, rows in each.subsets] for each in (training, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_rows_that_hurt_in_prompts_are_found_and_relabelling_one_takes_its_prompts_back(support: Path) -> None:
    workspace = Workspace.open(support)
    draw = np.random.default_rng(0)

    def say(request: Request) -> str:
        wrong = sum(is_wrong()[shot.id] for shot in request.prompt.demonstrations)
        return request.prompt.query.answers[0] if draw.random() < 0.9 - 0.25 * wrong else "nothing"

    def precision() -> float:
        found = row_evidence(ActivePool(workspace, SETTINGS))
        posterior = [row.posterior for row in found.rows]
        return float(average_precision_score([is_wrong()[row.id] for row in found.rows], posterior))

    before = precision()
    training = _training(workspace, Scripted(say), DatamodelPlan(prompts=20, candidates=30, limit=80))
    with pytest.raises(BudgetError):
        training.ask(Budget(max_calls=5))
    assert trials.latest_prompts(workspace) is None
    done = training.ask(Budget())
    assert done.metrics.prompts == done.usage.calls == 80 * 20 and done.metrics.queries == 80
    assert DatamodelRun.from_json(runs.runs(workspace, trials.PROMPTS)[0].summary) == done
    ranked = sorted(done.metrics.sources, key=lambda name: done.metrics.sources[name].effect)
    assert set(ranked[:2]) == {"archive_2019", "community_forum"} and set(ranked[-2:]) == {
        "helpdesk_team",
        "crm_export",
    }
    found = row_evidence(ActivePool(workspace, SETTINGS))
    assert "prompts" in found.kinds and precision() > before
    row = next(each for each in found.rows if each.counts["prompts"] and each.output != "refund_request")
    relabel(workspace, {row.id: "refund_request"})
    left = trials.latest_prompts(workspace)
    assert left is not None and len(left.shown) == 1600 - row.counts["prompts"]


def test_what_cannot_be_fitted_is_refused(support: Path, run: Run) -> None:
    workspace, backend = Workspace.open(support), Scripted(lambda _: "login_problem")
    with pytest.raises(UsageError, match="need more than 3 candidates"):
        _training(workspace, backend, replace(PLAN, candidates=3))
    with pytest.raises(UsageError, match="cannot rank"):
        _training(workspace, backend, replace(PLAN, ranking="random"))
    assert "--candidates" in run("train", "datamodel", "--candidates", "5", "-w", str(support)).err
    assert run("train", "datamodel", "--limit", "4", "-b", "2", "--dry-run", "-w", str(support)).code == 0
