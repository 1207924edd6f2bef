"""The server backend with the real client over HTTP: what it finds out, what it sends, how it reads odd replies."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from factories import servers
from factories.servers import Call, Server, answer_to, error, logprob, ok, page, tokenise, tokens_in
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.backends.openai import server as server_module
from icl_curate.engine.backends.openai import wire
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import LLMError, UsageError
from icl_curate.engine.http import refusals
from icl_curate.engine.llm.types import Answer, Capabilities, Failure, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.01)


def prompt_of(text: str, choices: tuple[str, ...] = ()) -> Prompt:
    return Prompt((Message("system", "Answer."), Message("user", text)), Query(text), (), choices)


async def _with(backend: OpenAIServer, work: Any) -> Any:
    try:
        return await work
    finally:
        await backend.close()


def probe(backend: OpenAIServer) -> Capabilities:
    found: Capabilities = asyncio.run(_with(backend, backend.probe()))
    return found


def ask(backend: OpenAIServer, *requests: Request) -> list[Result]:
    found: list[Result] = asyncio.run(_with(backend, backend.ask(requests)))
    return found


def open_server(server: Server, **settings: Any) -> OpenAIServer:
    return OpenAIServer("stub", LLMSettings(base_url=server.url, **settings))


def fail_with(reply: Any) -> Server:
    """Good to probes, ``reply`` to everything that says "please"."""
    return Server(fault=lambda server, call, seen: reply if "please" in call.text else None)


def test_probe_and_answer_of_a_server_that_can_everything() -> None:
    with Server(echo=True, max_model_len=4096) as server:
        backend = open_server(server)
        found = probe(backend)
        assert (found.logprobs, found.scoring, found.context_tokens) == (True, True, 4096)
        sampling = Sampling(max_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop=("\n",), repeat=2)
        (answer,) = ask(backend, Request(prompt_of("hello"), sampling=sampling))
        assert isinstance(answer, Answer)
        text = answer_to("Answer.\nhello")
        assert answer.text == text
        assert list(answer.tokens) == tokenise(text)
        assert list(answer.logprobs) == pytest.approx([logprob(text, t) for t in tokenise(text)])
        assert (answer.tokens_in, answer.tokens_out) == (tokens_in("Answer.\nhello"), len(tokenise(text)))
        assert answer.model == "stub-1"
        sent = server.asked("hello")[-1].body
    wanted = {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "seed": 5, "stop": ["\n"], "logprobs": True}
    assert {field: sent[field] for field in wanted} == wanted


def test_choices_are_scored_on_the_echo() -> None:
    with Server(echo=True) as server:
        backend = open_server(server)
        probe(backend)
        prompt = prompt_of("please choose", ("red", "dark blue", "green"))
        (answer,) = ask(backend, Request(prompt, score=True))
    assert isinstance(answer, Answer)
    wanted = []
    for choice in prompt.choices:
        before, values = prompt.text, []
        for token in tokenise(f" {choice}"):
            values.append(logprob(before, token))
            before += token
        wanted.append(values)
    assert [list(option) for option in answer.option_logprobs] == [pytest.approx(values) for values in wanted]
    assert answer.text == max(zip(map(sum, wanted), prompt.choices, strict=True))[1]


def test_a_server_that_ignores_echo_is_not_trusted_to_score() -> None:
    with Server(echo=False) as server:
        backend = open_server(server)
        assert probe(backend).scoring is False
        before = len(server.calls)
        (result,) = ask(backend, Request(prompt_of("please", ("a", "b")), score=True))
        assert isinstance(result, Failure)
        assert result.kind == "capability"
        assert len(server.calls) == before


def test_an_echo_shifted_by_a_token_is_not_trusted_to_score() -> None:
    """The scores of two options differ in it, too; llama-cpp-python's server returns such."""
    with Server(echo=True, shifted=True) as server:
        backend = open_server(server)
        assert probe(backend).scoring is False
        (result,) = ask(backend, Request(prompt_of("please", ("a", "b")), score=True))
        assert isinstance(result, Failure) and result.kind == "capability"


