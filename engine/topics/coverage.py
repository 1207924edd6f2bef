"""Topic coverage and redundancy of selected demonstrations (paper 004, section 4.5, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arrays import Float32s, Float64s, top_k
from ..base.errors import UsageError
from ..pool.records import Query
from ..retrieval.view import PoolView
from .selection import model_for

TOP = 20
"""Required topics of a query that count."""


def learnt(view: PoolView) -> bool:
    """Whether there are topics for evaluation, trained with the configured encoder."""
    try:
        model_for(view)
    except UsageError:
        return False
    return True


def required_topics(view: PoolView, queries: Sequence[Query]) -> Float32s:
    """t̂ of each query, (q, t): how much it requires each topic. Raises as `topick` does."""
    predictor = model_for(view).predictor
    return predictor.predict(view.embed(queries)) if len(queries) else np.empty((0, predictor.topics), np.float32)


def coverage_curves(
    view: PoolView, required: Float32s, picks: Sequence[Sequence[int]], top: int = TOP
) -> tuple[Float64s, Float64s]:
    """Figure 4 for the rows picked for each query, best first: coverage and redundancy at 1..K shots, both (K,).

    ``required`` is the result of `required_topics`. Means over the queries that have that many picks; see
    `coverage_of`.
    """
    predictor = model_for(view).predictor
    depth = max((len(rows) for rows in picks), default=0)
    sums, counts = np.zeros((2, depth)), np.zeros(depth)
    for wanted, rows in zip(required, picks, strict=True):
        if not rows:
            continue
        covered = predictor.predict(view.vectors(np.asarray(rows, np.int64)))
        coverage, redundancy = coverage_of(wanted, covered, top)
        sums[0, : len(rows)] += coverage
        sums[1, : len(rows)] += redundancy
        counts[: len(rows)] += 1
    return sums[0] / np.maximum(counts, 1), sums[1] / np.maximum(counts, 1)


def coverage_of(required: Float32s, covered: Float32s, top: int = TOP) -> tuple[Float64s, Float64s]:
    """For t̂ of a query (t,) and of its K demonstrations (K, t): after each shot the number of the ``top`` required
    topics covered so far, and the share of the shot's own topics that earlier ones covered, both (K,).

    The paper does not define when a demonstration covers a topic. t̂ is a probability, so here both are expected
    numbers: a topic is missed by several shots with the product of their 1 − t̂. A t̂ of .001 covers next to nothing,
    wherever it ranks among the shot's topics.
    """
    own = covered.astype(np.float64)
    missed = np.cumprod(1.0 - own, axis=0)
    before = 1.0 - np.concatenate([np.ones((min(len(own), 1), own.shape[1])), missed[:-1]])
    coverage = (1.0 - missed[:, top_k(required, top)]).sum(axis=1)
    return coverage, (own * before).sum(axis=1) / np.maximum(own.sum(axis=1), 1e-12)
