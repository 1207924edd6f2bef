"""State of the Problems tab: which of its lists is shown, and how much each has left. No Textual."""

from __future__ import annotations

from typing import Any

from ....engine.store.overview import Overview
from ...model import PROBLEMS, TabModel

NAMES = tuple(PROBLEMS)


class ProblemsModel(TabModel):
    """One list is ``shown``; the ``counts`` are of what is left to decide on in each, as far as that is known."""

    def __init__(self) -> None:
        self.shown = NAMES[0]
        self.counts: dict[str, int | None] = {}

    def remember(self) -> dict[str, Any]:
        return {"shown": self.shown}

    def recall(self, stored: dict[str, Any]) -> None:
        self.shown = stored["shown"] if stored.get("shown") in NAMES else self.shown

    def take(self, state: Overview) -> None:
        repeats, leaks = sum(state.duplicates_open.values()), state.leaks_open
        compared = (repeats, leaks) if state.compared else (None, None)
        self.counts = dict(zip(NAMES, (state.suspects_open, *compared, state.skipped), strict=True))
