"""One set of demonstrations for all queries: proposed, raced, kept and served."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from factories.asked_world import GENERATES, Scripted
from icl_curate.engine.base.errors import BudgetError, UsageError, WorkspaceError
from icl_curate.engine.base.progress import Monitor
from icl_curate.engine.curate.fixed import FixedPlan, FixedRun, FixedTraining, covering, propose
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Request
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.lock import check_lock, lock
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import fetch, queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.fixed import KIND, fixed_rows
from icl_curate.render import show

SETTINGS = Settings(k=3, llm="offline", answers="generate", metric="accuracy")


def _covered(cosines: np.ndarray, chosen: tuple[int, ...]) -> float:
    return float(cosines[:, list(chosen)].max(axis=1).sum())


def test_the_greedy_cover_is_near_the_best_of_all_sets() -> None:
    """Nemhauser, Wolsey and Fisher 1978: at least 1 - 1/e of the best for gains from nothing covered."""
    draw = np.random.default_rng(3)
    for _ in range(20):
        cosines = draw.uniform(0, 1, (6, 9)).astype(np.float32)
        chosen = covering(cosines, 3)
        best = max(_covered(cosines, each) for each in combinations(range(9), 3))
        assert len(set(chosen.tolist())) == 3
        assert _covered(cosines, tuple(chosen.tolist())) >= (1 - 1 / np.e) * best - 1e-6
        first = int(cosines.sum(axis=0).argmax())
        assert chosen[0] == first


def test_by_label_each_label_has_its_turn() -> None:
    draw = np.random.default_rng(4)
    labels = np.array([0] * 20 + [1] * 3 + [2] * 5 + [3], np.int64)
    cosines = draw.uniform(-1, 1, (8, len(labels))).astype(np.float32)
    for k in (3, 4, 6, 10, 40):
        counts = np.bincount(labels[covering(cosines, k, labels)], minlength=4)
        sizes = np.bincount(labels)
        assert counts.sum() == min(k, len(labels))
        open_ = counts < sizes
        if open_.any():
            assert counts.max(initial=0, where=True) <= max(counts[open_].min() + 1, 1) or (counts <= sizes).all()
            assert counts[open_].max() - counts[open_].min() <= 1


def _llm(workspace: Workspace, says: object, settings: Settings = SETTINGS) -> LLMClient:
    return LLMClient(workspace, Scripted(says, GENERATES), settings)  # type: ignore[arg-type]


def _train(workspace: Workspace, golden: str, settings: Settings = SETTINGS, budget: Budget | None = None) -> FixedRun:
    """With an LLM that is right where the ``golden`` text stands in the prompt, and else for one query of four."""

    def says(request: Request) -> str:
        query = request.prompt.query
        shown = any(golden in message.content for message in request.prompt.messages)
        return query.answers[0] if shown or (query.row or 0) % 4 == 0 else "nothing of it"

    work = FixedTraining.prepare(_llm(workspace, says, settings), FixedPlan(sets=8, limit=40))
    return work.ask(budget or Budget())


def _golden(workspace: Workspace, name: str) -> tuple[int, str]:
    """The first row of a set that is proposed, which the first set has not, and its text."""
    sets = dict(propose(PoolView(workspace, SETTINGS), queries(workspace, "validation", 40), 3, 8, SETTINGS.seed))
    (first, *_) = sets.values()
    row = next(row for row in sets[name].tolist() if row not in first)
    return row, fetch(workspace, [row])[0].input


def test_the_race_finds_the_set_that_helps_and_serves_it_to_all(
    support: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(support)
    row, text = _golden(workspace, "random 3")
    done = _train(workspace, text)
    assert done.metrics.confirmed and done.metrics.gain > 0.5
    assert row in [shot.row for shot in done.metrics.shots] and len(done.metrics.shots) == 3
    assert FixedRun.from_json(runs.numbered(workspace, done.run).summary) == done
    show(done.kind, done)
    assert "taken: it gains +0." in capsys.readouterr().out

    selector = Selector(workspace, settings=replace(SETTINGS, method="fixed"))
    shown = [
        [shot.demonstration.row for shot in shots] for shots in selector.select_many(["one", "two words", "three"])
    ]
    assert shown == [[shot.row for shot in done.metrics.shots]] * 3
    assert len(Selector(workspace, settings=replace(SETTINGS, method="fixed", k=2)).select("one")) == 2
    own = Query(text)  # the demonstration itself, typed anew
    assert row not in [shot.demonstration.row for shot in selector.select(own)]

    locked = lock(workspace, replace(SETTINGS, method="fixed"))
    check_lock(workspace, locked)
    other, text = _golden(workspace, "random 1")
    again = _train(workspace, text, replace(SETTINGS, instruction="Another one, so that nothing is answered yet."))
    assert other in fixed_rows(PoolView(workspace, SETTINGS)).tolist() and again.run > done.run
    with pytest.raises(UsageError, match="fixed has been trained again since it was judged"):
        check_lock(workspace, locked)

    pruned = fetch(workspace, [other])[0]
    decide(workspace, "prune", "demonstration", [pruned.id])
    left = [
        shot.demonstration.id for shot in Selector(workspace, settings=replace(SETTINGS, method="fixed")).select("one")
    ]
    assert len(left) == 2 and pruned.id not in left


def test_the_set_is_read_once_for_a_view_and_a_strangers_run_is_refused_in_a_line(
    support: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.open(support)
    for summary in ({"metrics": {"shots": [{"row": 10**30}]}}, {"metrics": {}}, {"metrics": {"shots": [3]}}):
        with runs.recorded(workspace, KIND, "offline", {}) as record:
            record.summary = summary
        with pytest.raises(WorkspaceError, match=f"the set of run {record.run} cannot be read"):
            fixed_rows(PoolView(workspace, SETTINGS))
    with runs.recorded(workspace, KIND, "offline", {}) as record:
        record.summary = {"metrics": {"shots": [{"row": 2}, {"row": 10**9}, {"row": 1}]}}
    view, reads, finished = PoolView(workspace, SETTINGS), [], runs.finished
    monkeypatch.setattr(runs, "finished", lambda *given: reads.append(given) or finished(*given))
    assert [fixed_rows(view).tolist() for _ in range(3)] == [[2, 1]] * 3 and len(reads) == 1


def test_more_labels_than_shots_are_told_before_anything_is_asked(support: Path) -> None:
    workspace, notes = Workspace.open(support), list[str]()
    for k in (3, 40):
        llm = LLMClient(
            workspace, Scripted("", GENERATES), replace(SETTINGS, k=k), Monitor(lambda event: notes.append(event.note))
        )
        FixedTraining.prepare(llm, FixedPlan(sets=2, limit=20))
    assert [note for note in notes if "labels" in note] == ["3 demonstrations show at most 3 of 25 labels: -k 25"]


def test_where_no_set_is_better_the_first_one_stays(support: Path) -> None:
    workspace = Workspace.open(support)
    done = _train(workspace, "what no prompt says")
    assert not done.metrics.confirmed and done.metrics.sets[0].chosen
    assert [one.name for one in done.metrics.sets[:3]] == [
        "covers the queries",
        "covers them label by label",
        "random 1",
    ]


def test_too_few_calls_are_refused_with_how_many_suffice(support: Path) -> None:
    workspace = Workspace.open(support)
    with pytest.raises(BudgetError) as refused:
        _train(workspace, "x", budget=Budget(max_calls=3))
    (enough,) = re.findall(r"run the same command again with --max-calls (\d+) or more", refused.value.fix)
    assert _train(workspace, "x", budget=Budget(max_calls=int(enough))).metrics.sets[0].queries


def test_without_calls_nothing_is_chosen_and_without_a_set_nothing_is_served(support: Path) -> None:
    workspace = Workspace.open(support)
    with pytest.raises(BudgetError, match="the budget was enough for no batch"):
        _train(workspace, "x", budget=Budget(max_calls=3))
    assert not runs.finished(workspace, KIND)
    with pytest.raises(UsageError, match="no fixed set has been chosen yet"):
        Selector(workspace, settings=replace(SETTINGS, method="fixed")).select("one")
    for wrong in (replace(SETTINGS, k=0), SETTINGS):
        with pytest.raises(UsageError, match="a fixed prompt needs a shot, and a race two sets"):
            FixedTraining.prepare(_llm(workspace, lambda request: "", wrong), FixedPlan(sets=8 if not wrong.k else 1))
