"""Evaluate: selection methods compared, run by run, as they were measured and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from ....engine.evaluate.results import KIND, KeptEvaluation, MethodFigures, kept_evaluations
from ....engine.pool.display import display_line
from ....engine.pool.records import Demonstration
from ....engine.store import runs
from ....engine.store.demonstrations import fetch
from ....engine.store.overview import overview
from ....engine.store.runs import Outcome
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...dialogs.outcome import OutcomeDialog
from ...dialogs.start import propose
from ...tab import Empty, Tab
from ...widgets.forest import Forest, Look, Span
from ...widgets.lines import Line
from ...widgets.table import LineTable
from ...workers import later
from .rows import (
    FILTERS,
    RUN_COLUMNS,
    command_for,
    measured,
    method_columns,
    query_columns,
    query_line,
    run_line,
    share,
)

MOST_RUNS = 500
"""Runs listed, the latest first."""

SORTS: dict[str, Callable[[tuple[str, MethodFigures]], Any]] = {
    "method": lambda item: item[0],
    "accuracy": lambda item: item[1].accuracy,
    "easy": lambda item: item[1].easy,
    "hard": lambda item: item[1].hard,
    "shots": lambda item: item[1].shots,
    "tokens": lambda item: item[1].usage.tokens_in,
}


@dataclass(frozen=True, slots=True)
class Found:
    """Finished evaluations, latest first, and what a further one would compare."""

    runs: Sequence[KeptEvaluation]
    command: str


class EvaluateTab(Tab):
    NAME = "evaluate"
    TITLE = "Evaluate"
    ABOUT = "Which selection method answers best, on queries not used for training."
    ACTIONS = (
        Action("evaluate.new", "n", "New", "Run a new comparison (shows the cost first)", "icl-curate evaluate"),
        Action("evaluate.older", "h,left", "Older", "Previous run", "icl-curate evaluate", call="run(1)"),
        Action("evaluate.newer", "l,right", "Newer", "Next run", call="run(-1)"),
        Action("evaluate.open", "o", "Queries", "Show or hide single queries", call="queries"),
        Action("evaluate.filter", "f", "Won or lost", "Filter queries: all, lost, won, wrong", call="filter"),
        Action("evaluate.back", "escape", "", "Back to the methods", footer=False),
        Action("evaluate.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("evaluate.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.found: Found | None = None
        self.selected: int | None = None
        """Number of the run shown; None: the latest, whichever that is."""
        self.sort, self.descending = "accuracy", True
        self.rows: list[tuple[str, MethodFigures]] = []
        self.asked: Sequence[Outcome] = ()
        """The queries of the method under the cursor; ``shown`` those that the filter lets through."""
        self.shown: Sequence[Outcome] = ()
        self.pair: tuple[str, str | None] = "", None
        """The method whose queries these are, and what it is compared with."""
        self._asked_of: tuple[int, str, str | None] | None = None
        self.filter = "all"

    def compose_body(self) -> ComposeResult:
        yield Static(id="measured")
        yield LineTable((), id="methods")
        with Horizontal(id="plots"):
            yield Forest(id="intervals")
            yield Forest(id="easy-hard")
        yield LineTable((), id="runs")
        yield Static(id="versus")
        yield LineTable((), id="queries")

    def on_mount(self) -> None:
        self.query_one("#queries", LineTable).message = "no such query"
        self._soon = later(self, 0.15, self._load_queries)

    @property
    def table(self) -> LineTable:
        return self.query_one("#methods", LineTable)

    @property
    def run(self) -> KeptEvaluation | None:
        """The run shown."""
        if self.found is None:
            return None
        return next((run for run in self.found.runs if run.report.run == self.selected), self.found.runs[0])

    def start(self) -> LineTable:
        return self.table

    def read(self, workspace: Workspace) -> Found | Empty:
        state = overview(workspace)
        if not (state.test or state.validation):
            return Empty(
                "No queries to evaluate on",
                "Methods are compared on held-out queries.",
                "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
            )
        found = kept_evaluations(runs.runs(workspace, KIND, MOST_RUNS))
        trained = {run.kind for run in runs.runs(workspace, None, MOST_RUNS) if run.status == "done"}
        command = command_for(trained, "test" if state.test else "validation")
        if not found:
            return Empty(
                "Nothing evaluated yet",
                "Methods are compared on held-out queries, with intervals; n starts a run and shows the cost first.",
                f"icl-curate {command}",
            )
        return Found(found, command)

    def show(self, found: Found) -> None:
        self.found = found
        self._show_run()

    def remember(self) -> dict[str, Any]:
        return {"sort": self.sort, "descending": self.descending, "run": self.selected}

    def recall(self, said: dict[str, Any]) -> None:
        if said.get("sort") in SORTS:
            self.sort, self.descending = said["sort"], bool(said.get("descending"))
        if isinstance(said.get("run"), int):
            self.selected = said["run"]

    def copied(self) -> str:
        """The table as Markdown."""
        if self.run is None:
            return ""
        metric = self.run.report.setup.metric
        lines = [f"| method | {metric} | 95 % | easy | hard |", "|---|---|---|---|---|"]
        for name, row in self.rows:
            low, high = row.ci95
            parts = [share(row.accuracy), f"{low:.3f}–{high:.3f}", share(row.easy), share(row.hard)]
            lines.append(f"| {name} | " + " | ".join(parts) + " |")
        return "\n".join(lines)

    # Actions.

    def action_new(self) -> None:
        """Also where nothing was evaluated yet."""
        command = self.found.command if self.found else "evaluate"
        if self.nothing:
            command = self.nothing.command.removeprefix("icl-curate ")
        if command.startswith("evaluate"):
            propose(self, [command])
        else:
            self.notify(f"first: icl-curate {command}", severity="warning", markup=False)

    def action_run(self, by: int) -> None:
        if self.found is None or self.run is None:
            return
        at = self.found.runs.index(self.run) + by
        self._choose(max(0, min(at, len(self.found.runs) - 1)))

    def action_sort(self) -> None:
        names = list(SORTS)
        self._sort_by(names[(names.index(self.sort) + 1) % len(names)])

    def action_reverse(self) -> None:
        self._sort_by(self.sort, not self.descending)

    @on(LineTable.Sort, "#methods")
    def _heading(self, event: LineTable.Sort) -> None:
        if event.column in SORTS:
            again = event.column == self.sort
            self._sort_by(event.column, not self.descending if again else None)

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
        assert self.found is not None
        self.selected = self.found.runs[at].report.run if at else None  # the latest stays the latest
        self._show_run()

    def _sort_by(self, name: str, descending: bool | None = None) -> None:
        self.sort = name
        self.descending = name != "method" if descending is None else descending
        self._show_run()

    # The run on the screen.

    def _show_run(self) -> None:
        run = self.run
        if run is None or self.found is None:
            return
        here = self.rows[self.table.cursor][0] if self.rows else None
        methods = run.report.methods
        key = SORTS[self.sort]
        known = [item for item in methods.items() if key(item) is not None]
        known.sort(key=key, reverse=self.descending)
        self.rows = known + [item for item in methods.items() if key(item) is None]
        at = next((i for i, (name, _) in enumerate(self.rows) if name == here), 0)
        self.query_one("#measured", Static).update(measured(run, self.found.runs))
        self.table.sorted_by = self.sort, self.descending
        columns = method_columns(self.rows, run.report.setup.metric)
        self.table.arrange_columns([column for column, _ in columns])
        self.table.fill([Line(tuple(value(name, row) for _, value in columns)) for name, row in self.rows])
        self.table.cursor = at
        self._draw(at)
        self._soon()
        listed = self.query_one("#runs", LineTable)
        listed.arrange_columns(RUN_COLUMNS)
        listed.fill([run_line(one, one is run) for one in self.found.runs])
        listed.cursor = self.found.runs.index(run)

    def _draw(self, at: int) -> None:
        spans = [Span(name, row.ci95[0], row.ci95[1], row.accuracy) for name, row in self.rows]
        baselines = {row.versus.method for _, row in self.rows if row.versus}
        level = max((row.accuracy for name, row in self.rows if name in baselines), default=None)
        ends = (("├", "muted"), ("┤", "muted"))
        self.query_one("#intervals", Forest).draw(spans, Look("95 %", ends, level), at)
        parts = [Span(name, row.hard or 0.0, row.easy or 0.0) for name, row in self.rows]
        parts = [Span(s.name, min(s.low, s.high), max(s.low, s.high)) for s in parts]
        look = Look("hard–easy", (("▽", "bad"), ("△", "good")), bounds=(0.0, 1.0))
        self.query_one("#easy-hard", Forest).draw(parts, look, at)

    # The queries of one method.

    def _load_queries(self) -> None:
        """Those of the method under the cursor against the best other baseline."""
        run = self.run
        if run is None or not self.rows:
            return
        name, row = self.rows[self.table.cursor]
        other = row.versus.method if row.versus else None
        of = run.report.run, name, other
        if of == self._asked_of:  # what a finished run measured does not change
            self.forget("queries")
            self._show_queries(self.asked)
            return

        def keep(found: Sequence[Outcome]) -> None:
            self._asked_of, self.pair = of, (name, other)
            self._show_queries(found)

        self.in_thread("queries", lambda: runs.outcomes(self.review.opened(), *of), keep)

    def _show_queries(self, found: Sequence[Outcome]) -> None:
        self.asked, (method, other) = found, self.pair
        self.shown = [outcome for outcome in found if FILTERS[self.filter](outcome)]
        lost = sum(outcome.gain < 0 for outcome in found)
        won = sum(outcome.gain > 0 for outcome in found)
        told = Text.assemble((display_line(method), "title"))
        if other:
            told.append_text(
                Text.assemble((" against ", "muted"), display_line(other), ": ", (f"{won:,} won", "good"), ", ",
                              (f"{lost:,} lost", "bad"))
            )  # fmt: skip
        told.append(f"   shown: {self.filter}, {len(self.shown):,} of {len(found):,}", "muted")
        self.query_one("#versus", Static).update(told)
        table = self.query_one("#queries", LineTable)
        table.arrange_columns(query_columns(method, other))
        table.fill([query_line(outcome) for outcome in self.shown])

    def action_queries(self) -> None:
        reading = not self.query_one("#queries", LineTable).has_focus
        self.set_class(reading, "-reading")
        self.call_after_refresh((self.query_one("#queries", LineTable) if reading else self.table).focus)

    def action_back(self) -> None:
        self.remove_class("-reading")
        self.call_after_refresh(self.table.focus)

    def action_filter(self) -> None:
        names = list(FILTERS)
        self.filter = names[(names.index(self.filter) + 1) % len(names)]
        self._load_queries()

    @on(LineTable.Chosen, "#methods")
    def _opened(self) -> None:
        self.action_queries()

    @on(LineTable.Chosen, "#queries")
    def _query_chosen(self, event: LineTable.Chosen) -> None:
        outcome, (method, other) = self.shown[event.index], self.pair
        rows = outcome.demonstrations

        def read() -> list[Demonstration]:
            found = {shot.row: shot for shot in fetch(self.review.opened(), rows)}
            return [found[row] for row in rows if row in found]

        self.in_thread("query", read, lambda shown: self._open_query(outcome, method, other, shown))

    def _open_query(self, outcome: Outcome, method: str, other: str | None, shown: Sequence[Demonstration]) -> None:
        self.app.push_screen(OutcomeDialog(outcome, method, other, shown))
