"""Answers graded by a metric with values between 0 and 1, or by a judge: what goes by the value and what by least."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.calibrate_world import CAPITAL, COUNT, SCRIPT, SETTINGS, Scripted, ScriptedAnswer, workspace_of
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.grading.metrics import METRICS, metric_named
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Capabilities, Request, Result
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.finetune import fine_tuning_set
from icl_curate.engine.papers.calibrate.keys import KeyAblation
from icl_curate.engine.papers.calibrate.prompts import Case, Document
from icl_curate.engine.papers.calibrate.reports import comparison, report_of
from icl_curate.engine.papers.calibrate.results import ArmFigures, SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.rounds import Grades, QueryRounds, Round
from icl_curate.engine.pool.answers import token_f1
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Query, Task
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render import show
from icl_curate.render.jobs import BRIEF
from sklearn.metrics import brier_score_loss, roc_auc_score

PLAN = CalibrationPlan(rounds=2, split="validation")


def _arm(answers: Mapping[str, list[tuple[str, float]]], grades: Grades, rounds: int = 1) -> ArmFigures:
    every = []
    for name, said in answers.items():
        query = Query(name, answers=("the red car",), id=name)
        case = Case(query, (Document("1", "x"),), "documents")
        done = [Round(i, Prompt((), query), text, unsure, 0.0) for i, (text, unsure) in enumerate(said)]
        every.append(QueryRounds(case, "full", (), done))
    return report_of({"full": every}, grades, rounds).arms["full"]


SAID: Mapping[str, list[tuple[str, float]]] = {
    "a": [("red car", 0.1), ("blue car", 0.2)],  # F1 of 1 and 1/2 against "red car", as SQuAD drops the article
    "b": [("blue car", 0.3), ("red car", 0.25)],
    "c": [("a car", 0.4), ("bus", 0.7)],
    "d": [("no idea at all", 0.8), ("nothing", 0.9)],
}


@pytest.mark.parametrize("least", [0.4, 0.6, 0.9])
def test_figures_take_the_value_and_views_of_right_and_wrong_take_least(least: float) -> None:
    arm = _arm(SAID, Grades(Task("open"), metric_named("f1", least)))
    finals = [min(said, key=lambda each: each[1]) for said in SAID.values()]
    values = np.array([token_f1(text, ["the red car"]) for text, _ in finals])
    unsure = np.array([uncertainty for _, uncertainty in finals])
    assert values.tolist() == pytest.approx([1, 1, 2 / 3, 0])
    right = values >= least
    assert arm.accuracy == pytest.approx(values.mean())
    assert arm.brier == pytest.approx(np.mean((1 - unsure - values) ** 2))
    assert arm.auroc == pytest.approx(roc_auc_score(~right, unsure))
    assert (arm.right.count, arm.wrong.count) == (right.sum(), (~right).sum())
    error = sum(abs(float(is_right) - (1 - u)) for is_right, u in zip(right, unsure, strict=True)) / 4
    assert arm.reliability.error == pytest.approx(error)  # each answer has a bin of its own
    (turns,) = arm.transitions
    marks = [[token_f1(text, ["the red car"]) >= least for text, _ in said] for said in SAID.values()]
    assert turns.right_wrong.queries == marks.count([True, False])
    assert turns.wrong_right.queries == marks.count([False, True])
    assert turns.right_right.queries == marks.count([True, True])
    assert arm.outcomes is not None and arm.outcomes.right == right.sum()


def test_of_right_and_wrong_answers_the_brier_score_is_the_usual_one() -> None:
    arm = _arm({name: said[:1] for name, said in SAID.items()}, Grades(Task("open")), 0)
    right = [True, False, False, False]
    assert arm.accuracy == 0.25
    assert arm.brier == pytest.approx(brier_score_loss(right, [0.9, 0.7, 0.6, 0.2]))


def test_every_metric_says_what_the_same_answer_is() -> None:
    """Rounds settle, and the majority is taken, by the metric's own key."""
    query = Query("q", answers=('{"a": 1, "b": 2}',))
    grades = Grades(Task("open"), metric_named("json-f1"))
    rounds = QueryRounds(Case(query, (), "documents"), "vote")
    texts = ['{"b": 2, "a": 1}', '{"a": 3}', '{"a":1,"b":2}']
    for i, text in enumerate(texts):
        rounds.take(Round(i, Prompt((), query), text, 0.5, 50.0), grades, 1.0)
    assert not rounds.stopped
    chosen = rounds.final(grades)
    assert chosen is not None and chosen.round == 0  # two of three say the same
    rounds.take(Round(3, Prompt((), query), '{"a": 1, "b": 2.0}', 0.5, 50.0), grades, 1.0)
    assert rounds.stopped
    assert {"f1", "json-f1"} <= set(METRICS)


