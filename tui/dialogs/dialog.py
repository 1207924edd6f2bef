"""What all dialogs share, and the small ones: a confirmation before something large is done, and one list to choose
from, which is also the finder, the picker of files and words, and a field for a line of text or for several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input, Static

from ...engine.base.errors import CurateError
from ...engine.pool.display import display_line
from ...render.columns import LineColumn
from ..actions import FIND, HELP, Acting, Action, bindings
from ..completion import Hits, hits
from ..widgets.bars import KeyBar
from ..widgets.field import Area, Field
from ..widgets.lines import Line
from ..widgets.table import LineTable
from ..workers import BackgroundWork, later


class Dialog(Acting, ModalScreen[ScreenResultType]):
    """Can be dismissed once: a second key may be queued before the first one has closed it. Textual would call back
    again, and then close what lies below. The finder and help lie over it."""

    BINDINGS: ClassVar = bindings((FIND, HELP))

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_close(self) -> None:
        self.dismiss()

    async def action_find(self) -> None:
        await self.app.run_action("find", default_namespace=self.app)

    async def action_help(self) -> None:
        await self.app.run_action("help", default_namespace=self.app)

    async def action_complete(self) -> None:
        """Complete what is typed: take the only word that can stand there, or choose one of several."""
        field = self.focused
        if not isinstance(field, Field) or field.completed is None:
            return
        typed = field.value
        words = await asyncio.to_thread(field.completed, typed)
        if field.value != typed:
            return
        if len(words) > 1:
            options = [Option(one.word, about=one.about, value=one.line) for one in words]
            self.app.push_screen(Pick("Complete", Offer(options)), lambda line: field.put(line or typed))
        elif words:
            field.put(words[0].line)
        else:
            self.notify("no match")


LABEL, NOTE = 12, 10
"""Cells of a label and a note that stay beside each other."""

BEHIND = 4
"""What a hit behind the label counts less: as much as letters that are this far apart."""

ROOM = 60
"""Cells of a line in most terminals."""

LONGEST = 2_000
"""Maximum characters of a text that is edited in a field of one line."""

LETTERS, PAUSE = 3, 0.06
"""From so many letters on, more is looked for, so many seconds after the last one."""


class Option(NamedTuple):
    """One of a list: ``note`` stands at the right end (a key, a count), ``about`` behind the label. What is ``off``
    cannot be taken now, it says why. ``value`` is what it returns, by default its label."""

    label: str
    note: str = ""
    about: str = ""
    off: str = ""
    value: Any = None

    @property
    def text(self) -> str:
        """What is matched and shown."""
        about = self.off or self.about
        return display_line(f"{self.label}  {about}" if about else self.label)

    @property
    def result(self) -> Any:
        return self.label if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be chosen, below a text that is ``told``; with a ``text`` that can be edited, this, too."""

    options: Sequence[Option] = ()
    text: str | None = None
    told: str = ""


