"""Output of `jobs`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..engine.base.contract import Reported
from ..engine.base.errors import counted
from ..engine.curate.plan import CurationDryRun
from ..engine.evaluate.results import SweepReport
from ..engine.export.results import ExportReport
from ..engine.index.results import IndexReport
from ..engine.jobs.folder import Job, result
from ..engine.jobs.follow import JobProgress
from ..engine.jobs.kinds import Parts, read, runs_of
from ..engine.llm.cost import DryRun
from ..engine.llm.marks import figure
from ..engine.papers.calibrate.keys import KeyReport
from ..engine.papers.calibrate.results import FineTuningCost, SetCalibration
from ..engine.papers.topics.results import TopicRun
from . import show
from .calibration import fine_tuning_line
from .costs import plan_rows
from .curate import brief_curation as brief_curation
from .curate import brief_tuning, visible_line
from .learned import kept
from .pool import exported, index_rows
from .tables import Head, show_table, show_text


def _best_point(report: SweepReport) -> str:
    point, name = report.best
    return f"best: {name} with {report.setting} = {point.value} {figure(point.report.methods[name].accuracy)}"


def _precision(done: TopicRun) -> str:
    metrics = done.metrics
    return f"{counted(metrics.topics, 'topic')}, average precision {metrics.fit.quality.average_precision:.3f}"


def _gain_of_tags(done: KeyReport) -> str:
    gains = [row.versus.difference for row in done.places if row.versus]
    return f"tags gain {sum(gains) / len(gains):+.3f}"


def _first_to_last(done: SetCalibration) -> str:
    if not done.figures.arms:
        return counted(done.usage.calls, "answer")
    name, arm = next(iter(done.figures.arms.items()))
    first = "".join(f"{figure(its.accuracy)} → " for its in arm.rounds if its.round == 0)
    return f"{name}: {first}{figure(arm.accuracy)}"


def _changed(done: IndexReport) -> str:
    figures = f"{counted(done.demonstrations, 'demonstration')}, {done.added:,} added, {done.retired:,} retired"
    return figures + (f", {len(done.skipped):,} skipped" if done.skipped else "")


BRIEF: Mapping[str, Callable[[Any], str]] = {
    "calibration": lambda done: counted(done.usage.calls, "answer"),
    "calibration-set": _first_to_last,
    "curation": brief_curation,
    "evaluation": lambda done: f"best of {len(done.methods)}: {done.best} {figure(done.methods[done.best].accuracy)}",
    "export": lambda done: f"wrote {done.out}: {exported(done)}",
    "index": _changed,
    "key-ablation": _gain_of_tags,
    "sweep": _best_point,
    "train-all": lambda done: "; ".join(BRIEF[part.kind](part) for part in done.parts.values()),
    "train-calibration": lambda done: f"loss {done.metrics.steps[0].loss:.3f} → {done.metrics.steps[-1].loss:.3f}",
    "train-datamodel": lambda done: f"effects of {counted(len(done.metrics.sources), 'source')}",
    "train-fixed": lambda done: f"a set of {counted(len(done.metrics.shots), 'demonstration')}",
    "train-ranker": lambda done: kept(done.metrics),
    "train-ranker-seeds": lambda done: f"{counted(len(done.seeds), 'seed')} trained",
    "train-rows": lambda done: f"{done.metrics.suspects:,} suspects, {done.metrics.suspects_before:,} before",
    "train-sources": lambda done: f"best use gains {done.metrics.gain:+.3f} ± {done.metrics.gain_error:.3f}",
    "train-topics": _precision,
    "tuning": brief_tuning,
}
"""The result of a job in one figure, by its kind."""

ODD = (ValueError, LookupError, ArithmeticError)
"""Errors from a result that no command wrote: a folder may have been copied from elsewhere."""


def dry_run_rows(done: Reported) -> list[tuple[str, str]]:
    """What a command that can be a job would do and cost, as labels and values."""
    match done:
        case DryRun():
            return plan_rows(done)
        case CurationDryRun():
            steps = [(f"step {i}", f"{step.what} (calls: {step.calls:,})") for i, step in enumerate(done.steps, 1)]
            seen = [("gains", visible_line(done.visible))] if done.visible else []
            waits = [("waits for you", done.held.step.found)] if done.held else []
            return [*waits, *steps, *plan_rows(done.cost), *seen]
        case ExportReport():
            named = {"writes": exported(done), "to": done.out, "as": done.format, "manifest": done.manifest}
            return [*named.items()]
        case IndexReport():
            return index_rows(done)
        case FineTuningCost():
            return [("training", fine_tuning_line(done)), *(("warning", told) for told in done.warnings)]
        case Parts():
            parts = ((name, row) for name, part in done.parts.items() for row in dry_run_rows(part))
            return [(f"{name}: {label}", value) for name, (label, value) in parts]
    raise ValueError(f"a {done.kind} is no dry run")


def show_jobs(jobs: Sequence[Job]) -> None:
    """Jobs with their progress and command."""
    rows = []
    for job in jobs:
        live = live_of(job)
        share = live.share(job.line.kind) if job.state == "running" else None
        state = state_of(job) + ("" if share is None else f" {share:.0%}")
        rows.append([job.number, state, outcome(job, live), took(job), str(job.line)])
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
            return BRIEF[report.kind](report) + other_runs(job.number, runs_of(report))
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


def took(job: Job) -> str:
    """How long a job ran or has been running."""
    if job.started is None:
        return ""
    return duration((job.ended or time.time()) - job.started)


def duration(seconds: float) -> str:
    """1:05 or 2:01:05."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_parts(done: Parts) -> None:
    """What ``train all`` learnt, part by part."""
    for part in done.parts.values():
        show(part.kind, part)


def show_result(job: Job, done: Mapping[str, Any]) -> None:
    """The result of a finished job, as its command shows it in the foreground."""
    with suppress(*ODD):
        report = read(done, job.line.kind)
        show(report.kind, report)
        return
    show_text(json.dumps(done, ensure_ascii=False, indent=2, default=str))
