"""A form for the files of a pool: names and columns in, the first rows as they will be read."""

from __future__ import annotations

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.suggester import Suggester
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ..actions import Action, bindings
from ..completion import NextWord, readable
from ..index_form import COLUMNS, FIELDS, FILES, Checked, check, command, preview
from ..widgets.field import Field
from ..widgets.keybar import KeyBar
from ..widgets.typing import CandidateLine, Completion
from ..workers import BackgroundWork, later
from .dialog import Dialog

PAUSE = 0.15
"""Seconds after the last letter until the files are read."""


class IndexForm(Dialog[str | None], BackgroundWork):
    """Returns the command line that indexes what was typed, None if it was left."""

    TITLE = "Index"
    ACTIONS = (
        Action("form.enter", "enter", "Continue", "Show what would be indexed", call=""),
        Action("form.complete", "tab", "Complete", "Complete the file or column, else go to the next field"),
        Action("form.next", "down", "Next", "Next field", call="step(1)"),
        Action("form.before", "up,shift+tab", "", "Field before", footer=False, call="step(-1)"),
        Action("form.close", "escape", "Leave", "Cancel"),
    )
    BINDINGS = bindings([action for action in ACTIONS if action.name != "form.enter"])

    def __init__(self) -> None:
        super().__init__()
        self.found = Checked({})
        self._wanted = False
        """Enter was pressed before the files were read."""
        self._offered: list[NextWord] = []
        """The files that were listed because nothing was typed."""

    def compose(self) -> ComposeResult:
        line = CandidateLine(id="candidates")
        with Vertical(classes="dialog form"):
            yield Static(Text("Index a pool of demonstrations", "bold"), classes="title")
            for name, (label, hint) in FIELDS.items():
                completion = Completion(None, True, line.show) if name in FILES else _Columns(self, name)
                with Horizontal(classes="entry"):
                    yield Static(label, classes="label")
                    yield Field(id=name, placeholder=hint, compact=True, select_on_focus=False, suggester=completion)
                    yield Static(id=f"note-{name}", classes="note", markup=False)
            yield line
            yield Static(id="rows")  # last: in a small window it is what scrolls
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        self._check_soon = later(self, PAUSE, self._check)
        self._show(self.found)

    @property
    def typed(self) -> dict[str, str]:
        return {name: self.query_one(f"#{name}", Input).value for name in FIELDS}

    def action_step(self, by: int) -> None:
        names = list(FIELDS)
        here = next((i for i, name in enumerate(names) if self.query_one(f"#{name}", Input).has_focus), 0)
        self.query_one(f"#{names[(here + by) % len(names)]}", Input).focus()

    async def action_complete(self) -> None:
        field = self.focused
        if not isinstance(field, Field):
            return
        before = field.value
        if field.id == "pool" and not before:
            self._offer(field)
            return
        await field.complete()
        if field.value == before:
            self.action_step(1)

    def _offer(self, field: Input) -> None:
        """Nothing is typed: list the files that can be read here; once they are listed, or if there is but one, take
        the first."""

        def listed(found: list[NextWord]) -> None:
            listed_before, self._offered = self._offered, found
            self.query_one(CandidateLine).show(found)
            if found and not field.value and (len(found) == 1 or listed_before):
                field.value = found[0].word
                field.cursor_position = len(field.value)
            elif not found:
                self.action_step(1)

        self.in_thread("files", readable, listed)

    def action_close(self) -> None:
        self.dismiss(None)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._wanted = False
        self._check_soon()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.found.typed != self.typed:
            self._wanted = True
            self._check()
        elif self.found.ready:
            self.dismiss(command(self.typed))
        else:
            wrong = next((name for name in FIELDS if name in self.found.errors), "pool")
            self.query_one(f"#{wrong}", Input).focus()

    def _check(self) -> None:
        typed = self.typed
        self.in_thread("check", lambda: check(typed), self._show)

    def _show(self, found: Checked) -> None:
        self.found = found
        for name in FIELDS:
            error = found.errors.get(name)
            note = Text(display_line(error), "bad") if error else Text(display_line(found.notes.get(name, "")), "muted")
            self.query_one(f"#note-{name}", Static).update(note)
        self.query_one("#rows", Static).update(preview(found, self.size.width))
        if self._wanted and found.typed == self.typed:
            self._wanted = False
            if found.ready:
                self.dismiss(command(self.typed))


class _Columns(Suggester):
    """Completes the names of the pool's columns."""

    def __init__(self, form: IndexForm, name: str) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._form, self._name = form, name

    async def get_suggestion(self, value: str) -> str | None:
        pool = self._form.found.pool if self._name in COLUMNS else None
        return next((column for column in pool.columns if column.startswith(value)), None) if pool else None
