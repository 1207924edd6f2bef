"""TopicK: demonstrations that add required topics that the LLM does not know (paper 004, section 3.2).

No LLM is called. All demonstrations are scored by their stored strongest topics (eq. 6) and cosine; from the best 300,
demonstrations are then picked greedily by what they would cover together with those picked before. Only the `REQUIRED`
topics with the largest weight for the query are predicted for the 300: the others together hardly change a score.

The coverage of a set can be defined in several ways. The paper predicts it from the mean of the set's embeddings (eq.
7, ``pooled``, the default); since the subtracted term is the same for every candidate, the best addition is then the
one that keeps the mean nearest to the query, and the picks repeat each other. ``union`` counts a topic as covered
unless every demonstration misses it, 1 − Π (1 − t̂_d): an addition gains what the others lack, and coverage grows as in
the paper's figure 4, but a real LLM did not answer better with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base import memory
from ...base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread, positions_of, step_of, top_k
from ...base.errors import UsageError
from ...pool.records import Query
from ...retrieval.vectors import how_to_get
from ...retrieval.view import PoolView
from ...select.methods import Need
from .model_file import Labels, RowTopics, TopicModel, latest, load, strongest
from .predictor import Predictor, sigmoid

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SHORTLIST = 300
"""Candidates kept after the first pick (paper 004, section 3.2.2)."""

REQUIRED = 256
"""Topics of a query that are used to score the shortlist."""

ROW_BYTES = 600
"""Memory for each row beside its vector, measured on ten million."""
COSINE_BYTES = 512 << 20
"""Memory for the cosines of several queries: of ten million rows, those of 13."""

NAMED = 5
"""Topics named for each pick."""

Coverage = Literal["union", "pooled", "alone"]
"""The joint coverage of demonstrations; ``alone``: each is scored by itself (the paper's ablation)."""

_models: weakref.WeakKeyDictionary[PoolView, dict[Labels, TopicModel]] = weakref.WeakKeyDictionary()
_opened: weakref.WeakKeyDictionary[PoolView, dict[Labels, LoadedTopicModel]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class LoadedTopicModel:
    """A topic model with the active rows; ``covered`` is a sparse matrix of their strongest t̂, (rows, topics), in the
    order of `PoolView.rows`."""

    model: TopicModel
    covered: csr_array

    def with_cosine(self, cosine: float) -> LoadedTopicModel:
        """The same with another λ."""
        return replace(self, model=replace(self.model, cosine=cosine))


@dataclass(frozen=True, slots=True)
class TopicPick:
    """A picked row: its final ``score`` among the candidates, ``relevance`` by topics and ``cosine`` before z-scoring,
    and what it ``adds``: topics with their share of the gain in weighted coverage, largest first."""

    row: int
    score: float
    relevance: float
    cosine: float
    adds: tuple[tuple[str, float], ...]


def topick(
    view: PoolView,
    queries: Sequence[Query],
    k: int,
    *,
    knowledge: bool = True,
    coverage: Coverage = "pooled",
    labels: Labels = "soft",
) -> list[list[TopicPick]]:
    """The ``k`` demonstrations of each query, in the order they are picked.

    Without ``knowledge`` every topic counts as equally known (the paper's ablation, table 3); ``labels`` are those that
    the predictor learnt. Raises `UsageError` before `train topics`, or if it was trained with another encoder.
    """
    return chosen_by(open_for(view, labels), view, queries, k, knowledge=knowledge, coverage=coverage)


def chosen_by(
    opened: LoadedTopicModel,
    view: PoolView,
    queries: Sequence[Query],
    k: int,
    *,
    knowledge: bool = True,
    coverage: Coverage = "pooled",
) -> list[list[TopicPick]]:
    """As `topick`, by a given model."""
    vectors, chosen = view.embed(queries), []  # a server may be asked, for which no other thread is to wait
    with one_blas_thread():
        for short in shortlists(view, opened, queries, vectors, max(k, SHORTLIST), knowledge):
            weights, model = short.weights, opened.model
            judged = required_topics(weights)
            before = np.zeros(len(judged), np.float32)
            picks = []
            for at, score, relevance, covered in greedy(
                model.predictor, weights, short.vectors, short.cosines, model.cosine, k, coverage
            ):
                gain = weights[judged] * (covered - before)
                before = before if coverage == "alone" else covered
                adds = tuple((model.names[judged[t]], float(gain[t])) for t in top_k(gain, NAMED) if gain[t] > 0)
                picks.append(TopicPick(int(short.rows[at]), score, relevance, float(short.cosines[at]), adds))
            chosen.append(picks)
    return chosen


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The candidates of a query, best first by eq. 6 and cosine: their ``rows``, ``vectors`` (n, d) and ``cosines``
    (n,); ``required`` (t,) is t̂_x, and ``weights`` (t,) what each topic counts."""

    rows: Int64s
    vectors: Float32s
    cosines: Float64s
    required: Float32s
    weights: Float32s


def shortlists(
    view: PoolView,
    opened: LoadedTopicModel,
    queries: Sequence[Query],
    vectors: Float32s,
    count: int,
    knowledge: bool = True,
) -> Iterator[Shortlist]:
    """The ``count`` best for each query and its vector (q, d), without its own duplicates; without ``knowledge`` every
    topic counts as equally known."""
    model = opened.model
    every = model.predictor.predict(vectors)
    for query, vector, required, near in zip(queries, vectors, every, cosines_of(view, vectors), strict=True):
        weights = required / model.knowledge.share if knowledge else required
        rows = view.rows[_nearest(view, opened, query, near, weights, count)]
        candidates = view.vectors(rows)
        cosines = candidates.astype(np.float64) @ vector.astype(np.float64)
        yield Shortlist(rows, candidates, cosines, required, weights)


def cosines_of(view: PoolView, vectors: Float32s) -> Iterator[Float32s]:
    """The cosines (n,) of all active rows to each of the queries ``vectors`` (q, d). To read the vectors of a large
    pool takes longer than to multiply them, so it is done for as many queries as `COSINE_BYTES` hold."""
    together = max(1, COSINE_BYTES // (4 * max(len(view.rows), 1)))
    for start in range(0, len(vectors), together):
        yield from view.nearest.scores(vectors[start : start + together])


def needs(view: PoolView, query: Query, count: int = 20, labels: Labels = "soft") -> list[Need]:
    """The ``count`` topics that the query requires most."""
    model = model_for(view, labels)
    (required,) = model.predictor.predict(view.embed([query]))
    return [Need(model.names[t], float(required[t]), float(model.knowledge.share[t])) for t in top_k(required, count)]


def model_for(view: PoolView, labels: Labels = "soft") -> TopicModel:
    """The topic model of the view's workspace and LLM, loaded once. Raises as `topick`."""
    models = _models.setdefault(view, {})
    if labels not in models:
        model = load(view.workspace, latest(view.workspace, view.settings.llm, labels))
        stored = view.stored
        if (stored.encoder, stored.dimension) != (model.encoder, model.predictor.dimension):
            raise UsageError(
                f"the topics were learned with {model.encoder}, but the workspace uses {stored.encoder}",
                f"{how_to_get(model.encoder, stored.encoder)}, or train topics on {stored.encoder}",
            )
        models[labels] = model
    return models[labels]


def open_for(view: PoolView, labels: Labels = "soft") -> LoadedTopicModel:
    """The same with the topics of all rows, opened once; those of rows indexed since are predicted now."""
    opened = _opened.setdefault(view, {})
    if labels not in opened:
        model = model_for(view, labels)
        needed = len(view.rows) * (ROW_BYTES + 4 * view.stored.dimension)
        fix = (
            "each search reads vectors from the disk; -m dense reads a quarter, or search on a machine with more memory"
        )
        memory.warn(view.monitor, "topics and vectors of all rows take", needed, fix)
        opened[labels] = loaded(model, view)
    return opened[labels]


def loaded(model: TopicModel, view: PoolView) -> LoadedTopicModel:
    """A model with the active rows of a view."""
    return LoadedTopicModel(model, _matrix(topics_of_rows(model, view), len(model.names)))


def topics_of_rows(model: TopicModel, view: PoolView) -> RowTopics:
    """The strongest topics of the active rows, in their order."""
    covered, rows = model.covered, view.rows
    new = np.setdiff1d(rows, covered.rows)
    if new.size:
        fresh = strongest(model.predictor, new, view.vectors(new))
        both = np.concatenate([covered.rows, new])
        order = np.argsort(both)
        covered = RowTopics(
            both[order],
            np.concatenate([covered.topics, fresh.topics])[order],
            np.concatenate([covered.weights, fresh.weights])[order],
        )
    return covered.of(rows)


def _matrix(covered: RowTopics, topics: int) -> csr_array:
    """Multiplying with it takes a third of the time of gathering the topics' weights."""
    from scipy.sparse import csr_array

    rows, width = covered.topics.shape
    starts = np.arange(0, rows * width + 1, max(width, 1))[: rows + 1]
    cells = (covered.weights.ravel().astype(np.float32), covered.topics.ravel(), starts)
    return csr_array(cells, shape=(rows, topics))


def greedy(
    predictor: Predictor,
    weights: Float32s,
    vectors: Float32s,
    cosines: Float64s,
    cosine: float,
    k: int,
    coverage: Coverage = "pooled",
) -> list[tuple[int, float, float, NDArray[np.floating[Any]]]]:
    """Pick ``k`` of the candidates ``vectors`` (n, d), each by z(r) + λ·z(cos) among those not yet picked.

    ``weights`` (t,) is t̂_x / t_LM (eq. 6), ``cosine`` λ; r is Σ w·t̂ of a candidate together with the earlier picks.
    With ``union``, r keeps the spread of the first pick: once the picks cover what the query needs, what is left to
    gain differs by next to nothing, and a spread taken anew would blow that up to the weight of the cosine.
    Returns for each pick its position, final score, r, and t̂ of the `required_topics` with it.
    """
    judged = required_topics(weights)
    w = weights[judged]
    with one_blas_thread():
        logits, reach = _pooled_logits(predictor, vectors, judged)
        if coverage == "alone":
            alone = sigmoid(logits([]))
        elif coverage == "union":  # what is missed, not 1 − t̂, and in float64: single precision would lose remainders
            missed = sigmoid(-logits([])).astype(np.float64)

        def together(chosen: list[int]) -> NDArray[np.floating[Any]]:
            """t̂ (n, t) of each candidate with those that are chosen."""
            if coverage == "pooled":
                return sigmoid(logits(chosen))
            return alone if coverage == "alone" else 1 - missed * missed[chosen].prod(axis=0)

        free = np.ones(len(vectors), np.bool_)
        picked: list[tuple[int, float, float, NDArray[np.floating[Any]]]] = []
        while len(picked) < min(k, len(vectors)):
            covered = together([best for best, *_ in picked])
            relevance = np.asarray(covered @ w, np.float64)  # eq. 6: Σ (t̂_x / t_LM)·t̂
            if coverage != "union" or not picked:
                spread = float(relevance[free].std())
            scores, step = combined(relevance, cosines, cosine, free, predictor.dimension, reach, spread)
            best = int(top_k(scores, 1, step)[0])
            picked.append((best, float(scores[best]), float(relevance[best]), covered[best]))
            free[best] = False
    return picked


PooledLogits = Callable[[list[int]], Float32s]
"""From positions already picked to the logits (n, t) of the mean embedding of each candidate with them."""


def _pooled_logits(predictor: Predictor, vectors: Float32s, judged: Int64s) -> tuple[PooledLogits, float]:
    """The logits of candidates, and the magnitude that the terms of one sum to at most: an error of a logit is a
    relative one of t̂."""
    last = predictor.last[judged]
    hidden, straight = vectors @ predictor.first.T, vectors @ last.T  # linear up to here: pooling commutes with them
    deep, shift = last @ predictor.second, predictor.last_bias[judged] + last @ predictor.second_bias

    def logits(picked: list[int]) -> Float32s:
        size = np.float32(len(picked) + 1)
        active = np.maximum((hidden + hidden[picked].sum(axis=0)) / size + predictor.first_bias, 0)
        return np.asarray((straight + straight[picked].sum(axis=0)) / size + active @ deep.T + shift)

    active = np.linalg.norm(np.maximum(hidden + predictor.first_bias, 0), axis=1).max(initial=0)
    reach = active * np.linalg.norm(deep, axis=1).max() + np.linalg.norm(last, axis=1).max()
    return logits, float(reach)


def required_topics(weights: Float32s) -> Int64s:
    """The topics with the largest ``weights`` (t,), `REQUIRED` at most."""
    return top_k(weights, REQUIRED)


def combined(
    relevance: Float64s,
    cosines: Float64s,
    cosine: float,
    among: Bools,
    terms: int,
    reach: float = 1.0,
    spread: float | None = None,
) -> tuple[Float64s, float]:
    """z(relevance) + ``cosine`` · z(cosines), (n,), by mean and standard deviation of ``among``, −∞ for the others; and
    what float32 does not tell of it: `step_of` sums of so many ``terms`` that have the magnitude of the largest
    relevance times ``reach``, or 1 for a cosine. ``spread``: what the relevance is divided by, if not its deviation.
    What has no spread counts for nothing."""
    total, size = np.zeros(len(among)), 0.0
    for values, factor, most, unit in (
        (relevance, 1.0, reach * float(relevance[among].max()), spread),
        (cosines, cosine, 1.0, None),
    ):
        unit = float(values[among].std()) if unit is None else unit
        if unit > 1e-12:
            total += factor * (values - values[among].mean()) / unit
            size += factor * most / unit
    total[~among] = -np.inf
    return total, step_of(terms, size)


def _nearest(
    view: PoolView, opened: LoadedTopicModel, query: Query, near: Float32s, weights: Float32s, count: int
) -> Int64s:
    """Positions in `PoolView.rows` of the ``count`` best by eq. 6 and the cosines ``near`` (n,), without the query's
    own duplicates."""
    cosines = near.astype(np.float64)
    relevance = (opened.covered @ weights).astype(np.float64)
    free = np.ones(len(cosines), np.bool_)
    free[positions_of(view.rows, view.excluded(query))] = False
    if not free.any():
        return np.empty(0, np.int64)
    scores, step = combined(relevance, cosines, opened.model.cosine, free, len(weights))
    return top_k(scores, min(count, int(free.sum())), step)
