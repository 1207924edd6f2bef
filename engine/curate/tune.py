"""Which pruning helps the prompts that are served: candidates raced with these prompts on validation queries.

Every candidate is tried as if it had been decided: the served method selects from the rest of the pool, and the prompt
is built as `evaluate` builds it. Many prompts do not change when rows are pruned that the method does not select, so
only distinct prompts are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np

from ..arrays import Bools, Float64s, Int64s
from ..checks.evidence import SURE
from ..errors import BudgetError, UsageError
from ..evaluate.llm_selection import LLM_METHODS
from ..evaluate.request_stages import MethodContext
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.types import Answer, Request, Result
from ..llm.usage import usage_of
from ..pool.answers import is_correct
from ..pool.records import Query
from ..progress import Event, silent
from ..select.selector import Selector, method_named
from ..settings import knobs
from ..sources.use import NOISE
from ..store import runs, trials
from ..store.demonstrations import fetch, queries
from ..version import VERSION
from .candidates import Candidate, propose
from .evidence import gather
from .race import FIRST, Gain, RaceResult, race
from .results import KIND, CandidateResult, Confirmation, Difference, ServingSettings, TuneReport

TASK = "tune"
WORSE = 3.0
"""Standard errors below the other sources from which a source is called bad although the race could not confirm it."""


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """``noise``: the least gain, in standard errors; ``limit``: the first so many validation queries only."""

    noise: float = NOISE
    limit: int | None = None


class Tuning:
    """A prepared race: candidates are proposed and their prompts built, nothing has been sent yet.

    The method, k and order are those of the client's settings. Raises `UsageError` if there are too few validation
    queries, or if the method shows no demonstrations, is not trained, or calls the LLM to select.
    """

    def __init__(self, llm: LLMClient, plan: TuningPlan = TuningPlan()) -> None:
        self.llm, self.plan = llm, plan
        self.workspace, self.settings = llm.workspace, llm.settings
        _check_method(self.settings.method, self.settings.k)
        self.queries = _validation(llm, plan.limit)
        self.selector = Selector(self.workspace, settings=self.settings, report=llm.report, cancel=llm.cancel)
        self.evidence = gather(self.workspace, self.settings, silent, llm.cancel)
        self.candidates = propose(self.evidence, self.settings.k)
        self.requests, self.prompts = self._requests()

    def cost(self) -> Plan:
        """At most: if no candidate is dropped before the last query."""
        return self.llm.plan(self.requests)

    def from_cache(self) -> TuneReport:
        """The result from cached answers alone, not stored as a run. Nothing is sent."""
        return self._report(None, *self._race(Budget(max_calls=0)))

    def run(self, budget: Budget) -> TuneReport:
        """Race the candidates and store the result. If the budget ends, the result is what is known by then."""
        described = {
            **knobs(self.settings),
            "queries": len(self.queries),
            "noise": self.plan.noise,
            "candidates": [each.name for each in self.candidates],
            "version": VERSION,
        }
        with runs.recorded(self.workspace, KIND, self.llm.name, described) as record:
            report = self._report(record.run, *self._race(budget))
            record.summary = report.as_json()
        return report

    def _requests(self) -> tuple[list[Request], Int64s]:
        """The distinct requests, and the place of each cell's in this list, (candidates, queries)."""
        places: dict[tuple[object, ...], int] = {}
        requests: list[Request] = []
        cells = np.empty((len(self.candidates), len(self.queries)), np.int64)
        for i, candidate in enumerate(self.candidates):
            self.llm.cancel.check()
            self.llm.report(Event(TASK, i, len(self.candidates)))
            for j, request in enumerate(self._prompts(candidate)):
                key = (request.prompt.messages, request.prompt.choices, request.score)
                if key not in places:
                    places[key] = len(requests)
                    requests.append(request)
                cells[i, j] = places[key]
        self.llm.report(Event(TASK, len(self.candidates), len(self.candidates)))
        return requests, cells

    def _prompts(self, candidate: Candidate) -> list[Request]:
        """One request per query, as `evaluate` would ask it after this pruning."""
        view = self.selector.view.without(candidate.rows)
        selector = Selector(self.workspace, settings=self.settings, view=view)
        picks = selector.picks(self.queries)
        llm = self.llm
        context = MethodContext(selector, llm.backend, self.settings, llm.capabilities, self.queries, silent)
        return context.prompts([[pick.row for pick in chosen] for chosen in picks])[0]

    def _race(self, budget: Budget) -> tuple[RaceResult, _Answers]:
        answers = _Answers(self.llm, self.queries, self.requests, self.prompts, budget)
        sizes = np.array([len(each.rows) for each in self.candidates], np.int64)
        return race(answers, sizes, len(self.queries), seed=self.settings.seed), answers

    def _report(self, run: int | None, outcome: RaceResult, answers: _Answers) -> TuneReport:
        winner = self.candidates[outcome.winner]
        confirmed = outcome.confirmed(self.plan.noise)
        tried = [self._tried(i, outcome) for i in range(len(self.candidates))]
        before = tried[0].accuracy
        pruned = winner.sources if confirmed else ()
        known, instead = _other_evidence(self) if not confirmed else ((), ())
        return TuneReport(
            run=run,
            llm=self.llm.name,
            usage=usage_of(list(answers.results.values())),
            served=ServingSettings(self.settings.method, self.settings.k, self.settings.order),
            estimator=self.evidence.ranked_by,
            threshold=None,
            proposed=winner.name,
            pruned=pruned,
            pruned_rows=self._ids_beside(winner) if confirmed else (),
            kept=tuple(sorted(set(self.evidence.sources) - set(pruned))),
            validation_before=before,
            validation_after=tried[outcome.winner].accuracy if confirmed else before,
            gain=outcome.gain.mean,
            gain_error=outcome.gain.error if outcome.queries else None,
            worth_it=confirmed,
            confirmed=self._confirmed(before, outcome, len(answers.results)),
            candidates=tuple(tried),
            stopped=self._stopped(outcome, answers),
            known=known,
            instead=instead,
        )

    def _confirmed(self, before: float | None, outcome: RaceResult, calls: int) -> Confirmation | None:
        if before is None:
            return None
        gain, (low, high) = outcome.gain.mean, outcome.gain.interval
        return Confirmation(before, before + gain, gain, low, high, calls, outcome.queries, len(self.queries))

    def _tried(self, place: int, outcome: RaceResult) -> CandidateResult:
        candidate, given = self.candidates[place], outcome.utilities[place]
        asked = int(np.count_nonzero(~np.isnan(given)))
        versus = _difference(outcome.against_baseline(place)) if asked and place else None
        return CandidateResult(
            name=candidate.name,
            reason=candidate.reason,
            sources=candidate.sources,
            pruned_rows=len(candidate.rows),
            queries=asked,
            accuracy=float(np.nanmean(given)) if asked else None,
            versus=versus,
            dropped_after=int(outcome.dropped[place]) or None if place else None,
            chosen=outcome.queries > 0 and place == outcome.winner,
        )

    def _stopped(self, outcome: RaceResult, answers: _Answers) -> str:
        if not outcome.stopped:
            return ""
        done = f"{outcome.queries:,} of {len(self.queries):,} queries" if outcome.queries else "no batch of queries"
        return f"the budget was enough for {done}; the next batch needs {answers.refused:,} more calls"

    def _ids_beside(self, candidate: Candidate) -> tuple[str, ...]:
        """Ids of the rows that a candidate prunes beside its sources."""
        rows = np.setdiff1d(candidate.rows, self.evidence.of_sources(candidate.sources))
        return tuple(row.id for row in fetch(self.workspace, rows))


