"""Overview: contents of the workspace, what was trained and when, its cost, and the suggested next step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.base.progress import CancelToken, Monitor
from ....engine.jobs.folder import Job, doing, jobs
from ....engine.jobs.kinds import JobCommand
from ....engine.llm.graded import grading_set
from ....engine.report.road import Status, status
from ....engine.store.overview import SuspectShare, suspect_shares
from ....engine.store.runs import FinishedRun, latest
from ....engine.store.settings import Settings
from ....engine.store.trials import SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ....render.suggested import completed
from ...actions import Action
from ...dialogs.index_form import IndexForm
from ...dialogs.start import begin, propose
from ...dialogs.walk import CurateWalk
from ...model import Empty
from ...tab import Nothing, Tab
from ...workers import later
from . import rows as texts
from .first import SAMPLE, FileTable, FirstScreen
from .rows import MOST_SOURCES, STEP, Fact, labelled

STEPS = ("sources", "evaluate", "export")
"""Steps of the road that are tabs."""

WHERE = {"tune": "sources", "check": "problems", "export": "export"}
"""Tabs where a next step is done, by its command."""

CHECKED = 20_000
"""Rows of a pool that is checked unasked, in seconds and without an LLM, so that the road counts its suspects."""

REST = 1.0
"""Seconds that it waits for, as the first keys come first."""

BESIDE = 100
"""Width of the screen from which the cards are side by side, as in ``review.tcss``."""

OTHER_LINES = 20
"""Lines of the screen that the column of sources needs for everything else."""


@dataclass(frozen=True, slots=True)
class OverviewData:
    """Everything on the tab."""

    state: Status
    learnt: Sequence[FinishedRun]
    sources: Sequence[SourceSummary]
    shares: Sequence[SuspectShare]
    settings: Settings
    jobs: Sequence[Job]


class OverviewTab(Tab):
    NAME = "overview"
    TITLE = "Overview"
    COMMAND = "icl-curate status"
    ABOUT = "What is left to do, what was gained, and what the workspace has."
    BEFORE = (
        "icl-curate finds the demonstrations that make an LLM answer worse, removes them, and measures what "
        "that gained. Nothing is sent to an LLM before you have seen its price. f2 shows the screen in six lines."
    )
    TERMS = ("active pool", "decision", "duplicate", "leak", "retired", "call cache", "encoder", "offline")
    ACTIONS = (
        Action("overview.follow", "enter", "Open",
               "Start the next step (shows the cost first), or go to the rows behind the count under the cursor"),
        Action("overview.index", "i", "Index", "Index files, or index the known ones again", "icl-curate index"),
        Action("overview.add", "I", "Add files", "Index files by a form that shows their rows", footer=False),
        Action("overview.sample", "d", "Sample pool", "Try it with the sample pool: 1,200 rows, a minute"),
        Action("overview.curate", "c", "Curate",
               "Walk through a plan that finds and prunes what hurts, within a budget",
               "icl-curate curate --next --hold"),
        Action("overview.export", "e", "Export", "Go to Export", "", False, "open('export')"),
        Action("overview.down", "j,down", "Down", "Next count, or scroll down", footer=False, call="move(1)"),
        Action("overview.up", "k,up", "Up", "Previous count, or scroll up", footer=False, call="move(-1)"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.step = ""
        self.job: Job | None = None
        """The job that is doing it already."""
        self.at = STEP
        """The way under the cursor: to the next step, or to the rows behind a count."""
        self._found: OverviewData | None = None
        self._check: CancelToken | None = None
        self._checked: tuple[int, int] | None = None
        """Active rows and decisions of the pool that was checked last."""

    def on_mount(self) -> None:
        self._check_soon = later(self, REST, self._look_for_suspects)

    def on_hide(self) -> None:
        if self._check:
            self._check.cancel()
            self._checked = None  # it begins anew when the tab is shown again

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Card("next")
            with Horizontal(id="cards"):
                with Vertical():
                    yield Card("pool")
                    yield Card("learnt")
                with Vertical():
                    yield FittedCard("sources", "Sources", _sources)
                    yield Card("llm")
            yield FittedCard("heat", "Suspects by source and label", _heat)

    def start(self) -> Widget:
        return self.query_one(VerticalScroll)

    @property
    def is_first(self) -> bool:
        """Whether there is no pool yet, and the files here can be chosen."""
        return self.nothing is not None and "icl-curate index" in self.nothing.command and not self.review.limited

    @property
    def first(self) -> FirstScreen | None:
        return next(iter(self.query(FirstScreen)), None)

    def blank(self) -> Widget:
        return self.first.query_one(FileTable) if self.first else super().blank()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where there is no pool, nothing but to index one."""
        needs = action in ("follow", "curate", "open", "move")
        here = self.is_first if action == "sample" else not (self.nothing and needs)
        return here and super().check_action(action, parameters)

    def _loaded(self, content: Any) -> None:
        super()._loaded(content)
        if self.is_first:
            self.query_one(Nothing).display = False
            if self.first:
                self.first.look()
            else:
                self.mount(FirstScreen(self.BEFORE, self.take_focus))
        elif self.first:
            self.first.remove()

    def read(self, workspace: Workspace) -> OverviewData | Empty:
        settings = self.review.settings()
        state = status(workspace, settings.method, settings.base_url)
        if not state.pool and not state.validation and not state.test:
            return Empty(
                "This workspace is empty",
                self.BEFORE,
                "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
            )
        sources = source_summaries(workspace, grading_set(workspace, settings))
        shares = suspect_shares(workspace) if state.active <= CHECKED else ()
        return OverviewData(state, latest(workspace), sources, shares, settings, jobs(workspace))

    def show(self, data: OverviewData) -> None:
        self._found = data
        self.step = data.state.next_step
        self.job = doing(data.jobs, JobCommand.typed(self.step).kind)
        if self.at not in self._ways():
            self.at = STEP if self.step else self._ways()[0]
        self._draw_ways()
        self.query_one("#learnt", Card).set_content("Learnt", labelled(texts.learnt_facts(data.learnt, data.jobs)))
        facts = texts.llm_facts(data.state, data.settings)
        self.query_one("#llm", Card).set_content("LLM and encoder", labelled(facts))
        self.query_one("#sources", FittedCard).draw(data.sources)
        self.query_one("#heat", FittedCard).draw(data.shares)
        if data.state.suspects is None and 0 < data.state.active <= CHECKED:
            self._check_soon()

    def _look_for_suspects(self) -> None:
        """Check the pool that is shown, once."""
        state = self._found.state if self._found else None
        if not self.display or self._check or state is None or self._checked == (state.active, state.decisions):
            return
        self._check = cancel = CancelToken()
        self._checked = state.active, state.decisions

        def check() -> None:
            from ....engine.checks.suspects import find_suspects  # not before the first paint

            with suppress(CurateError):  # the list of suspects says what is wrong
                find_suspects(self.review.opened(), self.review.settings(), Monitor(cancel=cancel))

        def checked(_: None) -> None:
            self._check = None
            self.reload()

        self.in_thread("suspects", check, checked)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "suspects":
            self._check = None

    def on_resize(self) -> None:
        """A card is laid out anew only if what it shows changes after the screen was."""
        for card in self.query(FittedCard):
            self.call_after_refresh(card.on_resize)

    def _draw_ways(self) -> None:
        """Draw what the cursor goes through."""
        road = labelled(self._road(), self.at)
        step = texts.next_line(self.step, self.job, self.at == STEP)
        self.query_one("#next", Card).set_content("The road", Group(road, step))
        self.query_one("#pool", Card).set_content("Pool", labelled(self._facts(), self.at))

    def _facts(self) -> Sequence[Fact]:
        return texts.pool_facts(self._found.state) if self._found else ()

    def _road(self) -> Sequence[Fact]:
        return texts.road_facts(self._found.state, self._found.settings) if self._found else ()

    def _ways(self) -> list[str]:
        """The steps of the road, the next one as a command, and the counts that lead to rows."""
        steps, counts = ([fact.way for fact in facts if fact.way] for facts in (self._road(), self._facts()))
        return [*steps, *([STEP] if self.step else ()), *counts]

    def _problem(self) -> str:
        """The list to begin with: of what is open, or suspects, which are looked for there."""
        state = self._found.state if self._found else None
        if state is None or state.suspects_open or state.suspects is None:
            return "suspects"
        return "repeats" if any(state.duplicates_open.values()) else "leaks" if state.leaks_open else "suspects"

    def copied(self) -> str:
        return completed(self.step)

    async def action_follow(self) -> None:
        await self.action_open(self.at)

    async def action_open(self, way: str) -> None:
        """Follow the next step, or go to the rows behind a count."""
        if way == "decisions":
            self.review.action_history()
        elif way != STEP:
            self.at = way
            self._draw_ways()
            rows = way in ("active", "pruned")
            tab: Any = await self.review.visit(way if way in STEPS else "demos" if rows else "problems")
            if rows:
                tab.show_only(pruned=way == "pruned")
            elif way not in STEPS:
                await tab.action_list(self._problem() if way == "problems" else way)
        elif job := self.job:
            self.review.action_jobs(job.number)
        elif place := WHERE.get(self.step.split()[1]):
            there: Any = await self.review.visit(place)
            if place == "problems":
                await there.action_list(self._problem())
        elif self.step.startswith("icl-curate curate"):
            self.action_curate()
        elif self.step.startswith("icl-curate jobs resume "):
            self.review.action_jobs(int(self.step.split()[-1]))
        else:
            propose(self, [self.step.removeprefix("icl-curate ")])

    def action_index(self) -> None:
        if self.nothing and not self.review.limited:
            self.action_add()
        else:
            propose(self, ["index "])

    def action_add(self) -> None:
        if self.review.limited:  # no path may be named
            propose(self, ["index "])
        else:
            here = (self.first.files, self.first.query_one(FileTable).cursor) if self.first else ()
            self.ask(IndexForm(*here), partial(begin, self))

    @on(FileTable.Chosen)
    def _chosen(self) -> None:
        self.action_add()

    def action_sample(self) -> None:
        propose(self, [SAMPLE])

    def action_curate(self) -> None:
        if not self.lacks():
            self.app.push_screen(CurateWalk())

    def action_move(self, by: int) -> None:
        """Go to the next count, and beyond the last one scroll."""
        ways = self._ways()
        at = ways.index(self.at) + by
        if 0 <= at < len(ways):
            self.at = ways[at]
            self._draw_ways()
            counts = [fact.way for fact in self._facts()]
            self.query_one("#pool" if self.at in counts else "#next", Card).scroll_visible(animate=False)
        else:
            self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class Card(Static):
    """A few lines under a title."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, classes="card", markup=False)

    async def action_open(self, way: str) -> None:
        """A way in its lines was clicked."""
        await self.query_ancestor(OverviewTab).action_open(way)

    def set_content(self, title: str, content: RenderableType) -> None:
        self.update(Group(Text(title, "primary"), content))


class FittedCard(Card):
    """Shows as much of something as fits; hidden where that is nothing."""

    def __init__(self, name: str, title: str, fit: Callable[[Any, int, Size], Text | None]) -> None:
        """``fit``: what is shown of it in a width, on a screen of a size."""
        super().__init__(name)
        self._title, self._fit, self._shown = title, fit, ()

    def draw(self, shown: Any) -> None:
        self._shown = shown
        self.on_resize()

    def on_resize(self) -> None:
        content = self._fit(self._shown, self.content_size.width, self.app.size)
        self.display = content is not None
        if content is not None:
            self.set_content(self._title, content)


def _sources(sources: Sequence[SourceSummary], width: int, screen: Size) -> Text:
    """As many as the screen has lines for."""
    room = screen.height - OTHER_LINES if screen.width >= BESIDE else 0
    return texts.source_lines(sources, width or BESIDE // 2, max(MOST_SOURCES, room))


def _heat(shares: Sequence[SuspectShare], width: int, screen: Size) -> Text | None:
    """Where the screen is wide, and a pool has several sources and labels."""
    several = all(len({getattr(one, kind) for one in shares}) > 1 for kind in ("source", "label"))
    if not several or not any(one.suspects for one in shares) or screen.width < BESIDE:
        return None
    return texts.heat_map(shares, width or BESIDE, min(max(4, screen.height - OTHER_LINES - 4), MOST_SOURCES))
