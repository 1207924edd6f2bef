"""`train fixed`: a set of demonstrations that serves every query, raced with served prompts on validation queries.

Retrieval gives each query its own demonstrations; a service without an index sends the same ones to all. Sets are
proposed without the LLM: those that cover the validation queries best by embedding, over all rows and label by label,
and random ones with the labels in equal parts. Coverage is facility location, which is monotone and submodular: the
greedy algorithm gains at least 1 − 1/e of what the best set would (Nemhauser, Wolsey and Fisher 1978).

The race decides between them as in `tune`: the first is the baseline, and another is taken only where it is confirmed
on queries that did not choose it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ..base.arrays import Float32s, Int64s
from ..base.contract import OPTIONAL
from ..base.errors import BudgetError, UsageError
from ..base.packages import VERSION
from ..base.progress import SILENT, Event
from ..evaluate.request_stages import MethodContext
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Judging, Plan, TrainingRun, usage_of
from ..llm.judge import Grader
from ..llm.marks import GradedBy
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..select.selector import Selector
from ..store.demonstrations import fetch, task_of
from ..store.settings import knobs
from ..trials import fixed
from ..trials.uses import NOISE
from .cells import CellAnswers, Cells, cells_of
from .race import race
from .results import Difference
from .tune import figures_of, stopped, validation

MOST_ROWS = 20_000
"""Rows that sets are proposed from; of a larger pool a random sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPlan:
    """``sets`` to race, at least two; ``noise``: the least gain over the first, in standard errors; ``limit``: the
    first so many validation queries only."""

    sets: int = 16
    noise: float = NOISE
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class FixedShot:
    """A demonstration of the set."""

    row: int
    id: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class RacedSet:
    """A set with its accuracy on the ``queries`` it was asked, and ``versus`` the first set on the same ones."""

    name: str
    queries: int
    accuracy: float | None
    versus: Difference | None
    dropped_after: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class FixedMetrics:
    """The set that was kept, best first, and all that were raced. ``gain``: over the first set, with its standard
    error, on queries that did not choose; ``confirmed``: beyond noise, else the first set is kept. ``stopped`` says why
    the race ended early."""

    shots: tuple[FixedShot, ...]
    sets: tuple[RacedSet, ...]
    gain: float
    gain_error: float | None
    confirmed: bool
    stopped: str
    seconds: float
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class FixedRun(TrainingRun):
    """A finished run of ``train fixed``."""

    kind = "train-fixed"
    metrics: FixedMetrics


@dataclass(frozen=True, slots=True)
class FixedTraining:
    """A prepared race: the ``sets`` of rows by name, best first, and the ``cells`` of their prompts."""

    llm: LLMClient
    plan: FixedPlan
    started: float
    queries: Sequence[Query]
    sets: Sequence[tuple[str, Int64s]]
    cells: Cells
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: FixedPlan = FixedPlan()) -> FixedTraining:
        """Propose the sets of `Settings.k` demonstrations and build their prompts; nothing is sent. Reports where there
        are more labels than shots. Raises `UsageError` for too few validation queries, sets or shots."""
        started, settings = time.perf_counter(), llm.settings
        if settings.k < 1 or plan.sets < 2:
            raise UsageError("a fixed prompt needs a shot, and a race two sets", "-k 8 --sets 16")
        queries = validation(llm, plan.limit)
        view = PoolView(llm.workspace, settings, llm.monitor)
        sets = propose(view, queries, settings.k, plan.sets, settings.seed)
        if view.task.kind == "labels" and settings.k < len(view.task.labels):
            of = len(view.task.labels)
            llm.monitor.report(
                Event("propose", note=f"{settings.k} demonstrations show at most {settings.k} of {of} labels: -k {of}")
            )
        context = MethodContext(
            Selector(llm.workspace, settings=settings, view=view),
            llm.backend,
            settings,
            llm.capabilities,
            queries,
            SILENT,
        )
        excluded = view.excluded_each(queries)
        cells = cells_of(
            context.prompts([rows[~np.isin(rows, own)].tolist() for own in excluded])[0] for _, rows in sets
        )
        return cls(llm, plan, started, queries, sets, cells, Grader.of(llm, task_of(llm.workspace)))

    def cost(self) -> Plan:
        """At most: if no set is dropped before the last query."""
        return self.grader.plan(self.llm, self.cells.requests)

    def ask(self, budget: Budget) -> FixedRun:
        """Race the sets and keep the best. If the budget ends, the result is what is known by then; raises
        `BudgetError` if that is nothing."""
        llm, settings = self.llm, self.llm.settings
        described = knobs(settings) | asdict(self.plan) | {"queries": len(self.queries), "version": VERSION}
        with llm.recorded(fixed.KIND, described | self.grader.told) as record:
            answers = CellAnswers(llm, self.grader, self.queries, self.cells, budget)
            outcome = race(answers, np.zeros(len(self.sets)), len(self.queries), seed=settings.seed)
            if not outcome.queries:
                more = f"--max-calls {budget.calls + answers.refused} or more"
                more = more if budget.max_cost is None else "a higher --max-calls or --max-cost"
                again = f"run the same command again with {more}; answers are kept"
                raise BudgetError(stopped(outcome, answers, len(self.queries)), again)
            confirmed = outcome.confirmed(self.plan.noise) and answers.outcomes.decides
            winner = outcome.winner if confirmed else 0
            shots = fetch(llm.workspace, self.sets[winner][1])
            raced = [
                RacedSet(name=name, **figures_of(outcome, place), chosen=place == winner)
                for place, (name, _) in enumerate(self.sets)
            ]
            metrics = FixedMetrics(
                shots=tuple(FixedShot(shot.row, shot.id, shot.input, shot.output) for shot in shots),
                sets=tuple(raced),
                gain=outcome.gain.mean,
                gain_error=outcome.gain.error if outcome.gain.queries else None,
                confirmed=confirmed,
                stopped=stopped(outcome, answers, len(self.queries)),
                seconds=time.perf_counter() - self.started,
                graded_by=self.grader.by,
                judge=self.grader.judging,
            )
            done = FixedRun(record.run, llm.name, usage_of(list(answers.results.values())), metrics)
            fixed.keep(llm.workspace, record.run, [shot.id for shot in shots])
            record.summary = done.as_json()
        return done


