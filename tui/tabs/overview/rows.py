"""Texts of the Overview tab: the pool, trained parts, sources and LLMs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rich.cells import cell_len
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from ....engine.base.code import program_in
from ....engine.base.errors import counted
from ....engine.jobs.folder import Job, doing
from ....engine.llm.spec import is_stand_in, recorded
from ....engine.pool.display import display_line
from ....engine.report.road import Status
from ....engine.store.overview import LLMTotals, Overview, SuspectShare
from ....engine.store.runs import FinishedRun
from ....engine.store.settings import Settings
from ....engine.store.trials import SourceSummary
from ....render.columns import sized
from ....render.pool import (
    MOST_VERSIONS,
    NOTHING_LEFT,
    SIGNS,
    accuracy_line,
    leaks_line,
    names_of,
    repeats_line,
    suspects_line,
)
from ...widgets.lines import blocks, stroke

MOST_SOURCES = 12
KINDS = {
    "evaluate": "evaluation",
    "train-sources": "source weights",
    "train-ranker": "ranker",
    "train-topics": "topics",
    "train-rows": "answers to rows",
}
STEP = "next"
"""The way to the next step."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value with its label; ``way`` names the rows behind it, if it counts some."""

    label: str
    value: Text | str
    way: str = ""


def labelled(facts: Sequence[Fact], at: str = "") -> Table:
    """Labels in one column, values in the next; ``at`` is the way under the cursor. A click opens a way."""
    table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for fact in facts:
        label = Text(fact.label, "muted")
        value = fact.value.copy() if isinstance(fact.value, Text) else Text(display_line(fact.value))
        if fact.way:
            value.append(" ›", "key")
            for text in (label, value):
                text.stylize(_opens(fact.way))
        table.add_row(label, value, style="cursor" if at and fact.way == at else None)
    return table


COLOURS = {"not begun": "muted", "open": "warn", "partial": "accent", "done": "good"}


def road_facts(state: Status, settings: Settings) -> list[Fact]:
    """What was gained so far, and what is left at each step; each leads to its place."""
    gained = Text(accuracy_line(state.measured), "title" if state.measured else "muted")
    if state.measured is not None and len(state.measured.history) > 2:
        gained.append(f"  {blocks(state.measured.history[-12:])}", "accent")
    if is_stand_in(state.measured.llm if state.measured else settings.llm):
        gained.append("  offline is not an LLM", "warn")
    facts = [Fact(state.measured.metric if state.measured else "accuracy", gained)]
    for step in state.road:
        told = Text.assemble((SIGNS[step.state], COLOURS[step.state]), f" {step.told}")
        facts.append(Fact(step.name, told, step.name))
    return facts


def next_line(step: str, job: Job | None, here: bool = False) -> Text:
    """The next step as a command, and the job that is doing it already; ``here``: the cursor is on it."""
    if not step:
        return Text(NOTHING_LEFT, "good")
    line = Text.assemble(("$ ", "muted"), (step, "title"))
    line.append("" if job is None else f"   {job.in_words}", "accent")
    line.stylize(_opens(STEP))
    line.stylize("cursor" if here else "")
    return line


def _opens(way: str) -> Style:
    """What makes a text open a way when it is clicked."""
    return Style.from_meta({"@click": f"open({way!r})"})


