"""State of the Topics tab: the survey, the topics in the table, examples of the current one. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from rich.text import Text

from ....engine.base.errors import UsageError, counted
from ....engine.papers.topics.report import Gap, Survey, TopicMembers, TopicSummary
from ....engine.pool.display import display_line
from ....engine.store.browse import Listed, listed, pruned_rows
from ....engine.store.demonstrations import workspace_fingerprint
from ....engine.store.settings import Settings
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ...model import Empty, SortedModel
from ...widgets.lines import CUT, BarCell, Line

MOST_GAPS = 20


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic with its rows."""

    topic: str
    members: TopicMembers
    demonstrations: Sequence[Listed]
    queries: Sequence[Listed]


@dataclass(frozen=True, slots=True)
class TopicsData:
    """The survey and its topics; ``gaps`` by topic, the most severe first."""

    survey: Survey
    topics: Sequence[TopicSummary]
    gaps: Mapping[str, Gap]

    def look(self, workspace: Workspace, topic: str) -> TopicDetails:
        """The rows of a topic. For threads."""
        pruned, members = pruned_rows(workspace), self.survey.members(topic)
        rows = [np.array([row for row, _ in pairs], np.int64) for pairs in (members.demonstrations, members.queries)]
        return TopicDetails(topic, members, *(listed(workspace, numbers, pruned) for numbers in rows))


class TopicsModel(SortedModel):
    """The topics that match the search, in order, and the current one."""

    SORTS: ClassVar[Mapping[str, Callable[[TopicSummary], Any]]] = {
        "severity": lambda t: (t.severity, t.active),
        "topic": lambda t: t.topic.lower(),
        "queries": lambda t: t.queries,
        "knows": lambda t: t.knowledge,
        "covered": lambda t: t.covered,
        "core": lambda t: t.active,
        "pruned": lambda t: t.demonstrations - t.active,
    }
    RISING = frozenset({"topic", "knows", "covered"})

    def __init__(self) -> None:
        super().__init__("severity")
        self.found: TopicsData | None = None
        self.topics: list[TopicSummary] = []
        """The topics in the table, in its order."""
        self.shown: TopicDetails | None = None
        self.sought = ""
        self.only_gaps = False
        self._surveyed: tuple[object, TopicsData] | None = None

    def remember(self) -> dict[str, Any]:
        return super().remember() | {"gaps": self.only_gaps}

    def recall(self, stored: dict[str, Any]) -> None:
        super().recall(stored)
        self.only_gaps = stored.get("gaps") is True

    def read(self, workspace: Workspace, settings: Settings) -> TopicsData | Empty:
        """The survey; reused while neither workspace nor settings have changed. For threads."""
        key = workspace_fingerprint(workspace), settings
        if self._surveyed and self._surveyed[0] == key:
            return self._surveyed[1]
        try:
            survey = Survey(workspace, settings)
        except UsageError as error:
            return Empty(
                error.what[:1].upper() + error.what[1:],
                "Topics show what the LLM knows and what the pool covers; n trains them and shows the cost first.",
                "icl-curate train topics",
            )
        found = TopicsData(survey, survey.topics(), {gap.topic: gap for gap in survey.gaps(MOST_GAPS)})
        self._surveyed = key, found
        return found

    def take(self, found: TopicsData) -> bool:
        """Set the survey; returns whether it is a new one."""
        another, self.found = found is not self.found, found
        return another

    # The table.

    def topic(self, at: int) -> TopicSummary | None:
        return self.topics[at] if at < len(self.topics) else None

    def arrange(self, cursor: int) -> int:
        """Filter and sort; returns the line of the topic that was at ``cursor``, or the first."""
        assert self.found is not None
        gaps, here = self.found.gaps, self.topic(cursor)
        self.topics = self.in_order(
            topic
            for topic in self.found.topics
            if self._wanted in topic.topic.lower() and (not self.only_gaps or topic.topic in gaps)
        )
        if self.sort == "severity" and self.descending:  # gaps first, one for each set of queries
            self.topics.sort(key=lambda topic: topic.topic not in gaps)
        return next((i for i, topic in enumerate(self.topics) if here and topic.topic == here.topic), 0)

    @property
    def _wanted(self) -> str:
        return self.sought.strip().lower()

    @property
    def message(self) -> str:
        """The text shown if there is no topic."""
        return "no such topic" if self._wanted else "no gaps: all topics that queries need are known or covered"

    # One topic.

    def gap(self, topic: TopicSummary) -> Gap | None:
        """What is missing on a topic, if it is a gap."""
        return self.found.gaps.get(topic.topic) if self.found else None

    def copied(self, at: int) -> str:
        """The topic in line ``at``, and if it is a gap, what to collect."""
        topic = self.topic(at)
        if topic is None:
            return ""
        gap = self.gap(topic)
        if gap is None:
            return topic.topic
        head = f"{gap.topic}: needed by {gap.queries} queries, known {gap.knowledge:.2f}, covered {gap.coverage:.2f}"
        return "\n".join([head, *(f"- {query.input}" for query in gap.examples)])

    def demonstration(self, at: int) -> Listed | None:
        """The demonstration in line ``at`` of those that cover the current topic."""
        return self.shown.demonstrations[at] if self.shown and at < len(self.shown.demonstrations) else None

    def query(self, at: int) -> Listed | None:
        """The query in line ``at`` of those that need the current topic."""
        return self.shown.queries[at] if self.shown and at < len(self.shown.queries) else None


