"""Output of topics, gaps and topic training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .tables import Bar, Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.papers.topics.report import Gap, TopicList
    from ..engine.papers.topics.results import TopicRun


def show_topic_training(done: TopicRun) -> None:
    """The result of ``train topics``: the predictor's quality on held-out rows, and the next step."""
    metrics = done.metrics
    fit = metrics.fit
    rows = [
        [name, figures.average_precision, figures.recall]
        for name, figures in (("predictor", fit.quality), ("cosine with the names", fit.by_name))
    ]
    show_table(["", "average precision", "recall@10"], rows, title=f"on {fit.held_out:,} held-out demonstrations")
    accuracy = metrics.zero_shot_accuracy
    knows = "not asked" if accuracy is None else f"{accuracy:.3f} of {metrics.questions:,} questions"
    show_text(
        f"run {done.run}: {counted(metrics.topics, 'topic')} ({metrics.added_by_llm:,} added by the LLM), "
        f"{metrics.core_per_example:.1f} core topics each; {len(fit.epochs)} epochs; "
        f"{done.llm} right without shots: {knows}"
    )
    if metrics.chosen:
        tried = ", ".join(f"{trial.cosine:g}: {trial.accuracy:.3f}" for trial in metrics.chosen.tried)
        show_text(f"λ = {metrics.chosen.cosine:g}, chosen on {metrics.chosen.queries:,} validation queries ({tried})")
    for note in metrics.notes:
        show_text(f"note: {note}")
    show_text("next: icl-curate topics --gaps; icl-curate evaluate --methods dense,topick")


def show_topics(found: TopicList) -> None:
    """Topics, those core to most demonstrations first."""
    rows = [
        [
            topic.topic,
            topic.active,
            topic.demonstrations - topic.active or None,
            topic.coverage,
            Bar(topic.knowledge),
            topic.knowledge,
            round(topic.observations, 1),
            ", ".join(f"{source} {count:,}" for source, count in topic.sources[:4]),
        ]
        for topic in found.topics
    ]
    heads: list[str | Head] = [
        Head("topic"), Head("core to", 1), Head("pruned", 6), Head("coverage", 2), Head(""), Head("LLM knows"),
        Head("of questions", 5), Head("sources", 4, "wrap"),
    ]  # fmt: skip
    note = f"{len(rows):,} of {counted(found.total, 'topic')}; coverage: t̂ summed over the active pool" if rows else ""
    show_table(heads, rows, note=note)


def show_gaps(found: Sequence[Gap]) -> None:
    """What to collect next, the most severe first."""
    if not found:
        show_text("no gaps: all topics that validation queries need are known or covered")
        return
    rows = [
        [
            gap.topic,
            gap.queries,
            Bar(gap.knowledge, 6),
            gap.knowledge,
            Bar(gap.coverage, 6),
            gap.coverage,
            gap.severity,
            ", ".join(gap.related),
            gap.examples[0].input if gap.examples else "",
        ]
        for gap in found
    ]
    heads: list[str | Head] = [
        Head("gap"), Head("queries", 1), Head(""), Head("LLM knows"), Head(""), Head("covered"), Head("severity", 2),
        Head("with", 5), Head("for example", 4, "wrap"),
    ]  # fmt: skip
    note = "severity: queries that need it × not known × not covered; covered: by the k best demonstrations"
    show_table(heads, rows, note=note)
