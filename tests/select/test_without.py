"""A view less some rows: it selects, and tells the LLM, what the pool would after these rows were really pruned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from factories import ranker_world, topics_world
from icl_curate import Selector
from icl_curate.engine.arrays import Int64s
from icl_curate.engine.errors import UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.pool.records import Query
from icl_curate.engine.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.settings import Settings
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import active_sources, fetch, queries
from icl_curate.engine.store.workspace import Workspace

UNTRAINED = [name for name, method in METHODS.items() if not method.trained]
TEXTS = ["my parcel still has not come", "I want my money back please"]


def _picked(
    workspace: Workspace, settings: Settings, method: str, asked: Sequence[Query | str], view: PoolView | None = None
) -> list[list[tuple[int, float]]]:
    selector = Selector(workspace, method, settings=settings, view=view)
    return [[(one.demonstration.row, one.score) for one in chosen] for chosen in selector.select_many(asked)]


def _same_as_pruned(
    workspace: Workspace, settings: Settings, methods: Sequence[str], pruned: Int64s, texts: Sequence[str] = ()
) -> None:
    asked: list[Query | str] = [*queries(workspace, "test", 12), *texts]
    whole = PoolView(workspace, settings)
    supposed = {name: _picked(workspace, settings, name, asked, whole.without(pruned)) for name in methods}
    before = {name: _picked(workspace, settings, name, asked, whole) for name in methods}
    task = whole.without(pruned).task
    decide(workspace, "prune", "demonstration", [row.id for row in fetch(workspace, pruned)])
    fresh = PoolView(workspace, settings)
    assert (task, whole.without(pruned).rows.tolist()) == (fresh.task, fresh.rows.tolist())
    for name in methods:
        assert supposed[name] == _picked(workspace, settings, name, asked), name
        assert name == "zero" or supposed[name] != before[name]


@pytest.mark.parametrize("sources", [("archive_2019", "helpdesk_team"), ()])
def test_untrained_methods_select_as_from_the_pruned_pool(support: Path, sources: Sequence[str]) -> None:
    workspace = Workspace.open(support)
    rows, of = active_sources(workspace)
    gone = np.isin(of, sources) if sources else np.random.default_rng(0).random(len(rows)) < 0.4
    _same_as_pruned(workspace, Settings(), UNTRAINED, rows[gone], TEXTS)


def test_a_trained_ranker_selects_as_from_the_pruned_pool(tmp_path: Path) -> None:
    workspace = ranker_world.make_world(tmp_path / "w", pool=120, validation=40, test=10)
    llm = LLMClient(workspace, ranker_world.Scripted(), ranker_world.SETTINGS)
    RankerTraining(llm, RankerPlan(epochs=1)).run(Budget())
    pruned = PoolView(workspace, ranker_world.SETTINGS).rows[::3]
    _same_as_pruned(workspace, ranker_world.SETTINGS, ["ranker"], pruned)


def test_trained_topics_select_as_from_the_pruned_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = topics_world.learnt_world(tmp_path / "w", monkeypatch)
    pruned = PoolView(workspace, topics_world.SETTINGS).rows[::3]
    _same_as_pruned(workspace, topics_world.SETTINGS, ["topick"], pruned)


def test_a_label_that_only_pruned_rows_have_is_no_choice_any_more(support: Path) -> None:
    workspace = Workspace.open(support)
    view = PoolView(workspace, Settings())
    rows = view.rows
    outputs = np.array([row.output for row in fetch(workspace, rows)])
    odd = set(view.task.labels) - {query.answers[0] for split in ("validation", "test")
                                   for query in queries(workspace, split)}  # fmt: skip
    assert odd
    label = min(odd)
    left = view.without(rows[outputs == label]).task
    assert set(left.labels) == set(view.task.labels) - {label}


def test_a_view_of_a_view_adds_up_and_shares_what_is_loaded(support: Path) -> None:
    view = PoolView(Workspace.open(support), Settings())
    one = view.without(view.rows[:10])
    two = one.without(view.rows[5:20])
    assert two.rows.tolist() == view.rows[20:].tolist()
    assert one.rows.tolist() == view.rows[10:].tolist()
    assert two.stored is view.stored and two.encoder is view.encoder
    with pytest.raises(UsageError, match="would be left"):
        _ = view.without(view.rows).rows
