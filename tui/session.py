"""What the next session of ``review`` in the workspace restores: tab, theme, each tab's sort and filters."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from ..engine.base.files import read_regular, replace_file

FILE = "review.json"


@dataclass(slots=True)
class Memory:
    """``tabs`` has the result of each tab's ``remember``, by name; ``recent`` what was chosen last in the finder."""

    tab: str = ""
    theme: str = ""
    tabs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recent: list[str] = field(default_factory=list)
    toured: bool = False
    draft: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was changed in the form of the index, see `index_files.Draft`."""
    borders: dict[str, int] = field(default_factory=dict)
    """Per cent of the room that the pane of a part has, where the user has moved its border."""


def load(folder: Path) -> Memory:
    """The stored state; unreadable parts are ignored."""
    try:
        stored = json.loads(read_regular(folder / FILE))
    except (OSError, ValueError, RecursionError):
        return Memory()
    if not isinstance(stored, dict):
        return Memory()
    tabs = stored.get("tabs", stored.get("rooms"))  # "rooms" in files of release 0.1
    recent, borders = stored.get("recent"), stored.get("borders")
    return Memory(
        str(stored.get("tab", "")),
        str(stored.get("theme", "")),
        {str(name): state for name, state in tabs.items() if isinstance(state, dict)} if isinstance(tabs, dict) else {},
        [label for label in recent if isinstance(label, str)] if isinstance(recent, list) else [],
        stored.get("toured") is True,
        _of_this_folder(stored.get("draft")),
        {str(name): share for name, share in borders.items() if type(share) is int and 0 < share < 100}
        if isinstance(borders, dict)
        else {},
    )


def _of_this_folder(stored: object) -> dict[str, dict[str, str]]:
    """A draft without what is no text, and with files of the working folder alone: the form looks into them, so that a
    stranger's workspace must not name a file elsewhere, an address, a query or an option."""
    return {
        path: {name: value for name, value in entry.items() if isinstance(value, str)}
        for path, entry in (stored.items() if isinstance(stored, dict) else ())
        if isinstance(entry, dict) and not _ELSEWHERE.match(path) and ".." not in PurePath(path).parts
    }


_ELSEWHERE = re.compile(r"[-~/\\]|[^/]*:")


def save(folder: Path, memory: Memory) -> None:
    """Write it atomically. `OSError` if the folder is not writable."""
    text = json.dumps(asdict(memory), ensure_ascii=False, indent=1)
    replace_file(folder / FILE, lambda file: file.write(text.encode()))
