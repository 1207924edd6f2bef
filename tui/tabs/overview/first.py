"""The first screen of an empty folder: what the tool is for, and the files here that could be a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ....engine.base.packages import SAMPLE_DATA
from ....engine.index.listing import FileHere, files_here
from ....engine.pool.display import display_line
from ....render.columns import LineColumn
from ....render.files import NONE, amount, first_row, read_as
from ...widgets.lines import Line, narrowed
from ...widgets.table import LineTable, choosing
from ...workers import BackgroundWork

SAMPLE = "index {} --validation {} --test {}".format(
    *(quote(str(SAMPLE_DATA / "support" / name)) for name in ("pool/*.jsonl", "validation.jsonl", "test.jsonl"))
)
"""The command that indexes the sample pool."""
COLUMNS = (
    LineColumn("file", "files here", 16, grow=4, most=44, cut="middle"),
    LineColumn("rows", "rows", 12, right=True),
    LineColumn("as", "read as", 18, grow=4, most=44, cut="middle"),
    LineColumn("first", "first row", 16, grow=1),
)


class FileTable(LineTable):
    """Enter leads to the form, also where no file is."""

    ACTIONS = choosing("files.choose", "Choose files and columns", "Choose files and their columns by a form")

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self, self.cursor))


class FirstScreen(Vertical, BackgroundWork):
    def __init__(self, about: str, mounted: Callable[[], None]) -> None:
        super().__init__(id="first")
        self._about, self._mounted = about, mounted
        self.files: Sequence[FileHere] = ()

    def compose(self) -> ComposeResult:
        yield Static(Text(self._about, "muted"))
        yield FileTable(COLUMNS, message="reading …")

    def on_mount(self) -> None:
        self._mounted()
        self.look()

    def look(self) -> None:
        """Look which files are here, in a thread."""
        self.in_thread("files", files_here, self._show)

    def _show(self, files: Sequence[FileHere]) -> None:
        table = self.query_one(FileTable)
        self.files, table.message = files, NONE
        rows = [(here.path, amount(here, here.look), read_as(here), first_row(here)) for here in files]
        lines = [Line(tuple(map(display_line, row)), "" if row[-1] else "muted") for row in rows]
        table.arrange_columns(narrowed(COLUMNS, lines))
        table.fill(lines)
