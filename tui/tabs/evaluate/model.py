"""State of the Evaluate tab: runs, the methods of the run shown, the queries of one method. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ....engine.evaluate.figures import Confusion, ConfusionCell, confusion
from ....engine.evaluate.results import KIND, MethodFigures, StoredEvaluation, stored_evaluations
from ....engine.store import runs
from ....engine.store.overview import overview
from ....engine.store.runs import QueryOutcome
from ....engine.store.workspace import Workspace
from ....render.evaluation import interval
from ...model import Empty, SortedModel

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
            "icl-curate index POOL.jsonl --validation-fraction 0.1 --test-fraction 0.1",
        )
    evaluations = stored_evaluations(runs.runs(workspace, KIND, MOST_RUNS))
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
            parts = [share(row.accuracy), interval(row.ci95) or "", share(row.easy), share(row.hard)]
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
        names = list(FILTERS)
        self.filter = names[(names.index(self.filter) + 1) % len(names)]


def share(value: float | None) -> str:
    """A share with three digits."""
    return "–" if value is None else f"{value:.3f}"
