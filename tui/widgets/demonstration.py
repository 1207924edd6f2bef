"""One demonstration in full: its fields, its ledger entry, and the answers it flipped. No Textual."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from ...engine.base.errors import counted
from ...engine.checks.ledger import LedgerEntry
from ...engine.pool.display import display_line
from ...engine.pool.records import Demonstration
from ...engine.store.browse import repeated_by
from ...engine.store.decisions import DecisionBatch, latest_decisions
from ...engine.store.demonstrations import fetch
from ...engine.store.outputs import as_read
from ...engine.store.trials import Flip, Grading
from ...engine.store.trials import flips as flips_of
from ...engine.store.workspace import Workspace
from ...render.tables import change
from .lines import cut

MOST_FLIPS = 30


@dataclass(frozen=True, slots=True)
class RowDetails:
    """A row, the decision that applies to it, the id of the row it duplicates, its ledger entry, if training showed it,
    and the flips of that."""

    demonstration: Demonstration
    decision: DecisionBatch | None
    repeats: str
    entry: LedgerEntry | None
    flips: Sequence[Flip]
    as_read: str = ""
    """The output that its file has, if it was relabelled."""


def read_details(
    workspace: Workspace, row: int, entry: LedgerEntry | None = None, grading: Grading | None = None
) -> RowDetails | None:
    """Read a row; None if it no longer exists. For threads."""
    return read_several(workspace, [row], {row: entry} if entry else {}, grading).get(row)


def read_several(
    workspace: Workspace, rows: Sequence[int], ledger: Mapping[int, LedgerEntry], grading: Grading | None
) -> dict[int, RowDetails]:
    """Read rows, by number, with their entries in the ledger of a ``grading``; those that no longer exist are left out.
    For threads."""
    with workspace.read():  # opened once for all of it
        demonstrations = fetch(workspace, rows)
        decisions, repeats = latest_decisions(workspace, rows), repeated_by(workspace, rows)
        outputs = as_read(workspace, rows)
        return {
            d.row: RowDetails(
                d, decisions.get(d.row), repeats.get(d.row, ""), ledger.get(d.row),
                flips_of(workspace, d.row, grading) if d.row in ledger else (), outputs.get(d.row, ""),
            )
            for d in demonstrations
        }  # fmt: skip


def as_json(d: Demonstration) -> str:
    """What ``y`` copies."""
    return json.dumps({"id": d.id, "input": d.input, "output": d.output, "source": d.source}, ensure_ascii=False)


def in_full(seen: RowDetails) -> Text:
    """Everything known about the row, formatted for reading."""
    d = seen.demonstration
    text = Text.assemble((display_line(d.id, 60), "title"), ("  from ", "muted"), display_line(d.source, 60))
    if seen.decision is not None:
        text.append_text(_decision(seen.decision))
    if seen.repeats:
        text.append("\nrepeats ", "warn").append(display_line(seen.repeats, 60))
    turns = "\n".join(f"{turn.role}: {turn.content}" for turn in d.history or ())
    fields = {"messages before": turns, "input": d.input, "output": d.output, "output in its file": seen.as_read}
    fields |= {"options": "\n".join(d.options), "further answers": "\n".join(d.answers), "context": d.context}
    fields["metadata"] = "\n".join(f"{name}: {value}" for name, value in d.metadata.items())
    for name, value in fields.items():
        if value or name in ("input", "output"):
            text.append(f"\n\n{name}\n", "primary").append_text(cut(value))
    if seen.entry is not None:
        _ledger(text, seen.entry, seen.flips)
    return text


def _decision(entry: DecisionBatch) -> Text:
    did = {"prune": "pruned", "restore": "restored", "keep": "kept"}.get(entry.action, entry.action)
    what = f" with source {display_line(entry.targets[0], 40)}" if entry.scope == "source" else ""
    why = f": {display_line(entry.reason, 200)}" if entry.reason else ""
    return Text.assemble(
        "\n", (did, "bad" if entry.action == "prune" else "good"),
        (f"{what} by {display_line(entry.who, 30)}, {entry.decided_at:%Y-%m-%d %H:%M}{why}", "muted"),
    )  # fmt: skip


def _ledger(text: Text, s: LedgerEntry, flips: Sequence[Flip]) -> None:
    text.append("\n\nledger\n", "primary")
    style = "bad" if s.high < 0 else "good" if s.low > 0 else ""
    text.append(change(s.estimate, s.low, s.high), style)
    text.append(f"\nshown {s.shown:,} times, ")
    text.append(f"helped {s.helped:,}", "good" if s.helped else "")
    text.append(", ")
    text.append(f"hurt {s.hurt:,}", "bad" if s.hurt else "")
    for flip in flips[:MOST_FLIPS]:
        text.append("\n\n")
        text.append("▲ " if flip.helped else "▼ ", "good" if flip.helped else "bad")
        text.append(display_line(flip.query_input, 300))
        text.append(f"\n  {display_line(flip.answer_before, 80)} → ", "muted")
        text.append(display_line(flip.answer_after, 80), "good" if flip.helped else "bad")
        text.append(f"   {counted(len(flip.shown), 'shot')}, run {flip.run}", "muted")
    if len(flips) > MOST_FLIPS:
        text.append(f"\n\nand {len(flips) - MOST_FLIPS:,} more flips", "muted")
