"""The pool's topics, and its gaps: what validation queries need, the LLM does not know and the pool does not cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.arrays import Bools, Float32s, Float64s, top_k
from ...base.contract import Reported
from ...base.errors import UsageError
from ...evaluate.figures import Measured
from ...pool.records import Query
from ...retrieval.view import PoolView
from ...store.demonstrations import queries
from ...store.settings import Settings
from ...store.workspace import Workspace
from . import stored as store
from .model_file import RowTopics, latest, load
from .selection import model_for, topics_of_rows

TOP = 20
"""Required topics of a query that count."""


def coverage(view: PoolView, queries: Sequence[Query]) -> Measured | None:
    """A measure of ``evaluate``: how many of the topics that queries require the shots cover, and how many repeatedly;
    None if there are no topics, trained with the configured encoder."""
    try:
        required = required_topics(view, queries)
    except UsageError:
        return None

    def measured(shown: Sequence[Sequence[Sequence[int]]]) -> dict[str, tuple[float, ...]]:
        every = [rows for own in shown for rows in own]
        covered, repeated = coverage_curves(view, np.tile(required, (len(shown), 1)), every)
        return {"topic_coverage": tuple(covered.tolist()), "topic_redundancy": tuple(repeated.tolist())}

    return measured


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


FLOOR = 0.05
"""Minimum t̂ at which a query requires a topic."""

LEAST = 2
"""Minimum queries of a gap: one alone may be chance."""

LAST = np.uint32(0xFFFFFFFF)

ALIKE = 0.5
"""Two gaps are one if an earlier gap has at least this share of the topic's queries."""


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query that needs a topic."""

    id: str
    input: str


@dataclass(frozen=True, slots=True)
class Gap(Reported):
    """A topic worth collecting demonstrations for.

    ``queries`` validation queries need it; ``knowledge`` is t_LM from ``observations`` questions; ``coverage`` is the
    coverage by the k demonstrations that cover it best, relative to how strongly those queries need it (1: equally).
    ``severity`` is queries × (1 − knowledge) × (1 − coverage). ``related``: further topics of the same queries.
    """

    topic: str
    queries: int
    knowledge: float
    observations: float
    coverage: float
    severity: float
    related: tuple[str, ...]
    examples: tuple[QueryExample, ...]


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic as ``topics`` shows it: core to ``demonstrations`` of the pool, ``active`` of them not pruned;
    ``coverage`` is Σ t̂ over the active pool; ``sources`` supply it, (name, active demonstrations), most first.

    ``queries`` validation queries need it; ``covered`` and ``severity`` are those of `Gap`, ``covered`` None if no
    query needs it.
    """

    topic: str
    demonstrations: int
    active: int
    knowledge: float
    observations: float
    coverage: float
    sources: tuple[tuple[str, int], ...]
    queries: int = 0
    covered: float | None = None
    severity: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicList(Reported):
    """The first topics of ``total``."""

    kind = "topics"
    topics: tuple[TopicSummary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class TopicMembers:
    """Examples of a topic: rows with their t̂, strongest first. ``core``: of the ``demonstrations``, those with this
    core topic. ``queries`` are the validation queries that need it."""

    demonstrations: tuple[tuple[int, float], ...]
    core: frozenset[int]
    queries: tuple[tuple[int, float], ...]


class Survey:
    """The topics of the run that selection uses, over the current active pool; calls no LLM, loads no encoder.

    A query needs its `TOP` strongest topics with t̂ of at least `FLOOR`. The queries are those for validation, or
    ``asked`` ones with their embeddings (q, d). Raises `UsageError` before training.
    """

    def __init__(
        self, workspace: Workspace, settings: Settings, asked: tuple[Sequence[Query], Float32s] | None = None
    ) -> None:
        self.workspace = workspace
        self.model = load(workspace, latest(workspace, settings.llm))
        view = PoolView(workspace, settings)
        self.covered = topics_of_rows(self.model, view)
        self.asked = queries(workspace, "validation") if asked is None else asked[0]
        size = len(self.model.names)
        self.predicted = np.zeros((0, size), np.float32)
        if self.asked:
            self.predicted = self.model.predictor.predict(view.embed(self.asked) if asked is None else asked[1])
        self.needed = needed_topics(self.predicted) if self.asked else np.zeros((0, size), np.bool_)
        self.count = self.needed.sum(axis=0)
        strength = (self.predicted * self.needed).sum(axis=0) / np.maximum(self.count, 1)
        best = _best_covering(self.covered, size, max(settings.k, 1))
        self.coverage = np.clip(best / np.maximum(strength, 1e-9), 0.0, 1.0)
        unknown = (1 - self.model.knowledge.share) * (1 - self.coverage)
        self.severity = (self.count >= LEAST) * self.count * unknown

    def topics(self) -> list[TopicSummary]:
        """All of them, those core to most demonstrations first."""
        names, knowledge = self.model.names, self.model.knowledge
        weights = self.covered.weights.ravel().astype(np.float64)
        amounts = np.bincount(self.covered.topics.ravel(), weights, len(names))  # Σ t̂ of each topic over rows
        sources: dict[int, list[tuple[str, int]]] = {}
        sizes = np.zeros((len(names), 2), np.int64)
        for topic, source, every, active in store.supply(self.workspace, self.model.run):
            sizes[topic] += (every, active)
            if active:
                sources.setdefault(topic, []).append((source, active))
        summaries = [
            TopicSummary(
                name,
                int(sizes[i, 0]),
                int(sizes[i, 1]),
                float(knowledge.share[i]),
                float(knowledge.observations[i]),
                float(amounts[i]),
                tuple(sources.get(i, ())),
                int(self.count[i]),
                float(self.coverage[i]) if self.count[i] else None,
                float(self.severity[i]),
            )
            for i, name in enumerate(names)
        ]
        return sorted(summaries, key=lambda topic: (-topic.active, -topic.demonstrations, topic.topic))

    def gaps(self, limit: int = 20, examples: int = 3) -> list[Gap]:
        """The ``limit`` most severe gaps."""
        severe: list[tuple[int, list[int]]] = []
        for topic in np.argsort(-self.severity, kind="stable").tolist():
            if self.severity[topic] <= 0:
                break
            own = self.needed[:, topic]
            same = next((gap for gap in severe if (own & self.needed[:, gap[0]]).sum() >= ALIKE * own.sum()), None)
            if same:
                same[1].append(topic)
            elif len(severe) < limit:
                severe.append((topic, []))
        names, knowledge = self.model.names, self.model.knowledge
        return [
            Gap(
                names[topic],
                int(self.count[topic]),
                float(knowledge.share[topic]),
                float(knowledge.observations[topic]),
                float(self.coverage[topic]),
                float(self.severity[topic]),
                tuple(names[t] for t in related[:5]),
                _examples(self.asked, self.predicted[:, topic] * self.needed[:, topic], examples),
            )
            for topic, related in severe
        ]

    def members(self, name: str, limit: int = 100) -> TopicMembers:
        """The ``limit`` active demonstrations that cover a topic best, and the queries that need it. `KeyError` for a
        name that is not a topic."""
        try:
            topic = self.model.names.index(name)
        except ValueError:
            raise KeyError(name) from None
        at, place = np.nonzero(self.covered.topics == topic)
        weight = self.covered.weights[at, place].astype(np.float64)
        order = np.argsort(-weight, kind="stable")[:limit]
        shown = [(int(self.covered.rows[at[i]]), float(weight[i])) for i in order.tolist()]
        needing = np.flatnonzero(self.needed[:, topic])
        needing = needing[np.argsort(-self.predicted[needing, topic], kind="stable")]
        return TopicMembers(
            tuple(shown),
            frozenset(store.core_rows(self.workspace, self.model.run, topic)),
            tuple(
                (row, float(self.predicted[i, topic]))
                for i in needing.tolist()
                if (row := self.asked[i].row) is not None
            ),
        )


def topics(workspace: Workspace, settings: Settings, search: str = "", limit: int | None = None) -> TopicList:
    """Topics of the run that selection uses whose names hold ``search``, those core to most demonstrations first.
    Raises `UsageError` before training."""
    found = [topic for topic in Survey(workspace, settings).topics() if search.lower() in topic.topic.lower()]
    return TopicList(tuple(found[:limit]), len(found))


def gaps(workspace: Workspace, settings: Settings, limit: int = 20, examples: int = 3) -> list[Gap]:
    """The ``limit`` most severe gaps of the active pool. Raises `UsageError` before training."""
    return Survey(workspace, settings).gaps(limit, examples)


def needed_topics(predicted: Float32s) -> Bools:
    """Which topics queries need, (q, t), from their t̂ (q, t)."""
    top = min(TOP, predicted.shape[1])
    bar = np.partition(predicted, -top, axis=1)[:, [-top]]
    needed: Bools = (predicted >= bar) & (predicted >= FLOOR)
    return needed


def _best_covering(covered: RowTopics, topics: int, k: int) -> Float64s:
    """Mean t̂ of the ``k`` rows that cover a topic best, (t,)."""
    # topic and weight packed into one number: float bits order like their values, and sorting takes a tenth of the time
    bits = np.ascontiguousarray(covered.weights, np.float32).view(np.uint32).ravel()
    keys = covered.topics.ravel().astype(np.uint64) << 32 | (LAST - bits)
    keys.sort()
    topic, weight = (keys >> 32).astype(np.int64), (LAST - keys.astype(np.uint32)).view(np.float32)
    first = np.arange(len(topic)) - np.searchsorted(topic, np.arange(topics))[topic] < k
    best: Float64s = np.bincount(topic[first], weight[first].astype(np.float64), topics) / k
    return best


def _examples(asked: Sequence[Query], strength: Float32s, count: int) -> tuple[QueryExample, ...]:
    order = np.argsort(-strength, kind="stable")[:count].tolist()
    return tuple(QueryExample(asked[i].id, asked[i].input) for i in order if strength[i] > 0)
