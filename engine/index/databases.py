"""Rows that a query gives, of a database of DuckDB or SQLite, as JSON lines.

The query is the user's, the file may be a stranger's, and its views and macros run with the query. So it is opened to
be read, as no other file can be, without the network and extensions, and only a single SELECT is run.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

import duckdb

from ..base.errors import UsageError
from ..base.progress import SILENT, Monitor
from ..store.workspace import confine, limits
from .fields import few
from .readers.files import open_input
from .readers.formats import database_of
from .readers.records import LINE, distinct

SQL = "sql:"
"""In front of ``FILE?QUERY``."""
ROWS = 64
"""Rows that are taken from DuckDB at a time."""
MEMORY = 4 << 30
"""Bytes of address space of the process that asks DuckDB, which may use a quarter of them for itself."""
REFUSED = 3
"""Exit code of that process with an error of the user's."""
CUT = "select fewer columns, or cut them: left(body, 10000)"
LARGEST = 20 << 30
"""Bytes that a query may give: a view of a stranger's need not end."""

_TABLES = """
    SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_schema <> 'main'
     UNION ALL SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY ALL
"""
_SQLITE_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
)


def asked(files: Sequence[str], query: str) -> tuple[str, ...]:
    """The names by which `index` asks each file. Raises `UsageError` without a file."""
    if not files:
        raise UsageError("no database is named", "icl-curate index FILE.duckdb --sql 'select …'")
    return tuple(f"{SQL}{file}?{query}" for file in files)


def parted(pattern: str) -> tuple[str, str]:
    """The file and the query of ``FILE?QUERY``, with or without `SQL` in front. Raises `UsageError` without a query."""
    file, _, query = pattern.removeprefix(SQL).partition("?")
    if not query.strip():
        raise UsageError(f"there is no query for {file}", f"icl-curate index {quote(file)} --sql 'select …'")
    return file, query


def write_rows(file: str, query: str, out: BinaryIO, monitor: Monitor = SILENT) -> None:
    """Write what the query gives as an object a line, in its order. One row is in memory at a time, or a vector of
    rows in that of DuckDB, which has its bounds.

    Raises `UsageError` for a file that is no database, for what is not a single SELECT, that fails, reads another file
    or gives more than `LARGEST` bytes, and `Cancelled` between rows.
    """
    with open_input(file) as stream:
        kind = database_of(stream.read(16))
    if not kind:
        raise UsageError(f"{file} is no database of DuckDB or SQLite", f"icl-curate index {quote(file)}")
    size = 0
    for line in (_of_duckdb if kind == "DuckDB" else _of_sqlite)(file, query):
        monitor.check()
        size += out.write(line.encode() + b"\n")
        if size > LARGEST:
            raise UsageError(
                f"{file}: the query gives more than {LARGEST >> 30} GB", "select fewer rows: … LIMIT 100000"
            )
    if not size:
        raise UsageError(f"{file}: the query gives no row", "correct its conditions")


def _of_duckdb(file: str, query: str) -> Iterator[str]:
    """Rows from a process of its own, whose memory has a bound: DuckDB's own does not count the texts that a view of a
    stranger's makes (``repeat('x', 500000000)``)."""
    command = [sys.executable, "-P", "-c", f"from {__name__} import answer; answer()"]
    command += [str(Path(file).resolve()), file, str(MEMORY)]
    quiet = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # threads reserve memory
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=quiet
    ) as child:  # fmt: skip
        assert child.stdin and child.stdout and child.stderr
        try:
            with suppress(BrokenPipeError):
                child.stdin.write(query.encode())
                child.stdin.close()
            for line in child.stdout:
                yield line.decode().rstrip("\n")
            told = child.stderr.read().decode(errors="replace").splitlines()
        finally:
            child.kill()
    if child.returncode == REFUSED and len(told) > 1:
        raise UsageError(*told[-2:])
    if child.returncode:  # a process that gets no memory ends in many ways
        told = [f"ended with {child.returncode}", *told]
        raise UsageError(f"{file}: the query takes more than {MEMORY >> 30} GB of memory, or {told[-1][:200]}", CUT)


