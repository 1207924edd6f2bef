"""`curate`: all methods in one run within a budget, from checks to the method that is served.

A run that was stopped goes on: what it has done is kept in the workspace (`state`) after each step, every answer is
cached, and the calls since it began count as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from shlex import quote

import numpy as np

from ..base.contract import Reported
from ..base.errors import BudgetError, UsageError, counted
from ..base.progress import Event, silent
from ..checks.ask import RowPlan, RowTraining
from ..checks.groups import prunable
from ..evaluate.request_stages import MethodContext
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.types import Request
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..select.methods import METHODS
from ..select.selector import Selector
from ..store import runs
from ..store.calls import Spent
from ..store.decisions import decide
from ..store.demonstrations import active_sources
from ..trials.ranker_training import TrialRanker, TrialRankerPlan
from ..trials.sources import SourcePlan, SourceTraining
from ..trials.uses import NOISE
from .candidates import Candidate, gather, propose
from .cells import CellAnswers, cells_of
from .plan import KIND, CurationReport, Name, Pending, StepDone, most_candidates, planned, trials_of
from .race import race
from .results import CandidateResult, Confirmation, TuneReport
from .state import Progress, check_answered, decided, forget, keep, kept, locked, now, report_of, spent_by
from .tune import Tuning, TuningPlan, check_method, confirmation, results_of, stopped, validation

RIVALS = ("dense", "dpp", "bm25", "ranker", "topick")
"""Methods that are raced with the configured one, if they can select: the simplest first, which wins a tie."""


@dataclass(frozen=True, slots=True)
class ServingReport(Reported):
    """The race of methods: ``served`` is the configured one unless the gain of another is ``worth_it``; ``undecided``:
    why nothing is decided, if too much is missing."""

    kind = "serving-race"
    served: str
    gain: float
    worth_it: bool
    confirmed: Confirmation | None
    candidates: tuple[CandidateResult, ...]
    stopped: str
    undecided: str = ""


class ServingRace:
    """A prepared race of the methods that can select from the active pool; nothing has been sent yet. Raises
    `UsageError` if there are too few validation queries, or no method beside the configured one."""

    def __init__(self, llm: LLMClient, noise: float, rivals: Sequence[str] = RIVALS) -> None:
        self.llm, self.noise = llm, noise
        self.queries = validation(llm, None)
        self.view = PoolView(llm.workspace, llm.settings, llm.report, llm.cancel)
        asked = dict(self._asked(rivals))
        self.methods = list(asked)
        if len(self.methods) < 2:
            raise UsageError(f"there is no method beside {self.methods[0]} to compare", "icl-curate train ranker")
        self.cells = cells_of(asked.values())

    def cost(self) -> Plan:
        """At most: if no method is dropped before the last query."""
        return self.llm.plan(self.cells.requests)

    def ask(self, budget: Budget) -> ServingReport:
        """Race the methods; the result of what the budget was enough for."""
        answers = CellAnswers(self.llm, self.queries, self.cells, budget)
        order = -np.arange(len(self.methods), dtype=np.float64)
        outcome = race(answers, order, len(self.queries), seed=self.llm.settings.seed)
        nothing = np.empty(0, np.int64)
        tried = results_of([Candidate(name, nothing, (), METHODS[name].about) for name in self.methods], outcome)
        worth_it = outcome.confirmed(self.noise) and answers.outcomes.decides
        return ServingReport(
            served=self.methods[outcome.winner if worth_it else 0],
            gain=outcome.gain.mean if outcome.queries else 0.0,
            worth_it=worth_it,
            confirmed=confirmation(tried[0].accuracy, outcome, len(answers.results), len(self.queries)),
            candidates=tuple(tried),
            stopped=stopped(outcome, answers, len(self.queries)),
            undecided=answers.outcomes.undecided,
        )

    def _asked(self, rivals: Sequence[str]) -> Iterator[tuple[str, list[Request]]]:
        """The requests of each method, the configured one first."""
        own = self.llm.settings.method
        yield own, served_prompts(self.llm, self.queries, own, self.view)[0]
        for name in rivals:
            self.llm.cancel.check()
            if name != own:
                with suppress(UsageError):  # not trained, or the pool has no vectors
                    yield name, served_prompts(self.llm, self.queries, name, self.view)[0]


def served_prompts(
    llm: LLMClient, queries: Sequence[Query], method: str, view: PoolView | None = None
) -> tuple[list[Request], list[list[int]]]:
    """The prompt of each query as the method serves it from the active pool, and the rows it shows, best first."""
    settings = replace(llm.settings, method=method)
    selector = Selector(llm.workspace, settings=settings, view=view)
    rows = [[pick.row for pick in chosen] for chosen in selector.picks(queries)]
    context = MethodContext(selector, llm.backend, settings, llm.capabilities, queries, silent)
    return context.prompts(rows)[0], rows


TASK = "curate"

RANKER = TrialRankerPlan()
"""The ranker that learns from answers to single demonstrations, with the settings of docs/evidence.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationPlan:
    """``max_calls`` or ``max_cost`` (US dollars) limit the run; ``noise``: the least gain of a decision, in standard
    errors. ``one_step``: carry out the next step only. ``propose``: decide nothing. ``anew``: do not go on with a run
    that was stopped. ``hold``: stop before a pruning, for the curator to decide with `state.answer`. ``relabel``: also
    try to correct labels instead of pruning rows."""

    max_calls: int | None = None
    max_cost: float | None = None
    noise: float = NOISE
    one_step: bool = False
    propose: bool = False
    anew: bool = False
    hold: bool = False
    relabel: bool = True

    def __post_init__(self) -> None:
        if self.hold and self.propose:
            raise UsageError("--propose decides nothing, so nothing can wait", "give --hold alone")
        if self.max_calls is None and self.max_cost is None:
            raise UsageError("how much may it cost?", "give --max-calls 1000, or --max-cost with prices")


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
        known = gather(self.workspace, self.settings, silent, llm.cancel, plan.relabel)
        suspected = set(known.suspected.tolist())
        self.suspected = float(np.mean([bool(suspected & set(rows)) for rows in shown]))
        self.scored = any(request.prompt.choices for request in self.requests)
        self.free = len(propose(known, self.settings.k)) > 1
        self.steps = planned(self.calls, self.suspected, self.free, RIVALS, self._commands())
        self._do: dict[Name, Callable[[Progress, Budget], StepDone | None]] = {
            "check": self._check,
            "ask": self._ask,
            "confirm": self._confirm,
            "rank": self._rank,
            "choose": self._choose,
        }

    def cost(self) -> Plan:
        """Every call of the limit, the most there can be, each about of the size of a served prompt."""
        one = self.llm.plan(self.requests, anew=True)
        many = self.calls / one.distinct

        def scaled(low: float, high: float) -> tuple[int, int]:
            return round(low * many), round(high * many)

        return Plan(
            requests=self.calls,
            distinct=self.calls,
            cached=0,
            to_ask=self.calls,
            tokens_in=scaled(*one.tokens_in),
            tokens_out=scaled(*one.tokens_out),
            cost=None if one.cost is None else (one.cost[0] * many, one.cost[1] * many),
            to_probe=one.to_probe,
        )

    def ask(self, budget: Budget) -> CurationReport:
        """Carry out the steps within the budget and store what they did. Raises `UsageError` if a pruning waits for the
        curator's answer."""
        state = self._begun()
        spent = spent_by(self.workspace, state)
        budget.spend(spent.calls, spent.tokens_in, spent.tokens_out)
        described = asdict(self.plan) | state.key
        with runs.recorded(self.workspace, KIND, self.llm.name, described) as record:
            self.llm.report(Event(TASK, 0, None, _begins(state, spent.calls)))
            self._carry_out(state, budget)
            spent = Spent(budget.calls, budget.tokens_in, budget.tokens_out)
            report = report_of(self.workspace, record.run, state, spent)
            if report.following is None and not self.plan.propose:
                report = locked(self.workspace, self.settings, report)
            record.summary = report.as_json()
        if report.following is None:
            forget(self.workspace)
        return report

    # The plan.

    def _limit(self) -> int:
        """Calls that the limits allow, at the highest price of a served prompt."""
        found = [self.plan.max_calls] if self.plan.max_calls is not None else []
        if self.plan.max_cost is not None:
            one = self.llm.plan(self.requests, anew=True)
            if one.cost is None:
                raise UsageError("a cost limit needs the price of the LLM's tokens", "--price-in and --price-out")
            each = one.cost[1] / one.distinct
            found.append(int(self.plan.max_cost / each) if each else 10**6)
        return min(found)

    def _commands(self) -> dict[Name, str]:
        llm, k = quote(self.llm.name), self.settings.k
        ranker = f"--trials {RANKER.trials} --epochs 0 --rate {RANKER.rate}"
        ask = "train sources" if self._by_source() else "train rows --suspects-first"
        relabel = " --relabel" if self.plan.relabel else ""
        return {
            "check": "icl-curate check prune leak",
            "ask": f"icl-curate {ask} --llm {llm}",
            "confirm": f"icl-curate tune{relabel} -m {self.settings.method} -k {k} --llm {llm}",
            "rank": f"icl-curate train ranker {ranker} --llm {llm}",
            "choose": f"icl-curate evaluate -m {','.join(RIVALS)} -k {k} --llm {llm}",
        }

    # The steps.

    def _carry_out(self, state: Progress, budget: Budget) -> None:
        """Carry out the steps that are left, or one of them, up to a pruning that waits for the curator."""
        if state.pending:
            self._finish(state, decided(self.workspace, state), budget)
        while (step := state.following(state.left)) is not None:
            self.llm.cancel.check()
            self.llm.report(Event(TASK, len(state.steps), None, f"step {len(state.steps) + 1}: {_ABOUT[step]}"))
            made = budget.calls - state.calls  # by this step, before the run was stopped
            with budget.limited(max(0, state.share(step) - made)):
                done = self._do[step](state, budget)
            if done is None:
                return
            self._finish(state, done, budget)
            if self.plan.one_step:
                return

    def _finish(self, state: Progress, done: StepDone, budget: Budget) -> None:
        """Keep what a step did, with the calls that no earlier one has made."""
        state.finish(replace(done, calls=budget.calls - state.calls))
        keep(self.workspace, state)

    def _prune(self, state: Progress, budget: Budget, pending: Pending) -> StepDone | None:
        """Decide on a pruning, or leave it to the curator."""
        step = replace(pending.step, calls=budget.calls - state.calls)
        state.pending = replace(pending, step=step, held=self.plan.hold)
        keep(self.workspace, state)
        return None if self.plan.hold else decided(self.workspace, state)

    def _check(self, state: Progress, budget: Budget) -> StepDone | None:
        """Rows that repeat a query would make every later figure too good."""
        rows = prunable(self.workspace, "leak")
        found = f"{counted(len(rows), 'row', 'repeats', 'repeat')} queries" if rows else "no row repeats a query"
        probed = f"; {counted(budget.calls, 'call')} to probe the LLM" if budget.calls else ""
        done = _done("check", found + probed)
        if not rows or self.plan.propose:
            return done
        if self.plan.hold:
            return self._prune(state, budget, Pending(done, (), tuple(rows), "repeats a query", 0.0))
        return replace(done, batch=decide(self.workspace, "prune", "demonstration", [*rows], [*rows.values()]).batch)

    def _ask(self, state: Progress, budget: Budget) -> StepDone:
        """Evidence on rows: single demonstrations, or where answers are free text, each row's own input."""
        try:
            return self._asked(state.share("ask"), budget)
        except BudgetError as error:  # calls without an answer were charged, too: what was answered is cached
            return _done("ask", f"not all was answered: {error.what}")

    def _by_source(self) -> bool:
        """Whether single demonstrations are asked: answers are labels or options, and there are sources to compare."""
        return self.scored and len(set(active_sources(self.workspace)[1])) > 1

    def _asked(self, share: int, budget: Budget) -> StepDone:
        if self._by_source():
            queries, depth = trials_of(share, len(self.queries))
            work = SourceTraining.prepare(self.llm, SourcePlan(depth=depth, limit=queries))
            answered = work.ask(budget)
            weights = {name: scores["reliability"] for name, scores in answered.metrics.sources.items()}
            worst = min(weights, key=lambda name: weights[name])
            found = f"{depth} rows alone for each of {queries} queries; least reliable: {worst} ({weights[worst]:.2f})"
            return _done("ask", found)
        rows = RowTraining(self.llm, RowPlan(limit=share, suspects_first=True)).ask(budget)
        found = f"{counted(rows.metrics.rows, 'row')} asked; likely to hurt: {rows.metrics.suspects:,}"
        return _done("ask", f"{found}, before {rows.metrics.suspects_before:,}")

    def _confirm(self, state: Progress, budget: Budget) -> StepDone | None:
        """The race of prunings with served prompts, without those that the curator has rejected."""
        most = most_candidates(state.share("confirm"))
        rejected = tuple(each.revision for each in state.rejected)
        plan = TuningPlan(noise=self.plan.noise, most=most, relabel=self.plan.relabel, rejected=rejected)
        raced = Tuning(self.llm, plan).ask(budget)
        if state.before is None:
            state.before = raced.validation_before
        done = _measured("confirm", raced, _said(raced), self._expected("confirm") if not state.rounds else None)
        state.pruned_last = raced.worth_it and not self.plan.propose
        if not state.pruned_last:
            return done
        pending = Pending(done, raced.pruned, raced.pruned_rows, raced.reason, raced.gain, outputs=raced.relabelled)
        return self._prune(state, budget, pending)

    def _rank(self, state: Progress, budget: Budget) -> StepDone:
        """A ranker from answers that are known already."""
        try:
            work = TrialRanker(self.llm, RANKER)
            trained = work.ask(budget)
        except UsageError as error:
            return _done("rank", f"not trained: {error.what}")
        told, values = trained.metrics, trained.metrics.trials
        found = f"pass {told.kept_pass} of {RANKER.trials}"
        if values:
            found += f", expected reward of held-out queries {values[0]:+.2f} to {max(values):+.2f}"
        return _done("rank", f"run {trained.run}: {'untrained start kept' if told.untrained else found}")

    def _choose(self, state: Progress, budget: Budget) -> StepDone:
        """The race of methods on the pool as it is now."""
        try:
            raced = ServingRace(self.llm, self.plan.noise).ask(budget)
        except UsageError as error:
            return _done("choose", error.what)
        if raced.worth_it:
            state.served = raced.served
            state.gained += raced.gain
        return _measured("choose", raced, _chosen(raced), None)

    def _expected(self, step: Name) -> float | None:
        return next(planned.expected_gain for planned in self.steps if planned.step == step)

    # What is kept.

    def _begun(self) -> Progress:
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
            "relabel": self.plan.relabel,
            "queries": len(self.queries),
        }
        state = None
        if not self.plan.anew:
            check_answered(self.workspace)
            state = kept(self.workspace)
        if state is None or state.key != key:
            state = Progress(key, now())
        if not state.steps:
            state.free, state.planned = self.free, tuple(self.steps)
        state.limit = self.calls
        return state


