"""Progress on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..engine.base.progress import Event
from ..engine.pool.display import display_line
from .console import stderr
from .suggested import completed
from .terminal import narrate

QUIET_SECONDS = 30.0
"""Off a terminal, minimum seconds between two progress lines."""


class Narrator:
    """Shows `Event`s on stderr: bars on a terminal, else an occasional line; each note once, though every step of a
    run may have it."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = stderr()
        self._event_figures = self._console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._notes = set[str]()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}", style="dim", markup=False),
            console=self._console, transient=True, disable=not self._event_figures,
        )  # fmt: skip

    def __enter__(self) -> Narrator:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if event.note and not self._quiet and event.note not in self._notes:
            self._notes.add(event.note)
            # a command that is resumed may be a stranger's, so it is told as it is
            note = event.note if event.task == "resume" else completed(event.note)
            self._console.print(Text(display_line(note)))
        live = "  ".join(f"{name} {_figure(value)}" for name, value in event.fields.items() if value)
        if self._event_figures:
            self._draw(event, live)
        elif event.total and not self._quiet and self._due(event):
            self._console.print(Text(display_line(f"{event.task}: {event.done:,} of {event.total:,}  {live}".rstrip())))

    def _draw(self, event: Event, live: str) -> None:
        if event.task not in self._tasks:
            if event.total is None and not event.done:
                return
            self._tasks[event.task] = self._progress.add_task(display_line(event.task), total=event.total, live=live)
        self._progress.update(self._tasks[event.task], completed=event.done, total=event.total, live=live)

    def _due(self, event: Event) -> bool:
        now = time.monotonic()
        first = self._said.setdefault(event.task, now)
        if now - first < QUIET_SECONDS:
            return False
        self._said[event.task] = now
        return True


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook."""
    return "ipykernel" in sys.modules


class Bars:
    """As `Narrator`, in a notebook, whose bars tqdm draws."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bar in self._bars.values():
            bar.close()

    def __call__(self, event: Event) -> None:
        if self._quiet:
            return
        if event.note:
            narrate(event.note)
        if event.task not in self._bars and event.total is not None:
            from tqdm.auto import tqdm

            self._bars[event.task] = tqdm(desc=display_line(event.task), leave=False)
        if (bar := self._bars.get(event.task)) is not None:
            bar.total, bar.n = event.total, event.done
            bar.set_postfix({name: _figure(value) for name, value in event.fields.items() if value}, refresh=True)
