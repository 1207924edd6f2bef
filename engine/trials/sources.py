"""Learning source importance of a pool with the chosen LLM (paper 003, section 3, on demonstrations).

For each validation query the pool gives its ranked demonstrations; the LLM answers with each of them alone, and the
utility of an answer is its value by the metric. The utility learnt on these lists is additive in the answers, as in the
paper; ``evaluate`` then measures whether pruning helps with all shots in one prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from ..base.contract import Reported, from_json, to_json
from ..base.errors import UsageError
from ..base.files import read_regular, replace_file
from ..base.packages import VERSION
from ..base.progress import SILENT, Event, Monitor
from ..llm.asking import prompt_for, request_for
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.graded import grading_set, left_out
from ..llm.judge import Grader
from ..llm.marks import Mark, known_text, tally, values_of
from ..llm.types import Request, Result
from ..pool.records import Query, Task
from ..retrieval.view import PoolView
from ..store import runs, trials
from ..store.demonstrations import fetch, task_of, validation_queries
from ..store.settings import Settings
from ..store.trials import Grading, Trials
from ..store.workspace import Workspace
from .estimators import DELTA, EPSILON_SAMPLED, ESTIMATORS, Estimator, default_estimators, learning_estimators
from .lists import RankedLists, ranked_lists
from .results import ChosenSetting, CurvePoint, SourceMetrics, SourceRun
from .uses import NOISE, AppliedSetting, SettingChoice, check_enough, choose, pruning_curve

DEPTH = 50
"""Demonstrations tried for each query: the paper's M."""

FEWEST = 0.2
"""The share of answers that must repeat another one of their query for a vote; free texts hardly ever do."""

