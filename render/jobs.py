"""Jobs in plain terminal output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import Any

from ..engine.calibrate.results import SetCalibration, calibration_from_json
from ..engine.evaluate.results import EvaluationReport
from ..engine.jobs.folder import Job, result
from ..engine.jobs.follow import Live
from ..engine.ranker.results import RankerRun
from ..engine.sources.results import SourceRun
from ..engine.topics.results import TopicRun
from .calibration import show_calibrated
from .costs import plan_rows
from .evaluation import show_evaluation
from .pool import export_rows, exported, index_rows, show_export, show_index
from .ranker import show_ranker
from .sources import show_training
from .tables import show_table, show_text
from .topics import show_topic_training

PARTS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "sources": lambda done: show_training(SourceRun.from_json(done)),
    "ranker": lambda done: show_ranker(RankerRun.from_json(done)),
    "topics": lambda done: show_topic_training(TopicRun.from_json(done)),
}
"""What is trained, and how the outcome is shown."""


def _show_parts(done: Mapping[str, Any]) -> None:
    for name, show in PARTS.items():
        if name in done:
            show(done[name])


RESULTS: dict[tuple[str, ...], Callable[[Mapping[str, Any]], None]] = {
    ("evaluate",): lambda done: show_evaluation(EvaluationReport.from_json(done)),
    **{("train", name): show for name, show in PARTS.items()},
    ("train", "all"): _show_parts,
    ("calibrate",): lambda done: show_calibrated(calibration_from_json(done)),
    ("index",): show_index,
    ("export",): show_export,
}
"""How the commands that can be jobs show what came out."""


ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What becomes of a result that no command wrote: a folder may have come from elsewhere."""


def dry_run_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a command that can be a job would do and cost, by name, from what its ``--dry-run --json`` told."""
    if "to_ask" in told:
        return plan_rows(told)
    if "counts" in told:
        return export_rows(told)
    if "added" in told:
        return index_rows(told)
    return [(f"{part}: {name}", value) for part in PARTS if part in told for name, value in plan_rows(told[part])]


def show_jobs(found: Sequence[Job]) -> None:
    """Jobs, how far each is, and what it runs."""
    rows = [[job.number, state_of(job), outcome(job, live_of(job)), took(job), job.command] for job in found]
    show_table(["#", "state", "", "took", "command>"], rows)


def live_of(job: Job) -> Live:
    live = Live()
    live.read(job.folder)
    return live


def state_of(job: Job) -> str:
    return f"{job.state} behind {job.behind}" if job.behind else job.state


def outcome(job: Job, live: Live) -> str:
    """Progress of a job in its own units, or a short summary of its result."""
    if job.state == "queued":
        return ""
    if job.state == "failed":
        return job.error
    done = result(job) if job.state == "done" else None
    if done is not None:
        try:
            return _in_short(done)
        except ODD:
            return "its result.json is damaged"
    latest = live.latest
    if latest is None:
        return ""
    event = latest.event
    return f"{event.task} {event.done:,}" + (f" of {event.total:,}" if event.total is not None else "")


def _in_short(done: Mapping[str, Any]) -> str:
    """The one figure of a result that says most."""
    methods, metrics = done.get("methods"), done.get("metrics")
    if "counts" in done:
        return f"wrote {done['out']}: {exported(done)}"
    if "added" in done:
        figures = f"{done['demonstrations']:,} demonstrations, {done['added']:,} added, {done['retired']:,} retired"
        return figures + (f", {len(done['skipped']):,} skipped" if done["skipped"] else "")
    if isinstance(methods, dict) and methods:
        report = EvaluationReport.from_json(done)
        return f"best of {len(methods)}: {report.best} {report.methods[report.best].accuracy:.3f}"
    if isinstance(metrics, dict) and "gain" in metrics:
        found = SourceRun.from_json(done).metrics
        return f"best use gains {found.gain:+.3f} ± {found.gain_error:.3f}"
    if isinstance(metrics, dict) and "best" in metrics:
        best = RankerRun.from_json(done).metrics.best
        return f"best epoch {best.epoch}" + ("" if best.accuracy is None else f", held-out {best.accuracy:.3f}")
    if isinstance(metrics, dict) and "average_precision" in metrics:
        learnt = TopicRun.from_json(done).metrics
        return f"{learnt.topics:,} topics, average precision {learnt.fit.quality.average_precision:.3f}"
    if done.get("arms"):
        calibrated = calibration_from_json(done)
        assert isinstance(calibrated, SetCalibration)
        name, arm = next(iter(calibrated.figures.arms.items()))
        return f"{name}: " + (f"{arm.rounds[0].accuracy:.3f} → " if arm.rounds else "") + f"{arm.accuracy:.3f}"
    parts = [_in_short(done[name]) for name in PARTS if isinstance(done.get(name), dict)]
    return "; ".join(parts) or (f"run {done['run']}" if "run" in done else "")


def took(job: Job, now: float | None = None) -> str:
    """How long a job ran, or runs."""
    if job.started is None:
        return ""
    return duration((job.ended or now or time.time()) - job.started)


def duration(seconds: float) -> str:
    """1:05 or 2:01:05."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_result(job: Job, done: Mapping[str, Any]) -> None:
    """What a finished job printed, as its command shows it in the foreground."""
    for command, show in RESULTS.items():
        if tuple(dropwhile(_is_option, job.arguments))[: len(command)] == command:
            with suppress(*ODD):
                show(done)
                return
    show_text(json.dumps(done, ensure_ascii=False, indent=2, default=str))


def _is_option(word: str) -> bool:
    return word.startswith("-")
