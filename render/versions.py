"""What `version` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .decisions import effect_lines, left
from .tables import Head, show_table
from .terminal import say

if TYPE_CHECKING:
    from ..engine.store.versions import Version, VersionDetail, VersionRestored


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
