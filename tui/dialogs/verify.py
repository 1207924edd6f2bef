"""Rows drawn from the pool, one at a time, for a person to verify: `Verification`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ...engine.base.errors import CurateError
from ...engine.export.verified import FILE, Verification
from ...engine.pool.display import display_line
from ..actions import FIND, Action
from ..row_keys import other_outputs
from ..widgets.bars import KeyBar
from ..widgets.demonstration import RowDetails, in_full
from ..workers import BackgroundWork
from .dialog import Dialog, Pick

REPEATED = 0.15
"""Seconds after an Enter in which the next one comes from a key that is held down: nobody has read the row."""


class Verify(Dialog[int | None], BackgroundWork):
    """Each row waits for a verdict on its output. Returns how many stand in the file; 0 if none was added."""

    TITLE = "Verify"
    ACTIONS = (
        Action("verify.right", "enter", "Right", "The output is right for this input"),
        Action("verify.correct", "e", "Correct", "Choose the right output, or write it"),
        Action("verify.unclear", "s", "Unclear", "Nobody could tell: draw another row in its place"),
        Action("verify.back", "u", "Take back", "Take back what the latest of these keys did"),
        Action("verify.down", "j,down", "", "Scroll down", footer=False, call="scroll(1)"),
        Action("verify.up", "k,up", "", "Scroll up", footer=False, call="scroll(-1)"),
        Action("verify.close", "escape,q", "Stop", "Stop; what was verified is saved, and goes on from here"),
    )

    def __init__(self, drawn: Verification | None = None) -> None:
        """``drawn``: the rows; by default `COUNT` of the workspace's, whose verdicts go into `FILE`."""
        super().__init__()
        self._drawn = drawn
        self._rows: Verification | None = None
        self._shown = False
        """Whether the row on the screen is the one that a key would judge."""
        self._leaving = False
        """Escape waits for the verdict before it."""
        self._pressed = -math.inf
        """When Enter was pressed last."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog verify"):
            yield Static(id="heading")
            with VerticalScroll(can_focus=False):
                yield Static(Text("drawing rows …", "muted"), id="row")
        yield KeyBar(actions=[*self.ACTIONS, FIND])

    def on_mount(self) -> None:
        self.in_thread("begin", lambda: self._drawn or Verification(self.review.opened(), Path(FILE)), self._show)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if self._rows is None:
            self.dismiss()
        else:
            self._leaving = False
            self._show(self._rows)

    def _show(self, rows: Verification) -> None:
        """The next row; after the last one, the dialog closes."""
        self._rows, self._shown = rows, True
        if rows.row is None or self._leaving:
            self.action_close()
            return
        told = f"  {rows.verified + 1:,} of {rows.count:,}, in {display_line(str(rows.path), 60)}"
        self.query_one("#heading", Static).update(Text.assemble(("Is this output right?", "title"), (told, "muted")))
        self.query_one("#row", Static).update(in_full(RowDetails(rows.row, None, "", None, ())))
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def _judge(self, judge: Callable[[Verification], object], told: str = "") -> None:
        """Pass a verdict on the row that is shown; a key before the next one is shown is not meant for it. ``told``
        once it is shown, if ``judge`` returned False."""
        rows = self._rows
        if rows is None or not self._shown:
            return
        self._shown = False

        def show(judged: object) -> None:
            self._show(rows)
            if judged is False:
                self.notify(told)

        self.in_thread("judge", lambda: judge(rows), show)

    def action_right(self) -> None:
        before, self._pressed = self._pressed, time.monotonic()
        if self._pressed - before < REPEATED:
            return
        self._judge(lambda rows: rows.verify(rows.row.output) if rows.row else None)

    def action_correct(self) -> None:
        if self._rows is None or not self._shown or (row := self._rows.row) is None:
            return
        outputs = lambda: other_outputs(self.review.opened(), row)  # noqa: E731
        new = self._rows.task.kind == "labels" and not row.options  # the pool may not have the right one
        self.ask(
            Pick(f"Right output of {row.id}", more=outputs, does="Correct", new=new),
            lambda output: self._judge(lambda rows: rows.verify(output, new=True)) if output else None,
        )

    def action_unclear(self) -> None:
        self._judge(lambda rows: rows.pass_over())

    def action_back(self) -> None:
        self._judge(lambda rows: rows.take_back(), "nothing to take back")

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def on_screen_resume(self) -> None:
        """Help or the finder may have lain over the last verdict."""
        if self._rows is not None and self._shown and (self._leaving or self._rows.row is None):
            self.action_close()

    def action_close(self) -> None:
        if self._rows is None:
            self.dismiss(0)
        elif self._shown:
            self.dismiss(self._rows.verified if self._rows.judged else 0)
        else:
            self._leaving = True
