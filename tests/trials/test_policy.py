"""The policy against autograd, finite differences and torch's optimiser; the rollout rules traced by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.marks import Mark, State
from icl_curate.engine.papers.ranker.rollout import (
    Rollout,
    allowed_shots,
    gain_credit,
    sampled,
    stepwise_credit,
    threshold_after,
    whole_set_credit,
)
from icl_curate.engine.trials.policy import (
    HEAD,
    WEIGHTS,
    Adam,
    Candidates,
    Inputs,
    Policy,
    RankerMetadata,
    entropy,
    load,
    save,
    top_candidates,
)
from numpy.typing import NDArray


def _case(seed: int = 0, queries: int = 4, candidates: int = 6, inputs: int = 9) -> tuple[Policy, Candidates]:
    rng = np.random.default_rng(seed)
    present = np.ones((queries, candidates), np.bool_)
    present[1, 4:] = False
    return (
        Policy(rng.normal(size=(5, inputs)), rng.normal(size=5)),
        Candidates(rng.normal(size=(queries, inputs)), rng.normal(size=(queries, candidates, inputs)), present),
    )


def _credit(candidates: Candidates) -> NDArray[np.float64]:
    credit = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], candidates.present.shape)
    return np.where(candidates.present, credit, 0.0)


def test_scores_are_the_softmax_of_the_papers_products() -> None:
    policy, candidates = _case()
    for i in range(len(candidates.queries)):
        hidden = policy.weight @ candidates.queries[i] + policy.bias
        logits = [
            float((policy.weight @ vector + policy.bias) @ hidden)
            for vector, present in zip(candidates.vectors[i], candidates.present[i], strict=True)
            if present
        ]
        expected = np.exp(logits) / np.exp(logits).sum()
        found = policy.scores(candidates)[i]
        np.testing.assert_allclose(found[candidates.present[i]], expected, rtol=1e-12)
        assert not found[~candidates.present[i]].any()


def test_loss_and_gradient_are_those_of_autograd() -> None:
    import torch

    policy, candidates = _case()
    credit = _credit(candidates)
    weight = torch.tensor(policy.weight, requires_grad=True)
    bias = torch.tensor(policy.bias, requires_grad=True)
    hidden = torch.tensor(candidates.queries) @ weight.T + bias
    logits = ((torch.tensor(candidates.vectors) @ weight.T + bias) * hidden[:, None, :]).sum(-1)
    logits = logits.masked_fill(~torch.tensor(candidates.present), -1e30)
    expected = -(torch.tensor(credit) * torch.log_softmax(logits, dim=1)).sum()
    expected.backward()  # type: ignore[no-untyped-call]
    loss, by_weight, by_bias = policy.loss(candidates, credit)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-12)
    assert weight.grad is not None
    assert bias.grad is not None
    np.testing.assert_allclose(by_weight, weight.grad.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(by_bias, bias.grad.numpy(), rtol=1e-9, atol=1e-10)


def test_gradient_is_that_of_finite_differences() -> None:
    policy, candidates = _case(2)
    credit = _credit(candidates)
    _, by_weight, by_bias = policy.loss(candidates, credit)
    step = 1e-6
    for at in [(0, 0), (2, 5), (4, 8)]:
        moved = np.zeros_like(policy.weight)
        moved[at] = step
        up = Policy(policy.weight + moved, policy.bias).loss(candidates, credit)[0]
        down = Policy(policy.weight - moved, policy.bias).loss(candidates, credit)[0]
        assert by_weight[at] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)
    for at_bias in range(5):
        shift = step * np.eye(5)[at_bias]
        up = Policy(policy.weight, policy.bias + shift).loss(candidates, credit)[0]
        down = Policy(policy.weight, policy.bias - shift).loss(candidates, credit)[0]
        assert by_bias[at_bias] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)


def test_adam_is_torchs() -> None:
    import torch

    rng = np.random.default_rng(0)
    values = (rng.normal(size=(3, 4)), rng.normal(size=3))
    parameters = [torch.tensor(value, requires_grad=True) for value in values]
    reference = torch.optim.Adam(parameters, lr=1e-3)
    ours = Adam(1e-3)
    for _ in range(20):
        gradients = (rng.normal(size=(3, 4)), rng.normal(size=3))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.tensor(gradient)
        reference.step()
        first, second = ours.step(values, gradients)
        values = (first, second)
    for value, parameter in zip(values, parameters, strict=True):
        np.testing.assert_allclose(value, parameter.detach().numpy(), rtol=1e-12)


def test_the_start_ranks_as_the_embeddings_do() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 8)) @ rng.normal(size=(8, 32))  # all of it lies in 8 directions
    policy = Policy.start(vectors, 8)
    candidates = Candidates(vectors[:3], vectors[None, 3:40].repeat(3, 0), np.ones((3, 37), np.bool_))
    for row, expected in zip(policy.scores(candidates), vectors[:3] @ vectors[3:40].T, strict=True):
        assert int(row.argmax()) == int(expected.argmax())
    assert Policy.start(vectors, 128).weight.shape == (32, 32)
    assert Policy.start(vectors, 128, extra=3).weight.shape == (33, 35)  # one output for the demonstration alone


def test_entropy_is_that_of_the_shares() -> None:
    np.testing.assert_allclose(entropy(np.array([[0.25] * 4, [1.0, 0, 0, 0]])), [np.log(4), 0])


def test_a_saved_policy_comes_back_bit_for_bit(tmp_path: Path) -> None:
    policy, _ = _case()
    metadata = RankerMetadata(
        "ranker", "an-encoder", 7, Inputs(30, "both", "row", ("a", "b"), 0.1), "scripted", 3, {"epochs": 2}
    )
    save(tmp_path / "1", policy, metadata)
    again, same = load(tmp_path / "1")
    assert again.weight.tobytes() == policy.weight.tobytes()
    assert again.bias.tobytes() == policy.bias.tobytes()
    assert same == metadata


@pytest.mark.parametrize("damage", ["gone", "cut", "other shape", "newer"])
def test_a_damaged_file_is_a_clear_error(tmp_path: Path, damage: str) -> None:
    policy, _ = _case()
    save(tmp_path, policy, RankerMetadata("ranker", "e", 9, Inputs(), "scripted", 0, {}))
    if damage == "gone":
        (tmp_path / WEIGHTS).unlink()
    elif damage == "cut":
        (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:-8])
    else:
        described = json.loads((tmp_path / HEAD).read_text())
        described |= {"inputs": 10} if damage == "other shape" else {"format": 99}
        (tmp_path / HEAD).write_text(json.dumps(described))
    with pytest.raises(UsageError):
        load(tmp_path)


# which shots, which credit, which threshold


def test_shots_allowed_by_hand() -> None:
    scores = np.array([[0.5, 0.3, 0.1, 0.1, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
    assert allowed_shots(scores, 0.0, 5).tolist() == [4, 5]
    assert allowed_shots(scores, 0.0, 3).tolist() == [3, 3]
    assert allowed_shots(scores, 0.2, 5).tolist() == [2, 0]  # above the threshold, not at it


def test_ties_go_to_the_better_by_bm25() -> None:
    scores = np.array([[0.2, 0.3, 0.3, 0.2, 0.0]])
    present = np.array([[True, True, True, True, False]])
    assert [row.tolist() for row in top_candidates(scores, present, 5, np.zeros(1))] == [[1, 2, 0, 3]]
    torn = scores * (1 + np.array([0, 0, 1e-7, 1e-7, 0]))  # what another processor may make of it
    assert [row.tolist() for row in top_candidates(torn, present, 5, np.array([2.0**-16]))] == [[1, 2, 0, 3]]


def _rollout(scores: list[float], rewards: list[int]) -> Rollout:
    return Rollout(np.arange(len(scores)), np.array(scores), _marks(*rewards))


def _marks(*rewards: int) -> list[Mark]:
    """The marks of right (1) and wrong (-1) answers and failed calls (0)."""
    states: dict[int, State] = {1: "right", -1: "wrong", 0: "failed"}
    return [Mark(states[reward]) for reward in rewards]


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        ([], 0.07),
        ([_rollout([0.4, 0.2], [-1, 1, 1])], 0.07),
        ([_rollout([0.4, 0.2], [1, -1, -1])], 0.4),
        ([_rollout([0.4, 0.2], [1, 1, -1])], 0.2),
        ([_rollout([0.4, 0.3, 0.1], [1, -1, 1, -1])], 0.1),  # two turns: the later stands
        ([_rollout([0.4], [1, -1]), _rollout([0.1], [1, -1]), _rollout([0.9], [-1, 1])], 0.1),
        ([_rollout([0.4, 0.2], [1, 0, -1])], 0.07),  # a failed call hides where it turned
    ],
)
def test_threshold_by_hand(rollouts: list[Rollout], expected: float) -> None:
    assert threshold_after(0.07, rollouts) == expected


def test_credit_by_hand() -> None:
    rollouts = [
        Rollout(np.array([2, 0]), np.array([0.5, 0.2]), _marks(1, -1, 1)),
        Rollout(np.array([], np.int64), np.array([]), _marks(1)),
    ]
    assert stepwise_credit(rollouts, 3).tolist() == [[1, 0, -1], [0, 0, 0]]
    whole = [Rollout(np.array([2, 0]), np.array([0.5, 0.2]), _marks(-1))]
    assert whole_set_credit(whole, 3).tolist() == [[-1, 0, -1]]


def test_gains_by_hand() -> None:
    rollouts = [
        Rollout(np.array([2, 0, 1]), np.array([0.5, 0.2, 0.1]), _marks(1, -1, -1, 1)),
        Rollout(np.array([1, 2]), np.array([0.4, 0.3]), _marks(-1, 0, 1)),  # a failed call hides both changes
        Rollout(np.array([], np.int64), np.array([]), []),
    ]
    assert gain_credit(rollouts, 3).tolist() == [[0, 2, -2], [0, 0, 0], [0, 0, 0]]


@given(st.integers(0, 5), st.integers(0, 3))
def test_draws_do_not_depend_on_the_batch(seed: int, epoch: int) -> None:
    scores = np.random.default_rng(9).dirichlet(np.ones(7), size=3)
    keys = ["a", "b", "c"]
    together = sampled(scores, 4, keys, seed, epoch)
    alone = [sampled(scores[i : i + 1], 4, keys[i : i + 1], seed, epoch)[0] for i in range(3)]
    assert [row.tolist() for row in together] == [row.tolist() for row in alone]
    assert all(len(set(row.tolist())) == 4 for row in together)


def test_draws_follow_the_shares() -> None:
    shares: Any = np.array([[0.7, 0.2, 0.1, 0.0]])
    first = [int(sampled(shares, 2, [str(i)], 0, 0)[0][0]) for i in range(3000)]
    np.testing.assert_allclose(np.bincount(first, minlength=4) / 3000, shares[0], atol=0.03)
