"""The report in short: what was done to the pool, and what that gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from ...engine.llm.spec import is_stand_in
from .cost import paid
from .document import Block, Code, Line, Paragraph, Points, Said
from .words import NAME, NEXT, gain_of, measured_with, not_measured, value_of

if TYPE_CHECKING:
    from ...engine.report.results import PoolReport


def blocks(found: PoolReport) -> Iterator[Block]:
    if names := [name for name in found.measured_by if is_stand_in(name)]:
        yield Paragraph(_stand_in(names), warns=True)
    counts = found.counts
    lines: list[Line] = [
        f"{counts.active:,} of {counted(counts.pool, 'demonstration')} are active, from {counts.active_sources:,} of "
        f"{counted(counts.sources, 'source')}; {counts.pruned:,} were taken out, "
        f"{counted(counts.corrected, 'output', 'was', 'were')} corrected."
    ]
    lines += _measured_in_short(found)
    if found.curations:
        lines.append(("Select with the method ", Code(found.curations[-1].served), ", which curate chose."))
    if found.costs:
        lines.append(paid(found.costs))
    lines += [Said(note) for note in found.notes]
    yield Points(tuple(lines))


def _stand_in(names: Sequence[str]) -> str:
    named = ", ".join(name[:NAME] for name in names)
    return (
        f"The figures of '{named}' come from a built-in stand-in that is not an LLM. They show how the methods work "
        "and say nothing about any LLM."
    )


def _measured_in_short(found: PoolReport) -> Iterator[Line]:
    confirmed = [one for one in found.confirmed if one.outcome == "pruned"]
    for one in confirmed[-3:]:
        yield (
            f"On {one.queries:,} of {one.available:,} validation queries ({measured_with(one)}): "
            f"{value_of(one.before)} before, {one.after.value:.3f} expected after a confirmed pruning, a gain of "
            f"{gain_of(one.gain)}."
        )
    if found.confirmed and not confirmed:
        last = found.confirmed[-1]
        yield (
            f"On {last.queries:,} of {last.available:,} validation queries ({measured_with(last)}): "
            f"{value_of(last.before)} with everything kept; the best pruning that was tried would gain "
            f"{gain_of(last.gain)} and was not carried out."
            if last.outcome != "undone"
            else f"A pruning that was confirmed on {last.queries:,} validation queries was undone."
        )
    for pair in [one for one in found.compared if one.method != "zero"][-3:]:
        yield (
            f"On {pair.queries:,} {pair.split} queries ({measured_with(pair)}): {pair.before:.3f} with the pool as it "
            f"was read, {pair.after:.3f} as it is now, a difference of {gain_of(pair.difference)}."
        )
    if not found.confirmed and not found.evaluated:
        yield ("Accuracy was never measured: nothing here says whether the pool became better. ", NEXT)
    elif not found.compared:
        yield from not_measured(found)
