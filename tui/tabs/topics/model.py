"""State of the Topics tab: the survey, the topics in the table, examples of the current one. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....engine.base.errors import UsageError
from ....engine.papers.topics.report import Gap, Survey, TopicMembers, TopicSummary
from ....engine.store.browse import listed, pruned_rows
from ....engine.store.demonstrations import Listed, workspace_fingerprint
from ....engine.store.settings import Settings
from ....engine.store.workspace import Workspace
from ...model import Empty, SortedModel

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
        """The topic in line ``at``."""
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
