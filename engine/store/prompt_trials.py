"""Prompt trials: validation queries answered with random subsets of their candidates as demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Int64s
from . import columns
from .workspace import Workspace

KIND = "train-datamodel"


@dataclass(frozen=True, slots=True)
class PromptTrials:
    """One run's prompts; all columns (n,). ``shown``: the rows in each prompt, best first; ``right`` marks accepted
    answers. Prompts whose call failed are not included."""

    run: int
    queries: Int64s
    shown: Sequence[Sequence[int]]
    right: Bools


def save(workspace: Workspace, found: PromptTrials) -> None:
    """Store a run's prompts."""
    tried: dict[str, columns.Column] = {
        "run": np.full(len(found.queries), found.run),
        "query": found.queries,
        "shown": found.shown,
        "correct": found.right,
    }
    with workspace.write() as con:
        columns.insert(con, "prompt_trials", tried)


def latest(workspace: Workspace) -> PromptTrials | None:
    """Those of the latest finished run, None before the first; without prompts that showed a row that was relabelled
    since."""
    with workspace.read() as con:
        row = con.execute("SELECT max(run) FROM runs WHERE kind = ? AND status = 'done'", [KIND]).fetchone()
        if row is None or row[0] is None:
            return None
        found = con.execute(
            """
            SELECT query, shown, correct FROM prompt_trials
             WHERE run = $1 AND NOT list_has_any(shown, (SELECT coalesce(list(row), []) FROM outdated WHERE run = $1))
             ORDER BY query, shown
            """,
            [row[0]],
        ).fetchall()
    return PromptTrials(
        int(row[0]),
        np.array([query for query, _, _ in found], np.int64),
        [shown for _, shown, _ in found],
        np.array([right for _, _, right in found], np.bool_),
    )
