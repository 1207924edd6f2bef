"""What is sent to a server: each field that a user sets, what is shown of it before, and what comes of a refusal."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Ran, Run
from factories.copies import indexed, lines
from factories.servers import Call, Server, error, ok
from icl_curate.engine.backends.openai import wire
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.backends.openai.wire import Dialect
from icl_curate.engine.http import refusals
from icl_curate.engine.llm.asking import another, llm_settings, sampling_of, scores
from icl_curate.engine.llm.types import Capabilities, Failure, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.settings import Settings

KEY = "sk-the-users-own-key"
SECRET = "a-secret-of-the-environment-0123456789"
ASKED = "what is it's \\ $HOME `x` é"


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(refusals, "FIRST", 0.01)
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "user" / "config.toml"))
    monkeypatch.setenv("AZURE_KEY", SECRET)
    yield
    refusals.SENT.clear()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    pool = [{"input": f"word{i} x", "output": f"o{i % 2}"} for i in range(8)]
    return indexed(tmp_path / "w", pool=lines(pool), test=lines([{"input": "what is x", "output": "o1"}])).path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    pool = [{"input": f"word{i} x", "output": "yes" if i % 2 else "no"} for i in range(40)]
    return indexed(tmp_path / "labelled", pool=lines(pool)).path


def ask(run: Run, world: Path, server: Server, *options: str) -> Ran:
    return run(*preview(world, server, "--answer", *options))


def preview(world: Path, server: Server, *options: str) -> list[Any]:
    return [
        "preview",
        ASKED,
        "-m",
        "bm25",
        "-k",
        "2",
        "-w",
        world,
        "--llm",
        "openai:stub",
        "--base-url",
        server.url,
        *options,
    ]


def answered(server: Server) -> list[Call]:
    """The calls for the query, without those of the probe."""
    return server.asked(ASKED)


FIELDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "max_tokens": (["--max-tokens", "7"], {"max_tokens": 7}),
    "temperature": (["--temperature", "0.5"], {"temperature": 0.5}),
    "top_p": (["--top-p", "0.9"], {"top_p": 0.9}),
    "stop": (["--stop", "</a>", "--stop", "\n"], {"stop": ["</a>", "\n"]}),
    "json": (["--response-format", "json"], {"response_format": {"type": "json_object"}}),
    "reasoning_effort": (["--reasoning-effort", "low"], {"reasoning_effort": "low"}),
    "extra_body": (["--extra-body", '{"a": {"b": [1]}, "user": "me"}'], {"a": {"b": [1]}, "user": "me"}),
}
PLAIN = {
    "model": "stub",
    "max_tokens": 64,
    "temperature": 0.0,
    "top_p": 1.0,
    "seed": 0,
    "logprobs": True,
    "top_logprobs": 5,
}
"""What is sent beside the messages if nothing is set."""


@pytest.mark.parametrize("name", ["nothing", *FIELDS])
def test_a_field_is_sent_where_it_is_set_and_nothing_else_changes(
    name: str, world: Path, server: Server, run: Run
) -> None:
    options, fields = FIELDS.get(name, ([], {}))
    done = ask(run, world, server, *options)
    assert done.code == 0, done.err
    (call,) = answered(server)
    assert {key: value for key, value in call.body.items() if key != "messages"} == PLAIN | fields
    probes = server.calls[: server.calls.index(call)]
    everywhere = {key: value for key, value in fields.items() if name in ("reasoning_effort", "extra_body")}
    chats = [probe.body for probe in probes if probe.path.endswith("/chat/completions")]
    assert chats and all(body.items() >= everywhere.items() for body in chats)


@pytest.mark.parametrize(
    ("role", "roles"),
    [
        ("system", ["system", "user", "assistant", "user", "assistant", "user"]),
        ("developer", ["developer", "user", "assistant", "user", "assistant", "user"]),
        ("user", ["user", "assistant", "user", "assistant", "user"]),
    ],
)
def test_the_first_message_has_the_role_that_the_model_knows(
    role: str, roles: list[str], world: Path, server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICL_CURATE_SYSTEM_ROLE", role)
    assert ask(run, world, server).code == 0
    (call,) = answered(server)
    assert [turn["role"] for turn in call.body["messages"]] == roles
    usual = wire.chat_messages([Message("system", "S"), Message("user", "U"), Message("assistant", "A")], "user")
    assert usual == [{"role": "user", "content": "S\n\nU"}, {"role": "assistant", "content": "A"}]
    assert wire.chat_messages([Message("user", "U")], "developer") == [{"role": "user", "content": "U"}]


def test_an_endpoint_is_the_only_one_that_is_tried(world: Path, server: Server, run: Run) -> None:
    done = ask(run, world, server, "--endpoint", "completions", "--stop", "</a>")
    assert done.code == 0, done.err
    assert not [call for call in server.calls if "chat" in call.path]
    (call,) = answered(server)
    assert call.body["stop"] == ["</a>", "\n\n"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ([], "/v1/chat/completions"),
        (["--answers", "score"], "/v1/completions"),
        (["--endpoint", "completions"], "/v1/completions"),
    ],
)
def test_options_are_scored_after_the_prompt_that_is_served_unless_it_is_asked_for(
    options: list[str], path: str, labelled: Path, run: Run
) -> None:
    with Server(echo=True) as server:
        done = ask(run, labelled, server, *options)
        assert done.code == 0, done.err
        asked = answered(server)
    assert {call.path for call in asked} == {path}
    assert all(("echo" in call.body) == bool(options) for call in asked)
    assert ("template is not applied" in done.err) == (options[:1] == ["--answers"])


def test_a_chat_endpoint_scores_no_options(labelled: Path, run: Run) -> None:
    with Server(echo=True) as server:
        done = ask(run, labelled, server, "--endpoint", "chat", "--answers", "score")
        assert done.code and "cannot score given options" in done.err
        assert all(call.path != "/v1/completions" for call in server.calls)


@pytest.mark.parametrize(("llm", "scored"), [("hf:x", True), ("one-of-python", True), ("openai:x", False)])
def test_an_endpoint_is_of_servers(llm: str, scored: bool) -> None:
    able = Capabilities(logprobs=True, scoring=True)
    for answers in ("auto", "score"):
        assert scores(Settings(llm=llm, endpoint="chat", answers=answers), able) is scored


def test_all_that_the_user_set_to_stop_at_is_sent() -> None:
    prompt = Prompt((Message("user", "x"),), Query("x"))
    texts = ("a", "b", "c", "d", "e")
    for count, wanted in ((3, [*texts[:3], "\n\n"]), (4, [*texts[:4]]), (5, [*texts])):
        request = Request(prompt, sampling=Sampling(stop=texts[:count]))
        _, body = wire.generation_request("m", request, Dialect("completions"))
        assert body["stop"] == wanted


def test_headers_and_parameters_go_with_every_request_and_their_values_nowhere_else(world: Path, run: Run) -> None:
    def repeats(server: Server, call: Call, seen: int) -> Any:
        """An answer with the key in it, as a proxy that shows what it got."""
        if ASKED not in call.text:
            return None
        reply = server.chat_reply(call)
        reply["choices"][0]["message"]["content"] = f"o1 {call.headers['api-key']}"
        return ok(reply)

    with Server(fault=repeats, logprobs=False) as odd:
        pairs = ["--query-param", "api-version=1 &", "--query-param", "k=${AZURE_KEY}"]
        given = ["--header", "api-key: ${AZURE_KEY}", *pairs]
        done = ask(run, world, odd, *given, "--json")
        assert done.code == 0, done.err
        assert done.json["reply"] == "o1 ***"
        assert odd.calls and all(call.headers["api-key"] == SECRET for call in odd.calls)
        assert all(call.path.endswith(f"?api-version=1+%26&k={SECRET}") for call in odd.calls)
        assert all("authorization" not in call.headers for call in odd.calls)  # no key is known
        again = run("evaluate", "-m", "zero", "-w", world, "--llm", "openai:stub", "--base-url", odd.url, *given)
    assert again.code == 0, again.err
    outputs = [done.out, done.err, again.out, again.err]
    stored = [path.read_bytes() for path in world.rglob("*") if path.is_file()]
    assert not [text for text in outputs if SECRET in text]
    assert not [content for content in stored if SECRET.encode() in content]


def test_the_key_is_sent_beside_headers_unless_one_replaces_it(
    world: Path, server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert ask(run, world, server, "--header", "x-team: ${AZURE_KEY}").code == 0
    assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {KEY}"}
    server.calls.clear()
    assert ask(run, world, server, "--header", "authorization: Basic ${AZURE_KEY}").code == 0
    assert {call.headers["authorization"] for call in server.calls} == {f"Basic {SECRET}"}


def test_an_error_that_repeats_a_header_is_told_without_it(
    world: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "pin42")
    with Server(fault=lambda _, call, __: error(403, f"no access for {call.headers['x-pin']}")) as refusing:
        done = ask(run, world, refusing, "--header", "x-pin: ${SHORT}")
    assert done.code == 3 and "no access for ***" in done.err and "pin42" not in done.err


@pytest.mark.parametrize(
    ("value", "what"),
    [(None, "needs PIN, which is not set"), ("a\r\nX-Evil: 1", "has a line break"), ("é", "cannot be sent")],
)
def test_a_variable_that_cannot_be_sent_ends_the_work_before_anything_is(
    value: str | None, what: str, world: Path, server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("PIN", value)
    done = ask(run, world, server, "--header", "x-pin: ${PIN}")
    assert done.code == 3 and what in done.err and not server.calls
    assert done.err.count("\n") <= 3 and "X-Evil" not in done.err


# what a server refuses


REFUSALS: dict[str, tuple[list[str], str, str]] = {
    "reasoning_effort": (["--reasoning-effort", "low"], "Unrecognized request argument supplied: reasoning_effort", ""),
    "reasoning_effort, its value": (
        ["--reasoning-effort", "ultra"],
        "Invalid value: 'ultra'. Supported values are: 'low'. (reasoning_effort)",
        "",
    ),
    "extra_body": (["--extra-body", '{"top_k": 5}'], "body.top_k: Extra inputs are not permitted", ""),
    "temperature": (
        ["--temperature", "0.3"],
        "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) is supported.",
        ASKED,
    ),
    "top_p": (["--top-p", "0.5"], "Unsupported parameter: 'top_p' is not supported with this model.", ASKED),
    "stop": (["--stop", "x"], "'stop' is not supported with this model", ASKED),
    "response_format": (
        ["--response-format", "json"],
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        ASKED,
    ),
    "max_tokens": (["--max-tokens", "900000"], "max_tokens is too large: 900000", ASKED),
    "extra_body, beside the model": (["--extra-body", '{"top_k": 5}'], "model stub: unknown field 'top_k'", ""),
    "system_role": ([], "messages[0].role: 'developer' is not supported", ""),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_field_of_the_user_that_is_refused_is_an_error_with_the_reason(
    name: str, world: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, message, only = REFUSALS[name]
    if name == "system_role":
        monkeypatch.setenv("ICL_CURATE_SYSTEM_ROLE", "developer")
    with Server(fault=lambda _, call, __: error(400, message) if only in call.text else None) as refusing:
        done = ask(run, world, refusing, *options)
        asked = [call for call in refusing.calls if only in call.text and "/models" not in call.path]
    assert done.code == 3, done.out + done.err
    setting = name.partition(",")[0]
    (told,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert f"the server refuses {setting}: HTTP 400: {message}" in told
    assert len(asked) <= 2, "nothing is asked again without it"


def test_a_prompt_that_is_refused_after_others_were_not_is_no_fault_of_the_settings(world: Path, run: Run) -> None:
    def too_long(server: Server, call: Call, seen: int) -> Any:
        return error(400, "max_tokens must be at least 1, got -52") if "long" in call.text else None

    backend_settings = Settings(max_tokens=9)
    prompts = [Prompt((Message("user", text),), Query(text)) for text in ("long", "short", "long")]
    with Server(fault=too_long) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        first, _, second = [ask_one(backend, Request(one, sampling=sampling_of(backend_settings))) for one in prompts]
    assert isinstance(first, Failure) and first.kind == "setting"
    assert isinstance(second, Failure) and second.kind == "request"


def ask_one(backend: OpenAIServer, request: Request) -> Result:
    async def asked() -> list[Result]:
        try:
            return await backend.ask([request])
        finally:
            await backend.close()

    return asyncio.run(asked())[0]


def test_fields_of_ours_that_are_refused_are_left_out_as_before(world: Path, run: Run) -> None:
    """A reasoning model: it takes neither our temperature nor our seed, and the user's own fields all the same."""

    def strict(server: Server, call: Call, seen: int) -> Any:
        for field in ("temperature", "seed", "top_p", "max_tokens", "top_logprobs", "logprobs"):
            if field in call.body:
                return error(400, f"Unsupported parameter: '{field}' is not supported with this model.")
        return None

    with Server(fault=strict) as reasoning:
        done = ask(run, world, reasoning, "--reasoning-effort", "low", "--max-tokens", "99")
        assert done.code == 0, done.err
        body = answered(reasoning)[-1].body
        assert {key: body[key] for key in body if key != "messages"} == {
            "model": "stub", "reasoning_effort": "low", "max_completion_tokens": 99,
        }  # fmt: skip
        refused = ask(run, world, reasoning, "--temperature", "0.3")  # though the probe found that ours is refused
    assert refused.code == 3 and "the server refuses temperature" in refused.err


