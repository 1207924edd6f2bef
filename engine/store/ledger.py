"""The effect of each demonstration when it was added to a prompt in training the ranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.contract import Reported
from . import columns
from .workspace import Workspace

KIND = "train-ranker"

_SEEN = """
    WITH chosen AS (
        SELECT run FROM runs WHERE kind = $kind AND status = 'done' AND llm = (
            SELECT r.llm FROM runs r WHERE r.kind = $kind AND r.status = 'done'
               AND EXISTS (SELECT 1 FROM ranker_steps s WHERE s.run = r.run) ORDER BY r.run DESC LIMIT 1
        )
    ), seen AS (                      -- a prompt met again, in a later epoch or run, says nothing new
        SELECT query, shown, row, place, before, after, answer_before, answer_after, max(run) AS run
          FROM ranker_steps SEMI JOIN chosen USING (run) ANTI JOIN outdated USING (run, row)
         GROUP BY query, shown, row, place, before, after, answer_before, answer_after
    )
"""


@dataclass(frozen=True, slots=True)
class RowFlips:
    """How often a demonstration was added to a prompt, each prompt counted once: ``shown`` times in total,
    ``wrong_before`` of them to a prompt with a wrong answer; ``helped``: wrong → right, ``hurt``: right → wrong."""

    row: int
    id: str
    source: str
    pruned: bool
    shown: int
    wrong_before: int
    helped: int
    hurt: int


@dataclass(frozen=True, slots=True)
class Flip(Reported):
    """A prompt whose answer flipped when the row was added. ``shown``: the prompt's rows, best first, the added one
    last. ``helped`` is true for wrong → right."""

    run: int
    query: int
    query_id: str
    query_input: str
    shown: tuple[int, ...]
    helped: bool
    answer_before: str
    answer_after: str


def save_batch(
    workspace: Workspace,
    run: int,
    step: int,
    metrics: Mapping[str, float],
    steps: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Store the ``steps`` (rows of ``ranker_steps``) and figures of a batch in one transaction."""
    figures: dict[str, columns.Column] = {
        "run": [run] * len(metrics),
        "step": [step] * len(metrics),
        "name": list(metrics),
        "value": [float(value) for value in metrics.values()],
    }
    with workspace.write() as con:
        columns.insert(con, "metrics", figures)
        if steps:
            columns.insert(con, "ranker_steps", columns.of_rows(steps))


def effects(workspace: Workspace) -> list[RowFlips]:
    """Counts by row for every demonstration, not retired, that was shown in training with the LLM of the latest
    finished run.

    All finished runs with that LLM count.
    """
    with workspace.read() as con:
        rows = con.execute(
            f"""
            {_SEEN}, counted AS (
                SELECT row, count(*) AS shown, count(*) FILTER (NOT before) AS wrong_before,
                       count(*) FILTER (NOT before AND after) AS helped,
                       count(*) FILTER (before AND NOT after) AS hurt
                  FROM seen GROUP BY row
            )
            SELECT c.row, p.id, p.source, c.row IN (SELECT row FROM pruned), shown, wrong_before, helped, hurt
              FROM counted c JOIN pool p USING (row) ORDER BY c.row
            """,
            {"kind": KIND},
        ).fetchall()
    return [RowFlips(*row) for row in rows]


def flips(workspace: Workspace, row: int) -> list[Flip]:
    """The prompts whose answer flipped when the row was added, right → wrong first, then by query."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            {_SEEN}
            SELECT s.run, s.query, q.id, q.input, s.shown, s.after, s.answer_before, s.answer_after
              FROM seen s JOIN demonstrations q ON q.row = s.query
             WHERE s.row = $row AND s.before <> s.after ORDER BY s.after, s.query, s.place
            """,
            {"kind": KIND, "row": row},
        ).fetchall()
    return [
        Flip(run, query, name, text, tuple(shown), after, a, b) for run, query, name, text, shown, after, a, b in rows
    ]


def figures(workspace: Workspace, run: int) -> list[tuple[int, str, float]]:
    """A run's figures as (step, name, value), in order, also while it is running: the data of a live view."""
    with workspace.read() as con:
        return con.execute("SELECT step, name, value FROM metrics WHERE run = ? ORDER BY step, name", [run]).fetchall()
