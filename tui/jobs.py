"""State of the dialog of jobs: the jobs from their folders, the one shown, which of them have ended; which LLM a new
one asks. No Textual."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.text import Text

from ..engine.base.errors import CurateError, UsageError
from ..engine.jobs.folder import Job, jobs, log
from ..engine.jobs.follow import JobProgress
from ..engine.pool.display import display_line
from ..engine.report.road import asking
from ..engine.store.settings import resolve
from ..engine.store.workspace import Workspace
from ..render.columns import LineColumn
from ..render.jobs import duration, outcome, took
from .model import told
from .widgets.lines import Line, gauge, short

RESULT_TABS = {
    "index": "overview", "curate": "overview", "evaluate": "evaluate", "tune": "sources",
    "train-sources": "sources", "train-ranker": "demos", "train-topics": "topics", "export": "export",
    **dict.fromkeys(("calibrate", "calibrate-query", "calibrate-keys"), "calibrate"),
}  # fmt: skip
"""Tabs that show the results, by the kind of job; Overview names the next step."""


def options_of_latest(folder: Path, workspace: Workspace, limited: bool) -> tuple[str, ...]:
    """The options by which a command asks the LLM of the latest work; none if the settings name one or are wrong, and
    in a limited session. For threads: reads files."""
    with suppress(UsageError):  # told where they are needed
        found = resolve(folder, {})
        if not limited and found.origins["llm"] == "default":
            return (*asking(workspace, found.settings.base_url),)
    return ()


def stop_told(job: Job, kill: bool) -> str:
    """What is still to come of a job that was asked to stop; nothing if it has ended."""
    if kill or not job.live:
        return ""
    ends = "ends once calls in flight are answered" if job.state == "running" else "does not begin"
    return f"job {job.number}: {ends}"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, the state from its events, a short summary of its result, and its log."""

    job: Job
    live: JobProgress
    outcome: str
    log: str


class JobsModel:
    """All jobs of the workspace, and the one shown."""

    def __init__(self) -> None:
        self.seen: Sequence[JobView] = ()
        """In the order of the table."""
        self.selected: int | None = None
        """Number of the job shown below the table."""
        self._wanted: int | None = None
        """Number of the job to show once it has been read."""
        self._known: dict[int, JobView] = {}
        """By number; ended jobs are not read again."""

    def read(self, workspace: Workspace) -> list[JobView]:
        """The current jobs. For threads."""
        views = []
        ended = {number: seen.job for number, seen in self._known.items() if not seen.job.live}
        for job in jobs(workspace, ended):
            seen = self._known.get(job.number)
            if seen is None or seen.job.live:
                live = (seen.live if seen else JobProgress()).read_on(job)
                seen = self._known[job.number] = JobView(job, live, outcome(job, live), log(job))
            views.append(seen)
        return views

    def take(self, views: Sequence[JobView]) -> int:
        """Set the jobs; returns the line of the one shown: the same as before, else a running one, else the first."""
        self.seen = views
        numbers = [seen.job.number for seen in views]
        if self._wanted in numbers:
            self.selected, self._wanted = self._wanted, None
        if self.selected not in numbers:
            running = (seen.job.number for seen in views if seen.job.state == "running")
            self.selected = next(running, (*numbers, None)[0])
        return numbers.index(self.selected) if self.selected is not None else 0

    @property
    def current(self) -> JobView | None:
        """The job shown."""
        return next((seen for seen in self.seen if seen.job.number == self.selected), None)

    @property
    def stoppable(self) -> JobView | None:
        """The job shown, if it is running or queued."""
        return self.current if self.current and self.current.job.live else None

    @property
    def result_tab(self) -> str:
        """The tab that shows the result of the job shown, if it is finished and there is one."""
        seen = self.current
        return RESULT_TABS.get(seen.job.line.kind, "") if seen and seen.job.state == "done" else ""

    def want(self, number: int | None) -> None:
        """Show this job as soon as it has been read, wherever the cursor is meanwhile."""
        self._wanted = number

    def point(self, at: int) -> bool:
        """Show the job in line ``at``; False if there is none."""
        if at >= len(self.seen):
            return False
        self.selected = self.seen[at].job.number
        return True


MOST_TASKS = 4
"""Maximum tasks shown of a running job, the latest."""

CURVES = {"loss": "loss", "held_out_loss": "held-out", "sigma": "σ", "shots": "shots", "accuracy": "accuracy"}
"""Figures of every step that are plotted, and their titles."""

STYLES = {"queued": "muted", "running": "accent", "done": "good", "failed": "bad", "cancelled": "warn"}

