"""What was measured, before and after, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .document import Block, Column, Dot, Paragraph, Picture, Points, Said, Table
from .words import DRAWN, MOST, NEXT, gain_of, left_out, method_of, name_of, not_measured, value_of

if TYPE_CHECKING:
    from ...engine.report.results import Compared, Confirmed, Evaluated, PoolReport

OUTCOMES = {
    "pruned": "pruned",
    "undone": "pruned, then undone",
    "not pruned": "measured only",
    "not beyond noise": "no: within noise",
}


def blocks(found: PoolReport) -> Iterator[Block]:
    if not found.confirmed and not found.evaluated:
        yield Paragraph(("Nothing was ever measured. ", NEXT, " compares methods on the pool as it is now."))
        return
    yield Paragraph(
        "All intervals are 95 %. Validation queries are those that decisions are made on; test queries are kept "
        "apart from decisions."
    )
    if dots := tuple(_dots(found)):
        about = "; ".join(f"{dot.name}: {dot.value:.3f}, {dot.low:.3f} to {dot.high:.3f}" for dot in dots)
        title = "Accuracy with 95 % intervals; hollow: before, filled: now or expected after"
        yield Picture(title, about, dots)
    if found.compared:
        yield _before_and_after(found.compared)
    if found.confirmed:
        yield _confirmed(found.confirmed)
    if found.evaluated:
        yield _evaluated(found.evaluated)
    if not found.compared and (lacking := tuple(not_measured(found))):
        yield Points(lacking)


def _dots(found: PoolReport) -> Iterator[Dot]:
    for one in [one for one in found.confirmed if one.outcome == "pruned"][-4:]:
        what = f"run {one.run}, validation, {one.method}"
        yield Dot(f"{what}: before", one.before.value, one.before.low, one.before.high, True)
        yield Dot(f"{what}: expected after", one.after.value, one.after.low, one.after.high, False)
    latest = {(one.split, one.llm, one.method, one.k, one.as_now): one for one in found.evaluated}
    shown = [(one, one.accuracy) for one in latest.values() if (one.as_now or one.as_read) and one.accuracy]
    for each, value in sorted(shown, key=lambda it: (it[0].split, it[0].llm, it[0].method, it[0].as_now))[-DRAWN:]:
        when = "now" if each.as_now else "as read"
        yield Dot(
            f"run {each.run}, {each.split}, {each.method}: {when}", value.value, value.low, value.high, not each.as_now
        )


def _before_and_after(pairs: Sequence[Compared]) -> Table:
    columns = (
        Column("queries"), Column("LLM"), Column("method"), Column("n", number=True),
        Column("as read", number=True), Column("now", number=True), Column("difference", number=True),
        Column("p", number=True), Column("runs", number=True),
    )  # fmt: skip
    rows = [
        (
            one.split, name_of(one.llm), method_of(one), f"{one.queries:,}", f"{one.before:.3f}",
            f"{one.after:.3f}", gain_of(one.difference), "< .001" if one.p < 0.001 else f"{one.p:.3f}",
            f"{one.before_run}, {one.after_run}",
        )
        for one in pairs
    ]  # fmt: skip
    note = "Differences are paired by query (bootstrap); p is of a paired test of this row alone."
    return Table("The same method on the same queries, before and after", columns, tuple(rows), note)


def _confirmed(every: Sequence[Confirmed]) -> Table:
    columns = (
        Column("run"), Column("LLM"), Column("method"), Column("n", number=True),
        Column("before", number=True), Column("after, expected", number=True), Column("gain", number=True),
        Column("change"), Column("rows", number=True), Column("decided"),
    )  # fmt: skip
    rows = [
        (
            str(one.run), name_of(one.llm), method_of(one), f"{one.queries:,} of {one.available:,}",
            value_of(one.before), value_of(one.after), gain_of(one.gain), Said(one.proposed),
            f"{one.pruned_rows + one.relabelled:,}", OUTCOMES[one.outcome],
        )
        for one in every[-MOST:]
    ]  # fmt: skip
    note = (
        "Before: everything kept (Wilson). The gain is measured on queries that had no part in the choice; the "
        "interval of what is expected after is that of the gain."
    )
    return Table("Prunings and corrections tried with served prompts, on validation", columns, tuple(rows), note)


def _evaluated(every: Sequence[Evaluated]) -> Table:
    columns = (
        Column("run"), Column("queries"), Column("LLM"), Column("method"),
        Column("n", number=True), Column("seeds", number=True), Column("accuracy", number=True), Column("metric"),
        Column("pool"), Column("active rows", number=True),
    )  # fmt: skip
    rows = [
        (
            str(one.run), one.split, name_of(one.llm), method_of(one) + _marks(one),
            f"{one.queries:,}", str(one.seeds), value_of(one.accuracy) if one.accuracy else "–", one.metric,
            _pool_then(one), f"{one.active:,}",
        )
        for one in every[-MOST:]
    ]  # fmt: skip
    notes = ["Intervals by bootstrap over queries."]
    notes += ["* trained on these queries: its figure is too good."] if any(one.trained_on for one in every) else []
    notes += ["† untrained start kept: not what it learnt."] if any(one.untrained for one in every) else []
    notes += [f"Run {one.run}, {one.method}: {one.outcomes}." for one in every[-MOST:] if one.outcomes]
    notes += left_out(len(every), MOST)
    return Table("Methods evaluated", columns, tuple(rows), " ".join(notes))


def _marks(one: Evaluated) -> str:
    return (" *" if one.trained_on else "") + (" †" if one.untrained else "")


def _pool_then(one: Evaluated) -> str:
    if one.as_read and one.as_now:
        return "as read, unchanged since"
    return "as read" if one.as_read else "as it is now" if one.as_now else "in between"