def test_a_server_that_echoes_one_prompt_a_request_scores_with_one_each() -> None:
    with Server(echo=True) as server, Server(echo=True, echoes=1) as strict:
        prompt = prompt_of("please choose", ("red", "dark blue", "green"))
        answers = []
        for each in (server, strict):
            found = probe(open_server(each))
            assert found.scoring
            other = open_server(each)
            other.adopt(found)
            answers += ask(other, Request(prompt, score=True))
        one, alike = answers
        assert isinstance(one, Answer) and isinstance(alike, Answer)
        assert (one.text, one.option_logprobs) == (alike.text, alike.option_logprobs)
        assert (one.tokens_in, one.tokens_out, one.model) == (alike.tokens_in, alike.tokens_out, alike.model)
        assert len(strict.asked("please")) == 3 and len(server.asked("please")) == 1


def test_a_list_of_models_that_fails_is_done_without() -> None:
    def broken(server: Server, call: Call, seen: int) -> Any:
        return error(500, "internal") if call.path.endswith("/models") else None

    with Server(fault=broken, odd_models=True) as server:
        found = probe(open_server(server))
    assert found.logprobs and found.context_tokens is None


def test_completions_serve_where_chat_is_missing() -> None:
    with Server(chat=False, models=("stub",)) as server:
        backend = open_server(server)
        found = probe(backend)
        assert found.logprobs
        (answer,) = ask(backend, Request(prompt_of("please")))
        assert isinstance(answer, Answer)
        assert answer.text == answer_to(prompt_of("please").text)
        assert server.calls[-1].path == "/v1/completions"
        assert "\n\n" in server.calls[-1].body["stop"]
        other = open_server(server)
        other.adopt(found)  # what a stored probe found serves the next process
        (again,) = ask(other, Request(prompt_of("please")))
        assert isinstance(again, Answer)
        assert again.logprobs == answer.logprobs


def test_the_thoughts_of_an_llm_are_not_cut_at_a_blank_line() -> None:
    said = [""]

    def fault(server: Server, call: Call, seen: int) -> Any:
        if "prompt" not in call.body or call.body.get("echo"):
            return None
        choice = {"index": 0, "text": said[0], "finish_reason": "stop", "logprobs": None}
        return ok({"model": "stub-1", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}})

    for text, stop in (("<think>\nIs it?", None), ("yes", ["\n\n"])):
        said[0] = text
        with Server(fault=fault, chat=False, logprobs=False) as server:
            backend = open_server(server)
            found = probe(backend)
            again = open_server(server)
            again.adopt(found)
            ask(again, Request(prompt_of("Question: q")))
            assert server.calls[-1].body.get("stop") == stop
            assert again.identity() == backend.identity()
            assert any("reasoning" in note for note in found.notes) == (stop is None)


def test_a_reasoning_model_is_asked_without_what_it_refuses() -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        refused = {
            "max_tokens": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            "logprobs": "You are not allowed to request logprobs from this model",
            "temperature": "Unsupported value: 'temperature' does not support 0 with this model.",
        }
        for field, message in refused.items():
            if field in call.body:
                return error(400, message, "unsupported_parameter")
        return None

    with Server(fault=fault) as server:
        backend = open_server(server)
        found = probe(backend)
        assert found.logprobs is False
        assert any("temperature" in note for note in found.notes)
        before = len(server.calls)
        (answer,) = ask(backend, Request(prompt_of("please"), sampling=Sampling(max_tokens=9)))
        assert isinstance(answer, Answer)
        assert answer.logprobs == ()
        assert len(server.calls) == before + 1  # it has learnt: no refused call any more
        assert server.calls[-1].body["max_completion_tokens"] == 9


def test_entropies_come_from_the_likeliest_tokens_of_each_place() -> None:
    with Server() as server:
        backend = open_server(server)
        assert probe(backend).entropies
        (answer,) = ask(open_server(server), Request(prompt_of("what colour?")))
    assert isinstance(answer, Answer)
    assert len(answer.entropies) == len(answer.tokens) > 0
    for value, entropy in zip(answer.logprobs, answer.entropies, strict=True):
        own = math.exp(value)
        shares = [own, (1 - own) / 2, (1 - own) / 2]  # what the stub leaves to no token counts as one more
        assert entropy == pytest.approx(-sum(p * math.log(p) for p in shares if p > 0), abs=1e-6)


