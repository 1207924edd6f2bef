"""Encoders behind an API, with the real client over HTTP on 127.0.0.1: what is sent, paid for, kept and refused."""

from __future__ import annotations

import asyncio
import json
import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import Run
from factories.servers import Call, Reply, Server, error, ok, page, vector_of
from icl_curate import Selector
from icl_curate.engine.base.errors import BudgetError, Cancelled, LLMError, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.http import refusals
from icl_curate.engine.http.refusals import ENCODER_KEY as KEY
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval import served
from icl_curate.engine.retrieval.served import Access, EncoderDown, ServedEncoder
from icl_curate.engine.store.settings import Settings, resolve
from icl_curate.engine.store.workspace import Workspace
from icl_curate.serving.service import Ask, Service

NAME = "openai:stub"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", KEY):
        monkeypatch.delenv(name, raising=False)


def encoder(server: Server, folder: Path | None = None, **access: Any) -> ServedEncoder:
    return ServedEncoder(NAME, Access(server.url, **access), folder)


def unit(text: str, dimension: int = 8) -> np.ndarray:
    vector = np.array(vector_of(text, dimension))
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def texts(n: int) -> list[str]:
    return [f"text number {i} of {n}" for i in range(n)]


def pool(tmp_path: Path, n: int = 300) -> Path:
    path = tmp_path / "pool.jsonl"
    rows = [{"id": f"d{i}", "input": f"my {'card' if i % 2 else 'parcel'} number {i}", "output": "x"} for i in range(n)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def index(workspace: Workspace, path: Path, server: Server, **access: Any) -> int:
    plan = IndexPlan(paths=(str(path),), encoder=NAME, access=Access(server.url, **access))
    return index_pool(workspace, plan).encoded


def sent_texts(server: Server) -> list[str]:
    """Every text of an answered request, but the word that asks for the number of dimensions."""
    read = [text for call in server.calls if call.status == 200 for text in call.body["input"]]
    return [text for text in read if text != "dimension"]


def test_vectors_have_length_one_and_the_order_of_the_texts(server: Server) -> None:
    wanted = [*texts(300), "the same", "the same"]
    found = encoder(server).encode(wanted)
    assert found.dtype == np.float32 and found.shape == (302, 8)
    np.testing.assert_array_equal(found, [unit(text) for text in wanted])
    assert max(len(call.body["input"]) for call in server.calls) <= served.AT_ONCE
    assert sorted(sent_texts(server)) == sorted(set(wanted))  # each text once


def test_dimensions_are_asked_for(server: Server) -> None:
    found = ServedEncoder(f"{NAME}@4", Access(server.url))
    assert found.encode(["a"]).shape == (1, 4)
    assert (server.calls[0].body["model"], server.calls[0].body["dimensions"]) == ("stub", 4)
    assert encoder(server).dimension == 8
    with pytest.raises(UsageError, match="names no encoder"):
        ServedEncoder("openai:")


def _shaky(server: Server, call: Call, seen: int) -> Reply | str | None:
    """Every request fails three times, each time otherwise."""
    return (error(429, "slow down", "rate_limit_exceeded", {"retry-after-ms": "20"}), error(500, "oops"), "drop", None)[
        min(seen, 3)
    ]


def test_rate_limits_errors_and_dropped_connections_pass() -> None:
    with Server(fault=_shaky) as server:
        found = encoder(server).encode(texts(200))
        np.testing.assert_array_equal(found, [unit(text) for text in texts(200)])
        assert sorted(sent_texts(server)) == sorted(texts(200))


@pytest.mark.parametrize("fault", [*(error(status, "slow") for status in (429, 502, 503, 504)), "drop"])
def test_a_server_that_is_busy_or_away_is_waited_for(fault: Reply | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "pause", lambda *_: 0.0)
    with Server(fault=lambda server, call, seen: fault if seen < 10 else None) as server:
        assert encoder(server).encode(["a"]).shape == (1, 8)
    monkeypatch.setattr(served, "LONGEST_WAIT", 0.0)
    with Server(fault=lambda *_: fault) as server, pytest.raises(LLMError, match=r"slow|does not answer"):
        encoder(server).encode(["a"])


def test_a_long_pause_is_told_once_for_all_requests_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "TOLD", 0.5)
    token, events = CancelToken(), list[Event]()

    def seen(event: Event) -> None:
        events.append(event)
        if event.note:
            token.cancel()

    busy = error(429, "slow down", "rate_limit_exceeded", {"retry-after": "60"})
    with Server(fault=lambda *_: busy) as server, pytest.raises(Cancelled):
        encoder(server).encode(texts(600), Monitor(seen, token))
    (note,) = [event.note for event in events if event.note]
    assert note.startswith("stub at http://127.0.0.1:") and "HTTP 429: slow down; it is asked again in 6" in note


