"""Training over a scripted LLM: costs, the threshold traced, replay and resume, and what is learnt in a known world."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from factories.copies import copied
from factories.ranker_world import SETTINGS, Scripted, make_world, with_k
from icl_curate.cli import app
from icl_curate.engine.base.errors import BudgetError, Cancelled, LLMError, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.curate.curation import RANKER
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import EvaluationReport
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.marks import Mark
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.papers.ranker.rollout import Rollout
from icl_curate.engine.papers.ranker.train import Learning, RankerPlan, RankerTraining, SeededTraining
from icl_curate.engine.pool.records import Query
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store import runs
from icl_curate.engine.store.demonstrations import queries as queries_of
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.policy import Adam, Inputs, load
from icl_curate.engine.trials.ranker import folder_of, import_ranker, latest
from icl_curate.engine.trials.results import EpochAccuracy, RankerMetrics, RankerRun, RankerSeeds
from icl_curate.render.evaluation import show_evaluation
from icl_curate.render.learned import show_ranker
from typer.main import get_command

SHORT = RankerPlan(epochs=1)
PRINTED = RankerPlan(epochs=1, inputs=Inputs(sees="row"), threshold=True, rate=1e-3)
"""Candidates, temperature and threshold of the paper."""


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    return make_world(tmp_path / "w", pool=240, validation=60, test=40)


def train(
    world: Workspace, plan: RankerPlan = SHORT, backend: Scripted | None = None, seed: int = 0, **changes: Any
) -> RankerRun:
    settings = with_k(5, seed=seed, **changes)
    return RankerTraining.prepare(LLMClient(world, backend or Scripted(), settings), plan).ask(Budget())


def weights(world: Workspace, run: int) -> bytes:
    policy, _ = load(folder_of(world, run))
    return policy.weight.tobytes() + policy.bias.tobytes()


def test_the_first_batch_takes_300_shots_and_promptpg_100_a_batch(world: Workspace) -> None:
    batches = train(world).metrics.batches
    assert (batches[0].shots, batches[0].calls, batches[0].sigma) == (300, 120, 0.0)
    other = train(world, replace(SHORT, method="promptpg")).metrics.batches
    assert [batch.shots for batch in other[:2]] == [100, 100]
    assert [batch.calls for batch in other[:2]] == [20, 20]


def test_the_first_batch_is_full_even_with_few_queries(tmp_path: Path) -> None:
    world = make_world(tmp_path / "few", pool=100, validation=20, test=1)
    metrics = train(world).metrics
    assert metrics.batches[0].shots == 300
    assert metrics.held_out_queries == 0


def test_threshold_and_shots_traced_from_the_steps(world: Workspace) -> None:
    """Every batch's σ is the score at the last turn of the batches before, and no shot stands at or below it."""
    out = train(world, replace(PRINTED, batch=8))
    with world.read() as con:
        steps = con.execute(
            "SELECT batch, query, place, score, before, after FROM ranker_steps WHERE run = ?", [out.run]
        ).fetchall()
    batches = out.metrics.batches
    assert len(batches) > 3
    sigma = 0.0
    turned = 0
    for batch in batches:
        assert batch.sigma == sigma
        mine = [step for step in steps if step[0] == batch.batch]
        assert all(score > sigma for *_, score, _, _ in mine)
        assert batch.shots == sum(place for _, _, place, *_ in mine)
        assert batch.helped == sum(not before and after for *_, before, after in mine)
        assert batch.hurt == sum(before and not after for *_, before, after in mine)
        for *_, score, before, after in mine:  # stored in the order of queries and shots
            if before and not after:
                sigma = score
                turned += 1
    assert turned


def test_concurrency_changes_nothing(tmp_path: Path) -> None:
    found = []
    for in_flight in (1, 64):
        world = make_world(tmp_path / f"w{in_flight}", pool=120, validation=16, test=1)
        out = train(world, replace(SHORT, batch=8), Scripted(in_flight))
        found.append(weights(world, out.run))
    assert found[0] == found[1]


def test_the_same_seed_walks_the_same_way_for_free(world: Workspace) -> None:
    first, again, other = train(world), train(world), train(world, seed=1)
    assert RankerRun.from_json(runs.runs(world, "train-ranker")[0].summary) == other
    assert again.usage.cached_calls == again.usage.calls == first.usage.calls
    assert weights(world, again.run) == weights(world, first.run)
    assert weights(world, other.run) != weights(world, first.run)


