"""A summary of the workspace, from DuckDB alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress
from pathlib import Path

import duckdb
import numpy as np

from ..base.arrays import Int64s
from ..base.code import program_in
from ..base.contract import Reported
from ..base.files import read_regular
from .columns import note, noted, number
from .decisions import settled_rows
from .demonstrations import COMPARED, LEAKS, REPEATS, active_rows, next_row, rows_by_split
from .runs import no_trials
from .since import decided_since, rows_since
from .versions import Version, list_versions
from .workspace import Workspace

KEY = "suspects"
EXPORTED, EXPORTED_TO = "exported", "exported_to"
"""Under these keys of ``meta``; the last: where it was written, as seen from the workspace's parent."""
CURATION = "curate.json"
"""The file of a workspace with what an unfinished run of `curate` has done."""


def keep_suspects(workspace: Workspace, suspects: Int64s, pruned: Int64s, lasting: Int64s) -> None:
    """Store the numbers of the suspects; ``pruned``: those of rows that were not checked, as pruned; ``lasting``: of
    suspects that another output does not settle."""
    with workspace.write() as con:
        rows = {"rows": suspects, "pruned": pruned, "lasting": lasting}
        found = {name: numbers.tolist() for name, numbers in rows.items()} | {"rows_then": next_row(con)}
        note(con, KEY, json.dumps(found))


def settled_suspects(workspace: Workspace) -> Int64s:
    """As `settled_rows`, with the suspects that another output does not settle."""
    with workspace.read() as con:
        suspects = _suspects(con)
    return settled_rows(workspace, suspects["lasting"] if suspects else ())


def open_suspects(workspace: Workspace) -> tuple[int, int] | None:
    """How many suspects are neither pruned nor settled, and how many were found; None if they were not looked
    for, or if there are rows or queries that were not there, or a row is active that was not checked then."""
    with workspace.read() as con:
        suspects, rows = _suspects(con), next_row(con)
    if suspects is None:
        return None
    active = active_rows(workspace)
    if suspects["rows_then"] != [rows] or np.isin(active, suspects["pruned"]).any():
        return None
    return len(np.intersect1d(_unsettled(workspace, suspects), active)), len(suspects["rows"])


def _unsettled(workspace: Workspace, suspects: Mapping[str, list[int]]) -> Int64s:
    return np.setdiff1d(np.array(suspects["rows"], np.int64), settled_rows(workspace, suspects["lasting"]))


