"""`curate`: all methods in one run within a budget, from checks to the method that is served.

A run that was stopped goes on: what it has done is kept in the workspace (`STATE`) after each step, every answer is
cached, and the calls since it began count as its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from .. import contract
from ..checks.ask import RowPlan, RowTraining
from ..checks.groups import prunable
from ..disk import read_regular
from ..errors import UsageError
from ..files import replace_file
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..progress import Event, silent
from ..ranker.policy import Inputs
from ..ranker.train import RankerPlan, RankerTraining
from ..select.lock import Judged, lock
from ..sources.train import SourcePlan, SourceTraining
from ..sources.use import NOISE
from ..store import calls, runs
from ..store.browse import pruned_rows
from ..store.decisions import decide, history, prune_together
from ..store.demonstrations import active_sources
from ..store.trials import source_summaries
from ..store.versions import save_version
from .candidates import propose
from .evidence import gather
from .plan import (
    ENOUGH,
    KIND,
    PER_CANDIDATE,
    ROUNDS,
    CurationReport,
    Name,
    StepDone,
    kept_back,
    most_candidates,
    planned,
    share_of,
    trials_of,
)
from .results import TuneReport
from .serving import RIVALS, ServingRace, ServingReport, served_prompts
from .tune import Tuning, TuningPlan, check_method, validation

TASK = "curate"
STATE = "curate.json"
"""The file of a workspace with what an unfinished run has done."""

RANKER = RankerPlan(epochs=0, trials=40, inputs=Inputs(30, "dense", "row", (), 0.1, "similarity"))
"""The ranker that learns from answers to single demonstrations, with the settings of docs/evidence.md."""


@dataclass(frozen=True, slots=True)
class CurationPlan:
    """``max_calls`` or ``max_cost`` (US dollars) limit the run; ``noise``: the least gain of a decision, in standard
    errors. ``one_step``: carry out the next step only. ``propose``: decide nothing. ``anew``: do not go on with a run
    that was stopped."""

    max_calls: int | None = None
    max_cost: float | None = None
    noise: float = NOISE
    one_step: bool = False
    propose: bool = False
    anew: bool = False

    def __post_init__(self) -> None:
        if self.max_calls is None and self.max_cost is None:
            raise UsageError("how much may it cost?", "give --max-calls 1000, or --max-cost with prices")


@dataclass(frozen=True, slots=True)
class _Pending:
    """A confirmed pruning that is about to be decided."""

    step: StepDone
    sources: tuple[str, ...]
    rows: tuple[str, ...]
    reason: str
    gain: float


@dataclass(slots=True)
class _Progress:
    """What a run has done so far; the content of `STATE`. ``since``: when it began; ``pruned_last``: its latest race
    pruned something; ``gained``: the sum of the confirmed gains."""

    key: dict[str, Any]
    since: str
    steps: tuple[StepDone, ...] = ()
    rounds: int = 0
    pruned_last: bool = False
    before: float | None = None
    gained: float = 0.0
    served: str = ""
    pending: _Pending | None = None


class Curation:
    """A prepared run: its steps are planned, nothing has been sent yet.

    Raises `UsageError` if there is no limit, if there are too few validation queries, or if the method of the client's
    settings cannot be raced.
    """

    def __init__(self, llm: LLMClient, plan: CurationPlan) -> None:
        self.llm, self.plan = llm, plan
        self.workspace, self.settings = llm.workspace, llm.settings
        check_method(self.settings.method, self.settings.k)
        self.queries = validation(llm, None)
        self.requests, shown = served_prompts(llm, self.queries, self.settings.method)
        self.calls = self._limit()
        known = gather(self.workspace, self.settings, silent, llm.cancel)
        suspected = set(known.suspected.tolist())
        self.suspected = float(np.mean([bool(suspected & set(rows)) for rows in shown]))
        self.by_source = len(set(known.sources)) > 1 and any(request.prompt.choices for request in self.requests)
        self.free = len(propose(known, self.settings.k)) > 1
        self.steps = planned(self.calls, self.suspected, self.free, RIVALS, self._commands())
        self._do: dict[Name, Callable[[_Progress, Budget], StepDone]] = {
            "check": self._check,
            "ask": self._ask,
            "confirm": self._confirm,
            "rank": self._rank,
            "choose": self._choose,
        }

    def cost(self) -> Plan:
        """At most: every call of the limit, each of the size of a served prompt."""
        one = self.llm.plan(self.requests)
        each = one.to_ask or one.distinct
        many = self.calls / max(each, 1)

        def scaled(low: float, high: float) -> tuple[int, int]:
            return round(low * many), round(high * many)

        cost = None if one.cost is None else (one.cost[0] * many, one.cost[1] * many)
        return Plan(self.calls, self.calls, 0, self.calls, scaled(*one.tokens_in), scaled(*one.tokens_out), cost)

    def run(self, budget: Budget) -> CurationReport:
        """Carry out the steps within the budget and store what they did."""
        state = self._begun()
        spent = calls.since(self.workspace, self.llm.name, datetime.fromisoformat(state.since))
        budget.spend(spent.calls, spent.tokens_in, spent.tokens_out)
        described = asdict(self.plan) | state.key
        with runs.recorded(self.workspace, KIND, self.llm.name, described) as record:
            self.llm.report(Event(TASK, 0, None, _begins(state, spent.calls)))
            following = self._carry_out(state, budget)
            report = self._report(record.run, state, budget, following)
            if following is None and not self.plan.propose:
                report = self._locked(report)
            record.summary = report.as_json()
        if following is None:
            self._file.unlink(missing_ok=True)
        return report

    # The plan.

    def _limit(self) -> int:
        """Calls that the limits allow, at the highest price of a served prompt."""
        found = [self.plan.max_calls] if self.plan.max_calls is not None else []
        if self.plan.max_cost is not None:
            one = self.llm.plan(self.requests)
            if one.cost is None:
                raise UsageError("a cost limit needs the price of the LLM's tokens", "--price-in and --price-out")
            each = one.cost[1] / max(one.to_ask, 1)
            found.append(int(self.plan.max_cost / each) if each else 10**6)
        return min(found)

    def _commands(self) -> dict[Name, str]:
        llm, k = quote(self.llm.name), self.settings.k
        ranker = "--candidates dense --preselect 30 --temperature 0.1 --trials 40 --epochs 0"
        ask = "train sources" if self.by_source else "train rows --suspects-first"
        return {
            "check": "icl-curate check --accept leak",
            "ask": f"icl-curate {ask} --llm {llm}",
            "confirm": f"icl-curate prune --tune -m {self.settings.method} -k {k} --llm {llm}",
            "rank": f"icl-curate train ranker {ranker} --llm {llm}",
            "choose": f"icl-curate evaluate -m {','.join(RIVALS)} -k {k} --llm {llm}",
        }

    # The steps.

    def _carry_out(self, state: _Progress, budget: Budget) -> Name | None:
        """Carry out the steps that are left, or one of them; returns the one after it, None at the end."""
        if state.pending:
            self._finish(state, self._decided(state.pending, state), budget)
        step = self._next(state, budget)
        while step is not None:
            self.llm.cancel.check()
            self.llm.report(Event(TASK, len(state.steps), None, f"step {len(state.steps) + 1}: {_ABOUT[step]}"))
            with budget.limited(self._share(step, state, budget)):
                done = self._do[step](state, budget)
            self._finish(state, done, budget)
            step = self._next(state, budget)
            if self.plan.one_step:
                break
        return step

    def _finish(self, state: _Progress, done: StepDone, budget: Budget) -> None:
        """Keep what a step did, with the calls that no earlier one has made."""
        earlier = sum(step.calls for step in state.steps)
        state.steps = (*state.steps, replace(done, calls=budget.calls - earlier))
        state.rounds += done.step == "confirm"
        self._keep(state)

    def _next(self, state: _Progress, budget: Budget) -> Name | None:
        """The step to carry out now."""
        if not state.steps:
            return "check"
        done, left = state.steps[-1].step, self._left(budget)
        if done == "check":
            return "confirm" if self.free or self.calls < ENOUGH else "ask"
        if done == "ask":
            return "confirm"
        if done == "confirm" and self.calls >= ENOUGH:
            asked, free = any(step.step == "ask" for step in state.steps), left - kept_back(self.calls)
            if state.rounds < ROUNDS and (state.pruned_last or not asked) and free >= ENOUGH:
                return "ask"
            if state.rounds < ROUNDS and state.pruned_last and free >= 2 * PER_CANDIDATE:
                return "confirm"  # what was pruned makes other candidates the next best
            return "rank" if asked else "choose"
        return "choose" if done == "rank" and left >= PER_CANDIDATE else None

    def _share(self, step: Name, state: _Progress, budget: Budget) -> int:
        """The calls that a step may make."""
        return share_of(
            step, self._left(budget), kept_back(self.calls), state.rounds == 0 and self.free, self.calls >= ENOUGH
        )

    def _left(self, budget: Budget) -> int:
        return max(0, self.calls - budget.calls)

    def _check(self, state: _Progress, budget: Budget) -> StepDone:
        """Rows that repeat a query would make every later figure too good."""
        rows = prunable(self.workspace, "leak")
        batch = None
        if rows and not self.plan.propose:
            batch = decide(self.workspace, "prune", "demonstration", list(rows), list(rows.values())).batch
        found = f"{len(rows):,} rows repeat queries" if rows else "no row repeats a query"
        return _done("check", found, batch=batch)

    def _ask(self, state: _Progress, budget: Budget) -> StepDone:
        """Evidence on rows: single demonstrations, or where answers are free text, each row's own input."""
        if self.by_source:
            queries, depth = trials_of(budget.calls_left, len(self.queries))
            work = SourceTraining(self.llm, SourcePlan(depth=depth, limit=queries))
            answered = work.run(budget)
            weights = {name: scores["reliability"] for name, scores in answered.metrics.sources.items()}
            worst = min(weights, key=lambda name: weights[name])
            found = f"{depth} rows alone for each of {queries} queries; least reliable: {worst} ({weights[worst]:.2f})"
            return _done("ask", found)
        rows = RowTraining(self.llm, RowPlan(limit=budget.calls_left, suspects_first=True)).run(budget)
        found = f"{rows.metrics.rows:,} rows asked; likely to hurt: {rows.metrics.suspects:,}"
        return _done("ask", f"{found}, before {rows.metrics.suspects_before:,}")

    def _confirm(self, state: _Progress, budget: Budget) -> StepDone:
        """The race of prunings with served prompts."""
        raced = Tuning(self.llm, TuningPlan(self.plan.noise, most=most_candidates(budget.calls_left))).run(budget)
        if state.before is None:
            state.before = raced.validation_before
        done = _measured("confirm", raced, _said(raced), self._expected("confirm") if not state.rounds else None)
        state.pruned_last = raced.worth_it and not self.plan.propose
        if not state.pruned_last:
            return done
        state.pending = _Pending(done, raced.pruned, raced.pruned_rows, raced.reason, raced.gain)
        self._keep(state)
        return self._decided(state.pending, state)

    def _decided(self, pending: _Pending, state: _Progress) -> StepDone:
        """Prune what was confirmed, unless the run was killed just after it had."""
        made = [each.batch for each in history(self.workspace) if each.reason == pending.reason]
        batch = made[0] if made else None
        if batch is None:
            batch = prune_together(self.workspace, pending.sources, pending.rows, pending.reason).batch
        state.gained += pending.gain
        state.pending = None
        return replace(pending.step, batch=batch)

    def _rank(self, state: _Progress, budget: Budget) -> StepDone:
        """A ranker from answers that are known already."""
        try:
            work = RankerTraining(self.llm, RANKER)
            trained = work.run(budget)
        except UsageError as error:
            return _done("rank", f"not trained: {error.what}")
        values = trained.metrics.trials or (0.0,)
        found = f"run {trained.run}: expected reward of held-out queries {values[0]:+.2f} to {max(values):+.2f}"
        return _done("rank", found)

    def _choose(self, state: _Progress, budget: Budget) -> StepDone:
        """The race of methods on the pool as it is now."""
        try:
            raced = ServingRace(self.llm, self.plan.noise).run(budget)
        except UsageError as error:
            return _done("choose", error.what)
        if raced.worth_it:
            state.served = raced.served
            state.gained += raced.gain
        return _measured("choose", raced, _chosen(raced), None)

    def _expected(self, step: Name) -> float | None:
        return next(planned.expected_gain for planned in self.steps if planned.step == step)

    # What is kept.

    @property
    def _file(self) -> Path:
        return self.workspace.path / STATE

    def _begun(self) -> _Progress:
        """The run that was stopped, if it is the same one; else a new one."""
        key = {
            "llm": self.llm.name,
            "method": self.settings.method,
            "k": self.settings.k,
            "order": self.settings.order,
            "seed": self.settings.seed,
            "max_calls": self.plan.max_calls,
            "max_cost": self.plan.max_cost,
            "noise": self.plan.noise,
            "queries": len(self.queries),
        }
        fresh = _Progress(key, datetime.now(UTC).replace(tzinfo=None).isoformat())
        if self.plan.anew:
            return fresh
        with suppress(FileNotFoundError, ValueError):
            kept = contract.from_json(_Progress, json.loads(read_regular(self._file)))
            if kept.key == key:
                return kept
        return fresh

    def _keep(self, state: _Progress) -> None:
        replace_file(self._file, lambda file: file.write(json.dumps(contract.to_json(state)).encode()))

    def _report(self, run: int, state: _Progress, budget: Budget, following: Name | None) -> CurationReport:
        _, sources = active_sources(self.workspace)
        limited = self.plan.max_calls is not None
        return CurationReport(
            run=run,
            llm=self.llm.name,
            steps=state.steps,
            calls=budget.calls,
            tokens_in=budget.tokens_in,
            tokens_out=budget.tokens_out,
            left=self._left(budget) if limited else None,
            before=state.before,
            after=None if state.before is None else state.before + state.gained,
            served=state.served or self.settings.method,
            pruned=tuple(one.source for one in source_summaries(self.workspace) if not one.kept),
            pruned_rows=pruned_rows(self.workspace).size,
            rows=len(sources),
            following=following,
        )

    def _locked(self, report: CurationReport) -> CurationReport:
        """Save the pool by name and lock it with the method that is served."""
        name = f"curate-{report.run}"
        save_version(self.workspace, name, f"curated with {self.llm.name}", force=True)
        judged = Judged(self.llm.name, report.run, report.before, report.after)
        lock(self.workspace, replace(self.settings, method=report.served), name, judged)
        return replace(report, version=name)


