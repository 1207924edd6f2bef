"""Training the ranker on the value of the LLM's answers (paper 000, Algorithm 1), and its baseline PromptPG.

Each epoch is one pass of Algorithm 1 and starts at σ = 0. The threshold is read once per batch and updated at the end
of the batch, in the order of queries and shots. So all prompts of a batch can be asked at once, and neither concurrency
nor the cache can change the result. This agrees with the paper's figure 8: 300 shots in the first batch, 20 × (1 + 2 +
3 + 4 + 5).

A run that was stopped continues when it is started again: all random numbers depend on the seed, every answer comes
from the call cache, so it takes the same steps and pays only for new prompts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np

from ...base import contract
from ...base.arrays import Float64s, Int64s
from ...base.progress import Event
from ...evaluate.statistics import mean_of
from ...llm.asking import prompt_budget, prompt_for, request_for
from ...llm.budget import Budget
from ...llm.client import LLMClient
from ...llm.cost import Plan, Usage, together, unwritten, usage_of
from ...llm.judge import Grader
from ...llm.marks import Mark, tally, values_of
from ...llm.types import Answer, Capabilities, Request, Result
from ...pool.records import Demonstration, Task
from ...store.demonstrations import fetch, task_of
from ...store.trials import save_ranker_batch
from ...trials.policy import Adam, Candidates, Policy, Positions, entropy, top_candidates
from ...trials.ranker import KINDS, Method
from ...trials.ranker_training import TASK, TrialRanker, TrialRankerPlan, TrialsLearnt, key_of
from ...trials.results import Batch, Epoch, EpochAccuracy, RankerMetrics, RankerRun, RankerSeeds, SeedFigures
from .rollout import Rollout, allowed_shots, gain_credit, sampled, stepwise_credit, threshold_after, whole_set_credit

T = TypeVar("T")

Credit = Literal["gain", "reward"]
COLLAPSED = 2.0
"""A policy has collapsed if the exponential of its mean entropy (its effective number of candidates) is below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerPlan(TrialRankerPlan):
    """How to train; the shots K are `Settings.k`.

    ``credit``: what a demonstration is credited with, its prompt's reward R_j (the paper's equation 9) or what it
    changed, R_j − R_{j−1}. ``threshold``: σ limits the shots (equations 6 and 10). ``trials``: passes before the first
    epoch; with them there may be no epoch at all. Of the epochs the best by the held-out queries is kept, and training
    stops after ``patience`` epochs without a gain, or at none with 0. Without held-out queries the accuracy during
    training selects; with a ``patience`` of 0, too, nothing does: the last epoch is kept.
    """

    method: Method = "ranker"
    epochs: int = 5
    credit: Credit = "gain"
    threshold: bool = False
    trials: int = 0
    patience: int = 5


