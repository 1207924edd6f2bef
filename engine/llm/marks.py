"""What became of each query that an LLM was asked, and which figures that allows.

A query that the LLM could not answer through no fault of the prompt (a limited rate, a server that is down, a judge
that gave no verdict) is missing, not wrong: no figure counts it, and every figure says how far it could be off. A
prompt that got no usable answer because of what it is (too long, filtered, refused, answered with nothing that can be
read) counts as not right, so that prompts cannot gain by failing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..base.arrays import Float64s
from ..base.contract import OPTIONAL
from ..base.errors import LLMError, counted
from ..grading.metrics import ACCURACY, LEAST, METRICS, Metric
from ..grading.readers import AUTO, READERS
from ..pool.records import Query, Task
from .types import Answer, Failure, Result

State = Literal["right", "wrong", "unusable", "refused", "failed", "unjudged"]

REFUSALS = ("refusal", "context", "request")
"""Kinds of failures that are the prompt's own; all others are those of the way to the LLM."""

MOST_MISSING = 0.1
"""Share of missing queries above which nothing is decided."""

MOST_REFUSED = 0.5
"""Share of refused prompts above which nothing is decided: it is the request that is wrong, not its demonstrations."""
MOST_UNUSABLE = 0.2
"""Share of unusable replies above which the reader is in doubt."""

AGAIN = "run the same command again: answers are kept, it asks only for those that are missing"

NO_VERDICT = "no verdict of the judge"
OTHER_JUDGE = "give another judge with --judge-llm, or another prompt with --judge-prompt"
"""What helps where it replied otherwise than asked: that reply is kept."""


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


def mark(result: Result, value: float | None, metric: Metric = ACCURACY, judged: Result | None = None) -> Mark:
    """The mark of a result; ``value``: that of its answer by the metric, None without a verdict; ``judged``: what came
    of asking a judge."""
    if isinstance(result, Failure):
        return mark_of_failure(f"{result.kind}: {result.message}")
    grade = None if metric.binary else value
    if value is not None and metric.is_right(value):
        return Mark("right", grade=grade)
    if value is None and result.text:  # a judge may call right what no reader finds a label in
        return Mark("unjudged", f"{NO_VERDICT}: {judged.message}" if isinstance(judged, Failure) else NO_VERDICT)
    return Mark("wrong", grade=grade) if result.usable else Mark("unusable", result.text or result.reply)


def mark_of_failure(why: str) -> Mark:
    """The mark of a query without an answer, for a reason as it is stored: the kind of failure, a colon, a message."""
    return Mark("refused" if why.partition(":")[0] in REFUSALS else "failed", why)


def marked(queries: Sequence[Query], results: Sequence[Result], task: Task, metric: Metric = ACCURACY) -> list[Mark]:
    """The marks of results by a metric that no LLM is asked for."""
    return [
        mark(result, metric.score(result.text, query, task) if isinstance(result, Answer) else None, metric)
        for query, result in zip(queries, results, strict=True)
    ]


def known_text(result: Result, mark: Mark) -> str | None:
    """What the LLM said, empty if the prompt was refused; None if it is not known whether that is right."""
    if mark.right is None:
        return None
    return result.text if isinstance(result, Answer) else ""


def values_of(marks: Iterable[Mark]) -> Float64s:
    """The values (n,), from 0 to 1, or nan where it is not known."""
    return np.array([one.value for one in marks], np.float64)


def scores_of(
    score: Callable[[str, Sequence[str]], float],
    answers: Sequence[str | None],
    queries: Sequence[Query],
    marks: Sequence[Mark],
) -> Float64s:
    """As `values_of`, by another ``score`` of each answer and the accepted ones; its mark counts where there is none.
    All are (n,)."""
    each = zip(answers, queries, marks, strict=True)
    return np.array([m.value if text is None else score(text, query.answers) for text, query, m in each], np.float64)


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
    def known(self) -> bool:
        """Whether so few are missing that something can be learnt from the others."""
        return self.missing <= MOST_MISSING * self.total

    @property
    def decides(self) -> bool:
        """Whether so few are missing, or refused, that something can be decided on it."""
        return self.known and self.refused <= MOST_REFUSED * self.total

    @property
    def comparable(self) -> bool:
        """Whether there is a figure that can be compared with others."""
        return self.answered > 0 and self.decides

    @property
    def told(self) -> str:
        """What is not an answer, right or wrong, in a few words; empty if nothing is."""
        counts = {
            "unusable": self.unusable,
            "refused": self.refused,
            "failed": self.failed,
            "without a verdict": self.unjudged,
        }
        line = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if self.reason:
            line += f": {self.reason}"
        if self.missing:
            line += f"; {between(*self.bounds)} if all that is missing were wrong or right"
        if self.unusable and self.unusable == self.answered:
            line += f"; NO reply could be read, such as: {self.example or '(nothing)'}"
        return line

    @property
    def unread(self) -> bool:
        """Whether so many replies cannot be read that another reader should be tried."""
        return self.unusable > MOST_UNUSABLE * self.answered

    @property
    def undecided(self) -> str:
        """Why nothing can be decided on it; empty if something can be."""
        if self.decides:
            return ""
        why = f" ({self.reason})" if self.reason else ""
        these = f"{self.missing + self.refused:,} of {counted(self.total, 'prompt')} got no answer or verdict{why}"
        return f"{these}, too many to decide anything"

    @property
    def fix(self) -> str:
        """What gives those that are missing."""
        return OTHER_JUDGE if self.reason == NO_VERDICT else AGAIN

    def check(self) -> None:
        """Raise `LLMError` if so much is missing that nothing can be learnt or chosen by it."""
        if not self.known:
            raise LLMError(self.undecided, self.fix)


