"""The result of training on sources: the object of ``train sources --json``, which is also stored with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..base.contract import SPREAD, named
from ..llm.cost import TrainingRun

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
    """Results on the lists of ``queries``. ``sources``: scores by source and estimator. The others are those of
    `use.SettingChoice`."""

    queries: int
    sources: Mapping[str, Mapping[str, float]]
    baseline: float
    gain: float
    gain_error: float
    worth_it: bool
    chosen: ChosenSetting


@dataclass(frozen=True, slots=True)
class SourceRun(TrainingRun):
    """A finished run of ``train sources``."""

    kind = "train-sources"
    metrics: SourceMetrics
