"""Sources: their scores, the effect of pruning, and pruning them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from ....engine.progress import CancelToken
from ....engine.store.decisions import Action as Verb
from ....engine.store.trials import SourceSummary
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...model import Empty
from ...tab import Tab
from ...widgets.curve import Curve, CurveData
from ...widgets.table import LineTable
from .model import Measured, SourcesModel, measure, read
from .rows import columns_for, source_line, verdict


class SourcesTab(Tab):
    NAME = "sources"
    TITLE = "Sources"
    ABOUT = "Which sources help, which hurt, and what pruning gains."
    ACTIONS = (
        Action("sources.prune", "x", "Prune", "Prune the source", "icl-curate prune --source NAME"),
        Action(
            "sources.keep", "r", "Keep", "Restore the source, or mark it as kept", "icl-curate restore --source NAME"
        ),
        Action("sources.tune", "t", "Tune", "Choose the threshold by the vote", "icl-curate prune --tune --by vote"),
        Action("sources.cut", "p", "Prune below", "Prune sources below the threshold", "icl-curate prune --below W"),
        Action("sources.lower", "h,left", "Lower", "Move the threshold down", footer=False, call="threshold(-1)"),
        Action("sources.raise", "l,right", "Threshold", "Move the threshold up", call="threshold(1)"),
        Action(
            "sources.look",
            "enter,o",
            "Look inside",
            "Show its demonstrations in Demos",
            "icl-curate demos --source NAME",
        ),
        Action("sources.estimator", "e", "Estimator", "Show the curve of the next estimator", footer=False),
        Action("sources.sort", "s", "Sort", "Sort by the next column", footer=False, call="sort(1)"),
        Action("sources.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.model: SourcesModel = SourcesModel()
        self._cancel = CancelToken()

    def compose_body(self) -> ComposeResult:
        yield LineTable([])
        with Vertical(id="pruning"):
            yield Static(id="verdict")
            yield Curve()

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def current(self) -> SourceSummary | None:
        return self.model.source(self.table.cursor)

    def read(self, workspace: Workspace) -> Sequence[SourceSummary] | Empty:
        return read(workspace)

    def show(self, found: Sequence[SourceSummary]) -> None:
        self._show_lines(self.model.arrange(self.table.cursor, found))
        self.set_class(not self.model.learnt, "-unlearnt")
        if self.model.learnt:
            work = lambda: measure(self.review.opened(), self.review.settings(), self._cancel)  # noqa: E731
            self.in_thread("measure", work, self._measured)
        else:
            self.query_one("#verdict", Static).update(verdict(self.model))

    def copied(self) -> str:
        return self.current.source if self.current else ""

    def on_unmount(self) -> None:
        self._cancel.cancel()

    # The table.

    def _arrange(self) -> None:
        self._show_lines(self.model.arrange(self.table.cursor))

    def _show_lines(self, cursor: int) -> None:
        model, table = self.model, self.table
        columns, below = columns_for(model.sources), model.below()
        table.sorted_by = model.sort, model.descending
        table.arrange_columns(columns)
        table.fill([source_line(s, columns, s.source in below) for s in model.sources])
        table.styles.max_height = len(model.sources) + 2
        table.cursor = cursor

    @on(LineTable.Sort)
    def _sort_by(self, event: LineTable.Sort) -> None:
        if self.model.sort_by(event.column):
            self._arrange()

    def action_sort(self, by: int) -> None:
        self.model.next_sort(by)
        self._arrange()

    def action_reverse(self) -> None:
        self.model.descending = not self.model.descending
        self._arrange()

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
        else:
            self.notify("no active source is below the threshold")

    def action_look(self) -> None:
        if self.current:
            self.review.visit("demos").show_source(self.current.source)  # type: ignore[attr-defined]

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        self.action_look()

    # The curve.

    def _measured(self, measured: Measured) -> None:
        self.model.take_measured(measured)
        if measured.curves is not None:
            self._draw()

    def _draw(self) -> None:
        points = self.model.points
        drawn = CurveData(
            [(point.dropped, point.accuracy) for point in points],
            [f"{point.threshold:.3f}" for point in points],
            points[0].accuracy,
            self.model.star,
        )
        self.query_one(Curve).draw(drawn, self.model.at)
        self._moved()

    def _moved(self) -> None:
        """The threshold was moved: show its effect."""
        self._arrange()
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

    def action_tune(self) -> None:
        tuned = self.model.tune()
        if tuned is None:
            self.notify("tuning needs source weights: icl-curate train sources", severity="warning")
            return
        self._draw()
        if not tuned.worth_it:
            self.notify("no pruning gains significantly")
