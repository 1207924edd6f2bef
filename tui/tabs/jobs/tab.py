"""The tab of background jobs."""

from __future__ import annotations

import shlex
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from ....engine.jobs.folder import Job
from ....engine.jobs.start import cancel, resume
from ....engine.pool.display import display_line
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.dialog import Confirm
from ...dialogs.start import propose
from ...model import Empty
from ...tab import Tab
from ...widgets.plots import Trend
from ...widgets.reader import LogView
from ...widgets.table import LineTable
from .model import COLUMNS, CURVES, JobsModel, JobView, figures, headline, job_line, leads_to, log_lines

LOOK = 0.5
"""Seconds between two reads of the jobs' folders."""

COMMANDS = (
    "train sources", "train ranker", "train topics", "train rows", "train datamodel", "train all",
    "tune --propose", "curate --max-calls 1000 --yes", "evaluate", "calibrate --split validation",
)  # fmt: skip
"""Commands suggested for a new job."""


class JobsTab(Tab):
    NAME = "jobs"
    TITLE = "Jobs"
    COMMAND = "icl-curate jobs"
    ABOUT = "Background jobs: they keep running when this program is closed."
    TERMS = ("job", "call cache", "σ (sigma)", "entropy (of the policy)", "trial")
    ACTIONS = (
        Action(
            "jobs.new", "n", "New", "Start training or an evaluation (shows the cost first)",
            "icl-curate evaluate --background",
        ),
        Action("jobs.cancel", "c", "Cancel", "Stop it; paid answers are kept", "icl-curate jobs cancel N"),
        Action("jobs.kill", "K", "Kill", "Kill it; calls in flight may be paid again", footer=False),
        Action("jobs.resume", "r", "Resume", "Resume it; pays only for the rest", "icl-curate jobs resume N"),
        Action("jobs.edit", "e", "Edit", "Edit its command, show the cost, start it", footer=False),
        Action("jobs.log", "l", "Log", "Show or hide its log", "icl-curate jobs follow N"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: JobsModel = JobsModel()
        self._looking = False

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

    def select(self, number: int) -> None:
        """Show this job, which may not have been read yet."""
        self.model.want(number)
        self.reload()

    def copied(self) -> str:
        seen = self.model.current
        return str(seen.job.line) if seen else ""

    # Job folders.

    def read(self, workspace: Workspace) -> list[JobView] | Empty:
        return self.model.read(workspace)

    def _look(self) -> None:
        """Jobs also progress between two changes of the workspace."""
        if (self.model.alive or self.display) and not (self._looking or self.stale):
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

    def show(self, found: list[JobView]) -> None:
        cursor = self.model.take(found)
        self.table.fill([job_line(seen) for seen in found])
        self.table.cursor = cursor
        for seen in self.model.ended():
            if seen.job.state == "failed":  # that of any other is the badge
                self.notify(display_line(f"job {seen.job.number} failed: {seen.outcome}", 200), severity="error")
        self._show_current()

    # One job.

    @on(LineTable.Moved)
    def _moved(self) -> None:
        if self.model.point(self.table.cursor):  # not the message's line: jobs may have been added since
            self._show_current()

    @on(LineTable.Chosen)
    async def _chosen(self) -> None:
        if tab := self.model.result_tab:
            await self.review.visit(tab)
        else:
            self.action_log()

    def _show_current(self) -> None:
        seen = self.model.current
        if seen is None:
            return
        self.query_one("#what", Static).update(headline(seen.job))
        told = figures(seen, self.screen.has_class("-flat"))
        if tab := self.model.result_tab:
            told.rstrip()
            told.append("\n").append_text(leads_to(tab))
        self.query_one("#now", Static).update(told)
        steps = seen.live.steps
        self.query_one("#curves").display = bool(steps)
        for name in CURVES:
            values = [step[name] for step in steps if name in step]
            trend = self.query_one(f"#curve-{name}", Trend)
            trend.set_class(not values, "-unknown")
            trend.draw(values)
        self.query_one(LogView).set_lines(log_lines(seen))

    # Actions.

    def action_new(self) -> None:
        propose(self, COMMANDS)

    def action_edit(self) -> None:
        if seen := self.model.current:
            propose(self, [shlex.join(seen.job.line.words)])

    def action_cancel(self) -> None:
        if seen := self._stoppable():
            self._stop(seen.job.number)

    def action_kill(self) -> None:
        seen = self._stoppable()
        if seen is None:
            return
        number = seen.job.number

        def answered(yes: bool | None) -> None:
            if yes:
                self._stop(number, kill=True)

        warning = "Answers are kept; the calls in flight are lost and may be paid again."
        self.app.push_screen(Confirm(f"Kill job {number}?", [str(seen.job.line), warning]), answered)

    def action_resume(self) -> None:
        seen = self.model.current
        if seen is None:
            return
        number, words = seen.job.number, seen.job.line.words

        def work() -> Job:
            self.review.permit(words)
            return resume(self.review.opened(), number)

        self.in_thread("start", work, lambda job: self.select(job.number))

    def action_log(self) -> None:
        view = self.query_one(LogView)
        (self.table if view.has_focus else view).focus()

    def _stoppable(self) -> JobView | None:
        if self.model.stoppable is None:
            self.notify("select a running or waiting job first")
        return self.model.stoppable

    def _stop(self, number: int, kill: bool = False) -> None:
        def asked(job: Job) -> None:
            if job.live:
                self.notify(f"job {job.number}: finishing the calls in flight")
            self.reload()

        self.in_thread("stop", lambda: cancel(self.review.opened(), number, kill=kill), asked)
