"""What kills, full disks, missing permissions and other processes do to a workspace."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from factories.commands import Run
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import CurateError, DiskError, LockedError, NoWorkspaceError, WorkspaceError
from icl_curate.engine.base.files import fault
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.retrieval.artefacts import lexical_index
from icl_curate.engine.store import locks
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.workspace import FILE, HEADER, WAL, Workspace

TESTS = Path(__file__).parents[1]


def _script(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", f"import sys\nsys.path.append({str(TESTS)!r})\n{code}", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done


def _note(store: Workspace, run: int) -> None:
    with store.write() as con:
        con.execute("INSERT INTO metrics VALUES (?, 1, 'x', 0)", [run])


def _notes(store: Workspace) -> list[int]:
    with store.read() as con:
        return [run for (run,) in con.execute("SELECT run FROM metrics ORDER BY run").fetchall()]


def _pool(path: Path, rows: int = 60) -> Path:
    lines = (
        f'{{"id": "{i}", "input": "question {i}", "output": "{"yn"[i % 2]}", "source": "s{i % 3}"}}\n'
        for i in range(rows)
    )
    path.write_text("".join(lines))
    return path


def _indexed(folder: Path, pool: Path) -> Workspace:
    store = Workspace.create(folder)
    index_pool(store, IndexPlan(paths=(str(pool),), encoder=None))
    return store


# Creation.


@pytest.mark.parametrize("size", [0, 1, 9, 100, 4096, 8192, HEADER - 1])
def test_what_a_killed_creation_left_is_made_again(tmp_path: Path, size: int) -> None:
    """DuckDB writes three headers of 4 KiB before anything can be kept in the file."""
    Workspace.create(tmp_path / "whole")
    (left := tmp_path / "w").mkdir()
    (left / FILE).write_bytes((tmp_path / "whole" / FILE).read_bytes()[:size])
    (left / WAL).touch()
    with pytest.raises(NoWorkspaceError):
        Workspace.open(left)
    _note(Workspace.create(left), 7)
    assert _notes(Workspace.open(left)) == [7]
    assert {path.name for path in left.iterdir()} == {FILE, "tmp"}


def test_what_may_hold_something_is_never_made_again(tmp_path: Path) -> None:
    note, log, gone = (tmp_path / name for name in ("note", "log", "gone"))
    for folder in (note, log, gone):
        folder.mkdir()
    (note / FILE).write_text("somebody's own notes, by an unlucky name")
    (log / FILE).write_bytes(b"")
    (log / WAL).write_bytes(b"what was committed")
    (gone / FILE).symlink_to(tmp_path / "a disk that is not mounted" / FILE)
    before = {path: path.read_bytes() for folder in (note, log) for path in folder.iterdir()}
    for folder in (note, log, gone):
        with pytest.raises(WorkspaceError) as caught:
            Workspace.create(folder)
        assert caught.value.fix
        assert "\n" not in caught.value.what
    assert {path: path.read_bytes() for path in before} == before
    assert (gone / FILE).is_symlink()


def test_a_creation_killed_at_any_step_can_be_gone_on_with(tmp_path: Path) -> None:
    done = _script(
        """
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
from factories.killing import killed_at
step = 1
while killed_at(step, lambda: Workspace.create(Path(sys.argv[1]) / str(step))):
    step += 1
print(step)
""",
        tmp_path,
    )
    steps = int(done.stdout)
    assert steps > 5
    for step in range(1, steps):
        store = Workspace.create(tmp_path / str(step))
        _note(store, step)
        assert _notes(store) == [step]
        assert {path.name for path in store.path.iterdir()} == {FILE, "tmp"}


def test_many_who_create_at_once_share_one_workspace(tmp_path: Path) -> None:
    _script(
        """
import os
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
for number in range(6):
    if not os.fork():
        try:
            with Workspace.create(Path(sys.argv[1])).write() as con:
                con.execute("INSERT INTO metrics VALUES (?, 1, 'x', 0)", [number])
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
sys.exit(sum(os.waitpid(-1, 0)[1] != 0 for _ in range(6)))
""",
        tmp_path / "w",
    )
    assert _notes(Workspace.open(tmp_path / "w")) == list(range(6))


@pytest.mark.parametrize("kind", ["folder", "pipe", "circle"])
def test_a_place_that_is_no_database_is_told_at_once(tmp_path: Path, kind: str) -> None:
    place = tmp_path / FILE
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(place)
    for way in (Workspace.open, Workspace.create):
        with pytest.raises(WorkspaceError):
            way(tmp_path)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(WorkspaceError):
        Workspace.create(tmp_path / "round")


# A disk that is full.


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB, where this user may mount one."""
    (disk := tmp_path / "disk").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "small", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


