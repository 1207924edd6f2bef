"""Texts of the Sources tab: a source as a line, and the effect of the threshold."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ....engine.pool.display import display_line
from ....engine.store.trials import SourceSummary
from ...widgets.lines import Bar, Column, Line
from .model import SourcesModel

LEARNT = {"bar", "weight", "leave-one-out", "reliability", "alone", "hits"}


def columns_for(sources: Sequence[SourceSummary]) -> list[Column]:
    """The columns that have values."""
    learnt = any(s.weight is not None for s in sources)
    widest = max((cell_len(display_line(s.source)) for s in sources), default=8)
    columns = [
        Column("source", "source", min(widest, 14), grow=1, most=max(widest, 8)),
        Column("bar", "", 6, rank=3, grow=2, most=24, sortable=False),
        Column("weight", "weight", 7, right=True),
        Column("leave-one-out", "leave 1 out", 12, right=True, rank=4),
        Column("reliability", "reliability", 12, right=True, rank=5),
        Column("alone", "alone", 6, right=True, rank=2),
        Column("hits", "hits", 7, right=True, rank=7),
        Column("size", "size", 9, right=True, rank=1),
        Column("pruned", "pruned", 9, right=True, rank=8),
        Column("repeats", "repeats", 9, right=True, rank=9),
        Column("state", "", 6, sortable=False),
    ]
    return columns if learnt else [c for c in columns if c.name not in LEARNT]


def source_line(s: SourceSummary, columns: Sequence[Column], below: bool) -> Line:
    """A source; ``below``: the threshold would prune it."""
    gone = s.demonstrations - s.active
    state = Text("below", "warn") if below and s.kept else "pruned" if not s.kept else "partly" if gone else ""
    weight = s.weight or 0.0
    values = {
        "source": s.source,
        "bar": Bar(weight, "muted" if not s.kept else "good" if weight >= 0.5 else "bad"),
        "weight": s.weight,
        "leave-one-out": s.leave_one_out,
        "reliability": s.reliability,
        "alone": s.accuracy,
        "hits": s.hits,
        "size": s.demonstrations,
        "pruned": gone or "",
        "repeats": s.duplicates or "",
        "state": state,
    }
    return Line(tuple(values[c.name] for c in columns), "" if s.kept else "muted")


def verdict(model: SourcesModel) -> Text:
    """What the threshold would drop and gain, and the result of tuning."""
    if not model.learnt:
        return Text.assemble(("Source weights not learned yet: ", "muted"), ("icl-curate train sources", "accent"))
    points, below = model.points, model.below()
    point, start = points[model.at], points[0]
    size = sum(s.demonstrations for s in model.sources if s.source in below)
    gain = point.accuracy - start.accuracy
    text = Text.assemble(
        (model.estimator, "title"), (" below ", "muted"), (f"{point.threshold:.3f}", "accent"),
        (" drops ", "muted"), f"{point.dropped:,}/{len(model.sources):,}", (f" ({size:,} rows), accuracy ", "muted"),
        f"{start.accuracy:.3f} → ",
        (f"{point.accuracy:.3f}", "good" if gain > 0 else "bad" if gain < 0 else ""),
    )  # fmt: skip
    return text.append("\n").append_text(_advice(model))


def _advice(model: SourcesModel) -> Text:
    tuned = model.tuned
    if tuned is None:
        return Text("too few validation queries to choose a threshold", "muted")
    figures = f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}"
    if not tuned.worth_it:
        return Text(f"{figures}: not significant, tuning would prune nothing", "muted")
    names = display_line(", ".join(tuned.pruned), 200)
    return Text.assemble(("◆ ", "good"), (f"tuned: {tuned.estimator}, {figures}, drops {names}", "muted"))