class _Answers:
    """Asks the cells of a race within the budget, and marks them; see `race.Ask`.

    ``results`` by the place of the request, ``refused``: the calls of the last batch that the budget did not allow.
    """

    def __init__(
        self, llm: LLMClient, asked: Sequence[Query], requests: Sequence[Request], prompts: Int64s, budget: Budget
    ) -> None:
        self.llm, self.queries, self.requests, self.prompts, self.budget = llm, asked, requests, prompts, budget
        self.results: dict[int, Result] = {}
        self.refused = 0
        self._utilities = np.full(prompts.shape, np.nan)

    def __call__(self, wanted: Bools) -> Float64s | None:
        missing = [place for place in np.unique(self.prompts[wanted]).tolist() if place not in self.results]
        requests = [self.requests[place] for place in missing]
        if requests and not self._affordable(requests):
            return None
        try:
            self.results |= zip(missing, self.llm.ask(requests, self.budget), strict=True)
        except BudgetError:  # calls without an answer were charged, too: what was answered is cached
            self.refused = len(missing)
            return None
        for i, j in np.argwhere(wanted & np.isnan(self._utilities)).tolist():
            place = self.prompts[i, j]
            self._utilities[i, j] = _is_right(self.results[place], self.requests[place], self.queries[j])
        return self._utilities.copy()

    def _affordable(self, requests: Sequence[Request]) -> bool:
        """Whether the budget allows all of them, at their highest estimated cost."""
        budget = self.budget
        if budget.max_calls is None and budget.max_cost is None:
            return True
        plan = self.llm.plan(requests)
        self.refused = plan.to_ask
        fits = budget.max_calls is None or budget.calls + plan.to_ask <= budget.max_calls
        return fits and (budget.max_cost is None or plan.cost is None or budget.cost + plan.cost[1] <= budget.max_cost)