def test_one_value_that_is_taken_is_sent_though_ours_was_refused(world: Path, run: Run) -> None:
    def only_one(server: Server, call: Call, seen: int) -> Any:
        if call.body.get("temperature", 1) != 1:
            return error(400, "Unsupported value: 'temperature' does not support 0 with this model.")
        return None

    with Server(fault=only_one) as fixed:
        done = ask(run, world, fixed, "--temperature", "1")
        assert done.code == 0, done.err
        assert answered(fixed)[-1].body["temperature"] == 1


def test_llm_check_says_what_is_refused(world: Path, run: Run) -> None:
    def strict(server: Server, call: Call, seen: int) -> Any:
        return error(400, "'stop' is not supported with this model") if "stop" in call.body else None

    with Server(fault=strict) as refusing:
        check = ["llm", "check", "-w", world, "--llm", "openai:stub", "--base-url", refusing.url]
        assert run(*check).code == 0
        done = run(*check, "--stop", "</a>")
    assert done.code == 3 and "the server refuses stop" in done.err


# which prompts have which fields


def test_a_judge_has_what_the_server_needs_and_not_the_form_of_answers(world: Path, server: Server, run: Run) -> None:
    done = run(
        "evaluate", "-m", "zero", "-w", world, "--llm", "openai:stub", "--base-url", server.url, "--metric", "judge",
        "--stop", "</a>", "--response-format", "json", "--temperature", "0.7", "--top-p", "0.5",
        "--extra-body", '{"user": "me"}', "--header", "x-team: ${AZURE_KEY}",
    )  # fmt: skip
    judged = [call for call in server.calls if "Judge whether" in call.text]
    task = [call for call in server.asked("what is x") if call not in judged]
    assert judged and task, done.err
    for call in judged:
        assert not {"stop", "response_format"} & call.body.keys()
        assert (call.body["temperature"], call.body["top_p"]) == (0.0, 1.0)
    assert all({"stop", "response_format"} < call.body.keys() for call in task)
    assert all(call.body["user"] == "me" for call in judged + task)
    assert all(call.headers["x-team"] == SECRET for call in server.calls)


