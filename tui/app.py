"""The app behind ``icl-curate review``: the frame around the tabs.

The frame is painted before DuckDB, numpy or any tab is imported; a thread imports these, and the tabs follow.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.theme import Theme as RichTheme
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.theme import Theme
from textual.widgets import ContentSwitcher, Input

from ..engine.base.errors import Cancelled, UsageError, counted
from ..engine.jobs.served import refused
from ..engine.pool.display import display_text
from ..render.console import stderr
from ..render.suggested import completed
from .actions import FIND, HELP, Action, bindings, keymap
from .decisions import DecisionQueue, notice
from .notices import WithNotices
from .session import Memory, load, save
from .signals import FaultKept, TidyEnd
from .themes import begin_with, named_styles
from .widgets.bars import MORE, KeyBar, TabBar

if TYPE_CHECKING:
    from ..engine.jobs.folder import State
    from ..engine.jobs.follow import LiveJob, LiveJobs
    from ..engine.jobs.standby import Standby
    from ..engine.select.session import SessionCache
    from ..engine.store.decisions import Change
    from ..engine.store.settings import Settings
    from ..engine.store.workspace import Workspace
    from .completion import CommandLine
    from .tab import Tab


TABS = ("overview", "problems", "sources", "evaluate", "export", "demos", "preview", *MORE)
"""The names of the tabs in order, first the road; `tabs.sources.tab.SourcesTab` is the class of the third."""

PLACES = {**{name: (name,) for name in TABS if name not in MORE}, "more": MORE}
"""The names on the strip, and the tabs of each."""

USED_LATER = "numpy.ma", "..engine.backends.offline.reader"
"""Modules that numpy and the LLM import when they are first used; imported with the tabs, while nobody waits."""

YOUNG = 20_000
"""Objects after which new ones are looked through for garbage: Textual makes some thousands for each screen."""

WATCH = 1.0
"""Seconds between checks for changes of the workspace and of the session state."""

DATABASE, JOB_FILES = "workspace.duckdb", ("job.json", "state.json")
"""Files of a workspace, and of a job, that tell of a change."""

PATIENCE = 5.0
"""Seconds between two messages about a process that is waited for."""

COPIED = 60
"""Characters of a copied text that is shown."""

AGAIN = 3.0
"""Seconds in which a second Ctrl-C quits."""

FRAME = (
    *(
        Action(f"go.{name}", str(i), name.capitalize(), f"Go to {name.capitalize()}", "", False, f"go('{name}')")
        for i, name in enumerate(TABS, 1)
    ),
    Action("go.jobs", "J", "Jobs", "Show the background jobs", "icl-curate jobs", False, "jobs"),
    Action("frame.next", "right_square_bracket", "Next tab", "Go to the next tab", "", False, "step(1)"),
    Action("frame.previous", "left_square_bracket", "Previous tab", "Go to the previous tab", "", False, "step(-1)"),
    Action("frame.undo", "u", "Undo", "Undo the latest decision", "icl-curate undo"),
    Action("frame.redo", "U", "Redo", "Bring back what was undone last", "icl-curate redo", footer=False),
    Action("frame.history", "H", "History", "Show decisions, latest first", "icl-curate history", footer=False),
    Action("frame.repeat", "full_stop", "Repeat", "Repeat the last decision on this row, and go down", footer=False),
    Action("frame.zoom", "z", "Zoom", "Show what has the focus alone, and again with the rest", footer=False),
    Action("frame.border_up", "less_than_sign", "", "Move a border: more pane, less list", "", False, "border(5)"),
    Action("frame.border_down", "greater_than_sign", "", "Move it the other way", "", False, "border(-5)"),
    Action("frame.copy", "y", "Copy", "Copy what is under the cursor, a row as JSON (works over SSH)", footer=False),
    Action("frame.copy_command", "Y", "Copy command", "Copy the command that shows the same", footer=False),
    Action("frame.reload", "f5,ctrl+r", "Reload", "Reload the workspace", footer=False),
    HELP,
    Action("frame.tour", "f2", "Tour", "Show the screen in six lines", footer=False),
    Action("frame.run", "exclamation_mark", "Run", "Run any icl-curate command and show its output", footer=False),
    FIND,
    Action("frame.leave", "q", "Quit", "Quit (also Ctrl-C twice); decisions are saved, and jobs go on"),
)


@cache
def import_tabs() -> list[type[Tab]]:
    """The tabs' classes. Imports DuckDB and numpy; what the modules hold is not looked through by later garbage
    collections, each of which would take the time of a tab's first visit."""
    for module in USED_LATER:
        importlib.import_module(module, __package__)
    tabs = [
        getattr(importlib.import_module(f".tabs.{name}.tab", __package__), f"{name.capitalize()}Tab") for name in TABS
    ]
    gc.freeze()
    gc.set_threshold(max(YOUNG, gc.get_threshold()[0]), 10, 10)
    return tabs


