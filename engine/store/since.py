"""What changed in the workspace since a time: the one account of it, for runs, evaluations and exports."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import duckdb

from .demonstrations import RESPLIT


class Decided(NamedTuple):
    """Decisions: the batches that ``applied`` at a time, and how many ``changed`` since: apply now and did not then, or
    the reverse."""

    applied: frozenset[int]
    changed: int


def decided_since(con: duckdb.DuckDBPyConnection, since: datetime | str) -> Decided:
    """The decisions that apply now beside those that applied then."""
    applied, changed = con.execute(
        """
        WITH since AS (SELECT CAST(? AS TIMESTAMP) AS begun),
             marks AS (
                 SELECT TRY_CAST(target AS BIGINT) AS batch, arg_max(action, seq) = 'undo' AS was_undone
                   FROM decisions, since
                  WHERE scope = 'batch' AND decided_at <= begun GROUP BY target),
             states AS (
                 SELECT DISTINCT batch, decided_at <= begun AND NOT coalesce(was_undone, false) AS was,
                        batch NOT IN (FROM undone) AS applies
                   FROM decisions CROSS JOIN since LEFT JOIN marks USING (batch) WHERE scope <> 'batch')
        SELECT list(DISTINCT batch) FILTER (was), count(DISTINCT batch) FILTER (was <> applies) FROM states
        """,
        [since],
    ).fetchall()[0]
    return Decided(frozenset(applied or ()), changed)


def rows_since(
    con: duckdb.DuckDBPyConnection, since: datetime | str, which: str = "true", until: datetime | str = "infinity"
) -> int:
    """How many rows, of ``which`` (SQL), are there at one of the two times alone. Those that came back or moved
    to another split have no time of their own: together they count as one."""
    moved, rows = con.execute(
        f"""
        WITH since AS (SELECT CAST(? AS TIMESTAMP) AS begun, CAST(? AS TIMESTAMP) AS ended),
             moved AS (SELECT TRY_CAST(value AS TIMESTAMP) AS noted FROM meta WHERE key = ?)
        SELECT coalesce((SELECT noted > begun AND noted <= ended FROM moved), false),
               (SELECT count(*) FROM demonstrations, since
                 WHERE {which} AND (indexed_at <= begun AND coalesce(retired_at > begun, true))
                                   <> (indexed_at <= ended AND coalesce(retired_at > ended, true)))
          FROM since
        """,
        [since, until, RESPLIT],
    ).fetchall()[0]
    return int(max(moved, rows))