@dataclass(frozen=True, slots=True)
class RankerTraining:
    """A prepared training run: what the ``core`` learns from, and the demonstrations (``shots``) of its candidates by
    row."""

    llm: LLMClient
    plan: RankerPlan
    grader: Grader
    core: TrialRanker
    task: Task
    capabilities: Capabilities
    shots: Mapping[int, Demonstration]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: RankerPlan = RankerPlan(), seed: int | None = None) -> RankerTraining:
        """Search and encode; in a dry run not even a probe is sent. Raises as `TrialRanker.prepare`, before any
        request."""
        core = TrialRanker.prepare(llm, plan, seed)
        task, capabilities = task_of(llm.workspace), llm.capabilities
        shots = fetch(llm.workspace, np.unique(np.concatenate(core.candidates)))
        return cls(llm, plan, Grader.of(llm, task), core, task, capabilities, {shot.row: shot for shot in shots})

    def cost(self) -> Plan:
        """The first epoch's prompts as currently known, and the most that the further epochs can add.

        The demonstrations in later prompts depend on the answers, so counts and the upper ends of the ranges are upper
        bounds: σ, repeated prompts and early stopping reduce them.
        """
        if not self.plan.epochs:
            return self.llm.plan([])
        core, policy = self.core, self.core.start()
        first = [
            request
            for which in (self.batch(0, at) for at in range(0, len(core.train), self.plan.batch))
            for _, asked in self.planned_requests(which, 0, 0.0, policy, *self.scored(policy, which))
            for request in asked
        ]
        measuring = self.held_out_requests(policy)
        of_epoch, of_measuring = (sum(bool(r.prompt.demonstrations) for r in part) for part in (first, measuring))
        more = self.plan.epochs * (of_epoch + of_measuring) - of_epoch  # those without a shot are asked once
        own, judging = self.grader.plans(self.llm, [*first, *measuring])
        plan = _grown(own, more)
        return plan if judging is None else together(plan, _grown(judging, more))

    def ask(self, budget: Budget) -> RankerRun:
        """Train, store the policy, the figures and every step; returns the ``train --json`` contract."""
        plan, core = self.plan, self.core
        described = core.described(plan) | self.grader.told
        started = time.perf_counter()
        with self.llm.recorded(KINDS[plan.method], described) as record:
            learning = Learning(self, record.run, budget, replace(self.grader), core.start(), Adam(plan.rate))
            learning.learn()
            assert learning.best is not None
            untrained = core.keep(record.run, plan.method, learning.best, described)
            metrics = learning.metrics(untrained, time.perf_counter() - started)
            done = RankerRun(record.run, self.llm.name, learning.spent, metrics)
            record.summary = done.as_json()
        return done

    # training and held-out queries

    def batch(self, epoch: int, at: int) -> Int64s:
        """The queries of the batch of an epoch that begins at its query ``at``."""
        order = np.random.default_rng([self.core.seed, 1, epoch]).permutation(self.core.train)
        return order[at : at + self.plan.batch]

    def scored(self, policy: Policy, which: Int64s) -> tuple[Candidates, Float64s]:
        """The candidates of these queries with their embeddings, and the policy's scores of them (q, c)."""
        core = self.core
        candidates = core.features.candidates(core.vectors[which], [core.candidates[i] for i in which])
        return candidates, policy.scores(candidates)

    # prompts

    def planned_requests(
        self, which: Int64s, epoch: int, threshold: float, policy: Policy, candidates: Candidates, scores: Float64s
    ) -> Iterator[tuple[Positions, list[Request]]]:
        """For each query of a batch, the candidates shown, best first, and the prompts to ask."""
        core, k = self.core, self.llm.settings.k
        if self.plan.method == "promptpg":
            keys = [key_of(core.queries[i]) for i in which]
            for i, chosen in zip(which, sampled(scores, k, keys, core.seed, epoch), strict=True):
                chosen = chosen[: self._token_budget(i, chosen)]
                yield chosen, [self._request(i, chosen)]
            return
        allowed = allowed_shots(scores, threshold, k)
        orders = top_candidates(scores, candidates.present, k, policy.steps(candidates))
        for i, most, order in zip(which, allowed, orders, strict=True):
            chosen = order[: self._token_budget(i, order[:most])]
            shots = range(len(chosen) + 1) if len(chosen) else ()  # without a shot there is nothing to learn
            yield chosen, [self._request(i, chosen[:j]) for j in shots]

    def held_out_requests(self, policy: Policy) -> list[Request]:
        """The held-out queries with no shots, then with the policy's best K."""
        held_out = self.core.held_out
        if not held_out.size:
            return []
        candidates, scores = self.scored(policy, held_out)
        orders = top_candidates(scores, candidates.present, self.llm.settings.k, policy.steps(candidates))
        nothing = np.empty(0, np.int64)
        return [self._request(i, nothing) for i in held_out] + [
            self._request(i, order[: self._token_budget(i, order)]) for i, order in zip(held_out, orders, strict=True)
        ]

    def _token_budget(self, query: int, chosen: Positions) -> int:
        """How many of the chosen demonstrations fit into the LLM's context together with the query."""
        settings = self.llm.settings
        limit = prompt_budget(settings, self.capabilities)
        if limit is None:
            return len(chosen)
        shown = self._demonstrations(query, chosen)
        _, dropped = prompt_for(self.core.queries[query], shown, self.task, settings, self.llm.backend, limit)
        return len(chosen) - dropped

    def _request(self, query: int, chosen: Positions) -> Request:
        shown, settings = self._demonstrations(query, chosen), self.llm.settings
        prompt, _ = prompt_for(self.core.queries[query], shown, self.task, settings)
        return request_for(prompt, settings, self.capabilities)

    def _demonstrations(self, query: int, chosen: Positions) -> list[Demonstration]:
        return [self.shots[row] for row in self.core.candidates[query][chosen].tolist()]


