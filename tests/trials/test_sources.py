"""A training run and its pruning recomputed from what the workspace keeps: scores, curve, choice, interruptions."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import SAMPLE
from icl_curate.engine.backends.offline.reader import OfflineReader
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Backend, Failure, Keep, Request
from icl_curate.engine.papers.sources.estimators import grouped, monte_carlo, multilinear
from icl_curate.engine.papers.sources.gradient import multilinear_gradient
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.demonstrations import fetch, queries, task_of
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import KIND
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials import sources as train
from icl_curate.engine.trials.estimators import ESTIMATORS, SourceEstimator, default_estimators
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from icl_curate.engine.trials.results import SourceRun
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining, estimators_of, sources_below, tune

TRUTH = json.loads((SAMPLE / "support" / "truth.json").read_text(encoding="utf-8"))["sources"]
SETTINGS = Settings()
DEPTH = 25


@dataclass(frozen=True)
class Trial:
    """One line of the table of trials."""

    query: int
    row: int
    source: str
    answer: str
    right: bool


@dataclass(frozen=True)
class Trained:
    """The sample pool after ``train sources``: what the run said, and its trials by query, best rank first."""

    workspace: Workspace
    said: SourceRun
    lists: list[list[Trial]]


@pytest.fixture(scope="module")
def trained(_indexed_support: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = tmp_path_factory.mktemp("trained") / "w"
    shutil.copytree(_indexed_support, path)
    workspace = Workspace.open(path)
    said = _train(workspace, SourcePlan(depth=DEPTH))
    return Trained(workspace, said, _lists(workspace, said.run))


def _train(workspace: Workspace, plan: SourcePlan, settings: Settings = SETTINGS) -> SourceRun:
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        return SourceTraining.prepare(LLMClient(workspace, backend, settings), plan).ask(Budget())


def _lists(workspace: Workspace, run: int) -> list[list[Trial]]:
    with workspace.read() as con:
        found = con.execute(
            "SELECT query, row, source, answer, correct FROM source_trials WHERE run = ? ORDER BY place", [run]
        ).fetchall()
    by_query: dict[int, list[Trial]] = {}
    for line in found:
        by_query.setdefault(line[0], []).append(Trial(*line))
    return list(by_query.values())


def _rebuilt(found: Sequence[Sequence[Trial]]) -> RankedLists:
    """The lists that the table tells of, each demonstration a document of its own."""
    return ranked_lists(
        [[item.source for item in items] for items in found],
        [[item.answer for item in items] for items in found],
        [[float(item.right) for item in items] for items in found],
        documents=[[str(item.row) for item in items] for items in found],
    )


def _vote(items: Sequence[Trial], k: int, dropped: set[str]) -> bool:
    """Is the majority answer of the first k kept trials right; ties go to the answer met first, none is wrong."""
    first = [item for item in items if item.source not in dropped][:k]
    votes: dict[str, int] = {}
    for item in first:
        votes[item.answer] = votes.get(item.answer, 0) + 1
    if not votes:
        return False
    winner = max(votes, key=votes.__getitem__)  # the first of equals, and a dict keeps the order in which they came
    return next(item.right for item in first if item.answer == winner)


def _accuracy(lists: Sequence[Sequence[Trial]], k: int, dropped: set[str]) -> float:
    return float(np.mean([_vote(items, k, dropped) for items in lists]))


def test_trials_stand_in_the_order_of_the_ranking_each_with_its_source(trained: Trained) -> None:
    asked = queries(trained.workspace, "validation")
    ranked = PoolView(trained.workspace, SETTINGS).dense_top(asked, DEPTH)
    assert [[item.row for item in items] for items in trained.lists] == [rows.tolist() for rows, _ in ranked]
    assert [items[0].query for items in trained.lists] == [query.row for query in asked]
    items = [item for found in trained.lists for item in found]
    assert [item.source for item in items] == [d.source for d in fetch(trained.workspace, [item.row for item in items])]
    assert trained.said.usage.calls == len(items) == 200 * DEPTH
    assert trained.said.metrics.queries == 200
    assert SourceRun.from_json(runs.runs(trained.workspace, trials.KIND)[0].summary) == trained.said


def test_the_lexical_ranking_is_the_pools_own(support: Path) -> None:
    workspace = Workspace.open(support)
    said = _train(workspace, SourcePlan(depth=7, ranking="bm25", limit=12))
    ranked = PoolView(workspace, SETTINGS).bm25_top(queries(workspace, "validation", 12), 7)
    found = _lists(workspace, said.run)
    assert [[item.row for item in items] for items in found] == [rows.tolist() for rows, _ in ranked]


def test_an_answer_is_right_exactly_when_it_is_the_label(trained: Trained) -> None:
    labels = {query.row: query.answers[0] for query in queries(trained.workspace, "validation")}
    known = set(task_of(trained.workspace).labels)
    for items in trained.lists:
        assert {item.answer for item in items} <= known
        assert [item.right for item in items] == [item.answer == labels[item.query] for item in items]


def test_scores_are_the_estimators_on_lists_rebuilt_from_the_table(trained: Trained) -> None:
    lists = _rebuilt(trained.lists)
    for name in default_estimators():
        wanted = dict(zip(lists.names, ESTIMATORS[name].scores(lists, SETTINGS.k), strict=True))
        assert trials.weights(trained.workspace, name) == pytest.approx(wanted)
        assert {s: by[name] for s, by in trained.said.metrics.sources.items()} == pytest.approx(wanted)


def test_each_demonstration_steps_alone_before_its_source_gets_the_mean(support: Path) -> None:
    workspace = Workspace.open(support)
    said = _train(workspace, SourcePlan(depth=8, limit=12, rate=30.0, epochs=4))
    found = _lists(workspace, said.run)
    rows = sorted({item.row for items in found for item in items})
    source_of = {item.row: item.source for items in found for item in items}
    own = {source: [i for i, row in enumerate(rows) if source_of[row] == source] for source in source_of.values()}
    items, utilities = ([[getattr(each, name) for each in line] for line in found] for name in ("row", "right"))
    weights = np.full(len(rows), 0.5)
    for _ in range(4):  # paper 003, equation 6, with the gradient of the package
        step = multilinear_gradient(np.searchsorted(rows, items), utilities, weights, SETTINGS.k)
        stepped = np.clip(weights + 30.0 * step, 0.0, 1.0)
        for places in own.values():
            weights[places] = stepped[places].mean()
    wanted = {source: weights[places[0]] for source, places in own.items()}
    assert trials.weights(workspace) == pytest.approx(wanted)
    assert len({round(weight, 3) for weight in wanted.values()} - {0.0, 1.0}) >= 4
    assert runs.settings(workspace, said.run)["rate"] == 30.0 and not runs.settings(workspace, said.run + 1)


def test_pruning_is_chosen_with_the_ascent_of_the_run(support: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace.open(support)
    _train(workspace, SourcePlan(depth=8, limit=12, rate=7.0, epochs=3))
    seen = []

    def watched(lists: RankedLists, k: int, rate: float = 0.0, epochs: int = 0, **more: Any) -> Any:
        seen.append((rate, epochs))
        return multilinear(lists, k, rate=rate, epochs=epochs, **more)

    assert "multilinear" in ESTIMATORS  # reads what registers
    monkeypatch.setitem(ESTIMATORS._entries, "multilinear", SourceEstimator(watched, default=True, weights=True))
    tune(workspace, SETTINGS)
    assert set(seen) == {(7.0, 3)}


def test_weights_of_the_vote_are_learnt_by_sampling_it(trained: Trained) -> None:
    lists = _rebuilt(trained.lists[:40])
    plan = SourcePlan(estimator="monte-carlo", rate=2.0, epochs=3, epsilon=0.2, delta=0.1)
    learners = estimators_of(plan)
    assert list(learners) == ["monte-carlo", "leave-one-out", "reliability"]
    exact = monte_carlo(lists, 5, rate=2.0, epochs=3, epsilon=0.2, delta=0.1)
    assert learners["monte-carlo"](lists, 5).tolist() == exact.tolist()
    with pytest.raises(UsageError, match="learns no weights"):
        SourcePlan(estimator="reliability")
    with pytest.raises(UsageError, match="delta between"):
        SourcePlan(estimator="monte-carlo", delta=1.0)


def test_a_run_learns_its_weights_by_the_estimator_asked_for(support: Path) -> None:
    workspace = Workspace.open(support)
    said = _train(workspace, SourcePlan(depth=8, limit=12, estimator="grouped", rate=3.0, epochs=2))
    lists = _rebuilt(_lists(workspace, said.run))
    wanted = dict(zip(lists.names, grouped(lists, SETTINGS.k, rate=3.0, epochs=2), strict=True))
    assert trials.weights(workspace) == pytest.approx(wanted)
    assert {s.source: s.weight for s in trials.source_summaries(workspace) if s.source in wanted} == pytest.approx(
        wanted
    )
    assert list(train.curves(workspace, 5).curves) == ["grouped", "leave-one-out", "reliability"]
    seen = tune(workspace, SETTINGS)
    assert seen.estimator in ("grouped", "leave-one-out", "reliability")


def test_leave_one_out_is_the_votes_loss_without_the_source(trained: Trained) -> None:
    everything = _accuracy(trained.lists, SETTINGS.k, set())
    assert trained.said.metrics.baseline == pytest.approx(everything)
    for source, score in trials.weights(trained.workspace, "leave-one-out").items():
        assert score == pytest.approx(everything - _accuracy(trained.lists, SETTINGS.k, {source}))


def test_sources_with_wrong_labels_score_below_the_clean_one(trained: Trained) -> None:
    by_source = {s.source: s for s in trials.source_summaries(trained.workspace)}
    bad = [name for name, about in TRUTH.items() if about["wrong_share"] >= 0.5 and about["kind"] != "off-topic"]
    assert len(bad) >= 3
    for estimator in default_estimators():
        scores = trials.weights(trained.workspace, estimator)
        for name in bad:
            assert scores[name] < scores["helpdesk_team"], (estimator, name)
    for name, found in by_source.items():
        own = [item.right for items in trained.lists for item in items if item.source == name]
        assert found.hits == len(own)
        assert found.accuracy == pytest.approx(np.mean(own))


@pytest.mark.parametrize("k", [1, 3, SETTINGS.k, 12])
def test_every_point_of_the_curve_is_a_vote_counted_by_hand(trained: Trained, k: int) -> None:
    tuned = tune(trained.workspace, replace(SETTINGS, k=k))
    lists = _rebuilt(trained.lists)
    scores = dict(zip(lists.names, ESTIMATORS[tuned.estimator].scores(lists, k), strict=True))
    assert [point.threshold for point in tuned.curve] == sorted(set(scores.values()))
    for point in tuned.curve:
        dropped = {name for name, score in scores.items() if score < point.threshold}
        assert point.dropped == len(dropped)
        assert point.accuracy == pytest.approx(_accuracy(trained.lists, k, dropped))
    assert tuned.validation_before == pytest.approx(_accuracy(trained.lists, k, set()))
    assert tuned.validation_after == tuned.validation_before + (tuned.gain if tuned.pruned else 0.0)
    assert sorted((*tuned.pruned, *tuned.kept)) == sorted(scores)
    if tuned.pruned:
        assert set(tuned.pruned) == {name for name, score in scores.items() if score < (tuned.threshold or 0.0)}


def test_what_is_pruned_is_wrong_or_says_nothing_new(trained: Trained) -> None:
    tuned = tune(trained.workspace, SETTINGS)
    assert tuned.worth_it
    for name in tuned.pruned:
        about = TRUTH[name]
        assert about["wrong_share"] > 0 or about["kind"] == "near-duplicates", name
    assert _wrong(tuned.kept) < _wrong(tuned.pruned)
    assert tuned.validation_after > tuned.validation_before


def _wrong(sources: Sequence[str]) -> float:
    """Share of wrong labels among the demonstrations of the sources."""
    return float(sum(TRUTH[s]["wrong_labels"] for s in sources) / sum(TRUTH[s]["rows"] for s in sources))


def test_a_gain_that_must_be_larger_than_any_prunes_nothing(trained: Trained) -> None:
    bold, timid = tune(trained.workspace, SETTINGS), tune(trained.workspace, SETTINGS, noise=1e9)
    assert (timid.worth_it, timid.pruned, timid.threshold) == (False, (), None)
    assert set(timid.kept) == set(bold.kept) | set(bold.pruned)
    assert timid.validation_after == timid.validation_before == bold.validation_before
    assert (timid.gain, timid.gain_error, timid.curve) == (bold.gain, bold.gain_error, bold.curve)


def test_choosing_asks_and_writes_nothing_and_is_the_same_again(trained: Trained) -> None:
    before = _counts(trained.workspace)
    assert tune(trained.workspace, SETTINGS) == tune(trained.workspace, SETTINGS)
    assert _counts(trained.workspace) == before


def test_sources_below_a_weight(trained: Trained) -> None:
    weights = trials.weights(trained.workspace)
    for bar in (2.0, *(value for value in weights.values() if value > min(weights.values()))):
        below = sorted(name for name, value in weights.items() if value < bar)
        assert sources_below(trained.workspace, bar, SETTINGS) == below


def test_of_two_gradings_the_vote_is_that_of_the_settings(trained: Trained, tmp_path: Path) -> None:
    """A run by another metric, in which every answer is right, has no part in what the settings do not grade so."""
    shutil.copytree(trained.workspace.path, tmp_path / "w")
    workspace, by_f1 = Workspace.open(tmp_path / "w"), replace(SETTINGS, metric="f1", least=0.5)
    exact, below, first = tune(workspace, SETTINGS), sources_below(workspace, 2.0, SETTINGS), trials.latest(workspace)
    for fails in (lambda: tune(workspace, by_f1), lambda: sources_below(workspace, 2.0, by_f1)):
        with pytest.raises(UsageError, match=r"no source weights yet; .* left out: graded by accuracy.* --metric f1"):
            fails()
    assert first is not None and train.measure_vote(workspace, by_f1).curves is None
    told = {"graded_by": {"metric": "f1", "least": 0.5, "read": "auto"}}
    run = runs.start(workspace, trials.KIND, "offline", told)
    trials.save(
        workspace, replace(first, run=run, right=np.ones_like(first.right), grades=None),
        {name: dict.fromkeys(first.sources, 1.0) for name in trials.scores_by_estimator(workspace)},
    )  # fmt: skip
    runs.finish(workspace, run, "done", {})
    assert trials.latest(workspace).run == run  # type: ignore[union-attr]
    assert tune(workspace, SETTINGS) == exact and sources_below(workspace, 2.0, SETTINGS) == below
    assert tune(workspace, by_f1).run == run
    for settings, of in ((SETTINGS, first.run), (by_f1, run)):
        measured = train.measure_vote(workspace, settings)
        assert measured.curves is not None and measured.curves.run == of
        assert train.stored_vote(workspace, settings) == measured


def test_a_dry_run_counts_the_prompts_and_asks_nothing(support: Path) -> None:
    workspace = Workspace.open(support)
    settings = Settings(llm="openai:no-such-model", base_url="http://127.0.0.1:9/v1")
    before = _counts(workspace)
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        training = SourceTraining.prepare(
            LLMClient(workspace, backend, settings, dry_run=True), SourcePlan(depth=6, limit=15)
        )
        cost = training.cost()
    shots = {shot.row: shot for shot in fetch(workspace, sorted({row for _, row in training.tried}))}
    distinct = {(query.input, shots[row].input, shots[row].output) for query, row in training.tried}  # equal rows: one
    assert (cost.requests, cost.cached, cost.cost) == (90, 0, None)
    assert cost.distinct == cost.to_ask == len(distinct)
    assert 0 < cost.tokens_in[0] < cost.tokens_in[1]
    assert _counts(workspace) == before


def test_too_few_queries_to_choose_on_are_refused_before_anything_is_asked(support: Path) -> None:
    workspace = Workspace.open(support)
    settings = Settings(llm="openai:no-such-model", base_url="http://127.0.0.1:9/v1")
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        llm = LLMClient(workspace, backend, settings, dry_run=True)
        with pytest.raises(UsageError, match="4 validation queries are too few"):
            SourceTraining.prepare(llm, SourcePlan(depth=6, limit=4))


def test_a_run_that_was_stopped_does_not_count_and_is_not_paid_again(support: Path) -> None:
    workspace = Workspace.open(support)
    plan = SourcePlan(depth=10, limit=40)
    token = CancelToken()

    def stop_half_way(event: Event) -> None:
        if event.task == "ask" and event.done:
            token.cancel()

    with backend_for(SETTINGS, encode_for_reader(workspace, SETTINGS)) as backend:
        stopped = SourceTraining.prepare(
            LLMClient(workspace, _pausing(backend, token), SETTINGS, Monitor(stop_half_way, token)), plan
        )
        with pytest.raises(Cancelled):
            stopped.ask(Budget())
    assert [run.status for run in runs.runs(workspace, KIND)] == ["interrupted"]
    assert (trials.latest(workspace), trials.weights(workspace)) == (None, {})
    kept = _counts(workspace)["llm_calls"]
    assert 0 < kept < 400
    done = _train(workspace, plan)
    assert done.usage.cached_calls >= kept
    assert [run.status for run in runs.runs(workspace, KIND)] == ["done", "interrupted"]


def test_a_refused_prompt_is_not_right_and_the_others_keep_their_order(support: Path) -> None:
    workspace = Workspace.open(support)
    plan = SourcePlan(depth=8, limit=20)
    whole = _lists(workspace, _train(workspace, plan).run)
    again = replace(SETTINGS, seed=1)  # another seed makes other calls
    with backend_for(again, encode_for_reader(workspace, again)) as backend:
        done = SourceTraining.prepare(LLMClient(workspace, _refusing(backend, "refund"), again), plan).ask(Budget())
    gone = {
        row for row in {item.row for items in whole for item in items} if "refund" in fetch(workspace, [row])[0].input
    }
    asked = {query.row: "refund" in query.input for query in queries(workspace, "validation", 20)}
    expected = [
        [replace(i, answer="", right=False) if i.row in gone or asked[i.query] else i for i in items] for items in whole
    ]
    assert expected != whole
    assert _lists(workspace, done.run) == expected
    assert done.usage.failures == sum(not item.answer for items in expected for item in items) > 0
    assert done.metrics.queries == len(expected)


def _counts(workspace: Workspace) -> dict[str, int]:
    names = ("llm_calls", "llm_capabilities", "runs", "source_trials", "source_weights", "decisions")
    with workspace.read() as con:
        return {name: _one(con.execute(f"SELECT count(*) FROM {name}").fetchone()) for name in names}


def _one(row: tuple[Any, ...] | None) -> int:
    assert row is not None
    return int(row[0])


def _pausing(backend: Backend, token: CancelToken) -> Backend:
    """The same backend, which after its first batch waits until it is to stop."""
    assert isinstance(backend, OfflineReader)
    whole, served = backend.ask_each, 0

    async def ask_each(requests: Sequence[Request], keep: Keep) -> None:
        nonlocal served
        served += 1
        while served > 1 and not token.cancelled:  # noqa: ASYNC110 - a token cannot be awaited
            await asyncio.sleep(0.01)
        await whole(requests, keep)

    backend.ask_each = ask_each  # type: ignore[method-assign]
    return backend


def _refusing(backend: Backend, word: str) -> Backend:
    """The same backend, but prompts whose demonstration or question holds ``word`` fail."""
    assert isinstance(backend, OfflineReader)
    whole = backend.ask_each

    async def ask_each(requests: Sequence[Request], keep: Keep) -> None:
        def refused(i: int) -> bool:
            return any(word in text for text in _texts(requests[i]))

        no = Failure("refusal", "no")
        await whole(requests, lambda found: keep({i: no if refused(i) else result for i, result in found.items()}))

    backend.ask_each = ask_each  # type: ignore[method-assign]
    return backend


def _texts(request: Request) -> list[str]:
    return [request.prompt.query.input, *(shot.input for shot in request.prompt.demonstrations)]