def test_a_cancelled_training_goes_on_where_it_stopped(world: Workspace, tmp_path: Path) -> None:
    whole = make_world(tmp_path / "whole", pool=240, validation=60, test=40)
    reference = Scripted()
    expected = weights(whole, train(whole, SHORT, reference).run)
    cancel = CancelToken()
    stopping = Scripted(4, cancel, stop_after=150)
    with pytest.raises(Cancelled):
        RankerTraining.prepare(LLMClient(world, stopping, with_k(5), Monitor(cancel=cancel)), SHORT).ask(Budget())
    assert runs.runs(world)[0].status == "interrupted"
    rest = Scripted()
    assert weights(world, train(world, SHORT, rest).run) == expected
    assert len(stopping.asked) + len(rest.asked) == len(reference.asked)


CHILD = """
import os, signal, sys
from pathlib import Path
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.store.workspace import Workspace
from factories.ranker_world import Scripted, with_k

class Mortal(Scripted):
    async def ask(self, requests):
        results = await super().ask(requests)
        if len(self.asked) >= 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return results

llm = LLMClient(Workspace.open(Path(sys.argv[1])), Mortal(4), with_k(5))
RankerTraining.prepare(llm, RankerPlan(epochs=1)).ask(Budget())
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_training_pays_again_only_what_was_in_flight(world: Workspace, tmp_path: Path) -> None:
    whole = make_world(tmp_path / "whole", pool=240, validation=60, test=40)
    reference = Scripted()
    expected = weights(whole, train(whole, SHORT, reference).run)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.run([sys.executable, "-c", CHILD, str(world.path)], env=environment, check=False)
    assert child.returncode == -signal.SIGKILL
    rest = Scripted()
    assert weights(world, train(world, SHORT, rest).run) == expected
    assert len(reference.asked) - 150 <= len(rest.asked) <= len(reference.asked) - 150 + 2 * 4


def test_a_budget_ends_it_and_what_was_answered_is_kept(world: Workspace) -> None:
    training = RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5)), SHORT)
    with pytest.raises(BudgetError):
        training.ask(Budget(max_calls=60))
    assert runs.runs(world)[0].status == "failed"
    assert train(world).usage.cached_calls >= 60


def test_the_dry_run_asks_nothing_and_bounds_the_run(world: Workspace) -> None:
    backend = Scripted()
    training = RankerTraining.prepare(LLMClient(world, backend, with_k(5), dry_run=True), RankerPlan(epochs=2))
    cost = training.cost()
    assert not backend.asked
    assert len(training.core.held_out)
    # one prompt without shots for each query, five in each epoch for those that it learns from, and three measurements
    assert cost.requests == len(training.core.train) * (1 + 2 * 5) + len(training.core.held_out) * (1 + 3)
    train(world, RankerPlan(epochs=2), backend)
    assert 0 < len(backend.asked) <= cost.to_ask


class _Flaky(Scripted):
    """Never answers prompts with exactly two shots."""

    async def ask(self, requests: Any) -> list[Result]:
        asked: list[Request] = list(requests)
        found = await super().ask(asked)
        await asyncio.sleep(0)
        return [
            Failure("missing", "no") if len(request.prompt.demonstrations) == 2 else result
            for request, result in zip(asked, found, strict=True)
        ]


def test_nothing_is_learnt_from_a_call_that_failed(world: Workspace) -> None:
    out = train(world, SHORT, _Flaky())
    assert out.usage.failures > 0
    with world.read() as con:
        places = {place for (place,) in con.execute("SELECT DISTINCT place FROM ranker_steps").fetchall()}
    assert 1 in places
    assert not places & {2, 3}
    assert "2" not in out.metrics.accuracy_by_shots


def test_the_training_accuracy_is_that_of_all_queries(world: Workspace) -> None:
    """The last batch has one query alone."""
    metrics = train(world, replace(SHORT, held_out=0.0, limit=41)).metrics
    right = sum((batch.accuracy or 0.0) * queries for batch, queries in zip(metrics.batches, (20, 20, 1), strict=True))
    assert metrics.best.accuracy == pytest.approx(right / 41) and len({batch.accuracy for batch in metrics.batches}) > 1


def test_nothing_is_chosen_by_a_training_of_which_most_is_missing(world: Workspace) -> None:
    """The last prompt of each query has two shots, of which none is answered."""
    backend, plan = _Flaky(), replace(SHORT, held_out=0.0)
    with pytest.raises(LLMError, match="60 of 60 prompts got no answer or verdict") as stopped:
        RankerTraining.prepare(LLMClient(world, backend, with_k(2)), plan).ask(Budget())
    assert "run the same command again" in (stopped.value.fix or "") and runs.runs(world)[0].status == "failed"
    again = Scripted()
    RankerTraining.prepare(LLMClient(world, again, with_k(2)), plan).ask(Budget())
    assert again.asked and all(prompt.demonstrations for prompt in again.asked), "what was answered is kept"


def test_errors_come_before_the_first_call(world: Workspace, tmp_path: Path) -> None:
    backend = Scripted()
    with pytest.raises(UsageError, match="k = 0"):
        RankerTraining.prepare(LLMClient(world, backend, with_k(0)))
    with pytest.raises(UsageError, match="has been trained"):
        Selector(world, "ranker", settings=SETTINGS).select("topic1term3")
    assert not backend.asked


def test_events_tell_where_it_stands(world: Workspace) -> None:
    events: list[Event] = []
    RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5), Monitor(events.append)), SHORT).ask(Budget())
    mine = [event for event in events if event.task == "train"]
    assert mine[-1].done == mine[-1].total
    assert {"loss", "sigma", "shots", "accuracy"} <= set(mine[0].fields)


def test_sigma_starts_anew_each_epoch(world: Workspace) -> None:
    batches = train(world, replace(PRINTED, epochs=3, batch=8, patience=9)).metrics.batches
    firsts = {epoch: next(b for b in batches if b.epoch == epoch) for epoch in {b.epoch for b in batches}}
    assert len(firsts) == 3 and any(b.sigma > 0 for b in batches)
    assert all(b.sigma == 0 and b.shots == 8 * 15 for b in firsts.values())


def test_without_the_threshold_every_query_is_asked_with_all_shots(world: Workspace) -> None:
    batches = train(world).metrics.batches
    assert {b.sigma for b in batches} == {0.0}
    assert sum(b.shots for b in batches) == 48 * 15  # a fifth of 60 queries is held out


def test_nothing_is_asked_for_a_query_without_a_shot(world: Workspace) -> None:
    training = RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5)), SHORT)
    which = training.core.train[:20]
    policy = training.core.features.start()
    candidates, scores = training.scored(policy, which)
    sigma = float(np.sort(scores.max(axis=1))[10])  # 11 queries have nothing above it
    planned = list(training.planned_requests(which, 0, sigma, policy, candidates, scores))
    assert [len(asked) for chosen, asked in planned if not len(chosen)] == [0] * 11
    assert all(len(asked) == len(chosen) + 1 for chosen, asked in planned if len(chosen))


def test_held_out_queries_are_not_learnt_from(world: Workspace) -> None:
    training = RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5)), replace(SHORT, epochs=2))
    held_out = {training.core.queries[i].row for i in training.core.held_out}
    out = training.ask(Budget())
    with world.read() as con:
        learnt_from = {q for (q,) in con.execute("SELECT query FROM ranker_steps WHERE run = ?", [out.run]).fetchall()}
    assert len(held_out) == out.metrics.held_out_queries == 12
    assert len(learnt_from) > 30 and not learnt_from & held_out


class _Steady(Scripted):
    """Right whatever is shown: no epoch is better than another."""

    def answer(self, prompt: Any) -> str:
        return "yes" if prompt.query.id.startswith("easy") else "no"


@pytest.mark.parametrize(("right", "kept"), [((6, 7, 7, 6), 2), ((6, 6, 5, 6), 0), ((6, 5, 7, 6), 2)])
def test_of_equal_epochs_the_later_is_kept_but_none_that_only_equals_the_start(
    world: Workspace, monkeypatch: pytest.MonkeyPatch, right: tuple[int, ...], kept: int
) -> None:
    training = RankerTraining.prepare(LLMClient(world, Scripted(), with_k(2)), SHORT)
    learning = Learning(training, 0, Budget(), training.grader, training.core.start(), Adam(0.1))
    held_out = len(training.core.held_out)
    for epoch, count in enumerate(right):
        shown = [Mark("right")] * count + [Mark("wrong")] * (held_out - count)
        monkeypatch.setattr(Learning, "marks", lambda *_, shown=shown: [Mark("wrong")] * held_out + shown)
        learning._measure_epoch(epoch)
    assert learning.measured is not None and learning.measured.epoch == kept


@pytest.mark.parametrize(("least", "accuracy"), [(0.39, 1.0), (0.4, 1.0), (0.41, 0.0)])
def test_free_text_is_right_from_the_threshold_of_rouge_on(world: Workspace, least: float, accuracy: float) -> None:
    settings = replace(with_k(2), metric="rouge-l", least=least)
    training = RankerTraining.prepare(LLMClient(world, Scripted(), settings), SHORT)
    learning = Learning(training, 0, Budget(), training.grader, training.core.start(), Adam(0.1))
    (mark,) = learning.marks(np.array([0]), [Answer("yes indeed it is")])
    assert mark.right == bool(accuracy)
    assert Rollout(np.array([0]), np.array([1.0]), [mark]).rewards.tolist() == pytest.approx([2 * 0.4 - 1])


class _Wordy(Scripted):
    def answer(self, prompt: Any) -> str:
        return "yes indeed it is"  # ROUGE-L with "yes": 2 · 1 / (4 + 1) = 0.4


@pytest.mark.parametrize(
    ("metric", "least", "value", "easy"),
    [("accuracy", 0.1, 1.0, 4), ("rouge-l", 0.4, 0.4, 4), ("rouge-l", 0.5, 0.4, 0), ("squad-em", 0.4, 0.0, 0)],
)
def test_evaluation_goes_by_the_metric(world: Workspace, metric: str, least: float, value: float, easy: int) -> None:
    plan = EvaluationPlan(methods=("bm25",), seeds=1, limit=4)
    settings = replace(with_k(2), metric=metric, least=least)
    report = Evaluation.prepare(LLMClient(world, _Wordy(), settings), plan).ask(Budget())
    assert (report.methods["bm25"].accuracy, report.easy_queries) == (pytest.approx(value), easy)
    assert metric == "accuracy" or report.setup.metric == metric


def test_a_trained_baseline_is_what_a_method_is_compared_with(world: Workspace) -> None:
    train(world)
    train(world, replace(SHORT, method="promptpg"))
    plan = EvaluationPlan(methods=("promptpg", "ranker"), seeds=1, limit=8)
    found = Evaluation.prepare(LLMClient(world, Scripted(), with_k(2)), plan).ask(Budget()).methods
    assert found["ranker"].versus is not None and found["ranker"].versus.method == "promptpg"
    assert found["promptpg"].versus is None


class _NoZeroShot(Scripted):
    """Does not answer one query without demonstrations."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self.query = query

    async def ask(self, requests: Any) -> list[Result]:
        asked: list[Request] = list(requests)
        found = await super().ask(asked)
        pairs = zip(asked, found, strict=True)
        return [
            Failure("missing", "no")
            if not request.prompt.demonstrations and request.prompt.query.input == self.query
            else result
            for request, result in pairs
        ]


