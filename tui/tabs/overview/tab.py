"""Overview: what the workspace holds, what was learnt from it and when, what it cost, and the next sensible step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from ....engine.llm.spec import is_stand_in, recorded
from ....engine.pool.display import display_line
from ....engine.settings import Settings
from ....engine.store.overview import Overview, overview
from ....engine.store.runs import Latest, latest
from ....engine.store.trials import SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...dialogs.start import propose
from ...tab import Empty, Tab
from ...widgets.lines import stroke

MOST_SOURCES = 12
EXPORTS = (
    "export curated.jsonl",
    "export curated.csv",
    "export curated.parquet",
    "export curated.chat.jsonl --format chat",
    "export curated.dspy.json --format dspy",
    "export curated --format hf",
    "export calibration.jsonl --format calibration",
)
"""What is proposed: one command for each format."""
KINDS = {
    "evaluate": "evaluation",
    "train-sources": "source weights",
    "train-ranker": "ranker",
    "train-topics": "topics",
}
Fact = tuple[str, Text | str]


@dataclass(frozen=True, slots=True)
class Found:
    """Everything on the tab."""

    state: Overview
    learnt: Sequence[Latest]
    sources: Sequence[SourceSummary]
    settings: Settings


class OverviewTab(Tab):
    NAME = "overview"
    TITLE = "Overview"
    ABOUT = "The state of the workspace."
    ACTIONS = (
        Action("overview.follow", "enter", "Next step", "Start the next step (shows the cost first), or go to its tab"),
        Action("overview.index", "i", "Index", "Index files, or index the known ones again", "icl-curate index"),
        Action("overview.export", "e", "Export", "Write the curated pool to a file", "icl-curate export OUT"),
        Action("overview.down", "j,down", "Down", "Scroll down", footer=False, call="scroll_by(1)"),
        Action("overview.up", "k,up", "Up", "Scroll up", footer=False, call="scroll_by(-1)"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.step = ""

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Card("next")
            with Horizontal(id="cards"):
                with Vertical():
                    yield Card("pool")
                    yield Card("learnt")
                with Vertical():
                    yield Card("sources")
                    yield Card("llm")

    def start(self) -> Widget:
        return self.query_one(VerticalScroll)

    def read(self, workspace: Workspace) -> Found | Empty:
        state = overview(workspace)
        if not state.pool and not state.validation and not state.test:
            return Empty(
                "This workspace is empty",
                "Index a pool of demonstrations, and queries to evaluate on.",
                "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
            )
        return Found(state, latest(workspace), source_summaries(workspace), self.review.settings())

    def show(self, found: Found) -> None:
        self.step = found.state.next_step
        for name, title, told in (
            ("next", "Next step", Text.assemble(("$ ", "muted"), (self.step, "title"))),
            ("pool", "Pool", _facts(_pool(found.state))),
            ("learnt", "Learnt", _facts(_learnt(found.learnt))),
            ("sources", "Sources", _sources(found.sources)),
            ("llm", "LLM and encoder", _facts(_llm(found.state, found.settings))),
        ):
            self.query_one(f"#{name}", Card).tell(title, told)

    def copied(self) -> str:
        return self.step

    def action_follow(self) -> None:
        if self.nothing:
            self.action_index()
        elif self.step.startswith("icl-curate prune"):
            self.review.visit("sources")
        else:
            propose(self, [self.step.removeprefix("icl-curate ")])

    def action_index(self) -> None:
        propose(self, ["index "])

    def action_export(self) -> None:
        propose(self, EXPORTS)

    def action_scroll_by(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class Card(Static):
    """A few lines under a title."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, classes="card", markup=False)

    def tell(self, title: str, told: RenderableType) -> None:
        self.update(Group(Text(title, "primary"), told))


