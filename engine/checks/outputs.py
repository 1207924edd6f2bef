"""Faults of outputs that are no labels: what is looked for in which pools, and what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ..base.arrays import Float32s, Int64s
from ..base.progress import SILENT, Monitor
from ..pool.records import Demonstration, Task
from .rationale import rationale_faults
from .results import OUTPUTS, RELABEL, REVIEW, Fault, Finding, Kind, finding
from .structure import are_json, parsed, set_faults, structure_faults
from .writing import neighbour_faults, style_faults


def output_faults(
    rows: Sequence[Demonstration],
    task: Task,
    vectors: Float32s | None = None,
    monitor: Monitor = SILENT,
    wanted: Collection[Kind] = OUTPUTS,
    verified: Sequence[Demonstration] = (),
) -> tuple[Fault, ...]:
    """The faults of the ``wanted`` kinds in the outputs of rows, with ``vectors`` (n, d) those that neighbours show,
    too; ``verified`` outputs tell what is `is_usual`. Labels and options have none. Raises `Cancelled` between the
    kinds."""
    if task.kind in ("labels", "options"):
        return ()

    def every() -> Iterator[Fault]:
        if set(wanted) - {"neighbour"}:
            values = [parsed(row.output) for row in rows]
            structured = are_json(values)
            if not structured and "member" in wanted:
                yield from set_faults(rows)
            if structured and {"schema", "entity", "call"} & set(wanted):
                yield from structure_faults(rows, values, verified)
            if "style" in wanted:
                yield from style_faults(rows, structured, verified)
            if not structured and "rationale" in wanted:
                yield from rationale_faults(rows, verified)
        if vectors is not None and "neighbour" in wanted:
            yield from neighbour_faults(rows, vectors, task, monitor)

    return tuple(fault for fault in every() if fault.kind in wanted)


def fault_findings(rows: Sequence[Demonstration], faults: Sequence[Fault]) -> Iterator[Finding]:
    """The faults as findings: a doubt is to be reviewed, a fault pruned, or corrected where that is likely to be
    right."""
    for fault in faults:
        suggestion = RELABEL + fault.corrected if fault.corrected else "prune" if fault.sure else REVIEW
        figures = {"suggested": fault.chance} if fault.corrected else {}
        severity = 0.8 if fault.sure else 0.4
        yield finding(rows[fault.place], fault.kind, severity, f"the output {fault.evidence}", suggestion, **figures)


def levels(faults: Sequence[Fault], count: int) -> dict[Kind, Int64s]:
    """By kind that was found, of each of ``count`` rows: nothing (0), a doubt (1), a fault (2)."""
    of_kind = {kind: np.zeros(count, np.int64) for kind in OUTPUTS if any(fault.kind == kind for fault in faults)}
    for fault in faults:
        of_kind[fault.kind][fault.place] = max(of_kind[fault.kind][fault.place], 1 + fault.sure)
    return of_kind


def corrections(faults: Sequence[Fault]) -> dict[int, tuple[str, float]]:
    """The likeliest correction of each row, by its place, and its chance."""
    ordered = sorted((fault for fault in faults if fault.corrected), key=lambda fault: fault.chance)
    return {fault.place: (fault.corrected, fault.chance) for fault in ordered}