VOTE = "vote.json"
"""The file of a workspace with what `measure_vote` has computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """``depth`` demonstrations per query, ranked by ``ranking`` (dense or bm25); the first ``limit`` queries only.
    ``estimator`` is how weights are learnt, one of `learning_estimators`, with ``rate`` and ``epochs`` of its ascent,
    None for its usual ones (paper 003, section 3); ``epsilon`` and ``delta`` bound the error of sampled gradients
    (appendix D)."""

    depth: int = DEPTH
    ranking: str = "dense"
    limit: int | None = None
    rate: float | None = None
    epochs: int | None = None
    estimator: str = field(default_factory=lambda: next(iter(learning_estimators()), ""))
    epsilon: float = EPSILON_SAMPLED
    delta: float = DELTA

    def __post_init__(self) -> None:
        if (learning := learning_estimators()) and self.estimator not in learning:
            raise UsageError(f"{self.estimator} learns no weights", f"choose from {', '.join(learning)}")
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise UsageError("epsilon must be above 0, and delta between 0 and 1", "--epsilon 0.05 --delta 0.05")


@dataclass(frozen=True, slots=True)
class SourceTraining:
    """A prepared training run: the ``requests`` show each query of ``tried`` one row alone; ``sources`` are those of
    the rows."""

    llm: LLMClient
    plan: SourcePlan
    task: Task
    queries: Sequence[Query]
    tried: Sequence[tuple[Query, int]]
    sources: Mapping[int, str]
    requests: Sequence[Request]
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: SourcePlan = SourcePlan()) -> SourceTraining:
        """Rank the demonstrations of each validation query; in a dry run not even a probe is sent. Raises `UsageError`
        if there are too few validation queries to choose on or only one source, before any request."""
        workspace, settings = llm.workspace, llm.settings
        queries = validation_queries(workspace, "learning source weights", plan.limit, llm.monitor)
        check_enough(len(queries))
        task, capabilities = task_of(workspace), llm.capabilities
        ranked = PoolView(workspace, settings, llm.monitor).top(plan.ranking, queries, plan.depth)
        tried = [(query, row) for query, (rows, _) in zip(queries, ranked, strict=True) for row in rows.tolist()]
        shots = {shot.row: shot for shot in fetch(workspace, sorted({row for _, row in tried}))}
        if len({shot.source for shot in shots.values()}) < 2:
            raise UsageError("the pool has only one source: there is nothing to compare", "icl-curate sources")
        prompts = [prompt_for(query, [shots[row]], task, settings)[0] for query, row in tried]
        requests = [request_for(prompt, settings, capabilities) for prompt in prompts]
        sources = {row: shot.source for row, shot in shots.items()}
        return cls(llm, plan, task, queries, tried, sources, requests, Grader.of(llm, task))

    def cost(self) -> Plan:
        """Prompts, cached answers, tokens and price."""
        return self.grader.plan(self.llm, self.requests)

    def ask(self, budget: Budget) -> SourceRun:
        """Ask what is not cached, learn, store trials and scores; returns the ``train --json`` contract."""
        llm, workspace, k = self.llm, self.llm.workspace, self.llm.settings.k
        described = asdict(self.plan) | {"k": k, "version": VERSION, "queries": len(self.queries)} | self.grader.told
        with llm.recorded(trials.KIND, described) as record:
            results = llm.ask(self.requests, budget)
            grader = replace(self.grader)
            marks = grader.marks([query for query, _ in self.tried], results, budget)
            tally(marks).check()
            answered = self._trials(record.run, results, marks)
            lists, estimators = lists_of(answered), estimators_of(self.plan, llm.monitor)
            _tell(lists, llm.monitor)
            choice = choose(lists, k, estimators=estimators, seed=llm.settings.seed, monitor=llm.monitor)
            scores = {
                name: dict(zip(lists.names, estimator(lists, k), strict=True)) for name, estimator in estimators.items()
            }
            trials.save(workspace, answered, scores)
            metrics = SourceMetrics(
                queries=len(lists),
                sources={name: {kind: scores[kind][name] for kind in scores} for name in lists.names},
                baseline=choice.baseline,
                gain=choice.gain,
                gain_error=choice.gain_error,
                worth_it=choice.passed,
                chosen=ChosenSetting(choice.best.setting, _dropped(lists, choice.best)),
                judge=grader.judging,
            )
            done = SourceRun(record.run, llm.name, usage_of(results), metrics)
            record.summary = done.as_json()
        measure_vote(workspace, llm.settings, llm.monitor.quiet)  # while the compiled code is loaded
        return done

    def _trials(self, run: int, results: Sequence[Result], marks: Sequence[Mark]) -> Trials:
        answered = [
            (query, row, self.grader.metric.key(text, query, self.task), mark)
            for (query, row), result, mark in zip(self.tried, results, marks, strict=True)
            if (text := known_text(result, mark)) is not None
        ]
        return Trials(
            run,
            np.array([query.row for query, *_ in answered], np.int64),
            np.array([row for _, row, *_ in answered], np.int64),
            [self.sources[row] for _, row, *_ in answered],
            [answer for *_, answer, _ in answered],
            np.array([mark.right for *_, mark in answered], np.bool_),
            values_of(mark for *_, mark in answered),
        )


def lists_of(tried: Trials) -> RankedLists:
    """The trials as ranked lists, one per query. Each demonstration is a document of its own: it takes its own step
    before its source gets the mean (paper 003, equation 6). Answers with values between 0 and 1 that hardly repeat are
    not voted on."""
    sources, answers, utilities, documents = [], [], [], []
    places = range(len(tried.rows))
    for _, group in groupby(places, key=tried.queries.__getitem__):
        at = list(group)
        sources.append([tried.sources[i] for i in at])
        answers.append([tried.answers[i] for i in at])
        utilities.append([float(tried.values[i]) for i in at])
        documents.append([str(tried.rows[i]) for i in at])
    lists = ranked_lists(sources, answers, utilities, documents=documents)
    between = bool(((lists.utilities > 0) & (lists.utilities < 1)).any())
    return replace(lists, voted=not between or lists.repeated >= FEWEST)


def _tell(lists: RankedLists, monitor: Monitor) -> None:
    if not lists.voted:
        note = f"{lists.repeated:.0%} of the answers repeat another one: no vote, sources are compared by mean values"
        monitor.report(Event(trials.KIND, note=note))


def estimators_of(plan: SourcePlan, monitor: Monitor = SILENT) -> dict[str, Estimator]:
    """The estimators that a run compares, the one that learns its weights first. One that samples takes a minute where
    others take milliseconds: it reports, and can be cancelled."""
    chosen = {"rate": plan.rate, "epochs": plan.epochs}
    options: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if plan.estimator == "monte-carlo":
        options |= {"epsilon": plan.epsilon, "delta": plan.delta, "monitor": monitor}
    own = [plan.estimator] if plan.estimator in ESTIMATORS else []  # the core alone learns no weights
    learnt = {name: partial(ESTIMATORS[name].scores, **options) for name in own}
    others = [name for name in default_estimators() if not ESTIMATORS[name].weights]
    return learnt | {name: ESTIMATORS[name].scores for name in others}


@dataclass(frozen=True, slots=True)
class VoteTuneReport(Reported):
    """The effect of pruning by the learnt scores, measured on validation by the vote of the first k kept answers,
    or, of answers that cannot be counted, by their mean value.

    ``curve`` is that of the chosen estimator, on the queries that chose it. ``gain`` is cross-fitted and
    ``validation_after`` is ``validation_before`` with it: what queries without a part in the choice get.
    ``worth_it`` says whether the gain is significant; if not, ``pruned`` is empty.
    """

    kind = "vote-tuning"
    run: int
    estimator: str
    threshold: float | None
    pruned: tuple[str, ...]
    kept: tuple[str, ...]
    validation_before: float
    validation_after: float
    gain: float
    gain_error: float
    worth_it: bool
    curve: tuple[CurvePoint, ...]

    @property
    def reason(self) -> str:
        """Why the sources are pruned."""
        return f"run {self.run}: {self.estimator} below {self.threshold:.3g}"


def tune(workspace: Workspace, settings: Settings, noise: float = NOISE, monitor: Monitor = SILENT) -> VoteTuneReport:
    """Choose estimator and threshold on the trials of the latest run that is graded as the settings say; calls no LLM.
    `UsageError` if there is none."""
    run, lists, choice = _best_pruning(workspace, settings, noise, monitor)
    best = choice.best
    dropped = _dropped(lists, best)
    curve = tuple(pruning_curve(lists, best.scores, settings.k))
    tuned = VoteTuneReport(
        run=run,
        estimator=best.setting.estimator,
        threshold=min((float(s) for s, kept in zip(best.scores, best.kept, strict=True) if kept), default=None),
        pruned=dropped,
        kept=tuple(name for name in lists.names if name not in dropped),
        validation_before=choice.baseline,
        validation_after=choice.baseline + choice.gain,
        gain=choice.gain,
        gain_error=choice.gain_error,
        worth_it=choice.passed and bool(dropped),
        curve=curve,
    )
    if tuned.worth_it:
        return tuned
    return replace(tuned, pruned=(), kept=lists.names, validation_after=choice.baseline, threshold=None)


def sources_voted_out(workspace: Workspace, settings: Settings, monitor: Monitor = SILENT) -> tuple[str, ...]:
    """The sources that the best setting found by `tune` drops, significant or not. Raises as `tune`."""
    _, lists, choice = _best_pruning(workspace, settings, NOISE, monitor)
    return _dropped(lists, choice.best)


def _best_pruning(
    workspace: Workspace, settings: Settings, noise: float, monitor: Monitor
) -> tuple[int, RankedLists, SettingChoice]:
    """The run, its lists, and the pruning that is best for them."""
    tried = trials.latest(workspace, grading_set(workspace, settings))
    if tried is None:
        raise _unlearnt(workspace, settings)
    lists, own = lists_of(tried), {field.name for field in fields(SourcePlan)}
    _tell(lists, monitor)
    plan = SourcePlan(**{name: value for name, value in runs.settings(workspace, tried.run).items() if name in own})
    choice = choose(
        lists, settings.k, estimators=estimators_of(plan), uses=("prune",), voters=(settings.k,), decays=(1.0,),
        noise=noise, seed=settings.seed, monitor=monitor,
    )  # fmt: skip
    return tried.run, lists, choice


def _unlearnt(workspace: Workspace, settings: Settings) -> UsageError:
    """The error if no run of this grading has learnt weights."""
    others = left_out(workspace, settings, kinds=(trials.KIND,))
    return UsageError("; ".join(["no source weights yet", *others]), "icl-curate train sources")


def _dropped(lists: RankedLists, applied: AppliedSetting) -> tuple[str, ...]:
    return tuple(name for name, kept in zip(lists.names, applied.kept, strict=True) if not kept)


@dataclass(frozen=True, slots=True)
class Curves:
    """The effect of pruning by each estimator's scores of a run on the validation vote of k answers:
    ``scores`` by estimator and source, ``curves`` by estimator."""

    run: int
    k: int
    scores: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, tuple[CurvePoint, ...]]


def curves(workspace: Workspace, k: int, grading: Grading | None = None) -> Curves | None:
    """The whole curve of every estimator, without choosing one, by the latest run (of a ``grading``); calls no LLM.
    None before the first."""
    tried = trials.latest(workspace, grading)
    if tried is None:
        return None
    lists = lists_of(tried)
    scores = trials.scores_by_estimator(workspace, grading)
    drawn = {
        name: tuple(pruning_curve(lists, np.array([learnt[source] for source in lists.names]), k))
        for name, learnt in scores.items()
    }
    return Curves(tried.run, k, scores, drawn)


@dataclass(frozen=True, slots=True)
class VoteMeasurement:
    """The effect of pruning by the latest run that is graded as the settings say, on the vote: ``tuned`` is None if
    there are too few queries to choose on, both are None before the first such run."""

    curves: Curves | None
    tuned: VoteTuneReport | None


def measure_vote(workspace: Workspace, settings: Settings, monitor: Monitor = SILENT) -> VoteMeasurement:
    """`curves` and `tune`, read from the workspace if they were computed on the same answers: loading the compiled code
    takes ten times as long as they do. Calls no LLM."""
    grading = grading_set(workspace, settings)
    found = trials.latest(workspace, grading)
    if found is None:
        return VoteMeasurement(None, None)
    digest = _digest(found, trials.scores_by_estimator(workspace, grading), settings)
    if stored := _stored_vote(workspace, digest):
        return stored
    path = workspace.path / VOTE
    drawn = curves(workspace, settings.k, grading)
    try:
        measured = VoteMeasurement(drawn, tune(workspace, settings, monitor=monitor))
    except UsageError:  # too few queries to choose on
        measured = VoteMeasurement(drawn, None)
    text = json.dumps({"digest": digest, "measured": to_json(measured)})
    with suppress(OSError):  # it is computed again where nothing can be written
        replace_file(path, lambda file: file.write(text.encode()))
    return measured


def stored_vote(workspace: Workspace, settings: Settings) -> VoteMeasurement | None:
    """What `measure_vote` would give, if it was computed before; loads no compiled code."""
    if not (workspace.path / VOTE).exists():
        return None
    grading = grading_set(workspace, settings)
    found = trials.latest(workspace, grading)
    if found is None:
        return None
    return _stored_vote(workspace, _digest(found, trials.scores_by_estimator(workspace, grading), settings))


def _stored_vote(workspace: Workspace, digest: str) -> VoteMeasurement | None:
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        stored = json.loads(read_regular(workspace.path / VOTE))
        if stored["digest"] == digest:
            return from_json(VoteMeasurement, stored["measured"])
    return None


def _digest(found: Trials, scores: Mapping[str, Mapping[str, float]], settings: Settings) -> str:
    """Over everything that the measurement depends on."""
    parts = (VERSION, NOISE, settings.k, settings.seed, found.run, found.sources, found.answers, scores)
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16)
    for column in (found.queries, found.rows, found.values):
        digest.update(column.tobytes())
    return digest.hexdigest()


def sources_below(workspace: Workspace, weight: float, settings: Settings) -> list[str]:
    """Sources with a weight below ``weight``, learnt from answers that are graded as the settings say. Raises
    `UsageError` before training, or if there is none."""
    learnt = trials.weights(workspace, grading=grading_set(workspace, settings))
    if not learnt:
        raise _unlearnt(workspace, settings)
    found = sorted(name for name, value in learnt.items() if value < weight)
    if not found:
        raise UsageError(f"no source has a weight below {weight}", "icl-curate sources")
    return found