def test_prompts_that_select_have_no_form_of_answers(world: Path, server: Server, run: Run) -> None:
    done = run(
        "evaluate", "-m", "zero,rerank", "-w", world, "--llm", "openai:stub", "--base-url", server.url, "-k", "1",
        "--stop", "</a>", "--temperature", "0.7", "--extra-body", '{"user": "me"}',
    )  # fmt: skip
    assert done.code == 0, done.err
    ranking = server.asked("[2] > [1]")
    assert ranking and all("stop" not in call.body and call.body["temperature"] == 0.0 for call in ranking)
    assert all(call.body["user"] == "me" for call in ranking)


def test_another_judge_has_no_settings_of_the_model_that_is_judged() -> None:
    from icl_curate.engine.llm.asking import judges

    given = Settings(
        llm="openai:a", judge_llm="openai:b", metric="judge", reasoning_effort="low", endpoint="completions",
        system_role="user", headers='{"a":"b"}', extra_body='{"c":1}', query_params='{"d":"e"}',
    )  # fmt: skip
    other = judges(given)
    assert other is not None
    asked = llm_settings(other)
    assert (asked.reasoning_effort, asked.endpoint, asked.system_role) == ("", "auto", "system")
    assert (asked.headers, asked.extra_body, asked.query_params) == (
        given.headers,
        given.extra_body,
        given.query_params,
    )


