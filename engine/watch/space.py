"""Where queries are compared: in the vectors of the workspace's encoder, or by their words if there are none."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Protocol

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.errors import UsageError
from ..pool.records import Query
from ..retrieval.bm25 import tokenise
from ..retrieval.view import PoolView
from ..store.demonstrations import searched_texts

SAMPLED = 2_000
"""Rows of the pool that stand for all of it."""

DIMENSION = 512
"""Of vectors of words."""


class Space(Protocol):
    """Vectors of length 1, and the nearest active demonstrations by their cosine."""

    name: str

    def of(self, queries: Sequence[Query]) -> Float32s:
        """(q, d)."""

    def nearest(
        self, queries: Sequence[Query], vectors: Float32s, exclude: Sequence[Int64s] = ()
    ) -> tuple[Int64s, Float64s]:
        """Of each query the nearest row and the cosine, (q,), without the rows in ``exclude``; −1 and −1 if no row is
        left. A query's own repeat counts: nothing covers it better."""


def space_of(view: PoolView) -> tuple[Space, str]:
    """The space of a workspace, and why it is that of words, if it is."""
    try:
        view.stored  # noqa: B018  # read for its error
    except UsageError as error:
        return WordSpace(view), f"{error.what}: compared by words, which sees less; {error.fix}"
    return VectorSpace(view), ""


class VectorSpace:
    """The vectors of the encoder."""

    def __init__(self, view: PoolView) -> None:
        self._view, self.name = view, view.stored.encoder

    def of(self, queries: Sequence[Query]) -> Float32s:
        return self._view.embed(queries)

    def nearest(
        self, queries: Sequence[Query], vectors: Float32s, exclude: Sequence[Int64s] = ()
    ) -> tuple[Int64s, Float64s]:
        found = self._view.nearest.top_many(vectors, 1, exclude, self._view.monitor)
        return _first(found)


class WordSpace:
    """Words weighted by how rare they are in the pool and hashed to `DIMENSION` columns with random signs, which keeps
    cosines in expectation (Weinberger et al. 2009, Feature hashing, section 2). Nearest is the best by BM25."""

    name = "words"

    def __init__(self, view: PoolView) -> None:
        self._view = view
        rows = sampled_rows(view.rows)
        texts = self._texts(rows)
        counts = Counter(word for text in texts for word in set(tokenise(text)))
        self._rarity = {word: log((len(texts) + 1) / (count + 0.5)) for word, count in counts.items()}
        self._unknown = log((len(texts) + 1) / 0.5)

    def of(self, queries: Sequence[Query]) -> Float32s:
        return self._vectors([*map(self._view.searched, queries)])

    def nearest(
        self, queries: Sequence[Query], vectors: Float32s, exclude: Sequence[Int64s] = ()
    ) -> tuple[Int64s, Float64s]:
        view = self._view
        texts = [*map(view.searched, queries)]
        rows, _ = _first(view.lexical.top_many(texts, 1, exclude, view.monitor))
        similarity = np.full(len(rows), -1.0)
        some = rows >= 0
        similarity[some] = (vectors[some].astype(np.float64) * self._vectors(self._texts(rows[some]))).sum(axis=1)
        return rows, similarity

    def _texts(self, rows: Int64s) -> list[str]:
        return searched_texts(self._view.workspace, rows, self._view.settings.passages)

    def _vectors(self, texts: Sequence[str]) -> Float32s:
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        for i, text in enumerate(texts):
            for word in set(tokenise(text)):
                code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
                vectors[i, code % DIMENSION] += self._rarity.get(word, self._unknown) * (1 if code & 1 << 20 else -1)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Float32s = vectors / np.maximum(lengths, 1e-9)
        return unit


def sampled_rows(rows: Int64s, most: int = SAMPLED, seed: int = 0) -> Int64s:
    """At most ``most`` of the rows, ascending."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _first(found: Sequence[tuple[Int64s, Float64s]]) -> tuple[Int64s, Float64s]:
    rows = np.array([int(best[0]) if len(best) else -1 for best, _ in found], np.int64)
    return rows, np.array([float(scores[0]) if len(scores) else -1.0 for _, scores in found])
