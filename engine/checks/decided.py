"""Decisions by what was found about rows: pruned, or relabelled as suggested. Each can be undone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..base.errors import UsageError, counted
from ..store.decisions import Change, decide, relabel, settled_rows
from ..store.trials import Grading
from ..store.workspace import Workspace
from .evidence import PoolEvidence
from .ledger import surely_misleading
from .results import CheckReport, Kind

SURE = 0.9
"""Probability of hurting from which rows are pruned."""
SUGGESTED = 0.5
"""Probability of a suggested output from which it is given."""


def prune_found(
    workspace: Workspace, checked: CheckReport, kinds: Collection[Kind], *, dry_run: bool = False
) -> Change | None:
    """Prune the rows found of these kinds, of each group of duplicates all but the first; None if there are none."""
    found = checked.accepted(kinds)
    if not found:
        return None
    return decide(workspace, "prune", "demonstration", list(found), list(found.values()), dry_run=dry_run)


def relabel_found(
    workspace: Workspace, checked: CheckReport, sure: float = SUGGESTED, *, dry_run: bool = False
) -> Change | None:
    """Give rows the output that was suggested with at least the probability ``sure``; None if there are none."""
    found = checked.relabelled(sure)
    if not found:
        return None
    outputs = {name: output for name, (output, _) in found.items()}
    return relabel(workspace, outputs, [reason for _, reason in found.values()], dry_run=dry_run)


def undecided(workspace: Workspace, evidence: PoolEvidence) -> PoolEvidence:
    """The evidence of the rows that the curator neither kept nor relabelled; it says how many these are."""
    settled = set(settled_rows(workspace).tolist())
    rows = tuple(row for row in evidence.rows if row.row not in settled)
    if len(rows) == len(evidence.rows):
        return evidence
    left_out = f"left out: {counted(len(evidence.rows) - len(rows), 'row')} that you kept or relabelled"
    return replace(evidence, rows=rows, notes=(*evidence.notes, left_out))


def prune_suspects(
    workspace: Workspace, evidence: PoolEvidence, sure: float = SURE, reason: str = "", *, dry_run: bool = False
) -> Change:
    """Prune the rows that hurt with at least the probability ``sure``, by all evidence, but those decided on before.
    Raises `UsageError` if there are none."""
    likely = undecided(workspace, evidence).suspects(sure)
    if not likely:
        raise UsageError(f"no demonstration is likely to hurt from {sure:g} on", "icl-curate suspects")
    reasons = [reason or row.reason for row in likely]
    return decide(workspace, "prune", "demonstration", [row.id for row in likely], reasons, dry_run=dry_run)


def prune_misleading(
    workspace: Workspace, reason: str = "", grading: Grading | None = None, *, dry_run: bool = False
) -> Change:
    """Prune the rows that hurt significantly, and more than the median one, by the ledger (of a ``grading``). Raises
    as `surely_misleading` does."""
    why, rows = reason or "misleading by the ledger", surely_misleading(workspace, grading)
    return decide(workspace, "prune", "demonstration", rows, why, dry_run=dry_run)
