"""What follows the first race, by the calls that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from icl_curate.engine.curate.plan import Name, Pending, StepDone, most_candidates
from icl_curate.engine.curate.state import Progress, planned


def _done(step: Name, calls: int = 0) -> StepDone:
    return StepDone(step, step, calls)


@pytest.mark.parametrize("raced", [28, 63, 117, 125])
@pytest.mark.parametrize("limit", [300, 1000])
def test_after_a_race_that_pruned_nothing_rows_are_asked_about(limit: int, raced: int) -> None:
    state = Progress({}, "", (_done("check"), _done("confirm", raced)), limit=limit)
    assert state.following(limit - raced) == "ask", "whatever checks suggested is lost, and only answers can tell more"


def test_a_race_is_not_followed_by_questions_that_no_race_could_use() -> None:
    few = Progress({}, "", (_done("check"), _done("confirm", 60)), limit=200)
    assert few.following(140) == "choose"
    asked = Progress({}, "", (_done("check"), _done("confirm", 60), _done("ask", 40), _done("confirm", 60)), limit=1000)
    assert asked.following(800) == "rank", "asked already, and nothing was pruned"
    pruned = Progress({}, "", (_done("check"), _done("confirm", 120)), True, limit=300)
    assert pruned.following(180) == "confirm", "what is left is raced at once"


def test_the_steps_that_are_left_begin_with_the_race_that_goes_on() -> None:
    state = Progress({}, "", (_done("check"), _done("confirm", 250)), limit=600, unfinished=3)
    race, *rest = planned(state)
    assert (race.step, race.calls) == ("confirm", 250) and race.what.endswith(", continued")
    assert [step.step for step in rest] == ["choose"], "it takes what else was for questions"
    state.unfinished, state.continued = 0, True
    state.finish(_done("confirm", 60))
    assert state.rounds == 1 and [step.step for step in planned(state)] == ["ask", "confirm", "rank", "choose"]


@pytest.mark.parametrize("spent", [100, 250, 383, 480])
@pytest.mark.parametrize("unfinished", [0, 3])
@pytest.mark.parametrize("held", [False, True])
def test_the_rest_of_a_plan_takes_what_is_left_and_begins_with_what_follows(
    spent: int, unfinished: int, held: bool
) -> None:
    state = Progress({}, "", (_done("check"),), limit=600, unfinished=unfinished)
    race = _done("confirm", spent)
    if held:
        state.pending = Pending(race, (), ("r1",), "", 0.1, held=True)
    else:
        state.finish(race)
    before = replace(state)
    steps = planned(state)
    assert sum(step.calls for step in steps) <= 600 - spent and state == before
    if not held:
        assert steps[0].step == state.following(state.left)
    assert "check" not in [step.step for step in steps]


@pytest.mark.parametrize(("calls", "candidates"), [(10, 3), (84, 3), (125, 3), (413, 10)])
def test_a_race_has_two_prunings_at_least(calls: int, candidates: int) -> None:
    assert most_candidates(calls) == candidates
