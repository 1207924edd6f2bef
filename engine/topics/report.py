"""The pool's topics, and its gaps: what validation queries need, the LLM does not know and the pool does not cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..index.view import PoolView
from ..pool.records import Query
from ..settings import Settings
from ..store import topics as store
from ..store.demonstrations import queries
from ..store.workspace import Workspace
from .coverage import TOP
from .kept import Covered, latest, load
from .predictor import Floats
from .selection import covering

FLOOR = 0.05
"""Least t̂ at which a topic is required by a query."""

LEAST = 2
"""Queries from which a topic is a gap: one alone may be a chance."""

ALIKE = 0.5
"""Share of a topic's queries that an earlier gap already names, from which it is the same gap."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A topic worth collecting demonstrations for.

    ``queries`` validation queries need it; ``knowledge`` is t_LM from ``observations`` questions; ``coverage`` how
    strongly the k demonstrations that cover it most do, relative to how strongly those queries need it (1: as much).
    ``severity`` is queries × (1 − knowledge) × (1 − coverage). ``related``: further topics of the same queries.
    """

    topic: str
    queries: int
    knowledge: float
    observations: float
    coverage: float
    severity: float
    related: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"examples": [{"id": name, "input": text} for name, text in self.examples]}


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """A topic as ``topics`` shows it: core to ``demonstrations`` of the pool, ``active`` of them not pruned;
    ``coverage`` is Σ t̂ over the active pool; ``sources`` supply it, (name, active demonstrations), most first."""

    topic: str
    demonstrations: int
    active: int
    knowledge: float
    observations: float
    coverage: float
    sources: tuple[tuple[str, int], ...]


def topics(workspace: Workspace, settings: Settings) -> list[TopicStanding]:
    """Topics of the run that selection uses, those core to most demonstrations first. `UsageError` before training."""
    model = load(workspace, latest(workspace, settings.llm))
    amounts = _amounts(covering(model, PoolView(workspace, settings)), len(model.names))
    sources: dict[int, list[tuple[str, int]]] = {}
    sizes = np.zeros((len(model.names), 2), np.int64)
    for topic, source, every, active in store.supply(workspace, model.run):
        sizes[topic] += (every, active)
        if active:
            sources.setdefault(topic, []).append((source, active))
    found = [
        TopicStanding(
            name,
            int(sizes[i, 0]),
            int(sizes[i, 1]),
            float(model.knowledge.share[i]),
            float(model.knowledge.observations[i]),
            float(amounts[i]),
            tuple(sources.get(i, ())),
        )
        for i, name in enumerate(model.names)
    ]
    return sorted(found, key=lambda standing: (-standing.active, -standing.demonstrations, standing.topic))


def gaps(workspace: Workspace, settings: Settings, limit: int = 20, examples: int = 3) -> list[Gap]:
    """The ``limit`` gravest gaps of the active pool, by ``severity``; asks no LLM and loads no encoder.

    A query needs its `TOP` strongest topics as far as they reach `FLOOR`. Raises `UsageError` before training.
    """
    model = load(workspace, latest(workspace, settings.llm))
    view = PoolView(workspace, settings)
    asked = queries(workspace, "validation")
    if not asked:
        return []
    predicted = model.predictor.predict(view.embed(asked))
    needed = needed_topics(predicted)
    count = needed.sum(axis=0)
    strength = (predicted * needed).sum(axis=0) / np.maximum(count, 1)
    best = _best_covering(covering(model, view), len(model.names), max(settings.k, 1))
    coverage = np.clip(best / np.maximum(strength, 1e-9), 0.0, 1.0)
    severity = (count >= LEAST) * count * (1 - model.knowledge.share) * (1 - coverage)
    found: list[tuple[int, list[int]]] = []
    for topic in np.argsort(-severity, kind="stable").tolist():
        if severity[topic] <= 0:
            break
        own = needed[:, topic]
        same = next((gap for gap in found if (own & needed[:, gap[0]]).sum() >= ALIKE * own.sum()), None)
        if same:
            same[1].append(topic)
        elif len(found) < limit:
            found.append((topic, []))
    return [
        Gap(
            model.names[topic],
            int(count[topic]),
            float(model.knowledge.share[topic]),
            float(model.knowledge.observations[topic]),
            float(coverage[topic]),
            float(severity[topic]),
            tuple(model.names[t] for t in related[:5]),
            _examples(asked, predicted[:, topic] * needed[:, topic], examples),
        )
        for topic, related in found
    ]


def needed_topics(predicted: Floats, top: int = TOP, floor: float = FLOOR) -> NDArray[np.bool_]:
    """Which topics queries need, (q, t), from their t̂ (q, t)."""
    top = min(top, predicted.shape[1])
    bar = np.partition(predicted, -top, axis=1)[:, [-top]]
    needed: NDArray[np.bool_] = (predicted >= bar) & (predicted >= floor)
    return needed


def _amounts(covered: Covered, topics: int) -> NDArray[np.float64]:
    """Σ t̂ of each topic over rows, (t,)."""
    amounts = np.bincount(covered.topics.ravel(), covered.weights.ravel().astype(np.float64), topics)
    return np.asarray(amounts, np.float64)


def _best_covering(covered: Covered, topics: int, k: int) -> NDArray[np.float64]:
    """Mean t̂ of the ``k`` rows that cover a topic most, (t,)."""
    topic, weight = covered.topics.ravel(), covered.weights.ravel().astype(np.float64)
    order = np.lexsort((-weight, topic))
    topic, weight = topic[order], weight[order]
    first = np.arange(len(topic)) - np.searchsorted(topic, topic) < k
    best: NDArray[np.float64] = np.bincount(topic[first], weight[first], topics) / k
    return best


def _examples(asked: Sequence[Query], strength: Floats, count: int) -> tuple[tuple[str, str], ...]:
    order = np.argsort(-strength, kind="stable")[:count].tolist()
    return tuple((asked[i].id, asked[i].input) for i in order if strength[i] > 0)
