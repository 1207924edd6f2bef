"""Runs: how one that is carried out ends in the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from icl_curate.engine.base.contract import Reported
from icl_curate.engine.base.errors import Cancelled, LLMError
from icl_curate.engine.store import runs
from icl_curate.engine.store.numbers import JOB
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path)


def test_a_run_is_running_until_it_is_done_with_its_summary(store: Workspace) -> None:
    with runs.recorded(store, "evaluate", "offline", {"k": 5}) as record:
        [under_way] = runs.runs(store)
        assert (under_way.run, under_way.status, under_way.finished_at) == (record.run, "running", None)
        record.summary = {"accuracy": 0.5}
    [done] = runs.runs(store)
    assert (done.kind, done.llm, done.settings) == ("evaluate", "offline", {"k": 5})
    assert (done.status, done.summary) == ("done", {"accuracy": 0.5})
    assert done.finished_at is not None and done.finished_at >= done.started_at


@dataclass(frozen=True)
class Measured(Reported):
    kind = "measured"
    share: float


def test_results_that_cannot_be_read_are_left_out(store: Workspace) -> None:
    whole = Measured(0.5).as_json()
    for summary in (whole, whole | {"kind": "other"}, {}, whole | {"share": "half"}):
        with runs.recorded(store, "evaluate", "", {}) as record:
            record.summary = summary
    assert [(run.run, result) for run, result in runs.readable(Measured, runs.runs(store))] == [(1, Measured(0.5))]
    assert [done.run for done, _ in runs.readable(Measured, runs.finished(store, "evaluate"))] == [1]


@pytest.mark.parametrize(
    ("error", "status"),
    [(Cancelled(), "interrupted"), (KeyboardInterrupt(), "interrupted"), (LLMError("gone", "try again"), "failed")],
)
def test_a_run_that_does_not_end_keeps_the_error_and_lets_it_go_on(
    store: Workspace, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)) as raised, runs.recorded(store, "evaluate", "offline", {}) as record:
        record.summary = {"never": "kept"}
        raise error
    assert raised.value is error
    [ended] = runs.runs(store)
    assert (ended.status, ended.summary) == (status, {"error": str(error)})
    assert runs.latest(store) == []


def test_a_run_has_the_number_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace.create(tmp_path / "w")

    def begun(job: int | None = None) -> int:
        if job is None:
            monkeypatch.delenv(JOB, raising=False)
        else:
            (workspace.path / "jobs" / str(job)).mkdir(parents=True, exist_ok=True)
            monkeypatch.setenv(JOB, str(workspace.path / "jobs" / str(job)))
        return runs.start(workspace, "evaluate", "offline", {})

    assert [begun(), begun(), begun(3), begun(3), begun(5)] == [1, 2, 3, 4, 5]
    (workspace.path / "jobs" / "6").mkdir()  # waits for its turn
    assert begun() == 7, "job 6 and run 6 would be two things"
    assert begun(6) == 8, "numbers of runs ascend"
    monkeypatch.setenv(JOB, str(tmp_path / "elsewhere" / "jobs" / "40"))
    assert runs.start(workspace, "evaluate", "offline", {}) == 9
    assert runs.latest_number(workspace) == 9


def test_an_evaluation_of_an_unknown_number_of_queries_makes_no_other_a_trial() -> None:
    asked = [("test", float("inf")), ("test", 40), ("test", 10), ("validation", 5)]
    assert runs.no_trials(asked, {"test": 200, "validation": 30}) == [True, True, False, True]
    assert runs.no_trials([("test", float("inf"))], {}) == [True]
    assert runs.no_trials([("test", 40), ("test", 10)], {"test": 12}) == [True, True]  # the others are gone