def test_a_query_whose_zero_shot_call_failed_is_not_hard(world: Workspace) -> None:
    plan = EvaluationPlan(methods=("bm25",), seeds=1)
    whole = Evaluation.prepare(LLMClient(world, Scripted(), with_k(3)), plan)
    silent = _NoZeroShot(whole.queries[0].input)
    report = Evaluation.prepare(LLMClient(world, silent, with_k(3)), plan).ask(Budget())
    assert report.easy_queries + report.hard_queries == len(whole.queries) - 1
    both = whole.ask(Budget())  # asks what is missing
    assert both.easy_queries + both.hard_queries == len(whole.queries)
    assert report.methods["bm25"].accuracy == both.methods["bm25"].accuracy


def test_several_seeds_are_trained_at_once_and_share_answers(world: Workspace) -> None:
    backend = Scripted()
    done = SeededTraining.prepare(LLMClient(world, backend, with_k(5, seed=4)), SHORT, 2).ask(Budget())
    assert [each.seed for each in done.seeds] == [4, 5]
    assert (done.run, done.usage.calls - done.usage.cached_calls) == (done.seeds[0].run, len(backend.asked))
    assert [latest(world, llm="scripted", seed=seed) for seed in (4, 5)] == [each.run for each in done.seeds]
    assert weights(world, done.seeds[0].run) == weights(world, train(world, seed=4).run)
    assert RankerSeeds.from_json(done.as_json()) == done
    found = Evaluation.prepare(
        LLMClient(world, Scripted(), with_k(5, seed=4)), EvaluationPlan(methods=("ranker",), seeds=2)
    ).ask(Budget())
    assert found.methods["ranker"].seeds == 2


