"""The results of `check` and of ``train rows``: the objects of ``--json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ..base.contract import OPTIONAL, Reported
from ..base.errors import UsageError
from ..llm.cost import Judging, TrainingRun
from ..pool.records import Demonstration

Kind = Literal[
    "label",
    "mismatch",
    "part",
    "schema",
    "entity",
    "call",
    "member",
    "rationale",
    "style",
    "neighbour",
    "conflict",
    "duplicate",
    "leak",
    "outlier",
    "class",
    "empty",
    "cut",
    "mojibake",
    "refusal",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

OUTPUTS: tuple[Kind, ...] = ("schema", "entity", "call", "member", "rationale", "style", "neighbour")
"""Kinds of faults of outputs that are no labels, see `Fault`."""

LASTING: tuple[Kind, ...] = ("duplicate", "leak", "outlier", "class", "mojibake")
"""Kinds that are not about the output alone: another one does not settle them."""

BY_VECTORS: tuple[Kind, ...] = ("label", "part", "outlier", "neighbour")
"""Kinds that are looked for in the embeddings."""

NOT_OF: Mapping[str, tuple[Kind, ...]] = {
    "labels": ("mismatch", "part", *OUTPUTS),
    "options": ("label", "mismatch", "part", *OUTPUTS, "class"),
    "sets": ("label", "mismatch", "class"),
    "open": ("label", "class"),
}
"""Kinds that there are none of, by the kind of the task."""


def kinds_named(names: str | Iterable[str]) -> tuple[Kind, ...]:
    """The kinds of these names, given one by one or separated by commas. Raises `UsageError` for an unknown one."""
    named = {name.strip() for name in (names.split(",") if isinstance(names, str) else names)}
    if not named or (unknown := sorted(named - {*KINDS})):
        what = f"unknown kind '{unknown[0]}'" if named else "no kind is named"
        raise UsageError(what, f"use some of: {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in named)


RELABEL = "relabel: "
"""The suggestion of another output, which follows."""

REVIEW = "review"
"""The suggestion if the evidence does not favour a decision."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one row of the active pool.

    ``severity`` is from 0 to 1; ``evidence`` is a sentence, ``numbers`` are the figures behind it. ``suggestion`` is
    ``prune``, ``relabel: X``, ``keep ID`` (keep that row instead of this one) or ``review``.
    """

    row: int
    id: str
    source: str
    input: str
    output: str
    kind: Kind
    severity: float
    evidence: str
    suggestion: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def suggested(self) -> str:
        """The output to give the row instead of its own, if one is suggested."""
        return self.suggestion.removeprefix(RELABEL) if self.suggestion.startswith(RELABEL) else ""

    @property
    def prunes(self) -> bool:
        """Whether accepting the finding prunes the row."""
        return self.suggestion != REVIEW

    @property
    def reason(self) -> str:
        """The reason stored in the history if the finding is accepted."""
        return f"check: {self.kind}, {self.evidence}"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is suspicious about an output that is no label, of the row at this ``place`` among those looked at. Not
    ``sure``: a doubt, to be reviewed. ``corrected``: the output it should be, if that can be told, and the ``chance``
    that it is right if the row's own is wrong."""

    place: int
    kind: Kind
    sure: bool
    evidence: str
    corrected: str = ""
    chance: float = 0.0


def finding(
    row: Demonstration, kind: Kind, severity: float, evidence: str, suggestion: str = "prune", **numbers: float
) -> Finding:
    """A finding for a row, its figures rounded to four digits."""
    rounded = {name: round(float(value), 4) for name, value in numbers.items()}
    severity = round(float(severity), 4)
    return Finding(row.row, row.id, row.source, row.input, row.output, kind, severity, evidence, suggestion, rounded)


@dataclass(frozen=True, slots=True)
class CheckReport(Reported):
    """Findings, the worst first; a row can have several. ``kinds`` counts those of each checked kind, ``notes`` say
    what could not be checked."""

    kind = "check"
    checked: int
    rows: tuple[Finding, ...]
    kinds: Mapping[Kind, int]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, checked: int, findings: Collection[Finding], looked_for: Collection[Kind], notes: Collection[str]
    ) -> CheckReport:
        """A report with sorted and counted findings."""
        counts = Counter(problem.kind for problem in findings)
        ordered = sorted(findings, key=lambda problem: (-problem.severity, KINDS.index(problem.kind), problem.row))
        kinds = {kind: counts[kind] for kind in KINDS if kind in looked_for}
        return cls(checked, tuple(ordered), kinds, tuple(notes))

    def accepted(self, kinds: Collection[str]) -> dict[str, str]:
        """Ids of the rows that accepting these kinds prunes, each with the reason of its worst finding."""
        reasons: dict[str, str] = {}
        for problem in self.rows:
            if problem.kind in kinds and problem.prunes:
                reasons.setdefault(problem.id, problem.reason)
        return reasons

    def relabelled(self, least: float) -> dict[str, tuple[str, str]]:
        """Ids of the rows whose suggested output has a probability of ``least`` or more, each with that of its worst
        finding and the reason."""
        return {
            problem.id: (problem.suggested, problem.reason)
            for problem in reversed(self.rows)
            if problem.suggested and problem.numbers["suggested"] >= least
        }


@dataclass(frozen=True, slots=True)
class RowMetrics:
    """``rows`` answered or refused, share of them ``right``, None if each output was scored alone; ``scored``: the LLM
    gave log-probabilities of the rows' own outputs. ``suspects`` and ``sure``: active rows with a posterior of .5 and
    .9 or more, before and after. ``judge``: what it was asked, if one said which answers are right."""

    rows: int
    right: float | None
    scored: int
    suspects_before: int
    suspects: int
    sure_before: int
    sure: int
    seconds: float
    judge: Judging | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class RowRun(TrainingRun):
    """A finished run of ``train rows``."""

    kind = "train-rows"
    metrics: RowMetrics


@dataclass(frozen=True, slots=True)
class SourceEffect:
    """``effect``: change in accuracy for one more demonstration of the source in the place of an average one, with its
    standard ``error``; ``shown``: demonstrations in all prompts."""

    effect: float
    error: float
    shown: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by the normal distribution."""
        return self.effect - 1.96 * self.error, self.effect + 1.96 * self.error


@dataclass(frozen=True, slots=True)
class DatamodelMetrics:
    """``prompts`` answered or refused over ``queries``, their mean value ``right``; ``rows`` shown; effects by source;
    ``judge`` as in `RowMetrics`."""

    queries: int
    prompts: int
    right: float | None
    rows: int
    sources: Mapping[str, SourceEffect]
    seconds: float
    judge: Judging | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class DatamodelRun(TrainingRun):
    """A finished run of ``train datamodel``."""

    kind = "train-datamodel"
    metrics: DatamodelMetrics