def test_a_full_disk_is_one_line_and_nothing_kept_is_lost(small: Path, tmp_path: Path) -> None:
    store = _indexed(small / "w", _pool(tmp_path / "pool.jsonl"))
    decide(store, "prune", "source", ["s1"])
    more = _pool(tmp_path / "more.jsonl", 900)
    out = small / "out.jsonl"
    export(store, ExportPlan(out=out))
    before = out.read_bytes(), out.with_name("out.jsonl.manifest.json").read_bytes()
    for work in (
        lambda: index_pool(store, IndexPlan(paths=(str(more),), encoder=None)),
        lambda: decide(store, "prune", "source", ["s2"]),
        lambda: export(store, ExportPlan(out=out, force=True)),
        lambda: Workspace.create(small / "another"),
    ):
        filler = _fill(small)
        with pytest.raises(CurateError) as caught:
            try:
                work()
            except OSError as error:  # as the command line tells it
                told = fault(error)
                assert told
                raise told from error
        assert "\n" not in caught.value.what
        assert "space" in f"{caught.value.what} {caught.value.fix}"
        seen = overview(Workspace.open(small / "w"))
        assert (seen.pool, seen.pruned, seen.decisions) == (60, 20, 1)
        assert (out.read_bytes(), out.with_name("out.jsonl.manifest.json").read_bytes()) == before
        filler.unlink()
    decide(Workspace.open(small / "w"), "prune", "source", ["s2"])
    index_pool(store, IndexPlan(paths=(str(more),), encoder=None))
    assert overview(store).decisions == 2
    _note(Workspace.create(small / "another"), 1)


@pytest.mark.parametrize("command", [["prune", "--source", "s1"], ["index", "more.jsonl", "--no-encode"]])
def test_a_command_that_may_not_write_more_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """The portable form of a full disk: a limit on the size of files."""
    monkeypatch.chdir(tmp_path)
    store = _indexed(tmp_path / "w", _pool(tmp_path / "pool.jsonl"))
    _pool(tmp_path / "more.jsonl", 3000)
    limit = 200  # less than a log's or a staging file's first write

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", "from icl_curate.cli import main; main()", *command, "-w", "w"],
        preexec_fn=limited, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 5), done.stderr
    assert "Traceback" not in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith(("error", "fix"))] == [
        "error",
        "fix",
    ]
    assert overview(Workspace.open(store.path)).decisions == 0


