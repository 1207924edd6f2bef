"""The result of an evaluation: the object of ``evaluate --json``, which is also stored with the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ..base.contract import OPTIONAL, SPREAD, Reported
from ..llm.cost import Judging, Usage
from ..llm.marks import GradedBy, Tally
from .figures import Agreement, Confusion, FlipCounts

if TYPE_CHECKING:
    from ..store.runs import Run

KIND, AS_INDEXED = "evaluate", "evaluate-as-indexed"
"""Kinds of runs: of the pool as it was then, and as if nothing had been decided."""

Swept = Literal["k", "preselect"]

SUMMARY_VERSION = 1
"""The ``schema_version`` of the report stored with a run, which is not that of ``--json``."""


@dataclass(frozen=True, slots=True)
class Versus:
    """A method compared with another on the same queries: `statistics.Comparison`, with p Holm-adjusted over the
    table."""

    method: str
    difference: float
    low: float
    high: float
    p: float
    test: str
    p_holm: float


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """Figures of a method. ``accuracy`` is the mean over queries and seeds with its interval ``ci95``, both None if no
    answer was received; ``outcomes``: what became of the queries, under every seed. ``std`` is that of the seeds'
    means, None of a single one; ``easy`` and ``hard`` are None if there are no such queries. ``shots``: mean
    demonstrations per prompt. ``em`` and ``f1`` for open questions only. ``topic_coverage`` and ``topic_redundancy``
    after each shot, if topics are trained. ``perplexity`` of the right answer, if options were scored.
    ``selection_ms``: milliseconds per query that the selection takes, the LLM's replies included. ``versus``: the
    best other baseline, if one was compared. ``unjudged``: answers without the verdict of a judge, if one was asked.
    ``hint``: the reader or metric to try, where this one seems to miss what the LLM answers."""

    accuracy: float | None
    std: float | None
    ci95: tuple[float, float] | None
    easy: float | None
    hard: float | None
    seeds: int
    usage: Usage = field(metadata=SPREAD)
    shots: float
    em: float | None = field(default=None, metadata=OPTIONAL)
    f1: float | None = field(default=None, metadata=OPTIONAL)
    topic_coverage: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)
    topic_redundancy: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)
    perplexity: float | None = field(default=None, metadata=OPTIONAL)
    selection_ms: float | None = field(default=None, metadata=OPTIONAL)
    versus: Versus | None = field(default=None, metadata=OPTIONAL)
    unjudged: int | None = field(default=None, metadata=OPTIONAL)
    outcomes: Tally | None = field(default=None, metadata=OPTIONAL)
    hint: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def comparable(self) -> bool:
        """Whether enough of its answers are known to compare it."""
        return self.outcomes is None or self.outcomes.comparable


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A method on the queries of a group; ``f1`` for open questions only. None where nothing is known."""

    accuracy: float | None
    ci95: tuple[float, float] | None
    f1: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries with the same value of a field; ``easy``: those right zero-shot."""

    queries: int
    easy: int
    methods: Mapping[str, GroupFigures]


@dataclass(frozen=True, slots=True)
class QueryGroups:
    """Figures by the values of a ``field`` of the queries."""

    field: str
    groups: Mapping[str, QueryGroup]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Rankers of another ``workspace``; ``versus`` those trained in this one, None if these were not compared."""

    workspace: str
    versus: Versus | None


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup: ``metric`` defines accuracy, ``answered_by`` is score or generate; ``graded_by``: None in runs of
    before. ``as_indexed``: True if it was of the pool as if nothing had been decided, a run of `AS_INDEXED`."""

    split: str
    queries: int
    k: int
    llm: str
    task: str
    metric: str
    answered_by: str
    seeds: int
    settings: Mapping[str, Any]
    version: str
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)
    as_indexed: bool | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class EvaluationReport(Reported):
    """Compared methods. A query is easy if the LLM is right without demonstrations. ``confusion`` and ``flips`` by
    method, if they were asked for. ``trained_on`` names the methods that were trained on the queries that judge them,
    so that their figures are too good; ``untrained`` those whose training kept its start, with one of the seeds at
    least. ``judge``: what it was asked, if one said which answers are right; ``agreement``: on the answers of the last
    method.
    ``transfer``: the other workspace whose rankers were compared, if any. ``by``: figures by a field of the queries, if
    they were asked for. ``zero_shot``: what telling easy queries took, if that is none of the methods;
    ``against_zero``: the `best` of them against these answers without demonstrations, Holm-adjusted over all."""

    kind = "evaluation"
    run: int
    setup: Setup = field(metadata=SPREAD)
    easy_queries: int
    hard_queries: int
    methods: Mapping[str, MethodFigures]
    confusion: Mapping[str, Confusion] | None = field(default=None, metadata=OPTIONAL)
    trained_on: tuple[str, ...] = ()
    flips: Mapping[str, FlipCounts] | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)
    agreement: Agreement | None = field(default=None, metadata=OPTIONAL)
    transfer: Transfer | None = field(default=None, metadata=OPTIONAL)
    by: QueryGroups | None = field(default=None, metadata=OPTIONAL)
    untrained: tuple[str, ...] = ()
    zero_shot: Usage | None = field(default=None, metadata=OPTIONAL)
    against_zero: Versus | None = field(default=None, metadata=OPTIONAL)

    @property
    def best(self) -> str:
        """The method with the highest accuracy; the first in a tie. Those of whose answers too few are known come
        last."""
        return max(self.methods, key=lambda name: _order(self.methods[name]))

    def summary(self) -> dict[str, Any]:
        """What is stored with the run; confusion and flips follow from the outcomes."""
        return {"schema_version": SUMMARY_VERSION, **replace(self, confusion=None, flips=None).as_json()}


def _order(figures: MethodFigures) -> tuple[bool, float]:
    return figures.comparable, -1.0 if figures.accuracy is None else figures.accuracy


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The evaluation with one ``value``."""

    value: int
    report: EvaluationReport = field(metadata=SPREAD)


@dataclass(frozen=True, slots=True)
class SweepReport(Reported):
    """The evaluations by value of ``setting``, in the order given; each is also stored as a run of its own."""

    kind = "sweep"
    setting: Swept
    points: tuple[SweepPoint, ...]

    @property
    def best(self) -> tuple[SweepPoint, str]:
        """The point and the method with the highest accuracy, as `EvaluationReport.best`."""
        every = [(point, name) for point in self.points for name in point.report.methods]
        return max(every, key=lambda each: _order(each[0].report.methods[each[1]]))


def without_trials(reports: Iterable[EvaluationReport], there: Mapping[str, int]) -> list[EvaluationReport]:
    """The evaluations that are `no_trials`."""
    from ..store.runs import no_trials

    every = list(reports)
    counts = no_trials([(it.setup.split, it.setup.queries) for it in every], there)
    return [it for it, whole in zip(every, counts, strict=True) if whole]


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """A finished evaluation as stored with its run."""

    started_at: datetime
    report: EvaluationReport


def stored_evaluations(found: Iterable[Run]) -> list[StoredEvaluation]:
    """The finished ones among runs of the kind `KIND`; one whose report cannot be read is left out."""
    from ..store.runs import readable  # what lists jobs reads this file, without the store

    done = (run for run in found if run.status == "done")
    return [StoredEvaluation(run.started_at, report) for run, report in readable(EvaluationReport, done)]
