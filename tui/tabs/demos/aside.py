"""What the lists have in common that the Demos tab shows in place of all rows."""

from __future__ import annotations

from typing import cast

from textual.message import Message

from ...tab import Part, ReviewSession
from ...widgets.table import LineTable
from ...workers import BackgroundWork


class Aside(Part, BackgroundWork):
    """A list; it is read when it is first displayed, and again when the workspace changes."""

    class Left(Message):
        """The user goes back to all demonstrations."""

    @property
    def review(self) -> ReviewSession:
        return cast(ReviewSession, self.app)

    @property
    def table(self) -> LineTable:
        """What takes focus."""
        raise NotImplementedError

    def look_again(self, anew: bool = False) -> None:
        """The workspace may have changed. ``anew``: the list was opened."""
        raise NotImplementedError

    def copied(self) -> str:
        """The text that ``y`` copies."""
        return ""

    def on_show(self) -> None:
        self.look_again(anew=True)
