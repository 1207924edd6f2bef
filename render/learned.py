"""What training learnt, as it is printed: sources and audits, topics and gaps, the ranker and its ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from ..engine.llm.marks import figure
from .costs import answered
from .evaluation import judged
from .tables import Bar, Column, Head, change, ends, show_hint, show_rows, show_table, show_text

if TYPE_CHECKING:
    from ..engine.checks.ledger import LedgerEntry
    from ..engine.papers.sources.audit import AuditReport, EstimatorResult
    from ..engine.papers.topics.report import Gap, TopicList, TopicSummary
    from ..engine.papers.topics.results import TopicRun
    from ..engine.store.trials import Flip, SourceSummary
    from ..engine.trials.results import RankerMetrics, RankerRun, RankerSeeds, SeedFigures, SourceRun
    from ..engine.trials.sources import VoteTuneReport


MOST_SOURCES = 40
"""Maximum sources listed by an audit, the lowest first."""

MOST_BATCHES = 12
"""Maximum batches listed of a training run: the first and the last."""

FEW = 50
"""Held-out queries below which the accuracies of epochs differ by little more than chance."""

RANKS = {
    "weight": 0, "size": 1, "alone": 2, "bar": 3, "leave-one-out": 4, "reliability": 5, "hits": 7, "pruned": 8,
    "repeats": 9,
}  # fmt: skip
"""Of a source's columns, for command and tab: where there is no room, the highest are left out."""

ESTIMATORS = {
    "multilinear": "the weight, 0 to 1, at which the vote is right most often",
    "monte-carlo": "the same weight for the majority vote itself, by sampling",
    "grouped": "the same weight if the whole source is in or out",
    "leave-one-out": "how much more often the vote is right with the source than without it",
    "reliability": "its own share of right answers, shrunk towards the mean where there are few",
}
"""What each estimator of source importance says, in one sentence."""


def show_sources(sources: Sequence[SourceSummary], left_out: Sequence[str] = ()) -> None:
    """Sources, by descending weight after training; ``left_out`` says which answers tell nothing of them."""
    learnt = any(source.weight is not None for source in sources)
    figures: list[Column[SourceSummary]] = [
        ("", lambda source: Bar(source.weight or 0.0)),
        (Head("weight", RANKS["weight"]), lambda source: source.weight),
        (Head("leave 1 out", RANKS["leave-one-out"]), lambda source: source.leave_one_out),
        (Head("reliability", RANKS["reliability"]), lambda source: source.reliability),
        (Head("alone", RANKS["alone"]), lambda source: source.accuracy),
        (Head("hits", RANKS["hits"]), lambda source: source.hits),
    ]
    columns: list[Column[SourceSummary]] = [
        (Head("source", cut="middle"), lambda source: source.source),
        *(figures if learnt else []),
        (Head("size", RANKS["size"]), lambda source: source.demonstrations),
        (Head("pruned", RANKS["pruned"]), lambda source: source.demonstrations - source.active),
        (Head("repeats", RANKS["repeats"]), lambda source: source.duplicates),
        (Head("kept"), lambda source: source.kept),
    ]
    notes = [
        f"weight: {ESTIMATORS['multilinear']}",
        f"leave 1 out: {ESTIMATORS['leave-one-out']}",
        f"reliability: {ESTIMATORS['reliability']}",
        "alone: accuracy with single demonstrations of the source",
    ]
    show_rows(sources, columns, note="\n".join([*(notes if learnt else []), *left_out]))


def show_training(done: SourceRun) -> None:
    """The result of ``train sources`` and the next step."""
    metrics = done.metrics
    show_text(
        f"run {done.run}: {answered(done.usage, done.llm)}; "
        f"vote of single answers right for {figure(metrics.baseline, of=metrics.queries)} validation "
        f"queries; best use gains {metrics.gain:+.3f} ± {metrics.gain_error:.3f} (cross-fitted)"
    )
    if metrics.judge:
        show_text(judged(metrics.judge))
    no_gain = "no use of the weights gains significantly; icl-curate tune vote tries pruning alone"
    show_hint("next: icl-curate tune" if metrics.worth_it else no_gain)


def show_tuned(tuned: VoteTuneReport) -> None:
    """The pruning curve and the chosen threshold."""
    most = len(tuned.pruned)
    rows = [
        [
            point.threshold, point.dropped, len(tuned.kept) + most - point.dropped, Bar(point.accuracy, 20),
            point.accuracy, "chosen" if tuned.worth_it and point.dropped == most else "",
        ]
        for point in tuned.curve
    ]  # fmt: skip
    show_table(["threshold", "dropped", "kept", "", "validation", ""], rows, title=f"pruning by {tuned.estimator}")
    if tuned.worth_it:
        show_text(
            f"validation {figure(tuned.validation_before)} → {figure(tuned.validation_after)} "
            f"(cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}): drops {', '.join(tuned.pruned)}"
        )
    else:
        show_text(f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}: not significant, nothing is pruned")


