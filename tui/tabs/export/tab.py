"""Export: the formats, the first record that each will write, and what changed since the pool was indexed."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ....engine.base.errors import CurateError
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.start import propose
from ...model import Empty
from ...tab import Tab
from ...widgets.reader import Reader
from ...widgets.table import LineTable, choosing
from ...workers import at_rest, error_text
from .model import COLUMNS, FORMATS, ExportData, ExportFormat, ExportModel, read


class FormatTable(LineTable, inherit_bindings=False):
    """The formats; the footer says what enter does."""

    TITLE = "Formats"
    ACTIONS = choosing("export.write", "Write", "Choose the file and see what would be written, then write it")


class ExportTab(Tab):
    NAME = "export"
    TITLE = "Export"
    ABOUT = "The curated pool as a file: what each format writes, and what changed since the pool was indexed."
    TERMS = ("active pool", "decision", "prune, restore", "demonstration", "split")
    PANES = "LineTable", "#export-halves"
    ACTIONS = (
        Action("export.back", "escape", "Back", "Back to the formats"),
        Action("export.version", "v", "Version", "Give the pool as it is a name, to return to or export later",
               "icl-curate version save NAME"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: ExportModel = ExportModel()

    def compose_body(self) -> ComposeResult:
        yield Static(id="written")
        yield FormatTable(COLUMNS, moved=lambda: self._look_soon())
        with Horizontal(id="export-halves"):
            yield Reader(id="record")
            yield Reader(id="changes")

    def on_mount(self) -> None:
        self._look_soon = at_rest(self, 0.06, self._look)

    @property
    def format(self) -> ExportFormat:
        """The one under the cursor."""
        return FORMATS[self.table.cursor]

    def read(self, workspace: Workspace) -> ExportData | Empty:
        return read(workspace)

    def show(self, data: ExportData) -> None:
        self.model.take(data)
        self.query_one("#written", Static).update(data.written())
        self.table.fill([of.line(data.state) for of in FORMATS])
        self.query_one("#changes", Reader).read(data.changes())
        self._look()

    def copied(self) -> str:
        return self.model.copied(self.format)

    def _look(self) -> None:
        of, records, reader = self.format, self.model.records, self.query_one("#record", Reader)
        reader.read(of.shown(records.get(of.name)))

        def take(record: str) -> None:
            records[of.name] = record
            reader.read(of.shown(record))

        if of.name in records:
            self.forget("record")  # that of another format, which is not read yet
        else:
            read = lambda: self.model.record(self.review.opened(), self.review.settings, of)  # noqa: E731
            self.in_thread("record", read, take)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "record":
            self.query_one("#record", Reader).read(self.format.shown(error_text(error)))

    # Actions.

    @on(LineTable.Chosen)
    def _write(self) -> None:
        propose(self, [self.format.command])

    def action_version(self) -> None:
        self.review.action_run("version save ")
