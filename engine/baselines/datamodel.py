"""A datamodel of the pool: how each demonstration and each source changes the accuracy of prompts of k demonstrations.

For each validation query the pool gives its candidates, and the LLM answers prompts of k of them drawn at random. The
answers are regressed on who was in the prompt (Chang and Jia 2023, section 4, after Ilyas et al. 2022). Single-shot
trials (``train sources``) say what a demonstration does alone; this says what it does among others, at the same number
of calls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..base.errors import UsageError
from ..base.packages import VERSION
from ..checks.results import DatamodelMetrics, DatamodelRun, SourceEffect
from ..llm.asking import prompt_for, request_for
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.judge import Grader
from ..llm.marks import known_text, values_of
from ..llm.types import Request, Result
from ..pool.records import Query, Task
from ..retrieval.view import PoolView
from ..store import trials
from ..store.demonstrations import fetch, validation_queries
from ..store.settings import Settings
from ..store.trials import PromptTrials


@dataclass(frozen=True, slots=True, kw_only=True)
class DatamodelPlan:
    """``prompts`` for each query, each of k demonstrations drawn from its ``candidates`` best by ``ranking`` (dense or
    bm25); the first ``limit`` validation queries only."""

    prompts: int = 30
    candidates: int = 30
    ranking: str = "dense"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DatamodelTraining:
    """A prepared run: each of the ``requests`` is of one of the ``subsets``: the position of its query, and its rows,
    best first. ``sources`` are those of the rows."""

    llm: LLMClient
    plan: DatamodelPlan
    started: float
    task: Task
    queries: Sequence[Query]
    subsets: Sequence[tuple[int, Int64s]]
    sources: Mapping[int, str]
    requests: Sequence[Request]
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: DatamodelPlan = DatamodelPlan()) -> DatamodelTraining:
        """Draw the prompts; nothing is sent. Raises `UsageError` if there are no validation queries, or not more
        candidates than demonstrations in a prompt."""
        started, workspace, settings = time.perf_counter(), llm.workspace, llm.settings
        queries = validation_queries(workspace, "a datamodel", plan.limit, llm.monitor)
        view = PoolView(workspace, settings, llm.monitor)
        task, capabilities = view.task, llm.capabilities
        subsets = _subsets([rows for rows, _ in view.top(plan.ranking, queries, plan.candidates)], plan, settings)
        shots = {shot.row: shot for shot in fetch(workspace, np.unique(np.concatenate([rows for _, rows in subsets])))}
        prompts = [
            prompt_for(queries[place], [shots[row] for row in rows.tolist()], task, settings)[0]
            for place, rows in subsets
        ]
        requests = [request_for(prompt, settings, capabilities) for prompt in prompts]
        sources = {row: shot.source for row, shot in shots.items()}
        return cls(llm, plan, started, task, queries, subsets, sources, requests, Grader.of(llm, task))

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price."""
        return self.grader.plan(self.llm, self.requests)

    def ask(self, budget: Budget) -> DatamodelRun:
        """Ask what is not cached, store the answers and fit; returns the ``train --json`` contract."""
        llm = self.llm
        described = (
            asdict(self.plan)
            | {"k": llm.settings.k, "version": VERSION, "queries": len(self.queries)}
            | self.grader.told
        )
        with llm.recorded(trials.PROMPTS, described) as record:
            results = llm.ask(self.requests, budget)
            tried = self._trials(record.run, results, budget)
            trials.save_prompts(llm.workspace, tried)
            metrics = DatamodelMetrics(
                queries=len(np.unique(tried.queries)),
                prompts=len(tried.right),
                right=float(tried.values.mean()) if len(tried.right) else None,
                rows=len({row for rows in tried.shown for row in rows}),
                sources=source_effects(tried, self.sources),
                seconds=time.perf_counter() - self.started,
                judge=self.grader.judging,
            )
            done = DatamodelRun(record.run, llm.name, usage_of(results), metrics)
            record.summary = done.as_json()
        return done

    def _trials(self, run: int, results: Sequence[Result], budget: Budget) -> PromptTrials:
        marks = self.grader.marks([self.queries[place] for place, _ in self.subsets], results, budget)
        answered = [
            (self.queries[place].row, rows.tolist(), mark)
            for (place, rows), result, mark in zip(self.subsets, results, marks, strict=True)
            if known_text(result, mark) is not None
        ]
        queries = np.array([query for query, _, _ in answered], np.int64)
        right = np.array([mark.right for _, _, mark in answered], np.bool_)
        values = values_of(mark for _, _, mark in answered)
        return PromptTrials(run, queries, [rows for _, rows, _ in answered], right, values)


def _subsets(candidates: Sequence[Int64s], plan: DatamodelPlan, settings: Settings) -> list[tuple[int, Int64s]]:
    """For each prompt the position of its query, and its rows, best first. Every candidate of a query is drawn before
    any is drawn again."""
    k, draw = settings.k, np.random.default_rng([settings.seed, 9])
    if max(map(len, candidates), default=0) <= k or k < 1:
        raise UsageError(
            f"prompts of {k} demonstrations need more than {max(k, 1)} candidates",
            "give more --candidates, or a smaller -k",
        )
    subsets = []
    for place, rows in enumerate(candidates):
        waiting = np.empty(0, np.int64)
        for _ in range(plan.prompts if len(rows) > k else 0):
            if len(waiting) < k:
                others = np.setdiff1d(np.arange(len(rows)), waiting)
                waiting = np.concatenate([waiting, draw.permutation(others)])
            drawn, waiting = np.sort(waiting[:k]), waiting[k:]
            subsets.append((place, rows[drawn]))
    return subsets


def source_effects(tried: PromptTrials, source_of: Mapping[int, str]) -> dict[str, SourceEffect]:
    """By source, the change in the value of an answer if a prompt shows one more of its demonstrations in the place of
    an average one: least squares within queries on the numbers of demonstrations by source, with errors clustered by
    query."""
    names = sorted({source_of[row] for rows in tried.shown for row in rows})
    if not names:
        return {}
    number = {name: i for i, name in enumerate(names)}
    counts = np.zeros((len(tried.shown), len(names)))
    for i, rows in enumerate(tried.shown):
        for row in rows:
            counts[i, number[source_of[row]]] += 1
    shown = counts.sum(axis=0)
    queries = np.unique(tried.queries, return_inverse=True)[1]
    within = counts - means(counts, queries)[queries]  # x less its mean over the query
    rest = tried.values - means(tried.values[:, None], queries)[queries, 0]
    inverse = np.linalg.pinv(within.T @ within)
    effects = inverse @ within.T @ rest  # (x'x)⁻¹ x'y
    errors = rest - within @ effects
    scores = np.zeros((queries.max() + 1, len(names)))
    np.add.at(scores, queries, within * errors[:, None])  # of each query Σ x e, whose squares are the clustered errors
    centred = np.eye(len(names)) - shown / shown.sum()  # relative to the demonstrations shown
    spread = centred @ inverse @ (scores.T @ scores) @ inverse @ centred.T
    return {
        name: SourceEffect(float(effect), float(error), int(count))
        for name, effect, error, count in zip(
            names, centred @ effects, np.sqrt(np.maximum(np.diag(spread), 0.0)), shown, strict=True
        )
    }


def means(values: Float64s, groups: Int64s) -> Float64s:
    """Means (groups, c) of ``values`` (n, c)."""
    sums = np.zeros((groups.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    return np.asarray(sums / np.bincount(groups)[:, None])
