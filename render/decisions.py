"""Decisions in words: what one does to the active pool. For commands and tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .pool import names_of
from .tables import Head, show_table
from .terminal import say

if TYPE_CHECKING:
    from ..engine.export.diff import PoolDiff
    from ..engine.store.decisions import Change
    from ..engine.store.versions import Version, VersionDetail, VersionRestored

MOST_NAMES, MOST_LOSSES = 12, 3


def show_change(change: Change) -> None:
    """A decision that was made, or would be, and how to undo it."""
    names = names_of(change.targets, 5)
    what = "undo of decision" if change.action == "undo" else change.action
    if "relabel" not in what and what != "undo of decision":
        what += f" {change.scope}"
    say(f"{what} {names}: {left(change)}")
    for line in effect_lines(change):
        say(line)
    if not change.dry_run and change.action != "undo":
        say("undo with: icl-curate undo")


def left(change: Change) -> str:
    """Active demonstrations after and before."""
    verb = "would leave" if change.dry_run else "leaves"
    return f"{verb} {change.active_after:,} active of {change.active_before:,} before"


def rows_line(change: Change) -> str:
    """Active demonstrations before and after."""
    return f"active: {change.active_before:,} → {counted(change.active_after, 'demonstration')}"


def effect_lines(change: Change) -> list[str]:
    """The sources and labels that come or go, and the labels that lose most of their rows; none if nothing of that
    happens."""
    effects = change.effects
    named = {
        "sources gone": effects.sources_gone,
        "labels gone": effects.labels_gone,
        "sources added": effects.sources_added,
        "labels added": effects.labels_added,
    }
    lines = [f"{what}: {names_of(names, MOST_NAMES)}" for what, names in named.items() if names]
    if losses := effects.label_losses:
        shown = [f"{one.label} {one.before:,} → {one.after:,}" for one in losses]
        lines.append(f"labels left with half or less: {names_of(shown, MOST_LOSSES)}")
    return lines


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


def show_versions(found: Sequence[Version]) -> None:
    """Versions, latest first."""
    rows = [[each.name, each.saved_at[:16], each.rows, each.corrected, each.who, each.note] for each in found]
    heads: list[str | Head] = ["name", Head("saved", 2), "rows", Head("corrected", 3), Head("user", 4), "note>"]
    note = "compare: icl-curate diff NAME; return to it: icl-curate version restore NAME"
    show_table(heads, rows, note=note if found else "no version: icl-curate version save NAME")


def show_version(found: VersionDetail) -> None:
    """What a version holds, and how the pool differs from it."""
    version = found.version
    same = not (found.gone or found.new or found.differing)
    differs = f"{counted(found.new, 'row')} more, {found.gone:,} fewer, {found.differing:,} other outputs"
    facts = [
        ("version", version.name),
        ("saved", f"{version.saved_at[:16]} by {version.who}"),
        ("note", version.note),
        ("rows", f"{version.rows:,}, {version.corrected:,} of them with a corrected output"),
        ("pool now", "the same" if same else f"{found.active:,} active: {differs}"),
        (
            "retired",
            f"{counted(found.retired, 'row', 'is', 'are')} no longer in the files; export --version writes them",
        ),
    ]
    dull = {"note": not version.note, "retired": not found.retired}
    show_table(["", ""], [fact for fact in facts if not dull.get(fact[0])])
    show_table(["source", "rows"], [[each.source, each.rows] for each in found.sources])


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
