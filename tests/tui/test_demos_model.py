"""What the tab Demos knows, without an app: what is asked for, what was found, what is marked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from factories.reviewing import HELPFUL, HURTFUL, SOURCES, numbers
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.checks import browse
from icl_curate.engine.checks.browse import DemosQuery, FoundRows
from icl_curate.engine.store.browse import Filter
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.demos.model import AHEAD, BEHIND, CHOICES, DemosModel, Nearby, around, asked_line
from icl_curate.tui.widgets.demonstration import read_details, read_several


def read(workspace: Workspace) -> DemosModel:
    model = DemosModel()
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    assert model.take(found, 0) is None  # the first question is another than none
    return model


def searched(model: DemosModel, workspace: Workspace, cursor: int = 0) -> int | None:
    search = model.search(0)
    assert search is not None
    return model.take(search.find(workspace), cursor)


def test_what_is_asked_for_outlasts_the_session_and_nonsense_does_not() -> None:
    model = DemosModel()
    model.filter_by(source="clean", pruned=False, duplicates=True, label="x", split="test")
    model.next_only()
    again = DemosModel()
    again.recall(json.loads(json.dumps(model.remember())))
    assert again.asked == model.asked
    odd = DemosModel()
    odd.recall({"split": "no", "sort": "no", "only": "no", "pruned": "no", "source": 3, "duplicates": "yes"})
    assert odd.asked == DemosQuery()


def test_what_misleads_comes_worst_first_and_what_helps_best_first() -> None:
    model = DemosModel()
    seen = []
    for _ in range(3):
        model.next_only()
        seen.append((model.asked.only, model.asked.sort, model.asked.descending))
    assert seen == [("misleading", "effect", False), ("helpful", "effect", True), ("", "row", False)]
    model.next_only()
    assert model.reason == "in review, misleading"


@pytest.mark.parametrize(("fixture", "first"), [("taught", "effect"), ("untaught", "source")])
def test_sorting_passes_by_the_effect_where_training_left_none(
    fixture: str, first: str, request: pytest.FixtureRequest
) -> None:
    model = read(Workspace.open(request.getfixturevalue(fixture)))
    model.next_sort()
    assert model.asked.sort == first


def test_a_column_again_turns_the_order_round() -> None:
    model = DemosModel()
    model.sort_by("id")
    assert (model.asked.sort, model.asked.descending) == ("id", False)
    model.sort_by("id")
    assert (model.asked.sort, model.asked.descending) == ("id", True)
    model.sort_by("input")
    model.reverse()
    assert (model.asked.sort, model.asked.descending) == ("input", True)


def test_choices_tell_how_each_filter_stands() -> None:
    model = DemosModel()
    assert dict(model.choices())["State"] == "any"
    model.next_state()
    model.switch_repeats()
    model.filter_by(source="a\nb")
    told = dict(model.choices())
    assert tuple(told) == CHOICES
    assert (told["State"], told["Repeats"], told["Output"]) == ("active", "only", "all")
    assert "\n" not in told["Source"]
    model.of(source="noisy")
    assert model.asked.filter == Filter(source="noisy")


def test_a_row_is_shown_in_its_place(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = read(workspace)
    model.of(source="noisy")
    other = model.read(workspace, Settings(), 0)
    model.at_row(row := int(read(workspace).rows[40]))
    assert isinstance(other, FoundRows) and model.take(other, 0) is None, "the result of an earlier search"
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows) and found.asked == DemosQuery()
    assert model.take(found, 0) == 40 and model.row(40) == row
    assert model.take(found, 3) == 3, "once"


def test_the_cursor_stays_on_its_row_while_the_question_is_the_same(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = read(workspace)
    here = model.row(10)
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    assert model.take(found, 10) == 10
    model.filter_by(pruned=False)
    assert searched(model, workspace) is None
    decide(workspace, "prune", "demonstration", ["clean-0"])
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    assert model.take(found, 10) == 9
    assert model.row(9) == here
    decide(workspace, "prune", "demonstration", ["clean-10"])  # the very row
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    assert model.take(found, 9) == 9
    assert model.row(len(model.rows)) is None


def test_a_search_stops_the_one_under_way_and_may_come_in_parts(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "PART", 20)
    workspace, model = Workspace.open(taught), DemosModel()
    assert model.type_search("kin")
    assert model.search(0) is None  # nothing was read yet
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    model.take(found, 0)
    assert not model.type_search("kin")
    model.type_search("question")
    old = model.search(0)
    model.type_search("noisy kind")
    search = model.search(0)
    assert old is not None and search is not None
    with pytest.raises(Cancelled):
        old.find(workspace)
    assert search.part
    first = search.find(workspace)
    model.take(first, 0)
    assert not len(first.rows)
    assert asked_line(model).plain.endswith("0+ rows")
    rest = model.rest_of(search, first, 0)
    assert rest is not None
    whole = rest.find(workspace)
    model.take(whole, 0)
    assert model.rest_of(rest, whole, 0) is None
    assert asked_line(model).plain.endswith(f"{SOURCES['noisy']} rows")


def test_marks_outlast_the_question_and_those_that_are_shown_decide_before_the_cursor(taught: Path) -> None:
    workspace = Workspace.open(taught)
    row_of = numbers(workspace)
    model = read(workspace)
    assert model.targets(3).tolist() == model.rows[3:4].tolist()
    model.marks.switch(np.array([row_of[HURTFUL], row_of[HELPFUL]]))
    model.filter_by(source="noisy")
    searched(model, workspace)
    assert model.targets(3).tolist() == [row_of[HURTFUL]], "the other one is not seen"
    assert "2 marked, 1 of them not shown" in asked_line(model).plain
    model.filter_by(source=None)
    searched(model, workspace)
    assert model.targets(3).tolist() == sorted([row_of[HURTFUL], row_of[HELPFUL]])
    model.filter_by(source="noisy")
    searched(model, workspace)
    model.marks.switch(model.rows)
    assert all(model.is_marked(at) for at in range(len(model.rows)))
    assert not model.is_marked(len(model.rows))
    model.marks.switch(model.rows)
    assert not any(model.is_marked(at) for at in range(len(model.rows)))
    model.clear()
    assert (model.marks.count, model.asked) == (0, DemosQuery())
    model.filter_by(search="no such text")
    searched(model, workspace)
    assert model.targets(0).tolist() == []


def test_an_empty_pool_says_what_to_run_and_an_empty_answer_does_not(tmp_path: Path) -> None:
    workspace, model = Workspace.create(tmp_path), DemosModel()
    assert isinstance(model.read(workspace, Settings(), 0), Empty)
    model.filter_by(search="x")
    assert isinstance(model.read(workspace, Settings(), 0), FoundRows)


def test_rows_near_the_cursor_are_read_at_once_as_each_would_be_alone(taught: Path) -> None:
    workspace = Workspace.open(taught)
    decide(workspace, "prune", "demonstration", [HURTFUL])
    model = read(workspace)
    known = model.known
    assert known is not None
    lines = around(model.rows, 5)
    assert len(lines) == BEHIND + AHEAD and lines[BEHIND] == model.row(5)
    assert around(model.rows, 0) == [int(row) for row in model.rows[:AHEAD]]
    every = [int(row) for row in model.rows]
    near = read_several(workspace, every, known.ledger, known.grading)
    assert near == {row: read_details(workspace, row, known.ledger.get(row)) for row in every}
    assert [one.demonstration.id for one in near.values() if one.decision] == [HURTFUL]
    assert any(one.flips for one in near.values())


def test_rows_read_before_the_workspace_changed_are_not_shown_again(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = read(workspace)
    before = model.known
    assert before is not None
    near, row = Nearby(), int(model.rows[0])
    near.take(read_several(workspace, around(model.rows, 0), before.ledger, before.grading), before)
    searched(model, workspace)
    assert model.known is not None
    assert near.get(row, model.known)  # another search, the same rows
    found = model.read(workspace, Settings(), 0)
    assert isinstance(found, FoundRows)
    assert near.get(row, found.known) is None
