"""State of the walk through the plan of `curate`: the budget, the steps, the job that carries one out, and a pruning
that waits for the curator; and its texts. No Textual."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from rich.text import Text

from ..engine.base.errors import CurateError, counted
from ..engine.curate.plan import KIND, CurationDryRun, CurationReport, Pending, PlannedStep, StepDone
from ..engine.curate.resume import as_begun, budget_of, differs, graded_by, grading_of, limit_of
from ..engine.curate.state import Progress, effect_of, kept, planned
from ..engine.jobs.folder import Job, doing, jobs
from ..engine.jobs.follow import JobProgress
from ..engine.pool.display import display_line
from ..engine.store import runs
from ..engine.store.decisions import Change
from ..engine.store.demonstrations import workspace_fingerprint
from ..engine.store.settings import Settings
from ..engine.store.workspace import Workspace
from ..render.columns import LineColumn
from ..render.curate import curation_verdict, gained, held_lines, planned_calls
from ..render.decisions import effect_lines, rows_line
from ..render.jobs import took
from .model import told
from .widgets.lines import Line, gauge

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
    ``trouble``, and the ``pool`` for which it is; ``job``: the live one, else the last one that was watched; ``last``:
    the latest finished run; ``asking``: the options by which a step asks the LLM of the ``settings``."""

    settings: Settings
    state: Progress | None = None
    effect: Change | None = None
    trouble: str = ""
    asking: Sequence[str] = ()
    job: Job | None = None
    live: JobProgress = field(default_factory=JobProgress)
    last: CurationReport | None = None
    pool: tuple[object, ...] = ()


def read_walk(
    workspace: Workspace,
    settings: Settings,
    before: FoundWalk | None,
    watched: int | None,
    asking: Sequence[str] = (),
) -> FoundWalk:
    """The current state; ``before`` is continued, ``watched`` is the number of the job that was started here. For
    threads; the workspace is opened only if something has changed, or a pruning waits, which others may have made.
    ``asking``: the options of `road.asking`. The LLM that they name is asked, unless the unfinished run asks that of
    the ``settings``, or its server has to be filled in."""
    every = jobs(workspace)  # first: one that has ended has left the state that is read
    state = kept(workspace)
    options = zip(asking[::2], asking[1::2], strict=True)
    named = {name: value for name, value in options if name in ("--llm", "--base-url")}
    if (state and state.key.get("llm") == settings.llm) or named.get("--base-url") == "URL":
        named = {}
    settings = replace(settings, llm=named.get("--llm", settings.llm))
    job = doing(every, "curate") or next((job for job in every if job.number == watched), None)
    live = JobProgress()
    if job is not None:
        same = before is not None and before.job is not None and before.job.number == job.number
        live = (before.live if before is not None and same else live).read_on(job)
    pool = workspace_fingerprint(workspace) if state is not None and state.held else ()
    now = FoundWalk(settings, state, asking=(*chain(*named.items()),), job=job, live=live, pool=pool)
    if before is not None and (before.state, before.pool) == (state, pool):
        return replace(now, effect=before.effect, trouble=before.trouble, last=before.last)
    if state is not None and state.held:
        try:
            return replace(now, effect=effect_of(workspace, state.held))
        except CurateError as error:
            return replace(now, trouble=f"{error.what}: reject it")
    last = runs.runs(workspace, KIND, 1) if state is None else ()
    return replace(now, last=next((report for _, report in runs.readable(CurationReport, last)), None))


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
            self.budget = budget_of(walk.state) or BUDGET
            self.grading = shlex.join(graded_by(walk.state))
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
        asking = self.found.asking if self.found else ()
        begun = as_begun(self.state, self.found.settings) if self.state and self.found else ()
        return [
            "curate", *limit_of(self.budget), *grading_of(self.grading), *asking, *begun, "--next", "--hold", "--yes",
            *(["--restart"] if self.anew else []),
        ]  # fmt: skip

    def other_run(self) -> str:
        """Why an unfinished run is not gone on with, empty if it is or there is none."""
        if self.found is None or self.found.state is None or self.anew:
            return ""
        return differs(self.found.state, self.found.settings, self.budget.strip(), self.grading.strip())

    # The table.

    def steps(self) -> list[WalkStep]:
        """Those that are done, the one that waits, and those to come."""
        if self.phase == "done" and self.found is not None and self.found.last is not None:
            return [_done(step) for step in self.found.last.steps]
        state = self.state or (self.found.state if self.found and (self.held or self.running) else None)
        if state is None:
            return self._ahead(self.plan.steps if self.plan is not None and self.phase in ("plan", "running") else ())
        steps = [_done(step) for step in state.steps]
        priced = self.plan.steps if self.plan else ()
        expected = next((step.expected_gain for step in priced if step.expected_gain is not None), None)
        rest = _as_priced(planned(state, expected), priced)
        if state.held:
            steps.append(replace(_done(state.held.step), sign="held"))
            return [*steps, *(_planned(step, "later") for step in rest)]
        return [*steps, *self._ahead(rest)]

    def _ahead(self, rest: Sequence[PlannedStep]) -> list[WalkStep]:
        first: Sign = "running" if self.running else "next"
        return [_planned(step, "later" if i else first) for i, step in enumerate(rest)]


