"""Paid evidence by row, with an LLM that says what the test lets it say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.asked_world import GENERATES, SCORES, Scripted
from factories.commands import Run
from factories.truth import true_outputs
from icl_curate.engine.base.errors import BudgetError, UsageError
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.ask import RowPlan, RowTraining
from icl_curate.engine.checks.evidence import PoolEvidence, row_evidence
from icl_curate.engine.checks.results import RowRun
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.demonstrations import groups
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from sklearn.metrics import average_precision_score

SETTINGS, PLAN = Settings(k=3), RowPlan()


def _training(workspace: Workspace, backend: Scripted, plan: RowPlan = PLAN, **more: Any) -> RowTraining:
    return RowTraining.prepare(LLMClient(workspace, backend, replace(SETTINGS, **more)), plan)


def _precision(found: PoolEvidence) -> float:
    return float(average_precision_score([true_outputs()[row.id] != row.output for row in found.rows], _bad(found)))


def _bad(found: PoolEvidence) -> list[float]:
    return [row.posterior for row in found.rows]


def test_each_row_is_asked_once_with_others_and_what_is_said_is_evidence(support: Path) -> None:
    workspace = Workspace.open(support)
    truth, draw = true_outputs(), np.random.default_rng(0)

    def say(request: Request) -> str:
        return truth[request.prompt.query.id] if draw.random() < 0.8 else "login_problem"

    before = _precision(row_evidence(ActivePool(workspace, SETTINGS)))
    backend = Scripted(say)
    training = _training(workspace, backend)
    group = groups(workspace)
    for row, shown in zip(training.rows, training.shown, strict=True):
        assert len(shown) == 3 and group[row.row] not in group[shown]
    assert training.cost().requests == 1200
    with pytest.raises(BudgetError):
        training.ask(Budget(max_calls=5))
    done = training.ask(Budget())
    asked = len(backend.asked)
    assert done.usage.calls == done.metrics.rows == 1200 and done.metrics.scored == 0 and 1100 < asked <= 1200
    assert 0.4 < (done.metrics.right or 0) < 0.65
    assert RowRun.from_json(runs.runs(workspace, trials.ROWS)[0].summary) == done
    found = row_evidence(ActivePool(workspace, SETTINGS))
    assert "own" in found.kinds and _precision(found) > before
    assert done.metrics.suspects == len(found.suspects()) and all(row.counts["own_asked"] == 1 for row in found.rows)
    answers = trials.latest_answers(workspace, False)
    said = dict(zip(answers.rows.tolist(), answers.answers, strict=True))
    parts: dict[str, list[float]] = {"own": [], "another": [], "often": []}
    for row in found.rows:
        kind = "own" if row.counts["own_right"] else "often" if said[row.row] == "login_problem" else "another"
        parts[kind].append(row.parts["own"])
    judged = [part for part in parts["another"] if part]  # not of a class too small to be judged
    assert max(parts["own"]) < 0 < min(judged) and len(judged) > 250
    assert np.abs(parts["often"]).mean() < np.mean(judged) / 2, "it is said for many labels"
    assert _training(workspace, backend).ask(Budget()).usage.cached_calls == 1200 and len(backend.asked) == asked


def test_a_limit_draws_rows_by_seed_or_takes_the_most_suspect(support: Path) -> None:
    workspace = Workspace.open(support)
    backend = Scripted(lambda _: "login_problem")
    drawn = [[row.row for row in _training(workspace, backend, RowPlan(limit=40), seed=s).rows] for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 40
    worst = row_evidence(ActivePool(workspace, SETTINGS)).suspects(0.0)[:40]
    first = _training(workspace, backend, RowPlan(limit=40, suspects_first=True))
    assert [row.row for row in first.rows] == [row.row for row in worst]
    with pytest.raises(UsageError, match="cannot rank"):
        _training(workspace, backend, RowPlan(ranking="colour"))
    assert not backend.asked
    first.ask(Budget())
    again = _training(workspace, backend, RowPlan(limit=40, suspects_first=True))
    assert again.requests == first.requests, "what they answered chooses no other rows"


THINGS = ["stone", "river", "cloud", "ember", "grove", "island", "harbour", "meadow", "canyon", "glacier"]
PLACES = ["north", "south", "east", "west", "coast", "hill", "valley", "plain", "forest", "desert", "lake", "cave"]


def _open_pool(folder: Path) -> Workspace:
    rows = [
        {
            "id": f"r{i}", "input": f"Where does the {thing} of the {place} lie?", "source": "ab"[i % 2],
            "output": "nobody can say" if i % 6 == 0 else f"beyond the {thing}, near the {place}",
        }
        for i, (thing, place) in enumerate((thing, place) for thing in THINGS for place in PLACES)
    ]  # fmt: skip
    (folder / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    workspace = Workspace.create(folder / "w")
    index_pool(workspace, IndexPlan(paths=(str(folder / "pool.jsonl"),), near_duplicate=1.0))
    return workspace


@pytest.mark.parametrize("scores", [True, False])
def test_free_text_is_judged_by_its_likelihood_or_by_the_words_it_shares(tmp_path: Path, scores: bool) -> None:
    workspace = _open_pool(tmp_path)
    draw = np.random.default_rng(1)

    def say(request: Request) -> str | Result:
        (query,) = (request.prompt.query,)
        if not request.score:
            thing, place = query.input.split()[3], query.input.split()[6]
            return f"near the {place}" if draw.random() < 0.7 else f"over the {thing}"
        assert request.prompt.choices == query.answers
        likely = -4.0 if "nobody" in query.answers[0] else -1.5
        return Answer(query.answers[0], option_logprobs=((likely + draw.normal(), likely),), tokens_in=1)

    training = _training(workspace, Scripted(say, SCORES if scores else GENERATES), RowPlan(ranking="bm25"))
    done = training.ask(Budget())
    assert done.metrics.scored == (120 if scores else 0)
    assert (done.metrics.right is None) is scores, "the row's own output is the only choice"
    kept = trials.latest_answers(workspace, zero_shot=False)
    assert len(kept.rows) == 120 and not np.isnan(kept.scores).any() and len(kept.shown[0]) == 3
    found = row_evidence(ActivePool(workspace, SETTINGS))
    assert found.kinds == ("source", "match", "own")  # the shared answer recurs: match says nothing of it
    wrong = np.array([row.output == "nobody can say" for row in found.rows])
    assert average_precision_score(wrong, _bad(found)) > 0.9
    assert np.array(_bad(found))[wrong].min() > np.median(np.array(_bad(found))[~wrong])


def test_the_command_says_what_it_costs_and_what_it_found(support: Path, run: Run) -> None:
    planned = run("train", "rows", "--limit", "50", "-w", support, "--dry-run", "--json").json
    assert planned["requests"] == 50 and planned["to_ask"] > 0
    assert "answers of offline" in run("train", "rows", "--limit", "50", "-w", support).out
    told = run("suspects", "-w", support, "--json").json["demonstrations"]
    asked = next(row for row in told if "own" in row["parts"])
    shown = run("suspects", "show", asked["id"], "-w", support).out
    assert "own " in shown and f"likely to hurt: {asked['posterior']:.3f}" in shown


def test_topics_leave_their_zero_shot_answers_as_evidence(support: Path, run: Run) -> None:
    arguments = ("--questions", "30", "--epochs", "1", "--sample", "100", "--no-llm-topics")
    assert run("train", "topics", *arguments, "-w", support).code == 0
    workspace = Workspace.open(support)
    kept = trials.latest_answers(workspace, zero_shot=True)
    assert len(kept.rows) == 30 and not any(kept.shown) and np.isnan(kept.scores).all()
    found = row_evidence(ActivePool(workspace, SETTINGS))
    assert "zero-shot" in found.kinds and sum(row.counts["zero_shot_asked"] for row in found.rows) == 30
    assert not len(trials.latest_answers(workspace, zero_shot=False).rows)


def test_shots_are_rows_that_nothing_speaks_against(support: Path) -> None:
    workspace = Workspace.open(support)
    suspects = {row.row for row in row_evidence(ActivePool(workspace, SETTINGS)).suspects()}
    training = _training(workspace, Scripted(lambda _: "login_problem"))
    assert len(suspects) > 300 and not suspects & {row for shown in training.shown for row in shown}
