"""How sure the LLM is of the right answer, and how long a selection takes (paper 004, table 4 and figure 3)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ..llm.types import Answer, Result
from ..pool.answers import is_correct
from ..pool.records import Query, Task

T = TypeVar("T")


def timed(select: Callable[[Sequence[Query]], T], queries: Sequence[Query]) -> tuple[T, float]:
    """The selection for all queries and its seconds per query. It selects for one query first: what only the first
    selection of a process reads or compiles is not counted."""
    select(queries[:1])
    started = time.perf_counter()
    chosen = select(queries)
    return chosen, (time.perf_counter() - started) / max(len(queries), 1)


def llm_seconds(received: Sequence[Result], answers: Sequence[Result], queries: int) -> float:
    """Seconds of LLM time per query that a selection takes: of all ``received`` replies but the final ``answers``, as
    they took when they were asked, one after the other."""
    final = {id(answer) for answer in answers}
    spent = sum(result.latency for result in received if isinstance(result, Answer) and id(result) not in final)
    return spent / max(queries, 1)


def perplexity(results: Sequence[Result], queries: Sequence[Query], task: Task) -> float | None:
    """exp of the mean over queries of −log p of the right answer per token: the geometric mean of the perplexities of
    table 4. None if options were not scored, or no option is the right one."""
    surprises = [
        surprise
        for result, query in zip(results, queries, strict=True)
        if isinstance(result, Answer) and (surprise := _surprise(result, query, task.choices(query))) is not None
    ]
    return math.exp(float(np.mean(surprises))) if surprises else None


def _surprise(result: Answer, query: Query, choices: Sequence[str]) -> float | None:
    if len(choices) != len(result.option_logprobs):
        return None
    right = [i for i, choice in enumerate(choices) if is_correct(choice, query.answers, choices)]
    scored = [-sum(result.option_logprobs[i]) / max(len(result.option_logprobs[i]), 1) for i in right]
    return min(scored, default=None)
