"""The base class of tabs, and the interface between a tab and the frame.

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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input, Static

from ..engine.base.errors import CurateError, NoWorkspaceError, WorkspaceError
from ..engine.base.progress import CancelToken
from ..engine.llm.asking import destination
from ..engine.llm.cost import DryRun, Plan
from ..engine.pool.display import display_line, display_text
from ..engine.store.decisions import Action as Verb
from ..engine.store.decisions import Revision, Scope
from ..engine.store.settings import Settings
from ..engine.store.workspace import Workspace
from ..render.costs import plan_rows
from .actions import Acting
from .completion import CommandLine
from .decisions import Outputs, Targets
from .dialogs.dialog import Confirm
from .live_jobs import own_process
from .model import READING, Empty, SortedModel, TabModel, under_way
from .widgets.table import LineTable
from .workers import BackgroundWork, error_text, in_a_line

if TYPE_CHECKING:
    from ..engine.jobs.standby import Standby
    from ..engine.select.session import SessionCache

OPEN_IN = "workspace is open in "
"""How the error begins that names the process which holds the workspace."""

HELD = 0.15
"""Seconds for which a tab that is opened may paint nothing, see `Tab.hold`: nobody notices these."""

RETRY = 2.0
"""Seconds until a locked workspace is tried again."""


class ReviewSession(Protocol):
    """The app's interface for tabs."""

    folder: Path
    """Folder of the workspace."""

    draft: dict[str, str]
    """What was typed last into the form of files: leaving it, or an index that failed, throws nothing away."""

    limited: bool
    """Served to a user who may not be the owner of this machine; see `session.refused`."""

    def opened(self, create: bool = False) -> Workspace:
        """The workspace, checked and migrated once; created first if ``create`` is set. For threads: it may wait for
        another process. Raises `NoWorkspaceError` if there is none."""

    def settings(self) -> Settings:
        """Settings as the command line would resolve them. For threads: reads files."""

    def session_cache(self) -> SessionCache:
        """The pool's indexes and the LLM, kept open. For threads."""

    @property
    def standby(self) -> Standby:
        """The process that waits for the next command, if one does."""

    def stand_by(self) -> None:
        """Have a process wait for the next command, unless a job runs."""

    def decide(
        self,
        verb: Verb,
        scope: Scope,
        targets: Targets,
        reason: str | Sequence[str] = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Make a decision; if it affects many rows, or a label vanishes, the user sees the counts and confirms first.
        ``then`` is called after it was made. ``targets`` that must be looked up first are a function, called in a
        thread when it is the decision's turn: so decisions keep the order of the keys. ``reason`` is one for all of
        them, or one for each."""

    def relabel(self, outputs: Outputs, reason: Sequence[str], then: Callable[[], None] | None = None) -> None:
        """Correct outputs, by id of the demonstration, like `decide`; ``reason`` has one for each."""

    def revise(self, revision: Revision, reason: str = "", then: Callable[[], None] | None = None) -> None:
        """Prune sources and demonstrations, and correct outputs, as one decision, which the user always confirms."""

    def undo(self, then: Callable[[], None] | None = None) -> None:
        """Undo the latest decision of any user."""

    def redo(self, then: Callable[[], None] | None = None) -> None:
        """Bring back what was undone last."""

    @property
    def command_line(self) -> CommandLine:
        """All commands, for completion."""

    def permit(self, words: Sequence[str]) -> None:
        """Raises `UsageError` if this session may not run ``icl-curate WORDS`` (none: any command at all); must be
        called before every process that is started here."""

    async def visit(self, name: str) -> Tab:
        """Switch to another tab and return it. Its first visit mounts it."""


class Part(Acting, Vertical, BackgroundWork):
    """A tab, or a part of one that has actions of its own, offered while it is displayed."""

    TITLE: ClassVar[str]
    ABOUT: ClassVar[str]


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
        raise NotImplementedError

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
        """Undo the latest action in this tab that is not a decision on the pool; returns whether there was one."""
        return False

    @property
    def table(self) -> LineTable:
        """The tab's first table."""
        return self.query_one(LineTable)

    def start(self) -> Widget:
        """The widget that takes focus when the tab is opened."""
        return self.table

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a text is being typed, the tab's keys are letters: only leaving the text is offered."""
        typing = isinstance(self.screen.focused, Input) and self in self.screen.focused.ancestors
        return not typing or action == "back"

    # Called by the frame.

    def compose(self) -> ComposeResult:
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
            found = self.read(workspace)
            return under_way(found, workspace) if isinstance(found, Empty) else found

    def take_focus(self) -> None:
        """Focus the tab's first widget, or nothing: if focus stayed on a hidden tab, keys would act there."""
        self.screen.set_focus(self.query_one(Nothing) if self.nothing else self.start())

    def to_copy(self, command: bool = False) -> str:
        return self.nothing.command if self.nothing else self.command() if command else self.copied()

    def failed(self, kind: str, error: CurateError) -> None:
        if kind == "load" and isinstance(error, NoWorkspaceError):
            self._loaded(Empty(error.what, self.BEFORE, error.fix))
            return
        again = isinstance(error, WorkspaceError)
        if kind != "load" and not again:
            super().failed(kind, error)
            return
        own = own_process(self.review.folder, error.what.removeprefix(OPEN_IN)) if again else ""
        text = own or in_a_line(error)
        self._trouble(text + (" (trying again)" if again else ""))
        if again:
            self.set_timer(RETRY, self.reload)

    def _loaded(self, content: Any) -> None:
        self._trouble("")
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

    def _trouble(self, text: str) -> None:
        banner = self.query_one("#trouble", Static)
        banner.update(Text(display_text(text)))
        banner.display = bool(text)


class SortedTab(Tab):
    """A tab whose table one of its columns sorts."""

    model: SortedModel

    def draw_table(self) -> None:
        """Draw the table in its new order."""
        raise NotImplementedError

    def action_sort(self, by: int = 1) -> None:
        self.model.next_sort(by)
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
            if not plan.to_ask or plan.cost == (0.0, 0.0):
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
        self.app.notify(error_text(error), severity="error")

    def ended(self) -> None:
        """The requests failed or were stopped: undo what ``begun`` of `ask_llm` showed."""
