"""The walk through the plan of `curate`: the curator sees the price of a step before it and its gain after it, and
decides on what would be pruned."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static
from textual.worker import Worker, get_current_worker

from ...engine.base.errors import CurateError, UsageError
from ...engine.checks.browse import RowSet
from ...engine.curate.plan import CurationDryRun, CurationReport
from ...engine.curate.state import answer
from ...engine.grading import SETTINGS
from ...engine.jobs.folder import Job
from ...engine.jobs.kinds import JobCommand
from ...engine.jobs.start import cancel, start
from ...engine.store.browse import active_rows
from ...render.costs import whole_rows
from ..actions import Action
from ..completion import CommandLine, NextWord, completed
from ..walk import COLUMNS, FoundWalk, WalkModel, read_walk, step_line, step_told, walk_told
from ..widgets.bars import KeyBar
from ..widgets.field import Field
from ..widgets.lines import narrowed, pairs
from ..widgets.table import LineTable
from .start import LOOK, CostFirst

OFFERED = {
    "answer": ("held",), "rows": ("held",), "cancel": ("running",),
    "anew": ("budget", "plan", "held", "done"), "budget": ("budget", "plan", "done"),
    "grading": ("budget", "plan", "done"),
    "go": ("budget", "done"), "start": ("plan",),
}  # fmt: skip
"""What can be done in which phase; everything else always can."""


def _graders(root: CommandLine) -> CommandLine:
    """The command line with `curate` alone, which takes only the options that say which answers are right."""
    if (line := copy(root)) is not None:
        curate = copy(root.commands["curate"])
        curate.params = [param for param in curate.params if param.name in SETTINGS]
        line.commands = {"curate": curate}
    return line


class StepTable(LineTable, inherit_bindings=False):
    """The steps; enter is the walk's."""

    TITLE = "Steps"
    ACTIONS = tuple(action for action in LineTable.ACTIONS if action.name != "table.choose")