def test_texts_that_break_a_server_get_their_attempts_where_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server(fault=lambda server, call, seen: "drop" if call.text == "bad" else None) as server:
        found = encoder(server, attempts=3)

        def wait(attempt: int, _: float | None) -> float:
            found.encode([f"other {attempt}"])
            return 0.0

        monkeypatch.setattr(served, "pause", wait)
        with pytest.raises(LLMError, match="does not answer"):
            found.encode(["bad"])
        assert len([call for call in server.calls if call.text == "bad"]) == 3


def test_a_server_that_ends_in_between_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        found = encoder(server)
        found.encode(["a"])
    pauses: list[int] = []

    def wait(attempt: int, _: float | None) -> float:
        pauses.append(attempt)
        monkeypatch.setattr(served, "LONGEST_WAIT", 120.0 if attempt < 10 else 0.0)
        return 0.0

    monkeypatch.setattr(served, "pause", wait)
    with pytest.raises(LLMError, match="does not answer"):
        found.encode(["b"])
    assert len(pauses) == 11


def test_who_serves_waits_for_no_encoder_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of others wait, and so does the end of the service."""
    away: list[int] = []
    monkeypatch.setattr("icl_curate.serving.service.PATIENCE", 0.0)
    workspace = Workspace.create(tmp_path / "w")
    with Server(fault=lambda *_: error(500, "it fails") if away else None) as server:
        index(workspace, pool(tmp_path, 10), server)
        settings = Settings(encoder=NAME, encoder_url=server.url, method="dense", k=2)
        with closing(Service(tmp_path / "w", settings)) as service:
            away.append(1)
            server.calls.clear()
            asked = [Ask((Query(f"card {i}"),), "dense", 2) for i in range(3)]
            found = [*service.answer(asked), *service.answer([replace(asked[0], method="bm25")])]
        assert [type(one) for one in found] == [EncoderDown] * 3 + [list]
        assert len(server.calls) == 1


def _reply(data: Any, **more: Any) -> Reply:
    return ok({"data": data, **more})


GOOD = {"index": 0, "embedding": [1.0, 2.0]}
MALFORMED: dict[str, Reply] = {
    "no JSON": page(),
    "a number": ok(3),
    "no data": ok({}),
    "too few": _reply([GOOD]),
    "one twice": _reply([GOOD, GOOD]),
    "too many": _reply([{**GOOD, "index": i} for i in range(3)]),
    "texts": _reply([{"index": i, "embedding": ["a"]} for i in range(2)]),
    "base64": _reply([{"index": i, "embedding": "AACAPw=="} for i in range(2)]),
    "ragged": _reply([GOOD, {"index": 1, "embedding": [1.0]}]),
    "empty": _reply([{"index": i, "embedding": []} for i in range(2)]),
    "zero": _reply([GOOD, {"index": 1, "embedding": [0.0, 0.0]}]),
    "not finite": _reply([GOOD, {"index": 1, "embedding": [1e400, 0.0]}]),
    "no number": (200, {}, b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1]}]}'),
    "deep": (200, {}, b"[" * 100_000),
}


def test_malformed_replies_are_asked_again_and_then_told_in_one_line() -> None:
    replies = iter(MALFORMED.values())

    def fault(server: Server, call: Call, seen: int) -> Reply:
        return next(replies)

    with Server(fault=fault) as server:
        for name in MALFORMED:
            with pytest.raises(LLMError, match="reply") as caught:
                encoder(server, attempts=1).encode(["a", "b"])
            assert "\n" not in caught.value.what and caught.value.fix, name


FAR = "Wed, 21 Oct 2099 07:28:00 GMT"


@pytest.mark.parametrize(
    ("reply", "what", "fix", "calls"),
    [
        (error(401, "Incorrect API key"), "401: Incorrect API key", f"export {KEY}", 1),
        (error(404, "no such model"), "no such model", "the model's name", 1),
        (error(429, "You exceeded your quota", "insufficient_quota"), "quota", "add credit", 1),
        (error(429, "Billing hard limit", "billing_hard_limit_reached"), "hard limit", "add credit", 1),
        (error(402, "payment required"), "payment required", "add credit", 1),
        (
            ok({"error": {"code": 429, "type": "insufficient_quota", "message": "none left"}}),
            "none left",
            "add credit",
            1,
        ),
        (error(429, "wait", headers={"retry-after": "9000"}), "a pause of 9,000 s", "vectors are kept", 1),
        (error(429, "wait", headers={"retry-after": FAR}), r"a pause of \d{1,3}(,\d{3}){2,} s", "after that", 1),
        (error(500, "oops"), "HTTP 500: oops", "run the same command again", 3),
        (error(400, "too long"), "too long", "begins with 'a'", 1),
        ((302, {"location": "http://127.0.0.2:1/v1/embeddings"}, b""), "another server: nothing was sent", "URL", 1),
    ],
)
def test_what_no_repetition_helps_against_is_told_at_once(reply: Reply, what: str, fix: str, calls: int) -> None:
    with Server(fault=lambda server, call, seen: reply) as server:
        with pytest.raises(LLMError, match=what) as caught:
            encoder(server, attempts=3).encode(["a"])
        assert fix in caught.value.fix and "\n" not in caught.value.what
        assert len(server.calls) == calls


def test_a_dead_server_is_told_with_its_address() -> None:
    with Server() as server:
        found = encoder(server)
    with pytest.raises(LLMError, match=r"stub at http://127\.0\.0\.1.* does not answer") as caught:
        found.encode(["a"])
    assert "--encoder-url" in caught.value.fix


def test_a_request_that_is_too_large_is_divided() -> None:
    with Server(most_texts=20) as server:
        np.testing.assert_array_equal(encoder(server).encode(texts(100)), [unit(text) for text in texts(100)])
        assert sorted(sent_texts(server)) == sorted(texts(100))


# the pool


def test_what_was_answered_is_kept_and_never_paid_twice(tmp_path: Path) -> None:
    workspace, path = Workspace.create(tmp_path / "w"), pool(tmp_path, 600)

    def broken(server: Server, call: Call, seen: int) -> Reply | None:
        return error(401, "revoked") if len(sent_texts(server)) >= 200 else None

    with Server(fault=broken) as server:
        with pytest.raises(LLMError, match="revoked"):
            index(workspace, path, server)
        server.fault = lambda server, call, seen: None
        paid = len(sent_texts(server))
        assert 200 <= paid < 600
        assert index(workspace, path, server) == 600 - paid
        assert len(sent_texts(server)) == len(set(sent_texts(server))) == 600
        assert index(workspace, path, server) == 0


def test_an_interruption_keeps_what_is_in_flight(server: Server) -> None:
    token, kept = CancelToken(), []
    server.delay = 0.05

    def report(event: Event) -> None:
        if event.done:
            token.cancel()

    with pytest.raises(Cancelled):
        encoder(server).encode_each(
            texts(3_000), lambda places, vectors: kept.extend(places.tolist()), Monitor(report, token)
        )
    assert len(kept) == len(set(kept)) == len(sent_texts(server)) < 3_000


def test_a_budget_is_not_exceeded(server: Server, tmp_path: Path) -> None:
    workspace, path = Workspace.create(tmp_path / "w"), pool(tmp_path, 600)
    with pytest.raises(UsageError, match="needs the encoder's price"):
        index(workspace, path, server, max_cost=1.0)
    assert server.calls == []
    with pytest.raises(BudgetError, match="budget is used up") as caught:
        index(workspace, path, server, max_cost=0.002, price=1.0)
    assert "vectors are kept" in caught.value.fix
    assert 0 < len(sent_texts(server)) < 600
    spent = sum(len(text) // 4 + 5 for text in sent_texts(server))
    assert spent < 3_000  # by the server's count, which is half as high again as the estimate
    index(workspace, path, server, price=1.0)
    assert len(sent_texts(server)) == len(set(sent_texts(server))) == 600


def test_a_budget_learns_what_the_server_charges(server: Server, tmp_path: Path) -> None:
    """A batch costs 20 times what was foreseen: nothing goes out after its bill."""
    server.charge = 20
    with pytest.raises(BudgetError, match="budget is used up"):
        index(Workspace.create(tmp_path / "w"), pool(tmp_path, 1_000), server, max_cost=0.006, price=1.0)
    assert len(server.calls) <= 2  # the vectors' size, and one batch


def test_another_model_under_the_same_name_is_refused(server: Server, tmp_path: Path) -> None:
    workspace, path = Workspace.create(tmp_path / "w"), pool(tmp_path)
    index(workspace, path, server)
    server.dimension = 5
    settings = Settings(encoder=NAME, encoder_url=server.url, method="dense")
    with pytest.raises(LLMError, match="5 dimensions, those before have 8"):
        Selector(workspace, settings=settings).select("another query")
    path.write_text(path.read_text() + '\n{"id": "new", "input": "one more", "output": "x"}')
    with pytest.raises(LLMError, match="5 dimensions, those before have 8") as caught:
        index(workspace, path, server)
    assert "icl-curate index --encoder openai:NAME" in caught.value.fix
    server.dimension = 8
    assert index(workspace, path, server) == 1  # the others are still there


def test_a_first_reply_of_another_length_does_not_decide_for_ever(server: Server, tmp_path: Path) -> None:
    workspace, path = Workspace.create(tmp_path / "w"), pool(tmp_path)
    odd = ok({"data": [{"index": 0, "embedding": [1.0] * 12}]})
    server.fault = lambda server, call, seen: odd if call.text == "dimension" else None
    with pytest.raises(LLMError, match="8 dimensions, those before have 12"):
        index(workspace, path, server)
    server.fault = lambda server, call, seen: None
    assert index(workspace, path, server) == 300


def test_queries_are_encoded_the_same_way_and_kept(server: Server, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    index(workspace, pool(tmp_path), server)
    settings = Settings(encoder=NAME, encoder_url=server.url, method="dense", k=2)
    before = len(server.calls)
    selector = Selector(workspace, settings=settings)
    chosen = selector.select("my card number 7 please")
    assert selector.select("my card number 7 please") == chosen
    assert pickle.loads(pickle.dumps(selector)).select("my card number 7 please") == chosen
    service = Service(workspace.path, replace(settings, method="bm25"))
    try:
        (found,) = service.answer([Ask((Query("my card number 7 please"),), "dense", 2)])
    finally:
        service.close()
    assert not isinstance(found, Exception)
    assert [shot["id"] for shot in found[0]["demonstrations"]] == [shot.demonstration.id for shot in chosen]
    assert len(server.calls) == before + 1  # by four selections, in what could be four processes
    queries = next(workspace.path.glob("vectors/*/queries-8.bin"))
    queries.write_bytes(queries.read_bytes()[:-3])  # killed while writing
    Selector(workspace, settings=settings).select("my card number 7 please")
    assert len(server.calls) == before + 2
    assert len(queries.read_bytes()) == 2 * (16 + 4 * 8 + 4)  # with that of the number of dimensions


def test_index_and_preview_on_the_command_line(
    run: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, workspace = pool(tmp_path), tmp_path / "w"
    options = ("--encoder", NAME, "--encoder-url", server.url, "--encoder-price", "0.02")
    done = run("index", path, "-w", workspace, *options)
    assert done.code == 0, done.err
    assert "300 texts, about 1," in done.err
    assert f"go to stub at {server.url}" in done.err and "tokens, $0.0000" in done.err
    monkeypatch.setenv("ICL_CURATE_ENCODER", NAME)
    monkeypatch.setenv("ICL_CURATE_ENCODER_URL", server.url)
    shown = run("preview", "my card number 7 again", "-m", "dense", "-k", "1", "-w", workspace, "--json")
    assert shown.code == 0 and json.loads(shown.out)["demonstrations"]
    refused = run("preview", "a query", "-m", "set-bsr", "-w", workspace)
    assert refused.code == 2 and "has no token vectors" in refused.err


# keys


@pytest.mark.parametrize(
    ("named", "trusted", "environment", "sent"),
    [
        ("url", "", {"OPENAI_API_KEY": "sk-llm"}, "none"),  # the LLM's key is for another server
        ("url", "url", {"OPENAI_API_KEY": "sk-llm"}, "sk-llm"),
        ("url", "url", {"OPENAI_API_KEY": "sk-llm", KEY: "sk-own"}, "sk-own"),
        ("url", "", {KEY: "sk-own"}, "sk-own"),
        ("", "", {"OPENAI_API_KEY": "sk-llm", "OPENAI_BASE_URL": "url"}, "sk-llm"),
        ("url", "http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "sk-llm"}, "none"),
    ],
)
def test_a_key_goes_to_the_server_that_it_is_meant_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, named: str, trusted: str, environment: dict[str, str], sent: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("url", server.url))
    access = Access(
        named.replace("url", server.url), trusted=tuple(x.replace("url", server.url) for x in [trusted] if x)
    )
    ServedEncoder(NAME, access).encode(["a"])
    assert [call.headers["authorization"] for call in server.calls] == [f"Bearer {sent}"]


def test_without_a_server_and_a_key_nothing_is_sent() -> None:
    with pytest.raises(LLMError, match="OPENAI_API_KEY is not set"):
        ServedEncoder(NAME).encode(["a"])


def test_a_key_is_not_shown_by_an_error_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-very-secret")
    with Server(api_key="sk-right") as server, pytest.raises(LLMError) as caught:
        encoder(server).encode(["a"])
    assert "***" in caught.value.what and "secret" not in caught.value.what


def test_what_looks_like_a_key_is_not_shown() -> None:
    strange = error(400, "bad project of key sk-abcdef123456")
    with (
        Server(fault=lambda server, call, seen: strange) as server,
        pytest.raises(LLMError, match="key \\*\\*\\*") as caught,
    ):
        encoder(server).encode(["a"])
    assert "abcdef" not in caught.value.what


def test_a_reply_that_never_ends_is_too_slow() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    too_slow = pytest.raises(LLMError, match=r"too slow: no answer within 0\.2 s")
    with Server(fault=lambda server, call, seen: drip) as server, too_slow:
        encoder(server, timeout=0.2, attempts=1).encode(["a"])


def test_a_server_that_only_the_workspace_names_is_confirmed_first(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "own" / "config.toml"))
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "config.toml").write_text(f'encoder = "{NAME}"\nencoder_url = "{server.url}"\n')
    settings = resolve(tmp_path / "w", {}).settings
    with pytest.raises(LLMError, match=r"would send texts to http://127\.0\.0\.1") as caught:
        ServedEncoder(NAME, Access.of(settings))
    assert "llm trust" in caught.value.fix and "--encoder-url" in caught.value.fix
    ServedEncoder(NAME, Access.of(resolve(tmp_path / "w", {"encoder_url": server.url}).settings))
    assert server.calls == []
