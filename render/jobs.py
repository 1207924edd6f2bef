"""Output of `jobs`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any, Generic, TypeVar

from ..engine.base import contract
from ..engine.base.contract import SPREAD
from ..engine.base.errors import counted
from ..engine.checks.results import RowRun
from ..engine.curate.plan import CurationReport, PlannedStep
from ..engine.curate.results import TuneReport
from ..engine.evaluate.results import EvaluationReport, SweepReport
from ..engine.export.results import ExportReport
from ..engine.index.results import IndexReport
from ..engine.jobs.folder import Job, result
from ..engine.jobs.follow import JobProgress
from ..engine.llm.cost import DryRun
from ..engine.papers.calibrate.keys import KeyReport
from ..engine.papers.calibrate.results import FineTuningRun, QueryCalibration, SetCalibration, calibration_from_json
from ..engine.papers.topics.results import TopicRun
from ..engine.trials.ranker_results import RankerRun
from ..engine.trials.source_results import SourceRun
from .calibration import show_calibrated, show_fine_tuning, show_keys
from .checks import show_asked
from .costs import plan_rows
from .curate import brief_tuning, show_tuning
from .curation import brief as brief_curation
from .curation import show_curation
from .evaluation import show_evaluation, show_sweep
from .pool import export_rows, exported, index_rows, show_export, show_index
from .ranker import kept, show_ranker
from .sources import show_training
from .tables import Head, show_table, show_text
from .topics import show_topic_training

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """Handling of the result of a command that can be a job: read its JSON object, show it, and summarise it in one
    figure. ``read`` raises `ValueError` for an object of another kind."""

    read: Callable[[Any], R]
    show: Callable[[R], None]
    brief: Callable[[R], str]


def _read_evaluated(data: Any) -> EvaluationReport | SweepReport:
    swept = isinstance(data, dict) and "points" in data
    return SweepReport.from_json(data) if swept else EvaluationReport.from_json(data)


def _show_evaluated(report: EvaluationReport | SweepReport) -> None:
    show_sweep(report) if isinstance(report, SweepReport) else show_evaluation(report)


def _best_method(report: EvaluationReport | SweepReport) -> str:
    if isinstance(report, SweepReport):
        point, name = report.best
        return f"best: {name} with {report.setting} = {point.value} {point.report.methods[name].accuracy:.3f}"
    return f"best of {len(report.methods)}: {report.best} {report.methods[report.best].accuracy:.3f}"


def _gain(done: SourceRun) -> str:
    return f"best use gains {done.metrics.gain:+.3f} ± {done.metrics.gain_error:.3f}"


def _precision(done: TopicRun) -> str:
    metrics = done.metrics
    return f"{counted(metrics.topics, 'topic')}, average precision {metrics.fit.quality.average_precision:.3f}"


def _suspects(done: RowRun) -> str:
    return f"{done.metrics.suspects:,} suspects, {done.metrics.suspects_before:,} before"


def _last_loss(done: FineTuningRun) -> str:
    return f"loss {done.metrics.steps[0].loss:.3f} → {done.metrics.steps[-1].loss:.3f}"


def _read_calibrated(data: Any) -> QueryCalibration | SetCalibration | KeyReport:
    return KeyReport.from_json(data) if isinstance(data, dict) and "places" in data else calibration_from_json(data)


def _show_calibrated(done: QueryCalibration | SetCalibration | KeyReport) -> None:
    show_keys(done) if isinstance(done, KeyReport) else show_calibrated(done)


def _first_to_last(done: QueryCalibration | SetCalibration | KeyReport) -> str:
    if isinstance(done, KeyReport):
        gains = [row.versus.difference for row in done.places if row.versus]
        return f"tags gain {sum(gains) / len(gains):+.3f}"
    if isinstance(done, QueryCalibration) or not done.figures.arms:
        return counted(done.usage.calls, "answer")
    name, arm = next(iter(done.figures.arms.items()))
    return f"{name}: " + (f"{arm.rounds[0].accuracy:.3f} → " if arm.rounds else "") + f"{arm.accuracy:.3f}"


def _changed(done: IndexReport) -> str:
    figures = f"{counted(done.demonstrations, 'demonstration')}, {done.added:,} added, {done.retired:,} retired"
    return figures + (f", {len(done.skipped):,} skipped" if done.skipped else "")


def _written(done: ExportReport) -> str:
    return f"wrote {done.out}: {exported(done)}"


PARTS: dict[str, Kind[Any]] = {
    "sources": Kind(SourceRun.from_json, show_training, _gain),
    "ranker": Kind(RankerRun.from_json, show_ranker, lambda done: kept(done.metrics)),
    "topics": Kind(TopicRun.from_json, show_topic_training, _precision),
}
"""The trainings, by name."""


def _read_parts(data: Any) -> dict[str, Any]:
    found = {name: kind.read(data[name]) for name, kind in PARTS.items() if isinstance(data, dict) and name in data}
    if not found:
        raise ValueError("nothing was trained")
    return found


def _show_parts(done: Mapping[str, Any]) -> None:
    for name, part in done.items():
        PARTS[name].show(part)


def _brief_parts(done: Mapping[str, Any]) -> str:
    return "; ".join(PARTS[name].brief(part) for name, part in done.items())


KINDS: dict[tuple[str, ...], Kind[Any]] = {
    ("evaluate",): Kind(_read_evaluated, _show_evaluated, _best_method),
    **{("train", name): kind for name, kind in PARTS.items()},
    ("train", "rows"): Kind(RowRun.from_json, show_asked, _suspects),
    ("train", "calibration"): Kind(FineTuningRun.from_json, show_fine_tuning, _last_loss),
    ("train", "all"): Kind(_read_parts, _show_parts, _brief_parts),
    ("prune",): Kind(TuneReport.from_json, show_tuning, brief_tuning),
    ("curate",): Kind(CurationReport.from_json, show_curation, brief_curation),
    ("calibrate",): Kind(_read_calibrated, _show_calibrated, _first_to_last),
    ("index",): Kind(IndexReport.from_json, show_index, _changed),
    ("export",): Kind(ExportReport.from_json, show_export, _written),
}
"""The commands that can be jobs."""


@dataclass(frozen=True, slots=True)
class CurationDryRun:
    """The steps that `curate` would carry out, and what all of them cost at most."""

    steps: tuple[PlannedStep, ...]
    cost: DryRun = field(metadata=SPREAD)


DryRunResult = DryRun | CurationDryRun | ExportReport | IndexReport | Mapping[str, DryRun]
"""What a command that can be a job would do; ``train all`` has a dry run for each part, by name."""

ODD = (ValueError, LookupError, ArithmeticError)
"""Errors from a result that no command wrote: a folder may have been copied from elsewhere."""


def doing(found: Sequence[Job], command: str) -> Job | None:
    """The running or waiting job of a command line, by its words before the first option; ``train all`` does what each
    of its parts does."""
    wanted = tuple(takewhile(lambda word: not _is_option(word), command.removeprefix("icl-curate ").split()))
    for job in found:
        words = tuple(dropwhile(_is_option, job.arguments))
        every = words[:2] == ("train", "all") and wanted[:1] == ("train",) and wanted[1:] in [(name,) for name in PARTS]
        if job.live and (words[: len(wanted)] == wanted or every):
            return job
    return None


def in_words(job: Job) -> str:
    """``training sources (job 3)``, or that it waits."""
    words = list(takewhile(lambda word: not _is_option(word), dropwhile(_is_option, job.arguments)))
    what = " ".join(["training", *words[1:2]] if words[:1] == ["train"] else words[:1])
    return f"{what} (job {job.number}{'' if job.state == 'running' else ' waits'})"


def _kind_of(job: Job) -> Kind[Any] | None:
    words = tuple(dropwhile(_is_option, job.arguments))
    return next((kind for command, kind in KINDS.items() if words[: len(command)] == command), None)


def read_dry_run(data: Mapping[str, Any]) -> DryRunResult:
    """From the object of ``--dry-run --json`` of a command that can be a job. Raises `ValueError` for anything else."""
    if "to_ask" in data and "steps" in data:
        return contract.from_json(CurationDryRun, data)
    if "to_ask" in data:
        return DryRun.from_json(data)
    if "counts" in data:
        return ExportReport.from_json(data)
    if "added" in data:
        return IndexReport.from_json(data)
    return {part: DryRun.from_json(data[part]) for part in PARTS if part in data}


def dry_run_rows(found: DryRunResult) -> list[tuple[str, str]]:
    """What a command that can be a job would do and cost, as labels and values."""
    if isinstance(found, DryRun):
        return plan_rows(found)
    if isinstance(found, CurationDryRun):
        steps = [(f"step {i}", f"{step.what} (calls: {step.calls:,})") for i, step in enumerate(found.steps, 1)]
        return [*steps, *plan_rows(found.cost)]
    if isinstance(found, ExportReport):
        return export_rows(found)
    if isinstance(found, IndexReport):
        return index_rows(found)
    return [(f"{part}: {name}", value) for part, dry_run in found.items() for name, value in plan_rows(dry_run)]


def show_jobs(found: Sequence[Job]) -> None:
    """Jobs with their progress and command."""
    rows = [[job.number, state_of(job), outcome(job, live_of(job)), took(job), job.command] for job in found]
    show_table(["#", Head("state"), "", Head("took", 1), Head("command", 2, "wrap")], rows)


def live_of(job: Job) -> JobProgress:
    live = JobProgress()
    live.read(job.folder)
    return live


def state_of(job: Job) -> str:
    return f"{job.state} behind {job.behind}" if job.behind else job.state


def outcome(job: Job, live: JobProgress) -> str:
    """Progress of a job in its own units, or a short summary of its result."""
    if job.state == "queued":
        return ""
    if job.state == "failed":
        return job.error
    done = result(job) if job.state == "done" else None
    kind = _kind_of(job)
    if done is not None and kind is not None:
        try:
            return kind.brief(kind.read(done)) + other_runs(job.number, done)
        except ODD:
            return "its result.json is damaged"
    latest = live.latest
    if latest is None:
        return ""
    event = latest.event
    return f"{event.task} {event.done:,}" + (f" of {event.total:,}" if event.total is not None else "")


def other_runs(job: int, done: Mapping[str, Any]) -> str:
    """Which runs a finished job recorded, if they are not just the one with its number: ``train all`` records several,
    and a job that waited behind another has a later run."""
    points = done.get("points")
    swept = [point.get("report") for point in points if isinstance(point, Mapping)] if isinstance(points, list) else []
    recorded = [one for one in (done, *(done.get(name) for name in PARTS), *swept) if isinstance(one, Mapping)]
    numbers = [one["run"] for one in recorded if isinstance(one.get("run"), int)]
    if numbers in ([], [job]):
        return ""
    return f" (run{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))})"


def took(job: Job, now: float | None = None) -> str:
    """How long a job ran or has been running."""
    if job.started is None:
        return ""
    return duration((job.ended or now or time.time()) - job.started)


def duration(seconds: float) -> str:
    """1:05 or 2:01:05."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_result(job: Job, done: Mapping[str, Any]) -> None:
    """The result of a finished job, as its command shows it in the foreground."""
    if kind := _kind_of(job):
        with suppress(*ODD):
            kind.show(kind.read(done))
            return
    show_text(json.dumps(done, ensure_ascii=False, indent=2, default=str))


def _is_option(word: str) -> bool:
    return word.startswith("-")
