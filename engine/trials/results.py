"""The results of training the ranker and of training on sources: the objects of ``train ranker --json`` and ``train
sources --json``, which are also stored with their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..base.contract import OPTIONAL, SPREAD, named
from ..llm.cost import Judging, TrainingRun


@dataclass(frozen=True, slots=True)
class Batch:
    """A training step. ``sigma``: the threshold at its start; ``accuracy``: of the last prompt of each query,
    None if σ left no shot to any, or nothing was answered.
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
    accuracy: float | None
    entropy: float
    helped: int | None = field(default=None, metadata=OPTIONAL)
    hurt: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class EpochAccuracy:
    """The held-out queries answered with the policy's best K: accuracy of all, of those right with no shots (easy) and
    of the others (hard); None if there are none. Without held-out queries, that of the last prompts of the epoch."""

    epoch: int
    accuracy: float | None
    easy: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """The evaluation of an epoch; ``held_out``: on held-out queries."""

    measured: EpochAccuracy = field(metadata=SPREAD)
    held_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerMetrics:
    """Figures of the training. Figures by shots have the number of shots, as text, as their keys.
    ``trials``: the expected reward of held-out queries after each pass over the answers of ``train sources``, 0 being
    the start; empty if none of them was tried.
    ``judge``: what it was asked, if one said which answers are right. ``untrained``: the policy kept is the start, to
    the bit; ``kept_pass``: the pass over the trials that was kept; ``collapsed_in``: the epoch in which the policy
    collapsed. Runs of earlier releases have none of the three."""

    method: str
    batches: tuple[Batch, ...] = ()
    accuracy_by_shots: Mapping[str, float] = field(default_factory=dict)
    easy_by_shots: Mapping[str, float] = field(default_factory=dict)
    hard_by_shots: Mapping[str, float] = field(default_factory=dict)
    prompts_by_shots: Mapping[str, int] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = ()
    best: EpochAccuracy
    shots: int = 0
    sigma: float = 0.0
    queries: int
    held_out_queries: int
    collapsed: bool = False
    seconds: float
    seconds_asking: float = 0.0
    trials: tuple[float, ...] | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)
    untrained: bool | None = field(default=None, metadata=OPTIONAL)
    kept_pass: int | None = field(default=None, metadata=OPTIONAL)
    collapsed_in: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class RankerRun(TrainingRun):
    """A finished run of ``train ranker``."""

    kind = "train-ranker"
    metrics: RankerMetrics


@dataclass(frozen=True, slots=True)
class SeedFigures:
    """The run of a seed, its ``best`` epoch, whether its policy collapsed, and what was kept, as in `RankerMetrics`."""

    seed: int
    run: int
    best: EpochAccuracy
    collapsed: bool
    untrained: bool | None = field(default=None, metadata=OPTIONAL)
    kept_pass: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class RankerSeeds(RankerRun):
    """The runs of ``train ranker --seeds``: usage of all, run and metrics of the first."""

    kind = "train-ranker-seeds"
    seeds: tuple[SeedFigures, ...]


Use = Literal["prune", "vote", "reweight", "reweight-points"]


@dataclass(frozen=True, slots=True)
class Setting:
    """How votes are taken, without the scores. ``fraction`` is the share of known sources to drop."""

    estimator: str
    use: Use
    fraction: float
    voters: int
    decay: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What pruning does that drops the sources whose scores lie below ``threshold``: how many it drops, and the mean
    utility of the votes that are left."""

    threshold: float
    dropped: int
    accuracy: float = field(metadata=named("validation_accuracy"))
    gain_error: float = 0.0
    """Standard error of the difference to keeping everything."""


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    """The best setting found, significant or not, and the sources it drops."""

    setting: Setting = field(metadata=SPREAD)
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """Results on the lists of ``queries``. ``sources``: scores by source and estimator. ``judge``: what it was asked,
    if one said which answers are right. The others are those of `uses.SettingChoice`."""

    queries: int
    sources: Mapping[str, Mapping[str, float]]
    baseline: float
    gain: float
    gain_error: float
    worth_it: bool
    chosen: ChosenSetting
    judge: Judging | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class SourceRun(TrainingRun):
    """A finished run of ``train sources``."""

    kind = "train-sources"
    metrics: SourceMetrics