def between(low: float, high: float) -> str:
    return f"{low:.3f}–{high:.3f}"


def figure(
    value: float | None,
    interval: tuple[float, float] | None = None,
    of: int | None = None,
    outcomes: Tally | None = None,
) -> str:
    """An accuracy, or another mean value, as all commands, the screen and the report word it: with its 95 % interval,
    the number that it is ``of``, and what was no answer: ``0.820 of 55 (95 %: 0.700–0.900; 3 unusable)``."""
    if value is None:
        return "–" + (f" ({outcomes.told})" if outcomes and outcomes.told else "")
    if of is None and outcomes:
        of = outcomes.total - outcomes.missing
    notes = [f"95 %: {between(*interval)}" if interval else "", outcomes.told if outcomes else ""]
    told = f"{value:.3f}" + ("" if of is None else f" of {of:,}")
    return f"{told} ({'; '.join(filter(None, notes))})" if any(notes) else told


@dataclass(frozen=True, slots=True)
class GradedBy:
    """By what answers are graded: a ``metric``, which says right from ``least`` on; what of a reply is ``read``; and
    the LLM of a ``judge`` with the digest of its ``prompt``. ``why``: the reason if the user did not name the metric.
    ``template``: what wrote the prompts that were answered, with its digest; None for the default.
    """

    metric: str
    least: float
    binary: bool
    read: str = "auto"
    why: str = ""
    judge: str | None = field(default=None, metadata=OPTIONAL)
    prompt: str | None = field(default=None, metadata=OPTIONAL)
    template: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def line(self) -> str:
        """For people, with what it means; empty for accuracy of answers that are read as the task needs."""
        if self.metric == ACCURACY.name and self.read == AUTO.name and not self.template:
            return ""
        kind, how = METRICS.get(self.metric.partition("@")[0]), READERS.get(self.read)
        auto = self.why and self.metric != ACCURACY.name
        parts = [
            self.why if auto else "",
            f"{self.judge}, prompt {self.prompt}" if self.judge else "",
            "" if self.binary else f"right from {self.least:g} on",
            "" if self.read == AUTO.name else f"read {self.read}" + (f" ({how[1]})" if how else ""),
            f"prompts by {self.template}" if self.template else "",
            "--metric NAME takes another" if auto else "",
        ]
        told = self.metric + (f" ({kind.about})" if kind and self.metric != ACCURACY.name else "")
        return f"{told}: {'; '.join(filter(None, parts))}" if any(parts) else told

    @property
    def options(self) -> list[str]:
        """Those of a command that grades in the same way; a judge's prompt is not known by its digest."""
        read = [] if self.read == AUTO.name else ["--read", self.read]
        least = [] if self.binary or self.least == LEAST else ["--least", f"{self.least:g}"]
        judge = ["--judge-llm", self.judge] if self.judge else []
        name = (self.template or "").rpartition(" (")[0]
        template = ["--template", name] if name not in ("", "auto") and not name.startswith("program:") else []
        return [*([] if self.why else ["--metric", self.metric]), *read, *least, *judge, *template]

    def changed(self, now: GradedBy) -> str:
        """In what it is graded otherwise ``now``; empty if in nothing."""
        names = ("metric", "least", "read", "judge", "prompt", "template")
        pairs = {name: (getattr(self, name), getattr(now, name)) for name in names}
        differ = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        none = {"template": "auto"}
        told = {name: [each or none.get(name, "none") for each in pair] for name, pair in differ.items()}
        return "; ".join(f"{name} {then}, now {new}" for name, (then, new) in told.items())


def metric_name(by: GradedBy | None) -> str:
    """What stands beside a figure; of runs of before, accuracy."""
    return by.metric if by else ACCURACY.name


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


def excerpt(text: str, limit: int = 2_000) -> str:
    """A text of at most about so many characters: its beginning and its end."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
