"""The configured LLM, for one piece of paid work: it estimates the cost, and asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from ..base.errors import LLMError, UsageError, counted
from ..base.progress import SILENT, Event, Monitor
from ..pool.prompts import instruction_of
from ..retrieval.artefacts import encode_for_reader
from ..store import runs
from ..store.demonstrations import answer_tokens, task_of
from ..store.settings import Settings
from ..store.workspace import Workspace
from . import probing, runner
from .asking import backend_for, check_prompts, judges, llm_settings, price_of, price_set
from .budget import FREE, Budget, Price
from .cost import Plan, Usage, usage_of
from .marks import AGAIN, brief, commonest, mark
from .pace import explain
from .reading import read
from .spec import probe_command
from .types import Answer, Backend, Capabilities, Failure, Request, Result

UNUSABLE = 0.05
"""Share of unusable answers above which a warning is reported."""


@dataclass(slots=True)
class Heard:
    """What came of all requests so far: the number of those ``asked``, and the failures."""

    asked: int = 0
    failures: list[Failure] = field(default_factory=list)

    def count(self, results: Sequence[Result]) -> None:
        """Add these results."""
        self.asked += len(results)
        self.failures += [result for result in results if isinstance(result, Failure)]

    def error(self, llm: str) -> LLMError | None:
        """If most requests failed on the way to the LLM or in its server's eyes, or none was answered: the commonest
        reason and its fix."""
        marks = [mark(failure, None) for failure in self.failures]
        prompts_own = sum(failure.kind in ("refusal", "context") for failure in self.failures)
        if len(marks) < self.asked and 2 * (len(marks) - prompts_own) < self.asked:
            return None
        reason = commonest([one.why for one in marks])
        worst = next(failure for failure in self.failures if brief(failure.message) == reason)
        fix = explain(worst, llm).fix
        return LLMError(
            f"{llm} gave no answer to {len(marks):,} of {counted(self.asked, 'prompt')}; most often: {reason}",
            fix if fix.endswith(AGAIN) else f"{fix}; then {AGAIN}",
        )


@dataclass
class LLMClient:
    """One LLM with the settings' options; its answers are stored in the workspace's call cache.

    ``monitor`` receives progress events and can stop the work. Its probe is charged to ``budget``; in a
    ``dry_run`` not even that is sent.
    """

    workspace: Workspace
    backend: Backend
    settings: Settings
    monitor: Monitor = SILENT
    dry_run: bool = False
    budget: Budget = field(default_factory=Budget)
    heard: Heard = field(default_factory=Heard)
    judge: LLMClient | None = None
    """The LLM that judges answers, where the settings name another."""
    option: str = "--llm"
    """The one that names it."""

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return self.backend.spec

    @property
    def price(self) -> Price | None:
        """The price of tokens, None if it is not known."""
        return FREE if self.backend.local else price_set(self.settings)

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the LLM can do, probed on first use. Raises as `probing.probe` does."""
        budget = self.budget.at(self.price or self.budget.price)
        with self._advised():
            return probing.capabilities(
                self.workspace, self.backend, dry_run=self.dry_run, budget=budget, monitor=self.monitor
            )

    def recorded(self, kind: str, settings: Mapping[str, Any]) -> AbstractContextManager[runs.Record]:
        """As `runs.recorded`, of a run that asks this LLM: with the server that it asks, to be asked again."""
        server = {name: told for name, told in self.backend.identity().items() if name == "base_url"}
        return runs.recorded(self.workspace, kind, self.name, {**settings, **server})

    def plan(self, requests: Sequence[Request], *, anew: bool = False) -> Plan:
        """What `ask` would do with the requests, and the cost; nothing is sent. ``anew``: as if no answer were
        cached."""
        return runner.plan(self.workspace, self.backend, requests, self.price, anew=anew)

    def from_cache(self, requests: Sequence[Request]) -> list[Answer | None]:
        """The cached answer to each request, None if there is none; nothing is sent."""
        answers = runner.known_answers(self.workspace, self.backend, requests)
        return [answer and read(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def ask(self, requests: Sequence[Request], budget: Budget) -> list[Result]:
        """One result per request, in order. Raises as `runner.ask` does, and `LLMError` if of all that was asked so far
        most failed, or nothing was answered: no figure can be made of that. What was answered is kept."""
        self.monitor.check()
        if not requests:
            return []
        settings, priced = llm_settings(self.settings), budget.at(self.price or budget.price)
        with self._advised():
            results = runner.ask(self.workspace, self.backend, requests, settings, priced, self.monitor)
        answers: list[Result] = [
            read(request, result) if isinstance(result, Answer) else result
            for request, result in zip(requests, results, strict=True)
        ]
        self.heard.count(answers)
        with self._advised():
            if (error := self.heard.error(self.name)) is not None:
                raise error
        self._warn(
            usage_of(answers), next((a.text or a.reply for a in answers if isinstance(a, Answer) and not a.usable), "")
        )
        return answers

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Who is advised to choose another LLM is told the option that names this one."""
        try:
            yield
        except LLMError as error:
            if (fix := error.fix.replace("with --llm", f"with {self.option}")) == error.fix:
                raise
            raise LLMError(error.what, fix) from error

    def _warn(self, usage: Usage, example: str) -> None:
        """Warn if many answers are unusable: figures computed from them mean little."""
        if usage.unusable <= usage.calls * UNUSABLE:
            return
        note = f"{usage.unusable:,} of {usage.calls:,} answers of {self.name} answer nothing"
        if usage.cut_off:
            note += f", {usage.cut_off:,} were cut off after {self.settings.answer_tokens:,} tokens (set max_tokens)"
        note += f", such as: {brief(example) or '(nothing)'}"
        self.monitor.report(Event(runner.TASK, note=f"{note}; try {probe_command(self.name)}"))


@contextmanager
def client_for(
    workspace: Workspace,
    settings: Settings,
    monitor: Monitor = SILENT,
    *,
    dry_run: bool = False,
    budget: Budget | None = None,
) -> Iterator[LLMClient]:
    """The LLM named in the settings, closed at the end of the block; its probe is charged to ``budget``. Raises as
    `asking.opened` and `check_prompts` do."""
    reported = SILENT if dry_run else monitor
    if settings.instruction and (task := task_of(workspace)).labels:
        opening = instruction_of(task, settings.instruction)
        if missing := sum(label not in opening for label in task.labels):
            told = (
                f"the instruction leaves out {missing:,} of {len(task.labels):,} labels: write {{labels}} where they go"
            )
            monitor.report(Event(runner.TASK, note=told))
    if told := check_prompts(workspace, settings):
        monitor.report(Event(runner.TASK, note=told))
    needed = None if settings.max_tokens else answer_tokens(workspace)
    if needed and needed > settings.answer_tokens:
        settings = replace(settings, max_tokens=needed)
        told = f"answers get up to {needed:,} tokens, as the outputs are long (max_tokens)"
        monitor.report(Event(runner.TASK, note=told))
    budget = budget or Budget()
    with ExitStack() as opened:
        judge = None
        if other := judges(settings):
            judge = opened.enter_context(client_for(workspace, other, monitor, dry_run=dry_run, budget=budget))
            judge.option = "--judge-llm"
        backend = opened.enter_context(backend_for(settings, encode_for_reader(workspace, settings), reported))
        yield LLMClient(workspace, backend, settings, monitor, dry_run, budget, judge=judge)


@contextmanager
def within_budget(
    workspace: Workspace,
    settings: Settings,
    monitor: Monitor = SILENT,
    *,
    max_calls: int | None = None,
    max_cost: float | None = None,
    dry_run: bool = False,
) -> Iterator[tuple[LLMClient, Budget]]:
    """The LLM named in the settings, and a budget of this many calls and US dollars. Raises `UsageError` if there is a
    limit of costs, but no price of the LLM that judges, and as `client_for` does."""
    if (judge := judges(settings)) and max_cost is not None and price_of(judge) is None:
        raise UsageError(
            f"a cost limit needs the prices of {judge.llm}, too", "give both, or limit calls: --max-calls N"
        )
    budget = Budget(max_calls, max_cost, price_of(settings))
    sends_nothing = dry_run or max_calls == 0
    with client_for(workspace, settings, monitor, dry_run=sends_nothing, budget=budget) as llm:
        yield llm, budget


Found = TypeVar("Found", covariant=True)


class PaidWork(Protocol[Found]):
    """Prepared work that calls an LLM: its prompts are known, nothing has been sent yet."""

    def cost(self) -> Plan:
        """What is left to ask, and what it would cost."""

    def ask(self, budget: Budget) -> Found:
        """Ask within the budget, store the results and return them."""
