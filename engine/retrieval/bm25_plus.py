"""BM25+ (Lv and Zhai 2011) by rank-bm25, for pools whose texts differ much in length.

Okapi's score of a matched word goes to zero as a text grows, so that a long text with the word can rank below one that
does not have it. BM25+ adds a constant to every matched word. rank-bm25 reads every text for every word of a query,
hence `MOST`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ..base.arrays import Float64s, Int64s, positions_of, top_k
from ..base.errors import UsageError
from ..base.packages import require
from .bm25 import tokenise

MOST = 50_000
"""Texts: a query of ten words then takes about half a second."""


class BM25PlusIndex:
    """BM25+ over the texts of ``rows`` (n,), ascending. Raises `UsageError` for more than `MOST`."""

    def __init__(self, rows: Int64s, texts: Iterable[str]) -> None:
        require("bm25-plus", "rank_bm25")
        if len(rows) > MOST:
            raise UsageError(f"bm25-plus takes at most {MOST:,} demonstrations, the pool has {len(rows):,}", "-m bm25")
        from rank_bm25 import BM25Plus

        self._rows = rows
        words = [tokenise(text) for text in texts]
        self._index: Any = BM25Plus(words) if any(words) else None

    def top(self, query: str, k: int, exclude: Collection[int] = ()) -> tuple[Int64s, Float64s]:
        """The ``k`` best rows and their scores, best first, ties to the lower row number, without those in
        ``exclude``."""
        scores = np.zeros(len(self._rows))
        if self._index is not None:
            scores += self._index.get_scores(tokenise(query))
        left_out = positions_of(self._rows, exclude)
        scores[left_out] = -np.inf
        best = top_k(scores, min(k, len(scores) - len(left_out)))
        return self._rows[best], scores[best]
