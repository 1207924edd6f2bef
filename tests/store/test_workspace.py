"""The workspace file: versions, locks between processes and threads, kills."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import WorkspaceError
from icl_curate.engine.store import locks, schema, workspace
from icl_curate.engine.store.runs import VALUE, outcomes
from icl_curate.engine.store.workspace import FILE, Workspace


def _count(store: Workspace) -> int:
    with store.read() as con:
        row = con.execute("SELECT count(*) FROM metrics").fetchone()
    assert row
    return int(row[0])


def test_a_missing_workspace_is_named_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        Workspace.open(tmp_path / "none")
    assert caught.value.exit_code == 5
    assert "index" in caught.value.fix
    assert not (tmp_path / "none").exists()


def test_a_newer_workspace_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with store.write():
        pass
    workspace._lingering.close()
    with duckdb.connect(store.database) as con:  # as another process would write it
        con.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    with pytest.raises(WorkspaceError, match="999"), store.write():
        pass
    with pytest.raises(WorkspaceError, match="999"):
        Workspace.open(tmp_path)
    with pytest.raises(WorkspaceError, match="999"):
        Workspace.create(tmp_path)


def test_an_older_workspace_is_migrated_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Workspace.create(tmp_path)
    with store.write() as con:
        con.execute("INSERT INTO metrics VALUES (1, 1, 'loss', 0.5)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE metrics ADD COLUMN note VARCHAR"))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    reopened = Workspace.open(tmp_path)
    with reopened.read() as con:
        assert schema.version_of(con) == schema.VERSION
        assert con.execute("SELECT value, note FROM metrics").fetchall() == [(0.5, None)]


def test_outcomes_of_older_evaluations_get_their_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [
        ("a", "", True, "right"), ("b", "", False, "wrong"), ("c", "no verdict of the judge", None, "unjudged"),
        (None, "context: HTTP 400: too long", None, "refused"), (None, "rate_limit: HTTP 429: wait", None, "failed"),
    ]  # fmt: skip
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:12])
        older.setattr(schema, "VERSION", 12)
        store = Workspace.create(tmp_path)
        with store.write() as con:
            con.executemany(
                "INSERT INTO evaluations VALUES (1, 'zero', 0, ?, [], 0, ?, ?, ?, NULL, NULL, 0, 0)",
                [[row, answer, failure, right] for row, (answer, failure, right, _) in enumerate(kept)],
            )
    workspace._lingering.close()
    with Workspace.open(tmp_path).read() as con:
        found = con.execute("SELECT state FROM evaluations ORDER BY row").fetchall()
        assert found == [(state,) for *_, state in kept]
        values = con.execute(f"SELECT {VALUE} FROM evaluations ORDER BY row").fetchall()
        assert values == [(1,), (0,), (None,), (0,), (None,)]
    assert {(one.how, one.reply) for one in outcomes(Workspace.open(tmp_path), 1, "zero")} <= {("", None)}
    with Workspace.open(tmp_path).write() as con:
        con.execute("UPDATE evaluations SET value = 0.4 WHERE row IN (0, 4)")
        values = con.execute(f"SELECT {VALUE} FROM evaluations ORDER BY row").fetchall()
        assert values == [(0.4,), (0,), (None,), (0,), (None,)]


def test_an_older_file_put_in_its_place_is_migrated_by_who_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
        patch.setattr(schema, "VERSION", schema.VERSION - 1)
        older = Workspace.create(tmp_path / "older")
    for replace in (shutil.copyfile, os.replace):
        store = Workspace.create(tmp_path / replace.__name__)
        with store.write() as con:
            assert schema.version_of(con) == schema.VERSION
        workspace._lingering.close()
        replace(older.database, store.database)
        with store.write() as con:
            assert schema.version_of(con) == schema.VERSION


def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Workspace.create(tmp_path)
    before = schema.VERSION
    broken = "CREATE TABLE halfway (x INT); SELECT * FROM no_such_table"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        patch.setattr(schema, "VERSION", before + 1)
        with pytest.raises(duckdb.Error):
            Workspace.open(tmp_path)
    with Workspace.open(tmp_path).read() as con:
        assert schema.version_of(con) == before
        assert not con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'halfway'").fetchone()


def test_a_raising_block_rolls_back(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with pytest.raises(ZeroDivisionError), store.write() as con:
        con.execute("INSERT INTO metrics VALUES (1, 1, 'loss', 0.5)")
        _ = 1 / 0
    assert _count(store) == 0


def test_readers_and_writers_in_threads_neither_fail_nor_starve(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    problems: list[BaseException] = []

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            problems.append(error)

    def read() -> None:
        for _ in range(30):
            with store.read(), store.read() as con:
                con.execute("SELECT count(*) FROM active").fetchall()

    def write() -> None:
        for i in range(15):
            with store.write() as con:
                con.execute("INSERT INTO metrics VALUES (1, ?, 'x', 0)", [i])

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in (read, read, write, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems
    assert _count(store) == 30


def test_writing_inside_reading_is_a_programming_error_not_a_deadlock(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with store.read(), pytest.raises(RuntimeError), store.write():
        pass
    with store.write():
        pass


_HOLD = """
import sys, time
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
with Workspace(Path(sys.argv[1])).write() as con:
    con.execute("INSERT INTO metrics VALUES (7, 7, 'held', 7)")
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def _holder(path: Path, seconds: float) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", _HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    return child


