"""The plan of `curate`: which steps, in which order, with how many calls each.

Checks are free and come first. What they suggest is raced at once, with half of the calls, because on two of the
three dirty pools of docs/evidence/labels.md they suggest most of what hurts, and where they suggest the right rows the
race drops that early (Maron and Moore 1994). If it runs out of calls while something gains, it goes on. The rest goes
into evidence on single rows of what is left, a race of what that suggests, again while the last one pruned something,
and into the choice of the method that is served. The shares and limits below are choices; none was tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..base.contract import OPTIONAL, SPREAD, Reported
from ..llm.cost import DryRun
from ..llm.marks import GradedBy
from ..store.decisions import Revision

KIND = "curate"

Name = Literal["check", "ask", "confirm", "rank", "choose"]

FIRST, ASK, CHOOSE = 1 / 2, 1 / 3, 1 / 6
"""Shares of the calls: of what is not kept back for the choice of the method (`CHOOSE`), the first race may take
`FIRST`; of what is left then, evidence on rows takes `ASK`, and a race the rest."""

ENOUGH = 150
"""Calls from which evidence is asked for, and the method chosen; with fewer, all go into one race."""

ROUNDS = 3
"""Maximum number of races of prunings."""

PER_CANDIDATE = 40
"""Calls for each candidate of a race, at least: with fewer, fewer candidates are raced."""

PER_CHANGE = 0.5
"""Expected gain in accuracy for each prompt in which a suspected row is replaced; see docs/evidence/labels.md."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step: at most ``calls`` if it comes next; a later one may also make what those before it leave.
    ``expected_gain`` in accuracy, None if nothing is known of it yet; ``command``: the same by hand."""

    step: Name
    what: str
    calls: int
    expected_gain: float | None
    command: str


@dataclass(frozen=True, slots=True)
class VisibleGain:
    """Gains that races on the validation ``queries`` confirm in half of the runs, and in four of five."""

    queries: int
    half: float
    most: float


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step carried out, with the ``calls`` it made. ``gain`` in accuracy on validation queries that had no part in
    the choice, with its 95 % interval, None if it measures none; ``batch`` of the decision it made, None if it made
    none. ``found`` says in a sentence what it found."""

    step: Name
    what: str
    calls: int = 0
    expected_gain: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    found: str = ""
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A revision that is about to be decided: ``sources`` (by name) are pruned as a whole and ``rows`` (by id) beside
    them, ``outputs`` (by id) corrected. ``gain`` in accuracy over ``before`` on so many ``queries``; 0 and None if it
    was not measured. ``held``: it waits for the curator's answer."""

    step: StepDone
    sources: tuple[str, ...]
    rows: tuple[str, ...]
    reason: str
    gain: float
    held: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    before: float | None = field(default=None, metadata=OPTIONAL)
    queries: int = field(default=0, metadata=OPTIONAL)

    @property
    def revision(self) -> Revision:
        """What it changes in the pool."""
        return Revision(self.sources, self.rows, self.outputs)


@dataclass(frozen=True, slots=True)
class CurationDryRun(Reported):
    """The steps that `curate` would carry out, what all of them cost at most, and which gains they can see. ``held``:
    what waits for the curator's answer first; the steps are those after an accepted one."""

    kind = "curation-plan"
    steps: tuple[PlannedStep, ...]
    cost: DryRun = field(metadata=SPREAD)
    visible: VisibleGain | None = None
    held: Pending | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class CurationReport(Reported):
    """What was done, and what it gained.

    ``before`` and ``after``: accuracy on the validation queries, the latter by the confirmed gains; None if no race
    could decide, ``after`` also if gains are of different queries: their sum is of none. ``served``: the method to
    select with. ``pruned`` sources and the number of ``pruned_rows``, those of the sources included; ``relabelled``
    active rows have another output than in their file. ``left``: calls not used, None without a limit of calls.
    ``following``: the step that comes next, None at the end. ``held``: the revision that waits for the curator's
    answer, None if none does. ``graded_by``: what accuracy is, None in runs of before. ``before`` and
    all gains were measured on so many ``queries``; None if the gains were not. ``disturbed``: something other than the
    run changed the pool meanwhile, so ``after`` is not known, and the pool is not locked. ``cost``: US dollars that the
    ``calls`` took, None where that is not known, or nothing."""

    kind = "curation"
    run: int
    llm: str
    steps: tuple[StepDone, ...]
    calls: int
    tokens_in: int
    tokens_out: int
    left: int | None
    before: float | None
    after: float | None
    served: str
    pruned: tuple[str, ...]
    pruned_rows: int
    rows: int
    following: Name | None
    version: str = ""
    held: Pending | None = None
    relabelled: int = field(default=0, metadata=OPTIONAL)
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)
    queries: int | None = field(default=None, metadata=OPTIONAL)
    disturbed: bool | None = field(default=None, metadata=OPTIONAL)
    cost: float | None = field(default=None, metadata=OPTIONAL)


def kept_back(calls: int) -> int:
    """Calls of a run that only the choice of the method may make."""
    return 0 if calls < ENOUGH else int(calls * CHOOSE)


def share_of(step: Name, left: int, reserved: int, first: bool, again: bool) -> int:
    """Calls that a step may make of those ``left``, ``reserved`` of them for the choice of the method. ``first``: no
    race was held yet; ``again``: another round follows."""
    free = max(0, left - reserved)
    if step == "choose":
        return left
    if step == "ask":
        return int(free * ASK)
    if step == "confirm":
        return int(free * FIRST) if first and again else free
    return 0


def trials_of(calls: int, queries: int) -> tuple[int, int]:
    """Queries and demonstrations for each, whose product is at most ``calls``: about three times as many queries as
    demonstrations, of which 30 at most."""
    depth = max(2, min(30, round((calls / 3) ** 0.5)))
    return min(queries, calls // depth), depth


def most_candidates(calls: int) -> int:
    """Candidates that a race can afford, the baseline included. There are at least two prunings: the first joins bad
    sources and suspected rows, and where the suspected labels are the right ones, only the sources alone help."""
    return max(3, calls // PER_CANDIDATE)
