"""Runs: which part ran, when, with which settings, and the result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, TypeVar

from ..base.contract import Reported
from ..base.errors import Cancelled
from ..pool.choices import LETTER, choice_of
from ..pool.records import Options
from . import columns
from .numbers import next_run
from .since import decided_since, rows_since
from .workspace import Workspace

GRADING: Mapping[str, Any] = {
    "metric": "accuracy", "least": 1.0, "read": "auto", "judge": "", "prompt": "", "template": "",
}  # fmt: skip
"""What the settings of a run say of its grading (`llm.judge.Grader.told`); the values of a run that does not say."""

_GRADED = ", ".join(f"coalesce(settings ->> '$.graded_by.{name}', '{usual}')" for name, usual in GRADING.items())

GRADED = f"[{_GRADED}]"
"""The grading of a row of ``runs``: of answers graded in two ways no figure can be made."""

_LATEST = "SELECT coalesce(max(run), 0) FROM runs"


@dataclass(frozen=True, slots=True)
class Run:
    """A row of ``runs``; ``settings`` and ``summary`` are parsed."""

    run: int
    kind: str
    llm: str
    settings: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime | None
    status: str
    summary: Mapping[str, Any]


def start(workspace: Workspace, kind: str, llm: str, settings: Mapping[str, Any]) -> int:
    """Open a run and return its number: that of the job in which it is recorded, if it is one."""
    with workspace.write() as con:
        run = next_run(workspace.path, columns.number(con, _LATEST))
        con.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, NULL, 'running', '{}')",
            [run, kind, llm, json.dumps(settings, sort_keys=True), columns.now()],
        )
    return run


def latest_number(workspace: Workspace) -> int:
    """The number of the latest run of any kind and state; 0 before the first."""
    with workspace.read() as con:
        return columns.number(con, _LATEST)


def finish(workspace: Workspace, run: int, status: str, summary: Mapping[str, Any]) -> None:
    """Close a run as ``done``, ``failed`` or ``interrupted``."""
    with workspace.write() as con:
        con.execute(
            "UPDATE runs SET finished_at = ?, status = ?, summary = ? WHERE run = ?",
            [columns.now(), status, json.dumps(summary), run],
        )


@dataclass(slots=True)
class Record:
    """A run in progress: its ``summary`` is stored when it is done."""

    run: int
    summary: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def recorded(workspace: Workspace, kind: str, llm: str, settings: Mapping[str, Any]) -> Iterator[Record]:
    """Record a run from start to end: ``done`` with its summary, else ``interrupted`` or ``failed`` with the error,
    which is raised again."""
    record = Record(start(workspace, kind, llm, settings))
    try:
        yield record
    except BaseException as error:
        stopped = isinstance(error, (Cancelled, KeyboardInterrupt))
        finish(workspace, record.run, "interrupted" if stopped else "failed", {"error": str(error)})
        raise
    finish(workspace, record.run, "done", record.summary)


def keep_files(workspace: Workspace, run: int, digests: Mapping[str, str]) -> None:
    """Store the digests of the files that a run wrote, by name, replacing earlier ones."""
    with workspace.write() as con:
        con.execute("DELETE FROM model_files WHERE run = ?", [run])
        con.executemany("INSERT INTO model_files VALUES (?, ?, ?)", [[run, *each] for each in digests.items()])


def files(workspace: Workspace) -> dict[int, dict[str, str]]:
    """Digests of the files that runs wrote: by run, by name."""
    found: dict[int, dict[str, str]] = {}
    with workspace.read() as con:
        for run, name, digest in con.execute("FROM model_files ORDER BY run, name").fetchall():
            found.setdefault(run, {})[name] = digest
    return found


def add_evaluations(workspace: Workspace, outcomes: Mapping[str, columns.Column]) -> None:
    """Append per-query outcomes: the columns of ``evaluations``."""
    with workspace.write() as con:
        columns.insert(con, "evaluations", outcomes)


VALUE = "CASE WHEN state NOT IN ('failed', 'unjudged') THEN coalesce(value, CAST(state = 'right' AS DOUBLE)) END"
"""Of a row of ``evaluations``: how good it is, from 0 to 1, NULL if that is not known (`llm.marks`)."""


def grading_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The grading that the settings of a run tell of: runs with equal ones can be taken together."""
    told = settings.get("graded_by", {})
    return {name: told.get(name, usual) for name, usual in GRADING.items()}


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """A query under two methods: for each, the mean value over the seeds, 1 if all answered right (None: not asked, or
    not known), and the first seed's answer or the option whose letter it is (None: it had none, see ``failure``); and
    the demonstrations that the first method showed, by which rules its answer was read (``how``, empty if that is not
    known) and of which ``reply``, None if that is the answer."""

    row: int
    id: str
    input: str
    wanted: str
    right: float | None
    answer: str | None
    failure: str
    uncertainty: float | None
    demonstrations: list[int]
    other_right: float | None
    other_answer: str | None
    how: str = ""
    reply: str | None = None

    @property
    def gain(self) -> float:
        """The gain of the first method over the second: from -1 to 1."""
        return 0.0 if self.right is None or self.other_right is None else self.right - self.other_right


