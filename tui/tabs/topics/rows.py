"""Texts of the Topics tab: one line per topic and row; a description of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ....engine.base.errors import counted
from ....engine.papers.topics.report import Gap, TopicSummary
from ....engine.pool.display import display_line
from ....engine.store.demonstrations import Listed
from ....render.columns import LineColumn
from ...widgets.lines import BarCell, Line
from .model import TopicDetails, TopicsData

CUT = 300

COLUMNS = (
    LineColumn("topic", "topic", 16, grow=2, most=44),
    LineColumn("queries", "queries", 8, right=True, rank=1),
    LineColumn("knows", "LLM knows", 10, right=True),
    LineColumn("knows-bar", "", 6, rank=4, grow=1, most=20, sortable=False, picture=True),
    LineColumn("covered", "covered", 8, right=True),
    LineColumn("covered-bar", "", 6, rank=4, grow=1, most=20, sortable=False, picture=True),
    LineColumn("severity", "severity", 9, right=True, rank=2),
    LineColumn("core", "core to", 8, right=True, rank=6),
    LineColumn("pruned", "pruned", 7, right=True, rank=7),
    LineColumn("sources", "sources", 16, grow=2, rank=5, sortable=False),
)
NEEDING = (
    LineColumn("strength", "", 4, right=True, sortable=False),
    LineColumn("bar", "", 6, rank=3, sortable=False, picture=True),
    LineColumn("input", "", 20, grow=5, sortable=False),
    LineColumn("output", "", 10, grow=1, most=28, rank=1, sortable=False),
)
COVERING = (*NEEDING[:2], LineColumn("core", "", 4, rank=2, sortable=False), *NEEDING[2:])


def topic_line(topic: TopicSummary, gap: bool) -> Line:
    """A topic; ``gap``: whether it is one."""
    covered = topic.covered
    values = (
        topic.topic,
        topic.queries or "",
        f"{topic.knowledge:.2f}",
        BarCell(topic.knowledge, _style(topic.knowledge)),
        f"{covered:.2f}" if covered is not None else "–",
        BarCell(covered, _style(covered)) if covered is not None else "",
        f"{topic.severity:.2f}" if topic.severity >= 0.005 else "",
        topic.active,
        topic.demonstrations - topic.active or "",
        ", ".join(f"{display_line(source, 24)} {count:,}" for source, count in topic.sources[:4]),
    )
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
