"""Which pruning helps the prompts that are served: candidates raced with these prompts on validation queries.

Every candidate is tried as if it had been decided: the served method selects from the rest of the pool, and the prompt
is built as `evaluate` builds it. Many prompts do not change when rows are pruned that the method does not select, so
only distinct prompts are asked.

Labels of validation queries teach which labels of the pool are suspicious. So each half of the queries is asked with
the rows and corrections that the other queries suggest (cross-fitting: Chernozhukov et al. 2018). All of them tell
which candidates there are, their sources, and how far the evidence agrees with each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, zip_longest
from shlex import quote
from typing import Any

import numpy as np

from ..base.arrays import Float64s
from ..base.errors import UsageError, counted
from ..base.packages import VERSION
from ..base.progress import SILENT, Event
from ..checks.evidence import SURE
from ..evaluate.figures import hint
from ..evaluate.request_stages import LLM_METHODS, MethodContext
from ..evaluate.statistics import mean_of
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan, usage_of
from ..llm.graded import grading_set
from ..llm.judge import Grader
from ..llm.types import Answer, Request
from ..pool.answers import token_f1
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..select.selector import Selector, method_named
from ..store import trials
from ..store.browse import active_rows
from ..store.decisions import Revision
from ..store.demonstrations import fetch, groups, task_of, validation_queries, verified_queries
from ..store.settings import knobs
from ..store.workspace import Workspace
from ..trials.uses import NOISE
from .candidates import Candidate, PruningEvidence, gather, propose, retold
from .cells import CellAnswers, Cells, cells_of
from .race import FIRST, NEAR, RaceResult, race
from .results import KIND, CandidateResult, Confirmation, Difference, ServingSettings, TuneReport

TASK = "tune"
WORSE = 3.0
"""Standard errors below the other sources from which a source is called bad although the race could not confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """``noise``: the least gain, in standard errors; ``limit``: the first so many validation queries only; ``most``: so
    many candidates only, the baseline among them; ``relabel``: also try to correct labels instead of pruning rows;
    ``rejected``: what is not wanted; ``again``: the queries were raced before, so that nothing is named beforehand;
    ``care`` as in `race`."""

    noise: float = NOISE
    limit: int | None = None
    most: int | None = None
    relabel: bool = False
    rejected: tuple[Revision, ...] = ()
    again: bool = False
    care: float = 1.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """A prepared race: the ``candidates`` that the ``evidence`` proposes, how far it agrees with each (``agreement``,
    (candidates,)), and the ``cells`` of their prompts."""

    llm: LLMClient
    plan: TuningPlan
    queries: Sequence[Query]
    evidence: PruningEvidence
    candidates: Sequence[Candidate]
    agreement: Float64s
    cells: Cells
    grader: Grader

    @classmethod
    def prepare(cls, llm: LLMClient, plan: TuningPlan = TuningPlan()) -> Tuning:
        """Propose candidates and build their prompts with the method, k and order of the client's settings; nothing is
        sent. Raises `UsageError` if there are too few validation queries, or if the method shows no demonstrations, is
        not trained, or calls the LLM to select."""
        settings = llm.settings
        check_method(settings.method, settings.k)
        queries = validation(llm, plan.limit)
        evidence = gather(llm.workspace, settings, llm.monitor, plan.relabel)
        unwanted = [_rows_of(llm.workspace, revision) for revision in plan.rejected]
        candidates = [
            candidate
            for candidate in propose(evidence, settings.k, plan.most)
            if (candidate.rows.tolist(), sorted(candidate.outputs)) not in unwanted
        ]
        agreement = np.array([evidence.agreement(candidate) for candidate in candidates])
        parts = [(queries, evidence)]
        if evidence.taught:
            parts, verified = [], verified_queries(llm.workspace)
            halves = _halves(llm.workspace, queries)
            queries = [query for turn in zip_longest(*halves) for query in turn if query]
            for half in filter(None, halves):
                judges = {query.row for query in half}
                teachers = [query for query in verified if query.row not in judges]
                by_others = gather(llm.workspace, settings, llm.monitor.quiet, plan.relabel, teachers=teachers)
                parts.append((half, by_others))
        cells = cells_of(_asked(llm, candidates, parts))
        grader = Grader.of(llm, task_of(llm.workspace))
        return cls(llm, plan, queries, evidence, candidates, agreement, cells, grader)

    def cost(self) -> Plan:
        """At most: if no candidate is dropped before the last query."""
        return self.grader.plan(self.llm, self.cells.requests)

    def from_cache(self) -> TuneReport:
        """The result from cached answers alone, not stored as a run. Nothing is sent."""
        return self._raced(None, Budget(max_calls=0))

    def ask(self, budget: Budget) -> TuneReport:
        """Race the candidates and store the result. If the budget ends, the result is what is known by then."""
        described = {
            **knobs(self.llm.settings),
            "queries": len(self.queries),
            "noise": self.plan.noise,
            "relabel": self.plan.relabel,
            "candidates": [candidate.name for candidate in self.candidates],
            "version": VERSION,
        } | self.grader.told
        with self.llm.recorded(KIND, described) as record:
            report = self._raced(record.run, budget)
            record.summary = report.as_json()
        return report

    def _raced(self, run: int | None, budget: Budget) -> TuneReport:
        llm, settings = self.llm, self.llm.settings
        answers = CellAnswers(llm, replace(self.grader), self.queries, self.cells, budget)
        told = self.evidence.answered or self.plan.again
        named = 0 if told else int(self.agreement.argmax())  # the baseline, 0, agrees with 0.0
        outcome = race(
            answers, self.agreement, len(self.queries), near=NEAR, seed=settings.seed, named=named, care=self.plan.care
        )
        winner = self.candidates[outcome.winner]
        confirmed = outcome.confirmed(self.plan.noise) and answers.outcomes.decides
        tried = [
            replace(result, agreement=round(float(agreement), 3)) if result.changes else result
            for result, agreement in zip(results_of(self.candidates, outcome), self.agreement, strict=True)
        ]
        before = tried[0].accuracy
        pruned = winner.sources if confirmed else ()
        beside = np.setdiff1d(winner.rows, self.evidence.of_sources(winner.sources))
        task, replies = self.grader.task, answers.replies
        f1s = [token_f1(result.text, query.answers) for query, result in replies if isinstance(result, Answer)]
        f1 = mean_of(f1s) if task.kind == "open" else None
        grading = grading_set(llm.workspace, settings, task)
        hints, instead = _other_evidence(llm.workspace, self.evidence, grading) if not confirmed else ((), ())
        return TuneReport(
            run=run,
            llm=llm.name,
            usage=usage_of(list(answers.results.values())),
            served=ServingSettings(settings.method, settings.k, settings.order),
            estimator=self.evidence.ranked_by,
            proposed=winner.name,
            pruned=pruned,
            pruned_rows=tuple(row.id for row in fetch(llm.workspace, beside)) if confirmed else (),
            kept=tuple(sorted(set(self.evidence.sources) - set(pruned))),
            validation_before=before,
            validation_after=tried[outcome.winner].accuracy if confirmed else before,
            gain=outcome.gain.mean,
            gain_error=outcome.gain.error if outcome.gain.queries else None,
            worth_it=confirmed,
            confirmed=confirmation(before, outcome, len(answers.results), len(self.queries)),
            candidates=tuple(tried),
            stopped=stopped(outcome, answers, len(self.queries)),
            known=hints,
            instead=instead,
            relabelled={row.id: winner.outputs[row.row] for row in fetch(llm.workspace, sorted(winner.outputs))}
            if confirmed
            else {},
            outcomes=answers.outcomes,
            graded_by=self.grader.by,
            hint=hint(answers.outcomes, before, f1, replies, task, self.grader, settings.answer_tokens) or None,
            judge=answers.grader.judging,
            noise=self.plan.noise,
        )


