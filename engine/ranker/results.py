"""The result of training the ranker: the object of ``train ranker --json``, which is also stored with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..contract import OPTIONAL, SPREAD
from ..llm.usage import TrainingRun


@dataclass(frozen=True, slots=True)
class Batch:
    """A training step. ``sigma``: the threshold at its start; ``accuracy``: of the last prompt of each query.
    ``helped`` and ``hurt``: answers that a shot turned right or wrong, if shots are added one at a time."""

    batch: int
    epoch: int
    loss: float
    sigma: float
    shots: int
    calls: int
    cached_calls: int
    tokens_in: int
    tokens_out: int
    accuracy: float
    entropy: float
    helped: int | None = field(default=None, metadata=OPTIONAL)
    hurt: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class EpochAccuracy:
    """The held-out queries answered with the policy's best K: accuracy of all, of those right with no shots (easy) and
    of the others (hard); None if there are none. Without held-out queries, the accuracy during training."""

    epoch: int
    accuracy: float | None
    easy: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """The evaluation of an epoch; ``held_out``: on held-out queries."""

    measured: EpochAccuracy = field(metadata=SPREAD)
    held_out: bool


@dataclass(frozen=True, slots=True)
class RankerMetrics:
    """Figures of the training. Figures by shots have the number of shots, as text, as their keys."""

    method: str
    batches: tuple[Batch, ...]
    accuracy_by_shots: Mapping[str, float]
    easy_by_shots: Mapping[str, float]
    hard_by_shots: Mapping[str, float]
    prompts_by_shots: Mapping[str, int]
    epochs: tuple[Epoch, ...]
    best: EpochAccuracy
    shots: int
    sigma: float
    queries: int
    held_out_queries: int
    collapsed: bool
    seconds: float
    seconds_asking: float


@dataclass(frozen=True, slots=True)
class RankerRun(TrainingRun):
    """A finished run of ``train ranker``."""

    metrics: RankerMetrics
