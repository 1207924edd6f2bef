"""Cells of a race: each query's own mark for a prompt, and a budget that judging belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world
from icl_curate.engine.curate.cells import CellAnswers, cells_of
from icl_curate.engine.curate.race import race
from icl_curate.engine.grading.metrics import JUDGES
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.judge import Grader
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query, Task
from icl_curate.engine.store.workspace import Workspace


class Judging(Gullible):
    """Calls every answer right."""

    def _answer(self, request: Request) -> Result:
        judged = request.prompt.choices == tuple(JUDGES["judge"])
        return Answer(request.prompt.choices[0]) if judged else Gullible._answer(self, request)


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    return make_gullible_world(tmp_path / "w")


def _request(query: Query, told: str = "") -> Request:
    return Request(Prompt((Message("user", f"{query.input} {told}"),), query))


def test_queries_with_one_prompt_are_marked_by_their_own_answers(world: Workspace) -> None:
    task = Task("labels", ("yes", "wrong"))
    queries = [Query("is it yes?", answers=(answer,), row=row) for row, answer in enumerate(("yes", "wrong", "yes"))]
    client = LLMClient(world, Gullible(), SETTINGS)
    cells = cells_of([[*map(_request, queries)]] * 2)
    answers = CellAnswers(client, Grader.of(client, task), queries, cells, Budget())
    seen = [answers(np.array([[True, False, False]] * 2)), answers(np.ones((2, 3), np.bool_))]
    np.testing.assert_equal(seen, [[[1, np.nan, np.nan]] * 2, [[1, 0, 1]] * 2])
    assert answers.outcomes.right == 2 and answers.outcomes.wrong == 1


@pytest.mark.parametrize("calls", [*range(30, 60, 5), 65])
def test_a_race_that_cannot_pay_its_judge_says_what_it_knows(world: Workspace, calls: int) -> None:
    settings = replace(SETTINGS, metric="judge")
    queries = [Query(f"q{i}", answers=("yes",), row=i) for i in range(20)]
    client = LLMClient(world, Judging(), settings)
    cells = cells_of([[_request(query, f"{i}") for query in queries] for i in range(2)])
    budget = Budget(max_calls=calls)
    answers = CellAnswers(client, Grader.of(client, Task("open")), queries, cells, budget)
    done = race(answers, np.zeros(2), len(queries))
    # equal answers to a query are judged once, which is not known beforehand
    assert done.stopped == (calls < 60) and budget.calls <= calls
    assert len(answers.marks) == 2 * done.queries
