"""Groups of rows that repeat each other, and of rows and queries that do, as found by the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..base.arrays import Int64s
from .workspace import Workspace

GroupKind = Literal["duplicate", "leak"]

_CONDITIONS: dict[GroupKind, str] = {
    "duplicate": "count(*) FILTER (split = 'pool' {open}) > 1",
    "leak": "count(*) FILTER (split = 'pool' {open}) > 0 AND count(*) FILTER (split <> 'pool') > 0",
}


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row numbers ``rows`` (n,), group by group; group i is from ``starts[i]`` to ``starts[i + 1]``."""

    kind: GroupKind
    rows: Int64s
    starts: Int64s

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, first: int, last: int) -> list[Int64s]:
        """The rows of groups from ``first`` to ``last`` (excluded), or to the last one there is."""
        last = min(last, len(self))
        return [self.rows[self.starts[i] : self.starts[i + 1]] for i in range(first, last)]


def row_groups(workspace: Workspace, kind: GroupKind, only_open: bool = False) -> RowGroups:
    """Groups by their first row. Duplicates: two or more rows of the pool, ascending; leaks: rows of the pool, then
    queries. ``only_open``: those with two active rows or more, or of leaks, with one."""
    condition = _CONDITIONS[kind].format(open="AND row NOT IN (SELECT row FROM pruned)" if only_open else "")
    shown = "WHERE split = 'pool'" if kind == "duplicate" else ""
    with workspace.read() as con:
        found = con.execute(
            f"""
            WITH members AS (
                SELECT t.row, t.split, coalesce(d.of, t.row) AS of
                  FROM demonstrations t LEFT JOIN duplicates d USING (row)
                 WHERE t.retired_at IS NULL AND (d.row IS NOT NULL OR t.row IN (SELECT of FROM duplicates))
            ), chosen AS (SELECT of FROM members GROUP BY of HAVING {condition})
            SELECT row, of FROM members SEMI JOIN chosen USING (of) {shown} ORDER BY of, split <> 'pool', row
            """
        ).fetchnumpy()
    rows, of = (np.asarray(found[name], np.int64) for name in ("row", "of"))
    starts = np.flatnonzero(np.diff(of, prepend=-1)) if len(of) else np.empty(0, np.int64)
    return RowGroups(kind, rows, np.append(starts, len(rows)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is from."""

    split: str
    file: str
    line: int


def places_of(workspace: Workspace, rows: Int64s) -> dict[int, Place]:
    """The places of rows by number; unknown numbers are left out."""
    if not rows.size:
        return {}
    numbers = ",".join(map(str, np.unique(rows).tolist()))
    with workspace.read() as con:
        found = con.execute(f"SELECT row, split, file, line FROM demonstrations WHERE row IN ({numbers})").fetchall()
    return {row: Place(split, file, line) for row, split, file, line in found}
