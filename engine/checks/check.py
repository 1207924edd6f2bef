"""All checks over the active pool of a workspace, and that for outliers: rows far from their nearest neighbours, by
cosine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.errors import counted
from ..base.progress import CancelToken, Event, Report, silent
from ..pool.records import Demonstration
from ..store.decisions import kept_rows
from ..store.demonstrations import leaks, similarities
from ..store.outputs import relabelled
from ..store.workspace import Workspace
from .active import ActivePool
from .labels import FOLDS, LabelPredictions
from .mismatch import SURE, Mismatches
from .repeats import leak_findings, repeat_findings
from .results import KINDS, RELABEL, REVIEW, CheckReport, Finding, Kind, finding
from .texts import text_findings

NEIGHBOURS = 5
SPREADS = 4.5
"""A row is an outlier from this many robust standard errors (1.4826 × the median absolute deviation) above the
median."""

LEAST = 30
"""With fewer rows the distribution of distances cannot be estimated."""

EXACT = 4_096
"""Number of rows whose neighbours are always searched among all rows."""

CELLS = 1 << 24
"""Maximum number of cosines in memory."""


def far_rows(
    vectors: Float32s, groups: Int64s, report: Report = silent, cancel: CancelToken | None = None
) -> tuple[Int64s, Float64s, float, float]:
    """Positions of outliers, their distances, the usual distance and the limit.

    Distance: 1 − the mean cosine with the `NEIGHBOURS` nearest rows of other ``groups`` (n,). The usual distance is
    estimated from at most `EXACT` rows. The distance to neighbours in a subset is never less than in the whole, so rows
    near enough to a subset need no further search. Raises `Cancelled` between blocks.
    """
    n = len(vectors)
    if n < LEAST:
        return np.empty(0, np.int64), np.empty(0), 0.0, 0.0
    part = np.sort(np.random.default_rng(0).permutation(n)[:EXACT])
    everyone = np.arange(n)
    usual = _distances(vectors, groups, part, everyone, report, cancel)
    middle = float(np.median(usual))
    limit = middle + SPREADS * 1.4826 * float(np.median(np.abs(usual - middle)))
    bound = usual if n <= EXACT else _distances(vectors, groups, everyone, part, report, cancel)
    places = np.flatnonzero(bound > limit)
    distances = bound[places] if n <= EXACT else _distances(vectors, groups, places, everyone, report, cancel)
    far = distances > limit
    return places[far], distances[far], middle, limit


def _distances(
    vectors: Float32s, groups: Int64s, of: Int64s, among: Int64s, report: Report, cancel: CancelToken | None
) -> Float64s:
    """Distance of the positions ``of`` to their neighbours ``among`` others, (len(of),)."""
    others, theirs = vectors[among], groups[among]
    found = np.ones(len(of))
    size = max(CELLS // max(len(among), 1), 1)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    for start in range(0, len(of), size):
        if cancel:
            cancel.check()
        report(Event("outliers", start, len(of)))
        block = of[start : start + size]
        cosines = vectors[block] @ others.T
        own = groups[block]
        begin, end = np.searchsorted(ordered, own), np.searchsorted(ordered, own, "right")
        for i in range(len(block)):
            cosines[i, order[begin[i] : end[i]]] = -1.0
        k = min(NEIGHBOURS, cosines.shape[1])
        nearest = np.partition(cosines, cosines.shape[1] - k, axis=1)[:, -k:]
        found[start : start + size] = 1.0 - nearest.mean(axis=1)
    report(Event("outliers", len(of), len(of)))
    return found


def check_pool(pool: ActivePool, kinds: Collection[Kind] = KINDS, also_kept: bool = False) -> CheckReport:
    """Check the active pool for the given ``kinds``; no LLM is called and nothing is encoded. Rows that the curator
    decided to keep are left out, and the labels of those that the curator relabelled, unless ``also_kept``. Raises
    `UsageError` if the pool is empty, `Cancelled` between steps."""
    workspace = pool.workspace
    view, rows, repeated = pool.view, pool.rows, pool.repeated
    notes: list[str] = []
    found: list[Finding] = []
    vectors = pool.vectors if {"label", "conflict", "outlier"} & set(kinds) else None
    if pool.fault is not None:
        notes.append(f"labels and outliers not looked for: {pool.fault.what}; {pool.fault.fix}")
    label_predictions = _label_predictions(pool, kinds, notes) if {"label", "conflict"} & set(kinds) else None
    if label_predictions and "label" in kinds:
        found += label_findings(rows, label_predictions)
    if "mismatch" in kinds and pool.mismatches is not None:
        if not pool.mismatches.usable:
            notes.append("mismatches not looked for: outputs share too few words with their inputs (see train rows)")
        found += mismatch_findings(rows, pool.mismatches)
    if {"conflict", "duplicate"} & set(kinds):
        quality = label_predictions.quality if label_predictions else None
        found += repeat_findings(rows, repeated, similarities(workspace), view.task, quality)
    if "leak" in kinds:
        found += leak_findings({row.row: row for row in rows}, leaks(workspace))
    if vectors is not None and "outlier" in kinds:
        found += outlier_findings(rows, vectors, repeated, pool.report, pool.cancel)
    if "class" in kinds and view.task.kind == "labels":
        found += class_findings(rows, max(FOLDS, pool.settings.k))
    if {"empty", "cut", "mojibake", "refusal"} & set(kinds):
        found += text_findings(rows, view.task)
    found = [one for one in found if one.kind in kinds]
    if not also_kept:
        found = _without_settled(workspace, found, notes)
    return CheckReport.of(len(rows), found, kinds, notes)


def _without_settled(workspace: Workspace, found: list[Finding], notes: list[str]) -> list[Finding]:
    kept = set(kept_rows(workspace).tolist())
    corrected = {each.row for each in relabelled(workspace)}

    def settled(one: Finding) -> bool:
        return one.row in kept or (one.row in corrected and one.kind in ("label", "conflict"))

    if rows := {one.row for one in found if settled(one)}:
        note = f"{len(rows):,} row(s) with findings left out: you kept or relabelled them"
        notes.append(f"{note}; icl-curate check --all shows them")
    return [one for one in found if not settled(one)]


def _label_predictions(pool: ActivePool, kinds: Collection[Kind], notes: list[str]) -> LabelPredictions | None:
    """Label quality, if the pool has labels and vectors."""
    if pool.vectors is None:
        return None
    label_predictions = pool.label_predictions
    if "label" not in kinds:
        return label_predictions
    if pool.view.task.kind != "labels":
        notes.append(f"labels not looked for: the task is {pool.view.task.kind}")
    elif pool.contradicted:
        notes.append(
            f"suspected labels left out: {pool.contradicted}, so most labels may be wrong; see icl-curate suspects"
        )
    elif (
        unjudged := len(pool.rows) if label_predictions is None else int(np.count_nonzero(label_predictions.labels < 0))
    ):
        notes.append(
            f"{counted(unjudged, 'label')} not judged: their classes have fewer than {FOLDS} rows of their own"
        )
    return label_predictions


def label_findings(rows: Sequence[Demonstration], label_predictions: LabelPredictions) -> Iterator[Finding]:
    """Rows with a suspected label error."""
    suggested = label_predictions.suggested()
    for place in np.flatnonzero(label_predictions.suspect).tolist():
        row, other = rows[place], int(suggested[place])
        own = float(label_predictions.probabilities[place, label_predictions.labels[place]])
        p, quality = float(label_predictions.probabilities[place, other]), float(label_predictions.quality[place])
        name = label_predictions.names[other]
        evidence = f"suggested {name} at {_decimals(p)}, given {row.output} at {_decimals(own)}"
        yield finding(row, "label", 1.0 - quality, evidence, RELABEL + name, given=own, suggested=p, quality=quality)


def mismatch_findings(rows: Sequence[Demonstration], compared: Mismatches) -> Iterator[Finding]:
    """Rows whose output belongs to another input."""
    for place in np.flatnonzero(compared.probabilities >= SURE).tolist():
        rank, probability = float(compared.ranks[place]), float(compared.probabilities[place])
        evidence = f"{rank:.0%} of other outputs fit this input as well; not made from it at {_decimals(probability)}"
        yield finding(rows[place], "mismatch", probability, evidence, rank=rank, probability=probability)


def outlier_findings(
    rows: Sequence[Demonstration],
    vectors: Float32s,
    repeated: Int64s,
    report: Report = silent,
    cancel: CancelToken | None = None,
) -> Iterator[Finding]:
    """Rows far from all others."""
    places, distances, middle, limit = far_rows(vectors, repeated, report, cancel)
    for place, distance in zip(places.tolist(), distances.tolist(), strict=True):
        evidence = f"far from its nearest rows: distance {_decimals(distance)}, usually {_decimals(middle)}"
        severity = min(0.3 + (distance - limit), 1.0)
        yield finding(rows[place], "outlier", severity, evidence, distance=distance, usual=middle, limit=limit)


def class_findings(rows: Sequence[Demonstration], least: int) -> Iterator[Finding]:
    """Rows of classes with fewer than ``least`` rows: too few to check labels, or to fill a prompt."""
    counts = Counter(row.output for row in rows)
    for row in rows:
        count = counts[row.output]
        if count < least:
            evidence = f"{row.output} has {count} row(s), fewer than {least}"
            yield finding(row, "class", 0.2, evidence, REVIEW, rows=count, least=least)


def _decimals(share: float) -> str:
    """As ``.93``."""
    return f"{share:.2f}".removeprefix("0")
