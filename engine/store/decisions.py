"""Decisions of the curator: an append-only list; the latest decision applies, and an undo is a row.

A demonstration is pruned if the latest decision that is not undone, on itself or on its source, is to prune; the view
``active`` of the schema implements this rule. Its output is that of the latest decision to relabel it that is not
undone, or the one of its file; the table ``demonstrations`` holds the result, ``outputs_as_read`` what the file has.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import duckdb
import numpy as np

from ..base.arrays import Int64s
from ..base.contract import Reported
from ..base.errors import UsageError, counted
from .columns import given, now, number, numbers
from .demonstrations import check_sources
from .outputs import changed_outputs, check_labels, relabelled, set_outputs
from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class ActiveCounts:
    """Active rows in all, of each source of the pool, and of each of its labels; no labels if the answers are none."""

    rows: int
    sources: Mapping[str, int]
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LabelLoss:
    """Active rows of a label before and after."""

    label: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Effects(Reported):
    """Sources and labels that have no active row any more (``gone``) or for the first time have one (``added``), those
    with the most rows first. ``label_losses``: labels that are left with half of their rows or fewer, but are not gone;
    the largest share lost first."""

    sources_gone: tuple[str, ...] = ()
    sources_added: tuple[str, ...] = ()
    labels_gone: tuple[str, ...] = ()
    labels_added: tuple[str, ...] = ()
    label_losses: tuple[LabelLoss, ...] = ()


def active_counts(con: duckdb.DuckDBPyConnection) -> ActiveCounts:
    """The counts as of now."""
    counts = con.execute(
        """
        SELECT source, CASE WHEN (SELECT value FROM meta WHERE key = 'task') = 'labels' THEN output END AS label,
               count(*) FILTER (row IN (SELECT row FROM active))
          FROM pool GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    sources: dict[str, int] = {}
    labels: dict[str, int] = {}
    for source, label, count in counts:
        sources[source] = sources.get(source, 0) + count
        if label is not None:
            labels[label] = labels.get(label, 0) + count
    return ActiveCounts(sum(sources.values()), sources, labels)


def effects_of(before: ActiveCounts, after: ActiveCounts) -> Effects:
    """What a decision does, from the counts around it."""
    lost = [LabelLoss(label, count, after.labels.get(label, 0)) for label, count in before.labels.items()]
    losses = [loss for loss in lost if 0 < loss.after <= loss.before / 2]
    return Effects(
        sources_gone=_gone(before.sources, after.sources),
        sources_added=_gone(after.sources, before.sources),
        labels_gone=_gone(before.labels, after.labels),
        labels_added=_gone(after.labels, before.labels),
        label_losses=tuple(sorted(losses, key=lambda loss: (loss.after / loss.before, -loss.before, loss.label))),
    )


