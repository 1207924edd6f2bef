"""Browsing a pool of any size: first the order, as row numbers; then only the rows on the screen. Groups of rows that
repeat each other, or queries, as found by the index."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import numpy as np

from ..base.arrays import Int64s
from ..base.contract import Reported
from ..base.errors import Cancelled
from . import columns
from .demonstrations import COMPARED, next_row
from .workspace import Workspace

_HOLDS = "regexp_matches({}, regexp_escape(?), 'i')"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows `page` shows; None and empty mean any. ``label`` is an exact output."""

    source: str | None = None
    split: str = "pool"
    pruned: bool | None = None
    search: str = ""
    duplicates: bool = False
    label: str | None = None

    def conditions(self) -> tuple[str, list[Any]]:
        """SQL over ``demonstrations t``, and the values of its parameters."""
        where, values = ["t.split = ?", "t.retired_at IS NULL"], [self.split]
        if self.source is not None:
            where.append("t.source = ?")
            values.append(self.source)
        if self.label is not None:
            where.append("t.output = ?")
            values.append(self.label)
        if self.pruned is not None:
            where.append(f"t.row {'' if self.pruned else 'NOT '}IN (SELECT row FROM pruned)")
        if self.search:
            # takes half the time of comparing lower-case copies
            holds = f"{_HOLDS.format('t.input')} OR {_HOLDS.format('t.output')}"
            # one or two letters begin too many ids: they are a whole one
            named = "starts_with(lower(t.id), lower(?))" if len(self.search) > 2 else "t.id = ?"
            where.append(f"({holds} OR {named})")
            values += [self.search] * 3
        if self.duplicates:
            where.append("t.row IN (SELECT row FROM duplicates)")
        return " AND ".join(where), values


@dataclass(frozen=True, slots=True)
class Listed(Reported):
    """A row as lists show it; ``duplicate_of`` is the first row of its group, if that is another row."""

    row: int
    id: str
    source: str
    input: str
    output: str
    pruned: bool
    duplicate_of: int | None


def page(workspace: Workspace, filter: Filter = Filter(), after: int = -1, limit: int = 50) -> list[Listed]:
    """Rows past ``after`` that pass the filter, by row number, with their whole texts."""
    where, values = filter.conditions()
    query = f"SELECT t.row FROM demonstrations t WHERE {where} AND t.row > ? ORDER BY t.row LIMIT ?"
    with workspace.read() as con:
        rows = columns.numbers(con, query, [*values, after, limit])
    return listed(workspace, rows, pruned_rows(workspace), 1 << 31)


def by_id(workspace: Workspace, part: str, most: int) -> list[tuple[int, str, str]]:
    """Number, id and source of at most so many rows of the pool with ``part`` in their ids, in any case: first those
    whose ids begin with it, then short ids."""
    with workspace.read() as con:
        return con.execute(
            """
            SELECT row, id, source FROM (SELECT row, id, source, strpos(lower(id), lower(?)) AS place FROM pool)
             WHERE place > 0 ORDER BY place, length(id), row LIMIT ?
            """,
            [part, most],
        ).fetchall()


SortKey = Literal["row", "id", "source", "input", "output", "length"]
ORDERS: dict[SortKey, str] = {
    "row": "t.row",
    "id": "t.id",
    "source": "t.source",
    "input": "t.input",
    "output": "t.output",
    "length": "length(t.input)",
}
EVERYTHING = Filter()
SHOWN = 400
"""Characters of a text shown in a list: one row may hold a megabyte."""