@pytest.mark.parametrize("ranking", ["bm25", "dense", "both"])
def test_selection_uses_the_candidates_of_training(world: Workspace, ranking: Any) -> None:
    inputs = Inputs(6, ranking, "row", temperature=0.2)
    out = train(world, replace(SHORT, inputs=inputs, sources=False))
    _, metadata = load(folder_of(world, out.run))
    assert metadata.inputs == inputs
    asked = queries_of(world, "test", 12)
    for name in ("ranker", "ranker-untrained"):
        selector = Selector(world, name, settings=with_k(6))
        view = selector.view
        bm25, dense = ([rows.tolist() for rows, _ in top(asked, 6)] for top in (view.bm25_top, view.dense_top))
        for chosen, words, near in zip(selector.picks(asked), bm25, dense, strict=True):
            rows = {pick.row for pick in chosen}
            assert len(rows) == 6
            assert rows <= {"bm25": set(words), "dense": set(near), "both": {*words, *near}}[ranking]
            assert {words[0], near[0]} <= rows or ranking != "both"


def test_the_untrained_ranker_is_the_start_of_training(world: Workspace) -> None:
    asked = queries_of(world, "test", 20)
    before = Selector(world, "ranker-untrained", settings=with_k(5)).picks(asked)
    train(world, replace(SHORT, inputs=Inputs(9, "bm25"), epochs=2))
    after = Selector(world, "ranker-untrained", settings=with_k(5)).picks(asked)
    near = Selector(world, "dense", settings=with_k(5)).picks(asked)
    # by cosine among the nearest, as the start keeps similarity, and then among the candidates of the training
    assert [[p.row for p in picks] for picks in before] == [[p.row for p in picks] for picks in near]
    assert [[p.row for p in picks] for picks in before] != [[p.row for p in picks] for picks in after]
    plan = EvaluationPlan(methods=("ranker", "ranker-untrained"), seeds=3, limit=5)
    found = Evaluation.prepare(LLMClient(world, Scripted(), with_k(5)), plan).ask(Budget()).methods
    assert found["ranker-untrained"].seeds == 1