_ABOUT: dict[Name, str] = {
    "check": "rows that repeat queries",
    "ask": "evidence on single rows",
    "confirm": "race of prunings",
    "rank": "ranker from these answers",
    "choose": "race of methods",
}


def _begins(state: Progress, spent: int) -> str:
    if not state.steps:
        return ""
    return f"goes on with the run that was stopped: {len(state.steps)} steps done, {counted(spent, 'call')} made"


def _done(step: Name, found: str, batch: int | None = None) -> StepDone:
    return StepDone(step, _ABOUT[step], 0, None, None, None, None, found, batch)


def _measured(step: Name, raced: TuneReport | ServingReport, found: str, expected: float | None) -> StepDone:
    confirmed = raced.confirmed
    gain, low, high = (confirmed.gain, confirmed.low, confirmed.high) if confirmed else (None, None, None)
    return StepDone(step, _ABOUT[step], 0, expected, gain, low, high, found, None)


def _said(raced: TuneReport) -> str:
    """The race in a sentence."""
    if raced.undecided:
        return f"nothing is decided: {raced.undecided}"
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    if raced.chosen is None or not raced.chosen.changes:
        return "no pruning is better than keeping everything"
    what = f"{raced.proposed}: {raced.chosen.rows_told}"
    return what if raced.worth_it else f"{what}; not beyond noise, nothing is changed"


def _chosen(raced: ServingReport) -> str:
    if raced.undecided:
        return f"{raced.served} stays: {raced.undecided}"
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    figures = ", ".join(f"{one.name} {one.accuracy:.3f}" for one in raced.candidates if one.accuracy is not None)
    verdict = (
        f"{raced.served} is served" if raced.worth_it else f"{raced.served} stays: no other is better beyond noise"
    )
    return f"{verdict} ({figures})"
