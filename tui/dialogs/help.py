"""Help for the focused part, generated from the actions it declares, and the terms of its tab."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Column, Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Static

from ..actions import FIND, Action
from ..widgets.bars import KeyBar
from .dialog import Dialog


class Help(Dialog[None]):
    """Sections of (title, about, actions), those of the tab first."""

    TITLE = "Help"
    ACTIONS = (
        Action("help.close", "escape,q,question_mark,f1", "Close", "Back to the tab"),
        Action("help.down", "j,down", "", "Scroll down", footer=False),
        Action("help.up", "k,up", "", "Scroll up", footer=False),
        Action("help.page_down", "ctrl+d,pagedown,space", "", "Page down", footer=False, call="page(1)"),
        Action("help.page_up", "ctrl+u,pageup", "", "Page up", footer=False, call="page(-1)"),
    )

    def __init__(self, sections: Sequence[tuple[str, str, Sequence[Action]]], terms: Sequence[str] = ()) -> None:
        """``terms`` of the glossary that the tab uses."""
        super().__init__()
        self._sections, self._terms = sections, terms

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog help"):
            own = sum(bool(about) for _, about, _ in self._sections)
            for at, (title, about, actions) in enumerate(self._sections):
                if self._terms and at == own:  # before the keys that are the same in all tabs
                    yield Static(Text.assemble(("Terms", "title"), "  ", ("of this tab", "muted")), classes="heading")
                    yield Static(_explained(self._terms))
                yield Static(Text.assemble((title, "title"), "  ", (about, "muted")), classes="heading")
                yield Static(self._keys(actions))
            yield Static(Text("esc closes · change keys by these names in keys.toml", "muted"), classes="keys")
        yield KeyBar(actions=[*self.ACTIONS, FIND])

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)

    def action_page(self, by: int) -> None:
        shown = self.query_one(VerticalScroll)
        shown.scroll_relative(y=by * max(1, shown.size.height - 2), animate=False)

    def _keys(self, actions: Iterable[Action]) -> Table:
        table = Table.grid(Column(no_wrap=True, min_width=12), Column(ratio=1), padding=(0, 2, 0, 0), expand=True)
        names = self.app.size.width >= 90  # action names, for keys.toml
        if names:
            table.add_column(no_wrap=True, style="muted", width=20)
        for action in actions:
            keys = self.app.keys_of(action)  # type: ignore[attr-defined]
            about = Text(action.about)
            if action.cli:
                about.append(f"   {action.cli}", "muted")
            table.add_row(Text(keys, "key"), about, *([Text(action.name)] if names else []))
        return table


TOUR = (
    ("1 … 5", "the road: what is left, problems, sources, accuracy before and after, export; then every row"),
    ("⏎ esc", "open what is under the cursor, go back; enter never writes, sends or confirms"),
    ("x e r", "prune, correct, keep; space marks, V marks a range, . repeats; u takes back, U again"),
    ("i c", "files; a plan within a budget: the price of what asks an LLM is shown before it starts"),
    (":", "finds actions with their keys, sources, labels, terms, themes by some of their letters"),
    ("? f2 q", "keys and terms of what has the focus; this tour; quit: jobs go on"),
)
"""The screen in six lines: keys, and what they do."""


class Tour(Dialog[None]):
    """Shown at the first start; any key closes it, and does what it does."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog help"):
            yield Static(Text("The screen in six lines", "bold"))
            table = Table.grid(Column(no_wrap=True, style="key"), Column(ratio=1), padding=(0, 2, 0, 0), expand=True)
            for keys, about in TOUR:
                table.add_row(keys, about)
            yield Static(table, classes="message")
            yield Static(Text("any key goes on; f2 shows this again", "muted"))
        yield KeyBar(actions=[Action("tour.close", "escape", "Go on", "Begin")])

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss()
        if event.key not in ("escape", "enter", "space", "f2"):
            self.app.simulate_key(event.key)


def _explained(terms: Sequence[str]) -> Table:
    from ...render.glossary import plain  # nothing needs it at the start

    table = Table.grid(Column(min_width=12, max_width=24), Column(ratio=1), padding=(0, 2, 0, 0), expand=True)
    for term in terms:
        table.add_row(Text(term, "accent"), Text(plain(term)))
    return table


def sections(focused: DOMNode | None, frame: Sequence[Action]) -> list[tuple[str, str, Sequence[Action]]]:
    """Help on the tab, or the part of it that is focused, then on the focused widget and the frame: what a tab can do
    is asked for more often than how a list is scrolled."""
    parts: list[tuple[str, str, Sequence[Action]]] = []
    widgets: list[tuple[str, str, Sequence[Action]]] = []
    for node in focused.ancestors_with_self if focused is not None else ():
        actions = node.__class__.__dict__.get("ACTIONS") or getattr(node, "ACTIONS", ())
        about = getattr(node, "ABOUT", "")
        if actions and actions is not frame and (about or not isinstance(node, ModalScreen)):
            (parts if about else widgets).append((getattr(node, "TITLE", type(node).__name__), about, actions))
    return [*parts, *widgets, ("Everywhere", "", frame)]
