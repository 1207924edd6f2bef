"""The report as a document: sentences, tables and pictures, the same for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engine.base.errors import counted
from ...engine.llm.marks import figure, metric_name
from ...engine.llm.spec import is_stand_in
from ..curate import gained
from .again import again
from .document import (
    BarPair,
    Block,
    Code,
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
    table,
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
    from ...engine.curate.plan import CurationReport
    from ...engine.report.results import Compared, Confirmed, CorrectedRow, Evaluated, LLMCost, PoolReport, Removal
    from ...engine.select.lock import Lock


def document(report: PoolReport) -> ReportPage:
    """The report in sections; a section without anything says so."""
    counts = report.counts
    with_labels = report.labels and counts.task == "labels"
    return ReportPage(
        report.title,
        f"The pool of {report.workspace} as of {report.made_at} UTC, by icl-curate "
        f"{report.reproduction.versions.get('icl-curate', '')}".strip(),
        (
            Section("summary", "In short", tuple(summary(report))),
            Section("pool", "The pool", (pool_counts(report),)),
            Section("accuracy", "Accuracy", tuple(accuracy(report))),
            *([Section("curate", "What curate did", tuple(curations(report)))] if report.curations else ()),
            Section("removed", "What was taken out, and why", tuple(removed(report))),
            Section("corrected", "Corrected outputs", tuple(corrected(report))),
            Section("sources", "Sources", tuple(sources(report))),
            *([Section("labels", "Labels", (labels(report),))] if with_labels else ()),
            Section("topics", "Topics and gaps", tuple(topics(report))),
            Section("cost", "What it cost", (cost(report.costs, counts.encoder),)),
            Section("again", "How to do it again", (*locked(report.lock), *again(report.reproduction))),
        ),
    )


def summary(report: PoolReport) -> Iterator[Block]:
    """What was done to the pool, and what that gained."""
    if names := ", ".join(name[:NAME] for name in report.measured_by if is_stand_in(name)):
        yield Paragraph(
            f"The figures of '{names}' come from a built-in stand-in that is not an LLM. They show how the methods "
            "work and say nothing about any LLM.",
            warns=True,
        )
    counts = report.counts
    lines: list[Line] = [
        f"{counts.active:,} of {counted(counts.pool, 'demonstration')} are active, from {counts.active_sources:,} of "
        f"{counted(counts.sources, 'source')}; {counts.pruned:,} were taken out, "
        f"{counted(counts.corrected, 'output', 'was', 'were')} corrected."
    ]
    lines += _measured_in_short(report)
    if report.curations:
        lines.append(("Select with the method ", Code(report.curations[-1].served), ", which curate chose."))
    if report.costs:
        lines.append(_paid(report.costs))
    yield Points((*lines, *map(Said, report.notes)))


def _measured_in_short(report: PoolReport) -> Iterator[Line]:
    carried_out = [race for race in report.confirmed if race.outcome == "pruned"]
    for race in carried_out[-3:]:
        yield (
            f"On {race.queries:,} of {race.available:,} validation queries ({measured_with(race)}): "
            f"{metric_name(race.graded_by)} {value_of(race.before)} before, {figure(race.after.value)} expected after "
            f"a confirmed pruning, a gain of {gain_of(race.gain)}."
        )
    if report.confirmed and not carried_out:
        last = report.confirmed[-1]
        yield (
            f"On {last.queries:,} of {last.available:,} validation queries ({measured_with(last)}): "
            f"{metric_name(last.graded_by)} {value_of(last.before)} with everything kept; the best pruning that was "
            f"tried would gain {gain_of(last.gain)} and was not carried out."
            if last.outcome != "undone"
            else f"A pruning that was confirmed on {last.queries:,} validation queries was undone."
        )
    for pair in [pair for pair in report.compared if pair.method != "zero"][-3:]:
        yield (
            f"On {pair.queries:,} {pair.split} queries ({measured_with(pair)}): {pair.metric} {figure(pair.before)} "
            f"with the pool as it was read, {figure(pair.after)} as it is now, a difference of "
            f"{gain_of(pair.difference)}."
        )
    if not report.confirmed and not report.evaluated:
        yield ("Accuracy was never measured: nothing here says whether the pool became better. ", NEXT)
    elif not report.compared:
        yield from not_measured(report)


def _paid(costs: Sequence[LLMCost]) -> str:
    calls, tokens = sum(llm.calls for llm in costs), sum(llm.tokens_in + llm.tokens_out for llm in costs)
    text = f"It took {counted(calls, 'call')} and {counted(tokens, 'token')}"
    charged = [llm.dollars for llm in costs if not llm.local]
    if not charged:
        return f"{text}, on this machine."
    priced = [dollars for dollars in charged if dollars is not None]
    parts = [f"US$ {sum(priced):,.2f}"] if priced else []
    if unknown := len(charged) - len(priced):
        parts.append(f"the price of {unknown:,} LLM{'s' if unknown > 1 else ''} is not known")
    return f"{text}: {'; '.join(parts)}."


def pool_counts(report: PoolReport) -> Table:
    """The pool as read and as it is now."""
    c = report.counts
    rows = [
        ("demonstrations", f"{c.pool:,}", f"{c.active:,}"),
        ("sources", f"{c.sources:,}", f"{c.active_sources:,}"),
    ]
    if report.labels:
        before = sum(bool(label.before) for label in report.labels)
        rows.append(("labels", f"{before:,}", f"{sum(bool(label.after) for label in report.labels):,}"))
    note = [
        f"{c.validation:,} validation and {c.test:,} test queries",
        f"{counted(c.repeats, 'row', 'of the pool repeats', 'of the pool repeat')} another one",
        f"{counted(c.leaks, 'query', 'is', 'are')} also in the pool",
    ]
    note += [f"{counted(c.retired, 'row', 'is', 'are')} no longer in the files"] if c.retired else []
    note += [f"{c.skipped:,} records could not be read"] if c.skipped else []
    heads = "of the pool", "#as read", "#active now"
    return table("The pool as it was read and as it is now", heads, rows, "; ".join(note) + ".")


OUTCOMES = {
    "pruned": "pruned",
    "undone": "pruned, then undone",
    "not pruned": "measured only",
    "not beyond noise": "no: within noise",
}


def accuracy(report: PoolReport) -> Iterator[Block]:
    """What was measured, before and after, with intervals."""
    if not report.confirmed and not report.evaluated:
        yield Paragraph(("Nothing was ever measured. ", NEXT, " compares methods on the pool as it is now."))
        return
    yield Paragraph(
        "All intervals are 95 %. Validation queries are those that decisions are made on; test queries are kept "
        "apart from decisions."
    )
    runs: dict[str, list[str]] = {}
    for run, by in report.graded_by.items():
        runs.setdefault(by.line, []).append(str(run))
    if graded := [f"Run {', '.join(numbers)}: metric {line}." for line, numbers in runs.items() if line]:
        yield Points(tuple(map(Said, graded)))
    if dots := tuple(_dots(report)):
        about = "; ".join(f"{dot.name}: {figure(dot.value, (dot.low, dot.high))}" for dot in dots)
        title = "Accuracy with 95 % intervals; hollow: before, filled: now or expected after"
        yield Picture(title, about, dots)
    if report.compared:
        yield _before_and_after(report.compared)
    if report.confirmed:
        yield _confirmed(report.confirmed)
    if report.evaluated:
        yield _evaluated(report.evaluated)
    if not report.compared and (lacking := tuple(not_measured(report))):
        yield Points(lacking)


def _dots(report: PoolReport) -> Iterator[Dot]:
    for race in [race for race in report.confirmed if race.outcome == "pruned"][-4:]:
        what, (was, now) = f"{race.method}, {race.queries:,} validation", (race.before, race.after)
        yield Dot(f"run {race.run}, before: {what}", was.value, was.low, was.high, True)
        yield Dot(f"run {race.run}, expected after: {what}", now.value, now.low, now.high, False)
    latest = {(row.split, row.llm, row.method, row.k, row.as_now): row for row in report.evaluated}
    shown = [(row, row.accuracy) for row in latest.values() if (row.as_now or row.as_read) and row.accuracy]
    for row, it in sorted(shown, key=lambda it: (it[0].split, it[0].llm, it[0].method, it[0].as_now))[-DRAWN:]:
        name = f"run {row.run}, {'now' if row.as_now else 'as read'}: {row.method}, {row.queries:,} {row.split}"
        yield Dot(name, it.value, it.low, it.high, not row.as_now)


def _before_and_after(pairs: Sequence[Compared]) -> Table:
    heads = "queries", "LLM", "method", "#n", "metric", "#as read", "#now", "#difference", "#p", "#runs"
    rows = [
        (
            pair.split, name_of(pair.llm), method_of(pair), f"{pair.queries:,}", pair.metric,
            figure(pair.before), figure(pair.after), gain_of(pair.difference),
            "< .001" if pair.p < 0.001 else f"{pair.p:.3f}", f"{pair.before_run}, {pair.after_run}",
        )
        for pair in pairs
    ]  # fmt: skip
    note = "Differences are paired by query (bootstrap); p is of a paired test of this row alone."
    return table("The same method on the same queries, before and after", heads, rows, note)


def _confirmed(every: Sequence[Confirmed]) -> Table:
    heads = "run", "LLM", "method", "#n", "#before", "#after, expected", "#gain", "change", "#rows", "decided"
    rows = [
        (
            str(race.run), name_of(race.llm), method_of(race), f"{race.queries:,} of {race.available:,}",
            value_of(race.before), value_of(race.after), gain_of(race.gain), Said(race.proposed),
            f"{race.pruned_rows + race.relabelled:,}", OUTCOMES[race.outcome],
        )
        for race in every[-MOST:]
    ]  # fmt: skip
    note = (
        "Before: everything kept (Wilson). The gain is measured on queries that had no part in the choice; the "
        "interval of what is expected after is that of the gain."
    )
    return table("Prunings and corrections tried with served prompts, on validation", heads, rows, note)


def _evaluated(every: Sequence[Evaluated]) -> Table:
    heads = "run", "queries", "LLM", "method", "#n", "#seeds", "#accuracy", "metric", "pool", "#active rows"
    shown = every[-MOST:]
    rows = [
        (
            str(row.run), row.split, name_of(row.llm),
            method_of(row) + (" *" if row.trained_on else "") + (" †" if row.untrained else ""),
            f"{row.queries:,}", str(row.seeds), value_of(row.accuracy) if row.accuracy else "–", row.metric,
            _pool_then(row), f"{row.active:,}",
        )
        for row in shown
    ]  # fmt: skip
    notes = ["Intervals by bootstrap over queries."]
    notes += ["* trained on these queries: its figure is too good."] if any(row.trained_on for row in every) else []
    notes += ["† untrained start kept: not what it learnt."] if any(row.untrained for row in every) else []
    notes += [f"Run {row.run}, {row.method}: {row.outcomes}." for row in shown if row.outcomes]
    notes += [f"Run {row.run}, {row.method}: {row.hint}." for row in shown if row.hint]
    return table("Methods evaluated", heads, rows, *notes, *left_out(len(every), MOST))


def _pool_then(row: Evaluated) -> str:
    if row.as_read and row.as_now:
        return "as read, unchanged since"
    return "as read" if row.as_read else "as it is now" if row.as_now else "in between"


def curations(report: PoolReport) -> Iterator[Block]:
    """The runs of `curate`, step by step."""
    for done in report.curations:
        if done.before is None:
            measured = "it measured no accuracy"
        else:
            after = "not known after" if done.after is None else f"{figure(done.after)} expected after"
            rise = f"{figure(done.before)} before, {after}"
            measured = f"{metric_name(done.graded_by)} on validation {rise}"
        rest = "" if done.following is None else f" It stopped before the step '{done.following}'."
        yield Paragraph(
            (f"Run {done.run} with ", name_of(done.llm), f": {counted(done.calls, 'call')}; {measured}.{rest}")
        )
        if done.steps:
            yield from _steps_done(done)
        if done.held:
            waits = f"A pruning with an expected gain of {done.held.gain:+.3f} waits for an answer: "
            yield Paragraph(
                (waits, Code("icl-curate curate --accept"), " or ", Code("icl-curate curate --reject"), ".")
            )
        if done.version:
            yield Paragraph(("The pool after it is kept as the version ", Code(done.version), "."))


def _steps_done(done: CurationReport) -> Iterator[Block]:
    bars = tuple(
        StepBar(step.what, step.calls, "" if step.gain is None else f"gain {step.gain:+.3f}") for step in done.steps
    )
    about = "; ".join(f"{bar.name}: {counted(bar.calls, 'call')}{f', {bar.gain}' if bar.gain else ''}" for bar in bars)
    yield Picture(f"The steps of run {done.run} with their calls", about, bars)
    rows = [
        (step.what, f"{step.calls:,}", gained(step) or "none measured", str(step.batch or ""), Said(step.found))
        for step in done.steps
    ]
    yield table(f"The steps of run {done.run}", ("step", "#calls", "#gain", "#decision", "found>"), rows)


REASONS = {
    "check: label": "check: the label is probably wrong",
    "check: mismatch": "check: the output belongs to another input",
    "check: part": "check: a part of the output is improbable",
    "check: schema": "check: the output's fields, types or values are not the others'",
    "check: entity": "check: an entity is not in the input, at another place or of another type",
    "check: call": "check: a call does not fit the tools",
    "check: member": "check: a label that hardly another set has",
    "check: rationale": "check: the rationale contradicts itself",
    "check: style": "check: the output is written unlike the others",
    "check: neighbour": "check: rows that ask nearly the same answer otherwise",
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


def locked(lock: Lock | None) -> Iterator[Block]:
    """What the lock holds on to, and by what it was judged."""
    if lock is None:
        return
    told = (
        f"Locked at {lock.locked_at}: {counted(lock.rows, 'row')}, {lock.settings['method']}, k = {lock.settings['k']}"
    )
    if lock.judged:
        rise = f"{figure(lock.judged.before)} before, {figure(lock.judged.after)} expected after"
        told += f"; {metric_name(lock.graded_by)} {rise} in run {lock.judged.run}"
    line = lock.graded_by.line if lock.graded_by else ""
    yield Paragraph(Said(f"{told}; metric {line}." if line else f"{told}."))


def removed(report: PoolReport) -> Iterator[Block]:
    """What was taken out, and why, with examples."""
    if not report.removals:
        yield Paragraph("Nothing was taken out.")
        return
    rows: list[tuple[Line, ...]] = []
    for removal in report.removals:
        names = [f"{name[:NAME]} ({count:,})" for name, count in list(removal.sources.items())[:5]]
        more = f" and {len(removal.sources) - 5:,} more" if len(removal.sources) > 5 else ""
        rows.append((Said(_reason(removal)), f"{removal.rows:,}", Said(", ".join(names) + more), _by(removal)))
    left = report.counts.pruned - sum(removal.rows for removal in report.removals)
    note = f"{left:,} more rows for other reasons." if left > 0 else ""
    yield table("Rows taken out, by reason", ("why>", "#rows", "from>", "decision (UTC)"), rows, note)
    yield from map(_examples, report.removals)


def _reason(removal: Removal) -> str:
    return REASONS.get(removal.reason, removal.reason)


def _by(decided: Removal | CorrectedRow) -> Line:
    """The number of a decision, who made it, and when."""
    if decided.batch is None:
        return ""
    return f"{decided.batch} by ", name_of(decided.who), f", {decided.decided_at[:16]}"


def _examples(removal: Removal) -> Table:
    same = all(row.reason == removal.reason for row in removal.examples)
    rows = [
        (
            name_of(row.id), name_of(row.source), excerpt(row.input), excerpt(row.output),
            *(() if same else (Said(row.reason),)),
        )
        for row in removal.examples
    ]  # fmt: skip
    many = f"{len(rows):,} of {counted(removal.rows, 'row')}" if removal.rows > len(rows) else "all rows"
    heads = ("row", "source", "input>", "output>", *(() if same else ("reason>",)))
    return table(f"Decision {removal.batch}, {_reason(removal)[:100]}: {many}", heads, rows)


def corrected(report: PoolReport) -> Iterator[Block]:
    """What was corrected, and why, with examples."""
    mended = report.corrections
    if not mended.rows:
        yield Paragraph("No output was corrected.")
        return
    yield Paragraph(f"{counted(mended.rows, 'active row', 'has', 'have')} another output than in the files.")
    changes = [(excerpt(change.before), excerpt(change.after), f"{change.rows:,}") for change in mended.changes]
    left = mended.rows - sum(change.rows for change in mended.changes)
    note = f"{left:,} more rows with other changes." if left > 0 else ""
    yield table("What was corrected to what", ("before>", "after>", "#rows"), changes, note)
    rows = [
        (
            name_of(row.id), name_of(row.source), excerpt(row.input), excerpt(row.before), excerpt(row.after),
            Said(row.reason), _by(row),
        )
        for row in mended.examples
    ]  # fmt: skip
    many = f"{len(rows):,} of {mended.rows:,}" if len(rows) < mended.rows else f"all {mended.rows:,}"
    heads = "row", "source", "input>", "before", "after", "reason>", "decision (UTC)"
    yield table(f"Corrected rows: {many}", heads, rows)


def sources(report: PoolReport) -> Iterator[Block]:
    """Rows by source, before and now, and what training learnt of the sources."""
    every = report.sources
    if not every:
        yield Paragraph("The pool is empty.")
        return
    learnt = any(source.weight is not None for source in every)
    bars = tuple(BarPair(source.source[:NAME], source.before, source.after) for source in every[:DRAWN])
    about = "; ".join(f"{bar.name}: {bar.before:,} before, {bar.after:,} now" for bar in bars)
    yield Picture("Rows of each source; outlined: before, solid: now", about, bars)
    rows = [
        (
            name_of(source.source), f"{source.before:,}", f"{source.after:,}",
            *((_score(source.weight), _score(source.reliability)) if learnt else ()),
        )
        for source in every[:MOST]
    ]  # fmt: skip
    note = (
        "Weight: at which the vote of single answers is right most often. Reliability: its share of right answers."
        if learnt
        else "Weights and reliability were not learnt: icl-curate train sources."
    )
    heads = ("source", "#rows before", "#rows now", *(("#weight", "#reliability") if learnt else ()))
    yield table("Sources before and after", heads, rows, note, *left_out(len(every), MOST))


def _score(value: float | None) -> str:
    return "not learnt" if value is None else f"{value:.2f}"


def labels(report: PoolReport) -> Table:
    """Rows by label, before and now."""
    every = report.labels
    rows = [(name_of(label.label), f"{label.before:,}", f"{label.after:,}") for label in every[:MOST]]
    gone = sum(not label.after for label in every)
    notes = [f"{counted(gone, 'label', 'has', 'have')} no active row left."] if gone else []
    heads = "label", "#rows before", "#rows now"
    return table("Labels before and after", heads, rows, *notes, *left_out(len(every), MOST))


def topics(report: PoolReport) -> Iterator[Block]:
    """The topics with most rows, and the gaps."""
    part = report.topics
    if part is None:
        yield Paragraph(Said(report.notes[0]) if report.notes else "No topics were trained: icl-curate train topics.")
        return
    yield Paragraph((f"{counted(part.total, 'topic')}, learnt in run {part.run} with ", name_of(part.llm), "."))
    rows = [(name_of(t.topic), f"{t.active:,}", f"{t.knowledge:.2f}", f"{t.queries:,}") for t in part.topics]
    heads = "topic", "#active rows", "#LLM knows", "#validation queries"
    note = "LLM knows: how often it is right on the topic without demonstrations."
    yield table("The topics with most active rows", heads, rows, note)
    if not part.gaps:
        yield Paragraph("No gap was found: nothing that validation queries need is both unknown and uncovered.")
        return
    gaps = [
        (name_of(gap.topic), f"{gap.queries:,}", f"{gap.knowledge:.2f}", f"{gap.coverage:.2f}", excerpt(gap.example))
        for gap in part.gaps
    ]
    needed = "topic", "#validation queries", "#LLM knows", "#covered", "a query that needs it>"
    yield table("Gaps: worth collecting demonstrations for, the worst first", needed, gaps)


def cost(costs: Sequence[LLMCost], encoder: str | None) -> Block:
    """What the LLMs were asked, and what that cost."""
    if not costs:
        return Paragraph("No LLM was asked.")
    heads = "LLM", "#calls", "#prompt tokens", "#answer tokens", "#failed", "#US$", "from (UTC)", "to (UTC)"
    rows = [
        (
            name_of(llm.llm), f"{llm.calls:,}", f"{llm.tokens_in:,}", f"{llm.tokens_out:,}", f"{llm.failures:,}",
            "0, local" if llm.local else "not known" if llm.dollars is None else f"{llm.dollars:,.2f}",
            llm.first_at, llm.last_at,
        )
        for llm in costs
    ]  # fmt: skip
    notes = ["Every answer the workspace keeps, each counted once: repeats come from its cache and cost nothing."]
    notes += [
        f"{llm.llm[:NAME]}: US$ {llm.price_in:g} and {llm.price_out:g} per million prompt and answer tokens."
        for llm in costs
        if llm.dollars is not None and not llm.local
    ]
    notes += ["Vectors from a server are not counted."] if (encoder or "").startswith("openai:") else []
    return table("Answers by LLM", heads, rows, *notes)
