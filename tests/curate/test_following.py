"""What follows the first race, by the calls that are left."""

from __future__ import annotations

import pytest
from icl_curate.engine.curate.plan import Name, StepDone, most_candidates
from icl_curate.engine.curate.state import Progress


def _done(step: Name, calls: int = 0) -> StepDone:
    return StepDone(step, step, calls, None, None, None, None, "", None)


@pytest.mark.parametrize("raced", [28, 63, 117, 125])
@pytest.mark.parametrize("limit", [300, 1000])
def test_after_a_race_that_pruned_nothing_rows_are_asked_about(limit: int, raced: int) -> None:
    state = Progress({}, "", (_done("check"), _done("confirm", raced)), rounds=1, limit=limit)
    assert state.following(limit - raced) == "ask", "whatever checks suggested is lost, and only answers can tell more"


def test_a_race_is_not_followed_by_questions_that_no_race_could_use() -> None:
    few = Progress({}, "", (_done("check"), _done("confirm", 60)), rounds=1, limit=200)
    assert few.following(140) == "choose"
    asked = Progress(
        {}, "", (_done("check"), _done("confirm", 60), _done("ask", 40), _done("confirm", 60)), 2, limit=1000
    )
    assert asked.following(800) == "rank", "asked already, and nothing was pruned"
    pruned = Progress({}, "", (_done("check"), _done("confirm", 120)), 1, True, limit=300)
    assert pruned.following(180) == "confirm", "what is left is raced at once"


@pytest.mark.parametrize(("calls", "candidates"), [(10, 3), (84, 3), (125, 3), (413, 10)])
def test_a_race_has_two_prunings_at_least(calls: int, candidates: int) -> None:
    assert most_candidates(calls) == candidates
