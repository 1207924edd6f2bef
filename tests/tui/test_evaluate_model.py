"""What the tab Evaluate knows, without an app: the run shown, the order of its methods, the queries of one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from factories.copies import indexed, lines
from icl_curate.engine.evaluate.results import (
    AS_INDEXED,
    KIND,
    EvaluationReport,
    MethodFigures,
    Setup,
    StoredEvaluation,
    Versus,
)
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.store import runs
from icl_curate.engine.store.runs import QueryOutcome
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.evaluate.model import (
    EvaluateData,
    EvaluateModel,
    MethodQueries,
    against,
    measured,
    query_line,
    read,
)
from icl_curate.tui.tabs.evaluate.tab import OutcomeOf, _text

SETUP = Setup("test", 40, 2, "openai:stub", "labels", "accuracy", "generate", 3, {}, "0")


def figures(accuracy: float, hard: float | None, versus: str | None) -> MethodFigures:
    return MethodFigures(
        accuracy=accuracy,
        std=0.0,
        ci95=(accuracy - 0.1, accuracy + 0.1),
        easy=accuracy,
        hard=hard,
        seeds=1,
        usage=Usage(40, 0, 0, 400, 40),
        shots=2.0,
        versus=Versus(versus, 0.1, 0.0, 0.2, 0.01, "mcnemar", 0.01) if versus else None,
    )


def kept(run: int) -> StoredEvaluation:
    methods = {"zero": figures(0.4, None, None), "bm25": figures(0.5, 0.3, "zero"), "ranker": figures(0.7, 0.2, "bm25")}
    return StoredEvaluation(started_at=datetime(2026, 5, run), report=EvaluationReport(run, SETUP, 11, 29, methods))


def ready(*numbers: int) -> EvaluateModel:
    model = EvaluateModel()
    model.found = EvaluateData([kept(number) for number in numbers], "evaluate")
    model.arrange(0)
    return model


def shown(model: EvaluateModel) -> int:
    assert model.run is not None
    return model.run.report.run


def names(model: EvaluateModel) -> list[str]:
    return [name for name, _ in model.rows]


def outcome(name: str, right: float, other: float) -> QueryOutcome:
    return QueryOutcome(0, name, f"input {name}", "w", right, "a", "", None, [], other, "b")


def test_steps_end_at_the_oldest_and_the_newest_run() -> None:
    model = ready(9, 7, 4)
    model.step(-1)
    assert shown(model) == 9
    for number in (7, 4, 4):
        model.step(1)
        assert shown(model) == number


def test_the_latest_stays_the_latest_and_another_stays_what_it_is() -> None:
    model = ready(7, 4)
    model.found = EvaluateData([kept(9), kept(7), kept(4)], "evaluate")
    assert shown(model) == 9
    model.choose(1)
    again = EvaluateModel()
    again.recall(json.loads(json.dumps(model.remember())))
    again.found = EvaluateData([kept(12), kept(9), kept(7)], "evaluate")
    assert shown(again) == 7
    again.found = EvaluateData([kept(12)], "evaluate")
    assert shown(again) == 12, "the one that was chosen is gone"
    assert EvaluateModel().run is None


def test_methods_are_sorted_with_what_has_no_figure_last_and_the_cursor_stays() -> None:
    model = ready(9)
    assert names(model) == ["ranker", "bm25", "zero"]
    assert model.sort_by("hard")
    assert model.arrange(0) == 1
    assert names(model) == ["bm25", "ranker", "zero"]
    model.sort_by("hard")
    model.arrange(1)
    assert names(model) == ["ranker", "bm25", "zero"]
    model.sort_by("method")
    assert not model.descending
    assert not model.sort_by("versus")
    assert model.copied().splitlines()[0] == "| method | accuracy | 95 % | easy | hard |"
    assert model.copied().splitlines()[-1].endswith("| – |")


def test_queries_are_those_of_the_method_against_its_baseline_and_read_once() -> None:
    model = ready(9, 7)
    request = model.look(0)
    assert request is not None
    assert (request.run, request.method, request.other) == (9, "ranker", "bm25")
    assert not model.knows(request)
    every = [outcome("lost", 0.0, 1.0), outcome("won", 1.0, 0.0), outcome("both", 1.0, 1.0), outcome("none", 0.0, 0.0)]
    model.take(request, MethodQueries(every))
    again = model.look(0)
    assert again is not None and model.knows(again)
    assert model.pair == ("ranker", "bm25")
    assert "1 won, 1 lost" in against(model).plain
    seen = []
    for _ in range(4):
        model.next_filter()
        seen.append([one.id for one in model.shown])
    assert seen == [["lost"], ["won"], ["lost", "none"], ["lost", "won", "both", "none"]]
    other = model.look(2)
    assert other is not None and other.other is None
    assert model.look(3) is None
    model.step(1)
    model.arrange(0)
    older = model.look(0)
    assert older is not None and not model.knows(older)


def test_without_queries_or_runs_the_next_command_is_named(tmp_path: Path) -> None:
    state = read(Workspace.create(tmp_path))
    assert isinstance(state, Empty)
    assert "--test-fraction" in state.command


def test_what_was_measured_of_the_pool_as_it_was_indexed_is_listed_and_says_so(tmp_path: Path) -> None:
    """The figure before all decisions stands on Overview: its queries are looked up here."""
    row = [{"input": "a", "output": "b"}]
    workspace = indexed(tmp_path / "w", pool=lines(row), test=lines(row))
    for kind in (KIND, AS_INDEXED):
        number = runs.start(workspace, kind, "openai:stub", {})
        setup = replace(SETUP, as_indexed=kind == AS_INDEXED or None)
        runs.finish(workspace, number, "done", replace(kept(number).report, setup=setup).summary())
    data = read(workspace)
    assert isinstance(data, EvaluateData)
    told = ["the pool as it was indexed" in measured(one, data.runs).plain for one in data.runs]
    assert [one.report.run for one in data.runs] == [2, 1] and told == [True, False]


def test_a_value_between_is_neither_right_nor_wrong_and_the_reply_is_shown_with_its_rule() -> None:
    reply = "\x1b[1mSure:\n{}"
    outcome = QueryOutcome(1, "q", "in", "{}", 2 / 3, "{}", "", None, [], 1.0, "{}", "after a colon", reply)
    line = query_line(outcome)
    assert [str(cell) for cell in line.cells[:1]] == ["lost"]
    alone = query_line(replace(outcome, other_right=None))
    assert str(alone.cells[0]) == "0.67" and [str(cell.style) for cell in (alone.cells[3],)] == ["warn"]
    text = str(_text(outcome, OutcomeOf(1, "dense", "zero", "json-f1")))
    assert "dense  {}  json-f1 0.667" in text and "zero  {}  json-f1 1.000" in text
    assert text.endswith("read: after a colon; the reply was:\n␛[1mSure:\n{}")
    assert "right under 67% of the seeds" in str(_text(outcome, OutcomeOf(1, "dense", None)))
    assert "read:" not in str(_text(replace(outcome, how="", reply=None), OutcomeOf(1, "dense", None)))
