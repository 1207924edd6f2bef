"""A process that waits for the next command: real processes, asked, killed and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories.jobs_world import CONCURRENCY, asked, ended, evaluation, until
from factories.patience import PATIENCE
from factories.servers import Server
from icl_curate.cli import app  # noqa: F401 - compiled, so that a process starts sooner
from icl_curate.engine.jobs import OBSERVED, standby
from icl_curate.engine.jobs.folder import find, result
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.jobs.standby import Standby
from icl_curate.engine.jobs.start import PROGRAM, cancel, environment, resume, start
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(delay=0.05) as found:
        yield found


@pytest.fixture
def waiting(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standby]:
    """Gives a process that waits, `ready`, any time to answer."""
    monkeypatch.setattr(standby, "ANSWER", PATIENCE)
    made = Standby(PROGRAM, lambda: environment(workspace.path))
    yield made
    made.close()


def ready(waiting: Standby) -> int:
    """The id of a process that waits."""
    waiting.prepare()  # not in the fixture: pytest has a variable that tells it from the test
    assert waiting._waiting is not None
    return waiting._waiting[0].pid


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_job_in_it_is_like_any_other(workspace: Workspace, server: Server, waiting: Standby, tmp_path: Path) -> None:
    pid = ready(waiting)
    begun = start(workspace, JobCommand.of(evaluation(server)), tmp_path, waiting)
    job = ended(workspace, begun.number)
    assert (job.pid, job.state, job.code, job.directory) == (pid, "done", 0, str(tmp_path))
    assert result(job)["methods"].keys() == {"zero"}  # type: ignore[index]
    other = ended(workspace, start(workspace, JobCommand.of(evaluation(server)), tmp_path, waiting).number)
    assert other.pid != pid and other.state == "done"  # it was used up, and none was prepared
    assert len(asked(server)) == len({*asked(server)})


def test_killed_before_it_is_needed_it_is_not_missed(workspace: Workspace, server: Server, waiting: Standby) -> None:
    os.kill(pid := ready(waiting), signal.SIGKILL)
    job = ended(workspace, start(workspace, JobCommand.of(evaluation(server)), standby=waiting).number)
    assert (job.state, job.pid == pid) == ("done", False)


def test_killed_at_work_it_loses_what_any_job_loses(workspace: Workspace, server: Server, waiting: Standby) -> None:
    pid = ready(waiting)
    number = start(workspace, JobCommand.of(evaluation(server)), standby=waiting).number
    until(lambda: len(asked(server)) > 8)
    os.kill(pid, signal.SIGKILL)
    killed = ended(workspace, number)
    assert (killed.pid, killed.state) == (pid, "failed") and "its process was killed" in killed.error
    assert ended(workspace, resume(workspace, number).number).state == "done"
    assert len(asked(server)) - len({*asked(server)}) <= CONCURRENCY  # those in flight


def test_two_jobs_take_turns_and_a_cancelled_one_stops(workspace: Workspace, server: Server, waiting: Standby) -> None:
    pid = ready(waiting)
    first = start(workspace, JobCommand.of(evaluation(server, 1, "bm25")), standby=waiting)
    waiting.prepare()
    second = start(workspace, JobCommand.of(evaluation(server, 2, "bm25")), standby=waiting)
    until(lambda: find(workspace, first.number).state == "running" and find(workspace, second.number).pid)
    assert find(workspace, second.number).state == "queued"
    cancel(workspace, first.number)
    stopped, done = ended(workspace, first.number), ended(workspace, second.number)
    assert (stopped.pid, stopped.state, done.state) == (pid, "cancelled", "done")
    assert (stopped.ended or 0) <= (done.started or 0)


def test_kill_ends_the_processes_of_a_job_in_it(workspace: Workspace, server: Server, waiting: Standby) -> None:
    pid = ready(waiting)
    job = start(workspace, JobCommand.of(evaluation(server)), standby=waiting)
    until(lambda: len(asked(server)) > 1)
    assert os.getpgid(pid) == find(workspace, job.number).pid == pid
    cancel(workspace, job.number, kill=True)
    assert ended(workspace, job.number).state == "cancelled"
    until(lambda: gone(pid))


def test_another_environment_gets_a_process_of_its_own(
    workspace: Workspace, server: Server, waiting: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = ready(waiting)
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    job = ended(workspace, start(workspace, JobCommand.of(evaluation(server)), standby=waiting).number)
    assert (job.state, job.pid == pid) == ("done", False) and gone(pid)


def test_settings_are_read_when_the_command_comes(workspace: Workspace, server: Server, waiting: Standby) -> None:
    (workspace.path / "config.toml").write_text('llm = "no such LLM"\n')
    pid, words = ready(waiting), ["evaluate", "-m", "zero"]
    failed = ended(workspace, start(workspace, JobCommand.of(words), standby=waiting).number)
    assert (failed.pid, failed.state) == (pid, "failed") and "no such LLM" in failed.error


def test_an_installation_that_has_changed_gets_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "ANSWER", PATIENCE)
    waiting = Standby(fake(tmp_path, "standby._changed_since = lambda moment: True"), lambda: dict(os.environ))
    waiting.prepare()
    assert asking(waiting, tmp_path) is None


@pytest.mark.parametrize("why", ["close", "idle", "parent"])
def test_it_ends_with_its_program_and_when_idle(tmp_path: Path, why: str) -> None:
    idle = "0" if why == "idle" else "None"
    waiting = Standby(fake(tmp_path, f"standby.IDLE = {idle}"), lambda: dict(os.environ))
    waiting.prepare()
    process, ours, _ = waiting._waiting  # type: ignore[misc]
    if why == "parent":
        ours.close()  # as the kernel does, however the parent ends
    elif why == "close":
        waiting.close()
    process.wait(PATIENCE)
    waiting.prepare()
    assert (waiting._waiting is None) == (why == "close")
    waiting.close()


def test_killing_the_program_that_started_it_ends_it(workspace: Workspace, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from icl_curate.engine.jobs.standby import Standby\n"
        "from icl_curate.engine.jobs.start import PROGRAM, environment\n"
        "waiting = Standby(PROGRAM, lambda: environment(Path(sys.argv[1]))); waiting.prepare()\n"
        "print(waiting._waiting[0].pid, flush=True); time.sleep(1000)"
    )
    command = [sys.executable, "-c", code, str(workspace.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as screen:
        assert screen.stdout is not None
        pid = int(screen.stdout.readline())
        screen.kill()
    until(lambda: gone(pid))


def test_what_comes_too_slowly_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "ANSWER", 0.01)
    waiting = Standby([sys.executable, "-c", "import time; time.sleep(1000)"], lambda: dict(os.environ))
    pid = ready(waiting)
    assert asking(waiting, tmp_path) is None and gone(pid)


def test_words_folder_files_and_variables_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "ANSWER", PATIENCE)
    shown = "lambda: print(sys.argv[1:], os.getcwd(), os.environ[OBSERVED], STANDBY in os.environ, flush=True)"
    waiting = Standby(fake(tmp_path, command=shown), lambda: dict(os.environ))
    waiting.prepare()
    long = "x" * 300_000  # more than a socket takes at once
    process = asking(waiting, tmp_path, "export", long)
    assert process is not None and process.wait(PATIENCE) == 0
    words = str(["export", long])
    assert (tmp_path / "out").read_text() == f"{words} {tmp_path} {tmp_path / 'watched'} False\n"


def fake(folder: Path, before: str = "", command: str = "lambda: None") -> list[str]:
    """A program that waits for words, without what takes long."""
    code = (
        "import os, sys\nfrom icl_curate.engine.jobs import OBSERVED, STANDBY, standby\n"
        f"{before}\nstandby.become(iter([None]), {command})()"
    )
    (folder / "fake.py").write_text(code)
    return [sys.executable, str(folder / "fake.py")]


def asking(waiting: Standby, folder: Path, *words: str) -> subprocess.Popen[bytes] | None:
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return waiting.take(words, os.environ | {OBSERVED: str(folder / "watched")}, out, err, str(folder))
