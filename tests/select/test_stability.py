"""Answer stability against prompts written out by hand and probabilities computed here again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.backends import OwnBackend
from factories.commands import run_command
from factories.copies import indexed, lines
from factories.servers import Server
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Capabilities, Failure, Request, Result
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.select.stability import QueryShots, StabilityCheck
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

SHOTS = tuple(Demonstration(i, f"d{i}", f"in{i}", f"out{i}", "s") for i in range(4))
SETTINGS = Settings(llm="scripted", max_tokens=8)
CHOICES = ("left", "right", "up")


class Scripted(OwnBackend):
    """Answers by the inputs of the demonstrations in the order they are read; closed questions are scored."""

    def __init__(self, script: Mapping[tuple[str, ...], Any], context: int | None = None) -> None:
        self.script = script
        self.capabilities = Capabilities(logprobs=True, scoring=True, context_tokens=context)
        self.asked: list[tuple[str, ...]] = []

    def count_tokens(self, prompt: Prompt) -> int:
        return 10 * len(prompt.demonstrations) + 10

    def _answer(self, request: Request) -> Result:
        prompt = request.prompt
        key = tuple(
            message.content.removeprefix("Question: ").removesuffix("\nAnswer:") for message in prompt.messages[1:-1:2]
        )
        self.asked.append(key)
        found = self.script[key]
        if isinstance(found, str):
            return Failure("request", found)
        if prompt.choices:
            best = max(range(len(found)), key=found.__getitem__)
            return Answer(CHOICES[best], option_logprobs=tuple((math.log(p),) for p in found))
        text, probability = found
        return Answer(text, tokens=("a", "b"), logprobs=(math.log(probability) / 2,) * 2)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return indexed(tmp_path / "w", pool=lines([{"input": "x", "output": "y"}]))


OPEN = {  # best-last: the best shot is read last
    ("in2", "in1", "in0"): ("Oslo", 0.6),
    ("in2", "in1"): ("the oslo.", 0.3),
    ("in2", "in0"): ("Rome", 0.9),
    ("in1", "in0"): "refused",
    ("in0", "in1", "in2"): ("Oslo", 0.5),
}


def check(
    workspace: Workspace, backend: Scripted, shots: int, query: Query, variants: bool = True, **more: Any
) -> StabilityCheck:
    task = Task("labels", CHOICES) if query.answers == ("up",) else Task("open")
    llm = LLMClient(workspace, backend, SETTINGS, **more)
    return StabilityCheck.prepare(llm, task, [QueryShots(query, SHOTS[:shots])], variants=variants)


def test_each_shot_is_left_out_once_and_the_order_is_turned(workspace: Workspace) -> None:
    backend = Scripted(OPEN)
    ready = check(workspace, backend, 3, Query("q", answers=("Oslo",)))
    assert ready.from_cache() == [None]
    plan = ready.cost()
    assert (plan.requests, plan.to_ask, plan.cached) == (5, 5, 0)
    assert not backend.asked
    [found] = ready.ask(Budget())
    assert sorted(backend.asked) == sorted(OPEN)
    assert found.reversed_order is not None
    assert [heard.same for heard in found.without] == [True, False, False]
    assert [heard.right for heard in found.without] == [True, False, None]
    assert (found.reversed_order.same, found.kept, len(found.others)) == (True, 2, 3)  # one was not answered
    assert found.without[2].failure == "request: refused"
    assert found.adds(0) == pytest.approx(0.6 - 0.3)
    assert found.adds(1) is None  # another answer was generated: what this one is worth there is not known
    assert found.adds(2) is None
    asked = len(backend.asked)
    again = check(workspace, backend, 3, Query("q", answers=("Oslo",)))
    [whole] = again.from_cache()
    assert whole is not None
    assert not whole.others  # a failure is not cached: that variant is still to be asked
    assert again.cost().to_ask == 1
    again.ask(Budget())
    assert len(backend.asked) == asked + 1


class Counting(LLMClient):
    """Counts the requests that are looked up."""

    looked = 0

    def from_cache(self, requests: Sequence[Request]) -> list[Answer | None]:
        self.looked += len(requests)
        return super().from_cache(requests)


def test_variants_are_looked_up_only_where_the_whole_prompt_has_an_answer(workspace: Workspace) -> None:
    llm = Counting(workspace, Scripted(OPEN), SETTINGS)
    ready = StabilityCheck.prepare(llm, Task("open"), [QueryShots(Query("q"), SHOTS[:3])])
    assert ready.from_cache() == [None]
    assert llm.looked == 1
    ready.ask(Budget())
    ready.from_cache()
    assert llm.looked == 1 + 5


def test_scored_options_tell_what_an_answer_is_worth_where_another_wins(workspace: Workspace) -> None:
    script = {
        ("in1", "in0"): (0.2, 0.2, 0.6),
        ("in1",): (0.5, 0.1, 0.4),
        ("in0",): (0.1, 0.1, 0.8),
        ("in0", "in1"): (0.2, 0.3, 0.5),
    }
    backend = Scripted(script)
    ready = check(workspace, backend, 2, Query("q", answers=("up",)))
    [found] = ready.ask(Budget())
    assert [heard.same for heard in found.others] == [False, True, True]
    assert found.adds(0) == pytest.approx(0.6 - 0.4)
    assert found.adds(1) == pytest.approx(0.6 - 0.8)
    [known] = check(workspace, backend, 2, Query("q", answers=("up",)), dry_run=True).from_cache()
    assert known is not None
    assert [heard.support for heard in known.others] == pytest.approx([0.4, 0.8, 0.5])


@pytest.mark.parametrize(("shots", "prompts"), [(0, [()]), (1, [("in0",), ()])])
def test_few_shots_have_no_order(workspace: Workspace, shots: int, prompts: list[tuple[str, ...]]) -> None:
    backend = Scripted({(): ("a", 0.5), ("in0",): ("a", 0.5)})
    [found] = check(workspace, backend, shots, Query("q")).ask(Budget())
    assert backend.asked == prompts
    assert found.reversed_order is None
    assert len(found.without) == shots
    assert found.whole.right is None


def test_shots_that_do_not_fit_are_no_variants(workspace: Workspace) -> None:
    backend = Scripted(OPEN, context=40 + SETTINGS.max_tokens)
    ready = check(workspace, backend, 4, Query("q"))
    [found] = ready.ask(Budget())
    assert (found.dropped, found.limit, len(found.without)) == (1, 40, 3)
    assert sorted(backend.asked) == sorted(OPEN)


def test_without_variants_only_the_whole_prompt_is_asked(workspace: Workspace) -> None:
    backend = Scripted(OPEN)
    task = Task("open")
    queries = [QueryShots(Query("q"), SHOTS[:3]), QueryShots(Query("other"), SHOTS[:3])]
    found = StabilityCheck.prepare(LLMClient(workspace, backend, SETTINGS), task, queries, variants=False).ask(Budget())
    assert [one.whole.answer.text for one in found if one.whole.answer] == ["Oslo", "Oslo"]
    assert not any(one.others for one in found)
    reversed_order = replace(SETTINGS, order="best-first")
    StabilityCheck.prepare(LLMClient(workspace, backend, reversed_order), task, queries[:1], variants=False).ask(
        Budget()
    )
    assert backend.asked == [("in2", "in1", "in0")] * 2 + [("in0", "in1", "in2")]


def test_the_command_says_its_cost_and_keeps_its_contract(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text(
        "".join(json.dumps({"id": f"d{i}", "input": f"word{i} x", "output": f"o{i}"}) + "\n" for i in range(9))
    )
    found = Workspace.create(tmp_path / "w")
    index_pool(found, IndexPlan(paths=(str(pool),), encoder=None))
    with Server() as server:
        asked = ["preview", "x word1 word2", "-m", "bm25", "-k", 2, "-w", found.path, "--llm", "openai:stub"]
        asked += ["--base-url", server.url, "--stability"]
        plan = run_command(*asked, "--dry-run", "--json").json
        assert (plan["dry_run"], plan["to_ask"]) == (True, 4)
        assert not server.calls
        done = run_command(*asked, "--json").json
        assert len(server.asked("x word1")) == 4
        shown = run_command(*asked)
        assert len(server.asked("x word1")) == 4
    assert [shot["id"] for shot in done["demonstrations"]] == [one["id"] for one in done["stability"]["without"]]
    assert {"answer", "kept", "of", "turned", "uncertainty"} <= set(done["stability"])
    assert f"{done['stability']['kept']} of 3 changed prompts" in shown.out
