"""What was measured: prunings confirmed with served prompts, evaluations, and the same method before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from ..base.arrays import Float64s
from ..curate.plan import KIND as CURATE
from ..curate.plan import CurationReport
from ..curate.results import KIND as TUNE
from ..curate.results import TuneReport
from ..evaluate.results import AS_INDEXED, EvaluationReport, stored_evaluations, without_trials
from ..evaluate.results import KIND as EVALUATE
from ..evaluate.statistics import compare
from ..llm.marks import figure
from ..store.decisions import DecisionBatch
from ..store.demonstrations import rows_by_split
from ..store.runs import VALUE, Run, readable
from ..store.workspace import Workspace
from .results import Compared, Confirmed, Evaluated, Interval, Outcome

MOST = 50
"""Maximum evaluations in a report, the latest: each needs the state of the pool at its time."""

IRRELEVANT = frozenset(
    {"attempts", "concurrency", "device", "encoder_price", "method", "price_in", "price_out", "timeout"}
)
"""Settings that do not change what an evaluation measures; its methods are given apart."""

_STATE = """
    WITH gone AS (
        SELECT TRY_CAST(target AS BIGINT) AS batch FROM decisions WHERE scope = 'batch' AND decided_at < $at
         GROUP BY target HAVING batch IS NOT NULL AND arg_max(action, seq) = 'undo'
    ), there AS (
        SELECT row, id, source, output FROM demonstrations
         WHERE split = 'pool' AND indexed_at < $at AND (retired_at IS NULL OR retired_at >= $at)
    ), taken AS (
        SELECT seq, action, scope, target FROM decisions WHERE decided_at < $at AND batch NOT IN (FROM gone)
    ), said AS (
        SELECT t.row, d.seq, d.action FROM there t JOIN taken d ON d.scope = 'source' AND d.target = t.source
        UNION ALL
        SELECT t.row, d.seq, d.action FROM there t JOIN taken d ON d.scope = 'demonstration' AND d.target = t.id
    ), pruned AS (
        SELECT row FROM said GROUP BY row HAVING arg_max(action, seq) = 'prune'
    ), changed AS (
        SELECT row, arg_max(output, changed_at) AS output FROM output_changes WHERE changed_at < $at GROUP BY row
    ), outputs AS (
        SELECT t.row, coalesce(r.output, t.output) AS read, coalesce(c.output, r.output, t.output) AS applied
          FROM there t LEFT JOIN outputs_as_read r USING (row) LEFT JOIN changed c USING (row)
    )
    SELECT count(*) FILTER (row NOT IN (FROM pruned)),
           bit_xor(hash(row, applied)) FILTER (row NOT IN (FROM pruned)),
           bit_xor(hash(row, read)), count(*)
      FROM outputs
