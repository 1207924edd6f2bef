"""Output of `index`, `status`, `demos`, `history` and `export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted, open_of
from ..engine.llm.marks import figure
from ..engine.pool.display import display_line
from ..engine.pool.records import history_of
from .suggested import completed
from .tables import Column, Head, change, show_rows, show_table, show_text
from .terminal import narrate

if TYPE_CHECKING:
    from ..engine.export.results import ExportReport
    from ..engine.index.peek import PeekedRow, PeekReport
    from ..engine.index.results import IndexReport
    from ..engine.report.road import Measured, State, Status
    from ..engine.store.browse import Listed
    from ..engine.store.decisions import Change, DecisionBatch
    from ..engine.store.overview import Overview

NOTHING_LEFT = "nothing left to do: no problem is open, and this pool was measured and exported"
"""Instead of a next step."""

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
    for i, file in enumerate(found.files):
        more = f" and {file.files - 1:,} more" if file.files > 1 else ""
        show_text(("\n" if i else "") + f"{file.path}{more}: {file.understood.format}", style="bold")
        for line in (file.understood.line, *file.understood.notes):
            show_text(line)
        rows = [[one.line, *_peeked(one)] for one in file.rows]
        show_table(["line", "input>", "output", "", "source"], rows)
        if file.bad:
            show_text(f"{file.bad:,} of the first {counted(file.read, 'row')} cannot be used")
        for warning in file.warnings:
            narrate(f"warning: {warning}")


def _peeked(peeked: PeekedRow) -> list[str]:
    row = peeked.row
    if row is None:
        return [peeked.reason, "", "skipped", ""]
    parts = {
        "options": " | ".join(row.options), "also right": " | ".join(row.answers), "passage": row.context,
        "earlier turns": " / ".join(f"{turn.role}: {turn.content}" for turn in history_of(row.history) or ()),
        "split": row.split or "",
    }  # fmt: skip
    more = "; ".join(f"{name}: {display_line(text, SHORT)}" for name, text in parts.items() if text)
    return [display_line(row.input, LONG), display_line(row.output, SHORT), more, peeked.source]


def index_rows(done: IndexReport) -> list[tuple[str, str]]:
    """Labels and values; a dry run has no duplicates and leaks."""
    sources, moved = counted(done.sources, "source"), f", {done.moved:,} moved" if done.moved else ""
    rows = [
        ("pool", f"{counted(done.demonstrations, 'demonstration')} from {sources}, task: {done.task}"),
        ("queries", f"{done.validation:,} validation, {done.test:,} test"),
        ("changed", f"{done.added:,} added, {done.retired:,} retired, {done.revived:,} revived{moved}"),
        ("skipped", counted(len(done.skipped), "record")),
    ]
    if done.duplicates is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.duplicates.items()))
        rows.append(("repeats", kinds or "none"))
    if done.leaking:
        leaking = counted(len(done.leaking), "query", "is", "are")
        rows.append(("leaks", f"{leaking} also in the pool; none is shown to itself"))
    verb = "to encode" if done.dry_run else "encoded"
    return [*rows, (verb, f"{done.encoded:,} new with {done.encoder}" if done.encoder else "nothing")]


NOT_COMPARED = "not looked for: icl-curate index"


def repeats_line(seen: Overview) -> str:
    """Rows that repeat others, by kind, and how many of them are left in the active pool."""
    if not seen.compared:
        return NOT_COMPARED
    kinds = seen.duplicates.items()
    return ", ".join(f"{open_of(seen.duplicates_open[kind], n)}{n:,} {kind}" for kind, n in kinds) or "none"


def leaks_line(seen: Overview) -> str:
    """Queries that also stand in the pool, and how many of them are left in its active rows."""
    if not seen.compared:
        return NOT_COMPARED
    left = open_of(seen.leaks_open, seen.leaks)
    return f"{left}{counted(seen.leaks, 'query')} also in the pool" if seen.leaks else "none"


def suspects_line(seen: Overview) -> str:
    """The suspects found last, how many of them are left, and whether labels were not checked; empty if they were not
    looked for."""
    if seen.suspects is None or seen.suspects_open is None:
        return ""
    line = f"{open_of(seen.suspects_open, seen.suspects)}{counted(seen.suspects, 'row')}"
    return line + (", labels not checked: no vectors" if seen.labels_unchecked else "")


SIGNS: Mapping[State, str] = {"not begun": "○", "open": "▲", "partial": "~", "done": "✓"}
"""Of a step of the road."""


def accuracy_line(measured: Measured | None) -> str:
    """The value of the metric before and after what was decided, with the gain by query, or what is known of it."""
    if measured is None:
        return "not measured"
    now = measured.accuracy
    llm = measured.llm.rpartition("/")[2]  # a path would fill the line
    on = f"{measured.method}, {counted(measured.queries, f'{measured.split} query')}, {llm}"
    later = f"; not measured since: {counted(measured.decided_since, 'decision')}" if measured.decided_since else ""
    if measured.gain is None or measured.before is None:
        early = "" if measured.as_it_came else " after what was decided; not measured before (evaluate --as-indexed)"
        return f"{figure(now.value, (now.low, now.high))}{later or early}  {on}"
    gain = change(measured.gain.value, measured.gain.low, measured.gain.high)
    since = "" if measured.as_it_came else " since the first measurement"
    return f"{measured.before:.3f} → {now.value:.3f}  {gain}{since}{later}  {on}"


def show_status(seen: Status) -> None:
    """What is left to do and what was gained, what a workspace holds, what asking has used, and the next command."""
    check = ": icl-curate check --kind {}" if seen.compared else ""
    rows = [
        ("workspace", seen.workspace),
        (seen.measured.metric if seen.measured else "accuracy", accuracy_line(seen.measured)),
        *((step.name, f"{SIGNS[step.state]} {step.told}") for step in seen.road),
        ("pool", f"{counted(seen.pool, 'demonstration')}, {seen.active:,} active, {seen.pruned:,} pruned"),
        ("sources", f"{seen.sources:,}, {seen.sources_pruned:,} of them pruned"),
        ("queries", f"{seen.validation:,} validation, {seen.test:,} test"),
        ("task", seen.task),
        ("encoder", seen.encoder or "not encoded"),
        ("repeats", repeats_line(seen) + (check.format("duplicate") if seen.duplicates else "")),
        ("leaks", leaks_line(seen) + (check.format("leak") if seen.leaks else "")),
        ("suspects", suspects_line(seen) or "not looked for: icl-curate check"),
        ("skipped rows", f"{seen.skipped:,}" + (": icl-curate skipped" if seen.skipped else "")),
        ("retired rows", f"{seen.retired:,}"),
        ("decisions", f"{seen.decisions:,}"),
        ("versions", names_of([version.name for version in seen.versions], MOST_VERSIONS) or "none"),
        ("evaluations", f"{seen.evaluations:,}"),
    ]
    for llm, used in seen.calls.items():
        text = f"{counted(used.calls, 'call')} kept, {counted(used.tokens_in, 'token')} in, {used.tokens_out:,} out"
        rows.append((llm, text + (f", {used.failures:,} failures" if used.failures else "")))
    told = [(name, completed(line)) for name, line in rows]
    show_table(["", ""], told, note=f"next: {seen.next_step or NOTHING_LEFT}")


def show_page(rows: Sequence[Listed], more: str) -> None:
    """Rows of the pool, and the command that shows ``more`` of them; empty if there are none."""
    columns: list[Column[Listed]] = [
        (Head("row", 4), lambda row: row.row),
        (Head("id", 1, "start"), lambda row: row.id),
        (Head("source", 3, "middle"), lambda row: row.source),
        ("", lambda row: "pruned" if row.pruned else ""),
        ("input>", lambda row: row.input),
        (Head("output", 2), lambda row: row.output),
    ]
    show_rows(rows, columns, note=f"more: {more}" if more else "")


def show_history(decisions: Sequence[DecisionBatch]) -> None:
    """Decisions, latest first."""
    columns: list[Column[DecisionBatch]] = [
        (Head("#", 4), lambda made: made.batch),
        (Head("time", 3), lambda made: f"{made.decided_at:%Y-%m-%d %H:%M}"),
        (Head("user", 5), lambda made: made.who),
        (Head("action"), lambda made: made.action),
        (Head("rows", 2), lambda made: sum(made.by.values()) or ""),
        ("what>", decided),
        (Head("reason", 1), lambda made: made.reason),
        ("", lambda made: "undone" if made.undone else ""),
    ]
    show_rows(decisions, columns)


def decided(made: DecisionBatch | Change, most: int = 3) -> str:
    """What a decision was about: names, or of several rows how many of each source, or to each output."""
    if made.scope == "batch":
        return f"#{made.targets[0]}"
    if len(made.by) > 1 or (len(made.targets) > 1 and made.by):
        return names_of([f"{part} {count:,}" for part, count in made.by.items()], most)
    return " ".join([names_of(made.targets, most), *(part for part in made.by if part.startswith("→"))])


def names_of(targets: Sequence[str], most: int) -> str:
    """The first of them by name, the others as a number."""
    more = f" … and {len(targets) - most:,} more" if len(targets) > most else ""
    return ", ".join(targets[:most]) + more


def show_export(done: ExportReport) -> None:
    """What was written, or would be, on one line."""
    verb = "would write" if done.written is None else "wrote"
    show_text(f"{verb} {done.out} ({exported(done)}); manifest: {done.manifest}")
    if done.counts:
        from .calibration import show_set  # what it needs takes a quarter of the time of `demos`

        show_set(done.counts, done.warnings)


def exported(done: ExportReport) -> str:
    """Number of rows by split."""
    return ", ".join(f"{count:,} {split}" for split, count in done.exported.items() if count)
