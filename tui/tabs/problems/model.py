"""State of the Problems tab: which of its lists is shown, and how much each has left. No Textual."""

from __future__ import annotations

from typing import Any

from rich.style import Style
from rich.text import Text

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
        repeats = sum(state.duplicates_open.values())
        self.counts = dict(zip(NAMES, (state.suspects_open, repeats, state.leaks_open, state.skipped), strict=True))


def names_line(model: ProblemsModel, key: str) -> Text:
    """The lists with their counts, the shown one marked, and the ``key`` of the next one; a click opens a list."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for name, count in {name: model.counts.get(name) for name in NAMES}.items():
        title = Text(f" {name.capitalize()} " + ("" if count is None else f"{count:,} "))
        title.stylize(Style(meta={"list": name}))
        for style in ("cursor", "bold") if name == model.shown else ("muted",) if count == 0 else ():
            title.stylize(style)
        line.append_text(title)
    return line.append(f"  {key} ", "key").append("next", "muted")
