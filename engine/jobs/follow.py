"""The observer's side of a job: its progress, from its events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import open_regular
from ..base.progress import STEPS, CancelToken, Event
from .folder import EVENTS, Job, find, is_figure, is_time, numbers
from .folder import MOST as PIECE
from .folder import read as read_job
from .kinds import KINDS

if TYPE_CHECKING:
    from ..store.workspace import Workspace

LOOK = 0.2
"""Seconds between two reads of a job's folder."""


ASK = "ask"
"""The task that sends prompts."""

MOST = 0.99
"""Of a job that has not ended."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event and when it was reported, in seconds since the epoch."""

    time: float
    event: Event


def recorded_events(folder: Path, offset: int = 0) -> tuple[list[RecordedEvent], int]:
    """Events from a byte offset on, and the next offset; an incomplete last line is left for later. Read in pieces,
    however large a stranger's file is; a line that fills one is no event."""
    events: list[RecordedEvent] = []
    with suppress(OSError), open_regular(folder / EVENTS) as file:
        while True:
            file.seek(offset)
            read = file.read(PIECE)
            whole = read[: read.rfind(b"\n") + 1] or (read if len(read) == PIECE else b"")
            if not whole:
                break
            for line in whole.splitlines():
                with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    events.append(_read(json.loads(line)))
            offset += len(whole)
    return events, offset


def _read(data: dict[str, Any]) -> RecordedEvent:
    """An event as `child.Recorder` wrote it; raises `ValueError` and similar for anything else."""
    fields = {str(name): value for name, value in data["fields"].items() if is_figure(value)}
    counts = (data["done"], *([] if data["total"] is None else [data["total"]]))
    if not (is_time(data["time"]) and all(isinstance(count, int) and 0 <= count < 2**63 for count in counts)):
        raise ValueError("no event")
    return RecordedEvent(data["time"], Event(str(data["task"]), data["done"], data["total"], str(data["note"]), fields))


def follow(workspace: Workspace, number: int, cancel: CancelToken | None = None) -> Iterator[Event]:
    """Events of a job as they arrive; ends with the job, or when the token is set."""
    job = find(workspace, number)
    offset = 0
    while True:
        ended = not job.live  # checked before the events are read, so that none of them is missed
        found, offset = recorded_events(job.folder, offset)
        yield from (one.event for one in found)
        if ended or (cancel and cancel.cancelled):
            return
        time.sleep(LOOK)
        job = find(workspace, number)


@dataclass(frozen=True, slots=True)
class LLMSpending:
    """Cost of the requests so far, in US dollars; 0 if the price is unknown."""

    calls: float = 0
    tokens_in: float = 0
    tokens_out: float = 0
    cost: float = 0


@dataclass(slots=True)
class JobProgress:
    """The progress of a job: the latest event of each task, the figures of every step, the notes."""

    tasks: dict[str, RecordedEvent] = field(default_factory=dict)
    """The latest event of each task, in the order in which the tasks began."""
    steps: list[Mapping[str, float]] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    spent: LLMSpending = LLMSpending()
    _begun: dict[str, RecordedEvent] = field(default_factory=dict)
    _offset: int = 0
    _share: float | None = None

    def read(self, folder: Path) -> bool:
        """Read new events; returns whether there were any."""
        found, self._offset = recorded_events(folder, self._offset)
        for one in found:
            self.add(one)
        return bool(found)

    def read_on(self, job: Job) -> JobProgress:
        """A copy with what the job has told since: data that is already displayed is not changed."""
        later = replace(self, tasks=dict(self.tasks), steps=list(self.steps), notes=list(self.notes))
        later.read(job.folder)
        return later

    def add(self, recorded: RecordedEvent) -> None:
        event = recorded.event
        if event.note:
            self.notes.append((recorded.time, event.note))
        if event.task in STEPS and event.fields:
            self.steps.append({"done": event.done, **event.fields})
        self.spent = replace(self.spent, **{name: event.fields[name] for name in SPENT & event.fields.keys()})
        if event.note and event.total is None:
            return  # a note, no progress
        before = self.tasks.get(event.task)
        if before is None or event.done < before.event.done or event.total != before.event.total:
            self._begun[event.task] = recorded  # a restarted task: "ask" restarts with every batch
        self.tasks[event.task] = recorded

    @property
    def latest(self) -> RecordedEvent | None:
        """What to show as the job's progress: its steps if it has any, else its current task."""
        steps = [one for task, one in self.tasks.items() if task in STEPS and one.event.total]
        return steps[-1] if steps else max(self.tasks.values(), key=lambda one: one.time, default=None)

    def share(self, kind: str) -> float | None:
        """How much of the whole job is done: of the tasks that one of its ``kind`` has, by the time they take, and of
        others that have come. It never falls, though a task may begin again; None before any is known, and where none
        can be told before."""
        weights = KINDS[kind].tasks if kind in KINDS else {}
        shares = {task: one.event.done / one.event.total for task, one in self.tasks.items() if one.event.total}
        if ASK not in weights:
            shares.pop(ASK, None)  # a part of each step of a task
        if shares and weights:
            begun = [at for at, task in enumerate(weights) if task in shares]
            shares = dict.fromkeys([*weights][: max(begun, default=0)], 1.0) | shares  # what comes before it is done
            whole = sum({**dict.fromkeys(shares, 1), **weights}.values())
            made = sum(weights.get(task, 1) * min(1.0, share) for task, share in shares.items())
            self._share = max(self._share or 0.0, min(MOST, made / whole))
        return self._share

    def remaining(self, now: float) -> float | None:
        """Estimated seconds left of the task shown; None if unknown."""
        latest = self.latest
        if latest is None or latest.event.total is None or latest.event.done >= latest.event.total:
            return None
        begun = self._begun[latest.event.task]
        made, passed = latest.event.done - begun.event.done, latest.time - begun.time
        if made <= 0 or passed <= 0:
            return None
        return max(0.0, (latest.event.total - latest.event.done) * passed / made - (now - latest.time))


SPENT = {each.name for each in fields(LLMSpending)}


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A running or waiting job; ``what`` it does in words, ``share`` of it is done, None if that is unknown."""

    number: int
    running: bool
    what: str
    share: float | None


class LiveJobs:
    """Reads the jobs of a workspace again and again; those that have ended are not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "jobs"
        self._ended: set[int] = set()
        self._progress: dict[int, JobProgress] = {}

    def look(self) -> tuple[LiveJob, ...]:
        """The live ones, first to last. For threads."""
        live = []
        for number in sorted({*numbers(self._folder)} - self._ended):
            job = read_job(self._folder / str(number))
            if job.live:
                progress = self._progress[number] = self._progress.get(number, JobProgress()).read_on(job)
                live.append(LiveJob(number, job.state == "running", job.in_words, progress.share(job.line.kind)))
            else:
                self._ended.add(number)
        return tuple(live)
