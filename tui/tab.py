"""The base class of tabs.

To add a tab, write ``tabs/<name>/tab.py`` with a subclass of `Tab` and add it to `TABS` of ``app.py``. It defines

- names: ``NAME`` (also its widget id), ``TITLE`` on the tab, ``ABOUT`` and ``TERMS`` (of the glossary) for help;
- actions: ``ACTIONS`` and methods ``action_<verb>``;
- widgets: `compose_body`. The frame mounts them when the tab is first opened, so `remember` must do without them;
- content: `read` runs in a thread and returns plain data, `show` displays it. The frame calls `reload` when the tab is
  first opened and whenever the workspace has changed, also by another process: `show` keeps the cursor in place. `read`
  returns `Empty` while there is nothing to show; its errors are displayed in place and, if the workspace was locked,
  it is tried again;
- state, in ``model`` (``tabs/<name>/model.py``, which imports no Textual): selection, filters, requests, answers, and
  what keys do. Its `remember` and `recall` store the state between sessions;
- the text that ``y`` copies: `copied`, and the command that ``Y`` copies: `command`;
- what ``u`` undoes besides decisions on the pool: `undo_here`.

Other work in threads uses `in_thread`; decisions on the pool use ``self.review.decide``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input, Static

from ..engine.base.errors import Cancelled, CurateError, LockedError, NoWorkspaceError, WorkspaceError
from ..engine.base.progress import CancelToken
from ..engine.llm.asking import destination
from ..engine.llm.cost import DryRun, Plan
from ..engine.pool.display import display_line, display_text
from ..engine.store.settings import Settings
from ..engine.store.workspace import Workspace
from ..render.costs import plan_rows
from .actions import Acting
from .dialogs.dialog import Confirm
from .jobs import options_of_latest
from .live_jobs import own_process
from .model import READING, Empty, SortedModel, TabModel, under_way
from .widgets.bars import MORE
from .widgets.lines import names_line
from .widgets.table import LineTable
from .workers import BackgroundWork, error_text

if TYPE_CHECKING:
    from ..engine.select.session import SessionCache
    from ..engine.store.decisions import Change

OPEN_IN = "workspace is open in "
"""How the error begins that names the process which holds the workspace."""

HELD = 0.15
"""Seconds for which a tab that is opened may paint nothing, see `Tab.hold`: nobody notices these."""

LEAST = 10
"""Per cent of the room that a list and its pane have at least."""

LEAST_LINES = 3
"""Lines that each of them keeps."""

RETRY = 2.0
"""Seconds until a locked workspace is tried again."""

UNREAD = Empty("it could not be read: f5 tries again", "", "")

BY_KEY = frozenset({"cost", "start"})
"""Work that a key began: to read the tab again does not do it again."""


class Part(Acting, Vertical, BackgroundWork):
    """A tab, or a part of one that has actions of its own, offered while it is displayed."""

    TITLE: ClassVar[str]
    ABOUT: ClassVar[str]
    PANES: ClassVar[tuple[str, ...]] = ()
    """Selectors of its list and of the pane beside or below it, if the border between them can be moved."""

    def move_border(self, by: int) -> None:
        """Give the pane so many per cent more of the room of both."""
        across, panes = self._panes()
        sizes = [pane.outer_size.width if across else pane.outer_size.height for pane in panes]
        if all(sizes) and self.has_border():  # both are shown
            share = self.review.borders.get(str(self.id), round(100 * sizes[1] / sum(sizes)))
            self.review.borders = {**self.review.borders, str(self.id): max(LEAST, min(100 - LEAST, share + by))}
            self.on_resize()

    def on_resize(self) -> None:
        """Where the border is, whether the pane is beside the list or below it."""
        share = self.review.borders.get(str(self.id))
        if share is not None and self.PANES:
            across, panes = self._panes()
            for pane, part in zip(panes, (100 - share, share), strict=True):
                along, most, least = (f"{part}fr", "100%", LEAST_LINES) if self.has_border() else (None, None, None)
                pane.styles.width, pane.styles.max_width = (along, most) if across else (None, None)
                pane.styles.height, pane.styles.max_height = (None, None) if across else (along, most)
                pane.styles.min_height = None if across else least

    def has_border(self) -> bool:
        """Whether both are large enough to have one between them that can be moved."""
        return not self.screen.has_class("-flat")

    def _panes(self) -> tuple[bool, list[Widget]]:
        """Whether they are beside each other, and both."""
        panes = [self.query_one(selector) for selector in self.PANES]
        around = panes[0].query_ancestor(Widget)
        return around.styles.layout is not None and around.styles.layout.name == "horizontal", panes


class Tab(Part):
    """One tab. See the module's docstring for what a subclass provides."""

    NAME: ClassVar[str]
    TERMS: ClassVar[tuple[str, ...]] = ()
    """Terms of the glossary that the tab uses, explained in its help."""

    BEFORE: ClassVar[str] = "Index a pool to create it: press i in Overview."
    """What it says while there is no workspace."""

    COMMAND: ClassVar[str] = ""
    """The command that shows what the tab shows, if it is always the same."""

    PARTS: ClassVar[tuple[type[Part], ...]] = ()
    """Widgets of the tab with actions of their own, for the palette and ``keys.toml``."""

    model: TabModel = TabModel()
    """The tab's state; a tab that only shows what was read has no model of its own."""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)
        self.stale = True
        self.nothing: Empty | None = READING
        self._holding: ExitStack | None = None

    # For subclasses.

    def compose_body(self) -> ComposeResult:
        """The tab's widgets."""
        return iter(())

    def read(self, workspace: Workspace) -> Any:
        """Everything the tab shows, or `Empty`. In a thread: touches no widget."""
        raise NotImplementedError

    def show(self, found: Any) -> None:
        """Display what `read` returned."""

    def remember(self) -> dict[str, Any]:
        """The state to restore in the next session."""
        return self.model.remember()

    def copied(self) -> str:
        """The text that ``y`` copies; empty: nothing."""
        return ""

    def command(self) -> str:
        """The command that shows the same, which ``Y`` copies; empty: none."""
        return self.COMMAND

    def undo_here(self) -> bool:
        """Undo the latest action in this tab, unless it is a decision on the pool; returns whether there was one."""
        return False

    def decided(self, change: Change) -> None:
        """A decision on the pool was made, here or in another tab."""

    def lacks(self) -> bool:
        """Whether there is nothing to work on yet; the user is told what comes first."""
        if self.nothing:
            waits = self.nothing.command.startswith("icl-curate jobs")
            told = f"wait: {self.nothing.what}" if waits else f"first: {self.nothing.command}"
            told = "still reading: nothing was done" if self.nothing is READING else told
            told = UNREAD.what if self.nothing is UNREAD else told
            self.notify(told, severity="warning", markup=False)
        return self.nothing is not None

    @property
    def table(self) -> LineTable:
        """The tab's first table."""
        return self.query_one(LineTable)

    def start(self) -> Widget:
        """The widget that takes focus when the tab is opened."""
        return self.table

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is a way back from everything but its first widget; while a text is being typed, the other keys are
        letters."""
        if action == "back":
            return self.screen.focused is not self.start()
        return not (isinstance(self.screen.focused, Input) and self in self.screen.focused.ancestors)

    def action_back(self) -> None:
        """Back to its first widget."""
        self.remove_class("-reading")
        self.start().focus()

    def action_search(self) -> None:
        """Type what to search for; enter leads back."""
        Tab.action_back(self)
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _typed_out(self) -> None:
        self.start().focus()

    async def action_list(self, name: str) -> None:
        """Go to what stands beside it under this name: another tab of its place."""
        await self.review.visit(name)

    async def on_click(self, event: events.Click) -> None:
        """A name in a `names_line` was clicked."""
        if name := event.style.meta.get("name"):
            await self.action_list(name)

    # Called by the frame.

    def compose(self) -> ComposeResult:
        if self.NAME in MORE:
            key = self.review.keys_of(self.ACTIONS[0])
            yield Static(names_line(dict.fromkeys(MORE), self.NAME, key), id="beside", markup=False)
        yield Static(id="trouble", markup=False)
        yield Nothing()
        with Vertical(classes="body") as body:
            body.display = False
            yield from self.compose_body()

    def hold(self) -> None:
        """Paint nothing until the content is there, for `HELD` seconds at most: "reading", the content and its focus
        would each lay out and paint the whole screen, which takes far longer than reading."""
        if self._holding is None:
            self._holding = ExitStack()
            self._holding.enter_context(self.app.batch_update())
            self._holding.callback(self.set_timer(HELD, self.release).stop)

    def release(self) -> None:
        """Paint again, if nothing was painted."""
        if self._holding is not None:
            self._holding.close()
            self._holding = None
            self.refresh()

    def reload(self) -> None:
        """Read again and display the result, in a thread."""
        self.stale = False
        self.in_thread("load", self._read, self._loaded)

    def _read(self) -> Any:
        workspace = self.review.opened()
        with workspace.read():  # opened once for all that the tab asks
            self.review.llm_options = options_of_latest(self.review.folder, workspace, self.review.limited)
            found = self.read(workspace)
            return under_way(found, workspace) if isinstance(found, Empty) else found

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Keys act on what is seen: if the focus leaves what is shown alone, the rest is shown again."""
        alone = self.screen.maximized
        if alone is not None and alone not in event.widget.ancestors_with_self:
            self.screen.minimize()

    def take_focus(self) -> None:
        """Focus the tab's first widget, or nothing: if focus stayed on a hidden tab, keys would act there."""
        if self.display:  # it may have been left while it was read
            self.screen.set_focus(self.blank() if self.nothing else self.start())

    def blank(self) -> Widget:
        """What takes focus while there is nothing to show."""
        return self.query_one(Nothing)

    def to_copy(self, command: bool = False) -> str:
        return self.nothing.command if self.nothing else self.command() if command else self.copied()

    def failed(self, kind: str, error: CurateError) -> None:
        if kind == "load" and isinstance(error, NoWorkspaceError):
            self._loaded(Empty(error.what, self.BEFORE, error.fix))
            return
        again = isinstance(error, LockedError)  # another fault lasts until the workspace changes
        if kind in BY_KEY or (kind != "load" and not isinstance(error, WorkspaceError)):
            super().failed(kind, error)
            return
        own = own_process(self.review.folder, error.what.removeprefix(OPEN_IN)) if again else ""
        text = own or error_text(error, ": ")
        self.tell_trouble(text + (" (trying again)" if again else ""))
        if again:
            self.set_timer(RETRY, self.reload)
        elif kind == "load" and self.nothing is READING:
            self.nothing = UNREAD
            self.query_one(Nothing).show_row(UNREAD)

    def _loaded(self, content: Any) -> None:
        self.tell_trouble("")
        had_focus = self.display and (self.screen.focused is None or self in self.screen.focused.ancestors)
        was, self.nothing = self.nothing, content if isinstance(content, Empty) else None
        # no CSS class: Textual would look up the styles of all widgets of the tab
        blank = self.query_one(Nothing)
        self.query_one(".body").display = self.nothing is None
        blank.display = self.nothing is not None
        if self.nothing:
            blank.show_row(self.nothing)
        else:
            self.show(content)
        if had_focus and ((was is None) != (self.nothing is None) or self.screen.focused is None):
            self.call_after_refresh(self.take_focus)
        if self.nothing or not self.model.selecting:
            self.release()

    def tell_trouble(self, text: str) -> None:
        banner = self.query_one("#trouble", Static)
        banner.update(Text(display_text(text)))
        banner.display = bool(text)