def _facts(facts: Sequence[Fact]) -> Table:
    """Labels in one column, values in the next."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="muted")
    table.add_column()
    for label, value in facts:
        table.add_row(Text(label), value if isinstance(value, Text) else Text(display_line(value)))
    return table


def _pool(state: Overview) -> list[Fact]:
    active = Text.assemble((f"{state.active:,}", "title"), f" of {state.pool:,}")
    if state.pool:
        active.append("  ").append_text(stroke(state.active / state.pool, 12, "good"))
    repeats = ", ".join(f"{count:,} {kind}" for kind, count in state.duplicates.items()) or "none"
    facts: list[Fact] = [
        ("active", active),
        ("queries", f"{state.validation:,} validation, {state.test:,} test"),
        ("answers", {"labels": "labels", "options": "options", "open": "open questions"}.get(state.task, state.task)),
        ("repeats", repeats),
        ("leaks", Text(f"{state.leaks:,} queries also in the pool", "warn") if state.leaks else "none"),
        ("decisions", f"{state.decisions:,}"),
    ]
    if state.skipped:
        facts.append(("skipped", Text(f"{state.skipped:,} bad rows", "warn")))
    if state.retired:
        facts.append(("retired", f"{state.retired:,} rows no longer in their files"))
    return facts


def _learnt(learnt: Sequence[Latest]) -> list[Fact]:
    seen = {last.run.kind: last for last in learnt}
    facts: list[Fact] = []
    for kind, name in KINDS.items():
        last = seen.pop(kind, None)
        if last is not None:
            facts.append((name, _age(last)))
        elif kind != "train-topics":
            facts.append((name, Text("not yet", "muted")))
    return facts + [(kind, _age(last)) for kind, last in seen.items()]


def _age(last: Latest) -> Text:
    told = Text(
        f"{ago(last.run.finished_at or last.run.started_at)}, run {last.run.run}, {display_line(last.run.llm, 30)}"
    )
    since = [f"{last.rows:,} rows" if last.rows else "", f"{last.decisions:,} decisions" if last.decisions else ""]
    if changes := " and ".join(filter(None, since)):
        told.append(f"\n{changes} changed since", "warn")
    return told


def _sources(sources: Sequence[SourceSummary]) -> Text:
    """The heaviest by weight where it was learnt, else by size, with their share of the active pool."""
    learnt = any(s.weight is not None for s in sources)
    shown = sources if learnt else sorted(sources, key=lambda s: -s.demonstrations)
    largest = max((s.demonstrations for s in sources), default=1) or 1
    names = [display_line(s.source, 24) for s in shown[:MOST_SOURCES]]
    widest = max(map(cell_len, names), default=0)
    lines = []
    for s, name in zip(shown, names, strict=False):
        share = (s.weight or 0.0) if learnt else s.demonstrations / largest
        style = "muted" if not s.kept else "good" if not learnt or share >= 0.5 else "bad"
        line = Text(name + " " * (widest - cell_len(name)), "" if s.kept else "muted")
        line.append("  ").append_text(stroke(share, 12, style))
        line.append(f" {s.weight:.3f}" if s.weight is not None else "")
        line.append(f"{s.demonstrations:>9,}" + ("" if s.kept else "  pruned"), "muted")
        lines.append(line)
    if len(sources) > MOST_SOURCES:
        lines.append(Text(f"and {len(sources) - MOST_SOURCES:,} more", "muted"))
    return Text("\n").join(lines)


def _llm(state: Overview, settings: Settings) -> list[Fact]:
    facts: list[Fact] = [("LLM", settings.llm + ("  (not an LLM)" if is_stand_in(settings.llm) else ""))]
    for llm, used in state.calls.items():
        tokens = f"{_tokens(used['tokens_in'])} tokens in, {_tokens(used['tokens_out'])} out"
        told = Text(f"{used['calls']:,.0f} answers, {tokens}")
        if used["failures"]:
            told.append(f", {used['failures']:,.0f} failed", "warn")
        facts.append((display_line(llm, 20), told))
        facts.append(("cost", _cost(llm, used, settings)))
    return [*facts, ("encoder", state.encoder or Text("not encoded", "warn")), ("shots", f"{settings.k} in a prompt")]


def _cost(llm: str, used: Any, settings: Settings) -> Text:
    named = recorded(llm)
    if named is not None and named.local:
        return Text("free: it runs locally", "muted")
    if llm != settings.llm or settings.price_in is None or settings.price_out is None:
        return Text("unknown: set price_in and price_out", "muted")
    dollars = (used["tokens_in"] * settings.price_in + used["tokens_out"] * settings.price_out) / 1e6
    return Text(f"about ${dollars:,.2f}", "title")


def _tokens(count: float) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k" if count >= 1e4 else f"{count:,.0f}"


def ago(when: datetime, now: datetime | None = None) -> str:
    """How long ago a UTC time was, in the unit people would use."""
    passed = max((now or datetime.now(UTC).replace(tzinfo=None)) - when, timedelta())
    for seconds, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if (count := int(passed.total_seconds() // seconds)) >= 1:
            return f"{count:,} {unit}{'' if count == 1 else 's'} ago"
    return "just now"
