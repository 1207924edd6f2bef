"""Vendors with an OpenAI-compatible address of their own, each as its pages and its users say that it replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from factories.servers import Call, Reply, Server, error, ok
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.http import address, refusals
from icl_curate.engine.http.refusals import failure_of_status
from icl_curate.engine.llm.asking import check_server, destination
from icl_curate.engine.llm.spec import open_backend
from icl_curate.engine.llm.types import Answer, Capabilities, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.settings import Settings

KEY = "vendor-key-0123456789"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(refusals, "FIRST", 0.01)
    for vendor in address.VENDORS.values():
        monkeypatch.delenv(vendor.key, raising=False)
    yield
    refusals.SENT.clear()


def refusing(fields: Mapping[str, str], wrapped: Callable[[str], Any], status: int = 400) -> Server:
    """Gives no log-probabilities, and refuses each field with its message."""

    def fault(server: Server, call: Call, seen: int) -> Reply | None:
        given = [message for names, message in fields.items() if all(name in call.body for name in names.split())]
        return (status, {}, _json(wrapped(given[0]))) if given else None

    return Server(fault=fault, logprobs=False, api_key=KEY)


def _json(body: Any) -> bytes:
    reply: tuple[int, Any, bytes] = ok(body)
    return reply[2]


def claude(message: str) -> Any:
    return {"error": {"code": "invalid_request_error", "message": message, "type": "invalid_request_error"}}


def gemini(message: str) -> Any:
    return [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


def mistral(message: str) -> Any:
    detail = {"type": "extra_forbidden", "loc": ["body", message], "msg": "Extra inputs are not permitted", "input": 0}
    return {"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error", "code": None}


BOTH = {"temperature top_p": "`temperature` and `top_p` cannot both be specified for this model. Please use only one."}
DEPRECATED = {name: f"`{name}` is deprecated for this model." for name in ("temperature", "top_p")}
OF_MODEL = {"seed": "The model claude-5 refuses this request: unknown field 'seed'."}
UNKNOWN = {
    "seed": 'Invalid JSON payload received. Unknown name "seed": Cannot find field.',
    "logprobs": "Unable to submit request because Logprobs is not supported for this model.",
}


@pytest.mark.parametrize(
    ("vendor", "server", "left_out"),
    [
        ("anthropic", refusing(BOTH, claude), {"top_p"}),
        ("anthropic", refusing(DEPRECATED, claude), {"top_p", "temperature"}),
        ("anthropic", refusing(OF_MODEL, claude), {"seed"}),
        ("gemini", refusing(UNKNOWN, gemini), {"seed", "logprobs", "top_logprobs"}),
        ("mistral", refusing({"seed": "seed"}, mistral, 422), {"seed"}),
    ],
    ids=["claude-4.5", "claude-5", "names its model", "gemini", "mistral"],
)
def test_what_a_vendor_refuses_is_left_out_and_the_rest_is_sent(
    vendor: str, server: Server, left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with server:
        backend = opened(vendor, server, monkeypatch)
        found, (answer,) = probed(backend, Request(prompt_of("please"), sampling=Sampling(max_tokens=9)))
        assert isinstance(answer, Answer) and answer.text.startswith("word")
        sent = server.calls[-1]
    everything = {"max_tokens", "temperature", "top_p", "seed"}
    assert everything - set(sent.body) == left_out - {"logprobs", "top_logprobs"}
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert ("temperature" in " ".join(found.notes)) == ("temperature" in left_out)


def test_of_a_temperature_and_a_top_p_the_user_s_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing(BOTH, claude) as server:
        backend = opened("anthropic", server, monkeypatch)
        sampling = Sampling(max_tokens=9, top_p=0.9, fixed=frozenset({"top_p"}))
        _, (answer,) = probed(backend, Request(prompt_of("please"), sampling=sampling))
        assert isinstance(answer, Answer)
        assert server.calls[-1].body["top_p"] == 0.9 and "temperature" not in server.calls[-1].body


@pytest.mark.parametrize(
    ("status", "body", "kind", "wait"),
    [
        (400, gemini("API key not valid. Please pass a valid API key."), "auth", None),
        (400, claude("Your credit balance is too low to access the Anthropic API."), "quota", None),
        (404, gemini("models/x is not found for API version v1main."), "not_found", None),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "transient", None),
        (
            429,
            [{"error": {"message": "quota", "details": [{"reason": 1}, {"@type": "Retry", "retryDelay": "17.5s"}]}}],
            "rate_limit",
            17.5,
        ),
        (429, [{"error": {"message": "quota", "details": [{"retryDelay": "1e999s"}, "3s"]}}], "rate_limit", None),
        (400, {"message": "The model returned the following errors: Input is too long for requested model."},
         "context", None),
        (400, {"error": {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
         "refusal", None),
        (400, [], "request", None),
        (400, [[]], "request", None),
    ],
)  # fmt: skip
def test_errors_in_the_words_of_vendors(status: int, body: Any, kind: str, wait: float | None) -> None:
    failure = failure_of_status(status, {}, body)
    assert (failure.kind, failure.retry_after) == (kind, wait)


def test_the_thoughts_in_a_reply_of_bedrock_are_no_part_of_the_answer() -> None:
    from icl_curate.engine.pool.open_answers import after_thinking

    assert after_thinking("<reasoning>It says bank. Or card?</reasoning>card") == "card"


def test_a_vendor_gets_its_own_key_and_nothing_meant_for_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the address, the headers and the parameters of the user's server nor the key of OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-them")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MINE", "header-not-for-them")
    with Server(api_key=KEY) as server:
        backend = opened(
            "anthropic", server, monkeypatch, base_url="http://127.0.0.1:9/v1",
            headers='{"X-Mine":"${MINE}"}', query_params='{"code":"mine"}',
        )  # fmt: skip
        _, (answer,) = probed(backend, Request(prompt_of("please")))
        assert isinstance(answer, Answer)
        for call in server.calls:
            assert "not-for-them" not in repr(call.headers) and "mine" not in call.path
        outgoing = backend.outgoing(Request(prompt_of("please")))[0]
    assert outgoing.headers["Authorization"] == "Bearer ${ANTHROPIC_API_KEY}"
    assert KEY not in repr(outgoing) and KEY not in repr(backend.identity())


def test_the_organisation_and_the_codings_of_the_environment_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client sends the one to any server, and offers the others where their packages are installed."""
    from httpx2 import _client
    from icl_curate.engine.http.client import connected

    monkeypatch.setattr(_client, "ACCEPT_ENCODING", "gzip, deflate, br, zstd")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-not-for-them")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-not-for-them")
    with Server(api_key=KEY) as server:
        probed(opened("anthropic", server, monkeypatch), Request(prompt_of("please")))
        connected(address.Address(server.url, True), KEY, 5.0).models.list()
        assert len({call.headers["user-agent"].split("/")[0] for call in server.calls}) == 2
        for call in server.calls:
            assert "not-for-them" not in repr(call.headers)
            assert call.headers["accept-encoding"] == "gzip, deflate"
    own = connected(address.Address("https://eu.api.openai.com/v1", True), KEY, 5.0)
    assert own.default_headers["OpenAI-Organization"] == "org-not-for-them"


