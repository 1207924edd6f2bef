"""Perplexity of the right answer and the time of a selection, against values computed by hand."""

from __future__ import annotations

import math

import pytest
from icl_curate.engine.evaluate.figures import llm_seconds, perplexity, timed
from icl_curate.engine.llm.types import Answer, Failure
from icl_curate.engine.pool.records import Query, Task

TASK = Task("labels", ("red", "blue"))
RED, BLUE = Query("a", answers=("Red",)), Query("b", answers=("blue",))


def scored(*options: tuple[float, ...]) -> Answer:
    return Answer("red", option_logprobs=options)


def test_perplexity_is_that_of_the_right_option_per_token() -> None:
    one, two = scored((-1.0, -3.0), (-0.1,)), scored((-0.2,), (-0.7,))
    assert perplexity([one], [RED], TASK) == pytest.approx(math.exp(2.0))
    assert perplexity([one, two], [RED, BLUE], TASK) == pytest.approx(math.exp((2.0 + 0.7) / 2))


def test_answers_without_scores_have_no_perplexity() -> None:
    assert perplexity([Answer("red"), Failure("refusal", "no")], [RED, BLUE], TASK) is None
    assert perplexity([scored((-1.0,), (-1.0,))], [Query("c", answers=("green",))], TASK) is None
    assert perplexity([scored((-1.0,), (-2.0,)), Answer("red")], [RED, RED], TASK) == pytest.approx(math.e)


def test_the_time_of_a_selection_leaves_out_the_first_query_and_the_final_answers() -> None:
    asked: list[int] = []

    def select(queries: object) -> list[int]:
        asked.append(len(queries))  # type: ignore[arg-type]
        return [1] * asked[-1]

    chosen, seconds = timed(select, [RED, BLUE])
    assert (chosen, asked) == ([1, 1], [1, 2]) and 0 <= seconds < 1
    selecting, final = [Answer("x", latency=0.5), Answer("y", latency=1.5)], [Answer("red", latency=9.0)]
    failed = Failure("timeout", "late")
    assert llm_seconds([*selecting, failed, *final], final, 4) == 0.5
