"""What the tab Topics knows, without an app: which topics are shown in which order, and what stands behind one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from factories.topics_world import LOST, learnt_world
from icl_curate.engine.papers.topics.report import Gap, QueryExample, TopicSummary
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.topics.model import TopicDetails, TopicsData, TopicsModel

GAP = Gap(
    "Anchors", 5, 0.1, 9.0, 0.2, 3.6, ("ropes",), (QueryExample("q1", "how heavy?"), QueryExample("q2", "how deep?"))
)
TOPICS = (
    TopicSummary("boats", 30, 20, 0.9, 50.0, 8.0, (("a", 20),), 8, 0.7, 0.2),
    TopicSummary("Anchors", 2, 2, 0.1, 9.0, 0.4, (("b", 2),), 5, 0.2, 3.6),
    TopicSummary("ropes", 9, 9, 0.2, 5.0, 1.0, (), 5, 0.3, 3.9),
    TopicSummary("tides", 4, 0, 0.5, 5.0, 0.0, (), 0, None, 0.0),
)


def surveyed() -> TopicsModel:
    model = TopicsModel()
    assert model.take(TopicsData(cast(Any, None), TOPICS, {"Anchors": GAP}))
    model.arrange(0)
    return model


def names(model: TopicsModel) -> list[str]:
    return [topic.topic for topic in model.topics]


def test_gaps_stand_on_top_of_the_gravest_and_nowhere_else() -> None:
    model = surveyed()
    assert names(model) == ["Anchors", "ropes", "boats", "tides"]
    model.sort_by("severity")
    model.arrange(0)
    assert names(model) == ["tides", "boats", "Anchors", "ropes"]
    model.only_gaps = True
    assert model.arrange(2) == 0
    assert names(model) == ["Anchors"]


def test_columns_begin_at_their_telling_end_and_what_is_not_known_comes_last() -> None:
    model = surveyed()
    at = 0
    shown = {}
    for _ in model.SORTS:
        model.next_sort()
        at = model.arrange(at)
        assert model.topics[at].topic == "Anchors", "the cursor stays on its topic"
        shown[model.sort] = names(model)
    assert shown["topic"] == ["Anchors", "boats", "ropes", "tides"]
    assert shown["knows"] == ["Anchors", "ropes", "tides", "boats"]
    assert shown["covered"] == ["Anchors", "ropes", "boats", "tides"]
    assert shown["pruned"] == ["boats", "tides", "Anchors", "ropes"]
    model.sort_by("covered")
    model.sort_by("covered")
    model.arrange(at)
    assert names(model) == ["boats", "ropes", "Anchors", "tides"]
    assert not model.sort_by("sources")


def test_a_search_narrows_and_says_why_nothing_is_left() -> None:
    model = surveyed()
    model.sought = "  ANCH "
    model.arrange(3)
    assert names(model) == ["Anchors"]
    model.sought = "whale"
    assert model.arrange(0) == 0
    assert (model.topics, model.message) == ([], "no such topic")
    assert (model.topic(0), model.copied(0)) == (None, "")
    model.sought = " "
    assert model.message.startswith("no gaps")


def test_a_gap_is_copied_with_what_to_collect_and_another_topic_by_its_name() -> None:
    model = surveyed()
    assert model.copied(0).splitlines() == [
        "Anchors: needed by 5 queries, known 0.10, covered 0.20",
        "- how heavy?",
        "- how deep?",
    ]
    assert model.copied(1) == "ropes"


def test_order_and_filter_outlast_the_session() -> None:
    model = surveyed()
    model.sort_by("knows")
    model.only_gaps = True
    again = TopicsModel()
    again.recall(json.loads(json.dumps(model.remember())))
    assert (again.sort, again.descending, again.only_gaps) == ("knows", False, True)
    again.recall({"sort": "gone", "gaps": "yes"})
    assert (again.sort, again.only_gaps) == ("knows", False)


def test_the_survey_is_made_again_only_where_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch, LOST)
    settings, model = Settings(encoder="words", device="cpu", k=3), TopicsModel()
    found = model.read(workspace, settings)
    assert isinstance(found, TopicsData)
    assert model.take(found)
    assert model.read(workspace, settings) is found
    assert not model.take(found)
    model.arrange(0)
    topic = model.topics[0]
    assert topic.topic in found.gaps
    model.shown = found.look(workspace, topic.topic)
    assert isinstance(model.shown, TopicDetails)
    query, shot = model.query(0), model.demonstration(0)
    assert query is not None and query.row == found.survey.members(topic.topic).queries[0][0]
    assert shot is not None and not shot.pruned
    assert model.query(len(model.shown.queries)) is None
    decide(workspace, "prune", "demonstration", [shot.id])
    anew = model.read(workspace, settings)
    assert isinstance(anew, TopicsData)
    assert model.take(anew)
    assert shot.row not in [row.row for row in anew.look(workspace, topic.topic).demonstrations]


def test_without_topics_the_command_that_learns_them_is_named(tmp_path: Path) -> None:
    state = TopicsModel().read(Workspace.create(tmp_path), Settings())
    assert isinstance(state, Empty)
    assert state.command == "icl-curate train topics" and state.what.startswith("No topics")