def _gone(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    names = [name for name, count in before.items() if count and not after.get(name)]
    return tuple(sorted(names, key=lambda name: (-before[name], name)))


Action = Literal["prune", "restore", "keep"]
"""Of `decide`; `relabel`, `undo` and `redo` are decisions of their own."""

BATCH = "batch"
"""The scope of `undo` and `redo`: their target is the number of a batch."""

Scope = Literal["source", "demonstration"]
OUTPUT = "output"
"""The scope of decisions to relabel; their targets are ids of demonstrations."""

_Append = Callable[[duckdb.DuckDBPyConnection, int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Change(Reported):
    """The effect of a decision (or of its undo) on the pool; counts are demonstrations."""

    kind = "decision"
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
    effects: Effects = Effects()
    by: Mapping[str, int] = field(default_factory=dict)
    """Demonstrations that it prunes or restores, by source, and corrected ones by new output, as in `DecisionBatch`."""

    def as_json(self) -> dict[str, Any]:
        """The contract of ``prune --json`` and ``restore --json``; values that only ``tune`` measures are null."""
        return {
            "kind": self.kind,
            "dry_run": self.dry_run,
            "batch": self.batch,
            "action": self.action,
            "targets": list(self.targets),
            "by": dict(self.by),
            "pruned": list(self.pruned_sources),
            "kept": list(self.kept_sources),
            "active_before": self.active_before,
            "active_after": self.active_after,
            **self.effects.as_json(),
            "validation_before": None,
            "validation_after": None,
            "curve": [],
        }


@dataclass(frozen=True, slots=True)
class DecisionBatch(Reported):
    """One batch of decisions, as `history` lists it."""

    batch: int
    decided_at: datetime
    who: str
    action: str
    scope: str
    targets: tuple[str, ...]
    reason: str
    undone: bool
    by: Mapping[str, int] = field(default_factory=dict)
    """Its demonstrations by source, and corrected ones by new output (``→ LABEL``); the most first."""

    def as_json(self) -> dict[str, Any]:
        """One of ``history --json``."""
        return Reported.as_json(self) | {"decided_at": str(self.decided_at)}


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
    them, or one for each. Targets that are so already are left out: their earlier reason stays.

    With ``dry_run`` the same steps are done and rolled back. Raises `UsageError` for a target that does not exist, and
    if all are so already.
    """
    reasons = dict.fromkeys(targets, reason) if isinstance(reason, str) else dict(zip(targets, reason, strict=True))

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        _check_targets(con, scope, targets)
        changed = _not_so_yet(con, action, scope, [*reasons])
        _append(con, batch, action, scope, changed, [reasons[target] for target in changed], who)
        return changed

    return _apply(workspace, append, action, scope, dry_run)


@dataclass(frozen=True, slots=True)
class Revision:
    """What a decision changes in the pool: ``sources`` (by name) and ``rows`` (by id) are pruned, those of ``outputs``
    (id → output) corrected."""

    sources: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether it changes anything."""
        return bool(self.sources or self.rows or self.outputs)


def revise(
    workspace: Workspace, revision: Revision, reason: str = "", who: str = "", *, dry_run: bool = False
) -> Change:
    """Make a revision as one batch, so that one undo reverts it. As `decide`, and for outputs `relabel`: those that
    apply already are left out, also all of them if something is pruned."""
    scopes: dict[Scope, Sequence[str]] = {"source": revision.sources, "demonstration": revision.rows}
    pruned = {scope: targets for scope, targets in scopes.items() if targets}

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        if not revision:
            raise UsageError("nothing to change", "icl-curate prune --source NAME or --demo ID")
        for scope, targets in pruned.items():
            _check_targets(con, scope, targets)
            _append(con, batch, "prune", scope, targets, reason, who)
        corrected = _correct(con, batch, revision.outputs, reason, who, alone=not pruned) if revision.outputs else ()
        return (*(target for targets in pruned.values() for target in targets), *corrected)

    parts = [("prune", scope) for scope in pruned] + ([("relabel", OUTPUT)] if revision.outputs else [])
    action, scope = (" and ".join(dict.fromkeys(names)) for names in zip(*parts, strict=True)) if parts else ("", "")
    return _apply(workspace, append, action, scope, dry_run)


def relabel(
    workspace: Workspace,
    outputs: Mapping[str, str],
    reason: str | Sequence[str] = "",
    who: str = "",
    *,
    new: bool = False,
    dry_run: bool = False,
    places: Mapping[str, str] = {},
) -> Change:
    """Correct the outputs of demonstrations (by id), as one batch; ``reason`` as in `decide`. Rows that have the
    output already are left out. ``places``: by id, what errors begin with.

    Raises `UsageError` for an id that does not exist, if every row has its output already, for an output that is not
    among the row's options, and if the answers of the pool are labels, for a label that no row or query uses, unless
    ``new`` ones are allowed.
    """

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        return _correct(con, batch, outputs, reason, who, new, places)

    return _apply(workspace, append, "relabel", OUTPUT, dry_run)


def return_to(workspace: Workspace, version: int, reason: str, *, dry_run: bool = False) -> Change:
    """Make the rows of a saved version active, with their outputs of then, and no others, as one batch. Raises
    `UsageError` if the pool is so already."""

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        saved = "(SELECT row FROM version_rows WHERE version = $1)"
        moves: dict[str, list[str]] = {}
        for action, sql in (
            ("prune", f"SELECT id FROM active WHERE row NOT IN {saved} ORDER BY row"),
            ("restore", f"SELECT id FROM pool WHERE row IN {saved} AND row IN (SELECT row FROM pruned) ORDER BY row"),
        ):
            moves[action] = [name for (name,) in con.execute(sql, [version]).fetchall()]
        outputs = dict(
            con.execute(
                """
                SELECT p.id, coalesce(v.output, r.output) FROM pool p JOIN outputs_as_read r USING (row)
                  LEFT JOIN version_outputs v ON v.row = p.row AND v.version = $1
                 WHERE coalesce(v.output, r.output) <> p.output
                   AND p.row < (SELECT next_row FROM versions WHERE version = $1) ORDER BY p.row
                """,
                [version],
            ).fetchall()
        )
        for action, names in moves.items():
            if names:
                _append(con, batch, action, "demonstration", names, reason, "")
        if outputs:
            _append_outputs(con, batch, outputs, reason, "")
        targets = (*moves["prune"], *moves["restore"], *outputs)
        if not targets:
            missing = con.execute(
                f"SELECT id FROM demonstrations ANTI JOIN pool USING (row) WHERE row IN {saved} ORDER BY row", [version]
            ).fetchall()
            what = "the pool is as it was in that version"
            if missing:
                others = f" and {counted(len(missing) - 1, 'other row')}" if len(missing) > 1 else ""
                what += f", but for '{missing[0][0]}'{others}: no longer in the files, or in another split"
            raise UsageError(what, "icl-curate version list")
        return targets

    return _apply(workspace, append, "restore", "version", dry_run)


def undo(workspace: Workspace, who: str = "", *, dry_run: bool = False, expected: int | None = None) -> Change:
    """Undo the latest batch that is not undone yet; call it again to undo earlier ones. Raises `UsageError` if nothing
    is left to undo, or if that is another batch than the ``expected`` one."""

    latest = f"SELECT max(batch) FROM decisions WHERE scope <> '{BATCH}' AND batch NOT IN (FROM undone)"
    nothing = lambda _: "no decision left to undo"  # noqa: E731
    return _apply(workspace, _marking("undo", latest, nothing, who, expected), "undo", BATCH, dry_run)


def redo(workspace: Workspace, who: str = "", *, dry_run: bool = False) -> Change:
    """Bring back what was undone last; call it again for what was undone before. Raises `UsageError` if nothing was, or
    if a decision was made since."""
    latest_undone = f"""
        SELECT arg_max(TRY_CAST(target AS BIGINT), seq) FROM decisions
         WHERE action = 'undo' AND TRY_CAST(target AS BIGINT) IN (FROM undone)
           AND seq > (SELECT coalesce(max(seq), 0) FROM decisions WHERE scope <> '{BATCH}')
    """

    def nothing(con: duckdb.DuckDBPyConnection) -> str:
        if number(con, "SELECT count(*) FROM undone"):
            return "a decision was made since the last undo, so what was undone stays undone"
        return "nothing undone to bring back"

    return _apply(workspace, _marking("redo", latest_undone, nothing, who), "redo", BATCH, dry_run)


def _marking(
    action: str, which: str, nothing: Callable[[duckdb.DuckDBPyConnection], str], who: str, expected: int | None = None
) -> _Append:
    """Append an undo or a redo of the batch that the SQL ``which`` gives, or refuse with ``nothing``, and if it is
    not the ``expected`` one."""

    def append(con: duckdb.DuckDBPyConnection, batch: int) -> tuple[str, ...]:
        ((last,),) = con.execute(which).fetchall()
        if last is None:
            raise UsageError(nothing(con), "icl-curate history")
        if expected not in (None, last):
            raise UsageError(f"the latest decision is #{last} by now: nothing was changed", "icl-curate history")
        _append(con, batch, action, BATCH, [str(last)], "", who)
        set_outputs(con, now())
        return (str(last),)

    return append


def history(workspace: Workspace, limit: int | None = None) -> list[DecisionBatch]:
    """Batches, latest first."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            WITH counts AS ({_COUNTS.replace(_MEANT, _CHANGED)})
            SELECT d.batch, any_value(decided_at), any_value(who), string_agg(DISTINCT action, ' and ' ORDER BY action),
                   string_agg(DISTINCT scope, ' and ' ORDER BY scope DESC),
                   list(target ORDER BY seq),
                   arg_min(reason, seq) || CASE WHEN count(DISTINCT reason) > 1 THEN ' …' ELSE '' END,
                   d.batch IN (FROM undone), any_value(counts.parts)
              FROM decisions d LEFT JOIN counts USING (batch) GROUP BY d.batch ORDER BY d.batch DESC LIMIT ?
            """,
            [limit if limit is not None else 1 << 60],
        ).fetchall()
    return [
        DecisionBatch(b, at, who, action, scope, tuple(t), reason, undone, _counted(parts))
        for b, at, who, action, scope, t, reason, undone, parts in rows
    ]


_MEANT = """
    SELECT d.batch, d.seq, p.row FROM decisions d JOIN pool p ON p.source = d.target WHERE d.scope = 'source'
    UNION ALL
    SELECT d.batch, d.seq, coalesce(max(p.row) FILTER (p.retired_at IS NULL), max(p.row))
      FROM decisions d JOIN demonstrations p ON p.id = d.target WHERE d.scope = 'demonstration' GROUP BY d.batch, d.seq
    UNION ALL
    SELECT d.batch, d.seq, max(n.row) FROM decisions d JOIN new_outputs n USING (seq) GROUP BY d.batch, d.seq
"""
"""The rows that each decision means, those that are gone from their files as they were last; of a source those that are
there. Joins apart: one on either column would compare every row with every decision."""

_ON_ROWS = """
    WITH wanted AS (SELECT row, id, source FROM pool WHERE row IN (SELECT unnest(?))),
         told AS (
             SELECT row, d.* FROM wanted JOIN decisions d ON d.scope = 'source' AND d.target = source
              UNION ALL
             SELECT row, d.* FROM wanted JOIN decisions d ON d.scope = 'demonstration' AND d.target = id)
    SELECT row, batch, decided_at, who, action, scope, target, reason
      FROM told WHERE batch NOT IN (FROM undone) ORDER BY seq
"""
"""The decisions on some rows, the latest last; two joins, as above."""

_CHANGED = f"""
    SELECT batch, seq, row FROM (
        SELECT m.*, d.scope, d.action,
               last_value(CASE WHEN d.scope <> '{OUTPUT}' AND d.batch NOT IN (FROM undone) THEN d.action END
                          IGNORE NULLS)
                   OVER (PARTITION BY m.row ORDER BY m.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
          FROM ({_MEANT}) m JOIN decisions d USING (seq))
     WHERE scope <> 'source' OR action = 'keep' OR (action = 'prune') = (latest IS DISTINCT FROM 'prune')
"""
"""The same, without those of a source that were so already."""

_COUNTS = f"""
    SELECT batch, list({{'part': part, 'rows': rows}} ORDER BY rows DESC, part) AS parts FROM (
        SELECT m.batch, coalesce('→ ' || n.output, p.source) AS part, count(*) AS rows
          FROM ({_MEANT}) m JOIN demonstrations p USING (row) LEFT JOIN new_outputs n USING (seq, row) GROUP BY ALL)
     GROUP BY batch
"""
"""The demonstrations of each batch by source, or by new output."""


def _counted(parts: list[dict[str, Any]] | None) -> dict[str, int]:
    return {one["part"]: one["rows"] for one in parts or ()}


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """A demonstration that a batch decided on; ``before`` and ``after``: its outputs, if it was corrected."""

    row: int
    id: str
    source: str
    input: str
    before: str
    after: str


def decided_rows(workspace: Workspace, batch: int, limit: int = 1000) -> list[DecidedRow]:
    """The first rows of a batch, in its order, also those that are gone; of a decision on a source those that it
    changed."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            WITH meant AS (SELECT * FROM ({_CHANGED}) WHERE batch = $1 ORDER BY seq, row LIMIT $2),
                 earlier AS (
                     SELECT n.row, arg_max(n.output, seq) AS output FROM decisions d JOIN new_outputs n USING (seq)
                      WHERE d.batch < $1 AND d.batch NOT IN (FROM undone) GROUP BY n.row)
            SELECT p.row, p.id, p.source, p.input, coalesce(e.output, r.output, p.output), coalesce(n.output, '')
              FROM meant m JOIN demonstrations p USING (row) LEFT JOIN new_outputs n USING (seq, row)
              LEFT JOIN earlier e USING (row) LEFT JOIN outputs_as_read r USING (row)
             ORDER BY m.seq, p.row
            """,
            [batch, limit],
        ).fetchall()
    return [DecidedRow(*row) for row in rows]


def latest_decisions(workspace: Workspace, rows: Sequence[int]) -> dict[int, DecisionBatch]:
    """The decision that applies to each row of the pool, on itself or on its source, where there is one."""
    with workspace.read() as con:
        decided = con.execute(_ON_ROWS, [list(rows)]).fetchall()
    return {
        row: DecisionBatch(batch, when, who, action, scope, (target,), reason, False)
        for row, batch, when, who, action, scope, target, reason in decided
    }


def ids_in_pool(workspace: Workspace, rows: Sequence[int]) -> list[str]:
    """Ids of rows that are shown, in this order. Raises `UsageError` if one is not in its file now: another row may
    have its id."""
    with workspace.read() as con, given(con, "shown", {"row": np.asarray(rows, np.int64)}):
        known = "SELECT row, id, retired_at IS NULL AND split = 'pool' FROM demonstrations SEMI JOIN shown USING (row)"
        found = con.execute(known).fetchall()
    names = {row: name for row, name, here in found if here}
    if gone := [row for row in rows if row not in names]:
        first = next((f"'{name}'" for row, name, _ in found if row == gone[0]), f"row {gone[0]:,}")
        what = f"{first} is no longer in its file as it is"
        if len(gone) > 1:
            what = f"{first} and {counted(len(gone) - 1, 'other row')} are no longer in their files as they are"
        raise UsageError(f"{what} shown", "icl-curate demos --search TEXT")
    return [names[row] for row in rows]


def kept_rows(workspace: Workspace) -> Int64s:
    """Numbers of the pool's rows whose own latest decision is to keep them, ascending, (n,). That their source is kept
    says nothing about the single row."""
    with workspace.read() as con:
        return numbers(
            con,
            """
            SELECT p.row FROM pool p JOIN decisions d ON d.scope = 'demonstration' AND d.target = p.id
             WHERE d.batch NOT IN (FROM undone)
             GROUP BY p.row HAVING arg_max(d.action, d.seq) = 'keep' ORDER BY p.row
            """,
        )


def settled_rows(workspace: Workspace, lasting: Sequence[int] = ()) -> Int64s:
    """Numbers of the pool's rows that the curator has judged: kept or relabelled, ascending, (n,). The ``lasting`` ones
    are not settled by another output."""
    corrected = np.setdiff1d(np.array([each.row for each in relabelled(workspace)], np.int64), lasting)
    return np.union1d(kept_rows(workspace), corrected).astype(np.int64)


def _apply(workspace: Workspace, append: _Append, action: str, scope: str, dry_run: bool) -> Change:
    with workspace.write(dry_run=dry_run) as con:
        before = active_counts(con)
        batch = _next(con, "batch")
        targets = append(con, batch)
        after = active_counts(con)
        parts = con.execute(f"SELECT parts FROM ({_COUNTS}) WHERE batch = ?", [batch]).fetchone()
    effects = effects_of(before, after)
    by = _counted(parts[0] if parts else None)
    if action != "keep":  # those of a source that were so already are not meant
        moved = {name: abs(count - after.sources.get(name, 0)) for name, count in before.sources.items()}
        corrected = {part: count for part, count in by.items() if part.startswith("→ ")}
        by = {part: count for part, count in sorted(moved.items(), key=lambda one: -one[1]) if count} | corrected
    pruned = tuple(name for name, count in after.sources.items() if not count)
    kept = tuple(name for name, count in after.sources.items() if count)
    return Change(batch, action, scope, targets, before.rows, after.rows, pruned, kept, dry_run, effects, by)


def _not_so_yet(
    con: duckdb.DuckDBPyConnection, action: Action, scope: Scope, targets: Sequence[str]
) -> tuple[str, ...]:
    """Those that the action changes, in their order; a decision on a source is also one on rows that it will get.
    Raises `UsageError` if there are none."""
    key = "source" if scope == "source" else "id"
    changed = con.execute(
        f"""
        WITH asked AS (SELECT unnest(CAST($targets AS VARCHAR[])) AS target),
             state AS (SELECT {key} AS target, max(row IN (FROM pruned)) AS part, min(row IN (FROM pruned)) AS whole
                         FROM pool WHERE {key} IN (FROM asked) GROUP BY ALL),
             own AS (SELECT target, arg_max(action, seq) AS action FROM decisions
                      WHERE scope = $scope AND batch NOT IN (FROM undone) GROUP BY target)
        SELECT target
          FROM (SELECT target, part, whole, coalesce(own.action, '') AS latest FROM state LEFT JOIN own USING (target))
         WHERE NOT CASE $action WHEN 'prune' THEN whole AND ($scope = 'demonstration' OR latest = 'prune')
                                WHEN 'restore' THEN NOT part AND latest NOT IN ('prune', 'keep')
                                ELSE NOT part AND latest = 'keep' END
        """,
        {"targets": list(targets), "scope": scope, "action": action},
    ).fetchall()  # fmt: skip
    left = {target for (target,) in changed}
    if not left:
        what = f"'{targets[0]}' is" if len(targets) == 1 else f"all {len(targets):,} are"
        done = {"prune": "pruned", "restore": "active", "keep": "kept"}[action]
        option = "--source" if scope == "source" else "--demo"
        fix = f"icl-curate restore {option} {shlex.quote(targets[0])}" if action == "prune" else "icl-curate history"
        raise UsageError(f"{what} {done} already", fix)
    return tuple(target for target in targets if target in left)


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
        [_next(con, "seq"), batch, now(), who or me(), action, scope, list(targets), reasons],
    )


