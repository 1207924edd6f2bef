"""Methods × seeds on a split: select, ask, mark, compare.

Answers come through the call cache, so an interrupted evaluation continues where it stopped and a repeated one is free.
What became of each query is said by `llm.marks`: one that failed, or whose answer a judge gave no verdict on, is
missing from all figures, and a method of which too many are missing is not compared with others. Every failed call is
counted, including calls in a method's selection stages.
"""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base import contract
from ..base.arrays import Bools, Float64s
from ..base.errors import UsageError
from ..base.packages import VERSION
from ..base.progress import Event, Monitor
from ..grading.metrics import ACCURACY, Metric
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, together, usage_of
from ..llm.judge import Grader
from ..llm.marks import Mark, Tally, excerpt, scores_of, tally, values_of
from ..llm.types import Answer, Request, Result
from ..pool.answers import exact_match, token_f1
from ..pool.records import Query, Split, Task
from ..retrieval.view import PoolView
from ..select.methods import METHODS, Method, transferred
from ..select.selector import Selector, method_named
from ..store import runs
from ..store.demonstrations import field_values, first_queries
from ..store.demonstrations import queries as queries_of
from ..store.settings import Settings, knobs
from ..store.workspace import Workspace
from .figures import MEASURES, Measured, agreement, confusion, flips, hint, llm_seconds, perplexity, timed
from .request_stages import (
    LLM_METHODS,
    FinalAnswers,
    LLMMethod,
    MethodContext,
    MethodRun,
    RequestStages,
    Stage,
    check_all,
    run_stages,
)
from .results import (
    AS_INDEXED,
    KIND,
    EvaluationReport,
    GroupFigures,
    MethodFigures,
    QueryGroup,
    QueryGroups,
    Setup,
    SweepPoint,
    SweepReport,
    Swept,
    Transfer,
    Versus,
)
from .statistics import compare, holm, interval_of, mean_of, over_seeds

TRANSFER = "ranker-transfer"
"""The rankers of another workspace."""

BASELINES = ("zero", "random", "bm25", "dense", "dpp", "set-bsr", "ranker-untrained", "promptpg", "rerank", "sure")
"""What a method is compared with, the best of them: those that need no training, and the other ones of paper 000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """What to compare. A method that ignores seeds runs once; ``zero`` always runs, to separate easy from hard
    queries. ``confusion``: also which labels are answered for which. ``mdr_error``: the C of ``mdr``, None to choose it
    on validation queries. ``flips``: also which answers turned from zero to k shots. ``transfer``: the folder of
    another workspace, whose rankers are compared, too, as `TRANSFER`. ``by``: figures by this field of the queries,
    too. ``as_indexed``: of the pool as if nothing had been decided."""

    methods: tuple[str, ...]
    seeds: int = 3
    split: Split = "test"
    limit: int | None = None
    confusion: bool = False
    mdr_error: float | None = 0.5
    flips: bool = False
    transfer: Path | None = None
    by: str = ""
    as_indexed: bool = False


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a comparison would ask: its ``requests``, and the final ``answers`` that a judge would be asked about, None
    for those that are not known yet."""

    requests: list[Request]
    answers: list[tuple[Query, str | None]]