def test_a_server_without_the_likeliest_tokens_keeps_its_logprobs() -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        if "top_logprobs" in call.body:
            return error(400, "Unrecognized request argument supplied: top_logprobs")
        return None

    with Server(fault=fault) as server:
        found = probe(open_server(server))
    assert found.logprobs and not found.entropies
    assert found.details["dialect"]["without"] == ("top_logprobs",)


def test_logprobs_missing_from_one_reply_do_not_condemn_the_server() -> None:
    def fault(server: Server, call: Call, seen: int) -> Any:
        reply = server.chat_reply(call)
        reply["choices"][0]["logprobs"] = None
        return ok(reply) if seen == 0 else None

    with Server(fault=fault) as server:
        backend = open_server(server)
        assert probe(backend).logprobs
        (result,) = ask(backend, Request(prompt_of("please")))
        assert isinstance(result, Failure)  # this server gives them: a reply without is broken, and asked again
        assert result.kind == "malformed"


def test_a_server_without_logprobs_is_found_out_and_used_without() -> None:
    with Server(logprobs=False) as server:
        backend = open_server(server)
        assert probe(backend).logprobs is False
        (answer,) = ask(backend, Request(prompt_of("please")))
        assert isinstance(answer, Answer)
        assert answer.uncertainty is None


def _chat(change: Mapping[str, Any]) -> Any:
    content = [{"token": "hi", "logprob": -0.5}]
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop", "logprobs": {"content": content}}
    return ok({"model": "m", "choices": [{**choice, **change}], "usage": {"prompt_tokens": 5, "completion_tokens": 1}})


def _logprob(value: float) -> Any:
    status, headers, body = _chat({"logprobs": {"content": [{"token": "hi", "logprob": 12345.5}]}})
    return status, headers, body.replace(b"12345.5", json.dumps(value).encode())


def raw(status: int, body: object) -> Any:
    return status, {}, json.dumps(body).encode()


