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
from icl_curate.engine.llm.marks import (
    AGAIN,
    OTHER_JUDGE,
    GradedBy,
    Mark,
    State,
    commonest,
    excerpt,
    figure,
    mark,
    mark_of_failure,
    tally,
    values_of,
)
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
    assert [mark(cut, right).state for right in (True, False, None)] == ["right", "unusable", "unjudged"]
    assert mark(Answer("", usable=False), None).state == "unusable"  # no judge is needed to say so


def test_a_reply_of_a_judge_without_verdict_is_kept_and_a_call_of_it_that_failed_is_sent_again() -> None:
    replied = tally([mark(Answer("a"), None, judged=Answer("banana"))])
    failed = tally([mark(Answer("a"), None, judged=Failure("transient", "HTTP 500: it fails"))])
    assert (replied.undecided, replied.fix) == (
        "1 of 1 prompt got no answer or verdict (no verdict of the judge), too many to decide anything", OTHER_JUDGE,
    )  # fmt: skip
    assert (failed.reason, failed.fix) == ("HTTP 500: it fails", AGAIN)
    with pytest.raises(LLMError) as error:
        replied.check()
    assert error.value.fix == OTHER_JUDGE


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
        assert error.fix.count("run the same command again") == 1
    with pytest.raises(LLMError, match="10 of 11 prompts got no answer"):
        tally([Mark("right"), *[Mark("failed")] * 10]).check()
    assert tally([*[Mark("right")] * 5, *[Mark("refused")] * 5]).decides
    assert "6 of 11 prompts got no answer" in tally([*[Mark("right")] * 5, *[Mark("refused")] * 6]).undecided


def test_a_figure_is_worded_with_what_it_is_of_and_what_is_missing() -> None:
    marks = [*[Mark("right")] * 40, *[Mark("wrong")] * 12, *[Mark("unusable", "?")] * 3]
    missing = [Mark("failed", "rate_limit: HTTP 429")] * 5
    assert figure(40 / 55, (0.6, 0.83), outcomes=tally(marks)) == "0.727 of 55 (95 %: 0.600–0.830; 3 unusable)"
    told = figure(40 / 55, outcomes=tally([*marks, *missing]))
    bounds = f"{40 / 60:.3f}–{45 / 60:.3f} if all that is missing were wrong or right"
    assert told == f"0.727 of 55 (3 unusable, 5 failed: HTTP 429; {bounds})"
    assert figure(0.5) == "0.500" and figure(0.5, of=1200) == "0.500 of 1,200" and figure(None) == "–"
    assert figure(0.5, (0.4, 0.6)) == "0.500 (95 %: 0.400–0.600)"
    assert figure(None, outcomes=tally(missing)).startswith("– (5 failed: HTTP 429;")
    assert figure(1.0, outcomes=tally([Mark("right")])) == "1.000 of 1"


@pytest.mark.parametrize(
    ("by", "line", "options"),
    [
        (GradedBy("accuracy", 1.0, True, why="the outputs are labels"), "", ""),
        (GradedBy("accuracy", 1.0, True), "", "--metric accuracy"),
        (
            GradedBy("json-f1", 0.5, False, why="100% of the outputs are JSON objects"),
            "json-f1 (the fields of a JSON value): 100% of the outputs are JSON objects; right from 0.5 on; "
            "--metric NAME takes another",
            "",
        ),
        (
            GradedBy("number@0.01", 1.0, True, "number"),
            "number@0.01 (the same number, or one within a relative error): read number (its last number)",
            "--metric number@0.01 --read number",
        ),
        (GradedBy("f1", 0.8, False), "f1 (token F1 of SQuAD): right from 0.8 on", "--metric f1 --least 0.8"),
        (
            GradedBy("own:f", 0.5, False, "regex:x"), "own:f: right from 0.5 on; read regex:x",
            "--metric own:f --read regex:x",
        ),
        (
            GradedBy("judge", 1.0, True, judge="openai:j", prompt="ab"), "judge: openai:j, prompt ab",
            "--metric judge --judge-llm openai:j",
        ),
    ],
)  # fmt: skip
def test_what_grades_is_said_in_a_line_where_it_is_not_the_usual(by: GradedBy, line: str, options: str) -> None:
    assert (by.line, " ".join(by.options)) == (line, options)
    assert by.changed(by) == "" and by.changed(GradedBy("x", 0.5, False)).startswith(f"metric {by.metric}, now x")


def test_a_long_reply_is_shown_by_both_of_its_ends() -> None:
    assert excerpt("short") == "short"
    told = excerpt("a" * 3000 + "b" * 3000, 100)
    assert told == "a" * 50 + "\n… 5,900 characters …\n" + "b" * 50
