"""The form of a pool's open answers: what a prompt asks for, and how many tokens an answer takes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..pool.records import ANSWER_TOKENS, Form, Task
from .metrics import MOST, metric_for

_MARKS: Sequence[tuple[Form, str]] = (("final", "####"), ("boxed", "\\boxed{"))
_METRICS: dict[str, Form] = {
    "calls": "calls",
    "entities": "entities",
    "json-f1": "json",
    "exact": "code",
    "rouge-l": "long",
}

ROOM, SHARE = 1.5, 0.99
"""An answer may be longer than this share of the outputs by this factor."""

REASONED = 256
"""Tokens that an answer takes at least which reasons before it ends in a number: however short the pool does so, an LLM
that is shown none or few of its rows does not."""

_PIECE = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^\W\d_a-zA-Z]{1,2}|[^\w\s]{1,2}|_|\n")
"""About a token of byte-pair encodings: a short word, three digits, two marks of punctuation, two other letters."""


def form_of(task: Task, outputs: Sequence[str]) -> Form:
    """The form of the open outputs of a pool; "short" for all that a few words answer, and for other tasks."""
    if task.kind != "open" or not outputs:
        return "short"
    for form, mark in _MARKS:
        if sum(mark in output for output in outputs) >= MOST * len(outputs):
            return form
    return _METRICS.get(metric_for(task, outputs)[0], "short")


def tokens_for(outputs: Sequence[str], form: Form = "short") -> int:
    """The maximum tokens of an answer that fit outputs: `ANSWER_TOKENS` if `SHARE` of them have no more, about, else
    `ROOM` times as many as these, as 2ⁿ or 3 · 2ⁿ, so that a pool that grows keeps its number. At least `REASONED`
    where they end in a final answer."""
    least = REASONED if form in ("final", "boxed") else ANSWER_TOKENS
    lengths = sorted(len(_PIECE.findall(output)) for output in outputs)
    longest = lengths[math.ceil(SHARE * len(lengths)) - 1] if lengths else 0
    if longest <= ANSWER_TOKENS:
        return least
    whole = 1 << math.ceil(math.log2(ROOM * longest))
    return max(least, whole * 3 // 4 if whole * 3 // 4 >= ROOM * longest else whole)
