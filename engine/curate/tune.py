"""Which pruning helps the prompts that are served: candidates raced with these prompts on validation queries.

Every candidate is tried as if it had been decided: the served method selects from the rest of the pool, and the prompt
is built as `evaluate` builds it. Many prompts do not change when rows are pruned that the method does not select, so
only distinct prompts are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np

from ..base.errors import UsageError, counted
from ..base.packages import VERSION
from ..base.progress import Event, silent
from ..checks.evidence import SURE
from ..evaluate.request_stages import LLM_METHODS, MethodContext
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.types import Request
from ..pool.records import Query
from ..select.selector import Selector, method_named
from ..store import runs, trials
from ..store.browse import active_rows
from ..store.decisions import Revision
from ..store.demonstrations import fetch, first_queries
from ..store.settings import knobs
from ..trials.uses import NOISE
from .candidates import Candidate, gather, propose
from .cells import CellAnswers, cells_of
from .race import FIRST, NEAR, Gain, RaceResult, race
from .results import KIND, CandidateResult, Confirmation, Difference, ServingSettings, TuneReport

TASK = "tune"
WORSE = 3.0
"""Standard errors below the other sources from which a source is called bad although the race could not confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """``noise``: the least gain, in standard errors; ``limit``: the first so many validation queries only; ``most``: so
    many candidates only, the baseline among them; ``relabel``: also try to correct labels instead of pruning rows;
    ``rejected``: what is not wanted."""

    noise: float = NOISE
    limit: int | None = None
    most: int | None = None
    relabel: bool = False
    rejected: tuple[Revision, ...] = ()


class Tuning:
    """A prepared race: candidates are proposed and their prompts built, nothing has been sent yet.

    The method, k and order are those of the client's settings. Raises `UsageError` if there are too few validation
    queries, or if the method shows no demonstrations, is not trained, or calls the LLM to select.
    """

    def __init__(self, llm: LLMClient, plan: TuningPlan = TuningPlan()) -> None:
        self.llm, self.plan = llm, plan
        self.workspace, self.settings = llm.workspace, llm.settings
        check_method(self.settings.method, self.settings.k)
        self.queries = validation(llm, plan.limit)
        self.selector = Selector(self.workspace, settings=self.settings, report=llm.report, cancel=llm.cancel)
        self.evidence = gather(self.workspace, self.settings, silent, llm.cancel, plan.relabel)
        unwanted = [self._rows_of(revision) for revision in plan.rejected]
        self.candidates = [
            candidate
            for candidate in propose(self.evidence, self.settings.k, plan.most)
            if (candidate.rows.tolist(), sorted(candidate.outputs)) not in unwanted
        ]
        self.agreement = np.array([self.evidence.agreement(each) for each in self.candidates])
        self.cells = cells_of(self._asked())

    def cost(self) -> Plan:
        """At most: if no candidate is dropped before the last query."""
        return self.llm.plan(self.cells.requests)

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

    def _asked(self) -> Iterator[list[Request]]:
        """The prompts of each candidate."""
        for i, candidate in enumerate(self.candidates):
            self.llm.cancel.check()
            self.llm.report(Event(TASK, i, len(self.candidates)))
            yield self._prompts(candidate)
        self.llm.report(Event(TASK, len(self.candidates), len(self.candidates)))

    def _prompts(self, candidate: Candidate) -> list[Request]:
        """One request per query, as `evaluate` would ask it after this pruning."""
        view = self.selector.view.without(candidate.rows, candidate.outputs)
        selector = Selector(self.workspace, settings=self.settings, view=view)
        picks = selector.picks(self.queries)
        llm = self.llm
        context = MethodContext(selector, llm.backend, self.settings, llm.capabilities, self.queries, silent)
        return context.prompts([[pick.row for pick in chosen] for chosen in picks])[0]

    def _race(self, budget: Budget) -> tuple[RaceResult, CellAnswers]:
        answers = CellAnswers(self.llm, self.queries, self.cells, budget)
        return race(answers, self.agreement, len(self.queries), near=NEAR, seed=self.settings.seed), answers

    def _report(self, run: int | None, outcome: RaceResult, answers: CellAnswers) -> TuneReport:
        winner = self.candidates[outcome.winner]
        confirmed = outcome.confirmed(self.plan.noise) and answers.outcomes.decides
        tried = [
            replace(each, agreement=round(float(agreement), 3)) if each.changes else each
            for each, agreement in zip(results_of(self.candidates, outcome), self.agreement, strict=True)
        ]
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
            gain_error=outcome.gain.error if outcome.gain.queries else None,
            worth_it=confirmed,
            confirmed=confirmation(before, outcome, len(answers.results), len(self.queries)),
            candidates=tuple(tried),
            stopped=stopped(outcome, answers, len(self.queries)),
            known=known,
            instead=instead,
            relabelled=self._outputs_by_id(winner) if confirmed else {},
            outcomes=answers.outcomes,
        )

    def _ids_beside(self, candidate: Candidate) -> tuple[str, ...]:
        """Ids of the rows that a candidate prunes beside its sources."""
        rows = np.setdiff1d(candidate.rows, self.evidence.of_sources(candidate.sources))
        return tuple(row.id for row in fetch(self.workspace, rows))

    def _outputs_by_id(self, candidate: Candidate) -> dict[str, str]:
        """The outputs that a candidate gives to rows."""
        return {row.id: candidate.outputs[row.row] for row in fetch(self.workspace, sorted(candidate.outputs))}

    def _rows_of(self, revision: Revision) -> tuple[list[int], list[int]]:
        """Numbers of the active rows that a revision prunes, and of those it relabels, each ascending."""
        pruned = active_rows(self.workspace, revision.sources, revision.rows)
        return pruned.tolist(), active_rows(self.workspace, (), tuple(revision.outputs)).tolist()


