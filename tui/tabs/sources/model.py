"""State of the Sources tab: the sources in order, the vote's curve with a threshold on it, and what the served prompts
have measured. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.text import Text

from ....engine.base.errors import counted
from ....engine.base.progress import Event, Monitor
from ....engine.curate.results import CandidateResult
from ....engine.curate.stored import StoredTuning, stored_tuning
from ....engine.jobs.folder import doing, jobs
from ....engine.llm.graded import grading_set, left_out
from ....engine.llm.marks import figure, metric_name
from ....engine.llm.spec import is_stand_in
from ....engine.pool.display import display_line, display_text
from ....engine.store.settings import Settings
from ....engine.store.trials import KIND, SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ....render.learned import ESTIMATORS, RANKS
from ....render.pool import names_of
from ....render.tables import change
from ...model import Empty, SortedModel, beside
from ...widgets.lines import BarCell, Line

if TYPE_CHECKING:  # imports numba when it computes; the tab is shown before that
    from ....engine.trials.results import CurvePoint
    from ....engine.trials.sources import VoteMeasurement, VoteTuneReport


@dataclass(frozen=True, slots=True)
class SourcesData:
    """The sources, and the latest race with served prompts, None before the first."""

    sources: Sequence[SourceSummary]
    served: StoredTuning | None
    training: str = ""
    measuring: str = ""
    """The job that learns weights, and the one that measures served prompts, in words."""
    measured: VoteMeasurement | None = None
    """The effect of pruning by the vote, if it was computed before."""
    left_out: str = ""
    """Which answers tell nothing of the sources, as they were graded otherwise."""


def read(workspace: Workspace, settings: Settings | None = None) -> SourcesData | Empty:
    """The sources of the current workspace; with ``settings`` those learnt from answers that are graded as these say,
    and the vote, if it was measured before."""
    sources = source_summaries(workspace, grading_set(workspace, settings) if settings else None)
    if not sources:
        return Empty("The pool is empty", "Sources appear here after indexing.", "icl-curate index POOL.jsonl")
    listed, measured = jobs(workspace), None
    others = left_out(workspace, settings, kinds=(KIND,)) if settings else []
    if settings is not None and any(one.weight is not None for one in sources):
        from ....engine.trials.sources import stored_vote

        measured = stored_vote(workspace, settings)
    training, measuring = (job.in_words if (job := doing(listed, kind)) else "" for kind in ("train-sources", "tune"))
    return SourcesData(sources, stored_tuning(workspace), training, measuring, measured, "; ".join(others))


def measure(workspace: Workspace, settings: Settings, monitor: Monitor) -> VoteMeasurement:
    """The effect of pruning by each estimator, and the choice on validation; no LLM is called. For threads."""
    from ....engine.trials.sources import measure_vote

    return measure_vote(workspace, settings, monitor)


class SourcesModel(SortedModel):
    """The table of sources, and a threshold for pruning."""

    SORTS: ClassVar[Mapping[str, Callable[[SourceSummary], Any]]] = {
        "source": lambda s: s.source.lower(),
        "weight": lambda s: s.weight,
        "leave-one-out": lambda s: s.leave_one_out,
        "reliability": lambda s: s.reliability,
        "alone": lambda s: s.accuracy,
        "hits": lambda s: s.hits,
        "size": lambda s: s.demonstrations,
        "pruned": lambda s: s.demonstrations - s.active,
        "repeats": lambda s: s.duplicates,
    }
    RISING = frozenset({"source"})

    def __init__(self) -> None:
        super().__init__("weight")
        self.sources: list[SourceSummary] = []
        """In the order of the table."""
        self.measured: VoteMeasurement | None = None
        self.served: StoredTuning | None = None
        """The latest race with served prompts."""
        self.training = self.measuring = ""
        """What a job is doing, in words, as in `SourcesData`."""
        self.left_out = ""
        self.progress: Event | None = None
        """How far the vote is measured."""
        self.unmeasured = ""
        """Why it is not."""
        self.view = ""
        """``vote`` or ``served``, where there is only room for one; empty: not chosen."""
        self.estimator = ""
        self.at = 0
        """The index of the curve's point at the threshold."""
        self._measured_for: tuple[int, int] | None = None
        """Run and k of the curve on which the threshold was set."""

    def remember(self) -> dict[str, Any]:
        return super().remember() | {"estimator": self.estimator}

    def recall(self, stored: dict[str, Any]) -> None:
        super().recall(stored)
        self.estimator = str(stored.get("estimator", ""))

    # The table.

    @property
    def learnt(self) -> bool:
        """Whether any source has a weight."""
        return any(s.weight is not None for s in self.sources)

    def source(self, at: int) -> SourceSummary | None:
        return self.sources[at] if at < len(self.sources) else None

    def arrange(self, cursor: int, sources: Sequence[SourceSummary] | None = None) -> int:
        """Sort the sources, or newly read ones; returns the line of the one that was at ``cursor``."""
        here = self.source(cursor)
        self.sources = self.in_order(self.sources if sources is None else sources)
        return next((i for i, s in enumerate(self.sources) if here and s.source == here.source), cursor)

    # Served prompts.

    @property
    def panel(self) -> str:
        """What is shown where there is only room for one: the served prompts, unless only the vote has something to
        show or the other one was chosen."""
        return self.view or ("vote" if self.served is None and self.learnt else "served")

    def take_served(self, served: StoredTuning | None) -> None:
        """Set the latest race; a new one is shown, whatever was shown before."""
        if served is not None and (self.served is None or served.started_at != self.served.started_at):
            self.view = ""
        self.served = served

    def switch_view(self) -> None:
        """Show the vote instead of the served prompts, or the other way round."""
        self.view = "vote" if self.panel == "served" else "served"

    @property
    def raced(self) -> list[CandidateResult]:
        """The candidates that were asked: keeping everything first, then the best, then the others by accuracy."""
        if self.served is None:
            return []
        everything, *others = [one for one in self.served.report.candidates if one.accuracy is not None]
        return [everything, *sorted(others, key=lambda one: (not one.chosen, -(one.accuracy or 0.0)))]

    # The curve of the vote.

    def take_measured(self, measured: VoteMeasurement) -> None:
        """Set the curves; the threshold is kept while they are of the same training."""
        self.measured = measured
        if measured.curves is None:
            return
        names, which = list(measured.curves.curves), (measured.curves.run, measured.curves.k)
        if self.estimator not in names:
            self.estimator = measured.tuned.estimator if measured.tuned else names[0]
        if which != self._measured_for:
            self._measured_for = which
            self._to_star()
        self.move_to(self.at)

    @property
    def tuned(self) -> VoteTuneReport | None:
        """The choice on validation."""
        return self.measured.tuned if self.measured else None

    @property
    def points(self) -> Sequence[CurvePoint]:
        """The estimator's curve."""
        if self.measured is None or self.measured.curves is None:
            return ()
        return self.measured.curves.curves.get(self.estimator, ())

    @property
    def star(self) -> int | None:
        """The point chosen by tuning, on the curve of its estimator."""
        tuned = self.tuned
        if tuned is None or not tuned.worth_it or tuned.estimator != self.estimator:
            return None
        return next((i for i, point in enumerate(self.points) if point.dropped == len(tuned.pruned)), None)

    @property
    def threshold(self) -> float | None:
        """The current threshold; None without a curve."""
        return self.points[self.at].threshold if self.points else None

    def below(self) -> set[str]:
        """The sources with scores below the threshold."""
        threshold = self.threshold
        if threshold is None or self.measured is None or self.measured.curves is None:
            return set()
        return {name for name, score in self.measured.curves.scores[self.estimator].items() if score < threshold}

    def move_to(self, at: int) -> None:
        """Move the threshold to this point, or to the nearest end."""
        self.at = max(0, min(at, len(self.points) - 1))

    def next_estimator(self) -> bool:
        """Show the curve of the next estimator; False if there is none."""
        if self.measured is None or self.measured.curves is None:
            return False
        self.estimator = beside(self.measured.curves.curves, self.estimator)
        self._to_star()
        return True

    def tune(self) -> VoteTuneReport | None:
        """Move to the threshold chosen on validation; None if there is nothing to choose on."""
        if self.tuned:
            self.estimator = self.tuned.estimator
            self._to_star()
        return self.tuned

    def to_cut(self) -> list[str]:
        """Sources below the threshold that are still active."""
        below = self.below()
        return [s.source for s in self.sources if s.source in below and s.active]

    def _to_star(self) -> None:
        self.at = self.star or 0


