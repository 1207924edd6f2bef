"""Calibration over the steps of the LLM's own reasoning: how it is cut, what the prompts show, what it costs."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
from factories.calibrate_world import SETTINGS, Scripted, workspace_of
from icl_curate.engine.base.errors import LLMError, UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.finetune import fine_tuning_set
from icl_curate.engine.papers.calibrate.results import SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.variants import MOST_STEPS, REASONING_CUE, USUAL_STEPS, steps_of
from icl_curate.engine.store.runs import runs
from icl_curate.engine.store.workspace import Workspace

EGGS = {"id": "eggs", "input": "Ann has 3 boxes of 6 eggs and eats 2. How many are left?", "output": "16"}
REASONING = "1. Three boxes hold 3 * 6 = 18 eggs.\n2. She eats 2.\nStep 3: 18 - 2 = 17\nFinal Answer: 17"
SURE = {"none": 0.9, "Three": 0.8, "She": 0.3, "18": 0.4}
"""Probability of an answer without earlier ones, by the first word of the only step."""


class Reasoner(Scripted):
    """Reasons, then answers 17 at first and 16 in rounds."""

    def __init__(self, reasoning: Result) -> None:
        super().__init__({})
        self.reasoning = reasoning

    def _answer(self, request: Request) -> Result:
        prompt = request.prompt
        if prompt.text.endswith(REASONING_CUE):
            return self.reasoning
        steps = [line for line in prompt.text.splitlines() if line[:1].isdigit()]
        word = steps[0].split()[1] if len(steps) == 1 else "none"
        share = SURE[word] if not prompt.earlier else 0.95
        text = "17" if not prompt.earlier else "16"
        return Answer(text, tokens=("a",), logprobs=(log(share),), tokens_in=5, tokens_out=1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w", [EGGS])


def prepared(workspace: Workspace, backend: Scripted, **more: object) -> Calibration:
    plan = CalibrationPlan(rounds=2, split="validation", over="steps", **more)  # type: ignore[arg-type]
    return Calibration.prepare(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), plan)


def test_steps_are_scored_like_documents_and_shown_as_in_table_12(workspace: Workspace) -> None:
    backend = Reasoner(Answer(REASONING, tokens_in=20, tokens_out=30))
    ready = prepared(workspace, backend)
    assert ready.cost().to_ask == 1 + 1 + USUAL_STEPS + 2  # an estimate, before the reasoning is known
    done = ready.ask(Budget())
    assert isinstance(done, SetCalibration)
    assert done.usage.calls == 1 + 1 + 3 + 2
    [query] = done.queries
    assert [d.text for d in query.documents] == ["Three boxes hold 3 * 6 = 18 eggs.", "She eats 2.", "18 - 2 = 17"]
    assert [d.score for d in query.documents] == pytest.approx([0, 100, 80])
    assert (query.over, query.final, [r.answer for r in query.rounds]) == ("steps", "16", ["17", "16", "16"])
    cost = done.figures.arms["full"].cost
    assert cost
    assert (cost.calls, cost.tokens_in) == (7, 20 + 6 * 5)
    asked = [r.prompt.text for r in backend.asked]
    assert asked[0] == (
        "Explain your reasoning and give a final answer for the given question. Write one step a line.\n\n"
        "Question: Ann has 3 boxes of 6 eggs and eats 2. How many are left?\nReasoning Steps and Final Answer:"
    )
    assert asked[-1].split("\n\n")[1] == (
        "Question: Ann has 3 boxes of 6 eggs and eats 2. How many are left?\nReasoning Steps:\n"
        "1. Three boxes hold 3 * 6 = 18 eggs. (Uncertainty Score: 0)\n"
        "2. She eats 2. (Uncertainty Score: 100)\n"
        "3. 18 - 2 = 17 (Uncertainty Score: 80)\n"
        "Previous Generated Answer:\nRound 1: 17 (Uncertainty Score: 50)\nRound 2: 16 (Uncertainty Score: 25)\n"
        "Final Answer:"
    )
    assert "each step, 0 to 100" in asked[-1]
    assert prepared(workspace, backend).cost().to_ask == 0
    [example] = fine_tuning_set(workspace, "validation", SETTINGS).examples
    assert example.messages[1]["content"].startswith(EGGS["input"].join(["Question: ", "\nReasoning Steps:\n1. Three"]))
    assert example.messages[-1]["content"] == "16"


def test_without_a_reasoning_the_query_fails_and_says_why(workspace: Workspace) -> None:
    with pytest.raises(LLMError, match="gave no answer to 1 of 1 prompt; most often: no"):
        prepared(workspace, Reasoner(Failure("refusal", "no"))).ask(Budget())
    assert [run.status for run in runs(workspace, "calibrate")] == ["failed"]
    with pytest.raises(UsageError, match="'relevance' needs documents"):
        prepared(workspace, Reasoner(Failure("refusal", "no")), arms=("relevance",))


def test_a_query_without_a_reasoning_is_asked_nothing_more_and_moves_no_mean(tmp_path: Path) -> None:
    class Forgetful(Reasoner):
        def _answer(self, request: Request) -> Result:
            lost = request.prompt.query.id == "lost" and request.prompt.text.endswith(REASONING_CUE)
            return Failure("server", "down") if lost else super()._answer(request)

    backend = Forgetful(Answer(REASONING))
    lost = {"id": "lost", "input": "How many eggs are in a box?", "output": "6"}
    done = prepared(workspace_of(tmp_path / "w", [EGGS, {**EGGS, "id": "again"}, lost]), backend).ask(Budget())
    assert isinstance(done, SetCalibration)
    assert [q.failure for q in done.queries] == ["", "", "server: down"]
    assert [REASONING_CUE in r.prompt.text for r in backend.asked if r.prompt.query.id == "lost"] == [True]
    assert done.means == pytest.approx({"steps": 0.1})  # of those who reasoned


@pytest.mark.parametrize(
    ("reasoning", "steps"),
    [
        ("We add. Then we halve. The end.", ["We add.", "Then we halve.", "The end."]),
        ("- Add 2.5 and 1.\n\n* Halve.\nAnswer: 3", ["Add 2.5 and 1.", "Halve."]),
        ("Add.\nHalve.\n#### 3", ["Add.", "Halve."]),
        ("Reasoning Steps:\n1) Add.\n2) Halve.\nThe final answer is 3", ["Add.", "Halve."]),
        ("", []),
    ],
)  # fmt: skip
def test_how_a_reasoning_is_cut(reasoning: str, steps: list[str]) -> None:
    assert [step.text for step in steps_of(reasoning)] == steps


def test_a_long_reasoning_ends_in_one_long_step() -> None:
    found = steps_of("\n".join(f"{i}. step {i}" for i in range(1, MOST_STEPS + 4)))
    assert len(found) == MOST_STEPS
    assert found[-1].text == "step 12 step 13 step 14 step 15"