def results_of(candidates: Sequence[Candidate], outcome: RaceResult) -> list[CandidateResult]:
    """How each candidate did."""
    return [_result_of(candidate, place, outcome) for place, candidate in enumerate(candidates)]


def _result_of(candidate: Candidate, place: int, outcome: RaceResult) -> CandidateResult:
    given = outcome.utilities[place]
    asked = int(np.count_nonzero(~np.isnan(given)))
    gain = outcome.against_baseline(place)
    versus = _difference(gain) if gain.queries and place else None
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
        relabelled=len(candidate.outputs),
    )


def confirmation(before: float | None, outcome: RaceResult, calls: int, available: int) -> Confirmation | None:
    """What the race confirmed, None if nothing was asked, or no answer of the baseline or of the winners is known."""
    if before is None or not outcome.gain.queries:
        return None
    gain, (low, high) = outcome.gain.mean, outcome.gain.interval
    return Confirmation(before, before + gain, gain, low, high, calls, outcome.queries, available)


def stopped(outcome: RaceResult, answers: CellAnswers, queries: int) -> str:
    """Why the race ended early, empty if it did not."""
    if not outcome.stopped:
        return ""
    done = f"{outcome.queries:,} of {counted(queries, 'query')}" if outcome.queries else "no batch of queries"
    return f"the budget was enough for {done}; the next batch needs {answers.refused:,} more calls"


def _difference(gain: Gain) -> Difference:
    return Difference(gain.mean, *gain.interval)


def check_method(name: str, k: int) -> None:
    """Raise `UsageError` for a method or number of shots that pruning cannot help."""
    if name in LLM_METHODS:
        raise UsageError(
            f"{name} calls the LLM to select, which takes too many calls for a race", "choose --method bm25"
        )
    method_named(name)
    if name == "zero" or k < 1:
        raise UsageError("prompts without demonstrations cannot gain from pruning", "choose --method dense and -k 5")


def validation(llm: LLMClient, limit: int | None) -> list[Query]:
    """The first ``limit`` validation queries. Raises `UsageError` if they are too few for a race."""
    found = first_queries(llm.workspace, "validation", limit, llm.report)
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
        f"{name}: right in {right:,} of {counted(hits, 'answer')} with single demonstrations, the other sources "
        f"in {rest:.0%}"
        for name, right, hits, rest in bad
    ]
    instead = []
    if bad:
        instead.append("icl-curate prune " + " ".join(f"--source {quote(name)}" for name, *_ in bad))
    if surely := sum(posterior >= SURE for posterior in (evidence.posterior or {}).values()):
        known.append(
            f"{surely:,} of {counted(evidence.rows.size, 'row')} are likely to hurt, each with a probability of "
            f"{SURE:g}"
        )
        instead.append("icl-curate suspects prune")
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
