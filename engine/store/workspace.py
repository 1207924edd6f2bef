"""Short-lived access to the workspace.

DuckDB lets one process write, or several read. So nothing here keeps the file open: `Workspace.read` and
`Workspace.write` open it for the length of a ``with`` block, threads of one process share what is open, and if another
process holds the lock, they wait before they report which one. Reads come in bursts, and attaching a file takes longer
than a small query: after a read it stays attached for `LINGER` seconds, unless somebody wants to write. What stays open
for good is a DuckDB instance without a file: starting one takes eight times as long as attaching a file.

A workspace may come from somebody else. DuckDB is kept from every other file and from the environment, and what the
file holds is checked (`schema.check_content`) before it is queried.

If DuckDB or the operating system fails inside such a block (no space, no permission, a damaged file), a `CurateError`
is raised; a transaction that cannot be committed has changed nothing. New folders and files are accessible to their
owner only, because prompts and answers are private.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from ..base import files, memory
from ..base.errors import CurateError, DiskError, LockedError, NoWorkspaceError, WorkspaceError
from ..pool.display import display_line
from . import locks, schema

FILE = "workspace.duckdb"
WAL = FILE + ".wal"
DEFAULT = ".icl-curate"
HEADER = 3 * 4096
"""Size of DuckDB's headers in bytes: a shorter file has never held data."""
LINGER = 0.02
"""Seconds that a file stays attached after a read, for the next one."""
AT_A_STRETCH = 0.2
"""Seconds from which reads of a burst do not keep a file attached between them, so that another process may write."""
PATIENCE = 60.0
"""Default of the seconds to wait for another process's batch; ICL_CURATE_PATIENCE overrides it."""

_LOCKED = re.compile("could not set lock|used by another process|already open in", re.IGNORECASE)
_DAMAGED = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
_STORAGE = (*_DAMAGED, duckdb.TransactionException, duckdb.OutOfMemoryException)


@dataclass(eq=False)
class _Gate:
    """The open connection of this process to one file. Readers share it, writers take turns, readers do not starve a
    writer. ``file`` tells whether the file on the disk is still the one that was attached at ``since``; the last reader
    left at ``left`` (seconds, monotonic). ``version`` is that of the schema of the file, which was checked, and
    ``known`` is what the file was when it was closed: checking takes as long as a small write."""

    database: Path
    condition: threading.Condition = field(default_factory=threading.Condition)
    writing: threading.RLock = field(default_factory=threading.RLock)
    connection: duckdb.DuckDBPyConnection | None = None
    read_only: bool = True
    users: int = 0
    writers_waiting: int = 0
    held: threading.local = field(default_factory=threading.local)
    file: tuple[int, ...] = ()
    since: float = 0.0
    left: float = 0.0
    version: int = 0
    known: tuple[int, ...] = ()

    @property
    def depth(self) -> int:
        """How many blocks this thread is in."""
        return getattr(self.held, "depth", 0)

    def connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        """The connection, opened if there is none, or if the file has been replaced since the last read."""
        if self.connection is not None and self.users == 0 and _state_of(self.database) != self.file:
            self.close()
        if self.connection is None:
            connection = _connect(self.database, read_only)
            self.file, self.since = _state_of(self.database), time.monotonic()
            if not self.file or self.file != self.known:
                try:
                    with connection.cursor() as aside:
                        self.version = schema.check_content(aside, _ATTACHED, self.database)
                except BaseException:
                    _detach(self.database, connection)
                    raise
            self.connection, self.read_only = connection, read_only
        return self.connection

    def close(self) -> None:
        """Close what nobody uses."""
        connection, self.connection = self.connection, None
        if connection is not None:
            _detach(self.database, connection)
            self.known = _state_of(self.database)
            self.condition.notify_all()

    def leave(self) -> None:
        """Nobody uses the connection any more: close it, or keep it for the next read."""
        self.left = time.monotonic()
        if self.read_only and not self.writers_waiting and self.left - self.since < AT_A_STRETCH:
            _lingering.add(self)
        else:
            self.close()


_ATTACHED = "workspace"
"""The name of the attached file within DuckDB."""

_spare: dict[Path, duckdb.DuckDBPyConnection] = {}
"""Spare DuckDB instances without a file, by the folder that each is confined to."""
SPARE = 2
"""The most of them: two workspaces are compared by turns."""
_spare_lock = threading.Lock()

_gates: dict[Path, _Gate] = {}
_gates_lock = threading.Lock()


