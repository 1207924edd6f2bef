"""A session of ``review``: what the next one of the workspace restores (tab, theme, each tab's sort and filters), and
what one served to a browser may start.

Anyone with the address of a served page acts with the owner's machine and API keys, and cannot be identified. So a
served session can only start the workspace's own work with the LLM configured by its owner: no path, no server and no
model can be named, and nothing is written outside the workspace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..engine.base.errors import UsageError
from ..engine.base.files import read_regular, replace_file
from ..engine.pool.display import display_line

FILE = "review.json"


@dataclass(slots=True)
class Memory:
    """``tabs`` has the result of each tab's ``remember``, by name; ``recent`` what was chosen last in the finder."""

    tab: str = ""
    theme: str = ""
    tabs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recent: list[str] = field(default_factory=list)
    toured: bool = False
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
        {str(name): share for name, share in borders.items() if type(share) is int and 0 < share < 100}
        if isinstance(borders, dict)
        else {},
    )


def save(folder: Path, memory: Memory) -> None:
    """Write it atomically. `OSError` if the folder is not writable."""
    text = json.dumps(asdict(memory), ensure_ascii=False, indent=1)
    replace_file(folder / FILE, lambda file: file.write(text.encode()))


FIX = "run it in a terminal, or serve with --allow-commands"

WORK = ("index", "train", "evaluate", "calibrate", "tune", "prune", "curate")
"""Commands that read and write only the workspace; ``index`` without a path reads the known files again, and ``prune``
is ``tune`` as it was spelled."""

_VALUE = r"[A-Za-z0-9_][A-Za-z0-9_.,+-]*"
_OPTIONS = (
    "answers|arms|batch|concurrency|depth|epochs|hold|lambda|least|limit|llm-topics|max-calls|max-cost|method|methods|"
    "metric|next|no-llm-topics|noise|order|over|propose|questions|ranking|rate|read|restart|rouge|rounds|sample|seed|"
    "seeds|shots|size|split|stop-early|tune|uncertainty|validation|yes"
)
_WORD = re.compile(rf"{_VALUE}|--(?:{_OPTIONS})(?:={_VALUE})?|-[bjkmnr](?:{_VALUE})?")
"""A word that can only be a listed option of the work and its value. Unlisted options and paths cannot be written with
such words, whatever a command uses a word for."""


def refused(words: Sequence[str]) -> UsageError | None:
    """Why a served session does not run ``icl-curate WORDS``, None if it does; no words: any command."""
    if not words:
        return UsageError("commands are disabled in a served session", FIX)
    command, *rest = words
    if command not in WORK:
        return UsageError(f"a served session cannot run '{display_line(command, 40)}'", FIX)
    below = ("vote", "apply") if command in ("tune", "prune") else ()
    odd = next((word for word in rest if command == "index" or word in below or not _WORD.fullmatch(word)), None)
    if odd is None:
        return None
    return UsageError(f"a served session cannot run '{command}' with '{display_line(odd, 60)}'", FIX)