def outcomes(workspace: Workspace, run: int, method: str, other: str | None = None) -> list[QueryOutcome]:
    """The queries of an evaluation, lost ones first, then wrong ones."""
    with workspace.read() as con:
        rows = con.execute(
            f"""
            WITH seen AS (
                SELECT method, row, avg({VALUE}) AS share, arg_min_null(answer, seed) AS answer,
                       arg_min(failure, seed) AS failure, avg(uncertainty) AS uncertainty,
                       arg_min(demonstrations, seed) AS shown, arg_min_null(how, seed) AS how,
                       arg_min_null(reply, seed) AS reply
                  FROM evaluations WHERE run = ? AND method IN (?, ?) GROUP BY method, row
            )
            SELECT m.row, d.id, d.input, d.output, m.share, m.answer, m.failure, m.uncertainty, m.shown,
                   o.share, o.answer, coalesce(m.how, ''), m.reply, coalesce(o.how, ''), d.options
              FROM seen m JOIN demonstrations d ON d.row = m.row
              LEFT JOIN seen o ON o.row = m.row AND o.method = ? AND o.method <> m.method
             WHERE m.method = ? ORDER BY coalesce(m.share - o.share, 0), m.share NULLS LAST, m.row
            """,
            [run, method, other, other, method],
        ).fetchall()
    return [_outcome(QueryOutcome(*row), other_how, options) for *row, other_how, options in rows]


def _outcome(outcome: QueryOutcome, other_how: str, options: list[str]) -> QueryOutcome:
    """With the options that the answers name by their letters."""
    lettered = Options(options)

    def named(answer: str | None, how: str) -> str | None:
        chosen = choice_of(answer, lettered) if answer and LETTER in how else None
        return answer if chosen is None else options[chosen]

    answer, other = named(outcome.answer, outcome.how), named(outcome.other_answer, other_how)
    reply = outcome.answer if outcome.reply is None and answer != outcome.answer else outcome.reply
    return replace(outcome, answer=answer, other_answer=other, reply=reply)


def runs(workspace: Workspace, kind: str | None = None, limit: int = 50) -> list[Run]:
    """Runs of a kind, latest first."""
    return _select(workspace, "$kind IS NULL OR kind = $kind ORDER BY run DESC LIMIT $limit", kind=kind, limit=limit)


def _select(workspace: Workspace, which: str, **values: Any) -> list[Run]:
    """The rows of ``runs`` for which the end of a query, from its condition on, asks."""
    fields = "run, kind, llm, settings, started_at, finished_at, status, summary"
    with workspace.read() as con:
        rows = con.execute(f"SELECT {fields} FROM runs WHERE {which}", values).fetchall()
    return [
        Run(run, kind, llm, json.loads(asked), start, end, status, json.loads(came))
        for run, kind, llm, asked, start, end, status, came in rows
    ]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run, the batches of decisions that ``applied`` when it began, and what changed since: ``rows`` that
    came or went, ``decisions`` that apply now and did not then, or the reverse."""

    run: Run
    rows: int
    applied: frozenset[int]
    decisions: int


T = TypeVar("T", bound=Reported)


def readable(kind: type[T], found: Iterable[Run]) -> Iterator[tuple[Run, T]]:
    """Runs with their results, but for those that cannot be read: another release may have stored them."""
    for run in found:
        try:
            result = kind.from_json(run.summary)
        except ValueError:
            continue
        yield run, result


def no_trials(asked: Sequence[tuple[str, float]], there: Mapping[str, int]) -> list[bool]:
    """Which evaluations, each of a split and so many of its queries, asked at least half as many as any other of the
    split, or half of those that are still ``there``: a figure of a few is no baseline. An infinite number, one that is
    not known, is no trial and makes no other one."""
    most = {split: max((n for other, n in asked if other == split and n < inf), default=0) for split in dict(asked)}
    return [2 * count >= min(most[split], there.get(split) or most[split]) for split, count in asked]


def settings(workspace: Workspace, run: int) -> Mapping[str, Any]:
    """The settings of a run, by its number; empty if there is no such run."""
    found = numbered(workspace, run)
    return found.settings if found else {}


def numbered(workspace: Workspace, run: int) -> Run | None:
    return next(iter(_select(workspace, "run = $run", run=run)), None)


def latest(workspace: Workspace) -> list[FinishedRun]:
    """The latest finished run of every kind, oldest first."""
    wanted = "SELECT max(run) FROM runs WHERE status = 'done' GROUP BY kind"
    return [followed(workspace, run) for run in _select(workspace, f"run IN ({wanted}) ORDER BY run")]


def finished(workspace: Workspace, kind: str) -> list[Run]:
    """The finished runs of a kind, latest first."""
    return _select(workspace, "status = 'done' AND kind = $kind ORDER BY run DESC", kind=kind)


def rows_between(workspace: Workspace, one: Run, other: Run) -> int:
    """How many rows came or went between the beginnings of two runs."""
    since, until = sorted((one.started_at, other.started_at))
    with workspace.read() as con:
        return rows_since(con, since, until=until)


def followed(workspace: Workspace, run: Run) -> FinishedRun:
    """A run with what changed since: a look at all rows and decisions, so not for every run that there is."""
    with workspace.read() as con:
        return FinishedRun(run, rows_since(con, run.started_at), *decided_since(con, run.started_at))
