"""Answer stability: the answer with the selected demonstrations, without each of them, and with their order reversed.

Zhao et al. 2021 and Lu et al. 2022 show how much the choice and the order of shots change answers; this module measures
it for one query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..llm.asking import prompt_budget, prompt_for, request_for
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.judge import Grader
from ..llm.types import Answer, Request, Result
from ..pool.answers import meaning
from ..pool.prompts import ORDERS, Prompt
from ..pool.records import Demonstration, Query, Task


@dataclass(frozen=True, slots=True)
class QueryShots:
    """A query and its demonstrations, best first."""

    query: Query
    shots: tuple[Demonstration, ...]


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """A prompt and its answer; without an ``answer``, ``failure`` has the reason.

    ``right`` is None if no reference is known, as is the ``value`` of the answer, from 0 to 1. ``same``: it agrees with
    the answer to the whole prompt. ``support`` is the probability of that answer here: its share if choices were
    scored; else, if the answers agree, the probability of the tokens; None if unknown.
    """

    prompt: Prompt
    answer: Answer | None
    failure: str = ""
    right: bool | None = None
    same: bool = False
    support: float | None = None
    value: float | None = None

    def as_json(self) -> dict[str, Any]:
        """What `Stability.as_json` says of each prompt."""
        return {
            "answer": self.answer.text if self.answer else None,
            "reply": self.answer.reply if self.answer else None,
            "how": self.answer.how if self.answer else "",
            "failure": self.failure,
            "right": self.right,
            "value": self.value,
            "same": self.same,
            "uncertainty": self.answer.uncertainty if self.answer else None,
        }


@dataclass(frozen=True, slots=True)
class Stability:
    """The answer to the ``whole`` prompt of ``shots``, best first, and to its variants: ``without`` each shot, in their
    order, and in ``reversed_order`` (None for fewer than two shots). Both are empty if they were not requested.
    ``dropped`` of the weakest shots did not fit into ``limit`` tokens and are not among the shots."""

    shots: tuple[Demonstration, ...]
    whole: PromptAnswer
    without: tuple[PromptAnswer, ...] = ()
    reversed_order: PromptAnswer | None = None
    dropped: int = 0
    limit: int | None = None

    @property
    def others(self) -> tuple[PromptAnswer, ...]:
        """The variants that were answered; of the others it is not known whether the answer changes."""
        every = (*self.without, *([self.reversed_order] if self.reversed_order else []))
        return tuple(variant for variant in every if variant.answer is not None)

    @property
    def kept(self) -> int:
        """The number of `others` with the same answer."""
        return sum(answered.same for answered in self.others)

    def as_json(self) -> dict[str, Any]:
        """The answer, and the answers to the variants with whether they agree."""
        left = [
            {"id": shot.id, "source": shot.source, **answered.as_json(), "adds": self.adds(i)}
            for i, (shot, answered) in enumerate(zip(self.shots, self.without, strict=False))
        ]
        turned = self.reversed_order.as_json() if self.reversed_order else None
        counts = {"kept": self.kept, "of": len(self.others)}
        return {**self.whole.as_json(), **counts, "without": left, "turned": turned}

    def adds(self, place: int) -> float | None:
        """How much the shot at ``place`` adds to the probability of the answer; None if unknown."""
        before, after = self.without[place].support, self.whole.support
        return None if before is None or after is None else after - before


@dataclass(frozen=True)
class StabilityCheck:
    """Queries with their demonstrations, prepared for the LLM. ``asked``, for each query: the shots that fit, its
    prompts (the whole one first), and how many shots did not fit into ``limit`` tokens."""

    llm: LLMClient
    asked: Sequence[tuple[tuple[Demonstration, ...], list[Prompt], int]]
    limit: int | None
    grader: Grader

    @classmethod
    def prepare(
        cls, llm: LLMClient, task: Task, shown: Sequence[QueryShots], *, variants: bool = True
    ) -> StabilityCheck:
        """Nothing is sent, in a dry run not even a probe. ``variants``: also without each shot and in reversed order.
        Raises `UsageError` if the LLM cannot answer as the settings require, `LLMError` if it cannot be reached."""
        limit = prompt_budget(llm.settings, llm.capabilities)
        asked = [_prompts(llm, task, query, limit, variants) for query in shown]
        return cls(llm, asked, limit, Grader.of(llm, task))

    def cost(self) -> Plan:
        """What is left to ask."""
        return self.llm.plan(self.requests)

    def from_cache(self) -> list[Stability | None]:
        """The result from cached answers only: None if the whole prompt has none, without variants if one of these has
        none."""
        wholes = self.llm.from_cache([self._request(prompts[0]) for _, prompts, _ in self.asked])
        # the keys of the others, each a hash of a long prompt, are not needed where the first has no answer
        left = [prompts[1:] for (_, prompts, _), whole in zip(self.asked, wholes, strict=True) if whole is not None]
        answers = iter(self.llm.from_cache([self._request(prompt) for others in left for prompt in others]))
        results: list[Stability | None] = []
        for (shots, prompts, dropped), whole in zip(self.asked, wholes, strict=True):
            others = [next(answers) for _ in prompts[1:]] if whole is not None else []
            given = [answer for answer in (whole, *others) if answer is not None]
            asked = prompts if len(given) == len(prompts) else prompts[:1]
            results.append(self._result(shots, asked, dropped, iter(given)) if given else None)
        return results

    def ask(self, budget: Budget) -> list[Stability]:
        """Ask everything; one result per query. Raises as `runner.ask` does."""
        results = iter(self.llm.ask(self.requests, budget))
        return [self._result(*asked, results) for asked in self.asked]

    @property
    def notes(self) -> tuple[str, ...]:
        """What did not fit."""
        lost = sum(dropped for _, _, dropped in self.asked)
        return (f"{lost} of the lowest-ranked demonstrations did not fit into {self.limit} tokens",) if lost else ()

    @property
    def requests(self) -> list[Request]:
        """All that is asked, query by query, the whole prompt first."""
        return [self._request(prompt) for _, prompts, _ in self.asked for prompt in prompts]

    def _request(self, prompt: Prompt) -> Request:
        return request_for(prompt, self.llm.settings, self.llm.capabilities)

    def _answer_to(self, prompt: Prompt, result: Result) -> PromptAnswer:
        if not isinstance(result, Answer):
            return PromptAnswer(prompt, None, f"{result.kind}: {result.message}")
        metric, query = self.grader.metric, prompt.query
        if not query.answers or self.grader.judge:  # a judge is not asked for one answer
            return PromptAnswer(prompt, result)
        value = metric.score(result.text, query, self.grader.task)
        return PromptAnswer(prompt, result, right=metric.is_right(value), value=value)

    def _result(
        self, shots: tuple[Demonstration, ...], prompts: Sequence[Prompt], dropped: int, results: Iterator[Result]
    ) -> Stability:
        answered = [self._answer_to(prompt, next(results)) for prompt in prompts]
        whole_answer = answered[0].answer
        whole, *others = [_compared(answer, whole_answer) for answer in answered]
        reversed_order = others[len(shots)] if len(others) > len(shots) else None
        return Stability(shots, whole, tuple(others[: len(shots)]), reversed_order, dropped, self.limit)


def _prompts(
    llm: LLMClient, task: Task, shown: QueryShots, limit: int | None, variants: bool
) -> tuple[tuple[Demonstration, ...], list[Prompt], int]:
    settings = llm.settings
    whole, dropped = prompt_for(shown.query, shown.shots, task, settings, llm.backend, limit)
    shots = shown.shots[: len(shown.shots) - dropped]
    prompts = [whole]
    if variants:
        fewer = [shots[:i] + shots[i + 1 :] for i in range(len(shots))]
        prompts += [prompt_for(shown.query, left, task, settings)[0] for left in fewer]
        if len(shots) > 1:
            reversed_order = replace(settings, order=ORDERS[1 - ORDERS.index(settings.order)])
            prompts.append(prompt_for(shown.query, shots, task, reversed_order)[0])
    return shots, prompts, dropped


def _compared(answered: PromptAnswer, whole_answer: Answer | None) -> PromptAnswer:
    """The answers compared with the answer to the whole prompt."""
    if answered.answer is None or whole_answer is None:
        return answered
    choices = answered.prompt.choices
    wanted = meaning(whole_answer.text, choices)
    same = meaning(answered.answer.text, choices) == wanted
    support: float | None = None
    if answered.answer.option_logprobs and wanted in choices:
        support = answered.answer.shares[choices.index(wanted)]
    elif same and answered.answer.uncertainty is not None:
        support = 1.0 - answered.answer.uncertainty
    return replace(answered, same=same, support=support)
