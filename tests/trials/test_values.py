"""Answers with values between 0 and 1, in trials and in what is learnt from them, against each formula written out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.ranker_world import Scripted, make_world, with_k
from factories.toggling import set_marginals
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.marks import Mark
from icl_curate.engine.papers.ranker.rollout import Rollout, gain_credit, stepwise_credit, threshold_after
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.pool.answers import token_f1
from icl_curate.engine.store import trials
from icl_curate.engine.store.trials import Trials
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.estimators import reliability
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from icl_curate.engine.trials.ranker_training import tried_rows
from icl_curate.engine.trials.results import SourceRun
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining, lists_of, tune
from icl_curate.engine.trials.votes import vote, vote_curve, vote_marginals
from icl_curate.render.learned import show_training

Items = list[list[tuple[str, float]]]
ITEMS = st.lists(st.lists(st.tuples(st.sampled_from("uvwxyz"), st.floats(0, 1)), max_size=9), min_size=1, max_size=5)


def _free(rows: Items) -> RankedLists:
    """Lists in which no two answers are the same."""
    names, values = ([[item[i] for item in row] for row in rows] for i in (0, 1))
    numbers = [range(len(row)) for row in rows]
    return replace(ranked_lists(names, numbers, values, names=list("uvwxyz")), voted=False)  # type: ignore[arg-type]


@given(rows=ITEMS, kept=st.sets(st.sampled_from("uvwxyz")), k=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_without_a_vote_the_first_k_count_by_their_mean(rows: Items, kept: set[str], k: int) -> None:
    lists, weights = _free(rows), np.array([0.2, 1.0, 3.0, 0.5, 2.0, 1.5])

    def mean(row: list[tuple[str, float]], left: set[str], weighted: bool) -> float:
        present = [(name, value) for name, value in row if name in left][:k]
        mass = [weights["uvwxyz".index(name)] * 0.7**i if weighted else 1.0 for i, (name, _) in enumerate(present)]
        return float(np.average([value for _, value in present], weights=mass)) if present else 0.0

    mask = np.array([name in kept for name in lists.names])
    assert vote(lists, k, mask).tolist() == pytest.approx([mean(row, kept, False) for row in rows])
    assert vote(lists, k, mask, weights, 0.7).tolist() == pytest.approx([mean(row, kept, True) for row in rows])
    curve = vote_curve(lists, np.arange(6), np.arange(7), [k, k + 20])
    for cut in range(7):
        assert curve[cut, 0].tolist() == pytest.approx([mean(row, set("uvwxyz"[cut:]), False) for row in rows])
    by_toggling = set_marginals(lambda present: float(vote(lists, k, present).mean()), 6)(mask)
    assert vote_marginals(lists, mask, k) == pytest.approx(by_toggling, abs=1e-12)


def _tried(answers: list[list[str]], values: list[list[float]]) -> Trials:
    flat = [value for row in values for value in row]
    queries = np.repeat(np.arange(len(answers)), [len(row) for row in answers])
    names = ["s" if i % 2 else "t" for i in range(len(flat))]
    keys = [answer for row in answers for answer in row]
    right = np.array([value >= 0.5 for value in flat])
    return Trials(1, queries, np.arange(len(flat)), names, keys, right, np.array(flat))


def test_answers_that_hardly_repeat_are_voted_on_only_if_they_are_right_or_wrong() -> None:
    free = [["a", "b", "c", "d"], ["e", "f", "g", "e"]]
    one_in_four = _tried(free, [[0.2, 0.9, 0.4, 0.0], [1.0, 0.3, 0.1, 1.0]])
    assert lists_of(one_in_four).repeated == 0.25
    assert lists_of(one_in_four).voted
    none = _tried([["a", "b", "c", "d"], ["e", "f", "a", "b"]], [[0.2, 0.9, 0.4, 0.0], [1.0, 0.3, 0.1, 1.0]])
    assert (lists_of(none).repeated, lists_of(none).voted) == (0.0, False)
    assert lists_of(none).utilities.tolist() == none.values.tolist()
    assert lists_of(_tried([["a", "b"], ["c", "d"]], [[0.0, 1.0], [1.0, 0.0]])).voted  # as before


def test_reliability_is_the_credibility_of_buhlmann_and_straub_for_any_values() -> None:
    draw = np.random.default_rng(5)
    own = {name: np.clip(draw.normal(level, 0.1, size), 0, 1) for name, level, size in
           (("a", 0.9, 4), ("b", 0.5, 9), ("c", 0.2, 30))}  # fmt: skip
    names = [name for name, values in own.items() for _ in values]
    flat = np.concatenate([*own.values()])
    lists = ranked_lists([names], [range(len(flat))], [flat.tolist()])  # type: ignore[list-item]
    n, means = np.array([len(v) for v in own.values()]), np.array([v.mean() for v in own.values()])
    likely = (flat.sum() + 0.5) / (len(flat) + 1)
    squares = sum(((v - v.mean()) ** 2).sum() for v in own.values())
    within = (squares + likely * (1 - likely)) / (len(flat) - 3 + 1)
    between = ((n * (means - flat.mean()) ** 2).sum() - 2 * within) / (len(flat) - (n**2).sum() / len(flat))
    wanted = flat.mean() + n / (n + within / between) * (means - flat.mean())
    assert reliability(lists).tolist() == pytest.approx(wanted.tolist())


def _graded(*values: float | None) -> list[Mark]:
    return [Mark("failed") if v is None else Mark("right" if v >= 0.5 else "wrong", grade=v) for v in values]


def test_rewards_are_2u_minus_1_and_turns_go_by_least() -> None:
    rollout = Rollout(np.array([2, 0, 1]), np.array([0.5, 0.3, 0.2]), _graded(0.6, 0.4, None, 1.0))
    assert rollout.rewards.tolist() == pytest.approx([0.2, -0.2, np.nan, 1.0], nan_ok=True)
    assert rollout.turns == [(True, False), (False, None), (None, True)]
    assert threshold_after(0.0, [rollout]) == 0.5
    assert stepwise_credit([rollout], 3)[0].tolist() == pytest.approx([0.0, 1.0, -0.2])
    assert gain_credit([rollout], 3)[0].tolist() == pytest.approx([0.0, 0.0, -0.4])


@given(st.lists(st.sampled_from(["right", "wrong", "unusable", "refused", "failed", "unjudged"]), min_size=1))
def test_right_and_wrong_give_the_credit_that_they_gave_before(states: list[Any]) -> None:
    """Before, rewards were 1, -1 and, where nothing was known, 0."""
    shots = len(states) - 1
    rollout = Rollout(np.arange(shots), np.ones(shots), [Mark(state) for state in states])
    rewards = [{"right": 1, "failed": 0, "unjudged": 0}.get(state, -1) for state in states]
    gains = [b - a if a and b else 0 for a, b in pairwise(rewards)]
    assert stepwise_credit([rollout], shots)[0].tolist() == [float(reward) for reward in rewards[1:]]
    assert gain_credit([rollout], shots)[0].tolist() == [float(gain) for gain in gains]


class _Free(Scripted):
    """Answers in words of its own: of a helpful row with few, of another with many."""

    def answer(self, prompt: Any) -> str:
        if not prompt.demonstrations:
            return "no"
        (shot, *_) = prompt.demonstrations
        more = f"in view of {shot.id}" if shot.id.startswith("helpful") else f"maybe if we look at {shot.id} only"
        return f"yes {more}"


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    made = make_world(tmp_path / "w", pool=60, validation=12, test=1)
    with made.write() as con:
        con.execute("UPDATE demonstrations SET source = split_part(id, '-', 1) WHERE split = 'pool'")
        con.execute(
            "UPDATE meta SET value = 'open' WHERE key = 'task'"
        )  # the texts are the answers, not a label in them
    return made


PLAN = SourcePlan(depth=8)


def _train(world: Workspace, metric: str, backend: Scripted, events: list[Event] | None = None) -> int:
    llm = LLMClient(world, backend, with_k(3, metric=metric), Monitor((events if events is not None else []).append))
    return SourceTraining.prepare(llm, PLAN).ask(Budget()).run


def test_the_judge_of_trials_is_in_the_plan_and_in_the_result(
    world: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = Scripted()
    judge.spec = "judge"
    judge.answer = lambda prompt: "yes" if "in view" in prompt.text else "no"  # type: ignore[method-assign]
    settings = with_k(3, metric="judge", judge_llm="judge")
    llm = LLMClient(world, _Free(), settings, judge=LLMClient(world, judge, with_k(3)))
    training = SourceTraining.prepare(llm, PLAN)
    assert training.cost().requests == 2 * 12 * 8  # an answer, and a verdict on it
    done, again = training.ask(Budget()), training.ask(Budget(max_calls=0))
    for told, cached in ((done.metrics.judge, 0), (again.metrics.judge, 12 * 8)):
        assert told and (told.llm, told.unjudged, told.usage.calls, told.usage.cached_calls) == ("judge", 0, 96, cached)
    assert SourceRun.from_json(done.as_json()) == done
    show_training(done)
    assert "judged by judge: 96 verdicts asked, 0 of them cached" in " ".join(capsys.readouterr().out.split())
    show_training(replace(done, metrics=replace(done.metrics, worth_it=False)))
    assert capsys.readouterr().out.endswith("significantly; icl-curate tune vote tries pruning alone\n")


def test_another_metric_grades_the_same_answers_anew_without_a_call(world: Workspace) -> None:
    backend, events = _Free(), list[Event]()
    exact = _train(world, "accuracy", backend)
    asked = len(backend.asked)
    assert asked == 12 * 8
    assert not trials.latest(world).values.any()  # type: ignore[union-attr]  # no answer is "yes" alone
    graded = _train(world, "f1", backend, events)
    assert len(backend.asked) == asked
    found = trials.latest(world)
    assert found is not None and found.run == graded != exact
    rows = found.rows.tolist()
    with world.read() as con:
        ids = dict(con.execute("SELECT row, id FROM demonstrations").fetchall())
    texts = [
        f"yes in view of {ids[row]}" if ids[row].startswith("helpful") else f"yes maybe if we look at {ids[row]} only"
        for row in rows
    ]
    assert found.values.tolist() == [token_f1(text, ["yes"]) for text in texts]
    assert not found.right.any()  # none reaches .5
    assert any("no vote" in event.note for event in events)
    told = {row.source: row.accuracy for row in trials.source_summaries(world)}
    assert told["helpful"] == pytest.approx(token_f1("yes in view of x", ["yes"]))
    tuned = tune(world, with_k(3, metric="f1"))
    assert tuned.run == graded and 0 < tuned.validation_before < 0.5
    assert tune(world, with_k(3)).run == exact  # of each grading its own run
    again = _train(world, "accuracy", backend)  # the grading of the latest run counts, whatever was asked before
    assert trials.latest(world).run == again  # type: ignore[union-attr]
    assert len(backend.asked) == asked


def test_a_ranker_learns_from_trials_of_its_own_grading_alone(world: Workspace) -> None:
    backend = _Free()
    _train(world, "f1", backend)
    found = trials.latest(world)
    assert found is not None
    llm = LLMClient(world, backend, with_k(3, metric="f1"))
    tried = {each.query: each for each in tried_rows(llm, np.arange(1000))}
    for query, own in tried.items():
        assert own.rewards.tolist() == (2 * found.values[found.queries == query] - 1).tolist()
    free = RankerPlan(trials=3, epochs=0)
    assert RankerTraining.prepare(llm, free).ask(Budget()).metrics.kept_pass == 3
    for changes in ({"metric": "accuracy"}, {"metric": "f1", "least": 0.3}, {"metric": "f1", "read": "line"}):
        with pytest.raises(UsageError, match="were graded with") as error:
            RankerTraining.prepare(LLMClient(world, backend, with_k(3, **changes)), free)
        assert "icl-curate train sources --llm scripted" in error.value.fix


def test_a_ranker_trained_on_real_values_tells_means_and_flips_by_least(tmp_path: Path) -> None:
    class Half(Scripted):
        def answer(self, prompt: Any) -> str:
            return "yes and more" if super().answer(prompt) == "yes" else "yes and much more than that"

    graded = {}
    for least in (0.4, 0.5, 0.9):  # F1 of .5 and .286
        world = make_world(tmp_path / f"w{least}", pool=60, validation=40, test=1)
        llm = LLMClient(world, Half(), with_k(2, metric="f1", least=least))
        graded[least] = RankerTraining.prepare(llm, RankerPlan(epochs=1)).ask(Budget()).metrics
        shots = graded[least].accuracy_by_shots["0"]
        with world.read() as con:
            steps = con.execute("SELECT before, after, answer_before, answer_after FROM ranker_steps").fetchall()
        assert all((a, b) == (least < 0.6 and x.endswith("more"), least < 0.6 and y.endswith("more"))
                   for a, b, x, y in steps)  # fmt: skip
        assert 2 / 7 < shots < 0.5
        assert graded[least].best.accuracy is not None and 2 / 7 <= graded[least].best.accuracy <= 0.5
    assert graded[0.4].batches == graded[0.5].batches
    assert sum(batch.helped or 0 for batch in graded[0.5].batches) > 0
    assert not any(batch.helped or batch.hurt for batch in graded[0.9].batches)
    assert [b.loss for b in graded[0.9].batches] == [b.loss for b in graded[0.5].batches]  # rewards are the values
