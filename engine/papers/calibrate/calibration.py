"""A calibration run: its cost, the rounds within a budget, and what is stored and returned.

All queries take a round together, so that their prompts are asked concurrently. A run that was stopped continues when
it is started again: prompts depend only on earlier answers, and answers come from the call cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from ...base.errors import LLMError, UsageError, counted
from ...base.packages import VERSION
from ...base.progress import Event
from ...llm.asking import prompt_budget
from ...llm.budget import Budget
from ...llm.cache import call_key, canonical
from ...llm.client import LLMClient
from ...llm.cost import Plan, usage_of
from ...llm.probing import UNSEEN
from ...llm.types import Request, Result
from ...pool.answers import is_correct, token_f1
from ...pool.prompts import Prompt
from ...pool.records import Query
from ...retrieval.view import PoolView
from ...select.selector import Selector
from ...store import runs
from ...store.demonstrations import field_values, task_of
from ...store.settings import Settings
from . import stored as kept
from .documents import cases_for, encoder_scores, fitted
from .prompts import OVERS, Case, Frame, alone_prompt, first_prompt
from .reports import groups_of, report_of
from .results import CalibratedQuery, QueryCalibration, ScoredDocument, ScoredRound, SetCalibration, SteppedQuery
from .round_runner import CalibrationPlan, CalibrationState, RoundRunner
from .rounds import ALL, ARMS, QueryRounds, Round, arms_named
from .scores import AUTO, ESTIMATORS, estimator_named
from .tuning import other_length
from .variants import REASONING_TOKENS, attention_figures, check_attention

TASK = "calibrate"
SCORE_TOKENS = 16
"""Tokens reserved for what a score or an earlier answer adds to a prompt besides its text."""


class Calibration:
    """A prepared calibration: the first prompts are known, nothing has been sent yet.

    Raises `UsageError` for no queries, unknown arms or estimators, or an arm that needs reference answers if there are
    none, and `LLMError` if the LLM lacks what the estimator needs, before any request; in a dry run not even a probe is
    sent. A long-running process passes its own ``selector``.
    """

    def __init__(
        self,
        llm: LLMClient,
        queries: Sequence[Query],
        plan: CalibrationPlan,
        *,
        selector: Selector | None = None,
    ) -> None:
        self.llm, self.plan = llm, plan
        self.workspace, self.settings = workspace, settings = llm.workspace, llm.settings
        self.report, self.cancel = llm.report, llm.cancel
        self.identity = canonical(llm.backend.identity())
        with workspace.read():  # opened once for all
            known = {
                (name, over): kept.mean_of(workspace, self.identity, name, over)
                for name in ESTIMATORS
                for over in OVERS
            }
            means = {key: found for key, found in known.items() if found and self._same_prompts(found[2], key[1])}
        self.stored_means: dict[tuple[str, str], float] = {key: found[0] for key, found in means.items()}
        if plan.estimator == AUTO and not plan.split and means:  # a single query is scored like the latest set
            (name, _), _ = max(means.items(), key=lambda item: item[1][2])
            plan = self.plan = replace(plan, estimator=name)
        self.estimator = estimator_named(plan.estimator)
        if not queries:
            raise UsageError(
                f"there are no {plan.split or 'queries'} queries to calibrate",
                "icl-curate index POOL.jsonl --validation QUERIES.jsonl, or --validation-fraction 0.2",
            )
        if not all(query.input.strip() for query in queries):
            raise UsageError("the query is empty", 'icl-curate calibrate query "a question"')
        self.arms = self._possible(arms_named(plan.arms), queries)
        self.plan = plan = replace(plan, arms=self.arms)
        if plan.until_correct and not all(query.answers for query in queries):
            raise UsageError("--until-correct needs reference answers", "--split validation, or leave it out")
        self.values = field_values(workspace, queries, plan.by) if plan.by else []
        self.task = task_of(workspace)
        self.frame = Frame(self.task, settings.template, settings.order)
        self.capabilities = llm.capabilities
        count = llm.backend.count_tokens
        cases = cases_for(workspace, queries, self.task, settings, plan.over, self.report, self.cancel, selector, count)
        if any(case.over == "documents" for case in cases) and (note := other_length(settings)):
            self.report(Event(TASK, note=note))
        given = self._cut_to_fit(cases)
        relevance: Sequence[tuple[float | None, ...]] = ()
        if any(ARMS[arm].documents == "relevance" for arm in self.arms):
            relevance = encoder_scores(PoolView(workspace, settings, self.report, self.cancel), given)
        self.round_runner = RoundRunner(
            given, self.frame, plan, settings, self.capabilities, relevance, self.stored_means
        )
        if plan.attention:
            check_attention(llm)
        if self.capabilities is not UNSEEN:  # as it is in a dry run before any probe
            self._check()
        self.asked: dict[bytes, Result] = {}

    @property
    def cases(self) -> Sequence[Case]:
        """The queries with their documents; over steps, those of the latest reasoning."""
        return self.round_runner.cases

    def _possible(self, arms: Sequence[str], queries: Sequence[Query]) -> tuple[str, ...]:
        """The arms that these queries allow. Of arms named one by one all must be possible, else `UsageError`."""
        lacking = {}
        if not all(query.answers for query in queries):
            lacking["oracle"] = "reference answers"
        if self.plan.over == "steps":
            lacking["relevance"] = "documents or demonstrations"
        for arm in (arm for arm in arms if arm in lacking):
            if ALL not in self.plan.arms:
                raise UsageError(f"the arm '{arm}' needs {lacking[arm]}", "leave out the arm")
            self.report(Event(TASK, note=f"the arm '{arm}' was left out: it needs {lacking[arm]}"))
        return tuple(arm for arm in arms if arm not in lacking)

    def _same_prompts(self, run: int, over: str) -> bool:
        """Whether a stored mean is of prompts like these: of the same template, and of as many demonstrations by the
        same method. Runs from before this was recorded count as alike."""
        then, now = runs.settings(self.workspace, run), self.settings
        alike: dict[str, object] = {"template": _template(now)}
        if over == "demonstrations":
            alike |= {"k": now.k, "method": now.method}
        if over == "documents" and then.get("document_tokens") != now.document_tokens:
            return False  # runs from before this was recorded had whole documents
        return all(then.get(name, value) == value for name, value in alike.items())

    # cost and results

    def cost(self) -> Plan:
        """What is left to ask, exact as far as answers are cached; each later round counts as one prompt more."""
        asked: list[Request] = []

        def peek(requests: Sequence[Request]) -> Sequence[Result | None]:
            asked.extend(requests)
            return self._peek(requests)

        state = self.round_runner.run(peek)
        plan, price = self.llm.plan(asked), self.llm.price
        each = 1 + (self.plan.samples if self.estimator.needs == "samples" else 0)
        more = sum(state.unknown) * each
        if not more:
            return plan
        low_in = high_in = 0
        for case, unknown in zip(self.cases, state.unknown, strict=True):
            tokens = self.llm.backend.count_tokens(first_prompt(case, self.frame)) if unknown else 0
            low_in += unknown * each * tokens
            high_in += unknown * each * (tokens + self._growth(case))
        low = 0 if self.plan.settle is not None else more
        low_in = 0 if self.plan.settle is not None else low_in
        high_out = more * self.settings.max_tokens
        return replace(
            plan,
            requests=plan.requests + more,
            distinct=plan.distinct + more,
            to_ask=plan.to_ask + more,
            tokens_in=(plan.tokens_in[0] + low_in, plan.tokens_in[1] + high_in),
            tokens_out=(plan.tokens_out[0] + low, plan.tokens_out[1] + high_out),
            cost=(plan.cost[0] + price.cost(low_in, low), plan.cost[1] + price.cost(high_in, high_out))
            if plan.cost and price
            else plan.cost,
        )

    def cached_rounds(self) -> SteppedQuery:
        """The first query as far as answers are cached; nothing is asked or stored."""
        return self._stepped_query(self.round_runner.run(self._peek))

    def cost_of_step(self) -> Plan:
        """What `step` would ask; nothing if all rounds are finished."""
        wanted: list[Request] = []

        def peek(requests: Sequence[Request]) -> Sequence[Result | None]:
            known = self._peek(requests)
            if not wanted and None in known:
                wanted.extend(requests)
            return known

        self.round_runner.run(peek)
        return self.llm.plan(wanted)

    def step(self, budget: Budget) -> SteppedQuery:
        """Ask only the next round of the first query; the answers are stored in the call cache only. Returns what
        `cached_rounds` returns from then on."""
        done = False

        def ask(requests: Sequence[Request]) -> Sequence[Result | None]:
            nonlocal done
            known = self._peek(requests)
            if done or None not in known:
                return known
            done = True
            return self._ask(requests, budget)

        return self._stepped_query(self.round_runner.run(ask))

    def _stepped_query(self, state: CalibrationState) -> SteppedQuery:
        """The first query, with the messages of each round's prompt."""
        done_queries, done_rounds = self._query_result(0, state), state.all_rounds[self.arms[0]][0].rounds
        known = {each.name: getattr(done_queries, each.name) for each in fields(done_queries)}
        return SteppedQuery(**known, prompts=tuple(round_.prompt.messages for round_ in done_rounds))

    def ask(self, budget: Budget) -> QueryCalibration | SetCalibration:
        """Run all rounds of all queries and store everything round by round. A single query outside a set is returned
        with its documents and rounds, a set with its summary figures."""
        described = asdict(self.plan) | {
            "arms": list(self.arms),
            "queries": len(self.cases),
            "k": self.settings.k,
            "method": self.settings.method,
            "seed": self.settings.seed,
            "template": _template(self.settings),
            "document_tokens": self.settings.document_tokens,
            "version": VERSION,
        }
        with runs.recorded(self.workspace, kept.KIND, self.llm.name, described) as record:
            state = self.round_runner.run(
                lambda requests: self._ask(requests, budget), lambda state, step: self._store(record.run, state, step)
            )
            found = self._result(record.run, state)
            record.summary = found.summary() if isinstance(found, SetCalibration) else found.as_json()
        return found

    # requests

    def _peek(self, requests: Sequence[Request]) -> Sequence[Result | None]:
        return self.llm.from_cache(requests)

    def _ask(self, requests: Sequence[Request], budget: Budget) -> Sequence[Result | None]:
        results = self.llm.ask(requests, budget)
        identity = self.llm.backend.identity()
        for request, result in zip(requests, results, strict=True):
            self.asked.setdefault(call_key(identity, request), result)
        return results

    # preparation

    def _growth(self, case: Case) -> int:
        """Maximum tokens by which the last round's prompt can be longer than the first."""
        steps = max(self.settings.max_tokens, REASONING_TOKENS) if case.over == "steps" else 0
        return (
            steps
            + SCORE_TOKENS * (4 + len(case.documents))
            + self.plan.rounds * (self.settings.max_tokens + SCORE_TOKENS)
        )

    def _cut_to_fit(self, cases: Sequence[Case]) -> list[Case]:
        room = prompt_budget(self.settings, self.capabilities)
        found = [fitted(case, self.frame, self.llm.backend.count_tokens, room, self._growth(case)) for case in cases]
        if cut := sum(was_cut for _, was_cut in found):
            note = f"{counted(cut, 'query', 'was', 'were')} truncated to fit into {room:,} tokens"
            self.report(Event(TASK, note=note))
        return [case for case, _ in found]

    def _check(self) -> None:
        needs = self.estimator.needs
        given = {"logprobs": self.capabilities.logprobs, "entropies": self.capabilities.entropies, "samples": True}
        sampled = any(ARMS[arm].samples for arm in self.arms)
        scored = all(self.round_runner.request(first_prompt(case, self.frame)).score for case in self.cases)
        if given[needs] or (scored and not sampled):
            return
        name = {"logprobs": "log-probabilities", "entropies": "entropies"}[needs]
        raise LLMError(
            f"calibration by '{self.plan.estimator}' needs {name} of answers, which {self.llm.name} does not provide",
            "icl-curate calibrate … --uncertainty self-consistency (samples each prompt), or --llm hf:PATH",
        )

    # storage and results

    def _store(self, run: int, state: CalibrationState, step: int) -> None:
        self.report(Event(TASK, step, self.plan.rounds))
        if step == 0:
            unscored = [None] * max((len(case.documents) for case in self.cases), default=0)
            rows = [
                {
                    "run": run,
                    "place": place,
                    "document": i + 1,
                    "id": document.id,
                    "row": document.demonstration.row if document.demonstration else None,
                    "text": document.text,
                    "relevant": document.relevant,
                    "prompt": _messages(alone_prompt(case, self.frame, i)) if answers else "[]",
                    "answer": answer.text if answer and answer.uncertainty is not None else None,
                    "uncertainty": answer.uncertainty if answer else None,
                    "score": score,
                }
                for place, (case, answers, scores) in enumerate(zip(self.cases, state.alone, state.scores, strict=True))
                for i, (document, answer, score) in enumerate(
                    zip(case.documents, answers or unscored, scores or unscored, strict=False)
                )
            ]
            kept.append(self.workspace, "calibration_documents", rows)
            self._store_means(run, state)
        done_rounds = [
            {
                "run": run,
                "arm": arm,
                "place": place,
                "prompt": _messages(round_.prompt),
                **asdict(self._scored_round(query_rounds, round_)),
            }
            for arm, all_rounds in state.all_rounds.items()
            for place, query_rounds in enumerate(all_rounds)
            for round_ in query_rounds.rounds[-1:]
            if round_.round == step
        ]
        kept.append(self.workspace, "calibration_rounds", done_rounds)

    def _store_means(self, run: int, state: CalibrationState) -> None:
        if not self.plan.split:
            return
        answered: list[str] = [
            case.over
            for case, query_rounds in zip(self.cases, state.all_rounds[self.arms[0]], strict=True)
            if not query_rounds.failure
        ]
        for over, mean in state.means.items():
            kept.save_mean(
                self.workspace, self.identity, self.round_runner.estimator_name, over, mean, answered.count(over), run
            )

    def _result(self, run: int, state: CalibrationState) -> QueryCalibration | SetCalibration:
        rows = []
        for arm, all_rounds in state.all_rounds.items():
            for place, query_rounds in enumerate(all_rounds):
                final = query_rounds.final(self.task)
                query = query_rounds.case.query
                rows.append(
                    {"run": run, "arm": arm, "place": place, "query": query.row, "input": query.input,
                     "over": query_rounds.case.over, "final": final.round if final else None,
                     "failure": query_rounds.failure}
                )  # fmt: skip
        kept.append(self.workspace, "calibrations", rows)
        done_queries = tuple(self._query_result(i, state) for i in range(len(self.cases)))
        failures = [query_rounds.failure for query_rounds in state.all_rounds[self.arms[0]] if query_rounds.failure]
        shared: dict[str, Any] = {
            "run": run,
            "llm": self.llm.name,
            "estimator": self.round_runner.estimator_name,
            "task": self.task.kind,
            "split": self.plan.split,
            "usage": usage_of(self.asked.values()),
            "means": dict(state.means),
        }
        if not self.plan.split and len(self.cases) == 1:
            if failures:
                raise LLMError(
                    f"{self.llm.name} gave no answer: {failures[0]}",
                    f"icl-curate llm check --llm {self.llm.name}",
                )
            [only] = done_queries
            return QueryCalibration(
                **shared, query=only, mean_known=(self.round_runner.estimator_name, only.over) in self.stored_means
            )
        size = (self.task, self.plan.rounds, self.settings.seed)
        figures = report_of(state.all_rounds, *size, state.costs)
        if self.values:
            figures = replace(figures, by=groups_of(self.plan.by, self.values, state.all_rounds, *size))
        if self.plan.attention:
            figures = replace(figures, attention=attention_figures(self.llm, state.all_rounds[self.arms[0]]))
        return SetCalibration(**shared, figures=figures, queries=done_queries)

    def _query_result(self, i: int, state: CalibrationState) -> CalibratedQuery:
        """The results of one query under the first arm."""
        case, query_rounds = self.cases[i], state.all_rounds[self.arms[0]][i]
        final = query_rounds.final(self.task)
        answers = state.alone[i] or [None] * len(case.documents)
        scores = query_rounds.scores or state.scores[i] or (None,) * len(case.documents)
        return CalibratedQuery(
            id=case.query.id,
            query=case.query.input,
            answers=tuple(case.query.answers),
            over=case.over,
            documents=tuple(
                ScoredDocument(
                    id=document.id,
                    score=score,
                    text=document.text,
                    answer=answer.text if answer else None,
                    uncertainty=answer.uncertainty if answer else None,
                    relevant=document.relevant,
                    row=document.demonstration.row if document.demonstration else None,
                )
                for document, answer, score in zip(case.documents, answers, scores, strict=True)
            ),
            rounds=tuple(self._scored_round(query_rounds, round_) for round_ in query_rounds.rounds),
            final=final.answer if final else None,
            final_round=final.round if final else None,
            failure=query_rounds.failure,
        )

    def _scored_round(self, query_rounds: QueryRounds, round_: Round) -> ScoredRound:
        query = query_rounds.case.query
        known = bool(query.answers)
        return ScoredRound(
            round=round_.round,
            answer=round_.answer,
            uncertainty=round_.uncertainty,
            score=round_.score,
            correct=is_correct(round_.answer, query.answers, self.task.choices(query)) if known else None,
            f1=token_f1(round_.answer, query.answers) if known else None,
        )


def _template(settings: Settings) -> list[str]:
    """What shapes the prompts of a run; a prefix of answers only if there is one, as in runs from before it existed."""
    prefix = [settings.answer_prefix] if settings.answer_prefix else []
    return [settings.prompt_format, settings.instruction, settings.order, *prefix]


def _messages(prompt: Prompt) -> str:
    return json.dumps([[message.role, message.content] for message in prompt.messages], ensure_ascii=False)
