"""The process that waits for the app's next command (`engine.jobs.standby`): when there is one."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .workers import BackgroundWork

if TYPE_CHECKING:
    from ..engine.jobs.standby import Standby


class StandsBy(BackgroundWork):
    """An app that has one, from its first command on."""

    folder: Path

    @property
    def job_runs(self) -> bool:
        """Whether a job is known to run or wait."""
        raise NotImplementedError

    @cached_property
    def standby(self) -> Standby:
        from ..engine.jobs.standby import Standby  # after the first paint
        from ..engine.jobs.start import PROGRAM, environment

        return Standby(PROGRAM, lambda: environment(self.folder))

    def stand_by(self) -> None:
        """A command has ended: have a process wait for the next one, unless a job runs, beside which it would load the
        LLM a second time."""
        if self.standby.used and not self.job_runs:
            self.in_thread("standby", self.standby.prepare, lambda _: None)

    def on_unmount(self) -> None:
        if "standby" in self.__dict__:
            self.standby.close()
