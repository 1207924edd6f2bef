"""What a report says, as plain data: the object of ``report --json``, from which the pages are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..base.contract import OPTIONAL, Reported
from ..curate.plan import CurationReport
from ..llm.marks import GradedBy
from ..select.lock import Lock

Outcome = Literal["pruned", "undone", "not pruned", "not beyond noise"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text of the pool, which has ``length`` characters."""

    text: str
    length: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Rows and sources. ``retired`` rows are no longer in their files; ``repeats`` rows of the pool repeat an earlier
    one, ``leaks`` queries are also in the pool; ``skipped`` records could not be read."""

    pool: int
    active: int
    pruned: int
    corrected: int
    retired: int
    sources: int
    active_sources: int
    validation: int
    test: int
    repeats: int
    leaks: int
    skipped: int
    task: str
    encoder: str | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A pruning measured with served prompts (a run of ``tune``, or of a step of `curate`).

    ``before``: everything kept, with Wilson's interval; ``after``: ``before`` plus the ``gain``, with the gain's
    interval about it, cut at 0 and 1. ``queries`` of the ``available`` validation queries were asked.
    ``outcome``: what was decided on it. ``part_of``: the run of `curate` that it belongs to, if any.
    """

    run: int
    part_of: int | None
    llm: str
    method: str
    k: int
    queries: int
    available: int
    before: Interval
    after: Interval
    gain: Interval
    proposed: str
    pruned_rows: int
    relabelled: int
    outcome: Outcome
    calls: int
    measured_at: str
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A method in a stored evaluation. ``accuracy`` with its bootstrap interval over queries, None if no answer was
    received; ``outcomes``: the figure with what is no answer, in words; ``hint`` as of `MethodFigures`. ``active``:
    rows of the pool then; ``as_read``: no decision had changed it; ``as_now``: it was as it is now. ``trained_on``: the
    method was trained on these queries, so that its figure is too good; ``untrained``: its training kept its start."""

    run: int
    split: str
    llm: str
    method: str
    k: int
    queries: int
    seeds: int
    metric: str
    accuracy: Interval | None
    active: int
    as_read: bool
    as_now: bool
    trained_on: bool
    untrained: bool
    measured_at: str
    outcomes: str = ""
    hint: str | None = field(default=None, metadata=OPTIONAL)
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Compared:
    """The same method with the pool as it was read (``before_run``) and as it is now (``after_run``), on the same
    ``queries``. ``difference`` with its paired bootstrap interval; ``p``: of a paired test."""

    before_run: int
    after_run: int
    split: str
    llm: str
    method: str
    k: int
    queries: int
    before: float
    after: float
    difference: Interval
    p: float
    metric: str = ""


@dataclass(frozen=True, slots=True)
class RemovedRow:
    """A row that was taken out; ``reason`` is that of this row."""

    id: str
    source: str
    input: Excerpt
    output: Excerpt
    reason: str


@dataclass(frozen=True, slots=True)
class Removal:
    """Rows taken out for the same reason by one decision that still applies: ``rows`` of the ``sources`` (name and
    number of rows, most first). ``scope``: whether whole sources or single rows were decided on."""

    batch: int
    decided_at: str
    who: str
    scope: str
    reason: str
    rows: int
    sources: Mapping[str, int]
    examples: tuple[RemovedRow, ...]


@dataclass(frozen=True, slots=True)
class CorrectedRow:
    """A row whose output was corrected from ``before`` to ``after``; who, when and why as in `Removal`, empty if it is
    not known."""

    id: str
    source: str
    input: Excerpt
    before: Excerpt
    after: Excerpt
    batch: int | None
    decided_at: str
    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class CorrectedRows:
    """So many ``rows`` were corrected from one output to another."""

    before: Excerpt
    after: Excerpt
    rows: int


@dataclass(frozen=True, slots=True)
class Corrections:
    """All corrected ``rows``: the most frequent ``changes``, and ``examples``."""

    rows: int
    changes: tuple[CorrectedRows, ...]
    examples: tuple[CorrectedRow, ...]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A source before and after; ``weight`` and ``reliability`` are None if they were not learnt."""

    source: str
    before: int
    after: int
    weight: float | None
    reliability: float | None