def test_a_random_start_depends_on_the_seed_alone(world: Workspace) -> None:
    inputs = Inputs(start="random")
    one, again, other = (
        RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5)), replace(SHORT, inputs=inputs), seed)
        .core.start()
        .weight
        for seed in (1, 1, 2)
    )
    assert (one == again).all() and not (one == other).any()
    assert np.abs(one).max() <= one.shape[1] ** -0.5


def test_a_source_that_misleads_is_learnt_from_its_indicator_alone(world: Workspace) -> None:
    """Embeddings say nothing of the kind here; who wrote a row does."""
    hidden = make_world(world.path.parent / "hidden", pool=240, validation=60, test=40, visible=0.0)
    with hidden.write() as con:
        con.execute("UPDATE demonstrations SET source = split_part(id, '-', 1) WHERE split = 'pool'")

    def misleading(plan: RankerPlan) -> float:
        train(hidden, plan)
        picks = Selector(hidden, "ranker", settings=with_k(5))
        chosen = picks.select_many(queries_of(hidden, "test"))
        return float(np.mean([s.demonstration.source == "misleading" for shots in chosen for s in shots]))

    plan = replace(SHORT, epochs=4, threshold=False, rate=0.01, held_out=0.0)
    assert misleading(plan) < 0.1 < 0.15 < misleading(replace(plan, sources=False))


# what is learnt


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, list[RankerMetrics]]]:
    """A bigger world, trained with three seeds by both methods."""
    world = Workspace.open(copied(tmp_path_factory.mktemp("world") / "w", "learnt rankers", _learn))
    trained = [RankerRun.from_json(run.summary).metrics for run in reversed(runs.runs(world))]
    return world, {method: [each for each in trained if each.method == method] for method in ("ranker", "promptpg")}


def _learn(path: Path) -> None:
    world = make_world(path, pool=360, validation=150, test=160, seed=1)
    for seed in range(3):
        train(world, replace(PRINTED, epochs=5), seed=seed)
        train(world, RankerPlan(method="promptpg", epochs=1), seed=seed)