VLLM_OLD = {
    "object": "error",
    "message": "This model's maximum context length is 2048 tokens. However, you requested 3000 tokens",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
VLLM_NEW = {
    "message": "The decoder prompt (length 3000) is longer than the maximum model length of 2048.",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
LLAMA_CPP = {
    "code": 400,
    "message": "the request exceeds the available context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 5000,
    "n_ctx": 4096,
}
TGI = {
    "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
    "error_type": "validation",
}

FLAGGED = {
    "code": 403,
    "message": 'openai/gpt requires moderation on Azure. Your input was flagged for "violence".',
    "metadata": {"reasons": ["violence"], "flagged_input": "please", "provider_name": "Azure"},
}

TOO_LARGE = (
    "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 31017. The "
    "input or output tokens must be reduced in order to run successfully."
)

BAD_REPLIES: dict[str, tuple[Any, str]] = {
    "HTML with 200": (page(), "malformed"),
    "a JSON string": (ok("hi"), "malformed"),
    "a JSON list": (ok([1]), "malformed"),
    "no JSON": ((200, {}, b"{oops"), "malformed"),
    "empty": ((200, {}, b""), "malformed"),
    "choices null": (ok({"choices": None}), "malformed"),
    "no choices": (ok({"choices": []}), "malformed"),
    "error with 200": (ok({"error": {"message": "overloaded"}}), "malformed"),
    "error 429 with 200": (ok({"error": {"message": "slow down", "code": 429}}), "rate_limit"),
    "no message": (_chat({"message": None}), "malformed"),
    "null text": (_chat({"message": {"content": None}}), "malformed"),
    "logprobs missing": (_chat({"logprobs": None}), "malformed"),
    "logprobs empty": (_chat({"logprobs": {"content": []}}), "malformed"),
    "unequal arrays": (_chat({"logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0]}}), "malformed"),
    "nan": (_logprob(math.nan), "malformed"),
    "-inf": (_logprob(-math.inf), "malformed"),
    "-9999": (_logprob(-9999.0), "malformed"),
    "positive": (_logprob(0.7), "malformed"),
    "null logprob": (_chat({"logprobs": {"content": [{"token": "hi", "logprob": None}]}}), "malformed"),
    "refusal": (_chat({"message": {"content": None, "refusal": "I can't."}}), "refusal"),
    "content filter": (_chat({"finish_reason": "content_filter"}), "refusal"),
    "filter as 400": (error(400, "filtered", "content_filter"), "refusal"),
    "500": (error(500, "oops"), "transient"),
    "502 page": (page(status=502), "transient"),
    "503 loading": (error(503, "Loading model"), "transient"),
    "529": (error(529, "overloaded"), "transient"),
    "dropped": ("drop", "transient"),
    "stalled": ("stall", "timeout"),
    "401": (error(401, "no", "invalid_api_key"), "auth"),
    "403": (error(403, "no"), "auth"),
    "403 for a flagged prompt": (raw(403, {"error": FLAGGED}), "refusal"),
    "broken off": (_chat({"finish_reason": "error", "error": {"code": 502, "message": "upstream"}}), "transient"),
    "broken off without a reason": (_chat({"finish_reason": "error"}), "transient"),
    "broken off at a limit": (_chat({"error": {"code": 429, "message": "slow down"}}), "rate_limit"),
    "quota": (error(429, "You exceeded your current quota", "insufficient_quota"), "quota"),
    "402": (error(402, "pay"), "quota"),
    "no such model": (error(404, "The model `x` does not exist.", "model_not_found"), "not_found"),
    "model as 400": (error(400, "model 'x' not found, try pulling it first"), "not_found"),
    "OpenAI context, by the minute": (error(429, TOO_LARGE, "rate_limit_exceeded"), "context"),
    "OpenAI context": (error(400, "This model's maximum context length is 8192", "context_length_exceeded"), "context"),
    "vLLM context": (raw(400, VLLM_OLD), "context"),
    "vLLM context, newer": (raw(400, {"error": VLLM_NEW}), "context"),
    "llama.cpp context": (raw(400, {"error": LLAMA_CPP}), "context"),
    "llama.cpp context as 500": (error(500, "the request exceeds the available context size"), "context"),
    "TGI context": (raw(422, TGI), "context"),
    "bad value": (error(400, "temperature must be below 2"), "request"),
    "FastAPI": (raw(422, {"detail": [{"loc": ["body"], "msg": "field required"}]}), "request"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_every_odd_reply_is_classified(name: str) -> None:
    reply, kind = BAD_REPLIES[name]
    with fail_with(reply) as server:
        backend = open_server(server, timeout=0.5 if reply == "stall" else 20)
        backend.adopt(Capabilities(True, False, details={"dialect": {"logprobs": True}}))
        good, bad, after = ask(backend, *(Request(prompt_of(text)) for text in ("one", "please", "two")))
    if reply != "stall":  # so short a timeout may also hit the others on a busy machine
        assert isinstance(good, Answer)
        assert isinstance(after, Answer)
    assert isinstance(bad, Failure)
    assert bad.kind == kind, bad
    assert bad.retryable == (kind in ("rate_limit", "transient", "timeout", "malformed"))
    assert bad.fatal == (kind in ("auth", "quota", "not_found"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "300"}, 300.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": formatdate(time() + 36000, usegmt=True)}, 36000.0),
        ({"retry-after": formatdate(time() - 60, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-4"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    found = refusals.retry_after_of(headers)
    assert (found is None) == (seconds is None)
    if found is not None:
        assert found == pytest.approx(seconds, abs=1800 if seconds == 36000 else 1e-9)  # a date runs out meanwhile
    with fail_with(error(429, "slow down", None, headers)) as server:
        (result,) = ask(open_server(server), Request(prompt_of("please")))
    assert isinstance(result, Failure)
    assert result.kind == "rate_limit"
    assert (result.retry_after is None) == (seconds is None)


def test_a_silently_cut_prompt_is_a_context_failure() -> None:
    words = "the quick brown fox jumps over the lazy dog and runs away " * 300
    with Server(cut=2048) as server:
        backend = open_server(server)
        probe(backend)
        long, short = ask(backend, Request(prompt_of(words)), Request(prompt_of(words[:2000])))
    assert isinstance(short, Answer)
    assert isinstance(long, Failure)
    assert long.kind == "context"
    assert "2,048" in long.message


@pytest.mark.parametrize(
    ("words", "count"),  # its tokens in o200k
    [
        ("मेरा पासवर्ड काम नहीं कर रहा है ", 9),
        ("ჩემი პაროლი არ მუშაობს ", 6),
        ("รหัสผ่านของฉันใช้งานไม่ได้ ", 10),
        ("我的密码无法使用", 4),
    ],
)
def test_a_prompt_in_any_script_is_read_as_a_whole_unless_it_is_cut(
    words: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "tokens_in", lambda text: text.count(words) * count or tokens_in(text))
    with Server() as server:
        backend = open_server(server)
        probe(backend)
        (whole,) = ask(backend, Request(prompt_of(words * 500)))
        server.cut = 1000
        (cut,) = ask(backend, Request(prompt_of(words * 1000)))
    assert isinstance(whole, Answer)
    assert isinstance(cut, Failure)
    assert cut.kind == "context"


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "correcthorse" * 2
    monkeypatch.setenv("OPENAI_API_KEY", f" {secret}\n")  # as pasted
    with Server(api_key=secret) as server:
        backend = open_server(server)
        (answer,) = ask(backend, Request(prompt_of("hi")))
        assert isinstance(answer, Answer)
        assert secret not in json.dumps(backend.identity())
        server.api_key = "another"
        (refused,) = ask(backend, Request(prompt_of("hi")))
        assert isinstance(refused, Failure)
        assert refused.kind == "auth"
        assert secret not in refused.message
        with pytest.raises(LLMError) as caught:
            probe(backend)
        assert secret not in caught.value.what + caught.value.fix
        assert caught.value.fix


def test_an_answer_that_repeats_the_key_is_kept_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "correcthorse" * 2
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    told = {"model": secret, "choices": [{"message": {"content": f"it is {secret}"}, "finish_reason": "stop"}]}
    with Server(fault=lambda server, call, seen: ok(told)) as server:
        (answer,) = ask(open_server(server), Request(prompt_of("say my key")))
    assert isinstance(answer, Answer)
    assert (answer.text, answer.model) == ("it is ***", "***")


def test_without_a_key_and_without_a_server_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    backend = OpenAIServer("gpt-x")
    (result,) = ask(backend, Request(prompt_of("hi")))
    assert isinstance(result, Failure)
    assert result.kind == "auth"
    with pytest.raises(LLMError, match="OPENAI_API_KEY") as caught:
        probe(backend)
    assert "export OPENAI_API_KEY" in caught.value.fix


def test_loopback_ignores_a_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with Server() as server:
        (answer,) = ask(open_server(server), Request(prompt_of("hi")))
        assert isinstance(answer, Answer)
        assert server.calls[-1].headers["authorization"] == "Bearer none"


def test_base_url_from_the_environment_and_secrets_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host.example:8000/v1/")
    assert OpenAIServer("m").identity()["base_url"] == "http://host.example:8000/v1"
    for secret in ("http://user:hunter2@host.example:8000/v1", "http://host.example/v1/?token=hunter2"):
        monkeypatch.setenv("OPENAI_BASE_URL", secret)
        with pytest.raises(UsageError, match="OPENAI_BASE_URL") as caught:
            OpenAIServer("m")
        assert "hunter2" not in str(caught.value)
    for wrong in ("localhost:8000", "http://", "ftp://host/v1", "http://host:99999/v1", "http://user:hunter2@:8000/v1"):
        with pytest.raises(UsageError) as caught:
            OpenAIServer("m", LLMSettings(base_url=wrong))
        assert "http://" in caught.value.fix
        assert "hunter2" not in caught.value.what


def test_a_wrong_model_names_the_right_ones() -> None:
    with Server(models=("llama-3", "qwen-2")) as server, pytest.raises(LLMError) as caught:
        probe(OpenAIServer("lama-3", LLMSettings(base_url=server.url)))
    assert "llama-3" in caught.value.fix


def test_nothing_listening_is_said_with_the_address() -> None:
    with Server() as server:
        url = server.url
    backend = OpenAIServer("stub", LLMSettings(base_url=url))
    (result,) = ask(backend, Request(prompt_of("hi")))
    assert isinstance(result, Failure)
    assert result.unreachable


def test_one_backend_works_on_one_loop_after_another() -> None:
    with Server() as server:
        backend = open_server(server)
        for _ in range(3):
            (answer,) = ask(backend, Request(prompt_of("hi")))
            assert isinstance(answer, Answer)


@given(st.lists(st.text(min_size=1, max_size=4), max_size=8), st.integers(0, 30), st.integers(0, 30))
def test_within_keeps_exactly_the_tokens_of_the_text(pieces: list[str], start: int, length: int) -> None:
    joined = "".join(pieces)
    text = joined[start : start + length]
    kept = [token.text for token in wire.within([wire.Token(piece, -1.0) for piece in pieces], text)]
    assert text in "".join(kept)
    if text and len(kept) > 1:  # no token at either end could be left out
        assert text not in "".join(kept[1:]) or joined.count(text) > 1
        assert text not in "".join(kept[:-1]) or joined.count(text) > 1


@pytest.mark.parametrize("leading", [[], ["<s>"], ["<s>", "bytes:\\xe6"]])
def test_an_echo_is_split_by_its_own_tokens(leading: list[str]) -> None:
    tokens = [*leading, "Q", ":", " A", ":", " dark", " blue", " and"]
    values = [None, *(-0.1 * i for i in range(1, len(tokens)))]
    choice = {"logprobs": {"tokens": tokens, "token_logprobs": values}}
    found = wire.echoed_option(choice, "Q: A:", " dark blue")
    at = tokens.index(" dark")
    assert list(found) == [values[at], values[at + 1]]


@pytest.mark.parametrize(
    "parts", [["\ufffd"] * 2, ["\ufffd\ufffd", "\ufffd"], ["bytes:\\xf0\\x9f", "bytes:\\x98\\xa1"]]
)
@pytest.mark.parametrize("option", [" bad", " 😡 bad", " bad 😡"])
def test_characters_split_among_tokens_are_found_in_an_echo(parts: list[str], option: str) -> None:
    def spelled(text: str) -> list[str]:
        return [piece for token in tokenise(text) for piece in (parts if token == "😡" else [token])]

    prompt = "It is é 😡😡 here 😡."
    tokens = ["<s>", *spelled(prompt), *spelled(option), " and"]
    values = [None, *(-0.1 * i for i in range(1, len(tokens)))]
    found = wire.echoed_option({"logprobs": {"tokens": tokens, "token_logprobs": values}}, prompt, option)
    start = 1 + len(spelled(prompt))
    assert list(found) == values[start : start + len(spelled(option))]


def test_options_are_scored_after_a_prompt_with_emoji(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tokenise
    split = lambda text: [p for t in whole(text) for p in (["\ufffd"] * 2 if ord(t[-1]) > 0xFFFF else [t])]  # noqa: E731
    monkeypatch.setattr(servers, "tokenise", split)
    with Server(echo=True) as server:
        backend = open_server(server, endpoint="completions")
        probe(backend)
        (answer,) = ask(backend, Request(prompt_of("please, my parcel is late 😡", ("red", "😡 blue")), score=True))
    assert isinstance(answer, Answer)
    assert [len(option) for option in answer.option_logprobs] == [len(split(" red")), len(split(" 😡 blue"))]


def test_a_prompt_and_an_option_that_cannot_be_told_apart_are_not_scored() -> None:
    echo = {"tokens": ["Q", "\ufffd", "\ufffd", "\ufffd", "\ufffd"], "token_logprobs": [None, -1.0, -1.0, -1.0, -1.0]}
    with pytest.raises(wire.Malformed):
        wire.echoed_option({"logprobs": echo}, "Q😡", "😡")


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"tokens": [" blue"], "token_logprobs": [-0.1]},  # only the generated token: echo was ignored
        {"tokens": ["Q:", " blue"], "token_logprobs": [None]},
        {"tokens": ["Q:", " blue"], "token_logprobs": [None, None]},
        {"tokens": ["Q:", " blue"], "token_logprobs": [None, math.nan]},
        {"tokens": ["Q:", " blue"], "token_logprobs": [None, -9999.0]},
    ],
)
def test_a_broken_echo_never_scores(found: Any) -> None:
    with pytest.raises(wire.Malformed):
        wire.echoed_option({"logprobs": found}, "Q:", " blue")


def test_a_probe_outlasts_a_limit_that_others_use_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "pause", lambda *_: 0.0)
    busy = error(429, "slow down", "rate_limit_exceeded")
    with Server(fault=lambda server, call, seen: busy if seen < 8 else None, echo=True) as server:
        assert probe(open_server(server)).scoring  # a failed echo would be kept as none
    monkeypatch.setattr(server_module, "AT_FIRST", 0.0)
    with Server(fault=lambda *_: busy) as server, pytest.raises(LLMError, match="slow down"):
        probe(open_server(server))
