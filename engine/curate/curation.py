"""`curate`: all methods in one run within a budget, from checks to the method that is served.

A run that was stopped goes on: what it has done is kept in the workspace (`state`) after each step, every answer is
cached, and those that it paid for count as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote

import numpy as np

from ..base.code import is_code
from ..base.contract import to_json
from ..base.errors import BudgetError, CurateError, UsageError, counted
from ..base.progress import Event, Monitor
from ..checks.ask import RowPlan, RowTraining
from ..checks.groups import prunable
from ..llm.asking import judges, price_of, requested
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, together
from ..llm.graded import graded_by
from ..llm.judge import Grader
from ..llm.marks import GradedBy, figure
from ..llm.runner import TASK as ASK
from ..llm.types import Request
from ..pool.records import Query
from ..prompting.template import names
from ..retrieval.view import PoolView
from ..select.methods import METHODS
from ..store.calls import Spent
from ..store.decisions import decide
from ..store.demonstrations import active_sources, task_of
from ..store.settings import Settings
from ..store.workspace import Workspace
from ..trials.ranker_training import TrialRanker, TrialRankerPlan
from ..trials.sources import SourcePlan, SourceTraining
from ..trials.uses import NOISE
from .candidates import Candidate, gather, propose
from .cells import CellAnswers, cells_of
from .plan import (
    ENOUGH,
    KIND,
    PER_CHANGE,
    CurationReport,
    Name,
    Pending,
    PlannedStep,
    StepDone,
    VisibleGain,
    most_candidates,
    trials_of,
)
from .race import AFTER_TWO_LOOKS, FOUR_OF_FIVE, NAMED, SHARED, race, visible_gain
from .results import CandidateResult, Confirmation, TuneReport
from .state import (
    Progress,
    alone,
    check_answered,
    decided,
    forget,
    keep,
    kept,
    locked,
    note_before,
    note_pool,
    now,
    planned,
    report_of,
    spent_by,
    spent_in_all,
)
from .tune import Tuning, TuningPlan, check_method, confirmation, results_of, served_prompts, stopped, validation

RIVALS = ("dense", "dpp", "bm25", "ranker", "topick")
"""Methods that are raced with the configured one, if they can select: the simplest first, which wins a tie."""


@dataclass(frozen=True, slots=True)
class ServingReport:
    """The race of methods: ``served`` is the configured one unless the gain of another is ``worth_it``; ``undecided``:
    why nothing is decided, if too much is missing."""

    served: str
    gain: float
    worth_it: bool
    confirmed: Confirmation | None
    candidates: tuple[CandidateResult, ...]
    stopped: str
    undecided: str = ""


def race_methods(llm: LLMClient, noise: float, budget: Budget) -> ServingReport:
    """Race the methods that can select from the active pool, the configured one first; the result of what the budget
    was enough for. Raises `UsageError` if there are too few validation queries, or no method beside the configured
    one."""
    queries, own = validation(llm, None), llm.settings.method
    view = PoolView(llm.workspace, llm.settings, llm.monitor)
    asked = {own: served_prompts(llm, queries, own, view)[0]}
    for name in (rival for rival in RIVALS if rival != own):
        llm.monitor.check()
        with suppress(UsageError):  # not trained, or the pool has no vectors
            asked[name] = served_prompts(llm, queries, name, view)[0]
    if len(asked) < 2:
        raise UsageError(f"there is no method beside {own} to compare", "icl-curate train ranker")
    answers = CellAnswers(llm, Grader.of(llm, view.task), queries, cells_of(asked.values()), budget)
    outcome = race(answers, -np.arange(len(asked), dtype=np.float64), len(queries), seed=llm.settings.seed)
    nothing = np.empty(0, np.int64)
    tried = results_of([Candidate(name, nothing, (), METHODS[name].about) for name in asked], outcome)
    worth_it = outcome.confirmed(noise) and answers.outcomes.decides
    return ServingReport(
        served=list(asked)[outcome.winner if worth_it else 0],
        gain=outcome.gain.mean if outcome.queries else 0.0,
        worth_it=worth_it,
        confirmed=confirmation(tried[0].accuracy, outcome, len(answers.results), len(queries)),
        candidates=tuple(tried),
        stopped=stopped(outcome, answers, len(queries)),
        undecided=answers.outcomes.undecided,
    )


TASK = "curate"

RANKER = TrialRankerPlan()
"""The ranker that learns from answers to single demonstrations, with the settings of docs/papers/ranker.md."""


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


@dataclass(frozen=True, slots=True)
class Curation:
    """A prepared run of at most so many ``calls``, and the ``steps`` planned for them.

    ``requests`` are the ``queries`` as they are served before the run; ``suspected`` is the share of them that show a
    suspected row, and ``scored`` says that their answers are labels or options. ``free``: something can be raced before
    the LLM is asked about rows; ``answered`` as in `PruningEvidence`. ``begun``: the stopped run that it goes on with.
    """

    llm: LLMClient
    plan: CurationPlan
    queries: Sequence[Query]
    requests: Sequence[Request]
    calls: int
    suspected: float
    scored: bool
    free: bool
    answered: bool
    steps: Sequence[PlannedStep]
    begun: Progress | None = None

    @classmethod
    def prepare(cls, llm: LLMClient, plan: CurationPlan) -> Curation:
        """Plan the steps; nothing is sent. Raises `UsageError` if there are too few validation queries, if the method
        of the client's settings cannot be raced, or if a cost limit has no prices."""
        settings = llm.settings
        check_method(settings.method, settings.k)
        queries = validation(llm, None)
        requests, shown = served_prompts(llm, queries, settings.method)
        calls = _limit(llm, plan, requests)
        evidence = gather(llm.workspace, settings, llm.monitor, plan.relabel)
        suspects = set(evidence.suspected.tolist())
        suspected = float(np.mean([bool(suspects & set(rows)) for rows in shown]))
        scored = any(request.prompt.choices for request in requests)
        free = len(propose(evidence, settings.k)) > 1
        single = _by_source(llm.workspace, scored)
        methods = _can_select(llm, queries[:1]) if calls >= ENOUGH else []
        command = _command(llm, plan, single, len(queries))
        new = Progress({}, "", limit=calls, free=free, single=single)
        expected = round(PER_CHANGE * suspected, 3)
        steps = planned(new, expected, methods, command)
        work = cls(llm, plan, queries, requests, calls, suspected, scored, free, evidence.answered, steps)
        if (begun := work._stopped()) is None:
            return work
        steps = planned(begun, expected, methods, command)
        if steps:  # the step that was stopped has made some of its calls
            more = sum(step.calls for step in steps) - max(0, calls - spent_in_all(llm.workspace, begun).calls)
            steps[0] = replace(steps[0], calls=max(0, steps[0].calls - max(0, more)))
        return replace(work, begun=begun, steps=steps)

    @property
    def visible(self) -> VisibleGain:
        """What the races can see: a query takes two answers or more."""
        queries = max(1, min(len(self.queries), self.calls // 2))
        care = NAMED if self.free and not self.answered else SHARED
        half, most = (visible_gain(queries, self.plan.noise, deviation, care) for deviation in (0.0, FOUR_OF_FIVE))
        return VisibleGain(queries, round(half, 4), round(most, 4))

    def cost(self) -> Plan:
        """Every call that the limit leaves, the most there can be, each about of the size of a served prompt; with a
        judge half of them as of a judged answer, if that is dearer."""
        served = _served(self.llm, self.requests)
        left = max(0, self.calls - (spent_in_all(self.llm.workspace, self.begun).calls if self.begun else 0))
        many = left / served.distinct

        def scaled(low: float, high: float) -> tuple[int, int]:
            return round(low * many), round(high * many)

        return Plan(
            requests=left,
            distinct=left,
            cached=0,
            to_ask=left,
            tokens_in=scaled(*served.tokens_in),
            tokens_out=scaled(*served.tokens_out),
            cost=None if served.cost is None else (served.cost[0] * many, served.cost[1] * many),
            to_probe=served.to_probe,
        )

    def ask(self, budget: Budget) -> CurationReport:
        """Carry out the steps within the budget and store what they did. Raises `UsageError` if a pruning waits for the
        curator's answer, and `LockedError` while another process curates the workspace."""
        with alone(self.llm.workspace):
            return self._go_on(budget)

    def _go_on(self, budget: Budget) -> CurationReport:
        llm, workspace = self.llm, self.llm.workspace
        state = self._begun()
        described = asdict(self.plan) | state.key
        with llm.recorded(KIND, described) as record:
            budget.run, state.runs = record.run, (*state.runs, record.run)
            if not state.steps:
                before = max(0, state.probed)  # its file may be anybody's, and lowers no count
                state.probed = before + budget.calls
                budget.spend(before, 0, 0)
            keep(workspace, state)
            for name, part in spent_by(workspace, state).items():  # a judge has a price of its own
                judge = None if name.split(" at ")[0] == llm.name.split(" at ")[0] else judges(llm.settings)
                asked = budget.at(price_of(judge)) if judge else budget
                asked.spend(part.calls, part.tokens_in, part.tokens_out)
            budget.spend(max(0, max(state.calls, state.spent) - budget.calls), 0, 0)  # calls that gave no answer
            llm.monitor.report(Event(TASK, 0, None, _begins(state, budget.calls)))
            telling = _with_spending(llm.monitor, budget, self.calls, self.plan.max_cost)
            try:
                replace(self, llm=replace(llm, monitor=telling))._carry_out(state, budget)
            finally:
                with suppress(CurateError, OSError):  # nothing hides what stopped it
                    if (last := kept(workspace)) is not None:
                        keep(workspace, replace(last, spent=budget.calls))
            spent = Spent(budget.calls, budget.tokens_in, budget.tokens_out)
            prices = [one.price for one in (llm, llm.judge) if one is not None]
            known = all(price is not None and not price.billed for price in prices)
            report = replace(
                report_of(workspace, record.run, state, spent), cost=(known and round(budget.cost, 6)) or None
            )
            if report.following is None and not self.plan.propose:
                report = locked(workspace, llm.settings, report)
            record.summary = report.as_json()
        if report.following is None:
            forget(workspace)
        return report

    # The steps.

    def _carry_out(self, state: Progress, budget: Budget) -> None:
        """Carry out the steps that are left, or one of them, up to a pruning that waits for the curator."""
        steps: dict[Name, Callable[[Progress, Budget], StepDone | None]] = {
            "check": self._check,
            "ask": self._ask,
            "confirm": self._confirm,
            "rank": self._rank,
            "choose": self._choose,
        }
        if state.pending:
            self._finish(state, decided(self.llm.workspace, state), budget)
        while (step := state.following(state.left)) is not None:
            self.llm.monitor.check()
            self.llm.monitor.report(Event(TASK, len(state.steps), None, f"step {len(state.steps) + 1}: {_ABOUT[step]}"))
            made = budget.calls - state.calls  # by this step, before the run was stopped
            with budget.limited(max(0, state.share(step) - made)):
                done = steps[step](state, budget)
            if done is None:
                return
            self._finish(state, done, budget)
            if self.plan.one_step:
                return

    def _finish(self, state: Progress, done: StepDone, budget: Budget) -> None:
        """Keep what a step did, with the calls that no earlier one has made."""
        note_pool(self.llm.workspace, state, own=done.batch is not None)
        state.finish(replace(done, calls=budget.calls - state.calls))
        keep(self.llm.workspace, state)

    def _prune(self, state: Progress, budget: Budget, pending: Pending) -> StepDone | None:
        """Decide on a pruning, or leave it to the curator."""
        step = replace(pending.step, calls=budget.calls - state.calls)
        state.pending = replace(pending, step=step, held=self.plan.hold)
        keep(self.llm.workspace, state)
        return None if self.plan.hold else decided(self.llm.workspace, state)

    def _check(self, state: Progress, budget: Budget) -> StepDone | None:
        """Rows that repeat a query would make every later figure too good."""
        rows = prunable(self.llm.workspace, "leak")
        found = f"{counted(len(rows), 'row', 'repeats', 'repeat')} queries" if rows else "no row repeats a query"
        probed = f"; {counted(budget.calls, 'call')} to probe the LLM" if budget.calls else ""
        done = _done("check", found + probed)
        if not rows or self.plan.propose:
            return done
        if self.plan.hold:
            return self._prune(state, budget, Pending(done, (), tuple(rows), "repeats a query", 0.0))
        return replace(
            done, batch=decide(self.llm.workspace, "prune", "demonstration", [*rows], [*rows.values()]).batch
        )

    def _ask(self, state: Progress, budget: Budget) -> StepDone:
        """Evidence on rows: single demonstrations, or where answers are free text, each row's own input."""
        try:
            return self._asked(_answers(self.llm, state.share("ask")), budget)
        except BudgetError as error:  # calls without an answer were charged, too: what was answered is cached
            return _done("ask", f"not all was answered: {error.what}")

    def _asked(self, share: int, budget: Budget) -> StepDone:
        """At most so many answers."""
        training, (queries, depth) = None, trials_of(share, len(self.queries))
        if _by_source(self.llm.workspace, self.scored):
            with suppress(UsageError):  # the rows near the queries may all be of one source
                training = SourceTraining.prepare(self.llm, SourcePlan(depth=depth, limit=queries))
        if training:
            answered = training.ask(budget)
            weights = {name: scores["reliability"] for name, scores in answered.metrics.sources.items()}
            worst = min(weights, key=lambda name: weights[name])
            found = f"{depth} rows alone for each of {queries} queries; least reliable: {worst} ({weights[worst]:.2f})"
            return _done("ask", found)
        rows = RowTraining.prepare(self.llm, RowPlan(limit=share, suspects_first=True)).ask(budget)
        found = f"{counted(rows.metrics.rows, 'row')} asked; likely to hurt: {rows.metrics.suspects:,}"
        return _done("ask", f"{found}, before {rows.metrics.suspects_before:,}")

    def _confirm(self, state: Progress, budget: Budget) -> StepDone | None:
        """The race of prunings with served prompts, without those that the curator has rejected. A first one that ran
        out of calls while something gained goes on once: it is the same race, with the same candidates and name."""
        goes_on = state.unfinished
        most = goes_on or most_candidates(state.share("confirm"))
        rejected = tuple(each.revision for each in state.rejected)
        again = state.before is not None and not goes_on
        care = AFTER_TWO_LOOKS if state.continued else 1.0
        plan = TuningPlan(
            noise=self.plan.noise, most=most, relabel=self.plan.relabel, rejected=rejected, again=again, care=care
        )
        raced = Tuning.prepare(self.llm, plan).ask(budget)
        if raced.confirmed and not raced.undecided:
            note_before(state, raced.confirmed.before, raced.confirmed.queries)
        done = _measured("confirm", raced, _said(raced), self._expected("confirm") if not state.rounds else None)
        if goes_on:
            state.continued, done = True, replace(done, what=f"{done.what}, continued")
        first = state.rounds == 0 and state.free and state.limit >= ENOUGH  # with half of the calls
        state.unfinished = most if first and raced.stopped and raced.promising else 0
        state.pruned_last = raced.worth_it and not self.plan.propose
        if not state.pruned_last:
            return done
        pending = Pending(
            done, raced.pruned, raced.pruned_rows, raced.reason, raced.gain, outputs=raced.relabelled,
            before=raced.validation_before, queries=raced.confirmed.queries if raced.confirmed else 0,
        )  # fmt: skip
        return self._prune(state, budget, pending)

    def _rank(self, state: Progress, budget: Budget) -> StepDone:
        """A ranker from answers that are known already."""
        try:
            trained = TrialRanker.prepare(self.llm, RANKER).learn()
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
            raced = race_methods(self.llm, self.plan.noise, budget)
        except UsageError as error:
            return _done("choose", error.what)
        if raced.confirmed and not raced.undecided:
            note_before(state, raced.confirmed.before, raced.confirmed.queries, gains=raced.worth_it)
        if raced.worth_it:
            state.served = raced.served
            state.gained += raced.gain
        return _measured("choose", raced, _chosen(raced), None)

    def _expected(self, step: Name) -> float | None:
        return next(planned.expected_gain for planned in self.steps if planned.step == step)

    # What is kept.

    def _key(self) -> dict[str, object]:
        """What makes it the same run when it goes on."""
        settings = self.llm.settings
        key = {
            "llm": self.llm.name,
            "method": settings.method,
            "k": settings.k,
            "order": settings.order,
            "seed": settings.seed,
            "max_calls": self.plan.max_calls,
            "max_cost": self.plan.max_cost,
            "noise": self.plan.noise,
            "relabel": self.plan.relabel,
            "graded_by": to_json(graded_by(self.llm.workspace, settings)),
            "queries": len(self.queries),
        }
        if asked := requested(settings):
            key["request"] = asked
        return key

    def _stopped(self) -> Progress | None:
        """The run that was stopped, if it is the same one."""
        state = None if self.plan.anew else kept(self.llm.workspace)
        return state if state and state.key == self._key() else None

    def _begun(self) -> Progress:
        """The run that was stopped; if there is none, a new one."""
        if not self.plan.anew:
            check_answered(self.llm.workspace)
        state = self._stopped() or Progress(self._key(), now())
        if not state.steps:  # nothing was judged yet: what changed the pool may have been the run itself
            state.pool, state.disturbed = "", False
            note_pool(self.llm.workspace, state)
            state.free = self.free
            state.single = _by_source(self.llm.workspace, self.scored)
        state.limit = self.calls
        return state


def _with_spending(monitor: Monitor, budget: Budget, calls: int, max_cost: float | None) -> Monitor:
    """Tells with the events of answers, and at each step, how much of the budget is spent: so many of its ``calls``, or
    of a limit in dollars as large a share."""
    latest = -1

    def told(event: Event) -> None:
        nonlocal latest
        share = max(budget.calls / max(calls, 1), budget.cost / max_cost if max_cost else 0.0)
        spent = round(calls * min(1.0, share))
        if event.task == TASK or (event.task == ASK and spent != latest):
            monitor.report(Event(TASK, spent, calls, event.note if event.task == TASK else ""))
            latest = spent
        if event.task != TASK:
            monitor.report(event)

    return replace(monitor, report=told)


def _limit(llm: LLMClient, plan: CurationPlan, requests: Sequence[Request]) -> int:
    """Calls that the limits allow, at the highest price of a served prompt, judged or not."""
    limits = [plan.max_calls] if plan.max_calls is not None else []
    if plan.max_cost is not None:
        served = _served(llm, requests)
        if served.cost is None:
            raise UsageError("a cost limit needs the price of the LLM's tokens", "--price-in and --price-out")
        price = served.cost[1] / served.distinct
        limits.append(int(plan.max_cost / price) if price else 10**6)
    return min(limits)


def _served(llm: LLMClient, requests: Sequence[Request]) -> Plan:
    """The plan of the served prompts as if nothing were known; with a judge that of asking and judging, unless asking
    alone costs more a call: equal answers to a query are judged once."""
    asked, judging = Grader.of(llm, task_of(llm.workspace)).plans(llm, requests, anew=True)
    if judging is None:
        return asked
    both = together(asked, judging)
    if both.cost and asked.cost and asked.cost[1] / asked.distinct > both.cost[1] / both.distinct:
        return replace(asked, to_probe=both.to_probe)
    return both


def _answers(llm: LLMClient, calls: int) -> int:
    """How many answers so many calls are enough for: with a judge each takes another call."""
    return calls // 2 if graded_by(llm.workspace, llm.settings).judge else calls


def _by_source(workspace: Workspace, scored: bool) -> bool:
    """Whether single demonstrations are asked: answers are labels or options, and there are sources to compare."""
    return scored and len(set(active_sources(workspace)[1])) > 1


def _options(by: GradedBy, settings: Settings) -> list[str]:
    """Those of a command by hand. A template in the folder of a config file is named by that file alone."""
    named = settings.template in names() or is_code(settings.template) or Path(settings.template).is_file()
    return (by if named else replace(by, template=None)).options


def _can_select(llm: LLMClient, queries: Sequence[Query]) -> list[str]:
    """The configured method and those of the `RIVALS` that can select by now."""
    able, view = [llm.settings.method], PoolView(llm.workspace, llm.settings, llm.monitor)
    for name in (rival for rival in RIVALS if rival not in able):
        with suppress(UsageError):  # not trained, or the pool has no vectors
            served_prompts(llm, queries, name, view)
            able.append(name)
    return able


def _command(
    client: LLMClient, plan: CurationPlan, single: bool, queries: int
) -> Callable[[Name, int, Sequence[str]], str]:
    """The command of a step by hand, with so many calls, and of a race of these methods."""
    settings = client.settings
    where = ["--base-url", settings.base_url] if settings.base_url else []
    grading = _options(graded_by(client.workspace, settings), settings)
    llm = " ".join(map(quote, ["--llm", client.name, *where, *grading]))

    def command(step: Name, calls: int, methods: Sequence[str]) -> str:
        answers = _answers(client, calls)
        asked, depth = trials_of(answers, queries)
        limit = f"-k {settings.k} --max-calls {calls} {llm}"
        return {
            "check": "icl-curate check prune leak",
            "ask": f"icl-curate train sources --depth {depth} --limit {asked} {llm}"
            if single
            else f"icl-curate train rows --suspects-first --limit {answers} {llm}",
            "confirm": f"icl-curate tune{' --relabel' if plan.relabel else ''} -m {settings.method} {limit}",
            "rank": f"icl-curate train ranker --trials {RANKER.trials} --epochs 0 --rate {RANKER.rate} {llm}",
            "choose": f"icl-curate evaluate --split validation -m {','.join(methods)} {limit}",
        }[step]

    return command


_ABOUT: dict[Name, str] = {
    "check": "prune rows that repeat a query",
    "ask": "ask about single rows",
    "confirm": "race of prunings",
    "rank": "ranker from these answers",
    "choose": "race of methods",
}


def _begins(state: Progress, spent: int) -> str:
    if not state.steps:
        return ""
    return f"carries on from step {len(state.steps) + 1}: {counted(spent, 'call')} made"


def _done(step: Name, found: str) -> StepDone:
    return StepDone(step, _ABOUT[step], found=found)


def _measured(step: Name, raced: TuneReport | ServingReport, found: str, expected: float | None) -> StepDone:
    gained = (of.gain, of.low, of.high) if (of := raced.confirmed) else ()
    return replace(StepDone(step, _ABOUT[step], 0, expected, *gained), found=found)


def _said(raced: TuneReport) -> str:
    """The race in a sentence."""
    if raced.undecided:
        return f"nothing is decided: {raced.undecided}"
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    if raced.chosen is None or not raced.chosen.changes:
        return "no pruning is better than keeping everything"
    what = f"{raced.proposed}: {raced.chosen.rows_told}"
    doubt = f" ({raced.doubt})" if raced.doubt else ""
    return f"{what}{doubt}" if raced.worth_it else f"{what}; not beyond noise, nothing is changed{doubt}"


def _chosen(raced: ServingReport) -> str:
    if raced.undecided:
        return f"{raced.served} stays: {raced.undecided}"
    if raced.confirmed is None:
        return f"nothing was asked: {raced.stopped}"
    known = [one for one in raced.candidates if one.accuracy is not None]
    figures = ", ".join(f"{one.name} {figure(one.accuracy)} of {counted(one.queries, 'query')}" for one in known)
    verdict = (
        f"{raced.served} is served" if raced.worth_it else f"{raced.served} stays: no other is better beyond noise"
    )
    return f"{verdict} ({figures})"