LEARNT = {"bar", "weight", "leave-one-out", "reliability", "alone", "hits"}

DRAWN = {"multilinear": "weight"}
"""Columns of estimators that have another name."""


def columns_for(model: SourcesModel) -> list[LineColumn]:
    """The columns that have values; those of the curve's estimator and of the order stay at any width."""
    sources, learnt = model.sources, model.learnt
    stay = {DRAWN.get(model.estimator, model.estimator), model.sort} if learnt else {model.sort}
    widest = max((cell_len(display_line(s.source)) for s in sources), default=8)

    def figure(name: str, title: str, width: int) -> LineColumn:
        return LineColumn(name, title, width, right=True, rank=0 if name in stay else RANKS[name], sortable=True)

    columns = [
        LineColumn("source", "source", min(widest, 14), grow=1, most=max(widest, 8), cut="middle", sortable=True),
        LineColumn("bar", "", 6, rank=RANKS["bar"], grow=2, most=24, picture=True),
        figure("weight", "weight", 7),
        figure("leave-one-out", "leave 1 out", 12),
        figure("reliability", "reliability", 12),
        figure("alone", "alone", 6),
        figure("hits", "hits", 7),
        figure("size", "size", 9),
        figure("pruned", "pruned", 9),
        figure("repeats", "repeats", 9),
        LineColumn("state", "", 6),
    ]
    return columns if learnt else [c for c in columns if c.name not in LEARNT]


