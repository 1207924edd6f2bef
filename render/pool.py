"""Output of `index` and `export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tables import show_table, show_text

if TYPE_CHECKING:
    from ..engine.export.results import ExportReport
    from ..engine.index.results import IndexReport

MOST_SKIPPED = 20


def show_index(done: IndexReport) -> None:
    """The result of an index run, and the first bad rows by file and line."""
    show_table(["", ""], index_rows(done))
    if done.skipped:
        rows = [[one.file, one.line, one.reason] for one in done.skipped[:MOST_SKIPPED]]
        more = len(done.skipped) - MOST_SKIPPED
        note = f" … and {more:,} more: icl-curate index --json" if more > 0 else ""
        show_table(["skipped in", "line", "why>"], rows, note=note)


def index_rows(done: IndexReport) -> list[tuple[str, str]]:
    """Labels and values; a dry run has no duplicates and leaks."""
    found = [
        ("pool", f"{done.demonstrations:,} demonstrations from {done.sources:,} source(s), task: {done.task}"),
        ("queries", f"{done.validation:,} validation, {done.test:,} test"),
        ("changed", f"{done.added:,} added, {done.retired:,} retired, {done.revived:,} revived"),
        ("skipped", f"{len(done.skipped):,} bad row(s)"),
    ]
    if done.duplicates is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.duplicates.items()))
        found.append(("repeats", kinds or "none"))
    if done.leaking:
        found.append(("leaks", f"{len(done.leaking):,} queries are also in the pool; a query is never shown to itself"))
    verb = "to encode" if done.dry_run else "encoded"
    return [*found, (verb, f"{done.encoded:,} new with {done.encoder}" if done.encoder else "nothing")]


def show_export(done: ExportReport) -> None:
    """What was written, or would be, on one line."""
    verb = "would write" if done.written is None else "wrote"
    show_text(f"{verb} {done.out} ({exported(done)}); manifest: {done.manifest}")


def export_rows(done: ExportReport) -> list[tuple[str, str]]:
    """Labels and values of an export's dry run."""
    return [("writes", exported(done)), ("to", done.out), ("as", done.format), ("manifest", done.manifest)]


def exported(done: ExportReport) -> str:
    """Number of rows by split."""
    return ", ".join(f"{count:,} {split}" for split, count in done.exported.items() if count)
