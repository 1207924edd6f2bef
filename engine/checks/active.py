"""The active pool as checks and evidence read it: each part is read or computed on first use, and once.

Confident learning trusts the majority: where most rows follow a wrong guideline, it suspects those that follow the
right one. The labels of validation queries tell, if there are enough of them (`verified_queries`). If not, the answers
of the LLM with single demonstrations (``train sources``) do: they are then right more often with a suspected row than
with the others. So their answers are compared with what is suspected, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.arrays import Bools, Float32s, Float64s, Int64s
from ..base.errors import UsageError
from ..base.progress import SILENT, Monitor
from ..llm.graded import grading_set
from ..pool.records import Demonstration, Query
from ..retrieval.view import PoolView
from ..store.browse import pruned_rows
from ..store.demonstrations import fetch, groups, verified_queries
from ..store.settings import Settings
from ..store.trials import Grading, Trials
from ..store.trials import latest as latest_trials
from ..store.workspace import Workspace
from .labels import LabelPredictions, Verified, against_other_sources, judge_by_trusted, judge_labels
from .mismatch import Mismatches, mismatches
from .outputs import output_faults
from .parts import JudgedParts, judge_parts
from .results import OUTPUTS, Fault, Kind

CHANCE = 0.05
"""Suspected labels are contradicted at this p, one-sided. Where they say nothing, little is lost with them."""


def contradiction(trials: Trials, rows: Int64s, judged: LabelPredictions) -> str:
    """In a sentence, by how much single demonstrations with a suspected label help more than the others; empty if they
    do not, or by no more than chance (`excess`). ``rows`` (n,), ascending, are those judged."""
    from scipy import stats

    at = np.minimum(np.searchsorted(rows, trials.rows), len(rows) - 1)
    there = (rows[at] == trials.rows) & (judged.labels[at] >= 0)
    right, suspect = trials.right[there].astype(np.float64), judged.suspect[at[there]]
    queries = np.unique(trials.queries[there], return_inverse=True)[1]
    more, by_chance, by_query = excess(right, suspect, queries)
    if more <= 0.5 or stats.norm.sf((more - 0.5) / np.sqrt(max(by_chance, by_query))) >= CHANCE:
        return ""
    both = np.isin(queries, queries[suspect]) & np.isin(queries, queries[~suspect])
    shares = [np.mean([right[both & side & (queries == query)].mean() for query in np.unique(queries[both])])
              for side in (suspect, ~suspect)]  # fmt: skip
    return f"with a row of a suspected label the LLM is right in {shares[0]:.0%}, with the others in {shares[1]:.0%}"


def excess(right: Float64s, suspect: Bools, queries: Int64s) -> tuple[float, float, float]:
    """How many more answers are right with suspected rows than expected of any rows of the same query, over all
    queries, and the variance of this: by chance within queries (Mantel and Haenszel 1959), and as the queries differ,
    which is larger where rows of one label answer alike. All arguments (t,), one for each trial."""
    count = int(queries.max(initial=-1)) + 1
    n, n1 = np.bincount(queries, minlength=count), np.bincount(queries, suspect, count)
    hits, hits1 = np.bincount(queries, right, count), np.bincount(queries, right * suspect, count)
    more = hits1 - n1 * hits / np.maximum(n, 1)  # of each query: observed − expected, hypergeometric
    chance = n1 * (n - n1) * hits * (n - hits) / np.maximum(n * n * (n - 1), 1)  # its variance
    return float(more.sum()), float(chance.sum()), float((more**2).sum())


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The active rows and the pruned ones, which are no longer selected but still tell of their sources: where most
    rows of a source were pruned for wrong labels, the others deserve a second look.

    ``numbers`` (m,), ascending, and ``rows`` (m,). ``label_predictions`` (m,) by classifiers that learn from the active
    rows, joined with those of `against_other_sources`, None as in `ActivePool.label_predictions`; ``contradicted`` says
    what contradicts them, and ``refuted`` (m,) are the rows whose labels were suspected then. ``mismatches`` (m,) and
    ``faults`` as in `ActivePool`; ``parts`` of outputs as judged, if all rows have vectors, and those ``untold`` that
    inputs do not tell (`Skill`)."""

    numbers: Int64s
    rows: list[Demonstration]
    label_predictions: LabelPredictions | None
    contradicted: str
    refuted: Bools
    mismatches: Mismatches | None
    faults: tuple[Fault, ...]
    parts: tuple[JudgedParts, ...]
    untold: tuple[JudgedParts, ...]


