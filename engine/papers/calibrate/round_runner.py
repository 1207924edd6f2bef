"""Runs queries through calibration rounds together: one batch of prompts per round, answered by one function.

Independent of workspace and budget, so that a dry run with cached answers takes exactly the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from statistics import fmean

from ...llm.asking import FORMLESS, request_for, sampling_of, with_reader
from ...llm.types import Answer, Capabilities, Failure, Request, Result, Sampling
from ...pool.prompts import Prompt
from ...store.settings import Settings
from .documents import OverOption
from .prompts import Case, Frame, alone_prompt, first_prompt, with_documents
from .results import Cost
from .rounds import ARMS, Arm, Grades, QueryRounds, Round, oracle_scores
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

    ``cases`` are those to answer: over steps, with the reasoning; ``unreasoned`` says by case why there is none; it
    is asked nothing more.
    ``estimator_name`` is, for ``auto``, the one chosen by the first answers. ``unknown`` are prompts that cannot be
    built yet, as their number for each case; ``costs`` are those of each arm.
    """

    cases: list[Case]
    estimator_name: str
    unknown: list[int]
    costs: dict[str, Cost]
    alone: list[list[ScoredAnswer | None]] = field(default_factory=list)
    scores: list[tuple[float | None, ...]] = field(default_factory=list)
    means: dict[str, float] = field(default_factory=dict)
    all_rounds: dict[str, list[QueryRounds]] = field(default_factory=dict)
    unreasoned: dict[int, Failure] = field(default_factory=dict)


After = Callable[["CalibrationState", int], None]
"""Called with the current state and the number of the finished round."""