def _as_priced(rest: Sequence[PlannedStep], priced: Sequence[PlannedStep]) -> list[PlannedStep]:
    """The steps to come with their commands, and the methods to race, of the plan: its last ones, as the others may be
    done; but with the calls that each may make now."""
    left, steps = [*priced], []
    for step in reversed(rest):
        at = max((i for i, other in enumerate(left) if other.step == step.step), default=None)
        if at is not None:
            like, left = left[at], left[:at]
            by_hand = like.command
            for option in ("--max-calls", "--suspects-first --limit"):
                by_hand = by_hand.replace(f"{option} {like.calls} ", f"{option} {step.calls} ")
            step = replace(step, command=by_hand, what=like.what if step.step == "choose" else step.what)
        steps.append(step)
    return steps[::-1]


def _done(step: StepDone) -> WalkStep:
    sign: Sign = "rejected" if step.found.endswith("; rejected") else "done"
    return WalkStep(sign, step.what, step.calls, False, step.gain, step.low, step.high, step.found)


def _planned(step: PlannedStep, sign: Sign) -> WalkStep:
    return WalkStep(sign, step.what, step.calls, True, step.expected_gain, None, None, step.command)


SIGNS: dict[Sign, tuple[str, str]] = {
    "done": ("✓", "good"),
    "rejected": ("✗", "muted"),
    "held": ("?", "warn"),
    "next": ("›", "accent"),
    "running": ("⟳", "accent"),
    "later": (" ", ""),
}

COLUMNS = (
    LineColumn("step", "step", 28, grow=8, most=60),
    LineColumn("calls", "calls", 12, right=True, rank=2),
    LineColumn("gain", "gain", 7),
    LineColumn("interval", "95 %", 16, rank=1),
    LineColumn("told", "found, or the same by hand", 16, grow=2, rank=3),
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
    """The step under the cursor whole, with what it found, or the same by hand."""
    which = ("by hand" if step.ahead else "found") if step.told else ""  # there are commands once there is a plan
    return Text.assemble((display_line(step.what), "title"), (f"  {which}  ", "muted"), display_line(step.told, 400))


def walk_told(model: WalkModel, trouble: CurateError | None = None) -> Text:
    """What the walk waits for, in sentences."""
    text, walk, phase = Text(), model.found, model.phase
    if trouble:
        text.append_text(told(trouble)).append("\n")
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
        return text.append("y carries out the next step", "muted")
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
        text.append("  ").append_text(gauge(live.latest.event, 20))
        left = live.remaining(time.time())
        text.append(f"  about {left:,.0f} s left" if left is not None and left >= 1 else "", "muted")
    for _, note in live.notes[-2:]:
        text.append("\n" + display_line(note, 200), "muted")
    return text.append("\nit goes on when this is closed; c cancels it, and its answers are kept", "muted")
