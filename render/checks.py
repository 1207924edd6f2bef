"""Output of `check` (counts by kind, then the worst rows) and of the evidence by row."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from math import exp
from typing import TYPE_CHECKING

from ..engine.base.errors import counted
from ..engine.evaluate.statistics import wilson
from ..engine.llm.marks import figure
from .costs import answered
from .evaluation import judged
from .tables import Head, show_hint, show_table, show_text

if TYPE_CHECKING:
    from ..engine.checks.evidence import PoolEvidence, RowEvidence
    from ..engine.checks.groups import GroupRow, RowGroup
    from ..engine.checks.results import CheckReport, DatamodelRun, RowRun
    from ..engine.export.verified import VerifyReport
    from ..engine.index.results import SkippedRecords


def show_checks(checked: CheckReport, limit: int, given: str = "") -> None:
    """``limit``: maximum findings that are listed; ``given``: the options that chose what was checked."""
    prunable = Counter(row.kind for row in checked.rows if row.prunes)
    sources = {kind: Counter(row.source for row in checked.rows if row.kind == kind) for kind in checked.kinds}
    rows = [
        [kind, count, prunable[kind], "{} ({:,})".format(*sources[kind].most_common(1)[0])]
        for kind, count in checked.kinds.items()
        if count
    ]
    title = f"{counted(checked.checked, 'demonstration')} checked"
    if rows:
        show_table(["kind", "rows", "to prune", "most from>"], rows, title=title)
    else:
        show_text(title)
    if none := ", ".join(kind for kind, count in checked.kinds.items() if not count):
        show_text(f"none of: {none}", style="dim")
    for note in checked.notes:
        show_hint(note, style="dim")
    worst = checked.rows[:limit]
    if not worst:
        return
    more = len(checked.rows) - len(worst)
    show_table(
        [
            Head("id", cut="start"),
            Head("source", 3, "middle"),
            Head("kind", 2),
            Head("severity", 4),
            Head("input"),
            "evidence>",
            Head("suggestion", 1),
        ],
        [
            [row.id, row.source, row.kind, f"{row.severity:.2f}", row.input, row.evidence, row.suggestion]
            for row in worst
        ],
        note=f"… and {more:,} more: icl-curate check{given} -n {len(checked.rows)}" if more else "",
    )


ACCEPTED = {
    "duplicate": ("duplicates", "each other", "keeps the first row of each group"),
    "leak": ("leaks", "a query", "prunes the rows that queries repeat"),
}
"""Kinds of groups in the plural, what their rows repeat, and what accepting them does."""


def show_groups(
    groups: Sequence[RowGroup], kinds: Collection[str], limit: int, notes: Sequence[str] = (), accepted: bool = False
) -> None:
    """Rows that repeat each other, and queries that are in the pool, group by group; ``kinds`` were looked for;
    ``limit``: maximum groups; ``accepted``: it is decided already what to prune."""
    heads: list[str | Head] = [
        Head("group"), Head("id", 2, "start"), Head("source", 3, "middle"), "what>", "input>", Head("output", 1),
        Head("from", 4, "start"),
    ]  # fmt: skip
    rows = [
        [
            str(number) if row is group.rows[0] else "",
            row.id,
            row.source,
            row_told(row),
            row.input,
            row.output,
            f"{row.file}:{row.line}",
        ]
        for number, group in enumerate(groups[:limit], 1)
        for row in group.rows
    ]
    if rows:
        show_table(heads, rows)
    elif told := " or ".join(repeated for kind, (_, repeated, _) in ACCEPTED.items() if kind in kinds):
        show_text(f"no rows that repeat {told}")
    for note in notes:
        show_hint(note, style="dim")
    if len(groups) > limit:
        show_text(f"… and {len(groups) - limit:,} more groups: -n {len(groups)}", style="dim")
    for kind, (name, _, does) in () if accepted else ACCEPTED.items():
        found = [group for group in groups if group.kind == kind]
        if count := sum(len(group.prunes) for group in found):
            to_prune = f"{counted(count, 'row')} to prune"
            told = f"{len(found):,} group{'' if len(found) == 1 else 's'} of {name}, {to_prune}"
            show_hint(f"{told}: icl-curate check prune {kind} {does}", style="dim")


def row_told(row: GroupRow) -> str:
    """What is said of a row of a group."""
    told = row.evidence or ("first" if row.split == "pool" else f"{row.split} query")
    return f"{told}; pruned" if row.pruned else f"{told}; kept by you" if row.kept and row.suggestion else told


def show_skipped(skipped: SkippedRecords, limit: int) -> None:
    """Records that were skipped, by reason; ``limit``: maximum records of each."""
    counts = {group.reason: len(group.records) for group in skipped.reasons}
    if not counts:
        show_text("index has skipped no record")
        return
    show_table(["reason>", "records"], list(counts.items()))
    rows = [[record.file, record.line, record.reason] for group in skipped.reasons for record in group.records[:limit]]
    more, most = sum(max(0, count - limit) for count in counts.values()), max(counts.values())
    note = f"… and {more:,} more: icl-curate skipped -n {most}" if more else ""
    show_table([Head("skipped in", cut="middle"), Head("line"), "why>"], rows, note=note)


def show_verified(done: VerifyReport) -> None:
    """How many rows were verified, and how many of each source were wrong."""
    if not done.verified:
        show_text("nothing is verified yet")
        return
    of = sum(each.verified for each in done.sources)
    low, high = wilson(done.wrong, of) if of else (0.0, 1.0)
    wrong = f"; {done.wrong:,} of {of:,} were wrong in the pool, {low:.0%} to {high:.0%} of it (95 %)" if of else ""
    show_table(["source>", "verified", "wrong"], [[each.source, each.verified, each.wrong] for each in done.sources])
    show_text(f"{done.verified:,} of {done.count:,} verified in {done.file}{wrong}")
    show_hint(f"next: icl-curate index --validation {shlex.quote(done.file)} && icl-curate check prune leak")


PARTS = {
    "source": "share of bad rows in the rest of its source",
    "label": "label against classifiers trained without the row",
    "match": "output against its input: words it shares with this one rather than with others",
    "part": "parts of the output that its input and other rows make likely",
    "schema": "output with the fields, types and values that the others have",
    "entity": "entities in the input, at their spans, typed as elsewhere",
    "call": "calls with the tools and arguments that there are",
    "member": "labels of the set in other sets, too",
    "rationale": "calculations that hold, and lead to the answer",
    "style": "length, script, wording and markup as of the others",
    "neighbour": "rows that ask nearly the same and answer otherwise",
    "trials": "right answers with this demonstration alone: {right:,} of {trials:,}",
    "zero-shot": "the LLM's answer to its input without shots: {zero_shot_right:,} of {zero_shot_asked:,} right",
    "own": "the LLM's answer to its input with its nearest other rows: {own_right:,} of {own_asked:,} right",
    "prompts": "effect on prompts of random candidates, in {prompts:,} of them",
    "flips": "added to {shown:,} prompts of the ranker: {helped:,} answers turned right, {hurt:,} wrong",
}
"""What each part of the evidence is about."""


def show_suspects(rows: Sequence[RowEvidence], evidence: PoolEvidence) -> None:
    """``rows``: those to list, of all in the ``evidence``."""
    parts = evidence.kinds
    show_table(
        [
            Head("id", cut="start"), Head("source", 2, "middle"), Head("input", 1), "output>", Head("hurts"),
            *(Head(part, 5) for part in parts), Head("suggestion", 1),
        ],
        [
            [
                row.id, row.source, row.input, row.output, f"{row.posterior:.3f}",
                *(f"{row.parts[name]:+.1f}" for name in parts), _suggestion(row),
            ]
            for row in rows
        ],
        note=f"of {len(evidence.rows):,} active rows {len(evidence.suspects(0.5)):,} are likely to hurt, "
        f"{len(evidence.suspects(0.9)):,} of them at .9 or more (icl-curate suspects prune); parts are log odds",
    )  # fmt: skip
    for note in evidence.notes:
        show_hint(note, style="dim")


def show_evidence(row: RowEvidence, notes: Sequence[str]) -> None:
    """All parts of one row."""
    rows = [
        [name, f"{value:+.2f}", f"× {exp(value):.3g}", PARTS[name].format(**row.counts)]
        for name, value in row.parts.items()
    ]
    show_text(row.input)
    title = f"{row.id} of {row.source} says {row.output}"
    show_table(["evidence", "log odds", "odds", "about>"], rows, title=title)
    show_text(f"likely to hurt: {row.posterior:.3f}" + (f"; {_suggestion(row)}" if row.suggested else ""))
    for note in notes:
        show_hint(note, style="dim")


def show_asked(done: RowRun) -> None:
    """The result of ``train rows`` and the next step."""
    metrics = done.metrics
    right = "" if metrics.right is None else f"; {figure(metrics.right)} of them say what the row says"
    show_text(f"run {done.run}: {answered(done.usage, done.llm)}{right}")
    if metrics.judge:
        show_text(judged(metrics.judge))
    show_text(
        f"likely to hurt: {counted(metrics.suspects, 'row')} ({metrics.suspects_before:,} before), "
        f"{metrics.sure:,} of them at .9 or more ({metrics.sure_before:,} before)"
    )
    show_hint("next: icl-curate suspects")


def show_datamodel(done: DatamodelRun) -> None:
    """The effects of ``train datamodel`` by source, the worst first, and the next step."""
    effects = sorted(done.metrics.sources.items(), key=lambda item: item[1].effect)
    show_table(
        [Head("source", cut="middle"), Head("effect"), "95 %", "shown"],
        [[name, f"{one.effect:+.3f}", "{:+.3f} to {:+.3f}".format(*one.interval), one.shown] for name, one in effects],
        note="effect: change in accuracy for one more of its demonstrations in the place of an average one",
    )
    right = "" if done.metrics.right is None else f"; {figure(done.metrics.right)} right"
    show_text(
        f"run {done.run}: {counted(done.metrics.prompts, 'prompt')} on {done.metrics.queries:,} validation queries, "
        f"{counted(done.usage.cached_calls, 'answer')} of {done.llm} from the cache{right}"
    )
    if done.metrics.judge:
        show_text(judged(done.metrics.judge))
    show_hint("next: icl-curate suspects; icl-curate tune")


def _suggestion(row: RowEvidence) -> str:
    return f"relabel: {row.suggested}" if row.suggested else ""
