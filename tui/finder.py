"""What the finder (``:``) offers: actions with their keys, commands, themes, and from the pool its sources, labels, ids
and settings. What was chosen last comes first; what cannot be done now is grey and says why. It lies over dialogs, too:
what belongs to a tab leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import CurateError
from ..engine.pool.display import display_line
from ..render.glossary import TERMS, plain
from .actions import Action
from .dialogs.dialog import Dialog, Offer, Option, Pick
from .themes import THEMES

if TYPE_CHECKING:
    from .app import ReviewApp
    from .tab import Part, Tab

WAYS_IN = ("overview.index", "overview.add", "overview.follow", "overview.sample")
"""Actions of tabs that need no pool."""

RECENT = 9
"""Choices that are remembered."""

MOST_IDS = 20
"""Rows that are offered by their ids."""


def find(app: ReviewApp, frame: tuple[Action, ...]) -> None:
    """Open the finder, and do what is chosen. ``frame``: the actions that are the same in all tabs."""
    listed = [*_own(app), *_actions(app), *(_option(app, action) for action in frame if action.name != "frame.palette")]
    own = {theme.name: theme for theme in THEMES}
    listed += [Option(f"Term {term}", about=plain(term), value=partial(app.notify, plain(term))) for term in TERMS]
    listed += [*_commands(app), *(_theme(app, name) for name in own | app.available_themes)]
    recent = {label: at for at, label in enumerate(app.recent)}

    def offer(options: Iterable[Option]) -> Offer:
        latest = sorted(options, key=lambda option: recent.get(option.label, RECENT))
        return Offer([option._replace(value=(option.label, option.value)) for option in latest])

    def taken(chosen: tuple[str, Callable[[], object]]) -> None:
        label, do = chosen
        app.recent = [label, *(one for one in app.recent if one != label)][:RECENT]
        app.call_next(do)

    beyond = lambda typed: offer(_rows(app, typed))  # noqa: E731
    app.ask(Pick("Find", offer(listed), lambda: offer(_pool(app)), does="Do", beyond=beyond), taken)


def _own(app: ReviewApp) -> Iterator[Option]:
    """Actions of the dialog that is open."""
    dialog = app.screen
    if isinstance(dialog, Dialog) and dialog.TITLE:
        for action in dialog.ACTIONS:
            if action.bound and action.label:
                yield _option(app, action, owner=dialog)


async def _leave_dialogs(app: ReviewApp) -> None:
    """Back to the tab, as by escape."""
    for screen in reversed(app.screen_stack[1:]):
        await screen.dismiss()


def _actions(app: ReviewApp) -> Iterator[Option]:
    """Those of the tabs and their parts, the open tab first."""
    for tab in sorted(app.tabs, key=lambda tab: tab is not app.tab):
        parts: list[Part] = [part for kind in tab.PARTS for part in tab.query(kind) if part.display]
        for owner in (tab, *parts):
            for action in owner.ACTIONS:
                yield _option(app, action, tab, owner)


def _option(app: ReviewApp, action: Action, tab: Tab | None = None, owner: Part | Dialog[Any] | None = None) -> Option:
    """The action of ``owner``, the tab or a part of it, or the dialog that is open; without one, of the frame."""

    async def do() -> None:
        if not isinstance(owner, Dialog):
            await _leave_dialogs(app)
        if tab is not None:
            await app.visit(tab.NAME)
        await app.run_action(action.run, default_namespace=owner or app)

    label = f"{owner.TITLE}: {action.label or action.about}" if owner else action.label
    off = ""
    empty = app.tab.nothing if app.tab else None
    if tab and empty and empty.command.startswith("icl-curate index") and action.name not in WAYS_IN:
        off = "no pool yet: i in Overview indexes one"
    elif owner and (not tab or app.tab is tab) and not owner.check_action(action.run.partition("(")[0], ()):
        off = "not where the cursor is"
    elif action.name == "frame.run" and (why := app.refuses()):
        off = why.what
    return Option(label, app.keys_of(action), action.about if action.label else "", off, do)


def _commands(app: ReviewApp) -> Iterator[Option]:
    """Those of the command line; they are typed for the user, with a space for what follows."""
    off = why.what if (why := app.refuses()) else ""
    for name, command in getattr(app.command_line, "commands", {}).items():
        about = command.get_short_help_str(200)
        yield Option(f"icl-curate {name}", "", about, off, lambda name=name: app.action_run(f"{name} "))


def _theme(app: ReviewApp, name: str) -> Option:
    return Option(f"Theme {name}", "on" if name == app.theme else "", value=lambda: setattr(app, "theme", name))


def _pool(app: ReviewApp) -> Iterator[Option]:
    """Sources and labels, whose rows Demos shows, and settings, which are copied. For threads."""
    from ..engine.store.browse import tally
    from ..engine.store.demonstrations import active_labels
    from ..engine.store.settings import knobs

    def rows(kind: str, value: str, count: int) -> Option:
        async def show() -> None:
            await _leave_dialogs(app)
            demos: Any = await app.visit("demos")
            demos.show_only(**{kind: value})

        return Option(f"{kind.capitalize()} {value}", f"{count:,}", value=show)

    try:
        workspace = app.opened()
        for value, count in tally(workspace, "source"):
            yield rows("source", value, count)
        for value, count in active_labels(workspace).items():
            yield rows("label", value, count)
        for name, value in knobs(app.settings()).items():
            line = f"{name} = {value!r}"
            yield Option(f"Setting {name}", display_line(str(value), 40), value=lambda line=line: app.copy(line))
    except CurateError:
        return  # no pool yet, or it is busy: the tabs say so


def _rows(app: ReviewApp, typed: str) -> Iterator[Option]:
    """Rows of the pool with the text in their ids; Demos shows them in their places. For threads."""
    from ..engine.store.browse import by_id

    def row(number: int, name: str, source: str) -> Option:
        async def show() -> None:
            await _leave_dialogs(app)
            demos: Any = await app.visit("demos")
            demos.show_row(number)

        return Option(f"Row {name}", source, value=show)

    with suppress(CurateError):  # as above
        yield from (row(*one) for one in by_id(app.opened(), typed.removeprefix("row "), MOST_IDS))
