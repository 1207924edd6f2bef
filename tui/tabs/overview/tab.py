"""Overview: contents of the workspace, what was trained and when, its cost, and the suggested next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from ....engine.jobs.folder import Job, jobs
from ....engine.settings import Settings
from ....engine.store.overview import Overview, overview
from ....engine.store.runs import FinishedRun, latest
from ....engine.store.trials import SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ....render.jobs import doing
from ...actions import Action, bindings
from ...dialogs.index_form import IndexForm
from ...dialogs.start import propose
from ...model import Empty
from ...tab import Tab
from .rows import MOST_SOURCES, labelled, learnt_facts, llm_facts, next_line, pool_facts, source_lines

EXPORTS = (
    "export curated.jsonl",
    "export curated.csv",
    "export curated.parquet",
    "export curated.chat.jsonl --format chat",
    "export curated.dspy.json --format dspy",
    "export curated --format hf",
    "export calibration.jsonl --format calibration",
)
"""Suggested exports: one command per format."""


BESIDE = 100
"""Width of the screen from which the cards are side by side, as in ``review.tcss``."""

OTHER_LINES = 20
"""Lines of the screen that the column of sources needs for everything else."""


@dataclass(frozen=True, slots=True)
class OverviewData:
    """Everything on the tab."""

    state: Overview
    learnt: Sequence[FinishedRun]
    sources: Sequence[SourceSummary]
    settings: Settings
    jobs: Sequence[Job]


class OverviewTab(Tab):
    NAME = "overview"
    TITLE = "Overview"
    ABOUT = "The state of the workspace."
    TERMS = ("active pool", "decision", "duplicate", "leak", "retired", "call cache", "encoder", "offline")
    ACTIONS = (
        Action("overview.follow", "enter", "Next step", "Start the next step (shows the cost first), or go to its tab"),
        Action("overview.index", "i", "Index", "Index files, or index the known ones again", "icl-curate index"),
        Action("overview.add", "I", "Add files", "Index files by a form that shows their rows", footer=False),
        Action("overview.export", "e", "Export", "Write the curated pool to a file", "icl-curate export OUT"),
        Action("overview.down", "j,down", "Down", "Scroll down", footer=False, call="scroll_by(1)"),
        Action("overview.up", "k,up", "Up", "Scroll up", footer=False, call="scroll_by(-1)"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.step = ""
        self.job: Job | None = None
        """The job that is doing it already."""

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Card("next")
            with Horizontal(id="cards"):
                with Vertical():
                    yield Card("pool")
                    yield Card("learnt")
                with Vertical():
                    yield SourcesCard("sources")
                    yield Card("llm")

    def start(self) -> Widget:
        return self.query_one(VerticalScroll)

    def read(self, workspace: Workspace) -> OverviewData | Empty:
        state = overview(workspace)
        if not state.pool and not state.validation and not state.test:
            return Empty(
                "This workspace is empty",
                "Index a pool of demonstrations, and queries to evaluate on.",
                "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
            )
        return OverviewData(
            state, latest(workspace), source_summaries(workspace), self.review.settings(), jobs(workspace)
        )

    def show(self, found: OverviewData) -> None:
        self.step = found.state.next_step
        self.job = doing(found.jobs, self.step)
        for name, title, content in (
            ("next", "Next step", next_line(self.step, self.job)),
            ("pool", "Pool", labelled(pool_facts(found.state))),
            ("learnt", "Learnt", labelled(learnt_facts(found.learnt, found.jobs))),
            ("llm", "LLM and encoder", labelled(llm_facts(found.state, found.settings))),
        ):
            self.query_one(f"#{name}", Card).set_content(title, content)
        self.query_one(SourcesCard).draw(found.sources)

    def copied(self) -> str:
        return self.step

    def action_follow(self) -> None:
        if self.nothing:
            self.action_index()
        elif self.job is not None:
            self.review.visit("jobs").select(self.job.number)  # type: ignore[attr-defined]
        elif self.step.startswith("icl-curate prune"):
            self.review.visit("sources")
        else:
            propose(self, [self.step.removeprefix("icl-curate ")])

    def action_index(self) -> None:
        if self.nothing and not self.review.limited:
            self.action_add()
        else:
            propose(self, ["index "])

    def action_add(self) -> None:
        def answered(command: str | None) -> None:
            if command:
                propose(self, [command])

        if self.review.limited:  # no path may be named
            propose(self, ["index "])
        else:
            self.app.push_screen(IndexForm(), answered)

    def action_export(self) -> None:
        propose(self, EXPORTS)

    def action_scroll_by(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class Card(Static):
    """A few lines under a title."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, classes="card", markup=False)

    def set_content(self, title: str, content: RenderableType) -> None:
        self.update(Group(Text(title, "primary"), content))


class SourcesCard(Card):
    """As many sources as the screen has lines for, in lines as wide as the card."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._sources: Sequence[SourceSummary] = ()

    def draw(self, sources: Sequence[SourceSummary]) -> None:
        """Show these sources."""
        self._sources = sources
        self.on_resize()

    def on_resize(self) -> None:
        """Fit them into the card."""
        room = self.app.size.height - OTHER_LINES if self.app.size.width >= BESIDE else 0
        lines = source_lines(self._sources, self.content_size.width or BESIDE // 2, max(MOST_SOURCES, room))
        self.set_content("Sources", lines)
