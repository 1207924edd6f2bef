"""The whole layer over real HTTP: every request accounted for, nothing paid twice, budgets kept, interruptions safe."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.backends import OwnBackend
from factories.patience import PATIENCE
from factories.servers import Call, Server, answer_to, error, ok, page, tokens_in
from factories.usage import calls_in, usage_in
from icl_curate.engine.backends import recorded as recording
from icl_curate.engine.backends.offline.reader import OfflineReader
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import BudgetError, Cancelled, LLMError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.http import refusals
from icl_curate.engine.llm import cache, loop, probing, runner
from icl_curate.engine.llm.budget import Budget, Price
from icl_curate.engine.llm.types import Answer, Capabilities, Failure, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store import calls
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    backends: list[Any] = []
    yield backends
    for backend in backends:
        loop.close(backend)


def request(i: int | str, **sampling: Any) -> Request:
    text = f"item {i}"
    return Request(Prompt((Message("user", text),), Query(text)), sampling=Sampling(max_tokens=8, **sampling))


def settings_for(server: Server, **changes: Any) -> LLMSettings:
    return replace(LLMSettings(base_url=server.url, timeout=PATIENCE, grace=10), **changes)


def open_server(server: Server, opened: list[Any], **changes: Any) -> tuple[OpenAIServer, LLMSettings]:
    settings = settings_for(server, **changes)
    backend = OpenAIServer("stub", settings)
    opened.append(backend)
    return backend, settings


def answered(server: Server) -> Counter[str]:
    return Counter(call.text for call in server.asked("item") if call.answered)


def test_duplicates_are_asked_once_and_nothing_is_asked_again(workspace: Workspace, opened: list[Any]) -> None:
    with Server() as server:
        backend, settings = open_server(server, opened)
        requests = [request(i % 20) for i in range(60)]
        first = runner.ask(workspace, backend, requests, settings)
        assert [r.text for r in first if isinstance(r, Answer)] == [answer_to(f"item {i % 20}") for i in range(60)]
        assert answered(server) == {f"item {i}": 1 for i in range(20)}
        before = len(server.calls)
        second = runner.ask(workspace, OpenAIServer("stub", settings), requests[::-1], settings)
        assert len(server.calls) == before
        assert [replace(r, cached=False) for r in second if isinstance(r, Answer)] == first[::-1]
        assert all(isinstance(r, Answer) and r.cached for r in second)
        repeats = [request(0, temperature=0.7, repeat=i) for i in range(5)]
        runner.ask(workspace, backend, repeats, settings)
        assert answered(server)["item 0"] == 6  # draws of one prompt are calls of their own


@pytest.mark.parametrize("first", [True, False])
def test_another_reader_asks_a_server_nothing_again(workspace: Workspace, opened: list[Any], first: bool) -> None:
    """Whether an answer is one line depends on the reader, and a server is not told."""
    asked = [request(i) for i in range(5)]
    before, after = (
        [replace(one, prompt=replace(one.prompt, one_line=line)) for one in asked] for line in (first, not first)
    )
    with Server() as server:
        backend, settings = open_server(server, opened)
        paid = runner.ask(workspace, backend, before, settings)
        assert runner.plan(workspace, backend, after).to_ask == 0
        assert [answer and answer.text for answer in runner.known_answers(workspace, backend, after)] == [
            answer.text for answer in paid if isinstance(answer, Answer)
        ]
        runner.ask(workspace, backend, after, settings)
        assert sum(answered(server).values()) == 5
        recording.record(workspace, backend, workspace.path.parent / "answers.parquet")
    replayed = recording.RecordedLLM(str(workspace.path.parent / "answers.parquet"))
    again = asyncio.run(replayed.ask(after))
    assert [answer.text for answer in again if isinstance(answer, Answer)] == [answer_to(f"item {i}") for i in range(5)]
    local = Local()
    runner.ask(workspace, local, before)
    assert runner.plan(workspace, local, after).to_ask == 5  # it stops at the end of a line


KINDS: Sequence[Any] = (
    error(429, "slow down", None, {"retry-after-ms": "20"}),
    error(500, "oops"),
    "drop",
    "stall",
    page(),
    ok({"choices": None}),
    "no logprobs",
    error(503, "busy", None, {"retry-after": "0.02"}),
)


def third(server: Server, call: Call, seen: int) -> Any:
    """A fault on a third of the requests, the kind and the request chosen by hash; some prompts always fail."""
    if "item" not in call.text:
        return None
    if call.text.endswith("7"):
        return error(400, "This model's maximum context length is 16 tokens", "context_length_exceeded")
    if call.text.endswith("33"):
        return error(400, "filtered", "content_filter")
    chosen = hashlib.blake2b(f"{call.text}/{seen}".encode(), digest_size=2).digest()
    if chosen[0] % 3:
        return None
    kind = KINDS[chosen[1] % len(KINDS)]
    if kind != "no logprobs":
        return kind
    reply = server.chat_reply(call)
    reply["choices"][0]["logprobs"] = None
    return ok(reply)


def test_faults_on_a_third_leave_every_request_accounted_for_in_order(tmp_path: Path, opened: list[Any]) -> None:
    outcomes = []
    requests = [request(i) for i in range(100)]
    for concurrency in (1, 32):
        workspace = Workspace.create(tmp_path / f"w{concurrency}")
        with Server(fault=third) as server:
            backend, settings = open_server(server, opened, concurrency=concurrency, timeout=1.0, attempts=8)
            results = runner.ask(workspace, backend, requests, settings)
            assert server.most_in_flight <= concurrency
            # whatever the fault, a good answer was never paid a second time
            good = {call.text for call in server.asked("item") if call.status == 200}
            assert calls_in(workspace) == sum(isinstance(result, Answer) for result in results) <= len(good)
        for i, result in enumerate(results):
            if isinstance(result, Answer):
                assert result.text == answer_to(f"item {i}")
                assert result.logprobs
            elif i % 10 == 7:
                assert result.kind == "context"
            elif i % 100 == 33:
                assert result.kind == "refusal"
            else:
                assert result.kind == "malformed"  # two broken replies in a row are enough
        outcomes.append([result.text if isinstance(result, Answer) else result.kind for result in results])
        (usage,) = usage_in(workspace)
        assert usage.failures == sum(isinstance(result, Failure) for result in results)
        assert sum(isinstance(result, Failure) and result.kind == "context" for result in results) == 10
    assert outcomes[0] == outcomes[1]


def test_only_broken_replies_count_against_a_broken_server(workspace: Workspace, opened: list[Any]) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        if "item 1" not in call.text or seen > 3:
            return None
        return error(429, "slow down", headers={"retry-after": "0"}) if seen < 3 else page()

    with Server(fault=fault) as server:
        backend, settings = open_server(server, opened)
        results = runner.ask(workspace, backend, [request(i) for i in range(3)], settings)
        sent = list(server.asked("item 1"))
    assert all(isinstance(result, Answer) for result in results)
    assert len(sent) >= 4  # turned away, then broken once, then answered


def test_failures_are_asked_again_by_the_next_run(workspace: Workspace, opened: list[Any]) -> None:
    broken = {"on": True}

    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(400, "filtered", "content_filter") if broken["on"] and "item 3" in call.text else None

    with Server(fault=fault) as server:
        backend, settings = open_server(server, opened)
        first = runner.ask(workspace, backend, [request(i) for i in range(6)], settings)
        assert [isinstance(result, Answer) for result in first] == [True, True, True, False, True, True]
        broken["on"] = False
        second = runner.ask(workspace, backend, [request(i) for i in range(6)], settings)
        assert [isinstance(r, Answer) and r.cached for r in second] == [True, True, True, False, True, True]
        assert isinstance(second[3], Answer)


def test_a_call_budget_is_kept_to_the_call_and_what_was_paid_is_kept(workspace: Workspace, opened: list[Any]) -> None:
    with Server(delay=0.01) as server:
        backend, settings = open_server(server, opened)
        probing.probe(workspace, backend)
        budget = Budget(max_calls=10)
        requests = [request(i) for i in range(30)]
        with pytest.raises(BudgetError) as caught:
            runner.ask(workspace, backend, requests, settings, budget)
        assert "20 prompt(s) of this step left" in caught.value.what
        assert len(server.asked("item")) == calls_in(workspace) == budget.calls == 10
        with pytest.raises(BudgetError):
            runner.ask(workspace, backend, requests, settings, budget)
        assert len(server.asked("item")) == 10
        cached = runner.ask(workspace, backend, [request(i) for i in range(5)], settings, budget)
        assert all(isinstance(result, Answer) and result.cached for result in cached)
        runner.ask(workspace, backend, requests, settings, Budget(max_calls=20))
        assert answered(server) == {f"item {i}": 1 for i in range(30)}


def test_a_cost_budget_is_reserved_before_and_settled_after(workspace: Workspace, opened: list[Any]) -> None:
    price = Price(1e4, 1e5)
    with Server(delay=0.01) as server:
        backend, settings = open_server(server, opened, concurrency=16)
        probing.probe(workspace, backend)
        budget = Budget(max_cost=5.0, price=price)
        with pytest.raises(BudgetError):
            runner.ask(workspace, backend, [request(i) for i in range(40)], settings, budget)
        paid = answered(server)
        assert 0 < len(paid) < 40
        (usage,) = usage_in(workspace)
        assert usage.calls == len(paid)
        assert usage.tokens_in == sum(tokens_in(text) for text in paid)
        assert budget.cost == pytest.approx(price.cost(usage.tokens_in, usage.tokens_out))
        assert budget.cost <= 5.0
        # settled by usage, it came closer to the limit than reservations alone would have allowed
        assert budget.cost + price.cost(30, 8) + 1e-9 >= 5.0


def test_requests_turned_away_are_not_charged(workspace: Workspace, opened: list[Any]) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(500, "oops") if seen == 0 and "item" in call.text else None

    with Server(fault=fault) as server:
        backend, settings = open_server(server, opened)
        probing.probe(workspace, backend)
        budget = Budget(max_calls=8)
        results = runner.ask(workspace, backend, [request(i) for i in range(8)], settings, budget)
        assert all(isinstance(result, Answer) and result.attempts == 2 for result in results)
        assert budget.calls == 8
        assert len(server.asked("item")) == 16


def test_a_plan_counts_without_asking(workspace: Workspace, opened: list[Any]) -> None:
    with Server() as server:
        backend, settings = open_server(server, opened)
        requests = [request(i % 10) for i in range(15)]
        before = runner.plan(workspace, backend, requests, Price(1.0, 2.0))
        assert not server.calls
        assert (before.requests, before.distinct, before.cached, before.to_ask) == (15, 10, 0, 10)
        runner.ask(workspace, backend, requests[:4], settings)
        plan = runner.plan(workspace, backend, requests, Price(1e6, 2e6))
        assert (plan.cached, plan.to_ask) == (4, 6)
        real = 6 * tokens_in("item 0")
        assert plan.tokens_in[0] <= real <= plan.tokens_in[1]
        assert plan.tokens_out == (6, 6 * 8)
        assert plan.cost == (plan.tokens_in[0] + 2 * 6, plan.tokens_in[1] + 2 * 48)
        assert runner.plan(workspace, backend, requests).cost is None


def test_cancelling_keeps_what_was_paid(workspace: Workspace, opened: list[Any]) -> None:
    token = CancelToken()

    def report(event: Event) -> None:
        if event.done >= 20:
            token.cancel()

    with Server(delay=0.03) as server:
        backend, settings = open_server(server, opened)
        requests = [request(i) for i in range(400)]
        with pytest.raises(Cancelled):
            runner.ask(workspace, backend, requests, settings, monitor=Monitor(report, token))
        paid = answered(server)
        assert 20 <= len(paid) < 400
        assert calls_in(workspace) == len(paid)  # the calls in flight had their time of grace
        runner.ask(workspace, backend, requests, settings)
        assert answered(server) == {f"item {i}": 1 for i in range(400)}
        with pytest.raises(Cancelled):
            runner.ask(workspace, backend, requests, settings, monitor=Monitor(cancel=token))


def test_a_report_that_fails_stops_the_run(workspace: Workspace, opened: list[Any]) -> None:
    def report(event: Event) -> None:
        raise ZeroDivisionError

    with Server(delay=0.05) as server:
        backend, settings = open_server(server, opened)
        with pytest.raises(ZeroDivisionError):
            runner.ask(workspace, backend, [request(i) for i in range(200)], settings, monitor=Monitor(report))
        seen = len(server.calls)
        time.sleep(0.3)
        assert len(server.calls) == seen < 200


def test_events_add_up(workspace: Workspace, opened: list[Any]) -> None:
    events: list[Event] = []
    with Server(delay=0.01) as server:
        backend, settings = open_server(server, opened)
        runner.ask(workspace, backend, [request(i) for i in range(5)], settings)
        budget = Budget(price=Price(1.0, 1.0))
        runner.ask(workspace, backend, [request(i) for i in range(100)], settings, budget, Monitor(events.append))
    assert {event.task for event in events} == {"ask"}
    assert [event.done for event in events] == sorted(event.done for event in events)
    last = events[-1]
    assert (last.done, last.total, last.fields["cached"], last.fields["failed"]) == (100, 100, 5, 0)
    assert (last.fields["tokens_in"], last.fields["tokens_out"]) == (budget.tokens_in, budget.tokens_out)
    assert last.fields["cost"] == pytest.approx(budget.cost)
    assert last.fields["in_flight"] == 0
    assert last.fields["limit"] >= 8


def test_a_rate_limited_server_is_found_its_level(workspace: Workspace, opened: list[Any]) -> None:
    notes: list[str] = []
    with Server(delay=0.02, capacity=12) as server:
        backend, settings = open_server(server, opened, attempts=12)
        results = runner.ask(
            workspace,
            backend,
            [request(i) for i in range(300)],
            settings,
            monitor=Monitor(lambda e: notes.append(e.note)),
        )
    assert all(isinstance(result, Answer) for result in results)
    assert any("limits the rate" in note for note in notes)


class Overloaded(OwnBackend):
    """Turns away more than four at once by a 503."""

    in_flight = 0

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        self.in_flight += 1
        try:
            if self.in_flight > 4:
                return [Failure("transient", "HTTP 503: busy", status=503)]
            await asyncio.sleep(0.01)
            return [Answer("word", tokens_in=1, tokens_out=1)]
        finally:
            self.in_flight -= 1


def test_an_overloaded_server_is_asked_less_at_once_and_answers_all(workspace: Workspace) -> None:
    notes: list[str] = []
    backend, report = Overloaded(), Monitor(lambda event: notes.append(event.note))
    results = runner.ask(workspace, backend, [request(i) for i in range(100)], LLMSettings(), monitor=report)
    assert all(isinstance(result, Answer) for result in results)
    assert any(note.startswith("scripted is overloaded: concurrency lowered from") for note in notes)


class Slow(OwnBackend):
    """Takes all of its time."""

    def _answer(self, request: Request) -> Result:
        return Answer("word", tokens_in=1, tokens_out=1)


def test_a_server_that_needs_its_time_is_not_asked_more_at_once(workspace: Workspace) -> None:
    backend = Slow()
    runner.ask(workspace, backend, [request(i) for i in range(100)], LLMSettings(timeout=0.0))
    assert runner._limiters[backend].history == []
    runner.ask(workspace, other := Slow(), [request(-i) for i in range(1, 100)], LLMSettings())
    assert runner._limiters[other].history


@pytest.mark.parametrize(
    "reply",
    [error(401, "no", "invalid_api_key"), error(429, "quota", "insufficient_quota"), error(404, "no such model")],
)
def test_what_no_request_can_survive_ends_the_run(workspace: Workspace, opened: list[Any], reply: Any) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return reply if len(answered(server)) >= 10 and "item" in call.text else None

    with Server(fault=fault, delay=0.01) as server:
        backend, settings = open_server(server, opened, concurrency=4)
        with pytest.raises(LLMError) as caught:
            runner.ask(workspace, backend, [request(i) for i in range(100)], settings)
        assert caught.value.fix
        assert calls_in(workspace) == len(answered(server)) >= 10
        assert len(server.asked("item")) < 30


def test_a_server_that_fails_at_every_prompt_is_given_up_though_it_is_asked_a_few_at_a_time(
    workspace: Workspace, opened: list[Any]
) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(500, "broken") if "item" in call.text else None

    with Server(fault=fault) as server:
        backend, settings = open_server(server, opened, attempts=2)
        with pytest.raises(LLMError, match="20 prompts in a row failed: HTTP 500"):
            for start in range(0, 100, 8):
                runner.ask(workspace, backend, [request(i) for i in range(start, start + 8)], settings)
        assert len(server.asked("item")) <= 2 * 24


def test_a_dead_server_is_noticed_and_nothing_is_lost(workspace: Workspace, opened: list[Any]) -> None:
    with Server() as server:
        backend, settings = open_server(server, opened, attempts=50)
        runner.ask(workspace, backend, [request(i) for i in range(5)], settings)
    with pytest.raises(LLMError, match="does not answer") as caught:
        runner.ask(workspace, backend, [request(i) for i in range(5000)], settings)
    assert "--base-url" in caught.value.fix
    assert calls_in(workspace) == 5
    with pytest.raises(LLMError):
        probing.probe(workspace, backend, fresh=True)
    outcome = probing.check(workspace, backend)
    assert not outcome.reachable
    assert outcome.error
    assert outcome.fix


def test_probes_are_stored_reused_and_required(workspace: Workspace, opened: list[Any]) -> None:
    with Server(logprobs=False) as server:
        backend, settings = open_server(server, opened)
        found = probing.probe(workspace, backend)
        assert not found.logprobs
        runner.ask(workspace, backend, [request(1)], settings)
        before = len(server.calls)
        other = OpenAIServer("stub", settings)
        assert probing.probe(workspace, other) == found
        assert len(server.calls) == before
        with pytest.raises(LLMError, match="log-probabilities") as caught:
            probing.require(found, other.spec, logprobs=True, purpose="calibrate")
        assert "llm check" in caught.value.fix
        probing.require(found, other.spec)
        server.logprobs, server.echo = True, True  # the server was upgraded
        outcome = probing.check(workspace, other, Price(1, 1))
        assert outcome.reachable
        assert outcome.price_known
        assert outcome.capabilities is not None
        probing.require(outcome.capabilities, other.spec, logprobs=True, scoring=True)
        (answer,) = runner.ask(workspace, other, [request(1)], settings)
        assert isinstance(answer, Answer)
        assert answer.logprobs  # the answer of the time before is forgotten
        before = len(server.calls)
        assert probing.probe(workspace, backend) == outcome.capabilities  # of a session that has gone on meanwhile
        (answer,) = runner.ask(workspace, backend, [request(2)], settings)
        assert isinstance(answer, Answer) and answer.logprobs
        assert len(server.calls) == before + 1


def test_what_another_process_found_of_a_changed_server_is_used_where_it_is_open(
    workspace: Workspace, opened: list[Any]
) -> None:
    with Server(logprobs=False) as server:
        on_screen, settings = open_server(server, opened)
        other, _ = open_server(server, opened)
        assert not probing.probe(workspace, on_screen).logprobs
        server.logprobs, server.chat = True, False
        found = probing.probe(workspace, other, fresh=True)
        asked = len(server.calls)
        assert probing.probe(workspace, on_screen) == found and found.logprobs and len(server.calls) == asked
        (answer,) = runner.ask(workspace, on_screen, [request(1)], settings)
        assert isinstance(answer, Answer) and answer.logprobs
        assert server.calls[-1].path.endswith("/completions") and "/chat/" not in server.calls[-1].path


def test_check_times_one_warm_answer_and_says_what_it_waits_for(
    workspace: Workspace, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PATIENCE", 0.1)
    events: list[Event] = []

    def slow_at_first(server: Server, call: Call, seen: int) -> Any:
        server.delay = 0.5 if len(server.calls) == 1 else 0.05
        return None

    with Server(fault=slow_at_first, logprobs=False) as server:
        backend, _ = open_server(server, opened)
        found = probing.check(workspace, backend, monitor=Monitor(events.append))
    assert found.latency is not None and 0.05 <= found.latency < 0.4
    assert found.answers == "generated"
    notes = [event.note for event in events]
    assert notes and notes[0].startswith("waiting for openai:stub") and notes[0].endswith("to be probed: 0 s")


def test_a_command_says_that_it_waits_for_a_server_to_be_probed(
    workspace: Workspace, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PATIENCE", 1e-9)
    events: list[Event] = []
    with Server() as server:
        backend, settings = open_server(server, opened)
        runner.ask(workspace, backend, [request(1)], settings, monitor=Monitor(events.append))
    assert any(event.note.endswith("to be probed: 0 s") for event in events)


def test_a_dry_run_sends_nothing_and_knows_what_a_probe_found(workspace: Workspace, opened: list[Any]) -> None:
    with Server() as server:
        backend, settings = open_server(server, opened)
        assert probing.capabilities(workspace, backend, dry_run=True) == probing.UNSEEN
        assert server.calls == []
        found = probing.capabilities(workspace, backend, dry_run=False)
        assert found.logprobs
        before = len(server.calls)
        assert before > 0
        another = OpenAIServer("stub", settings)
        assert probing.capabilities(workspace, another, dry_run=True) == found
        assert len(server.calls) == before


def test_a_dry_run_knows_the_offline_reader_unasked_and_stores_nothing(workspace: Workspace) -> None:
    def encode(texts: Sequence[str]) -> Any:
        raise AssertionError("read")

    reader = OfflineReader(encode, "none")
    planned = probing.capabilities(workspace, reader, dry_run=True)
    assert calls.capabilities(workspace, cache.canonical(reader.identity())) is None
    assert (planned.scoring, planned.logprobs, planned.instructs) == (True, True, False)
    assert planned == probing.capabilities(workspace, OfflineReader(encode, "none"), dry_run=False)


HOLDER = """
import sys, time
from pathlib import Path
from icl_curate.engine.store.workspace import Workspace
with Workspace.open(Path(sys.argv[1])).write():
    print("held", flush=True)
    time.sleep(1.5)
