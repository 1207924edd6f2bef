"""A program of the user's as an LLM: what it gets, what it may return, and what it may spend."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.killing import begun, kill
from factories.own_code import Make, modules
from factories.patience import PATIENCE
from factories.servers import Server, answer_to
from icl_curate.engine.backends.program import Program
from icl_curate.engine.base.errors import BudgetError, CurateError, LLMError, UsageError
from icl_curate.engine.llm import loop, probing, runner
from icl_curate.engine.llm.asking import price_of, request_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.pace import RAISED
from icl_curate.engine.llm.spec import open_backend, parse
from icl_curate.engine.llm.types import Answer, Failure, LLMSettings, Request
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Message, Query, Task
from icl_curate.engine.prompting.template import build_prompt
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

SHOTS = [Demonstration(0, "d", "text", "billing", "s", metadata={"tier": "gold"})]


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    yield from modules(tmp_path / "own", monkeypatch)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


def _requests(settings: Settings, count: int) -> list[Request]:
    able = probing.UNSEEN
    prompts = [build_prompt(Query(f"q{i}"), SHOTS, Task("open"), settings.prompt_template) for i in range(count)]
    return [request_for(prompt, settings, able) for prompt in prompts]


def _ask(workspace: Workspace, name: str, count: int, concurrency: int = 1, **limits: Any) -> tuple[list[Any], Budget]:
    """The results of so many queries, and the budget that they were asked within."""
    settings = Settings(llm=f"program:{name}")
    access = LLMSettings(concurrency=concurrency)
    backend, budget = open_backend(settings.llm, access), Budget(**limits, price=price_of(settings))
    try:
        return runner.ask(workspace, backend, _requests(settings, count), access, budget), budget
    finally:
        loop.close(backend)


RUNS = """
from icl_curate import Reply
runs = []
def answer(query, shots):
    runs.append(query["input"])
    return {reply}
