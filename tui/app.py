"""The app behind ``icl-curate review``: the frame around the tabs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from rich.theme import Theme as RichTheme
from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer

from ..engine.pool.display import display_line
from ..engine.settings import Settings, resolve
from ..engine.store.decisions import Action as Verb
from ..engine.store.decisions import Change, Scope, decide, undo
from ..engine.store.workspace import Workspace
from . import memory
from .actions import Action, bindings, keymap
from .dialogs.confirm import Confirm
from .dialogs.help import Help, sections
from .room import Room
from .screens.demos import DemosRoom
from .screens.evaluate import EvaluateRoom
from .screens.jobs import JobsRoom
from .screens.overview import OverviewRoom
from .screens.placeholder import CalibrateRoom, PreviewRoom, TopicsRoom
from .screens.sources import SourcesRoom
from .themes import THEMES, named_styles
from .widgets.tabbar import TabBar
from .work import Working, later

ROOMS: tuple[type[Room], ...] = (
    OverviewRoom,
    SourcesRoom,
    DemosRoom,
    TopicsRoom,
    PreviewRoom,
    CalibrateRoom,
    EvaluateRoom,
    JobsRoom,
)
"""The tabs, in their order."""

WATCH = 1.0
"""Seconds between two looks at whether somebody changed the workspace."""

SMALL_CHANGE = 20
"""A decision that touches at most so many demonstrations is taken at once: one key undoes it."""

FRAME = (
    *(
        Action(f"go.{room.NAME}", str(i), room.TITLE, room.ABOUT, footer=False, call=f"go('{room.NAME}')")
        for i, room in enumerate(ROOMS, 1)
    ),
    Action("frame.next", "right_square_bracket", "Next tab", "To the tab on the right", footer=False),
    Action("frame.previous", "left_square_bracket", "Previous tab", "To the tab on the left", footer=False),
    Action("frame.undo", "u", "Undo", "Take the latest decision back", "icl-curate prune --undo"),
    Action("frame.copy", "y", "Copy", "Copy what is selected, over SSH too", footer=False),
    Action("frame.reload", "f5,ctrl+r", "Reload", "Read the workspace again", footer=False),
    Action("frame.help", "question_mark,f1", "Help", "Keys of the focused part", "icl-curate --help"),
    Action("frame.palette", "colon", "Commands", "Find any command by name", call="command_palette"),
    Action("frame.leave", "q", "Quit", "Leave; decisions are kept"),
)


class ReviewApp(App[None], Working):
    """All tabs over one workspace."""

    TITLE = "icl-curate review"
    ACTIONS = FRAME
    BINDINGS: ClassVar = [*bindings(FRAME), Binding("ctrl+q", "leave", show=False, system=True, priority=True)]
    CSS_PATH = "review.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-tight"), (60, "-narrow"), (100, "-wide"), (150, "-vast")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (18, "-short"), (32, "-tall")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._checked = False
        self._memory = memory.load(workspace.path)
        self._fingerprint: tuple[tuple[int, int], ...] = ()
        self._clashes: set[str] = set()
        for theme in THEMES:
            self.register_theme(theme)
        known = self._memory.theme in self.available_themes
        self.theme = self._memory.theme if known else THEMES[0].name
        self._keymap_problems = self._load_keymap()
        self.keep = later(self, 0.5, self._save)

    # What rooms may ask; see `room.Review`.

    def opened(self) -> Workspace:
        if not self._checked:
            Workspace.open(self.workspace.path)
            self._checked = True
        return self.workspace

    def settings(self) -> Settings:
        return resolve(self.workspace.path, {}).settings

    def decide(
        self,
        verb: Verb,
        scope: Scope,
        targets: Sequence[str],
        reason: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        def rehearse() -> Change:
            return decide(self.opened(), verb, scope, targets, reason, dry_run=True)

        def decided(change: Change) -> None:
            self._decided(change)
            if then is not None:
                then()

        def take() -> None:
            self.in_thread("decide", lambda: decide(self.opened(), verb, scope, targets, reason), decided)

        def answered(yes: bool | None) -> None:
            if yes:
                take()

        def ask(change: Change) -> None:
            if abs(change.active_before - change.active_after) <= SMALL_CHANGE:
                take()
                return
            names = ", ".join(change.targets[:6]) + (f" … {len(change.targets):,} in all" if len(targets) > 6 else "")
            lines = [names, f"active demonstrations: {change.active_before:,} before, {change.active_after:,} after"]
            self.push_screen(Confirm(f"{verb} {_counted(len(targets), scope)}?", lines), answered)

        self.in_thread("rehearse", rehearse, ask)

    def visit(self, name: str) -> Room:
        room = self.query_one(f"#{name}", Room)
        self.query_one(ContentSwitcher).current = name
        self.query_one(TabBar).current = name
        if room.stale:
            room.reload()
        room.take_focus()
        self.keep()
        return room

    # The frame.

    def compose(self) -> ComposeResult:
        yield TabBar([(room.NAME, room.TITLE) for room in ROOMS])
        with ContentSwitcher():
            for room in ROOMS:
                yield room()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._style_names()
        self.theme_changed_signal.subscribe(self, lambda _: self._restyled())
        self._fingerprint = self._looks()
        for room in self.query(Room):
            room.recall(self._memory.rooms.get(room.NAME, {}))
        self.query_one(TabBar).note = display_line(str(self.workspace.path))
        names = [room.NAME for room in ROOMS]
        self.visit(self._memory.tab if self._memory.tab in names else names[0])
        self.set_interval(WATCH, self._watch)
        for problem in self._keymap_problems:
            self.notify(problem, severity="warning", timeout=10, markup=False)
        self._die_tidily()

    @property
    def room(self) -> Room:
        """The open tab."""
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}", Room)

    def keys_of(self, action: Action) -> str:
        """The keys that do it, the user's own if there are any, as people read them."""
        keys = self._keymap.get(action.name, action.keys)
        shown = [self.get_key_display(Binding(key.strip(), "")) for key in keys.split(",") if key.strip()]
        return " ".join(dict.fromkeys(shown))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        here, others = self.room, [room for room in self.query(Room) if room is not self.room]
        for room in (here, *others):
            for action in room.ACTIONS:
                yield SystemCommand(
                    f"{room.TITLE}: {action.label or action.about}", _help(action), self._doer(action, room)
                )
        for action in (action for action in FRAME if action.name != "frame.palette"):
            title = f"Go to {action.label}" if action.name.startswith("go.") else action.label
            yield SystemCommand(title, _help(action), self._doer(action, None))
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        yield SystemCommand(
            "Screenshot", "Save an SVG of the screen", lambda: self.set_timer(0.1, self.deliver_screenshot)
        )

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        names = " and ".join(sorted(binding.id or binding.action for binding in clashed_bindings))
        if names not in self._clashes:
            self._clashes.add(names)
            self.notify(f"keys.toml gives one key to {names}", severity="warning", markup=False)

    # Actions.

    def action_go(self, name: str) -> None:
        self.visit(name)

    def action_next(self) -> None:
        self._step(1)

    def action_previous(self) -> None:
        self._step(-1)

    def action_undo(self) -> None:
        self.in_thread("decide", lambda: undo(self.opened()), self._decided)

    def action_copy(self) -> None:
        text = self.room.to_copy()
        if text:
            self.copy_to_clipboard(text)
            self.notify(f"copied {len(text):,} characters", timeout=2)

    def action_reload(self) -> None:
        self.room.reload()

    def action_help(self) -> None:
        self.push_screen(Help(sections(self.focused or self.room, FRAME)))

    def action_leave(self) -> None:
        self._save()
        self.exit()

    @on(TabBar.Picked)
    def _picked(self, event: TabBar.Picked) -> None:
        self.visit(event.name)

    def _step(self, by: int) -> None:
        names = [room.NAME for room in ROOMS]
        self.visit(names[(names.index(self.room.NAME) + by) % len(names)])

    def _decided(self, change: Change) -> None:
        what = "undid" if change.action == "undo" else change.action
        self.notify(
            f"{what} {_counted(len(change.targets), change.scope)}: {change.active_after:,} active",
            markup=False,
            timeout=4,
        )
        self._watch()

    def _watch(self) -> None:
        """Whoever changed the file, this program or another: what the tabs show is out of date."""
        looks = self._looks()
        if looks != self._fingerprint:
            self._fingerprint = looks
            for room in self.query(Room):
                room.stale = True
            self.room.reload()

    def _looks(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in (self.workspace.database, self.workspace.database.with_suffix(".duckdb.wal")):
            try:
                state = path.stat()
                found.append((state.st_mtime_ns, state.st_size))
            except OSError:
                found.append((0, 0))
        return tuple(found)

    def _doer(self, action: Action, room: Room | None) -> Any:
        async def do() -> None:
            where = self.visit(room.NAME) if room is not None else self
            await self.run_action(action.run, default_namespace=where)

        return do

    def _load_keymap(self) -> list[str]:
        known = [action.name for actions in (FRAME, *(room.ACTIONS for room in ROOMS)) for action in actions]
        keys, problems = keymap(known)
        self.set_keymap(keys)
        return problems

    def _style_names(self) -> None:
        """Texts name their colours (good, bad, muted, …); the theme says what they are."""
        self.console.push_theme(RichTheme(named_styles(self.theme_variables)))

    def _restyled(self) -> None:
        self._style_names()
        for room in self.query(Room):
            room.stale = True
        self.room.reload()
        self.keep()

    def _save(self) -> None:
        rooms = {room.NAME: room.remember() for room in self.query(Room)}
        try:
            memory.save(self.workspace.path, memory.Memory(self.room.NAME, self.theme, rooms))
        except OSError as error:
            self.log(f"not remembered: {error}")

    def _die_tidily(self) -> None:
        """SIGTERM and SIGHUP end the app the ordinary way, so that the terminal is given back clean."""
        if os.name == "nt" or self.is_web or self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._killed, number)

    def _killed(self, number: int) -> None:
        self._save()
        self.exit(return_code=128 + number)


def _help(action: Action) -> str:
    return f"{action.about} · {action.cli}" if action.cli else action.about


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
