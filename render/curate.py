"""Output of `tune` and `curate`: candidates in a race, plans, what was done, and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import counted
from ..engine.llm.marks import AGAIN, figure, metric_name
from ..engine.llm.spec import is_stand_in
from .costs import answered, plan_rows, whole_rows
from .evaluation import STAND_IN, judged, outcome_lines
from .pool import names_of
from .suggested import completed
from .tables import Column, Head, change, show_hint, show_rows, show_table, show_text

if TYPE_CHECKING:
    from ..engine.curate.fixed import FixedRun, RacedSet
    from ..engine.curate.plan import CurationDryRun, CurationReport, Pending, StepDone, VisibleGain
    from ..engine.curate.results import CandidateResult, Difference, TuneReport
    from ..engine.llm.cost import DryRun


def show_tuning(tuned: TuneReport) -> None:
    """The candidates with their accuracy in served prompts, the verdict, and what else is known."""
    columns: list[Column[CandidateResult]] = [
        (Head("candidate", cut="middle"), lambda candidate: candidate.name),
        (Head("rows", 2), lambda candidate: candidate.pruned_rows + candidate.relabelled),
        (Head("sources", 4), lambda candidate: len(candidate.sources)),
        (Head("queries", 5), lambda candidate: candidate.queries),
        (Head(metric_name(tuned.graded_by)), lambda candidate: candidate.accuracy),
        (Head("against all", 1, whole=True), lambda candidate: gained(candidate.versus, "")),
        (Head("dropped after", 6), lambda candidate: candidate.dropped_after),
        ("", lambda candidate: "best" if candidate.chosen else ""),
    ]
    served = tuned.served
    notes = [
        f"{served.method}, k = {served.k}: {answered(tuned.usage, tuned.llm)}",
        "against all: paired difference to keeping everything, 95 %; the best of many looks better than it is",
    ]
    notes += [f"metric {by.line}"] if (by := tuned.graded_by) and by.line else []
    notes += [judged(tuned.judge)] if tuned.judge else []
    notes += outcome_lines({"asked": tuned.outcomes})
    notes += [f"WARNING: {tuned.hint}"] if tuned.hint else []
    if is_stand_in(tuned.llm):
        notes.append(STAND_IN)
    show_rows(tuned.candidates, columns, note="\n".join(notes))
    for line in tuning_verdict(tuned):
        show_hint(line)


def tuning_verdict(tuned: TuneReport) -> list[str]:
    """The decision in one sentence, and what the curator can do if nothing is pruned."""
    lines = [f"note: {tuned.stopped}"] if tuned.stopped else []
    best, confirmed = tuned.chosen, tuned.confirmed
    if tuned.outcomes and tuned.undecided:
        return [*lines, f"nothing is pruned: {tuned.undecided}; {tuned.outcomes.fix}"]
    if best is None or confirmed is None:
        lines.append("nothing was asked, nothing is pruned; give a higher --max-calls or --max-cost")
    elif not best.changes:
        lines.append(
            f"no candidate is better than keeping everything on {counted(confirmed.queries, 'query')}: nothing "
            "is pruned"
        )
    else:
        gain = f"expected gain {change(confirmed.gain, confirmed.low, confirmed.high)}"
        apart = "were asked after check had named it" if confirmed.named else "had no part in the choice"
        on = f"on {counted(confirmed.queries, 'query')} that {apart}"
        if tuned.worth_it:
            what = _pruned(best)
            lines.append(f"{gain} {on}, from {figure(confirmed.before)} to {figure(confirmed.after)}: {what}")
        else:
            lines.append(f"best: {best.name}, {gain} {on}: not beyond noise, nothing is pruned")
        lines += [tuned.doubt] if tuned.doubt else []
        if tuned.level is not None:
            lines.append(f"to take it all the same: this command with --noise {tuned.level:.1f}")
    if best is not None and (other := tuned.more_accurate) is not None:
        lines.append(_undecided(best, other))
    lines += [f"known: {one}" for one in tuned.known]
    lines += [f"to prune anyway: {command}" for command in tuned.instead]
    return lines


def _undecided(best: CandidateResult, other: CandidateResult) -> str:
    """Why the most accurate candidate is not the best."""
    told = f"{other.name} has {figure(other.accuracy)}, which these queries do not tell apart from {best.name}"
    if best.agreement is None:
        return f"{told}; the evidence on rows speaks against it ({other.agreement or 0.0:+,.0f} rows that hurt)"
    return (
        f"{told}; the evidence on rows agrees more with the latter "
        f"({best.agreement:+,.0f} against {other.agreement or 0.0:+,.0f}: rows that hurt, less those that do not)"
    )


def brief_tuning(tuned: TuneReport) -> str:
    """The verdict in a few words."""
    if tuned.undecided:
        return "too many prompts got no answer"
    if tuned.chosen is None:
        return "nothing was asked"
    if not tuned.chosen.changes:
        return "no candidate is better than keeping everything"
    gain = f"{tuned.proposed}: expected gain {tuned.gain:+.3f}"
    return gain + ("" if tuned.worth_it else ", not beyond noise")


def show_candidates(tuned: TuneReport, cost: DryRun) -> None:
    """What a race would try, and what it would cost at most."""
    rows: Sequence[Sequence[Any]] = [
        [c.name, c.pruned_rows + c.relabelled, len(c.sources), c.reason] for c in tuned.candidates
    ]
    served = tuned.served
    show_table(["candidate", "rows", "sources", "suggested by>"], rows, title=f"{served.method}, k = {served.k}")
    show_table(["", ""], plan_rows(cost), note="the most it can cost: candidates that fall behind are dropped")


def _pruned(best: CandidateResult) -> str:
    sources = ", ".join(best.sources)
    rows = counted(best.pruned_rows, "row")
    pruned = f"{sources} and suspected rows, {rows} in all" if sources and " and " in best.name else sources or rows
    told = f"prunes {pruned}" if best.pruned_rows else ""
    relabelled = f"relabels {best.relabelled:,}{'' if told else ' rows'}" if best.relabelled else ""
    return ", ".join(filter(None, (told, relabelled)))


MOST_NAMES = 6


def show_curation_plan(plan: CurationDryRun, suspected: float, done: int) -> None:
    """The steps to come after those that a stopped run has ``done``: their calls, the same by hand, what all of them
    cost at most, and which gains they can see."""
    steps = plan.steps
    first = next((step for step in steps if step.calls), None)
    rows = [
        [number, step.what, planned_calls(step.calls, step is first), _signed(step.expected_gain)]
        for number, step in enumerate(steps, done + 1)
    ]
    shown = f"{suspected:.0%} of the validation prompts show a row that check suspects"
    title = f"the rest of a run that was stopped after step {done}" if done else "the plan"
    show_table(["", "step", Head("calls"), "expected gain"], rows, title=title, note=shown)
    show_table(
        ["", "the same by hand"], [[number, completed(step.command)] for number, step in enumerate(steps, done + 1)]
    )
    show_table(
        ["", ""], whole_rows(plan.cost), note="what is not needed is not asked, later steps get what earlier ones leave"
    )
    if plan.visible:
        show_text(visible_line(plan.visible))
    if plan.held:
        show_hint(f"what follows if you accept what waits for your answer: {plan.held.step.found}")
        show_hint("see it: icl-curate curate --accept --dry-run")


def visible_line(visible: VisibleGain) -> str:
    """Which gains a run can see, with its queries."""
    return (
        f"with {counted(visible.queries, 'validation query')} a gain of {figure(visible.half)} is "
        f"confirmed in half of such runs, of {figure(visible.most)} in four of five"
    )


def planned_calls(calls: int, following: bool) -> str:
    """The calls of a planned step: a bound only for the one that comes next."""
    return f"{'≤' if following else 'about'} {calls:,}" if calls else "none"


def _signed(gain: float | None) -> str:
    return "" if gain is None else f"{gain:+.3f}"


def show_curation(done: CurationReport) -> None:
    """The steps with what they found, and the result."""
    rows = [
        [number, step.what, step.calls, gained(step, ""), step.batch or ""] for number, step in enumerate(done.steps, 1)
    ]
    columns: list[str | Head] = ["", "step", "calls", Head("gain (95 %)", whole=True), Head("decision", 1)]
    show_table(columns, rows, note=_note(done))
    for number, step in enumerate(done.steps, 1):
        show_text(f"{number} {step.found}")
    for line in curation_verdict(done):
        show_hint(line)


def brief_curation(done: CurationReport) -> str:
    """The latest step, or at the end the result, in a line."""
    if done.held:
        return f"ended with a question: {done.held.step.found}"  # which may be answered by now
    if done.following is None and done.before is not None and done.after is not None:
        corrected = f", {done.relabelled:,} relabelled" if done.relabelled else ""
        rise = f"{metric_name(done.graded_by)} {figure(done.before)} → {figure(done.after)}"
        if not any(step.batch for step in done.steps):
            return f"{rise}, nothing pruned"
        return f"{rise}, {counted(done.pruned_rows, 'row')} pruned in all{corrected}"
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


def curation_verdict(done: CurationReport) -> list[str]:
    """The result in sentences, and how to go on."""
    lines = []
    on = "validation" if done.queries is None else counted(done.queries, "validation query")
    if done.before is None:
        limit = "--max-cost" if done.left is None else "--max-calls or --max-cost" if done.left else "--max-calls"
        raced = any(step.gain is not None for step in done.steps)
        told = f"nothing could be decided; {AGAIN}" if raced else f"nothing was measured; give a higher {limit}"
        lines.append("nothing is measured yet" if done.following else told)
    elif done.after is None:
        unknown = (
            "what it is now is not known" if done.disturbed else "its gains are of different queries, so no sum is told"
        )
        lines.append(f"{metric_name(done.graded_by)} on {on} was {figure(done.before)}; {unknown}")
    else:
        turns = "rises" if done.after > done.before else "falls"
        rise = "stays" if done.after == done.before else f"{turns} to {figure(done.after)} (expected), from"
        lines.append(f"{metric_name(done.graded_by)} on {on} {rise} {figure(done.before)}")
    corrected = f", {done.relabelled:,} relabelled" if done.relabelled else ""
    what = f"{counted(done.pruned_rows, 'row', 'is', 'are')} pruned{corrected}, {done.rows:,} active"
    lines.append(f"{what}; pruned sources: {', '.join(done.pruned)}" if done.pruned else what)
    if done.before is not None:
        lines.append(f"serve with: --method {done.served}")
    if done.disturbed:
        told = "other decisions, or an index, changed the pool during the run: it is not what was judged"
        then = f"icl-curate evaluate && icl-curate lock --method {quote(done.served)}"
        lines.append(f"WARNING: {told}, so nothing is locked; {then}")
    if done.version:
        lines.append(f"saved as version {done.version} and locked: icl-curate serve --locked or Selector.locked(PATH)")
    if done.held:
        lines += [*held_lines(done.held), "accept it: icl-curate curate --accept; leave it: icl-curate curate --reject"]
    elif done.following:
        lines.append(f"next step: {done.following}; the same command goes on with it")
    else:
        lines.append("next, on test queries: icl-curate evaluate; icl-curate report OUT.html; icl-curate export OUT")
    return lines


def _note(done: CurationReport) -> str:
    left = "" if done.left is None else f", {done.left:,} left"
    cost = "" if done.cost is None else f" for ${done.cost:.4f}"
    made = f"{done.llm}: {counted(done.calls, 'call')} made{cost}{left}; undo a decision: icl-curate undo"
    return f"{made}\n{STAND_IN}" if is_stand_in(done.llm) else made


def gained(measured: StepDone | Difference | None, level: str = "95 %: ") -> str:
    """What a step or a candidate gained with its 95 % interval as `change`, empty if it measured nothing."""
    if measured is None or measured.gain is None or measured.low is None or measured.high is None:
        return ""
    return change(measured.gain, measured.low, measured.high, level)


def show_fixed(done: FixedRun) -> None:
    """The sets that were raced, and the one that was kept."""
    metrics = done.metrics
    columns: list[Column[RacedSet]] = [
        ("set", lambda raced: raced.name),
        (Head("queries", 5), lambda raced: raced.queries),
        (Head(metric_name(metrics.graded_by)), lambda raced: raced.accuracy),
        (Head("against the first", 1, whole=True), lambda raced: gained(raced.versus, "")),
        (Head("dropped after", 6), lambda raced: raced.dropped_after),
        ("", lambda raced: "kept" if raced.chosen else ""),
    ]
    notes = [
        answered(done.usage, done.llm),
        "against the first: paired difference, 95 %; the best of many looks better than it is",
        *([judged(metrics.judge)] if metrics.judge else []),
        *([STAND_IN] if is_stand_in(done.llm) else []),
    ]
    show_rows(metrics.sets, columns, note="\n".join(notes))
    show_text("")
    show_table(["demonstration", "output", "input>"], [[shot.id, shot.output, shot.input] for shot in metrics.shots])
    if metrics.stopped:
        show_hint(f"note: {metrics.stopped}")
    gain = f"{metrics.gain:+.3f} ± {metrics.gain_error or 0.0:.3f} on queries that did not choose"
    show_text(f"{'taken: it gains' if metrics.confirmed else 'the first set stays: no other is confirmed,'} {gain}")
    show_hint(f"next, on test queries: icl-curate evaluate -m fixed,dense -k {len(metrics.shots)}")
