"""A view less some rows and with other outputs of some: it selects, and tells the LLM, what the pool would after these
rows were really pruned and relabelled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from factories import ranker_world, topics_world
from icl_curate import Selector
from icl_curate.engine.base.arrays import Int64s
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.pool.records import Demonstration, Query
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.store.decisions import Revision, revise
from icl_curate.engine.store.demonstrations import active_sources, fetch, queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

UNTRAINED = [name for name, method in METHODS.items() if not method.trained]
TEXTS = ["my parcel still has not come", "I want my money back please"]


def _picked(
    workspace: Workspace, settings: Settings, method: str, asked: Sequence[Query | str], view: PoolView | None = None
) -> list[list[tuple[Demonstration, float]]]:
    selector = Selector(workspace, method, settings=settings, view=view)
    return [[(one.demonstration, one.score) for one in chosen] for chosen in selector.select_many(asked)]


def _same_as_revised(
    workspace: Workspace,
    settings: Settings,
    methods: Sequence[str],
    pruned: Int64s,
    texts: Sequence[str] = (),
    relabelled: int = 5,
) -> None:
    """One in ``relabelled`` of the other rows gets the output of another row."""
    asked: list[Query | str] = [*queries(workspace, "test", 12), *texts]
    whole = PoolView(workspace, settings)
    others = fetch(workspace, np.setdiff1d(whole.rows, pruned))[::relabelled]
    paired = zip(others, others[1:] + others[:1], strict=True)
    outputs = {shot.row: other.output for shot, other in paired if other.output != shot.output}
    revised = whole.without(pruned, outputs)
    supposed = {name: _picked(workspace, settings, name, asked, revised) for name in methods}
    before = {name: _picked(workspace, settings, name, asked, whole) for name in methods}
    task = revised.task
    by_id = {shot.id: outputs[shot.row] for shot in others if shot.row in outputs}
    assert by_id or relabelled > len(others)
    revise(workspace, Revision((), tuple(row.id for row in fetch(workspace, pruned)), by_id))
    fresh = PoolView(workspace, settings)
    assert (task, whole.without(pruned).rows.tolist()) == (fresh.task, fresh.rows.tolist())
    for name in methods:
        assert supposed[name] == _picked(workspace, settings, name, asked), name
        assert name == "zero" or supposed[name] != before[name]
    shown = [shot for name in methods for chosen in supposed[name] for shot, _ in chosen]
    assert not by_id or any(shot.id in by_id for shot in shown), "none of those relabelled was selected"


@pytest.mark.parametrize("sources", [("archive_2019", "helpdesk_team"), ()])
def test_untrained_methods_select_as_from_the_revised_pool(support: Path, sources: Sequence[str]) -> None:
    workspace = Workspace.open(support)
    rows, of = active_sources(workspace)
    gone = np.isin(of, sources) if sources else np.random.default_rng(0).random(len(rows)) < 0.4
    _same_as_revised(workspace, Settings(), UNTRAINED, rows[gone], TEXTS)


def test_a_trained_ranker_selects_as_from_the_revised_pool(tmp_path: Path) -> None:
    workspace = ranker_world.make_world(tmp_path / "w", pool=120, validation=40, test=10)
    llm = LLMClient(workspace, ranker_world.Scripted(), ranker_world.SETTINGS)
    RankerTraining.prepare(llm, RankerPlan(epochs=1)).ask(Budget())
    pruned = PoolView(workspace, ranker_world.SETTINGS).rows[::3]
    _same_as_revised(
        workspace, ranker_world.SETTINGS, ["ranker"], pruned, relabelled=10**6
    )  # whose encoder encodes nothing


def test_trained_topics_select_as_from_the_revised_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = topics_world.learnt_world(tmp_path / "w", monkeypatch)
    pruned = PoolView(workspace, topics_world.SETTINGS).rows[::3]
    _same_as_revised(workspace, topics_world.SETTINGS, ["topick"], pruned)


def test_whole_examples_are_encoded_with_their_new_outputs_and_none_is_stored(support: Path) -> None:
    view = PoolView(Workspace.open(support), Settings())
    rows = view.rows[:3]
    before = view.example_vectors(rows).copy()
    revised = view.without(view.rows[10:20], {int(rows[1]): "refund_request"})
    found = revised.example_vectors(rows)
    (shots,) = revised.demonstrations([rows.tolist()])
    assert [shot.output for shot in shots] == [shots[0].output, "refund_request", shots[2].output]
    by_hand = view.encoder.encode([f"{shots[1].input}\nrefund_request"])[0]
    assert np.allclose(found[1], by_hand, atol=1e-5) and not np.allclose(before[1], by_hand, atol=1e-2)
    assert np.array_equal(found[[0, 2]], before[[0, 2]])
    assert np.array_equal(revised.without(view.rows[20:30]).example_vectors(rows), found)
    assert np.array_equal(view.example_vectors(rows), before)
    assert np.array_equal(PoolView(Workspace.open(support), Settings()).example_vectors(rows), before)


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
