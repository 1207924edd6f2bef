"""Money: what a wrong server can make a run spend, over real HTTP; limits kept, replies that are no answers noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories.patience import PATIENCE
from factories.servers import Call, Server, error, ok, page, tokens_in
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import BudgetError, LLMError
from icl_curate.engine.http import refusals
from icl_curate.engine.llm import loop, probing, runner
from icl_curate.engine.llm.budget import Budget, Price
from icl_curate.engine.llm.cost import PROBE_CALLS
from icl_curate.engine.llm.pace import NO_ANSWERS, START
from icl_curate.engine.llm.types import Answer, Failure, LLMSettings, Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.workspace import Workspace

DOLLAR = Price(1.0, 1.0)
"""A dollar for a million tokens, of either kind."""
DEAR = 100_000


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@dataclass
class Client:
    """A command: a backend of its own, closed at the end."""

    workspace: Workspace
    backend: OpenAIServer
    settings: LLMSettings

    def ask(self, prompts: range, budget: Budget) -> list[Any]:
        requests = [request(i) for i in prompts]
        return runner.ask(self.workspace, self.backend, requests, self.settings, budget)


@pytest.fixture
def clients(workspace: Workspace) -> Iterator[Any]:
    opened: list[OpenAIServer] = []

    def new(server: Server, **changes: Any) -> Client:
        settings = LLMSettings(base_url=server.url, timeout=PATIENCE, **changes)
        opened.append(OpenAIServer("stub", settings))
        return Client(workspace, opened[-1], settings)

    yield new
    for backend in opened:
        loop.close(backend)


def request(i: int) -> Request:
    text = f"item {i}"
    return Request(Prompt((Message("user", text),), Query(text)), sampling=Sampling(max_tokens=8))


def charging(server: Server, call: Call, tokens: int = DEAR) -> Any:
    """A good reply whose bill has so many prompt tokens."""
    return ok(server.chat_reply(call) | {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}})


def paid(server: Server, marker: str = "") -> int:
    """Calls that were answered: those that cost money."""
    return sum(call.answered for call in server.asked(marker))


# Cost.


def test_a_server_that_counts_more_than_foreseen_is_paid_once_beyond_the_limit_and_never_again(clients: Any) -> None:
    with Server(fault=lambda server, call, seen: charging(server, call) if call.body else None) as server:
        budget = Budget(max_cost=0.05, price=DOLLAR)
        with pytest.raises(BudgetError, match=r"\$0.1000 of \$0.0500 spent"):
            clients(server).ask(range(60), budget)
        assert paid(server) == budget.calls == 1
        sent = len(server.calls)
        for _ in range(2):
            again = Budget(max_cost=0.05, price=DOLLAR)
            with pytest.raises(BudgetError):
                clients(server).ask(range(60), again)
            assert again.cost == 0.0
        assert len(server.calls) == sent


@pytest.mark.parametrize("answers", [True, False])
def test_what_calls_cost_is_known_to_later_commands(clients: Any, answers: bool) -> None:
    """The probe was cheap, the work is dear: a proxy that adds to prompts, or a model that reasons unseen."""

    def fault(server: Server, call: Call, seen: int) -> Any:
        if "item" not in call.text:
            return None
        status, headers, body = charging(server, call)
        told = json.loads(body)
        if not answers:
            told["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": []}
        return status, headers, json.dumps(told).encode()

    with Server(fault=fault) as server:
        for run in range(3):
            budget = Budget(max_cost=0.25, price=DOLLAR)
            with pytest.raises(BudgetError):
                clients(server).ask(range(60), budget)
            # never a call that could have been foreseen to exceed it, whatever is in flight
            assert len(server.asked("item")) == 2 * (run + 1)
            assert budget.cost == pytest.approx(0.2, rel=0.01)


def test_an_honest_server_gets_as_many_calls_at_once_as_without_a_limit(clients: Any) -> None:
    """After the first, which goes alone, nothing is answered before as many calls wait as the limiter allows."""
    waiting, full = [], asyncio.Event()

    def fault(server: Server, call: Call, seen: int) -> Any:
        if "item" not in call.text or call.text == "item 0":
            return None

        async def together(writer: asyncio.StreamWriter) -> None:
            waiting.append(call)
            if len(waiting) >= START:
                full.set()
            await full.wait()
            body = json.dumps(server.chat_reply(call)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

        return together

    with Server(fault=fault) as server:
        results = clients(server, concurrency=START).ask(range(4 * START), Budget(max_cost=1.0, price=DOLLAR))
    assert all(isinstance(result, Answer) for result in results)
    assert len(waiting) == 4 * START - 1


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 1000)), min_size=1, max_size=80),
    st.integers(1, 16),
    st.randoms(use_true_random=False),
)
def test_random_bills_exceed_a_limit_only_by_what_was_in_flight(
    bills: list[tuple[int, int]], concurrency: int, draw: Any
) -> None:
    """Calls are estimated and billed in tokens of a dollar each; those in flight end in any order."""
    limit = 400.0
    budget = Budget(max_cost=limit, price=Price(1e6, 0.0), llm="m")
    waiting, flying, alone = list(bills), [], 0
    surprises: list[int] = []
    while waiting or flying:
        held = budget.reserve(waiting[0][0], 0) if waiting and len(flying) < concurrency else None
        if held is not None:
            assert budget.cost <= limit  # nothing is sent once it is exceeded
            flying.append((held, *waiting.pop(0)))
            alone = max(alone, len(flying)) if budget.dearest is None else alone
            dearest = budget.dearest.cost if budget.dearest else 0
            surprises = [max(0, bill - max(estimate, dearest)) for _, estimate, bill in flying]
            continue
        if not flying:
            break
        held, _, bill = flying.pop(draw.randrange(len(flying)))
        budget.settle(held, Answer("x", tokens_in=bill))
    assert alone <= 1
    assert len(surprises) <= concurrency  # of the calls in flight when the last one was sent
    assert budget.cost <= limit + sum(surprises)


@given(st.integers(1, 5000), st.integers(1, 50), st.integers(1, 16), st.integers(0, 3000))
def test_a_server_that_is_wrong_about_all_calls_exceeds_a_limit_by_one(
    bill: int, estimate: int, concurrency: int, limit: int
) -> None:
    budget = Budget(max_cost=float(limit), price=Price(1e6, 0.0), llm="m")
    flying: list[Any] = []
    for _ in range(200):
        held = budget.reserve(estimate, 0) if len(flying) < concurrency else None
        if held is not None:
            flying.append(held)
        elif flying:
            budget.settle(flying.pop(0), Answer("x", tokens_in=bill))
    assert budget.cost <= limit + max(0, bill - estimate)


# Replies that are no answers.

TOOL_CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}


def said(server: Server, call: Call, message: dict[str, Any], finish: str = "stop") -> Any:
    body = server.chat_reply(call)
    body["choices"][0] |= {"message": message, "finish_reason": finish, "logprobs": None}
    return ok(body)


REPLIES = {
    "tool calls": (lambda server, call: said(server, call, TOOL_CALL), "unusable"),
    "content filter": (lambda server, call: said(server, call, {"content": ""}, "content_filter"), "refused"),
    "filtered": (lambda server, call: error(400, "filtered", "content_filter"), "refused"),
    "no content": (lambda server, call: (204, {}, b""), "unusable"),
    "an error of status 200": (lambda server, call: ok({"error": {"message": "overloaded"}}), "unusable"),
    "a page": (lambda server, call: page(), "unusable"),
}


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("at_once", [1000, 5])
def test_a_server_without_an_answer_is_given_up(clients: Any, name: str, at_once: int) -> None:
    """In one list of prompts, or in many short ones, as races ask."""
    reply, called = REPLIES[name]
    with Server(fault=lambda server, call, seen: reply(server, call) if "item" in call.text else None) as server:
        client, budget = clients(server, concurrency=4), Budget()
        with pytest.raises(LLMError, match=f"{NO_ANSWERS} {called} of {NO_ANSWERS} replies in a row") as caught:
            for first in range(0, 1000, at_once):
                client.ask(range(first, first + at_once), budget)
        assert "llm check --llm openai:stub;" in caught.value.fix
        asked = server.asked("item")
        assert NO_ANSWERS <= len(asked) < NO_ANSWERS + 4
        assert max(server.seen[call.text] for call in asked) <= 2


def test_refusals_of_single_prompts_do_not_end_a_run(clients: Any) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        refused = "item" in call.text and not call.text.endswith("9")
        return error(400, "filtered", "content_filter") if refused else None

    with Server(fault=fault) as server:
        results = clients(server, concurrency=2).ask(range(100), Budget())
    assert [isinstance(result, Answer) for result in results] == [i % 10 == 9 for i in range(100)]


def test_a_reply_that_cannot_be_used_is_paid_twice_at_most(clients: Any) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return said(server, call, TOOL_CALL) if call.text == "item 3" else None

    with Server(fault=fault) as server:
        results = clients(server).ask(range(6), Budget())
    assert isinstance(results[3], Failure) and (results[3].kind, results[3].tokens_in) == ("malformed", 6)
    assert server.seen["item 3"] == 2


# Probes.


def test_probes_are_calls_of_the_budget_once(clients: Any) -> None:
    with Server(echo=True) as server:
        first, budget = clients(server), Budget(max_calls=30, price=DOLLAR)
        plan = runner.plan(first.workspace, first.backend, [request(i) for i in range(60)])
        assert plan.to_probe == (f"openai:stub at {server.url}",)
        with pytest.raises(BudgetError):
            first.ask(range(60), budget)
        assert paid(server) == budget.calls == 30
        assert 0 < 30 - paid(server, "item") <= PROBE_CALLS
        assert budget.tokens_in == sum(json_tokens(server, call) for call in server.calls if call.answered)
        before = paid(server)
        second = clients(server)
        assert runner.plan(second.workspace, second.backend, [request(0)]).to_probe == ()
        second.ask(range(60), Budget(max_calls=60))
        assert paid(server) - before == 60 - paid(server, "item") + (paid(server) - before)


def json_tokens(server: Server, call: Call) -> int:
    """Prompt tokens that the server told for a call."""
    prompts = call.body.get("prompt", call.text)
    return sum(len(text) // 4 + 5 for text in ([prompts] if isinstance(prompts, str) else prompts))


def test_a_budget_too_small_for_the_probe_sends_nothing(clients: Any) -> None:
    with Server() as server:
        with pytest.raises(BudgetError, match=r"openai:stub must be probed first, which takes about 7 calls") as caught:
            clients(server).ask(range(3), Budget(max_calls=1))
        assert "llm check --llm openai:stub" in caught.value.fix
        assert server.calls == []
        client = clients(server)
        probing.probe(client.workspace, client.backend)
        budget = Budget(max_calls=1)
        with pytest.raises(BudgetError, match="2 prompt"):
            client.ask(range(3), budget)
        assert paid(server, "item") == 1


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": "12", "completion_tokens": None}, {"completion_tokens": -3}])
def test_of_a_server_that_tells_no_usage_written_tokens_are_estimated(clients: Any, usage: Any) -> None:
    text = "a long answer of many words " * 20

    def fault(server: Server, call: Call, seen: int) -> Any:
        reply = server.chat_reply(call)
        reply["choices"][0] |= {"message": {"role": "assistant", "content": text}}
        return ok(reply | {"usage": usage}) if "item" in call.text else None

    with Server(fault=fault, logprobs=False) as server:
        budget = Budget(max_cost=0.05, price=Price(0.0, 100.0))
        with pytest.raises(BudgetError, match="spent"):
            clients(server, concurrency=1).ask(range(60), budget)
        asked = len(server.asked("item"))
    assert 0 < asked < 10 and budget.tokens_out > asked * len(text) / 6


def test_a_generation_that_breaks_off_is_charged_asked_again_and_not_kept(workspace: Workspace, clients: Any) -> None:
    def broken(server: Server, call: Call, seen: int) -> Any:
        good = server.chat_reply(call)
        part = {"finish_reason": "error", "error": {"code": 502, "message": "upstream"}}
        return ok(good | {"choices": [{**good["choices"][0], **part}]}) if call.text == "item 0" and not seen else None

    with Server(fault=broken) as server:
        clients(server).ask(range(1, 2), Budget())
        budget = Budget()
        for _ in range(2):
            (answer,) = clients(server).ask(range(1), budget)
            assert answer.text.startswith("word") and answer.finish == "stop"
        assert len(server.asked("item 0")) == budget.calls == 2
    assert budget.tokens_in == 2 * tokens_in("item 0")


def test_options_echoed_one_a_request_are_sent_one_after_another_and_all_counted(
    workspace: Workspace, clients: Any
) -> None:
    options = tuple(f"option{i}" for i in range(6))

    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(503, "busy") if "late" in call.text and "option3" in call.text and not seen else None

    def scored(text: str) -> Request:
        return Request(Prompt((Message("user", text),), Query(text), choices=options), True)

    with Server(echo=True, echoes=1, fault=fault, delay=0.005) as server:
        client = clients(server, concurrency=1)
        probing.probe(workspace, client.backend)
        for text in ("soon", "late"):
            budget, before, server.most_in_flight = Budget(), len(server.calls), 0
            (answer,) = runner.ask(workspace, client.backend, [scored(text)], client.settings, budget)
            assert isinstance(answer, Answer) and len(answer.option_logprobs) == len(options)
            paid = [call for call in server.calls[before:] if call.answered]
            assert (budget.calls, budget.tokens_in) == (len(paid), sum(tokens_in(call.text) for call in paid))
            assert server.most_in_flight == 1
    assert len(paid) == 3 + len(options)
