"""The result of training on topics: the object of ``train topics --json``, which is also stored with the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...base.contract import OPTIONAL, SPREAD, named
from ...llm.cost import Judging, TrainingRun


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Topics ranked for texts whose core topics are known: mean average precision, and recall among the first ten."""

    average_precision: float
    recall: float = field(metadata=named("recall_at_10"))


@dataclass(frozen=True, slots=True)
class FitEpoch:
    """An epoch of the predictor's training; losses per text."""

    epoch: int
    loss: float
    held_out_loss: float


@dataclass(frozen=True, slots=True)
class FitFigures:
    """Quality of the predictor on ``held_out`` texts, and of ranking by cosine with the topics' names (``by_name``)."""

    quality: RankingQuality = field(metadata=SPREAD)
    held_out: int
    by_name: RankingQuality
    epochs: tuple[FitEpoch, ...]


@dataclass(frozen=True, slots=True)
class LambdaTrial:
    """The accuracy of ``topick`` with one λ on the validation queries kept apart for the choice."""

    cosine: float = field(metadata=named("lambda"))
    accuracy: float


@dataclass(frozen=True, slots=True)
class LambdaChoice:
    """λ chosen on ``queries`` validation queries that the topics were not learnt from."""

    cosine: float = field(metadata=named("lambda"))
    queries: int
    tried: tuple[LambdaTrial, ...]


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """Results of training on ``examples`` texts with ``topics`` topics. ``zero_shot_accuracy``: mean value of the
    answers to the ``questions`` with one, None if there are none. ``chosen``: how λ was chosen, if it was. ``judge``:
    what it was asked, if one said which answers are right."""

    fit: FitFigures = field(metadata=SPREAD)
    topics: int
    added_by_llm: int
    core_by_llm: bool
    demonstrations: int
    examples: int
    core_per_example: float
    questions: int
    zero_shot_accuracy: float | None
    notes: tuple[str, ...]
    seconds: float
    chosen: LambdaChoice | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class TopicRun(TrainingRun):
    """A finished run of ``train topics``."""

    kind = "train-topics"
    metrics: TopicMetrics
