"""Paid evidence by row: the LLM answers each row's own input with the row's nearest other rows as shots.

One call a row. A wrong row's output is not what the LLM says there, and is less likely to it than other outputs are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ..base.packages import VERSION
from ..llm.asking import prompt_budget, prompt_for, request_for, scores
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.judge import Grader
from ..llm.marks import Mark, known_text
from ..llm.types import Answer, Failure, Request, Result
from ..pool.answers import accepted_options, token_f1
from ..pool.records import Demonstration, Task
from ..store import trials
from ..store.trials import RowAnswers
from .active import ActivePool
from .evidence import ANSWERS, SURE, PoolEvidence, row_evidence
from .results import RowMetrics, RowRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """``ranking`` of the shots (dense or bm25); at most ``limit`` rows, drawn at random or, ``suspects_first``, those
    most likely to hurt by the evidence so far."""

    ranking: str = "dense"
    limit: int | None = None
    suspects_first: bool = False


@dataclass(frozen=True, slots=True)
class RowTraining:
    """A prepared run: the ``requests`` ask the inputs of the ``rows``, each with its ``shown`` rows as shots."""

    llm: LLMClient
    plan: RowPlan
    started: float
    pool: ActivePool
    rows: Sequence[Demonstration]
    shown: Sequence[Sequence[int]]
    requests: Sequence[Request]
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: RowPlan = RowPlan()) -> RowTraining:
        """Choose the rows and search their shots; in a dry run not even a probe is sent. Raises `UsageError` if the
        pool is empty."""
        started, settings = time.perf_counter(), llm.settings
        pool = ActivePool(llm.workspace, settings, llm.monitor)
        view, capabilities = pool.view, llm.capabilities
        # by other evidence than such answers, so that the same command chooses and asks nothing anew
        known = row_evidence(pool, [kind for kind in ANSWERS if kind != "own"])
        (rows,) = view.demonstrations([_chosen_rows(known, plan, view.rows.tolist(), settings.seed)])
        # the nearest other rows of each, none of them a near duplicate of it or suspected
        suspects = np.sort(np.array([row.row for row in known.suspects()], np.int64))
        trusted = view.without(suspects) if len(view.rows) - len(suspects) > settings.k else view
        nearest = trusted.top(plan.ranking, [row.as_query() for row in rows], settings.k)
        shown = [own.tolist() for own, _ in nearest]
        limit, by_likelihood = prompt_budget(settings, capabilities), scores(settings, capabilities)
        requests = []
        for row, best_first in zip(rows, view.demonstrations(shown), strict=True):
            prompt, _ = prompt_for(row.as_query(), best_first, view.task, settings, llm.backend, limit)
            if not prompt.choices and by_likelihood:
                prompt = replace(prompt, choices=(row.output,))
            requests.append(request_for(prompt, settings, capabilities))
        return cls(llm, plan, started, pool, rows, shown, requests, Grader.of(llm, view.task))

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price."""
        return self.grader.plan(self.llm, self.requests)

    def ask(self, budget: Budget) -> RowRun:
        """Ask what is not cached and store the answers; returns the ``train --json`` contract."""
        llm = self.llm
        suspects_before, sure_before = self._suspects()
        described = (
            asdict(self.plan) | {"k": llm.settings.k, "rows": len(self.rows), "version": VERSION} | self.grader.told
        )
        with llm.recorded(trials.ROWS, described) as record:
            results = llm.ask(self.requests, budget)
            marks = self.grader.marks([row.as_query() for row in self.rows], results, budget)
            answered = self._row_answers(results, marks)
            # an output that was the only choice says nothing
            right = [
                bool(mark.right) for request, result, mark in zip(self.requests, results, marks, strict=True)
                if known_text(result, mark) is not None and len(request.prompt.choices) != 1
            ]  # fmt: skip
            trials.save_answers(llm.workspace, record.run, answered)
            suspects, sure = self._suspects()
            metrics = RowMetrics(
                rows=len(answered.rows),
                right=float(np.mean(right)) if right else None,
                scored=sum(isinstance(result, Answer) and bool(result.option_logprobs) for result in results),
                suspects_before=suspects_before,
                suspects=suspects,
                sure_before=sure_before,
                sure=sure,
                seconds=time.perf_counter() - self.started,
                judge=self.grader.judging,
            )
            done = RowRun(record.run, llm.name, usage_of(results), metrics)
            record.summary = done.as_json()
        return done

    def _row_answers(self, results: Sequence[Result], marks: Sequence[Mark]) -> RowAnswers:
        task = self.pool.view.task
        answered = [
            (row, shown, text, mark.right, own_score(result, row, task))
            for row, shown, result, mark in zip(self.rows, self.shown, results, marks, strict=True)
            if (text := known_text(result, mark)) is not None
        ]
        return RowAnswers(
            np.array([row.row for row, *_ in answered], np.int64),
            [text for _, _, text, *_ in answered],
            np.array([right for *_, right, _ in answered], np.bool_),
            np.array([score for *_, score in answered], np.float64),
            [shown for _, shown, *_ in answered],
        )

    def _suspects(self) -> tuple[int, int]:
        evidence = row_evidence(self.pool)
        return len(evidence.suspects()), len(evidence.suspects(SURE))


def _chosen_rows(known: PoolEvidence, plan: RowPlan, rows: Sequence[int], seed: int) -> list[int]:
    if plan.suspects_first:
        return [row.row for row in known.suspects(0.0)[: plan.limit]]
    drawn = np.random.default_rng([seed, 8]).permutation(len(rows))[: plan.limit]
    return [rows[i] for i in sorted(drawn.tolist())]


def own_score(answer: Result, row: Demonstration, task: Task) -> float:
    """How well the LLM likes the row's own output: with choices, its mean log-probability per token less that of the
    best other choice; alone, its mean log-probability; else the F1 of the generated answer; nan without any."""
    choices = task.choices(row.as_query())
    if isinstance(answer, Failure):
        return float("nan")
    if not answer.option_logprobs:
        return float("nan") if choices else token_f1(answer.text, row.as_query().answers)
    means = np.array(answer.token_means)
    if not choices:
        return float(means[0])
    own = np.array(accepted_options(choices, row.as_query().answers))
    return float(means[own].max() - means[~own].max()) if own.any() and not own.all() else float("nan")