class Pick(Dialog[Any], BackgroundWork):
    """Returns what the selected option stands for, or the edited text if that was changed; None if it was left. What is
    typed narrows the list; a text of several lines, or with hidden characters, is edited in `Write`. ``more`` is read
    in a thread, as is what lies ``beyond`` it for some letters; until it has come, what is typed waits for it, and so
    does Enter where nothing fits yet."""

    ACTIONS = (
        Action("choose.take", "enter", "Choose", "Choose the option under the cursor", bound=False),
        Action("choose.cancel", "escape", "Cancel", "Cancel", call="close"),
        Action("choose.down", "down,ctrl+n", "", "Next option", footer=False, call="step(1)"),
        Action("choose.up", "up,ctrl+p", "", "Previous option", footer=False, call="step(-1)"),
    )

    def __init__(
        self,
        title: str,
        offer: Offer = Offer(),
        more: Callable[[], Offer] | None = None,
        now: Any = None,
        does: str = "Choose",
        beyond: Callable[[str], Offer] | None = None,
        new: bool = False,
    ) -> None:
        """``now`` is the result of the option that is current, ``does`` what Enter does; ``beyond`` is called with what
        is typed, from `LETTERS` letters on. With ``new`` what is typed can be taken, too, if it is no option."""
        super().__init__()
        self._title, self._offer, self._more, self._now, self._does = title, offer, more, now, does
        self._beyond, self._new, self._options = beyond, new, {"": offer.options}
        """Options by where they come from."""
        self._reading = set[str]()
        """Where more options come from."""
        self._taken = False
        """Enter waits for them."""
        self._late: dict[str, Callable[[], object]] = {}
        """What came while help or the finder lay over this, by its kind."""
        self._shown: list[Option] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog choose"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Static(id="told", markup=False)
            yield Field(compact=True, select_on_focus=False)
            yield LineTable((), heading=False)
        yield KeyBar(actions=[replace(self.ACTIONS[0], label=self._does), *self.ACTIONS[1:]])

    def on_mount(self) -> None:
        self._look_beyond_soon = later(self, PAUSE, self._look_beyond)
        self._arrange(self._offer)
        if self._more is not None:
            self._read("more", self._more)

    def _read(self, kind: str, more: Callable[[], Offer]) -> None:
        self._reading.add(kind)
        self.in_thread(kind, more, lambda offer: self._come(kind, offer))

    def _come(self, kind: str, offer: Offer) -> None:
        """More has come; a cursor that was moved, or with nothing typed, stays on its option."""
        if not self.is_active:  # it could neither open `Write` nor close
            self._late[kind] = partial(self._come, kind, offer)
            return
        self._reading.discard(kind)
        if offer.text is not None and (len(offer.text) > LONGEST or display_line(offer.text) != offer.text):

            def written(text: str | None) -> None:
                self.dismiss(text)  # without a result: Textual would await it in this very dialog

            self.app.push_screen(Write(self._title, offer.told, offer.text, self._does), written)
            return
        self._options[kind] = offer.options
        at, typed = self.query_one(LineTable).cursor, self.query_one(Input).value
        if self._shown and (at or not typed):
            self._now = self._shown[at].result
        self._arrange(replace(offer if kind == "more" else self._offer, options=[*chain(*self._options.values())]))
        if self._taken:
            self._take()

    def _look_beyond(self) -> None:
        typed = self.query_one(Input).value.strip()
        self._read("beyond", partial(self._beyond, typed) if self._beyond and len(typed) >= LETTERS else Offer)

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if self.is_active:
            self.dismiss()
        else:
            self._late[kind] = self.dismiss

    def on_screen_resume(self) -> None:
        while self._late:
            self._late.popitem()[1]()

    def _arrange(self, offer: Offer) -> None:
        self._offer = offer
        told, field, table = self.query_one("#told", Static), self.query_one(Field), self.query_one(LineTable)
        told.update(display_line(offer.told, 3 * ROOM))
        told.display = bool(offer.told)
        field.placeholder = "" if offer.text is not None else "type to find"
        if offer.text and not field.value:
            field.put(display_line(offer.text))
        table.display = bool(offer.options) or offer.text is None
        label = max((cell_len(option.text) for option in offer.options), default=0)
        note = max((cell_len(display_line(option.note)) for option in offer.options), default=0)
        told_each = any(option.about for option in offer.options)
        self.query_one(".choose").set_class(told_each, "-about")
        cut: Literal["end", "middle"] = "end" if told_each else "middle"
        whole = 1 << 20
        room = whole if label + note < ROOM else note  # of short lines, the notes stand at the right edge
        columns = [
            LineColumn("label", "", min(label, LABEL), grow=2, most=label if note else whole, cut=cut),
            LineColumn("note", "", min(note, NOTE), right=True, grow=1, most=room),
        ]
        table.arrange_columns(columns if note else columns[:1])
        table.styles.height = len(offer.options) or 2
        self._narrow()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._now, self._taken = None, False
        if self._beyond is not None:
            self.forget("beyond")  # for what was typed before
            self._reading.add("beyond")
            self._look_beyond_soon()
        self._narrow()

    def _narrow(self) -> None:
        """Show the options that match what is typed, the best first, with the cursor on the current one."""
        typed, table = self.query_one(Input).value, self.query_one(LineTable)
        fitting = ((hits(typed, option.text, len(option.label)), option) for option in self._offer.options)
        ranked = [(fit, option) for fit, option in fitting if fit]
        ranked.sort(key=lambda pair: pair[0].rank + BEHIND * any(at >= len(pair[1].label) for at in pair[0].places))
        if self._new and not self._reading and typed.strip() not in ("", *(one.label for one in self._offer.options)):
            ranked.append((Hits(0, ()), Option(typed.strip(), "new")))
        self._shown = [option for _, option in ranked]
        table.message = "reading …" if self._reading else "no match"
        table.fill([_option_line(option, fit.places) for fit, option in ranked])
        table.cursor = next((i for i, option in enumerate(self._shown) if option.result == self._now), 0)

    @on(Input.Submitted)
    @on(LineTable.Chosen)
    def _take(self) -> None:
        offer, typed = self._offer, self.query_one(Input).value.strip()
        self._taken = bool(self._reading) and not self._shown
        if self._taken:
            return
        if self._shown:
            option = self._shown[self.query_one(LineTable).cursor]
            if option.off:
                self.notify(f"{option.label}: {option.off}", severity="warning")
            else:
                self.dismiss(option.result)
        elif offer.text is not None:
            self.dismiss(None if typed == display_line(offer.text) else typed)
        elif not typed or not offer.options:
            self.dismiss()

    def action_step(self, by: int) -> None:
        self.query_one(LineTable).cursor += by


def _option_line(option: Option, places: Sequence[int]) -> Line:
    text = Text(option.text, "muted" if option.off else "")
    text.stylize("muted", len(display_line(option.label)))
    for at in places:
        text.stylize("bold", at, at + 1)
    return Line((text, Text(display_line(option.note), "key" if option.about else "muted")))


class Write(Dialog[str | None]):
    """A text of several lines to edit. Returns it if it was changed; None if it was left."""

    ACTIONS = (
        Action("write.done", "ctrl+s", "Done", "Take the text as it stands"),
        Action("write.cancel", "escape", "Cancel", "Leave the text as it was", call="close"),
    )

    def __init__(self, title: str, told: str, text: str, does: str) -> None:
        super().__init__()
        self._title, self._told, self._does, self._area = title, told, does, Area(text)
        self._begun = self._area.text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog write"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Static(display_line(self._told, 3 * ROOM), id="told", markup=False)
            yield self._area
        yield KeyBar(actions=[replace(self.ACTIONS[0], label=self._does), *self.ACTIONS[1:]])

    def action_done(self) -> None:
        written = self._area.text
        self.dismiss(None if written == self._begun else written)


class Confirm(Dialog[bool]):
    """Shows what would be done, line by line, and returns whether to do it. Enter does not confirm: it may be on its
    way when the question appears."""

    ACTIONS = (
        Action("confirm.yes", "y", "Yes", "Confirm", call="answer(True)"),
        Action("confirm.no", "n,escape,q", "No", "Cancel", call="answer(False)"),
    )

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(display_line(self._title), "bold"))
            yield Static(Text("\n".join(map(display_line, self._lines))), classes="message")
            yield Static(Text.assemble(("y", "key"), " yes   ", ("n", "key"), " no"), classes="keys")
        yield KeyBar(actions=self.ACTIONS)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
