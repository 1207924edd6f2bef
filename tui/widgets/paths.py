"""Completion of file names while a command is typed."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from textual.suggester import Suggester

from ...engine.index.readers.formats import SUFFIXES


class Paths(Suggester):
    """Completes the last word of a command line to an existing file or folder; files that ``index`` reads come first.
    Names that a shell would have to quote are not offered."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        before, space, word = value.rpartition(" ")
        if not space or word.startswith("-"):
            return None
        completed = await asyncio.to_thread(_completed, word)
        return before + space + completed if completed else None


def _completed(word: str) -> str:
    """The best file or folder whose name starts with the word; empty: there is none."""
    folder, slash, start = word.rpartition("/")
    try:
        found = [path for path in Path(folder + slash or ".").expanduser().iterdir() if _offered(path.name, start)]
    except (OSError, RuntimeError):  # no such folder, or no such user
        return ""
    if not found:
        return ""
    best = min(found, key=lambda path: (path.suffix.lower() not in SUFFIXES, path.name))
    return folder + slash + best.name + "/" * best.is_dir()


def _offered(name: str, start: str) -> bool:
    hidden = name.startswith(".") and not start
    return name.startswith(start) and name != start and not hidden and shlex.quote(name) == name