_ABOUT: dict[Name, str] = {
    "check": "rows that repeat queries",
    "ask": "evidence on single rows",
    "confirm": "race of prunings",
    "rank": "ranker from these answers",
    "choose": "race of methods",
}


def _begins(state: _Progress, spent: int) -> str:
    if not state.steps:
        return ""
    return f"goes on with the run that was stopped: {len(state.steps)} steps done, {spent:,} calls made"


def _done(step: Name, found: str, batch: int | None = None) -> StepDone:
    return StepDone(step, _ABOUT[step], 0, None, None, None, None, found, batch)


def _measured(step: Name, raced: TuneReport | ServingReport, found: str, expected: float | None) -> StepDone:
    confirmed = raced.confirmed
    gain, low, high = (confirmed.gain, confirmed.low, confirmed.high) if confirmed else (None, None, None)
    return StepDone(step, _ABOUT[step], 0, expected, gain, low, high, found, None)


def _said(raced: TuneReport) -> str:
    """The race in a sentence."""
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    if raced.chosen is None or not raced.chosen.pruned_rows:
        return "no pruning is better than keeping everything"
    what = f"{raced.proposed}: {raced.chosen.pruned_rows:,} rows"
    return what if raced.worth_it else f"{what}; not beyond noise, nothing is pruned"


def _chosen(raced: ServingReport) -> str:
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    figures = ", ".join(f"{one.name} {one.accuracy:.3f}" for one in raced.candidates if one.accuracy is not None)
    verdict = (
        f"{raced.served} is served" if raced.worth_it else f"{raced.served} stays: no other is better beyond noise"
    )
    return f"{verdict} ({figures})"