class Stop:
    """Ends a query from another thread: once `stop` is called the query raises `Cancelled`, then or when it starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._con: duckdb.DuckDBPyConnection | None = None
        self._stopped = False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._con is not None:
                self._con.interrupt()

    @contextmanager
    def watching(self, con: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with self._lock:
            if self._stopped:
                raise Cancelled
            self._con = con
        try:
            yield
        except duckdb.InterruptException as error:
            raise Cancelled from error
        finally:
            with self._lock:
                self._con = None


def matching(
    workspace: Workspace,
    filter: Filter = EVERYTHING,
    order: SortKey = "row",
    descending: bool = False,
    among: Int64s | None = None,
    below: int | None = None,
    stop: Stop | None = None,
) -> Int64s:
    """Numbers of all rows that pass the filter (and are ``among`` these, and ``below`` this number), in order, (n,);
    ties by row number.

    Only eight bytes per row are held in memory. Raises `Cancelled` when ``stop`` is called.
    """
    where, values = filter.conditions()
    if below is not None:
        where = f"t.row < {below:d} AND {where}"
    key = f"{ORDERS[order]} {'DESC' if descending else 'ASC'}"
    with workspace.read() as con, (stop or Stop()).watching(con), ExitStack() as stack:
        if among is not None:
            stack.enter_context(columns.given(con, "among", {"row": among}))
            where += " AND t.row IN (SELECT row FROM among)"
        return columns.numbers(con, f"SELECT t.row FROM demonstrations t WHERE {where} ORDER BY {key}, t.row", values)


def row_numbers(workspace: Workspace) -> int:
    """An upper bound: every row number is below it."""
    with workspace.read() as con:
        return next_row(con)


def pruned_rows(workspace: Workspace) -> Int64s:
    """Numbers of the pruned rows, ascending, (n,)."""
    with workspace.read() as con:
        return columns.numbers(con, "SELECT row FROM pruned ORDER BY row")


def active_rows(workspace: Workspace, sources: Sequence[str], ids: Sequence[str]) -> Int64s:
    """Numbers of the active rows that are of one of the sources or have one of the ids, ascending, (n,)."""
    with workspace.read() as con:
        return columns.numbers(
            con,
            "SELECT row FROM active WHERE list_contains(?, source) OR id IN (SELECT unnest(?::VARCHAR[])) ORDER BY row",
            [list(sources), list(ids)],
        )


def holding(workspace: Workspace, rows: Int64s, text: str) -> Int64s:
    """Those of the rows that a search for the text finds, ascending, (n,)."""
    where, values = Filter(search=text).conditions()
    with workspace.read() as con:
        among = columns.among(rows)
        return columns.numbers(con, f"SELECT t.row FROM demonstrations t WHERE t.row IN {among} AND {where}", values)


def listed(workspace: Workspace, rows: Int64s, pruned: Int64s, shown: int = SHOWN) -> list[Listed]:
    """The rows in the given order, texts cut to ``shown`` characters; ``pruned`` is the result of `pruned_rows`. A page
    takes milliseconds, whichever rows it has. Numbers that no longer exist are left out."""
    if not rows.size:
        return []
    numbers = columns.among(rows)
    gone = {*rows[np.searchsorted(pruned, rows, "right") > np.searchsorted(pruned, rows)].tolist()}
    with workspace.read() as con:
        read = con.execute(
            f"""
            SELECT t.row, t.id, t.source, left(t.input, {shown:d}), left(t.output, {shown:d}), d.of
              FROM demonstrations t LEFT JOIN (SELECT row, of FROM duplicates WHERE row IN {numbers}) d USING (row)
             WHERE t.row IN {numbers}
            """
        ).fetchall()
    by_row = {row: Listed(row, key, source, put, out, row in gone, of) for row, key, source, put, out, of in read}
    return [by_row[row] for row in rows.tolist() if row in by_row]


def repeated_by(workspace: Workspace, rows: Sequence[int]) -> dict[int, str]:
    """For those of the rows that have duplicates before them, the id of the first row of the group."""
    numbers = columns.among(rows)
    with workspace.read() as con:
        found = con.execute(
            f"SELECT d.row, t.id FROM duplicates d JOIN demonstrations t ON t.row = d.of WHERE d.row IN {numbers}"
        ).fetchall()
    return dict(found)


def tally(
    workspace: Workspace, column: Literal["source", "output"], split: str = "pool", limit: int = 5_000
) -> list[tuple[str, int]]:
    """Values of a column with the number of their rows, the most frequent first."""
    with workspace.read() as con:
        return con.execute(
            f"SELECT {column}, count(*) AS n FROM demonstrations WHERE split = ? AND retired_at IS NULL "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT ?",
            [split, limit],
        ).fetchall()


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
    compared: bool
    """Whether they were looked for since rows changed last."""

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
        members = con.execute(
            f"""
            WITH members AS (
                SELECT t.row, t.split, coalesce(d.of, t.row) AS of
                  FROM demonstrations t LEFT JOIN duplicates d USING (row)
                 WHERE t.retired_at IS NULL AND (d.row IS NOT NULL OR t.row IN (SELECT of FROM duplicates))
            ), chosen AS (SELECT of FROM members GROUP BY of HAVING {condition})
            SELECT row, of FROM members SEMI JOIN chosen USING (of) {shown} ORDER BY of, split <> 'pool', row
            """
        ).fetchnumpy()
        compared = columns.noted(con, COMPARED) is not None
    rows, of = (np.asarray(members[name], np.int64) for name in ("row", "of"))
    starts = np.flatnonzero(np.diff(of, prepend=-1)) if len(of) else np.empty(0, np.int64)
    return RowGroups(kind, rows, np.append(starts, len(rows)).astype(np.int64), compared)


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
    query = f"SELECT row, split, file, line FROM demonstrations WHERE row IN {columns.among(rows)}"
    with workspace.read() as con:
        found = con.execute(query).fetchall()
    return {row: Place(split, file, line) for row, split, file, line in found}
