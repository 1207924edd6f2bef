"""Learning from answers already paid: `train sources` asks each of a query's nearest demonstrations alone.

Where every candidate's reward R_d is known, the expected reward of one shot needs no sampling (paper 000, equation 8):
V = Σ_d S_θ(d|p)·R_d, whose gradient credits each candidate with S_θ(d|p)·(R_d − V). No request is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..base.errors import UsageError
from ..pool.records import Query
from ..store import runs, trials
from ..store.workspace import Workspace
from .features import Features
from .policy import Adam, Candidates, Policy


@dataclass(frozen=True, slots=True)
class Tried:
    """A query's demonstrations that were asked alone: ``rows`` and ``rewards`` (+1 right, −1 wrong), both (n,)."""

    query: int
    rows: Int64s
    rewards: Float64s


@dataclass(frozen=True, slots=True)
class TrialsLearnt:
    """The policy kept, the epoch it is from, and the mean expected reward V of the judging queries after each epoch, 0
    being the start; empty if none of them was tried."""

    policy: Policy
    best: int
    values: tuple[float, ...]


def tried_rows(workspace: Workspace, llm: str, active: Int64s) -> list[Tried]:
    """The trials of the latest ``train sources``, query by query, of ``active`` rows. Raises `UsageError` if there are
    none of this LLM."""
    found = trials.latest(workspace)
    asked = {run.run: run.llm for run in runs.runs(workspace, trials.KIND, limit=1000)}
    if found is None or asked.get(found.run) != llm:
        raise UsageError(f"there are no trials of {llm}", f"icl-curate train sources --llm {llm}")
    kept = np.isin(found.rows, active)
    rewards = np.where(found.right, 1.0, -1.0)
    return [
        Tried(int(query), found.rows[mine], rewards[mine])
        for query in dict.fromkeys(found.queries.tolist())
        if (mine := kept & (found.queries == query)).any()
    ]


def learn_from_trials(
    features: Features,
    policy: Policy,
    queries: Sequence[Query],
    tried: Sequence[Tried],
    judging: frozenset[int],
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
) -> TrialsLearnt:
    """Adam on −Σ V over ``epochs`` passes; the queries whose row is among ``judging`` choose the epoch only, and if
    none of them was tried the last epoch is kept. Raises `UsageError` if none of the other ``queries`` was tried."""
    by_row = {each.query: each for each in tried}
    known = [query for query in queries if query.row in by_row]
    learning = [query for query in known if query.row not in judging]
    if not learning:
        raise UsageError("no query to learn from was tried", "icl-curate train sources, on the same queries")
    seen, rewards = _with_rewards(features, learning, by_row)
    judges = [query for query in known if query.row in judging]
    judged = _with_rewards(features, judges, by_row)
    adam, values = Adam(rate), [_value(policy, *judged)] if judges else []
    best, kept = 0, policy
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng([seed, 2, epoch]).permutation(len(learning))
        for start in range(0, len(order), batch):
            which = order[start : start + batch]
            part = Candidates(seen.queries[which], seen.vectors[which], seen.present[which])
            _, *gradients = policy.loss(part, exact_credit(policy.scores(part), rewards[which]))
            weight, bias = adam.step((policy.weight, policy.bias), tuple(gradients))
            policy = Policy(weight, bias)
        if judges:
            values.append(_value(policy, *judged))
        if not judges or values[-1] >= values[best]:
            best, kept = epoch, policy
    return TrialsLearnt(kept, best, tuple(values))


def exact_credit(scores: Float64s, rewards: Float64s) -> Float64s:
    """S·(R − V) for ``scores`` S_θ and ``rewards`` R, all (q, c): `Policy.loss` with it has the gradient of −Σ V."""
    value = (scores * rewards).sum(axis=1, keepdims=True)
    return np.asarray(scores * (rewards - value), np.float64)


def _with_rewards(features: Features, queries: Sequence[Query], tried: dict[int, Tried]) -> tuple[Candidates, Float64s]:
    mine = [tried[query.row] for query in queries if query.row is not None]
    seen = features.candidates(features.of_queries(queries), [each.rows for each in mine])
    rewards = np.zeros(seen.present.shape)
    for i, each in enumerate(mine):
        rewards[i, : len(each.rewards)] = each.rewards
    return seen, rewards


def _value(policy: Policy, seen: Candidates, rewards: Float64s) -> float:
    """Mean V."""
    return float((policy.scores(seen) * rewards).sum(axis=1).mean())
