"""What the tab Calibrate knows, without an app: the queue, the rounds of a query, what is said of answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.papers.calibrate.results import ScoredRound, SteppedQuery
from icl_curate.engine.papers.calibrate.rounds import ARMS
from icl_curate.engine.papers.calibrate.stored import Final, Review, reviews
from icl_curate.engine.pool.records import Query
from icl_curate.engine.select.session import SessionCache
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.calibrate.model import (
    PLAN,
    CalibrateData,
    CalibrateModel,
    ReviewRequest,
    answer_status,
    progress,
    read,
    text_shown,
)

ROWS = [10, 11, 12, 13]
SETTINGS = Settings(method="bm25", llm="offline")


def review(row: int, number: int | None = 0, note: str = "") -> Review:
    return Review(row, number, "yes", note, "me", datetime(2026, 5, 1))


def queue(*stored: Review, finals: dict[int, float] | None = None) -> CalibrateModel:
    model = CalibrateModel()
    stood = {row: Final(0, "yes", unsure, None) for row, unsure in (finals or {}).items()}
    model.found = CalibrateData(np.array(ROWS), stood, {one.query: one for one in stored}, SETTINGS)
    model.arrange(0)
    return model


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("calibrate")
    pool, validation = folder / "pool.jsonl", folder / "validation.jsonl"
    pool.write_text("".join(json.dumps({"input": f"shot {i}", "output": f"o{i}"}) + "\n" for i in range(6)))
    asked = [
        {"id": f"q{i}", "input": f"question {i}", "output": f"o{i}", "context": f"First {i}\n\nSecond {i} says o{i}."}
        for i in range(2)
    ]
    validation.write_text("".join(json.dumps(row) + "\n" for row in asked))
    found = Workspace.create(folder / "w")
    index_pool(found, IndexPlan(paths=(str(pool),), validation=(str(validation),), encoder=None))
    return found


def test_the_queue_is_filtered_and_ordered_and_the_cursor_stays_on_its_query() -> None:
    model = queue(review(11), review(12, None, "look again"), finals={10: 0.1, 12: 0.9, 13: 0.5})
    assert model.rows.tolist() == ROWS
    shown = []
    for _ in range(4):
        model.next_filter()
        model.arrange(0)
        shown.append((model.filter, model.rows.tolist()))
    assert shown == [("open", [10, 12, 13]), ("accepted", [11]), ("noted", [12]), ("all", ROWS)]
    model.next_filter()
    assert model.arrange(3) == 2  # row 13
    model.next_filter()
    assert model.arrange(2) == 0  # it is not there any more, and the list is shorter


def test_the_least_sure_come_first_and_what_was_not_asked_last() -> None:
    model = queue(finals={10: 0.1, 12: 0.9, 13: 0.5})
    model.unsure_first = True
    model.arrange(0)
    assert model.rows.tolist() == [12, 13, 10, 11]


def test_the_next_open_query_is_found_round_the_end() -> None:
    model = queue(review(11), review(13))
    assert model.next_open(0, 1) == 2
    assert model.next_open(2, 1) == 0
    assert model.next_open(0, -1) == 2
    assert queue(*(review(row) for row in ROWS)).next_open(0, 1) is None


def test_a_session_goes_on_at_its_query_with_its_filter() -> None:
    model = queue(review(11))
    model.next_filter()
    model.unsure_first = True
    model.next_arm(2)
    again = CalibrateModel()
    again.recall(json.loads(json.dumps(model.remember() | {"row": 13})))
    again.found = model.found
    assert again.row(again.arrange(0)) == 13
    assert (again.filter, again.unsure_first, again.arm) == ("open", True, "plain")
    odd = CalibrateModel()
    odd.recall({"filter": "?", "unsure_first": 1, "row": "13", "arm": ["full"]})
    assert (odd.filter, odd.unsure_first, odd.arm) == ("all", False, "full")


def test_rounds_are_asked_one_by_one_or_all_and_looked_up_afterwards(workspace: Workspace) -> None:
    session, model, state = SessionCache(), CalibrateModel(), read(workspace, SETTINGS, PLAN.arms[0])
    assert isinstance(state, CalibrateData)
    model.found = state
    model.arrange(0)
    row = model.row(0)
    assert row is not None
    cached_rounds, step = model.cached_rounds(row), model.ask(row, all_rounds=False)
    assert cached_rounds is not None and step is not None
    assert model.take(*cached_rounds.read(workspace, session)) == 0
    assert model.stepped is not None and not model.stepped.rounds
    assert model.accept(row, 0) is None
    assert step.cost(workspace, session).to_ask > 1  # the first round, and each document alone
    stepped = step.ask(workspace, session, CancelToken())
    assert not model.answered(replace(step, row=row + 1), stepped)
    assert not model.answered(replace(step, arm="plain"), stepped)
    assert model.answered(step, stepped)
    assert [one.round for one in model.stepped.rounds] == [0]
    assert not model.all_done(row)
    every = model.ask(row, all_rounds=True)
    assert every is not None
    model.answered(every, every.ask(workspace, session, CancelToken()))
    assert len(model.stepped.rounds) == PLAN.rounds + 1
    assert model.all_done(row)
    assert not model.all_done(model.row(1))
    assert model.take(*cached_rounds.read(workspace, session)) is None  # the cursor stays: it is the same query
    other = model.cached_rounds(model.row(1))
    assert other is not None
    model.take(*other.read(workspace, session))
    assert model.stepped is not None and not model.stepped.rounds
    assert model.take(*cached_rounds.read(workspace, session)) == model.stepped.final_round
    assert model.copied(0) == model.stepped.final
    assert "document" in text_shown(model, 9, 9).plain
    model.shows_prompt = True
    assert "exact prompt of round 5  by the paper's layout, with auto  y copies it" in text_shown(model, 0, 9).plain
    assert json.loads(model.copied(9))[-1]["role"] == "user"
    assert model.cached_rounds(None) is None
    assert (model.query, model.copied(0), text_shown(model, 0, 0).plain) == (None, "", "")


def test_every_arm_can_be_asked_and_says_what_makes_its_answer_the_final_one(workspace: Workspace) -> None:
    session, model, why = SessionCache(), CalibrateModel(), {}
    for arm in ARMS:
        state = read(workspace, SETTINGS, model.arm)
        assert isinstance(state, CalibrateData) and model.arm == arm
        model.found = state
        model.arrange(0)
        row = model.row(1)
        looked, every = model.cached_rounds(row), model.ask(row, all_rounds=True)
        assert looked is not None and every is not None
        model.take(*looked.read(workspace, session))
        assert model.all_done(row) == (arm == "vote"), f"{arm}: the vote is on the samples of the arm before it"
        assert model.answered(every, every.ask(workspace, session, CancelToken()))
        assert model.all_done(row), arm
        head, final = answer_status(model).plain.splitlines()
        assert head == f"arm  {arm}  {ARMS[arm].about}"
        why[arm] = final.partition(model.copied(0))[2]
        model.next_arm(1)
    assert model.arm == "full" and model.stepped is None
    assert why.pop("self-rag") == "  from the document judged best"
    assert why.pop("plain") == "  round 2, the usual end without scores"
    assert why.pop("vote").endswith(", of the majority of 6")
    assert len(why) == 5 and all(text.endswith(", the surest of 6") for text in why.values())


def test_an_answer_is_accepted_and_by_the_same_key_no_longer(workspace: Workspace) -> None:
    model = queue()
    rounds = (ScoredRound(0, "a", 0.1, 90.0, None, None), ScoredRound(1, "b", 0.2, 80.0, None, None))
    model.take(Query("?", row=10), SteppedQuery("q", "?", (), "", (), rounds, "a", 0, "", (), "auto"))
    assert model.accept(11, 0) is None  # another query is shown
    request = model.accept(10, 7)
    assert request == ReviewRequest(10, 1, "b", "", "accepted: b")
    request.write(workspace, "llm")
    assert reviews(workspace, "llm")[10].answer == "b"
    assert progress(model.found).plain.startswith("1 of 4 accepted")  # type: ignore[arg-type]
    note = model.note(10, "look again")
    assert (note.round, note.answer, note.note) == (1, "b", "look again")
    request = model.accept(10, 1)
    assert request == ReviewRequest(10, None, "", "look again", "acceptance removed")
    note.write(workspace, "llm")
    request.write(workspace, "llm")
    assert (reviews(workspace, "llm")[10].round, reviews(workspace, "llm")[10].note) == (None, "look again")


def test_words_of_this_session_are_taken_back_one_by_one() -> None:
    model = queue(review(10, 2, "before"))
    model.note(10, "after")
    model.note(12, "new")
    request = model.undo()
    assert request is not None
    assert (request.row, request.round, request.note) == (12, None, "")
    assert model.review_of(12) is None
    request = model.undo()
    assert request is not None
    assert (request.row, request.round, request.note) == (10, 2, "before")
    assert model.undo() is None


def test_words_and_decisions_on_the_pool_are_taken_back_in_one_order() -> None:
    model = queue()
    model.steps.decided(undone=False)
    model.note(10, "first")
    model.steps.decided(undone=False)
    assert model.undo() is None, "the decision is later"
    model.steps.decided(undone=True)
    assert model.undo() is not None and model.undo() is None
    model.note(10, "last")
    for _ in range(2):  # in another tab
        model.steps.decided(undone=True)
    assert model.undo() is not None


def test_a_set_without_queries_says_what_to_run(tmp_path: Path) -> None:
    state = read(Workspace.create(tmp_path), SETTINGS, PLAN.arms[0])
    assert isinstance(state, Empty)
    assert state.command.startswith("icl-curate index")