"""


def _runs(module: str) -> list[str]:
    return list(sys.modules[module].runs)


def _texts(results: Sequence[Any]) -> list[str]:
    return [result.text for result in results]


@pytest.mark.parametrize(
    "text",
    [
        "def answer(query, shots): return query['input'] + shots[0]['output']",
        "async def answer(query, shots): return query['input'] + shots[0]['output']",
        "class A:\n    async def __call__(self, q, s): return q['input'] + s[0]['output']\nanswer = A()",
        "async def a(q, s): return q['input'] + s[0]['output']\ndef answer(q, s): return a(q, s)",
    ],
)
def test_it_answers_in_threads_or_on_the_loop_and_each_query_once(workspace: Workspace, named: Make, text: str) -> None:
    name = named(text) + ":answer"
    results, budget = _ask(workspace, name, 20, concurrency=8)
    assert _texts(results) == [f"q{i}billing" for i in range(20)] and budget.calls == 20
    again, budget = _ask(workspace, name, 20)
    assert all(result.cached for result in again) and budget.calls == 0 and _texts(again) == _texts(results)


def test_it_may_ask_a_server_on_the_loop_that_it_runs_on(workspace: Workspace, named: Make) -> None:
    with Server() as server:
        module = named(
            "import openai\nfrom icl_curate import Reply\n"
            f"client = openai.AsyncOpenAI(base_url={server.url!r}, api_key='none')\n"
            "async def answer(query, shots):\n"
            "    turns = [{'role': 'user', 'content': query['input']}]\n"
            "    said = await client.chat.completions.create(model='stub', messages=turns)\n"
            "    used = said.usage\n"
            "    return Reply(said.choices[0].message.content, used.prompt_tokens, used.completion_tokens)\n"
        )
        results, budget = _ask(workspace, f"{module}:answer", 20, concurrency=8)
        assert len(server.calls) == 20 == budget.calls  # no probe
    assert _texts(results) == [answer_to(call) for call in (f"q{i}" for i in range(20))]
    assert budget.tokens_in == sum(result.tokens_in for result in results) > 0


def test_its_prompt_is_all_that_it_is_given(named: Make) -> None:
    name = named("def answer(query, shots): return ''\nanswer.icl_reads = ['tier']") + ":answer"
    settings = Settings(llm=f"program:{name}")
    template = settings.prompt_template
    query = Query("é?", answers=("billing",), id="q", row=7, fields={"tier": "gold", "label": "billing"})
    prompt = build_prompt(query, SHOTS, Task("labels", ("billing",)), template)
    [message] = prompt.messages
    plain = {"options": [], "context": "", "history": [], "tier": "gold"}
    assert json.loads(message.content) == {
        "query": {"input": "é?", **plain},
        "shots": [{"id": "d", "input": "text", "output": "billing", "source": "s", **plain}],
    }
    assert template.reads == {"tier"} and parse(settings.llm).local is False
    # its recorded answers are found by the same prompts
    replayed = Settings(llm="replay:answers.parquet", template=settings.llm).prompt_template
    assert build_prompt(query, SHOTS, Task("labels", ("billing",)), replayed).messages == prompt.messages


def test_it_is_asked_no_other_prompt(workspace: Workspace, named: Make) -> None:
    name = named(RUNS.format(reply="'x'")) + ":answer"
    other = Request(Prompt((Message("user", "Is this right?"),), Query("?")))
    with pytest.raises(LLMError, match="answers queries with demonstrations, and no other prompts"):
        runner.ask(workspace, Program(name), [other])
    assert not _runs(name.partition(":")[0])
    able = probing.capabilities(workspace, Program(name), dry_run=True)
    assert not (able.instructs or able.scoring or able.logprobs)


@pytest.mark.parametrize(
    ("reply", "about"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("None", "TypeError: it returned NoneType"),
        ("exit(3)", "it ended with exit code 3"),
        ("Reply(3)", "TypeError"),
        ("Reply('x', tokens_in=-1)", "are not counts"),
        ("Reply('x', calls=1.5)", "are not counts"),
        ("Reply('x', cost=float('nan'))", "the cost of its Reply is nan"),
    ],
)
def test_what_goes_wrong_is_the_failure_of_that_query(
    workspace: Workspace, named: Make, reply: str, about: str
) -> None:
    module = named(RUNS.format(reply=f"{reply} if query['input'] == 'q1' else 'fine'"))
    results, budget = _ask(workspace, f"{module}:answer", 3)
    assert [isinstance(result, Failure) for result in results] == [False, True, False]
    assert results[1].kind == "raised" and about in results[1].message and budget.calls == 3
    _ask(workspace, f"{module}:answer", 3)
    assert _runs(module).count("q1") == 2 and _runs(module).count("q0") == 1  # asked for again, once


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "asyncio.CancelledError", "StopIteration", "GeneratorExit"])
def test_what_no_future_can_pass_on_is_a_failure_too(workspace: Workspace, named: Make, kind: str, error: str) -> None:
    module = named(
        f"import asyncio\n{kind} answer(query, shots):\n"
        f"    if query['input'] == 'q1': raise {error}('odd')\n"
        "    return 'fine'\n"
    )
    results, _ = _ask(workspace, f"{module}:answer", 3)
    assert [isinstance(result, Failure) for result in results] == [False, True, False]
    assert error.rpartition(".")[2] in results[1].message or "StopIteration" in results[1].message


def test_ten_failures_in_a_row_stop_it(workspace: Workspace, named: Make) -> None:
    module = named(RUNS.format(reply="1 / 0"))
    with pytest.raises(LLMError, match=f"{RAISED} failed of {RAISED} replies in a row.*ZeroDivisionError"):
        _ask(workspace, f"{module}:answer", 100)
    assert len(_runs(module)) == RAISED == 10
    module = named(RUNS.format(reply="1 / 0 if len(runs) % 10 else 'fine'"))
    results, _ = _ask(workspace, f"{module}:answer", 40)
    assert sum(isinstance(result, Answer) for result in results) == 4


def test_calls_are_those_that_it_made(workspace: Workspace, named: Make) -> None:
    module = named(RUNS.format(reply="Reply('x', calls=3)"))
    with pytest.raises(BudgetError, match="9 of 10 calls made"):
        _ask(workspace, f"{module}:answer", 50, concurrency=16, max_calls=10)
    assert len(_runs(module)) == 3  # a fourth may take three more
    free = named(RUNS.format(reply="Reply('x', calls=0)"))
    results, budget = _ask(workspace, f"{free}:answer", 20, concurrency=16, max_calls=10)
    assert len(results) == 20 and budget.calls == 0


def test_the_first_run_is_alone_until_its_bill_is_known(workspace: Workspace, named: Make) -> None:
    module = named(
        "import asyncio\nfrom icl_curate import Reply\nnow, beside = set(), []\n"
        "async def answer(query, shots):\n"
        "    now.add(query['input'])\n"
        "    for _ in range(50): await asyncio.sleep(0)\n"
        "    beside.append(len(now)); now.remove(query['input'])\n"
        "    return Reply('x', cost=0.001)\n"
    )
    _ask(workspace, f"{module}:answer", 20, concurrency=8, max_cost=1.0)
    beside = sys.modules[module].beside
    assert beside[0] == 1 and max(beside) > 1


def test_its_costs_are_what_it_says_and_their_limit_is_kept(workspace: Workspace, named: Make) -> None:
    module = named(RUNS.format(reply="Reply('x', 10, 2, cost=0.02)"))
    with pytest.raises(BudgetError, match=r"\$0.1000 of \$0.1100 spent"):
        _ask(workspace, f"{module}:answer", 50, concurrency=16, max_cost=0.11)
    assert len(_runs(module)) == 5


@pytest.mark.parametrize("reply", ["'x'", "Reply('x', 1000, 1000)"])
def test_a_limit_of_costs_that_cannot_be_known_is_refused(workspace: Workspace, named: Make, reply: str) -> None:
    module = named(RUNS.format(reply=reply))
    with pytest.raises(UsageError, match="does not say what its runs cost") as caught:
        _ask(workspace, f"{module}:answer", 50, concurrency=16, max_cost=1.0)
    assert "--max-calls" in caught.value.fix and len(_runs(module)) == 1
    results, _ = _ask(workspace, f"{module}:answer", 2, max_calls=10)
    assert results[0].cached and len(_runs(module)) == 2  # what was paid is kept


def test_tokens_cost_what_the_user_says(workspace: Workspace, named: Make) -> None:
    module = named(RUNS.format(reply="Reply('x', 1000, 1000)"))
    settings = Settings(llm=f"program:{module}:answer", price_in=10.0, price_out=10.0)
    backend = open_backend(settings.llm)
    with pytest.raises(BudgetError, match=r"\$0.0400 of \$0.0500"):
        runner.ask(workspace, backend, _requests(settings, 9), budget=Budget(None, 0.05, price_of(settings)))
    assert len(_runs(module)) == 2
    # a workspace's own prices are not the user's word
    lent = replace(settings, prices_by="config.toml")
    assert price_of(lent) == price_of(replace(settings, price_in=None, price_out=None))


def test_nothing_is_paid_twice_after_a_kill(workspace: Workspace, named: Make, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    log.touch()
    module = named(
        "import os, time\n"
        "def answer(query, shots):\n"
        f"    file = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND)\n"
        "    os.write(file, f\"{query['input']}\\n\".encode())\n"
        "    time.sleep(0.01)\n    return 'x'\n"
    )
    concurrency, count = 4, 120
    child = begun(lambda: _ask(workspace, f"{module}:answer", count, concurrency))
    deadline = time.monotonic() + PATIENCE
    while len(log.read_text().splitlines()) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    kill(child)
    results, _ = _ask(workspace, f"{module}:answer", count, concurrency)
    assert _texts(results) == ["x"] * count
    runs = log.read_text().split()
    assert len(set(runs)) == count and len(runs) <= count + concurrency


def test_what_cannot_be_opened_is_told_in_one_line(named: Make) -> None:
    for name, about in (
        ("absent:f", "No module named"),
        (named("x = 3") + ":x", "is not a function"),
        ("f", "no program f"),
    ):
        with pytest.raises(CurateError, match=about) as caught:
            open_backend(f"program:{name}")
        assert "\n" not in caught.value.what