def propose(view: PoolView, queries: Sequence[Query], k: int, count: int, seed: int) -> list[tuple[str, Int64s]]:
    """``count`` different sets of at most ``k`` rows by name, each best first: in prompts the best stands last. The
    first covers the queries; a pool without labels has no sets by label. Raises `UsageError` without vectors."""
    draw = np.random.default_rng([seed, 12])
    rows = view.rows
    if len(rows) > MOST_ROWS:
        rows = np.sort(draw.choice(rows, MOST_ROWS, replace=False))
    labels = _labels(view, rows)
    cosines = view.embed(queries) @ view.vectors(rows).T  # (queries, rows)
    sets = {"covers the queries": rows[covering(cosines, k)]}
    if labels is not None:
        sets["covers them label by label"] = rows[covering(cosines, k, labels)]
    while len(sets) < count and len(sets) < 2 + len(rows):
        drawn = draw.permutation(len(rows))
        if labels is not None:  # of each label in turn
            turn = np.zeros(len(rows), np.int64)
            for label in np.unique(labels):
                own = drawn[labels[drawn] == label]
                turn[own] = np.arange(len(own))
            drawn = drawn[np.argsort(turn[drawn], kind="stable")]
        sets[f"random {len(sets) - 1}"] = rows[drawn[:k]]
    return list(sets.items())


def covering(cosines: Float32s, k: int, labels: Int64s | None = None) -> Int64s:
    """Places (k,) of the columns that greedily maximise Σ_q max_{i in set} cos(q, i) (facility location), of
    ``cosines`` (queries, n). With ``labels`` (n,) each pick is of a label that was picked least so far."""
    queries, n = cosines.shape
    covered, chosen = np.full(queries, -1.0, np.float32), list[int]()
    picked = np.zeros(0 if labels is None else int(labels.max()) + 1, np.int64)
    for _ in range(min(k, n)):
        gains = np.maximum(cosines, covered[:, None]).sum(axis=0, dtype=np.float64)
        gains[chosen] = -np.inf
        if labels is not None:
            left = np.bincount(labels, minlength=len(picked)) > picked
            gains[picked[labels] > picked[left].min()] = -np.inf
        pick = int(gains.argmax())
        chosen.append(pick)
        covered = np.maximum(covered, cosines[:, pick])
        if labels is not None:
            picked[labels[pick]] += 1
    return np.array(chosen, np.int64)


def _labels(view: PoolView, rows: Int64s) -> Int64s | None:
    """A number for the output of each row, (n,); None where outputs are no labels."""
    if not view.task.labels:
        return None
    (shots,) = view.demonstrations([rows.tolist()])
    return np.unique([shot.output for shot in shots], return_inverse=True)[1].astype(np.int64)
