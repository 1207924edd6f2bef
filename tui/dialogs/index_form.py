"""A form for the files of a pool: a line for each, with its use, its columns and its first row as it will be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ...engine.base.errors import CurateError
from ...engine.index.chosen import FIELDS, SHARED, USES, ChosenFiles, Wanted
from ...engine.index.listing import PATIENCE, FileHere, Look, files_here, use_of
from ...engine.jobs.kinds import JobCommand
from ..actions import Action
from ..completion import files_in
from ..index_files import COLUMNS, held_out, line_of, told_of
from ..widgets.bars import KeyBar
from ..widgets.lines import narrowed
from ..widgets.table import LineTable
from ..workers import BackgroundWork, error_text
from .dialog import Dialog, Offer, Option, Pick
from .start import Start

MORE = {
    "validation": "share of the pool held out for validation, where no file has the queries; 0: none",
    "test": "the same for test",
    "labels": "names of labels that the files give as 0, 1, …: bad,good",
    "source": "column of the source, for this file",
    "options": "column of the options, for this file",
    "context": "column of the passage, for this file",
}
"""What is rarely changed, with what can be typed."""


class IndexForm(Dialog[JobCommand | None], BackgroundWork):
    """Returns the command that indexes the files, once its price was seen; None if the form was left. What was changed
    is kept in the draft of the app."""

    TITLE = "Index"
    ACTIONS = (
        Action("form.price", "enter", "Continue", "Show what would be indexed", bound=False),
        Action("form.use", "space", "Use", "Next use of this file: pool, validation, test, none"),
        Action("form.pool", "p", "", "Use this file for the pool", footer=False, call="use('pool')"),
        Action("form.validation", "v", "", "Use it for validation", footer=False, call="use('validation')"),
        Action("form.test", "t", "", "Use it for the test", footer=False, call="use('test')"),
        Action("form.input", "i", "Input", "Choose the column of the input", call="column('input')"),
        Action("form.output", "o", "Output", "Choose the column of the output", call="column('output')"),
        Action("form.more", "m", "More", "Change the shares held out, names of labels, and further columns"),
        Action("form.add", "slash", "Add", "Add a file, or several by a pattern"),
        Action("form.clear", "D", "Clear", "Forget everything that was changed here"),
        Action("form.close", "escape", "Leave", "Go back; what was changed is kept"),
    )

    def __init__(self, here: Sequence[FileHere] = (), at: int = 0) -> None:
        """``here``: the files of this folder, if they are known already; ``at``: the one under the cursor."""
        super().__init__()
        self._here, self._at = here, at
        self._wanted = False
        """Enter was pressed before all files were read."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="form"):
            yield Static(Text("Index a pool of demonstrations", "bold"))
            yield LineTable(COLUMNS, marked=lambda _: False, moved=self._tell, message="reading …")
            yield Static(id="held", markup=False)
            yield Static(id="as-read", markup=False)
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        self.files = ChosenFiles(self.review.draft, self._here)
        if self._here:
            self._show()
        if not self._here or any(here.look is None and not here.why for here in self._here):  # for lack of time
            self.in_thread("files", partial(files_here, seconds=PATIENCE), self._found)

    def _found(self, here: Sequence[FileHere]) -> None:
        path = self.path
        self.files = ChosenFiles(self.review.draft, here)
        self._at = self.files.paths.index(path) if path in self.files.paths else 0
        self._show()

    @property
    def path(self) -> str:
        """The file under the cursor; empty: there is none."""
        at = self.query_one(LineTable).cursor
        return self.files.paths[at] if at < len(self.files.paths) else ""

    def action_use(self, use: str = "") -> None:
        if path := self.path:
            self._change(path, "use", use or USES[(USES.index(self.files.use(path)) + 1) % len(USES)])

    def action_column(self, name: str) -> None:
        """Choose one of the file's columns; what is typed may be made of several, as ``--map`` says."""
        seen = self.files.seen(path := self.path)
        options = [Option("as it is found", about="by its name, or by what it holds", value="")]
        if isinstance(seen, Look):
            options += [Option(column, about=seen.examples.get(column, "")) for column in seen.peek.understood.columns]
            now = self.files.columns(path).get(name, seen.peek.understood.fields.get(name))
            offer = Offer(
                options, "", "a column, several joined: {title} / {text}, or the first that exists: text|body"
            )
            self.ask(Pick(f"Column of the {name}: {path}", offer, now=now), partial(self._change, path, name))

    def action_more(self) -> None:
        """Change what rarely has to be: for all files, or a column of the one under the cursor."""
        told = {**self.review.draft.get(SHARED, {}), **self.files.shares, **self.files.columns(self.path)}

        def chosen(name: str) -> None:
            if name in FIELDS:
                self.action_column(name)
            else:
                offer = Offer(text=told.get(name, ""), told=MORE[name])
                self.ask(Pick(name.capitalize(), offer), partial(self._change, SHARED, name))

        options = [Option(name, told.get(name, ""), about) for name, about in MORE.items()]
        self.ask(Pick("Change", Offer(options)), chosen)

    def action_add(self, folder: str = "") -> None:
        """Choose a file, folder by folder, or type a path or a pattern."""

        def added(path: str) -> None:
            if path.endswith("/"):
                self.action_add(path)
            elif path:
                self._change(path, "use", use_of(path))
                self.query_one(LineTable).cursor = self.files.paths.index(path)

        options = [Option(each.word) for each in files_in(folder) if each.word not in self.files.paths]
        self.ask(Pick("Add a file", Offer(options, "", "or type a path, or a pattern: data/*.jsonl")), added)

    def action_clear(self) -> None:
        self.review.draft.clear()
        self._show()
        self.review.save()

    def _change(self, path: str, name: str, value: str) -> None:
        self._wanted = False
        self.files.change(path, name, value)
        self.review.save()
        self._show()

    def _show(self) -> None:
        table, paths = self.query_one(LineTable), self.files.paths
        table.message = "no file here that could be read; / adds one"
        lines = [line_of(self.files, path) for path in paths]
        table.arrange_columns(narrowed(COLUMNS, lines))
        table.fill(lines)
        if self._at:
            table.cursor, self._at = self._at, 0
        held = Text.assemble(("p", "key"), " pool  ", ("v", "key"), " validation  ", ("t", "key"), " test    ")
        self.query_one("#held", Static).update(held.append_text(held_out(self.files)))
        self._tell()
        if unseen := self.files.unseen():
            self.in_thread("look", lambda: {wanted: wanted.look() for wanted in unseen}, self._seen)

    def _seen(self, looks: Mapping[Wanted, Look | str]) -> None:
        self.files.looks |= looks
        self._show()
        wanted, self._wanted = self._wanted, False
        if wanted and self.is_active:  # else another dialog lies over the form
            self._price()

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "files":
            self._found(self._here)
        elif kind == "look":
            self._seen({wanted: error_text(error, "; ") for wanted in self.files.unseen()})

    def _tell(self) -> None:
        """Tell of the file under the cursor."""
        self.query_one("#as-read", Static).update(told_of(self.files, self.path, self.size.width - 12))

    def on_resize(self) -> None:
        if self.is_mounted:
            self._tell()

    @on(LineTable.Chosen)
    def _price(self) -> None:
        """Show what would be indexed, if nothing is wrong; esc leads back here."""
        self._wanted = bool(self.files.unseen())
        if self._wanted:
            return
        if fault := self.files.fault():
            path, why = fault
            if path in (SHARED, self.path):
                self.notify(why, severity="warning", markup=False)
            else:
                self.query_one(LineTable).cursor = self.files.paths.index(path)
        else:
            self.ask(Start([self.files.command()]), self.dismiss)
