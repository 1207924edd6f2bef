"""Texts of the walk through `curate`: its steps as lines, what waits for an answer, how far a job is."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from ..engine.base.errors import counted
from ..engine.curate.plan import CurationDryRun, Pending
from ..engine.jobs.folder import Job
from ..engine.jobs.follow import JobProgress
from ..engine.pool.display import display_line
from ..engine.store.decisions import Change
from ..render.columns import LineColumn
from ..render.costs import whole_rows
from ..render.curate import curation_verdict, gained, held_lines, planned_calls
from ..render.decisions import effect_lines, rows_line
from ..render.jobs import took
from .walk import Sign, WalkModel, WalkStep
from .widgets.lines import Line, stroke

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
    """A step in the table."""
    calls = (
        planned_calls(step.calls, step.sign != "later") if step.ahead else f"{step.calls:,}" if step.calls else "none"
    )
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


def told(model: WalkModel, trouble: str) -> Text:
    """What the walk waits for, in sentences."""
    text, found, phase = Text(), model.found, model.phase
    if trouble:
        text.append(display_line(trouble, 600), "bad").append("\n")
    if found is None:
        return text.append("reading …", "muted")
    if phase == "running" and found.job is not None:
        return text.append_text(_job_told(found.job, found.live))
    if model.held is not None:
        return text.append_text(_held_told(model.held, found.effect, found.trouble))
    if phase == "done" and found.last is not None:
        return text.append("\n".join(display_line(line, 400) for line in curation_verdict(found.last)))
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


def price(plan: CurationDryRun) -> Table:
    """What all steps cost at most."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="muted", no_wrap=True)
    table.add_column()
    for name, value in whole_rows(plan.cost):
        table.add_row(Text(name), Text(display_line(value), "bold" if name == "cost" else ""))
    return table


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