@dataclass(frozen=True, slots=True)
class RoundRunner:
    """Runs cases according to a plan, whose ``arms`` are named one by one. ``relevance``: external document scores of
    each case, if an arm shows them; ``stored_means``: of sets calibrated before, by estimator and kind of case, for
    queries outside a set."""

    cases: Sequence[Case]
    frame: Frame
    grades: Grades
    plan: CalibrationPlan
    settings: Settings
    capabilities: Capabilities
    relevance: Sequence[tuple[float | None, ...]]
    stored_means: Mapping[tuple[str, str], float]

    def request(self, prompt: Prompt) -> Request:
        return request_for(with_reader(prompt, self.settings), self.settings, self.capabilities)

    def run(self, ask: Ask, after: After = lambda state, step: None) -> CalibrationState:
        """All queries from round 0 to the last; ``after`` is called when a round is finished (0: also the documents).

        Without a cached answer a query stops there; its further rounds are ``unknown``.
        """
        plan, frame, arms = self.plan, self.frame, self.plan.arms
        state = CalibrationState([*self.cases], plan.estimator, [0] * len(self.cases), {arm: Cost() for arm in arms})
        readers = [arm for arm in arms if ARMS[arm].reads_documents_alone]
        sending_arms = self._sending_arms()
        if not self._reason(state, ask):
            steps = USUAL_STEPS if readers else 0
            return self._unknown(state, 1 + steps + plan.rounds * len(sending_arms))
        cases = state.cases
        first_prompts = [first_prompt(case, frame) for i, case in enumerate(cases) if i not in state.unreasoned]
        alone_prompts = [
            [alone_prompt(case, frame, i) for i in range(len(case.documents))] if readers else [] for case in cases
        ]
        # asked together: for a dry run and for `Calibration.step`, round 0 is one round
        first_results, *document_results = self._results(state, ask, first_prompts, *alone_prompts)
        if plan.estimator == AUTO:
            answered = [results[0] for results in first_results]
            state.estimator_name = more_spread_estimator([r for r in answered if isinstance(r, Answer)])
        answered_first = iter(first_results)
        first_answers = [
            self._scored_answer(state, case, [state.unreasoned[i]] if i in state.unreasoned else next(answered_first))
            for i, case in enumerate(cases)
        ]
        state.alone = [
            [self._scored_answer(state, case, own) for own in results]
            for case, results in zip(cases, document_results, strict=True)
        ]
        state.scores = [document_scores([a.uncertainty if a else None for a in own]) for own in state.alone]
        state.means = self._means(state, first_answers)
        self._charge(state, [arm for arm in arms if not ARMS[arm].critique], first_results)
        self._charge(state, readers, [results for own in document_results for results in own])
        for arm in arms:
            if ARMS[arm].critique:
                state.all_rounds[arm] = self._criticised(arm, state, ask)
            else:
                state.all_rounds[arm] = [self._round_0(arm, i, first_answers[i], state) for i in range(len(cases))]
        after(state, 0)
        # a mean is that of the whole set: if one answer is missing, no later prompt can be known
        if not (all(first_answers) and all(all(own) for own in state.alone)):
            more = plan.rounds * len(sending_arms)
            state.unknown = [unknown + more for unknown in state.unknown]
            return state
        for step in range(1, plan.rounds + 1):
            self._step(state, sending_arms, step, ask)
            after(state, step)
        return state

    def _reason(self, state: CalibrationState, ask: Ask) -> bool:
        """Ask for the reasoning of the cases over steps, and make its steps their documents. False if a reasoning is
        not cached: no later prompt can be known then."""
        own = [i for i, case in enumerate(self.cases) if case.over == "steps"]
        results = list(ask([self._reasoning(self.cases[i]) for i in own])) if own else []
        for i, result in zip(own, results, strict=True):
            if isinstance(result, Answer):
                state.cases[i] = with_documents(self.cases[i], steps_of(result.text))
            elif result is not None:
                state.unreasoned[i] = result
        if None in results:
            return False
        self._charge(state, self.plan.arms, [results])
        return True

    def _reasoning(self, case: Case) -> Request:
        settings = self.settings
        tokens = max(settings.answer_tokens, REASONING_TOKENS)
        sampling = Sampling(max_tokens=tokens, temperature=settings.temperature or 0.0, seed=settings.seed)
        return Request(reasoning_prompt(case, self.frame), False, sampling)

    def _unknown(self, state: CalibrationState, more: int) -> CalibrationState:
        """Before any reasoning is known: an estimate of what is left to ask."""
        count = len(state.cases)
        state.alone, state.scores, state.unknown = [[] for _ in state.cases], [()] * count, [more] * count
        state.means = {case.over: NEUTRAL for case in state.cases}
        state.all_rounds = {
            arm: [QueryRounds(case, arm, stopped=True) for case in state.cases] for arm in self.plan.arms
        }
        return state

    def _sending_arms(self) -> list[str]:
        """The arms that send requests: of those that draw samples, one asks for all."""
        samplers = [arm for arm in self.plan.arms if ARMS[arm].samples]
        return [arm for arm in self.plan.arms if arm not in samplers[1:] and not ARMS[arm].critique]

    def _step(self, state: CalibrationState, sending_arms: Sequence[str], step: int, ask: Ask) -> None:
        live = [
            (arm, i, c)
            for arm in sending_arms
            for i, c in enumerate(state.all_rounds[arm])
            if not (c.stopped or c.failure)
        ]
        prompts = [query_rounds.prompt(self.frame, self.grades, self.settings.seed) for _, _, query_rounds in live]
        draws = [step if ARMS[arm].samples else 0 for arm, _, _ in live]
        [results] = self._results(state, ask, prompts, draws=draws)
        for (arm, i, query_rounds), prompt, own in zip(live, prompts, results, strict=True):
            sharing = [other for other in self.plan.arms if ARMS[other].samples] if ARMS[arm].samples else [arm]
            self._charge(state, sharing, [own])
            answer = self._scored_answer(state, query_rounds.case, own)
            if answer is None:
                query_rounds.stopped = True
                state.unknown[i] += self.plan.rounds - step
            elif answer.uncertainty is None:
                query_rounds.failure = answer.failure
            else:
                self._take(state, query_rounds, Round(step, prompt, answer.text, answer.uncertainty, 0.0))
                for other in sharing:
                    if other != arm:
                        self._take(state, state.all_rounds[other][i], query_rounds.rounds[-1])

    def _take(self, state: CalibrationState, query_rounds: QueryRounds, round_: Round) -> None:
        round_ = replace(round_, score=answer_score(round_.uncertainty, state.means[query_rounds.case.over]))
        samples = ARMS[query_rounds.arm].samples
        query_rounds.take(round_, self.grades, None if samples else self.plan.settle)
        if not samples and self._needs_no_more(query_rounds, round_):
            query_rounds.stopped = True

    def _needs_no_more(self, query_rounds: QueryRounds, round_: Round) -> bool:
        """Whether a query needs no further round: its first answer is certain enough, or this one is right."""
        if self.plan.above is not None and round_.round == 0 and round_.score < self.plan.above:
            return True
        return self.plan.until_correct and self.grades.says(query_rounds.case.query, round_.answer)

    def _round_0(self, arm: str, i: int, first: ScoredAnswer | None, state: CalibrationState) -> QueryRounds:
        case, rules = state.cases[i], ARMS[arm]
        query_rounds = QueryRounds(case, arm, self._scores(rules, i, state))
        if first is None:
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
        criticised = [QueryRounds(case, arm, stopped=True) for case in state.cases]
        prompts = {
            (i, d): critique_prompts(case, d, answer.text)
            for i, case in enumerate(state.cases)
            for d, answer in enumerate(state.alone[i])
            if answer is not None
        }
        settings = replace(self.settings, **FORMLESS)
        requests = [request_for(prompt, settings, self.capabilities) for both in prompts.values() for prompt in both]
        results = iter(ask(requests))
        judged = {at: (next(results), next(results)) for at in prompts}
        for i, (query_rounds, case) in enumerate(zip(criticised, state.cases, strict=True)):
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
        return criticised

    def _charge(self, state: CalibrationState, arms: Sequence[str], results: Sequence[Sequence[Result | None]]) -> None:
        """Add what these answers cost to each of the arms."""
        answers = [answer for own in results for answer in own if isinstance(answer, Answer)]
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
        return oracle_scores(state.cases[i], self.settings.seed) if rules.documents == "oracle" else ()

    def _means(self, state: CalibrationState, firsts: Sequence[ScoredAnswer | None]) -> dict[str, float]:
        """The mean uncertainty of round 0 over the set; for single queries that of an earlier set."""
        if not self.plan.split:
            name = state.estimator_name
            return {case.over: self.stored_means.get((name, case.over), NEUTRAL) for case in state.cases}
        values: dict[str, list[float]] = {case.over: [] for case in state.cases}
        for case, answer in zip(state.cases, firsts, strict=True):
            if answer is not None and answer.uncertainty is not None:
                values[case.over].append(answer.uncertainty)
        return {over: fmean(own) if own else NEUTRAL for over, own in values.items()}

    # requests

    def _results(
        self, state: CalibrationState, ask: Ask, *groups: Sequence[Prompt], draws: Sequence[int] = ()
    ) -> list[list[list[Result | None]]]:
        """The results of groups of prompts that are asked together, each those of its requests: the answer, then
        samples if the estimator needs them. ``draws``: which answer is drawn for each prompt, 0 for the usual one."""
        more = self.plan.samples if estimator_named(state.estimator_name).needs == "samples" else 0
        prompts = [prompt for group in groups for prompt in group]
        wanted = [
            [
                self._sample(prompt, draw) if draw else self.request(prompt),
                *(self._sample(prompt, i) for i in range(1, more + 1)),
            ]
            for prompt, draw in zip(prompts, draws or [0] * len(prompts), strict=True)
        ]
        results = iter(ask([request for requests in wanted for request in requests]))
        of_prompts = iter([[next(results) for _ in requests] for requests in wanted])
        return [list(islice(of_prompts, len(group))) for group in groups]

    def _sample(self, prompt: Prompt, repeat: int) -> Request:
        usual = sampling_of(self.settings)
        fixed = usual.fixed - {"temperature"}
        sampling = replace(usual, temperature=TEMPERATURE, repeat=repeat, fixed=fixed)
        return Request(with_reader(prompt, self.settings), False, sampling)

    def _scored_answer(
        self, state: CalibrationState, case: Case, results: Sequence[Result | None]
    ) -> ScoredAnswer | None:
        if any(result is None for result in results):
            return None
        answer, *more = results
        estimator = estimator_named(state.estimator_name)
        if not isinstance(answer, Answer):
            return ScoredAnswer("", None, f"{answer.kind}: {answer.message}" if answer else "")
        samples = [sample for sample in more if isinstance(sample, Answer)]
        uncertainty = estimator.of(answer, samples, partial(self.grades.key, case.query))
        failure = "" if uncertainty is not None else f"no {estimator.needs} came with the answer"
        return ScoredAnswer(answer.text, uncertainty, failure)
