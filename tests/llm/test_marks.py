"""What became of a query, and how far the figures could be off."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.evaluate.statistics import mean_of, over_seeds
from icl_curate.engine.http.refusals import FailureKind
from icl_curate.engine.llm.client import Heard
from icl_curate.engine.llm.marks import Mark, State, commonest, mark, mark_of_failure, tally, values_of
from icl_curate.engine.llm.types import Answer, Failure

MARKS = st.sampled_from([Mark(state) for state in get_args(State)])
MINE = {"refusal", "context", "request"}


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_only_what_the_prompt_is_to_blame_for_counts_against_it(kind: FailureKind) -> None:
    found = mark(Failure(kind, "HTTP 400: a: b"), None)
    assert found == mark_of_failure(f"{kind}: HTTP 400: a: b")
    assert (found.state, found.right) == (("refused", False) if kind in MINE else ("failed", None))
    assert not found.answered and (found.value == 0.0 if kind in MINE else math.isnan(found.value))


def test_answers_are_right_wrong_unusable_or_unjudged() -> None:
    assert [mark(Answer("a"), right).state for right in (True, False, None)] == ["right", "wrong", "unjudged"]
    cut = Answer("a", usable=False)
    assert [mark(cut, right).state for right in (True, False, None)] == ["right", "unusable", "unusable"]


@settings(deadline=None)
@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(MARKS, min_size=n, max_size=n), min_size=1, max_size=20)))
def test_the_figure_lies_within_its_bounds_whatever_the_missing_ones_would_have_been(rows: list[list[Mark]]) -> None:
    found = tally(one for row in rows for one in row)
    low, high = found.bounds
    items = over_seeds([values_of(column) for column in zip(*rows, strict=True)])
    accuracy = mean_of(items)
    assert found.total == sum(map(len, rows)) == found.answered + found.refused + found.missing
    assert 0 <= low <= high <= 1 and (high - low) * found.total == pytest.approx(found.missing)
    if accuracy is None:
        assert found.missing == found.total
    else:
        assert low - 1e-9 <= accuracy <= high + 1e-9
    few = found.missing <= 0.1 * found.total and found.refused <= 0.5 * found.total
    assert found.decides == few == (not found.undecided)


def test_a_prompt_cannot_gain_by_failing() -> None:
    """The figure of a query that is refused is that of a wrong answer."""
    assert values_of([Mark("right"), Mark("refused")]).mean() == values_of([Mark("right"), Mark("wrong")]).mean()


def test_the_commonest_reason_is_one_of_the_commonest_kind() -> None:
    limits = [f"rate_limit: HTTP 429: wait {i} s" for i in range(3)]
    assert commonest(["timeout: no answer", "timeout: no answer", *limits]) == "HTTP 429: wait 0 s"
    assert commonest([]) == ""


@pytest.mark.parametrize(
    ("answers", "refused", "failed", "ends"),
    [(0, 4, 0, True), (1, 9, 0, False), (5, 0, 5, True), (6, 0, 5, False), (0, 2, 1, True), (3, 3, 2, False)],
)
@pytest.mark.parametrize("kind", ["refusal", "context", "request"])
def test_work_ends_where_most_failed_or_nothing_was_answered(
    answers: int, refused: int, failed: int, ends: bool, kind: FailureKind
) -> None:
    heard = Heard()
    heard.count([Answer("a")] * answers + [Failure(kind, "HTTP 400: no")] * refused)
    heard.count([Failure("transient", "HTTP 500: out")] * failed)
    error = heard.error("openai:m")
    # a request that the server cannot take is no fault of its demonstrations
    assert (error is not None) == (ends or (kind == "request" and refused + failed > answers))
    if error:
        assert error.exit_code == 3 and f"{refused + failed} of {answers + refused + failed} prompts" in error.what
        assert error.fix.endswith("it asks only for those that are missing")
    with pytest.raises(LLMError, match="10 of 11 prompts got no answer"):
        tally([Mark("right"), *[Mark("failed")] * 10]).check()
    assert tally([*[Mark("right")] * 5, *[Mark("refused")] * 5]).decides
    with pytest.raises(LLMError, match="6 of 11 prompts got no answer"):
        tally([*[Mark("right")] * 5, *[Mark("refused", "context: too long")] * 6]).check()
