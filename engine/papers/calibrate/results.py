"""Results of calibration: the objects of ``calibrate --json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

from ...base.contract import OPTIONAL, SPREAD, Reported, named
from ...llm.cost import Judging, TrainingRun, Usage
from ...llm.marks import GradedBy, Tally
from ...pool.records import Message


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values in bins of equal width; ``mean`` for scores only."""

    count: int
    bins: tuple[int, ...]
    mean: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers with a confidence from ``start`` to ``end``, their mean confidence and the share of right ones."""

    start: float = field(metadata=named("from"))
    end: float = field(metadata=named("to"))
    answers: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Reliability:
    """Confidence against accuracy; ``error`` is the expected calibration error, None without answers."""

    bins: tuple[Bin, ...]
    error: float | None


@dataclass(frozen=True, slots=True)
class Shares:
    """Mean value of answers by the metric, and their F1, with 95 % intervals."""

    accuracy: float
    ci95: tuple[float, float]
    f1: float
    f1_ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class RoundFigures(Shares):
    """A round over all queries; ``final_…`` are of the answers that would be final if the rounds ended here.
    ``stopped``: queries whose last answer is of an earlier round."""

    round: int
    final_accuracy: float
    final_f1: float
    uncertainty: float
    auroc: float | None
    stopped: int


@dataclass(frozen=True, slots=True)
class Transition:
    """Queries with one kind of transition, and the mean uncertainty of the new answers."""

    queries: int
    uncertainty: float | None


@dataclass(frozen=True, slots=True)
class Transitions:
    """The four transitions from the previous answers to those of this round."""

    round: int
    right_right: Transition
    right_wrong: Transition
    wrong_right: Transition
    wrong_wrong: Transition


@dataclass(frozen=True, slots=True)
class CalibrationVersus:
    """An arm compared with the first on the same queries: `statistics.Comparison`."""

    arm: str
    difference: float
    low: float
    high: float
    p: float
    test: str


WORTH = 0.05
"""The gain by the metric from which rounds are worth their calls."""


@dataclass(frozen=True, slots=True)
class RoundsVerdict:
    """Whether the rounds of ``arm`` are worth their calls, by its final answers on ``queries`` queries against those of
    the arm ``sampling``, the surest of as many answers without rounds, or, without that arm, against its own first
    answers (``versus``, paired).

    They ``help`` if the 95 % interval lies above 0 and the test agrees at 5 %; they do ``not help`` if it lies below
    `WORTH`; else it is ``open``, and about ``needed`` queries would tell.
    """

    arm: str
    says: Literal["help", "not help", "open"]
    queries: int
    versus: CalibrationVersus
    needed: int | None = None

    @classmethod
    def of(cls, arm: str, queries: int, versus: CalibrationVersus) -> RoundsVerdict:
        if versus.low > 0 and versus.p < 0.05:
            return cls(arm, "help", queries, versus)
        if versus.high < WORTH:
            return cls(arm, "not help", queries, versus)
        # half an interval shrinks with the root of the queries
        return cls(arm, "open", queries, versus, math.ceil(queries * ((versus.high - versus.low) / 2 / WORTH) ** 2))


@dataclass(frozen=True, slots=True)
class Cost:
    """What an arm costs by itself, whether its answers came from the cache or not. ``seconds``: of the LLM, added over
    calls."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class ArmFigures(Shares):
    """Figures of an arm, for final answers unless given by round. ``right``,
    ``wrong``: uncertainties of such answers, as ``auroc``, ``transitions`` and ``reliability`` by its ``least``;
    ``brier``: mean square of the value less the confidence; ``outcomes``: what became of all queries."""

    about: str
    auroc: float | None
    failures: int
    rounds: tuple[RoundFigures, ...]
    transitions: tuple[Transitions, ...]
    reliability: Reliability
    right: Histogram
    wrong: Histogram
    versus: CalibrationVersus | None = field(default=None, metadata=OPTIONAL)
    outcomes: Tally | None = field(default=None, metadata=OPTIONAL)
    cost: Cost | None = field(default=None, metadata=OPTIONAL)
    brier: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def undecided(self) -> str:
        """Why it cannot be compared, if too much is missing."""
        return self.outcomes.undecided if self.outcomes else ""


@dataclass(frozen=True, slots=True)
class GroupArm(Shares):
    """An arm on the queries of a group: its first answers, None if nothing is known of them, and its final ones."""

    first_accuracy: float | None
    first_f1: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """Queries with the same value of a field."""

    queries: int
    arms: Mapping[str, GroupArm]


@dataclass(frozen=True, slots=True)
class Groups:
    """Figures by the values of a ``field`` of the queries (table 4: the type of the question)."""

    field: str
    groups: Mapping[str, Group]


@dataclass(frozen=True, slots=True)
class Relevance:
    """Scores of relevant ``documents`` against those of others, over all queries and within the queries that have
    both."""

    documents: int
    auroc: float | None
    auroc_within: float | None
    queries_within: int
    relevant: Histogram
    others: Histogram


