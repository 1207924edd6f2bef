"""Queries of production against the pool as it is: drift, gaps, accuracy, and alarms. Nothing is stored, and without
`AskedWatch` no LLM is called.

A text that was asked several times counts once for drift and gaps, because validation queries are usually distinct,
too; accuracies are those of all that was asked.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.errors import LLMError, UsageError, counted
from ..base.progress import SILENT, Monitor
from ..evaluate.compare import metric_of
from ..evaluate.request_stages import MethodContext
from ..evaluate.results import KIND, EvaluationReport, without_trials
from ..evaluate.statistics import wilson
from ..grading.metrics import JUDGES
from ..index.questions import Question, read_questions
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.graded import graded_by, metric_set
from ..llm.judge import Grader
from ..llm.marks import GradedBy, figure, tally, values_of
from ..llm.spec import is_stand_in
from ..llm.types import Request
from ..papers.topics.report import Survey
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..select.lock import FILE, graded_otherwise, read_lock
from ..select.selector import Selector
from ..store import runs
from ..store.demonstrations import fetch, rows_by_split
from ..store.demonstrations import queries as queries_of
from ..store.settings import Settings
from ..store.workspace import Workspace
from .drift import LEAST, two_samples
from .expected import reweighted
from .groups import Grouping, exceedance_p, farthest, grouped_by_words, words_of
from .results import (
    CHANCE,
    Alarm,
    Drift,
    ExpectedAccuracy,
    MeasuredAccuracy,
    Reference,
    Uncovered,
    UncoveredGroup,
    UncoveredQuery,
    WatchReport,
)
from .space import Space, sampled_rows, space_of

MARGIN = 0.05
"""Accuracy below the evaluated one at which an alarm is raised, if no limit is given."""

MOST_REFERENCE = 5_000
"""Reference queries that are compared."""

GROUPS, EXAMPLES = 5, 3


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Of the alarms: highest share of changed and of uncovered queries, least accuracy (None: `MARGIN` below what was
    evaluated)."""

    drift: float = 0.1
    uncovered: float = 0.05
    accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Files to read, with ``columns`` and ``answer_field`` as in `read_questions`; ``most`` queries are looked at, and
    ``sample`` of them asked by `AskedWatch`."""

    patterns: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    answer_field: str = ""
    most: int = 20_000
    sample: int = 200
    limits: AlarmLimits = AlarmLimits()


@dataclass(frozen=True, slots=True)
class _Placed:
    """Queries with their vectors (q, d), nearest rows (q,) and cosines (q,)."""

    queries: Sequence[Query]
    vectors: Float32s
    rows: Int64s
    similarity: Float64s

    @property
    def grouped(self) -> tuple[Sequence[Query], Float32s, Int64s]:
        return self.queries, self.vectors, self.rows


class Watch:
    """The queries of files, read and ready to be compared. Raises `UsageError` as `read_questions` does, or if the
    active pool is empty."""

    def __init__(self, workspace: Workspace, settings: Settings, plan: WatchPlan, monitor: Monitor = SILENT) -> None:
        self.workspace, self.settings, self.plan = workspace, settings, plan
        self.view = PoolView(workspace, settings, monitor)
        self.view.rows  # noqa: B018  # an empty pool is an error before the files are read
        self.found = read_questions(plan.patterns, plan.columns, plan.answer_field, plan.most, settings.seed, monitor)
        counts = Counter(self.view.searched(each.query) for each in self.found.asked)
        first = {self.view.searched(each.query): each.query for each in reversed(self.found.asked)}
        self.queries = [first[text] for text in counts]
        self.times = np.array(list(counts.values()), np.int64)
        self.notes: list[str] = []

    @property
    def with_answer(self) -> list[Question]:
        return [each for each in self.found.asked if each.query.answers]

    def report(self, measured: Sequence[MeasuredAccuracy] = ()) -> WatchReport:
        """Compare the queries; ``measured`` are accuracies that were measured besides."""
        asked, questions = self._asked, self.found
        if questions.skipped:
            self.notes.append(f"{questions.skipped:,} records could not be used: {questions.reason}")
        if questions.total > len(questions.asked):
            self.notes.append(f"a random sample of {len(questions.asked):,} of {counted(questions.total, 'query')}")
        reference, compared = self._reference
        drift = self._drift(asked, reference, compared)
        uncovered = self._uncovered(asked, reference, compared)
        expected = self._expected(asked)
        every = (*self._recorded(), *measured)
        if every and (self.workspace.path / FILE).exists():
            self.notes += filter(None, [graded_otherwise(self.workspace, read_lock(self.workspace), self.settings)])
        return WatchReport(
            queries=len(questions.asked),
            total=questions.total,
            distinct=len(self.queries),
            with_answer=len(self.with_answer),
            skipped=questions.skipped,
            space=self._space.name,
            drift=drift,
            pool_drift=None if reference == "pool" else self._drift(asked, "pool", self._pool),
            uncovered=uncovered,
            expected=expected,
            measured=every,
            alarms=tuple(alarms(self.plan.limits, drift, uncovered, expected, every)),
            notes=tuple(self.notes),
        )

    @cached_property
    def _space(self) -> Space:
        space, why = space_of(self.view)
        if why:
            self.notes.append(why)
        return space

    @cached_property
    def _grouping(self) -> Grouping:
        return Grouping(self.view, self._space)

    @cached_property
    def _asked(self) -> _Placed:
        return self._placed(self.queries)

    def _placed(self, queries: Sequence[Query], exclude: Sequence[Int64s] = ()) -> _Placed:
        vectors = self._space.of(queries)
        return _Placed(queries, vectors, *self._space.nearest(queries, vectors, exclude))

    @cached_property
    def _reference(self) -> tuple[Reference, _Placed]:
        """What the queries are compared with: validation or test queries, or the pool if there are not enough."""
        splits: tuple[Reference, ...] = ("validation", "test")
        for split in splits:
            queries = queries_of(self.workspace, split)
            if len(queries) >= LEAST:
                kept = sampled_rows(np.arange(len(queries)), MOST_REFERENCE)
                return split, self._placed([queries[i] for i in kept.tolist()])
        self.notes.append(
            f"fewer than {LEAST} validation and test queries: compared with the pool, whose rows may be of another kind"
        )
        return "pool", self._pool

    @cached_property
    def _pool(self) -> _Placed:
        """A sample of the pool, each row with the nearest of the others."""
        rows = fetch(self.workspace, sampled_rows(self.view.rows))
        queries = [row.as_query() for row in rows]
        return self._placed(queries, self.view.excluded_each(queries))

    def _drift(self, asked: _Placed, reference: Reference, compared: _Placed) -> Drift | None:
        tested = two_samples(asked.vectors, compared.vectors, self.settings.seed)
        if tested is None:
            self.notes.append(
                f"{len(asked.queries):,} distinct queries against {len(compared.queries):,} of the {reference}: too "
                f"few to look for drift, which needs {LEAST} of each"
            )
            return None
        by, changes = self._grouping.by, self._grouping.changes(asked.grouped, compared.grouped)
        return Drift(
            reference, tested.now, tested.before, tested.changed, tested.low, tested.high, tested.p, by, changes
        )

    def _uncovered(self, asked: _Placed, reference: Reference, compared: _Placed) -> Uncovered:
        below, rank = farthest(compared.similarity)
        far = np.flatnonzero(asked.similarity < below)
        far = far[np.argsort(asked.similarity[far], kind="stable")]
        total, known = len(asked.queries), len(compared.queries)
        low, high = wilson(len(far), total)
        return Uncovered(
            reference, len(far), len(far) / total, low, high, below, rank / (known + 1),
            exceedance_p(len(far), total, rank, known), tuple(self._groups(asked, far, compared)),
            self._examples(asked, far[: GROUPS * EXAMPLES]),
        )  # fmt: skip

    def _groups(self, asked: _Placed, far: Int64s, compared: _Placed) -> list[UncoveredGroup]:
        """Uncovered queries by the topics that they need and that are gaps, the others by words."""
        groups: list[UncoveredGroup] = []
        left = far
        if self._grouping.model and len(far):
            survey = Survey(self.workspace, self.settings, ([asked.queries[i] for i in far], asked.vectors[far]))
            others = np.ones(len(far), np.bool_)
            for gap in survey.gaps(GROUPS):
                own = survey.needed[:, survey.model.names.index(gap.topic)]
                others &= ~own
                examples = self._examples(asked, far[own][:EXAMPLES])
                groups.append(UncoveredGroup(gap.topic, "topic", gap.queries, examples, gap.knowledge, gap.coverage))
            left = far[others]
        usual = Counter(word for query in compared.queries for word in words_of(query))
        words = [words_of(asked.queries[i]) for i in left]
        for word, those in grouped_by_words(words, usual, len(compared.queries), GROUPS - len(groups)):
            groups.append(UncoveredGroup(word, "word", len(those), self._examples(asked, left[those][:EXAMPLES])))
        return groups

    def _examples(self, asked: _Placed, places: Int64s) -> tuple[UncoveredQuery, ...]:
        return tuple(
            UncoveredQuery(asked.queries[i].id, asked.queries[i].input, float(asked.similarity[i]), int(self.times[i]))
            for i in places.tolist()
        )

    def _recorded(self) -> list[MeasuredAccuracy]:
        """The accuracy of the answers that came with the queries."""
        if not self.plan.answer_field:
            return []
        task, metric = self.view.task, metric_set(self.workspace, self.settings, self.view.task)
        if metric.name in JUDGES:
            self.notes.append("recorded answers are not judged: --metric takes another, or --ask asks anew")
            return []
        values = [
            metric.score(each.answered, each.query, task) for each in self.with_answer if each.answered is not None
        ]
        if not values:
            self.notes.append(f"no record has both a right answer and '{self.plan.answer_field}': nothing was measured")
            return []
        worth, size = sum(values), len(values)
        return [MeasuredAccuracy("recorded", worth / size, *wilson(worth, size), size, metric=metric_of(task, metric))]

    def _expected(self, asked: _Placed) -> ExpectedAccuracy | None:
        metric = metric_of(self.view.task, metric_set(self.workspace, self.settings, self.view.task))
        by, method = graded_by(self.workspace, self.settings, self.view.task), self.settings.method
        evaluated = latest_evaluation(self.workspace, self.settings, metric, by)
        if evaluated is None:
            how = f"{metric}, prompts by {by.template}" if by.template else metric
            again = shlex.join(["icl-curate", "evaluate", "-m", method, *by.options])
            self.notes.append(f"nothing was measured for {method} by {how}, so no accuracy can be expected: {again}")
            return None
        done, report = evaluated
        outcomes = runs.outcomes(self.workspace, report.run, method)
        values = {each.row: each.right for each in outcomes if each.right is not None}
        if not values:
            self.notes.append(f"run {report.run} got no answer under {method}: no accuracy can be expected")
            return None
        rows = fetch(self.workspace, list(values))
        placed = self._placed([row.as_query() for row in rows])
        correct = np.array([values[row.row] for row in rows])
        weighted = reweighted(correct, placed.similarity, asked.similarity, self.times, self.settings.seed)
        setup = report.setup
        self._note_evaluation(done, report)
        return ExpectedAccuracy(
            weighted.accuracy, weighted.low, weighted.high, weighted.outside, report.run, setup.llm, method, setup.k,
            setup.split, len(rows), float(correct.mean()), is_stand_in(setup.llm), weighted.strata,
            metric,
        )  # fmt: skip

    def _note_evaluation(self, done: runs.Run, report: EvaluationReport) -> None:
        setup = report.setup
        if setup.llm != self.settings.llm or setup.k != self.settings.k:
            self.notes.append(
                f"run {report.run} asked {setup.llm} with k = {setup.k}; configured are {self.settings.llm} and "
                f"k = {self.settings.k}"
            )
        if self.settings.method in report.trained_on:
            self.notes.append(f"run {report.run}: {self.settings.method} was trained on its queries, so it is too good")
        since = runs.followed(self.workspace, done)
        if since.rows or since.decisions:
            self.notes.append(
                f"since run {report.run}, {counted(since.rows, 'row')} and {counted(since.decisions, 'decision')} "
                "came in: its accuracy is "
                "that of the pool before"
            )


def latest_evaluation(
    workspace: Workspace, settings: Settings, metric: str, by: GradedBy
) -> tuple[runs.Run, EvaluationReport] | None:
    """The finished evaluation of the configured method by the ``metric``, with prompts written and replies read and
    graded as ``by`` says: with the configured LLM and k if there is one, then the latest that was no trial."""
    groups: dict[tuple[bool, bool], dict[int, tuple[runs.Run, EvaluationReport]]] = {}
    for done, report in runs.readable(EvaluationReport, runs.finished(workspace, KIND)):
        setup = report.setup
        if settings.method in report.methods and setup.metric == metric and not by.changed(setup.graded_by or by):
            alike = groups.setdefault((setup.llm == settings.llm, setup.k == settings.k), {})
            alike[report.run] = done, report
    if not groups:
        return None
    nearest = groups[max(groups)]
    with workspace.read() as con:
        there = rows_by_split(con)
    return nearest[max(report.run for report in without_trials((report for _, report in nearest.values()), there))]


@dataclass(frozen=True)
class AskedWatch:
    """A watch that asks the LLM about a random sample of the queries with answers, in served prompts, prepared."""

    llm: LLMClient
    watch: Watch
    grader: Grader
    queries: Sequence[Query]
    requests: Sequence[Request]

    @classmethod
    def prepare(cls, llm: LLMClient, plan: WatchPlan) -> AskedWatch:
        """Nothing is sent. Raises `UsageError` as `Watch` does, or if no query has an answer."""
        watch = Watch(llm.workspace, llm.settings, plan, llm.monitor)
        answered = [each.query for each in watch.with_answer]
        if not answered:
            raise UsageError("no query has an answer to compare with", "omit --ask, or --map output=COLUMN")
        drawn = sampled_rows(np.arange(len(answered)), plan.sample, llm.settings.seed)
        queries = [answered[i] for i in drawn.tolist()]
        selector = Selector(llm.workspace, settings=llm.settings, view=watch.view)
        rows = [[pick.row for pick in chosen] for chosen in selector.picks(queries)]
        context = MethodContext(selector, llm.backend, llm.settings, llm.capabilities, queries, llm.monitor)
        return cls(llm, watch, Grader.of(llm, selector.task), queries, context.prompts(rows, llm.settings.method)[0])

    def cost(self) -> Plan:
        """What is left to ask."""
        return self.grader.plan(self.llm, self.requests)

    def ask(self, budget: Budget) -> WatchReport:
        """Ask within the budget and report."""
        results = self.llm.ask(self.requests, budget)
        marks = self.grader.marks(self.queries, results, budget)
        values, outcomes = values_of(marks), tally(marks)
        size, worth = int(np.isfinite(values).sum()), float(np.nansum(values))
        measured = MeasuredAccuracy(
            "asked",
            worth / size,
            *wilson(worth, size),
            size,
            self.llm.name,
            usage_of(results),
            outcomes,
            metric_of(self.grader.task, self.grader.metric),
        )
        return self.watch.report([measured])


def alarms(
    limits: AlarmLimits,
    drift: Drift | None,
    uncovered: Uncovered,
    expected: ExpectedAccuracy | None,
    measured: Sequence[MeasuredAccuracy],
) -> list[Alarm]:
    """The alarms: what is beyond its limit, and for drift and gaps also beyond chance."""
    raised = []
    if drift and drift.beyond_chance and drift.changed >= limits.drift:
        whose = "the pool" if drift.reference == "pool" else drift.reference
        what = f"about {drift.changed:.0%} of the queries are not like those of {whose} (p {drift.p:.3f})"
        raised.append(
            Alarm("drift", drift.changed, limits.drift, what,
                  "label some of these queries, then evaluate again after icl-curate index --validation NEW.jsonl")
        )  # fmt: skip
    if uncovered.p <= CHANCE and uncovered.share >= limits.uncovered:
        usual = f"{uncovered.usual:.1%} would be usual"
        what = f"{uncovered.share:.1%} of the queries are far from every demonstration; {usual}"
        raised.append(
            Alarm("uncovered", uncovered.share, limits.uncovered, what,
                  "collect demonstrations like the examples, then icl-curate index NEW.jsonl")
        )  # fmt: skip
    return [*raised, *_accuracy_alarm(limits.accuracy, expected, measured)]


def _accuracy_alarm(
    limit: float | None, expected: ExpectedAccuracy | None, measured: Sequence[MeasuredAccuracy]
) -> list[Alarm]:
    """Of the accuracy that was measured, or else is expected. Without a limit of the user, the accuracy has to be below
    the evaluated one with its whole interval, too."""
    shown = next(iter(measured), None) or expected
    asked = measured[0].outcomes if measured else None
    if shown is None or (asked and not asked.decides):
        if limit is not None and asked:  # no alarm would say that it is reached
            raise LLMError(asked.undecided, asked.fix)
        if limit is not None:
            raise UsageError("no accuracy is known that could be compared with the least one", "icl-curate evaluate")
        return []
    least = limit
    if least is None:
        if expected is None or expected.stand_in or shown.high >= expected.evaluated or shown.metric != expected.metric:
            return []
        least = expected.evaluated - MARGIN
    if shown.accuracy >= least:
        return []
    how = "measured" if measured else "expected"
    what = f"{shown.metric} {figure(shown.accuracy, (shown.low, shown.high))} {how}, least {least:.3f}"
    return [Alarm("accuracy", shown.accuracy, least, what, "serve another method or icl-curate curate --max-calls N")]
