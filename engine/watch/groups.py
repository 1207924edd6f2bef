"""What queries are about: topics if they were learnt, else labels of the nearest demonstrations, else words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..base.arrays import Float32s, Int64s
from ..base.errors import UsageError
from ..pool.records import Query
from ..retrieval.bm25 import tokenise
from ..retrieval.view import PoolView
from ..topics.model_file import TopicModel, latest, load
from ..topics.report import needed_topics
from ..topics.words import FUNCTION_WORDS
from .drift import ShareChange, share_changes
from .results import By
from .space import Space

FEWEST_QUERIES = 5
"""Queries that have a word, for its share to be compared."""


class Grouping:
    """Groups queries of one space; ``by`` says by what."""

    def __init__(self, view: PoolView, space: Space) -> None:
        self._view = view
        self.model = topic_model(view, space)
        labelled = space.name != "words" and view.task.kind == "labels"
        self.by: By = "topic" if self.model else "label" if labelled else "word"

    def changes(
        self, now: tuple[Sequence[Query], Float32s, Int64s], before: tuple[Sequence[Query], Float32s, Int64s]
    ) -> tuple[ShareChange, ...]:
        """The groups whose share changed most between two sets of queries, each with their vectors (q, d) and nearest
        rows (q,)."""
        a, b = self._counts(*now), self._counts(*before)
        most = FEWEST_QUERIES if self.by == "word" else 1
        names = [name for name in {**a, **b} if a[name] + b[name] >= most]
        return share_changes(names, _in_order(a, names), len(now[0]), _in_order(b, names), len(before[0]))

    def _counts(self, queries: Sequence[Query], vectors: Float32s, nearest: Int64s) -> Counter[str]:
        """How many of the queries are of each group."""
        if self.model:
            counts = sum(
                (needed_topics(found).sum(axis=0) for _, found in self.model.predictor.blocks(vectors)),
                np.zeros(len(self.model.names), np.int64),
            )
            return Counter(dict(zip(self.model.names, counts.tolist(), strict=True)))
        if self.by == "label":
            (shots,) = self._view.demonstrations([[row for row in np.unique(nearest).tolist() if row >= 0]])
            outputs = {shot.row: shot.output for shot in shots}
            return Counter(outputs[row] for row in nearest.tolist() if row >= 0)
        return Counter(word for query in queries for word in words_of(query))


def topic_model(view: PoolView, space: Space) -> TopicModel | None:
    """The topics that selection uses; None if there are none, or if they were learnt with another encoder."""
    try:
        model = load(view.workspace, latest(view.workspace, view.settings.llm))
    except UsageError:
        return None
    return model if model.encoder == space.name else None


def words_of(query: Query) -> frozenset[str]:
    """The words of a query that may name what it is about."""
    return frozenset(word for word in tokenise(query.input) if len(word) > 1 and word not in FUNCTION_WORDS)


def _in_order(counts: Counter[str], names: Sequence[str]) -> Int64s:
    return np.array([counts[name] for name in names], np.int64)