def _run(
    workspace: Workspace, script: Mapping[tuple[str, object], ScriptedAnswer], judge: Any = None, **changes: Any
) -> SetCalibration:
    settings = replace(SETTINGS, **changes)
    own = LLMClient(workspace, judge, SETTINGS) if judge else None
    llm = LLMClient(workspace, Scripted(script), settings, judge=own)
    done = Calibration.prepare(llm, queries_of(workspace, "validation"), PLAN).ask(Budget())
    assert isinstance(done, SetCalibration)
    return done


LONG = {**SCRIPT, ("capital", 0): ("Oslo by the sea", 0.9), ("count", 0): ("five legs", 0.9)}


def test_what_is_stored_has_the_value_and_no_two_gradings_are_compared(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w")
    exact, graded = _run(workspace, LONG), _run(workspace, LONG, metric="f1", least=0.6)
    first = {query.id: query.rounds[0] for query in graded.queries}
    f1 = {"capital": 1 / 2, "count": 2 / 3}
    assert {name: round_.value for name, round_ in first.items()} == pytest.approx(f1)
    assert {name: round_.correct for name, round_ in first.items()} == {"capital": False, "count": True}
    assert exact.figures.arms["full"].accuracy == 0.0
    assert exact.figures.hint and exact.figures.hint.startswith("token F1 is 0.58") and graded.figures.hint is None
    assert graded.figures.arms["full"].accuracy == pytest.approx(np.mean([*f1.values()]))
    (told,) = comparison(workspace, "validation").runs
    assert (told.run, told.first.accuracy) == (graded.run, pytest.approx(np.mean([*f1.values()])))
    with workspace.read() as con:
        settings = con.execute(
            "SELECT settings ->> '$.graded_by.metric', settings ->> '$.graded_by.least' FROM runs"
        ).fetchall()
    assert settings == [("accuracy", "1.0"), ("f1", "0.6")]


class _Judge(Scripted):
    """Says yes to what holds Oslo, nothing about five, else no."""

    spec = "judge"

    async def probe(self) -> Capabilities:
        return Capabilities(logprobs=False, scoring=False, instructs=True)

    def _answer(self, request: Request) -> Result:
        said = request.prompt.text.rpartition("<answer id=")[2].partition("</answer")[0]
        return Answer("yes" if "Oslo" in said else "perhaps" if "five" in said else "no")


def test_a_judge_grades_rounds_is_planned_and_what_it_leaves_open_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, judge = workspace_of(tmp_path / "w"), _Judge({})
    settings = replace(SETTINGS, metric="judge")
    llm = LLMClient(workspace, Scripted(LONG), settings, judge=LLMClient(workspace, judge, SETTINGS))
    prepared = Calibration.prepare(llm, queries_of(workspace, "validation"), PLAN)
    plain = Calibration.prepare(
        LLMClient(workspace, Scripted(LONG), SETTINGS), queries_of(workspace, "validation"), PLAN
    )
    planned = prepared.cost().requests - plain.cost().requests
    done = prepared.ask(Budget())
    assert isinstance(done, SetCalibration)
    answers = {(query.id, round_.answer) for query in done.queries for round_ in query.rounds}
    assert len(judge.asked) == len(answers) <= planned
    correct = {(q.id, r.answer): r.correct for q in done.queries for r in q.rounds}
    assert correct == {
        ("capital", "Oslo by the sea"): True, ("capital", "Oslo"): True,
        ("count", "five legs"): None, ("count", "five"): None, ("count", "six"): False,
    }  # fmt: skip
    arm, told = done.figures.arms["full"], done.figures.judge
    assert arm.outcomes is not None and (arm.outcomes.right, arm.outcomes.unjudged) == (1, 1)
    assert (arm.accuracy, told and told.unjudged, told and told.usage.calls) == (1.0, 2, len(judge.asked))
    show(done.kind, done)
    assert f"judged by judge: {len(judge.asked)} verdicts asked" in " ".join(capsys.readouterr().out.split())
    with workspace.read() as con:
        stored = con.execute("SELECT DISTINCT answer, correct, value FROM calibration_rounds").fetchall()
    assert {answer: (right, value) for answer, right, value in stored} == {
        "Oslo by the sea": (True, 1.0), "Oslo": (True, 1.0), "five legs": (None, None), "five": (None, None),
        "six": (False, 0.0),
    }  # fmt: skip
    until = replace(PLAN, until_correct=True)
    with pytest.raises(UsageError, match="does not wait for a judge"):
        Calibration.prepare(llm, queries_of(workspace, "validation"), until)


def test_a_fine_tuning_set_learns_what_the_metric_or_the_judge_of_the_rounds_calls_right(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w")
    _run(workspace, LONG)

    def learnt(**changes: Any) -> tuple[list[str], list[str]]:
        """The queries whose first answer is kept, and those that a later round corrected."""
        examples = fine_tuning_set(workspace, "validation", replace(SETTINGS, **changes)).examples
        return [e.id for e in examples if not e.corrects], [e.id for e in examples if e.corrects]

    assert learnt() == ([], ["capital", "count"])
    assert learnt(metric="f1", least=0.5) == (["capital", "count"], [])
    assert learnt(metric="f1", least=0.6) == (["count"], ["capital"])
    with pytest.raises(UsageError, match="were not judged") as error:
        learnt(metric="judge")
    assert error.value.fix.endswith("--metric judge")
    _run(workspace, LONG, _Judge({}), metric="judge")
    assert learnt(metric="judge") == (["capital"], [])  # of the other it said nothing, or no


def test_tags_are_judged_by_the_metric_too(tmp_path: Path) -> None:
    workspace, judge = workspace_of(tmp_path / "w", [CAPITAL, COUNT]), _Judge({})

    def ablation(settings: Settings, own: LLMClient | None = None) -> KeyAblation:
        class Same(Scripted):
            def _answer(self, request: Request) -> Result:
                return Answer("Oslo by the sea" if request.prompt.query.id == "capital" else "six")

        llm = LLMClient(workspace, Same({}), settings, judge=own)
        return KeyAblation.prepare(llm, queries_of(workspace, "validation"), "validation")

    graded = ablation(replace(SETTINGS, metric="f1")).ask(Budget())
    assert [place.accuracy for place in graded.places] == pytest.approx([1 / 4] * 8)
    judged = ablation(replace(SETTINGS, metric="judge"), LLMClient(workspace, judge, SETTINGS))
    assert judged.cost().requests > ablation(SETTINGS).cost().requests
    assert {place.accuracy for place in judged.ask(Budget()).places} == {0.5}
    assert len(judge.asked) == 2


@pytest.mark.parametrize("command", ["calibrate", "calibrate query", "calibrate keys", "train calibration"])
def test_commands_take_the_grading(run: Run, command: str) -> None:
    told = run(*command.split(), "--help").out
    for name in ("--metric", "--least", "--read", "--judge-llm"):
        assert name in told


def test_a_group_without_a_verdict_ends_no_run(tmp_path: Path) -> None:
    rows = [CAPITAL | {"kind": "city"}, COUNT | {"kind": "number"}]
    workspace = workspace_of(tmp_path / "w", rows)
    llm = LLMClient(
        workspace, Scripted(LONG), replace(SETTINGS, metric="judge"), judge=LLMClient(workspace, _Judge({}), SETTINGS)
    )
    done = Calibration.prepare(llm, queries_of(workspace, "validation"), replace(PLAN, by="kind")).ask(Budget())
    assert isinstance(done, SetCalibration) and done.figures.by
    assert list(done.figures.by.groups) == ["city"]


def test_first_answers_of_a_group_are_of_no_later_round(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", [COUNT | {"kind": "number"}])
    script = LONG | {("count", 1): ("six", 0.95)}
    llm = LLMClient(
        workspace, Scripted(script), replace(SETTINGS, metric="judge"), judge=LLMClient(workspace, _Judge({}), SETTINGS)
    )
    done = Calibration.prepare(llm, queries_of(workspace, "validation"), replace(PLAN, by="kind")).ask(Budget())
    assert isinstance(done, SetCalibration) and done.figures.by
    of_numbers = done.figures.by.groups["number"].arms["full"]
    assert (of_numbers.first_accuracy, of_numbers.first_f1, of_numbers.accuracy) == (None, None, 0.0)
    assert BRIEF[done.kind](done) == "full: 0.000", "a job's line names no later round as the first answers"
    show(done.kind, done)


def test_a_round_without_a_verdict_has_no_figures(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", [COUNT])
    script = LONG | {("count", 1): ("six", 0.95)}
    done = _run(workspace, script, _Judge({}), metric="judge")
    assert [round_.round for round_ in done.figures.arms["full"].rounds] == [1, 2]
    assert "NaN" not in json.dumps(done.as_json())
