"""How to do it again: files, runs as commands, decisions and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...engine.store.settings import Settings, knobs
from .document import Block, Code, Column, Line, Paragraph, Said, Table
from .words import MOST, NAME, left_out, name_of

if TYPE_CHECKING:
    from ...engine.report.results import Decision, Reproduction, Step


def again(found: Reproduction) -> Iterator[Block]:
    if found.content_hash:
        yield Paragraph(
            ("Content hash of the active pool, as in the manifest of ", Code("icl-curate export"), ": ",
             Code(found.content_hash))
        )  # fmt: skip
    if found.index:
        yield Paragraph(("The files are read with ", Code(found.index)))
    if found.files:
        columns = (Column("file"), Column("read as"), Column("rows", number=True), Column("digest"))
        rows = [(Said(one.path), one.split, f"{one.rows:,}", Code(one.digest)) for one in found.files[:MOST]]
        note = " ".join(left_out(len(found.files), MOST))
        yield Table("Indexed files, with digests of their content", columns, tuple(rows), note)
    yield from _steps(found.steps)
    if found.decisions:
        heads = (
            Column("decision"), Column("when (UTC)"), Column("who"), Column("what"), Column("of"),
            Column("reason", wide=True),
        )  # fmt: skip
        shown = found.decisions[:MOST]
        lines = [
            (
                str(one.batch), one.decided_at, name_of(one.who), one.action + (", undone" if one.undone else ""),
                _targets(one),
                Said(one.reason),
            )
            for one in shown
        ]  # fmt: skip
        note = " ".join(left_out(len(found.decisions), MOST))
        yield Table("Decisions, the latest first", heads, tuple(lines), note)
    names = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    yield Paragraph(f"Versions installed when this was written: {names}.")


def _steps(steps: Sequence[Step]) -> Iterator[Block]:
    if not steps:
        return
    columns = (Column("run"), Column("started (UTC)"), Column("command", wide=True), Column("settings", wide=True))
    rows = [
        (
            str(one.run) + (f", by {one.part_of}" if one.part_of else ""), one.started_at, Code(one.command),
            Said(_settings(one.settings)),
        )
        for one in steps[-MOST:]
    ]  # fmt: skip
    notes = ["'by N': carried out by that run of curate. Settings that have their default are left out."]
    yield Table("Runs as commands", columns, tuple(rows), " ".join([*notes, *left_out(len(steps), MOST)]))


_DEFAULTS = knobs(Settings())


def _settings(had: Mapping[str, Any]) -> str:
    """The settings of a run that say something, on a line."""
    kept = {
        name: value
        for name, value in sorted(had.items())
        if not (value is None or value is False or value in ("", []))
        and (name in ("seed", "k", "encoder", "order") or _DEFAULTS.get(name) != value)
    }
    return ", ".join(f"{name[:NAME]} {_written(value)}" for name, value in kept.items())


def _written(value: object) -> str:
    if isinstance(value, str):
        return value[:100]
    if isinstance(value, list):
        return f"{', '.join(str(one)[:40] for one in value[:3])} and {len(value) - 3:,} more" if len(value) > 3 else (
            ", ".join(str(one)[:40] for one in value)
        )  # fmt: skip
    return json.dumps(value)


def _targets(one: Decision) -> Line:
    """How many, and the first of them by name."""
    names = ", ".join(name[:NAME] for name in one.named)
    return f"{one.targets:,}: ", Said(names), " …" if one.targets > len(one.named) else ""
