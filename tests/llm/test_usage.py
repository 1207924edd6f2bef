"""The account of what was asked."""

from __future__ import annotations

from icl_curate.engine.llm.cost import Usage, usage_of
from icl_curate.engine.llm.types import Answer, Failure


def test_answers_cached_ones_and_failures_are_counted_apart() -> None:
    results = [
        Answer("a", tokens_in=100, tokens_out=3),
        Failure("timeout", "nothing came"),
        Answer("b", tokens_in=20, tokens_out=5, cached=True),
    ]
    first = Usage(calls=3, cached_calls=1, failures=1, tokens_in=120, tokens_out=8)
    assert usage_of(results) == first
    assert usage_of([]) == Usage()
    assert first + usage_of(results[2:]) == Usage(4, 2, 1, 140, 13)
