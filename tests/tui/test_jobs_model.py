"""What the tab Jobs knows, without an app: which job is shown, which have ended, which can be stopped."""

from __future__ import annotations

from pathlib import Path

from icl_curate.engine.base.progress import Event
from icl_curate.engine.jobs.folder import Job, State
from icl_curate.engine.jobs.follow import JobProgress, LLMSpending, RecordedEvent
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.dialogs.jobs import NONE_YET
from icl_curate.tui.jobs import JobsModel, JobView, figures, leads_to, stop_told


def seen(number: int, state: State, *arguments: str) -> JobView:
    return JobView(
        Job(number, Path("none"), JobCommand.of(arguments or ("train", "sources")), ".", state, 0.0),
        JobProgress(),
        "",
        "",
    )


def test_the_job_shown_is_the_one_chosen_else_one_that_runs_else_the_latest() -> None:
    model = JobsModel()
    assert model.current is None
    assert model.take([seen(3, "queued"), seen(2, "running"), seen(1, "done")]) == 1
    assert model.point(2)
    assert model.take([seen(4, "queued"), seen(3, "running"), seen(2, "done"), seen(1, "done")]) == 3
    assert model.current is not None and model.current.job.number == 1
    assert not model.point(4)
    model.selected = 9  # its folder is gone
    assert model.take([seen(5, "done"), seen(4, "failed")]) == 0
    model.want(6)  # just started
    assert model.point(1)
    assert model.take([seen(6, "queued"), seen(5, "done"), seen(4, "failed")]) == 0
    assert model.point(2)
    assert model.take([seen(6, "running"), seen(5, "done"), seen(4, "failed")]) == 2


def test_what_runs_or_waits_can_be_stopped() -> None:
    model = JobsModel()
    model.take([seen(2, "queued"), seen(1, "done", "evaluate", "-k", "3")])
    model.point(0)
    assert model.stoppable is model.current
    assert not model.result_tab
    model.point(1)
    assert model.stoppable is None
    assert model.result_tab == "evaluate"
    model.take([seen(1, "failed", "evaluate")])
    assert not model.result_tab


def test_a_job_that_is_done_says_where_to_go_next() -> None:
    model = JobsModel()
    wanted = {
        ("index", "POOL.jsonl"): "the next step, in Overview",
        ("train", "topics"): "the result, in Topics",
        ("calibrate", "--split", "validation"): "the result, in Calibrate",
        ("tune", "--propose"): "the result, in Sources",
    }
    for arguments, told in wanted.items():
        model.take([seen(1, "done", *arguments)])
        assert leads_to(model.result_tab).plain == f"⏎ goes to {told}"
    model.take([seen(1, "running", "index", "POOL.jsonl")])
    assert not model.result_tab


def test_what_is_not_known_of_what_was_spent_counts_as_nothing() -> None:
    """The folder of a job may have come from elsewhere."""
    one = seen(1, "running")
    one.live.add(RecordedEvent(1.0, Event("ask", 1, 2, fields={"calls": 3, "in_flight": 1})))
    assert one.live.spent == LLMSpending(calls=3)
    assert "calls 3  tokens 0 in 0 out" in figures(one, alone=False).plain
    one.live.add(RecordedEvent(2.0, Event("ask", 2, 2, fields={"calls": 4, "tokens_in": 50, "cost": 0.25})))
    assert one.live.spent == LLMSpending(calls=4, tokens_in=50, cost=0.25)
    assert "calls 4  tokens 50 in 0 out  cost $0.2500" in figures(one, alone=False).plain


def test_without_jobs_the_command_that_starts_one_is_named(tmp_path: Path) -> None:
    model = JobsModel()
    assert model.take(model.read(Workspace.create(tmp_path))) == 0 and model.current is None
    assert "$ icl-curate train sources --background" in NONE_YET.splitlines()


def test_only_a_running_job_that_is_asked_to_stop_awaits_its_calls() -> None:
    assert stop_told(seen(1, "running").job, kill=False) == "job 1: ends once calls in flight are answered"
    assert stop_told(seen(2, "queued").job, kill=False) == "job 2: does not begin"
    assert not stop_told(seen(1, "running").job, kill=True) and not stop_told(seen(1, "cancelled").job, kill=False)
