"""Decisions of the curator: an append-only list; the latest decision applies, and an undo is a row.

A demonstration is pruned if the latest decision that is not undone, on itself or on its source, is to prune; the view
``active`` of the schema implements this rule.
"""

from __future__ import annotations

import difflib
import getpass
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import duckdb
import numpy as np

from .. import contract
from ..arrays import Int64s
from ..errors import UsageError
from .workspace import Workspace

Action = Literal["prune", "restore", "keep"]
Scope = Literal["source", "demonstration"]
_Append = Callable[[duckdb.DuckDBPyConnection, int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a decision (or of its undo) on the pool; counts are demonstrations."""

    batch: int
    action: str
    scope: str
    targets: tuple[str, ...]
    active_before: int
    active_after: int
    pruned_sources: tuple[str, ...]
    """Sources with no active demonstration left."""
    kept_sources: tuple[str, ...]
    dry_run: bool
    """It was rolled back."""

    def as_json(self) -> dict[str, Any]:
        """The contract of ``prune --json`` and ``restore --json``; values that only ``--tune`` measures are null."""
        return {
            "dry_run": self.dry_run,
            "batch": self.batch,
            "action": self.action,
            "targets": list(self.targets),
            "pruned": list(self.pruned_sources),
            "kept": list(self.kept_sources),
            "active_before": self.active_before,
            "active_after": self.active_after,
            "validation_before": None,
            "validation_after": None,
            "curve": [],
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch of decisions, as `history` lists it."""

    batch: int
    decided_at: datetime
    who: str
    action: str
    scope: str
    targets: tuple[str, ...]
    reason: str
    undone: bool

    def as_json(self) -> dict[str, Any]:
        """One of ``history --json``."""
        return contract.to_json(self) | {"decided_at": str(self.decided_at)}


class _DryRunEndsError(Exception):
    pass


def decide(
    workspace: Workspace,
    action: Action,
    scope: Scope,
    targets: Sequence[str],
    reason: str | Sequence[str] = "",
    who: str = "",
    *,
    dry_run: bool = False,
) -> Change:
    """Prune, restore or keep sources (by name) or demonstrations (by id), as one batch; ``reason`` is one for all of
    them, or one for each.

    With ``dry_run`` the same steps are done and rolled back. Raises `UsageError` for a target that does not exist.
    """

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        _check_targets(con, scope, targets)
        _append(con, batch, action, scope, targets, reason, who)
        return tuple(targets)

    return _apply(workspace, append, action, scope, dry_run)


def prune_together(
    workspace: Workspace,
    sources: Sequence[str],
    demonstrations: Sequence[str],
    reason: str = "",
    who: str = "",
    *,
    dry_run: bool = False,
) -> Change:
    """Prune sources (by name) and demonstrations (by id) as one batch, so that one undo reverts both. As `decide`."""
    scopes: dict[Scope, Sequence[str]] = {"source": sources, "demonstration": demonstrations}
    named = {scope: targets for scope, targets in scopes.items() if targets}

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        for scope, targets in (named or {"demonstration": ()}).items():
            _check_targets(con, scope, targets)
            _append(con, batch, "prune", scope, targets, reason, who)
        return tuple(target for targets in named.values() for target in targets)

    return _apply(workspace, append, "prune", " and ".join(named), dry_run)


def undo(workspace: Workspace, who: str = "", *, dry_run: bool = False) -> Change:
    """Undo the latest batch that is not undone yet; call it again to undo earlier ones. Raises `UsageError` if nothing
    is left to undo."""

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        last = con.execute(
            "SELECT max(batch) FROM decisions WHERE action <> 'undo' AND batch NOT IN (FROM undone)"
        ).fetchone()
        if last is None or last[0] is None:
            raise UsageError("no decision left to undo", "icl-curate history")
        _append(con, batch, "undo", "batch", [str(last[0])], "", who)
        return (str(last[0]),)

    return _apply(workspace, append, "undo", "batch", dry_run)


def history(workspace: Workspace, limit: int | None = None) -> list[Entry]:
    """Batches, latest first."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT batch, any_value(decided_at), any_value(who), any_value(action),
                   string_agg(DISTINCT scope, ' and ' ORDER BY scope DESC),
                   list(target ORDER BY seq),
                   arg_min(reason, seq) || CASE WHEN count(DISTINCT reason) > 1 THEN ' …' ELSE '' END,
                   batch IN (FROM undone)
              FROM decisions GROUP BY batch ORDER BY batch DESC LIMIT ?
            """,
            [limit if limit is not None else 1 << 60],
        ).fetchall()
    return [
        Entry(b, at, who, action, scope, tuple(t), reason, undone)
        for b, at, who, action, scope, t, reason, undone in rows
    ]


def latest_decision(workspace: Workspace, row: int) -> Entry | None:
    """The decision that applies to a row of the pool, on itself or on its source; None if there is none."""
    with workspace.read() as con:
        found = con.execute(
            """
            SELECT d.batch, d.decided_at, d.who, d.action, d.scope, d.target, d.reason
              FROM pool p JOIN decisions d
                ON (d.scope = 'source' AND d.target = p.source) OR (d.scope = 'demonstration' AND d.target = p.id)
             WHERE p.row = ? AND d.batch NOT IN (FROM undone) ORDER BY d.seq DESC LIMIT 1
            """,
            [row],
        ).fetchone()
    if found is None:
        return None
    batch, when, who, action, scope, target, reason = found
    return Entry(batch, when, who, action, scope, (target,), reason, False)


def kept_rows(workspace: Workspace) -> Int64s:
    """Numbers of the pool's rows whose own latest decision is to keep them, ascending, (n,). That their source is kept
    says nothing about the single row."""
    with workspace.read() as con:
        (found,) = con.execute(
            """
            SELECT p.row FROM pool p JOIN decisions d ON d.scope = 'demonstration' AND d.target = p.id
             WHERE d.batch NOT IN (FROM undone)
             GROUP BY p.row HAVING arg_max(d.action, d.seq) = 'keep' ORDER BY p.row
            """
        ).fetchnumpy().values()  # fmt: skip
    return np.asarray(found, np.int64)


def _apply(workspace: Workspace, append: _Append, action: str, scope: str, dry_run: bool) -> Change:
    change: Change | None = None
    try:
        with workspace.write() as con:
            before = _active(con)
            batch = _next(con, "batch")
            targets = append(con, batch)
            pruned, kept = _sources(con)
            change = Change(batch, action, scope, targets, before, _active(con), pruned, kept, dry_run)
            if dry_run:
                raise _DryRunEndsError
    except _DryRunEndsError:
        pass
    assert change is not None
    return change


def _append(
    con: duckdb.DuckDBPyConnection,
    batch: int,
    action: str,
    scope: str,
    targets: Sequence[str],
    reason: str | Sequence[str],
    who: str,
) -> None:
    reasons = [reason] * len(targets) if isinstance(reason, str) else list(reason)
    if len(reasons) != len(targets):
        raise ValueError(f"{len(reasons)} reasons for {len(targets)} targets")
    con.execute(
        """
        INSERT INTO decisions
        SELECT ? + generate_subscripts(targets, 1) - 1, ?, ?, ?, ?, ?, unnest(targets), unnest(reasons)
          FROM (SELECT CAST(? AS VARCHAR[]) AS targets, CAST(? AS VARCHAR[]) AS reasons)
        """,
        [_next(con, "seq"), batch, _now(), who or me(), action, scope, list(targets), reasons],
    )


def _check_targets(con: duckdb.DuckDBPyConnection, scope: Scope, targets: Sequence[str]) -> None:
    if not targets:
        raise UsageError("nothing to change", "icl-curate prune --source NAME or --demo ID")
    column = "source" if scope == "source" else "id"
    missing = con.execute(
        f"SELECT t FROM (SELECT unnest(CAST(? AS VARCHAR[])) AS t) WHERE t NOT IN (SELECT {column} FROM pool)",
        [list(targets)],
    ).fetchall()
    if not missing:
        return
    name = missing[0][0]
    if scope == "demonstration":
        raise UsageError(f"no demonstration with id '{name}'", "icl-curate demos --search TEXT")
    names = [row[0] for row in con.execute("SELECT DISTINCT source FROM pool").fetchall()]
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"no source named '{name}'{hint}", "icl-curate sources")


def _sources(con: duckdb.DuckDBPyConnection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = con.execute(
        """
        SELECT source, count(*) FILTER (row IN (SELECT row FROM active)) > 0 FROM pool GROUP BY source ORDER BY source
        """
    ).fetchall()
    return tuple(s for s, kept in rows if not kept), tuple(s for s, kept in rows if kept)


def _active(con: duckdb.DuckDBPyConnection) -> int:
    return _number(con, "SELECT count(*) FROM active")


def _next(con: duckdb.DuckDBPyConnection, column: str) -> int:
    return _number(con, f"SELECT coalesce(max({column}), 0) + 1 FROM decisions")


def _number(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = con.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def me() -> str:
    """The user name of the system, stored with decisions."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