def _is_right(result: Result, request: Request, query: Query) -> bool:
    """A query without an answer counts as wrong, as in `evaluate`."""
    return isinstance(result, Answer) and is_correct(result.text, query.answers, request.prompt.choices)


def _difference(gain: Gain) -> Difference:
    return Difference(gain.mean, *gain.interval)


def _check_method(name: str, k: int) -> None:
    if name in LLM_METHODS:
        raise UsageError(
            f"{name} calls the LLM to select, which takes too many calls for a race", "choose --method bm25"
        )
    method_named(name)
    if name == "zero" or k < 1:
        raise UsageError("prompts without demonstrations cannot gain from pruning", "choose --method dense and -k 5")


def _validation(llm: LLMClient, limit: int | None) -> list[Query]:
    found = queries(llm.workspace, "validation", limit)
    if not found:
        raise UsageError(
            "tuning needs validation queries",
            "icl-curate index POOL.jsonl --validation QUERIES.jsonl, or --validation-fraction 0.2",
        )
    if len(found) < FIRST:
        raise UsageError(
            f"{len(found)} validation queries are too few to confirm a pruning",
            f"give at least {FIRST}, better 60 or more",
        )
    return found


def _other_evidence(tuning: Tuning) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is known of the sources and rows that could be pruned, as sentences, and the commands that prune them."""
    evidence = tuning.evidence
    bad = _bad_sources(tuning)
    known = [
        f"{name}: right in {right:,} of {hits:,} answers with single demonstrations, the other sources in {rest:.0%}"
        for name, right, hits, rest in bad
    ]
    instead = []
    if bad:
        instead.append("icl-curate prune " + " ".join(f"--source {quote(name)}" for name, *_ in bad))
    if surely := sum(posterior >= SURE for posterior in (evidence.posterior or {}).values()):
        known.append(
            f"{surely:,} of {evidence.rows.size:,} rows are likely to hurt, each with a probability of {SURE:g}"
        )
        instead.append("icl-curate prune --suspects")
    return tuple(known), tuple(instead)


def _bad_sources(tuning: Tuning) -> list[tuple[str, int, int, float]]:
    """Active sources that are right with single demonstrations less often than the others, beyond `WORSE` standard
    errors: name, right answers, answers, and the share of the others."""
    tried = [s for s in trials.source_summaries(tuning.workspace) if s.kept and s.hits]
    found = []
    for one in tried:
        others = [(s.accuracy or 0.0, s.hits or 0) for s in tried if s is not one]
        hits, own = one.hits or 0, one.accuracy or 0.0
        total = sum(count for _, count in others)
        if not total:
            continue
        rest = sum(share * count for share, count in others) / total
        pooled = (own * hits + rest * total) / (hits + total)
        error = float(np.sqrt(pooled * (1 - pooled) * (1 / hits + 1 / total)))
        if rest - own > WORSE * error:
            found.append((one.source, round(own * hits), hits, rest))
    return sorted(found, key=lambda each: each[1] / each[2])
