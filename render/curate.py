"""Output of `tune`: candidates in a race, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import counted
from ..engine.llm.marks import AGAIN
from ..engine.llm.spec import is_stand_in
from .costs import answered, plan_rows
from .evaluation import outcome_lines
from .tables import Head, show_table, show_text

if TYPE_CHECKING:
    from ..engine.curate.results import CandidateResult, Difference, TuneReport
    from ..engine.llm.cost import DryRun


def show_tuning(found: TuneReport) -> None:
    """The candidates with their accuracy in served prompts, the verdict, and what else is known."""
    rows = [
        [
            each.name,
            each.pruned_rows + each.relabelled,
            len(each.sources),
            each.queries,
            each.accuracy,
            _gained(each.versus),
            each.dropped_after,
            "best" if each.chosen else "",
        ]
        for each in found.candidates
    ]
    served = found.served
    notes = [
        f"{served.method}, k = {served.k}: {answered(found.usage, found.llm)}",
        "against all: paired difference to keeping everything, 95 %; the best of many looks better than it is",
    ]
    notes += outcome_lines({"asked": found.outcomes})
    if is_stand_in(found.llm):
        notes.append("the offline reader is not an LLM: these figures say nothing about your LLM")
    columns: list[str | Head] = [
        Head("candidate", cut="middle"), Head("rows", 2), Head("sources", 4), Head("queries", 5), Head("accuracy"),
        Head("against all", 1), Head("dropped after", 6), "",
    ]  # fmt: skip
    show_table(columns, rows, note="\n".join(notes))
    for line in verdict(found):
        show_text(line)


def verdict(found: TuneReport) -> list[str]:
    """The decision in one sentence, and what the curator can do if nothing is pruned."""
    lines = [f"note: {found.stopped}"] if found.stopped else []
    best, confirmed = found.chosen, found.confirmed
    if found.undecided:
        return [*lines, f"nothing is pruned: {found.undecided}; {AGAIN}"]
    if best is None or confirmed is None:
        lines.append("nothing was asked, nothing is pruned; give a higher --max-calls or --max-cost")
    elif not best.changes:
        lines.append(
            f"no candidate is better than keeping everything on {counted(confirmed.queries, 'query')}: nothing "
            "is pruned"
        )
    else:
        gain = f"expected gain {confirmed.gain:+.3f} (95 %: {confirmed.low:+.3f} to {confirmed.high:+.3f})"
        on = f"on {counted(confirmed.queries, 'query')} that had no part in the choice"
        if found.worth_it:
            what = _pruned(best)
            lines.append(f"{gain} {on}, from {confirmed.before:.3f} to {confirmed.after:.3f}: {what}")
        else:
            lines.append(f"best: {best.name}, {gain} {on}: not beyond noise, nothing is pruned")
    if best is not None and (other := found.more_accurate) is not None:
        lines.append(_undecided(best, other))
    lines += [f"known: {one}" for one in found.known]
    lines += [f"to prune anyway: {command}" for command in found.instead]
    return lines


def _undecided(best: CandidateResult, other: CandidateResult) -> str:
    """Why the most accurate candidate is not the best."""
    told = f"{other.name} has {other.accuracy or 0.0:.3f}, which these queries do not tell apart from {best.name}"
    if best.agreement is None:
        return f"{told}; the evidence on rows speaks against it ({other.agreement or 0.0:+,.0f} rows that hurt)"
    return (
        f"{told}; the evidence on rows agrees more with the latter "
        f"({best.agreement:+,.0f} against {other.agreement or 0.0:+,.0f}: rows that hurt, less those that do not)"
    )


def brief_tuning(found: TuneReport) -> str:
    """The verdict in a few words."""
    if found.undecided:
        return "too many prompts got no answer"
    if found.chosen is None:
        return "nothing was asked"
    if not found.chosen.changes:
        return "no candidate is better than keeping everything"
    gain = f"{found.proposed}: expected gain {found.gain:+.3f}"
    return gain + ("" if found.worth_it else ", not beyond noise")


def show_candidates(found: TuneReport, cost: DryRun) -> None:
    """What a race would try, and what it would cost at most."""
    rows: Sequence[Sequence[Any]] = [
        [c.name, c.pruned_rows + c.relabelled, len(c.sources), c.reason] for c in found.candidates
    ]
    served = found.served
    show_table(["candidate", "rows", "sources", "suggested by>"], rows, title=f"{served.method}, k = {served.k}")
    show_table(["", ""], plan_rows(cost), note="the most it can cost: candidates that fall behind are dropped")


def _pruned(best: CandidateResult) -> str:
    sources = ", ".join(best.sources)
    rows = counted(best.pruned_rows, "row")
    pruned = f"{sources} and suspected rows, {rows} in all" if sources and " and " in best.name else sources or rows
    told = f"prunes {pruned}" if best.pruned_rows else ""
    relabelled = f"relabels {best.relabelled:,}{'' if told else ' rows'}" if best.relabelled else ""
    return ", ".join(filter(None, (told, relabelled)))


def _gained(versus: Difference | None) -> str:
    return "" if versus is None else f"{versus.gain:+.3f} ({versus.low:+.3f} to {versus.high:+.3f})"
