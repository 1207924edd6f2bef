"""The plan of `curate`: which steps, in which order, with how many calls each at most.

Calls go where the next one is worth most. Checks are free and come first. Evidence on single rows makes the candidates
better, so a third of the calls is spent on it where there are enough; the race of candidates takes what it needs of the
rest, because it drops losers early (Maron and Moore 1994); what it leaves goes into another round, as long as the last
one pruned something, and into the choice of the method that is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import contract

KIND = "curate"

Name = Literal["check", "ask", "confirm", "rank", "choose"]

ASK, CHOOSE = 1 / 3, 1 / 6
"""Shares of the calls for evidence on rows, and kept back for the choice of the method."""

ENOUGH = 150
"""Calls from which evidence is asked for, and the method chosen; with fewer, all go into the race."""

ROUNDS = 3
"""Maximum rounds of evidence and race."""

PER_CANDIDATE = 40
"""Calls for each candidate of a race, at least: with fewer, a gain of a third is not beyond noise."""

PER_CHANGE = 0.5
"""Expected gain in accuracy for each prompt in which a suspected row is replaced; see docs/evidence.md."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step: at most ``calls``; ``expected_gain`` in accuracy, None if nothing is known of it yet; ``command``: the
    same by hand."""

    step: Name
    what: str
    calls: int
    expected_gain: float | None
    command: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step carried out, with the ``calls`` it made. ``gain`` in accuracy on validation queries that had no part in
    the choice, with its 95 % interval, None if it measures none; ``batch`` of the decision it made, None if it made
    none. ``found`` says in a sentence what it found."""

    step: Name
    what: str
    calls: int
    expected_gain: float | None
    gain: float | None
    low: float | None
    high: float | None
    found: str
    batch: int | None


@dataclass(frozen=True, slots=True)
class CurationReport:
    """What was done, and what it gained.

    ``before`` and ``after``: accuracy on the validation queries, the latter by the confirmed gains; None if no race was
    begun. ``served``: the method to select with. ``pruned`` sources and the number of ``pruned_rows``, those of the
    sources included. ``left``: calls not used, None without a limit of calls. ``following``: the step that comes next,
    None at the end."""

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

    def as_json(self) -> dict[str, Any]:
        """The ``curate --json`` contract."""
        return contract.to_json(self)

    @classmethod
    def from_json(cls, data: object) -> CurationReport:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        return contract.from_json(cls, data)


@dataclass(frozen=True, slots=True)
class Shares:
    """Calls for each kind of step."""

    ask: int
    confirm: int
    choose: int


def shares(calls: int) -> Shares:
    """Divide the calls of a round."""
    if calls < ENOUGH:
        return Shares(0, calls, 0)
    ask, choose = int(calls * ASK), int(calls * CHOOSE)
    return Shares(ask, calls - ask - choose, choose)


def trials_of(calls: int, queries: int, candidates: int = 30) -> tuple[int, int]:
    """Queries and demonstrations for each, whose product is at most ``calls``: about three times as many queries as
    demonstrations, because answers to different queries tell more."""
    depth = max(2, min(candidates, round((calls / 3) ** 0.5)))
    return min(queries, calls // depth), depth


def most_candidates(calls: int) -> int:
    """Candidates that a race can afford, the baseline included."""
    return max(2, calls // PER_CANDIDATE)


def planned(calls: int, suspected: float, methods: Sequence[str], commands: Mapping[Name, str]) -> list[PlannedStep]:
    """The steps for ``calls``. ``suspected``: the share of validation prompts that show a suspected row."""
    divided = shares(calls)
    steps = [PlannedStep("check", "prune rows that repeat queries", 0, None, commands["check"])]
    if divided.ask:
        steps.append(PlannedStep("ask", "ask with single demonstrations", divided.ask, None, commands["ask"]))
    gain = round(PER_CHANGE * suspected, 3)
    steps.append(PlannedStep("confirm", "race prunings, prune the best", divided.confirm, gain, commands["confirm"]))
    if divided.ask:
        steps.append(PlannedStep("rank", "train the ranker from these answers", 0, None, commands["rank"]))
    if divided.choose:
        what = f"race methods: {', '.join(methods)}"
        steps.append(PlannedStep("choose", what, divided.choose, None, commands["choose"]))
    return steps
