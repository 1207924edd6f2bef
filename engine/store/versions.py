"""Versions: states of the pool by name.

A version is which rows were active and which outputs had been corrected. Rows never change and are never deleted, so it
holds row numbers and corrections, no texts; it stays whole when rows are pruned or go from their files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np

from ..base.arrays import Int64s
from ..base.contract import SPREAD, Reported
from ..base.errors import UsageError
from ..pool.records import Demonstration
from . import columns
from .decisions import Change, me, return_to
from .demonstrations import active_rows, digest_of, fetch, next_row
from .workspace import Workspace

_NAME = re.compile(r"[^\W_][\w.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Version:
    """A saved state: ``rows`` demonstrations, the outputs of ``corrected`` of them as a decision had set them."""

    name: str
    saved_at: str
    who: str
    note: str
    rows: int
    corrected: int


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source in a version."""

    source: str
    rows: int


@dataclass(frozen=True, slots=True)
class VersionDetail(Reported):
    """A version beside the pool as it is: ``gone`` of its rows are not active now, ``new`` active rows are not in it,
    and ``differing`` rows in both have another output. ``retired`` of its rows are no longer in their files."""

    kind = "version-detail"
    version: Version = field(metadata=SPREAD)
    sources: tuple[SourceRows, ...]
    active: int
    gone: int
    new: int
    differing: int
    retired: int


@dataclass(frozen=True, slots=True)
class VersionRestored(Reported):
    """The decision that returned to a version; ``missing`` of its rows are no longer in their files as they were."""

    kind = "version-restored"
    version: str
    change: Change
    missing: int

    def as_json(self) -> dict[str, Any]:
        """The ``version restore --json`` contract."""
        return {**self.change.as_json(), "kind": self.kind, "version": self.version, "missing": self.missing}


@dataclass(frozen=True, slots=True)
class PoolState:
    """The rows of a version, ascending, (n,), and the outputs that differ from those that apply now, by row number."""

    version: Version
    rows: Int64s
    outputs: dict[int, str]

    def fetch(self, workspace: Workspace, rows: Sequence[int] | Int64s) -> list[Demonstration]:
        """Rows as they were in the version."""
        return [
            replace(row, output=self.outputs[row.row]) if row.row in self.outputs else row
            for row in fetch(workspace, rows)
        ]