@dataclass(frozen=True, slots=True)
class _ScoredRun:
    """Outcomes of a method run, each (n,): the ``marks``, right or wrong, SQuAD EM and F1, nan for those that are
    missing."""

    method_run: MethodRun
    answered: FinalAnswers
    marks: Sequence[Mark]
    correct: Float64s
    em: Float64s
    f1: Float64s

    @property
    def shown(self) -> list[list[int]]:
        """The rows in each query's prompt, best first: without those that did not fit."""
        pairs = zip(self.answered.shown, self.answered.dropped, strict=True)
        return [shown[: len(shown) - lost] for shown, lost in pairs]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A prepared comparison of the ``methods``: those of the plan, then `TRANSFER` if it is asked for.

    ``registered`` are the methods that select without the LLM. ``selections`` has every method and seed, `zero` first:
    for each query the rows to show, and the seconds that a selection takes; None where the LLM selects. ``values`` are
    those of the field ``by``.
    """

    llm: LLMClient
    plan: EvaluationPlan
    grader: Grader
    methods: Sequence[str]
    registered: Mapping[str, Method]
    queries: Sequence[Query]
    values: Sequence[str]
    context: MethodContext
    selections: Mapping[tuple[str, int], tuple[list[list[int]], float] | None]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: EvaluationPlan) -> Evaluation:
        """Select the demonstrations. In a dry run not even a probe is sent: an LLM that was never probed is assumed to
        generate, not to score. Raises `UsageError` if the split is empty or a method unknown or untrained, `LLMError`
        if the LLM lacks what a method needs, before any request."""
        workspace, settings = llm.workspace, llm.settings
        methods, registered = _compared(workspace, plan)
        notes: list[Event] = []  # of the queries: told once the options are found right, beside no error of theirs
        queries = first_queries(workspace, plan.split, plan.limit, Monitor(notes.append))
        if not queries:
            others = "; or those that decisions have seen: --split validation" if plan.split == "test" else ""
            raise UsageError(
                f"there are no {plan.split} queries", f"icl-curate index --{plan.split} QUERIES.jsonl{others}"
            )
        values = field_values(workspace, queries, plan.by) if plan.by else []
        capabilities = llm.capabilities
        view = PoolView.as_indexed(workspace, settings, llm.monitor) if plan.as_indexed else None
        selector = Selector(workspace, "zero", settings=settings, view=view, monitor=llm.monitor)
        choosing = plan.mdr_error is None and "mdr" in methods
        if plan.confusion and selector.task.kind != "labels":
            raise UsageError("--confusion needs a pool whose answers are labels", "omit --confusion")
        grader = Grader.of(llm, selector.task)
        if choosing and grader.judge:
            raise UsageError("the C of mdr cannot be chosen by a judge's verdicts", "--mdr-c X, or another --metric")
        check_all(plan.methods, selector.task, capabilities, llm.name)
        for note in notes:
            llm.monitor.report(note)
        context = MethodContext(
            selector, llm.backend, settings, capabilities, queries, llm.monitor, plan.mdr_error,
            queries_of(workspace, "validation", plan.limit) if choosing else (), grader.metric,
        )  # fmt: skip

        def select(method: Method, seed: int, asked: Sequence[Query]) -> list[list[int]]:
            llm.monitor.check()
            return [[pick.row for pick in picks] for picks in method.choose(selector.view, asked, settings.k, seed)]

        selections = {
            (name, seed): timed(partial(select, registered[name], seed), queries) if name in registered else None
            for name in dict.fromkeys(["zero", *methods])
            for seed in _seeds(registered.get(name) or LLM_METHODS[name], plan.seeds, selector)
        }
        return cls(llm, plan, grader, methods, registered, queries, values, context, selections)

    @property
    def task(self) -> Task:
        """What the pool's answers are."""
        return self.context.selector.task

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price of the whole comparison."""
        return cost_of([self])

    def foreseen(self) -> Foreseen:
        """Every request of the comparison, without sending any.

        For methods that ask in stages, the requests after an unknown reply are estimated from a typical reply.
        """
        requests: list[Request] = []

        def presume(asked: list[Request], stages: list[Stage]) -> list[Result]:
            requests.extend(asked)
            presumed = [result for stage in stages for result in stage.presumed]
            return [known or guess for known, guess in zip(self.llm.from_cache(asked), presumed, strict=True)]

        method_runs = self.begin()
        run_stages(method_runs, presume)
        answers = [
            (query, result.text if result.cached else None)
            for answered in (method_run.answered for method_run in method_runs)
            for query, result in zip(self.queries, answered.results if answered else (), strict=False)
            if isinstance(result, Answer)
        ]
        return Foreseen(requests, answers)

    def ask(self, budget: Budget) -> EvaluationReport:
        """Ask what is not cached, mark every answer, store the outcomes, and compare."""
        workspace, method_runs = self.llm.workspace, self.begin()
        setup = self._setup(method_runs)
        kind = AS_INDEXED if self.plan.as_indexed else KIND
        with self.llm.recorded(kind, contract.to_json(setup)) as record:
            run_stages(method_runs, lambda requests, _: self.llm.ask(requests, budget))
            grader = replace(self.grader)
            scored_runs = _scored(method_runs, self.queries, grader, budget)
            for scored_run in scored_runs:
                runs.add_evaluations(workspace, _outcomes(record.run, scored_run, self.queries))
            report = replace(self._report(record.run, setup, scored_runs), judge=grader.judging)
            if grader.judge:
                (*_, last) = scored_runs
                both = agreement(workspace, self.queries, last.answered.results, last.marks, self.task)
                report = replace(report, agreement=both)
            record.summary = report.summary()
        if self.plan.confusion:
            by_method = {name: confusion(workspace, report.run, name) for name in report.methods}
            report = replace(report, confusion=by_method)
        if self.plan.flips:
            report = replace(report, flips=flips(workspace, report.run, self.methods, self.llm.settings.seed))
        return report

    def begin(self) -> list[MethodRun]:
        """Every method and seed, `zero` first, each with its first stage."""

        def stages(name: str, seed: int) -> RequestStages:
            if selection := self.selections[name, seed]:
                return self.context.answer(selection[0], name)
            return LLM_METHODS[name].request_stages(self.context, seed)

        return [MethodRun(*run, stages(*run)).begin() for run in self.selections]

    def _setup(self, method_runs: Sequence[MethodRun]) -> Setup:
        (zero, *_) = method_runs
        scored = zero.stage is not None and zero.stage.requests[0].score
        return Setup(
            split=self.plan.split,
            queries=len(self.queries),
            k=self.llm.settings.k,
            llm=self.llm.name,
            task=self.task.kind,
            metric=metric_of(self.task, self.grader.metric),
            answered_by="score" if scored else "generate",
            seeds=self.plan.seeds,
            settings=knobs(self.llm.settings),
            version=VERSION,
            graded_by=self.grader.by,
            as_indexed=self.plan.as_indexed or None,
        )

    def _report(self, run: int, setup: Setup, scored_runs: list[_ScoredRun]) -> EvaluationReport:
        (zero, *_) = scored_runs  # fixed before any compared method is evaluated
        easy = np.array([mark.state == "right" for mark in zero.marks], np.bool_)
        hard = np.array([mark.answered for mark in zero.marks], np.bool_) & ~easy  # one without an answer is neither
        by_method = {name: [run for run in scored_runs if run.method_run.method == name] for name in self.methods}
        tallies = {name: tally(mark for run in own for mark in run.marks) for name, own in by_method.items()}
        items = {name: _items(own) for name, own in by_method.items() if tallies[name].comparable}
        references = {name: other for name in items if (other := _reference(name, items))}
        versus = self._versus(items, references, items)
        measured = [
            done for measure in MEASURES.values() if (done := measure(self.context.selector.view, self.queries))
        ]
        methods = {
            name: self._figures(own, tallies[name], easy, hard, measured, versus.get(name))
            for name, own in by_method.items()
        }
        counts = int(easy.sum()), int(hard.sum())
        zero_alone = zero.method_run.method not in by_method
        report = EvaluationReport(
            run, setup, *counts, methods, trained_on=self._trained_on(), transfer=self._transfer(items),
            by=self._groups(by_method, easy) if self.plan.by else None, untrained=self._untrained(),
            zero_shot=usage_of(zero.method_run.received) if zero_alone else None,
        )  # fmt: skip
        if not (zero_alone and setup.k and tally(zero.marks).comparable):  # without shots all are the same prompts
            return report
        against = self._versus(items, dict.fromkeys(items, "zero"), {"zero": _items([zero])})
        return replace(report, against_zero=against.get(report.best))

    def _groups(self, by_method: Mapping[str, list[_ScoredRun]], easy: Bools) -> QueryGroups:
        """The figures of the methods by the value that each query has of the field."""
        is_open = self.task.kind == "open"

        def figures(scored_runs: list[_ScoredRun], own: Bools) -> GroupFigures:
            items = _items(scored_runs)[own]
            f1 = mean_of([mean_of(run.f1[own]) for run in scored_runs]) if is_open else None
            return GroupFigures(mean_of(items), interval_of(items, self.llm.settings.seed), f1)

        groups = {}
        for value in sorted(set(self.values)):
            own = np.array([query_value == value for query_value in self.values], np.bool_)
            methods = {name: figures(scored_runs, own) for name, scored_runs in by_method.items()}
            groups[value] = QueryGroup(int(own.sum()), int(easy[own].sum()), methods)
        return QueryGroups(self.plan.by, groups)

    def _transfer(self, items: dict[str, Float64s]) -> Transfer | None:
        """The rankers of the other workspace against those trained here, if both are compared."""
        if self.plan.transfer is None:
            return None
        here, there = items.get("ranker"), items.get(TRANSFER)
        pair = None if here is None or there is None else compare(there, here, self.llm.settings.seed)
        versus = None if pair is None else Versus("ranker", **asdict(pair), p_holm=pair.p)
        return Transfer(str(self.plan.transfer), versus)

    def _trained_on(self) -> tuple[str, ...]:
        """The methods trained on the queries that judge them: training uses all validation queries."""
        seen = self.plan.split == "validation"
        return tuple(name for name in self.methods if seen and name in METHODS and METHODS[name].trained)

    def _untrained(self) -> tuple[str, ...]:
        """The rankers whose training kept its start, with one of the seeds at least."""
        names = [
            name
            for name, seed in self.selections
            if (method := self.registered.get(name))
            and method.untrained
            and method.untrained(self.context.selector.view, seed)
        ]
        return tuple(dict.fromkeys(names))

    def _versus(
        self, items: Mapping[str, Float64s], others: Mapping[str, str], known: Mapping[str, Float64s]
    ) -> dict[str, Versus]:
        """Each method of ``others`` compared with the other one, whose outcomes are ``known``. Two methods that are
        each other's other one are one test of the family."""
        pairs = {name: compare(items[name], known[other], self.llm.settings.seed) for name, other in others.items()}
        tests = {frozenset((name, others[name])): pair.p for name, pair in pairs.items()}
        adjusted = dict(zip(tests, holm([*tests.values()]), strict=True))
        return {
            name: Versus(others[name], **asdict(pair), p_holm=adjusted[frozenset((name, others[name]))])
            for name, pair in pairs.items()
        }

    def _figures(
        self,
        scored_runs: list[_ScoredRun],
        outcomes: Tally,
        easy: Bools,
        hard: Bools,
        measured: Sequence[Measured],
        versus: Versus | None,
    ) -> MethodFigures:
        items = _items(scored_runs)
        per_seed = [found for m in scored_runs if (found := mean_of(m.correct)) is not None]
        task = self.task
        accuracy, is_open = mean_of(items) if outcomes.answered else None, task.kind == "open"
        f1 = mean_of([mean_of(m.f1) for m in scored_runs]) if is_open else None
        answered = zip(self.queries, scored_runs[0].answered.results, strict=True)
        perplexities = [perplexity(m.answered.results, self.queries, task) for m in scored_runs]
        unsure = [value for value in perplexities if value is not None]
        shown = [m.shown for m in scored_runs]
        most = self.llm.settings.answer_tokens
        more: dict[str, Any] = {name: figure for of in measured for name, figure in of(shown).items()}
        return MethodFigures(
            accuracy=accuracy,
            std=plain.stdev(per_seed) if len(per_seed) > 1 else None,
            ci95=interval_of(items, self.llm.settings.seed) if outcomes.answered else None,
            easy=mean_of(items[easy]),
            hard=mean_of(items[hard]),
            seeds=len(scored_runs),
            usage=usage_of([result for m in scored_runs for result in m.method_run.received]),
            shots=float(np.mean([len(rows) for own in shown for rows in own])),
            em=(
                mean_of([mean_of(m.em) for m in scored_runs])
                if is_open and self.grader.metric.name == ACCURACY.name
                else None
            ),
            f1=f1,
            perplexity=plain.geometric_mean(unsure) if unsure else None,
            selection_ms=1000 * float(np.mean([self._selection_seconds(m) for m in scored_runs])),
            versus=versus,
            unjudged=outcomes.unjudged if self.grader.judge else None,
            outcomes=outcomes,
            hint=hint(outcomes, accuracy, f1, [*answered], task, self.grader, most) or None,
            **more,
        )

    def _selection_seconds(self, scored: _ScoredRun) -> float:
        run = scored.method_run
        if selection := self.selections[run.method, run.seed]:
            return selection[1]
        return llm_seconds(run.received, scored.answered.results, len(self.queries))