def test_the_ranker_beats_bm25_most_of_all_on_hard_queries(learnt: tuple[Workspace, Any]) -> None:
    world, _ = learnt
    plan = EvaluationPlan(methods=("random", "bm25", "dense", "ranker"), seeds=3)
    found = Evaluation.prepare(LLMClient(world, Scripted(), with_k(5)), plan).ask(Budget()).methods
    for other in ("random", "bm25", "dense"):
        assert found["ranker"].accuracy > found[other].accuracy + 0.1
        assert found["ranker"].hard > found[other].hard + 0.15
    assert found["ranker"].easy >= found["bm25"].easy


def test_a_pass_takes_fewer_shots_than_promptpgs(learnt: tuple[Workspace, Any]) -> None:
    """The paper's figure 8 counts one epoch; over all seeds here."""
    _, metrics = learnt
    own, other = (
        sum(batch.shots for run in metrics[method] for batch in run.batches if batch.epoch == 0)
        for method in ("ranker", "promptpg")
    )
    assert own < other


def test_helpful_ones_come_first_and_misleading_ones_last(learnt: tuple[Workspace, Any]) -> None:
    world, _ = learnt
    selector = Selector(world, "ranker", 20, settings=with_k(20))
    with world.read() as con:
        rows = con.execute("SELECT row, input FROM demonstrations WHERE split = 'test'").fetchall()
    places: dict[str, list[int]] = {"helpful": [], "misleading": []}
    for chosen in selector.select_many([Query(text, row=row) for row, text in rows]):
        for place, shot in enumerate(chosen):
            kind = shot.demonstration.id.split("-")[0]
            places.setdefault(kind, []).append(place)
    assert np.mean(places["helpful"]) + 3 < np.mean(places["misleading"])


def test_selection_says_why(learnt: tuple[Workspace, Any]) -> None:
    world, _ = learnt
    with world.read() as con:
        row, text = con.execute("SELECT row, input FROM demonstrations WHERE split = 'test' LIMIT 1").fetchone() or ()
    chosen = Selector(world, "ranker", settings=with_k(5)).select(Query(text, row=row))
    scores = [shot.score for shot in chosen]
    assert len(chosen) == 5
    assert scores == sorted(scores, reverse=True)
    assert all(shot.parts["policy"] == shot.score and shot.parts["bm25"] > 0 for shot in chosen)


def test_each_seed_selects_with_its_own_run(learnt: tuple[Workspace, Any]) -> None:
    world, _ = learnt
    done = {run.settings["seed"]: run.run for run in runs.runs(world, "train-ranker")}
    for seed, run in done.items():
        assert latest(world, llm="scripted", seed=seed) == run
    assert latest(world, llm="scripted", seed=99) == max(done.values())


def test_seeds_that_share_a_policy_are_evaluated_once(learnt: tuple[Workspace, Any]) -> None:
    world, _ = learnt
    trained = sorted({run.settings["seed"] for run in runs.runs(world, "train-ranker")})
    settings = replace(with_k(3), llm="scripted", seed=trained[0])
    count = trained[-1] - trained[0] + 4
    plan = EvaluationPlan(methods=("ranker", "random"), seeds=count, limit=10)
    found = Evaluation.prepare(LLMClient(world, Scripted(), settings), plan).ask(Budget()).methods
    # beyond the seeds trained, all would select with the policy of the latest run
    assert (found["ranker"].seeds, found["random"].seeds) == (len(trained), count)
    assert found["ranker"].usage.calls == 10 * len(trained)


def test_an_evaluation_on_the_queries_of_training_says_so(learnt: tuple[Workspace, Any], capsys: Any) -> None:
    world, _ = learnt
    for split, wanted in (("validation", ("ranker",)), ("test", ())):
        plan = EvaluationPlan(methods=("bm25", "ranker"), seeds=1, limit=6, split=split)  # type: ignore[arg-type]
        report = Evaluation.prepare(LLMClient(world, Scripted(), with_k(3)), plan).ask(Budget())
        assert report.trained_on == wanted == EvaluationReport.from_json(report.as_json()).trained_on
        show_evaluation(report)
        assert ("too good: ranker" in " ".join(capsys.readouterr().out.split())) == bool(wanted)


