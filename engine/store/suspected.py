"""The suspects that were found last, so that every window and command tells of the same ones."""

from __future__ import annotations

import json

import numpy as np

from ..base.arrays import Int64s
from .decisions import settled_rows
from .demonstrations import active_rows
from .workspace import Workspace

KEY = "suspects"


def keep(workspace: Workspace, suspects: Int64s, checked: Int64s, pruned: Int64s) -> None:
    """Store the numbers of the suspects among the rows ``checked``; ``pruned``: those that were not, as pruned."""
    found = {"rows": suspects.tolist(), "last": int(checked[-1]), "pruned": pruned.tolist()}
    with workspace.write() as con:
        con.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [KEY, json.dumps(found)])


def open_suspects(workspace: Workspace) -> tuple[int, int] | None:
    """How many suspects are neither pruned, kept nor relabelled, and how many were found; None if they were not looked
    for, or a row is active that was not checked then."""
    with workspace.read() as con:
        stored = con.execute("SELECT value FROM meta WHERE key = ?", [KEY]).fetchone()
    if stored is None:
        return None
    found, active = json.loads(stored[0]), active_rows(workspace)
    if (active.size and active[-1] > found["last"]) or np.isin(active, found["pruned"]).any():
        return None
    left = np.setdiff1d(np.intersect1d(found["rows"], active), settled_rows(workspace))
    return len(left), len(found["rows"])