def _compared(workspace: Workspace, plan: EvaluationPlan) -> tuple[list[str], Mapping[str, Method]]:
    """The names of the compared methods, and the methods that select without the LLM. Raises `UsageError` for an
    unknown one, or for a workspace without rankers to transfer."""
    names = list(dict.fromkeys(plan.methods))
    for name in names:
        if name not in LLM_METHODS:
            method_named(name, LLM_METHODS)
    if not (path := plan.transfer):
        return names, METHODS
    if path.resolve() == workspace.path.resolve():
        raise UsageError(f"{path} is this workspace", "--transfer takes another one, in which a ranker was trained")
    return [*names, TRANSFER], {**METHODS, TRANSFER: transferred(Workspace.open(path))}


def _seeds(method: Method | LLMMethod, seeds: int, selector: Selector) -> Sequence[int]:
    """The seeds under which a method runs: one if it ignores them."""
    first = selector.settings.seed
    wanted = range(first, first + (seeds if method.seeded else 1))
    distinct = method.distinct if isinstance(method, Method) else None
    return distinct(selector.view, wanted) if distinct else wanted


def metric_of(task: Task, metric: Metric = ACCURACY) -> str:
    """What ``accuracy`` means for the task."""
    if metric.name != ACCURACY.name:
        return metric.name
    return "exact match" if task.kind in ("open", "sets") else "accuracy"


