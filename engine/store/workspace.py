"""Opening the workspace, briefly.

DuckDB lets one process write, or several read. So nothing here keeps the file open: `Workspace.read` and
`Workspace.write` open it for the length of a ``with`` block (about 12 ms), threads of one process share what is
open, and another process's batch is waited for before the user is told who holds the lock.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from ..errors import LockedError, NoWorkspaceError, WorkspaceError
from . import schema

FILE = "workspace.duckdb"
DEFAULT = ".icl-curate"
PATIENCE = 5.0
"""Seconds to wait for another process's batch before giving up."""


@dataclass
class _Gate:
    """What this process has open of one file. Readers share, writers take turns, readers do not starve a writer."""

    condition: threading.Condition = field(default_factory=threading.Condition)
    writing: threading.RLock = field(default_factory=threading.RLock)
    connection: duckdb.DuckDBPyConnection | None = None
    read_only: bool = True
    users: int = 0
    writers_waiting: int = 0
    held: threading.local = field(default_factory=threading.local)


_gates: dict[Path, _Gate] = {}
_gates_lock = threading.Lock()


class Workspace:
    """A folder with the DuckDB file and the artefacts trained from it.

    `Workspace.create` makes or opens one, `Workspace.open` demands that it exists; both raise `WorkspaceError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.database = self.path / FILE
        with _gates_lock:
            self._gate = _gates.setdefault(self.database, _Gate())

    @classmethod
    def create(cls, path: Path) -> Workspace:
        """Make the folder and the file where they are missing, and migrate an older file."""
        workspace = cls(path)
        try:
            workspace.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkspaceError(
                f"cannot make the workspace {path}: {error.strerror}", "choose another with --workspace"
            ) from error
        with workspace.write():  # the first write migrates
            pass
        return workspace

    @classmethod
    def open(cls, path: Path) -> Workspace:
        """Open an existing workspace; a missing one is a `NoWorkspaceError`."""
        workspace = cls(path)
        if not workspace.database.exists():
            raise NoWorkspaceError(f"no workspace at {path}", "icl-curate index POOL.jsonl")
        with workspace.read() as con:
            version = schema.version_of(con)
            schema.check_version(version)
        if version < schema.VERSION:
            with workspace.write():
                pass
        return workspace

    @contextmanager
    def read(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor to read with; several processes may read at once."""
        with self._use(read_only=True) as con:
            yield con

    @contextmanager
    def write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor inside one transaction: committed when the block ends, rolled back when it raises."""
        with self._gate.writing, self._use(read_only=False) as con:
            schema.migrate(con)
            con.execute("BEGIN")
            try:
                yield con
            except BaseException:
                con.execute("ROLLBACK")
                raise
            con.execute("COMMIT")

    @contextmanager
    def _use(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        connection = self._acquire(read_only)
        cursor = connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()
            self._release()

    def _acquire(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        gate = self._gate
        depth = getattr(gate.held, "depth", 0)
        with gate.condition:
            if depth and not read_only and gate.read_only:
                raise RuntimeError("write() inside read() of the same workspace")
            if read_only:
                # a thread that already reads must not queue behind a writer that waits for it
                while not depth and gate.writers_waiting:
                    gate.condition.wait()
            else:
                gate.writers_waiting += 1
                while gate.connection is not None and gate.read_only:
                    gate.condition.wait()
                gate.writers_waiting -= 1
            try:
                if gate.connection is None:
                    gate.connection = _connect(self.database, read_only)
                    gate.read_only = read_only
            finally:
                gate.condition.notify_all()
            gate.users += 1
            gate.held.depth = depth + 1
            return gate.connection

    def _release(self) -> None:
        gate = self._gate
        with gate.condition:
            gate.held.depth -= 1
            gate.users -= 1
            if gate.users == 0 and gate.connection is not None:
                gate.connection.close()
                gate.connection = None
                gate.condition.notify_all()


def arrow(con: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """All rows of a query as an Arrow table, without the copy that a DB-API result makes of it.

    Asked on a cursor of its own: what ``con`` has not fetched yet would be in the way. So it sees what is committed.
    """
    with con.cursor() as cursor:
        return cursor.sql(sql).to_arrow_table()


def _connect(database: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the file, waiting up to `PATIENCE` seconds for another process to let go of it."""
    config = {
        "memory_limit": f"{_memory_mib() // 4}MiB",  # DuckDB's own 80 % would starve numpy and torch
        "temp_directory": str(database.parent / "tmp"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    deadline = time.monotonic() + PATIENCE
    wait = 0.02
    while True:
        try:
            return duckdb.connect(str(database), read_only=read_only, config=config)  # type: ignore[arg-type]
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                raise _explain(database, error) from error
            if time.monotonic() > deadline:
                raise _locked(error) from error
        except duckdb.Error as error:
            raise _explain(database, error) from error
        time.sleep(wait)
        wait = min(wait * 1.5, 0.25)


def _locked(error: Exception) -> WorkspaceError:
    pid = re.search(r"PID (\d+)", str(error))
    holder = f"PID {pid[1]}" if pid else "another process"
    return LockedError(f"workspace is open in {holder}", "close that program, or wait for it, and try again")


def _explain(database: Path, error: Exception) -> WorkspaceError:
    message = str(error).splitlines()[0]
    if "WAL" in message:
        return WorkspaceError(
            f"the workspace's write-ahead log is damaged: {message}",
            f"mv '{database}.wal' '{database}.wal.damaged'  (loses what was written since the last checkpoint)",
        )
    return WorkspaceError(
        f"cannot open {database}: {message}", "restore the file from a copy, or index again elsewhere"
    )


def _memory_mib() -> int:
    try:
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20, 1024)
    except (ValueError, OSError, AttributeError):  # not every platform tells
        return 4096
