"""State of the walk through the plan of `curate`: the budget, the steps, the job that carries one out, and a pruning
that waits for the curator; and its texts. No Textual."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from rich.text import Text

from ..engine.base.errors import CurateError, UsageError, counted
from ..engine.curate.plan import KIND, CurationDryRun, CurationReport, Pending, PlannedStep, StepDone
from ..engine.curate.state import Progress, effect_of, kept
from ..engine.grading import SETTINGS
from ..engine.jobs.folder import Job, doing, jobs
from ..engine.jobs.follow import JobProgress
from ..engine.pool.display import display_line
from ..engine.pool.prompts import ORDERS
from ..engine.select.methods import METHODS
from ..engine.store import runs
from ..engine.store.decisions import Change
from ..engine.store.settings import Settings, is_the_users
from ..engine.store.workspace import Workspace
from ..render.columns import LineColumn
from ..render.curate import curation_verdict, gained, held_lines, planned_calls
from ..render.decisions import effect_lines, rows_line
from ..render.jobs import took
from .live_jobs import read_on
from .widgets.lines import Line, stroke

BUDGET = "1000"
"""Calls offered for a new run."""

Phase = Literal["reading", "budget", "plan", "running", "held", "done"]
"""What the walk waits for: to have been read, a budget, the next step to be begun, a job, an answer, nothing."""

Sign = Literal["done", "rejected", "held", "next", "running", "later"]


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A step in the table. ``calls`` it made, or while it is ``ahead``, may make; ``gain`` and its interval
    (``low``, ``high``) in accuracy, without one an expected gain; ``told``: what it found, or the same by hand."""

    sign: Sign
    what: str
    calls: int
    ahead: bool
    gain: float | None
    low: float | None
    high: float | None
    told: str


@dataclass(frozen=True, slots=True)
class FoundWalk:
    """What is known of the walk at one moment. ``effect`` of the pruning that waits, with why there is none in
    ``trouble``; ``job``: the live one, else the last one that was watched; ``last``: the latest finished run."""

    settings: Settings
    state: Progress | None = None
    effect: Change | None = None
    trouble: str = ""
    job: Job | None = None
    live: JobProgress = field(default_factory=JobProgress)
    last: CurationReport | None = None


def read_walk(workspace: Workspace, settings: Settings, before: FoundWalk | None, watched: int | None) -> FoundWalk:
    """The current state; ``before`` is continued, ``watched`` is the number of the job that was started here. For
    threads; the workspace is opened only if something has changed."""
    state = kept(workspace)
    every = jobs(workspace)
    job = doing(every, "curate") or next((job for job in every if job.number == watched), None)
    live = JobProgress()
    if job is not None:
        same = before is not None and before.job is not None and before.job.number == job.number
        live = read_on(before.live if before is not None and same else live, job)
    now = FoundWalk(settings, state, job=job, live=live)
    if before is not None and before.state == state:
        return replace(now, effect=before.effect, trouble=before.trouble, last=before.last)
    if state is not None and state.held:
        try:
            return replace(now, effect=effect_of(workspace, state.held))
        except CurateError as error:
            return replace(now, trouble=f"{error.what}: reject it")
    last = runs.runs(workspace, KIND, 1) if state is None else ()
    with suppress(ValueError):
        return replace(now, last=CurationReport.from_json(last[0].summary) if last else None)
    return now


