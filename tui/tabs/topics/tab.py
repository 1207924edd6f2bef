"""Topics: what validation queries need, the LLM does not know and the pool does not cover."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from ....engine.papers.topics.report import TopicSummary
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.start import propose
from ...model import Empty, PoolRow
from ...row_keys import RowKeys, row_actions
from ...tab import SortedTab
from ...widgets.field import Field
from ...widgets.table import LineTable
from ...workers import later
from .model import (
    COLUMNS,
    COVERING,
    NEEDING,
    TopicDetails,
    TopicsData,
    TopicsModel,
    covering_head,
    in_words,
    member_lines,
    needing_head,
    surveyed,
    topic_line,
)


class TopicsTab(SortedTab, RowKeys):
    NAME = "topics"
    TITLE = "Topics"
    COMMAND = "icl-curate topics"
    ABOUT = "What the LLM does not know, and whether the pool covers it. ▲ gap."
    TERMS = ("gap", "coverage", "topical knowledge", "core topics", "required topics", "distinctiveness")
    PANES = "#topic-table", "#behind"
    ACTIONS = (
        Action("topics.beside", "tab", "Calibrate", "Go to Calibrate", "", False, "list('calibrate')"),
        Action("topics.back", "escape", "Back", "Back to the topics"),
        Action("topics.search", "slash", "Search", "Search topics", "icl-curate topics"),
        Action("topics.gaps", "f", "Gaps only", "Show gaps only, or all", "icl-curate topics --gaps", call="gaps"),
        Action("topics.demonstrations", "d", "Demonstrations", "Show demonstrations that cover it", call="to('shots')"),
        Action("topics.queries", "o", "Queries", "Show queries that need it; enter previews one", call="to('needing')"),
        *row_actions("topics"),
        Action("topics.new", "n", "Learn", "Train topics again (shows the cost first)", "icl-curate train topics"),
        Action("topics.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("topics.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: TopicsModel = TopicsModel()
        self.needing = LineTable(NEEDING, id="needing", heading=False, message="reading …")
        self.shots = LineTable(COVERING, id="shots", heading=False, message="reading …")

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="topicbar"):
            yield Field(placeholder="/ search", compact=True, id="topic-search")
            yield Static(id="surveyed")
        yield LineTable(COLUMNS, id="topic-table", marked=lambda index: False, moved=lambda: self._soon())
        yield Static(id="gap")
        with Horizontal(id="behind"):
            with Vertical(id="needing-half"):
                yield Static(id="needing-head")
                yield self.needing
            with Vertical(id="shots-half"):
                yield Static(id="shots-head")
                yield self.shots

    def on_mount(self) -> None:
        self._soon = later(self, 0.1, self._look)

    def read(self, workspace: Workspace) -> TopicsData | Empty:
        return self.model.read(workspace, self.review.settings())

    def show(self, found: TopicsData) -> None:
        if self.model.take(found):
            self.draw_table()
        else:
            self._soon()  # the rows of the topic may not have been read

    def copied(self) -> str:
        return self.model.copied(self.table.cursor)

    # The table.

    def draw_table(self) -> None:
        """Filter, sort and draw."""
        model, table = self.model, self.table
        data = model.found
        if data is None:
            return
        cursor = model.arrange(table.cursor)
        table.message = model.message
        table.sorted_by = model.sort, model.descending
        table.fill([topic_line(topic, topic.topic in data.gaps) for topic in model.topics])
        table.cursor = cursor
        self.query_one("#surveyed", Static).update(surveyed(data, len(model.topics)))
        self._soon()

    @on(Input.Changed, "#topic-search")
    def _typed(self, event: Input.Changed) -> None:
        self.model.sought = event.value
        self.draw_table()

    # Examples of the topic.

    def _look(self) -> None:
        data, topic = self.model.found, self.model.topic(self.table.cursor)
        if data is None or topic is None:
            return
        looked = lambda shown: self._looked(topic, shown)  # noqa: E731
        self.in_thread("behind", lambda: data.look(self.review.opened(), topic.topic), looked)

    def _looked(self, topic: TopicSummary, shown: TopicDetails) -> None:
        self.model.shown = shown
        self.query_one("#gap", Static).update(in_words(topic, self.model.gap(topic)))
        self.query_one("#needing-head", Static).update(needing_head(shown))
        self.query_one("#shots-head", Static).update(covering_head(shown))
        members = shown.members
        self.needing.message = "no validation query needs it"
        self.shots.message = "no active demonstration covers it"
        self.needing.fill(member_lines(shown.queries, dict(members.queries)))
        self.shots.fill(member_lines(shown.demonstrations, dict(members.demonstrations), members.core))

    # Actions.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.nothing:
            return action in ("new", "list")
        return self.offers(action) and super().check_action(action, parameters)

    def action_back(self) -> None:
        self.remove_class("-shots", "-needing")
        self.table.focus()

    def action_gaps(self) -> None:
        self.model.only_gaps = not self.model.only_gaps
        self.draw_table()

    def action_to(self, half: str) -> None:
        """Focus one of the lists of the topic's rows."""
        self.set_class(half == "shots", "-shots")
        self.set_class(half == "needing", "-needing")
        self.call_after_refresh(self.query_one(f"#{half}", LineTable).focus)

    def action_new(self) -> None:
        propose(self, ["train topics"])

    # Decisions on the demonstrations that cover a topic.

    def row_here(self) -> PoolRow | None:
        row = self.model.demonstration(self.shots.cursor) if self.shots.has_focus else None
        shown = self.model.shown
        return PoolRow(row.row, row.id, f"in review, topic {shown.topic}") if row and shown else None

    @on(LineTable.Chosen, "#topic-table")
    def _opened(self) -> None:
        self.action_to("needing" if self.model.query(0) else "shots")

    @on(LineTable.Chosen, "#needing")
    async def _query_chosen(self, event: LineTable.Chosen) -> None:
        if query := self.model.query(event.index):
            (await self.review.visit("preview")).show_query(query.row)  # type: ignore[attr-defined]

    @on(LineTable.Chosen, "#shots")
    async def _shot_chosen(self, event: LineTable.Chosen) -> None:
        if row := self.model.demonstration(event.index):
            (await self.review.visit("demos")).show_row(row.row)  # type: ignore[attr-defined]