def test_another_processs_lock_is_waited_for_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Workspace.create(tmp_path)
    child = _holder(tmp_path, 1.0)
    assert _count(store) == 1  # waited for the child's batch
    child.wait(PATIENCE)
    monkeypatch.setattr(workspace, "PATIENCE", 0.2)
    child = _holder(tmp_path, 60)
    try:
        with pytest.raises(WorkspaceError) as caught:
            _count(store)
        assert f"PID {child.pid}" in caught.value.what
    finally:
        child.kill()
        child.wait()


_WRITE = """
import sys
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
with Workspace(Path(sys.argv[1])).write() as con:
    con.execute("INSERT INTO metrics VALUES (8, 8, 'other', 8)")
"""


def _write_elsewhere(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _WRITE, str(path)], env={**os.environ, locks.VARIABLE: "0.2"}, check=True)


def _spare() -> dict[Path, duckdb.DuckDBPyConnection]:
    """What is kept once no file is attached any more."""
    workspace._lingering.close()
    return workspace._spare


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file is detached by a thread while a test runs, nor one that an earlier test has left."""
    _spare()
    monkeypatch.setattr(workspace, "_lingering", workspace._Lingering(3600))
    yield
    _spare()


def test_the_file_is_let_go_of_after_every_block_and_read_anew(tmp_path: Path) -> None:
    _spare()  # nothing of earlier tests is left to be detached
    store, other = Workspace.create(tmp_path / "it's one"), Workspace.create(tmp_path / "two")
    with store.read() as con:
        left = con.sql("SELECT * FROM metrics")  # a result that is still held
        unread = con.execute("SELECT * FROM range(100000), metrics")
    _write_elsewhere(store.path)
    assert _count(store) == 1
    with pytest.raises(ZeroDivisionError), store.write() as con:
        con.execute("INSERT INTO metrics VALUES (9, 9, 'lost', 9)")
        raise ZeroDivisionError
    _write_elsewhere(store.path)
    assert (_count(store), _count(other), _count(store)) == (2, 0, 2)
    assert _spare().keys() == {other.path, store.path}  # of all that were opened one DuckDB is kept for each
    del left, unread


@pytest.mark.usefixtures("undisturbed")
def test_each_folder_has_a_duckdb_of_its_own_and_two_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_memory_mib", lambda: 160)
    stores = [Workspace.create(tmp_path / name) for name in ("it's one", "two", "three")]

    def folder(store: Workspace) -> Path:
        with store.read() as con:
            found = con.execute("SELECT current_setting('temp_directory')").fetchone()
        return Path(found[0])

    assert [folder(store) for store in stores] == [store.path / "tmp" for store in stores]
    kept = _spare()[stores[2].path]
    with stores[2].read() as con:  # sorts more than fits
        con.execute("SELECT i FROM (SELECT random() AS i FROM range(6000000)) ORDER BY i").fetchone()
    assert list(_spare()) == [stores[1].path, stores[2].path]
    assert _spare()[stores[2].path] is kept  # an instance is started once for all reads


_FORK = """
import os, sys
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
store = Workspace(Path(sys.argv[1]))
with store.write() as con:
    con.execute("INSERT INTO metrics VALUES (1, 1, 'before', 1)")
