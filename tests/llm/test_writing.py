"""Answers that cannot be kept: the asking stops, they are tried again, and the user hears how many are lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from factories.backends import OwnBackend
from factories.patience import PATIENCE
from factories.servers import Server
from factories.usage import calls_in
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import WorkspaceError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.llm import loop, runner, writer
from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store import workspace as store
from icl_curate.engine.store.workspace import Workspace

AT_ONCE = 8
COUNT = 80
EARLY = 20
"""Prompts that are answered before something happens to the disk; the server holds the answers to the late ones."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRYING", 0.6, raising=False)


def _requests(count: int) -> list[Request]:
    texts = [f"{'item' if i < EARLY else 'late item'} {i}" for i in range(count)]
    return [Request(Prompt((Message("user", t),), Query(t)), sampling=Sampling(max_tokens=8)) for t in texts]


def _paid(server: Server) -> int:
    return sum(call.answered for call in server.asked("item"))


def _ask(server: Server, workspace: Workspace, report: Callable[[Event], None] = lambda event: None) -> list[Result]:
    settings = LLMSettings(base_url=server.url, concurrency=AT_ONCE)
    backend = OpenAIServer("stub", settings)
    try:
        return runner.ask(workspace, backend, _requests(COUNT), settings, monitor=Monitor(report))
    finally:
        loop.close(backend)


def _once_ten(act: Callable[[], object], server: Server | None = None) -> Callable[[Event], None]:
    """Does it when ten answers are safe; only then has the server any late answers sent."""
    done: list[bool] = []

    def report(event: Event) -> None:
        if event.done >= 10 and not done:
            done.append(True)
            act()
            if server is not None:
                server.let_go()

    return report


# no file may grow: every platform with limits has that

CHILD = """
import resource, sys
from pathlib import Path
from icl_curate.engine.base.errors import CurateError
from icl_curate.engine.llm import writer
from icl_curate.engine.store.workspace import Workspace
sys.path += sys.argv[3:]
import test_writing as here
writer.RETRYING = 0.6

class There:
    url = sys.argv[1]

notes = []
def act():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    print("full", flush=True)
limit = here._once_ten(act)
def report(event):
    notes.append(event.note)
    limit(event)
try:
    here._ask(There(), Workspace.open(Path(sys.argv[2])), report)
except CurateError as error:
    print("\\n".join(filter(None, notes)))
    print(error.exit_code)
    print(error.what)
    print(error.fix)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX limits")
def test_a_commit_that_fails_stops_the_asking_and_says_how_many_are_lost(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    here = Path(__file__).parent
    with Server(delay=0.02, held="late") as server:
        command = [sys.executable, "-c", CHILD, server.url, str(workspace.path), here, here.parent]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdout.readline() == "full\n"
            server.let_go()
            stdout, stderr = child.communicate(timeout=PATIENCE)
        assert "Traceback" not in stderr, stderr
        *notes, code, what, fix = stdout.splitlines()
        assert code == "5"
        assert any("no more requests are sent" in note for note in notes)
        assert fix
        kept, paid = calls_in(workspace), _paid(server)
        assert kept >= 10
        assert 0 < paid - kept <= AT_ONCE  # those in flight when the first commit failed
        assert f"{paid - kept} answer" in what
        assert "could not be saved" in what
        _ask(server, workspace)
        assert calls_in(workspace) == COUNT
        assert _paid(server) == COUNT + paid - kept  # nothing that was kept is paid again


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    store._lingering.close()
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder: Path, left: int) -> None:
    """Fill the disk; the writer beside may do so first."""
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while (free := shutil.disk_usage(folder).free) > left:
            file.write(b"\0" * min(1 << 16, free - left))


def test_nothing_is_asked_when_the_disk_is_nearly_full(small_disk: Path) -> None:
    workspace = Workspace.create(small_disk / "w")
    _fill(small_disk, 200_000)
    with Server() as server:
        with pytest.raises(WorkspaceError, match="is nearly full") as caught:
            _ask(server, workspace)
        assert "free some disk space" in caught.value.fix
        assert server.calls == []


def test_a_disk_that_fills_up_stops_the_asking(small_disk: Path) -> None:
    workspace = Workspace.create(small_disk / "w")
    with Server(delay=0.02, held="late") as server:
        with pytest.raises(WorkspaceError, match=r"is nearly full|no space left on the disk"):
            _ask(server, workspace, _once_ten(lambda: _fill(small_disk, 0), server))
        (small_disk / "ballast").unlink()
        kept, paid = calls_in(workspace), _paid(server)
        assert 10 <= kept < COUNT
        assert paid - kept <= AT_ONCE
        _ask(server, workspace)
        assert _paid(server) == COUNT + paid - kept


def test_a_disk_that_gets_low_loses_nothing(small_disk: Path) -> None:
    workspace = Workspace.create(small_disk / "w")
    with Server(delay=0.02, held="late") as server:
        with pytest.raises(WorkspaceError, match="is nearly full"):
            _ask(server, workspace, _once_ten(lambda: _fill(small_disk, 8 << 20), server))
        assert 10 <= calls_in(workspace) == _paid(server) < COUNT


def test_room_made_in_time_lets_the_asking_go_on(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRYING", 60.0)
    monkeypatch.setattr(writer, "ROOM", 0)
    workspace = Workspace.create(small_disk / "w")
    with Server(delay=0.02, held="late") as server:
        fill = _once_ten(lambda: _fill(small_disk, 0), server)

        def report(event: Event) -> None:
            fill(event)
            if "no more requests are sent" in event.note:
                (small_disk / "ballast").unlink()

        results = _ask(server, workspace, report)
        assert all(isinstance(result, Answer) for result in results)
        assert not (small_disk / "ballast").exists()
        assert _paid(server) == COUNT


def test_a_workspace_that_is_gone_is_one_line(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    with Server(delay=0.05, held="late") as server:
        with pytest.raises(WorkspaceError, match=r"answers? could not be saved") as caught:
            gone = tmp_path / "gone"  # moved in one step: a file that is written during a removal would keep the folder
            _ask(server, workspace, _once_ten(lambda: workspace.path.rename(gone), server))
        assert "\n" not in caught.value.what
        assert _paid(server) < COUNT / 2


class Odd(OwnBackend):
    """A local model, one of whose answers no table takes."""

    spec = "hf:odd"
    local, max_in_flight, batch_size = True, 1, 4

    def _answer(self, request: Request) -> Result:
        text = request.prompt.query.input
        return Answer("\ud800" if text == "item 2" else text)


def test_a_row_that_cannot_be_stored_takes_no_other_along(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    with pytest.raises(WorkspaceError, match="1 answer could not be saved"):
        runner.ask(workspace, Odd(), _requests(4))
    assert calls_in(workspace) == 3