def test_a_ranker_moves_to_another_workspace(learnt: tuple[Workspace, Any], tmp_path: Path) -> None:
    world, _ = learnt
    other = make_world(tmp_path / "other", pool=240, validation=40, test=120, seed=1)
    run = import_ranker(other, world.path, with_k(5))
    source = latest(world, llm="scripted")
    assert source is not None
    assert load(folder_of(other, run))[0].weight.tobytes() == load(folder_of(world, source))[0].weight.tobytes()
    plan = EvaluationPlan(methods=("bm25", "ranker"), seeds=1)
    found = Evaluation.prepare(LLMClient(other, Scripted(), with_k(5)), plan).ask(Budget()).methods
    assert found["ranker"].accuracy > found["bm25"].accuracy


def test_rankers_of_another_workspace_are_evaluated_beside_those_trained_here(
    learnt: tuple[Workspace, Any], tmp_path: Path, capsys: Any
) -> None:
    world, _ = learnt
    here = make_world(tmp_path / "here", pool=240, validation=40, test=60, seed=1)
    plan = EvaluationPlan(methods=("bm25", "ranker"), seeds=3, limit=20, transfer=world.path)
    with pytest.raises(UsageError, match="no ranker has been trained yet"):
        Evaluation.prepare(LLMClient(here, Scripted(), with_k(5)), plan)
    alone = Evaluation.prepare(LLMClient(here, Scripted(), with_k(5)), replace(plan, methods=("bm25",))).ask(Budget())
    assert alone.transfer and (alone.transfer.workspace, alone.transfer.versus) == (str(world.path), None)
    train(here)
    report = Evaluation.prepare(LLMClient(here, Scripted(), with_k(5)), plan).ask(Budget())
    moved, own = report.methods["ranker-transfer"], report.methods["ranker"]
    assert (moved.seeds, own.seeds) == (3, 1)  # the seeds trained there, and here
    assert moved.accuracy == alone.methods["ranker-transfer"].accuracy
    for seed in range(3):  # each seed as if its ranker had been imported
        copied = Workspace.open(Path(shutil.copytree(here.path, tmp_path / f"copy{seed}")))
        import_ranker(copied, world.path, with_k(5, seed=seed))
        with here.read() as con:
            stored = dict(
                con.execute(
                    "SELECT row, demonstrations FROM evaluations WHERE run = ? AND method = ? AND seed = ?"
                    " ORDER BY row",
                    [report.run, "ranker-transfer", seed],
                ).fetchall()
            )
        picked = Selector(copied, "ranker", 5, settings=with_k(5, seed=seed)).picks(queries_of(copied, "test", 20))
        assert [*stored.values()] == [[pick.row for pick in chosen] for chosen in picked]
    versus = report.transfer.versus if report.transfer else None
    assert versus and versus.method == "ranker"
    assert versus.difference == pytest.approx(moved.accuracy - own.accuracy)
    assert len(runs.runs(here, "train-ranker")) == 1  # nothing was imported
    assert EvaluationReport.from_json(report.as_json()) == report
    show_evaluation(report)
    assert "against ranker, trained here" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UsageError, match="is this workspace"):
        Evaluation.prepare(LLMClient(here, Scripted(), with_k(5)), replace(plan, transfer=here.path))
    empty = make_world(tmp_path / "empty", pool=240, validation=40, test=60, seed=1)
    with pytest.raises(UsageError, match="no ranker has been trained in"):
        Evaluation.prepare(LLMClient(here, Scripted(), with_k(5)), replace(plan, transfer=empty.path))


def test_a_ranker_of_another_encoder_is_refused(learnt: tuple[Workspace, Any], tmp_path: Path) -> None:
    world, _ = learnt
    run = latest(world)
    assert run is not None
    source = folder_of(world, run)
    metadata = (source / "ranker.json").read_text().replace('"encoder": "world"', '"encoder": "other"')
    (tmp_path / "ranker.json").write_text(metadata)
    (tmp_path / "ranker.safetensors").write_bytes((source / "ranker.safetensors").read_bytes())
    with pytest.raises(UsageError, match="other"):
        import_ranker(world, tmp_path, with_k(5))
    with pytest.raises(UsageError, match="no usable ranker"):
        import_ranker(world, tmp_path / "nothing", with_k(5))


# what was kept, and how it is told