def _halves(workspace: Workspace, queries: Sequence[Query]) -> tuple[list[Query], list[Query]]:
    """The queries in turns, those that repeat each other in one half: what one of them taught would judge the other."""
    of = groups(workspace)
    places = {group: i for i, group in enumerate(dict.fromkeys(of[query.row] for query in queries))}
    odd = [places[of[query.row]] % 2 for query in queries]
    return list(compress(queries, (not part for part in odd))), list(compress(queries, odd))


def _asked(
    llm: LLMClient, candidates: Sequence[Candidate], parts: Sequence[tuple[Sequence[Query], PruningEvidence]]
) -> Iterator[list[Request]]:
    """The prompts of each candidate: one a query, as `evaluate` would ask it after this pruning; the queries of each of
    the ``parts`` by its own evidence, in turns."""
    settings = llm.settings
    view = PoolView(llm.workspace, settings, llm.monitor)
    for i, candidate in enumerate(candidates):
        llm.monitor.check()
        llm.monitor.report(Event(TASK, i, len(candidates)))
        asked: list[list[Request]] = []
        for queries, evidence in parts:
            own = retold(candidate, evidence, settings.k)
            asked.append(served_prompts(llm, queries, settings.method, view.without(own.rows, own.outputs))[0])
        yield [request for turn in zip_longest(*asked) for request in turn if request is not None]
    llm.monitor.report(Event(TASK, len(candidates), len(candidates)))


def served_prompts(
    llm: LLMClient, queries: Sequence[Query], method: str, view: PoolView | None = None
) -> tuple[list[Request], list[list[int]]]:
    """The prompt of each query as the method serves it from the active pool, and the rows it shows, best first."""
    settings = replace(llm.settings, method=method)
    selector = Selector(llm.workspace, settings=settings, view=view)
    rows = [[pick.row for pick in chosen] for chosen in selector.picks(queries)]
    context = MethodContext(selector, llm.backend, settings, llm.capabilities, queries, SILENT)
    return context.prompts(rows)[0], rows