def cost_of(evaluations: Sequence[Evaluation]) -> Plan:
    """Prompts, cached answers, tokens and price of comparisons by the same LLM and judge; a prompt that several share
    counts once."""
    first, foreseen = evaluations[0], [each.foreseen() for each in evaluations]
    plan = first.llm.plan([request for each in foreseen for request in each.requests])
    if judge := first.grader.judge:
        plan = together(plan, judge.plan([pair for each in foreseen for pair in each.answers]))
    return plan


def _scored(
    method_runs: Sequence[MethodRun], queries: Sequence[Query], grader: Grader, budget: Budget
) -> list[_ScoredRun]:
    """The outcomes of all method runs; a judge is asked about all of them at once."""
    answered = [method_run.answered for method_run in method_runs if method_run.answered]
    assert len(answered) == len(method_runs)  # run_stages completes every method run
    every = [result for final in answered for result in final.results]
    marks = grader.marks([*queries] * len(answered), every, budget)
    scored = []
    for i, (method_run, final) in enumerate(zip(method_runs, answered, strict=True)):
        own = marks[i * len(queries) : (i + 1) * len(queries)]
        texts = [result.text if isinstance(result, Answer) else None for result in final.results]
        em, f1 = (scores_of(score, texts, queries, own) for score in (exact_match, token_f1))
        scored.append(_ScoredRun(method_run, final, own, values_of(own), em, f1))
    return scored


