"""The runs of `curate`, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from .document import Block, Code, Column, Paragraph, Picture, Said, StepBar, Table
from .words import name_of

if TYPE_CHECKING:
    from ...engine.curate.plan import CurationReport, StepDone
    from ...engine.report.results import PoolReport


def blocks(found: PoolReport) -> Iterator[Block]:
    for done in found.curations:
        if done.before is None or done.after is None:
            measured = "it measured no accuracy"
        else:
            measured = f"accuracy on validation {done.before:.3f} before, {done.after:.3f} expected after"
        rest = "" if done.following is None else f" It stopped before the step '{done.following}'."
        yield Paragraph(
            (f"Run {done.run} with ", name_of(done.llm), f": {counted(done.calls, 'call')}; {measured}.{rest}")
        )
        if done.steps:
            yield from _steps_done(done)
        if done.held:
            waits = f"A pruning with an expected gain of {done.held.gain:+.3f} waits for an answer: "
            yield Paragraph((waits, Code("icl-curate curate --accept"), " or ", Code("--reject"), "."))
        if done.version:
            yield Paragraph(("The pool after it is kept as the version ", Code(done.version), "."))


def _steps_done(done: CurationReport) -> Iterator[Block]:
    bars = tuple(
        StepBar(one.what, one.calls, "" if one.gain is None else f"gain {one.gain:+.3f}") for one in done.steps
    )
    about = "; ".join(f"{bar.name}: {counted(bar.calls, 'call')}{f', {bar.gain}' if bar.gain else ''}" for bar in bars)
    yield Picture(f"The steps of run {done.run} with their calls", about, bars)
    rows = [(one.what, f"{one.calls:,}", _step_gain(one), str(one.batch or ""), Said(one.found)) for one in done.steps]
    columns = (
        Column("step"), Column("calls", number=True), Column("gain", number=True), Column("decision", number=True),
        Column("found", wide=True),
    )  # fmt: skip
    yield Table(f"The steps of run {done.run}", columns, tuple(rows))


def _step_gain(one: StepDone) -> str:
    if one.gain is None or one.low is None or one.high is None:
        return "none measured"
    return f"{one.gain:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
