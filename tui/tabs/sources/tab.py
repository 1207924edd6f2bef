"""Sources: their scores, the effect of pruning by the vote and on served prompts, and pruning them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.base.progress import CancelToken, Event, Monitor
from ....engine.checks.ledger import LEVEL
from ....engine.store.decisions import Action as Verb
from ....engine.store.trials import SourceSummary
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.start import propose
from ...model import Empty
from ...tab import SortedTab
from ...widgets.plots import Curve, CurveData, Forest, ForestScale, Span
from ...widgets.table import LineTable
from ...workers import error_text, seldom
from .model import SourcesData, SourcesModel, columns_for, measure, read, served_verdict, source_line, verdict

if TYPE_CHECKING:
    from ....engine.trials.sources import VoteMeasurement


class SourcesTab(SortedTab):
    NAME = "sources"
    TITLE = "Sources"
    COMMAND = "icl-curate sources"
    ABOUT = (
        "Which sources help, which hurt, and what pruning gains. below: less than the threshold; partly: some of its "
        "rows are pruned."
    )
    PANES = "LineTable", "#pruning"
    TERMS = (
        "source", "weight", "estimator", "multilinear extension", "leave-one-out", "reliability", "vote", "trial",
        "cross-fitting", "served prompt", "prune, restore",
    )  # fmt: skip
    ACTIONS = (
        Action("sources.prune", "x", "Prune", "Prune the source", "icl-curate prune --source NAME"),
        Action("sources.keep", "r", "Restore", "Restore the source with all its rows, or mark it as kept",
               "icl-curate restore --source NAME"),
        Action("sources.tune", "t", "Tune", "Measure prunings with the served prompts (shows the cost first)",
               "icl-curate tune --propose", call="propose('tune --propose')"),
        Action("sources.learn", "w", "Learn", "Learn weights from the LLM's answers (shows the cost first)",
               "icl-curate train sources", call="propose('train sources')"),
        Action("sources.cut", "p", "Prune below", "Prune sources below the threshold of the estimator that is drawn",
               "icl-curate prune --source NAME"),
        Action("sources.accept", "a", "Accept", "Prune what the served prompts confirmed", "icl-curate tune apply"),
        Action("sources.lower", "h,left", "Lower", "Move the threshold down", call="threshold(-1)"),
        Action("sources.raise", "l,right", "Raise", "Move the threshold up", call="threshold(1)"),
        Action("sources.vote", "T", "By vote", "Go to the threshold that the vote chooses (no LLM calls)",
               "icl-curate tune vote", footer=False),
        Action("sources.view", "v", "Vote or served", "Where there is room for one: the vote or the prompts",
               footer=False),
        Action("sources.look", "enter,o", "Look inside", "Show its demonstrations in Demos",
               "icl-curate demos --source NAME"),
        Action("sources.estimator", "e", "Estimator", "Show the curve of the next estimator", footer=False),
        Action("sources.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("sources.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: SourcesModel = SourcesModel()
        self._cancel = CancelToken()

    def compose_body(self) -> ComposeResult:
        yield LineTable([])
        with Container(id="pruning"):
            with Vertical(id="vote"):
                yield Static(id="verdict", markup=False)
                yield Curve()
            with Vertical(id="served"):
                yield Static(id="served-verdict", markup=False)
                yield Forest()

    @property
    def current(self) -> SourceSummary | None:
        return self.model.source(self.table.cursor)

    def read(self, workspace: Workspace) -> SourcesData | Empty:
        return read(workspace, self.review.settings())

    def show(self, data: SourcesData) -> None:
        self.draw_table(data.sources)
        self.model.take_served(data.served)
        self.model.training, self.model.measuring = data.training, data.measuring
        self.model.left_out = data.left_out
        self._show_served()
        self.query_one("#verdict", Static).update(verdict(self.model))
        self.forget("measure")  # of the pool as it was
        self.model.unmeasured = ""
        if data.measured is not None:
            self._measured(data.measured)
        elif self.model.learnt:
            monitor = Monitor(seldom(lambda event: self.call_later(self._progressed, event)), self._cancel)
            work = lambda: measure(self.review.opened(), self.review.settings(), monitor)  # noqa: E731
            self.in_thread("measure", work, self._measured)

    def _progressed(self, event: Event) -> None:
        """Measuring the vote has reached ``event``."""
        self.model.progress = event
        if self.model.measured is None:
            self.query_one("#verdict", Static).update(verdict(self.model))

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "measure":
            self.model.unmeasured = error_text(error, ": ")
            self.query_one("#verdict", Static).update(verdict(self.model))

    def copied(self) -> str:
        return self.current.source if self.current else ""

    def on_unmount(self) -> None:
        self._cancel.cancel()

    # The table.

    def draw_table(self, sources: Sequence[SourceSummary] | None = None) -> None:
        model, table = self.model, self.table
        cursor = model.arrange(table.cursor, sources)
        columns, below = columns_for(model), model.below()
        table.sorted_by = model.sort, model.descending
        table.arrange_columns(columns)
        table.fill([source_line(s, columns, s.source in below) for s in model.sources])
        if str(self.id) not in self.review.borders:
            table.styles.max_height = len(model.sources) + 2
        table.cursor = cursor

    # Decisions.

    def action_prune(self) -> None:
        if self.current:
            self.review.decide("prune", "source", [self.current.source], "in review")

    def action_keep(self) -> None:
        if self.current:
            verb: Verb = "keep" if self.current.active == self.current.demonstrations else "restore"
            self.review.decide(verb, "source", [self.current.source], "in review")

    def action_cut(self) -> None:
        if names := self.model.to_cut():
            self.review.decide("prune", "source", names, f"{self.model.estimator} below {self.model.threshold:.3g}")
        elif self.model.learnt:
            self.notify("no active source is below the threshold")
        else:
            self.notify("nothing is weighed yet: w learns weights")

    @on(LineTable.Chosen)
    async def action_look(self) -> None:
        if here := self.current:
            (await self.review.visit("demos")).show_only(source=here.source)  # type: ignore[attr-defined]

    # Served prompts.

    def _show_served(self) -> None:
        model = self.model
        self.set_class(not model.learnt, "-unlearnt")
        self.set_class(not model.raced, "-unraced")
        self.set_class(model.panel == "vote", "-vote")
        self.on_resize()
        self.query_one("#served-verdict", Static).update(served_verdict(model))
        if raced := model.raced:
            spans = [Span(one.name, *(one.interval or (0.0, 0.0)), one.accuracy) for one in raced]
            look = ForestScale("accuracy, 95 %", level=raced[0].accuracy, names=24)
            self.query_one(Forest).draw(spans, look, next((i for i, one in enumerate(raced) if one.chosen), 0))

    def has_border(self) -> bool:
        """Below a table without anything learnt or raced there are two lines."""
        return (self.model.learnt or bool(self.model.raced)) and super().has_border()

    def action_propose(self, command: str) -> None:
        if not self.lacks():
            propose(self, [command])

    def action_accept(self) -> None:
        served = self.model.served
        if served is not None and served.is_open:
            self.review.revise(served.left, served.report.reason)
        else:
            self.notify("no confirmed pruning is left to decide: t measures again")

    def action_view(self) -> None:
        if all(pane.display for pane in self.query("#vote, #served")):
            self.notify("there is room for both")
            return
        self.model.switch_view()
        self._show_served()

    # The curve of the vote.

    def _measured(self, measured: VoteMeasurement) -> None:
        self.model.take_measured(measured)
        if measured.curves is not None:
            self._draw()
        else:
            self.query_one("#verdict", Static).update(verdict(self.model))

    def _draw(self) -> None:
        points = self.model.points
        drawn = CurveData(
            [(point.dropped, point.accuracy) for point in points], [f"{point.threshold:.3f}" for point in points],
            points[0].accuracy, self.model.star, [LEVEL * point.gain_error for point in points],
            x="sources below the threshold are dropped", y="accuracy of the vote, 95 % of its gain",
        )  # fmt: skip
        self.query_one(Curve).draw(drawn, self.model.at)
        self._moved()

    def _moved(self) -> None:
        """The threshold was moved: show its effect."""
        self.draw_table()
        self.query_one("#verdict", Static).update(verdict(self.model))

    def action_threshold(self, by: int) -> None:
        self._move_to(self.model.at + by)

    @on(Curve.Picked)
    def _picked(self, event: Curve.Picked) -> None:
        self._move_to(event.at)

    def _move_to(self, at: int) -> None:
        if self.model.points:
            self.model.move_to(at)
            self.query_one(Curve).at = self.model.at
            self._moved()

    def action_estimator(self) -> None:
        if self.model.next_estimator():
            self._draw()

    def action_vote(self) -> None:
        tuned = self.model.tune()
        if tuned is None:
            self.notify("the vote needs source weights: icl-curate train sources", severity="warning")
            return
        self.model.view = "vote"
        self._show_served()
        self._draw()
        if not tuned.worth_it:
            self.notify("no pruning gains significantly")