@dataclass(frozen=True, slots=True)
class LabelChange:
    """Rows of a label: with the outputs of the files, and active with those that apply now."""

    label: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic: the active rows it is core to, how often the LLM is right on it without demonstrations, and the queries
    that need it."""

    topic: str
    active: int
    knowledge: float
    queries: int


@dataclass(frozen=True, slots=True)
class GapLine:
    """A gap as `topics --gaps` lists it; ``example`` is a query that needs it."""

    topic: str
    queries: int
    knowledge: float
    coverage: float
    example: Excerpt


@dataclass(frozen=True, slots=True)
class TopicsPart:
    """The topics of a run: the first of ``total``, and the gaps of the pool as it is now."""

    run: int
    llm: str
    total: int
    topics: tuple[TopicLine, ...]
    gaps: tuple[GapLine, ...]


@dataclass(frozen=True, slots=True)
class LLMCost:
    """All answers of an LLM that the workspace keeps. ``price_in`` and ``price_out`` in US dollars per million tokens,
    ``dollars`` at them; None if they are not known, 0 for a ``local`` LLM. ``stand_in``: not an LLM."""

    llm: str
    calls: int
    tokens_in: int
    tokens_out: int
    failures: int
    first_at: str
    last_at: str
    price_in: float | None
    price_out: float | None
    dollars: float | None
    local: bool
    stand_in: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A finished run as a ``command``; ``settings`` are all that were stored with it, on one level.
    ``part_of``: the run of `curate` that carried it out, if any."""

    run: int
    kind: str
    llm: str
    command: str
    settings: Mapping[str, Any]
    part_of: int | None
    started_at: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the history. ``targets``: how many; ``named``: the first of them."""

    batch: int
    decided_at: str
    who: str
    action: str
    scope: str
    targets: int
    named: tuple[str, ...]
    reason: str
    undone: bool


@dataclass(frozen=True, slots=True)
class FileLine:
    """An indexed file with the digest of its content."""

    path: str
    split: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """``index``: the command that reads the ``files``. ``content_hash`` of the active pool, as in the manifest of an
    export. ``versions`` by package, those now installed."""

    index: str
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    files: tuple[FileLine, ...]
    content_hash: str | None
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PoolReport(Reported):
    """Everything a report says. ``curations``: the runs of `curate`, oldest first. ``served``: the method that the
    latest one chose, empty without one. ``labels`` are empty if the answers are not labels; ``topics`` None if none
    are trained. ``notes``: what could not be gathered, and why. ``lock``: None if there is none that can be read."""

    kind = "report"
    title: str
    made_at: str
    workspace: str
    counts: PoolCounts
    curations: tuple[CurationReport, ...]
    confirmed: tuple[Confirmed, ...]
    evaluated: tuple[Evaluated, ...]
    compared: tuple[Compared, ...]
    removals: tuple[Removal, ...]
    corrections: Corrections
    sources: tuple[SourceChange, ...]
    labels: tuple[LabelChange, ...]
    topics: TopicsPart | None
    costs: tuple[LLMCost, ...]
    reproduction: Reproduction
    notes: tuple[str, ...]
    lock: Lock | None = field(default=None, metadata=OPTIONAL)

    @property
    def graded_by(self) -> dict[int, GradedBy]:
        """By what each run graded answers, where that is known."""
        every: Sequence[Confirmed | Evaluated | CurationReport] = (*self.confirmed, *self.evaluated, *self.curations)
        return {one.run: one.graded_by for one in every if one.graded_by}

    @property
    def measured_by(self) -> tuple[str, ...]:
        """The LLMs that the figures are of."""
        confirmed, evaluated = (one.llm for one in self.confirmed), (one.llm for one in self.evaluated)
        return tuple(dict.fromkeys((*confirmed, *evaluated, *(one.llm for one in self.curations))))
