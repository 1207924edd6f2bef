"""State of the Evaluate tab: runs, the methods of the run shown, the queries of one method. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text

from ....engine.base.errors import counted
from ....engine.evaluate.figures import Confusion, ConfusionCell, confusion
from ....engine.evaluate.results import AS_INDEXED, KIND, MethodFigures, StoredEvaluation, Versus, stored_evaluations
from ....engine.llm.marks import figure
from ....engine.llm.spec import is_stand_in
from ....engine.pool.display import display_line
from ....engine.store import runs
from ....engine.store.overview import overview
from ....engine.store.runs import QueryOutcome
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ....render.evaluation import interval, method_lines
from ...model import Empty, SortedModel, beside
from ...widgets.lines import CUT, Line

MOST_RUNS = 500
"""Maximum runs listed, the latest first."""

FILTERS: dict[str, Callable[[QueryOutcome], bool]] = {
    "all": lambda outcome: True,
    "lost": lambda outcome: outcome.gain < 0,
    "won": lambda outcome: outcome.gain > 0,
    "wrong": lambda outcome: outcome.right is not None and outcome.right < 1,
}


def command_for(trained: set[str], split: str) -> str:
    """The suggested comparison: the baselines and every trained method."""
    methods = ["zero", "random", "bm25", "dense"]
    methods += [name for kind, name in TRAINED.items() if kind in trained]
    return f"evaluate --methods {','.join(methods)}" + ("" if split == "test" else f" --split {split}")


TRAINED = {"train-ranker": "ranker", "train-promptpg": "promptpg", "train-topics": "topick"}
"""Methods that a finished run of a kind makes available."""


@dataclass(frozen=True, slots=True)
class EvaluateData:
    """Finished evaluations, latest first, and the suggested comparison."""

    runs: Sequence[StoredEvaluation]
    command: str


def read(workspace: Workspace) -> EvaluateData | Empty:
    """The evaluations of the current workspace."""
    state = overview(workspace)
    if not (state.test or state.validation):
        return Empty(
            "No queries to evaluate on",
            "Methods are compared on held-out queries.",
            "icl-curate index --validation-fraction 0.1 --test-fraction 0.1",
        )
    evaluated = [*runs.runs(workspace, KIND, MOST_RUNS), *runs.runs(workspace, AS_INDEXED, MOST_RUNS)]
    evaluations = stored_evaluations(sorted(evaluated, key=lambda run: -run.run))
    trained = {run.kind for run in runs.runs(workspace, None, MOST_RUNS) if run.status == "done"}
    command = command_for(trained, "test" if state.test else "validation")
    if not evaluations:
        return Empty(
            "Nothing evaluated yet",
            "Methods are compared on held-out queries, with intervals; n starts a run and shows the cost first.",
            f"icl-curate {command}",
        )
    return EvaluateData(evaluations, command)


@dataclass(frozen=True, slots=True)
class MethodQueries:
    """The queries of one method, and which labels it answered for which, if the answers are labels."""

    outcomes: Sequence[QueryOutcome]
    confusion: Confusion | None = None


@dataclass(frozen=True, slots=True)
class QueriesRequest:
    """Read the queries of a run under a ``method`` and under another; ``labels``: the answers are labels."""

    run: int
    method: str
    other: str | None
    labels: bool

    def read(self, workspace: Workspace) -> MethodQueries:
        """The queries one by one. For threads."""
        return MethodQueries(
            runs.outcomes(workspace, self.run, self.method, self.other),
            confusion(workspace, self.run, self.method) if self.labels else None,
        )


class EvaluateModel(SortedModel):
    """One run at a time, its methods in order, the queries of one method."""

    SORTS: ClassVar[Mapping[str, Callable[[tuple[str, MethodFigures]], Any]]] = {
        "method": lambda item: item[0],
        "accuracy": lambda item: item[1].accuracy,
        "easy": lambda item: item[1].easy,
        "hard": lambda item: item[1].hard,
        "shots": lambda item: item[1].shots,
        "tokens": lambda item: item[1].usage.tokens_in,
    }
    RISING = frozenset({"method"})

    def __init__(self) -> None:
        super().__init__("accuracy")
        self.found: EvaluateData | None = None
        self.selected: int | None = None
        """Number of the run shown; None: always the latest."""
        self.rows: list[tuple[str, MethodFigures]] = []
        """The methods of the run shown, in the order of the table."""
        self.filter = "all"
        self.asked: Sequence[QueryOutcome] = ()
        """The queries of the current method."""
        self.confusion: Confusion | None = None
        """Of the current method, None if the answers are not labels."""
        self.cell: ConfusionCell | None = None
        """Only the queries of this cell are shown."""
        self._asked_of: QueriesRequest | None = None

    def remember(self) -> dict[str, Any]:
        return super().remember() | {"run": self.selected}

    def recall(self, stored: dict[str, Any]) -> None:
        super().recall(stored)
        if isinstance(stored.get("run"), int):
            self.selected = stored["run"]

    # The run shown.

    @property
    def run(self) -> StoredEvaluation | None:
        """The run shown; the latest if the chosen one no longer exists."""
        if self.found is None:
            return None
        return next((run for run in self.found.runs if run.report.run == self.selected), self.found.runs[0])

    def choose(self, at: int) -> None:
        """Show the run in line ``at``; if it is the latest, later runs will replace it."""
        assert self.found is not None
        self.selected = self.found.runs[at].report.run if at else None

    def step(self, by: int) -> None:
        """Go to an older or a newer run, if there is one."""
        if self.found is not None and self.run is not None:
            at = self.found.runs.index(self.run) + by
            self.choose(max(0, min(at, len(self.found.runs) - 1)))

    def arrange(self, cursor: int) -> int:
        """Sort the methods of the run shown; returns the line of the one that was at ``cursor``, or the first."""
        assert self.run is not None
        here = self.rows[cursor][0] if cursor < len(self.rows) else None
        self.rows = self.in_order(self.run.report.methods.items())
        return next((i for i, (name, _) in enumerate(self.rows) if name == here), 0)

    def copied(self) -> str:
        """The methods as a Markdown table."""
        if self.run is None:
            return ""
        metric = self.run.report.setup.metric
        lines = [f"| method | {metric} | 95 % | easy | hard |", "|---|---|---|---|---|"]
        for name, row in self.rows:
            parts = [figure(row.accuracy), interval(row.ci95) or "", figure(row.easy), figure(row.hard)]
            lines.append(f"| {name} | " + " | ".join(parts) + " |")
        return "\n".join(lines)

    # The queries of one method.

    @property
    def pair(self) -> tuple[str, str | None]:
        """The method whose queries are loaded, and the one it is compared with."""
        return (self._asked_of.method, self._asked_of.other) if self._asked_of else ("", None)

    @property
    def shown(self) -> Sequence[QueryOutcome]:
        """The queries that pass the filter, those of the chosen cell."""
        among = None if self.cell is None else set(self.cell.queries)
        return [
            outcome for outcome in self.asked
            if FILTERS[self.filter](outcome) and (among is None or outcome.id in among)
        ]  # fmt: skip

    def look(self, cursor: int) -> QueriesRequest | None:
        """Load the queries of the method at ``cursor``, against the best other baseline."""
        run = self.run
        if run is None or cursor >= len(self.rows):
            return None
        name, row = self.rows[cursor]
        other = row.versus.method if row.versus else None
        return QueriesRequest(run.report.run, name, other, run.report.setup.task == "labels")

    def knows(self, request: QueriesRequest) -> bool:
        """Whether these were loaded before. The results of a finished run do not change."""
        return request == self._asked_of

    def take(self, request: QueriesRequest, found: MethodQueries) -> None:
        """Set the loaded queries."""
        self._asked_of, self.asked, self.confusion, self.cell = request, found.outcomes, found.confusion, None

    def choose_cell(self, pair: tuple[str, str | None] | None) -> bool:
        """Show only the queries of this cell of the confusion, all of them; False if it has none."""
        cell = self.confusion.cell(*pair) if self.confusion and pair else None
        if cell is not None:
            self.cell, self.filter = cell, "all"
        return cell is not None

    def next_filter(self) -> None:
        """All, lost, won, wrong."""
        self.filter = beside(FILTERS, self.filter)


RUN_COLUMNS = (
    LineColumn("run", "run", 5, right=True),
    LineColumn("when", "when", 16, rank=3),
    LineColumn("split", "split", 10, rank=2),
    LineColumn("queries", "queries", 7, right=True, rank=4),
    LineColumn("k", "k", 3, right=True, rank=1),
    LineColumn("llm", "LLM", 10, grow=2, most=40, rank=2),
    LineColumn("best", "best", 18, grow=1, most=30),
    LineColumn("methods", "methods", 20, grow=3, rank=5),
)


def query_columns(method: str, other: str | None) -> list[LineColumn]:
    """Columns of the queries under a method and, if there is one, another."""
    return [
        LineColumn("mark", "", 4),
        LineColumn("query", "query", 16, grow=4),
        LineColumn("wanted", "wanted", 12, grow=1, most=30),
        LineColumn("answer", display_line(method), 12, grow=1, most=30),
        LineColumn(
            "other", display_line(other or ""), 12, grow=1, most=30, rank=1 if other else 9,
            picture=not other,
        ),
        LineColumn("unsure", "unsure", 6, right=True, rank=3),
        LineColumn("id", "id", 8, grow=1, most=24, rank=2),
    ]  # fmt: skip


def query_line(outcome: QueryOutcome) -> Line:
    value = "×" if not outcome.right else "" if outcome.right == 1 else f"{outcome.right:.2f}"
    alike = "?" if outcome.right is None else value
    mark = Text("won" if outcome.gain > 0 else "lost" if outcome.gain < 0 else alike)
    mark.stylize("good" if outcome.gain > 0 else "bad")
    answer = Text(display_line(outcome.answer or outcome.failure, CUT), _style(outcome.right))
    other = display_line(outcome.other_answer or "", CUT)
    return Line(
        (
            mark, display_line(outcome.input, CUT), display_line(outcome.wanted, CUT), answer,
            Text(other, _style(outcome.other_right)), outcome.uncertainty, display_line(outcome.id, CUT),
        )
    )  # fmt: skip


def _style(value: float | None) -> str:
    """The colour of an answer: what is right in part is neither right nor wrong."""
    return "bad" if not value else "" if value == 1 else "warn"


def run_line(stored: StoredEvaluation, shown: bool) -> Line:
    report, setup = stored.report, stored.report.setup
    return Line(
        (
            Text(str(report.run), "accent" if shown else ""),
            f"{stored.started_at:%Y-%m-%d %H:%M}", setup.split, setup.queries, setup.k, setup.llm,
            f"{report.best} {figure(report.methods[report.best].accuracy)}", ", ".join(report.methods),
        )
    )  # fmt: skip


def measured(stored: StoredEvaluation, listed: Sequence[StoredEvaluation]) -> Text:
    """The setup of the evaluation."""
    report, setup = stored.report, stored.report.setup
    line = Text.assemble(
        (f"run {report.run} ", "title"), (f"({listed.index(stored) + 1} of {len(listed)})  ", "muted"),
        f"{setup.queries:,} {setup.split} queries", (f", {report.easy_queries:,} easy: right zero-shot", "muted"),
        ("  k ", "muted"), str(setup.k), "  ", display_line(f"{setup.llm} ({setup.answered_by})"),
        (f"  {stored.started_at:%m-%d %H:%M}", "muted"),
        "  the pool as it was indexed" if setup.as_indexed else "",
    )  # fmt: skip
    for told in method_lines(report):
        line.append(f"\n{display_line(told, CUT)}", "warn")
    if is_stand_in(setup.llm):
        line.append("\noffline is not an LLM: these figures say nothing about your LLM", "warn")
    return line


def method_columns(
    rows: Sequence[tuple[str, MethodFigures]], metric: str
) -> list[tuple[LineColumn, Callable[[str, MethodFigures], Any]]]:
    """Columns and their values for a method; columns without values are left out."""
    widest = max((len(display_line(name)) for name, _ in rows), default=6)
    name = LineColumn("method", "method", min(widest, 12), grow=1, most=max(widest, 12), sortable=True)
    score = LineColumn("accuracy", metric, len(metric) + 1, right=True, sortable=True)
    bad: list[tuple[str, str, Callable[[str, MethodFigures], Any]]] = [
        ("unusable", "unusable", lambda name, row: _bad(row.outcomes.unusable if row.outcomes else 0)),
        ("refused", "refused", lambda name, row: _bad(row.outcomes.refused if row.outcomes else 0)),
        ("failures", "failed", lambda name, row: _bad(row.outcomes.failed if row.outcomes else row.usage.failures)),
    ]
    gap = lambda versus: f"{versus.difference:+.3f} {display_line(versus.method)}"  # noqa: E731
    p_value = lambda versus: "< .001" if versus.p_holm < 0.001 else f"{versus.p_holm:.3f}"  # noqa: E731
    every: list[tuple[LineColumn, Callable[[str, MethodFigures], Any]]] = [
        (name, lambda name, row: name),
        (score, lambda name, row: row.accuracy),
        (LineColumn("ci", "95 %", 11, rank=1), lambda name, row: interval(row.ci95)),
        (
            LineColumn("bounds", "bounds", 11, rank=1),
            lambda name, row: interval(row.outcomes.bounds) if row.outcomes and row.outcomes.missing else None,
        ),
        (LineColumn("f1", "F1", 5, right=True, rank=3), lambda name, row: row.f1),
        (LineColumn("easy", "easy", 5, right=True, rank=1, sortable=True), lambda name, row: row.easy),
        (LineColumn("hard", "hard", 5, right=True, rank=1, sortable=True), lambda name, row: row.hard),
        (LineColumn("versus", "against best", 15, rank=2), lambda name, row: _versus(row.versus, gap)),
        (LineColumn("p", "p", 6, right=True, rank=2), lambda name, row: _versus(row.versus, p_value)),
        (
            LineColumn("shots", "shots", 6, right=True, rank=4, sortable=True),
            lambda name, row: f"{row.shots:.1f}" if row.shots % 1 else f"{row.shots:.0f}",
        ),
        (LineColumn("seeds", "seeds", 5, right=True, rank=6), lambda name, row: row.seeds),
        (
            LineColumn("std", "std", 5, right=True, rank=6),
            lambda name, row: row.std if row.seeds > 1 else "",
        ),
        *((LineColumn(name, title, 8, right=True, rank=5), value) for name, title, value in bad),
        (
            LineColumn("tokens", "tokens read", 12, right=True, rank=7, sortable=True),
            lambda name, row: row.usage.tokens_in,
        ),
    ]
    return [(column, value) for column, value in every if any(value(*item) not in ("", None) for item in rows)]


def _bad(count: int) -> Text | str:
    return Text(f"{count:,}", "bad") if count else ""


def _versus(versus: Versus | None, shown: Callable[[Versus], str]) -> Text | str:
    """What is shown of a comparison; only significant differences are coloured."""
    if versus is None:
        return ""
    style = "muted" if versus.p_holm >= 0.05 else "good" if versus.difference > 0 else "bad"
    return Text(shown(versus), style)


def against(model: EvaluateModel) -> Text:
    """The methods that the queries shown compare, and how many queries were won and lost."""
    method, other = model.pair
    lost = sum(outcome.gain < 0 for outcome in model.asked)
    won = sum(outcome.gain > 0 for outcome in model.asked)
    text = Text.assemble((display_line(method), "title"))
    if other:
        text.append_text(
            Text.assemble((" against ", "muted"), display_line(other), ": ", (f"{won:,} won", "good"), ", ",
                          (f"{lost:,} lost", "bad"))
        )  # fmt: skip
    if model.cell is not None:
        text.append("   ").append_text(_pair(model.cell.wanted, model.cell.answer))
    return text.append(f"   shown: {model.filter}, {len(model.shown):,} of {len(model.asked):,}", "muted")


def cell_line(model: EvaluateModel, pair: tuple[str, str | None] | None) -> Text:
    """The current cell of the confusion in words."""
    confusion = model.confusion
    if confusion is None:
        return Text()
    text = Text("labels that are not shown", "muted")
    if pair is not None:
        cell = confusion.cell(*pair)
        every = sum(one.count for one in confusion.cells if one.wanted == pair[0])
        text = _pair(*pair).append(f": {cell.count if cell else 0:,} of {every:,}")
        if cell is not None and len(cell.queries) < cell.count:
            text.append(f" (of {counted(len(cell.queries), 'query')})", "muted")
    return text.append(
        f"   {display_line(model.pair[0])}: {confusion.right:,} of {counted(confusion.answers, 'answer')} right",
        "muted",
    )


def _pair(wanted: str, answer: str | None) -> Text:
    style = "good" if answer == wanted else "bad"
    said = "no label" if answer is None else display_line(answer, 40)
    return Text.assemble(display_line(wanted, 40), (" answered as ", "muted"), (said, style))