def show_audit(audit: AuditReport) -> None:
    """Sources of a log with their scores, and each way of using them."""
    names = list(audit.estimators)
    rows = [[s.source, s.hits, *(s.scores[name] for name in names), s.kept] for s in audit.sources[:MOST_SOURCES]]
    left = len(audit.sources) - len(rows)
    note = f"… and {left:,} more sources with higher scores: audit --json lists all" if left else ""
    heads: list[str | Head] = [
        Head("source", cut="middle"),
        Head("hits", 9),
        *(Head(name, i) for i, name in enumerate(names, 1)),
    ]
    show_table([*heads, Head("kept")], rows, note=note)
    ways = [("keep everything", audit.baseline), *((f"prune by {n}", r) for n, r in audit.estimators.items())]
    columns: list[Column[tuple[str, EstimatorResult]]] = [
        ("way", lambda row: row[0]),
        ("validation", lambda row: row[1].validation_accuracy),
        ("test", lambda row: row[1].test_accuracy),
        ("pruned", lambda row: len(row[1].pruned)),
        (
            Head("gain on test, 95 %", 4, whole=True),
            lambda row: change(gain.mean, *gain.ci95, "") if (gain := row[1].test_gain) else "",
        ),
    ]
    show_rows([*ways, ("chosen", audit.chosen)], columns)
    if (s := audit.chosen).use:
        show_text(f"chosen on validation: {s.use} by {s.estimator}, {s.voters} voters, decay {s.decay}")
    for note in audit.notes:
        show_hint(note)


def show_ranker(done: RankerRun) -> None:
    """The training, batch by batch in short form, and the ranker's accuracy on held-out queries."""
    metrics = done.metrics
    batches = metrics.batches
    if metrics.trials is not None:
        show_text(f"from trials: {from_trials(metrics)}")
    shown, left = ends(batches, MOST_BATCHES)
    rows = [[b.batch, b.loss, b.sigma, b.shots, b.calls, b.accuracy] for b in shown]
    note = f"{left} batches between" if left else ""
    show_table(["batch", "loss", "σ", "shots", "calls", "accuracy"], rows, note=note)
    by_shots = "  ".join(f"{shots}: {figure(value)}" for shots, value in metrics.accuracy_by_shots.items())
    show_text(f"accuracy by shots  {by_shots}")
    used = f"{answered(done.usage, done.llm)}, {counted(metrics.shots, 'shot')}"
    show_text(f"run {done.run}: {used}; {kept(metrics)}")
    if metrics.epochs and 0 < metrics.held_out_queries < FEW:
        show_text(
            f"{counted(metrics.held_out_queries, 'held-out query')} can choose an epoch by chance; "
            "--held-out 0 --patience 0 trains on all queries and keeps the last epoch"
        )
    if metrics.judge:
        show_text(judged(metrics.judge))
    if metrics.collapsed_in is not None:
        since = "before" if metrics.best.epoch < metrics.collapsed_in else "after"
        show_text(
            f"the policy collapsed onto one candidate per query in epoch {metrics.collapsed_in}; what is kept is from "
            f"{since} that"
        )
    if batches:
        show_text(f"mean entropy of the first and last batch  {batches[0].entropy:.2f}, {batches[-1].entropy:.2f}")
    arms = "bm25,ranker-untrained,ranker" if metrics.method == "ranker" else f"bm25,{metrics.method}"
    show_hint(f"next: icl-curate evaluate --methods {arms}; icl-curate flips --misleading")


def show_ranker_seeds(done: RankerSeeds) -> None:
    """Each seed's run with what was kept of it."""
    rows = [[s.seed, s.run, _what(s), s.best.accuracy, "collapsed" if s.collapsed else ""] for s in done.seeds]
    note = answered(done.usage, done.llm)
    show_table(["seed", "run", "kept", _judged_by(done.metrics), ""], rows, note=note)
    count = len(done.seeds)
    show_hint(f"next: icl-curate evaluate --methods bm25,{done.metrics.method} --seeds {count}")


def kept(metrics: RankerMetrics) -> str:
    """What was kept of a training, and how accurate it is on the queries that chose it."""
    told, best = f"{_what(metrics)} kept", metrics.best
    if best.accuracy is None:
        return told
    line = f"{told}, {_judged_by(metrics)} {figure(best.accuracy, of=metrics.held_out_queries or None)}"
    if not (n := metrics.held_out_queries):
        return line
    return f"{line}, standard error {math.sqrt(best.accuracy * (1 - best.accuracy) / n):.3f}"


def from_trials(metrics: RankerMetrics) -> str:
    """The expected reward that the passes over the trials came to."""
    values = metrics.trials
    if not values:
        return "no held-out query was tried, so that the last pass counts"
    return f"expected reward of held-out queries {values[0]:+.3f}, at best {max(values):+.3f}"