"""


@dataclass(frozen=True, slots=True)
class _State:
    """The active pool at a time: its rows, a hash of them with their outputs, and those without any decision."""

    active: int
    content: int | None
    as_read: int | None
    pool: int

    @property
    def untouched(self) -> bool:
        return (self.active, self.content) == (self.pool, self.as_read)


def curations(found: Sequence[Run]) -> tuple[CurationReport, ...]:
    """The stored results of `curate`, oldest first; of a run carried out in parts, the last part, which has all."""
    done = [report for _, report in readable(CurationReport, (run for run in found if run.kind == CURATE))]
    return tuple(one for one in done if one.following is None or one is done[-1])


def parts_of_curations(done: Sequence[Run]) -> dict[int, int]:
    """By run, the run of `curate` that carried it out."""
    whole = [run for run in done if run.kind == CURATE]
    return {
        run.run: outer.run
        for run in done
        for outer in whole
        if run is not outer and outer.run < run.run and _within(run.started_at, outer)
    }


def confirmed(found: Sequence[Run], history: Sequence[DecisionBatch]) -> tuple[Confirmed, ...]:
    """The stored confirmations of prunings, oldest first; those in which nothing was asked are left out."""
    parts = parts_of_curations(found)
    races = readable(TuneReport, (run for run in found if run.kind == TUNE))
    reports = [_confirmed(run, tuned, history, parts.get(run.run)) for run, tuned in races]
    return tuple(one for one in reports if one is not None)


def evaluated(workspace: Workspace, found: Sequence[Run]) -> tuple[tuple[Evaluated, ...], tuple[Compared, ...]]:
    """The methods of the stored evaluations, oldest first, and those that were evaluated before and after."""
    stored = stored_evaluations([run for run in found if run.kind in (EVALUATE, AS_INDEXED)])[-MOST:]
    if not stored:
        return (), ()
    now = _state(workspace, datetime.max.replace(year=9000))
    methods: list[Evaluated] = []
    for evaluation in stored:
        state = _state(workspace, evaluation.started_at)
        if evaluation.report.setup.as_indexed:
            state = replace(state, active=state.pool, content=state.as_read)
        as_now = (state.active, state.content) == (now.active, now.content)
        methods += _methods(evaluation.report, evaluation.started_at, state, as_now)
    by_run = {one.report.run: one.report for one in stored}
    return tuple(methods), tuple(_compared(workspace, methods, by_run))


def _confirmed(run: Run, tuned: TuneReport, history: Sequence[DecisionBatch], part_of: int | None) -> Confirmed | None:
    measured = tuned.confirmed
    if measured is None:
        return None
    baseline = next((each for each in tuned.candidates if not each.changes), None)
    low, high = (baseline and baseline.interval) or (measured.before, measured.before)
    chosen = tuned.chosen
    return Confirmed(
        run=run.run,
        part_of=part_of,
        llm=tuned.llm,
        method=tuned.served.method,
        k=tuned.served.k,
        queries=measured.queries,
        available=measured.available,
        before=Interval(measured.before, low, high),
        after=Interval(measured.after, _share(measured.before + measured.low), _share(measured.before + measured.high)),
        gain=Interval(measured.gain, measured.low, measured.high),
        proposed=tuned.proposed,
        pruned_rows=chosen.pruned_rows if chosen else 0,
        relabelled=chosen.relabelled if chosen else 0,
        outcome=_outcome(tuned, run, history),
        calls=measured.calls,
        measured_at=told(run.started_at),
        graded_by=tuned.graded_by,
    )


MADE = ("prune", "relabel", "prune and relabel")
"""The actions of decisions on what a race confirmed."""


def _outcome(tuned: TuneReport, run: Run, history: Sequence[DecisionBatch]) -> Outcome:
    """What was decided on it: the decision has its targets, whatever reason was given."""
    if not tuned.worth_it:
        return "not beyond noise"
    wanted = {*tuned.pruned, *tuned.pruned_rows, *tuned.relabelled}
    made = [
        entry
        for entry in history
        if entry.action in MADE and entry.decided_at >= run.started_at and set(entry.targets) == wanted
    ]
    if any(not entry.undone for entry in made):
        return "pruned"
    return "undone" if made else "not pruned"


def _state(workspace: Workspace, at: datetime) -> _State:
    with workspace.read() as con:
        row = con.execute(_STATE, {"at": at}).fetchone()
    assert row is not None
    return _State(*row)


def _methods(report: EvaluationReport, at: datetime, state: _State, as_now: bool) -> Iterable[Evaluated]:
    setup = report.setup
    for name, figures in report.methods.items():
        yield Evaluated(
            run=report.run,
            split=setup.split,
            llm=setup.llm,
            method=name,
            k=setup.k,
            queries=setup.queries,
            seeds=figures.seeds,
            metric=setup.metric,
            accuracy=Interval(figures.accuracy, *figures.ci95)
            if figures.accuracy is not None and figures.ci95
            else None,
            active=state.active,
            as_read=state.untouched,
            as_now=as_now,
            trained_on=name in report.trained_on,
            untrained=name in report.untrained,
            measured_at=told(at),
            outcomes=figure(figures.accuracy, outcomes=tally) if (tally := figures.outcomes) and tally.told else "",
            hint=figures.hint,
            graded_by=setup.graded_by,
        )


def _compared(
    workspace: Workspace, methods: Sequence[Evaluated], reports: dict[int, EvaluationReport]
) -> Iterable[Compared]:
    """The latest evaluation of each method with the pool as it was read beside the latest with the pool as it is; none
    of which too much is missing, nor a trial (`without_trials`)."""
    with workspace.read() as con:
        there = rows_by_split(con)
    pairs: dict[tuple[object, ...], dict[bool, dict[int, Evaluated]]] = {}
    for tried in methods:
        report = reports[tried.run]
        if tried.as_read != tried.as_now and report.methods[tried.method].comparable:  # both: nothing was decided
            pair = pairs.setdefault(asked(report, tried.method), {})
            pair.setdefault(tried.as_now, {})[tried.run] = tried
    for pair in pairs.values():
        if len(pair) == 2:
            before, after = (
                alike[without_trials((reports[run] for run in alike), there)[-1].run]
                for alike in (pair[False], pair[True])
            )
            was, now = paired(workspace, before.method, before.run, after.run)
            if not was.size:
                continue
            found = compare(now, was)
            yield Compared(
                before.run, after.run, after.split, after.llm, after.method, after.k, int(was.size),
                float(was.mean()), float(now.mean()), Interval(found.difference, found.low, found.high), found.p,
                before.metric,
            )  # fmt: skip


def asked(report: EvaluationReport, method: str) -> tuple[object, ...]:
    """What two evaluations of a method must share to be compared."""
    setup = report.setup
    settings = {name: str(value) for name, value in setup.settings.items() if name not in IRRELEVANT}
    return setup.split, setup.llm, method, setup.k, setup.metric, tuple(sorted(settings.items()))


def paired(workspace: Workspace, method: str, before: int, after: int) -> tuple[Float64s, Float64s]:
    """Of two evaluations, by run, the values of the queries that both know, (n,), (n,): means over the seeds."""
    with workspace.read() as con:
        means = con.execute(
            f"""
            SELECT avg({VALUE}) FILTER (run = $before) AS was, avg({VALUE}) FILTER (run = $after) AS is_now
              FROM evaluations WHERE run IN ($before, $after) AND method = $method
             GROUP BY row HAVING was IS NOT NULL AND is_now IS NOT NULL ORDER BY row
            """,
            {"before": before, "after": after, "method": method},
        ).fetchnumpy()
    return np.asarray(means["was"], np.float64), np.asarray(means["is_now"], np.float64)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _within(moment: datetime, outer: Run) -> bool:
    return outer.started_at <= moment and (outer.finished_at is None or moment <= outer.finished_at)


def told(moment: datetime | None) -> str:
    """A time of the workspace, which is UTC, to the second."""
    return "" if moment is None else moment.isoformat(sep=" ", timespec="seconds")
