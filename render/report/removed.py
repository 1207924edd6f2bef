"""What was taken out or corrected, and why, with examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from .document import Block, Column, Line, Paragraph, Said, Table
from .words import NAME, excerpt, name_of

if TYPE_CHECKING:
    from ...engine.report.results import CorrectedRow, PoolReport, Removal

REASONS = {
    "check: label": "check: the label is probably wrong",
    "check: mismatch": "check: the output belongs to another input",
    "check: conflict": "check: the same input has another output elsewhere",
    "check: duplicate": "check: repeats another row",
    "check: leak": "check: repeats a validation or test query",
    "check: outlier": "check: unlike all other rows",
    "check: class": "check: a label with very few rows",
    "check: empty": "check: says nothing",
    "check: cut": "check: is cut off",
    "check: mojibake": "check: broken characters",
    "check: refusal": "check: the output is a refusal",
    "suspect": "likely to hurt, by all evidence on the row",
    "": "no reason given",
}
"""What the short reasons mean that the tool gives."""


def blocks(found: PoolReport) -> Iterator[Block]:
    if not found.removals:
        yield Paragraph("Nothing was taken out.")
        return
    columns = (
        Column("why", wide=True), Column("rows", number=True), Column("from", wide=True), Column("decision (UTC)"),
    )  # fmt: skip
    rows = [(_why(one), f"{one.rows:,}", Said(_from(one)), _by(one)) for one in found.removals]
    listed = sum(one.rows for one in found.removals)
    note = f"{found.counts.pruned - listed:,} more rows for other reasons." if listed < found.counts.pruned else ""
    yield Table("Rows taken out, by reason", columns, tuple(rows), note)
    for one in found.removals:
        yield _examples(one)


def _by(one: Removal | CorrectedRow) -> Line:
    """The number of a decision, who made it, and when."""
    return "" if one.batch is None else (f"{one.batch} by ", name_of(one.who), f", {one.decided_at[:16]}")


def _why(one: Removal) -> Said:
    return Said(REASONS.get(one.reason, one.reason))


def _from(one: Removal) -> str:
    names = [f"{name[:NAME]} ({rows:,})" for name, rows in list(one.sources.items())[:5]]
    return ", ".join(names) + (f" and {len(one.sources) - 5:,} more" if len(one.sources) > 5 else "")


def _examples(one: Removal) -> Table:
    same = all(example.reason == one.reason for example in one.examples)
    columns = [Column("row"), Column("source"), Column("input", wide=True), Column("output", wide=True)]
    columns += [] if same else [Column("reason", wide=True)]
    rows: list[tuple[Line, ...]] = []
    for each in one.examples:
        row: tuple[Line, ...] = (name_of(each.id), name_of(each.source), excerpt(each.input), excerpt(each.output))
        rows.append(row if same else (*row, Said(each.reason)))
    many = f"{len(one.examples):,} of {counted(one.rows, 'row')}" if one.rows > len(one.examples) else "all rows"
    reason = REASONS.get(one.reason, one.reason)
    return Table(f"Decision {one.batch}, {reason[:100]}: {many}", tuple(columns), tuple(rows))


def corrected(found: PoolReport) -> Iterator[Block]:
    mended = found.corrections
    if not mended.rows:
        yield Paragraph("No output was corrected.")
        return
    yield Paragraph(f"{counted(mended.rows, 'row', 'has', 'have')} another output than in the files.")
    columns = (Column("before", wide=True), Column("after", wide=True), Column("rows", number=True))
    rows = [(excerpt(one.before), excerpt(one.after), f"{one.rows:,}") for one in mended.changes]
    listed = sum(one.rows for one in mended.changes)
    note = f"{mended.rows - listed:,} more rows with other changes." if listed < mended.rows else ""
    yield Table("What was corrected to what", columns, tuple(rows), note)
    heads = (
        Column("row"), Column("source"), Column("input", wide=True), Column("before"), Column("after"),
        Column("reason", wide=True), Column("decision (UTC)"),
    )  # fmt: skip
    lines = [
        (
            name_of(one.id), name_of(one.source), excerpt(one.input), excerpt(one.before), excerpt(one.after),
            Said(one.reason), _by(one),
        )
        for one in mended.examples
    ]  # fmt: skip
    many = f"{len(lines):,} of {mended.rows:,}" if len(lines) < mended.rows else f"all {mended.rows:,}"
    yield Table(f"Corrected rows: {many}", heads, tuple(lines))
