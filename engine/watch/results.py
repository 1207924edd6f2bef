"""The result of watching queries: the object of ``watch --json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..base.contract import OPTIONAL, Reported
from ..llm.cost import Usage
from ..llm.marks import Tally
from .drift import ShareChange
from .expected import Stratum

Reference = Literal["validation", "test", "pool"]
By = Literal["topic", "label", "word"]

CHANCE = 0.01
"""Highest p of an alarm: without any change, one watch in a hundred raises it."""


@dataclass(frozen=True, slots=True)
class Drift:
    """``queries`` against ``compared`` reference ones. ``changed``: an estimate of the least share of the queries
    that would have to be other ones, with its 95 % interval; about 0 if nothing changed. ``p``: of such a difference by
    chance. ``changes``: topics, labels of the nearest demonstrations or words whose share changed most."""

    reference: Reference
    queries: int
    compared: int
    changed: float
    low: float
    high: float
    p: float
    by: By
    changes: tuple[ShareChange, ...]

    @property
    def beyond_chance(self) -> bool:
        """By the test, which is exact; the interval of its size is wider."""
        return self.p <= CHANCE and self.changed > 0


@dataclass(frozen=True, slots=True)
class UncoveredQuery:
    """A query far from every demonstration, the ``similarity`` to its nearest one, and how often it was ``asked``."""

    id: str
    input: str
    similarity: float
    asked: int


@dataclass(frozen=True, slots=True)
class UncoveredGroup:
    """Uncovered queries of a topic, or with a word. ``knowledge`` of the LLM, and ``coverage`` by the pool, as in
    `topics.report.Gap`; of topics only."""

    name: str
    by: By
    queries: int
    examples: tuple[UncoveredQuery, ...]
    knowledge: float | None = field(default=None, metadata=OPTIONAL)
    coverage: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Uncovered:
    """``queries`` whose nearest demonstration has a similarity below ``below``, with their ``share`` and its 95 %
    interval; ``usual`` is the share of queries like the reference ones, ``p`` of so many by chance."""

    reference: Reference
    queries: int
    share: float
    low: float
    high: float
    below: float
    usual: float
    p: float
    groups: tuple[UncoveredGroup, ...]
    farthest: tuple[UncoveredQuery, ...]


@dataclass(frozen=True, slots=True)
class ExpectedAccuracy:
    """From the evaluation ``run``: ``evaluated`` is the accuracy on its own ``queries``, ``accuracy`` that to expect on
    the queries watched, with its 95 % interval. ``outside``: share of these that are farther from every demonstration
    than any evaluated one. ``stand_in``: its LLM is no LLM. ``metric``: what accuracy is."""

    accuracy: float
    low: float
    high: float
    outside: float
    run: int
    llm: str
    method: str
    k: int
    split: str
    queries: int
    evaluated: float
    stand_in: bool
    strata: tuple[Stratum, ...]
    metric: str = "accuracy"


@dataclass(frozen=True, slots=True)
class MeasuredAccuracy:
    """Accuracy on ``queries`` with an answer to compare with: of the answers ``recorded`` in the file, or of those
    ``asked`` now. ``outcomes``: what became of all that were asked. ``metric``: what accuracy is."""

    by: Literal["recorded", "asked"]
    accuracy: float
    low: float
    high: float
    queries: int
    llm: str | None = field(default=None, metadata=OPTIONAL)
    usage: Usage | None = field(default=None, metadata=OPTIONAL)
    outcomes: Tally | None = field(default=None, metadata=OPTIONAL)
    metric: str = "accuracy"


@dataclass(frozen=True, slots=True)
class Alarm:
    """``value`` is beyond ``limit``; ``next`` is the command or step to take."""

    name: Literal["drift", "uncovered", "accuracy"]
    value: float
    limit: float
    what: str
    next: str


@dataclass(frozen=True, slots=True)
class WatchReport(Reported):
    """``queries`` that were looked at, of ``total``; ``distinct`` of them differ, and ``with_answer`` have a right
    answer. ``space``: the encoder in whose vectors they are compared, or words."""

    kind = "watch"
    queries: int
    total: int
    distinct: int
    with_answer: int
    skipped: int
    space: str
    drift: Drift | None
    pool_drift: Drift | None
    uncovered: Uncovered
    expected: ExpectedAccuracy | None
    measured: tuple[MeasuredAccuracy, ...]
    alarms: tuple[Alarm, ...]
    notes: tuple[str, ...]