class ReviewApp(WithNotices, FaultKept, DecisionQueue):
    """All tabs over the workspace in one folder."""

    TITLE = "icl-curate review"
    ACTIONS = FRAME
    BINDINGS: ClassVar = [
        *bindings(FRAME),
        Binding("ctrl+q", "leave", show=False, system=True, priority=True),
        Binding("ctrl+c", "interrupt", show=False, system=True, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False  # `finder` instead
    ALLOW_IN_MAXIMIZED_VIEW = "KeyBar"
    CSS_PATH = "review.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-tight"), (60, "-narrow"), (100, "-wide"), (150, "-vast")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (18, "-short"), (32, "-tall")]  # noqa: RUF012

    def __init__(
        self, folder: Path, limited: bool = False, commands: CommandLine = None, tour: bool = False,
        only: Callable[[], Screen[Any]] | None = None,
    ) -> None:  # fmt: skip
        """``limited``: the user may not be the owner of this machine; see `jobs.served.refused`. ``commands`` is the
        command line, for completion. ``tour``: at the first start the screen is explained. ``only``: one dialog is
        opened, and the app ends with it."""
        super().__init__()
        self.error_console = stderr()  # a crash report shows values, which come from the pool
        self.folder, self.limited = folder.resolve(), limited
        self.command_line = commands
        self.tabs: list[Tab] = []
        """All tabs, also those that were never visited; none right after the start."""
        self._visiting = asyncio.Lock()
        self._workspace: Workspace | None = None
        self._session_cache: SessionCache | None = None
        self._memory = load(self.folder)
        self._only = only
        self._tour, self._toured = tour and not self._memory.toured, self._memory.toured
        self.draft = deepcopy(self._memory.draft)
        self.borders = self._memory.borders
        self.recent = self._memory.recent
        """What was found last, latest first; see `finder`."""
        self.edited: dict[tuple[str, ...], list[str]] = {}
        """Commands as they were when their dialog was left, by those that it proposed."""
        self.llm_options: tuple[str, ...] = ()
        """Those by which what keys start asks the LLM of the latest work, if the settings name none."""
        self._fingerprint: tuple[tuple[int, int], ...] = ()
        self._live_jobs: tuple[LiveJob, ...] = ()
        self._watched: LiveJobs | None = None
        self._ended: tuple[int, State] | None = None
        """The last job that has ended and was not looked at, and how."""
        self._told_waiting = -PATIENCE
        self._interrupted = -AGAIN
        self.ending = TidyEnd(self)
        begin_with(self, self._memory.theme)

    # Services for tabs and dialogs.

    def opened(self, create: bool = False) -> Workspace:
        """The workspace, checked and migrated once; created first if ``create`` is set. For threads: it may wait for
        another process. Raises `NoWorkspaceError` if there is none."""
        from ..engine.store.workspace import Workspace

        if self._workspace is None:
            self._workspace = Workspace.create(self.folder) if create else Workspace.open(self.folder)
        return self._workspace

    def waits(self, what: str, waited: float) -> None:
        """Called in a thread that waits for another process (`store.locks`): show a message, and stop waiting when the
        app ends."""
        from .live_jobs import own_process  # after the first paint

        def tell() -> None:
            now = time.monotonic()
            if now - self._told_waiting >= PATIENCE:
                self._told_waiting = now
                self.notify(f"workspace is open in {what}: waiting", severity="warning")

        if self._exit or not self.is_running:
            raise Cancelled
        if waited >= WATCH and not own_process(self.folder, what):  # the badge tells of a job
            self.call_later(tell)

    def settings(self) -> Settings:
        """Settings as the command line would resolve them. For threads: reads files."""
        from ..engine.store.settings import resolve

        return resolve(self.folder, {}).settings

    def session_cache(self) -> SessionCache:
        """The pool's indexes and the LLM, kept open. For threads."""
        from ..engine.select.session import SessionCache

        if self._session_cache is None:
            self._session_cache = SessionCache()
        return self._session_cache

    @property
    def job_runs(self) -> bool:
        """Whether a job is known to run or wait."""
        return bool(self._live_jobs)

    @cached_property
    def standby(self) -> Standby:
        """The process that waits for the next command, from the first one on."""
        from ..engine.jobs.standby import Standby  # after the first paint
        from ..engine.jobs.start import PROGRAM, environment

        return Standby(PROGRAM, lambda: environment(self.folder))

    def stand_by(self) -> None:
        """A command has ended: have a process wait for the next one, unless a job runs, beside which it would load the
        LLM a second time."""
        if self.standby.used and not self.job_runs:
            self.in_thread("standby", self.standby.prepare, lambda _: None)

    def refuses(self, words: Sequence[str] = ()) -> UsageError | None:
        """Why this session may not run ``icl-curate WORDS`` (none: any command at all), None if it may."""
        return refused(words) if self.limited else None

    def permit(self, words: Sequence[str]) -> None:
        """Raises what `refuses` returns; must be called before every process that is started here."""
        if why := self.refuses(words):
            raise why

    async def visit(self, name: str) -> Tab:
        """Switch to another tab and return it. Its first visit mounts it."""
        async with self._visiting:  # another visit may still be mounting
            self.screen_stack[0].maximized = None
            tab = next(tab for tab in self.tabs if name == tab.NAME)
            if not tab.is_attached:  # at its first visit: to mount all of them would double the time of the start
                with self.batch_update():
                    await self.query_one(ContentSwitcher).mount(tab)
            if tab.stale:
                tab.hold()
                tab.reload()
            self.query_one(ContentSwitcher).current = self.query_one(TabBar).current = tab.NAME
            tab.take_focus()
            return tab

    def action_jobs(self, number: int | None = None) -> None:
        """List the jobs, with this one under the cursor as soon as it has been read."""
        from .dialogs.jobs import Jobs

        self._ended = None
        self.look_at_jobs()
        if isinstance(self.screen, Jobs):
            self.screen.select(number)
        else:
            self.push_screen(Jobs(number))

    # The frame.

    def compose(self) -> ComposeResult:
        yield TabBar(PLACES)
        yield ContentSwitcher()
        yield KeyBar([action.run for action in FRAME if action.footer])

    def on_mount(self) -> None:
        self._name_colours()
        self._fingerprint = _last_written(self.folder)
        bar = self.query_one(TabBar)
        bar.note = _short(self.folder)
        bar.current = self._memory.tab if self._memory.tab in TABS else TABS[0]
        self.ending.watch()
        if self._memory.theme not in ("", self.theme):
            self.notify(f"theme {self._memory.theme} is not available here; this is {self.theme}", severity="warning")
        self.call_after_refresh(lambda: self.in_thread("tabs", import_tabs, self._furnish))

    def on_unmount(self) -> None:
        if "standby" in self.__dict__:
            self.standby.close()

    async def _furnish(self, tabs: list[type[Tab]]) -> None:
        """The tabs are imported: make them, and open the one of the last session."""
        self._load_keymap(tabs)
        self.tabs = [tab() for tab in tabs]
        for tab in self.tabs:
            tab.model.recall(self._memory.tabs.get(tab.NAME, {}))
            tab.display = False
        self.theme_changed_signal.subscribe(self, self._recoloured)
        self.set_interval(WATCH, self.look_again)
        self.set_interval(WATCH, self.save)
        self.look_at_jobs()
        await self.visit(self.query_one(TabBar).current)
        if self._only is not None:
            self.push_screen(self._only(), lambda _: self.action_leave())
        elif self._tour and len(self.screen_stack) == 1 and (self.folder / DATABASE).exists():
            self.action_tour()

    @property
    def tab(self) -> Tab | None:
        return next((tab for tab in self.tabs if tab.display), None)  # the switcher shows one

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is nothing to take back on the first screen of an empty folder."""
        return action != "undo" or not self.query("#first")

    def keys_of(self, action: Action) -> str:
        """The keys of an action, the user's own if there are any, as they are displayed."""
        keys = self._keymap.get(action.name, action.keys)
        shown = [self.get_key_display(Binding(key.strip(), "")) for key in keys.split(",") if key.strip()]
        return " ".join(dict.fromkeys(shown))

    def save(self) -> None:
        """Store the session state, if the folder is writable; it is made for a draft alone."""
        bars = self.query(TabBar)  # none while the app is shutting down
        if not bars or not self.tabs or not (self.draft or self.folder.is_dir()):
            return
        tabs = {tab.NAME: tab.remember() for tab in self.tabs}
        now = Memory(
            bars.first().current, self.theme, tabs, self.recent, self._toured, deepcopy(self.draft), self.borders
        )
        if now == self._memory:
            return
        try:
            save(self.folder, now, self._memory)
            self._memory = now
        except OSError as error:
            self.log(f"could not save the session state: {error}")

    def look_again(self) -> None:
        """The workspace was changed, by this program or another: the tabs must reload."""
        if not self.is_running:  # it is shutting down, and the tabs lose their parts
            return
        now = _last_written(self.folder)
        if now != self._fingerprint or self._live_jobs:
            self.look_at_jobs()
        if now != self._fingerprint:
            self._fingerprint = now
            self.action_reload()

    def look_at_jobs(self) -> None:
        """Show the running jobs in the `TabBar`, and tell of one that has ended if the list of jobs does not."""
        from ..engine.jobs.follow import LiveJobs  # after the first paint
        from .live_jobs import badge, how_ended

        watched = self._watched = self._watched or LiveJobs(self.folder)

        def show(live: tuple[LiveJob, ...]) -> None:
            ended = {job.number for job in self._live_jobs} - {job.number for job in live}
            self._live_jobs = live
            if ended:
                self._ended = None if self.screen.TITLE == "Jobs" else how_ended(self.folder, max(ended))
                self.stand_by()
            for bar in self.query(TabBar):  # none while the app is ending
                bar.badge = badge(live, self._ended)

        self.in_thread("live", watched.look, show)

    def on_key(self, event: events.Key) -> None:
        """While it is not known yet whether a decision asks, keys wait: they may be meant for the question."""
        if self.deciding and not isinstance(self.screen, ModalScreen):
            event.prevent_default()
            event.stop()
            self.hold(event.key)

    def decided(self, change: Change) -> None:
        outputs = [name.removeprefix("→ ") for name in change.by if name.startswith("→ ")]
        if change.action == "relabel" and len(outputs) == 1:
            self.latest = change.action, outputs[0]
        elif change.action in ("prune", "restore", "keep") and change.scope == "demonstration":
            self.latest = change.action, ""
        for tab in self.tabs:
            tab.decided(change)
        severity: SeverityLevel = "warning" if change.effects.labels_gone else "information"
        self.notify(notice(change), severity=severity)
        self.look_again()

    # Actions.

    async def action_go(self, name: str) -> None:
        self.query_one(TabBar).current = name
        if self.tabs:
            await self.visit(name)

    async def action_step(self, by: int) -> None:
        await self.action_go(TABS[(TABS.index(self.query_one(TabBar).current) + by) % len(TABS)])

    def action_undo(self) -> None:
        if self.tab is None or not self.tab.undo_here():
            self.undo()

    def action_redo(self) -> None:
        self.redo()

    def action_history(self) -> None:
        from .dialogs.history import History

        self.push_screen(History())

    def action_copy(self) -> None:
        self.copy(self.tab.to_copy() if self.tab else "")

    def action_copy_command(self) -> None:
        if command := self.tab.to_copy(command=True) if self.tab else "":
            self.copy(completed(command))
        else:
            self.notify("no command shows this")

    def action_zoom(self) -> None:
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.focused is not None and not isinstance(self.focused, Input):
            self.screen.maximize(self.focused, container=False)

    def action_border(self, by: int) -> None:
        parts: list[Any] = [node for node in (self.focused or self).ancestors_with_self if getattr(node, "PANES", ())]
        for part in parts[:1]:
            part.move_border(by)

    def action_repeat(self) -> None:
        """The cursor goes down first: it stays on its row when the list is read again."""
        from .row_keys import again  # after the first paint

        again(self)

    def copy(self, text: str) -> None:
        """Put a text on the clipboard, and say so."""
        if text := text.encode(errors="backslashreplace").decode():
            self.copy_to_clipboard(text)
            self.notify(f"copied {text if len(text) <= COPIED else counted(len(text), 'character')}")

    def action_reload(self) -> None:
        for tab in self.tabs:
            tab.stale = True
        if self.tab is not None:
            self.tab.reload()

    def action_find(self) -> None:
        from .finder import find

        find(self, FRAME)

    def action_help(self) -> None:
        from .dialogs.help import Help, sections

        terms = getattr(self.screen, "TERMS", self.tab.TERMS if self.tab else ())
        self.push_screen(Help(sections(self.focused or self.tab, FRAME), terms))

    def action_tour(self) -> None:
        from .dialogs.help import Tour

        self._toured = True
        self.push_screen(Tour())

    def action_run(self, command: str = "") -> None:
        from .dialogs.run import CommandDialog

        if why := self.refuses():  # any command may be typed there
            self.failed("run", why)
        else:
            self.push_screen(CommandDialog(self.folder, command, self.command_line))

    def action_interrupt(self) -> None:
        """Ctrl-C: copies a selection and leaves a dialog, as elsewhere; otherwise it says how to quit, and a second one
        quits."""
        chosen = self.focused.selected_text if isinstance(self.focused, Input) else self.screen.get_selected_text()
        now = time.monotonic()
        if chosen:
            self.copy_to_clipboard(display_text(chosen))
        elif isinstance(self.screen, ModalScreen):
            self.simulate_key("escape")
        elif now - self._interrupted < AGAIN:
            self.action_leave()
        else:
            self._interrupted = now
            self.notify("Ctrl-C again, or q, quits; decisions are saved, and jobs go on")

    @on(TabBar.Picked)
    async def _picked(self, event: TabBar.Picked) -> None:
        await self.run_action("jobs" if event.name == "jobs" else f"go({event.name!r})")

    def _load_keymap(self, tabs: Iterable[type[Tab]]) -> None:
        from .dialogs.jobs import Jobs
        from .row_keys import PoolTable
        from .widgets.matrix import Matrix
        from .widgets.reader import Detail
        from .widgets.table import LineTable

        widgets = (PoolTable.ACTIONS, Detail.ACTIONS, Matrix.ACTIONS)
        parts = (
            (*own, *tab.ACTIONS, *LineTable.ACTIONS)
            for tab in tabs
            for own in ((), *(part.ACTIONS for part in tab.PARTS))
        )
        keys, problems = keymap([FRAME, Jobs.ACTIONS, *((*part, *FRAME) for part in (*widgets, *parts))])
        self.set_keymap(keys)
        for problem in problems:
            self.notify(problem, severity="warning")

    def _name_colours(self) -> None:
        """Texts use colour names (good, bad, muted, …); the theme defines the colours."""
        self.console.push_theme(RichTheme(named_styles(self.theme_variables)))

    def _recoloured(self, theme: Theme) -> None:
        self._name_colours()
        self.action_reload()


def _short(folder: Path) -> str:
    """A folder in short form: relative to here, to home, or in full."""
    for base, name in ((Path.cwd(), ""), (Path.home(), "~/")):
        if folder.is_relative_to(base):
            return f"{name}{folder.relative_to(base)}"
    return str(folder)


def _last_written(folder: Path) -> tuple[tuple[int, int], ...]:
    """Modification times and sizes of the files of a workspace and of its jobs: the value changes with them."""
    paths = [folder / name for name in _names(folder) if name.startswith(DATABASE)]
    paths += [folder / "jobs" / job / name for job in _names(folder / "jobs") for name in JOB_FILES]
    written = []
    for path in paths:
        with suppress(OSError):  # the log was merged in between
            state = path.stat()
            written.append((state.st_mtime_ns, state.st_size))
    return tuple(written)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, each second: no objects
    except OSError:
        return []
