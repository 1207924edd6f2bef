"""Texts of the Sources tab: a source as a line, the effect of the threshold, and what the served prompts found."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ....engine.base.errors import counted
from ....engine.llm.spec import is_stand_in
from ....engine.pool.display import display_line
from ....engine.store.trials import SourceSummary
from ....render.columns import LineColumn
from ....render.pool import names_of
from ....render.sources import ESTIMATORS, RANKS
from ...widgets.lines import BarCell, Line
from .model import SourcesModel

LEARNT = {"bar", "weight", "leave-one-out", "reliability", "alone", "hits"}


DRAWN = {"multilinear": "weight"}
"""Columns of estimators that have another name."""


def columns_for(model: SourcesModel) -> list[LineColumn]:
    """The columns that have values; those of the curve's estimator and of the order stay at any width."""
    sources, learnt = model.sources, model.learnt
    stay = {DRAWN.get(model.estimator, model.estimator), model.sort} if learnt else {model.sort}
    widest = max((cell_len(display_line(s.source)) for s in sources), default=8)

    def figure(name: str, title: str, width: int) -> LineColumn:
        return LineColumn(name, title, width, right=True, rank=0 if name in stay else RANKS[name])

    columns = [
        LineColumn("source", "source", min(widest, 14), grow=1, most=max(widest, 8), cut="middle"),
        LineColumn("bar", "", 6, rank=RANKS["bar"], grow=2, most=24, sortable=False, picture=True),
        figure("weight", "weight", 7),
        figure("leave-one-out", "leave 1 out", 12),
        figure("reliability", "reliability", 12),
        figure("alone", "alone", 6),
        figure("hits", "hits", 7),
        figure("size", "size", 9),
        figure("pruned", "pruned", 9),
        figure("repeats", "repeats", 9),
        LineColumn("state", "", 6, sortable=False),
    ]
    return columns if learnt else [c for c in columns if c.name not in LEARNT]


def source_line(s: SourceSummary, columns: Sequence[LineColumn], below: bool) -> Line:
    """A source; ``below``: the threshold would prune it."""
    gone = s.demonstrations - s.active
    state = Text("below", "warn") if below and s.kept else "pruned" if not s.kept else "partly" if gone else ""
    weight = s.weight or 0.0
    values = {
        "source": s.source,
        "bar": BarCell(weight, "muted" if not s.kept else "good" if weight >= 0.5 else "bad"),
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
    """By the vote: what the threshold would drop and gain, and the result of tuning."""
    title = Text.assemble(("Vote of single answers", "primary"))
    if not model.learnt and model.training:
        return title.append(f"\n{model.training}", "accent")
    if not model.learnt:
        title.append("\nsource weights not learned yet: ", "muted").append("icl-curate train sources", "accent")
        return title.append("\nw", "accent").append(" shows what that costs, and starts it", "muted")
    title.append(" (each demonstration alone, not what is served)", "muted")
    if not model.points:
        return title.append(
            f"\n{_measuring(model)}" if model.measured is None else "\nno answers to draw it from", "muted"
        )
    points, below = model.points, model.below()
    point, start = points[model.at], points[0]
    size = sum(s.demonstrations for s in model.sources if s.source in below)
    gain = point.accuracy - start.accuracy
    text = Text.assemble(
        title, "\n",
        (model.estimator, "title"), (" below ", "muted"), (f"{point.threshold:.3f}", "accent"),
        (" drops ", "muted"), f"{point.dropped:,}/{len(model.sources):,}",
        (f" ({counted(size, 'row')}), accuracy ", "muted"),
        f"{start.accuracy:.3f} → ",
        (f"{point.accuracy:.3f}", "good" if gain > 0 else "bad" if gain < 0 else ""),
    )  # fmt: skip
    text.append("\n").append_text(_advice(model))
    about = ESTIMATORS.get(model.estimator)
    return text.append(f"\n{model.estimator}: {about}", "muted") if about else text


def _measuring(model: SourcesModel) -> str:
    now = model.progress
    return f"measuring: {now.done / now.total:.0%}" if now and now.total else "measuring …"


def _advice(model: SourcesModel) -> Text:
    tuned = model.tuned
    if tuned is None:
        return Text("too few validation queries to choose a threshold", "muted")
    figures = f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}"
    if not tuned.worth_it:
        return Text(f"{figures}: not significant, tuning would prune nothing", "muted")
    names = display_line(names_of(tuned.pruned, 4))
    return Text.assemble(("◆ ", "good"), (f"tuned: {tuned.estimator}, {figures}, drops {names}", "muted"))


