"""The cells of a race: requests with served prompts, asked within a budget and marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.errors import BudgetError
from ..llm.budget import Budget
from ..llm.client import LLMClient
from ..llm.judge import Grader
from ..llm.marks import Mark, Tally, tally
from ..llm.types import Request, Result
from ..pool.records import Query


@dataclass(frozen=True, slots=True)
class Cells:
    """The distinct ``requests`` of candidates, and the place of each cell's in this list, (candidates, queries)."""

    requests: Sequence[Request]
    places: Int64s


def cells_of(prompts: Iterable[Sequence[Request]]) -> Cells:
    """From the requests of each candidate, one a query. Many prompts are the same for several candidates."""
    places_by_key: dict[tuple[object, ...], int] = {}
    requests: list[Request] = []
    places: list[list[int]] = []
    for asked in prompts:
        places.append([])
        for request in asked:
            key = (request.prompt.messages, request.prompt.choices, request.score)
            if key not in places_by_key:
                places_by_key[key] = len(requests)
                requests.append(request)
            places[-1].append(places_by_key[key])
    return Cells(requests, np.array(places, np.int64))


class CellAnswers:
    """Asks the cells of a race within the budget, and marks them; see `race.Ask`.

    ``results`` by the place of the request, ``marks`` also by the query's: two queries may have one prompt and other
    answers. ``refused``: the calls of the last batch that the budget did not allow.
    """

    def __init__(self, llm: LLMClient, grader: Grader, queries: Sequence[Query], cells: Cells, budget: Budget) -> None:
        self.llm, self.grader, self.queries, self.budget = llm, grader, queries, budget
        self.requests, self.prompts = cells.requests, cells.places
        self.results: dict[int, Result] = {}
        self.marks: dict[tuple[int, int], Mark] = {}
        self.refused = 0
        self._utilities = np.full(cells.places.shape, np.nan)

    def __call__(self, wanted: Bools) -> Float64s | None:
        missing = [place for place in np.unique(self.prompts[wanted]).tolist() if place not in self.results]
        requests = [self.requests[place] for place in missing]
        if requests and not self._affordable(requests):
            return None
        cells = np.argwhere(wanted & np.isnan(self._utilities)).tolist()
        new = sorted({(int(self.prompts[i, j]), j) for i, j in cells} - self.marks.keys())
        try:
            self.results |= zip(missing, self.llm.ask(requests, self.budget), strict=True)
            asked, results = [self.queries[j] for _, j in new], [self.results[place] for place, _ in new]
            self.marks |= zip(new, self.grader.marks(asked, results, self.budget), strict=True)
        except BudgetError:  # calls without an answer were charged, too: what was answered and judged is cached
            self.refused = len(missing) or len(new)
            return None
        for i, j in cells:
            self._utilities[i, j] = self.marks[int(self.prompts[i, j]), j].value
        return self._utilities.copy()

    @property
    def outcomes(self) -> Tally:
        """What became of each query's distinct prompts."""
        return tally(self.marks.values())

    @property
    def replies(self) -> list[tuple[Query, Result]]:
        """What was answered with the prompts of the first candidate."""
        places = zip(self.queries, self.prompts[0].tolist(), strict=True)
        return [(query, self.results[place]) for query, place in places if place in self.results]

    def _affordable(self, requests: Sequence[Request]) -> bool:
        """Whether the budget allows all of them, and to have them judged, at their highest estimated cost."""
        budget = self.budget
        if budget.max_cost is None and (
            budget.max_calls is None or budget.calls + 2 * len(requests) <= budget.max_calls  # each asked and judged
        ):
            return True
        plan = self.grader.plan(self.llm, requests)
        self.refused = plan.to_ask
        if not plan.to_ask:  # whatever is spent by now
            return True
        fits = budget.max_calls is None or budget.calls + plan.to_ask <= budget.max_calls
        return fits and (budget.max_cost is None or plan.cost is None or budget.cost + plan.cost[1] <= budget.max_cost)
