"""Output of `index`, `status`, `demos`, `history` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted, open_of
from ..engine.pool.display import display_line
from ..engine.pool.records import history_of
from .calibration import show_set
from .tables import Head, show_table, show_text
from .terminal import narrate

if TYPE_CHECKING:
    from ..engine.export.results import ExportReport
    from ..engine.index.peek import PeekedRow, PeekReport
    from ..engine.index.results import IndexReport
    from ..engine.store.browse import Listed
    from ..engine.store.decisions import DecisionBatch
    from ..engine.store.overview import Overview

MOST_SKIPPED = 20
MOST_VERSIONS = 5
LONG, SHORT = 300, 60
"""Characters of an input, and of another field, that a look at a file shows."""


def show_index(done: IndexReport) -> None:
    """The result of an index run, and the first bad rows by file and line."""
    show_table(["", ""], index_rows(done))
    for warning in done.warnings:
        narrate(f"warning: {warning}")
    if done.skipped:
        rows = [[one.file, one.line, one.reason] for one in done.skipped[:MOST_SKIPPED]]
        more = len(done.skipped) - MOST_SKIPPED
        note = f" … and {more:,} more: icl-curate skipped" if more > 0 else ""
        show_table(["skipped in", "line", "why>"], rows, note=note)


def show_peek(found: PeekReport) -> None:
    """How the columns of each file were understood, its first rows, and what may be misread, one paragraph a file."""
    for i, each in enumerate(found.files):
        more = f" and {each.files - 1:,} more" if each.files > 1 else ""
        show_text(("\n" if i else "") + f"{each.path}{more}: {each.understood.format}", style="bold")
        for line in (each.understood.line, *each.understood.notes):
            show_text(line)
        rows = [[one.line, *_peeked(one)] for one in each.rows]
        show_table(["line", "input>", "output", "", "source"], rows)
        if each.bad:
            show_text(f"{each.bad:,} of the first {counted(each.read, 'row')} cannot be used")
        for warning in each.warnings:
            narrate(f"warning: {warning}")


def _peeked(one: PeekedRow) -> list[str]:
    if one.row is None:
        return [one.reason, "", "skipped", ""]
    parts = {
        "options": " | ".join(one.row.options), "also right": " | ".join(one.row.answers), "passage": one.row.context,
        "earlier turns": " / ".join(f"{turn.role}: {turn.content}" for turn in history_of(one.row.history) or ()),
        "split": one.row.split or "",
    }  # fmt: skip
    more = "; ".join(f"{name}: {display_line(text, SHORT)}" for name, text in parts.items() if text)
    return [display_line(one.row.input, LONG), display_line(one.row.output, SHORT), more, one.source]


def index_rows(done: IndexReport) -> list[tuple[str, str]]:
    """Labels and values; a dry run has no duplicates and leaks."""
    found = [
        ("pool", f"{counted(done.demonstrations, 'demonstration')} from {done.sources:,} source(s), task: {done.task}"),
        ("queries", f"{done.validation:,} validation, {done.test:,} test"),
        ("changed", f"{done.added:,} added, {done.retired:,} retired, {done.revived:,} revived"),
        ("skipped", f"{len(done.skipped):,} bad row(s)"),
    ]
    if done.duplicates is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.duplicates.items()))
        found.append(("repeats", kinds or "none"))
    if done.leaking:
        leaking = counted(len(done.leaking), "query", "is", "are")
        found.append(("leaks", f"{leaking} also in the pool; none is shown to itself"))
    verb = "to encode" if done.dry_run else "encoded"
    return [*found, (verb, f"{done.encoded:,} new with {done.encoder}" if done.encoder else "nothing")]


def repeats_line(found: Overview) -> str:
    """Rows that repeat others, by kind, and how many of them are left in the active pool."""
    kinds = found.duplicates.items()
    return ", ".join(f"{open_of(found.duplicates_open[kind], n)}{n:,} {kind}" for kind, n in kinds) or "none"


def suspects_line(found: Overview) -> str:
    """The suspects found last, and how many of them are left; empty if they were not looked for."""
    if found.suspects is None or found.suspects_open is None:
        return ""
    return f"{open_of(found.suspects_open, found.suspects)}{counted(found.suspects, 'row')}"


def show_status(found: Overview) -> None:
    """What a workspace holds, what asking has used, and the command that makes sense now."""
    rows = [
        ("workspace", found.workspace),
        ("pool", f"{counted(found.pool, 'demonstration')}, {found.active:,} active, {found.pruned:,} pruned"),
        ("sources", f"{found.sources:,}, {found.sources_pruned:,} of them pruned"),
        ("queries", f"{found.validation:,} validation, {found.test:,} test"),
        ("task", found.task),
        ("encoder", found.encoder or "not encoded"),
        ("repeats", repeats_line(found) + (": icl-curate check --kind duplicate" if found.duplicates else "")),
        (
            "leaks",
            open_of(found.leaks_open, found.leaks)
            + counted(found.leaks, "query", "also stands", "also stand")
            + " in the pool: icl-curate check --kind leak"
            if found.leaks
            else "none",
        ),
        ("suspects", suspects_line(found) or "not looked for: icl-curate review"),
        ("skipped rows", f"{found.skipped:,}" + (": icl-curate skipped" if found.skipped else "")),
        ("retired rows", f"{found.retired:,}"),
        ("decisions", f"{found.decisions:,}"),
        ("versions", names_of([version.name for version in found.versions], MOST_VERSIONS) or "none"),
        ("evaluations", f"{found.evaluations:,}"),
    ]
    for llm, used in found.calls.items():
        text = f"{counted(used.calls, 'call')} kept, {counted(used.tokens_in, 'token')} in, {used.tokens_out:,} out"
        rows.append((llm, text + (f", {used.failures:,} failures" if used.failures else "")))
    show_table(["", ""], rows, note=f"next: {found.next_step}")


def show_page(found: Sequence[Listed], limit: int) -> None:
    """Rows of the pool; if there are ``limit`` rows, also how to see more."""
    rows = [[r.row, r.id, r.source, "pruned" if r.pruned else "", r.input, r.output] for r in found]
    more = f"more: icl-curate demos --after {found[-1].row} …" if found and len(found) == limit else ""
    heads: list[str | Head] = [
        Head("row", 4),
        Head("id", 1, "start"),
        Head("source", 3, "middle"),
        "",
        "input>",
        Head("output", 2),
    ]
    show_table(heads, rows, note=more)


def show_history(found: Sequence[DecisionBatch]) -> None:
    """Decisions, latest first."""
    rows = [
        [
            entry.batch,
            f"{entry.decided_at:%Y-%m-%d %H:%M}",
            entry.who,
            entry.action,
            entry.scope,
            names_of(entry.targets, 3),
            entry.reason,
            "undone" if entry.undone else "",
        ]
        for entry in found
    ]
    heads: list[str | Head] = [
        Head("#", 4), Head("time", 3), Head("user", 5), Head("action"), Head("scope", 2), "targets>", Head("reason", 1),
        "",
    ]  # fmt: skip
    show_table(heads, rows)


def names_of(targets: Sequence[str], most: int) -> str:
    """The first of them by name, the others as a number."""
    more = f" … and {len(targets) - most:,} more" if len(targets) > most else ""
    return ", ".join(targets[:most]) + more


def show_export(done: ExportReport) -> None:
    """What was written, or would be, on one line."""
    verb = "would write" if done.written is None else "wrote"
    show_text(f"{verb} {done.out} ({exported(done)}); manifest: {done.manifest}")
    if done.counts:
        show_set(done.counts, done.warnings)


def export_rows(done: ExportReport) -> list[tuple[str, str]]:
    """Labels and values of an export's dry run."""
    return [("writes", exported(done)), ("to", done.out), ("as", done.format), ("manifest", done.manifest)]


def exported(done: ExportReport) -> str:
    """Number of rows by split."""
    return ", ".join(f"{count:,} {split}" for split, count in done.exported.items() if count)
