"""Output of `watch`: drift, gaps, accuracy, alarms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from ..engine.llm.marks import figure
from .evaluation import STAND_IN
from .tables import Head, change, show_hint, show_table, show_text

if TYPE_CHECKING:
    from ..engine.watch.results import Drift, ExpectedAccuracy, MeasuredAccuracy, Uncovered, WatchReport

WHOSE = {"validation": "validation queries", "test": "test queries", "pool": "rows of the pool"}
BY = {"topic": "topic", "label": "label of the nearest demonstration", "word": "word"}


def show_watch(watched: WatchReport) -> None:
    """What was found, a line for each alarm, and what to do next."""
    show_text(
        f"{counted(watched.queries, 'query')}, {watched.distinct:,} of them distinct, "
        f"{watched.with_answer:,} with an answer; compared by {watched.space}"
    )
    for drift in (watched.drift, watched.pool_drift):
        if drift:
            show_text(drift_line(drift))
    if watched.drift and watched.drift.changes:
        _show_changes(watched.drift)
    _show_uncovered(watched.uncovered)
    for line in (*accuracy_lines(watched.measured), *_expected_lines(watched.expected)):
        show_text(line)
    for note in watched.notes:
        show_hint(f"note: {note}", "dim")
    for alarm in watched.alarms:
        show_text(f"ALARM {alarm.name}: {alarm.what} (limit {alarm.limit:.3g})", "bold")
        show_hint(f"next: {alarm.next}")
    if not watched.alarms:
        show_text("no alarm")


def drift_line(drift: Drift) -> str:
    """How far the queries are from the reference."""
    sets = f"{counted(drift.queries, 'query')} against {drift.compared:,} {WHOSE[drift.reference]}"
    if not drift.beyond_chance:
        return f"drift   {sets}: no change beyond chance ({drift.changed:+.0%}, p {drift.p:.3f})"
    interval = f"95 %: {drift.low:.0%} to {drift.high:.0%}, p {drift.p:.3f}"
    return f"drift   {sets}: about {drift.changed:.0%} changed ({interval})"


def accuracy_lines(measured: tuple[MeasuredAccuracy, ...]) -> Iterator[str]:
    """The accuracies that were measured."""
    for one in measured:
        what = f"answers of {one.llm}" if one.by == "asked" else "recorded answers"
        yield f"measured {one.metric} {figure(one.accuracy, (one.low, one.high), one.queries, one.outcomes)} {what}"
        if one.outcomes and one.outcomes.undecided:
            yield f"WARNING: {one.outcomes.undecided}; {one.outcomes.fix}"


def _show_changes(drift: Drift) -> None:
    rows = [[one.name, one.now, one.before, change(one.difference, one.low, one.high, "")] for one in drift.changes]
    columns: list[str | Head] = [
        Head(BY[drift.by], cut="end"),
        Head("now"),
        Head("before"),
        Head("change", 1, whole=True),
    ]
    show_table(columns, rows, note="shares of the queries; the intervals hold together, with probability 95 %")


def _show_uncovered(uncovered: Uncovered) -> None:
    share = f"({uncovered.share:.1%}, 95 %: {uncovered.low:.1%} to {uncovered.high:.1%})"
    line = f"gaps    {counted(uncovered.queries, 'query', f'{share} is', f'{share} are')} "
    usual = f"farther from every demonstration than {1 - uncovered.usual:.0%} of the {WHOSE[uncovered.reference]} "
    show_text(f"{line}{usual}(similarity below {uncovered.below:.3f}; p {uncovered.p:.3f})")
    if groups := uncovered.groups:
        knows = any(group.knowledge is not None for group in groups)
        rows = [
            [
                group.name, group.queries, *((group.knowledge, group.coverage) if knows else ()),
                " | ".join(example.input for example in group.examples),
            ]
            for group in groups
        ]  # fmt: skip
        figures = (Head("known", 2), Head("covered", 2)) if knows else ()
        show_table([Head("to collect"), Head("queries"), *figures, "examples>"], rows)
    elif uncovered.farthest:
        rows = [[query.similarity, query.input] for query in uncovered.farthest]
        show_table(["similarity", "far from every demonstration>"], rows)


def _expected_lines(expected: ExpectedAccuracy | None) -> Iterator[str]:
    if expected is None:
        return
    yield (
        f"expected {expected.metric} {figure(expected.accuracy, (expected.low, expected.high))} of {expected.method}; "
        f"run {expected.run} has {figure(expected.evaluated)} on {expected.queries:,} {expected.split} "
        f"queries, {expected.llm}, k = {expected.k}"
    )
    if expected.outside:
        yield f"{expected.outside:.1%} of the queries are farther from every demonstration than any evaluated one"
    if expected.stand_in:
        yield STAND_IN
