"""What an LLM answered, by run: trials (validation queries with single demonstrations) and the source scores learnt
from them, prompts of random subsets of the candidates, and the pool's own inputs, zero-shot (``train topics``) or with
other rows as shots (``train rows``); and what each demonstration did when it was added to a prompt in training the
ranker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.contract import Reported
from . import columns
from .runs import GRADED
from .workspace import Workspace

KIND = "train-sources"

_VALUE = "coalesce(value, CAST(correct AS DOUBLE))"
"""Of a row of trials, also where an earlier release stored it."""

UNLEARNT = ("leave-one-out", "reliability")
"""Estimators that learn no weights. Of those that do, which other rooms register, a run has one."""


@dataclass(frozen=True, slots=True)
class Trials:
    """One run's trials, query by query, best rank first; all columns (n,).

    ``answers`` are comparable texts: the same answers by the metric share one, and only they. ``right`` marks those
    from the metric's ``least`` on. ``grades``: their values from 0 to 1, None if it is 1 for a right one and 0 for a
    wrong one. Trials without an answer or a verdict are not included.
    """

    run: int
    queries: Int64s
    rows: Int64s
    sources: list[str]
    answers: list[str]
    right: Bools
    grades: Float64s | None = None

    @property
    def values(self) -> Float64s:
        """(n,) how good each answer is, from 0 to 1."""
        return self.right.astype(np.float64) if self.grades is None else self.grades


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
        "value": trials.values,
    }
    weights = [
        {"run": trials.run, "source": source, "estimator": estimator, "score": float(score)}
        for estimator, by_source in scores.items()
        for source, score in by_source.items()
    ]
    with workspace.write() as con:
        columns.insert(con, "source_trials", tried)
        columns.insert(con, "source_weights", columns.of_rows(weights))


Grading = Sequence[str]
"""How answers were graded (`runs.GRADED`); where it may be None, as in the latest run."""


def latest(workspace: Workspace, grading: Grading | None = None) -> Trials | None:
    """Trials of the best-founded finished run (`_best_run`), None before the first; without those of rows that were
    relabelled since."""
    with workspace.read() as con:
        run = _best_run(con, grading)
        if run is None:
            return None
        tried = con.execute(
            f"SELECT query, row, source, answer, correct, {_VALUE} AS value FROM source_trials"
            " ANTI JOIN outdated USING (run, row) WHERE run = ? ORDER BY place",
            [run],
        ).fetchnumpy()
    return Trials(
        run,
        np.asarray(tried["query"], np.int64),
        np.asarray(tried["row"], np.int64),
        [str(source) for source in tried["source"]],
        [str(answer) for answer in tried["answer"]],
        np.asarray(tried["correct"], np.bool_),
        np.asarray(tried["value"], np.float64),
    )


@dataclass(frozen=True, slots=True)
class SourceSummary(Reported):
    """A source as ``sources`` shows it. Scores, ``hits`` (trials) and ``accuracy`` (mean value of the answers with
    single demonstrations) are None if no training run included it."""

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


def source_summaries(workspace: Workspace, grading: Grading | None = None) -> list[SourceSummary]:
    """Every source of the pool with the scores of the best-founded run, by descending weight if there is a run."""
    with workspace.read() as con:
        run = _best_run(con, grading)
        rows = con.execute(
            f"""
            WITH sizes AS (
                SELECT p.source, count(*) AS demonstrations, count(a.row) AS active, count(d.row) AS duplicates
                  FROM pool p LEFT JOIN active a USING (row) LEFT JOIN duplicates d USING (row) GROUP BY p.source
            ), learnt AS (
                SELECT source, max(score) FILTER (NOT estimator IN (SELECT unnest(?::VARCHAR[]))) AS weight,
                       max(score) FILTER (estimator = 'leave-one-out') AS leave_one_out,
                       max(score) FILTER (estimator = 'reliability') AS reliability
                  FROM source_weights WHERE run = ? GROUP BY source
            ), tried AS (
                SELECT source, count(*) AS hits, avg({_VALUE}) AS accuracy
                  FROM source_trials ANTI JOIN outdated USING (run, row) WHERE run = ? GROUP BY source
            )
            SELECT source, weight, leave_one_out, reliability, demonstrations, active, duplicates, hits, accuracy,
                   active > 0
              FROM sizes LEFT JOIN learnt USING (source) LEFT JOIN tried USING (source)
             ORDER BY weight DESC NULLS LAST, source
            """,
            [list(UNLEARNT), run, run],
        ).fetchall()
    return [SourceSummary(*row) for row in rows]


def weights(workspace: Workspace, estimator: str = "", grading: Grading | None = None) -> dict[str, float]:
    """Scores of the best-founded run by source, the learnt weights without ``estimator``; empty before the first."""
    scores = scores_by_estimator(workspace, grading)
    return scores.get(estimator or next((name for name in scores if name not in UNLEARNT), ""), {})


def scores_by_estimator(workspace: Workspace, grading: Grading | None = None) -> dict[str, dict[str, float]]:
    """Scores of the best-founded run by estimator and source, the weights first; empty before the first."""
    with workspace.read() as con:
        rows: Sequence[tuple[str, str, float]] = con.execute(
            "SELECT estimator, source, score FROM source_weights WHERE run = ? ORDER BY estimator",
            [_best_run(con, grading)],
        ).fetchall()
    scores: dict[str, dict[str, float]] = {}
    for name, source, score in sorted(rows, key=lambda row: row[0] in UNLEARNT):
        scores.setdefault(name, {})[source] = score
    return scores


def _empty(con: duckdb.DuckDBPyConnection, rows: str, given: Sequence[Any] = ()) -> bool:
    """Whether there are none of these rows. Most commands learn here that nothing was trained: the queries that tell
    what was learnt take ten times as long, with rows or without."""
    return con.execute(f"SELECT 1 FROM {rows} LIMIT 1", given).fetchone() is None


def _best_run(con: duckdb.DuckDBPyConnection, grading: Grading | None = None) -> int | None:
    """The best-founded finished run: of those by the LLM and the grading of the latest one (of a ``grading``), that
    with the most trials of rows that are still in the pool as they were asked about, pruned ones included; of equal
    ones the latest. So a small run, as of what is left after pruning, replaces no larger one."""
    if _empty(con, "runs WHERE kind = ? AND status = 'done'", [KIND]):
        return None
    row = con.execute(
        f"""
        WITH done AS (
                SELECT run, list_concat([llm], {GRADED}) AS asked_as FROM runs
                 WHERE kind = $kind AND status = 'done' AND coalesce({GRADED} = $grading, true)
             ),
             kept AS (
                SELECT run, count(*) AS trials FROM source_trials JOIN pool USING (row)
                  ANTI JOIN outdated USING (run, row) GROUP BY run
             )
        SELECT run FROM done LEFT JOIN kept USING (run) WHERE asked_as = (SELECT arg_max(asked_as, run) FROM done)
         ORDER BY coalesce(trials, 0) DESC, run DESC LIMIT 1
        """,
        {"kind": KIND, "grading": grading},
    ).fetchone()
    return None if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The ``answers`` about demonstrations that runs of a ``kind`` have by other gradings alone; the latest ``run`` has
    ``grading``."""

    kind: str
    run: int
    grading: Grading
    answers: int