def _what(done: RankerMetrics | SeedFigures) -> str:
    if done.untrained:
        return "untrained start"
    if done.best.epoch == 0 and done.kept_pass is not None:
        return f"pass {done.kept_pass}"
    return f"epoch {done.best.epoch}"


def _judged_by(metrics: RankerMetrics) -> str:
    return "held-out accuracy" if metrics.held_out_queries else "training accuracy"


def show_ledger(entries: Sequence[LedgerEntry]) -> None:
    """The effects of single demonstrations on answers."""
    if not entries:
        show_hint("no such demonstration in the ledger, which icl-curate train ranker fills")
        return
    columns: list[Column[LedgerEntry]] = [
        (Head("id", cut="start"), lambda row: row.id),
        (Head("source", 4, "middle"), lambda row: row.source),
        ("", lambda row: "pruned" if row.pruned else ""),
        (Head("shown", 5), lambda row: row.shown),
        (Head("helped", 3), lambda row: row.helped),
        (Head("hurt", 2), lambda row: row.hurt),
        (Head("effect"), lambda row: row.estimate),
        (Head("95 %", 1), lambda row: f"{row.low:+.3f} to {row.high:+.3f}"),
    ]
    note = "effect: shrunken net effect on accuracy with 95 % interval; icl-curate flips show ID shows the prompts"
    if (median := entries[0].median) < 0:
        note += (
            f"\nWARNING: most demonstrations cost accuracy where they are added (median {median:+.3f}); "
            "flips prune takes those that surely cost more"
        )
    show_rows(entries, columns, note=note)


def show_flips(flips: Sequence[Flip]) -> None:
    """The queries whose answer flipped when a demonstration was added."""
    if not flips:
        show_hint("no answer flipped when it was added, as far as icl-curate train ranker has tried")
        return
    rows = [
        [f.query_id, f.query_input, f.answer_before, f.answer_after, "helped" if f.helped else "hurt", len(f.shown)]
        for f in flips
    ]
    show_table(["query", "input>", "before", "after", "", "shots"], rows)


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
    knows = "not asked" if accuracy is None else f"{figure(accuracy, of=metrics.questions)} questions"
    show_text(
        f"run {done.run}: {counted(metrics.topics, 'topic')} ({metrics.added_by_llm:,} added by the LLM), "
        f"{metrics.core_per_example:.1f} core topics each; {len(fit.epochs)} epochs; "
        f"{done.llm} right without shots: {knows}"
    )
    if metrics.chosen:
        tried = ", ".join(f"{trial.cosine:g}: {figure(trial.accuracy)}" for trial in metrics.chosen.tried)
        show_text(f"λ = {metrics.chosen.cosine:g}, chosen on {metrics.chosen.queries:,} validation queries ({tried})")
    if metrics.judge:
        show_text(judged(metrics.judge))
    for note in metrics.notes:
        show_hint(f"note: {note}")
    show_hint("next: icl-curate topics --gaps; icl-curate evaluate --methods dense,topick")


def show_topics(topics: TopicList) -> None:
    """Topics, those core to most demonstrations first."""
    columns: list[Column[TopicSummary]] = [
        (Head("topic"), lambda topic: topic.topic),
        (Head("core to", 1), lambda topic: topic.active),
        (Head("pruned", 6), lambda topic: topic.demonstrations - topic.active or None),
        (Head("coverage", 2), lambda topic: topic.coverage),
        (Head(""), lambda topic: Bar(topic.knowledge)),
        (Head("LLM knows"), lambda topic: topic.knowledge),
        (Head("of questions", 5), lambda topic: round(topic.observations, 1)),
        (Head("sources", 4, "wrap"), lambda topic: ", ".join(f"{name} {count:,}" for name, count in topic.sources[:4])),
    ]
    shown = f"{len(topics.topics):,} of {counted(topics.total, 'topic')}"
    note = f"{shown}; coverage: t̂ summed over the active pool" if topics.topics else ""
    show_rows(topics.topics, columns, note=note)


def show_gaps(gaps: Sequence[Gap]) -> None:
    """What to collect next, the most severe first."""
    if not gaps:
        show_text("no gaps: all topics that validation queries need are known or covered")
        return
    columns: list[Column[Gap]] = [
        (Head("gap"), lambda gap: gap.topic),
        (Head("queries", 1), lambda gap: gap.queries),
        (Head(""), lambda gap: Bar(gap.knowledge, 6)),
        (Head("LLM knows"), lambda gap: gap.knowledge),
        (Head(""), lambda gap: Bar(gap.coverage, 6)),
        (Head("covered"), lambda gap: gap.coverage),
        (Head("severity", 2), lambda gap: gap.severity),
        (Head("with", 5), lambda gap: ", ".join(gap.related)),
        (Head("for example", 4, "wrap"), lambda gap: gap.examples[0].input if gap.examples else ""),
    ]
    note = "severity: queries that need it × not known × not covered; covered: by the k best demonstrations"
    show_rows(gaps, columns, note=note)
