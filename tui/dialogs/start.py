"""Starting long work: edit the command, see what it would do and cost, then start a job. The dry run is a process of
its own: it can be stopped, and nothing heavy is imported here."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from rich.columns import Columns
from rich.table import Table
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static
from textual.worker import Worker

from ...engine.base.contract import Reported
from ...engine.base.errors import CurateError, UsageError
from ...engine.base.progress import Event
from ...engine.jobs import OBSERVED
from ...engine.jobs.folder import Job, error_and_fix
from ...engine.jobs.follow import JobProgress
from ...engine.jobs.kinds import COMMANDS, JobCommand, read
from ...engine.jobs.standby import Standby
from ...engine.jobs.start import PROGRAM, environment, start
from ...engine.pool.display import display_line
from ...render.jobs import dry_run_rows, duration
from ..actions import Action
from ..completion import CommandLine, completed, is_option
from ..live_jobs import STARTED
from ..model import told
from ..widgets.bars import KeyBar
from ..widgets.field import Field
from ..widgets.lines import gauge, pairs
from ..workers import BackgroundWork
from .dialog import Dialog


def words_of(typed: str) -> list[str]:
    """The arguments of a command line, with or without the program's name; `UsageError` for an unclosed quotation
    mark."""
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise UsageError(f"cannot read the command: {error}", "close the quotation mark") from error
    return words[1:] if words[:1] == ["icl-curate"] else words


def parsed(typed: str) -> JobCommand:
    """A command line that can be a job; a `UsageError` for any other."""
    return JobCommand.of(words_of(typed)).checked()


async def dry_run_command(
    folder: Path, line: JobCommand, watched: Path | None = None, standby: Standby | None = None
) -> Reported:
    """What the command would do; raises the error reported by the command. The process, that which waits in ``standby``
    if one does, ends with the task. It writes its progress into the folder ``watched``, for `JobProgress`."""
    # files and a thread, not asyncio's pipes: cancelled twice, as by an app that ends, those outlive the event loop
    own = environment(folder) | ({OBSERVED: str(watched)} if watched else {})
    with TemporaryFile() as out, TemporaryFile() as err:
        with started(line.adding("--dry-run", "--json"), own, out, err, standby) as process:
            try:
                await asyncio.to_thread(process.wait)
            except asyncio.CancelledError:
                process.kill()  # the thread takes note of its end
                raise
        printed, complaint = (_whole(stream) for stream in (out, err))
    if process.returncode == 0:
        with suppress(ValueError):
            return read(json.loads(printed))
    what, fix = error_and_fix(complaint)
    raise CurateError(what or "the command failed", fix)


@contextmanager
def started(
    words: Sequence[str], own: dict[str, str], out: IO[bytes], err: IO[bytes], standby: Standby | None = None
) -> Iterator[Popen[bytes]]:
    """``icl-curate WORDS`` as a process of this program, with its ``own`` environment."""
    process = standby and standby.take(words, own, out, err, str(Path.cwd()))
    process = process or Popen([*PROGRAM, *words], stdin=DEVNULL, stdout=out, stderr=err, env=own)
    STARTED.add(process.pid)
    try:
        yield process
    finally:
        STARTED.discard(process.pid)


def _whole(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


class CostFirst(Dialog[Any], BackgroundWork):
    """Enter never starts anything here: it may be on its way when a cost appears. Another key does, and only if the
    cost was on the screen before that key went down."""

    costed: str | None = None
    """The command whose cost is on the screen."""
    _to_stand: str | None = None
    _stands_since = _pressed = 0.0

    def show_cost_of(self, command: str | None) -> None:
        """``command``: the one whose cost the next refresh draws; None: no cost is shown."""
        if command != self._to_stand:
            self._to_stand, self.costed = command, None
            self.call_after_refresh(self._drawn, command)

    def _drawn(self, command: str | None) -> None:
        if command == self._to_stand:
            self.costed, self._stands_since = command, time.monotonic()
            self.cost_stands()

    def cost_stands(self) -> None:
        """`costed` may have changed."""

    def on_key(self, event: events.Key) -> None:
        self._pressed = event.time

    async def dry_run(self, folder: Path, line: JobCommand, tell: Callable[[Text], None]) -> Reported:
        """What a command would do; meanwhile ``tell`` is called with how long it has been at work, and at what."""
        began, progress, watched = time.monotonic(), JobProgress(), ""

        def look() -> None:
            progress.read(Path(watched))
            tell(under_way(time.monotonic() - began, progress.latest.event if progress.latest else None))

        looking = self.set_interval(LOOK, look)
        try:
            with TemporaryDirectory(prefix="icl-curate-", ignore_cleanup_errors=True) as watched:
                return await dry_run_command(folder, line, Path(watched), self.review.standby)
        except OSError as error:
            raise CurateError(f"cannot run it: {error}") from error
        finally:
            looking.stop()
            self.review.stand_by()

    @property
    def cost_was_seen(self) -> bool:
        """Whether the latest key was pressed with the cost before the user's eyes."""
        return self.costed is not None and self._stands_since < self._pressed


