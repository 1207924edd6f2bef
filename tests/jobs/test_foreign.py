"""Jobs whose folder came from elsewhere: looked at, whatever is in it, but neither run nor believed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.http import trust
from icl_curate.engine.jobs import folder as folders
from icl_curate.engine.jobs import follow as following
from icl_curate.engine.jobs import start as starting
from icl_curate.engine.jobs.folder import find, jobs
from icl_curate.engine.jobs.follow import recorded_events
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.jobs.lock import alive, hold, wait_for
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.jobs import live_of, outcome, show_result
from icl_curate.tui.dialogs.start import parsed


def forge(workspace: Workspace, told: object, state: object = None, number: int = 1) -> Path:
    """A folder such as somebody may send."""
    path = folders.home(workspace) / str(number)
    path.mkdir(parents=True)
    (path / folders.JOB).write_text(told if isinstance(told, str) else json.dumps(told))
    if state is not None:
        (path / folders.STATE).write_text(state if isinstance(state, str) else json.dumps(state))
    return path


def test_a_foreign_command_is_shown_and_not_run(workspace: Workspace, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    forge(workspace, {"arguments": ["export", str(out), "--force"], "directory": str(tmp_path), "created": 1.0})
    refused = run("jobs", "resume", 1, "-w", workspace.path)
    assert refused.code == 2
    assert f"job 1 was not started here by you: icl-curate export {out} --force" in refused.err
    assert "fix: run that command yourself" in refused.err
    assert out.read_text() == "precious"
    assert len(jobs(workspace)) == 1
    trusted = run("jobs", "resume", 1, "--trust", "-w", workspace.path)
    assert trusted.code == 0, trusted.err
    assert f"in {tmp_path}: icl-curate export {out} --force" in trusted.err  # said before it is run
    wait_for(find(workspace, 2).folder)
    assert find(workspace, 2).state == "done"
    assert out.read_text() != "precious"


def test_the_last_number_leaves_none_for_a_job(workspace: Workspace) -> None:
    forge(workspace, {}, number=10**15 - 1)
    for _ in range(2):  # the second one waited for ever
        with pytest.raises(UsageError, match="none comes after it"):
            starting.start(workspace, JobCommand.of(["index"]))
    assert [job.number for job in jobs(workspace)] == [10**15 - 1] and len([*folders.home(workspace).iterdir()]) == 1


@pytest.mark.parametrize("change", ["options", "directory", "signature"])
def test_what_was_changed_since_is_foreign(workspace: Workspace, tmp_path: Path, change: str) -> None:
    starting.start(workspace, JobCommand.of(["evaluate", "--nonsense"]), tmp_path)
    wait_for(find(workspace, 1).folder)
    path = find(workspace, 1).folder / folders.JOB
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {change: {"options": ["-n", "9"]}.get(change, "/")}))
    with pytest.raises(UsageError, match="not started here by you"):
        starting.resume(workspace, 1)
    path.write_text(json.dumps(kept))
    assert starting.resume(workspace, 1).number == 2


def test_a_workspace_that_was_moved_or_copied_has_no_jobs_of_ones_own(workspace: Workspace, tmp_path: Path) -> None:
    starting.start(workspace, JobCommand.of(["evaluate", "--nonsense"]))
    wait_for(find(workspace, 1).folder)
    copy = Workspace.open(Path(shutil.copytree(workspace.path, tmp_path / "copy")))
    with pytest.raises(UsageError, match="not started here by you"):
        starting.resume(copy, 1)
    link = tmp_path / "link"
    link.symlink_to(workspace.path)
    assert starting.resume(Workspace.open(link), 1).number == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["review", "--serve", "80"],
        ["llm", "trust", "http://x"],
        ["-q", "prune", "--below", "1"],
        ["jobs", "resume"],
        ["tune", "apply"],
        ["-q"],
    ],
)
def test_only_long_work_is_ever_a_job(workspace: Workspace, arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="run in the background"):
        starting.start(workspace, JobCommand.of(arguments))
    assert not jobs(workspace)
    parts = {"kind": "index", "flags": [], "command": arguments[:1], "options": arguments[1:]}
    several = ({"arguments": arguments}, parts, parts | {"command": ["index"], "flags": ["review"]})
    for number, told in enumerate(several, 1):
        forge(workspace, {**told, "directory": "/", "created": 1.0}, number=number)
    for number, trusted in product((1, 2, 3), (False, True)):
        with pytest.raises(UsageError):
            starting.resume(workspace, number, trusted=trusted)
    assert len(jobs(workspace)) == 3


def test_no_option_takes_the_dry_run_for_its_value(workspace: Workspace, tmp_path: Path) -> None:
    """What the tab Jobs runs dry without a question must not be done, however the command ends."""
    assert JobCommand.of(["-q", "train", "ranker", "-k", "2"]).adding("--dry-run") == [
        "-q", "train", "ranker", "--dry-run", "-k", "2",
    ]  # fmt: skip
    keys = JobCommand.of(["calibrate", "keys", "-w", "x"])
    assert keys.adding("--json") == ["calibrate", "keys", "--json", "-w", "x"]
    out = tmp_path / "out.jsonl"
    line = parsed(f"export {out} --force --source")
    command = [*starting.PROGRAM, *line.adding("--dry-run", "--json")]
    done = subprocess.run(command, env=starting.environment(workspace.path), capture_output=True, check=False)
    assert done.returncode == 2
    assert not out.exists()


BAD: list[Any] = [None, True, -1, 0, 1, 2**70, 1e308, "x", "9" * 400, [], ["a"], [1], {}, {"a": []}]


def test_wrong_types_break_nothing(workspace: Workspace, run: Run) -> None:
    forged, good = 0, {"arguments": ["evaluate"], "directory": "/", "created": 1.0}
    ended = {"pid": 77, "started": 1.0, "ended": 2.0, "code": 0}
    for base, other in ((good, ended), (ended, good)):
        for name in base:
            for value in BAD:
                forged += 1
                changed = base | {name: value}
                forge(workspace, *((changed, other) if base is good else (other, changed)), number=forged)
    for text in ("", "[", "3", "null", '"x"', "[" * 200_000, '{"created": NaN}', "9" * 10_000, "\x00"):
        forged += 2
        forge(workspace, text, ended, number=forged - 1)
        forge(workspace, good, text, number=forged)
    forge(workspace, good, ended, number=forged + 1)
    listed = run("jobs", "-w", workspace.path)
    assert listed.code == 0, listed.err
    assert "damaged" in listed.out
    told = run("jobs", "-w", workspace.path, "--json").json["jobs"]
    assert [job["number"] for job in told] == list(range(forged + 1, 0, -1))
    assert told[0]["state"] == "done"
    damaged = next(job for job in told if job["error"].startswith("damaged"))
    assert damaged["fix"].startswith("rm -r ")
    for job in jobs(workspace)[::20]:
        with pytest.raises(UsageError):
            starting.resume(workspace, job.number)
        with pytest.raises(UsageError):
            starting.cancel(workspace, job.number, kill=True)


def test_results_and_events_of_wrong_types_break_nothing(workspace: Workspace, capsys: Any) -> None:
    path = forge(
        workspace, {"arguments": ["evaluate"], "directory": "/", "created": 1.0}, {"pid": 77, "started": 1, "code": 0}
    )
    lines = [{"time": 1.0, "task": "ask", "done": 1, "total": 2, "note": "", "fields": {"calls": 1}}]
    for name in lines[0]:
        lines += [lines[0] | {name: value} for value in BAD]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "[" * 200_000 + "\n[1]\n3\n"
    (path / folders.EVENTS).write_text(text)
    found, offset = recorded_events(path)
    assert offset == len(text)
    assert len(found) >= 1
    for name in ("counts", "added", "methods", "metrics", "arms", "sources", "demonstrations"):
        for value in BAD:
            (path / folders.RESULT).write_text(json.dumps({name: value}))
            job = find(workspace, 1)
            assert isinstance(outcome(job, live_of(job)), str)
            show_result(job, folders.result(job) or {})
    (path / folders.STATE).unlink()
    live = live_of(find(workspace, 1))
    live.remaining(5.0)
    assert isinstance(outcome(find(workspace, 1), live), str)


def test_events_are_read_in_pieces(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PIECE", 1 << 16)
    path = forge(workspace, {"arguments": ["evaluate"], "directory": "/", "created": 1.0})
    line = json.dumps({"time": 1.0, "task": "ask", "done": 1, "total": 2, "note": "", "fields": {}}).encode() + b"\n"
    with (path / folders.EVENTS).open("wb") as file:
        file.write(line * 2000)
        file.truncate(100 << 20)  # zeros, which take no room on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line + line[:-5])
    tracemalloc.start()
    found, offset = recorded_events(path)
    assert len(found) == 2001 and tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert offset == (path / folders.EVENTS).stat().st_size - len(line[:-5])


def test_no_pid_of_a_strangers_is_killed(workspace: Workspace, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as bystander:
        good = {"arguments": ["evaluate"], "directory": "/", "created": 1.0}
        path = forge(workspace, good, {"pid": bystander.pid, "started": 1.0})
        lock = hold(path)  # as a process of the stranger's could
        assert find(workspace, 1).live
        for kill in (False, True):
            with pytest.raises(UsageError, match="not started here by you"):
                starting.cancel(workspace, 1, kill=kill)
        signature = trust.sign(folders.identity(workspace.path, good["arguments"], "/"))
        (path / folders.JOB).write_text(json.dumps(good | {"signature": signature}))  # a copy of one's own job
        for pid in (bystander.pid, -1, 0, -bystander.pid, True, 10**30):
            (path / folders.STATE).write_text(json.dumps({"pid": pid, "started": 1.0}))
            for kill in (False, True):
                with pytest.raises(UsageError, match="a process that is not its own"):
                    starting.cancel(workspace, 1, kill=kill)
        assert bystander.poll() is None
        lock.close()
        bystander.communicate(b"\n", timeout=PATIENCE)
    assert bystander.returncode == 0


def test_pipes_devices_and_links_are_not_waited_for(workspace: Workspace) -> None:
    path = forge(workspace, {"arguments": ["evaluate"], "directory": "/", "created": 1.0})
    os.mkfifo(path / "lock")
    for name in (folders.STATE, folders.EVENTS, folders.RESULT):
        (path / name).symlink_to("/dev/zero")
    os.mkfifo(path / folders.LOG)
    assert not alive(path)
    wait_for(path)
    job = find(workspace, 1)
    assert (job.state, job.error) == ("failed", "damaged: state.json cannot be read")
    assert folders.result(job) is None
    assert recorded_events(path) == ([], 0)
    (path / folders.JOB).unlink()
    os.mkfifo(path / folders.JOB)
    assert find(workspace, 1).state == "failed"
    for odd in ("²", "٣", "007", "-1"):
        (path.parent / odd).mkdir()
    assert folders.numbers(path.parent) == [1]
