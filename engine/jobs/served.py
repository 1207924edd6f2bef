"""What a session of ``review`` that is served to a browser may start.

Anyone with the address of a served page acts with the owner's machine and API keys, and cannot be identified. So a
served session can only start the workspace's own work with the LLM configured by its owner: no path, no server and no
model can be named, and nothing is written outside the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.errors import UsageError
from ..pool.display import display_line

FIX = "run it in a terminal, or serve with --allow-commands"

WORK = ("index", "train", "evaluate", "calibrate", "tune", "curate")
"""Commands that read and write only the workspace; ``index`` without a path reads the known files again."""

_VALUE = r"[A-Za-z0-9_][A-Za-z0-9_.,+-]*"
_OPTIONS = (
    "answers|arms|batch|concurrency|depth|epochs|hold|lambda|least|limit|llm-topics|max-calls|max-cost|method|methods|"
    "metric|next|no-llm-topics|noise|order|over|propose|questions|ranking|rate|read|restart|rouge|rounds|sample|seed|"
    "seeds|shots|size|split|stop-early|uncertainty|yes"
)
_WORD = re.compile(rf"{_VALUE}|--(?:{_OPTIONS})(?:={_VALUE})?|-[bjkmr](?:{_VALUE})?")
"""A word that can only be a listed option of the work and its value. Unlisted options and paths cannot be written with
such words, whatever a command uses a word for."""


def refused(words: Sequence[str]) -> UsageError | None:
    """Why a served session does not run ``icl-curate WORDS``, None if it does; no words: any command."""
    if not words:
        return UsageError("commands are disabled in a served session", FIX)
    command, *rest = words
    if command not in WORK:
        return UsageError(f"a served session cannot run '{display_line(command, 40)}'", FIX)
    below = ("vote", "apply") if command == "tune" else ()
    odd = next((word for word in rest if command == "index" or word in below or not _WORD.fullmatch(word)), None)
    if odd is None:
        return None
    return UsageError(f"a served session cannot run '{command}' with '{display_line(odd, 60)}'", FIX)
