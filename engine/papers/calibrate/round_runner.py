"""Runs queries through calibration rounds together: one batch of prompts per round, answered by one function.

Independent of workspace and budget, so that a dry run with cached answers takes exactly the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType

from ...llm.asking import request_for
from ...llm.types import Answer, Capabilities, Request, Result, Sampling
from ...pool.answers import is_correct
from ...pool.prompts import Prompt
from ...store.settings import Settings
from .documents import OverOption
from .prompts import Case, Frame, alone_prompt, first_prompt, with_documents
from .results import Cost
from .rounds import ARMS, Arm, QueryRounds, Round, arms_named, oracle_scores
from .scores import AUTO, NEUTRAL, answer_score, document_scores, estimator_named, more_spread_estimator
from .variants import REASONING_TOKENS, USUAL_STEPS, best_document, critique_prompts, reasoning_prompt, steps_of

TEMPERATURE = 0.7
"""Sampling temperature (paper 001, section 5.2)."""

SETTLED = 1.0
"""Default of ``settle``: points by which the score of an unchanged answer may differ to count as settled."""

Ask = Callable[[Sequence[Request]], Sequence[Result | None]]
"""Answers in order; None for those that are not cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """How to calibrate. ``split`` names the set that the queries are, empty for single ones.

    ``settle``: points that an unchanged answer's score may move for the rounds to stop early; None: all ``rounds``.
    ``samples``: drawn for each prompt if the estimator needs them. ``above``: queries whose first answer has a lower
    score take no further round (section 4.1: samples that require calibration). ``until_correct``: a query ends with
    its first right answer (section 3.3), for fine-tuning sets; needs reference answers. ``by``: a field of the queries
    by whose values figures are reported, too (table 4). ``attention``: report where a local model looks (table 10).
    """

    rounds: int = 5
    arms: tuple[str, ...] = ("full",)
    estimator: str = AUTO
    over: OverOption = "auto"
    settle: float | None = None
    samples: int = 5
    split: str = ""
    above: float | None = None
    until_correct: bool = False
    by: str = ""
    attention: bool = False


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """An answer and its uncertainty; ``uncertainty`` None: there was no answer, ``failure`` says why."""

    text: str
    uncertainty: float | None
    failure: str = ""


@dataclass(slots=True)
class CalibrationState:
    """The state of a run: the answers from each case's documents, the means by kind of case, the rounds by arm.

    ``unknown`` are prompts that cannot be built yet, as their number for each case; ``costs`` are those of each arm.
    """

    alone: list[list[ScoredAnswer | None]]
    scores: list[tuple[float | None, ...]]
    means: dict[str, float]
    all_rounds: dict[str, list[QueryRounds]]
    unknown: list[int]
    costs: dict[str, Cost]


After = Callable[["CalibrationState", int], None]
"""Called with the current state and the number of the finished round."""


