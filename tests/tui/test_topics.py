"""The tab Topics over topics learnt in a world whose truth is known, with hostile names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.reviewing import HOSTILE as TEXTS
from factories.reviewing import is_safe, lines_of, notified, session, text_of, until
from factories.topics_world import LOST, SUBJECTS, learnt_world, make_world
from icl_curate.engine.papers.topics.report import Survey
from icl_curate.engine.retrieval.checked import seal_model
from icl_curate.engine.store.demonstrations import fetch
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.tabs.demos.tab import DemosTab
from icl_curate.tui.tabs.preview.tab import PreviewTab
from icl_curate.tui.tabs.topics.tab import TopicsTab
from textual.pilot import Pilot
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")

HOSTILE = " ".join(text for text in TEXTS if len(text) < 100 and "\n" not in text)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    found = learnt_world(tmp_path / "w", monkeypatch, LOST)
    (head,) = (found.path / "topics").glob("*/topics.json")
    run = int(head.parent.name)
    told = json.loads(head.read_text())
    at = told["topics"].index(SUBJECTS["kitchen"][0])
    told["topics"][at] += " " + HOSTILE
    head.write_text(json.dumps(told))
    seal_model(found, run, head.parent, [file.name for file in head.parent.iterdir()])
    (found.path / "config.toml").write_text('encoder = "words"\ndevice = "cpu"\nk = 3\n')
    (found.path / "review.json").write_text(json.dumps({"tab": "topics"}))
    return found


def settings() -> Settings:
    return Settings(encoder="words", device="cpu", k=3)


def test_gaps_stand_on_top_and_show_what_is_behind_them(workspace: Workspace) -> None:
    survey = Survey(workspace, settings())
    gaps = [gap.topic for gap in survey.gaps()]
    assert gaps

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(TopicsTab)
        await until(pilot, lambda: tab.model.shown)
        assert [topic.topic for topic in tab.model.topics][: len(gaps)] == gaps
        assert len(tab.model.topics) == len(survey.model.names)
        assert "a gap" in text_of(app)
        await pilot.press("f")
        assert [topic.topic for topic in tab.model.topics] == gaps
        await pilot.press("y")
        assert app.clipboard.startswith(gaps[0])
        await pilot.press("f", "s")  # by name
        names = [topic.topic.lower() for topic in tab.model.topics]
        assert names == sorted(names)
        await pilot.press("s", "s")
        knows = [topic.knowledge for topic in tab.model.topics]
        assert knows == sorted(knows)
        await pilot.press("S")
        assert [topic.knowledge for topic in tab.model.topics] == knows[::-1] or tab.model.descending
        await pilot.press("slash", *"[/foo")
        assert [topic.topic for topic in tab.model.topics] == [n for n in survey.model.names if "[/foo" in n]
        await pilot.press("enter")
        assert app.focused is tab.table
        await until(pilot, lambda: tab.model.shown and "[/foo" in tab.model.shown.topic)
        await pilot.pause()
        assert is_safe(text_of(app))
        assert "[/foo]" in text_of(app)
        assert tab.model.shown is not None
        members = survey.members(tab.model.topics[0].topic)
        assert [row.row for row in tab.model.shown.demonstrations] == [row for row, _ in members.demonstrations]
        assert [row.row for row in tab.model.shown.queries] == [row for row, _ in members.queries]
        await pilot.press("slash", *"nothing")
        await until(pilot, lambda: "no such topic" in text_of(app))
        tab.query_one(Input).value = ""
        await pilot.press("escape", "q")

    session(workspace.path, script)

    async def again(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(TopicsTab)
        await until(pilot, lambda: tab.model.topics)
        assert (tab.model.sort, tab.model.descending) == ("knows", True)

    session(workspace.path, again)


def test_from_a_topic_to_its_queries_and_demonstrations_and_back(workspace: Workspace) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(TopicsTab)
        await until(pilot, lambda: tab.model.shown and tab.model.shown.queries)
        assert tab.model.shown is not None
        query = tab.model.shown.queries[1]
        await pilot.press("o", "j", "enter")
        preview = app.query_one(PreviewTab)
        assert app.tab is preview
        await until(pilot, lambda: preview.model.query and preview.model.query.row == query.row)
        await pilot.press("8", "escape", "slash", *"[/foo", "enter")
        await until(
            pilot, lambda: tab.model.shown and "[/foo" in tab.model.shown.topic and tab.model.shown.demonstrations
        )
        first = tab.model.shown.demonstrations[0]
        await pilot.press("d", "enter")
        demos = app.query_one(DemosTab)
        await until(pilot, lambda: app.tab is demos and demos.current == first.row)
        await pilot.press("8", "escape", "d", "x")
        await until(pilot, lambda: "prune" in notified(app))
        covering = lambda: [row.row for row in tab.model.shown.demonstrations] if tab.model.shown else []  # noqa: E731
        await until(pilot, lambda: covering() and first.row not in covering())
        assert fetch(workspace, [first.row])[0].id == first.id  # taken out, not deleted
        await pilot.press("u")
        await until(pilot, lambda: first.row in covering())

    session(workspace.path, script)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_small_terminals_show_gaps_and_what_is_behind(workspace: Workspace, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(TopicsTab)
        await until(pilot, lambda: tab.model.shown and tab.model.shown.queries)
        assert tab.model.shown is not None
        assert tab.model.topics[0].topic in text_of(app)
        await pilot.press("enter")
        await until(pilot, lambda: "queries need it" in text_of(app))
        await pilot.press("d")
        await until(pilot, lambda: "cover it most" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is tab.table)

    session(workspace.path, script, size)


def test_without_topics_n_proposes_to_learn_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = make_world(tmp_path / "w", monkeypatch)
    (found.path / "review.json").write_text(json.dumps({"tab": "topics"}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(TopicsTab)
        await until(pilot, lambda: tab.nothing)
        assert tab.to_copy() == "icl-curate train topics"
        await until(pilot, lambda: lines_of(app)[-1].startswith(" n Learn  u"))  # what there is to do, and only that
        await pilot.press("n")
        assert isinstance(app.screen, Start)
        assert app.screen.query_one(Input).value == "train topics"
        await pilot.press("escape")

    session(found.path, script)