def _rows_of(workspace: Workspace, revision: Revision) -> tuple[list[int], list[int]]:
    """Numbers of the active rows that a revision prunes, and of those it relabels, each ascending."""
    pruned = active_rows(workspace, revision.sources, revision.rows)
    return pruned.tolist(), active_rows(workspace, (), tuple(revision.outputs)).tolist()


def results_of(candidates: Sequence[Candidate], outcome: RaceResult) -> list[CandidateResult]:
    """How each candidate did."""
    return [_result_of(candidate, place, outcome) for place, candidate in enumerate(candidates)]


def _result_of(candidate: Candidate, place: int, outcome: RaceResult) -> CandidateResult:
    return CandidateResult(
        name=candidate.name,
        reason=candidate.reason,
        sources=candidate.sources,
        pruned_rows=len(candidate.rows),
        **figures_of(outcome, place),
        chosen=outcome.queries > 0 and place == outcome.winner,
        relabelled=len(candidate.outputs),
    )


def figures_of(outcome: RaceResult, place: int) -> dict[str, Any]:
    """How the candidate at a place did: the fields of `CandidateResult` that a race fills."""
    given, gain = outcome.utilities[place], outcome.against_baseline(place)
    asked = int(np.count_nonzero(~np.isnan(given)))
    return {
        "queries": asked,
        "accuracy": float(np.nanmean(given)) if asked else None,
        "versus": Difference(gain.mean, *gain.interval) if gain.queries and place else None,
        "dropped_after": int(outcome.dropped[place]) or None if place else None,
    }


def confirmation(before: float | None, outcome: RaceResult, calls: int, available: int) -> Confirmation | None:
    """What the race confirmed, None if nothing was asked, or no answer of the baseline or of the winners is known."""
    if before is None or not outcome.gain.queries:
        return None
    gain, (low, high) = outcome.gain.mean, outcome.gain.interval
    return Confirmation(before, before + gain, gain, low, high, calls, outcome.queries, available, outcome.named)


def stopped(outcome: RaceResult, answers: CellAnswers, queries: int) -> str:
    """Why the race ended early, empty if it did not."""
    if not outcome.stopped:
        return ""
    done = f"{outcome.queries:,} of {counted(queries, 'query')}" if outcome.queries else "no batch of queries"
    return f"the budget was enough for {done}; the next batch needs {answers.refused:,} more calls"


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
    asked = validation_queries(llm.workspace, "tuning", limit, llm.monitor)
    if len(asked) < FIRST:
        raise UsageError(
            f"{counted(len(asked), 'validation query', 'is', 'are')} too few to confirm a pruning",
            f"give at least {FIRST}, better 60 or more",
        )
    return asked


def _other_evidence(
    workspace: Workspace, evidence: PruningEvidence, grading: trials.Grading
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is known of the sources and rows that could be pruned, as sentences, and the commands that prune them."""
    bad = _bad_sources(workspace, grading)
    hints = [
        f"{name}: right in {right:,} of {counted(hits, 'answer')} with single demonstrations, the other sources "
        f"in {rest:.0%}"
        for name, right, hits, rest in bad
    ]
    instead = []
    if bad:
        instead.append("icl-curate prune " + " ".join(f"--source {quote(name)}" for name, *_ in bad))
    if surely := sum(posterior >= SURE for posterior in (evidence.posterior or {}).values()):
        hints.append(
            f"{surely:,} of {counted(evidence.rows.size, 'row')} are likely to hurt, each with a probability of "
            f"{SURE:g}"
        )
        instead.append("icl-curate suspects prune")
    return tuple(hints), tuple(instead)


def _bad_sources(workspace: Workspace, grading: trials.Grading) -> list[tuple[str, int, int, float]]:
    """Active sources that are right with single demonstrations less often than the others, beyond `WORSE` standard
    errors: name, right answers, answers, and the share of the others."""
    tried = [
        (s.source, s.accuracy or 0.0, s.hits or 0)
        for s in trials.source_summaries(workspace, grading)
        if s.kept and s.hits
    ]
    bad = []
    for name, own, hits in tried:
        others = [(share, count) for other, share, count in tried if other != name]
        total = sum(count for _, count in others)
        if not total:
            continue
        rest = sum(share * count for share, count in others) / total
        pooled = (own * hits + rest * total) / (hits + total)
        error = float(np.sqrt(pooled * (1 - pooled) * (1 / hits + 1 / total)))  # of the difference of two shares
        if rest - own > WORSE * error:
            bad.append((name, round(own * hits), hits, rest))
    return sorted(bad, key=lambda source: source[1] / source[2])
