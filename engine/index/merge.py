"""The one transaction that brings the tables up to date with the staged rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np

from ..base.arrays import Int64s
from ..base.errors import UsageError, counted
from ..pool.records import TaskKind
from ..store import columns
from ..store.demonstrations import next_row, retire, revive
from ..store.workspace import Workspace
from .files import IndexedFile, sign_outside
from .readers.files import STDIN
from .results import Skipped

MOST_LABELS, ROWS_A_LABEL, LABEL_LENGTH = 300, 5, 60
"""Limits of a closed set of labels: number of labels, mean rows per label, characters per label."""


def merge(
    con: duckdb.DuckDBPyConnection,
    workspace: Workspace,
    files: list[IndexedFile],
    staging: Path,
    skipped: list[Skipped],
    strict: bool,
) -> tuple[int, int, int]:
    """Bring the tables up to date with the staged rows; returns how many rows were added, retired and revived."""
    names = [file.name for file in files]
    con.execute("DELETE FROM skipped WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    if skipped:
        columns.insert(con, "skipped", columns.of_rows([asdict(one) for one in skipped]))
    _load(con, workspace, staging, names)
    _refuse_taken_ids(con, strict)
    counts = _apply(con, names)
    if any(file.reading.split is None for file in files):
        _refuse_empty_pool(con)
    con.execute("DELETE FROM files WHERE path IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    for file in files:
        con.execute(
            """
            INSERT INTO files SELECT ?, ?, ?, count(*), now() AT TIME ZONE 'UTC' FROM demonstrations
             WHERE file = ? AND retired_at IS NULL
            """,
            [file.name, file.digest, file.reading.text(), file.name],
        )
    sign_outside(con, workspace, files)
    con.execute("INSERT OR REPLACE INTO meta VALUES ('task', ?)", [_task(con)])
    con.execute("DELETE FROM meta WHERE key = 'near_duplicate'")  # duplicates are out of date now
    con.execute("DROP TABLE staged")
    return counts


def _refuse_empty_pool(con: duckdb.DuckDBPyConnection) -> None:
    """Raise `UsageError` if files of the pool leave no row in it."""
    splits = dict(
        con.execute("SELECT split, count(*) FROM demonstrations WHERE retired_at IS NULL GROUP BY split").fetchall()
    )
    if not splits.get("pool"):
        held_out = " and ".join(f"{counted(rows, 'row')} in {split}" for split, rows in sorted(splits.items()))
        raise UsageError(
            f"the pool would be empty: {held_out or 'no row'}",
            "rows with the same input are held out together: give queries as files, --validation FILE",
        )


def _load(con: duckdb.DuckDBPyConnection, workspace: Workspace, staging: Path, names: list[str]) -> None:
    """The staged rows with complete ids; ids of files that no longer exist are released."""
    con.execute(
        """
        CREATE TEMP TABLE staged AS
        SELECT * REPLACE (
            CASE WHEN named THEN id
                 ELSE id || CASE WHEN row_number() OVER same > 1 THEN '~' || row_number() OVER same ELSE '' END
            END AS id)
          FROM read_parquet(?, hive_partitioning = false) WINDOW same AS (PARTITION BY named, id ORDER BY ordinal)
        """,
        [sorted(map(str, staging.glob("*.parquet")))],
    )
    others = con.execute(
        "SELECT path FROM files WHERE path NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names]
    ).fetchall()
    gone = [path for (path,) in others if path != STDIN and not (workspace.path.parent / path).exists()]
    if gone:
        con.execute(
            """
            UPDATE demonstrations AS d SET file = s.file, line = s.line FROM staged s
             WHERE d.id = s.id AND d.retired_at IS NULL AND d.file IN (SELECT unnest(CAST(? AS VARCHAR[])))
            """,
            [gone],
        )


def _refuse_taken_ids(con: duckdb.DuckDBPyConnection, strict: bool) -> None:
    """An id belongs to one row: the first in this run, or the one that another file already has."""
    con.execute(
        """
        CREATE TEMP TABLE refused AS
        SELECT s.ordinal, s.file, s.line,
               'the id ' || s.id || ' is taken by '
               || coalesce(o.file || ':' || o.line, f.file || ':' || f.line) AS reason
          FROM staged s
          LEFT JOIN demonstrations o ON o.id = s.id AND o.retired_at IS NULL
               AND o.file NOT IN (SELECT DISTINCT file FROM staged)
          LEFT JOIN (SELECT id, min(ordinal) AS ordinal, arg_min(file, ordinal) AS file, arg_min(line, ordinal) AS line
                       FROM staged GROUP BY id) f ON f.id = s.id AND f.ordinal < s.ordinal
         WHERE o.id IS NOT NULL OR f.id IS NOT NULL
        """
    )
    first = con.execute("SELECT file, line, reason, count(*) OVER () FROM refused ORDER BY ordinal LIMIT 1").fetchone()
    if first and strict:
        raise UsageError(
            f"{first[3]:,} bad row(s), the first at {first[0]}:{first[1]}: {first[2]}",
            "fix the rows, or omit --strict to skip them",
        )
    con.execute("INSERT INTO skipped SELECT file, line, reason FROM refused ORDER BY ordinal")
    con.execute("DELETE FROM staged WHERE ordinal IN (SELECT ordinal FROM refused)")
    con.execute("DROP TABLE refused")


def _apply(con: duckdb.DuckDBPyConnection, names: list[str]) -> tuple[int, int, int]:
    """Retire, revive and add; returns (added, retired, revived)."""
    con.execute(
        """
        CREATE TEMP TABLE before AS
        SELECT row, id, hash, retired_at IS NULL AS live FROM demonstrations
         WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[])))
            OR (retired_at IS NOT NULL AND id IN (SELECT id FROM staged))
        """,
        [names],
    )
    # a row may have been retired and added again several times: use the latest equal one
    con.execute(
        """
        CREATE TEMP TABLE same AS
        SELECT s.ordinal, max(b.row) AS row, arg_max(b.live, b.row) AS live
          FROM staged s JOIN before b ON b.id = s.id AND b.hash = s.hash GROUP BY s.ordinal
        """
    )
    gone = _numbers(con, "SELECT row FROM before WHERE live AND row NOT IN (SELECT row FROM same) ORDER BY row")
    back = _numbers(con, "SELECT row FROM same WHERE NOT live ORDER BY row")
    retire(con, gone)
    revive(con, back)
    con.execute(
        """
        UPDATE demonstrations AS d SET split = s.split, file = s.file, line = s.line
          FROM same m JOIN staged s USING (ordinal)
         WHERE d.row = m.row AND (d.split, d.file, d.line) <> (s.split, s.file, s.line)
        """
    )
    added = con.execute(
        """
        INSERT INTO demonstrations
        SELECT ? + row_number() OVER (ORDER BY ordinal) - 1, id, input, output, options, answers, context, source,
               split, metadata, hash, file, line, now() AT TIME ZONE 'UTC', NULL, history
          FROM staged WHERE ordinal NOT IN (SELECT ordinal FROM same) ORDER BY ordinal
        """,
        [next_row(con)],
    ).fetchone()
    con.execute("DROP TABLE before; DROP TABLE same")
    return int(added[0]) if added else 0, int(gone.size), int(back.size)


def _task(con: duckdb.DuckDBPyConnection) -> TaskKind:
    """The kind of answers in the pool, see `Task`."""
    counted = con.execute(
        """
        SELECT count(*), count(*) FILTER (len(options) > 0), count(DISTINCT output), max(length(output))
          FROM demonstrations WHERE retired_at IS NULL AND split = 'pool'
        """
    ).fetchone()
    total, with_options, distinct, longest = counted or (0, 0, 0, 0)
    if total and with_options * 2 > total:
        return "options"
    if total and distinct <= MOST_LABELS and distinct * ROWS_A_LABEL <= total and longest <= LABEL_LENGTH:
        return "labels"
    return "open"


def _numbers(con: duckdb.DuckDBPyConnection, sql: str) -> Int64s:
    return np.asarray(con.execute(sql).fetchnumpy()["row"], np.int64)