class WalkModel:
    """One walk, from the budget to the verdict."""

    def __init__(self) -> None:
        self.budget = ""
        """As typed: a number of calls, or an amount with a dollar sign."""
        self.grading = ""
        """As typed: options that say which answers are right."""
        self.found: FoundWalk | None = None
        self.plan: CurationDryRun | None = None
        """The plan for ``costed``, what was typed (`typed`) when it was priced."""
        self.costed: str | None = None
        self.anew = False
        """The next step begins a new run."""
        self.watched: int | None = None
        """Number of the job that was seen here."""
        self.deciding = False
        self.walked = False
        """A step was begun, or a decision made, here."""
        self._ended: set[int] = set()

    def take(self, walk: FoundWalk) -> Job | None:
        """Set what was read; returns the job that ended since, if one did."""
        before, self.found = self.found, walk
        if before is None:
            self.budget = _budget_of(walk.state) or BUDGET
            self.grading = shlex.join(_graded_by(walk.state))
        job = walk.job
        if job is not None and job.live:
            self.watched, self.walked, self.anew = job.number, True, False
        elif job is not None and job.number == self.watched and job.number not in self._ended:
            self._ended.add(job.number)
            return job
        return None

    @property
    def state(self) -> Progress | None:
        """The unfinished run that goes on here; None if none does."""
        return None if self.found is None or self.anew or self.other_run() else self.found.state

    @property
    def held(self) -> Pending | None:
        """The pruning that waits, whatever budget is typed: it comes first."""
        state = self.found.state if self.found and not self.anew else None
        return state.held if state else None

    @property
    def running(self) -> bool:
        """Whether a job carries out a step."""
        return self.found is not None and self.found.job is not None and self.found.job.live

    @property
    def phase(self) -> Phase:
        """What the walk waits for."""
        if self.found is None:
            return "reading"
        if self.running:
            return "running"
        if self.held:
            return "held"
        if self.walked and self.found.state is None and not self.anew and self.found.last is not None:
            return "done"
        return "plan" if self.plan is not None and self.costed == self.typed else "budget"

    @property
    def typed(self) -> str:
        """The budget and the grading."""
        return f"{self.budget} {self.grading}"

    def begin_anew(self) -> None:
        """Leave the unfinished run: the next step is the first of a new one."""
        self.anew, self.walked, self.costed = True, False, None

    def type_in(self, budget: str, grading: str) -> bool:
        """Set both; returns whether one has changed."""
        before, self.budget, self.grading = self.typed, budget, grading
        return before != self.typed

    def take_plan(self, plan: CurationDryRun, typed: str) -> None:
        """Its dry run has come."""
        self.plan, self.costed = plan, typed

    def words(self) -> list[str]:
        """The command of the next step. Raises `UsageError` for a budget or a grading that is none."""
        return [
            "curate", *_limit(self.budget), *_options(self.grading), *self._as_begun(), "--next", "--hold", "--yes",
            *(["--restart"] if self.anew else []),
        ]  # fmt: skip

    def other_run(self) -> str:
        """Why an unfinished run is not gone on with, empty if it is or there is none."""
        if self.found is None or self.found.state is None or self.anew:
            return ""
        state, settings = self.found.state, self.found.settings
        if state.key.get("llm") != settings.llm:
            return f"an unfinished run with {state.key.get('llm')} is left: the LLM is {settings.llm} now"
        if state.key.get("seed") != settings.seed:
            return "an unfinished run with another seed is left"
        if shlex.join(_graded_by(state)) != self.grading.strip():
            return "another grading begins anew"
        if _budget_of(state) != self.budget.strip():
            return f"another budget begins anew; {_budget_of(state)} goes on with the unfinished run"
        return ""

    def _as_begun(self) -> list[str]:
        """The options with which the unfinished run was begun, where the settings differ."""
        state = self.state
        if state is None or self.found is None:
            return []
        key, settings = state.key, self.found.settings
        method, shots, order, noise = (key.get(name) for name in ("method", "k", "order", "noise"))
        words = []
        if method != settings.method and method in METHODS:
            words += ["--method", str(method)]
        if shots != settings.k and isinstance(shots, int):
            words += ["--shots", str(shots)]
        if order != settings.order and order in ORDERS:
            words += ["--order", str(order)]
        if isinstance(noise, float):
            words += ["--noise", f"{noise:g}"]
        if key.get("relabel") is False:
            words.append("--no-relabel")
        return words

    # The table.

    def steps(self) -> list[WalkStep]:
        """Those that are done, the one that waits, and those to come."""
        if self.phase == "done" and self.found is not None and self.found.last is not None:
            return [_done(step) for step in self.found.last.steps]
        state = self.state or (self.found.state if self.found and (self.held or self.running) else None)
        if state is None:
            planned = self.plan.steps if self.plan is not None and self.phase in ("plan", "running") else ()
            return self._ahead(planned)
        steps = [_done(step) for step in state.steps]
        rest = _rest(state)
        if state.held:
            steps.append(replace(_done(state.held.step), sign="held"))
            return [*steps, *(_planned(step, "later") for step in rest)]
        return [*steps, *self._ahead(rest)]

    def _ahead(self, planned: Sequence[PlannedStep]) -> list[WalkStep]:
        first: Sign = "running" if self.running else "next"
        return [_planned(step, "later" if i else first) for i, step in enumerate(planned)]