def test_a_vendor_s_key_in_a_reply_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def telling(server: Server, call: Call, seen: int) -> Any:
        reply = server.chat_reply(call)
        reply["choices"][0]["message"]["content"] = f"your key is {KEY}"
        return ok(reply)

    with Server(fault=telling, logprobs=False) as server:
        _, (answer,) = probed(opened("groq", server, monkeypatch), Request(prompt_of("please")))
    assert isinstance(answer, Answer) and answer.text == "your key is ***"


def test_what_stands_for_no_key_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own server is sent "none" as a key: the word stays in its messages."""
    with Server(fault=lambda server, call, seen: error(400, "none of these fields is known"), logprobs=False) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        with pytest.raises(LLMError, match="none of these fields"):
            probed(backend)


def test_without_its_key_nothing_is_sent_and_the_fix_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-them")
    with Server() as server:
        backend = opened("gemini", server, monkeypatch)
        monkeypatch.delenv("GEMINI_API_KEY")
        with pytest.raises(LLMError, match="GEMINI_API_KEY is not set") as raised:
            probed(backend)
        assert raised.value.fix == "export GEMINI_API_KEY=…" and not server.calls


def test_a_workspace_s_server_is_not_asked_where_a_vendor_is_named() -> None:
    settings = replace(Settings(), llm="mistral:small", base_url="http://stranger.example/v1", base_url_by="/theirs")
    check_server(settings)  # no confirmation: nothing goes there
    assert destination(settings) == "small at https://api.mistral.ai/v1"


def opened(vendor: str, server: Server, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> OpenAIServer:
    """The vendor at the address of the test's server, with its key."""
    own = address.VENDORS[vendor]
    monkeypatch.setitem(address.VENDORS, vendor, replace(own, url=server.url))
    monkeypatch.setenv(own.key, KEY)
    backend = open_backend(f"{vendor}:stub", LLMSettings(**settings))
    assert isinstance(backend, OpenAIServer)
    return backend


def probed(backend: OpenAIServer, *requests: Request) -> tuple[Capabilities, list[Result]]:
    async def work() -> tuple[Capabilities, list[Result]]:
        try:
            return await backend.probe(), await backend.ask(requests)
        finally:
            await backend.close()

    return asyncio.run(work())


def prompt_of(text: str) -> Prompt:
    return Prompt((Message("system", "Answer."), Message("user", text)), Query(text))
