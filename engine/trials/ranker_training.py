"""Learning from answers already paid: `train sources` asks each of a query's nearest demonstrations alone.

Where every candidate's reward R_d is known, the expected reward of one shot needs no sampling (paper 000, equation 8):
V = Σ_d S_θ(d|p)·R_d, whose gradient credits each candidate with S_θ(d|p)·(R_d − V). No request is sent.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..base.errors import UsageError
from ..base.packages import VERSION
from ..base.progress import Event
from ..llm.client import LLMClient
from ..llm.cost import Usage
from ..llm.judge import Grader
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..store import runs, trials
from ..store.demonstrations import task_of, validation_queries
from .policy import DIMENSION, Adam, Candidates, Inputs, Policy, RankerMetadata
from .ranker import DEFAULT_INPUTS, KINDS, Features, Method, inputs_for, keep, preselected
from .results import EpochAccuracy, RankerMetrics, RankerRun

TASK = "train"
"""The task of its events."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A query's demonstrations that were asked alone: ``rows`` and ``rewards`` (2u − 1 of an answer of value u, so +1
    if it is right and −1 if it is wrong), both (n,)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRankerPlan:
    """``inputs``: what the policy chooses from and sees, but for the ``sources``, which are those of the pool if they
    are to be seen. ``trials``: passes over the answers of ``train sources``, in batches of ``batch`` queries.
    ``held_out``: the share of validation queries, by hash, for model selection only. ``limit``: only the first
    validation queries."""

    inputs: Inputs = DEFAULT_INPUTS
    sources: bool = True
    trials: int = 40
    batch: int = 20
    rate: float = 1e-3
    dimension: int = DIMENSION
    held_out: float = 0.2
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TrialRanker:
    """What a ranker learns from, prepared: for each of the ``queries`` the rows it chooses from (``candidates``) and
    its vector, (q, d + sources), as the ``features`` say. ``train`` and ``held_out`` are positions of queries, and
    ``tried`` are the answers that are known already."""

    llm: LLMClient
    plan: TrialRankerPlan
    seed: int
    queries: Sequence[Query]
    features: Features
    candidates: Sequence[Int64s]
    vectors: Float64s
    train: Int64s
    held_out: Int64s
    tried: Sequence[Tried]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: TrialRankerPlan = TrialRankerPlan(), seed: int | None = None) -> TrialRanker:
        """Search and encode; no request is sent. ``seed``: that of the settings if it is None. Raises `UsageError` if
        there are no validation queries, no vectors of the encoder, no trials, or k is 0."""
        workspace, settings = llm.workspace, llm.settings
        if settings.k < 1:
            raise UsageError("cannot train a ranker with k = 0", "icl-curate train ranker -k 5")
        queries = validation_queries(workspace, "training the ranker", plan.limit, llm.monitor)
        view = PoolView(workspace, settings, llm.monitor)
        features = Features(view, inputs_for(view, plan.inputs, plan.sources))
        candidates = [ranked.rows for ranked in preselected(view, queries, features.inputs)]
        return cls(
            llm,
            plan,
            settings.seed if seed is None else seed,
            queries,
            features,
            candidates,
            features.of_queries(queries),
            *_split(queries, plan),
            tried_rows(llm, view.rows) if plan.trials else [],
        )

    def learn(self) -> RankerRun:
        """Learn, store the policy and the figures; returns the ``train --json`` contract."""
        described = self.described(self.plan) | {"method": "ranker", "epochs": 0}
        started = time.perf_counter()
        with self.llm.recorded(KINDS["ranker"], described) as record:
            learnt = self.learn_trials(self.start())
            untrained = self.keep(record.run, "ranker", learnt.policy, described)
            metrics = RankerMetrics(
                method="ranker",
                best=EpochAccuracy(0, None),
                queries=len(self.train),
                held_out_queries=len(self.held_out),
                seconds=time.perf_counter() - started,
                trials=learnt.values,
                untrained=untrained,
                kept_pass=learnt.best,
            )
            done = RankerRun(record.run, self.llm.name, Usage(), metrics)
            record.summary = done.as_json()
        return done

    def start(self) -> Policy:
        """The policy before training."""
        return self.features.start(self.plan.dimension, self.seed)

    def learn_trials(self, policy: Policy) -> TrialsLearnt:
        """The policy after the plan's passes over the trials."""
        plan, held_out = self.plan, frozenset(self.queries[i].row or 0 for i in self.held_out)
        learnt = learn_from_trials(
            self.features, policy, self.queries, self.tried, held_out, plan.trials, plan.batch, plan.rate, self.seed
        )
        note = f"from {sum(len(tried.rows) for tried in self.tried):,} trials"
        if learnt.values:
            first, best = learnt.values[0], learnt.values[learnt.best]
            note += f": expected reward of held-out queries {first:+.3f} → {best:+.3f}"
        self.llm.monitor.report(Event(TASK, note=note))
        return learnt

    def described(self, plan: TrialRankerPlan) -> dict[str, Any]:
        """What is stored with a run of this ``plan``."""
        return (
            asdict(plan)
            | asdict(self.features.inputs)
            | {
                "k": self.llm.settings.k,
                "seed": self.seed,
                "encoder": self.features.view.stored.encoder,
                "order": self.llm.settings.order,
                "queries": len(self.train),
                "held_out_queries": len(self.held_out),
                "version": VERSION,
            }
        )

    def keep(self, run: int, method: Method, policy: Policy, described: dict[str, Any]) -> bool:
        """Store the policy with its run; whether it is the start, to the bit."""
        start, stored, inputs = self.start(), self.features.view.stored, self.features.inputs
        untrained = np.array_equal(policy.weight, start.weight) and np.array_equal(policy.bias, start.bias)
        metadata = RankerMetadata(
            method, stored.encoder, stored.dimension, inputs, self.llm.name, self.seed, described, untrained
        )
        keep(self.llm.workspace, run, policy, metadata)
        return untrained