def _suspects(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]] | None:
    """What `keep_suspects` stored, each as a list; None if it did not, as in the workspace of a stranger."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        found = json.loads(noted(con, KEY) or "")
        lists = {name: found[name] for name in ("rows", "pruned")} | {"rows_then": [found["rows_then"]]}
        lists["lasting"] = found.get("lasting", [])  # not in those of before
        if all(type(number) is int and abs(number) < 1 << 62 for numbers in lists.values() for number in numbers):
            return lists
    return None


@dataclass(frozen=True, slots=True)
class SuspectShare:
    """Active rows of a source with one label, and those among them that are open suspects."""

    source: str
    label: str
    active: int
    suspects: int


def suspect_shares(workspace: Workspace) -> list[SuspectShare]:
    """The shares by source and label as far as suspects were looked for; none if the answers are no labels."""
    with workspace.read() as con:
        suspects = _suspects(con)
        if suspects is None or noted(con, "task") != "labels":
            return []
        counts = con.execute(
            "SELECT source, output, count(*), count(s.row) FROM active LEFT JOIN (SELECT unnest(?::BIGINT[]) AS row) s"
            " USING (row) GROUP BY ALL ORDER BY ALL",
            [_unsettled(workspace, suspects).tolist()],
        ).fetchall()
    return [SuspectShare(*row) for row in counts]


@dataclass(frozen=True, slots=True)
class LLMTotals:
    """What the workspace keeps of an LLM: answered ``calls`` with their tokens, and failed ones."""

    calls: int
    tokens_in: int
    tokens_out: int
    failures: int


FEWEST = 10
"""Validation queries with which a race can begin: see `curate.race`."""


@dataclass(frozen=True, slots=True)
class Overview(Reported):
    """Counts of demonstrations, queries, calls and runs; ``next_step`` is the suggested next command, empty if
    nothing is left to do."""

    kind = "status"
    workspace: str
    pool: int
    active: int
    pruned: int
    retired: int
    sources: int
    sources_pruned: int
    validation: int
    test: int
    duplicates: Mapping[str, int]
    duplicates_open: Mapping[str, int]
    """Those still in the active pool."""
    leaks: int
    leaks_open: int
    suspects: int | None
    """Found by the latest look at this pool; None before one."""
    suspects_open: int | None
    """Those neither pruned, kept nor relabelled."""
    skipped: int
    task: str
    encoder: str | None
    calls: Mapping[str, LLMTotals]
    """By LLM."""
    runs: Mapping[str, int]
    """Finished runs by kind."""
    evaluations: int
    last_evaluation: int | None
    decisions: int
    evaluated_since: int | None
    """Decisions and undone ones that changed the pool since the latest evaluation of it began, but for trials with few
    queries; None before one."""
    exported_since: int | None
    """The same, since the pool was last exported."""
    rows_changed_since_evaluation: bool | None
    """Whether files brought or took rows of the pool or queries since then."""
    rows_changed_since_export: bool | None
    """The same of rows of the pool."""
    next_step: str
    versions: tuple[Version, ...] = ()
    """The latest first."""
    compared: bool = True
    """Whether repeats and leaks were looked for since rows changed last: an index may have been interrupted."""
    export_gone: str = ""
    """The name of what the pool was last exported to, if it is no longer there."""

    @property
    def labels_unchecked(self) -> bool:
        """Whether no check can look for wrong labels, as there are no vectors."""
        return self.task == "labels" and self.encoder is None


def overview(workspace: Workspace) -> Overview:
    """Read the summary; takes a tenth of a second with 300,000 rows."""
    suspects_open, suspects = open_suspects(workspace) or (None, None)
    with workspace.read() as con:
        pool = number(con, "SELECT count(*) FROM pool")
        active = number(con, "SELECT count(*) FROM active")
        splits = rows_by_split(con)
        sources = number(con, "SELECT count(DISTINCT source) FROM pool")
        live = number(con, "SELECT count(DISTINCT source) FROM active")
        duplicates, still = (dict(con.execute(REPEATS.format(rows=rows)).fetchall()) for rows in ("pool", "active"))
        meta = dict(con.execute("SELECT key, value FROM meta").fetchall())
        calls = {
            llm: LLMTotals(*account)
            for llm, *account in con.execute(
                """
                SELECT llm, sum(n), sum(i), sum(o), sum(f) FROM (
                    SELECT llm, count(*) AS n, sum(tokens_in) AS i, sum(tokens_out) AS o, 0 AS f
                      FROM llm_calls GROUP BY llm
                    UNION ALL SELECT llm, 0, 0, 0, count(*) FROM llm_failures GROUP BY llm
                ) GROUP BY llm ORDER BY llm
                """
            ).fetchall()
        }
        finished = dict(
            con.execute("SELECT kind, count(*) FROM runs WHERE status = 'done' GROUP BY kind ORDER BY kind").fetchall()
        )
        evaluations = con.execute(_EVALUATED).fetchall()
        began, asked = [], []
        for _, started_at, split, queries, measures in evaluations:
            if measures:
                began.append(started_at)
                asked.append((split, queries))
        evaluated_at = max(compress(began, no_trials(asked, splits)), default=None)
        exported_at = None
        with suppress(ValueError):  # a stranger's
            exported_at = datetime.fromisoformat(meta.get(EXPORTED, "")).replace(tzinfo=None)
        summary = Overview(
            workspace=str(workspace.path),
            pool=pool,
            active=active,
            pruned=pool - active,
            retired=number(con, "SELECT count(*) FROM demonstrations WHERE retired_at IS NOT NULL"),
            sources=sources,
            sources_pruned=sources - live,
            validation=splits.get("validation", 0),
            test=splits.get("test", 0),
            duplicates=duplicates,
            duplicates_open={kind: still.get(kind, 0) for kind in duplicates},
            leaks=number(con, f"SELECT count(*) FROM ({LEAKS.format(rows='pool')})"),
            leaks_open=number(con, f"SELECT count(*) FROM ({LEAKS.format(rows='active')})"),
            suspects=suspects,
            suspects_open=suspects_open,
            skipped=number(con, "SELECT count(*) FROM skipped"),
            task=meta.get("task", "open"),
            encoder=meta.get("encoder"),
            calls=calls,
            runs=finished,
            evaluations=sum(
                count for kind, count in finished.items() if kind.startswith("evaluate")
            ),  # as indexed, too
            last_evaluation=evaluations[-1][0] if evaluations else None,
            decisions=number(
                con, "SELECT count(DISTINCT batch) FROM decisions WHERE batch NOT IN (FROM undone) AND scope <> 'batch'"
            ),
            evaluated_since=None if evaluated_at is None else decided_since(con, evaluated_at).changed,
            exported_since=None if exported_at is None else decided_since(con, exported_at).changed,
            rows_changed_since_evaluation=None if evaluated_at is None else rows_since(con, evaluated_at) > 0,
            rows_changed_since_export=None
            if exported_at is None
            else rows_since(con, exported_at, "split = 'pool'") > 0,
            next_step="",
            versions=tuple(list_versions(con)),
            compared=not pool or COMPARED in meta,
            export_gone=_gone(workspace, meta.get(EXPORTED_TO)),
        )
        step = "icl-curate curate --accept --dry-run" if _waits(workspace) else _next_step(summary)
    return replace(summary, next_step=step)


def asked_last(workspace: Workspace) -> tuple[str, str, str]:
    """The LLM of the latest work, the server that answered it last, and by what that work was graded, in JSON: all as
    the workspace has them, which may be anybody's. Empty: none but the stand-in or a program, which runs only if the
    user names it; no server."""
    with workspace.read() as con:
        llm, server, by = con.execute(_ASKED_LAST).fetchone() or ("", "", "")
    return (llm, server, by) if llm.isprintable() and not llm.startswith("-") and not program_in(llm) else ("", "", "")


ZERO = "zero"
"""The method without demonstrations: an evaluation of it alone measures no pool."""

_EVALUATED = f"""
    SELECT run, started_at, coalesce(summary ->> '$.split', ''),
           coalesce(TRY_CAST(summary ->> '$.queries' AS DOUBLE), 'infinity'),
           coalesce(json_keys(summary, '$.methods') <> ['{ZERO}'], true)
      FROM runs WHERE kind = 'evaluate' AND status = 'done' ORDER BY run
