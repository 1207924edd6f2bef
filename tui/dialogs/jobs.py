"""The background jobs, over every place: started with the cost shown first, watched, stopped, resumed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import mean

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Sparkline, Static

from ...engine.base.errors import CurateError
from ...engine.jobs.folder import Job
from ...engine.jobs.start import cancel, resume
from ..actions import Action
from ..jobs import (
    COLUMNS,
    CURVES,
    JobsModel,
    JobView,
    curve_line,
    figures,
    headline,
    job_line,
    leads_to,
    log_lines,
    stop_told,
)
from ..widgets.bars import KeyBar
from ..widgets.reader import LogView
from ..widgets.table import LineTable
from ..workers import BackgroundWork, error_text
from .dialog import Confirm, Dialog
from .start import propose

LOOK = 0.5
"""Seconds between two reads of the jobs' folders."""

COMMANDS = (
    "train sources", "train ranker", "train topics", "train rows", "train datamodel", "train all",
    "tune --propose", "curate --max-calls 1000 --yes", "evaluate", "calibrate --split validation",
)  # fmt: skip
"""Commands suggested for a new job."""

NONE_YET = (
    "no jobs yet: training and evaluation run in the background, one at a time; n starts a job\n"
    "$ icl-curate train sources --background"
)


class Jobs(Dialog[None], BackgroundWork):
    """A list of the jobs above the one under the cursor."""

    TITLE = "Jobs"
    COMMAND = "icl-curate jobs"
    ABOUT = "Background jobs: they keep running when this program is closed."
    TERMS = ("job", "call cache", "σ (sigma)", "entropy (of the policy)", "trial")
    ACTIONS = (
        Action("jobs.new", "n", "New", "Start training or an evaluation (shows the cost first)",
               "icl-curate evaluate --background"),
        Action("jobs.cancel", "c", "Cancel", "Stop it; paid answers are kept", "icl-curate jobs cancel N"),
        Action("jobs.kill", "K", "Kill", "Kill it; calls in flight may be paid again", footer=False),
        Action("jobs.resume", "r", "Resume", "Resume it; pays only for the rest", "icl-curate jobs resume N"),
        Action("jobs.edit", "e", "Edit", "Edit its command, show the cost, start it", footer=False),
        Action("jobs.log", "l", "Log", "Show or hide its log", "icl-curate jobs follow N"),
        Action("jobs.copy", "y", "Copy", "Copy its command", footer=False),
        Action("jobs.close", "escape,q,J", "Close", "Back to the place; jobs go on"),
    )  # fmt: skip

    def __init__(self, number: int | None = None) -> None:
        """``number``: the job to begin with."""
        super().__init__()
        self.model = JobsModel()
        self._looking = self._resuming = False
        self.model.want(number)

    def compose(self) -> ComposeResult:
        with Vertical(classes="drawer"):
            yield LineTable(COLUMNS, message="reading …")
            with Vertical(id="job"):
                yield Static(id="what")
                yield Static(id="now")
                with Horizontal(id="curves"):
                    for name in CURVES:
                        with Vertical(id=f"curve-{name}", classes="curve"):
                            yield Static()
                            yield Sparkline(summary_function=mean)
                yield LogView()
        yield KeyBar()

    def on_mount(self) -> None:
        # below a dialog it stands still: to draw it there takes a third of a processor
        self.set_interval(LOOK, lambda: self.reload() if self.is_active and not self._looking else None)
        self.reload()

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def select(self, number: int | None) -> None:
        """Show this job, which may not have been read yet."""
        self.model.want(number)
        self.reload()

    # Job folders.

    def reload(self) -> None:
        self._looking = True
        self.in_thread("load", lambda: self.model.read(self.review.opened()), self._show)

    def failed(self, kind: str, error: CurateError) -> None:
        self._resuming = self._resuming and kind != "resume"
        if kind != "load":
            super().failed(kind, error)
            return
        self._looking, self.model.seen = False, ()  # none is under the cursor
        self.table.message = error_text(error, ": ")
        self.table.fill([])
        self._show_current()

    def _show(self, found: Sequence[JobView]) -> None:
        self._looking = False
        cursor = self.model.take(found)
        self.table.message = NONE_YET
        self.table.fill([job_line(seen) for seen in found])
        self.table.cursor = cursor
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
            self.dismiss()
        else:
            self.action_log()

    def _show_current(self) -> None:
        seen = self.model.current
        self.query_one("#job").visible = seen is not None
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
            curve = self.query_one(f"#curve-{name}")
            curve.set_class(not values, "-unknown")
            curve.query_one(Static).update(curve_line(name, values) if values else "")
            curve.query_one(Sparkline).data = values
        self.query_one(LogView).set_lines(log_lines(seen))

    # Actions.

    def action_new(self) -> None:
        propose(self, COMMANDS)

    def action_edit(self) -> None:
        if seen := self.model.current:
            propose(self, [shlex.join(seen.job.line.words)], as_is=True)

    def action_cancel(self) -> None:
        if seen := self._stoppable():
            self._stop(seen.job.number)

    def action_kill(self) -> None:
        seen = self._stoppable()
        if seen is None:
            return
        number, warning = seen.job.number, "Answers are kept; the calls in flight are lost and may be paid again."
        question = Confirm(f"Kill job {number}?", [str(seen.job.line), warning])
        self.app.push_screen(question, lambda yes: self._stop(number, kill=True) if yes else None)

    def action_resume(self) -> None:
        seen = self.model.current
        if seen is None or self._resuming:
            return
        self._resuming = True
        number, words = seen.job.number, seen.job.line.words

        def work() -> Job:
            self.review.permit(words)
            return resume(self.review.opened(), number)

        def resumed(job: Job) -> None:
            self._resuming = False
            self.select(job.number)

        self.in_thread("resume", work, resumed)

    def action_copy(self) -> None:
        if seen := self.model.current:
            self.review.copy(str(seen.job.line))

    def action_log(self) -> None:
        view = self.query_one(LogView)
        (self.table if view.has_focus else view).focus()

    def _stoppable(self) -> JobView | None:
        if self.model.stoppable is None:
            self.notify("select a running or waiting job first")
        return self.model.stoppable

    def _stop(self, number: int, kill: bool = False) -> None:
        def asked(job: Job) -> None:
            if told := stop_told(job, kill):
                self.notify(told)
            self.reload()

        self.in_thread("stop", lambda: cancel(self.review.opened(), number, kill=kill), asked)