@dataclass(frozen=True, slots=True)
class AttentionFigures:
    """Share of the relevant documents among the k that get most attention, by k, ``before`` and ``after`` the first
    calibration (table 10)."""

    queries: int
    before: Mapping[str, float]
    after: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SetFigures:
    """Figures of each arm, the first one first, on the ``marked`` queries, those with reference answers. ``judge``:
    what it was asked, if one said which answers are right. ``hint`` as in `MethodFigures`, by the first arm.
    ``verdict`` on its rounds, if it has any."""

    arms: Mapping[str, ArmFigures]
    relevance: Relevance | None
    marked: int
    by: Groups | None = field(default=None, metadata=OPTIONAL)
    attention: AttentionFigures | None = field(default=None, metadata=OPTIONAL)
    judge: Judging | None = field(default=None, metadata=OPTIONAL)
    hint: str | None = field(default=None, metadata=OPTIONAL)
    verdict: RoundsVerdict | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """A document, its score, and the LLM's answer from it alone; ``row`` if it is a demonstration of the pool."""

    id: str
    score: float | None
    text: str
    answer: str | None
    uncertainty: float | None
    relevant: bool | None
    row: int | None = None


@dataclass(frozen=True, slots=True)
class ScoredRound:
    """The answer of a round; ``correct``, ``f1`` and ``value`` by the metric if the reference is known."""

    round: int
    answer: str
    uncertainty: float
    score: float
    correct: bool | None
    f1: float | None
    value: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class CalibratedQuery:
    """A query under the first arm. ``final`` is its most certain answer, None if it has none; ``failure`` says why."""

    id: str
    query: str
    answers: tuple[str, ...]
    over: str
    documents: tuple[ScoredDocument, ...]
    rounds: tuple[ScoredRound, ...]
    final: str | None
    final_round: int | None
    failure: str


@dataclass(frozen=True, slots=True)
class SteppedQuery(CalibratedQuery):
    """A query as far as it was asked, with the messages of each round's prompt, and by what they are written."""

    prompts: tuple[Sequence[Message], ...]
    written_by: str


@dataclass(frozen=True, slots=True)
class CalibrationRun(Reported):
    """What both kinds of results share. ``means``: mean uncertainty, by what was scored."""

    run: int
    llm: str
    estimator: str
    task: str
    split: str
    usage: Usage = field(metadata=SPREAD)
    means: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QueryCalibration(CalibrationRun):
    """One query. ``mean_known``: its scores are relative to the mean of a set of queries."""

    kind = "calibration"
    query: CalibratedQuery = field(metadata=SPREAD)
    mean_known: bool


@dataclass(frozen=True, slots=True)
class SetCalibration(CalibrationRun):
    """A set of queries."""

    kind = "calibration-set"
    figures: SetFigures = field(metadata=SPREAD)
    queries: tuple[CalibratedQuery, ...]
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)

    def summary(self) -> dict[str, Any]:
        """What is stored with the run: all but the single queries, which have their own tables."""
        return {key: value for key, value in self.as_json().items() if key != "queries"}


OUTCOMES = ("kept_right", "corrected", "dropped", "pruned", "outdated", "substituted", "accepted", "left_out")
"""What a fine-tuning set counts beside its queries: the first answer was right; a later one was; none was; the query
was pruned since, or a demonstration that it showed was pruned or corrected; earlier answers replaced by references;
answers that a person accepted; examples left out to balance the set."""
FEW_CORRECTED = 50
"""With fewer examples that correct an answer, or fewer than a tenth of all, a set is warned of."""


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """An optimiser step: the mean negative log-likelihood of its trained tokens, in nats."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class FineTuningMetrics:
    """Figures of a fine-tuning. ``counts`` as in the set's manifest; ``too_long``: examples left out because they do
    not fit into the model's context; ``trained_tokens`` are those of the answers, ``parameters`` those of the adapter;
    ``seconds`` since the training was last started, at ``resumed_at`` steps."""

    on: str
    split: str
    examples: int
    counts: Mapping[str, int]
    too_long: int
    steps: tuple[TrainedStep, ...]
    trained_tokens: int
    parameters: int
    recipe: Mapping[str, float]
    document_tokens: int | None
    resumed_at: int
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FineTuningRun(TrainingRun):
    """A finished run of ``train calibration``; ``adapter`` is the folder it wrote. Nothing is asked, so it has no
    calls; the tokens are those of all examples, read and trained."""

    kind = "train-calibration"
    adapter: str
    metrics: FineTuningMetrics


@dataclass(frozen=True, slots=True)
class FineTuningCost(Reported):
    """What a fine-tuning would do; ``counts`` and ``warnings`` are those of its set."""

    kind = "train-calibration-cost"
    llm: str
    adapter: str
    on: str
    split: str
    examples: int
    steps: int
    tokens_in: int
    counts: Mapping[str, int]
    warnings: tuple[str, ...]
    dry_run: bool = True
