"""Output of source importance: learnt scores, pruning, audits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .costs import answered
from .tables import Bar, Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.papers.sources.audit import AuditReport, EstimatorResult
    from ..engine.store.trials import SourceSummary
    from ..engine.trials.results import SourceRun
    from ..engine.trials.sources import VoteTuneReport


MOST_SOURCES = 40
"""Maximum sources listed by an audit, the lowest first."""

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


def show_sources(found: Sequence[SourceSummary]) -> None:
    """Sources, by descending weight after training."""
    learnt = any(s.weight is not None for s in found)
    rows = [
        [
            s.source,
            *([Bar(s.weight or 0.0), s.weight, s.leave_one_out, s.reliability, s.accuracy, s.hits] if learnt else []),
            s.demonstrations,
            s.demonstrations - s.active,
            s.duplicates,
            s.kept,
        ]
        for s in found
    ]
    learnt_heads = (("weight", "weight"), ("leave-one-out", "leave 1 out"), ("reliability", "reliability"),
                    ("alone", "alone"), ("hits", "hits"))  # fmt: skip
    heads: list[str | Head] = ["", *(Head(title, RANKS[name]) for name, title in learnt_heads)] if learnt else []
    counts = [Head(name, RANKS[name]) for name in ("size", "pruned", "repeats")]
    notes = [
        f"weight: {ESTIMATORS['multilinear']}",
        f"leave 1 out: {ESTIMATORS['leave-one-out']}",
        f"reliability: {ESTIMATORS['reliability']}",
        "alone: accuracy with single demonstrations of the source",
    ]
    show_table(
        [Head("source", cut="middle"), *heads, *counts, Head("kept")], rows, note="\n".join(notes) if learnt else ""
    )


def show_training(done: SourceRun) -> None:
    """The result of ``train sources`` and the next step."""
    metrics = done.metrics
    show_text(
        f"run {done.run}: {answered(done.usage, done.llm)}; "
        f"vote of single answers right for {metrics.baseline:.3f} of {metrics.queries:,} validation queries; "
        f"best use gains {metrics.gain:+.3f} ± {metrics.gain_error:.3f} (cross-fitted)"
    )
    show_text("next: icl-curate tune" if metrics.worth_it else "no significant gain: prune nothing")


def show_tuned(tuned: VoteTuneReport) -> None:
    """The pruning curve and the chosen threshold."""
    kept = len(tuned.kept)
    rows = [
        [
            point.threshold,
            point.dropped,
            kept + len(tuned.pruned) - point.dropped,
            Bar(point.accuracy, 20),
            point.accuracy,
            "chosen" if tuned.worth_it and point.dropped == len(tuned.pruned) else "",
        ]
        for point in tuned.curve
    ]
    show_table(["threshold", "dropped", "kept", "", "validation", ""], rows, title=f"pruning by {tuned.estimator}")
    if tuned.worth_it:
        show_text(
            f"validation {tuned.validation_before:.3f} → {tuned.validation_after:.3f} "
            f"(cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}): drops {', '.join(tuned.pruned)}"
        )
    else:
        show_text(f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}: not significant, nothing is pruned")


def show_audit(found: AuditReport) -> None:
    """Sources of a log with their scores, and each way of using them."""
    names = list(found.estimators)
    rows = [[s.source, s.hits, *(s.scores[name] for name in names), s.kept] for s in found.sources[:MOST_SOURCES]]
    left = len(found.sources) - len(rows)
    note = f"… and {left:,} more sources with higher scores: audit --json lists all" if left else ""
    heads: list[str | Head] = [
        Head("source", cut="middle"),
        Head("hits", 9),
        *(Head(name, i) for i, name in enumerate(names, 1)),
    ]
    show_table([*heads, Head("kept")], rows, note=note)
    ways = [("keep everything", found.baseline), *((f"prune by {n}", r) for n, r in found.estimators.items())]
    rows = [
        [way, result.validation_accuracy, result.test_accuracy, len(result.pruned), _interval(result)]
        for way, result in [*ways, ("chosen", found.chosen)]
    ]
    show_table(["way", "validation", "test", "pruned", "gain on test, 95 %"], rows)
    if (s := found.chosen).use:
        show_text(f"chosen on validation: {s.use} by {s.estimator}, {s.voters} voters, decay {s.decay}")
    for note in found.notes:
        show_text(note)


def _interval(result: EstimatorResult) -> str:
    if result.test_gain is None:
        return ""
    mean, (low, high) = result.test_gain.mean, result.test_gain.ci95
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