COLUMNS = (
    LineColumn("number", "#", 4, right=True),
    LineColumn("state", "state", 9),
    LineColumn("outcome", "", 26, grow=3, most=60),
    LineColumn("took", "took", 7, right=True, rank=1),
    LineColumn("left", "left", 7, right=True, rank=2),
    LineColumn("command", "command", 16, grow=5, rank=3),
)


def job_line(seen: JobView) -> Line:
    job = seen.job
    state = Text(job.state, STYLES[job.state])
    if job.state == "queued":
        text = Text(f"after job {job.behind}" if job.behind else "starting", "muted")
    elif job.state == "running":
        text = _progress(seen)
    else:
        text = Text(display_line(seen.outcome), "bad" if job.state == "failed" else "")
    left = seen.live.remaining(time.time()) if job.state == "running" else None
    command = shlex.join(job.line.words)
    return Line((Text(str(job.number)), state, text, took(job), "" if left is None else duration(left), command))


def _progress(seen: JobView) -> Text:
    latest = seen.live.latest
    if latest is None:
        return Text("starting", "muted")
    if latest.event.done == latest.event.total:
        return Text(display_line(f"{latest.event.task} done, going on", 60), "muted")
    return gauge(latest.event, 6)


def headline(job: Job) -> Text:
    text = Text.assemble((f"job {job.number} ", "title"), (job.state, STYLES[job.state]), "  ")
    text.append(display_line(str(job.line)))
    for name, moment in (("started", job.started), ("ended", job.ended)):
        if moment is not None:
            text.append(f"  {name} {datetime.fromtimestamp(moment):%H:%M:%S}", "muted")
    if job.error:
        text.append("\n").append_text(told(CurateError(job.error, job.fix)))
    return text


def leads_to(tab: str) -> Text:
    """Where to go after a job, and by which key."""
    what = "the next step" if tab == "overview" else "the result"
    return Text.assemble(("⏎", "accent"), (f" goes to {what}, in {tab.capitalize()}", "muted"))


def figures(seen: JobView, alone: bool) -> Text:
    """The running tasks and the latest figures; figures that are also plotted only if it is shown ``alone``."""
    job, live = seen.job, seen.live
    text = Text()
    if job.state == "running":
        for one in list(live.tasks.values())[-1 if alone else -MOST_TASKS :]:
            text.append_text(gauge(one.event, 24))
            left = live.remaining(time.time()) if one is live.latest else None
            text.append(f"  {duration(left)} left" if left is not None else "", "accent")
            text.append("\n")
    elif job.state == "done":
        text.append(display_line(seen.outcome) + "\n")
    step = live.steps[-1] if live.steps else {}
    shown_figures = [(title, short(step[name])) for name, title in CURVES.items() if alone and name in step]
    spent = live.spent
    if spent.calls:
        shown_figures += [
            ("calls", f"{spent.calls:,.0f}"),
            ("tokens", f"{spent.tokens_in:,.0f} in {spent.tokens_out:,.0f} out"),
        ]
    if spent.cost:
        shown_figures.append(("cost", f"${spent.cost:,.4f}"))
    asked = live.tasks.get("ask")
    for name in ("cached", "failed", "in_flight"):
        if asked and asked.event.fields.get(name) and (job.state == "running" or name == "failed"):
            shown_figures.append((name.replace("_", " "), f"{asked.event.fields[name]:,.0f}"))
    for i, (name, figure) in enumerate(shown_figures):
        text.append("  " if i else "")
        text.append(f"{name} ", "muted").append(figure)
    return text


def curve_line(name: str, values: Sequence[float]) -> Text:
    """What is drawn, its latest value, the lowest and the highest one."""
    line = Text.assemble((CURVES[name], "muted"), " ", (short(values[-1]), "title"))  # what does not fit goes whole
    return line.append(f"  {short(min(values))}–{short(max(values))}", "muted")


def log_lines(seen: JobView) -> Sequence[Text]:
    """Notes with their times, then the process's stderr, without the error that is already shown above."""
    lines = [
        Text.assemble((f"{datetime.fromtimestamp(moment):%H:%M:%S} ", "muted"), display_line(note, 2000))
        for moment, note in seen.live.notes
    ]
    return lines + [Text(display_line(line, 2000), "muted") for line in seen.log.splitlines() if not _is_error(line)]


def _is_error(line: str) -> bool:
    with suppress(ValueError):
        text = json.loads(line)
        return isinstance(text, dict) and "error" in text
    return False