class ActivePool:
    """Rows, vectors and label quality of the active pool at one point in time; (n,) is the number of its rows.

    ``teachers`` are the queries whose answers tell which labels are right: `verified_queries`, if not given."""

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        monitor: Monitor = SILENT,
        teachers: Sequence[Query] | None = None,
    ) -> None:
        self.workspace, self.settings, self.teachers = workspace, settings, teachers
        self.monitor = monitor
        self.view = PoolView(workspace, settings, monitor)
        self.fault: UsageError | None = None
        """Why there are no vectors, once they were asked for."""

    @cached_property
    def rows(self) -> list[Demonstration]:
        """Raises `UsageError` if the pool is empty."""
        return fetch(self.workspace, self.view.rows)

    @cached_property
    def grading(self) -> Grading:
        """That of the settings: answers that were graded otherwise are no evidence."""
        return grading_set(self.workspace, self.settings, self.view.task)

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
    def _answered(self) -> list[Query]:
        """The teachers whose answers are known."""
        asked = verified_queries(self.workspace) if self.teachers is None else self.teachers
        return [query for query in asked if query.answers]

    @cached_property
    def _stored(self) -> list[Query]:
        """Those that have vectors, too."""
        encoded = self.view.indexes.encoded
        return [q for q in self._answered if q.row is not None and q.row < encoded.size and encoded[q.row]]

    @cached_property
    def verified(self) -> Verified:
        """The labels of the teachers that have vectors."""
        return Verified(self.view.embed(self._stored), [query.answers[0] for query in self._stored])

    @property
    def taught(self) -> bool:
        """Whether the teachers were enough to say which labels, or parts of outputs, are suspicious."""
        judged = [self._judged] if self._judgeable else [one.judged for one in self.indexed.parts]
        return any(one is not None and one.power is not None for one in judged)

    @cached_property
    def label_predictions(self) -> LabelPredictions | None:
        """Label quality; None if the task has no labels, if there are no vectors, if no two classes are large enough,
        if the LLM's answers contradict it, or if classifiers are `unskilled`. Raises `Cancelled` between folds."""
        return None if self.contradicted or self.unskilled else self._judged

    @cached_property
    def unskilled(self) -> str:
        """Why classifiers judge no labels, empty if they do."""
        skill = None if self._judged is None else self._judged.skill
        if skill is None or skill.enough:
            return ""
        told = f"labels not judged: {skill.line('labels')}"
        if skill.verified:
            return told
        return f"{told}; either most are wrong or the inputs do not tell them; icl-curate verify shows which"

    @property
    def untold(self) -> str:
        """Which parts of outputs are not judged and why, empty if all are."""
        told = [f"{part.name}: {part.judged.skill.line('values')}" for part in self.indexed.untold if part.judged.skill]
        return f"parts of outputs not judged: {'; '.join(told)}" if told else ""

    @cached_property
    def contradicted(self) -> str:
        """What contradicts the suspected labels, empty if nothing does."""
        return self._contradiction(self.view.rows, self._judged)

    @cached_property
    def indexed(self) -> IndexedRows:
        """The active rows and the pruned ones."""
        numbers, rows, compared = self.view.rows, self.rows, None
        judged, left_out = self._judged, None
        if (pruned := self._pruned).size:
            numbers = np.union1d(numbers, pruned)
            rows, left_out = fetch(self.workspace, numbers), np.isin(numbers, pruned)
        vectors, repeated = self._read(numbers)
        if left_out is not None and vectors is not None:
            outputs = [row.output for row in rows]
            judged = judge_labels(vectors, outputs, repeated, self.monitor, left_out, verified=self.verified)
        contradicted = self.contradicted if left_out is None else self._contradiction(numbers, judged)
        refuted = judged.suspect if judged is not None and contradicted else np.zeros(len(rows), np.bool_)
        if contradicted or self.unskilled:
            judged = None
        elif judged is not None and vectors is not None and judged.power is None:
            of = np.unique(np.array([row.source for row in rows], object), return_inverse=True)[1]
            sources = np.asarray(of, np.int64)
            judged = against_other_sources(judged, vectors, repeated, sources, self.monitor, left_out)
        if self.view.task.kind == "open":
            compared = self.mismatches if left_out is None else mismatches(rows, self.monitor)
        faults = self.faults if left_out is None else self._faults(numbers, rows)
        every = self._parts(numbers, rows)
        parts = tuple(part for part in every if part.told)
        untold = tuple(part for part in every if not part.told)
        return IndexedRows(numbers, rows, judged, contradicted, refuted, compared, faults, parts, untold)

    def _parts(self, numbers: Int64s, rows: list[Demonstration]) -> tuple[JudgedParts, ...]:
        task = self.view.task
        if task.kind not in ("open", "sets") or (vectors := self._vectors_of(numbers)) is None:
            return ()
        left_out = None if numbers is self.view.rows else ~np.isin(numbers, self.view.rows)
        verified = [_as_row(query) for query in self._stored], self.view.embed(self._stored)
        repeated = groups(self.workspace)[numbers]
        return judge_parts(rows, task, vectors, repeated, *verified, self.monitor, left_out)

    def _vectors_of(self, numbers: Int64s) -> Float32s | None:
        """Those of active and pruned rows, if all have one."""
        if numbers is self.view.rows or self.vectors is None:
            return self.vectors
        held = self.view.stored.holds(numbers, self.view.keys[numbers]).all()
        return self.view.vectors(numbers) if held else None

    def _read(self, numbers: Int64s) -> tuple[Float32s | None, Int64s]:
        """Vectors and repetition groups of rows whose labels can be judged; no vectors if they cannot."""
        if not self._judgeable:
            return None, np.empty(0, np.int64)
        if numbers is self.view.rows:
            return self.vectors, self.repeated
        return self.view.vectors(numbers), groups(self.workspace)[numbers]

    def judged_by(self, trusted: Bools) -> LabelPredictions | None:
        """The labels of the `indexed` rows by classifiers that learn from the ``trusted`` ones (m,) alone; None if
        these are too few, or if the LLM's answers contradict this, too. Raises `Cancelled` between folds."""
        numbers, outputs = self.indexed.numbers, [row.output for row in self.indexed.rows]
        vectors, repeated = self._read(numbers)
        if vectors is None:
            return None
        judged = judge_by_trusted(vectors, outputs, repeated, trusted, self.monitor)
        return None if self._contradiction(numbers, judged) else judged

    @cached_property
    def _pruned(self) -> Int64s:
        """The pruned rows, (p,); where labels are judged, those that have vectors."""
        rows = pruned_rows(self.workspace)
        return rows[self.view.stored.holds(rows, self.view.keys[rows])] if self._judgeable else rows

    @cached_property
    def _judgeable(self) -> bool:
        return self.view.task.kind == "labels" and self.vectors is not None

    @cached_property
    def _judged(self) -> LabelPredictions | None:
        if self.vectors is None or not self._judgeable:
            return None
        outputs = [row.output for row in self.rows]
        return judge_labels(self.vectors, outputs, self.repeated, self.monitor, verified=self.verified)

    def _contradiction(self, rows: Int64s, judged: LabelPredictions | None) -> str:
        latest = None if judged is None else latest_trials(self.workspace, self.grading)
        return "" if judged is None or latest is None else contradiction(latest, rows, judged)

    @cached_property
    def mismatches(self) -> Mismatches | None:
        """Outputs compared with their inputs; None if the task is not open. Raises `Cancelled` between blocks."""
        return mismatches(self.rows, self.monitor) if self.view.task.kind == "open" else None

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What is suspicious about outputs that are no labels. Raises `Cancelled`."""
        return self._faults(self.view.rows, self.rows)

    def faults_of(self, wanted: Collection[Kind]) -> tuple[Fault, ...]:
        """Those of the ``wanted`` kinds alone, sooner than all."""
        return self.faults if set(wanted) >= set(OUTPUTS) else self._faults(self.view.rows, self.rows, wanted)

    def _faults(
        self, numbers: Int64s, rows: list[Demonstration], wanted: Collection[Kind] = OUTPUTS
    ) -> tuple[Fault, ...]:
        task, vectors = self.view.task, None
        if task.kind not in ("labels", "options") and "neighbour" in wanted:
            vectors = self._vectors_of(numbers)
        return output_faults(rows, task, vectors, self.monitor, wanted, [_as_row(query) for query in self._answered])


def _as_row(query: Query) -> Demonstration:
    """A query with its reference as the output."""
    return Demonstration(
        -1, query.id, query.input, query.answers[0], "", query.options, query.context, query.answers, query.fields,
        query.history,
    )  # fmt: skip
