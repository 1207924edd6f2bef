"""State of the Export tab: the formats, the first record of each, and what changed since the pool was indexed. No
Textual."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....engine.base.errors import UsageError, counted
from ....engine.export.corpus import CALIBRATION, ExportPlan, first_record, pool_counts
from ....engine.papers.calibrate.finetune import fine_tuning_set
from ....engine.pool.display import display_line
from ....engine.report.gather import labels
from ....engine.report.road import Status, status
from ....engine.select.lock import Lock, read_lock
from ....engine.store.outputs import relabelled
from ....engine.store.settings import Settings
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ....render.pool import MOST_VERSIONS, SIGNS, names_of
from ...model import POOL_EMPTY, Empty, TabModel, is_command, missing
from ...widgets.lines import Line, cut

MOST_CHANGES = 100
"""Maximum sources, and labels, whose counts are displayed."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format, the file that is proposed for it, and what it is for."""

    name: str
    file: str
    about: str

    @property
    def command(self) -> str:
        named = "" if self.file == f"curated.{self.name}" else f" --format {self.name}"
        return f"export {self.file}{named}"

    def line(self, state: Status) -> Line:
        queries = state.validation + state.test if self.name == "hf" else 0
        rows = "" if self.name == CALIBRATION else f"{state.active + queries:,}"
        return Line((self.name, self.file + "/" * (self.name == "hf"), rows, Text(self.about, "muted")))

    def shown(self, record: str | None) -> Text:
        """Its first ``record``; None while that is read."""
        text = Text.assemble((f"the first record of {self.file}\n\n", "primary"))
        return text.append("reading …", "muted") if record is None else text.append_text(cut(record))


FORMATS = (
    ExportFormat("jsonl", "curated.jsonl", "an object a row; index reads it"),
    ExportFormat("csv", "curated.csv", "spreadsheets; formulas are escaped"),
    ExportFormat("parquet", "curated.parquet", "pandas, Polars, DuckDB"),
    ExportFormat("chat", "curated.chat.jsonl", "TRL, LLaMA-Factory, OpenAI"),
    ExportFormat("dspy", "curated.dspy.json", "a list of DSPy examples"),
    ExportFormat("hf", "curated", "every split and a card, for the hub"),
    ExportFormat(CALIBRATION, "calibration.jsonl", "fine-tuning on Calibrate's rounds"),
)


Counts = Sequence[tuple[str, int, int]]
"""Rows by source or label, as the pool was indexed and as they would be written."""


@dataclass(frozen=True, slots=True)
class ExportData:
    """What would be written now, beside the pool as it was indexed."""

    state: Status
    corrected: int
    sources: Counts
    labels: Counts
    lock: Lock | None

    def written(self) -> Text:
        """How many rows would be written, and whether they were."""
        step, style = self.state.road[-1], {"open": "warn", "done": "good"}
        line = Text.assemble((SIGNS[step.state], style.get(step.state, "muted")), " ", (step.told, "title"))
        return line.append(", not written yet" if step.state == "not begun" else "", "muted")

    def changes(self) -> RenderableType:
        """What would be written beside the pool as it was indexed, and what holds on to a state of it."""
        state = self.state
        told = [counted(state.pruned, "row") + " pruned"] if state.pruned else []
        told += [counted(self.corrected, "output") + " corrected"] if self.corrected else []
        parts: list[RenderableType] = [
            Text("since it was indexed\n", "primary"),
            ", ".join(told) or "nothing was changed",
        ]
        for name, counts in (("source", self.sources), ("label", self.labels)):
            if any(before != after for _, before, after in counts):
                parts += ["", _counts(name, counts)]
        kept = {"versions": names_of([version.name for version in state.versions], MOST_VERSIONS)}
        if lock := self.lock:
            kept["lock"] = f"{lock.settings['method']}, {lock.settings['k']} shots, {counted(lock.rows, 'row')}"
        parts += [Text.assemble((f"\n{name}  ", "muted"), display_line(told)) for name, told in kept.items() if told]
        return Group(*parts)


def read(workspace: Workspace) -> ExportData | Empty:
    """For threads."""
    state = status(workspace)
    if not state.pool:
        return POOL_EMPTY
    locked = None
    with suppress(UsageError):  # there is none, or it is of another release
        locked = read_lock(workspace)
    with workspace.read() as con:
        sources = [(name, of["demonstrations"], of["active"]) for name, of in pool_counts(con)[1].items()]
    changes = [(label.label, label.before, label.after) for label in labels(workspace)]
    return ExportData(state, len(relabelled(workspace, "active")), sources, changes, locked)


class ExportModel(TabModel):
    """What would be written, and the records that were read of it, by format."""

    def __init__(self) -> None:
        self.found: ExportData | None = None
        self.records: dict[str, str] = {}

    def take(self, data: ExportData) -> None:
        self.found, self.records = data, {}

    def record(self, workspace: Workspace, settings: Callable[[], Settings], of: ExportFormat) -> str:
        """The first record that a format would write, or why there is none, as where ``settings`` are wrong. For
        threads."""
        try:
            now = settings()
            if of.name == CALIBRATION:
                example = fine_tuning_set(workspace, "validation", now).examples[0]
                return json.dumps({"messages": list(example.messages)}, ensure_ascii=False)
            template = replace(now, llm="offline").prompt_template  # as the command does
            return first_record(workspace, ExportPlan(out=Path(of.file), format=of.name, template=template))
        except UsageError as error:
            return missing(error)

    def copied(self, of: ExportFormat) -> str:
        """The command that writes a format, or the one that it needs first."""
        record = self.records.get(of.name, "")
        return next((line[2:] for line in record.splitlines() if is_command(line)), f"icl-curate {of.command}")


COLUMNS = (
    LineColumn("format", "format", 11),
    LineColumn("file", "file", 18),
    LineColumn("rows", "rows", 7, right=True),
    LineColumn("for", "for", 20, grow=1, rank=1),
)


def _counts(name: str, counts: Counts) -> RenderableType:
    """Those that changed, the most first."""
    changed = sorted((by for by in counts if by[1] != by[2]), key=lambda by: -abs(by[2] - by[1]))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="muted")
    table.add_column(name)
    for title in ("indexed", "now", ""):
        table.add_column(title, justify="right", no_wrap=True, min_width=5)
    for told, before, after in changed[:MOST_CHANGES]:
        change = Text("gone", "bad") if not after else Text(f"{after - before:+,}", "accent")
        shown = Text(display_line(told, 40), no_wrap=True, overflow="ellipsis")
        table.add_row(shown, f"{before:,}", f"{after:,}", change)
    left, same = len(changed) - MOST_CHANGES, len(counts) - len(changed)
    rest = [f"{left:,} more" if left > 0 else "", f"{counted(same, name)} as indexed" if same else ""]
    return Group(table, Text(", ".join(filter(None, rest)), "muted"))