if os.fork() == 0:
    with store.write() as con:
        con.execute("INSERT INTO metrics SELECT i, i, 'child', 1 FROM range(100000) AS t(i)")
    other = Workspace.create(Path(sys.argv[1]) / "other")  # of which another DuckDB is kept from now on
    with other.read():
        pass
    os._exit(0)
assert os.wait()[1] == 0
with store.read() as con:
    print(con.execute("SELECT count(*) FROM metrics").fetchone()[0])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_leaves_alone_what_its_parent_kept(tmp_path: Path) -> None:
    """The threads of that DuckDB are not there."""
    Workspace.create(tmp_path)
    command = [sys.executable, "-c", _FORK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "100001\n"


@pytest.mark.parametrize("config", ["{}", "{'IPKernelApp': {}}"])
def test_no_progress_bar_is_among_what_a_notebook_prints(tmp_path: Path, config: str) -> None:
    """In Jupyter, by which DuckDB takes a configuration of IPython, there are no ipywidgets here."""
    code = (
        "import sys; from types import SimpleNamespace as Module\n"
        f"sys.modules['IPython'] = Module(get_ipython=lambda: Module(config={config}))\n"
        "from pathlib import Path; from icl_curate.engine.store.workspace import Workspace\n"
        "store = Workspace.create(Path(sys.argv[1])); asked = \"SELECT current_setting('enable_progress_bar')\"\n"
        "with store.read() as con, store.scratch(store.path) as other:\n"
        "    print([each.execute(asked).fetchone()[0] for each in (con, other)])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "w")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[False, False]\n"


def test_kill_9_in_a_transaction_loses_only_that_transaction(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with store.write() as con:
        con.execute("INSERT INTO metrics VALUES (1, 1, 'kept', 1)")
    child = _holder(tmp_path, 60)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    time.sleep(0.05)
    assert _count(Workspace.open(tmp_path)) == 1


def test_a_file_that_is_no_database_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("this is not a database, it is a note of at least some length\n" * 100)
    with pytest.raises(WorkspaceError) as caught:
        Workspace.open(tmp_path)
    assert "\n" not in caught.value.what
    assert caught.value.fix


def test_reads_in_a_burst_attach_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Workspace.create(tmp_path / "w")
    attached: list[bool] = []
    attach = workspace._attach

    def counted(database: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
        attached.append(read_only)
        return attach(database, read_only)

    monkeypatch.setattr(workspace, "_attach", counted)
    workspace._lingering.close()
    monkeypatch.setattr(workspace, "_lingering", workspace._Lingering(60.0))
    monkeypatch.setattr(workspace, "AT_A_STRETCH", 60.0)
    assert [_count(store) for _ in range(5)] == [0] * 5 and attached == [True]
    with store.write() as con:  # has the file to itself, and what was read before is read anew
        con.execute("INSERT INTO metrics VALUES (1, 1, 'mine', 1)")
    assert [_count(store) for _ in range(2)] == [1, 1] and attached == [True, False, True]

    kept = tmp_path / "kept"
    shutil.copytree(store.path, kept)
    with store.write() as con:
        con.execute("DELETE FROM metrics")
    assert _count(store) == 0
    (kept / FILE).replace(store.database)  # another file under the same name
    assert _count(store) == 1

    monkeypatch.setattr(workspace, "AT_A_STRETCH", 0.0)  # a burst that never ends lets others write
    attached.clear()
    workspace._lingering.close()
    assert [_count(store) for _ in range(3)] == [1] * 3 and attached == [True] * 3


def test_another_process_writes_a_moment_after_a_read(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    assert _count(store) == 0
    _write_elsewhere(store.path)
    assert _count(store) == 1
