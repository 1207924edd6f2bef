"""What the tab Sources knows, without an app: the order of sources, the curve of an estimator, the threshold."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.reviewing import ODD
from icl_curate.engine.base.progress import SILENT, Monitor
from icl_curate.engine.curate.stored import StoredTuning
from icl_curate.engine.report.gather import gather
from icl_curate.engine.store.decisions import Revision, decide
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import source_summaries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.sources import VOTE
from icl_curate.render.learned import ESTIMATORS
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.sources.model import SourcesModel, columns_for, measure, read, source_line, verdict
from icl_curate.tui.widgets.lines import ColumnLayout


def names(model: SourcesModel) -> list[str]:
    return [s.source for s in model.sources]


def measured(workspace: Workspace) -> SourcesModel:
    model = SourcesModel()
    model.arrange(0, source_summaries(workspace))
    model.take_measured(measure(workspace, Settings(), SILENT))
    return model


def test_the_cursor_stays_on_its_source_however_it_is_sorted_and_read_anew(taught: Path) -> None:
    workspace, model = Workspace.open(taught), SourcesModel()
    found = source_summaries(workspace)
    assert model.arrange(0, found) == 0
    assert names(model) == ["clean", ODD, "noisy"]
    at = 0
    for name in [*list(model.SORTS)[2:], *list(model.SORTS)[:2]]:
        model.next_sort()
        at = model.arrange(at)
        assert model.sort == name
        assert model.sources[at].source == "clean"
    model.sort_by("size")
    model.sort_by("size")
    at = model.arrange(at)
    assert model.descending is False
    assert names(model) == [ODD, "noisy", "clean"]
    assert model.arrange(at, found) == at == 2  # read anew, in another order than that of the table
    assert not model.sort_by("state")
    assert model.source(3) is None


def test_what_is_not_known_comes_last_either_way(untaught: Path) -> None:
    model = SourcesModel()
    model.arrange(0, source_summaries(Workspace.open(untaught)))
    assert len(model.sources) == 3
    assert not model.learnt
    assert "icl-curate train sources" in verdict(model).plain
    assert "weight" not in {column.name for column in columns_for(model)}


def test_weights_by_another_grading_are_not_shown_and_the_command_that_learns_them_is(taught: Path, run: Run) -> None:
    data = read(Workspace.open(taught), Settings(metric="f1"))
    assert not isinstance(data, Empty) and data.measured is None
    model = SourcesModel()
    model.arrange(0, data.sources)
    model.left_out = data.left_out
    told = "left out: graded by accuracy, and the settings grade by f1; icl-curate train sources --metric f1, with "
    assert not model.learnt and told in verdict(model).plain
    (taught / "config.toml").write_text('metric = "f1"\n')
    listed = run("sources", "-w", taught, "--json").json
    assert {source["weight"] for source in listed["sources"]} == {None} and told in listed["notes"][0]
    there = told.replace("train sources", f"train sources -w {taught}")
    assert there in " ".join(run("sources", "-w", taught).out.split())
    page = gather(Workspace.open(taught), Settings(metric="f1"))
    assert {source.weight for source in page.sources} == {None}
    refused = " ".join(run("tune", "vote", "-w", taught).err.split())
    assert f"fix: icl-curate train sources -w {taught}" in refused and " --metric f1" in refused
    (taught / "config.toml").unlink()
    shown = run("sources", "-w", taught, "--json").json
    assert shown["notes"] == [] and None not in {source["weight"] for source in shown["sources"]}


def test_the_threshold_moves_over_the_curve_and_names_what_lies_below(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = measured(workspace)
    while model.estimator != "reliability":
        assert model.next_estimator()
    for at, point in enumerate(model.points):
        model.move_to(at)
        assert model.threshold == point.threshold
        assert len(model.below()) == point.dropped == len(model.to_cut())
        assert f"drops {point.dropped}/3" in verdict(model).plain
    decide(workspace, "prune", "demonstration", ["noisy-0"])
    model.arrange(0, source_summaries(workspace))
    model.move_to(99)
    assert "(33 rows)" in verdict(model).plain
    model.move_to(-5)
    assert model.at == 0
    model.move_to(99)
    assert model.at == len(model.points) - 1
    columns = columns_for(model)
    assert str(source_line(model.sources[-1], columns, below=True).cells[-1]) == "below"


def test_tuning_goes_to_what_validation_chooses_and_a_reload_leaves_the_threshold(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = measured(workspace)
    tuned = model.tune()
    assert tuned is not None
    assert tuned.worth_it
    assert (model.estimator, model.at) == (tuned.estimator, model.star)
    assert model.below() == set(tuned.pruned)
    model.move_to(model.at + 1 if model.at == 0 else 0)
    at = model.at
    model.take_measured(measure(workspace, Settings(), SILENT))
    assert model.at == at
    model.take_measured(measure(workspace, Settings(k=3), SILENT))
    assert model.at == (model.star or 0)  # another curve


def test_pruned_sources_are_not_cut_again(taught: Path) -> None:
    workspace = Workspace.open(taught)
    model = measured(workspace)
    model.tune()
    assert model.to_cut() == ["noisy"]
    decide(workspace, "prune", "source", ["noisy"])
    model.arrange(0, source_summaries(workspace))
    assert model.below() == {"noisy"}
    assert model.to_cut() == []


def test_the_order_outlasts_the_session_and_an_unknown_column_does_not(taught: Path) -> None:
    model = SourcesModel()
    model.sort_by("hits")
    model.estimator = "reliability"
    again = SourcesModel()
    again.recall(json.loads(json.dumps(model.remember())))
    assert again.remember() == model.remember()
    again.recall({"sort": "gone", "estimator": "gone"})
    assert again.sort == "hits"
    again.take_measured(measured(Workspace.open(taught)).measured)  # type: ignore[arg-type]
    assert again.points


def test_measuring_the_vote_says_how_far_it_is(taught: Path) -> None:
    workspace, told = Workspace.open(taught), []
    model = SourcesModel()
    model.arrange(0, source_summaries(workspace))
    (taught / VOTE).unlink(missing_ok=True)
    measure(workspace, Settings(), Monitor(told.append))
    assert told
    assert verdict(model).plain.endswith("\nmeasuring …")
    model.progress = told[len(told) // 2]
    assert verdict(model).plain.endswith(f"\nmeasuring: {model.progress.done / (model.progress.total or 1):.0%}")


def test_before_training_there_is_nothing_to_tune(untaught: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = measured(Workspace.open(untaught))
    assert model.tune() is None
    assert not model.next_estimator()
    assert (model.points, model.below(), model.to_cut(), model.threshold) == ((), set(), [], None)
    assert isinstance(read(Workspace.create(tmp_path_factory.mktemp("none"))), Empty)


def test_a_new_race_is_shown_whatever_was_shown_before() -> None:
    race: Any = lambda day: StoredTuning(datetime(2026, 1, day), None, Revision(), 0, 0)  # type: ignore[arg-type]  # noqa: E731
    model = SourcesModel()
    model.view = "vote"
    model.take_served(race(1))
    assert model.panel == "served"
    model.switch_view()
    model.take_served(race(1))
    assert model.panel == "vote", "the same race, read again"
    model.take_served(race(2))
    assert model.panel == "served"


def test_the_estimator_that_is_drawn_stays_in_the_table_at_any_width(taught: Path) -> None:
    model = measured(Workspace.open(taught))
    model.sort_by("source")
    columns = {"multilinear": "weight", "leave-one-out": "leave-one-out", "reliability": "reliability"}
    for _ in columns:
        assert model.next_estimator()
        assert f"\n{model.estimator}: {ESTIMATORS[model.estimator]}" in verdict(model).plain
        for width in (40, 60, 80, 120):
            layout = ColumnLayout.into(columns_for(model), width, 1)
            shown = {layout.columns[i].name for i, _ in layout.shown}
            assert {columns[model.estimator], "source", "state"} <= shown, (model.estimator, width)
    model.sort_by("repeats")
    layout = ColumnLayout.into(columns_for(model), 60, 1)
    assert "repeats" in {layout.columns[i].name for i, _ in layout.shown}
