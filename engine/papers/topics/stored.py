"""Topics of a run and their core demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.arrays import Float32s, Int64s
from ...store import columns
from ...store.trials import ZERO_SHOT
from ...store.workspace import Workspace

KIND = ZERO_SHOT


def save(
    workspace: Workspace,
    run: int,
    names: Sequence[str],
    knowledge: Float32s,
    observations: Float32s,
    links: tuple[Int64s, Int64s, Float32s],
) -> None:
    """Store a run's topics, the LLM's knowledge of each, and ``links`` (rows, topics, weights) in one transaction."""
    learnt: dict[str, columns.Column] = {
        "run": np.full(len(names), run),
        "topic": np.arange(len(names)),
        "name": names,
        "knowledge": knowledge.astype(np.float64),
        "observations": observations.astype(np.float64),
    }
    rows, topics, weights = links
    linked: dict[str, columns.Column] = {
        "run": np.full(len(rows), run),
        "row": rows,
        "topic": topics,
        "weight": weights,
    }
    with workspace.write() as con:
        columns.insert(con, "topics", learnt)
        columns.insert(con, "topic_links", linked)


def supply(workspace: Workspace, run: int) -> list[tuple[int, str, int, int]]:
    """Number of core demonstrations by topic and source: (topic, source, all in the pool, active)."""
    with workspace.read() as con:
        amounts: list[tuple[int, str, int, int]] = con.execute(
            """
            SELECT l.topic, p.source, count(*), count(a.row)
              FROM topic_links l JOIN pool p USING (row) LEFT JOIN active a USING (row)
             WHERE l.run = ? GROUP BY l.topic, p.source ORDER BY l.topic, count(a.row) DESC, p.source
            """,
            [run],
        ).fetchall()
    return amounts


def core_rows(workspace: Workspace, run: int, topic: int) -> list[int]:
    """Demonstrations of the active pool with this core topic, by row number."""
    with workspace.read() as con:
        found = con.execute(
            "SELECT row FROM topic_links SEMI JOIN active USING (row) WHERE run = ? AND topic = ? ORDER BY row",
            [run, topic],
        ).fetchall()
    return [row for (row,) in found]