def served_verdict(model: SourcesModel) -> Text:
    """By the served prompts: how they were measured, the best candidate, the expected gain, and what can be done."""
    title = Text.assemble(("Served prompts", "primary"))
    stored = model.served
    if model.measuring:
        return title.append(f"\nbeing measured: {model.measuring}", "accent")
    if stored is None or stored.report.confirmed is None:
        return title.append_text(
            Text.assemble(("\nnot measured yet: ", "muted"), ("t", "accent"),
                          (" shows what it costs and starts the race of candidate prunings", "muted"))
        )  # fmt: skip
    report, confirmed, best = stored.report, stored.report.confirmed, stored.report.chosen
    served = report.served
    title.append(f" (k-shot, {served.method}, k = {served.k}, {display_line(report.llm, 60)}; ", "muted")
    title.append(f"{confirmed.queries:,} of {counted(confirmed.available, 'query')}, run {report.run})", "muted")
    if best is None or not best.changes:
        return title.append(f"\nbest: keep everything, {confirmed.before:.3f}; nothing to prune").append_text(
            _age(model)
        )
    low, high = best.interval or (0.0, 0.0)
    changed = best.rows_told if best.relabelled else f"prunes {best.rows_told}"
    accepts = "accepts" if best.relabelled else "prunes"
    style = "good" if report.worth_it else "muted"
    title.append_text(
        Text.assemble(
            ("\nbest ", "muted"), (display_line(best.name, 60), "title"), f" {best.accuracy:.3f}",
            (f" (95 % {low:.3f}–{high:.3f}), {changed}", "muted"),
            ("\nexpected gain ", "muted"), (f"{confirmed.gain:+.3f}", style),
            (f" (95 % {confirmed.low:+.3f} to {confirmed.high:+.3f})", "muted"),
        )
    )  # fmt: skip
    if report.undecided:
        title.append(f": nothing is decided, {display_line(report.undecided)}", "warn")
    elif not report.worth_it:
        title.append(": not beyond noise, nothing to prune", "muted")
    elif stored.is_open:
        title.append_text(Text.assemble((": ", "muted"), ("a", "accent"), (f" {accepts} it", "muted")))
    else:
        title.append(": pruned", "good")
    if (other := report.more_accurate) is not None:
        told = f"\nnot told apart from {display_line(other.name, 60)} ({other.accuracy:.3f}); evidence on rows decided"
        title.append(told, "muted")
    return title.append_text(_age(model))


def _age(model: SourcesModel) -> Text:
    """What makes the figures worth less: the stand-in, an early end, a pool that has changed since."""
    stored = model.served
    assert stored is not None
    report, warnings = stored.report, []
    if is_stand_in(report.llm):
        warnings.append("offline is not an LLM: these figures say nothing about your LLM")
    if report.stopped:
        warnings.append(display_line(report.stopped, 200))
    decisions = stored.decisions - (report.worth_it and not stored.is_open)  # without the one on the report
    changed = ((stored.rows_changed, "row"), (decisions, "decision"))
    if changes := [counted(count, what) for count, what in changed if count > 0]:
        warnings.append(f"since then changed: {', '.join(changes)}")
    return Text("".join(f"\n{one}" for one in warnings), "warn")
