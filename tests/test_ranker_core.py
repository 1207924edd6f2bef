"""The ranker: its loss and gradient, its threshold traced by hand, and a scripted world whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icl_curate.engine.errors import Cancelled, UsageError
from icl_curate.engine.index.view import PoolView
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.progress import CancelToken
from icl_curate.engine.ranker.ledger import flips_of, ledger
from icl_curate.engine.ranker.policy import Candidates, Policy, load
from icl_curate.engine.ranker.ranked import candidates_for, folder_of, import_ranker, rank
from icl_curate.engine.ranker.rollout import Rollout, allowed_shots, stepwise_credit, threshold_after
from icl_curate.engine.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.store.demonstrations import fetch, queries
from icl_curate.engine.store.workspace import Workspace
from ranker_world import SETTINGS, Scripted, make_world, with_k


def _candidates(seed: int) -> tuple[Candidates, np.ndarray]:
    rng = np.random.default_rng(seed)
    present = np.ones((3, 4), np.bool_)
    present[2, 3] = False
    credit = np.array([[1.0, -1, 0, 0], [0, 1, 1, 0], [-1, 0, 0, 0]])
    return Candidates(rng.normal(size=(3, 5)), rng.normal(size=(3, 4, 5)), present), credit


def test_the_loss_and_its_gradient_are_autograds() -> None:
    candidates, credit = _candidates(0)
    policy = Policy.fresh(5, seed=1, outputs=3)
    loss, by_weight, by_bias = policy.loss(candidates, credit)
    weight = torch.tensor(policy.weight, requires_grad=True)
    bias = torch.tensor(policy.bias, requires_grad=True)
    hidden = torch.tensor(candidates.queries) @ weight.T + bias
    shots = torch.tensor(candidates.vectors) @ weight.T + bias
    logits = torch.einsum("qp,qcp->qc", hidden, shots).masked_fill(~torch.tensor(candidates.present), -torch.inf)
    shares = torch.log_softmax(logits, 1)
    wanted = -(torch.tensor(credit) * shares.masked_fill(~torch.tensor(candidates.present), 0.0)).sum()
    wanted.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert bias.grad is not None
    assert loss == pytest.approx(wanted.item())
    assert by_weight == pytest.approx(weight.grad.numpy(), abs=1e-12)
    assert by_bias == pytest.approx(bias.grad.numpy(), abs=1e-12)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    candidates, credit = _candidates(2)
    policy = Policy.fresh(5, seed=3, outputs=3)
    _, by_weight, _ = policy.loss(candidates, credit)
    for i, j in ((0, 0), (1, 4), (2, 2)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = policy.weight.copy()
            moved[i, j] += step
            ends.append(Policy(moved, policy.bias).loss(candidates, credit)[0])
        assert by_weight[i, j] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_the_threshold_follows_turns_from_right_to_wrong_by_hand() -> None:
    first = Rollout(np.array([4, 0, 2]), np.array([0.5, 0.3, 0.1]), (-1, 1, -1, 1))  # the second shot hurt: 0.3
    second = Rollout(np.array([1, 3]), np.array([0.6, 0.2]), (1, 1, -1))  # the second shot hurt: 0.2
    third = Rollout(np.array([2]), np.array([0.9]), (-1, -1))  # wrong stays wrong: no turn
    assert threshold_after(0.05, [first]) == 0.3
    assert threshold_after(0.05, [first, second, third]) == 0.2
    assert threshold_after(0.05, [third]) == 0.05
    assert stepwise_credit([first, third], 5).tolist() == [[-1, 0, 1, 0, 1], [0, 0, -1, 0, 0]]
    scores = np.array([[0.5, 0.3, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])
    assert allowed_shots(scores, 0.0, 3).tolist() == [3, 3]
    assert allowed_shots(scores, 0.25, 3).tolist() == [2, 0]


def _run(workspace: Workspace, backend: Scripted, plan: RankerPlan | None = None, **settings: Any) -> dict[str, Any]:
    cancel = backend.cancel or CancelToken()
    return RankerTraining(workspace, backend, with_k(5, **settings), plan or RankerPlan(), cancel=cancel).run(Budget())


def _weights(workspace: Workspace, run: int) -> Policy:
    return load(folder_of(workspace, run))[0]


def test_batch_0_takes_300_shots_and_promptpg_100_a_batch(tmp_path: Path) -> None:
    workspace = make_world(tmp_path / "w", pool=120, validation=60, test=5)
    done = _run(workspace, Scripted(), RankerPlan(epochs=1))["metrics"]
    assert (done["batches"][0]["sigma"], done["batches"][0]["shots"]) == (0.0, 20 * (1 + 2 + 3 + 4 + 5))
    other = _run(workspace, Scripted(), RankerPlan("promptpg", epochs=1))["metrics"]
    full = [batch["shots"] for batch in other["batches"][:-1]]
    assert full
    assert set(full) == {100}


def test_concurrency_changes_nothing(tmp_path: Path) -> None:
    learnt = []
    for name, in_flight in (("one", 1), ("many", 64)):
        workspace = make_world(tmp_path / name, pool=120, validation=60, test=5)
        done = _run(workspace, Scripted(in_flight), RankerPlan(epochs=2), concurrency=in_flight)
        learnt.append((_weights(workspace, done["run"]), done["metrics"]["batches"]))
    (one, batches), (many, others) = learnt
    assert np.array_equal(one.weight, many.weight)
    assert [b["sigma"] for b in batches] == [b["sigma"] for b in others]


def test_a_run_stopped_in_mid_epoch_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    whole = make_world(tmp_path / "whole", pool=120, validation=60, test=5)
    straight = Scripted()
    wanted = _weights(whole, _run(whole, straight, RankerPlan(epochs=2))["run"])
    halted = make_world(tmp_path / "halted", pool=120, validation=60, test=5)
    first = Scripted(8, CancelToken(), stop_after=150)
    with pytest.raises(Cancelled):
        _run(halted, first, RankerPlan(epochs=2))
    second = Scripted()
    done = _run(halted, second, RankerPlan(epochs=2))
    assert np.array_equal(_weights(halted, done["run"]).weight, wanted.weight)
    asked = [prompt.text for prompt in (*first.asked, *second.asked)]
    assert len(asked) == len(set(asked)) == len(straight.asked)
    assert 0 < len(second.asked) < len(straight.asked)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Any]]:
    workspace = make_world(tmp_path_factory.mktemp("world") / "w", visible=1.0)
    return workspace, _run(workspace, Scripted(), RankerPlan(epochs=6, rate=3e-3, patience=6))


def test_it_learns_to_prefer_what_helps(world: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, _ = world
    view = PoolView(workspace, SETTINGS)
    asked = queries(workspace, "test")

    def share(lists: list[np.ndarray], kind: str) -> float:
        rows = np.concatenate([np.asarray(rows)[:3] for rows in lists])
        return float(np.mean([shot.id.startswith(kind) for shot in fetch(workspace, rows)]))

    chosen = [found.rows for found in rank(view, asked, 3)]
    lexical = [rows for rows, _ in candidates_for(view, asked, 20)]
    assert share(chosen, "helpful") > share(lexical, "helpful") + 0.1
    assert share(chosen, "misleading") < share(lexical, "misleading") - 0.1

    scripted = Scripted()

    def accuracy(lists: list[np.ndarray]) -> tuple[float, float]:
        from icl_curate.engine.llm.asking import prompt_for
        from icl_curate.engine.pool.records import Task

        right = {"easy": [], "hard": []}  # type: ignore[var-annotated]
        for query, rows in zip(asked, lists, strict=True):
            prompt, _ = prompt_for(query, fetch(workspace, rows[:5]), Task("open"), SETTINGS)
            right[query.id.split("-")[0]].append(scripted.answer(prompt) == "yes")
        return float(np.mean(right["easy"] + right["hard"])), float(np.mean(right["hard"]))

    ranked = accuracy([found.rows for found in rank(view, asked, 5)])
    bm25 = accuracy(lexical)
    assert ranked[0] > bm25[0]
    assert ranked[1] > bm25[1] + 0.1  # far above on hard queries


def test_the_ledger_finds_what_was_planted(world: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, _ = world
    worst, best = ledger(workspace, misleading=True, limit=20), ledger(workspace, helpful=True, limit=20)
    assert np.mean([s.id.startswith("misleading") for s in worst]) > 0.9
    assert np.mean([s.id.startswith("helpful") for s in best]) > 0.9
    for standing in (*worst, *best):
        assert standing.low <= standing.estimate <= standing.high
        assert standing.helped + standing.hurt <= standing.shown
    flips = flips_of(workspace, worst[0].row)
    assert len(flips) >= worst[0].hurt
    assert all(flip.shown[-1] == worst[0].row for flip in flips)


def test_a_ranker_carries_over_to_a_workspace_with_the_same_encoder(
    world: tuple[Workspace, dict[str, Any]], tmp_path: Path
) -> None:
    workspace, done = world
    other = make_world(tmp_path / "other", pool=100, validation=20, test=5)
    asked = queries(other, "test")
    with pytest.raises(UsageError):
        rank(PoolView(other, SETTINGS), asked, 3)
    import_ranker(other, folder_of(workspace, done["run"]), SETTINGS)
    assert all(len(found.rows) == 3 for found in rank(PoolView(other, SETTINGS), asked, 3))
