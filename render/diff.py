"""What `diff` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .tables import Head, show_table

if TYPE_CHECKING:
    from ..engine.export.diff import PoolDiff

SIGNS = {"added": "+", "removed": "−", "changed": "~"}


def show_diff(found: PoolDiff, limit: int) -> None:
    """Counts by source, and the first ``limit`` rows that differ."""
    kept = [[each.source, each.before, each.after, each.after - each.before] for each in found.sources]
    differing = [row for row in kept if row[3]]
    if differing:
        show_table(["source", "before", "after", "difference"], differing)
    rows = [
        [SIGNS[each.change], each.id, each.source, _output(each.before, each.after), ", ".join(each.fields), each.input]
        for each in found.rows[:limit]
    ]
    more = len(found.rows) - limit
    outputs = f", {found.outputs:,} of them in the output" if found.changed else ""
    note = (
        f"{counted(found.before, 'row')} before, {found.after:,} after: {found.added:,} added, "
        f"{found.removed:,} removed, {found.changed:,} changed{outputs}"
        + (f"; {more:,} more rows: -n {len(found.rows)}" if more > 0 else "")
    )
    heads: list[str | Head] = [
        "",
        Head("id", 2),
        Head("source", 4),
        Head("output", 1),
        Head("changed", 5),
        Head("input", 3),
    ]
    show_table(heads, rows, note=note)


def _output(before: str | None, after: str | None) -> str:
    if before is None or after is None:
        return after or before or ""
    return before if before == after else f"{before} → {after}"