def pool_facts(state: Overview) -> list[Fact]:
    """Contents of the pool, and what of it is still to be decided on."""
    active = Text.assemble((f"{state.active:,}", "title"), f" of {state.pool:,}")
    if state.pool:
        active.append("  ").append_text(stroke(state.active / state.pool, 12, "good"))
    tasks = {"labels": "labels", "options": "options", "sets": "sets of labels", "open": "open questions"}
    leaks = Text(leaks_line(state), "warn" if state.leaks_open or not state.compared else "")
    skipped = Text(counted(state.skipped, "skipped record"), "warn")
    facts = [
        Fact("active", active, "active"),
        Fact("pruned", counted(state.pruned, "row"), "pruned") if state.pruned else None,
        Fact("queries", f"{state.validation:,} validation, {state.test:,} test"),
        Fact("answers", tasks.get(state.task, state.task)),
        Fact("repeats", repeats_line(state), "repeats" if state.duplicates else ""),
        Fact("leaks", leaks, "leaks" if state.leaks else ""),
        Fact("suspects", suspects_line(state) or Text("2 looks for them, no LLM", "muted"), "suspects"),
        Fact("skipped", skipped, "skipped") if state.skipped else None,
        Fact("decisions", f"{state.decisions:,}", "decisions" if state.decisions else ""),
        Fact("versions", names_of([each.name for each in state.versions], MOST_VERSIONS)) if state.versions else None,
        Fact("retired", f"{counted(state.retired, 'row')} no longer in the files") if state.retired else None,
    ]
    return [fact for fact in facts if fact is not None]


def learnt_facts(learnt: Sequence[FinishedRun], jobs: Sequence[Job]) -> list[Fact]:
    """What was trained, when, and what has changed since; what a job is training now."""
    seen = {last.run.kind: last for last in learnt}
    facts: list[Fact] = []
    for kind, name in KINDS.items():
        last = seen.pop(kind, None)
        job = doing(jobs, kind)
        if job is not None:
            facts.append(Fact(name, Text(job.in_words, "accent")))
        elif last is not None:
            facts.append(Fact(name, _age(last)))
        elif kind not in ("train-topics", "train-rows"):
            facts.append(Fact(name, Text("not yet", "muted")))
    return facts + [Fact(kind, _age(last)) for kind, last in seen.items()]


def _age(last: FinishedRun) -> Text:
    run = last.run
    text = Text(f"{ago(run.finished_at or run.started_at)}, run {run.run}, {display_line(run.llm, 30)}")
    changed = ((last.rows, "row"), (last.decisions, "decision"))
    if changes := [counted(count, what) for count, what in changed if count]:
        text.append(f"\n{' and '.join(changes)} since", "warn")
    return text


def source_lines(sources: Sequence[SourceSummary], width: int, most: int = MOST_SOURCES) -> Text:
    """Up to ``most`` sources in lines of ``width`` cells: those with the largest weights, or without training the
    largest ones, with their share of the active pool."""
    learnt = any(s.weight is not None for s in sources)
    shown = sources if learnt else sorted(sources, key=lambda s: -s.demonstrations)
    shown = shown[: most if len(shown) > most + 1 else most + 1]  # a line that counts one would have room for it
    largest = max((s.demonstrations for s in sources), default=1) or 1
    pruned = 8 if any(not s.kept for s in shown) else 0
    bar = 12 if width >= 52 else 6
    widest = max((cell_len(display_line(s.source)) for s in shown), default=0)
    name = max(8, min(widest, width - 2 - bar - (6 if learnt else 0) - 9 - pruned))
    lines = []
    for s in shown:
        share = (s.weight or 0.0) if learnt else s.demonstrations / largest
        style = "muted" if not s.kept else "good" if not learnt or share >= 0.5 else "bad"
        line = sized(Text(display_line(s.source), "" if s.kept else "muted"), name, cut="middle")
        line.append("  ").append_text(stroke(share, bar, style))
        line.append(f" {s.weight:.3f}" if s.weight is not None else "")
        line.append(f"{s.demonstrations:>9,}" + ("" if s.kept else "  pruned"), "muted")
        lines.append(line)
    if len(sources) > len(shown):
        lines.append(Text(f"and {len(sources) - len(shown):,} more in Sources", "muted"))
    return Text("\n", no_wrap=True).join(lines)


LABEL_CELLS = 12
"""Cells of a column of the heat map."""

SHADES = ((0.8, "█", "bad"), (0.5, "▓", "bad"), (0.2, "▒", "warn"), (0.005, "░", ""), (0.0, " ", "muted"))
"""From a share on, the sign before it and its style."""