@dataclass(slots=True)
class Learning:
    """A training run in progress: everything a batch changes."""

    training: RankerTraining
    run: int
    budget: Budget
    grader: Grader
    policy: Policy
    adam: Adam
    threshold: float = 0.0
    batches: list[Batch] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    worth: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """The values of the answers by (all, easy or hard; shots)."""
    best: Policy | None = None
    measured: EpochAccuracy | None = None
    stale: int = 0
    """Epochs since the last gain."""
    collapsed_in: int | None = None
    """The epoch, from 1, in which the policy collapsed."""
    learnt: TrialsLearnt | None = None
    spent: Usage = Usage()
    seconds_asking: float = 0.0

    def learn(self) -> None:
        """All passes over the trials, then all epochs."""
        plan, core, llm = self.training.plan, self.training.core, self.training.llm
        total = plan.epochs * -(-len(core.train) // plan.batch)
        if core.tried:
            self.learnt = core.learn_trials(self.policy)
            self.policy = self.learnt.policy
        if core.held_out.size and plan.epochs:
            self._measure_epoch(0)
        elif not plan.epochs:
            self.best, self.measured = self.policy, EpochAccuracy(0, None)
        for epoch in range(plan.epochs):
            final, self.threshold = list[Mark](), 0.0
            for at in range(0, len(core.train), plan.batch):
                llm.monitor.check()
                final += self._learn_batch(epoch, self.training.batch(epoch, at))
                llm.monitor.report(Event(TASK, len(self.batches), total, fields=_event_figures(self.batches[-1])))
            self._measure_epoch(epoch + 1, final)
            perfect = self.measured and self.measured.accuracy == 1.0
            if plan.patience and epoch + 1 < plan.epochs and (perfect or self.stale >= plan.patience):
                more = "" if perfect else f"; --patience {plan.epochs} would go on"
                note = f"stopped after epoch {epoch + 1}: no more gain{more}"
                llm.monitor.report(Event(TASK, len(self.batches), total, note))
                break

    def _learn_batch(self, epoch: int, which: Int64s) -> list[Mark]:
        """Ask, learn and store; returns the mark of the last prompt of each query."""
        plan, threshold = self.training.plan, self.threshold
        candidates, scores = self.training.scored(self.policy, which)
        planned = self.training.planned_requests(which, epoch, threshold, self.policy, candidates, scores)
        plans = list(planned)
        results = self._ask([request for _, asked in plans for request in asked])
        spent = usage_of(results)
        lengths = [len(asked) for _, asked in plans]
        answered = _grouped(results, lengths)
        marks = _grouped(self.marks(np.repeat(which, lengths), results), lengths)
        rollouts = [Rollout(chosen, scores[i, chosen], marks[i]) for i, (chosen, _) in enumerate(plans)]
        stepwise = plan.method == "ranker"
        book = (gain_credit if plan.credit == "gain" else stepwise_credit) if stepwise else whole_set_credit
        loss, *gradients = self.policy.loss(candidates, book(rollouts, scores.shape[1]))  # equation 9
        weight, bias = self.adam.step((self.policy.weight, self.policy.bias), tuple(gradients))
        self.policy = Policy(weight, bias)
        if stepwise and plan.threshold:
            self.threshold = threshold_after(threshold, rollouts)  # equation 10
        self._count(rollouts, stepwise)
        final = [rollout.marks[-1] for rollout in rollouts if rollout.marks]
        helped, hurt = _flips(rollouts) if stepwise else (None, None)
        batch = Batch(
            batch=len(self.batches),
            epoch=epoch,
            loss=loss,
            sigma=threshold,
            shots=sum(len(r.prompt.demonstrations) for _, asked in plans for r in asked),
            calls=spent.calls,
            cached_calls=spent.cached_calls,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
            accuracy=mean_of(values_of(final)),
            entropy=float(entropy(scores).mean()),
            helped=helped,
            hurt=hurt,
        )
        told = contract.to_json(batch)
        figures = {name: value for name, value in told.items() if name != "batch" and value is not None}
        steps = self._steps(which, rollouts, answered) if stepwise else []
        save_ranker_batch(self.training.llm.workspace, self.run, batch.batch, figures, steps)
        self.batches.append(batch)
        few = np.exp(batch.entropy) < COLLAPSED < candidates.present.sum(axis=1).mean()
        if few and self.collapsed_in is None:
            self.collapsed_in = epoch + 1
            note = "the policy collapsed onto one candidate per query"
            self.training.llm.monitor.report(Event(TASK, len(self.batches), note=note))
        return final

    def _ask(self, requests: Sequence[Request]) -> list[Result]:
        started = time.perf_counter()
        results = self.training.llm.ask(requests, self.budget)
        self.seconds_asking += time.perf_counter() - started
        self.spent += usage_of(results)
        return results

    def marks(self, which: Int64s, results: Sequence[Result]) -> list[Mark]:
        """What became of these queries."""
        return self.grader.marks([self.training.core.queries[i] for i in which], results, self.budget)

    def _measure_epoch(self, epoch: int, final: Sequence[Mark] = ()) -> None:
        """Compare the policy with the best so far; without held-out queries, by the ``final`` marks during training.
        Raises `LLMError` if too many are missing to choose by."""
        core = self.training.core
        if core.held_out.size:
            results = self._ask(self.training.held_out_requests(self.policy))
            marks = self.marks(np.tile(core.held_out, 2), results)
            tally(marks).check()
            shown = values_of(marks[len(core.held_out) :])
            known = ~np.isnan(shown)  # what is missing says nothing of the policy; without zero-shot, not easy nor hard
            alone = [mark.right for mark in marks[: len(core.held_out)]]
            easy, hard = (mean_of(shown[known & np.array([right is was for right in alone])]) for was in (True, False))
            measured = EpochAccuracy(epoch, mean_of(shown[known]), easy, hard)
        else:
            tally(final).check()
            measured = EpochAccuracy(epoch, mean_of(values_of(final)))
        accuracy, before = measured.accuracy, self.measured.accuracy if self.measured else None
        gains = before is None or (accuracy is not None and accuracy > before)
        selects = core.held_out.size or self.training.plan.patience
        # in a tie the policy trained longer, but never for the start: it has shown no gain
        trained = self.measured is not None and self.measured.epoch > 0
        if gains or (accuracy == before and trained) or not selects:
            self.best, self.measured = self.policy, measured
        self.stale = 0 if gains else self.stale + 1
        self.epochs.append(Epoch(measured, bool(core.held_out.size)))
        figures = {} if accuracy is None else {"held_out_accuracy": accuracy}
        save_ranker_batch(self.training.llm.workspace, self.run, len(self.batches), figures)

    # what is stored

    def _count(self, rollouts: Sequence[Rollout], stepwise: bool) -> None:
        for rollout in rollouts:
            first = 0 if stepwise else len(rollout.chosen)
            kinds = ["all"]
            if stepwise and rollout.marks and rollout.marks[0].right is not None:
                kinds.append("easy" if rollout.marks[0].right else "hard")
            for shots, mark in enumerate(rollout.marks, first):
                for kind in kinds if mark.right is not None else ():
                    self.worth.setdefault((kind, shots), []).append(mark.value)

    def _steps(
        self, which: Int64s, rollouts: Sequence[Rollout], answered: Sequence[Sequence[Result]]
    ) -> list[dict[str, Any]]:
        core = self.training.core
        steps: list[dict[str, Any]] = []
        for i, rollout, results in zip(which, rollouts, answered, strict=True):
            rows = core.candidates[i][rollout.chosen].tolist()
            for j, (row, turn) in enumerate(zip(rows, rollout.turns, strict=False), 1):
                before, after = results[j - 1], results[j]
                if not (isinstance(before, Answer) and isinstance(after, Answer)) or None in turn:
                    continue
                steps.append(
                    {
                        "run": self.run,
                        "batch": len(self.batches),
                        "query": core.queries[i].row,
                        "place": j,
                        "row": row,
                        "shown": rows[:j],
                        "score": float(rollout.scores[j - 1]),
                        "before": turn[0],
                        "after": turn[1],
                        "answer_before": before.text,
                        "answer_after": after.text,
                    }
                )
        return steps

    def metrics(self, untrained: bool, seconds: float) -> RankerMetrics:
        """The figures of the run."""
        assert self.measured is not None
        core = self.training.core

        def by_shots(kind: str) -> dict[str, list[float]]:
            return {str(shots): values for (k, shots), values in sorted(self.worth.items()) if k == kind}

        def means(kind: str) -> dict[str, float]:
            return {shots: float(np.mean(values)) for shots, values in by_shots(kind).items()}

        return RankerMetrics(
            method=self.training.plan.method,
            batches=tuple(self.batches),
            accuracy_by_shots=means("all"),
            easy_by_shots=means("easy"),
            hard_by_shots=means("hard"),
            prompts_by_shots={shots: len(values) for shots, values in by_shots("all").items()},
            epochs=tuple(self.epochs),
            best=self.measured,
            shots=sum(batch.shots for batch in self.batches),
            sigma=self.threshold,
            queries=len(core.train),
            held_out_queries=len(core.held_out),
            collapsed=self.collapsed_in is not None,
            seconds=seconds,
            seconds_asking=self.seconds_asking,
            trials=self.learnt.values if self.learnt else None,
            judge=self.grader.judging,
            untrained=untrained,
            kept_pass=self.learnt.best if self.learnt else None,
            collapsed_in=self.collapsed_in,
        )


def _grown(plan: Plan, more: int) -> Plan:
    """The plan with at most so many more prompts, of the same length on average."""
    share = more / max(plan.distinct, 1)
    tokens_in, tokens_out = (round(tokens[1] * share) for tokens in (plan.tokens_in, plan.tokens_out))
    cost = (0.0, plan.cost[1] * share) if plan.cost else None
    return together(plan, unwritten(more, (0, tokens_in), (0, tokens_out), cost))


def _grouped(results: Sequence[T], lengths: Sequence[int]) -> list[list[T]]:
    left = iter(results)
    return [list(islice(left, length)) for length in lengths]


def _flips(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """Numbers of answers that turned right and of answers that turned wrong."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    return turns.count((False, True)), turns.count((True, False))


def _event_figures(batch: Batch) -> dict[str, float]:
    figures = {"loss": batch.loss, "sigma": batch.sigma, "shots": float(batch.shots), "accuracy": batch.accuracy}
    return {name: value for name, value in figures.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SeededTraining:
    """One prepared training run for each seed.

    A seed draws the batches (and a random start); the answers to prompts that several seeds meet are paid once.
    """

    parts: Sequence[RankerTraining]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: RankerPlan, seeds: int) -> SeededTraining:
        """For so many ``seeds`` from the configured one on; raises as `RankerTraining.prepare`."""
        first = llm.settings.seed
        return cls([RankerTraining.prepare(llm, plan, seed) for seed in range(first, first + seeds)])

    def cost(self) -> Plan:
        """An upper bound: as if no two seeds met the same prompt."""
        return reduce(together, (part.cost() for part in self.parts))

    def ask(self, budget: Budget) -> RankerSeeds:
        """Train each seed; run and metrics of the result are those of the first."""
        done = [part.ask(budget) for part in self.parts]
        figures = tuple(
            SeedFigures(part.core.seed, own.run, told.best, told.collapsed, told.untrained, told.kept_pass)
            for part, own in zip(self.parts, done, strict=True)
            for told in [own.metrics]
        )
        usage = sum((own.usage for own in done), Usage())
        return RankerSeeds(done[0].run, done[0].llm, usage, done[0].metrics, figures)
