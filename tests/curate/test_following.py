"""What follows the first race, by the calls that are left."""

from __future__ import annotations

import pytest
from icl_curate.engine.curate.plan import Name, StepDone, most_candidates
from icl_curate.engine.curate.resume import steps_left
from icl_curate.engine.curate.state import Progress, planned


def _done(step: Name, calls: int = 0) -> StepDone:
    return StepDone(step, step, calls, None, None, None, None, "", None)


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
    steps = tuple(planned(600, 0.5, True, True, (), lambda step, calls, methods: ""))
    state = Progress({}, "", (_done("check"), _done("confirm", 250)), limit=600, planned=steps, unfinished=3)
    race, *rest = steps_left(state)
    assert (race.step, race.what, race.calls) == ("confirm", f"{steps[1].what}, continued", 250)
    assert [step.step for step in rest] == ["ask", "confirm", "rank", "choose"]
    state.unfinished, state.continued = 0, True
    state.finish(_done("confirm", 60))
    assert state.rounds == 1 and [step.step for step in steps_left(state)] == ["ask", "confirm", "rank", "choose"]


@pytest.mark.parametrize(("calls", "candidates"), [(10, 3), (84, 3), (125, 3), (413, 10)])
def test_a_race_has_two_prunings_at_least(calls: int, candidates: int) -> None:
    assert most_candidates(calls) == candidates


def test_a_strangers_plan_says_no_command() -> None:
    evil = "icl-curate evaluate --base-url http://evil.example/v1"
    steps = tuple(planned(600, 0.5, True, True, (), lambda *_: evil))
    for done in ((_done("check"),), (_done("check"), _done("confirm", 250))):
        left = steps_left(Progress({}, "", done, limit=600, planned=steps, unfinished=3 * (len(done) - 1)))
        assert left and {step.command for step in left} == {""}
