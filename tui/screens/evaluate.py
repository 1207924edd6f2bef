"""Evaluate: selection methods compared, run by run, as they were measured and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from ...engine.pool.display import display_line
from ...engine.pool.records import Demonstration
from ...engine.store import runs
from ...engine.store.demonstrations import fetch
from ...engine.store.overview import overview
from ...engine.store.runs import Outcome, Run
from ...engine.store.workspace import Workspace
from ..actions import Action, bindings
from ..dialogs.outcome import OutcomeDialog
from ..dialogs.start import propose
from ..room import Empty, Room
from ..widgets.forest import Forest, Look, Span
from ..widgets.table import Column, Line, LineTable
from ..work import later

Row = Mapping[str, Any]

CUT = 300
"""Characters of a text that a table is given: fields may be a megabyte long."""

MOST_RUNS = 500
"""Runs listed, the latest first."""

SORTS: dict[str, Callable[[tuple[str, Row]], Any]] = {
    "method": lambda item: item[0],
    "accuracy": lambda item: item[1]["accuracy"],
    "easy": lambda item: item[1]["easy"],
    "hard": lambda item: item[1]["hard"],
    "shots": lambda item: item[1]["shots"],
    "tokens": lambda item: item[1]["tokens_in"],
}


@dataclass(frozen=True, slots=True)
class Found:
    """Finished evaluations, latest first, and what a further one would compare."""

    runs: Sequence[Run]
    command: str


class EvaluateRoom(Room):
    NAME = "evaluate"
    TITLE = "Evaluate"
    ABOUT = "Which way of choosing demonstrations answers best, on queries that trained nothing."
    ACTIONS = (
        Action("evaluate.new", "n", "New", "Compare methods anew, the cost shown first", "icl-curate evaluate"),
        Action("evaluate.older", "h,left", "Older", "The run before", "icl-curate evaluate", call="run(1)"),
        Action("evaluate.newer", "l,right", "Newer", "The run after", call="run(-1)"),
        Action("evaluate.open", "o", "Queries", "To the queries one by one and back", call="queries"),
        Action("evaluate.filter", "f", "Won or lost", "Queries: all, lost, won, wrong", call="filter"),
        Action("evaluate.back", "escape", "", "Back to the methods", footer=False),
        Action("evaluate.sort", "s", "Sort", "Sort by the next column", footer=False),
        Action("evaluate.reverse", "S", "Reverse", "Turn the order round", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.found: Found | None = None
        self.selected: int | None = None
        """Number of the run shown; None: the latest, whichever that is."""
        self.sort, self.descending = "accuracy", True
        self.rows: list[tuple[str, Row]] = []
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
    def run(self) -> Run | None:
        """The run shown."""
        if self.found is None:
            return None
        return next((run for run in self.found.runs if run.run == self.selected), self.found.runs[0])

    def start(self) -> LineTable:
        return self.table

    def read(self, workspace: Workspace) -> Found | Empty:
        state = overview(workspace)
        if not (state.test or state.validation):
            return Empty(
                "No queries to judge by",
                "Methods are compared on queries set aside for it.",
                "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
            )
        found = [run for run in runs.runs(workspace, "evaluate", MOST_RUNS) if run.status == "done"]
        trained = {run.kind for run in runs.runs(workspace, None, MOST_RUNS) if run.status == "done"}
        command = command_for(trained, "test" if state.test else "validation")
        if not found:
            return Empty(
                "Nothing evaluated yet",
                "Methods are compared on queries that trained nothing, with intervals; n starts it, the cost first.",
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
        metric = self.run.summary["metric"]
        lines = [f"| method | {metric} | 95 % | easy | hard |", "|---|---|---|---|---|"]
        for name, row in self.rows:
            low, high = row["ci95"]
            parts = [_share(row["accuracy"]), f"{low:.3f}–{high:.3f}", _share(row["easy"]), _share(row["hard"])]
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
        at = [run.run for run in self.found.runs].index(self.run.run) + by
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
        self.selected = self.found.runs[at].run if at else None  # the latest stays the latest
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
        methods = run.summary["methods"]
        key = SORTS[self.sort]
        known = [item for item in methods.items() if key(item) is not None]
        known.sort(key=key, reverse=self.descending)
        self.rows = known + [item for item in methods.items() if key(item) is None]
        at = next((i for i, (name, _) in enumerate(self.rows) if name == here), 0)
        self.query_one("#measured", Static).update(_measured(run, self.found.runs))
        self.table.sorted_by = self.sort, self.descending
        columns = _columns(self.rows, run.summary["metric"])
        self.table.arrange_columns([column for column, _ in columns])
        self.table.fill([Line(tuple(value(name, row) for _, value in columns)) for name, row in self.rows])
        self.table.cursor = at
        self._draw(at)
        self._soon()
        listed = self.query_one("#runs", LineTable)
        listed.arrange_columns(RUN_COLUMNS)
        listed.fill([_run_line(one, one is run) for one in self.found.runs])
        listed.cursor = self.found.runs.index(run)

    def _draw(self, at: int) -> None:
        spans = [Span(name, row["ci95"][0], row["ci95"][1], row["accuracy"]) for name, row in self.rows]
        baselines = {row["versus"]["method"] for _, row in self.rows if "versus" in row}
        level = max((row["accuracy"] for name, row in self.rows if name in baselines), default=None)
        ends = (("├", "muted"), ("┤", "muted"))
        self.query_one("#intervals", Forest).draw(spans, Look("95 %", ends, level), at)
        parts = [Span(name, row["hard"] or 0.0, row["easy"] or 0.0) for name, row in self.rows]
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
        other = row["versus"]["method"] if "versus" in row else None
        of = run.run, name, other
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
        table.fill([_query_line(outcome) for outcome in self.shown])

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


def command_for(trained: set[str], split: str) -> str:
    """The comparison that makes sense with what is trained: the baselines and every trained method."""
    methods = ["zero", "random", "bm25", "dense"]
    methods += [name for kind, name in TRAINED.items() if kind in trained]
    return f"evaluate --methods {','.join(methods)}" + ("" if split == "test" else f" --split {split}")


TRAINED = {"train-ranker": "ranker", "train-promptpg": "promptpg", "train-topics": "topick"}
"""Methods that a finished run of a kind brings."""

FILTERS: dict[str, Callable[[Outcome], bool]] = {
    "all": lambda outcome: True,
    "lost": lambda outcome: outcome.gain < 0,
    "won": lambda outcome: outcome.gain > 0,
    "wrong": lambda outcome: outcome.right < 1,
}

RUN_COLUMNS = (
    Column("run", "run", 5, right=True, sortable=False),
    Column("when", "when", 16, rank=3, sortable=False),
    Column("split", "split", 10, rank=2, sortable=False),
    Column("queries", "queries", 7, right=True, rank=4, sortable=False),
    Column("k", "k", 3, right=True, rank=1, sortable=False),
    Column("llm", "LLM", 10, grow=2, most=40, rank=2, sortable=False),
    Column("best", "best", 18, grow=1, most=30, sortable=False),
    Column("methods", "methods", 20, grow=3, rank=5, sortable=False),
)


def query_columns(method: str, other: str | None) -> list[Column]:
    """Of the queries under a method and, where there is one, another."""
    return [
        Column("mark", "", 4, sortable=False),
        Column("query", "query", 16, grow=4, sortable=False),
        Column("wanted", "wanted", 12, grow=1, most=30, sortable=False),
        Column("answer", display_line(method), 12, grow=1, most=30, sortable=False),
        Column("other", display_line(other or ""), 12, grow=1, most=30, rank=1 if other else 9, sortable=False),
        Column("unsure", "unsure", 6, right=True, rank=3, sortable=False),
        Column("id", "id", 8, grow=1, most=24, rank=2, sortable=False),
    ]


def _query_line(outcome: Outcome) -> Line:
    mark = Text("won" if outcome.gain > 0 else "lost" if outcome.gain < 0 else "" if outcome.right == 1 else "×")
    mark.stylize("good" if outcome.gain > 0 else "bad")
    answer = Text(display_line(outcome.answer or outcome.failure, CUT), "" if outcome.right == 1 else "bad")
    other = display_line(outcome.other_answer or "", CUT)
    return Line(
        (
            mark, display_line(outcome.input, CUT), display_line(outcome.wanted, CUT), answer,
            Text(other, "" if outcome.other_right == 1 else "bad"), outcome.uncertainty, display_line(outcome.id, CUT),
        )
    )  # fmt: skip


def _run_line(run: Run, shown: bool) -> Line:
    told = run.summary
    best = max(told["methods"], key=lambda name: told["methods"][name]["accuracy"])
    return Line(
        (
            Text(str(run.run), "accent" if shown else ""),
            f"{run.started_at:%Y-%m-%d %H:%M}", told["split"], told["queries"], told["k"], run.llm,
            f"{best} {told['methods'][best]['accuracy']:.3f}", ", ".join(told["methods"]),
        )
    )  # fmt: skip


def _measured(run: Run, listed: Sequence[Run]) -> Text:
    """What was measured, and on what."""
    told = run.summary
    line = Text.assemble(
        (f"run {run.run} ", "title"), (f"({listed.index(run) + 1} of {len(listed)})  ", "muted"),
        f"{told['queries']:,} {told['split']} queries", (f", {told['easy_queries']:,} easy", "muted"),
        ("  k ", "muted"), str(told["k"]), "  ", display_line(f"{told['llm']} ({told['answered_by']})"),
        (f"  {run.started_at:%m-%d %H:%M}", "muted"),
    )  # fmt: skip
    if told["llm"] == "offline":
        line.append("\noffline is a stand-in: its figures say nothing about your LLM", "warn")
    return line


def _columns(rows: Sequence[tuple[str, Row]], metric: str) -> list[tuple[Column, Callable[[str, Row], Any]]]:
    """Columns and what each shows of a method; those that would show nothing are left out."""
    widest = max((len(display_line(name)) for name, _ in rows), default=6)
    name = Column("method", "method", min(widest, 12), grow=1, most=max(widest, 12))
    score = Column("accuracy", metric, len(metric) + 1, right=True)
    every: list[tuple[Column, Callable[[str, Row], Any]]] = [
        (name, lambda name, row: name),
        (score, lambda name, row: row["accuracy"]),
        (Column("ci", "95 %", 11, rank=1, sortable=False), lambda name, row: "{:.3f}–{:.3f}".format(*row["ci95"])),
        (Column("f1", "F1", 5, right=True, rank=3, sortable=False), lambda name, row: row.get("f1", "")),
        (Column("easy", "easy", 5, right=True, rank=1), lambda name, row: row["easy"]),
        (Column("hard", "hard", 5, right=True, rank=1), lambda name, row: row["hard"]),
        (Column("versus", "against best", 15, rank=2, sortable=False), lambda name, row: _versus(row)),
        (Column("p", "p", 6, right=True, rank=2, sortable=False), lambda name, row: _p_value(row)),
        (Column("shots", "shots", 6, right=True, rank=4), lambda name, row: _shots(row["shots"])),
        (Column("seeds", "seeds", 5, right=True, rank=6, sortable=False), lambda name, row: row["seeds"]),
        (
            Column("std", "std", 5, right=True, rank=6, sortable=False),
            lambda name, row: row["std"] if row["seeds"] > 1 else "",
        ),
        (
            Column("failures", "failures", 8, right=True, rank=5, sortable=False),
            lambda name, row: Text(f"{row['failures']:,}", "bad") if row["failures"] else "",
        ),
        (Column("tokens", "tokens read", 12, right=True, rank=7), lambda name, row: row["tokens_in"]),
    ]
    return [(column, value) for column, value in every if any(value(*item) not in ("", None) for item in rows)]


def _versus(row: Row) -> Text | str:
    if "versus" not in row:
        return ""
    return Text(f"{row['versus']['difference']:+.3f} {display_line(row['versus']['method'])}", _certain(row))


def _p_value(row: Row) -> Text | str:
    if "versus" not in row:
        return ""
    p = row["versus"]["p_holm"]
    return Text("< .001" if p < 0.001 else f"{p:.3f}", _certain(row))


def _certain(row: Row) -> str:
    """The colour of a difference: only one beyond doubt has any."""
    if row["versus"]["p_holm"] >= 0.05:
        return "muted"
    return "good" if row["versus"]["difference"] > 0 else "bad"


def _shots(mean: float) -> str:
    return f"{mean:.1f}" if mean % 1 else f"{mean:.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
