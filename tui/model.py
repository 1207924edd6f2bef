"""What the models of tabs share. No Textual.

A tab's model (``tabs/<name>/model.py``) holds what is chosen, filtered, asked for and was answered, and says what
follows from a key: what is to be read or asked next. The tab draws it and calls its methods. Cursors, focus and folded
parts stay with the widgets; the tab hands over the line of a cursor where a method needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to show yet: ``what`` is missing, ``why`` it is needed, and the ``command`` that creates it."""

    what: str
    why: str
    command: str


READING = Empty("reading …", "", "")


class TabModel:
    """A tab's state."""

    def remember(self) -> dict[str, Any]:
        """What the next session should find as it is now, as plain JSON values."""
        return {}

    def recall(self, said: dict[str, Any]) -> None:
        """What `remember` said last time; called once, before anything is read. Values may be outdated."""
