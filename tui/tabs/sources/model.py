"""State of the Sources tab: the sources in order, the vote's curve with a threshold on it, and what the served prompts
have measured. No Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ....engine.base.progress import CancelToken, Event, Report, silent
from ....engine.curate.results import CandidateResult
from ....engine.curate.stored import MEASURE, StoredTuning, stored_tuning
from ....engine.jobs.folder import doing, jobs
from ....engine.store.settings import Settings
from ....engine.store.trials import SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ...model import Empty, SortedModel

if TYPE_CHECKING:  # imports numba when it computes; the tab is shown before that
    from ....engine.trials.source_results import CurvePoint
    from ....engine.trials.sources import VoteMeasurement, VoteTuneReport


@dataclass(frozen=True, slots=True)
class SourcesData:
    """The sources, and the latest race with served prompts, None before the first."""

    sources: Sequence[SourceSummary]
    served: StoredTuning | None
    training: str = ""
    measuring: str = ""
    """The job that learns weights, and the one that measures served prompts, in words."""
    measured: VoteMeasurement | None = None
    """The effect of pruning by the vote, if it was computed before."""


def read(workspace: Workspace, settings: Settings | None = None) -> SourcesData | Empty:
    """The sources of the current workspace; with ``settings`` also the vote, if it was measured before."""
    sources = source_summaries(workspace)
    if not sources:
        return Empty("The pool is empty", "Sources appear here after indexing.", "icl-curate index POOL.jsonl")
    listed = jobs(workspace)
    training, measuring = (doing(listed, kind) for kind in ("train-sources", "tune"))
    measured = None
    if settings is not None and any(one.weight is not None for one in sources):
        from ....engine.trials.sources import stored_vote

        measured = stored_vote(workspace, settings)
    return SourcesData(
        sources,
        stored_tuning(workspace),
        training.in_words if training else "",
        measuring.in_words if measuring else "",
        measured,
    )


TUNE = MEASURE.removeprefix("icl-curate ")
"""The command that starts the race with served prompts."""


def measure(workspace: Workspace, settings: Settings, cancel: CancelToken, report: Report = silent) -> VoteMeasurement:
    """The effect of pruning by each estimator, and the choice on validation; no LLM is called. For threads."""
    from ....engine.trials.sources import measure_vote

    return measure_vote(workspace, settings, cancel, report)


class SourcesModel(SortedModel):
    """The table of sources, and a threshold for pruning."""

    SORTS: ClassVar[Mapping[str, Callable[[SourceSummary], Any]]] = {
        "source": lambda s: s.source.lower(),
        "weight": lambda s: s.weight,
        "leave-one-out": lambda s: s.leave_one_out,
        "reliability": lambda s: s.reliability,
        "alone": lambda s: s.accuracy,
        "hits": lambda s: s.hits,
        "size": lambda s: s.demonstrations,
        "pruned": lambda s: s.demonstrations - s.active,
        "repeats": lambda s: s.duplicates,
    }
    RISING = frozenset({"source"})

    def __init__(self) -> None:
        super().__init__("weight")
        self.sources: list[SourceSummary] = []
        """In the order of the table."""
        self.measured: VoteMeasurement | None = None
        self.served: StoredTuning | None = None
        """The latest race with served prompts."""
        self.training = self.measuring = ""
        """What a job is doing, in words, as in `SourcesData`."""
        self.progress: Event | None = None
        """How far the vote is measured."""
        self.view = ""
        """``vote`` or ``served``, where there is only room for one; empty: not chosen."""
        self.estimator = ""
        self.at = 0
        """The index of the curve's point at the threshold."""
        self._measured_for: tuple[int, int] | None = None
        """Run and k of the curve on which the threshold was set."""

    def remember(self) -> dict[str, Any]:
        return super().remember() | {"estimator": self.estimator}

    def recall(self, stored: dict[str, Any]) -> None:
        super().recall(stored)
        self.estimator = str(stored.get("estimator", ""))

    # The table.

    @property
    def learnt(self) -> bool:
        """Whether any source has a weight."""
        return any(s.weight is not None for s in self.sources)

    def source(self, at: int) -> SourceSummary | None:
        """The source in line ``at``."""
        return self.sources[at] if at < len(self.sources) else None

    def arrange(self, cursor: int, sources: Sequence[SourceSummary] | None = None) -> int:
        """Sort the sources, or newly read ones; returns the line of the one that was at ``cursor``."""
        here = self.source(cursor)
        self.sources = self.in_order(self.sources if sources is None else sources)
        return next((i for i, s in enumerate(self.sources) if here and s.source == here.source), cursor)

    # Served prompts.

    @property
    def panel(self) -> str:
        """What is shown where there is only room for one: the served prompts, unless only the vote has something to
        show or the other one was chosen."""
        return self.view or ("vote" if self.served is None and self.learnt else "served")

    def take_served(self, served: StoredTuning | None) -> None:
        """Set the latest race; a new one is shown, whatever was shown before."""
        if served is not None and (self.served is None or served.started_at != self.served.started_at):
            self.view = ""
        self.served = served

    def switch_view(self) -> None:
        """Show the vote instead of the served prompts, or the other way round."""
        self.view = "vote" if self.panel == "served" else "served"

    @property
    def raced(self) -> list[CandidateResult]:
        """The candidates that were asked: keeping everything first, then the best, then the others by accuracy."""
        if self.served is None:
            return []
        everything, *others = [one for one in self.served.report.candidates if one.accuracy is not None]
        return [everything, *sorted(others, key=lambda one: (not one.chosen, -(one.accuracy or 0.0)))]

    # The curve of the vote.

    def take_measured(self, measured: VoteMeasurement) -> None:
        """Set the curves; the threshold is kept while they are of the same training."""
        self.measured = measured
        if measured.curves is None:
            return
        names, which = list(measured.curves.curves), (measured.curves.run, measured.curves.k)
        if self.estimator not in names:
            self.estimator = measured.tuned.estimator if measured.tuned else names[0]
        if which != self._measured_for:
            self._measured_for = which
            self._to_star()
        self.move_to(self.at)

    @property
    def tuned(self) -> VoteTuneReport | None:
        """The choice on validation."""
        return self.measured.tuned if self.measured else None

    @property
    def points(self) -> Sequence[CurvePoint]:
        """The estimator's curve."""
        if self.measured is None or self.measured.curves is None:
            return ()
        return self.measured.curves.curves.get(self.estimator, ())

    @property
    def star(self) -> int | None:
        """The point chosen by tuning, on the curve of its estimator."""
        tuned = self.tuned
        if tuned is None or not tuned.worth_it or tuned.estimator != self.estimator:
            return None
        return next((i for i, point in enumerate(self.points) if point.dropped == len(tuned.pruned)), None)

    @property
    def threshold(self) -> float | None:
        """The current threshold; None without a curve."""
        return self.points[self.at].threshold if self.points else None

    def below(self) -> set[str]:
        """The sources with scores below the threshold."""
        threshold = self.threshold
        if threshold is None or self.measured is None or self.measured.curves is None:
            return set()
        return {name for name, score in self.measured.curves.scores[self.estimator].items() if score < threshold}

    def move_to(self, at: int) -> None:
        """Move the threshold to this point, or to the nearest end."""
        self.at = max(0, min(at, len(self.points) - 1))

    def next_estimator(self) -> bool:
        """Show the curve of the next estimator; False if there is none."""
        if self.measured is None or self.measured.curves is None:
            return False
        names = list(self.measured.curves.curves)
        self.estimator = names[(names.index(self.estimator) + 1) % len(names)]
        self._to_star()
        return True

    def tune(self) -> VoteTuneReport | None:
        """Move to the threshold chosen on validation; None if there is nothing to choose on."""
        if self.tuned:
            self.estimator = self.tuned.estimator
            self._to_star()
        return self.tuned

    def to_cut(self) -> list[str]:
        """Sources below the threshold that are still active."""
        below = self.below()
        return [s.source for s in self.sources if s.source in below and s.active]

    def _to_star(self) -> None:
        self.at = self.star or 0