def graded_otherwise(workspace: Workspace, grading: Grading) -> list[LeftOut]:
    """The answers of kinds of finished runs that have none of this grading; the same prompt in two runs counts once."""
    kinds = [KIND, ROWS, PROMPTS, RANKER, ZERO_SHOT]
    with workspace.read() as con:
        if _empty(con, "runs WHERE status = 'done' AND list_contains(?, kind)", [kinds]):
            return []
        rows = con.execute(
            f"""
            WITH others AS (
                SELECT unnest(list(run)) AS run, kind, max(run) AS latest, arg_max({GRADED}, run) AS graded FROM runs
                 WHERE status = 'done' AND list_contains($kinds, kind) GROUP BY kind
                HAVING NOT bool_or({GRADED} = $grading)
            ), answered AS (
                SELECT run, [query, row] AS asked FROM source_trials
                UNION ALL SELECT run, [row] FROM row_answers
                UNION ALL SELECT run, list_prepend(query, shown) FROM prompt_trials
                UNION ALL SELECT run, list_prepend(query, shown) FROM ranker_steps
            )
            SELECT kind, latest, graded, count(DISTINCT asked) FROM others JOIN answered USING (run)
             GROUP BY ALL ORDER BY kind
            """,
            {"kinds": kinds, "grading": grading},
        ).fetchall()
    return [LeftOut(*row) for row in rows]


ROWS, ZERO_SHOT = "train-rows", "train-topics"


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


def save_answers(workspace: Workspace, run: int, given: RowAnswers) -> None:
    if not len(given.rows):
        return
    answered: dict[str, columns.Column] = {
        "run": np.full(len(given.rows), run),
        "row": given.rows,
        "shown": given.shown,
        "answer": given.answers,
        "correct": given.right,
        "score": np.ma.masked_array(given.scores, np.isnan(given.scores)),
    }
    with workspace.write() as con:
        columns.insert(con, "row_answers", answered)


