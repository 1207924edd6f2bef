"""Replies that no client expects, over real HTTP: an answer is kept, or there is a failure of one line."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from factories.odd_replies import ANSWER, ODD, Odd
from factories.patience import PATIENCE
from factories.servers import Call, Server, answer_to, error, page
from icl_curate.engine.backends.openai import wire
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.http import client, refusals
from icl_curate.engine.llm import cache, loop, pace, probing, runner
from icl_curate.engine.llm.types import Answer, Failure, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.001)


def _requests(names: list[str]) -> list[Request]:
    return [Request(Prompt((Message("user", name),), Query(name)), sampling=Sampling(max_tokens=8)) for name in names]


def _fault(by_name: dict[str, Odd]) -> Any:
    return lambda server, call, seen: by_name[call.text].make(server, call) if call.text in by_name else None


def _check(odd: Odd, result: Result) -> None:
    if isinstance(result, Failure):
        assert result.kind in odd.outcomes, result
        assert "\n" not in result.message
        assert len(result.message) < 400
        result.message.encode()
        return
    assert ANSWER in odd.outcomes, result.text[:100]
    assert result.text == (answer_to(odd.name) if odd.text is None else odd.text)
    assert 0 <= result.tokens_in <= 10**9
    assert 0 <= result.tokens_out <= 10**9


def test_every_odd_reply_is_an_answer_kept_or_a_failure_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole table in one run: none of it takes the others' answers along."""
    monkeypatch.setattr(client, "LARGEST", 8 << 20)
    assert len(ODD) >= 60
    workspace = Workspace.create(tmp_path / "w")
    by_name = {odd.name: odd for odd in ODD if not odd.slow and "redirect" not in odd.outcomes}
    with Server(fault=_fault(by_name)) as server:
        settings = LLMSettings(base_url=server.url, timeout=PATIENCE, attempts=1, concurrency=4)
        backend = OpenAIServer("stub", settings)
        good = [f"good {i}" for i in range(10)]
        requests = _requests([*by_name, *good])
        try:
            results = runner.ask(workspace, backend, requests, settings)
        finally:
            loop.close(backend)
        for odd, result in zip(by_name.values(), results, strict=False):
            _check(odd, result)
        assert [r.text for r in results[len(by_name) :] if isinstance(r, Answer)] == [answer_to(t) for t in good]
        # what was answered is in the workspace, as it was told
        keys = [cache.call_key(backend.identity(), request) for request in requests]
        known = runner.known_answers(workspace, backend, requests)
        assert len(set(keys)) == len(requests)
        for result, kept in zip(results, known, strict=True):
            told = (result.text, result.tokens, result.finish, result.model) if isinstance(result, Answer) else None
            assert told == (kept and (kept.text, kept.tokens, kept.finish, kept.model))


def test_a_reply_that_never_ends_is_a_timeout() -> None:
    slow = {odd.name: odd for odd in ODD if odd.slow}
    with Server(fault=_fault(slow)) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url, timeout=0.5))

        async def work() -> list[Result]:
            try:
                return await backend.ask(_requests(list(slow)))
            finally:
                await backend.close()

        for odd, result in zip(slow.values(), asyncio.run(work()), strict=True):
            _check(odd, result)


def test_a_gzip_bomb_is_not_unpacked() -> None:
    (bomb,) = [odd for odd in ODD if "bomb" in odd.name]
    with Server(fault=_fault({bomb.name: bomb})) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url, timeout=PATIENCE))
        bomb.make(server, Call("", {}, "", 0.0, {}))  # what it takes to make one is not the client's

        async def work() -> list[Result]:
            try:
                return await backend.ask(_requests([bomb.name]))
            finally:
                await backend.close()

        tracemalloc.start()
        try:
            (result,) = asyncio.run(work())
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert isinstance(result, Failure)
    assert result.message == "the reply is larger than 64 MB"
    assert most < 3 * client.LARGEST


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", ["completions", "models"])
def test_prompts_do_not_follow_a_redirect_to_another_server(tmp_path: Path, status: int, path: str) -> None:
    with Server() as other:

        def fault(server: Server, call: Call, seen: int) -> Any:
            where = f"http://localhost:{other.port}{call.path}"
            return (status, {"location": where}, b"") if call.path.endswith(path) else None

        with Server(fault=fault, odd_models=True) as server:
            settings = LLMSettings(base_url=server.url)
            backend = OpenAIServer("stub", settings)
            workspace = Workspace.create(tmp_path / "w")
            try:
                if path == "models":  # an aside of the probe: the answers come from the right one
                    assert isinstance(runner.ask(workspace, backend, _requests(["secret"]), settings)[0], Answer)
                else:
                    with pytest.raises(LLMError) as caught:
                        runner.ask(workspace, backend, _requests(["secret"]), settings)
                    assert f"http://127.0.0.1:{server.port}" in caught.value.what
                    assert f"http://localhost:{other.port}" in caught.value.what
                    assert "--base-url" in caught.value.fix
            finally:
                loop.close(backend)
            assert other.calls == []


