"""Answers of an LLM to the inputs of the pool's own rows: zero-shot (``train topics``), and with other rows as shots
(``train rows``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from . import columns
from .workspace import Workspace

KIND = "train-rows"


@dataclass(frozen=True, slots=True)
class RowAnswers:
    """One answer per row; all columns (n,). ``right``: it says what the row's own output says. ``scores``: how well
    the LLM likes the row's own output, higher is better, comparable within a run; nan if not known. ``shown``: the
    rows in the prompt, best first; none for zero-shot."""

    rows: Int64s
    answers: Sequence[str]
    right: Bools
    scores: Float64s
    shown: Sequence[Sequence[int]]


def save(workspace: Workspace, run: int, found: RowAnswers) -> None:
    """Store the answers of a run."""
    if not len(found.rows):
        return
    answered: dict[str, columns.Column] = {
        "run": np.full(len(found.rows), run),
        "row": found.rows,
        "shown": found.shown,
        "answer": found.answers,
        "correct": found.right,
        "score": np.ma.masked_array(found.scores, np.isnan(found.scores)),
    }
    with workspace.write() as con:
        columns.insert(con, "row_answers", answered)


def latest(workspace: Workspace, zero_shot: bool) -> RowAnswers:
    """The latest answer of each row, zero-shot or with shots, with the LLM of the latest such run; empty before the
    first. Not of rows that were relabelled since."""
    with workspace.read() as con:
        rows = con.execute(
            """
            WITH asked AS (
                SELECT a.*, r.llm FROM row_answers a JOIN runs r USING (run) ANTI JOIN outdated USING (run, row)
                 WHERE (len(a.shown) = 0) = ?
            ), own AS (
                SELECT * FROM asked WHERE llm = (SELECT llm FROM asked ORDER BY run DESC LIMIT 1)
            )
            SELECT row, answer, correct, score, shown FROM own
            QUALIFY row_number() OVER (PARTITION BY row ORDER BY run DESC) = 1 ORDER BY row
            """,
            [zero_shot],
        ).fetchall()
    return RowAnswers(
        np.array([row for row, *_ in rows], np.int64),
        [answer for _, answer, *_ in rows],
        np.array([right for _, _, right, *_ in rows], np.bool_),
        np.array([np.nan if score is None else score for *_, score, _ in rows], np.float64),
        [shown for *_, shown in rows],
    )
