"""An input line, and one for command lines: it completes as one types, and says what else could follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rich.segment import Segment
from rich.text import Text
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widgets import Input, Static

from ...engine.pool.display import display_line
from ..completion import CommandLine, NextWord, candidates, is_option


class Field(Input):
    """Textual's `Input` displays its value unchanged, so control characters in pasted text, or in text from a
    workspace, are made visible first."""

    def render_line(self, y: int) -> Strip:
        drawn = super().render_line(y)
        segments = [Segment(display_line(text), style, control) for text, style, control in drawn]
        return Strip(segments).adjust_cell_length(self.content_size.width, self.rich_style)

    async def complete(self) -> None:
        """Take the suggestion for what is typed. It is computed here, as the one that `Input` displays comes later."""
        typed = self.value
        if self.suggester is None or not typed or not self.cursor_at_end:
            return
        found = await self.suggester.get_suggestion(typed)
        if found is not None and self.value == typed:
            self.value = found
            self.cursor_position = len(found)


MOST = 12
"""Maximum candidates listed."""


class Completion(Suggester):
    """Suggests the first candidate; ``seen`` gets all of them. ``before`` stands before what is typed."""

    def __init__(
        self,
        commands: CommandLine,
        files: bool,
        seen: Callable[[list[NextWord]], None],
        workspace: Path | None = None,
        before: str = "",
    ) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._commands, self._files, self._seen, self._workspace = commands, files, seen, workspace
        self._before = before
        self._latest = ""

    async def get_suggestion(self, value: str) -> str | None:
        typed = self._latest = self._before + value
        words = await asyncio.to_thread(candidates, self._commands, typed, self._files, self._workspace)
        if typed == self._latest:  # those of a shorter line may take longer
            self._seen(words)
        before, space, word = value.rpartition(" ")
        if not words or not value or (not word and words[0].word.startswith("-")) or is_option(self._commands, typed):
            return None  # a line that looks complete stays as it is
        return before + space + words[0].word


class CandidateLine(Static):
    """One line: the candidates, and what the first of them means."""

    def show(self, words: list[NextWord]) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        for i, candidate in enumerate(words[:MOST]):
            word = candidate.word.rpartition(",")[2].rpartition("/")[2] or candidate.word
            text.append("  " if i else "").append(display_line(word, 40), "accent" if not i else "muted")
        if len(words) > MOST:
            text.append("  …", "muted")
        if words and words[0].about:
            text.append(f"   {display_line(words[0].about, 80)}", "italic")
        self.update(text)
