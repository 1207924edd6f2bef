"""What queries are about: topics if they were learnt, else labels of the nearest demonstrations, else words; and which
are far from every demonstration: what to collect next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import ceil, exp, lgamma

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.errors import UsageError
from ..papers.topics.model_file import TopicModel, latest, load
from ..papers.topics.report import needed_topics
from ..pool.records import Query
from ..pool.words import FUNCTION_WORDS
from ..retrieval.bm25 import tokenise
from ..retrieval.view import PoolView
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


BEYOND = 0.99
"""Share of the reference queries that are as near to a demonstration as a covered one."""


def farthest(similarities: Float64s) -> tuple[float, int]:
    """The similarity below which a query is not covered, and the rank of the reference query that has it, 1 for the
    farthest: of further queries of the same distribution, rank / (m + 1) are expected beyond it. ``similarities`` (m,)
    of the reference queries to their nearest demonstrations, at least one."""
    rank = min(max(1, ceil((1 - BEYOND) * (len(similarities) + 1) - 1e-9)), len(similarities))
    return float(np.partition(similarities, rank - 1)[rank - 1]), rank


def exceedance_p(beyond: int, asked: int, rank: int, reference: int) -> float:
    """Probability that at least ``beyond`` of ``asked`` queries are beyond the ``rank``-th farthest of ``reference``
    ones, if all are drawn alike.

    Exact: of the farthest beyond + rank − 1 of all, fewer than ``rank`` are then reference queries, which is a
    hypergeometric probability (Wilks 1942 on exceedances).
    """
    if beyond <= 0:
        return 1.0
    drawn, total = beyond + rank - 1, asked + reference
    least = max(0, drawn - asked)
    chances = [
        _log_choose(reference, i) + _log_choose(asked, drawn - i) - _log_choose(total, drawn)
        for i in range(least, min(rank - 1, reference, drawn) + 1)
    ]
    return min(1.0, sum(map(exp, chances)))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def grouped_by_words(
    words: Sequence[AbstractSet[str]], usual: Counter[str], reference: int, most: int
) -> list[tuple[str, list[int]]]:
    """The word that most queries have beyond what is usual, with these queries (positions in ``words``), then the next
    one among the others: at most ``most`` groups of two or more.

    ``usual``: of the ``reference`` queries, how many have each word.
    """
    left = list(range(len(words)))
    groups: list[tuple[str, list[int]]] = []
    while left and len(groups) < most:
        counts = Counter(word for i in left for word in words[i])
        excess = {
            word: count - len(left) * usual[word] / max(reference, 1) for word, count in counts.items() if count > 1
        }
        if not excess:
            break
        best = max(excess, key=lambda word: (excess[word], word))
        if excess[best] <= 0:
            break
        groups.append((best, [i for i in left if best in words[i]]))
        left = [i for i in left if best not in words[i]]
    return groups
