"""What goes into a workspace and what comes out of it, in plain terminal output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .tables import show_table, show_text

MOST_SKIPPED = 20


def show_index(told: Mapping[str, Any]) -> None:
    """What ``index --json`` tells, and the first bad rows by file and line."""
    show_table(["", ""], index_rows(told))
    skipped = told["skipped"]
    if skipped:
        rows = [[one["file"], one["line"], one["reason"]] for one in skipped[:MOST_SKIPPED]]
        more = len(skipped) - MOST_SKIPPED
        note = f" … and {more:,} more: icl-curate index --json" if more > 0 else ""
        show_table(["skipped in", "line", "why>"], rows, note=note)


def index_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value; a rehearsal knows nothing of repeats and leaks."""
    found = [
        ("pool", f"{told['demonstrations']:,} demonstrations from {told['sources']:,} source(s), task: {told['task']}"),
        ("queries", f"{told['validation']:,} validation, {told['test']:,} test"),
        ("changed", f"{told['added']:,} added, {told['retired']:,} retired, {told['revived']:,} revived"),
        ("skipped", f"{len(told['skipped']):,} bad row(s)"),
    ]
    kinds = told["duplicates_by_kind"]
    if kinds is not None:
        found.append(("repeats", ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())) or "none"))
    if told["leaks"]:
        found.append(("leaks", f"{told['leaks']:,} queries are also in the pool; a query is never shown to itself"))
    verb = "to encode" if told.get("dry_run") else "encoded"
    return [*found, (verb, f"{told['encoded']:,} new with {told['encoder']}" if told["encoder"] else "nothing")]


def show_export(told: Mapping[str, Any]) -> None:
    """What ``export --json`` tells, on one line."""
    verb = "would write" if told.get("dry_run") else "wrote"
    show_text(f"{verb} {told['out']} ({exported(told)}); manifest: {told['manifest']}")


def export_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value of a rehearsed export."""
    return [("writes", exported(told)), ("to", told["out"]), ("as", told["format"]), ("manifest", told["manifest"])]


def exported(told: Mapping[str, Any]) -> str:
    """How many rows of which split."""
    return ", ".join(f"{count:,} {split}" for split, count in told["counts"]["exported"].items() if count)
