"""Output of the ranker: the training, and the ledger of demonstrations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from .costs import answered
from .evaluation import judged
from .tables import Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.checks.ledger import LedgerEntry
    from ..engine.store.trials import Flip
    from ..engine.trials.results import RankerMetrics, RankerRun, RankerSeeds, SeedFigures


MOST_BATCHES = 12
"""Maximum batches listed of a training run: the first and the last."""

FEW = 50
"""Held-out queries below which the accuracies of epochs differ by little more than chance."""


def show_ranker(done: RankerRun) -> None:
    """The training, batch by batch in short form, and the ranker's accuracy on held-out queries."""
    metrics = done.metrics
    batches = metrics.batches
    shown = batches if len(batches) <= MOST_BATCHES else [*batches[: MOST_BATCHES // 2], *batches[-MOST_BATCHES // 2 :]]
    if metrics.trials is not None:
        show_text(f"from trials: {from_trials(metrics)}")
    rows: list[list[object]] = [[b.batch, b.loss, b.sigma, b.shots, b.calls, b.accuracy] for b in shown]
    left = len(batches) - len(shown)
    show_table(
        ["batch", "loss", "σ", "shots", "calls", "accuracy"], rows, note=f"{left} batches between" if left else ""
    )
    by_shots = "  ".join(f"{shots}: {value:.3f}" for shots, value in metrics.accuracy_by_shots.items())
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
    show_text(f"next: icl-curate evaluate --methods {arms}; icl-curate flips --misleading")


def show_ranker_seeds(done: RankerSeeds) -> None:
    """Each seed's run with what was kept of it."""
    rows = [[s.seed, s.run, _what(s), s.best.accuracy, "collapsed" if s.collapsed else ""] for s in done.seeds]
    note = answered(done.usage, done.llm)
    show_table(["seed", "run", "kept", _judged_by(done.metrics), ""], rows, note=note)
    count = len(done.seeds)
    show_text(f"next: icl-curate evaluate --methods bm25,{done.metrics.method} --seeds {count}")


def kept(metrics: RankerMetrics) -> str:
    """What was kept of a training, and how accurate it is on the queries that chose it."""
    told, best = f"{_what(metrics)} kept", metrics.best
    if best.accuracy is None:
        return told
    line = f"{told}, {_judged_by(metrics)} {best.accuracy:.3f}"
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


def show_ledger(found: Sequence[LedgerEntry]) -> None:
    """The effects of single demonstrations on answers."""
    rows = [
        [
            s.id,
            s.source,
            "pruned" if s.pruned else "",
            s.shown,
            s.helped,
            s.hurt,
            s.estimate,
            f"{s.low:+.3f} to {s.high:+.3f}",
        ]
        for s in found
    ]
    note = "effect: shrunken net effect on accuracy with 95 % interval; icl-curate flips show ID shows the prompts"
    heads: list[str | Head] = [
        Head("id", cut="start"), Head("source", 4, "middle"), "", Head("shown", 5), Head("helped", 3), Head("hurt", 2),
        Head("effect"), Head("95 %", 1),
    ]  # fmt: skip
    show_table(heads, rows, note=note)


def show_flips(found: Sequence[Flip]) -> None:
    """The queries whose answer flipped when a demonstration was added."""
    rows = [
        [f.query_id, f.query_input, f.answer_before, f.answer_after, "helped" if f.helped else "hurt", len(f.shown)]
        for f in found
    ]
    show_table(["query", "input>", "before", "after", "", "shots"], rows)
