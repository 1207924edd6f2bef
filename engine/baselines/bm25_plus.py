"""BM25+ (Lv and Zhai 2011), for pools whose texts differ much in length.

Okapi's score of a matched word goes to zero as a text grows, so that a long text with the word can rank below one that
does not have it. BM25+ adds a constant to every matched word. The scores are bit-identical to rank-bm25's ``BM25Plus``,
which gives the constant to the texts without the word, too: that changes no order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..base.arrays import Float64s
from ..pool.records import Query
from ..retrieval.bm25 import K1, BM25Index
from ..retrieval.view import PoolView
from ..select.methods import Picks, ranked

DELTA = 1.0


class BM25PlusIndex(BM25Index):
    """BM25+ over the documents of ``index``, whose postings it shares."""

    def __init__(self, index: BM25Index) -> None:
        super().__init__(index.rows, index._lengths, index._postings, index._vocabulary)
        values, which = np.unique(np.diff(self._postings.starts), return_inverse=True)
        self._idf = np.array([math.log((len(self) + 1) / max(value, 1)) for value in values.tolist()])[which]

    def _weights_of(self, term: int) -> Float64s:
        """What the term adds to the score of each document: (n,)."""
        span = slice(*self._postings.starts[term : term + 2])
        documents, counts = self._postings.documents[span], self._postings.counts[span]
        weights = np.full(len(self), self._idf[term] * DELTA)
        # idf · (δ + tf (k1 + 1) / (k1 (1 − b + b |d| / avgdl) + tf))
        weights[documents] = self._idf[term] * (DELTA + counts * (K1 + 1) / (self._norm[documents] + counts))
        return weights


def bm25_plus(view: PoolView, queries: Sequence[Query], k: int, seed: int) -> list[Picks]:
    """Highest BM25+ scores."""
    texts, excluded = [*map(view.searched, queries)], view.excluded_each(queries)
    tops = BM25PlusIndex(view.lexical).top_many(texts, k, excluded, view.monitor)
    return ranked(tops, "bm25-plus")