@pytest.mark.parametrize(
    ("first", "second", "sent"),
    [
        ("openai:a", "anthropic:b", False),
        ("anthropic:a", "openai:b", False),
        ("anthropic:a", "anthropic:b", True),
        ("offline", "openai:b", True),
    ],
)
def test_further_fields_go_to_the_server_that_they_are_for(first: str, second: str, sent: bool) -> None:
    other = another(Settings(llm=first, extra_body='{"c":1}'), second, None, None)
    (request,) = OpenAIServer("b", llm_settings(other), second.partition(":")[0]).outgoing(
        Request(Prompt((Message("user", "x"),), Query("x")))
    )
    assert ("c" in request.body) == sent


def test_what_is_set_is_part_of_who_answers_and_nothing_else_is() -> None:
    def identity(**settings: str) -> dict[str, Any]:
        return dict(OpenAIServer("m", LLMSettings(base_url="http://localhost:1/v1", **settings)).identity())

    plain = {"backend": "openai", "model": "m", "base_url": "http://localhost:1/v1", "endpoint": "auto"}
    assert identity() == plain
    assert identity(headers='{"X-Key":"${A}"}') == identity(headers='{"x-key":"${B}"}') == plain | {"headers": "x-key"}
    told = [("X-Beta", "one"), ("x-beta", "one"), ("X-Beta", "two")]
    beta, same, other = (identity(headers=json.dumps(dict([pair]))) for pair in told)
    assert beta == same != other and "one" not in str(beta), "who answers may depend on it"
    others = [
        identity(reasoning_effort="low"),
        identity(system_role="user"),
        identity(extra_body='{"a":1}'),
        identity(query_params='{"api-version":"1"}'),
        identity(query_params='{"api-version":"2"}'),
    ]
    assert len({json.dumps(other) for other in (plain, *others)}) == 6
    assert "api-version" not in json.dumps(others)
    assert sampling_of(Settings()) == Sampling()


