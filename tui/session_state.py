"""The state of ``review`` between two sessions of a workspace: tab, theme, and each tab's sort and filters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..engine.base.files import read_regular, replace_file

FILE = "review.json"


@dataclass(slots=True)
class Memory:
    """``tabs`` has the result of each tab's ``remember``, by name."""

    tab: str = ""
    theme: str = ""
    tabs: dict[str, dict[str, Any]] = field(default_factory=dict)


def load(folder: Path) -> Memory:
    """The stored state; unreadable parts are ignored."""
    try:
        kept = json.loads(read_regular(folder / FILE))
    except (OSError, ValueError, RecursionError):
        return Memory()
    if not isinstance(kept, dict):
        return Memory()
    tabs = kept.get("tabs", kept.get("rooms"))  # "rooms" in files of release 0.1
    return Memory(
        str(kept.get("tab", "")),
        str(kept.get("theme", "")),
        {str(name): state for name, state in tabs.items() if isinstance(state, dict)} if isinstance(tabs, dict) else {},
    )


def save(folder: Path, memory: Memory) -> None:
    """Write it atomically. `OSError` if the folder is not writable."""
    text = json.dumps(asdict(memory), ensure_ascii=False, indent=1)
    replace_file(folder / FILE, lambda file: file.write(text.encode()))
