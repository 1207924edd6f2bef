"""The latest race that was stored, and the decision on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..base.errors import UsageError
from ..store import runs
from ..store.decisions import Change, Revision, revise
from ..store.workspace import Workspace
from .results import KIND, TuneReport

MEASURE = "icl-curate tune --propose"


@dataclass(frozen=True, slots=True)
class StoredTuning:
    """A finished race, with what is ``left`` of its revision: what is still active, and does not have its new output.
    ``rows_changed`` and ``decisions``: what changed in the workspace since it began."""

    started_at: datetime
    report: TuneReport
    left: Revision
    rows_changed: int
    decisions: int

    @property
    def is_open(self) -> bool:
        """Whether its revision was confirmed by the gain, and is not decided yet."""
        return bool(self.left)


def stored_tuning(workspace: Workspace) -> StoredTuning | None:
    """The latest finished race in which something was asked; one whose report cannot be read is left out."""
    for done, report in runs.readable(TuneReport, runs.finished(workspace, KIND)):
        if report.confirmed is not None:
            since = runs.followed(workspace, done)
            return StoredTuning(done.started_at, report, _left(workspace, report), since.rows, since.decisions)
    return None


def prune_proposed(workspace: Workspace, reason: str = "", *, dry_run: bool = False) -> Change:
    """Prune what the latest race confirmed, as one decision. Raises `UsageError` if that is nothing."""
    tuned = stored_tuning(workspace)
    if tuned is None:
        raise UsageError("no pruning was measured with served prompts yet", MEASURE)
    if not tuned.report.worth_it:
        raise UsageError(f"run {tuned.report.run} confirmed no pruning", "icl-curate prune --source NAME")
    if not tuned.is_open:
        raise UsageError(f"what run {tuned.report.run} confirmed is pruned already", "icl-curate history")
    return revise(workspace, tuned.left, reason or tuned.report.reason, dry_run=dry_run)


def _left(workspace: Workspace, report: TuneReport) -> Revision:
    """What the report changes and is active, without the rows that have their new output."""
    with workspace.read() as con:
        active = con.execute(
            """
            SELECT list(DISTINCT source ORDER BY source) FILTER (source IN (SELECT unnest(CAST($1 AS VARCHAR[])))),
                   list(id ORDER BY row) FILTER (id IN (SELECT unnest(CAST($2 AS VARCHAR[])))),
                   list([id, output] ORDER BY row) FILTER (id IN (SELECT unnest(CAST($3 AS VARCHAR[]))))
              FROM active
            """,
            [list(report.pruned), list(report.pruned_rows), list(report.relabelled)],
        ).fetchone()
    sources, rows, outputs = active or (None, None, None)
    wrong = {name: report.relabelled[name] for name, output in outputs or () if output != report.relabelled[name]}
    return Revision(tuple(sources or ()), tuple(rows or ()), wrong)
