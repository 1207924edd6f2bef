"""Which method is to be served: methods raced with their own prompts on validation queries, nested as in `race`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ..base.contract import Reported
from ..base.errors import UsageError
from ..base.progress import silent
from ..evaluate.request_stages import MethodContext
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.cost import Plan
from ..llm.types import Request
from ..pool.records import Query
from ..retrieval.view import PoolView
from ..select.methods import METHODS
from ..select.selector import Selector
from .candidates import Candidate
from .cells import CellAnswers, cells_of
from .race import race
from .results import CandidateResult, Confirmation
from .tune import confirmation, results_of, stopped, validation

RIVALS = ("dense", "dpp", "bm25", "ranker", "topick")
"""Methods that are raced with the configured one, if they can select: the simplest first, which wins a tie."""


@dataclass(frozen=True, slots=True)
class ServingReport(Reported):
    """The race of methods: ``served`` is the configured one unless the gain of another is ``worth_it``; ``undecided``:
    why nothing is decided, if too much is missing."""

    kind = "serving-race"
    served: str
    gain: float
    worth_it: bool
    confirmed: Confirmation | None
    candidates: tuple[CandidateResult, ...]
    stopped: str
    undecided: str = ""


class ServingRace:
    """A prepared race of the methods that can select from the active pool; nothing has been sent yet. Raises
    `UsageError` if there are too few validation queries, or no method beside the configured one."""

    def __init__(self, llm: LLMClient, noise: float, rivals: Sequence[str] = RIVALS) -> None:
        self.llm, self.noise = llm, noise
        self.queries = validation(llm, None)
        self.view = PoolView(llm.workspace, llm.settings, llm.report, llm.cancel)
        asked = dict(self._asked(rivals))
        self.methods = list(asked)
        if len(self.methods) < 2:
            raise UsageError(f"there is no method beside {self.methods[0]} to compare", "icl-curate train ranker")
        self.cells = cells_of(asked.values())

    def cost(self) -> Plan:
        """At most: if no method is dropped before the last query."""
        return self.llm.plan(self.cells.requests)

    def run(self, budget: Budget) -> ServingReport:
        """Race the methods; the result of what the budget was enough for."""
        answers = CellAnswers(self.llm, self.queries, self.cells, budget)
        order = -np.arange(len(self.methods), dtype=np.float64)
        outcome = race(answers, order, len(self.queries), seed=self.llm.settings.seed)
        nothing = np.empty(0, np.int64)
        tried = results_of([Candidate(name, nothing, (), METHODS[name].about) for name in self.methods], outcome)
        worth_it = outcome.confirmed(self.noise) and answers.outcomes.decides
        return ServingReport(
            served=self.methods[outcome.winner if worth_it else 0],
            gain=outcome.gain.mean if outcome.queries else 0.0,
            worth_it=worth_it,
            confirmed=confirmation(tried[0].accuracy, outcome, len(answers.results), len(self.queries)),
            candidates=tuple(tried),
            stopped=stopped(outcome, answers, len(self.queries)),
            undecided=answers.outcomes.undecided,
        )

    def _asked(self, rivals: Sequence[str]) -> Iterator[tuple[str, list[Request]]]:
        """The requests of each method, the configured one first."""
        own = self.llm.settings.method
        yield own, served_prompts(self.llm, self.queries, own, self.view)[0]
        for name in rivals:
            self.llm.cancel.check()
            if name != own:
                with suppress(UsageError):  # not trained, or the pool has no vectors
                    yield name, served_prompts(self.llm, self.queries, name, self.view)[0]


def served_prompts(
    llm: LLMClient, queries: Sequence[Query], method: str, view: PoolView | None = None
) -> tuple[list[Request], list[list[int]]]:
    """The prompt of each query as the method serves it from the active pool, and the rows it shows, best first."""
    settings = replace(llm.settings, method=method)
    selector = Selector(llm.workspace, settings=settings, view=view)
    rows = [[pick.row for pick in chosen] for chosen in selector.picks(queries)]
    context = MethodContext(selector, llm.backend, settings, llm.capabilities, queries, silent)
    return context.prompts(rows)[0], rows
