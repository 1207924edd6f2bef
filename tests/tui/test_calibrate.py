"""The tab Calibrate: rounds stepped and run with their cost shown first, answers accepted, notes, a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.copies import indexed, lines
from factories.reviewing import HOSTILE as TEXTS
from factories.reviewing import is_safe, notified, session, settled, text_of, until
from factories.servers import Server, answer_to
from icl_curate.engine.base.contract import to_json
from icl_curate.engine.base.errors import LockedError
from icl_curate.engine.http import trust
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.cost import PROBE_CALLS
from icl_curate.engine.papers.calibrate.results import CalibrationVersus, RoundsVerdict
from icl_curate.engine.papers.calibrate.stored import KIND, reviews
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.demonstrations import active_rows, fetch
from icl_curate.engine.store.runs import recorded
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm, Pick
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.tabs.calibrate.model import ReviewRequest
from icl_curate.tui.tabs.calibrate.tab import CalibrateTab
from textual.pilot import Pilot
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")

HOSTILE = " ".join(text for text in TEXTS if len(text) < 100 and "\n" not in text)
LLM = "openai:stub"
QUERIES = 5


def index(folder: Path, server: Server | None = None, queries: int = QUERIES) -> Workspace:
    pool = lines({"input": f"shot {i}", "output": f"o{i}"} for i in range(6))
    rows = [
        {
            "id": f"q{i}",
            "input": f"question {i} {HOSTILE}",
            "output": f"o{i}",
            "context": f"First {i} {HOSTILE}\n\nSecond {i} says o{i}.\n\nThird {i}"
            + (" x" * 400_000 if i == 2 else ""),
        }
        for i in range(queries)
    ]
    workspace = indexed(folder / "w", pool=pool, **({"validation": lines(rows)} if rows else {}))
    config = ["price_in = 1000.0", "price_out = 1000.0", 'method = "bm25"']
    if server:
        config += [f'llm = "{LLM}"', f'base_url = "{server.url}"']
        trust.confirm(workspace.path, server.url)
    (workspace.path / "config.toml").write_text("\n".join(config))
    (workspace.path / "review.json").write_text(json.dumps({"tab": "calibrate"}))
    return workspace


def numbers(tab: CalibrateTab) -> list[int]:
    return [round_.round for round_ in tab.model.stepped.rounds] if tab.model.stepped else []


def test_steps_and_runs_say_their_cost_and_are_paid_once(tmp_path: Path, server: Server) -> None:
    workspace = index(tmp_path, server)

    async def agreed(app: ReviewApp, pilot: Pilot[None], to_ask: int) -> None:
        await until(pilot, lambda: isinstance(app.screen, Confirm) and f"to ask: {to_ask}" in text_of(app))
        await pilot.press("y")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(CalibrateTab)
        await until(pilot, lambda: tab.model.stepped)
        assert not server.calls
        assert "no answers yet" in text_of(app)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        assert not server.calls
        await pilot.press("s")
        await agreed(app, pilot, 1 + 3 + PROBE_CALLS)
        await until(pilot, lambda: numbers(tab) == [0])
        assert len(server.asked("question 0")) == 4
        await pilot.press("s")
        await agreed(app, pilot, 1)
        await until(pilot, lambda: numbers(tab) == [0, 1])
        await pilot.press("r")
        await agreed(app, pilot, 4)
        await until(pilot, lambda: numbers(tab) == [0, 1, 2, 3, 4, 5])
        asked = server.asked("question 0")
        assert len(asked) == 9
        assert tab.model.stepped is not None
        assert {round_.answer for round_ in tab.model.stepped.rounds} <= {answer_to(call.text) for call in asked}
        least = min(tab.model.stepped.rounds, key=lambda round_: round_.uncertainty)
        assert tab.model.stepped.final_round == least.round
        await until(pilot, lambda: least.answer[:8] in text_of(app))
        assert is_safe(text_of(app))
        await pilot.press("s")
        await until(pilot, lambda: "all 5 rounds are done" in notified(app))
        await pilot.press("r")  # everything is known: nothing to pay, nothing to confirm
        await pilot.pause(0.5)
        assert not isinstance(app.screen, Confirm)
        assert len(server.asked("question 0")) == 9
        await pilot.press("v")  # the arm that leaves out the scores of documents: of its prompts the first is the same
        await until(pilot, lambda: "answers  scores of earlier answers only" in text_of(app) and numbers(tab) == [0])
        await pilot.press("V")
        await until(pilot, lambda: numbers(tab) == [0, 1, 2, 3, 4, 5])
        assert len(server.asked("question 0")) == 9
        await pilot.press("p", "y")
        copied = json.loads(app.clipboard)
        at = min(tab.rounds.cursor, 5)
        assert [one["content"] for one in copied] == [m.content for m in tab.model.stepped.prompts[at]]
        assert is_safe(text_of(app))
        await pilot.press("q")

    session(workspace.path, script)


def test_answers_are_accepted_noted_and_the_queue_follows(tmp_path: Path, server: Server) -> None:
    workspace = index(tmp_path, server)
    decide(workspace, "prune", "demonstration", [fetch(workspace, active_rows(workspace)[:1])[0].id])

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(CalibrateTab)
        await until(pilot, lambda: tab.model.stepped)
        row = tab.current
        assert row is not None
        await pilot.press("a")
        await until(pilot, lambda: "no answer to accept" in notified(app))
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: numbers(tab) == [0])
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is tab.rounds)
        await pilot.press("a")
        await until(pilot, lambda: row in reviews(workspace, LLM))
        assert tab.model.stepped is not None
        assert reviews(workspace, LLM)[row].answer == tab.model.stepped.rounds[0].answer
        await until(pilot, lambda: f"1 of {QUERIES} accepted" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        app.screen.query_one(Input).value = "look [/b] again"
        await pilot.press("enter")
        await until(pilot, lambda: reviews(workspace, LLM)[row].note)
        assert reviews(workspace, LLM)[row].round == 0  # a note leaves what was accepted
        await until(pilot, lambda: "look [/b] again" in text_of(app))
        await pilot.press("u")  # in this tab the latest word, then the one before, is taken back; no pruning
        await until(pilot, lambda: not reviews(workspace, LLM)[row].note)
        assert reviews(workspace, LLM)[row].round == 0
        await until(pilot, lambda: "look [/b] again" not in text_of(app))
        await pilot.press("u")
        await until(pilot, lambda: row not in reviews(workspace, LLM))
        await pilot.press("a")
        await until(pilot, lambda: f"1 of {QUERIES} accepted" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        app.screen.query_one(Input).value = "look [/b] again"
        await pilot.press("enter")
        await until(pilot, lambda: "look [/b] again" in text_of(app))
        await pilot.press("a", "u", "a", "a", "u")  # faster than the disk: each acts on what the one before did
        await until(
            pilot, lambda: tab.model.written == tab.model.reviews_made and reviews(workspace, LLM)[row].round is None
        )
        assert reviews(workspace, LLM)[row].note == "look [/b] again"
        await pilot.press("u")
        await until(pilot, lambda: reviews(workspace, LLM)[row].round == 0)
        assert [entry.action for entry in history(workspace)] == ["prune"]
        await pilot.press("escape", "n")
        await until(pilot, lambda: tab.current != row)
        await pilot.press("f")
        await until(pilot, lambda: len(tab.model.rows) == QUERIES - 1 and row not in tab.model.rows.tolist())
        await pilot.press("f")
        await until(pilot, lambda: tab.model.rows.tolist() == [row])
        await until(pilot, lambda: tab.model.query and tab.model.query.row == row)
        await pilot.press("a")
        await until(pilot, lambda: reviews(workspace, LLM)[row].round is None)
        await until(pilot, lambda: not len(tab.model.rows) and "no such query" in text_of(app))
        await pilot.press("f")
        await until(pilot, lambda: tab.model.rows.tolist() == [row])
        await pilot.press("q")

    session(workspace.path, script)

    async def again(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(CalibrateTab)
        await until(pilot, lambda: tab.model.rows.size)
        assert tab.model.filter == "noted"
        await until(pilot, lambda: numbers(tab) == [0])  # what was answered is shown again without asking

    calls = len(server.calls)
    session(workspace.path, again)
    assert len(server.calls) == calls


def test_a_note_that_is_not_saved_is_said_to_be_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = index(tmp_path)
    write, locked = ReviewRequest.write, [True]

    def refused(request: ReviewRequest, *given: Any) -> None:
        if locked[0]:
            raise LockedError("workspace is open in PID 1")
        write(request, *given)

    monkeypatch.setattr(ReviewRequest, "write", refused)

    async def noted(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("e", *"odd", "enter")
        await settled(pilot)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab: Any = app.tab
        await noted(app, pilot)
        assert "not saved: workspace is open in PID 1" in notified(app)
        assert "trying again" not in text_of(app) and not tab.model.found.reviews
        await pilot.press("u")
        await settled(pilot)
        assert "no decision left to undo" in notified(app)
        locked[0] = False
        await noted(app, pilot)
        assert len(tab.model.found.reviews) == 1
        for locked[0] in (True, False):  # what was not undone can be undone again
            await pilot.press("u")
            await settled(pilot)
            assert len(reviews(workspace, "offline")) == len(tab.model.found.reviews) == locked[0]

    session(workspace.path, script)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_small_terminals_show_queue_and_case(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = index(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(CalibrateTab)
        await until(pilot, lambda: tab.model.stepped)
        await until(pilot, lambda: "question 0" in text_of(app))
        await pilot.press("j", "j")  # the one with long documents
        await until(pilot, lambda: tab.model.query and tab.model.query.id == "q2" and tab.model.stepped)
        await pilot.press("enter")
        await until(pilot, lambda: "round" in text_of(app))
        assert is_safe(text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is tab.queue)

    session(workspace.path, script, size)


def test_the_whole_set_is_proposed_as_a_job_and_an_empty_set_says_so(tmp_path: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.query_one(CalibrateTab).model.stepped)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, Start))
        assert app.screen.query_one(Input).value == "calibrate --split validation"
        await pilot.press("escape")

    async def empty(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(CalibrateTab)
        await until(pilot, lambda: tab.nothing)
        assert tab.to_copy().startswith("icl-curate index")

    session(index(tmp_path).path, script)
    (tmp_path / "none").mkdir()
    session(index(tmp_path / "none", queries=0).path, empty)


def test_whether_the_rounds_help_stands_above_the_queue(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    found = RoundsVerdict.of("full", 40, CalibrationVersus("sampling", -0.1, -0.2, 0.02, 0.2, "mcnemar"))
    for split, verdict in (("validation", {"verdict": to_json(found)}), ("", {})):  # then a single query
        with recorded(workspace, KIND, "offline", {"split": split}) as record:
            record.summary = verdict

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.query_one(CalibrateTab).model.found)
        assert "the rounds do not help offline: -0.100 (95 %: -0.200 to +0.020)" in text_of(app)

    async def nothing(app: ReviewApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.query_one(CalibrateTab).model.found)
        assert "the rounds" not in text_of(app)

    session(workspace.path, script)
    (tmp_path / "other").mkdir()
    session(index(tmp_path / "other").path, nothing)


def test_without_vectors_the_query_says_what_to_run(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    (workspace.path / "config.toml").write_text('method = "dense"')
    validation = tmp_path / "validation.jsonl"
    validation.write_text(json.dumps({"id": "q0", "input": "a question", "output": "o0"}))
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), validation=(str(validation),), encoder=None))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "have no vectors" in text_of(app))
        text = text_of(app)
        assert "a question" in text, "the query itself is shown"
        assert "$ icl-curate index --encoder" in text and "s runs the first round" not in text
        assert not notified(app)
        await pilot.press("y")
        assert app.clipboard.startswith("icl-curate index --encoder")

    session(workspace.path, script)