# shown before


SHOWN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "chat": ({}, []),
    "chat, all fields": ({}, [option for options, _ in FIELDS.values() for option in options]),
    "completions": ({"chat": False}, ["--stop", "x"]),
    "scored": ({"echo": True}, ["--answers", "score"]),
    "scored one by one": ({"echo": True, "echoes": 1}, ["--answers", "score", "--extra-body", '{"user": "me"}']),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_is_what_is_sent(name: str, world: Path, run: Run) -> None:
    kind, options = SHOWN[name]
    options = [*options, "--header", "x-team: ${AZURE_KEY}", "--query-param", "api-version=1 é"]
    with Server(**kind) as server:
        check = [word for word in options if word not in ("--answers", "score")]
        assert run("llm", "check", "-w", world, "--llm", "openai:stub", "--base-url", server.url, *check).code == 0
        before = len(server.calls)
        shown = run(*preview(world, server, "--request", "--json", *options))
        assert shown.code == 0, shown.err
        assert len(server.calls) == before, "nothing is sent"
        done = ask(run, world, server, *options)
        assert done.code == 0, done.err
        sent = server.calls[before:]
    told = shown.json
    assert told["notes"] == [] and len(told["requests"]) == len(sent)
    order = [json.dumps(call.body) for call in sent]
    for one in told["requests"]:
        call = sent[order.index(json.dumps(one["body"]))]  # the fields in their order, too
        assert one["url"] == server.url.removesuffix("/v1") + call.path
        assert {name.lower() for name in one["headers"]} <= call.headers.keys()
        assert set(one["headers"]) == {"Content-Type", "x-team"}
    assert SECRET not in shown.out


def test_without_a_probe_it_says_so_and_a_local_model_shows_what_it_reads(
    world: Path, server: Server, run: Run
) -> None:
    done = run(*preview(world, server, "--request"))
    assert done.code == 0 and "not probed yet" in done.err and not server.calls
    assert done.out.startswith(f"POST {server.url}/chat/completions\nContent-Type: …\nAuthorization: …\n\n{{\n")
    assert json.loads(done.out.partition("\n\n")[2])["model"] == "stub"
    local = run("preview", ASKED, "-m", "bm25", "-k", "1", "-w", world, "--request", "--json", "--llm", "offline")
    assert local.code == 0, local.err
    assert local.json["prompt"][0]["role"] == "system" and local.json["text"].endswith("\nAnswer:")
    assert run(*preview(world, server, "--request", "--answer")).code == 2


