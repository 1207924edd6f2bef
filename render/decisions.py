"""What changes a pool, in words: decisions, versions, differences. For commands and tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .pool import decided, names_of
from .tables import Column, Head, show_rows, show_table
from .terminal import say

if TYPE_CHECKING:
    from ..engine.export.diff import PoolDiff, RowChange
    from ..engine.store.decisions import Change
    from ..engine.store.versions import Version, VersionDetail, VersionRestored

MOST_NAMES, MOST_LOSSES = 12, 3


def show_change(change: Change) -> None:
    """A decision that was made, or would be, and how to undo it."""
    if change.action in ("undo", "redo"):
        what = f"of decision {decided(change)}"
    elif len(change.targets) > 1:
        what = f"{targets_of(change)} ({decided(change, 5)})"
    else:
        what = ("" if change.action == "relabel" else f"{change.scope} ") + decided(change)
    say(f"{change.action} {what}: {left(change)}")
    for line in effect_lines(change):
        say(line)
    if not change.dry_run:
        say("back with: icl-curate redo" if change.action == "undo" else "undo with: icl-curate undo")


def targets_of(change: Change) -> str:
    """The number of its targets: ``2 sources``, ``5 sources and demonstrations``."""
    count, scope = len(change.targets), change.scope
    return f"{count:,} sources and demonstrations" if " and " in scope else counted(count, scope)


def left(change: Change) -> str:
    """Active demonstrations after and before."""
    verb, after, before = "would leave" if change.dry_run else "leaves", change.active_after, change.active_before
    of = " of" if after <= before else ","  # undone, there may be more than before
    return f"{verb} {after:,} active{of} {before:,} before"


def rows_line(change: Change) -> str:
    """Active demonstrations before and after."""
    return f"active: {change.active_before:,} → {counted(change.active_after, 'demonstration')}"


def effect_lines(change: Change) -> list[str]:
    """The sources and labels that come or go, the labels that lose most of their rows, and that restoring what was not
    pruned withdraws an earlier decision; none if nothing of that happens."""
    effects = change.effects
    named = {
        "sources gone": effects.sources_gone,
        "labels gone": effects.labels_gone,
        "sources added": effects.sources_added,
        "labels added": effects.labels_added,
    }
    lines = [f"{what}: {names_of(names, MOST_NAMES)}" for what, names in named.items() if names]
    if change.action == "restore" and change.scope != "version" and change.active_before == change.active_after:
        lines.append("no row comes back: an earlier decision, such as to keep, is withdrawn")
    if losses := effects.label_losses:
        shown = [f"{one.label} {one.before:,} → {one.after:,}" for one in losses]
        lines.append(f"labels left with half or less: {names_of(shown, MOST_LOSSES)}")
    return lines


SIGNS = {"added": "+", "removed": "−", "changed": "~"}


def show_diff(compared: PoolDiff, limit: int) -> None:
    """Counts by source, and the first ``limit`` rows that differ."""
    differing = [row for row in compared.sources if row.before != row.after]
    if differing:
        sources = [[row.source, row.before, row.after, row.after - row.before] for row in differing]
        show_table(["source", "before", "after", "difference"], sources)
    more = len(compared.rows) - limit
    outputs = f", {compared.outputs:,} of them in the output" if compared.changed else ""
    note = (
        f"{counted(compared.before, 'row')} before, {compared.after:,} after: {compared.added:,} added, "
        f"{compared.removed:,} removed, {compared.changed:,} changed{outputs}"
        + (f"; {more:,} more rows: -n {len(compared.rows)}" if more > 0 else "")
    )
    columns: list[Column[RowChange]] = [
        ("", lambda row: SIGNS[row.change]),
        (Head("id", 2), lambda row: row.id),
        (Head("source", 4), lambda row: row.source),
        (Head("output", 1), lambda row: _output(row.before, row.after)),
        (Head("changed", 5), lambda row: ", ".join(row.fields)),
        (Head("input", 3), lambda row: row.input),
    ]
    show_rows(compared.rows[:limit], columns, note=note)


def _output(before: str | None, after: str | None) -> str:
    if before is None or after is None:
        return after or before or ""
    return before if before == after else f"{before} → {after}"


def show_versions(versions: Sequence[Version]) -> None:
    """Versions, latest first."""
    rows = [[each.name, each.saved_at[:16], each.rows, each.corrected, each.who, each.note] for each in versions]
    heads: list[str | Head] = ["name", Head("saved", 2), "rows", Head("corrected", 3), Head("user", 4), "note>"]
    note = "compare: icl-curate diff NAME; return to it: icl-curate version restore NAME"
    show_table(heads, rows, note=note if versions else "no version: icl-curate version save NAME")


def show_version(detail: VersionDetail) -> None:
    """What a version holds, and how the pool differs from it."""
    version = detail.version
    same = not (detail.gone or detail.new or detail.differing)
    differs = f"{counted(detail.new, 'row')} more, {detail.gone:,} fewer, {detail.differing:,} other outputs"
    facts = [
        ("version", version.name),
        ("saved", f"{version.saved_at[:16]} by {version.who}"),
        *([("note", version.note)] if version.note else []),
        ("rows", f"{version.rows:,}, {version.corrected:,} of them with a corrected output"),
        ("pool now", "the same" if same else f"{detail.active:,} active: {differs}"),
    ]
    if detail.retired:
        gone = f"{counted(detail.retired, 'row', 'is', 'are')} no longer in the files"
        facts.append(("retired", f"{gone}; export --version writes them"))
    show_table(["", ""], facts)
    show_table(["source", "rows"], [[source.source, source.rows] for source in detail.sources])


def show_restored(done: VersionRestored) -> None:
    """What returning to a version did, or would do."""
    change = done.change
    say(f"restore version {done.version}: {left(change)}")
    for line in effect_lines(change):
        say(line)
    if done.missing:
        say(f"{done.missing:,} of its rows are no longer in the files: export --version {done.version} writes them")
    if not change.dry_run:
        say("undo with: icl-curate undo")
