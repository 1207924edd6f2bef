"""LLM requests of a compared method, in stages: each stage is a list of requests that can be sent at once.

A method that selects without the LLM has one stage, its answers. A method that calls the LLM during selection has more.
Methods are generators that run in step with each other: the stages of all methods are sent together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from ..base.errors import LLMError, UsageError
from ..base.progress import Event, Monitor
from ..base.registry import Registry
from ..grading.metrics import ACCURACY, Metric
from ..llm.asking import prompt_budget, prompt_for, request_for
from ..llm.probing import UNSEEN, require
from ..llm.types import Answer, Backend, Capabilities, Request, Result
from ..pool.records import Demonstration, Query, Task
from ..select.selector import Selector
from ..store.settings import Settings


@dataclass(frozen=True, slots=True)
class Stage:
    """Requests sent at once; ``typical`` are expected replies, one per request or none at all, for estimating later
    stages without sending anything."""

    requests: Sequence[Request]
    typical: Sequence[str] = ()

    @property
    def presumed(self) -> list[Result]:
        """The typical replies as results; scores are random, because equal ones would select as `dense` does."""
        drawn = random.Random(0)
        texts = self.typical or [""] * len(self.requests)
        scored = [request.prompt.choices if request.score else () for request in self.requests]
        scores = [tuple((-drawn.expovariate(1.0),) for _ in choices) for choices in scored]
        return [Answer(text, option_logprobs=given) for text, given in zip(texts, scores, strict=True)]


@dataclass(frozen=True, slots=True)
class FinalAnswers:
    """For each query: the rows shown, best first, how many of them did not fit, and the final answer."""

    shown: list[list[int]]
    dropped: list[int]
    results: list[Result]


RequestStages = Generator[Stage, list[Result], FinalAnswers]


@dataclass(frozen=True, slots=True)
class MethodContext:
    """The setup shared by all compared methods: pool, queries, LLM and settings. ``mdr_error`` is the C of `mdr`, None
    to choose it on the ``validation`` queries, whose answers are right by the ``metric``."""

    selector: Selector
    backend: Backend
    settings: Settings
    capabilities: Capabilities
    queries: Sequence[Query]
    monitor: Monitor
    mdr_error: float | None = 0.5
    validation: Sequence[Query] = ()
    metric: Metric = ACCURACY

    def prompt_budget(self, reply: int | None = None) -> int | None:
        """Tokens available for a prompt beside a reply of this length (default: the settings' longest answer), None if
        unknown."""
        settings = self.settings if reply is None else replace(self.settings, max_tokens=reply)
        return prompt_budget(settings, self.capabilities)

    def demonstrations(self, rows: Sequence[Sequence[int]]) -> list[list[Demonstration]]:
        """The demonstrations behind rows, list by list."""
        return self.selector.view.demonstrations(rows)

    def prompts(self, rows: Sequence[Sequence[int]], method: str = "") -> tuple[list[Request], list[int]]:
        """The question of each query with its ``rows`` as shots, best first, and how many shots did not fit."""
        requests, dropped = [], []
        task, limit = self.selector.task, self.prompt_budget()
        for query, shown in zip(self.queries, self.demonstrations(rows), strict=True):
            prompt, lost = prompt_for(query, shown, task, self.settings, self.backend, limit)
            requests.append(request_for(prompt, self.settings, self.capabilities))
            dropped.append(lost)
        if lost_in := sum(1 for lost in dropped if lost):
            self.monitor.report(
                Event("select", note=f"{method}: {lost_in} prompts were too long; their weakest shots were dropped")
            )
        return requests, dropped

    def answer(self, rows: Sequence[Sequence[int]], method: str = "") -> RequestStages:
        """Ask every query with its rows as shots: the last stage of a method that only selects."""
        requests, dropped = self.prompts(rows, method)
        results = yield Stage(requests)
        return FinalAnswers([list(chosen) for chosen in rows], dropped, results)


@dataclass(slots=True)
class MethodRun:
    """One running method with one seed: ``stage`` is None once it is ``answered``; ``heard`` are the results of all
    stages so far."""

    method: str
    seed: int
    request_stages: RequestStages
    stage: Stage | None = None
    answered: FinalAnswers | None = None
    received: list[Result] = field(default_factory=list)

    def begin(self) -> MethodRun:
        self.stage = next(self.request_stages)
        return self

    def receive(self, results: list[Result]) -> None:
        """Continue with the results of the stage."""
        self.received += results
        try:
            self.stage = self.request_stages.send(results)
        except StopIteration as end:
            self.stage, self.answered = None, end.value


def run_stages(method_runs: Sequence[MethodRun], answer: Callable[[list[Request], list[Stage]], list[Result]]) -> None:
    """Run every generator to its end; ``answer`` returns the results of the requests of stages that are asked
    together."""
    while speaking := [(method_run, method_run.stage) for method_run in method_runs if method_run.stage]:
        stages = [stage for _, stage in speaking]
        results = iter(answer([request for stage in stages for request in stage.requests], stages))
        for method_run, stage in speaking:
            method_run.receive(list(islice(results, len(stage.requests))))


@dataclass(frozen=True, slots=True)
class LLMMethod:
    """A method and what it needs: an LLM that follows instructions (``instructs``), an LLM that gives log-probabilities
    of given texts (``scores``), a task with a closed set of answers (``choices``); ``seeded``: it draws at random."""

    request_stages: Callable[[MethodContext, int], RequestStages]
    about: str
    instructs: bool = False
    scores: bool = False
    choices: bool = False
    seeded: bool = False

    def check(self, name: str, task: Task, capabilities: Capabilities, llm: str) -> None:
        """Raises `LLMError` or `UsageError` if something is missing, before the first call; an LLM that was never
        probed passes."""
        if capabilities is not UNSEEN:
            require(capabilities, llm, scoring=self.scores, instructs=self.instructs, purpose=name)
        if self.choices and task.kind in ("open", "sets"):
            raise UsageError(
                f"{name} needs answer options, but the pool has none to choose one of", "choose cone or mdr"
            )


LLM_METHODS: Registry[LLMMethod] = Registry("llm_methods")
"""Methods that call the LLM during selection: compared in ``evaluate``, too expensive for a serving process."""


def check_all(methods: Iterable[str], task: Task, capabilities: Capabilities, llm: str) -> None:
    """Raises as `LLMMethod.check` if something is missing for one of the ``methods``; what can run is named."""
    able, lacking = [], []
    for name in methods:
        try:
            if name in LLM_METHODS:
                LLM_METHODS[name].check(name, task, capabilities, llm)
            able.append(name)
        except (LLMError, UsageError) as error:
            lacking.append(error)
    if lacking:
        what = "; ".join(error.what for error in lacking)
        rest = f"-m {','.join(able)}, which can run; or " if able else ""
        raise type(lacking[0])(what, f"{rest}{lacking[0].fix}")