def latest_answers(workspace: Workspace, zero_shot: bool, grading: Grading | None = None) -> RowAnswers:
    """The latest answer of each row, zero-shot or with shots, with the LLM and the grading of the latest such run (of a
    grading); empty before the first. Not of rows that were relabelled since."""
    rows: list[Any] = []
    with workspace.read() as con:
        if not _empty(con, "row_answers"):
            rows = con.execute(
                f"""
                WITH asked AS (
                    SELECT a.*, list_concat([llm], {GRADED}) AS asked_as
                      FROM row_answers a JOIN runs r USING (run) ANTI JOIN outdated USING (run, row)
                     WHERE (len(a.shown) = 0) = $zero_shot AND coalesce({GRADED} = $grading, true)
                ), own AS (
                    SELECT * FROM asked WHERE asked_as = (SELECT arg_max(asked_as, run) FROM asked)
                )
                SELECT row, answer, correct, score, shown FROM own
                QUALIFY row_number() OVER (PARTITION BY row ORDER BY run DESC) = 1 ORDER BY row
                """,
                {"zero_shot": zero_shot, "grading": grading},
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
    """One run's prompts; all columns (n,). ``shown``: the rows in each prompt, best first; ``right`` and ``grades`` as
    in `Trials`. Prompts without an answer or a verdict are not included."""

    run: int
    queries: Int64s
    shown: Sequence[Sequence[int]]
    right: Bools
    grades: Float64s | None = None

    @property
    def values(self) -> Float64s:
        """(n,) how good each answer is, from 0 to 1."""
        return self.right.astype(np.float64) if self.grades is None else self.grades


def save_prompts(workspace: Workspace, given: PromptTrials) -> None:
    """Store a run's prompts."""
    tried: dict[str, columns.Column] = {
        "run": np.full(len(given.queries), given.run),
        "query": given.queries,
        "shown": given.shown,
        "correct": given.right,
        "value": given.values,
    }
    with workspace.write() as con:
        columns.insert(con, "prompt_trials", tried)


def latest_prompts(workspace: Workspace, grading: Grading | None = None) -> PromptTrials | None:
    """Those of the latest finished run (of a ``grading``), None before the first; without prompts that showed a row
    that was relabelled since."""
    with workspace.read() as con:
        row = con.execute(
            f"SELECT max(run) FROM runs WHERE kind = $kind AND status = 'done' AND coalesce({GRADED} = $grading, true)",
            {"kind": PROMPTS, "grading": grading},
        ).fetchone()
        if row is None or row[0] is None:
            return None
        rows = con.execute(
            f"""
            SELECT query, shown, correct, {_VALUE} FROM prompt_trials
             WHERE run = $1 AND NOT list_has_any(shown, (SELECT coalesce(list(row), []) FROM outdated WHERE run = $1))
             ORDER BY query, shown
            """,
            [row[0]],
        ).fetchall()
    return PromptTrials(
        int(row[0]),
        np.array([query for query, *_ in rows], np.int64),
        [shown for _, shown, *_ in rows],
        np.array([right for _, _, right, _ in rows], np.bool_),
        np.array([value for *_, value in rows], np.float64),
    )


RANKER = "train-ranker"

_SEEN = f"""
    WITH by_run AS (
        SELECT run, list_concat([llm], {GRADED}) AS asked_as FROM runs
         WHERE kind = $kind AND status = 'done' AND coalesce({GRADED} = $grading, true)
    ), chosen AS (
        SELECT run FROM by_run WHERE asked_as = (
            SELECT asked_as FROM by_run SEMI JOIN ranker_steps USING (run) ORDER BY run DESC LIMIT 1
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


def save_ranker_batch(
    workspace: Workspace,
    run: int,
    step: int,
    metrics: Mapping[str, float],
    steps: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Store the ``steps`` (rows of ``ranker_steps``) and figures of a batch in one transaction."""
    run_figures: dict[str, columns.Column] = {
        "run": [run] * len(metrics),
        "step": [step] * len(metrics),
        "name": list(metrics),
        "value": [float(value) for value in metrics.values()],
    }
    with workspace.write() as con:
        columns.insert(con, "metrics", run_figures)
        if steps:
            columns.insert(con, "ranker_steps", columns.of_rows(steps))


def row_flips(workspace: Workspace, grading: Grading | None = None) -> list[RowFlips]:
    """Counts by row for every demonstration, not retired, that was shown in training with the LLM and the grading of
    the latest finished run (of a grading).

    All finished runs with these count.
    """
    with workspace.read() as con:
        if _empty(con, "ranker_steps"):
            return []
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
            {"kind": RANKER, "grading": grading},
        ).fetchall()
    return [RowFlips(*row) for row in rows]


def flips(workspace: Workspace, row: int, grading: Grading | None = None) -> list[Flip]:
    """The prompts whose answer flipped when the row was added, right → wrong first, then by query; those that
    `row_flips` counts."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            {_SEEN}
            SELECT s.run, s.query, q.id, q.input, s.shown, s.after, s.answer_before, s.answer_after
              FROM seen s JOIN demonstrations q ON q.row = s.query
             WHERE s.row = $row AND s.before <> s.after ORDER BY s.after, s.query, s.place
            """,
            {"kind": RANKER, "grading": grading, "row": row},
        ).fetchall()
    return [
        Flip(run, query, name, text, tuple(shown), after, a, b) for run, query, name, text, shown, after, a, b in rows
    ]


def run_figures(workspace: Workspace, run: int) -> list[tuple[int, str, float]]:
    """A run's figures as (step, name, value), in order, also while it is running: the data of a live view."""
    with workspace.read() as con:
        return con.execute("SELECT step, name, value FROM metrics WHERE run = ? ORDER BY step, name", [run]).fetchall()