class CurateWalk(CostFirst):
    """Carries out the plan step by step, each step as a job; what would be pruned waits for the curator."""

    TITLE = "Curate"
    ABOUT = "The plan step by step: its price, what each step found and gained, and your decision on what is pruned."
    TERMS = (
        "race", "served prompt", "suspect", "leak", "confidence interval", "prune, restore", "decision", "active pool",
        "call cache", "job",
    )  # fmt: skip
    ACTIONS = (
        Action("walk.go", "enter", "Go on", "Show the plan and its price; close a finished run"),
        Action("walk.start", "y,s,ctrl+s", "Start", "Carry out the next step, whose price is shown"),
        Action("walk.accept", "a", "Accept", "Carry out what waits", "icl-curate curate --accept", call="answer(True)"),
        Action("walk.reject", "r", "Reject", "Leave what waits as it is", "icl-curate curate --reject",
               call="answer(False)"),
        Action("walk.rows", "v", "Rows", "Go to the rows in Demos; c in Overview comes back"),
        Action("walk.cancel", "c", "Cancel", "Stop the job; its answers are kept", "icl-curate jobs cancel N"),
        Action("walk.budget", "b", "Budget", "Change the budget"),
        Action("walk.grading", "m", "Metric", "Say which answers are right", "icl-curate curate --metric json-f1"),
        Action("walk.complete", "tab", "Complete", "Complete the option that is typed", footer=False),
        Action("walk.anew", "n", "New run", "Begin a new run", "icl-curate curate --restart"),
        Action("walk.close", "escape,q", "Close", "Back to the tab; a job goes on"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model = WalkModel()
        self._trouble: CurateError | None = None
        self._unread: CurateError | None = None
        """Why the state could not be read just now."""
        self._pricing: Worker[None] | None = None
        self._starting = self._looking = False
        self._now = 0
        """The step that the walk is at."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog walk"):
            with Horizontal(id="walk-bar"):
                yield Static(Text("calls at most, or $"), id="walk-label")
                yield Field(compact=True, id="walk-budget")
                yield Static(id="walk-llm")
            with Horizontal(id="walk-graded"):
                yield Static(Text("which answers are right"), id="walk-graded-label")
                graders, before = _graders(self.review.command_line), "curate "

                def words(typed: str) -> list[NextWord]:
                    listed = completed(graders, before + typed, False)
                    return [replace(one, line=one.line.removeprefix(before)) for one in listed]

                yield Field(compact=True, select_on_focus=False, id="walk-grading", completed=words)
            yield StepTable(COLUMNS, marked=lambda line: False, id="walk-steps")
            yield Static(id="walk-step")
            with VerticalScroll(can_focus=False, id="walk-told"):
                yield Static(id="walk-now")
                yield Static(id="walk-price")
        yield KeyBar()

    def on_mount(self) -> None:
        self.table.message = "the plan is shown with its price"
        self.table.focus()
        self.set_interval(LOOK, self._look)
        self._look()

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def field(self) -> Input:
        return self.query_one("#walk-budget", Input)

    @property
    def grading(self) -> Field:
        return self.query_one("#walk-grading", Field)

    # What is known.

    def _look(self) -> None:
        """Read the state, unless that is still going on."""
        if not self._looking and not self.model.deciding:
            self._looking = True
            review, before, watched = self.review, self.model.found, self.model.watched
            options = review.llm_options
            read = lambda: read_walk(review.opened(), review.settings(), before, watched, options)  # noqa: E731
            self.in_thread("look", read, self._looked)

    def _looked(self, found: FoundWalk) -> None:
        self._looking, self._unread = False, None
        first = self.model.found is None
        ended = self.model.take(found)
        if found.job is not None and found.job.number == self.model.watched:
            self._starting = False
        if first:
            self.field.value, self.grading.value = self.model.budget, self.model.grading
        if ended is not None and ended.state == "cancelled":
            self._trouble = UsageError(f"job {ended.number} was stopped; its answers are kept")
        elif ended is not None:
            done = ended.state == "done"
            self._trouble = None if done else UsageError(f"job {ended.number}: {ended.error}", ended.fix)
        self._draw()

    def failed(self, kind: str, error: CurateError) -> None:
        self._looking = self._looking and kind != "look"
        self._starting = self._starting and kind != "start"
        self.model.deciding = self.model.deciding and kind != "answer"
        if kind == "look":
            self._unread = error
        else:
            self._trouble = error
        self._draw()

    @on(LineTable.Moved)
    def _draw(self) -> None:
        model = self.model
        steps = model.steps()
        lines = [step_line(step) for step in steps]
        self.table.arrange_columns(narrowed(COLUMNS, lines))
        self.table.fill(lines)
        now = next((i for i, step in enumerate(steps) if step.sign in ("held", "next", "running")), len(steps) - 1)
        if now != self._now and steps:
            self._now = self.table.cursor = now
        at = self.table.cursor
        self.query_one("#walk-step", Static).update(step_told(steps[at]) if at < len(steps) else Text())
        if not self._pricing:
            self._tell(walk_told(model, self._unread or self._trouble))
        shown = self.query_one("#walk-price", Static)
        shown.display = model.phase == "plan" and not model.walked
        if shown.display and model.plan is not None:
            shown.update(pairs(whole_rows(model.plan.cost)))
        if model.found is not None:
            settings = model.found.settings
            self.query_one("#walk-llm", Static).update(Text(f"{settings.llm}, {settings.method}, k = {settings.k}"))
        self.show_cost_of(str(steps) if model.phase == "plan" else None)
        self.field.disabled = self.grading.disabled = model.phase in ("running", "held", "reading")
        self.refresh_bindings()

    def _tell(self, text: RenderableType) -> None:
        self.query_one("#walk-now", Static).update(text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.focused, Input):
            return action in ("close", "complete")
        return action not in OFFERED or self.model.phase in OFFERED[action]

    # The budget, the plan, and its steps.

    def action_budget(self) -> None:
        self.field.focus()

    def action_grading(self) -> None:
        self.add_class("-grading")
        self.call_after_refresh(self.grading.focus)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self.model.type_in(self.field.value, self.grading.value):
            self._leave_price()

    def _leave_price(self) -> None:
        """Something else comes next than what is being priced."""
        if self._pricing is not None:
            self._pricing.cancel()
        self._pricing = self._trouble = None
        self._draw()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.table.focus()
        self.action_go()

    def action_go(self) -> None:
        """Price the plan, or leave a finished run."""
        if self.model.phase == "done":
            self.dismiss()
        elif self.model.phase == "budget" and not self._pricing and (line := self._line()):
            price = self._price(line, self.model.typed)
            self._pricing = self.run_worker(price, exclusive=True, exit_on_error=False)

    def action_start(self) -> None:
        """Carry out the next step, once."""
        ready = self.model.phase == "plan" and not self._starting and self.cost_was_seen
        if ready and (line := self._line()):
            self._starting, self.model.watched = True, None  # not the job before, which has ended
            review = self.review
            self.in_thread("start", lambda: start(review.opened(), line, standby=review.standby), self._begun)

    def _line(self) -> JobCommand | None:
        """The command of what comes next; None if there is none, which is then told."""
        self._trouble = None
        try:
            words = self.model.words()
            self.review.permit(words)
        except CurateError as error:
            self._trouble = error
            self._draw()
            return None
        return JobCommand.of(words)

    def _begun(self, job: Job) -> None:
        self.model.watched = job.number
        self._look()

    async def _price(self, line: JobCommand, typed: str) -> None:
        try:
            plan = await self.dry_run(self.review.folder, line, self._tell)
            if isinstance(plan, CurationDryRun):
                self.model.take_plan(plan, typed)
        except CurateError as error:
            self._trouble = error
        finally:
            if not get_current_worker().is_cancelled:  # else another one may be under way
                self._pricing = None
        self._draw()

    # What waits for the curator.

    def action_answer(self, accept: bool) -> None:
        if self.model.held is None or self.model.deciding:
            return
        self.model.deciding, self._trouble = True, None
        review, found = self.review, self.model.found

        def work() -> CurationReport:
            now = read_walk(review.opened(), review.settings(), found, None)  # its LLM is that of the run
            if accept and found is not None and now.effect != found.effect:
                raise UsageError("the pool has changed meanwhile, and what this would do", "read it again, then accept")
            return answer(review.opened(), review.settings(), accept)

        def answered(_: CurationReport) -> None:
            self.model.deciding, self.model.walked, self._looking = False, True, False  # a look from before is dropped
            self._look()

        self.in_thread("answer", work, answered)

    def action_rows(self) -> None:
        """Show in Demos what would be pruned or relabelled."""
        held = self.model.held
        if held is None:
            return

        async def go(found: RowSet) -> None:
            if not self.is_active:  # help or the finder was opened meanwhile, and would lie over Demos with this below
                return
            demos: Any = await self.review.visit("demos")
            demos.show_only(found)
            self.dismiss()  # last: it ends the work of this dialog

        def read() -> RowSet:
            rows = active_rows(self.review.opened(), held.sources, (*held.rows, *held.outputs))
            return RowSet("would be changed" if held.outputs else "would be pruned", rows)

        self.in_thread("rows", read, go)

    # The rest.

    def action_cancel(self) -> None:
        job = self.model.found.job if self.model.found else None
        if job is not None and job.live:
            number = job.number
            self.in_thread("stop", lambda: cancel(self.review.opened(), number), lambda _: self._look())

    def action_anew(self) -> None:
        self.model.begin_anew()
        self._leave_price()

    def action_close(self) -> None:
        """From the budget to the steps, and from there to the tab."""
        if isinstance(self.focused, Input):
            self.table.focus()
        else:
            self.dismiss()
