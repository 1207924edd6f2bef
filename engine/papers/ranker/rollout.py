"""Prompts and rewards of a batch of queries: Algorithm 1 without the LLM.

A rollout is one query's demonstrations in the order of the policy and the reward after each of them. Rewards are +1
(right), −1 (wrong) and 0 for a failed call, which therefore does not contribute to training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.arrays import Float64s, Int64s
from ...trials.policy import Positions


@dataclass(frozen=True, slots=True)
class Rollout:
    """``chosen``: positions among the candidates, best first, (k,); ``scores``: their S_θ, (k,); ``rewards``: after
    0, 1, …, k shots, (k + 1,) for the ranker, or one reward of the whole set, (1,), for PromptPG."""

    chosen: Positions
    scores: Float64s
    rewards: tuple[int, ...]


def allowed_shots(scores: Float64s, threshold: float, most: int) -> Int64s:
    """k_i = min(K, |{S_θ > σ}|) for each row of ``scores`` (q, c) (paper 000, eq. 6)."""
    above: Positions = (scores > threshold).sum(axis=1)
    return np.minimum(above, most)


def sampled(scores: Float64s, most: int, keys: Sequence[str], seed: int, epoch: int) -> list[Positions]:
    """PromptPG's sampling: ``most`` candidates of each row without replacement, with probabilities S_θ, in the order
    drawn.

    Each row has a generator of its seed, epoch and key, so neither batch nor concurrency changes a draw.
    """
    drawn = []
    for row, key in zip(scores, keys, strict=True):
        number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())
        rng = np.random.default_rng([seed, epoch, number])
        possible = np.flatnonzero(row)
        count = min(most, len(possible))
        drawn.append(rng.choice(possible, count, replace=False, p=row[possible] / row[possible].sum()))
    return [np.asarray(row, np.int64) for row in drawn]


def threshold_after(threshold: float, rollouts: Sequence[Rollout]) -> float:
    """σ after a batch: at each flip from right to wrong it is set to the score of the demonstration just added, the
    largest of those not yet selected (eq. 10); the last flip, query by query and shot by shot, determines the result.
    """
    for rollout in rollouts:
        for j in range(1, len(rollout.rewards)):
            if rollout.rewards[j - 1] == 1 and rollout.rewards[j] == -1:
                threshold = float(rollout.scores[j - 1])
    return threshold


def stepwise_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): each demonstration gets the reward of the prompt in which it is the last (Algorithm 1, line
    14)."""
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        credit[i, rollout.chosen] = rollout.rewards[1:]
    return credit


def gain_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): each demonstration gets what it changed, R_j − R_{j−1}; nothing if either call failed.

    R_{j−1} does not depend on the j-th demonstration, so it is a baseline that leaves the expected gradient as it is
    (Williams 1992) and takes out what the earlier ones and the query itself account for.
    """
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        rewards = np.array(rollout.rewards)
        known = (rewards[1:] != 0) & (rewards[:-1] != 0)
        credit[i, rollout.chosen] = np.where(known, np.diff(rewards), 0)
    return credit


def whole_set_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): every demonstration shown gets the reward of the one prompt (PromptPG, Lu et al. 2022)."""
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        credit[i, rollout.chosen] = rollout.rewards[0]
    return credit