COLUMNS = (
    LineColumn("topic", "topic", 16, grow=2, most=44, sortable=True),
    LineColumn("queries", "queries", 8, right=True, rank=1, sortable=True),
    LineColumn("knows", "LLM knows", 10, right=True, sortable=True),
    LineColumn("knows-bar", "", 6, rank=4, grow=1, most=20, picture=True),
    LineColumn("covered", "covered", 8, right=True, sortable=True),
    LineColumn("covered-bar", "", 6, rank=4, grow=1, most=20, picture=True),
    LineColumn("severity", "severity", 9, right=True, rank=2, sortable=True),
    LineColumn("core", "core to", 8, right=True, rank=6, sortable=True),
    LineColumn("pruned", "pruned", 7, right=True, rank=7, sortable=True),
    LineColumn("sources", "sources", 16, grow=2, rank=5),
)
NEEDING = (
    LineColumn("strength", "", 4, right=True),
    LineColumn("bar", "", 6, rank=3, picture=True),
    LineColumn("input", "", 20, grow=5),
    LineColumn("output", "", 10, grow=1, most=28, rank=1),
)
COVERING = (*NEEDING[:2], LineColumn("core", "", 4, rank=2), *NEEDING[2:])


def topic_line(topic: TopicSummary, gap: bool) -> Line:
    """A topic; ``gap``: whether it is one."""
    covered = topic.covered
    values = (
        topic.topic, topic.queries or "", f"{topic.knowledge:.2f}", BarCell(topic.knowledge, _style(topic.knowledge)),
        f"{covered:.2f}" if covered is not None else "–",
        BarCell(covered, _style(covered)) if covered is not None else "",
        f"{topic.severity:.2f}" if topic.severity >= 0.005 else "",
        topic.active, topic.demonstrations - topic.active or "",
        ", ".join(f"{display_line(source, 24)} {count:,}" for source, count in topic.sources[:4]),
    )  # fmt: skip
    return Line(values, sign=("▲", "bad") if gap else (" ", ""))


def _style(share: float) -> str:
    return "good" if share >= 0.5 else "bad"


def in_words(topic: TopicSummary, gap: Gap | None) -> Text:
    """A description of a topic in one or two lines."""
    text = Text.assemble((display_line(topic.topic, 60), "title"))
    if gap is None:
        known = f"  the LLM answers {topic.knowledge:.0%} of its questions right ({topic.observations:.0f} questions)"
        return text.append(known, "muted")
    text.append("  a gap: ", "bad").append(
        f"{counted(gap.queries, 'query', 'needs', 'need')} it, the LLM knows {gap.knowledge:.0%}, the pool "
        f"covers {gap.coverage:.0%}"
    )
    if gap.related:
        text.append("\nwith ", "muted").append(display_line(", ".join(gap.related), 200), "accent")
    return text


def member_lines(
    rows: Sequence[Listed], strength: Mapping[int, float], core: frozenset[int] | None = None
) -> list[Line]:
    """Rows of a topic with their t̂."""
    lines = []
    for row in rows:
        cells: list[Any] = [Text(f"{strength[row.row]:.2f}"), BarCell(strength[row.row], "primary")]
        if core is not None:
            cells.append(Text("core" if row.row in core else "", "accent"))
        cells += [display_line(row.input, CUT), Text(display_line(row.output, CUT), "muted")]
        lines.append(Line(tuple(cells), "muted" if row.pruned else ""))
    return lines


def surveyed(data: TopicsData, shown: int) -> Text:
    """How many gaps and topics there are, and the LLM; ``shown`` topics are in the table."""
    model = data.survey.model
    text = f"  {shown:,} of {counted(len(data.topics), 'topic')}, run {model.run}, {display_line(model.llm, 24)}"
    gaps = f"{len(data.gaps):,} gaps" if data.gaps else "no gaps"
    return Text.assemble((gaps, "bad" if data.gaps else "good"), (text, "muted"))


def needing_head(shown: TopicDetails) -> Text:
    """How many queries need the topic."""
    return Text.assemble((f"{len(shown.queries):,}", "title"), (" queries need it", "muted"))


def covering_head(shown: TopicDetails) -> Text:
    """How many demonstrations cover the topic."""
    core = sum(row.row in shown.members.core for row in shown.demonstrations)
    return Text.assemble(
        (f"{len(shown.demonstrations):,}", "title"), (" demonstrations cover it most, ", "muted"),
        (f"{core:,}", "title"), (" of them core", "muted"),
    )  # fmt: skip