def test_a_redirect_within_the_server_is_followed() -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return (
            (307, {"location": call.path + "/chat/completions"}, b"") if call.path == "/v2/chat/completions" else None
        )

    with Server(fault=fault) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url.replace("/v1", "/v2")))

        async def work() -> list[Result]:
            try:
                return await backend.ask(_requests(["hello"]))
            finally:
                await backend.close()

        (answer,) = asyncio.run(work())
    assert isinstance(answer, Answer)
    assert answer.text == answer_to("hello")


def test_a_far_retry_after_ends_the_run_and_says_so(tmp_path: Path) -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(429, "daily limit", headers={"retry-after": "3600"}) if call.text == "item 20" else None

    workspace = Workspace.create(tmp_path / "w")
    with Server(fault=fault, delay=0.01) as server:
        settings = LLMSettings(base_url=server.url, concurrency=2)
        backend = OpenAIServer("stub", settings)
        try:
            with pytest.raises(LLMError, match="asks for a pause of 3,600 s") as caught:
                runner.ask(workspace, backend, _requests([f"item {i}" for i in range(100)]), settings)
        finally:
            loop.close(backend)
        assert caught.value.fix.startswith("wait, then") and "answers are kept" in caught.value.fix
        paid = {call.text for call in server.asked("item") if call.answered}
        assert 15 <= len(paid) <= 30
        known = runner.known_answers(workspace, backend, _requests(sorted(paid)))
        assert all(known)


def test_a_probe_that_is_told_to_wait_long_says_so_at_once(tmp_path: Path) -> None:
    with Server(fault=lambda *_: error(429, "later", headers={"retry-after": "3600"})) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        outcome = probing.check(Workspace.create(tmp_path / "w"), backend)
        loop.close(backend)
    assert not outcome.reachable
    assert "asks for a pause of 3,600 s" in outcome.error
    assert len(server.calls) == 1


def test_a_text_that_no_llm_writes_is_no_answer() -> None:
    """Reading one of 50 MB took a minute, each time anew."""
    body = {"choices": [{"message": {"content": "x" * (wire.LONGEST + 1)}}]}
    with pytest.raises(wire.Malformed, match=r"4,194,305 characters"):
        wire.chat_answer(body, False)


def test_a_check_says_why_it_has_no_sample(tmp_path: Path) -> None:
    notes: list[str] = []
    with Server(fault=lambda server, call, seen: page() if "Italy" in call.text else None) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        monitor = Monitor(lambda event: notes.append(event.note))
        outcome = probing.check(Workspace.create(tmp_path / "w"), backend, monitor=monitor)
        loop.close(backend)
    assert outcome.reachable and len(outcome.samples) == 1
    assert [note for note in notes if "failed: openai:stub" in note and "an HTML page" in note]


def test_a_server_of_web_pages_is_told_with_its_address(tmp_path: Path) -> None:
    with Server(fault=lambda *_: page()) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        outcome = probing.check(Workspace.create(tmp_path / "w"), backend)
        loop.close(backend)
    assert "an HTML page" in outcome.error and "--base-url" in outcome.fix


def test_a_wait_that_is_worth_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "LONG_PAUSE", 0.2)
    notes: list[str] = []

    def fault(server: Server, call: Call, seen: int) -> Any:
        return error(429, "slow", headers={"retry-after-ms": "300"}) if call.text == "item 3" and not seen else None

    def report(event: Event) -> None:
        notes.append(event.note)

    with Server(fault=fault) as server:
        settings = LLMSettings(base_url=server.url)
        backend = OpenAIServer("stub", settings)
        requests = _requests([f"item {i}" for i in range(10)])
        results = runner.ask(Workspace.create(tmp_path / "w"), backend, requests, settings, monitor=Monitor(report))
        loop.close(backend)
    assert all(isinstance(result, Answer) for result in results)
    assert [note for note in notes if "asks for a pause" in note]
