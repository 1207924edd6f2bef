"""The result of confirming a pruning on what is served: the object of ``tune --json``, stored with its run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..base.contract import OPTIONAL, SPREAD, Reported
from ..base.errors import counted
from ..evaluate.statistics import wilson
from ..llm.cost import Judging, Usage
from ..llm.marks import GradedBy, Tally
from ..store.decisions import Revision
from ..trials.results import CurvePoint
from ..trials.uses import NOISE

KIND = "tune"

MOST_TOLD = 10_000
"""Queries up to which it is said how many would confirm a gain."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in accuracy, and its 95 % interval."""

    gain: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate in the race.

    ``pruned_rows``: the number of rows it prunes, those of ``sources`` included; ``relabelled``: those that get another
    output. ``accuracy`` on the ``queries`` that
    were asked with it, None if there are none, and the paired difference to keeping everything on the same queries:
    for the best of many, this looks better than it is. ``dropped_after`` so many queries, None if it was
    not, or for the baseline, which is asked every query. ``agreement`` of the evidence on rows, in rows; None for the
    baseline.
    """

    name: str
    reason: str
    sources: tuple[str, ...]
    pruned_rows: int
    queries: int
    accuracy: float | None
    versus: Difference | None
    dropped_after: int | None
    chosen: bool
    agreement: float | None = field(default=None, metadata=OPTIONAL)
    relabelled: int = field(default=0, metadata=OPTIONAL)

    @property
    def changes(self) -> bool:
        """Whether it is not the baseline."""
        return bool(self.pruned_rows or self.relabelled)

    @property
    def rows_told(self) -> str:
        """How many rows it changes."""
        if not self.relabelled:
            return counted(self.pruned_rows, "row")
        pruned = f"{counted(self.pruned_rows, 'row')} pruned, " if self.pruned_rows else ""
        return f"{pruned}{self.relabelled:,} {'' if pruned else 'rows '}relabelled"

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of its accuracy (Wilson 1927), None if nothing was asked. Candidates share their queries, so two
        intervals that overlap may still differ: ``versus`` is the paired difference."""
        if self.accuracy is None:
            return None
        return wilson(self.accuracy * self.queries, self.queries)


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """What the prompts are built with."""

    method: str
    k: int
    order: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Accuracy ``before``, with everything kept, and ``after`` the pruning: ``before`` plus the expected ``gain``,
    measured on queries that had no part in the choice; ``low`` and ``high`` are its 95 % interval. ``calls``: distinct
    prompts that the race needed. It went over ``queries`` of the ``available`` validation queries, with those that got
    no answer. ``named``: what won was what `check` had named before any of them was asked."""

    before: float
    after: float
    gain: float
    low: float
    high: float
    calls: int
    queries: int
    available: int
    named: bool = False


@dataclass(frozen=True, slots=True)
class TuneReport(Reported):
    """The decision by served prompts.

    ``pruned``: sources that the chosen candidate prunes as a whole; ``pruned_rows``: ids of the rows that it prunes
    beside them; ``relabelled``: the outputs, by id, that it gives to others; all are empty if ``worth_it`` is false.
    ``proposed``: the name of the best candidate, carried out or not. ``gain_error`` is the standard error of the
    ``gain``. ``confirmed`` is None if no batch was asked; ``stopped`` says why the race ended early, empty if it did
    not. ``outcomes``: what became of the distinct prompts. ``known`` says what other evidence there is on what the
    candidate changes. ``graded_by``: what accuracy is, None in runs of before. ``hint`` as in `MethodFigures`.
    ``judge``: what it was asked, if one said which answers are right. ``noise``: the least gain in standard errors,
    None in runs of before. ``curve`` is that of `tune vote`, empty here: scripts read it of every pruning.
    """

    kind = "tuning"
    run: int | None
    llm: str
    usage: Usage = field(metadata=SPREAD)
    served: ServingSettings
    estimator: str
    proposed: str
    pruned: tuple[str, ...]
    pruned_rows: tuple[str, ...]
    kept: tuple[str, ...]
    validation_before: float | None
    validation_after: float | None
    gain: float
    gain_error: float | None
    worth_it: bool
    confirmed: Confirmation | None
    candidates: tuple[CandidateResult, ...]
    stopped: str
    known: tuple[str, ...]
    instead: tuple[str, ...]
    curve: tuple[CurvePoint, ...] = ()
    relabelled: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    outcomes: Tally | None = field(default=None, metadata=OPTIONAL)
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)
    hint: str | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)
    noise: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def promising(self) -> bool:
        """Whether something that it would change gains, but not beyond noise."""
        changes = self.chosen is not None and self.chosen.changes and not self.undecided
        return changes and not self.worth_it and self.gain > 0

    @property
    def doubt(self) -> str:
        """How far a gain falls short of the ``noise`` that it must exceed, and how many queries would do; of one that
        was taken below the usual level, how far it goes. Empty otherwise."""
        if not self.confirmed or not self.gain_error or self.noise is None:
            return ""
        reached = self.gain / self.gain_error
        if self.worth_it:
            return f"not shown: {reached:.2f} standard errors" if reached < NOISE else ""
        if not self.promising:
            return ""
        enough = math.ceil(self.confirmed.queries * (self.noise / reached) ** 2)
        told = f"; such a gain is confirmed in half of the runs with {enough:,} queries" if enough <= MOST_TOLD else ""
        return f"{reached:.2f} of {self.noise:.2f} standard errors{told}"

    @property
    def level(self) -> float | None:
        """The ``noise`` at which the same command takes what is `promising`, by the answers that are known; None for
        less than a standard error, and where the budget ended the race: then it would go on."""
        if self.worth_it or not self.doubt or self.stopped or not self.gain_error or self.gain < self.gain_error:
            return None
        return math.ceil(10 * self.gain / self.gain_error) / 10 - 0.1

    @property
    def undecided(self) -> str:
        """Why nothing is decided although the race was run; empty if that is not so."""
        return self.outcomes.undecided if self.outcomes else ""

    @property
    def revision(self) -> Revision:
        """What the chosen candidate changes in the pool; empty if it is not worth it."""
        return Revision(self.pruned, self.pruned_rows, self.relabelled)

    @property
    def reason(self) -> str:
        """The reason stored with the decision."""
        run = "" if self.run is None else f"run {self.run}: "
        served = f"{self.served.method}, k = {self.served.k}"
        doubt = f", {self.doubt}" if self.doubt else ""
        return f"{run}{self.proposed}; {served}, expected gain {self.gain:+.3f}{doubt}"

    @property
    def chosen(self) -> CandidateResult | None:
        """The candidate that leads the race; None if nothing was asked."""
        return next((each for each in self.candidates if each.chosen), None)

    @property
    def more_accurate(self) -> CandidateResult | None:
        """The most accurate candidate, if that is not the chosen one: the answers do not tell the two apart, and the
        evidence on rows agrees more with the chosen one."""
        raced = [each for each in self.candidates if each.accuracy is not None and each.dropped_after is None]
        best = max(raced, key=lambda each: (each.accuracy, each.chosen), default=None)
        return None if best is None or best.chosen or not self.chosen else best