def source_line(s: SourceSummary, columns: Sequence[LineColumn], below: bool) -> Line:
    """A source; ``below``: the threshold would prune it."""
    gone = s.demonstrations - s.active
    state = Text("below", "warn") if below and s.kept else "pruned" if not s.kept else "partly" if gone else ""
    weight = s.weight or 0.0
    values = {name: value(s) for name, value in SourcesModel.SORTS.items()} | {
        "source": s.source,
        "bar": BarCell(weight, "muted" if not s.kept else "good" if weight >= 0.5 else "bad"),
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
        title.append(f"\n{model.left_out or 'source weights not learned yet: '}", "muted")
        title.append("" if model.left_out else "icl-curate train sources", "accent")
        return title.append("\nw", "accent").append(" shows what that costs, and starts it", "muted")
    title.append(" (each demonstration alone, not what is served)", "muted")
    if not model.points:
        now = model.progress
        measuring = f"measuring: {now.done / now.total:.0%}" if now and now.total else "measuring …"
        why = model.unmeasured or (measuring if model.measured is None else "no answers to draw it from")
        return title.append(f"\n{display_text(why)}", "muted")
    points, below = model.points, model.below()
    point, start = points[model.at], points[0]
    size = sum(s.active for s in model.sources if s.source in below)
    gain = point.accuracy - start.accuracy
    text = Text.assemble(
        title, "\n",
        (model.estimator, "title"), (" below ", "muted"), (f"{point.threshold:.3f}", "accent"),
        (" drops ", "muted"), f"{point.dropped:,}/{len(model.sources):,}",
        (f" ({counted(size, 'row')}), accuracy ", "muted"),
        f"{figure(start.accuracy)} → ",
        (figure(point.accuracy), "good" if gain > 0 else "bad" if gain < 0 else ""),
    )  # fmt: skip
    text.append("\n").append_text(_advice(model))
    about = ESTIMATORS.get(model.estimator)
    return text.append(f"\n{model.estimator}: {about}", "muted") if about else text


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
    """By the served prompts: what can be done and what speaks against it, as a small pane shows only the beginning;
    then the expected gain, the best candidate, and how they were measured."""
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
    asked = f"{confirmed.queries:,} of {counted(confirmed.available, 'query')}, run {report.run}"
    measured = f"\nk-shot, {served.method}, k = {served.k}, {display_line(report.llm, 60)}; {asked}"
    if best is None or not best.changes:
        title.append(f": best keep everything, {figure(confirmed.before)}; nothing to prune")
        return title.append_text(_age(model)).append(measured, "muted")
    changed = best.rows_told if best.relabelled else f"prunes {best.rows_told}"
    accepts = "accepts" if best.relabelled else "prunes"
    style = "good" if report.worth_it else "muted"
    if report.undecided:
        title.append(f": nothing is decided, {display_line(report.undecided)}", "warn")
    elif not report.worth_it:
        title.append(": gain not beyond noise, nothing to prune", "muted")
    elif stored.is_open:
        title.append_text(
            Text.assemble((": gain beyond noise, ", "muted"), ("a", "accent"), (f" {accepts} it", "muted"))
        )
    else:
        title.append(": pruned", "good")
    title.append_text(_age(model)).append_text(
        Text.assemble(
            ("\nexpected gain ", "muted"), (change(confirmed.gain, confirmed.low, confirmed.high), style),
            ("\nbest ", "muted"), (display_line(best.name, 60), "title"), f" {metric_name(report.graded_by)} ",
            figure(best.accuracy, best.interval), (f", {changed}", "muted"),
        )
    )  # fmt: skip
    if (other := report.more_accurate) is not None:
        name = display_line(other.name, 60)
        told = f"\nnot told apart from {name} ({figure(other.accuracy)}); evidence on rows decided"
        title.append(told, "muted")
    return title.append(measured, "muted")


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