def test_refusals_of_the_system_have_a_mend_whoever_words_them() -> None:
    import errno

    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE):
        plain, wrapped = OSError(number, os.strerror(number), "/a/b"), RuntimeError(f"sink: {os.strerror(number)}")
        for error in (plain, wrapped):
            told = fault(error)
            assert isinstance(told, DiskError)
            assert os.strerror(number).lower() in told.what.lower()
            assert told.fix
    assert "/a/b" in fault(OSError(errno.EACCES, "no", "/a/b")).what  # type: ignore[union-attr]
    assert fault(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None
    assert fault(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) is None


# Permissions.


def _open_to_others(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in [folder, *folder.rglob("*")]
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def test_a_workspace_is_its_owners_alone_and_an_export_is_not(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = _indexed(tmp_path / "w", _pool(tmp_path / "pool.jsonl"))
        export(store, ExportPlan(out=tmp_path / "out.jsonl"))
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((store.path / FILE).stat().st_mode) == 0o600
        for name in ("out.jsonl", "out.jsonl.manifest.json"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o644
        lexical_index(store)  # in a folder of its own
        assert _open_to_others(store.path) == []
        store.path.chmod(0o755)  # as older releases made it
        with store.read():  # holds the file, so that the log stays
            pass
        index_pool(store, IndexPlan(paths=(str(_pool(tmp_path / "pool.jsonl", 70)),), encoder=None))
        files = [name for name in _open_to_others(store.path) if (store.path / name).is_file()]
        assert files == []
        with store.write() as con:
            con.execute("INSERT INTO metrics VALUES (1, 1, 'x', 0)")
            with store.write() as again:  # commits while the first still holds the file: its log stays
                again.execute("INSERT INTO metrics VALUES (2, 1, 'x', 0)")
            assert stat.S_IMODE((store.path / WAL).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_read_only_workspace_is_read_and_the_rest_told(small: Path, tmp_path: Path, run: Run) -> None:
    store = _indexed(small / "w", _pool(tmp_path / "pool.jsonl"))
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    for command in (["status"], ["preview", "question 1", "-m", "bm25"]):
        done = run(*command, "-w", store.path)
        assert done.code == 0, done.err
    done = run("prune", "--source", "s1", "-w", store.path)
    assert done.code == 5
    assert "read-only" in done.err
    assert "Traceback" not in done.err


def test_a_workspace_of_somebody_else_is_told_by_its_owner(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root may act as somebody else")
    folder = Path(
        shutil.copytree(_indexed(tmp_path / "w", _pool(tmp_path / "pool.jsonl")).path, "/var/tmp/icl-curate-test")
    )
    try:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        done = _script(
            """
import os
from pathlib import Path
from icl_curate.engine.base.errors import WorkspaceError
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.workspace import Workspace
os.setuid(65534)
store = Workspace.open(Path(sys.argv[1]))
print(overview(store).pool)
try:
    decide(store, "prune", "source", ["s1"])
except WorkspaceError as error:
    print(error.what)
""",
            folder,
        )
        pool, told = done.stdout.splitlines()
        assert pool == "60"
        assert "ermission denied" in told
        assert "belongs to root" in told
    finally:
        shutil.rmtree(folder)


# Other processes.

_HOLD = """
import sys
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
with Workspace(Path(sys.argv[-1])).write():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Workspace, subprocess.Popen[str]]]:
    """A workspace that another process has open until its stdin is closed."""
    store = Workspace.create(tmp_path / "w")
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, "evaluate", "\x1b[31m", str(store.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout and child.stdin
    assert child.stdout.readline() == "held\n"
    yield store, child
    child.stdin.close()
    child.stdout.close()
    child.wait(PATIENCE)


def test_who_is_waited_for_is_said_and_the_wait_can_be_ended(
    held: tuple[Workspace, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, child = held
    told: list[str] = []

    def ended(what: str, waited: float) -> None:
        told.append(what)
        if len(told) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(locks, "on_wait", ended)
    with pytest.raises(KeyboardInterrupt), store.read():
        pass
    if sys.platform == "linux":
        assert f"PID {child.pid} (icl-curate" in told[0]
        assert "evaluate" in told[0]
    assert "\x1b" not in told[0]
    monkeypatch.setenv(locks.VARIABLE, "0.1")
    with pytest.raises(LockedError) as caught, store.read():
        pass
    assert f"PID {child.pid}" in caught.value.what
    assert locks.VARIABLE in caught.value.fix

    def release(what: str, waited: float) -> None:
        if not child.stdin.closed:  # type: ignore[union-attr]
            child.stdin.close()  # type: ignore[union-attr]

    monkeypatch.setattr(locks, "on_wait", release)
    monkeypatch.setenv(locks.VARIABLE, "60")
    assert _notes(store) == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            ["/home/a/icl_curate/.venv/bin/python", "/home/a/icl_curate/.venv/bin/icl-curate", "prune"],
            "icl-curate prune",
        ),
        (["/home/a/icl_curate/.venv/bin/python", "-m", "icl_curate", "prune"], "icl-curate prune"),
        (["python", "-c", "from icl_curate.cli import main; main()", "prune"], "icl-curate prune"),
        (["/usr/bin/less", "/home/a/.icl-curate/config.toml"], "less"),
    ],
)
def test_a_process_is_named_by_what_it_runs(words: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda self: "\0".join([*words, ""]).encode())
    assert locks.process(7) == f"PID 7 ({wanted})"


def test_ctrl_c_ends_a_commands_waiting(held: tuple[Workspace, subprocess.Popen[str]]) -> None:
    store, _ = held
    command = [sys.executable, "-c", "from icl_curate.cli import main; main()", "export", "out.jsonl", "-w", store.path]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr
    assert waiting.stderr.readline().startswith("waiting for PID ")
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130, said
    assert "Traceback" not in said


def test_a_folder_named_lock_does_not_make_a_damaged_file_a_held_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Workspace.create(tmp_path / "locked" / "w")
    data = bytearray((store.path / FILE).read_bytes())
    data[:HEADER] = bytes(HEADER)
    (store.path / FILE).write_bytes(data)
    waits: list[str] = []
    monkeypatch.setattr(locks, "on_wait", lambda what, waited: waits.append(what))
    with pytest.raises(WorkspaceError, match="cannot open") as caught:
        Workspace.open(store.path)
    assert not isinstance(caught.value, LockedError) and not waits


def test_many_commands_at_once_all_end_well(tmp_path: Path) -> None:
    _script(
        """
import os
from pathlib import Path
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.workspace import Workspace
pool, folder = Path(sys.argv[1]), Path(sys.argv[2])
works = [
    lambda i: index_pool(Workspace.create(folder), IndexPlan(paths=(str(pool),), encoder=None)),
    lambda i: decide(Workspace.open(folder), "prune", "demonstration", [str(i)]),
    lambda i: overview(Workspace.open(folder)),
    lambda i: export(Workspace.open(folder), ExportPlan(out=folder / f"out{i}.jsonl")),
]
for i in range(8):
    if not os.fork():
        try:
            works[i % 4](i)
        except BaseException as error:
            print(i, error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
sys.exit(sum(os.waitpid(-1, 0)[1] != 0 for _ in range(8)))
""",
        _pool(tmp_path / "pool.jsonl"),
        _indexed(tmp_path / "w", tmp_path / "pool.jsonl").path,
    )
    seen = overview(Workspace.open(tmp_path / "w"))
    assert (seen.pool, seen.pruned, seen.decisions) == (60, 2, 2)


def test_a_copy_made_while_it_is_written_opens_whole_or_says_no(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path / "w")
    done = threading.Event()
    written = []

    def write() -> None:
        for i in range(12):
            _note(store, i)
            written.append(i)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    copies = 0
    while not done.is_set():
        known = len(written)
        copy = tmp_path / f"copy{copies}"
        copy.mkdir()
        for name in (FILE, WAL):
            try:
                shutil.copyfile(store.path / name, copy / name)
            except FileNotFoundError:
                continue
        copies += 1
        try:
            notes = _notes(Workspace.open(copy))
        except CurateError as error:
            assert "\n" not in error.what
            continue
        assert notes == list(range(len(notes)))
        assert len(notes) >= known - 1
    writer.join()
    assert copies
