"""What an LLM answered, by run: trials (validation queries with single demonstrations) and the source scores learnt
from them, prompts of random subsets of the candidates, and the pool's own inputs, zero-shot (``train topics``) or with
other rows as shots (``train rows``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.contract import Reported
from . import columns
from .workspace import Workspace

KIND = "train-sources"

UNLEARNT = ("leave-one-out", "reliability")
"""Estimators that learn no weights. Of those that do, which other rooms register, a run has one."""


@dataclass(frozen=True, slots=True)
class Trials:
    """One run's trials, query by query, best rank first; all columns (n,).

    ``answers`` are comparable texts (the option named, or the normalised answer); ``right`` marks the accepted ones.
    Trials whose call failed are not included.
    """

    run: int
    queries: Int64s
    rows: Int64s
    sources: list[str]
    answers: list[str]
    right: Bools


def save(workspace: Workspace, trials: Trials, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Store a run's trials and its ``scores`` (estimator → source → score) in one transaction."""
    tried: dict[str, columns.Column] = {
        "run": np.full(len(trials.rows), trials.run),
        "place": np.arange(len(trials.rows)),
        "query": trials.queries,
        "row": trials.rows,
        "source": trials.sources,
        "answer": trials.answers,
        "correct": trials.right,
    }
    weights = [
        {"run": trials.run, "source": source, "estimator": estimator, "score": float(score)}
        for estimator, by_source in scores.items()
        for source, score in by_source.items()
    ]
    with workspace.write() as con:
        columns.insert(con, "source_trials", tried)
        columns.insert(con, "source_weights", columns.of_rows(weights))


def latest(workspace: Workspace) -> Trials | None:
    """Trials of the best-founded finished run (`_best_run`), None before the first; without those of rows that were
    relabelled since."""
    with workspace.read() as con:
        run = _best_run(con)
        if run is None:
            return None
        found = con.execute(
            "SELECT query, row, source, answer, correct FROM source_trials ANTI JOIN outdated USING (run, row)"
            " WHERE run = ? ORDER BY place",
            [run],
        ).fetchnumpy()
    return Trials(
        run,
        np.asarray(found["query"], np.int64),
        np.asarray(found["row"], np.int64),
        [str(source) for source in found["source"]],
        [str(answer) for answer in found["answer"]],
        np.asarray(found["correct"], np.bool_),
    )


@dataclass(frozen=True, slots=True)
class SourceSummary(Reported):
    """A source as ``sources`` shows it. Scores, ``hits`` (trials) and ``accuracy`` (share of right answers with single
    demonstrations) are None if no training run included it."""

    source: str
    weight: float | None
    leave_one_out: float | None
    reliability: float | None
    demonstrations: int
    active: int
    duplicates: int
    hits: int | None
    accuracy: float | None
    kept: bool


def source_summaries(workspace: Workspace) -> list[SourceSummary]:
    """Every source of the pool with the scores of the best-founded run, by descending weight if there is a run."""
    with workspace.read() as con:
        run = _best_run(con)
        rows = con.execute(
            """
            WITH sizes AS (
                SELECT p.source, count(*) AS demonstrations, count(a.row) AS active, count(d.row) AS duplicates
                  FROM pool p LEFT JOIN active a USING (row) LEFT JOIN duplicates d USING (row) GROUP BY p.source
            ), learnt AS (
                SELECT source, max(score) FILTER (NOT estimator IN (SELECT unnest(?::VARCHAR[]))) AS weight,
                       max(score) FILTER (estimator = 'leave-one-out') AS leave_one_out,
                       max(score) FILTER (estimator = 'reliability') AS reliability
                  FROM source_weights WHERE run = ? GROUP BY source
            ), tried AS (
                SELECT source, count(*) AS hits, avg(CAST(correct AS DOUBLE)) AS accuracy
                  FROM source_trials WHERE run = ? GROUP BY source
            )
            SELECT source, weight, leave_one_out, reliability, demonstrations, active, duplicates, hits, accuracy,
                   active > 0
              FROM sizes LEFT JOIN learnt USING (source) LEFT JOIN tried USING (source)
             ORDER BY weight DESC NULLS LAST, source
            """,
            [list(UNLEARNT), run, run],
        ).fetchall()
    return [SourceSummary(*row) for row in rows]


def weights(workspace: Workspace, estimator: str = "") -> dict[str, float]:
    """Scores of the best-founded run by source, the learnt weights without ``estimator``; empty before the first."""
    scores = scores_by_estimator(workspace)
    return scores.get(estimator or next((name for name in scores if name not in UNLEARNT), ""), {})


def scores_by_estimator(workspace: Workspace) -> dict[str, dict[str, float]]:
    """Scores of the best-founded run by estimator and source, the weights first; empty before the first."""
    with workspace.read() as con:
        rows: Sequence[tuple[str, str, float]] = con.execute(
            "SELECT estimator, source, score FROM source_weights WHERE run = ? ORDER BY estimator", [_best_run(con)]
        ).fetchall()
    scores: dict[str, dict[str, float]] = {}
    for name, source, score in sorted(rows, key=lambda row: row[0] in UNLEARNT):
        scores.setdefault(name, {})[source] = score
    return scores


def _best_run(con: duckdb.DuckDBPyConnection) -> int | None:
    """The best-founded finished run: of those by the LLM of the latest one, that with the most trials of rows that are
    still in the pool as they were asked about, pruned ones included; of equal ones the latest. So a small run, as of
    what is left after pruning, replaces no larger one."""
    row = con.execute(
        """
        WITH done AS (SELECT run, llm FROM runs WHERE kind = ? AND status = 'done'),
             kept AS (
                SELECT run, count(*) AS trials FROM source_trials JOIN pool USING (row)
                  ANTI JOIN outdated USING (run, row) GROUP BY run
             )
        SELECT run FROM done LEFT JOIN kept USING (run) WHERE llm = (SELECT arg_max(llm, run) FROM done)
         ORDER BY coalesce(trials, 0) DESC, run DESC LIMIT 1
        """,
        [KIND],
    ).fetchone()
    return None if row is None else int(row[0])


ROWS = "train-rows"


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


def save_answers(workspace: Workspace, run: int, found: RowAnswers) -> None:
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


def latest_answers(workspace: Workspace, zero_shot: bool) -> RowAnswers:
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


PROMPTS = "train-datamodel"


@dataclass(frozen=True, slots=True)
class PromptTrials:
    """One run's prompts; all columns (n,). ``shown``: the rows in each prompt, best first; ``right`` marks accepted
    answers. Prompts whose call failed are not included."""

    run: int
    queries: Int64s
    shown: Sequence[Sequence[int]]
    right: Bools


def save_prompts(workspace: Workspace, found: PromptTrials) -> None:
    """Store a run's prompts."""
    tried: dict[str, columns.Column] = {
        "run": np.full(len(found.queries), found.run),
        "query": found.queries,
        "shown": found.shown,
        "correct": found.right,
    }
    with workspace.write() as con:
        columns.insert(con, "prompt_trials", tried)


def latest_prompts(workspace: Workspace) -> PromptTrials | None:
    """Those of the latest finished run, None before the first; without prompts that showed a row that was relabelled
    since."""
    with workspace.read() as con:
        row = con.execute("SELECT max(run) FROM runs WHERE kind = ? AND status = 'done'", [PROMPTS]).fetchone()
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
