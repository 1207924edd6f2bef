"""TopicK with topics that count by their ranks, as in its authors' released code, but not that code.

Each demonstration's topics, divided by what the LLM knows, become 1 / rank^.53: how probable a topic is plays no
part. The score is the product with the query's ranks, as a z-score, and a tenth of that of the cosine. So far this is
their code. Its 100 candidates are the nearest by embedding, here they are the best by equation 6 and cosine; it takes
the lowest tenth of the topics as absent at every pick, here only at the first; its predictor has three layers without a
residual connection and frozen topic embeddings, here it is `predictor`; and it ranks the query's logits after setting
their lowest tenth to 0, which moves it to the top, because nearly all logits are negative: here probabilities are
ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.arrays import Float32s, Float64s, one_blas_thread, top_k
from ...pool.records import Query
from ...retrieval.view import PoolView
from .predictor import Predictor
from .selection import NAMED, TopicPick, combined, open_for, shortlists

CANDIDATES = 100
POWER = 0.53
COSINE = 0.1
IGNORED = 0.1
"""The share of each text's topics, the least probable ones, that count as absent at the first pick."""


def topick_by_ranks(view: PoolView, queries: Sequence[Query], k: int) -> list[list[TopicPick]]:
    """The ``k`` demonstrations of each query, in the order they are picked. Raises as `selection.topick`."""
    opened = open_for(view)
    model, vectors, chosen = opened.model, view.embed(queries), []
    with one_blas_thread():
        for short in shortlists(view, opened, queries, vectors, max(k, CANDIDATES)):
            picks = greedy_by_rank(
                model.predictor, model.knowledge.share, short.required, short.vectors, short.cosines, k
            )
            chosen.append(
                [
                    TopicPick(
                        int(short.rows[at]), score, relevance, float(short.cosines[at]),
                        tuple((model.names[t], float(parts[t])) for t in top_k(parts, NAMED)),
                    )
                    for at, score, relevance, parts in picks
                ]
            )  # fmt: skip
    return chosen


def by_rank(values: Float32s) -> Float32s:
    """1 / rank^.53 of each value in its row (n, t), the largest with rank 1, the first of equals before the others."""
    order = np.argsort(-values, axis=1, kind="stable")
    shares = (np.arange(1, values.shape[1] + 1) ** -POWER).astype(np.float32)
    ranked = np.empty(values.shape, np.float32)
    np.put_along_axis(ranked, order, np.broadcast_to(shares, values.shape), axis=1)
    return ranked


def present(values: Float32s) -> Float32s:
    """The values (n, t) without the lowest tenth of each row, which become 0."""
    bar = np.quantile(values, IGNORED, axis=1, keepdims=True)
    return np.where(values <= bar, np.float32(0), values)


def greedy_by_rank(
    predictor: Predictor, share: Float32s, required: Float32s, vectors: Float32s, cosines: Float64s, k: int
) -> list[tuple[int, float, float, Float32s]]:
    """Pick ``k`` of the candidates ``vectors`` (n, d) for a query with t̂ ``required`` (t,), ``share`` (t,) being t_LM.

    z-scores are taken over all candidates, picked ones included. Returns for each pick its position, score, relevance,
    and what each topic contributes to it (t,).
    """
    wanted = by_rank(present(required[None]))[0]
    by_llm = by_rank(share[None])[0] + np.float32(0.01)
    everyone = np.ones(len(vectors), np.bool_)
    picked: list[tuple[int, float, float, Float32s]] = []
    while len(picked) < min(k, len(vectors)):
        chosen = [position for position, *_ in picked]
        if chosen:
            together = (vectors + vectors[chosen].sum(axis=0)) / np.float32(len(chosen) + 1)
            ranked = by_rank(predictor.predict(together) / by_llm)
        else:
            ranked = by_rank(present(predictor.predict(vectors)) / by_llm)
        relevance = np.asarray(ranked @ wanted, np.float64)
        scores, step = combined(relevance, cosines, COSINE, everyone, len(wanted))
        scores[chosen] = -np.inf
        best = int(top_k(scores, 1, step)[0])
        picked.append((best, float(scores[best]), float(relevance[best]), ranked[best] * wanted))
    return picked
