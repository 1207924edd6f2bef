"""Output of `check`: counts by kind, then the worst rows."""

from __future__ import annotations

from collections import Counter

from ..engine.checks.results import CheckReport
from .tables import show_table, show_text


def show_checks(found: CheckReport, limit: int) -> None:
    """``limit``: maximum findings that are listed."""
    prunable = Counter(one.kind for one in found.rows if one.prunes)
    sources = {
        kind: Counter(one.source for one in found.rows if one.kind == kind).most_common(1)
        for kind, count in found.kinds.items()
        if count
    }
    rows = [
        [kind, count, prunable[kind], f"{sources[kind][0][0]} ({sources[kind][0][1]:,})" if kind in sources else ""]
        for kind, count in found.kinds.items()
    ]
    title = f"{found.checked:,} demonstrations checked"
    show_table(["kind", "rows", "to prune", "most from>"], rows, title=title)
    for note in found.notes:
        show_text(note, style="dim")
    worst = found.rows[:limit]
    if not worst:
        return
    more = len(found.rows) - len(worst)
    show_table(
        ["id", "source", "kind", "severity", "evidence>", "suggestion"],
        [[one.id, one.source, one.kind, f"{one.severity:.2f}", one.evidence, one.suggestion] for one in worst],
        note=f"… and {more:,} more: icl-curate check -n {len(found.rows)}" if more else "",
    )
