"""The running jobs at the tabs of the app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .widgets.tabbar import TabBar
from .workers import BackgroundWork

if TYPE_CHECKING:
    from .live_jobs import LiveJob, LiveJobs


class JobWatch(BackgroundWork):
    """Shows the running jobs in the `TabBar`, and tells of one that has ended if the tab Jobs does not."""

    live_jobs: tuple[LiveJob, ...] = ()
    _watched: LiveJobs | None = None

    def look_at_jobs(self) -> None:
        """Read them in a thread and show them."""
        from .live_jobs import LiveJobs, badge  # after the first paint

        watched = self._watched = self._watched or LiveJobs(self.app.folder)  # type: ignore[attr-defined]

        def show(found: tuple[LiveJob, ...]) -> None:
            ended = {job.number for job in self.live_jobs} - {job.number for job in found}
            self.live_jobs = found
            for bar in self.app.query(TabBar):  # none while the app is ending
                bar.badge = badge(found)
            if ended and any(tab.stale for tab in self.app.tabs if tab.NAME == "jobs"):  # type: ignore[attr-defined]
                self.app.notify(f"job {', '.join(map(str, sorted(ended)))} has ended: tab 8 shows the result")

        self.in_thread("live", watched.look, show)
