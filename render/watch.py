"""Output of `watch`: drift, gaps, accuracy, alarms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .evaluation import STAND_IN, outcome_lines
from .tables import Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.watch.results import Drift, ExpectedAccuracy, MeasuredAccuracy, Uncovered, WatchReport

WHOSE = {"validation": "validation queries", "test": "test queries", "pool": "rows of the pool"}
BY = {"topic": "topic", "label": "label of the nearest demonstration", "word": "word"}


def show_watch(found: WatchReport) -> None:
    """What was found, a line for each alarm, and what to do next."""
    show_text(
        f"{counted(found.queries, 'query')}, {found.distinct:,} of them distinct, "
        f"{found.with_answer:,} with an answer; compared by {found.space}"
    )
    for drift in (found.drift, found.pool_drift):
        if drift:
            show_text(drift_line(drift))
    if found.drift and found.drift.changes:
        _show_changes(found.drift)
    _show_uncovered(found.uncovered)
    for line in (*accuracy_lines(found.measured), *_expected_lines(found.expected)):
        show_text(line)
    for note in found.notes:
        show_text(f"note: {note}", "dim")
    for alarm in found.alarms:
        show_text(f"ALARM {alarm.name}: {alarm.what} (limit {alarm.limit:.3g})", "bold")
        show_text(f"next: {alarm.next}")
    if not found.alarms:
        show_text("no alarm")


def drift_line(found: Drift) -> str:
    """How far the queries are from the reference."""
    sets = f"{counted(found.queries, 'query')} against {found.compared:,} {WHOSE[found.reference]}"
    if found.low <= 0:
        return f"drift   {sets}: no change beyond chance ({found.changed:+.0%}, p {found.p:.3f})"
    interval = f"95 %: {found.low:.0%} to {found.high:.0%}, p {found.p:.3f}"
    return f"drift   {sets}: at least {found.changed:.0%} changed ({interval})"


def accuracy_lines(measured: tuple[MeasuredAccuracy, ...]) -> Iterator[str]:
    """The accuracies that were measured."""
    for each in measured:
        what = f"answers of {each.llm}" if each.by == "asked" else "recorded answers"
        interval = f"95 %: {each.low:.3f} to {each.high:.3f}"
        yield f"measured accuracy {each.accuracy:.3f} ({interval}), {each.queries:,} {what}"
        yield from outcome_lines({"asked": each.outcomes})


def _show_changes(found: Drift) -> None:
    rows = [
        [one.name, one.now, one.before, f"{one.difference:+.3f} ({one.low:+.3f} to {one.high:+.3f})"]
        for one in found.changes
    ]
    columns: list[str | Head] = [Head(BY[found.by], cut="end"), Head("now"), Head("before"), Head("change", 1)]
    show_table(columns, rows, note="shares of the queries; the intervals hold together, with probability 95 %")


def _show_uncovered(found: Uncovered) -> None:
    share = f"({found.share:.1%}, 95 %: {found.low:.1%} to {found.high:.1%})"
    line = f"gaps    {counted(found.queries, 'query', f'{share} is', f'{share} are')} "
    usual = f"farther from every demonstration than {1 - found.usual:.0%} of the {WHOSE[found.reference]} "
    show_text(f"{line}{usual}(similarity below {found.below:.3f}; p {found.p:.3f})")
    rows = [
        [group.name, group.queries, group.knowledge, group.coverage, " | ".join(one.input for one in group.examples)]
        for group in found.groups
    ]
    if rows:
        known = [Head("known", 2), Head("covered", 2)] if any(row[2] is not None for row in rows) else []
        kept = rows if known else [[*row[:2], row[4]] for row in rows]
        show_table([Head("to collect"), Head("queries"), *known, "examples>"], kept)
    elif found.farthest:
        show_table(
            ["similarity", "far from every demonstration>"], [[one.similarity, one.input] for one in found.farthest]
        )


def _expected_lines(found: ExpectedAccuracy | None) -> Iterator[str]:
    if found is None:
        return
    yield (
        f"expected accuracy {found.accuracy:.3f} (95 %: {found.low:.3f} to {found.high:.3f}) of {found.method}; run "
        f"{found.run} has {found.evaluated:.3f} on {found.queries:,} {found.split} queries, {found.llm}, k = {found.k}"
    )
    if found.outside:
        yield f"{found.outside:.1%} of the queries are farther from every demonstration than any evaluated one"
    if found.stand_in:
        yield STAND_IN
