"""Output of `jobs`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..engine.base.contract import Reported
from ..engine.base.errors import counted
from ..engine.checks.results import RowRun
from ..engine.curate.plan import CurationDryRun
from ..engine.evaluate.results import EvaluationReport, SweepReport
from ..engine.export.results import ExportReport
from ..engine.index.results import IndexReport
from ..engine.jobs.folder import Job, result
from ..engine.jobs.follow import JobProgress
from ..engine.jobs.kinds import Parts, read, runs_of
from ..engine.llm.cost import DryRun
from ..engine.papers.calibrate.keys import KeyReport
from ..engine.papers.calibrate.results import FineTuningCost, FineTuningRun, SetCalibration
from ..engine.papers.topics.results import TopicRun
from ..engine.trials.source_results import SourceRun
from .calibration import fine_tuning_line, show_calibrated, show_fine_tuning, show_keys
from .checks import show_asked, show_datamodel
from .costs import plan_rows
from .curate import brief_curation as brief_curation
from .curate import brief_tuning, show_curation, show_tuning
from .evaluation import show_evaluation, show_sweep
from .learned import kept, show_ranker, show_ranker_seeds, show_topic_training, show_training
from .pool import export_rows, exported, index_rows, show_export, show_index
from .tables import Head, show_table, show_text


@dataclass(frozen=True, slots=True)
class Drawn:
    """How the result of a job is shown, and summarised in one figure."""

    show: Callable[[Any], None]
    brief: Callable[[Any], str]


def _best_method(report: EvaluationReport) -> str:
    return f"best of {len(report.methods)}: {report.best} {report.methods[report.best].accuracy:.3f}"


def _best_point(report: SweepReport) -> str:
    point, name = report.best
    return f"best: {name} with {report.setting} = {point.value} {point.report.methods[name].accuracy:.3f}"


def _gain(done: SourceRun) -> str:
    return f"best use gains {done.metrics.gain:+.3f} ± {done.metrics.gain_error:.3f}"


def _precision(done: TopicRun) -> str:
    metrics = done.metrics
    return f"{counted(metrics.topics, 'topic')}, average precision {metrics.fit.quality.average_precision:.3f}"


def _suspects(done: RowRun) -> str:
    return f"{done.metrics.suspects:,} suspects, {done.metrics.suspects_before:,} before"


def _last_loss(done: FineTuningRun) -> str:
    return f"loss {done.metrics.steps[0].loss:.3f} → {done.metrics.steps[-1].loss:.3f}"


def _gain_of_tags(done: KeyReport) -> str:
    gains = [row.versus.difference for row in done.places if row.versus]
    return f"tags gain {sum(gains) / len(gains):+.3f}"


def _first_to_last(done: SetCalibration) -> str:
    if not done.figures.arms:
        return counted(done.usage.calls, "answer")
    name, arm = next(iter(done.figures.arms.items()))
    return f"{name}: " + (f"{arm.rounds[0].accuracy:.3f} → " if arm.rounds else "") + f"{arm.accuracy:.3f}"


def _changed(done: IndexReport) -> str:
    figures = f"{counted(done.demonstrations, 'demonstration')}, {done.added:,} added, {done.retired:,} retired"
    return figures + (f", {len(done.skipped):,} skipped" if done.skipped else "")


def _show_parts(done: Parts) -> None:
    for part in done.parts.values():
        DRAWN[part.kind].show(part)


def _brief_parts(done: Parts) -> str:
    return "; ".join(DRAWN[part.kind].brief(part) for part in done.parts.values())


DRAWN: dict[str, Drawn] = {
    "calibration": Drawn(show_calibrated, lambda done: counted(done.usage.calls, "answer")),
    "calibration-set": Drawn(show_calibrated, _first_to_last),
    "curation": Drawn(show_curation, brief_curation),
    "evaluation": Drawn(show_evaluation, _best_method),
    "export": Drawn(show_export, lambda done: f"wrote {done.out}: {exported(done)}"),
    "index": Drawn(show_index, _changed),
    "key-ablation": Drawn(show_keys, _gain_of_tags),
    "sweep": Drawn(show_sweep, _best_point),
    "train-all": Drawn(_show_parts, _brief_parts),
    "train-calibration": Drawn(show_fine_tuning, _last_loss),
    "train-datamodel": Drawn(show_datamodel, lambda done: f"effects of {counted(len(done.metrics.sources), 'source')}"),
    "train-ranker": Drawn(show_ranker, lambda done: kept(done.metrics)),
    "train-ranker-seeds": Drawn(show_ranker_seeds, lambda done: f"{counted(len(done.seeds), 'seed')} trained"),
    "train-rows": Drawn(show_asked, _suspects),
    "train-sources": Drawn(show_training, _gain),
    "train-topics": Drawn(show_topic_training, _precision),
    "tuning": Drawn(show_tuning, brief_tuning),
}
"""By the kind of the result."""

ODD = (ValueError, LookupError, ArithmeticError)
"""Errors from a result that no command wrote: a folder may have been copied from elsewhere."""


def dry_run_rows(found: Reported) -> list[tuple[str, str]]:
    """What a command that can be a job would do and cost, as labels and values."""
    match found:
        case DryRun():
            return plan_rows(found)
        case CurationDryRun():
            steps = [(f"step {i}", f"{step.what} (calls: {step.calls:,})") for i, step in enumerate(found.steps, 1)]
            return [*steps, *plan_rows(found.cost)]
        case ExportReport():
            return export_rows(found)
        case IndexReport():
            return index_rows(found)
        case FineTuningCost():
            return [("training", fine_tuning_line(found)), *(("warning", told) for told in found.warnings)]
        case Parts():
            return [
                (f"{name}: {label}", value) for name, part in found.parts.items() for label, value in dry_run_rows(part)
            ]
    raise ValueError(f"a {found.kind} is no dry run")


def show_jobs(found: Sequence[Job]) -> None:
    """Jobs with their progress and command."""
    rows = [[job.number, state_of(job), outcome(job, live_of(job)), took(job), str(job.line)] for job in found]
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
    if done is not None and job.line.kind:
        try:
            report = read(done, job.line.kind)
            return DRAWN[report.kind].brief(report) + other_runs(job.number, runs_of(report))
        except ODD:
            return "its result.json is damaged"
    latest = live.latest
    if latest is None:
        return ""
    event = latest.event
    return f"{event.task} {event.done:,}" + (f" of {event.total:,}" if event.total is not None else "")


def other_runs(job: int, recorded: Sequence[int]) -> str:
    """Which runs a finished job recorded, if they are not just the one with its number: ``train all`` records several,
    and a job that waited behind another has a later run."""
    if not recorded or list(recorded) == [job]:
        return ""
    return f" (run{'' if len(recorded) == 1 else 's'} {', '.join(map(str, recorded))})"


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
    with suppress(*ODD):
        report = read(done, job.line.kind)
        DRAWN[report.kind].show(report)
        return
    show_text(json.dumps(done, ensure_ascii=False, indent=2, default=str))
