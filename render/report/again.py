"""How to do it again: files, runs as commands, decisions and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...engine.store.settings import Settings, knobs
from ..suggested import completed
from .document import Block, Code, Line, Paragraph, Said, Table, table
from .words import MOST, NAME, left_out, name_of

if TYPE_CHECKING:
    from ...engine.report.results import Decision, Reproduction, Step


def again(all_of_it: Reproduction) -> Iterator[Block]:
    """The blocks of the section."""
    if all_of_it.content_hash:
        yield Paragraph(
            ("Content hash of the active pool, as in the manifest of ", Code("icl-curate export"), ": ",
             Code(all_of_it.content_hash))
        )  # fmt: skip
    if all_of_it.index:
        yield Paragraph(("The files are read with ", Code(completed(all_of_it.index))))
    if files := all_of_it.files:
        rows = [(Said(file.path), file.split, f"{file.rows:,}", Code(file.digest)) for file in files[:MOST]]
        heads = "file", "read as", "#rows", "digest"
        yield table("Indexed files, with digests of their content", heads, rows, *left_out(len(files), MOST))
    if all_of_it.steps:
        yield _steps(all_of_it.steps)
    if all_of_it.decisions:
        yield _decisions(all_of_it.decisions)
    names = ", ".join(f"{name} {number}" for name, number in all_of_it.versions.items())
    yield Paragraph(f"Versions installed when this was written: {names}.")


def _steps(steps: Sequence[Step]) -> Table:
    rows = [
        (
            str(step.run) + (f", by {step.part_of}" if step.part_of else ""), step.started_at,
            Code(completed(step.command)), Said(_settings(step.settings)),
        )
        for step in steps[-MOST:]
    ]  # fmt: skip
    note = "'by N': carried out by that run of curate. Settings that have their default are left out."
    heads = "run", "started (UTC)", "command>", "settings>"
    return table("Runs as commands", heads, rows, note, *left_out(len(steps), MOST))


def _decisions(decisions: Sequence[Decision]) -> Table:
    rows = [
        (
            str(made.batch), made.decided_at, name_of(made.who), made.action + (", undone" if made.undone else ""),
            _targets(made), Said(made.reason),
        )
        for made in decisions[:MOST]
    ]  # fmt: skip
    heads = "decision", "when (UTC)", "who", "what", "of", "reason>"
    return table("Decisions, the latest first", heads, rows, *left_out(len(decisions), MOST))


_DEFAULTS = knobs(Settings())


def _settings(had: Mapping[str, Any]) -> str:
    """The settings of a run that say something, on a line."""
    return ", ".join(
        f"{name[:NAME]} {_written(value)}"
        for name, value in sorted(had.items())
        if not (value is None or value is False or value in ("", []))
        and (name in ("seed", "k", "encoder", "order") or _DEFAULTS.get(name) != value)
    )


def _written(value: object) -> str:
    if isinstance(value, str):
        return value[:100]
    if isinstance(value, list):
        more = f" and {len(value) - 3:,} more" if len(value) > 3 else ""
        return ", ".join(str(item)[:40] for item in value[:3]) + more
    return json.dumps(value)


def _targets(decision: Decision) -> Line:
    """How many, and the first of them by name."""
    if decision.scope == "batch":
        return (f"#{decision.named[0]}",)
    names = ", ".join(name[:NAME] for name in decision.named)
    return f"{decision.targets:,}: ", Said(names), " …" if decision.targets > len(decision.named) else ""
