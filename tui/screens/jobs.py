"""Jobs: long work in processes of its own, as it runs, waits and ends."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from ...engine.jobs.folder import Job, jobs, log
from ...engine.jobs.follow import Live
from ...engine.jobs.start import cancel, resume
from ...engine.pool.display import display_line
from ...engine.progress import Event
from ...engine.store.workspace import Workspace
from ..actions import Action, bindings
from ..dialogs.confirm import Confirm
from ..dialogs.start import propose
from ..plain_jobs import duration, outcome, took
from ..room import Empty, Room
from ..widgets.logview import LogView
from ..widgets.table import Column, Line, LineTable
from ..widgets.trend import Trend, short

LOOK = 0.5
"""Seconds between two looks at the jobs' folders."""

COMMANDS = ("train sources", "train ranker", "train topics", "train all", "evaluate")
"""What a new job is proposed to be."""

MOST_TASKS = 4
"""Tasks of a running job that are shown, the latest."""

CURVES = {"loss": "loss", "held_out_loss": "held-out", "sigma": "σ", "shots": "shots", "accuracy": "accuracy"}
"""Figures of every step that are drawn, and their titles."""

STYLES = {"queued": "muted", "running": "accent", "done": "good", "failed": "bad", "cancelled": "warn"}

COLUMNS = (
    Column("number", "#", 4, right=True, sortable=False),
    Column("state", "state", 9, sortable=False),
    Column("outcome", "", 26, grow=3, most=60, sortable=False),
    Column("took", "took", 7, right=True, rank=1, sortable=False),
    Column("left", "left", 7, right=True, rank=2, sortable=False),
    Column("command", "command", 16, grow=5, rank=3, sortable=False),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A job, what its events tell, what came of it in a few words, and its log."""

    job: Job
    live: Live
    outcome: str
    log: str


class JobsRoom(Room):
    NAME = "jobs"
    TITLE = "Jobs"
    ABOUT = "Long work in processes of its own: closing this program does not stop it."
    ACTIONS = (
        Action(
            "jobs.new", "n", "New", "Start training or an evaluation, cost first", "icl-curate evaluate --background"
        ),
        Action("jobs.cancel", "c", "Cancel", "Stop it; what was paid is kept", "icl-curate jobs cancel N"),
        Action("jobs.kill", "K", "Kill", "Stop it at once; calls in flight may be paid again", footer=False),
        Action(
            "jobs.resume", "r", "Resume", "Run its command again; pays only for the rest", "icl-curate jobs resume N"
        ),
        Action("jobs.edit", "e", "Edit", "Change its command, see the cost, start that", footer=False),
        Action("jobs.log", "l", "Log", "To its log and back", "icl-curate jobs follow N"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.selected: int | None = None
        """Number of the job shown below the table."""
        self._looking = False
        self._known: dict[int, Seen] = {}
        self._states: dict[int, str] = {}

    def compose_body(self) -> ComposeResult:
        yield LineTable(COLUMNS)
        with Vertical(id="job"):
            yield Static(id="what")
            yield Static(id="now")
            with Horizontal(id="curves"):
                for name, title in CURVES.items():
                    yield Trend(title, id=f"curve-{name}")
            yield LogView()

    def on_mount(self) -> None:
        self.set_interval(LOOK, self._look)

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def current(self) -> Seen | None:
        return next((seen for seen in self.seen if seen.job.number == self.selected), None)

    def select(self, number: int) -> None:
        """Show this job, which may not have been seen yet."""
        self.selected = number
        self.reload()

    def start(self) -> LineTable:
        return self.table

    def copied(self) -> str:
        return self.current.job.command if self.current else ""

    # What the folders say.

    def read(self, workspace: Workspace) -> list[Seen] | Empty:
        found = []
        ended = {number: seen.job for number, seen in self._known.items() if not seen.job.live}
        for job in jobs(workspace, ended):
            seen = self._known.get(job.number)
            if seen is None or seen.job.live:
                seen = self._known[job.number] = _seen(job, seen.live if seen else Live())
            found.append(seen)
        return found or Empty(
            "No jobs yet",
            "Training and evaluation run here, one at a time, in processes of their own; n starts one.",
            "icl-curate train sources --background",
        )

    def _look(self) -> None:
        """Between two changes of the workspace jobs go on too."""
        alive = any(seen.job.live for seen in self.seen)
        if (alive or self.display) and not (self._looking or self.stale):
            self._looking = True
            self.reload()

    def reload(self) -> None:
        self._looking = True
        super().reload()

    def failed(self, kind: str, error: Any) -> None:
        self._looking = self._looking and kind != "load"
        super().failed(kind, error)

    def _loaded(self, found: Any) -> None:
        self._looking = False
        super()._loaded(found)

    def show(self, found: list[Seen]) -> None:
        self.seen = found
        numbers = [seen.job.number for seen in found]
        if self.selected not in numbers:
            self.selected = next((seen.job.number for seen in found if seen.job.state == "running"), numbers[0])
        self.table.fill([_line(seen) for seen in found])
        self.table.cursor = numbers.index(self.selected)
        self._tell_ends()
        self._show_current()

    def _tell_ends(self) -> None:
        for seen in self.seen:
            job, before = seen.job, self._states.get(seen.job.number)
            if before in ("queued", "running") and not job.live:
                severity = "error" if job.state == "failed" else "information"
                said = f"job {job.number} {job.state}" + (f": {seen.outcome}" if seen.outcome else "")
                self.notify(display_line(said, 200), severity=severity, markup=False)  # type: ignore[arg-type]
            self._states[job.number] = job.state

    # One job.

    @on(LineTable.Moved)
    def _moved(self) -> None:
        at = self.table.cursor  # not the message's: jobs may have come since
        if at < len(self.seen):
            self.selected = self.seen[at].job.number
            self._show_current()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        seen = self.current
        if seen and seen.job.state == "done" and "evaluate" in seen.job.arguments:
            self.review.visit("evaluate")
        else:
            self.action_log()

    def _show_current(self) -> None:
        seen = self.current
        if seen is None:
            return
        self.query_one("#what", Static).update(_what(seen.job))
        self.query_one("#now", Static).update(_now(seen, self.screen.has_class("-flat")))
        steps = seen.live.steps
        self.query_one("#curves").display = bool(steps)
        for name in CURVES:
            values = [step[name] for step in steps if name in step]
            trend = self.query_one(f"#curve-{name}", Trend)
            trend.set_class(not values, "-unknown")
            trend.draw(values)
        self.query_one(LogView).tell(_log(seen))

    # Actions.

    def action_new(self) -> None:
        propose(self, COMMANDS)

    def action_edit(self) -> None:
        if self.current:
            propose(self, [shlex.join(self.current.job.arguments)])

    def action_cancel(self) -> None:
        if seen := self._stoppable():
            number = seen.job.number
            self.in_thread("stop", lambda: cancel(self.review.opened(), number), self._asked_to_stop)

    def action_kill(self) -> None:
        seen = self._stoppable()
        if seen is None:
            return
        number = seen.job.number

        def answered(yes: bool | None) -> None:
            if yes:
                self.in_thread("stop", lambda: cancel(self.review.opened(), number, kill=True), self._asked_to_stop)

        told = "What was answered is kept; the calls now in flight are lost and may be paid again."
        self.app.push_screen(Confirm(f"Kill job {number}?", [seen.job.command, told]), answered)

    def action_resume(self) -> None:
        seen = self.current
        if seen is None:
            return
        number = seen.job.number
        self.in_thread("start", lambda: resume(self.review.opened(), number), lambda job: self.select(job.number))

    def action_log(self) -> None:
        view = self.query_one(LogView)
        (self.table if view.has_focus else view).focus()

    def _stoppable(self) -> Seen | None:
        seen = self.current
        if seen is None or not seen.job.live:
            self.notify("no job that runs or waits is selected")
            return None
        return seen

    def _asked_to_stop(self, job: Job) -> None:
        if job.live:
            self.notify(f"job {job.number}: finishing the calls in flight", timeout=4)
        self.reload()


def _seen(job: Job, before: Live) -> Seen:
    """Read on where ``before`` ended; what was shown already is left as it was."""
    live = replace(
        before, tasks=dict(before.tasks), steps=list(before.steps), notes=list(before.notes), spent=dict(before.spent)
    )
    live.read(job.folder)
    return Seen(job, live, outcome(job, live), log(job))


def _line(seen: Seen) -> Line:
    job = seen.job
    state = Text(job.state, STYLES[job.state])
    if job.state == "queued":
        told = Text(f"after job {job.behind}" if job.behind else "starting", "muted")
    elif job.state == "running":
        told = _progress(seen, 6)
    else:
        told = Text(display_line(seen.outcome), "bad" if job.state == "failed" else "")
    left = seen.live.remaining(time.time()) if job.state == "running" else None
    command = job.command.removeprefix("icl-curate ")
    return Line((Text(str(job.number)), state, told, took(job), "" if left is None else duration(left), command))


def _progress(seen: Seen, width: int) -> Text:
    latest = seen.live.latest
    if latest is None:
        return Text("starting", "muted")
    if latest.event.done == latest.event.total:
        return Text(f"{latest.event.task} done, going on", "muted")
    return _gauge(latest.event, width)


def _gauge(event: Event, width: int) -> Text:
    """A bar, the share, and the units."""
    told = Text()
    if event.total:
        full = round(event.done / event.total * width)
        told.append("━" * full, "primary").append("─" * (width - full), "muted")
        told.append(f" {event.done / event.total:4.0%} ")
    told.append(f"{event.task} ", "muted")
    return told.append(f"{event.done:,}" + (f" of {event.total:,}" if event.total is not None else ""))


def _what(job: Job) -> Text:
    told = Text.assemble((f"job {job.number} ", "title"), (job.state, STYLES[job.state]), "  ")
    told.append(display_line(job.command))
    for name, moment in (("started", job.started), ("ended", job.ended)):
        if moment is not None:
            told.append(f"  {name} {datetime.fromtimestamp(moment):%H:%M:%S}", "muted")
    if job.error:
        told.append("\n" + display_line(job.error, 400), "bad")
        told.append("  " + display_line(job.fix, 200), "muted")
    return told


def _now(seen: Seen, alone: bool) -> Text:
    """The tasks under way and the latest figures; those that curves show too only where it stands ``alone``."""
    job, live = seen.job, seen.live
    told = Text()
    if job.state == "running":
        for one in list(live.tasks.values())[-1 if alone else -MOST_TASKS :]:
            told.append_text(_gauge(one.event, 24))
            left = live.remaining(time.time()) if one is live.latest else None
            told.append(f"  {duration(left)} left" if left is not None else "", "accent")
            told.append("\n")
    elif job.state == "done":
        told.append(display_line(seen.outcome) + "\n")
    step = live.steps[-1] if live.steps else {}
    figures = [(title, short(step[name])) for name, title in CURVES.items() if alone and name in step]
    spent = live.spent
    if spent.get("calls"):
        figures += [
            ("calls", f"{spent['calls']:,.0f}"),
            ("tokens", f"{spent['tokens_in']:,.0f} in {spent['tokens_out']:,.0f} out"),
        ]
    if spent.get("cost"):
        figures.append(("cost", f"${spent['cost']:,.4f}"))
    asked = live.tasks.get("ask")
    for name in ("cached", "failed", "in_flight"):
        if asked and asked.event.fields.get(name) and (job.state == "running" or name == "failed"):
            figures.append((name.replace("_", " "), f"{asked.event.fields[name]:,.0f}"))
    for i, (name, figure) in enumerate(figures):
        told.append("  " if i else "")
        told.append(f"{name} ", "muted").append(figure)
    return told


def _log(seen: Seen) -> Sequence[Text]:
    """Notes with their times, then what the process wrote to stderr; not the error that stands above already."""
    lines = [
        Text.assemble((f"{datetime.fromtimestamp(moment):%H:%M:%S} ", "muted"), display_line(note, 2000))
        for moment, note in seen.live.notes
    ]
    return lines + [Text(display_line(line, 2000), "muted") for line in seen.log.splitlines() if not _is_error(line)]


def _is_error(line: str) -> bool:
    with suppress(ValueError):
        told = json.loads(line)
        return isinstance(told, dict) and "error" in told
    return False