def test_the_command_for_a_shell_sends_the_same(
    world: Path, server: Server, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text(
        '[headers]\nX-Title = "a title"\nx-key = "it\'s ${AZURE_KEY} $(touch evil)"\n'
        '[query_params]\nv = "${AZURE_KEY}"\n'
    )
    options = ["--stop", "'; touch evil; '", "--extra-body", '{"user": "$(touch evil) `touch evil` é\\n"}']
    shown = run(*preview(world, server, "--curl", *options))
    assert shown.code == 0, shown.err
    assert SECRET not in shown.out and KEY not in shown.out and "a title" not in shown.out
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "curl"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    fake.chmod(0o755)
    environ = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}

    def shell(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", shown.out], env=environ | more, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert shell().returncode != 0, "the value that is not shown is asked for"
    url, *words = shell(HEADER_X_TITLE="mine").stdout.split("\0")
    assert url == f"{server.url}/chat/completions?v={SECRET}"
    headers = [words[i + 1] for i, word in enumerate(words) if word == "-H"]
    assert headers == [
        "Content-Type: application/json", f"Authorization: Bearer {KEY}", "X-Title: mine",
        f"x-key: it's {SECRET} $(touch evil)",
    ]  # fmt: skip
    body = json.loads(words[words.index("--data-raw") + 1])
    assert not (tmp_path / "evil").exists()
    assert ask(run, world, server, *options).code == 0
    assert answered(server)[-1].body == body
    assert shlex.split(shown.out.replace("\\\n", ""))[0] == "curl"


def test_a_url_names_no_variable_for_the_shell() -> None:
    backend = OpenAIServer(
        "m", LLMSettings(base_url="http://localhost:1/${OPENAI_API_KEY}/v1", query_params='{"$(x)":"&"}')
    )
    (shown,) = backend.outgoing(Request(Prompt((Message("user", "x"),), Query("x"))))
    assert shown.url == "http://localhost:1/%24{OPENAI_API_KEY}/v1/chat/completions?%24%28x%29=%26"


# a workspace of somebody else


def test_a_server_that_it_names_gets_no_headers_before_it_is_confirmed(world: Path, server: Server, run: Run) -> None:
    (world / "config.toml").write_text(f'base_url = "{server.url}"')
    command = ["preview", ASKED, "-m", "bm25", "-w", world, "--llm", "openai:stub", "--header", "x-team: ${AZURE_KEY}"]
    for how in ("--answer", "--curl"):
        done = run(*command, how)
        assert done.code == 3 and "would send prompts and your key" in done.err and not server.calls


def test_a_workspace_that_names_headers_sends_nothing(world: Path, server: Server, run: Run) -> None:
    (world / "config.toml").write_text('headers = {X-Key = "${AZURE_KEY}"}')
    done = ask(run, world, server)
    assert done.code == 2 and "which only you may" in done.err and "AZURE_KEY" not in done.err and not server.calls


def test_what_a_workspace_adds_to_bodies_is_told_before(world: Path, server: Server, run: Run) -> None:
    (world / "config.toml").write_text('extra_body = {service_tier = "priority\\u001b[2J"}')
    done = ask(run, world, server)
    assert done.code == 0, done.err
    told = done.err.splitlines()
    place = next(i for i, line in enumerate(told) if f"prompts go to stub at {server.url}" in line)
    assert 'the workspace\'s own config.toml says extra_body {"service_tier":"priority' in told[place + 1]
    assert "\x1b" not in done.err
    (world / "config.toml").write_text('extra_body = {model = "other"}')
    refused = ask(run, world, server)
    assert refused.code == 2 and "extra_body may not hold model" in refused.err


def test_a_local_model_says_what_it_does_not_use(world: Path, run: Run) -> None:
    done = run("preview", "word1", "-m", "bm25", "-w", world, "--answer", "--response-format", "json")
    assert done.code == 0 and "response_format not used: offline is no server" in done.err


def test_a_job_holds_the_name_of_the_variable_alone(world: Path, server: Server, run: Run) -> None:
    command = ["evaluate", "-m", "zero", "-w", world, "--llm", "openai:stub", "--base-url", server.url, "--background"]
    assert run(*command, "--header", f"api-key: {SECRET}").code == 2
    assert not (world / "jobs").exists() and not server.calls
    assert run(*command, "--header", "api-key: ${AZURE_KEY}").code == 0
    assert run("jobs", "follow", "-w", world).code == 0
    assert {call.headers["api-key"] for call in server.calls} == {SECRET}
    assert not [path for path in world.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
