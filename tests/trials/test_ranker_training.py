"""Learning the ranker from single demonstrations asked alone: the exact gradient, and what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.ranker_world import Scripted, make_world, with_k
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.policy import Candidates, Policy
from icl_curate.engine.trials.ranker_training import exact_credit
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining
from icl_curate.render.learned import show_ranker

FREE = RankerPlan(trials=40, epochs=0, rate=3e-3)


@pytest.fixture
def tried(tmp_path: Path) -> Workspace:
    world = make_world(tmp_path / "w", pool=240, validation=60, test=60)
    with world.write() as con:
        con.execute("UPDATE demonstrations SET source = 'half ' || row % 2 WHERE split = 'pool'")
    SourceTraining.prepare(LLMClient(world, Scripted(), with_k(5)), SourcePlan(depth=20)).ask(Budget())
    return world


def test_the_credit_is_the_gradient_of_the_expected_reward() -> None:
    rng = np.random.default_rng(0)
    policy = Policy(rng.normal(size=(3, 4)), rng.normal(size=3))
    present = np.array([[True] * 5, [True] * 3 + [False] * 2])
    seen = Candidates(rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 4)), present)
    rewards = np.where(present, rng.choice([-1.0, 1.0], size=(2, 5)), 0.0)

    def value(weight: Any) -> float:
        return float((Policy(weight, policy.bias).scores(seen) * rewards).sum())

    _, gradient, _ = policy.loss(seen, exact_credit(policy.scores(seen), rewards))
    for at in np.ndindex(3, 4):
        moved = np.zeros((3, 4))
        moved[at] = 1e-6
        slope = (value(policy.weight + moved) - value(policy.weight - moved)) / 2e-6
        assert gradient[at] == pytest.approx(-slope, rel=1e-5, abs=1e-8)


def test_it_asks_nothing_and_beats_its_own_start(tried: Workspace) -> None:
    backend = Scripted()
    training = RankerTraining.prepare(LLMClient(tried, backend, with_k(3)), FREE)
    assert training.cost().requests == 0
    metrics = training.ask(Budget()).metrics
    assert not backend.asked
    assert metrics.trials is not None and len(metrics.trials) == 41
    assert max(metrics.trials) > metrics.trials[0] + 0.2
    plan = EvaluationPlan(methods=("ranker", "ranker-untrained"), seeds=1)
    found = Evaluation.prepare(LLMClient(tried, Scripted(), with_k(3)), plan).ask(Budget()).methods
    assert found["ranker"].accuracy > found["ranker-untrained"].accuracy + 0.1


def test_held_out_queries_choose_the_pass_only(tried: Workspace) -> None:
    training = RankerTraining.prepare(LLMClient(tried, Scripted(), with_k(3)), FREE)
    policy = training.core.start()
    whole = training.core.learn_trials(policy)
    held_out = {training.core.queries[i].row for i in training.core.held_out}
    for each in training.core.tried:
        if each.query in held_out:
            each.rewards[:] *= -1
    turned = training.core.learn_trials(policy)
    assert turned.values == pytest.approx([-value for value in whole.values])
    assert (whole.values[whole.best], turned.values[turned.best]) == (max(whole.values), max(turned.values))


def test_trials_of_another_llm_are_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", pool=120, validation=30, test=1)
    with pytest.raises(UsageError, match="no trials of scripted"):
        RankerTraining.prepare(LLMClient(world, Scripted(), with_k(3)), FREE)


def test_the_pass_kept_is_told_and_no_figure_where_no_query_judges(
    tried: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    judged, unjudged = (
        RankerTraining.prepare(LLMClient(tried, Scripted(), with_k(3)), replace(FREE, held_out=share)).ask(Budget())
        for share in (0.2, 0.0)
    )
    values = judged.metrics.trials
    assert values is not None and judged.metrics.kept_pass is not None
    assert values[judged.metrics.kept_pass] == max(values)
    assert (unjudged.metrics.kept_pass, unjudged.metrics.trials) == (FREE.trials, ())
    for done, expected in ((judged, f"at best {max(values):+.3f}"), (unjudged, "no held-out query was tried")):
        show_ranker(done)
        shown = " ".join(capsys.readouterr().out.split())
        assert expected in shown and f"pass {done.metrics.kept_pass} kept" in shown
        assert "epoch 0" not in shown and "held-out accuracy" not in shown
