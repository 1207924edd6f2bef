"""Rows of the active pool that may be wrong, each with all that speaks against it: what the check found and the
posterior of its evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Int64s
from ..base.errors import CurateError
from ..base.progress import SILENT, Monitor
from ..store import overview
from ..store.browse import pruned_rows
from ..store.demonstrations import active_labels, active_rows, workspace_fingerprint
from ..store.settings import Settings
from ..store.workspace import Workspace
from .active import ActivePool
from .check import check_pool
from .evidence import LIKELY, RowEvidence, row_evidence
from .results import LASTING, CheckReport, Finding


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row with its ``findings``, the worst first, and its evidence; at least one of them speaks against it."""

    row: int
    id: str
    source: str
    findings: tuple[Finding, ...]
    evidence: RowEvidence

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds found, the worst first; ``risk`` if there is only the posterior."""
        return tuple(dict.fromkeys(one.kind for one in self.findings)) or ("risk",)

    @property
    def suggested(self) -> str:
        """The label to give it, if one is suggested: by all evidence, or by the check."""
        return self.evidence.suggested or next((one.suggested for one in self.findings if one.suggested), "")

    @property
    def weight(self) -> float:
        """How bad the row is, from 0 to 1: its posterior, or the severity of a fault that the posterior does not know
        of. The posterior judges the label too, by more than its finding does."""
        return max([self.evidence.posterior, *(one.severity for one in self.findings if one.kind != "label")])

    @property
    def reason(self) -> str:
        """The reason stored in the history if the row is pruned."""
        return self.findings[0].reason if self.findings else self.evidence.reason


@dataclass(frozen=True, slots=True)
class PoolSuspects:
    """Suspects, the worst first. ``checked``: numbers of the rows that were active then, ascending; ``key`` differs
    for another state of the workspace or of the settings."""

    rows: tuple[Suspect, ...]
    checked: Int64s
    notes: tuple[str, ...]
    key: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SuspectsState:
    """What decides which suspects are still to be shown. ``gone``: numbers of rows that are pruned or
    settled; ``active``: those of the active pool, ascending; ``labels``: active rows by output; ``key`` as in
    `PoolSuspects`."""

    gone: frozenset[int]
    active: Int64s
    labels: Mapping[str, int]
    key: tuple[object, ...]

    def outdates(self, found: PoolSuspects) -> bool:
        """Whether the suspects must be looked for again: rows, encoder, trained models or settings have changed, or a
        row is active that was not checked. After other decisions the list only becomes shorter."""
        (_, *now), (_, *then) = self.key, found.key
        return now != then or not np.isin(self.active, found.checked, assume_unique=True).all()


def find_suspects(workspace: Workspace, settings: Settings, monitor: Monitor = SILENT) -> PoolSuspects:
    """Check the active pool and weigh the evidence of its rows; no LLM is called and nothing is encoded. The result is
    stored for `store.overview`. Rows that the curator kept are among the suspects: `SuspectsState` says which to show.
    Raises `UsageError` if the pool is empty, `Cancelled` between steps."""
    key, pool = state_key(workspace, settings), ActivePool(workspace, settings, monitor)
    found, notes = suspects_of(pool, check_pool(pool, also_kept=True))
    return PoolSuspects(found, pool.view.rows, notes, key)


def suspects_of(pool: ActivePool, checks: CheckReport) -> tuple[tuple[Suspect, ...], tuple[str, ...]]:
    """The suspects by a check of all kinds and by the evidence, the worst first, and what was left out; stored for
    `store.overview`."""
    evidence = row_evidence(pool)
    findings: dict[int, list[Finding]] = defaultdict(list)
    for problem in checks.rows:
        findings[problem.row].append(problem)
    suspects = [
        Suspect(row.row, row.id, row.source, tuple(findings.get(row.row, ())), row)
        for row in evidence.rows
        if row.posterior >= LIKELY or row.row in findings
    ]
    numbers = np.array([suspect.row for suspect in suspects], np.int64)
    since = np.setdiff1d(active_rows(pool.workspace), pool.view.rows)  # restored while this looked
    with suppress(CurateError):  # a workspace that can only be read
        lasting = [suspect.row for suspect in suspects if not {*LASTING}.isdisjoint(suspect.kinds)]
        pruned = np.union1d(pruned_rows(pool.workspace), since)
        overview.keep_suspects(pool.workspace, numbers, pruned, np.array(lasting, np.int64))
    ordered = sorted(suspects, key=lambda suspect: (-suspect.weight, suspect.row))
    return tuple(ordered), tuple(dict.fromkeys((*checks.notes, *evidence.notes)))


def state_key(workspace: Workspace, settings: Settings) -> tuple[object, ...]:
    """The latest decision, then all else that suspects depend on."""
    return (*workspace_fingerprint(workspace), settings)


def pool_state(workspace: Workspace, settings: Settings) -> SuspectsState:
    key = state_key(workspace, settings)
    gone = frozenset((*pruned_rows(workspace).tolist(), *overview.settled_suspects(workspace).tolist()))
    return SuspectsState(gone, active_rows(workspace), active_labels(workspace), key)


@dataclass(frozen=True, slots=True)
class LabelCount:
    """``active``: rows with the label; ``left``: those that remain if all suspects shown are pruned."""

    label: str
    active: int
    left: int

    @property
    def vanishes(self) -> bool:
        return self.left == 0


def label_counts(labels: Mapping[str, int], shown: Counter[str]) -> list[LabelCount]:
    """Each label, those that lose the largest share first; ``shown``: suspects by output."""
    counts = [LabelCount(label, active, max(0, active - shown[label])) for label, active in labels.items()]
    return sorted(counts, key=lambda one: (one.left / one.active, one.label))
