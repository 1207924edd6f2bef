"""Evaluate: stored comparisons of selection methods, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.llm.marks import figure
from ....engine.pool.display import display_line, display_text
from ....engine.store.browse import Listed, listed, pruned_rows
from ....engine.store.runs import QueryOutcome
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ....render.preview import how_read
from ...actions import Action
from ...dialogs.dialog import Dialog
from ...dialogs.start import propose
from ...model import Empty, PoolRow
from ...row_keys import RowKeys, RowTable, row_actions
from ...tab import SortedTab
from ...widgets.bars import KeyBar
from ...widgets.demonstration import read_details
from ...widgets.lines import Line, cut
from ...widgets.matrix import Matrix
from ...widgets.plots import Forest, ForestScale, Span
from ...widgets.reader import Detail
from ...widgets.table import LineTable
from ...workers import at_rest, error_text, later
from .model import (
    RUN_COLUMNS,
    EvaluateData,
    EvaluateModel,
    MethodQueries,
    against,
    cell_line,
    measured,
    method_columns,
    query_columns,
    query_line,
    read,
    run_line,
)

SHOTS = (
    LineColumn("place", "", 2, right=True),
    LineColumn("id", "id", 8, rank=4, grow=1, most=20, cut="start"),
    LineColumn("source", "source", 8, rank=3, grow=1, most=20, cut="middle"),
    LineColumn("input", "input", 16, grow=6),
    LineColumn("output", "output", 10, grow=2, most=32),
    LineColumn("state", "", 6, rank=1),
)


@dataclass(frozen=True, slots=True)
class OutcomeOf:
    """Whose outcome it is: a run, a method, and the ``other`` one that it is compared with; ``metric``: the one that an
    answer can be right in part by, empty if there is none."""

    run: int
    method: str
    other: str | None
    metric: str = ""


class OutcomeDialog(Dialog[None], RowKeys):
    """Shows a `QueryOutcome` above its demonstrations, best first, without those that no longer exist."""

    TITLE = "Query"
    ABOUT = "A query of an evaluation, and what was in its prompt. ✗ pruned."
    ACTIONS = (
        *row_actions("outcome"),
        Action("outcome.undo", "u", "Undo", "Undo the latest decision", "icl-curate undo"),
        Action("outcome.close", "escape,q", "Close", "Back to the queries"),
    )

    def __init__(self, outcome: QueryOutcome, of: OutcomeOf) -> None:
        super().__init__()
        self._outcome, self._of = outcome, of
        self._shots: Sequence[Listed] = ()
        self._look_soon = at_rest(self, 0.06, self._look)
        self.table = RowTable(SHOTS, marked=lambda line: False, message="reading …", moved=self._look_soon)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog outcome"):
            with VerticalScroll(can_focus=False, id="told"):
                yield Static(_text(self._outcome, self._of), id="outcome")
            yield Static(Text(f"shown by {display_line(self._of.method)}, best first", "primary"), id="shown")
            yield self.table
            yield Detail()
        yield KeyBar(["close"])

    def on_mount(self) -> None:
        self.table.focus()
        self.reload()

    def reload(self) -> None:
        """Read the demonstrations again: a decision was made."""
        rows = np.array(self._outcome.demonstrations, np.int64)

        def read() -> list[Listed]:
            workspace = self.review.opened()
            return listed(workspace, rows, pruned_rows(workspace))

        self.in_thread("load", read, self._show)

    def _show(self, shots: Sequence[Listed]) -> None:
        self._shots = shots
        self.table.message = "no demonstrations"
        self.table.fill([_line(place, shot, self._outcome.wanted) for place, shot in enumerate(shots, 1)])
        self.refresh_bindings()
        self._look_soon()

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "load":
            self.table.message = error_text(error, ": ")
            self.table.refresh()

    def row_here(self) -> PoolRow | None:
        at = self.table.cursor
        if at >= len(self._shots):
            return None
        reason = f"in review, in the prompt of {self._outcome.id} ({self._of.method}, run {self._of.run})"
        return PoolRow(self._shots[at].row, self._shots[at].id, reason)

    def row_decided(self) -> None:
        self.reload()

    def _look(self) -> None:
        row = self.row_here()
        if row is not None:
            show = self.query_one(Detail).show_row
            self.in_thread("detail", lambda: read_details(self.review.opened(), row.row), show)

    @on(RowTable.Chosen)
    def _inspect(self) -> None:
        self.add_class("-inspecting")
        self.call_after_refresh(self.query_one(Detail).focus)

    def action_undo(self) -> None:
        self.review.undo(self.reload)

    def action_close(self) -> None:
        """From the demonstration to the list, and from there to the queries."""
        if self.has_class("-inspecting"):
            self.remove_class("-inspecting")
            self.table.focus()
        else:
            self.dismiss()


def _line(place: int, shot: Listed, wanted: str) -> Line:
    output = Text(display_line(shot.output), "good" if shot.output == wanted else "")
    state = Text("pruned", "bad") if shot.pruned else Text()
    cells = (Text(str(place), "muted"), shot.id, shot.source, display_line(shot.input), output, state)
    return Line(cells, "muted" if shot.pruned else "", ("✗", "bad") if shot.pruned else (" ", ""))


def _text(outcome: QueryOutcome, of: OutcomeOf) -> Text:
    text = Text.assemble((display_line(outcome.id, 80), "title"), "\n", cut(outcome.input))
    text.append("\nwanted  ", "primary").append(display_line(outcome.wanted, 600))
    _answer(text, of.method, of.metric, outcome.answer, outcome.failure, outcome.right)
    if outcome.uncertainty is not None:
        text.append(f"  uncertainty {outcome.uncertainty:.3f}", "muted")
    if of.other is not None and outcome.other_right is not None:
        _answer(text, of.other, of.metric, outcome.other_answer, "no answer", outcome.other_right)
    if told := how_read(outcome.how, outcome.reply, outcome.answer):
        text.append(f"\n{display_text(told)}", "muted")
    return text


def _answer(text: Text, method: str, metric: str, answer: str | None, failure: str, right: float | None) -> None:
    text.append(f"\n{display_line(method)}  ", "primary")
    style = "good" if right == 1 else "warn" if right and metric else "bad"
    text.append(display_line(answer if answer is not None else failure, 600), style)
    if right is not None and metric:
        text.append(f"  {metric} {figure(right)}", "warn")
    elif right is not None and 0 < right < 1:
        text.append(f"  right under {right:.0%} of the seeds", "warn")


class EvaluateTab(SortedTab):
    NAME = "evaluate"
    TITLE = "Evaluate"
    ABOUT = (
        "Which selection method answers best, on queries not used for training. easy, hard: accuracy on queries "
        "that are answered right, or wrong, zero-shot."
    )
    PANES = "#methods", "#queries"
    TERMS = ("shots", "easy, hard queries", "confidence interval", "scored, generated", "utility")
    ACTIONS = (
        Action("evaluate.new", "n", "New", "Run a new comparison (shows the cost first)", "icl-curate evaluate"),
        Action("evaluate.older", "h,left", "Older", "Previous run", "icl-curate evaluate", call="run(1)"),
        Action("evaluate.newer", "l,right", "Newer", "Next run", call="run(-1)"),
        Action("evaluate.open", "o", "Queries", "Show or hide single queries", call="queries"),
        Action("evaluate.confusion", "c", "Confusion", "Show which labels are answered for which",
               "icl-curate evaluate --confusion"),
        Action("evaluate.filter", "f", "Won or lost", "Filter queries: all, lost, won, wrong", call="filter"),
        Action("evaluate.back", "escape", "", "Back to the methods", footer=False),
        Action("evaluate.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("evaluate.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: EvaluateModel = EvaluateModel()
        self.queries = LineTable((), id="queries", message="reading …")

    def compose_body(self) -> ComposeResult:
        yield Static(id="measured")
        yield LineTable((), id="methods")
        with Horizontal(id="plots"):
            yield Forest(id="intervals")
            yield Forest(id="easy-hard")
        with Vertical(id="confusion"):
            yield Static(id="cell", markup=False)
            yield Matrix()
        yield LineTable(RUN_COLUMNS, id="runs")
        yield Static(id="versus")
        yield self.queries

    def on_mount(self) -> None:
        self._soon = later(self, 0.15, self._load_queries)

    def read(self, workspace: Workspace) -> EvaluateData | Empty:
        return read(workspace)

    def show(self, found: EvaluateData) -> None:
        self.model.found = found
        self.draw_table()

    def copied(self) -> str:
        return self.model.copied()

    # Actions.

    def action_new(self) -> None:
        """Also available without any evaluation."""
        command = self.model.found.command if self.model.found else "evaluate"
        if self.nothing:
            command = self.nothing.command.removeprefix("icl-curate ")
        if command.startswith("evaluate") or not self.lacks():
            propose(self, [command])

    def action_run(self, by: int) -> None:
        before = self.model.run
        self.model.step(by)
        if self.model.run is before:
            self.notify("there is no " + ("older run" if by > 0 else "newer one"))
        self.draw_table()

    @on(LineTable.Moved, "#methods")
    def _moved(self) -> None:
        for forest in self.query(Forest):
            forest.point(self.table.cursor)
        self._soon()

    @on(LineTable.Chosen, "#runs")
    def _run_chosen(self, event: LineTable.Chosen) -> None:
        self._choose(event.index)
        self.table.focus()

    @on(LineTable.Moved, "#runs")
    def _run_moved(self, event: LineTable.Moved) -> None:
        if event.table.has_focus:
            self._choose(event.table.cursor)

    def _choose(self, at: int) -> None:
        self.model.choose(at)
        self.draw_table()

    # The current run.

    def draw_table(self) -> None:
        model, table = self.model, self.table
        run = model.run
        if run is None or model.found is None:
            return
        at = model.arrange(table.cursor)
        self.query_one("#measured", Static).update(measured(run, model.found.runs))
        table.sorted_by = model.sort, model.descending
        columns = method_columns(model.rows, run.report.setup.metric)
        table.arrange_columns([column for column, _ in columns])
        table.fill([Line(tuple(value(name, row) for _, value in columns)) for name, row in model.rows])
        table.cursor = at
        self._draw(at)
        self._soon()
        listed = self.query_one("#runs", LineTable)
        listed.fill([run_line(one, one is run) for one in model.found.runs])
        listed.cursor = model.found.runs.index(run)

    def _draw(self, at: int) -> None:
        rows = self.model.rows
        spans = [Span(name, *(row.ci95 or (0.0, 1.0)), row.accuracy) for name, row in rows]
        baselines = {row.versus.method for _, row in rows if row.versus}
        level = max((row.accuracy or 0.0 for name, row in rows if name in baselines), default=None)
        self.query_one("#intervals", Forest).draw(spans, ForestScale("95 %", level=level), at)
        parts = [Span(name, *sorted((row.hard or 0.0, row.easy or 0.0))) for name, row in rows]
        look = ForestScale("hard–easy", (("▽", "bad"), ("△", "good")), bounds=(0.0, 1.0))
        self.query_one("#easy-hard", Forest).draw(parts, look, at)

    # The queries of one method.

    def _load_queries(self) -> None:
        """Load the queries of the method under the cursor, against the best other baseline."""
        request = self.model.look(self.table.cursor)
        if request is None:
            return
        if self.model.knows(request):
            self.forget("queries")
            self._show_queries()
            return

        def take(found: MethodQueries) -> None:
            self.model.take(request, found)
            self._show_queries()
            if found.confusion is not None:
                self.query_one(Matrix).draw(found.confusion)
            elif self.has_class("-confusing"):
                self.action_back()

        self.in_thread("queries", lambda: request.read(self.review.opened()), take)

    def _show_queries(self) -> None:
        self.query_one("#versus", Static).update(against(self.model))
        self.queries.message = "no such query"
        self.queries.arrange_columns(query_columns(*self.model.pair))
        self.queries.fill([query_line(outcome) for outcome in self.model.shown])

    @on(LineTable.Chosen, "#methods")
    def action_queries(self) -> None:
        reading = not self.queries.has_focus
        self._leave_cell()
        self.remove_class("-confusing")
        self.set_class(reading, "-reading")
        self.call_after_refresh((self.queries if reading else self.table).focus)

    def action_back(self) -> None:
        """From the queries of a cell to the matrix, else to the methods."""
        self.remove_class("-reading")
        if self._leave_cell():
            self._show_matrix()
            return
        self.remove_class("-confusing")
        self.call_after_refresh(self.table.focus)

    # Which labels are answered for which.

    def action_confusion(self) -> None:
        self._leave_cell()
        self.remove_class("-reading")
        if self.has_class("-confusing"):
            self.action_back()
        elif self.model.confusion is None:
            self.notify("the answers of this evaluation are not labels")
        else:
            self._show_matrix()

    def _show_matrix(self) -> None:
        self.add_class("-confusing")
        self.call_after_refresh(self.query_one(Matrix).focus)

    def _leave_cell(self) -> bool:
        """Show the queries of all cells again; returns whether it was one."""
        if self.model.cell is None:
            return False
        self.model.cell = None
        self._show_queries()
        return True

    @on(Matrix.Moved)
    def _cell_moved(self) -> None:
        self.query_one("#cell", Static).update(cell_line(self.model, self.query_one(Matrix).current))

    @on(Matrix.Chosen)
    def _cell_chosen(self) -> None:
        here = self.query_one(Matrix).current
        if here is None:
            self.notify("these labels are not shown: a larger window has room for more")
        elif self.model.choose_cell(here):
            self._show_queries()
            self.remove_class("-confusing")
            self.add_class("-reading")
            self.call_after_refresh(self.queries.focus)
        else:
            self.notify("no answers in this cell")

    def action_filter(self) -> None:
        self.model.next_filter()
        self._load_queries()

    @on(LineTable.Chosen, "#queries")
    def _query_chosen(self, event: LineTable.Chosen) -> None:
        run, (method, other) = self.model.run, self.model.pair
        if run is not None:
            by = run.report.setup.graded_by
            of = OutcomeOf(run.report.run, method, other, by.metric if by and not by.binary else "")
            self.app.push_screen(OutcomeDialog(self.model.shown[event.index], of))
