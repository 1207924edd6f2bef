"""Jobs: commands in processes of their own that take turns, may be stopped or killed, and pay nothing twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories.commands import Run
from factories.jobs_world import CONCURRENCY, QUERIES, asked, ended, evaluation, until
from factories.patience import PATIENCE
from factories.servers import Server
from icl_curate.engine.base.contract import Reported
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.base.progress import Event
from icl_curate.engine.evaluate.results import SweepReport
from icl_curate.engine.http import trust
from icl_curate.engine.jobs import child
from icl_curate.engine.jobs import folder as folders
from icl_curate.engine.jobs import start as starting
from icl_curate.engine.jobs.child import Recorder
from icl_curate.engine.jobs.folder import Job, find, jobs
from icl_curate.engine.jobs.follow import JobProgress, RecordedEvent, follow, recorded_events
from icl_curate.engine.jobs.kinds import KINDS, PART, RESULTS, JobCommand, Parts, _class, read, runs_of
from icl_curate.engine.jobs.lock import alive, hold, wait_for
from icl_curate.engine.papers.calibrate.results import FineTuningCost
from icl_curate.engine.store import runs
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render import SHOWN
from icl_curate.render import jobs as shown_jobs


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(delay=0.05) as found:
        yield found


def _catches(pid: int, number: int) -> bool:
    """Has the process a handler of its own for the signal?"""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_a_job_is_the_command_itself(
    workspace: Workspace, server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    begun = run(*evaluation(server), "-w", workspace.path, "--background", "--json")
    assert begun.code == 0, begun.err
    assert (begun.json["job"]["number"], begun.json["job"]["state"]) == (1, "queued")
    followed = run("jobs", "follow", "-w", workspace.path, "--json")  # the process that started it is gone
    assert followed.code == 0, followed.err
    job = find(workspace, 1)
    assert (job.state, job.code, job.error) == ("done", 0, "")
    assert [path.name for path in job.folder.iterdir() if path.stat().st_mode & 0o077] == []
    assert job.created <= (job.started or 0) <= (job.ended or 0)
    again = run(*evaluation(server), "-w", workspace.path, "--json").json
    kept = {"cached_calls", "run", "selection_ms"}
    figures = {k: v for k, v in followed.json["methods"]["zero"].items() if k not in kept}
    assert figures == {k: v for k, v in again["methods"]["zero"].items() if k not in kept}
    assert Counter(asked(server)).most_common(1)[0][1] == 1
    assert {found.run for found in runs.runs(workspace, "evaluate") if found.status == "done"} == {1, 2}
    for path in job.folder.iterdir():
        assert "sk-secret-of-mine" not in path.read_text()
    listed = run("jobs", "-w", workspace.path)
    assert "done" in listed.out
    assert "icl-curate evaluate -m zero" in listed.out


def test_events_say_where_a_job_stands_and_what_it_spent(workspace: Workspace, server: Server) -> None:
    job = starting.start(workspace, JobCommand.of(evaluation(server)))
    events = list(follow(workspace, job.number))
    assert not find(workspace, 1).live
    last = events[-1]
    assert (last.task, last.done, last.total) == ("ask", QUERIES, QUERIES)
    assert len(asked(server)) == QUERIES
    assert last.fields["calls"] == len([call for call in server.calls if call.body])
    live = JobProgress()
    assert live.read(job.folder)
    assert not live.read(job.folder)
    assert live.spent.tokens_in == last.fields["tokens_in"] > 0


def test_jobs_take_turns_and_one_may_leave_the_queue(workspace: Workspace, server: Server) -> None:
    for k in (1, 2, 3):
        starting.start(workspace, JobCommand.of(evaluation(server, k, "bm25")))
    assert [(job.number, job.behind) for job in jobs(workspace)] == [(3, 2), (2, 1), (1, None)]
    until(lambda: find(workspace, 1).state == "running")
    assert [job.state for job in jobs(workspace)] == ["queued", "queued", "running"]
    starting.cancel(workspace, 2)
    assert ended(workspace, 2).state == "cancelled"
    first, third = ended(workspace, 1), ended(workspace, 3)
    assert (first.state, third.state) == ("done", "done")
    assert first.ended is not None
    assert third.started is not None
    assert first.ended <= third.started
    assert find(workspace, 2).started is None
    shots = [text.count("shot ") for text in asked(server)]
    assert set(shots) == {0, 1, 3}
    assert shots.index(3) > max(i for i, count in enumerate(shots) if count == 1)


def test_a_cancelled_job_keeps_what_was_paid(workspace: Workspace, server: Server, run: Run) -> None:
    server.delay = 0.2
    starting.start(workspace, JobCommand.of(evaluation(server)))
    until(lambda: len(asked(server)) >= 6)
    server.delay = 2.0
    stopped = run("jobs", "cancel", 1, "-w", workspace.path, "--json")
    assert stopped.json["job"]["state"] == "cancelled"
    before = len(asked(server))
    assert before < QUERIES
    assert all(call.answered for call in server.asked("query"))
    assert runs.runs(workspace, "evaluate")[0].status == "interrupted"
    with pytest.raises(UsageError, match="cancelled already"):
        starting.cancel(workspace, 1)
    server.delay = 0.0
    assert run("jobs", "resume", 1, "-w", workspace.path, "--json").json["job"]["number"] == 2
    assert ended(workspace, 2).state == "done"
    assert Counter(asked(server)).most_common(1)[0][1] == 1
    assert len(asked(server)) == QUERIES


def test_a_killed_job_has_failed_and_the_next_runs(workspace: Workspace, server: Server, run: Run) -> None:
    server.delay = 0.2
    for k in (1, 2):  # started by programs that are gone by now: nobody looks after the queue
        assert run(*evaluation(server, k, "bm25"), "-w", workspace.path, "--background").code == 0
    until(lambda: len(asked(server)) >= 6)
    job = find(workspace, 1)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    wait_for(job.folder)
    server.delay = 0.0
    job = find(workspace, 1)
    assert (job.state, job.code) == ("failed", None) and "killed" in job.error
    assert job.started and job.ended and job.started <= job.ended == find(workspace, 1).ended, "it does not go on"
    assert job.fix == "icl-curate jobs resume 1"
    assert ended(workspace, 2).state == "done"
    assert starting.resume(workspace, 1).line == job.line
    assert ended(workspace, 3).state == "done"
    repeated = sum(count - 1 for count in Counter(asked(server)).values())
    assert repeated <= CONCURRENCY  # in flight when it was killed


def test_killing_is_cancelling_at_once(workspace: Workspace, server: Server) -> None:
    server.delay = 0.5
    starting.start(workspace, JobCommand.of(evaluation(server)))
    until(lambda: asked(server))
    starting.cancel(workspace, 1, kill=True)
    job = ended(workspace, 1)
    assert job.state == "cancelled"
    assert job.started and job.ended and job.started <= job.ended == find(workspace, 1).ended, "it does not go on"


def test_a_job_whose_workspace_was_moved_away_makes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.signal, "signal", lambda *_: None)
    (folder := tmp_path / "w" / "jobs" / "1").mkdir(parents=True)
    assert child.work(folder, lambda: (tmp_path / "w").rename(tmp_path / "moved")) == 0
    assert not (tmp_path / "w").exists()


def test_a_job_cancelled_before_it_draws_breath(workspace: Workspace, server: Server) -> None:
    starting.start(workspace, JobCommand.of(evaluation(server)))
    starting.cancel(workspace, 1)
    assert ended(workspace, 1).state == "cancelled"
    assert not asked(server)


def test_a_job_that_fails_says_why(workspace: Workspace, run: Run) -> None:
    starting.start(workspace, JobCommand.of(["evaluate", "-m", "bm26"]))
    job = ended(workspace, 1)
    assert (job.state, job.code) == ("failed", 2)
    assert "bm26" in job.error
    assert "Traceback" not in folders.log(job)
    followed = run("jobs", "follow", "-w", workspace.path)
    assert (followed.code, followed.out) == (2, "")
    assert "bm26" in followed.err
    with pytest.raises(UsageError, match="no job 7"):
        find(workspace, 7)


def test_following_may_end_before_the_job(workspace: Workspace, server: Server) -> None:
    server.held = "query"
    starting.start(workspace, JobCommand.of(evaluation(server)))
    command = [*starting.PROGRAM, "jobs", "follow", "-w", str(workspace.path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: asked(server))
        until(lambda: _catches(process.pid, signal.SIGTERM))  # from then on it stops cleanly when it is interrupted
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    server.let_go()
    assert process.returncode == 130
    assert "job 1 is still running" in err
    assert ended(workspace, 1).state == "done"
    assert len(asked(server)) == QUERIES


def test_a_directory_that_is_gone_is_an_error_and_no_job(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(CurateError, match="cannot start a job"):
        starting.start(workspace, JobCommand.of(["evaluate"]), tmp_path / "gone")
    assert not jobs(workspace)
    assert not list(folders.home(workspace).iterdir())


def test_sigterm_stops_a_command_as_tidily_as_ctrl_c(workspace: Workspace, server: Server) -> None:
    server.delay = 0.2
    command = [*starting.PROGRAM, *evaluation(server), "-w", str(workspace.path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until(lambda: len(asked(server)) >= 4)
        process.terminate()
        assert process.wait(PATIENCE) == 130
    assert all(call.answered for call in server.asked("query"))


# the folder and its lock


def test_a_lock_is_free_when_its_last_holder_is_gone(tmp_path: Path) -> None:
    assert not alive(tmp_path)
    lock = hold(tmp_path)
    handed_down = os.dup(lock.fileno())
    lock.close()
    assert alive(tmp_path)
    os.close(handed_down)
    assert not alive(tmp_path)
    wait_for(tmp_path)


def test_a_job_whose_starter_died_before_its_process_began_holds_nobody_up(workspace: Workspace) -> None:
    orphan = folders.home(workspace) / "1"
    orphan.mkdir(parents=True)
    (orphan / folders.JOB).write_text(json.dumps({"arguments": ["evaluate"], "directory": "/", "created": 1.0}))
    hold(orphan).close()
    assert find(workspace, 1).state == "failed"
    assert starting.start(workspace, JobCommand.of(["evaluate", "--nonsense"])).number == 2
    assert ended(workspace, 2).code == 2


def test_numbers_are_given_once(tmp_path: Path) -> None:
    each, threads = 20, 8
    given: list[str] = []

    def take(name: int) -> None:
        for i in range(each):
            draft = tmp_path / f".new-{name}-{i}"
            draft.mkdir()
            (draft / "owner").write_text(draft.name)
            given.append((starting._numbered(tmp_path, draft) / "owner").read_text())

    workers = [threading.Thread(target=take, args=(name,)) for name in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert folders.numbers(tmp_path) == list(range(1, each * threads + 1))
    assert sorted(given) == sorted(f".new-{name}-{i}" for name in range(threads) for i in range(each))


# events


def test_every_step_and_note_is_kept_and_the_rest_thinned(tmp_path: Path) -> None:
    with Recorder(tmp_path) as report:
        for i in range(200):
            report(Event("ask", i, 200, fields={"calls": i}))
            report(Event("train", i, 200, fields={"loss": 1 / (i + 1)}))
        report(Event("ask", 17, 200, "a warning"))
        report(Event("ask", 200, 200))
    found, _ = recorded_events(tmp_path)
    events = [one.event for one in found]
    assert [event.fields["loss"] for event in events if event.task == "train"] == [1 / (i + 1) for i in range(200)]
    asks = [event for event in events if event.task == "ask"]
    assert asks[0].done == 0
    assert [(event.done, event.note) for event in asks[-2:]] == [(17, "a warning"), (200, "")]
    assert len(asks) < 100


def test_how_far_a_task_was_at_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "EVERY", 1e9)
    with suppress(KeyboardInterrupt), Recorder(tmp_path) as report:
        for done in (0, 1, 2):
            report(Event("ask", done, 59))
        raise KeyboardInterrupt
    asks = [(one.event.done, one.event.total) for one in recorded_events(tmp_path)[0]]
    assert asks == [(0, 59), (2, 59)]


def test_a_line_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    line = json.dumps({"time": 1.0, "task": "ask", "done": 1, "total": 2, "note": "n", "fields": {}}).encode() + b"\n"
    file = tmp_path / folders.EVENTS
    file.write_bytes(line + line[:20])
    found, offset = recorded_events(tmp_path)
    assert (len(found), offset) == (1, len(line))
    file.write_bytes(line + line + b"not JSON\n" + line)
    found, offset = recorded_events(tmp_path, offset)
    assert [one.event.note for one in found] == ["n", "n"]
    assert offset == file.stat().st_size


def test_time_remaining_is_by_the_pace_since_the_task_began() -> None:
    live = JobProgress()
    assert live.remaining(0.0) is None
    live.add(RecordedEvent(100.0, Event("ask", 60, 100)))  # 60 were cached: they say nothing of the pace
    assert live.remaining(100.0) is None
    live.add(RecordedEvent(110.0, Event("ask", 70, 100)))
    assert live.remaining(110.0) == pytest.approx(30.0)
    assert live.remaining(115.0) == pytest.approx(25.0)
    live.add(RecordedEvent(120.0, Event("train", 1, 9, fields={"loss": 1.0, "sigma": 0.0})))
    live.add(RecordedEvent(121.0, Event("ask", 5, 50, "slow")))
    live.add(RecordedEvent(130.0, Event("train", 2, 9, fields={"loss": 0.5, "sigma": 0.1})))
    latest = live.latest
    assert latest is not None
    assert latest.event.task == "train"
    assert live.remaining(130.0) == pytest.approx(70.0)
    assert [step["loss"] for step in live.steps] == [1.0, 0.5]
    live.add(RecordedEvent(131.0, Event("train", note="a remark changes no progress")))
    assert live.remaining(130.0) == pytest.approx(70.0)
    assert [note for _, note in live.notes] == ["slow", "a remark changes no progress"]
    live.add(RecordedEvent(140.0, Event("ask", 1, 50)))  # asking began anew with the next batch
    assert live.tasks["ask"].event.done == 1


@dataclass(frozen=True)
class Ran(Reported):
    run: int


def test_a_job_names_its_runs_where_they_have_other_numbers() -> None:
    swept: Any = [SimpleNamespace(report=Ran(run)) for run in (3, 7)]
    for report, shown in (
        (Parts({"sources": Ran(3), "ranker": Ran(5), "topics": Ran(6)}), " (runs 3, 5, 6)"),
        (SweepReport("k", tuple(swept)), " (runs 3, 7)"),
        (Ran(4), " (run 4)"),
        (Ran(3), ""),
        (Reported(), ""),
    ):
        assert shown_jobs.other_runs(3, runs_of(report)) == shown


def test_a_job_of_before_is_read_from_its_words(workspace: Workspace) -> None:
    """Such a folder said neither what kind of job it is nor where its command ends, and its result not what it is."""
    for words, kind in ((["-q", "train", "ranker", "-k", "2"], "train-ranker"), (["tune", "--propose"], "tune")):
        path = folders.home(workspace) / str(len(jobs(workspace)) + 1)
        path.mkdir(parents=True)
        told: dict[str, Any] = {"arguments": words, "directory": "/", "created": 1.0}
        told["signature"] = trust.sign(folders.identity(workspace.path, words, "/"))
        (path / folders.JOB).write_text(json.dumps(told))
        job = folders.read(path)
        assert (job.line.kind, [*job.line.words], folders.is_own(job)) == (kind, words, True)
        assert job.as_json() | {"arguments": words, "kind": kind} == job.as_json()
    starting.start(workspace, JobCommand.of(words))
    wait_for(find(workspace, 3).folder)
    assert json.loads((find(workspace, 3).folder / folders.JOB).read_text())["command"] == ["tune"]
    assert find(workspace, 3).line == find(workspace, 2).line


def test_a_job_is_found_by_what_it_does(tmp_path: Path) -> None:
    every, evaluation = (
        Job(number, tmp_path, JobCommand.of(words), "/", "running", 0.0)
        for number, words in enumerate((["train", "all"], ["evaluate", "-k", "3"]), 1)
    )
    listed = [every, replace(evaluation, state="done"), evaluation]
    assert folders.doing(listed, "train-topics") is every
    assert folders.doing(listed, JobCommand.typed("icl-curate evaluate -m bm25").kind) is evaluation
    assert (
        folders.doing(listed, "train-rows") is folders.doing(listed, JobCommand.typed("icl-curate demos").kind) is None
    )
    assert (every.in_words, replace(evaluation, state="queued").in_words) == (
        "training all (job 1)", "evaluate (job 2 waits)",
    )  # fmt: skip


def test_every_kind_of_result_has_its_class() -> None:
    assert {kind: _class(kind).kind for kind in RESULTS} == {kind: kind for kind in RESULTS}
    assert {name for kind in KINDS.values() for name in kind.results} == set(shown_jobs.BRIEF)
    assert set(shown_jobs.BRIEF) < set(SHOWN)


def test_a_dry_run_of_a_fine_tuning_is_read_and_drawn() -> None:
    cost = FineTuningCost("hf:model", "adapter", "answers", "test", 12, 3, 450, {"queries": 12}, ("few",))
    assert read(json.loads(json.dumps(cost.as_json()))) == cost
    assert [*dict(shown_jobs.dry_run_rows(cost))] == ["training", "warning"]


def test_the_share_of_a_job_weighs_its_tasks_and_never_falls() -> None:
    def after(kind: str, *events: Event) -> list[float]:
        live, shares = JobProgress(), []
        for event in events:
            live.add(RecordedEvent(1.0, event))
            shares.append(live.share(kind) or 0.0)
        return shares

    assert JobProgress().share("evaluate") is None
    found, half, asked = after("evaluate", Event("nearest", 10, 10), Event("ask", 30, 60), Event("ask", 60, 60))
    assert (found, half, asked) == pytest.approx((1 / 21, 11 / 21, 0.99))
    indexed = after("index", Event("read", 9, 9), Event("encode", 0, 10), Event("encode", 5, 10))
    assert indexed == pytest.approx([2 / 24, 4 / 24, 14 / 24]), "what comes before it was done, or there was none"
    batches = [Event("ask", done, 10) for _ in range(4) for done in (0, 5, 10)]
    steps = [Event("train", step, 4) for step in range(5)]
    shares = after("train-ranker", *batches[:3], steps[1], *batches[3:6], *steps[2:])
    assert shares == pytest.approx([0, 0, 0, *[0.25] * 4, 0.5, 0.75, 0.99]), "prompts of a step are a part of it"
    spent = [Event("curate", calls, 300) for calls in (0, 30, 60, 60, 180)]
    assert after("curate", *spent) == pytest.approx([0, 0.1, 0.2, 0.2, 0.6]), "of its budget"
    assert after("train-all", Event(PART, 1, 3), *batches[:3])[-1] == pytest.approx(1 / 3)
    draw = random.Random(1)
    for kind in KINDS:
        tasks = [draw.choice([*KINDS[kind].tasks, "ask", "encode", "new"]) for _ in range(200)]
        shares = after(kind, *(Event(task, draw.randrange(50), draw.choice([None, 50, 0])) for task in tasks))
        assert shares == sorted(shares) and shares[-1] <= 0.99, kind