LOOK = 0.25
"""Seconds between two looks at a dry run's progress."""


class Price(Static, can_focus=True):
    """What a command would do and cost. What is typed here edits the command, but for the keys of the dialog."""

    def on_key(self, event: events.Key) -> None:
        field, left = self.screen.query_one(Field), self.screen.focused is not self
        if event.character and event.is_printable and (left or event.key not in self.screen.active_bindings):
            event.stop()
            event.prevent_default()
            self.screen.set_focus(field)  # at once: the next key is meant for it, too
            field.insert_text_at_cursor(event.character)


class Start(CostFirst):
    """Edit a command, see what it would do and cost, start it. Returns it, or None.

    Enter runs it with --dry-run, and goes from the field to the price. A key that only the price has starts exactly
    the command whose price is shown.
    """

    TITLE = "Price"
    ACTIONS = (
        Action("start.start", "y,ctrl+s", "Start", "Start the command whose price is shown"),
        Action("start.edit", "e", "Edit", "Edit the command"),
        Action("start.enter", "enter", "Price", "Show what it would do and cost"),
        Action("start.other", "down", "Next command", "Choose another kind of job", call="other(1)"),
        Action("start.before", "up", "", "Previous one", footer=False, call="other(-1)"),
        Action("start.complete", "tab", "Complete", "Complete commands, options, values and files"),
        Action("start.grade", "ctrl+g", "Metric", "Say which answers are right: adds --metric"),
        Action("start.close", "escape", "Leave", "Cancel"),
    )

    def __init__(self, commands: Sequence[str], at: int = 0) -> None:
        super().__init__()
        self.proposed, self.commands, self.at = tuple(commands), list(commands), at
        self.plan: Reported | None = None
        self._asking: Worker[None] | None = None
        self._asked_for: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog start"):
            yield Static(id="kinds")
            jobs, files = _jobs_of(self.review.command_line), not self.review.limited
            words = lambda typed: completed(jobs, typed, files)  # noqa: E731
            yield Field(id="command", select_on_focus=False, completed=words)
            yield Price(id="cost")
            yield Static(id="hint", classes="keys")
        yield KeyBar()

    def on_mount(self) -> None:
        self.commands = self.review.edited.get(self.proposed, self.commands)
        self._show_command()

    @property
    def field(self) -> Field:
        return self.query_one(Field)

    def action_other(self, by: int) -> None:
        self.commands[self.at] = self.field.value  # text typed for another command is restored
        self.at = (self.at + by) % len(self.commands)
        self._show_command()

    def action_close(self) -> None:
        """What was edited is there again when the same commands are proposed."""
        self.commands[self.at] = self.field.value
        self.review.edited[self.proposed] = self.commands
        super().action_close()

    def action_edit(self) -> None:
        self.set_focus(self.field)

    async def action_complete(self) -> None:
        self.action_edit()
        await super().action_complete()

    async def action_grade(self) -> None:
        """Add the option, and choose a metric."""
        adding = f"{self.field.value.rstrip()} --metric"
        if not is_option(self.review.command_line, adding):
            self.notify("this command measures no answers")
        elif "--metric" not in self.field.value.split():
            self.field.put(f"{adding} ")
            await self.action_complete()

    @on(Input.Changed)
    def _edited(self) -> None:
        if self.field.value != self._asked_for:  # a change of the command before may be told late
            self._asked_for = None
            self.show_cost_of(None)
            if self._asking is not None:
                self._asking.cancel()
            self._cost(Text("edited: enter shows what it would do", "muted"))
            self.cost_stands()

    @on(Input.Submitted)
    def action_enter(self) -> None:
        """Go to the price; where it is shown, say what starts it."""
        typed = self.field.value
        if self.costed == typed and not self.field.has_focus:
            self.notify("y starts it")
        elif self.costed != typed and not self._pricing(typed):
            self._ask()
        self.set_focus(self.query_one(Price))

    def action_start(self) -> None:
        if self.cost_was_seen and self.costed == self.field.value:
            self.review.edited.pop(self.proposed, None)
            self.dismiss(parsed(self.costed))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The price alone has the key that starts; None: it is shown, and does nothing."""
        if action == "start":
            return self._startable or None
        return action != "edit" or not isinstance(self.focused, Field)

    @property
    def _startable(self) -> bool:
        return self.costed is not None and self.costed == self.field.value and not self.field.has_focus

    def _pricing(self, typed: str) -> bool:
        return self._asked_for == typed and self._asking is not None and not self._asking.is_finished

    def _ask(self) -> None:
        """Estimate the cost of the typed command; earlier estimates are discarded."""
        self._asked_for = self.field.value
        self.show_cost_of(None)
        self._asking = self.run_worker(self._show_dry_run(self._asked_for), exclusive=True, exit_on_error=False)
        self.cost_stands()

    async def _show_dry_run(self, typed: str) -> None:
        self._cost(under_way(0.0, None))
        try:
            line = parsed(typed)
            self.review.permit(line.words)
            plan = await self.dry_run(self.review.folder, line, self._cost)
        except CurateError as error:
            self._cost(told(error))
            return
        self.plan = plan
        self._cost(pairs(dry_run_rows(plan)))
        self.show_cost_of(typed)

    def _cost(self, text: Text | Table) -> None:
        self.query_one(Price).update(text)

    def _show_command(self) -> None:
        """Price the command, or have it completed first if it ends with a space."""
        command = self.commands[self.at]
        self.field.put(command)
        self.set_focus(self.field if command.endswith(" ") else self.query_one(Price))
        self._ask()
        names = [display_line(" ".join(JobCommand.typed(each).name), 40) for each in self.commands]
        kinds = [Text(f" {name} ", "reverse" if i == self.at else "muted") for i, name in enumerate(names)]
        self.query_one("#kinds", Static).update(Columns(kinds, padding=0))  # no name breaks

    @on(events.DescendantFocus)
    def cost_stands(self) -> None:
        keys = {"y": "start", "e": "edit", "esc": "back"} if self._startable else {"enter": "show the price"}
        hint = Text("   ").join(Text.assemble((key, "key"), f" {what}") for key, what in keys.items())
        self.query_one("#hint", Static).update(hint)
        self.refresh_bindings()


def propose(node: BackgroundWork, commands: Sequence[str], at: int = 0, as_is: bool = False) -> None:
    """Let the user start one of these commands as a job; the list of jobs then shows it. Unless they are to be
    ``as_is``, those that name no LLM ask that of the latest work if the settings name none, as `status` suggests."""
    if options := "" if as_is else shlex.join(node.review.llm_options):
        commands = [f"{each} {options}" if _asks_any(each) else each for each in commands]
    try:
        node.review.permit(words_of(commands[at]))
    except UsageError as error:
        node.failed("start", error)
    else:
        node.ask(Start(commands, at), partial(begin, node))


def _asks_any(command: str) -> bool:
    """Whether it asks an LLM, and does not say which."""
    return JobCommand.typed(command).kind not in ("", "index", "export") and "--llm" not in command


def begin(node: BackgroundWork, line: JobCommand) -> None:
    """Start a job whose price was seen, and show it in the list of jobs."""
    review, below = node.review, node.screen

    def show(job: Job) -> None:
        if review.screen is below:
            review.action_jobs(job.number)
        else:  # a dialog was opened meanwhile, which the next keys are meant for
            review.notify(f"job {job.number} is started")

    node.in_thread(
        "start",
        lambda: start(review.opened(create=line.kind == "index"), line, standby=review.standby),
        show,
    )


def _jobs_of(root: CommandLine) -> CommandLine:
    """The command line with those commands alone that can be jobs."""
    if (jobs := copy(root)) is not None:
        jobs.commands = {name: command for name, command in root.commands.items() if name in COMMANDS}
    return jobs


def under_way(seconds: float, event: Event | None) -> Text:
    """For how long a dry run has been at work, and how far its current task is."""
    text = Text.assemble((f"pricing … {duration(seconds)}  ", "muted"))
    return text.append("nothing is sent", "muted") if event is None else text.append_text(gauge(event, 24))
