"""Output of `curate`: the plan, and what was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from ..engine.llm.spec import is_stand_in
from .costs import whole_rows
from .pool import names_of
from .tables import Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.curate.plan import CurationReport, Pending, PlannedStep, StepDone
    from ..engine.llm.cost import DryRun

MOST_NAMES = 6


def show_plan(steps: Sequence[PlannedStep], cost: DryRun, suspected: float) -> None:
    """The steps with their calls, the same by hand, and what all of them cost at most."""
    first = next((step for step in steps if step.calls), None)
    rows = [
        [number, step.what, planned_calls(step.calls, step is first), _signed(step.expected_gain)]
        for number, step in enumerate(steps, 1)
    ]
    shown = f"{suspected:.0%} of the validation prompts show a row that check suspects"
    show_table(["", "step", Head("calls"), "expected gain"], rows, title="the plan", note=shown)
    show_table(["", "the same by hand"], [[number, step.command] for number, step in enumerate(steps, 1)])
    show_table(
        ["", ""], whole_rows(cost), note="what is not needed is not asked, later steps get what earlier ones leave"
    )


def planned_calls(calls: int, following: bool) -> str:
    """The calls of a planned step: a bound only for the one that comes next."""
    return f"{'≤' if following else 'about'} {calls:,}" if calls else "none"


def _signed(gain: float | None) -> str:
    return "" if gain is None else f"{gain:+.3f}"


def show_curation(done: CurationReport) -> None:
    """The steps with what they found, and the result."""
    rows = [
        [number, step.what, step.calls, gained(step), step.batch or ""] for number, step in enumerate(done.steps, 1)
    ]
    columns: list[str | Head] = ["", "step", "calls", Head("gain (95 %)"), Head("decision", 1)]
    show_table(columns, rows, note=_note(done))
    for number, step in enumerate(done.steps, 1):
        show_text(f"{number} {step.found}")
    for line in verdict(done):
        show_text(line)


def brief(done: CurationReport) -> str:
    """The latest step, or at the end the result, in a line."""
    if done.held:
        return f"waits for your answer: {done.held.step.found}"
    if done.following is None and done.before is not None and done.after is not None:
        corrected = f", {done.relabelled:,} relabelled" if done.relabelled else ""
        return f"accuracy {done.before:.3f} → {done.after:.3f}, {counted(done.pruned_rows, 'row')} pruned{corrected}"
    return f"{done.steps[-1].what}: {done.steps[-1].found}" if done.steps else ""


def held_lines(held: Pending) -> list[str]:
    """What waits for the curator: what would be pruned, and its gain."""
    parts = [f"sources: {names_of(held.sources, MOST_NAMES)}"] if held.sources else []
    if held.rows:
        parts.append(f"{len(held.rows):,} {'single ' if held.sources else ''}rows: {names_of(held.rows, MOST_NAMES)}")
    if held.outputs:
        new = [f"{name} → {output}" for name, output in held.outputs.items()]
        parts.append(f"relabelled: {counted(len(new), 'row')}: {names_of(new, MOST_NAMES)}")
    change = "change" if held.outputs else "prune"
    lines = [f"would {change}: {held.step.found}", *parts]
    if gain := gained(held.step):
        lines.append(f"gain {gain}, on held-out queries")
    return lines


def verdict(done: CurationReport) -> list[str]:
    """The result in sentences, and how to go on."""
    lines = []
    if done.before is None or done.after is None:
        if done.following:
            lines.append("nothing is measured yet")
        else:
            lines.append("nothing was measured; give a higher --max-calls")
    else:
        change = "stays" if done.after == done.before else f"rises to {done.after:.3f} (expected), from"
        lines.append(f"accuracy on validation {change} {done.before:.3f}")
    corrected = f", {done.relabelled:,} relabelled" if done.relabelled else ""
    what = f"{counted(done.pruned_rows, 'row', 'is', 'are')} pruned{corrected}, {done.rows:,} active"
    lines.append(f"{what}; pruned sources: {', '.join(done.pruned)}" if done.pruned else what)
    lines.append(f"serve with: --method {done.served}")
    if done.version:
        lines.append(f"saved as version {done.version} and locked: icl-curate serve --locked, Selector.locked(PATH)")
    if done.held:
        lines += [*held_lines(done.held), "accept it: icl-curate curate --accept; leave it: icl-curate curate --reject"]
    elif done.following:
        lines.append(f"next step: {done.following}; the same command goes on with it")
    else:
        lines.append("next: icl-curate evaluate on test queries, icl-curate report OUT.html, icl-curate export OUT")
    return lines


def _note(done: CurationReport) -> str:
    left = "" if done.left is None else f", {done.left:,} left"
    notes = [f"{done.llm}: {counted(done.calls, 'call')} made{left}; undo a decision: icl-curate undo"]
    if is_stand_in(done.llm):
        notes.append("the offline reader is not an LLM: these figures say nothing about your LLM")
    return "\n".join(notes)


def gained(step: StepDone) -> str:
    """What it gained with its 95 % interval, empty if it measured nothing."""
    if step.gain is None or step.low is None or step.high is None:
        return ""
    return f"{step.gain:+.3f} ({step.low:+.3f} to {step.high:+.3f})"