class RoundRunner:
    """Runs cases according to a plan. ``relevance``: external document scores of each case, if an arm shows them;
    ``stored_means``: of sets calibrated before, by estimator and kind of case, for queries outside a set.
    ``estimator_name`` is, for ``auto``, the one chosen by the first answers."""

    def __init__(
        self,
        cases: Sequence[Case],
        frame: Frame,
        plan: CalibrationPlan,
        settings: Settings,
        capabilities: Capabilities,
        relevance: Sequence[tuple[float | None, ...]] = (),
        stored_means: Mapping[tuple[str, str], float] = MappingProxyType({}),
    ) -> None:
        self.given, self.frame, self.plan, self.settings = cases, frame, plan, settings
        self.cases = list(cases)
        """The cases of the latest `run`: with ``over`` steps, those of the reasoning."""
        self._unreasoned: dict[int, str] = {}
        self.capabilities, self.relevance, self.stored_means = capabilities, relevance, stored_means
        self.arms, self.estimator = arms_named(plan.arms), estimator_named(plan.estimator)
        self.estimator_name = plan.estimator

    def request(self, prompt: Prompt) -> Request:
        """The request for a prompt of a round."""
        return request_for(prompt, self.settings, self.capabilities)

    def run(self, ask: Ask, after: After | None = None) -> CalibrationState:
        """All queries from round 0 to the last; ``after`` is called when a round is finished (0: also the documents).

        Without a cached answer a query stops there; its further rounds are ``unknown``.
        """
        reasoned = self._reasoned(ask)
        if reasoned is None:
            return self._unknown_state()
        cases = self.cases
        readers = [arm for arm in self.arms if ARMS[arm].reads_documents_alone]
        shows = bool(readers)
        alone = [alone_prompt(case, self.frame, i) for case in cases for i in range(len(case.documents) * shows)]
        prompts = [*(first_prompt(case, self.frame) for case in cases), *alone]
        results = self._results(prompts, ask)
        if self.plan.estimator == AUTO:
            first_results = [found[0] for found in results[: len(cases)]]
            self.estimator_name = more_spread_estimator([found for found in first_results if isinstance(found, Answer)])
            self.estimator = estimator_named(self.estimator_name)
        answers = [self._scored_answer(prompt, found) for prompt, found in zip(prompts, results, strict=True)]
        firsts, rest = answers[: len(cases)], iter(answers[len(cases) :])
        by_case = [[next(rest) for _ in case.documents] if alone else [] for case in cases]
        scores = [document_scores([s.uncertainty if s else None for s in own]) for own in by_case]
        # a mean is that of the whole set: if one answer is missing, no later prompt can be known
        known = all(firsts) and all(all(own) for own in by_case)
        costs = {arm: Cost() for arm in self.arms}
        state = CalibrationState(by_case, scores, self._means(firsts), {}, [0] * len(cases), costs)
        self._charge(state, self.arms, [reasoned])
        self._charge(state, [arm for arm in self.arms if not ARMS[arm].critique], results[: len(cases)])
        self._charge(state, readers, results[len(cases) :])
        for arm in self.arms:
            if ARMS[arm].critique:
                state.all_rounds[arm] = self._criticised(arm, state, ask)
            else:
                state.all_rounds[arm] = [self._round_0(arm, i, firsts[i], state) for i in range(len(cases))]
        after = after or (lambda state, step: None)
        after(state, 0)
        sending_arms = self._sending_arms()
        if not known:
            more = self.plan.rounds * len(sending_arms)
            state.unknown = [unknown + more for unknown in state.unknown]
            return state
        for step in range(1, self.plan.rounds + 1):
            self._step(state, sending_arms, step, ask)
            after(state, step)
        return state

    def _reasoned(self, ask: Ask) -> list[Result | None] | None:
        """Ask for the reasoning of the cases over steps, and make its steps their documents. None if a reasoning is not
        cached: no later prompt can be known then."""
        own = [i for i, case in enumerate(self.given) if case.over == "steps"]
        self.cases = list(self.given)
        if not own:
            return []
        results = list(ask([self._reasoning(self.given[i]) for i in own]))
        for i, result in zip(own, results, strict=True):
            if isinstance(result, Answer):
                self.cases[i] = with_documents(self.given[i], steps_of(result.text))
            elif result is not None:
                self._unreasoned[i] = f"{result.kind}: {result.message}"
        return None if None in results else results

    def _reasoning(self, case: Case) -> Request:
        settings = self.settings
        tokens = max(settings.max_tokens, REASONING_TOKENS)
        sampling = Sampling(max_tokens=tokens, temperature=settings.temperature, seed=settings.seed)
        return Request(reasoning_prompt(case, self.frame), False, sampling)

    def _unknown_state(self) -> CalibrationState:
        """Before any reasoning is known: an estimate of what is left to ask."""
        steps = USUAL_STEPS * any(ARMS[arm].reads_documents_alone for arm in self.arms)
        more = 1 + steps + self.plan.rounds * len(self._sending_arms())
        count = len(self.cases)
        rounds = {arm: [QueryRounds(case, arm, stopped=True) for case in self.cases] for arm in self.arms}
        costs = {arm: Cost() for arm in self.arms}
        means: dict[str, float] = {case.over: NEUTRAL for case in self.cases}
        return CalibrationState([[] for _ in self.cases], [()] * count, means, rounds, [more] * count, costs)

    def _sending_arms(self) -> list[str]:
        """The arms that send requests: of those that draw samples, one asks for all."""
        samplers = [arm for arm in self.arms if ARMS[arm].samples]
        return [arm for arm in self.arms if arm not in samplers[1:] and not ARMS[arm].critique]

    def _step(self, state: CalibrationState, sending_arms: Sequence[str], step: int, ask: Ask) -> None:
        live = [
            (arm, i, c)
            for arm in sending_arms
            for i, c in enumerate(state.all_rounds[arm])
            if not (c.stopped or c.failure)
        ]
        prompts = [query_rounds.prompt(self.frame, self.settings.seed) for _, _, query_rounds in live]
        draws = [step if ARMS[arm].samples else 0 for arm, _, _ in live]
        results = self._results(prompts, ask, draws)
        for (arm, i, query_rounds), prompt, found in zip(live, prompts, results, strict=True):
            sharing = [other for other in self.arms if ARMS[other].samples] if ARMS[arm].samples else [arm]
            self._charge(state, sharing, [found])
            answer = self._scored_answer(prompt, found)
            if answer is None:
                query_rounds.stopped = True
                state.unknown[i] += self.plan.rounds - step
            elif answer.uncertainty is None:
                query_rounds.failure = answer.failure
            else:
                self._take(state, query_rounds, Round(step, prompt, answer.text, answer.uncertainty, 0.0))
                if ARMS[arm].samples:
                    for other in self.arms:
                        if other != arm and ARMS[other].samples:
                            self._take(state, state.all_rounds[other][i], query_rounds.rounds[-1])

    def _take(self, state: CalibrationState, query_rounds: QueryRounds, round_: Round) -> None:
        round_ = replace(round_, score=answer_score(round_.uncertainty, state.means[query_rounds.case.over]))
        samples = ARMS[query_rounds.arm].samples
        query_rounds.take(round_, self.frame.task, None if samples else self.plan.settle)
        if not samples and self._needs_no_more(query_rounds, round_):
            query_rounds.stopped = True

    def _needs_no_more(self, query_rounds: QueryRounds, round_: Round) -> bool:
        """Whether a query needs no further round: its first answer is certain enough, or this one is right."""
        query = query_rounds.case.query
        if self.plan.above is not None and round_.round == 0 and round_.score < self.plan.above:
            return True
        return self.plan.until_correct and is_correct(round_.answer, query.answers, self.frame.task.choices(query))

    def _round_0(self, arm: str, i: int, first: ScoredAnswer | None, state: CalibrationState) -> QueryRounds:
        case, rules = self.cases[i], ARMS[arm]
        query_rounds = QueryRounds(case, arm, self._scores(rules, i, state))
        if i in self._unreasoned:
            query_rounds.failure = self._unreasoned[i]
        elif first is None:
            query_rounds.stopped = True
        elif first.uncertainty is None:
            query_rounds.failure = first.failure
        else:
            prompt = first_prompt(case, self.frame)
            if not (rules.samples and self.request(prompt).score):  # a scored answer cannot be sampled
                self._take(state, query_rounds, Round(0, prompt, first.text, first.uncertainty, 0.0))
        return query_rounds

    def _criticised(self, arm: str, state: CalibrationState, ask: Ask) -> list[QueryRounds]:
        """The baseline that judges each document and its answer: one round, with the answer of the best."""
        found = [QueryRounds(case, arm, stopped=True) for case in self.cases]
        prompts = {
            (i, d): critique_prompts(case, d, answer.text)
            for i, case in enumerate(self.cases)
            for d, answer in enumerate(state.alone[i])
            if answer is not None
        }
        requests = [self.request(prompt) for both in prompts.values() for prompt in both]
        results = iter(ask(requests))
        judged = {at: (next(results), next(results)) for at in prompts}
        for i, (query_rounds, case) in enumerate(zip(found, self.cases, strict=True)):
            own = [judged.get((i, d), (None, None)) for d in range(len(case.documents))]
            self._charge(state, [arm], own)
            missing = sum(answer is None for answer in state.alone[i])
            state.unknown[i] += 2 * missing
            if missing or any(None in both for both in own):
                continue
            uncertainties = [answer.uncertainty if answer else None for answer in state.alone[i]]
            best = best_document(uncertainties, own)
            chosen = state.alone[i][best[0]] if best else None
            if best is None or chosen is None:
                query_rounds.failure = "no document was answered from"
                continue
            prompt = alone_prompt(case, self.frame, best[0])
            score = answer_score(best[1], state.means[case.over])
            query_rounds.rounds.append(Round(0, prompt, chosen.text, best[1], score))
        return found

    def _charge(self, state: CalibrationState, arms: Sequence[str], results: Sequence[Sequence[Result | None]]) -> None:
        """Add what these answers cost to each of the arms."""
        answers = [answer for found in results for answer in found if isinstance(answer, Answer)]
        cost = Cost(
            len(answers),
            sum(answer.tokens_in for answer in answers),
            sum(answer.tokens_out for answer in answers),
            sum(answer.latency for answer in answers),
        )
        for arm in arms:
            state.costs[arm] += cost

    def _scores(self, rules: Arm, i: int, state: CalibrationState) -> tuple[float | None, ...]:
        if rules.documents == "uncertainty":
            return state.scores[i]
        if rules.documents == "relevance":
            return self.relevance[i]
        return oracle_scores(self.cases[i], self.settings.seed) if rules.documents == "oracle" else ()

    def _means(self, firsts: Sequence[ScoredAnswer | None]) -> dict[str, float]:
        """The mean uncertainty of round 0 over the set; for single queries that of an earlier set."""
        if not self.plan.split:
            return {case.over: self.stored_means.get((self.estimator_name, case.over), NEUTRAL) for case in self.cases}
        values: dict[str, list[float]] = {case.over: [] for case in self.cases}
        for case, answer in zip(self.cases, firsts, strict=True):
            if answer is not None and answer.uncertainty is not None:
                values[case.over].append(answer.uncertainty)
        return {over: fmean(found) if found else NEUTRAL for over, found in values.items()}

    # requests

    def _results(self, prompts: Sequence[Prompt], ask: Ask, draws: Sequence[int] = ()) -> list[list[Result | None]]:
        """The results of each prompt's requests: the answer, then samples if the estimator needs them."""
        wanted = [
            list(self._requests(prompt, draw))
            for prompt, draw in zip(prompts, draws or [0] * len(prompts), strict=True)
        ]
        results = iter(ask([request for requests in wanted for request in requests]))
        return [[next(results) for _ in requests] for requests in wanted]

    def _requests(self, prompt: Prompt, draw: int) -> Iterator[Request]:
        yield self._sample(prompt, draw) if draw else self.request(prompt)
        if self.estimator.needs == "samples":
            yield from (self._sample(prompt, i) for i in range(1, self.plan.samples + 1))

    def _sample(self, prompt: Prompt, repeat: int) -> Request:
        sampling = Sampling(
            max_tokens=self.settings.max_tokens, temperature=TEMPERATURE, seed=self.settings.seed, repeat=repeat
        )
        return Request(prompt, False, sampling)

    def _scored_answer(self, prompt: Prompt, results: Sequence[Result | None]) -> ScoredAnswer | None:
        if any(result is None for result in results):
            return None
        answer, *more = results
        if not isinstance(answer, Answer):
            return ScoredAnswer("", None, f"{answer.kind}: {answer.message}" if answer else "")
        samples = [sample for sample in more if isinstance(sample, Answer)]
        uncertainty = self.estimator.of(answer, samples, prompt.choices)
        failure = "" if uncertainty is not None else f"no {self.estimator.needs} came with the answer"
        return ScoredAnswer(answer.text, uncertainty, failure)