def _rest(state: Progress) -> list[PlannedStep]:
    """The planned steps that are still to come, the next one first. Rounds may be repeated, which no plan knows."""
    rest = list(state.planned)
    for step in [*state.steps, *([state.held.step] if state.held else [])]:
        at = _place(rest, step.step)
        rest = rest if at is None else rest[at + 1 :]
    following = None if state.held else state.following(state.left)
    if following is None:
        return rest if state.held else []
    at, calls = _place(rest, following), state.share(following)
    if at is not None:
        return [replace(rest[at], calls=calls), *rest[at + 1 :]]
    again = [planned for planned in state.planned if planned.step == following]
    first = again[-1] if again else PlannedStep(following, following, 0, None, "")
    return [replace(first, expected_gain=None, calls=calls), *rest]


def _place(steps: Sequence[PlannedStep], name: str) -> int | None:
    return next((i for i, planned in enumerate(steps) if planned.step == name), None)


def _done(step: StepDone) -> WalkStep:
    sign: Sign = "rejected" if step.found.endswith("; rejected") else "done"
    return WalkStep(sign, step.what, step.calls, False, step.gain, step.low, step.high, step.found)


def _planned(step: PlannedStep, sign: Sign) -> WalkStep:
    return WalkStep(sign, step.what, step.calls, True, step.expected_gain, None, None, step.command)


def _limit(budget: str) -> list[str]:
    text = budget.strip().replace(",", "")
    if re.fullmatch(r"[1-9]\d{0,8}", text):
        return ["--max-calls", text]
    if re.fullmatch(r"\$\d{1,6}(\.\d{1,4})?", text) and float(text[1:]) > 0:
        return ["--max-cost", text[1:]]
    raise UsageError(f"'{budget.strip()}' is no budget", "a number of calls such as 1000, or an amount such as $2.50")


def _options(grading: str) -> list[str]:
    """The options that say which answers are right, and no others. Raises `UsageError` for anything else."""
    try:
        words = shlex.split(grading)
    except ValueError as error:
        raise UsageError(f"'{grading}' cannot be read: {error}", "close the quotation mark") from error
    names = [f"--{name.replace('_', '-')}" for name in SETTINGS]
    if len(words) % 2 or not all(word in names for word in words[::2]):
        raise UsageError(f"'{grading.strip()}' does not say which answers are right", "--metric json-f1 --least 0.8")
    return words


def _graded_by(state: Progress | None) -> list[str]:
    """The options by which the answers of a run are graded; none if one names what only the user may, as the state may
    be a stranger's."""
    words = state.graded_by.options if state and state.graded_by else []
    named = zip(words[::2], words[1::2], strict=True)
    return [] if any(is_the_users(name[2:], value) for name, value in named) else words


def _budget_of(state: Progress | None) -> str:
    """The budget of a run as it is typed; empty if it has none."""
    key: Mapping[str, object] = state.key if state else {}
    most, cost = key.get("max_calls"), key.get("max_cost")
    if isinstance(most, int) and not isinstance(most, bool):
        return str(most)
    return f"${cost:g}" if isinstance(cost, int | float) and not isinstance(cost, bool) else ""


SIGNS: dict[Sign, tuple[str, str]] = {
    "done": ("✓", "good"),
    "rejected": ("✗", "muted"),
    "held": ("?", "warn"),
    "next": ("›", "accent"),
    "running": ("⟳", "accent"),
    "later": (" ", ""),
}

COLUMNS = (
    LineColumn("step", "step", 16, grow=3, most=44, sortable=False),
    LineColumn("calls", "calls", 9, right=True, rank=2, sortable=False),
    LineColumn("gain", "gain", 7, sortable=False),
    LineColumn("interval", "95 %", 16, rank=1, sortable=False),
    LineColumn("told", "found, or the same by hand", 16, grow=5, rank=3, sortable=False),
)