class SortedTab(Tab):
    """A tab whose table one of its columns sorts."""

    model: SortedModel

    def draw_table(self) -> None:
        """Draw the table in its new order."""

    def action_sort(self) -> None:
        self.model.next_sort()
        self.draw_table()

    def action_reverse(self) -> None:
        self.model.descending = not self.model.descending
        self.draw_table()

    @on(LineTable.Sort)
    def _heading_clicked(self, event: LineTable.Sort) -> None:
        if self.model.sort_by(event.column):
            self.draw_table()


class Nothing(Static, can_focus=True):
    """What a tab shows while it has nothing to show."""

    def __init__(self) -> None:
        super().__init__(classes="nothing", markup=False)
        self._since: float | None = None
        """When reading began, if nothing has been read yet."""

    def on_mount(self) -> None:
        self.show_row(READING)
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        """Say for how long something is being read."""
        if self._since is not None and self.is_on_screen and time.monotonic() - self._since >= 1.0:
            self.update(Text(f"{READING.what} {time.monotonic() - self._since:.0f} s", "muted"))

    def show_row(self, empty: Empty) -> None:
        self._since = time.monotonic() if empty is READING else None
        if not empty.command:
            self.update(Text(display_line(empty.what), "muted"))
            return
        parts = [(display_line(empty.what), "bold"), (display_line(empty.why), "muted")]
        parts += [("$ " + display_line(empty.command), "accent"), ("y copies the command", "muted")]
        self.update(Text("\n\n", justify="center").join(Text(*part) for part in parts))


