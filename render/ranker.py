"""Output of the ranker: the training, and the ledger of demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.wording import counted
from .costs import answered
from .evaluation import judged
from .tables import Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.ranker.ledger import LedgerEntry
    from ..engine.ranker.results import RankerRun, RankerSeeds
    from ..engine.store.ledger import Flip


MOST_BATCHES = 12
"""Maximum batches listed of a training run: the first and the last."""


def show_ranker(done: RankerRun) -> None:
    """The training, batch by batch in short form, and the ranker's accuracy on held-out queries."""
    metrics = done.metrics
    batches = metrics.batches
    shown = batches if len(batches) <= MOST_BATCHES else [*batches[: MOST_BATCHES // 2], *batches[-MOST_BATCHES // 2 :]]
    if metrics.trials:
        show_text(
            "from trials: expected reward of held-out queries "
            f"{metrics.trials[0]:+.3f}, at best {max(metrics.trials):+.3f}"
        )
    rows: list[list[object]] = [[b.batch, b.loss, b.sigma, b.shots, b.calls, b.accuracy] for b in shown]
    left = len(batches) - len(shown)
    show_table(
        ["batch", "loss", "σ", "shots", "calls", "accuracy"], rows, note=f"{left} batches between" if left else ""
    )
    by_shots = "  ".join(f"{shots}: {value:.3f}" for shots, value in metrics.accuracy_by_shots.items())
    show_text(f"accuracy by shots  {by_shots}")
    best = metrics.best
    show_text(
        f"run {done.run}: {answered(done.usage, done.llm)}, "
        f"{counted(metrics.shots, 'shot')}; best epoch {best.epoch}, held-out accuracy {_share(best.accuracy)}"
    )
    if metrics.judge:
        show_text(judged(metrics.judge))
    if metrics.collapsed:
        show_text("the policy collapsed onto few demonstrations; the best earlier epoch is used")
    if batches:
        show_text(f"mean entropy of the first and last batch  {batches[0].entropy:.2f}, {batches[-1].entropy:.2f}")
    arms = "bm25,ranker-untrained,ranker" if metrics.method == "ranker" else f"bm25,{metrics.method}"
    show_text(f"next: icl-curate evaluate --methods {arms}; icl-curate demos --misleading")


def show_ranker_seeds(done: RankerSeeds) -> None:
    """Each seed's run with its best epoch."""
    rows = [[s.seed, s.run, s.best.epoch, s.best.accuracy, "collapsed" if s.collapsed else ""] for s in done.seeds]
    note = answered(done.usage, done.llm)
    show_table(["seed", "run", "best epoch", "held-out accuracy", ""], rows, note=note)
    count = len(done.seeds)
    show_text(f"next: icl-curate evaluate --methods bm25,{done.metrics.method} --seeds {count}")


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
    note = "effect: shrunken net effect on accuracy with 95 % interval; icl-curate demos --flips ID shows the prompts"
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


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f}"