def answer() -> None:
    """In the process of `_of_duckdb`: write the rows that the query on stdin gives, an object a line; an error and its
    fix are the last lines of stderr."""
    path, file, memory = sys.argv[1:]
    with suppress(ImportError, ValueError, OSError):  # as far as the system has such a bound
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    out, err = os.fdopen(1, "wb"), os.fdopen(2, "wb")  # pipes to the process that asks, and no terminal
    try:
        for line in _rows_of_duckdb(path, file, sys.stdin.read(), int(memory)):
            out.write(line.encode() + b"\n")
        out.flush()
        os._exit(0)  # what is closed above is not to be closed again
    except UsageError as error:
        err.write(f"{' '.join(error.what.split())}\n{error.fix}\n".encode())
        err.flush()
        os._exit(REFUSED)
    except BrokenPipeError:  # nobody reads on
        os._exit(REFUSED)


def _rows_of_duckdb(path: str, file: str, query: str, memory: int) -> Iterator[str]:
    """DuckDB itself writes the objects, for it has types that Python lacks."""
    with tempfile.TemporaryDirectory() as scratch:
        # each thread has a vector of rows in memory
        config = limits(Path(scratch)) | {"threads": "1", "memory_limit": f"{memory >> 22}MiB"}
        try:
            con = duckdb.connect(path, read_only=True, config=config)
        except duckdb.Error as error:
            fix = "close what has it open, or take a whole copy of it"
            raise UsageError(f"cannot read {file}: {_line(error)}", fix) from error
        with closing(con):
            con.execute("SET enable_progress_bar = false")
            confine(con, "allowed_paths = []")
            tables = [name for (name,) in con.execute(_TABLES).fetchall()]
            try:
                _demand_select(file, con.extract_statements(query))
                # a line break, for the query may end in a comment, and a name that no column has
                whole = f"(\n{query.strip().rstrip(';')}\n) AS icl_curate_row"
                con.execute(f"SELECT CAST(to_json(icl_curate_row) AS VARCHAR) FROM {whole}")
                while rows := con.fetchmany(ROWS):
                    yield from (row[0] for row in rows)
            except (duckdb.OutOfMemoryException, MemoryError) as error:
                raise UsageError(f"{file}: {_line(error)}", CUT) from error
            except duckdb.Error as error:
                raise _failed(file, error, tables) from error


def _demand_select(file: str, statements: list[Any]) -> None:
    if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
        raise UsageError(f"{file}: the query is not a single SELECT", "--sql 'select … from …'")


def _of_sqlite(file: str, query: str) -> Iterator[str]:
    with closing(sqlite3.connect(f"{Path(file).resolve().as_uri()}?mode=ro", uri=True)) as con:
        # what is not UTF-8 becomes a text that no row may have, and the row is told
        con.text_factory = lambda text: text.decode(errors="surrogateescape")
        con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LINE)
        tables: list[str] = []
        try:
            tables = [name for (name,) in con.execute(_SQLITE_TABLES)]
            con.execute("PRAGMA trusted_schema = OFF")
            con.set_authorizer(_may)
            rows = con.execute(query)
            names = distinct([column[0] for column in rows.description or ()])
            for row in rows:
                yield json.dumps(dict(zip(names, map(_plain, row), strict=True)))
        except sqlite3.DatabaseError as error:
            if "not authorized" in str(error) or "one statement" in str(error):
                _demand_select(file, [])
            raise _failed(file, error, tables) from error


_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def _may(action: int, *of: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _plain(value: Any) -> Any:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def _failed(file: str, error: Exception, tables: list[str]) -> UsageError:
    return UsageError(f"{file}: {_line(error)}", f"correct the query; tables: {few(tables) or 'none'}")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
