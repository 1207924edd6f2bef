"""The first screen of an empty folder: what the tool is for, and the files here that could be a pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from ....engine.index.listing import FileHere, files_here
from ....engine.pool.display import display_line
from ....render.columns import LineColumn
from ...actions import Action
from ...dialogs.start import propose
from ...index_files import amount, read_as
from ...tab import Part
from ...widgets.lines import Line, narrowed
from ...widgets.table import LineTable, choosing

SAMPLE = Path(__file__).parents[3] / "sample_data" / "support"
COLUMNS = (
    LineColumn("file", "files here", 16, grow=4, most=44, cut="middle", sortable=False),
    LineColumn("rows", "rows", 12, right=True, sortable=False),
    LineColumn("as", "read as", 18, grow=4, most=44, cut="middle", sortable=False),
    LineColumn("first", "first row", 16, grow=1, sortable=False),
)
NONE = "no file here that could be read: JSON, JSONL, CSV, TSV, Parquet, Arrow, YAML, Excel"


class FileTable(LineTable):
    """Enter leads to the form, also where no file is."""

    ACTIONS = choosing("files.choose", "Choose files and columns", "Choose files and their columns by a form")

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self, self.cursor))


class FirstScreen(Part):
    TITLE = "Files here"
    ABOUT = "The files of this folder that could be a pool, as they would be read."
    ACTIONS = (Action("files.sample", "d", "Sample pool", "Try it with the sample pool: 1,200 rows, a minute"),)

    def __init__(self, about: str) -> None:
        super().__init__(id="first")
        self._about = about
        self.files: Sequence[FileHere] = ()

    def compose(self) -> ComposeResult:
        yield Static(Text(self._about, "muted"))
        yield FileTable(COLUMNS, message="reading …")

    def look(self) -> None:
        """Look which files are here, in a thread."""
        self.in_thread("files", files_here, self._show)

    def _show(self, files: Sequence[FileHere]) -> None:
        table = self.query_one(FileTable)
        self.files, table.message = files, NONE
        lines = [_line(here) for here in files]
        table.arrange_columns(narrowed(COLUMNS, lines))
        table.fill(lines)

    def action_sample(self) -> None:
        pool, validation, test = (
            quote(str(SAMPLE / name)) for name in ("pool/*.jsonl", "validation.jsonl", "test.jsonl")
        )
        propose(self, [f"index {pool} --validation {validation} --test {test}"])


def _line(here: FileHere) -> Line:
    row = next((one.row for one in here.look.peek.rows if one.row), None) if here.look else None
    first = f"{display_line(row.input)} → {display_line(row.output, 40)}" if row else ""
    return Line(
        (display_line(here.path), amount(here, here.look), display_line(read_as(here)), first), "" if row else "muted"
    )