class _Failing(Scripted):
    """Right as long as the start is measured on the 12 held-out queries, with no shots and with its own."""

    def answer(self, prompt: Any) -> str:
        return "yes" if len(self.asked) <= 24 else "no"


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("backend", [_Steady, _Failing])
def test_a_start_that_nothing_improved_is_told_as_one(
    world: Workspace, backend: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    """Either every gradient is zero, or the start answers best."""
    out = train(world, replace(SHORT, credit="reward" if backend is _Failing else "gain"), backend(12))
    assert out.metrics.untrained and RankerRun.from_json(out.as_json()).metrics.untrained
    assert out.metrics.best.epoch == 0
    show_ranker(out)
    assert "untrained start kept, held-out accuracy" in told(capsys)
    plan = EvaluationPlan(methods=("bm25", "ranker"), seeds=1, limit=4)
    report = Evaluation.prepare(LLMClient(world, Scripted(), with_k(5)), plan).ask(Budget())
    assert report.untrained == ("ranker",) == EvaluationReport.from_json(report.as_json()).untrained
    show_evaluation(report)
    assert "untrained start kept: ranker" in told(capsys)


def test_a_ranker_that_learnt_is_not_told_as_its_start(world: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    out = train(world, replace(SHORT, held_out=0.0))
    assert out.metrics.untrained is False
    show_ranker(out)
    shown = told(capsys)
    assert "epoch 1 kept, training accuracy" in shown and "held-out" not in shown
    plan = EvaluationPlan(methods=("ranker",), seeds=1, limit=4)
    assert Evaluation.prepare(LLMClient(world, Scripted(), with_k(5)), plan).ask(Budget()).untrained == ()


def test_few_held_out_queries_are_told_as_noise(world: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    out = train(world)
    accuracy = out.metrics.best.accuracy
    assert accuracy is not None and out.metrics.held_out_queries == 12
    show_ranker(out)
    shown = told(capsys)
    assert f"standard error {(accuracy * (1 - accuracy) / 12) ** 0.5:.3f}" in shown
    assert "12 held-out queries can choose an epoch by chance" in shown


def test_without_patience_no_epoch_is_left_out(world: Workspace) -> None:
    plan = replace(SHORT, epochs=4)
    assert [len(train(world, replace(plan, patience=n), _Steady()).metrics.epochs) for n in (2, 0)] == [3, 5]
    told: list[Event] = []
    client = LLMClient(world, _Steady(), with_k(5), Monitor(told.append))
    RankerTraining.prepare(client, replace(plan, patience=2)).ask(Budget())
    assert "stopped after epoch 2: no more gain; --patience 4 would go on" in [one.note for one in told]
    selected = train(world, replace(plan, held_out=0.0, patience=9), _Worsening()).metrics
    last = train(world, replace(plan, held_out=0.0, patience=0), _Worsening()).metrics
    assert selected.best.epoch < last.best.epoch == 4
    assert selected.best.accuracy is not None and last.best.accuracy is not None
    assert last.best.accuracy < selected.best.accuracy


class _Worsening(Scripted):
    """Right on the first prompts, whatever they show, and wrong on all later ones."""

    def answer(self, prompt: Any) -> str:
        return "yes" if len(self.asked) <= 300 else "no"


def test_a_collapse_is_told_with_its_epoch(world: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    out = train(world, replace(SHORT, epochs=2, rate=0.5, held_out=0.0, patience=0))
    assert out.metrics.collapsed and out.metrics.collapsed_in in (1, 2)
    for best, since in ((out.metrics.collapsed_in, "after"), (out.metrics.collapsed_in - 1, "before")):
        kept = replace(out.metrics, best=EpochAccuracy(best, 0.5))
        show_ranker(replace(out, metrics=kept))
        assert f"in epoch {out.metrics.collapsed_in}; what is kept is from {since} that" in told(capsys)


def test_the_command_trains_with_the_settings_of_the_plan_and_of_curate() -> None:
    command = get_command(app)
    for name in ("train", "ranker"):
        command = command.get_command(click.Context(command), name)  # type: ignore[union-attr, assignment]
    given = {option.name: option.default for option in command.params}  # type: ignore[union-attr]
    plan, inputs = RankerPlan(), RankerPlan().inputs
    assert (given["candidates"], given["preselect"]) == (inputs.ranking, inputs.candidates)
    assert (given["sees"], given["temperature"], given["start"]) == (inputs.sees, inputs.temperature, inputs.start)
    for option in ("epochs", "batch", "rate", "credit", "threshold", "trials", "held_out", "patience", "sources"):
        assert given[option] == getattr(plan, option), option
    free = RankerPlan(epochs=0, trials=RANKER.trials, rate=RANKER.rate)
    assert {field.name: getattr(free, field.name) for field in fields(RANKER)} == asdict(RANKER) | {"inputs": inputs}