class Workspace:
    """A folder with the DuckDB file and the trained artefacts.

    `Workspace.create` creates or opens one, `Workspace.open` requires that it exists; both raise `WorkspaceError`.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve()
        except (OSError, RuntimeError) as error:  # circular links
            raise WorkspaceError(f"cannot open the workspace {path}: {error}", "choose another --workspace") from error
        self.database = self.path / FILE
        with _gates_lock:
            self._gate = _gates.setdefault(self.database, _Gate(self.database))

    @classmethod
    def create(cls, path: Path) -> Workspace:
        """Create the folder and the file if they are missing, and migrate an older file."""
        workspace = cls(path)
        _check_folder(workspace.path)
        try:
            if not _exists(workspace.database):
                workspace.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                _make(workspace.database)
        except OSError as error:
            raise WorkspaceError(
                f"cannot create the workspace {path}: {error.strerror or error}{files.owner(workspace.path)}",
                "choose another with --workspace",
            ) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Workspace:
        """Open an existing workspace; a missing one is a `NoWorkspaceError`."""
        workspace = cls(path)
        _check_folder(workspace.path)
        try:
            exists = _exists(workspace.database)
        except OSError as error:
            raise WorkspaceError(
                f"cannot read the workspace {path}: {error.strerror or error}{files.owner(workspace.path)}",
                "ask for access to it, or choose another with --workspace",
            ) from error
        if not exists:
            raise NoWorkspaceError(f"no workspace at {path}", "icl-curate index POOL.jsonl")
        with workspace.read():
            old = workspace._gate.version < schema.VERSION
        if old:
            with workspace.write():
                pass
        return workspace

    @contextmanager
    def read(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for reading; several processes may read at once."""
        with _explained(self.database), self._use(read_only=True) as con:
            yield con

    @contextmanager
    def write(self, *, dry_run: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor inside one transaction: committed when the block ends, rolled back when it raises or is a dry
        run."""
        with self._gate.writing, _explained(self.database), self._use(read_only=False) as con:
            if self._gate.version != schema.VERSION:
                schema.migrate(con)
                self._gate.version = schema.VERSION
            con.execute("BEGIN")
            try:
                yield con
            except BaseException:
                with suppress(duckdb.Error):  # the failed transaction may have ended already
                    con.execute("ROLLBACK")
                raise
            con.execute("ROLLBACK" if dry_run else "COMMIT")
            _close_to_others(self.path / WAL)

    @contextmanager
    def scratch(self, temporary: Path) -> Iterator[duckdb.DuckDBPyConnection]:
        """A database in memory, dropped afterwards, for work that leaves the workspace's file free for others. It puts
        what does not fit into the folder ``temporary``."""
        with _explained(self.database):
            con = in_memory(limits(temporary))
            try:
                yield con
            finally:
                con.close()

    @contextmanager
    def _use(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._gate.condition:
            connection = self._acquire_to_read() if read_only else self._acquire_to_write()
        try:
            with _cursor(connection) as cursor:
                yield cursor
        finally:
            self._release()

    # The three states of a gate, whose blocks share its connection:
    #
    #               a read                      a write
    #   READING  <----------  CLOSED  ------------------>  WRITING: one writer at a time; reads beside it share
    #      |                   ^  ^                           |     its connection
    #      +-------------------+  +---------------------------+
    #      the last one has left, `LINGER` ago     the last one has left
    #      or for a writer at once
    #
    # A writer that waits for readers to leave keeps new ones out. A thread that already reads goes in again all the
    # same, as that writer waits for it; it must not write, as it would wait for itself.

    def _acquire_to_read(self) -> duckdb.DuckDBPyConnection:
        gate = self._gate
        while not gate.depth and gate.writers_waiting:
            gate.condition.wait()
        return self._enter(read_only=True)

    def _acquire_to_write(self) -> duckdb.DuckDBPyConnection:
        gate = self._gate
        if gate.depth and gate.read_only:
            raise RuntimeError("write() inside read() of the same workspace")
        gate.writers_waiting += 1
        try:
            while gate.connection is not None and gate.read_only and gate.users:
                gate.condition.wait()
            if gate.read_only:
                gate.close()
        finally:
            gate.writers_waiting -= 1
        return self._enter(read_only=False)

    def _enter(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        gate = self._gate
        try:
            connection = gate.connect(read_only)
        finally:
            gate.condition.notify_all()
        gate.users += 1
        gate.held.depth = gate.depth + 1
        return connection

    def _release(self) -> None:
        gate = self._gate
        with gate.condition:
            gate.held.depth -= 1
            gate.users -= 1
            if gate.users == 0:
                gate.leave()


def _cursor(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    cursor = con.cursor()
    cursor.execute(f"USE {_ATTACHED}")
    return cursor


def _check_folder(folder: Path) -> None:
    """Raise `WorkspaceError` if something in the folder would have other places read or written, or would block."""
    if found := files.strange_entry(folder):
        entry, what = found
        raise WorkspaceError(
            f"the workspace {folder} is not used: {display_line(str(entry.relative_to(folder)))} is {what}",
            f"rm {shlex.quote(str(entry))}   (what a link leads to is kept)",
        )


def _exists(database: Path) -> bool:
    """Whether there is a database to open: not if there is no file, or only a partial file of a killed creation. Raises
    `OSError` if access is denied, and if it is not a regular file."""
    try:
        state = database.stat()
    except (FileNotFoundError, NotADirectoryError):
        if database.is_symlink():
            raise
        return False
    if state.st_size >= HEADER and stat.S_ISREG(state.st_mode):
        return True
    log = database.with_name(WAL)
    if log.exists() and log.stat().st_size:  # a log holds committed data: let DuckDB report what is wrong
        return True
    data = files.read_regular(database)
    begun = data[8:12] == b"DUCK"[: max(len(data) - 8, 0)]  # eight bytes of a checksum, then DuckDB's mark
    return any(data) and not begun


def _make(database: Path) -> None:
    """Create the database under another name, then rename it: after a kill there is no file or a complete one. If
    several processes try, one of them creates it."""
    with locks.exclusive(database.parent / "tmp" / "create.lock"):
        if _exists(database):
            return
        draft = database.with_name(f".{FILE}.new")
        logs = (draft.with_name(draft.name + ".wal"), database.with_name(WAL))
        for left in (draft, *logs):  # from a killed creation; our own log is empty here, or there would be a database
            left.unlink(missing_ok=True)
        try:
            with _explained(database):
                con = _attach(draft, read_only=False)
                try:
                    with _cursor(con) as cursor:
                        schema.migrate(cursor)
                finally:
                    _detach(draft, con)  # writes what is in its log into the file
            _close_to_others(draft)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.replace(database)
        finally:
            for left in (draft, logs[0]):
                left.unlink(missing_ok=True)


def _close_to_others(path: Path) -> None:
    """Restrict a file created by DuckDB to its owner."""
    with suppress(OSError):  # gone already, or a file system without owners
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def limits(temporary: Path) -> dict[str, Any]:
    """How an instance of DuckDB is started that may read a file of a stranger; it spills into the folder."""
    return {
        "memory_limit": f"{_memory_mib() // 4}MiB",  # DuckDB's own 80 % would starve numpy and torch
        "temp_directory": str(temporary),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_persistent_secrets": "false",  # the user's own, in the home folder
        "python_enable_replacements": "false",  # a table's name is no variable of this program
    }


def in_memory(config: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that prints nothing."""
    con = duckdb.connect(":memory:", config=dict(config or {}))
    # Where Python has no script, a bar goes to the standard output. In Jupyter without ipywidgets there is none, and to
    # set that is an error.
    if con.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        con.execute("SET enable_progress_bar = false")
    return con


def _connect(database: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the file; waits up to `PATIENCE` seconds for another process to close it."""
    if not database.is_file():  # DuckDB would create a file here, and would block on a pipe
        raise NoWorkspaceError(f"no workspace at {database.parent}", "icl-curate index POOL.jsonl")
    patience = locks.patience(PATIENCE)
    for waited in locks.waits():
        try:
            return _attach(database, read_only)
        except duckdb.Error as error:
            if not _LOCKED.search(str(error)):
                raise _explain(database, error) or _damaged(database, error) from error
            pid = re.search(r"\(PID (\d+)\)", str(error))
            holder = locks.process(int(pid[1]) if pid else None)
            if waited > patience:
                fix = f"close that program, or wait longer: {locks.VARIABLE}={max(600, round(10 * patience))} (seconds)"
                raise LockedError(f"workspace is open in {holder}", fix) from error
            locks.on_wait(holder, waited)
    raise AssertionError("unreachable")


def _state_of(database: Path) -> tuple[int, ...]:
    """What changes when a file is changed or replaced; empty if there is none."""
    try:
        found = database.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _attach(database: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A DuckDB instance with the file attached."""
    con = _instance(database.parent)
    try:
        con.execute(f"ATTACH {quoted(database)} AS {_ATTACHED} (TYPE duckdb{', READ_ONLY' if read_only else ''})")
    except BaseException:
        con.close()
        raise
    return con


def _instance(folder: Path) -> duckdb.DuckDBPyConnection:
    """The spare instance that is confined to the folder, or a new one."""
    if folder not in _spare:
        _lingering.close(wait=False)
    with _spare_lock:
        con = _spare.pop(folder, None)
    if con is None:
        con = in_memory(limits(folder / "tmp"))
        confine(con, f"allowed_directories = [{quoted(folder)}]")
    return con


def confine(con: duckdb.DuckDBPyConnection, allowed: str) -> None:
    """Keep all queries from files, the network and extensions, and from this setting, but for what is ``allowed``."""
    for setting in (allowed, "enable_external_access = false", "lock_configuration = true"):
        con.execute(f"SET {setting}")


def quoted(text: str | Path) -> str:
    """A text in SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def _detach(database: Path, con: duckdb.DuckDBPyConnection) -> None:
    """Detach the file and keep the instance for next time."""
    try:
        con.execute(f"DETACH {_ATTACHED}")
    except duckdb.Error:  # it no longer works after a damaged file or a full disk
        con.close()
        return
    with _spare_lock:
        others = [_spare.pop(database.parent, None)]
        _spare[database.parent] = con
        others += [_spare.pop(next(iter(_spare))) for _ in range(len(_spare) - SPARE)]
    for other in others:
        if other is not None:
            other.close()


class _Lingering:
    """Files that stay attached for some ``seconds``, and the thread that detaches them."""

    def __init__(self, seconds: float = LINGER) -> None:
        self.seconds = seconds
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._gates: set[_Gate] = set()
        self._some = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, gate: _Gate) -> None:
        with self._lock:
            self._gates.add(gate)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="icl-curate-detach", daemon=True)
                self._thread.start()
        self._some.set()

    def _run(self) -> None:
        while True:
            self._some.wait()
            time.sleep(self.seconds)
            self._some.clear()
            with self._looking:
                left = self.close(self.seconds)
            if left:
                self._some.set()

    def close(self, after: float = 0.0, wait: bool = True) -> int:
        """Detach what has not been used for ``after`` seconds, the one used last at the end: its instance is kept
        longest. How many are left. Without ``wait``, not what another thread is about to open or close."""
        with self._lock:
            gates = sorted(self._gates, key=lambda gate: gate.left)
        for gate in gates:
            if not gate.condition.acquire(blocking=wait):
                continue
            try:
                idle = gate.users == 0 and time.monotonic() - gate.left >= after
                if idle:
                    gate.close()
                if idle or gate.users:
                    with self._lock:
                        self._gates.discard(gate)
            finally:
                gate.condition.release()
        return len(self._gates)

    def before_fork(self) -> None:
        """A file that the child finds attached could not be opened there."""
        self._looking.acquire()
        self.close()

    def after_fork(self) -> None:
        self._looking.release()


_lingering = _Lingering()


@atexit.register
def _close_all() -> None:
    _lingering.close()
    while _spare:
        _spare.popitem()[1].close()


def _leave_to_parent() -> None:
    """After a fork the threads of DuckDB do not exist in the child: what is open must not be used there, or closed when
    the last reference is dropped."""
    global _spare_lock, _lingering
    _lingering = _Lingering()
    _spare_lock = threading.Lock()
    while _spare:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_spare.popitem()[1]))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lingering.before_fork(),
        after_in_parent=lambda: _lingering.after_fork(),
        after_in_child=_leave_to_parent,
    )


@contextmanager
def _explained(database: Path) -> Iterator[None]:
    """Raise DuckDB's disk and file errors as `CurateError`; errors in our SQL are not changed."""
    try:
        yield
    except duckdb.Error as error:
        fault = _explain(database, error)
        if fault is None:
            raise
        raise fault from error


def _explain(database: Path, error: duckdb.Error) -> CurateError | None:
    if not isinstance(error, _STORAGE):
        return None
    message = str(error).splitlines()[0]
    folder = database.parent
    if files.full(error) or "max_temp_directory_size" in message:
        return DiskError(f"no space left on the disk of {folder}", files.ROOM)
    if isinstance(error, duckdb.OutOfMemoryException):
        return DiskError(f"not enough memory: {message}", "close other programs and run the same command again")
    fault = files.fault(error)
    if fault and files.denied(error):
        return WorkspaceError(
            f"no access to the workspace {folder}: {fault.what}{files.owner(database)}",
            f"ask for access, or work on a copy: cp -r {shlex.quote(str(folder))} COPY && chmod -R u+w COPY, then add "
            "--workspace COPY",
        )
    if fault:
        return DiskError(f"{fault.what}: {folder}", fault.fix)
    if "WAL" in message.replace(str(database), ""):
        return WorkspaceError(
            f"the workspace's write-ahead log is damaged: {message}",
            f"mv '{database}.wal' '{database}.wal.damaged'  (loses changes since the last checkpoint)",
        )
    return _damaged(database, error) if isinstance(error, _DAMAGED) else None


def _damaged(database: Path, error: duckdb.Error) -> WorkspaceError:
    return WorkspaceError(
        f"cannot open {database}: {str(error).splitlines()[0]}",
        "restore the file from a backup, or index into a new workspace",
    )


@cache
def _memory_mib() -> int:
    return max((memory.total() or 4 * memory.GIB) >> 20, 1024)
