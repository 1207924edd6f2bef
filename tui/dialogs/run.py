"""Runs any command of the command line and shows its output."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryFile

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ...engine.base.errors import UsageError
from ...engine.jobs.start import environment
from ...engine.pool.display import display_text
from ...render.jobs import duration
from ..actions import Action
from ..completion import CommandLine, completed
from ..widgets.bars import KeyBar
from ..widgets.field import Field
from ..widgets.reader import MOST, LogView
from ..workers import error_text
from .dialog import Dialog
from .start import started, words_of

SHOWN = 0.1
"""Seconds between two updates of the output."""


class CommandDialog(Dialog[None]):
    """Type a command; enter runs it in a separate process. Closing stops it as Ctrl-C would."""

    TITLE = "Run"
    ACTIONS = (
        Action("run.enter", "enter", "Run", "Run the command", bound=False),
        Action("run.complete", "tab", "Complete", "Complete commands, options, values and files"),
        Action("run.output", "down,ctrl+d,pagedown", "Read", "Go to the output"),
        Action("run.close", "escape", "Leave", "Stop the command and close"),
    )

    def __init__(self, folder: Path, command: str = "", commands: CommandLine = None) -> None:
        """``commands`` are completed."""
        super().__init__()
        self.folder, self.command, self._commands = folder, command, commands
        self.code: int | None = None
        """Exit code of the last command that ended."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog run"):
            yield Static(Text("icl-curate …", "bold"))
            words = lambda typed: completed(self._commands, typed, True, self.folder)  # noqa: E731
            yield Field(self.command, select_on_focus=False, completed=words)
            yield LogView()
            yield Static(id="status")
        yield KeyBar(actions=self.ACTIONS)

    def action_output(self) -> None:
        self.query_one(LogView).focus()

    def action_close(self) -> None:
        field = self.query_one(Input)
        if field.has_focus:
            self.dismiss()
        else:
            field.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        try:
            words = words_of(event.value)
        except UsageError as error:
            self.query_one(LogView).set_lines([Text(display_text(error_text(error)), "bad")])
            return
        if words:
            self.run_worker(self._run(words), exclusive=True, exit_on_error=False)

    async def _run(self, words: list[str]) -> None:
        self.code = None
        began, status, view = time.monotonic(), self.query_one("#status", Static), self.query_one(LogView)
        lines: deque[Text] = deque(maxlen=MOST)
        width = str(max(20, view.scrollable_content_region.width))
        own = environment(self.folder) | {"COLUMNS": width}
        ticking = self.set_interval(1.0, lambda: status.update(f"running, {duration(time.monotonic() - began)}"))
        try:
            # a file, not a pipe: a transport would outlive the event loop of an app that ends
            with TemporaryFile() as out, started(words, own, out, out) as process:
                tail = _Tail(out.fileno())
                try:
                    while process.poll() is None:
                        await asyncio.sleep(SHOWN)
                        if fresh := tail.lines():
                            lines.extend(map(_shown, fresh))
                            view.set_lines(list(lines))
                except asyncio.CancelledError:
                    process.terminate()  # it is not waited for: the app may be ending
                    raise
                lines.extend(map(_shown, tail.lines(ended=True)))
        except OSError as error:
            view.set_lines([*lines, Text(display_text(f"cannot run it: {error}"), "bad")])
            return
        finally:
            ticking.stop()
            status.update("")
        self.code = process.returncode
        ended = ("done", "good") if self.code == 0 else (f"ended with exit code {self.code}", "bad")
        view.set_lines([*lines, Text.assemble(ended)])


class _Tail:
    """Reads a file that another process writes to, line by line."""

    def __init__(self, file: int) -> None:
        self._file, self._read, self._rest = file, 0, b""

    def lines(self, ended: bool = False) -> list[bytes]:
        """The lines that were completed since the last call; with ``ended`` the unfinished one, too."""
        while found := os.pread(self._file, 1 << 20, self._read):
            self._read += len(found)
            self._rest += found
        *whole, self._rest = self._rest.split(b"\n")
        return [*whole, self._rest] if ended and self._rest else whole


def _shown(line: bytes) -> Text:
    return Text(display_text(line.decode("utf-8", "replace").rstrip("\r\n")))
