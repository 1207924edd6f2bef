"""Runs any command of the command line and shows its output."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...engine.errors import UsageError
from ...engine.jobs.start import PROGRAM, environment
from ...engine.pool.display import display_text
from ...render.jobs import duration
from ..actions import Action, bindings
from ..completion import NOTHING_KNOWN, CommandSpec
from ..dry_run import words_of
from ..processes import COMMANDS
from ..widgets.field import Field
from ..widgets.keybar import KeyBar
from ..widgets.logview import MOST, LogView
from ..widgets.typing import CandidateLine, Completion
from ..workers import error_text

SHOWN = 0.1
"""Seconds between two updates of the output."""


class CommandDialog(ModalScreen[None]):
    """Type a command; enter runs it in a separate process. Closing stops it as Ctrl-C would."""

    TITLE = "Run"
    ACTIONS = (
        Action("run.enter", "enter", "Run", "Run the command", call=""),
        Action("run.complete", "tab", "Complete", "Complete commands, options, values and files"),
        Action("run.output", "down,ctrl+d,pagedown", "Read", "Go to the output"),
        Action("run.close", "escape", "Leave", "Stop the command and close"),
    )
    BINDINGS = bindings([action for action in ACTIONS if action.name != "run.enter"])

    def __init__(self, folder: Path, command: str = "", spec: CommandSpec = NOTHING_KNOWN) -> None:
        """``spec``: the commands, for completion."""
        super().__init__()
        self.folder, self.command, self._spec = folder, command, spec
        self.code: int | None = None
        """Exit code of the last command that ended."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog run"):
            yield Static(Text("icl-curate …", "bold"))
            line = CandidateLine(classes="candidates")
            yield Field(select_on_focus=False, suggester=Completion(self._spec, True, line.show))
            yield line
            yield LogView()
            yield Static(id="status")
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.value = self.command
        field.cursor_position = len(self.command)

    def action_complete(self) -> None:
        self.query_one(Input).action_cursor_right()

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
        began, status = time.monotonic(), self.query_one("#status", Static)
        ticking = self.set_interval(1.0, lambda: status.update(f"running, {duration(time.monotonic() - began)}"))
        view = self.query_one(LogView)
        lines: deque[Text] = deque(maxlen=MOST)
        width = str(max(20, view.scrollable_content_region.width))
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env=environment(self.folder) | {"COLUMNS": width}, limit=1 << 24,
        )  # fmt: skip
        COMMANDS.add(process.pid)
        try:
            assert process.stdout is not None
            drawn = 0.0
            async for line in process.stdout:
                lines.append(Text(display_text(line.decode("utf-8", "replace").rstrip("\r\n"))))
                if time.monotonic() - drawn > SHOWN:
                    view.set_lines(list(lines))
                    drawn = time.monotonic()
            self.code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            raise
        finally:
            ticking.stop()
            status.update("")
            COMMANDS.discard(process.pid)
        ended = ("done", "good") if self.code == 0 else (f"ended with exit code {self.code}", "bad")
        view.set_lines([*lines, Text.assemble(ended)])