def step_line(step: WalkStep) -> Line:
    made = f"{step.calls:,}" if step.calls else "none"
    calls = planned_calls(step.calls, step.sign != "later") if step.ahead else made
    gain = Text("" if step.gain is None else f"{step.gain:+.3f}", "muted" if step.ahead else "")
    interval = "" if step.low is None or step.high is None else f"{step.low:+.3f} to {step.high:+.3f}"
    if step.ahead and step.gain is not None:
        interval = "expected"
    style = "muted" if step.sign == "later" else ""
    return Line((display_line(step.what), calls, gain, interval, display_line(step.told)), style, SIGNS[step.sign])


def step_told(step: WalkStep) -> Text:
    """What the step under the cursor found, or the same by hand."""
    if step.ahead:
        return Text.assemble(("by hand  ", "muted"), display_line(step.told))
    return Text.assemble(("found  ", "muted"), display_line(step.told, 400))


def walk_told(model: WalkModel, trouble: str) -> Text:
    """What the walk waits for, in sentences."""
    text, walk, phase = Text(), model.found, model.phase
    if trouble:
        text.append(display_line(trouble, 600), "bad").append("\n")
    if walk is None:
        return text.append("reading …", "muted")
    if phase == "running" and walk.job is not None:
        return text.append_text(_job_told(walk.job, walk.live))
    if model.held is not None:
        return text.append_text(_held_told(model.held, walk.effect, walk.trouble))
    if phase == "done" and walk.last is not None:
        return text.append("\n".join(display_line(line, 400) for line in curation_verdict(walk.last)))
    if model.state is not None and model.state.steps:
        latest = model.state.steps[-1]
        gain = f", gain {gained(latest)}" if gained(latest) else ""
        text.append(display_line(f"{latest.what}: {latest.found}{gain}", 300)).append("\n")
    if other := model.other_run():
        text.append(display_line(other, 200), "warn").append("\n")
    if model.state is not None:
        state = model.state
        left = f"{counted(state.calls, 'call')} made, {max(0, state.limit - state.calls):,} left at most"
        text.append(f"steps done: {len(state.steps):,}; {left}\n", "accent")
    if model.anew:
        text.append("begins anew: decisions that were made stay\n", "accent")
    if phase == "plan":
        return text.append("s carries out the next step", "muted")
    return text.append("enter shows the plan and its price; nothing is sent", "muted")


def _held_told(held: Pending, effect: Change | None, trouble: str) -> Text:
    gone = effect is not None and not held.rows  # the sources are named below
    lines = [display_line(line, 300) for line in held_lines(replace(held, sources=()) if gone else held)]
    text = Text.assemble((lines[0], "title"), "\n" + "\n".join(lines[1:]) if lines[1:] else "")
    if effect is not None:
        text.append("\n" + display_line(rows_line(effect)))
        for line in effect_lines(effect):
            text.append("\n" + display_line(line, 300), "warn")
    return text.append("\n" + display_line(trouble, 300), "bad") if trouble else text


def _job_told(job: Job, live: JobProgress) -> Text:
    text = Text.assemble((f"job {job.number} ", "title"))
    if job.state == "queued":
        text.append(f"waits for job {job.behind}" if job.behind else "is starting", "muted")
    else:
        text.append(took(job), "muted")
    if live.latest is not None and job.state == "running":
        event = live.latest.event
        text.append("  ")
        if event.total:
            text.append_text(stroke(event.done / event.total, 20, "primary")).append("  ")
        text.append(display_line(event.task, 30))
        text.append(f"  {event.done:,}" + (f" of {event.total:,}" if event.total is not None else ""))
        left = live.remaining(time.time())
        text.append(f"  about {left:,.0f} s left" if left is not None and left >= 1 else "", "muted")
    for _, note in live.notes[-2:]:
        text.append("\n" + display_line(note, 200), "muted")
    return text.append("\nit goes on when this is closed; c cancels it, and its answers are kept", "muted")