def check_name(name: str) -> None:
    """Raises `UsageError` for a name that no version can have."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' is no name of a version", "use up to 64 letters, digits, dots, hyphens and underscores"
        )


def save_version(workspace: Workspace, name: str, note: str = "", *, force: bool = False) -> Version:
    """Keep the pool as it is now under a name, in one transaction; takes a few bytes a row. Raises `UsageError` for a
    name that is refused or, unless ``force``, taken, and if no row is active."""
    check_name(name)
    with workspace.write() as con:
        taken = con.execute("SELECT version FROM versions WHERE name = ?", [name]).fetchone()
        if taken and not force:
            raise UsageError(f"there is a version '{name}' already", "choose another name, or replace it with --force")
        if taken:
            _delete(con, taken[0])
        number = columns.number(con, "SELECT coalesce(max(version), 0) + 1 FROM versions")
        con.execute("INSERT INTO version_rows SELECT ?, row FROM active ORDER BY row", [number])
        con.execute(
            """
            INSERT INTO version_outputs SELECT ?, row, p.output FROM pool p JOIN outputs_as_read r USING (row)
             WHERE p.output <> r.output ORDER BY row
            """,
            [number],
        )
        last = columns.number(con, "SELECT coalesce(max(seq), 0) FROM decisions")
        values = [number, name, columns.now(), me(), note, last, next_row(con)]
        con.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        found = _find(con, name)[1]
        if not found.rows:
            raise UsageError("no demonstration is active: there is nothing to save", "icl-curate status")
    return found


def versions(workspace: Workspace) -> list[Version]:
    """All versions, the latest first."""
    with workspace.read() as con:
        return list_versions(con)


def list_versions(con: duckdb.DuckDBPyConnection) -> list[Version]:
    """As `versions`, from an open file."""
    return [version for _, version in _versions(con)]


def delete_version(workspace: Workspace, name: str) -> Version:
    """Forget a version; the pool stays as it is. Raises `UsageError` for an unknown name."""
    with workspace.write() as con:
        number, found = _find(con, name)
        _delete(con, number)
    return found


def state_of(workspace: Workspace, name: str) -> PoolState:
    """The rows of a version and their outputs. Raises `UsageError` for an unknown name."""
    with workspace.read() as con:
        number, version = _find(con, name)
        rows = columns.numbers(con, "SELECT row FROM version_rows WHERE version = ? ORDER BY row", [number])
        outputs = con.execute(
            """
            SELECT d.row, coalesce(v.output, r.output) FROM demonstrations d JOIN outputs_as_read r USING (row)
              LEFT JOIN version_outputs v ON v.row = d.row AND v.version = $1
             WHERE coalesce(v.output, r.output) <> d.output
               AND d.row IN (SELECT row FROM version_rows WHERE version = $1)
            """,
            [number],
        ).fetchall()
    return PoolState(version, rows, dict(outputs))


def version_detail(workspace: Workspace, name: str) -> VersionDetail:
    """A version, and how the pool differs from it. Raises `UsageError` for an unknown name."""
    state = state_of(workspace, name)
    active = active_rows(workspace)
    both = np.intersect1d(state.rows, active)
    with workspace.read() as con:
        sources = con.execute(
            """
            SELECT source, count(*), count(retired_at) FROM demonstrations WHERE row IN (SELECT unnest(?))
             GROUP BY source ORDER BY source
            """,
            [state.rows],
        ).fetchall()
    return VersionDetail(
        state.version,
        tuple(SourceRows(source, rows) for source, rows, _ in sources),
        int(active.size),
        int(state.rows.size - both.size),
        int(active.size - both.size),
        len(state.outputs.keys() & set(both.tolist())),
        sum(retired for _, _, retired in sources),
    )


def restore_version(workspace: Workspace, name: str, reason: str = "", *, dry_run: bool = False) -> VersionRestored:
    """Make the active pool that of a version again, as one decision that one undo reverts: its rows are active, with
    their outputs of then, and no others. Rows that are not in their files any more stay retired and are counted.

    Raises `UsageError` for an unknown name, and if the pool is so already.
    """
    with workspace.read() as con:
        number, _ = _find(con, name)
        missing = columns.number(
            con, "SELECT count(*) FROM version_rows WHERE version = ? AND row NOT IN (SELECT row FROM pool)", [number]
        )
    change = return_to(workspace, number, reason or f"version {name}", dry_run=dry_run)
    return VersionRestored(name, change, missing)


def restored_digest(workspace: Workspace, name: str) -> tuple[int, str]:
    """The `active_digest` that `restore_version` would leave. Raises `UsageError` for an unknown name."""
    rows = """(
        SELECT p.row, p.hash, coalesce(v.output, r.output, p.output) AS output, p.source FROM pool p
          LEFT JOIN outputs_as_read r USING (row) LEFT JOIN version_outputs v ON v.row = p.row AND v.version = $1
         WHERE p.row IN (SELECT row FROM version_rows WHERE version = $1)
    )"""
    with workspace.read() as con:
        return digest_of(con, rows, [_find(con, name)[0]])


def _versions(con: duckdb.DuckDBPyConnection) -> list[tuple[int, Version]]:
    rows = con.execute(
        """
        SELECT version, name, saved_at, who, note,
               (SELECT count(*) FROM version_rows r WHERE r.version = v.version),
               (SELECT count(*) FROM version_outputs o SEMI JOIN version_rows r
                    ON o.row = r.row AND o.version = r.version WHERE o.version = v.version)
          FROM versions v ORDER BY version DESC
        """
    ).fetchall()
    return [(number, Version(name, str(at), *rest)) for number, name, at, *rest in rows]


def _find(con: duckdb.DuckDBPyConnection, name: str) -> tuple[int, Version]:
    found = _versions(con)
    for number, version in found:
        if version.name == name:
            return number, version
    known = ", ".join(version.name for _, version in found[:10])
    fix = f"use one of: {known}" if known else "make the first one: icl-curate version save NAME"
    raise UsageError(f"no version '{name}'", fix)


def _delete(con: duckdb.DuckDBPyConnection, number: int) -> None:
    for table in ("versions", "version_rows", "version_outputs"):
        con.execute(f"DELETE FROM {table} WHERE version = ?", [number])
