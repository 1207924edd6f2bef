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


def save(folder: Path, memory: Memory, before: Memory) -> None:
    """Write what is not as ``before`` atomically: the rest may be of another session, which has written since.
    `OSError` if the folder is not writable."""
    now, then, stored = asdict(memory), asdict(before), asdict(load(folder))
    merged = {name: _merged(stored[name], now[name], then[name]) for name in now}
    text = json.dumps(merged, ensure_ascii=False, indent=1)
    replace_file(folder / FILE, lambda file: file.write(text.encode()))


def _merged(stored: Any, now: Any, before: Any) -> Any:
    """What has changed since ``before``, by key if it has keys, and of the rest what is ``stored``."""
    if not isinstance(now, dict):
        return stored if now == before else now
    changed = {key: value for key, value in now.items() if key not in before or value != before[key]}
    return {key: value for key, value in {**stored, **changed}.items() if key in now or key not in before}
