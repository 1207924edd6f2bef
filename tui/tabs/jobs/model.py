"""State of the Jobs tab: the jobs from their folders, the one shown, which of them have ended. No Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....engine.jobs.folder import Job, jobs, log
from ....engine.jobs.follow import JobProgress
from ....engine.store.workspace import Workspace
from ....render.jobs import outcome
from ...live_jobs import read_on
from ...model import Empty, TabModel

RESULT_TABS = {
    "index": "overview",
    "evaluate": "evaluate",
    "tune": "sources",
    "prune": "sources",
    "train-sources": "sources",
    "train-ranker": "demos",
    "train-topics": "topics",
    "calibrate": "calibrate",
    "calibrate-query": "calibrate",
    "calibrate-keys": "calibrate",
    "curate": "overview",
}
"""Tabs that show the results, by the kind of job; Overview names the next step."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, the state from its events, a short summary of its result, and its log."""

    job: Job
    live: JobProgress
    outcome: str
    log: str


class JobsModel(TabModel):
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
        self._states: dict[int, str] = {}

    def read(self, workspace: Workspace) -> list[JobView] | Empty:
        """The current jobs. For threads."""
        views = []
        ended = {number: seen.job for number, seen in self._known.items() if not seen.job.live}
        for job in jobs(workspace, ended):
            seen = self._known.get(job.number)
            if seen is None or seen.job.live:
                live = read_on(seen.live if seen else JobProgress(), job)
                seen = self._known[job.number] = JobView(job, live, outcome(job, live), log(job))
            views.append(seen)
        return views or Empty(
            "No jobs yet",
            "Training and evaluation run in the background, one at a time; n starts a job.",
            "icl-curate train sources --background",
        )

    def take(self, views: Sequence[JobView]) -> int:
        """Set the jobs; returns the line of the one shown: the same as before, else a running one, else the first."""
        self.seen = views
        numbers = [seen.job.number for seen in views]
        if self._wanted in numbers:
            self.selected, self._wanted = self._wanted, None
        if self.selected not in numbers:
            self.selected = next((seen.job.number for seen in views if seen.job.state == "running"), numbers[0])
        return numbers.index(self.selected)

    def ended(self) -> list[JobView]:
        """The jobs that ended since this was last called."""
        ended = [
            seen
            for seen in self.seen
            if self._states.get(seen.job.number) in ("queued", "running") and not seen.job.live
        ]
        self._states |= {seen.job.number: seen.job.state for seen in self.seen}
        return ended

    @property
    def alive(self) -> bool:
        """Whether any of them is running or queued."""
        return any(seen.job.live for seen in self.seen)

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
        if seen is None or seen.job.state != "done":
            return ""
        return RESULT_TABS.get(seen.job.line.kind, "")

    def want(self, number: int) -> None:
        """Show this job as soon as it has been read, wherever the cursor is meanwhile."""
        self._wanted = number

    def point(self, at: int) -> bool:
        """Show the job in line ``at``; False if there is none."""
        if at >= len(self.seen):
            return False
        self.selected = self.seen[at].job.number
        return True
