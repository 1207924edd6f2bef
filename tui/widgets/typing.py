"""A field for command lines: completes as one types, and says what else could follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.text import Text
from textual.suggester import Suggester
from textual.widgets import Static

from ...engine.pool.display import display_line
from ..completion import Candidate, CommandSpec, candidates

MOST = 40
"""Maximum candidates listed."""


class Completion(Suggester):
    """Suggests the first candidate; ``seen`` gets all of them."""

    def __init__(self, spec: CommandSpec, files: bool, seen: Callable[[list[Candidate]], None]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._spec, self._files, self._seen = spec, files, seen

    async def get_suggestion(self, value: str) -> str | None:
        found = await asyncio.to_thread(candidates, self._spec, value, self._files)
        self._seen(found)
        before, space, word = value.rpartition(" ")
        if not found or not (word or space):
            return None
        return before + space + found[0].word if word else None  # nothing is put into a line that looks complete


class CandidateLine(Static):
    """One line: the candidates, and what the first of them means."""

    def show(self, found: list[Candidate]) -> None:
        """Show these."""
        text = Text(no_wrap=True, overflow="ellipsis")
        if found and found[0].about:
            text.append(display_line(found[0].about, 60), "muted").append("   ")
        for i, one in enumerate(found[:MOST]):
            text.append("  " if i else "").append(display_line(one.word, 40), "accent" if not i else "muted")
        self.update(text)