def _items(scored_runs: Sequence[_ScoredRun]) -> Float64s:
    """One outcome per query: its mean over the seeds in which it is known, nan without any."""
    return over_seeds([m.correct for m in scored_runs])


def _reference(name: str, items: dict[str, Float64s]) -> str | None:
    """The best baseline other than the method itself."""
    others = [other for other in items if other != name and other in BASELINES]
    return max(others, key=lambda other: np.nanmean(items[other]), default=None)


def _outcomes(run: int, scored_run: _ScoredRun, queries: Sequence[Query]) -> dict[str, list[Any]]:
    results = scored_run.answered.results
    answered = [r if isinstance(r, Answer) else None for r in results]
    return {
        "run": [run] * len(queries),
        "method": [scored_run.method_run.method] * len(queries),
        "seed": [scored_run.method_run.seed] * len(queries),
        "row": [query.row for query in queries],
        "demonstrations": scored_run.shown,
        "dropped": scored_run.answered.dropped,
        "answer": [a.text if a else None for a in answered],
        "reply": [excerpt(a.reply) if a and a.reply.strip() != a.text else None for a in answered],
        "how": [a.how if a else None for a in answered],
        "value": [None if math.isnan(mark.value) else mark.value for mark in scored_run.marks],
        "failure": ["" if mark.answered else mark.why for mark in scored_run.marks],
        "state": [mark.state for mark in scored_run.marks],
        "correct": [mark.right if mark.answered else None for mark in scored_run.marks],
        "f1": [float(f1) if a else None for f1, a in zip(scored_run.f1, answered, strict=True)],
        "uncertainty": [a.uncertainty if a else None for a in answered],
        "tokens_in": [a.tokens_in if a else 0 for a in answered],
        "tokens_out": [a.tokens_out if a else 0 for a in answered],
    }


