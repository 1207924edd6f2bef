"""Shared by the models of tabs. No Textual.

A tab's model (``tabs/<name>/model.py``) holds the tab's state (selection, filters, requests, answers) and implements
what keys do: what to read or ask next. The tab draws it and calls its methods. Cursors, focus and collapsed parts stay
with the widgets; the tab passes the line of a cursor to methods that need it.
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
        """The state to restore in the next session, as plain JSON values."""
        return {}

    def recall(self, stored: dict[str, Any]) -> None:
        """Restores the result of `remember`; called once, before anything is read. Values may be outdated."""
