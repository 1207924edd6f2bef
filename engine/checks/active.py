"""The active pool as checks and evidence read it: each part is read or computed on first use, and once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import Bools, Float32s, Int64s
from ..errors import UsageError
from ..packages import require
from ..pool.records import Demonstration
from ..progress import CancelToken, Report, silent
from ..retrieval.view import PoolView
from ..settings import Settings
from ..store import trials
from ..store.browse import pruned_rows
from ..store.demonstrations import fetch, groups
from ..store.workspace import Workspace
from .contradiction import contradiction
from .labels import LabelPredictions, against_other_sources, judge_labels
from .mismatch import Mismatches, mismatches


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The active rows and the pruned ones, which are no longer selected but still tell of their sources: where most
    rows of a source were pruned for wrong labels, the others deserve a second look.

    ``numbers`` (m,), ascending, and ``rows`` (m,). ``label_predictions`` (m,) by classifiers that learn from the active
    rows, joined with those of `against_other_sources`, None as in `ActivePool.label_predictions`; ``contradicted`` says
    what contradicts them. ``mismatches`` (m,) as in `ActivePool.mismatches`."""

    numbers: Int64s
    rows: list[Demonstration]
    label_predictions: LabelPredictions | None
    contradicted: str
    mismatches: Mismatches | None


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
        return self._contradiction(self.view.rows, self._judged)

    @cached_property
    def indexed(self) -> IndexedRows:
        """The active rows and the pruned ones."""
        if not (pruned := self._pruned).size:
            judged = self.label_predictions
            if judged is not None and self.vectors is not None:
                judged = self._compared(judged, self.vectors, self.rows, self.repeated, None)
            return IndexedRows(self.view.rows, self.rows, judged, self.contradicted, self.mismatches)
        numbers = np.union1d(self.view.rows, pruned)
        rows, judged, contradicted = fetch(self.workspace, numbers), None, ""
        if self._judgeable:
            vectors, repeated = self.view.vectors(numbers), groups(self.workspace)[numbers]
            outputs, left_out = [row.output for row in rows], np.isin(numbers, pruned)
            judged = judge_labels(vectors, outputs, repeated, self.report, self.cancel, left_out)
            contradicted = self._contradiction(numbers, judged)
            judged = self._compared(judged, vectors, rows, repeated, left_out) if judged and not contradicted else None
        compared = mismatches(rows, self.cancel) if self.view.task.kind == "open" else None
        return IndexedRows(numbers, rows, judged, contradicted, compared)

    def _compared(
        self,
        judged: LabelPredictions,
        vectors: Float32s,
        rows: list[Demonstration],
        repeated: Int64s,
        left_out: Bools | None,
    ) -> LabelPredictions:
        """Joined with the predictions by other sources; ``left_out`` (m,) are the pruned rows."""
        sources = np.unique(np.array([row.source for row in rows], object), return_inverse=True)[1]
        return against_other_sources(
            judged, vectors, repeated, np.asarray(sources, np.int64), self.report, self.cancel, left_out
        )

    @cached_property
    def _pruned(self) -> Int64s:
        """The pruned rows, (p,); where labels are judged, those that have vectors."""
        found = pruned_rows(self.workspace)
        return found[self.view.stored.holds(found, self.view.keys[found])] if self._judgeable else found

    @cached_property
    def _judgeable(self) -> bool:
        return self.view.task.kind == "labels" and self.vectors is not None

    @cached_property
    def _judged(self) -> LabelPredictions | None:
        if self.vectors is None or not self._judgeable:
            return None
        outputs = [row.output for row in self.rows]
        return judge_labels(self.vectors, outputs, self.repeated, self.report, self.cancel)

    def _contradiction(self, rows: Int64s, judged: LabelPredictions | None) -> str:
        if judged is None or (found := trials.latest(self.workspace)) is None:
            return ""
        return contradiction(found, rows, judged)

    @cached_property
    def mismatches(self) -> Mismatches | None:
        """Outputs compared with their inputs; None if the task is not open. Raises `Cancelled` between blocks."""
        return mismatches(self.rows, self.cancel) if self.view.task.kind == "open" else None
