"""Calibration step by step, what is known without asking, and what people said of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.calibrate_world import SCRIPT, SETTINGS, Scripted, workspace_of
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.results import QueryCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.stored import finals, reviews, save_review
from icl_curate.engine.store import runs
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w")


def calibration(workspace: Workspace, backend: Scripted, **more: Any) -> Calibration:
    asked = queries_of(workspace, "validation")[:1]
    return Calibration.prepare(LLMClient(workspace, backend, SETTINGS, **more), asked, CalibrationPlan(rounds=3))


def test_steps_ask_one_round_each_and_arrive_where_a_run_does(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    nothing = calibration(workspace, backend, dry_run=True).cached_rounds()
    assert nothing.rounds == ()
    assert nothing.final is None
    assert [document.score for document in nothing.documents] == [None] * 3
    assert not backend.asked
    counts = []
    for number in range(4):
        plan = calibration(workspace, backend, dry_run=True).cost_of_step()
        before = len(backend.asked)
        seen = calibration(workspace, backend).step(Budget())
        assert len(backend.asked) - before == plan.to_ask
        counts.append(plan.to_ask)
        assert [round_.round for round_ in seen.rounds] == list(range(number + 1))
        assert calibration(workspace, backend, dry_run=True).cached_rounds() == seen
    assert counts == [1 + 3, 1, 1, 1]
    assert calibration(workspace, backend).cost_of_step().requests == 0
    sent = {tuple(request.prompt.messages) for request in backend.asked}
    assert {tuple(messages) for messages in seen.prompts} <= sent
    assert not runs.runs(workspace, "calibrate")  # steps leave no run behind
    asked = len(backend.asked)
    assert calibration(workspace, backend).step(Budget()) == seen
    done = calibration(workspace, backend).ask(Budget())
    assert len(backend.asked) == asked
    assert isinstance(done, QueryCalibration)
    for name in ("rounds", "documents", "final", "final_round"):
        assert getattr(done.query, name) == getattr(seen, name)
    [query] = calibration(workspace, backend).cases
    assert query.query.row is not None
    final = finals(workspace, "scripted", "full")[query.query.row]
    assert (final.answer, final.round, final.correct) == (done.query.final, done.query.final_round, True)
    assert not finals(workspace, "another", "full") and not finals(workspace, "scripted", "plain")


def test_the_last_word_on_a_query_and_llm_stands(workspace: Workspace) -> None:
    assert not reviews(workspace, "a")
    save_review(workspace, "a", 1, 2, "Oslo", "")
    save_review(workspace, "b", 1, 0, "Rome", "other")
    save_review(workspace, "a", 1, 2, "Oslo", "sure [/b]\x1b")
    save_review(workspace, "a", 2, None, "", "look again")
    found = reviews(workspace, "a")
    assert {row: (one.round, one.answer, one.note) for row, one in found.items()} == {
        1: (2, "Oslo", "sure [/b]\x1b"),
        2: (None, "", "look again"),
    }
    save_review(workspace, "a", 1, None, "", "")
    assert set(reviews(workspace, "a")) == {2}
    assert set(reviews(workspace, "b")) == {1}
    with workspace.read() as con:
        assert con.execute("SELECT count(*) FROM calibration_reviews").fetchone() == (5,)


def test_a_query_says_what_wrote_its_prompts(workspace: Workspace) -> None:
    own = "{% for shot in shots %}{{ shot.mark }}{{ shot.input }}{% endfor %}{{ query.input }}{{ query.earlier }}"
    for template, text, over, written_by in (
        ("own.jinja", own, "demonstrations", "own.jinja"),
        ("own.jinja", "{{ query.input }}", "demonstrations", "the paper's layout, with own.jinja"),
        ("own.jinja", own, "documents", "the paper's layout, with own.jinja"),
        ("auto", "", "demonstrations", "auto"),
    ):
        settings = replace(SETTINGS, template=template, template_text=text, method="bm25")
        llm = LLMClient(workspace, Scripted(SCRIPT), settings, dry_run=True)
        asked, plan = queries_of(workspace, "validation")[:1], CalibrationPlan(rounds=1, over=over)
        assert Calibration.prepare(llm, asked, plan).cached_rounds().written_by == written_by