def _split(queries: Sequence[Query], plan: TrialRankerPlan) -> tuple[Int64s, Int64s]:
    """Positions of the queries to train on and of those held out, by hash of their texts.

    At least one full batch is left to train on.
    """
    keys = [hashlib.blake2b(key_of(query).encode(), digest_size=8).digest() for query in queries]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    count = max(0, min(int(len(order) * plan.held_out), len(order) - plan.batch))
    return np.array(sorted(order[count:]), np.int64), np.array(sorted(order[:count]), np.int64)


def key_of(query: Query) -> str:
    """What a query is, but for its answers."""
    return f"{query.id}\0{query.input}"


def tried_rows(llm: LLMClient, active: Int64s) -> list[Tried]:
    """The trials of the latest ``train sources``, query by query, of ``active`` rows. Raises `UsageError` if there are
    none of this LLM, or if they were graded in another way than the settings name."""
    again = f"icl-curate train sources --llm {quote(llm.name)}"
    wanted = runs.grading_of(Grader.of(llm, task_of(llm.workspace)).told)
    latest = trials.latest(llm.workspace, [str(value) for value in wanted.values()]) or trials.latest(llm.workspace)
    run = runs.numbered(llm.workspace, latest.run) if latest else None
    if latest is None or run is None or run.llm != llm.name:
        raise UsageError(f"there are no trials of {llm.name}", again)
    graded = runs.grading_of(run.settings)
    if graded != wanted:
        differs = [
            f"{name} {graded[name] or 'none'}, not {wanted[name]}" for name in wanted if wanted[name] != graded[name]
        ]
        raise UsageError(
            f"the trials of {llm.name} were graded with {'; '.join(differs)}",
            f"{again}, graded as here: its answers are kept, none is asked again",
        )
    is_active = np.isin(latest.rows, active)
    rewards = 2.0 * latest.values - 1.0
    return [
        Tried(int(query), latest.rows[mine], rewards[mine])
        for query in dict.fromkeys(latest.queries.tolist())
        if (mine := is_active & (latest.queries == query)).any()
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
    by_row = {own.query: own for own in tried}
    asked = [query for query in queries if query.row in by_row]
    learning = [query for query in asked if query.row not in judging]
    if not learning:
        raise UsageError("no query to learn from was tried", "on the same queries: icl-curate train sources")
    seen, rewards = _with_rewards(features, learning, by_row)
    judges = [query for query in asked if query.row in judging]
    judged = _with_rewards(features, judges, by_row)
    adam, values = Adam(rate), [_value(policy, *judged)] if judges else []
    best, best_policy = 0, policy
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng([seed, 2, epoch]).permutation(len(learning))
        for start in range(0, len(order), batch):
            which = order[start : start + batch]
            part = Candidates(seen.queries[which], seen.vectors[which], seen.present[which])
            # the gradient of -Σ V, with V = Σ_d S_θ(d|p)·R_d (equation 8)
            _, *gradients = policy.loss(part, exact_credit(policy.scores(part), rewards[which]))
            weight, bias = adam.step((policy.weight, policy.bias), tuple(gradients))
            policy = Policy(weight, bias)
        if judges:
            values.append(_value(policy, *judged))
        if not judges or values[-1] >= values[best]:
            best, best_policy = epoch, policy
    return TrialsLearnt(best_policy, best, tuple(values))


def exact_credit(scores: Float64s, rewards: Float64s) -> Float64s:
    """S·(R − V) for ``scores`` S_θ and ``rewards`` R, all (q, c): `Policy.loss` with it has the gradient of −Σ V."""
    value = (scores * rewards).sum(axis=1, keepdims=True)  # V = Σ_d S_θ(d|p)·R_d (equation 8)
    return np.asarray(scores * (rewards - value), np.float64)


def _with_rewards(features: Features, queries: Sequence[Query], tried: dict[int, Tried]) -> tuple[Candidates, Float64s]:
    mine = [tried[query.row] for query in queries if query.row is not None]
    seen = features.candidates(features.of_queries(queries), [own.rows for own in mine])
    rewards = np.zeros(seen.present.shape)
    for i, own in enumerate(mine):
        rewards[i, : len(own.rewards)] = own.rewards
    return seen, rewards


def _value(policy: Policy, seen: Candidates, rewards: Float64s) -> float:
    """Mean V."""
    return float((policy.scores(seen) * rewards).sum(axis=1).mean())
