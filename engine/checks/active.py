"""The active pool as checks and evidence read it: each part is read or computed on first use, and once."""

from __future__ import annotations

from functools import cached_property

from ..arrays import Float32s, Int64s
from ..errors import UsageError
from ..packages import require
from ..pool.records import Demonstration
from ..progress import CancelToken, Report, silent
from ..retrieval.view import PoolView
from ..settings import Settings
from ..store import trials
from ..store.demonstrations import fetch, groups
from ..store.workspace import Workspace
from .contradiction import contradiction
from .labels import LabelPredictions, judge_labels
from .mismatch import Mismatches, mismatches


class ActivePool:
    """Rows, vectors and label quality of the active pool at one point in time; (n,) is the number of its rows."""

    def __init__(
        self, workspace: Workspace, settings: Settings, report: Report = silent, cancel: CancelToken | None = None
    ) -> None:
        require("judging rows", "sklearn", "scipy", "cleanlab")
        self.workspace, self.settings = workspace, settings
        self.report, self.cancel = report, cancel
        self.view = PoolView(workspace, settings, report, cancel)
        self.fault: UsageError | None = None
        """Why there are no vectors, once they were asked for."""

    @cached_property
    def rows(self) -> list[Demonstration]:
        """Raises `UsageError` if the pool is empty."""
        return fetch(self.workspace, self.view.rows)

    @cached_property
    def repeated(self) -> Int64s:
        """Groups of rows that repeat each other, (n,)."""
        return groups(self.workspace)[self.view.rows]

    @cached_property
    def vectors(self) -> Float32s | None:
        """Embeddings (n, d); None if the pool has none."""
        try:
            return self.view.vectors(self.view.rows)
        except UsageError as error:
            self.fault = error
            return None

    @cached_property
    def label_predictions(self) -> LabelPredictions | None:
        """Label quality; None if the task has no labels, if there are no vectors, if no two classes are large enough,
        or if the LLM's answers contradict it. Raises `Cancelled` between folds."""
        return None if self.contradicted else self._judged

    @cached_property
    def contradicted(self) -> str:
        """What contradicts the suspected labels, empty if nothing does."""
        if self._judged is None or (found := trials.latest(self.workspace)) is None:
            return ""
        return contradiction(found, self.view.rows, self._judged)

    @cached_property
    def _judged(self) -> LabelPredictions | None:
        if self.view.task.kind != "labels" or self.vectors is None:
            return None
        outputs = [row.output for row in self.rows]
        return judge_labels(self.vectors, outputs, self.repeated, self.report, self.cancel)

    @cached_property
    def mismatches(self) -> Mismatches | None:
        """Outputs compared with their inputs; None if the task is not open. Raises `Cancelled` between blocks."""
        return mismatches(self.rows, self.cancel) if self.view.task.kind == "open" else None