"""
"""Of each evaluation the run, when it began, the split, how many queries it asked, and whether it measures the pool."""

_ASKED_LAST = """
    SELECT r.llm, coalesce(arg_max(c.llm[length(r.llm) + 5:], c.latest), ''), coalesce(r.by, '')
      FROM (SELECT llm, settings ->> '$.graded_by' AS by FROM runs
             WHERE status = 'done' AND llm NOT IN ('', 'offline') ORDER BY run DESC LIMIT 1) r
      LEFT JOIN (SELECT llm, max(asked_at) AS latest FROM llm_calls GROUP BY llm) c
        ON starts_with(c.llm, r.llm || ' at ')
     GROUP BY r.llm, r.by
"""
"""Each tab reads this: texts of a million answers would be compared one by one, their few LLMs are not."""


def _gone(workspace: Workspace, exported: str | None) -> str:
    """The last part of a path that is no longer there, else nothing. Only a relative one is looked for: an absolute one
    is not of our writing, and may name another machine."""
    path = Path(exported or ".")
    return "" if path.anchor or os.path.lexists(workspace.path.parent / path) else path.name


def _waits(workspace: Workspace) -> bool:
    """Whether a pruning of `curate` waits for the curator; its file may be anybody's."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        return json.loads(read_regular(workspace.path / CURATION))["pending"]["held"] is True
    return False


def _next_step(summary: Overview) -> str:
    if not summary.pool:
        return "icl-curate index POOL.jsonl"
    if not summary.compared:
        return "icl-curate index"
    if not summary.validation and not summary.test:
        return "icl-curate index --validation-fraction 0.1 --test-fraction 0.1"
    if summary.encoder is None and not summary.runs:  # nothing was done without vectors, so they are wanted
        return "icl-curate index"
    if summary.evaluated_since is None:
        return f"icl-curate evaluate --split {'test' if summary.test else 'validation'}"
    if not (summary.decisions or summary.runs.get("curate")):
        if summary.runs.get("train-sources") and not summary.runs.get("tune"):
            return "icl-curate tune"
        if summary.validation >= FEWEST:
            return "icl-curate curate --max-calls 1000"
    if summary.evaluated_since or summary.rows_changed_since_evaluation:
        return f"icl-curate evaluate --split {'test' if summary.test else 'validation'}"
    unseen = summary.suspects is None and (any(summary.duplicates_open.values()) or summary.leaks_open)
    if summary.suspects_open or unseen:
        return "icl-curate check"
    if summary.exported_since != 0 or summary.rows_changed_since_export:
        return "icl-curate export curated.jsonl"
    return "icl-curate check" if summary.suspects is None else ""