def _correct(
    con: duckdb.DuckDBPyConnection,
    batch: int,
    outputs: Mapping[str, str],
    reason: str | Sequence[str],
    who: str,
    new: bool = False,
    places: Mapping[str, str] = {},
    alone: bool = True,
) -> tuple[str, ...]:
    """Decide on outputs, by id, as `relabel` does; returns the ids whose output changes. ``alone``: if there are none,
    nothing is decided, which is an error."""
    if not outputs:
        raise UsageError("nothing to correct", "icl-curate relabel ID OUTPUT")
    _check_targets(con, "demonstration", list(outputs), places)
    changed = changed_outputs(con, outputs)
    if not changed and alone:
        subject = f"the output of '{next(iter(outputs))}' is" if len(outputs) == 1 else "every output is"
        raise UsageError(f"{subject} so already", "icl-curate history")
    check_labels(con, changed, new, places)
    reasons = (
        reason if isinstance(reason, str) else [one for n, one in zip(outputs, reason, strict=True) if n in changed]
    )
    _append_outputs(con, batch, changed, reasons, who)
    return tuple(changed)


def _append_outputs(
    con: duckdb.DuckDBPyConnection, batch: int, outputs: Mapping[str, str], reason: str | Sequence[str], who: str
) -> None:
    """Decide on outputs, by id, and make them those that apply."""
    _append(con, batch, "relabel", OUTPUT, list(outputs), reason, who)
    con.execute(
        """
        INSERT INTO new_outputs
        SELECT d.seq, asked.output, p.row
          FROM (SELECT unnest(CAST(? AS VARCHAR[])) AS id, unnest(CAST(? AS VARCHAR[])) AS output) asked
          JOIN pool p USING (id) JOIN decisions d ON d.target = asked.id AND d.batch = ? AND d.scope = ?
        """,
        [list(outputs), list(outputs.values()), batch, OUTPUT],
    )
    set_outputs(con, now())


def _check_targets(
    con: duckdb.DuckDBPyConnection, scope: Scope, targets: Sequence[str], places: Mapping[str, str] = {}
) -> None:
    if not targets:
        raise UsageError("nothing to change", "icl-curate prune --source NAME or --demo ID")
    if scope == "source":
        check_sources(con, targets)
        return
    missing = con.execute(
        "SELECT t FROM (SELECT unnest(CAST(? AS VARCHAR[])) AS t) WHERE t NOT IN (SELECT id FROM pool)", [list(targets)]
    ).fetchone()
    if missing:
        what = f"{places.get(missing[0], '')}no demonstration with id '{missing[0]}'"
        raise UsageError(what, "icl-curate demos --search TEXT")


def _next(con: duckdb.DuckDBPyConnection, column: str) -> int:
    return number(con, f"SELECT coalesce(max({column}), 0) + 1 FROM decisions")


def me() -> str:
    """The user name of the system, stored with decisions."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
