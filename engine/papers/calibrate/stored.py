"""Calibration rounds (every prompt, answer and score, and the mean uncertainty of a set), and reviews of calibrated
answers: an accepted answer, a note, or both; append-only, the latest review applies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...base.contract import from_json
from ...store import columns
from ...store.decisions import me
from ...store.runs import GRADED, Run, numbered
from ...store.workspace import Workspace
from .results import RoundsVerdict

KIND = "calibrate"


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as shown in the prompt; ``row`` of a demonstration."""

    id: str
    row: int | None
    text: str
    score: float | None


@dataclass(frozen=True, slots=True)
class StoredRound:
    """An answer; ``messages`` are (role, content) pairs; ``correct`` is None if no reference was known."""

    round: int
    messages: tuple[tuple[str, str], ...]
    answer: str
    uncertainty: float
    score: float
    correct: bool | None


@dataclass(frozen=True, slots=True)
class StoredCase:
    """An indexed query with its documents (best first for demonstrations) and rounds."""

    query: int
    over: str
    documents: tuple[StoredDocument, ...]
    rounds: tuple[StoredRound, ...]


def append(workspace: Workspace, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to ``calibrations``, ``calibration_documents`` or ``calibration_rounds``, in one transaction."""
    if not rows:
        return
    with workspace.write() as con:
        columns.insert(con, table, columns.of_rows(rows))


def save_mean(workspace: Workspace, llm: str, estimator: str, over: str, mean: float, answers: int, run: int) -> None:
    """Store the mean uncertainty of a set: the latest one belongs to the current pool and prompts."""
    with workspace.write() as con:
        con.execute(
            """
            INSERT INTO uncertainty_means VALUES ($llm, $estimator, $over, $mean, $answers, $run)
                ON CONFLICT DO UPDATE SET mean = excluded.mean, answers = excluded.answers, run = excluded.run
            """,
            {"llm": llm, "estimator": estimator, "over": over, "mean": mean, "answers": answers, "run": run},
        )


def mean_of(workspace: Workspace, llm: str, estimator: str, over: str) -> tuple[float, int, int] | None:
    """Mean uncertainty, number of answers and run; None if no set was calibrated."""
    with workspace.read() as con:
        row = con.execute(
            "SELECT mean, answers, run FROM uncertainty_means WHERE llm = ? AND estimator = ? AND over = ?",
            [llm, estimator, over],
        ).fetchone()
    return None if row is None else (float(row[0]), int(row[1]), int(row[2]))


def latest(workspace: Workspace, arm: str, split: str) -> Run | None:
    """The latest finished run that calibrated queries of this split with this arm."""
    with workspace.read() as con:
        row = con.execute(
            """
            SELECT c.run FROM calibrations c JOIN runs r USING (run) JOIN demonstrations d ON d.row = c.query
             WHERE c.arm = ? AND d.split = ? AND r.status = 'done'
               AND json_extract_string(r.settings, '$.split') = d.split
             ORDER BY c.run DESC LIMIT 1
            """,
            [arm, split],
        ).fetchone()
    return None if row is None else numbered(workspace, int(row[0]))


@dataclass(frozen=True, slots=True)
class Final:
    """The final answer of a query; ``correct`` is None if no reference was known."""

    round: int
    answer: str
    uncertainty: float
    correct: bool | None


def finals(workspace: Workspace, llm: str, arm: str) -> dict[int, Final]:
    """By query row, the final answer of its latest finished run with this LLM and arm; whether it is right, only if it
    was graded as in the latest of these runs."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            SELECT c.query, t.round, t.answer, t.uncertainty,
                   CASE WHEN {GRADED} = arg_max({GRADED}, c.run) OVER () THEN t.correct END
              FROM calibrations c JOIN runs r USING (run)
              JOIN calibration_rounds t ON (t.run, t.arm, t.place, t.round) = (c.run, c.arm, c.place, c.final)
             WHERE r.llm = ? AND c.arm = ? AND r.status = 'done' AND c.query IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY c.query ORDER BY c.run DESC) = 1
            """,
            [llm, arm],
        ).fetchall()
    return {query: Final(*row) for query, *row in rows}


def latest_verdict(workspace: Workspace, llm: str) -> RoundsVerdict | None:
    """On the rounds of this LLM, by its latest finished run over a set; None if that has none."""
    with workspace.read() as con:
        row = con.execute(
            """
            SELECT summary ->> 'verdict' FROM runs WHERE kind = ? AND llm = ? AND status = 'done'
               AND settings ->> 'split' <> '' ORDER BY run DESC LIMIT 1
            """,
            [KIND, llm],
        ).fetchone()
    return from_json(RoundsVerdict, json.loads(row[0])) if row and row[0] else None


Pair = tuple[float | None, float | None]
"""The value of an answer by the metric, and its F1; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A calibration of a set by one LLM with one arm. ``queries``: by row, of the first answer and of the final one."""

    run: int
    llm: str
    arm: str
    rounds: int
    queries: dict[int, tuple[Pair, Pair]]


def latest_outcomes(workspace: Workspace, split: str) -> list[Outcomes]:
    """The latest finished calibration of queries of ``split`` by each LLM and arm, in the order of their first ones, of
    those that were graded as the latest of all; an answer that is missing is not known, but that to a refused prompt is
    wrong (`llm.marks`)."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            WITH calibrated AS (
                SELECT run, llm, settings, {GRADED} AS graded FROM runs
                 WHERE status = 'done' AND kind = '{KIND}' AND json_extract_string(settings, '$.split') = $split
            ), finished AS (
                SELECT c.run, r.llm, c.arm, c.place, c.query, c.final,
                       CASE WHEN split_part(c.failure, ':', 1) IN ('refusal', 'context', 'request') THEN 0 END AS none,
                       min(c.run) OVER (PARTITION BY r.llm) AS first_run,
                       max(c.run) OVER (PARTITION BY r.llm, c.arm) AS last_run,
                       CAST(json_extract(r.settings, '$.rounds') AS INTEGER) AS rounds
                  FROM calibrations c JOIN calibrated r USING (run)
                 WHERE c.query IS NOT NULL AND r.graded = (SELECT arg_max(graded, run) FROM calibrated))
            SELECT f.run, f.llm, f.arm, f.rounds, f.query, coalesce(a.value, CAST(a.correct AS DOUBLE), f.none),
                   coalesce(a.f1, f.none), coalesce(b.value, CAST(b.correct AS DOUBLE), f.none), coalesce(b.f1, f.none)
              FROM finished f
              LEFT JOIN calibration_rounds a ON (a.run, a.arm, a.place, a.round) = (f.run, f.arm, f.place, 0)
              LEFT JOIN calibration_rounds b ON (b.run, b.arm, b.place, b.round) = (f.run, f.arm, f.place, f.final)
             WHERE f.run = f.last_run
             ORDER BY f.first_run, f.arm = 'full' DESC, f.arm, f.place
            """,
            {"split": split},
        ).fetchall()
    found: dict[tuple[int, str], Outcomes] = {}
    for run, llm, arm, rounds, query, *figures in rows:
        own = found.setdefault((run, arm), Outcomes(run, llm, arm, rounds, {}))
        own.queries[query] = ((figures[0], figures[1]), (figures[2], figures[3]))
    return list(found.values())


def stored_cases(workspace: Workspace, run: int, arm: str) -> list[StoredCase]:
    """The indexed queries of a run with their documents and rounds, in the order of the run."""
    with workspace.read() as con:
        cases = con.execute(
            """
            SELECT place, query, over FROM calibrations WHERE run = ? AND arm = ? AND query IS NOT NULL ORDER BY place
            """,
            [run, arm],
        ).fetchall()
        documents = con.execute(
            "SELECT place, id, row, text, score FROM calibration_documents WHERE run = ? ORDER BY place, document",
            [run],
        ).fetchall()
        rounds = con.execute(
            """
            SELECT place, round, prompt, answer, uncertainty, score, correct FROM calibration_rounds
             WHERE run = ? AND arm = ? ORDER BY place, round
            """,
            [run, arm],
        ).fetchall()
    shown: dict[int, list[StoredDocument]] = {}
    for place, name, row, text, score in documents:
        shown.setdefault(place, []).append(StoredDocument(name, row, text, score))
    turns: dict[int, list[StoredRound]] = {}
    for place, number, prompt, *rest in rounds:
        messages = tuple((role, content) for role, content in json.loads(prompt))
        turns.setdefault(place, []).append(StoredRound(number, messages, *rest))
    return [
        StoredCase(query, over, tuple(shown.get(place, ())), tuple(turns.get(place, ())))
        for place, query, over in cases
    ]


@dataclass(frozen=True, slots=True)
class Review:
    """The latest review of a query's answers by one LLM. ``round`` is that of the accepted answer, None if none is
    accepted."""

    query: int
    round: int | None
    answer: str
    note: str
    who: str
    reviewed_at: datetime


def save_review(workspace: Workspace, llm: str, query: int, round: int | None, answer: str, note: str) -> None:
    """Add a review of the answers of ``llm`` (a spec) to the query of this row. Without answer and note it withdraws
    the earlier ones."""
    with workspace.write() as con:
        con.execute(
            """
            INSERT INTO calibration_reviews
            SELECT coalesce(max(seq), 0) + 1, $moment, $who, $llm, $query, $round, $answer, $note
              FROM calibration_reviews
            """,
            {
                "moment": datetime.now(UTC).replace(tzinfo=None),
                "who": me(),
                "llm": llm,
                "query": query,
                "round": round,
                "answer": answer,
                "note": note,
            },
        )


def reviews(workspace: Workspace, llm: str) -> dict[int, Review]:
    """Current reviews by query row, without withdrawn ones."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT query, round, answer, note, who, reviewed_at FROM calibration_reviews WHERE llm = ?
            QUALIFY row_number() OVER (PARTITION BY query ORDER BY seq DESC) = 1
            """,
            [llm],
        ).fetchall()
    found = [Review(*row) for row in rows]
    return {one.query: one for one in found if one.round is not None or one.note}