def heat_map(shares: Sequence[SuspectShare], width: int, height: int) -> Text:
    """Suspects in per cent of the active rows, by source (a line each, the worst first) and label (those with the most
    first), as many as fit."""
    cells = {(one.source, one.label): one for one in shares}
    sources = _shares([(one.source, one.active, one.suspects) for one in shares])
    labels = Counter[str]()
    for one in shares:
        labels[one.label] += one.suspects
    name = max((min(cell_len(display_line(source)), 20) for source, _ in sources), default=0)
    shown = [label for label, _ in labels.most_common(max(1, (width - name - 7) // (LABEL_CELLS + 1)))]
    left = {"label": len(labels) - len(shown), "source": len(sources) - (height - 1)}
    more = [f"{counted(count, kind)} more" for kind, count in left.items() if count > 0]
    head = Text(" " * (name + 7), "muted")
    for label in shown:
        head.append_text(sized(Text(display_line(label), "muted"), LABEL_CELLS, cut="middle")).append(" ")
    lines = [head]
    for source, share in sources[: height - 1]:
        line = sized(Text(display_line(source)), name, cut="middle").append(f"{share:>5.0%}  ", "bold")
        for label in shown:
            line.append_text(sized(_shade(cells.get((source, label))), LABEL_CELLS)).append(" ")
        lines.append(line)
    if more:
        lines.append(Text(", ".join(more), "muted"))
    return Text("\n", no_wrap=True).join(lines)


def _shares(counts: Sequence[tuple[str, int, int]]) -> list[tuple[str, float]]:
    """Names with their share of suspects, the largest first."""
    active, suspects = Counter[str](), Counter[str]()
    for name, rows, bad in counts:
        active[name] += rows
        suspects[name] += bad
    shares = [(name, suspects[name] / rows) for name, rows in active.items()]
    return sorted(shares, key=lambda one: (-one[1], one[0]))


def _shade(one: SuspectShare | None) -> Text:
    if one is None:
        return Text("–", "muted")
    share = one.suspects / one.active
    sign, style = next((sign, style) for least, sign, style in SHADES if share >= least)
    return Text(f"{sign} {share:>4.0%}", style)


def llm_facts(state: Overview, settings: Settings) -> list[Fact]:
    """Answers and cost of each LLM, and the encoder."""
    facts = [Fact("LLM", settings.llm + ("  (not an LLM)" if is_stand_in(settings.llm) else ""))]
    for llm, used in state.calls.items():
        tokens = f"{_tokens(used.tokens_in)} tokens in, {_tokens(used.tokens_out)} out"
        text = Text(f"{counted(used.calls, 'answer')}, {tokens}")
        if used.failures:
            text.append(f", {used.failures:,} failed", "warn")
        facts.append(Fact(display_line(llm, 20), text))
        facts.append(Fact("cost", _cost(llm, used, settings)))
    encoder = Fact("encoder", state.encoder or Text("not encoded", "warn"))
    return [*facts, encoder, Fact("shots", f"{settings.k} in a prompt")]


def _cost(llm: str, used: LLMTotals, settings: Settings) -> Text:
    named = recorded(llm)
    if named is not None and named.local:
        return Text("free: it runs locally", "muted")
    if program_in(llm):
        return Text("not known: it is a program", "muted")
    if llm != settings.llm or settings.price_in is None or settings.price_out is None:
        return Text("unknown: set price_in and price_out", "muted")
    dollars = (used.tokens_in * settings.price_in + used.tokens_out * settings.price_out) / 1e6
    return Text(f"about ${dollars:,.2f}", "title")


def _tokens(count: float) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k" if count >= 1e4 else f"{count:,.0f}"


def ago(when: datetime, now: datetime | None = None) -> str:
    """How long ago a UTC time was, in a suitable unit."""
    passed = max((now or datetime.now(UTC).replace(tzinfo=None)) - when, timedelta())
    for seconds, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if (count := int(passed.total_seconds() // seconds)) >= 1:
            return f"{count:,} {unit}{'' if count == 1 else 's'} ago"
    return "just now"
