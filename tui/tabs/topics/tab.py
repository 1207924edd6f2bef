"""Topics: what validation queries need, the LLM does not know and the pool does not cover."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from ....engine.errors import UsageError
from ....engine.pool.display import display_line
from ....engine.store.browse import listed, pruned_rows
from ....engine.store.demonstrations import Listed, workspace_fingerprint
from ....engine.store.workspace import Workspace
from ....engine.topics.report import Behind, Gap, Survey, TopicStanding
from ...actions import Action, bindings
from ...dialogs.start import propose
from ...tab import Empty, Tab
from ...widgets.field import Field
from ...widgets.lines import Bar, Column, Line
from ...widgets.table import LineTable
from ...workers import later

SORTS: dict[str, Callable[[TopicStanding], Any]] = {  # what a column sorts by; None last
    "severity": lambda t: (t.severity, t.active),
    "topic": lambda t: t.topic.lower(),
    "queries": lambda t: t.queries,
    "knows": lambda t: t.knowledge,
    "covered": lambda t: t.covered,
    "core": lambda t: t.active,
    "pruned": lambda t: t.demonstrations - t.active,
}
RISING = {"topic", "knows", "covered"}
"""Columns of which the least comes first."""

MOST_GAPS = 20
CUT = 300


@dataclass(frozen=True, slots=True)
class Found:
    """The survey and what it says of every topic; ``gaps`` by topic, the gravest first."""

    survey: Survey
    topics: Sequence[TopicStanding]
    gaps: Mapping[str, Gap]


@dataclass(frozen=True, slots=True)
class Shown:
    """A topic with the rows behind it."""

    topic: str
    behind: Behind
    demonstrations: Sequence[Listed]
    queries: Sequence[Listed]


class TopicsTab(Tab):
    NAME = "topics"
    TITLE = "Topics"
    ABOUT = "What the LLM does not know, and whether the pool covers it. ▲ gap."
    ACTIONS = (
        Action("topics.back", "escape", "Back", "Back to the topics"),
        Action("topics.search", "slash", "Search", "Search topics", "icl-curate topics"),
        Action("topics.gaps", "f", "Gaps only", "Show gaps only, or all", "icl-curate topics --gaps", call="gaps"),
        Action("topics.demonstrations", "d", "Demonstrations", "Show demonstrations that cover it", call="to('shots')"),
        Action("topics.queries", "o", "Queries", "Show queries that need it; enter previews one", call="to('needing')"),
        Action("topics.prune", "x", "Prune", "Prune the demonstration", "icl-curate prune --demo ID"),
        Action("topics.new", "n", "Learn", "Train topics again (shows the cost first)", "icl-curate train topics"),
        Action("topics.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("topics.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.found: Found | None = None
        self.topics: list[TopicStanding] = []
        """Those in the table, in its order."""
        self.shown: Shown | None = None
        self.sort, self.descending, self.only_gaps = "severity", True, False
        self._kept: tuple[object, Found] | None = None

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="topicbar"):
            yield Field(placeholder="/ search", compact=True, id="topic-search")
            yield Static(id="surveyed")
        yield LineTable((), id="topic-table", marked=lambda index: False)
        yield Static(id="gap")
        with Horizontal(id="behind"):
            with Vertical(id="needing-half"):
                yield Static(id="needing-head")
                yield LineTable(NEEDING, id="needing", heading=False)
            with Vertical(id="shots-half"):
                yield Static(id="shots-head")
                yield LineTable(COVERING, id="shots", heading=False)

    def on_mount(self) -> None:
        self._soon = later(self, 0.1, self._look)
        self.query_one("#needing", LineTable).message = "no validation query needs it"
        self.query_one("#shots", LineTable).message = "no active demonstration covers it"

    @property
    def table(self) -> LineTable:
        return self.query_one("#topic-table", LineTable)

    @property
    def current(self) -> TopicStanding | None:
        return self.topics[self.table.cursor] if self.topics else None

    def start(self) -> LineTable:
        return self.table

    def read(self, workspace: Workspace) -> Found | Empty:
        settings = self.review.settings()
        key = workspace_fingerprint(workspace), settings
        if self._kept and self._kept[0] == key:
            return self._kept[1]
        try:
            survey = Survey(workspace, settings)
        except UsageError as error:
            return Empty(
                error.what,
                "Topics show what the LLM knows and what the pool covers; n trains them and shows the cost first.",
                "icl-curate train topics",
            )
        found = Found(survey, survey.topics(), {gap.topic: gap for gap in survey.gaps(MOST_GAPS)})
        self._kept = key, found
        return found

    def show(self, found: Found) -> None:
        if self.found is not found:
            self.found = found
            self._arrange()

    def remember(self) -> dict[str, Any]:
        return {"sort": self.sort, "descending": self.descending, "gaps": self.only_gaps}

    def recall(self, said: dict[str, Any]) -> None:
        if said.get("sort") in SORTS:
            self.sort, self.descending = said["sort"], bool(said.get("descending"))
        self.only_gaps = said.get("gaps") is True

    def copied(self) -> str:
        """The topic, and where it is a gap what to collect."""
        if self.current is None or self.found is None:
            return ""
        gap = self.found.gaps.get(self.current.topic)
        if gap is None:
            return self.current.topic
        lines = [f"{gap.topic}: needed by {gap.queries} queries, known {gap.knowledge:.2f}, covered {gap.coverage:.2f}"]
        return "\n".join([*lines, *(f"- {text}" for _, text in gap.examples)])

    # The table.

    def _arrange(self) -> None:
        """Filter, sort and draw; the cursor stays on its topic."""
        found = self.found
        if found is None:
            return
        here = self.current.topic if self.current else None
        sought = self.query_one(Input).value.strip().lower()
        key = SORTS[self.sort]
        every = [
            topic for topic in found.topics
            if sought in topic.topic.lower() and (not self.only_gaps or topic.topic in found.gaps)
        ]  # fmt: skip
        known = [topic for topic in every if key(topic) is not None]
        known.sort(key=key, reverse=self.descending)
        self.topics = known + [topic for topic in every if key(topic) is None]
        if self.sort == "severity" and self.descending:  # gaps on top, one for each set of queries
            self.topics.sort(key=lambda topic: topic.topic not in found.gaps)
        table = self.table
        table.message = "no such topic" if sought else "no gaps: all topics that queries need are known or covered"
        table.sorted_by = self.sort, self.descending
        table.arrange_columns(COLUMNS)
        table.fill([_line(topic, topic.topic in found.gaps) for topic in self.topics])
        table.cursor = next((i for i, topic in enumerate(self.topics) if topic.topic == here), 0)
        model = found.survey.model
        shown = f"{len(self.topics):,} of {len(found.topics):,} topics"
        self.query_one("#surveyed", Static).update(
            Text.assemble(
                (f"{len(found.gaps):,} gaps" if found.gaps else "no gaps", "bad" if found.gaps else "good"),
                (f"  {shown}, run {model.run}, {display_line(model.llm, 24)}", "muted"),
            )
        )  # fmt: skip
        self._soon()

    @on(Input.Changed, "#topic-search")
    def _typed(self) -> None:
        self._arrange()

    @on(Input.Submitted, "#topic-search")
    def _submitted(self) -> None:
        self.table.focus()

    @on(LineTable.Sort, "#topic-table")
    def _heading(self, event: LineTable.Sort) -> None:
        if event.column in SORTS:
            self._sort_by(event.column, not self.descending if event.column == self.sort else None)

    @on(LineTable.Moved, "#topic-table")
    def _moved(self) -> None:
        self._soon()

    def _sort_by(self, name: str, descending: bool | None = None) -> None:
        self.sort = name
        self.descending = name not in RISING if descending is None else descending
        self._arrange()

    # What stands behind a topic.

    def _look(self) -> None:
        found, topic = self.found, self.current
        if found is None or topic is None:
            return

        def read() -> Shown:
            workspace = self.review.opened()
            pruned, behind = pruned_rows(workspace), found.survey.behind(topic.topic)
            rows = [np.array([row for row, _ in pairs], np.int64) for pairs in (behind.demonstrations, behind.queries)]
            return Shown(topic.topic, behind, *(listed(workspace, numbers, pruned) for numbers in rows))

        self.in_thread("behind", read, lambda shown: self._looked(topic, shown))

    def _looked(self, topic: TopicStanding, shown: Shown) -> None:
        self.shown = shown
        gap = self.found.gaps.get(topic.topic) if self.found else None
        self.query_one("#gap", Static).update(_told(topic, gap))
        self.query_one("#needing-head", Static).update(
            Text.assemble((f"{len(shown.queries):,}", "title"), (" queries need it", "muted"))
        )
        self.query_one("#shots-head", Static).update(
            Text.assemble(
                (f"{len(shown.demonstrations):,}", "title"), (" demonstrations cover it most, ", "muted"),
                (f"{sum(row.row in shown.behind.core for row in shown.demonstrations):,}", "title"),
                (" of them core", "muted"),
            )
        )  # fmt: skip
        self.query_one("#needing", LineTable).fill(_rows(shown.queries, dict(shown.behind.queries)))
        self.query_one("#shots", LineTable).fill(
            _rows(shown.demonstrations, dict(shown.behind.demonstrations), shown.behind.core)
        )

    # Actions.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            return self.screen.focused is not self.table
        if action == "prune":
            return self.query_one("#shots").has_focus
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        for half in ("-shots", "-needing"):
            self.remove_class(half)
        self.table.focus()

    def action_search(self) -> None:
        self.action_back()
        self.query_one(Input).focus()

    def action_gaps(self) -> None:
        self.only_gaps = not self.only_gaps
        self._arrange()

    def action_sort(self) -> None:
        names = list(SORTS)
        self._sort_by(names[(names.index(self.sort) + 1) % len(names)])

    def action_reverse(self) -> None:
        self._sort_by(self.sort, not self.descending)

    def action_to(self, half: str) -> None:
        """To one of the lists behind the topic."""
        self.set_class(half == "shots", "-shots")
        self.set_class(half == "needing", "-needing")
        self.call_after_refresh(self.query_one(f"#{half}", LineTable).focus)

    def action_new(self) -> None:
        propose(self, ["train topics"])

    def action_prune(self) -> None:
        if self.shown and self.shown.demonstrations:
            row = self.shown.demonstrations[self.query_one("#shots", LineTable).cursor]
            self.review.decide("prune", "demonstration", [row.id], f"in review, topic {self.shown.topic}")

    @on(LineTable.Chosen, "#topic-table")
    def _opened(self) -> None:
        self.action_to("needing" if self.shown and self.shown.queries else "shots")

    @on(LineTable.Chosen, "#needing")
    def _query_chosen(self, event: LineTable.Chosen) -> None:
        if self.shown:
            self.review.visit("preview").show_query(self.shown.queries[event.index].row)  # type: ignore[attr-defined]

    @on(LineTable.Chosen, "#shots")
    def _shot_chosen(self, event: LineTable.Chosen) -> None:
        if self.shown:
            self.review.visit("demos").show_row(self.shown.demonstrations[event.index].id)  # type: ignore[attr-defined]


COLUMNS = (
    Column("topic", "topic", 16, grow=2, most=44),
    Column("queries", "queries", 8, right=True, rank=1),
    Column("knows", "LLM knows", 10, right=True),
    Column("knows-bar", "", 6, rank=4, grow=1, most=20, sortable=False),
    Column("covered", "covered", 8, right=True),
    Column("covered-bar", "", 6, rank=4, grow=1, most=20, sortable=False),
    Column("severity", "severity", 9, right=True, rank=2),
    Column("core", "core to", 8, right=True, rank=6),
    Column("pruned", "pruned", 7, right=True, rank=7),
    Column("sources", "sources", 16, grow=2, rank=5, sortable=False),
)
NEEDING = (
    Column("strength", "", 4, right=True, sortable=False),
    Column("bar", "", 6, rank=3, sortable=False),
    Column("input", "", 20, grow=5, sortable=False),
    Column("output", "", 10, grow=1, most=28, rank=1, sortable=False),
)
COVERING = (*NEEDING[:2], Column("core", "", 4, rank=2, sortable=False), *NEEDING[2:])


def _line(topic: TopicStanding, gap: bool) -> Line:
    covered = topic.covered
    values = (
        topic.topic,
        topic.queries or "",
        f"{topic.knowledge:.2f}",
        Bar(topic.knowledge, _style(topic.knowledge)),
        f"{covered:.2f}" if covered is not None else "–",
        Bar(covered, _style(covered)) if covered is not None else "",
        f"{topic.severity:.2f}" if topic.severity >= 0.005 else "",
        topic.active,
        topic.demonstrations - topic.active or "",
        ", ".join(f"{display_line(source, 24)} {count:,}" for source, count in topic.sources[:4]),
    )
    return Line(values, sign=("▲", "bad") if gap else (" ", ""))


def _style(share: float) -> str:
    return "good" if share >= 0.5 else "bad"


def _told(topic: TopicStanding, gap: Gap | None) -> Text:
    """A topic in a line or two."""
    told = Text.assemble((display_line(topic.topic, 60), "title"))
    if gap is None:
        known = f"  the LLM answers {topic.knowledge:.0%} of its questions right ({topic.observations:.0f} questions)"
        return told.append(known, "muted")
    told.append("  a gap: ", "bad").append(
        f"{gap.queries:,} queries need it, the LLM knows {gap.knowledge:.0%}, the pool covers {gap.coverage:.0%}"
    )
    if gap.related:
        told.append("\nwith ", "muted").append(display_line(", ".join(gap.related), 200), "accent")
    return told


def _rows(rows: Sequence[Listed], strength: Mapping[int, float], core: frozenset[int] | None = None) -> list[Line]:
    lines = []
    for row in rows:
        cells: list[Any] = [Text(f"{strength[row.row]:.2f}"), Bar(strength[row.row], "primary")]
        if core is not None:
            cells.append(Text("core" if row.row in core else "", "accent"))
        cells += [display_line(row.input, CUT), Text(display_line(row.output, CUT), "muted")]
        lines.append(Line(tuple(cells), "muted" if row.pruned else ""))
    return lines