"""


def test_answers_wait_for_a_workspace_that_another_process_holds(
    workspace: Workspace, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holders: list[subprocess.Popen[str]] = []

    def fault(server: Server, call: Call, seen: int) -> Any:
        if "item" in call.text and not holders:
            command = [sys.executable, "-c", HOLDER, str(workspace.path)]
            holders.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            assert holders[0].stdout is not None
            assert holders[0].stdout.readline() == "held\n"

    with Server(fault=fault) as server:
        backend, settings = open_server(server, opened)
        probing.probe(workspace, backend)
        monkeypatch.setattr("icl_curate.engine.store.workspace.PATIENCE", 0.1)
        results = runner.ask(workspace, backend, [request(i) for i in range(20)], settings)
        holders[0].communicate()
        assert all(isinstance(result, Answer) for result in results)
        assert calls_in(workspace) == 20


class Local:
    """A local model that counts what it is given."""

    spec = "hf:fake"
    local = True
    max_in_flight = 1
    batch_size = 16

    def __init__(self, pause: float = 0.0) -> None:
        self.batches: list[int] = []
        self.busy = 0
        self.pause = pause

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "fake"}

    def count_tokens(self, prompt: Prompt) -> int:
        return len(prompt.text)

    async def probe(self) -> Capabilities:
        return Capabilities(True, True)

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        self.busy += 1
        assert self.busy == 1
        await asyncio.sleep(self.pause)
        self.busy -= 1
        self.batches.append(len(requests))
        return [Answer(r.prompt.messages[-1].content, tokens_in=3) for r in requests]

    async def close(self) -> None:
        return None


def test_a_local_model_gets_full_batches_one_at_a_time(workspace: Workspace) -> None:
    backend = Local(0.002)
    results = runner.ask(workspace, backend, [request(i) for i in range(100)])
    assert [r.text for r in results if isinstance(r, Answer)] == [f"item {i}" for i in range(100)]
    assert sorted(backend.batches) == [4, *[16] * 6]
    plan = runner.plan(workspace, backend, [request("new")])
    count = backend.count_tokens(request("new").prompt)
    assert plan.tokens_in == (count, count)
    assert plan.cost == (0.0, 0.0)


def test_a_budget_smaller_than_a_batch_is_used_up(workspace: Workspace) -> None:
    backend = Local()
    with pytest.raises(BudgetError):
        runner.ask(workspace, backend, [request(i) for i in range(100)], budget=Budget(max_calls=21))
    assert sum(backend.batches) == calls_in(workspace) == 21


def test_several_threads_may_ask_at_once(workspace: Workspace, opened: list[Any]) -> None:
    with Server(delay=0.005) as server:
        backend, settings = open_server(server, opened)
        found: dict[int, list[Result]] = {}

        def work(part: int) -> None:
            found[part] = runner.ask(workspace, backend, [request(f"{part}-{i}") for i in range(30)], settings)

        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        for part in range(4):
            texts = [result.text for result in found[part] if isinstance(result, Answer)]
            assert texts == [answer_to(f"item {part}-{i}") for i in range(30)]


def test_the_label_tells_servers_apart_and_the_row_finds_its_key(workspace: Workspace, opened: list[Any]) -> None:
    with Server() as server:
        backend, settings = open_server(server, opened)
        runner.ask(workspace, backend, [request(1)], settings)
        (usage,) = usage_in(workspace)
        assert usage.llm == cache.label(backend) == f"openai:stub at {server.url}"
        assert calls.lookup(workspace, [cache.call_key(backend.identity(), request(1))])
