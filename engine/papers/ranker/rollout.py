"""Prompts and rewards of a batch of queries: Algorithm 1 without the LLM.

A rollout is one query's demonstrations in the order of the policy and what became of the answer after each of them.
The reward of an answer of value u is 2u − 1: +1 if it is right and −1 if it is wrong. Where there is no answer or no
verdict it is not known, and does not contribute to training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...base.arrays import Float64s, Int64s
from ...llm.marks import Mark, values_of
from ...trials.policy import Positions


@dataclass(frozen=True, slots=True)
class Rollout:
    """``chosen``: positions among the candidates, best first, (k,); ``scores``: their S_θ, (k,); ``marks``: of the
    answers after 0, 1, …, k shots, (k + 1,) for the ranker, or of that to the whole set, (1,), for PromptPG."""

    chosen: Positions
    scores: Float64s
    marks: Sequence[Mark]

    @property
    def rewards(self) -> Float64s:
        """R of each answer, nan where it is not known."""
        return 2.0 * values_of(self.marks) - 1.0

    @property
    def turns(self) -> list[tuple[bool | None, bool | None]]:
        """Whether the answer was right before and after each demonstration, by the metric's ``least``."""
        return [(before.right, after.right) for before, after in pairwise(self.marks)]


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
        for score, turn in zip(rollout.scores.tolist(), rollout.turns, strict=False):
            if turn == (True, False):
                threshold = score
    return threshold


def stepwise_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): each demonstration gets the reward of the prompt in which it is the last (Algorithm 1, line
    14)."""
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        credit[i, rollout.chosen] = np.nan_to_num(rollout.rewards[1:])
    return credit


def gain_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): each demonstration gets what it changed, R_j − R_{j−1}; nothing if either is not known.

    R_{j−1} does not depend on the j-th demonstration, so it is a baseline that leaves the expected gradient as it is
    (Williams 1992) and takes out what the earlier ones and the query itself account for.
    """
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        credit[i, rollout.chosen] = np.nan_to_num(np.diff(rollout.rewards))
    return credit


def whole_set_credit(rollouts: Sequence[Rollout], candidates: int) -> Float64s:
    """(q, candidates): every demonstration shown gets the reward of the one prompt (PromptPG, Lu et al. 2022)."""
    credit = np.zeros((len(rollouts), candidates))
    for i, rollout in enumerate(rollouts):
        credit[i, rollout.chosen] = np.nan_to_num(rollout.rewards[0])
    return credit