class LLMRequest(Protocol):
    """Prompts for an LLM: what they cost, and their answers. For threads."""

    @property
    def settings(self) -> Settings: ...

    def cost(self, workspace: Workspace, session: SessionCache) -> Plan: ...

    def ask(self, workspace: Workspace, session: SessionCache, cancel: CancelToken) -> Any: ...


class LLMTab(Tab):
    """A tab that calls the LLM itself, one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asking: CancelToken | None = None
        self._destination_shown = ""
        """The destination of prompts as last shown without a question."""

    def on_unmount(self) -> None:
        if self.asking:
            self.asking.cancel()

    def ask_llm(self, request: LLMRequest, then: Callable[[Any], None], begun: Callable[[], None]) -> None:
        """Ask, in threads: at once if nothing has to be paid, else after the user's confirmation. ``begun`` is called
        when the requests start, ``then`` with their result."""
        if self.asking:
            self.notify("waiting for the LLM; escape stops it")
            return
        review = self.review

        def go() -> None:
            self.asking = cancel = CancelToken()
            review.session_cache().asked = True
            begun()
            self.in_thread("ask", lambda: request.ask(review.opened(), review.session_cache(), cancel), answered)

        def answered(result: Any) -> None:
            self.asking = None
            then(result)

        def costed(found: tuple[Plan, str]) -> None:
            plan, where = found
            free = not plan.to_ask or plan.cost == (0.0, 0.0)
            here = self.display and self.screen.is_active  # else a key on its way could be taken for an answer
            if not (self.is_shown(request) and (free or here)):
                self.notify("not asked: something else is shown now")
                return
            if free:
                if plan.to_ask and where and where != self._destination_shown:
                    self._destination_shown = where
                    self.notify(f"prompts go to {display_line(where)}")
                go()
                return
            lines = [f"{name}: {value}" for name, value in plan_rows(DryRun(plan, where))]
            self.app.push_screen(Confirm(f"Ask {request.settings.llm}?", lines), lambda yes: go() if yes else None)

        def cost() -> tuple[Plan, str]:
            return request.cost(review.opened(), review.session_cache()), destination(request.settings)

        self.in_thread("cost", cost, costed)

    def is_shown(self, request: Any) -> bool:
        """Whether what a request is about is still shown."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the running requests: no further call is sent."""
        if self.asking:
            self.asking.cancel()
            self.notify("stopping: calls in flight will finish and be saved")

    def failed(self, kind: str, error: CurateError) -> None:
        if kind != "ask":
            super().failed(kind, error)
            return
        self.asking = None
        self.ended()
        if isinstance(error, Cancelled):  # by a key: no error, and there is no command to run again
            self.notify("stopped: answers that came are kept")
        else:
            self.app.notify(error_text(error), severity="error")

    def ended(self) -> None:
        """The requests failed or were stopped: undo what ``begun`` of `ask_llm` showed."""