LEAST: Mapping[Swept, int] = {"k": 0, "preselect": 1}
"""The settings that can be swept, and their smallest values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """One setting and its values, in the order given."""

    setting: Swept
    values: tuple[int, ...]

    def settings(self, base: Settings, value: int) -> Settings:
        """``base`` with one value. ``preselect`` holds for trained policies, too, whatever they were trained with."""
        if self.setting == "k":
            return replace(base, k=value)
        return replace(base, preselect=value, policy_candidates=value)


def sweep_named(text: str) -> SweepPlan:
    """From ``k=0,1,2,5``. Raises `UsageError` for another setting or values that are not different whole numbers."""
    name, _, given = text.partition("=")
    fix = "--sweep k=0,1,2,5 or --sweep preselect=10,20,50"
    setting = next((each for each in LEAST if each == name.strip()), None)
    if setting is None:
        raise UsageError(f"cannot sweep '{name.strip()}'", fix)
    try:
        values = tuple(int(value) for value in given.split(","))
    except ValueError as error:
        raise UsageError(f"--sweep {text}: the values must be whole numbers", fix) from error
    if min(values) < LEAST[setting] or len(set(values)) < len(values):
        raise UsageError(f"--sweep {text}: the values must differ, and be {LEAST[setting]} or more", fix)
    return SweepPlan(setting=setting, values=values)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A prepared evaluation for each value of a ``setting``; `cost` and `ask` as those of `Evaluation`, over all
    values.

    Values share the call cache: ``zero`` and prompts that do not depend on the value are asked once.
    """

    setting: Swept
    evaluations: Mapping[int, Evaluation]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: EvaluationPlan, sweep: SweepPlan) -> Sweep:
        """As `Evaluation.prepare` for each value."""
        clients = {value: replace(llm, settings=sweep.settings(llm.settings, value)) for value in sweep.values}
        return cls(sweep.setting, {value: Evaluation.prepare(client, plan) for value, client in clients.items()})

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price of all values; a prompt that several share counts once."""
        return cost_of([*self.evaluations.values()])

    def ask(self, budget: Budget) -> SweepReport:
        """Evaluate value by value within one budget."""
        points = [SweepPoint(value, evaluation.ask(budget)) for value, evaluation in self.evaluations.items()]
        return SweepReport(self.setting, tuple(points))
