"""The pool as read and as it is now: counts, sources, labels and topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from .document import BarPair, Block, Column, Line, Paragraph, Picture, Said, Table
from .words import DRAWN, MOST, NAME, excerpt, left_out, name_of

if TYPE_CHECKING:
    from ...engine.report.results import PoolReport


def counts(found: PoolReport) -> Table:
    c = found.counts
    rows: list[tuple[Line, ...]] = [
        ("demonstrations", f"{c.pool:,}", f"{c.active:,}"),
        ("sources", f"{c.sources:,}", f"{c.active_sources:,}"),
    ]
    if found.labels:
        before = sum(1 for one in found.labels if one.before)
        rows.append(("labels", f"{before:,}", f"{sum(1 for one in found.labels if one.after):,}"))
    note = [
        f"{c.validation:,} validation and {c.test:,} test queries",
        f"{counted(c.repeats, 'row', 'of the pool repeats', 'of the pool repeat')} another one",
        f"{counted(c.leaks, 'query', 'is', 'are')} also in the pool",
    ]
    note += [f"{counted(c.retired, 'row', 'is', 'are')} no longer in the files"] if c.retired else []
    note += [f"{c.skipped:,} records could not be read"] if c.skipped else []
    columns = (Column("of the pool"), Column("as read", number=True), Column("active now", number=True))
    return Table("The pool as it was read and as it is now", columns, tuple(rows), "; ".join(note) + ".")


def sources(found: PoolReport) -> Iterator[Block]:
    every = found.sources
    if not every:
        yield Paragraph("The pool is empty.")
        return
    learnt = any(one.weight is not None for one in every)
    bars = tuple(BarPair(one.source[:NAME], one.before, one.after) for one in every[:DRAWN])
    about = "; ".join(f"{bar.name}: {bar.before:,} before, {bar.after:,} now" for bar in bars)
    yield Picture("Rows of each source; outlined: before, solid: now", about, bars)
    columns = [Column("source"), Column("rows before", number=True), Column("rows now", number=True)]
    columns += [Column("weight", number=True), Column("reliability", number=True)] if learnt else []
    rows: list[tuple[Line, ...]] = []
    for one in every[:MOST]:
        row: tuple[Line, ...] = (name_of(one.source), f"{one.before:,}", f"{one.after:,}")
        rows.append((*row, _score(one.weight), _score(one.reliability)) if learnt else row)
    notes = (
        ["Weight: at which the vote of single answers is right most often. Reliability: its share of right answers."]
        if learnt
        else ["Weights and reliability were not learnt: icl-curate train sources."]
    )
    yield Table(
        "Sources before and after", tuple(columns), tuple(rows), " ".join([*notes, *left_out(len(every), MOST)])
    )


def _score(value: float | None) -> str:
    return "not learnt" if value is None else f"{value:.2f}"


def labels(found: PoolReport) -> Table:
    every = found.labels
    columns = (Column("label"), Column("rows before", number=True), Column("rows now", number=True))
    rows = [(name_of(one.label), f"{one.before:,}", f"{one.after:,}") for one in every[:MOST]]
    gone = sum(1 for one in every if not one.after)
    notes = [f"{counted(gone, 'label', 'has', 'have')} no active row left."] if gone else []
    return Table("Labels before and after", columns, tuple(rows), " ".join([*notes, *left_out(len(every), MOST)]))


def topics(found: PoolReport) -> Iterator[Block]:
    part = found.topics
    if part is None:
        yield Paragraph(Said(found.notes[0]) if found.notes else "No topics were trained: icl-curate train topics.")
        return
    yield Paragraph((f"{counted(part.total, 'topic')}, learnt in run {part.run} with ", name_of(part.llm), "."))
    columns = (
        Column("topic"), Column("active rows", number=True), Column("LLM knows", number=True),
        Column("validation queries", number=True),
    )  # fmt: skip
    rows = [(name_of(one.topic), f"{one.active:,}", f"{one.knowledge:.2f}", f"{one.queries:,}") for one in part.topics]
    note = "LLM knows: how often it is right on the topic without demonstrations."
    yield Table("The topics with most active rows", columns, tuple(rows), note)
    if not part.gaps:
        yield Paragraph("No gap was found: nothing that validation queries need is both unknown and uncovered.")
        return
    heads = (
        Column("topic"), Column("validation queries", number=True), Column("LLM knows", number=True),
        Column("covered", number=True), Column("a query that needs it", wide=True),
    )  # fmt: skip
    lines = [
        (name_of(one.topic), f"{one.queries:,}", f"{one.knowledge:.2f}", f"{one.coverage:.2f}", excerpt(one.example))
        for one in part.gaps
    ]
    yield Table("Gaps: worth collecting demonstrations for, the worst first", heads, tuple(lines))
