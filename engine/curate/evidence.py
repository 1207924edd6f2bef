"""What is known of the active pool before a served prompt is asked, gathered for the candidates."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from ..base.errors import UsageError
from ..base.progress import CancelToken, Report, silent
from ..checks.active import ActivePool
from ..checks.check import check_pool
from ..checks.evidence import row_evidence
from ..checks.results import Kind
from ..sources.train import sources_voted_out
from ..store import trials
from ..store.decisions import settled_rows
from ..store.demonstrations import active_sources
from ..store.settings import Settings
from ..store.workspace import Workspace
from .candidates import RELIABILITY, PruningEvidence, unsuspected_shares

SUSPICIOUS: tuple[Kind, ...] = ("label", "empty", "cut", "mojibake", "refusal")
"""Findings that speak against a row itself, not against its repetitions."""


def gather(
    workspace: Workspace,
    settings: Settings,
    report: Report = silent,
    cancel: CancelToken | None = None,
    relabel: bool = False,
) -> PruningEvidence:
    """The evidence on the active pool, to ``relabel`` rows with the corrections of suspected labels; calls no LLM.
    Sources are ranked by the reliability of the latest ``train sources``, or by the share of rows that `check` does not
    suspect before the first. Raises `UsageError` if the pool is empty."""
    rows, sources = active_sources(workspace)
    pool = ActivePool(workspace, settings, report, cancel)
    found = check_pool(pool, SUSPICIOUS)
    suspected = np.array(list(dict.fromkeys(one.row for one in found.rows if one.prunes)), np.int64)
    reliability, ranked_by = trials.weights(workspace, "reliability"), RELIABILITY
    if not reliability:
        reliability, ranked_by = unsuspected_shares(rows, sources, suspected), "share of rows that are not suspected"
    known = row_evidence(pool)
    settled = set(settled_rows(workspace).tolist())
    judged = [row for row in known.rows if row.row not in settled] if known.kinds else None
    posterior = None if judged is None else {row.row: row.posterior for row in judged}
    corrections = {row.row: (row.suggested, row.chance) for row in judged or () if relabel and row.suggested}
    voted_out: tuple[str, ...] = ()
    with suppress(UsageError):  # no trials, or those of fewer queries than folds
        voted_out = sources_voted_out(workspace, settings, report, cancel)
    return PruningEvidence(rows, sources, reliability, ranked_by, voted_out, suspected, posterior, corrections)
