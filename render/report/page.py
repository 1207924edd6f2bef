"""The report as a document: sentences, tables and pictures, the same for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from ...engine.llm.spec import is_stand_in
from . import again
from .document import (
    BarPair,
    Block,
    Code,
    Column,
    Dot,
    Line,
    Paragraph,
    Picture,
    Points,
    ReportPage,
    Said,
    Section,
    StepBar,
    Table,
)
from .words import (
    DRAWN,
    MOST,
    NAME,
    NEXT,
    excerpt,
    gain_of,
    left_out,
    measured_with,
    method_of,
    name_of,
    not_measured,
    value_of,
)

if TYPE_CHECKING:
    from ...engine.curate.plan import CurationReport, StepDone
    from ...engine.report.results import Compared, Confirmed, CorrectedRow, Evaluated, LLMCost, PoolReport, Removal


def summary(found: PoolReport) -> Iterator[Block]:
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


def removed(found: PoolReport) -> Iterator[Block]:
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


def pool_counts(found: PoolReport) -> Table:
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


def curations(found: PoolReport) -> Iterator[Block]:
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


def costs(costs: Sequence[LLMCost], encoder: str | None) -> Iterator[Block]:
    if not costs:
        yield Paragraph("No LLM was asked.")
        return
    columns = (
        Column("LLM"), Column("calls", number=True), Column("prompt tokens", number=True),
        Column("answer tokens", number=True), Column("failed", number=True), Column("US$", number=True),
        Column("from (UTC)"), Column("to (UTC)"),
    )  # fmt: skip
    rows = [
        (
            name_of(one.llm), f"{one.calls:,}", f"{one.tokens_in:,}", f"{one.tokens_out:,}", f"{one.failures:,}",
            _dollars(one), one.first_at, one.last_at,
        )
        for one in costs
    ]  # fmt: skip
    notes = ["Every answer the workspace keeps, each counted once: repeats come from its cache and cost nothing."]
    notes += [
        f"{one.llm[:NAME]}: US$ {one.price_in:g} and {one.price_out:g} per million prompt and answer tokens."
        for one in costs
        if one.dollars is not None and not one.local
    ]
    notes += ["Vectors from a server are not counted."] if (encoder or "").startswith("openai:") else []
    yield Table("Answers by LLM", columns, tuple(rows), " ".join(notes))


def paid(costs: Sequence[LLMCost]) -> str:
    calls, tokens = sum(one.calls for one in costs), sum(one.tokens_in + one.tokens_out for one in costs)
    text = f"It took {counted(calls, 'call')} and {counted(tokens, 'token')}"
    charged = [one for one in costs if not one.local]
    if not charged:
        return f"{text}, on this machine."
    known = [one.dollars for one in charged if one.dollars is not None]
    unknown = len(charged) - len(known)
    paid = [f"US$ {sum(known):,.2f}"] if known else []
    paid += [f"the price of {unknown:,} LLM{'s' if unknown > 1 else ''} is not known"] if unknown else []
    return f"{text}: {'; '.join(paid)}."


def _dollars(one: LLMCost) -> str:
    if one.local:
        return "0, local"
    return "not known" if one.dollars is None else f"{one.dollars:,.2f}"


OUTCOMES = {
    "pruned": "pruned",
    "undone": "pruned, then undone",
    "not pruned": "measured only",
    "not beyond noise": "no: within noise",
}


def accuracy(found: PoolReport) -> Iterator[Block]:
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


def document(found: PoolReport) -> ReportPage:
    """The report in sections; a section without anything says so."""
    counts = found.counts
    return ReportPage(
        found.title,
        f"The pool of {found.workspace} as of {found.made_at} UTC, by icl-curate "
        f"{found.reproduction.versions.get('icl-curate', '')}".strip(),
        (
            Section("summary", "In short", tuple(summary(found))),
            Section("pool", "The pool", (pool_counts(found),)),
            Section("accuracy", "Accuracy", tuple(accuracy(found))),
            *([Section("curate", "What curate did", tuple(curations(found)))] if found.curations else ()),
            Section("removed", "What was taken out, and why", tuple(removed(found))),
            Section("corrected", "Corrected outputs", tuple(corrected(found))),
            Section("sources", "Sources", tuple(sources(found))),
            *([Section("labels", "Labels", (labels(found),))] if found.labels and counts.task == "labels" else ()),
            Section("topics", "Topics and gaps", tuple(topics(found))),
            Section("cost", "What it cost", tuple(costs(found.costs, counts.encoder))),
            Section("again", "How to do it again", tuple(again.again(found.reproduction))),
        ),
    )
