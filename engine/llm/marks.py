"""What became of each query that an LLM was asked, and which figures that allows.

A query that the LLM could not answer through no fault of the prompt (a limited rate, a server that is down, a judge
that gave no verdict) is missing, not wrong: no figure counts it, and every figure says how far it could be off. A
prompt that got no usable answer because of what it is (too long, filtered, refused, answered with nothing that can be
read) counts as not right, so that prompts cannot gain by failing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..base.arrays import Float64s
from ..base.contract import OPTIONAL
from ..base.errors import LLMError, counted
from ..grading.metrics import ACCURACY, Metric
from ..pool.records import Query, Task
from .types import Answer, Failure, Result

State = Literal["right", "wrong", "unusable", "refused", "failed", "unjudged"]

REFUSALS = ("refusal", "context", "request")
"""Kinds of failures that are the prompt's own; all others are those of the way to the LLM."""

MOST_MISSING = 0.1
"""Share of missing queries above which nothing is decided."""

MOST_REFUSED = 0.5
"""Share of refused prompts above which nothing is decided: it is the request that is wrong, not its demonstrations."""

AGAIN = "run the same command again: answers are kept, it asks only for those that are missing"

NO_VERDICT = "no verdict of the judge"


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of a query; ``why`` there is no answer or no verdict, or the reply from which nothing can be read."""

    state: State
    why: str = ""
    grade: float | None = None
    """The value of an answer that is graded; None if it is 1 for a right one and 0 for a wrong one."""

    @property
    def value(self) -> float:
        """Of the answer, from 0 to 1; nan if it is not known, 0 without a usable one."""
        if self.state in ("failed", "unjudged"):
            return math.nan
        return float(self.state == "right") if self.grade is None else self.grade

    @property
    def right(self) -> bool | None:
        """None if it is not known."""
        return None if self.state in ("failed", "unjudged") else self.state == "right"

    @property
    def answered(self) -> bool:
        """Whether the LLM was heard, and it is known how it did."""
        return self.state in ("right", "wrong", "unusable")


def mark(result: Result, value: float | None, metric: Metric = ACCURACY) -> Mark:
    """The mark of a result; ``value``: that of its answer by the metric, None without a verdict."""
    if isinstance(result, Failure):
        return mark_of_failure(f"{result.kind}: {result.message}")
    grade = None if metric.binary else value
    if value is not None and metric.is_right(value):
        return Mark("right", grade=grade)
    if not result.usable:
        return Mark("unusable", result.text)
    return Mark("unjudged", NO_VERDICT) if value is None else Mark("wrong", grade=grade)


def mark_of_failure(why: str) -> Mark:
    """The mark of a query without an answer, for a reason as it is stored: the kind of failure, a colon, a message."""
    return Mark("refused" if why.partition(":")[0] in REFUSALS else "failed", why)


def marked(queries: Sequence[Query], results: Sequence[Result], task: Task, metric: Metric = ACCURACY) -> list[Mark]:
    """The marks of results by a metric that no LLM is asked for."""
    return [
        mark(result, metric.score(result.text, query, task) if isinstance(result, Answer) else None, metric)
        for query, result in zip(queries, results, strict=True)
    ]


def values_of(marks: Iterable[Mark]) -> Float64s:
    """The values (n,), from 0 to 1, or nan where it is not known."""
    return np.array([one.value for one in marks], np.float64)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many queries had which `State`; with several seeds each counts as often. ``reason``: the commonest one why a
    prompt was refused or failed; ``example``: a reply from which nothing can be read. ``worth``: the sum of the values
    of all answers, None if it is the number of right ones."""

    right: int = 0
    wrong: int = 0
    unusable: int = 0
    refused: int = 0
    failed: int = 0
    unjudged: int = 0
    reason: str = ""
    example: str = ""
    worth: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def total(self) -> int:
        return self.answered + self.refused + self.missing

    @property
    def answered(self) -> int:
        """Those of which the LLM was heard, and it is known how it did: without any, nothing was measured."""
        return self.right + self.wrong + self.unusable

    @property
    def missing(self) -> int:
        """Those of which nothing is known; no figure counts them."""
        return self.failed + self.unjudged

    @property
    def bounds(self) -> tuple[float, float]:
        """The mean value if all that are missing were wrong, and if all were right."""
        worth = self.right if self.worth is None else self.worth
        return worth / max(self.total, 1), (worth + self.missing) / max(self.total, 1)

    @property
    def decides(self) -> bool:
        """Whether so few are missing, or refused, that something can be decided on it."""
        return self.missing <= MOST_MISSING * self.total and self.refused <= MOST_REFUSED * self.total

    @property
    def comparable(self) -> bool:
        """Whether there is a figure that can be compared with others."""
        return self.answered > 0 and self.decides

    @property
    def told(self) -> str:
        """What is not an answer, right or wrong, in a sentence; empty if nothing is."""
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (self.unusable, "unusable"),
                (self.refused, "refused"),
                (self.failed, "failed"),
                (self.unjudged, "without a verdict"),
            )
            if count
        ]
        if not parts:
            return ""
        line = f"of {counted(self.total, 'prompt')} {', '.join(parts)}"
        if self.reason:
            line += f", most often: {self.reason}"
        if self.missing:
            low, high = self.bounds
            line += f"; {low:.3f} right if all that is missing were wrong, {high:.3f} if it were right"
        if self.unusable and self.unusable == self.answered:
            line += f"; NO reply could be read, such as: {self.example or '(nothing)'}"
        return line

    @property
    def undecided(self) -> str:
        """Why nothing can be decided on it; empty if something can be."""
        if self.decides:
            return ""
        why = f" ({self.reason})" if self.reason else ""
        these = f"{self.missing + self.refused:,} of {counted(self.total, 'prompt')} got no answer or verdict{why}"
        return f"{these}, too many to decide anything"

    def check(self) -> None:
        """Raise `LLMError` if nothing can be learnt or chosen by it."""
        if self.undecided:
            raise LLMError(self.undecided, AGAIN)


def tally(marks: Iterable[Mark]) -> Tally:
    """The numbers of all states."""
    every = list(marks)
    states: Counter[str] = Counter(mark.state for mark in every)
    reasons = [mark.why for mark in every if mark.state in ("refused", "failed")] or [
        mark.why for mark in every if mark.state == "unjudged"
    ]
    example = next((mark.why for mark in every if mark.state == "unusable"), "")
    graded = any(mark.grade is not None for mark in every)
    worth = sum(mark.value for mark in every if mark.answered) if graded else None
    return Tally(**states, reason=commonest(reasons), example=brief(example), worth=worth)


def commonest(reasons: Sequence[str]) -> str:
    """A reason of the commonest kind, itself the commonest of these, without the kind; empty for none."""
    if not reasons:
        return ""
    kinds = Counter(why.partition(": ")[0] for why in reasons)
    [(kind, _)] = kinds.most_common(1)
    [(why, _)] = Counter(why for why in reasons if why.partition(": ")[0] == kind).most_common(1)
    return brief(why.partition(": ")[2] or why)


def brief(text: str, limit: int = 120) -> str:
    """A text on one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
