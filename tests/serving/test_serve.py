"""``serve``: what it selects, whom it answers, and that it follows its workspace, over real HTTP on 127.0.0.1."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.patience import PATIENCE
from factories.servers import Server
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.packages import VERSION
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.served import Access, EncoderDown
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
import uvicorn
from icl_curate.serving.app import AT_ONCE, Batches, Served, make_app
from icl_curate.serving.hosts import LOOPBACK, Sparing, is_own, is_own_page, listener_at, own_hosts
from icl_curate.serving.requests import RequestLimits, read
from icl_curate.serving.run import LIMITS, configured, names_of
from icl_curate.serving.service import Ask, Found, Service
from starlette.applications import Starlette

TOKEN = "a token of the tests"
ROWS = 40
SETTINGS = Settings(method="bm25", k=3)
SENT = {"Content-Type": "application/json"}
WORDS = ("card", "parcel", "refund", "password", "invoice")


@dataclass(frozen=True)
class Reply:
    code: int
    fields: dict[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Client:
    port: int

    def request(self, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] = SENT) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(verb, path, body, dict(headers))
        got = connection.getresponse()
        assert got.headers.get_content_type() == "application/json"
        reply = Reply(got.status, json.loads(got.read()), dict(got.headers.items()))
        connection.close()
        return reply

    def select(self, **fields: Any) -> Reply:
        return self.request("POST", "/select", json.dumps(fields).encode())

    def health(self, **headers: str) -> Reply:
        return self.request("GET", "/health", headers=headers)


@contextmanager
def running(make: Callable[[], Any], limits: RequestLimits, listener: socket.socket) -> Iterator[uvicorn.Server]:
    """An application in a thread of this process."""
    server = uvicorn.Server(configured(make, limits))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving(
    path: Path,
    token: str = "",
    limits: RequestLimits = LIMITS,
    of_connections: RequestLimits | None = None,
    settings: Settings = SETTINGS,
) -> Iterator[Client]:
    """The service in a thread of this process."""
    service = Service(path, settings, looks=0.01)
    with listener_at("127.0.0.1", 0, "") as listener:
        port = listener.getsockname()[1]
        served = Served(path, settings, own_hosts([*LOOPBACK, "select.example"], port), token, limits)
        with running(partial(make_app, served, service), of_connections or limits, listener):
            yield Client(port)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("serving")
    pool = root / "pool.jsonl"
    rows = [
        {"id": f"d{i}", "input": f"my {WORDS[i % 5]} number {i} {WORDS[i % 3]}", "output": WORDS[i % 5], "source": "s"}
        for i in range(ROWS)
    ]
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index_pool(Workspace.create(root / "w"), IndexPlan(paths=(str(pool),), encoder=None, near_duplicate=1.0))
    return root / "w"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with serving(folder) as found:
        yield found


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "w"))


def ids(fields: Mapping[str, Any]) -> list[str]:
    return [shot["id"] for shot in fields["demonstrations"]]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# what is selected


def test_a_query_gets_what_preview_shows(client: Client, folder: Path, run: Run) -> None:
    shown = run("preview", "where is my parcel", "-m", "bm25", "-k", "4", "-w", folder, "--json").json
    found = client.select(query="where is my parcel", k=4)
    assert found.code == 200
    assert len(found.fields["demonstrations"]) == 4
    assert found.fields == {key: shown[key] for key in ("query", "method", "demonstrations", "notes")} | {"k": 4}
    assert "parcel" in {one["word"] for one in found.fields["demonstrations"][0]["words"]}


def test_a_batch_gets_what_its_queries_get_alone(client: Client) -> None:
    asked = [f"my {WORDS[i % 5]} {i}" for i in range(150)]  # of more than one part
    found = client.select(queries=[*asked, {"query": "a refund?", "options": ["yes", "no"]}], k=2).fields
    assert (found["method"], found["k"], len(found["results"])) == ("bm25", 2, 151)
    assert [one["query"] for one in found["results"]] == [*asked, "a refund?"]
    for i in (0, 30, 31, 149):
        alone = client.select(query=asked[i], k=2).fields
        assert found["results"][i] == {key: alone[key] for key in alone if key != "k"}


def test_long_queries_are_selected_for_few_at_a_time(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[int]] = []

    def answer(service: Service, asks: Sequence[Ask]) -> list[Any]:
        batches.append([len(query.searched(passages=True)) for ask in asks for query in ask.queries])
        return answered(service, asks)

    answered = Service.answer
    monkeypatch.setattr(Service, "answer", answer)
    texts = ["my parcel " * 10_000] * 33 + ["my card " * 500] * 30
    turns = [{"role": "user", "content": "my refund " * 9_000}, {"role": "assistant", "content": "yes"}] * 3
    found = client.select(queries=[*texts, {"query": "and this?", "history": turns}, "my card"], k=2)
    assert (found.code, len(found.fields["results"])) == (200, 65)
    assert [one["query"] for one in found.fields["results"]] == [*texts, "and this?", "my card"]
    assert sum(map(len, batches)) == 65
    assert max(sum(sizes) for sizes in batches if len(sizes) > 1) <= 31_000
    assert [len(sizes) for sizes in batches] == [1] * 33 + [6] * 5 + [1, 1]


def test_earlier_turns_of_a_query_are_searched(client: Client) -> None:
    turns = [{"role": "user", "content": "where is my parcel"}, {"role": "assistant", "content": "on its way"}]
    found = client.select(query="and the other?", history=turns, k=1).fields["demonstrations"]
    assert "parcel" in {one["word"] for one in found[0]["words"]}
    alone = client.select(query="and the other?", k=1).fields["demonstrations"]
    assert "parcel" not in {one["word"] for shot in alone for one in shot.get("words", [])}


def test_a_record_is_asked_with_its_fields_and_refused_without_one_that_was_judged(folder: Path) -> None:
    record = {"input": "where is my parcel", "tier": "gold", "options": ["yes", "no"]}
    own = "{% for shot in shots %}{{ shot.output }}\n{% endfor %}{{ query.tier }}: {{ query.input }}"
    with serving(folder, settings=replace(SETTINGS, template="own", template_text=own)) as client:
        told = client.request("POST", "/prompt", json.dumps({"query": record, "k": 2}).encode()).fields
        outputs = [shot["output"] for shot in reversed(told["demonstrations"])]
        assert told["messages"] == [{"role": "user", "content": "\n".join([*outputs, f"gold: {record['input']}"])}]
        assert (told["stop"], told["answer"]) == ([], {"before": "", "after": "", "quoted": False})
        found = client.select(query=record, k=2)
        assert (found.code, found.fields["query"], len(found.fields["demonstrations"])) == (200, record["input"], 2)
        assert client.select(queries=[record, record], k=1).code == 200
        asks: list[dict[str, Any]] = [
            {"query": "a parcel"},
            {"queries": [record, "my card"]},
            {"query": {"input": "a"}},
        ]
        for refused in (client.select(**asked) for asked in asks):
            assert refused.code == 400 and "no field 'tier', which the prompt reads" in refused.fields["error"]
        assert client.select(**asks[1]).fields["error"].startswith("query 2 of 2: ")
    (query,) = read(json.dumps({"query": record | {"answers": "x"}}).encode(), SETTINGS, RequestLimits())[0].queries
    assert (query.fields, query.options) == ({"tier": "gold"}, ("yes", "no"))


def test_requests_at_one_time_each_get_their_own_answer(client: Client) -> None:
    def asked(i: int) -> tuple[str, list[str]]:
        found = client.select(query=f"number {i}", k=1 + i % 2, method="bm25").fields
        return found["query"], ids(found)

    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(asked, range(ROWS))]
    assert [query for query, _ in found] == [f"number {i}" for i in range(ROWS)]
    assert all(shots[0] == f"d{i}" and len(shots) == 1 + i % 2 for i, (_, shots) in enumerate(found))


def test_a_query_that_fails_does_so_alone(folder: Path) -> None:
    service = Service(folder, SETTINGS)
    good, bad = Ask((Query("my card"),), "bm25", 1), Ask((Query("my card", row=10**6),), "bm25", 1)
    first, second, third = service.answer([good, bad, good])
    service.close()
    assert isinstance(second, IndexError)
    assert first == third and isinstance(first, list) and len(first[0]["demonstrations"]) == 1


def test_a_text_that_is_no_unicode_is_answered(client: Client) -> None:
    found = client.request("POST", "/select", rb'{"query": "my card \ud800 \u00e9"}')
    assert (found.code, found.fields["query"]) == (200, "my card \ud800 é")


def test_a_short_pool_is_noted(client: Client) -> None:
    assert "only 40 of 50" in client.select(query="my card", k=50).fields["notes"][0]


# following the workspace


def test_decisions_of_others_are_followed(own: Path, run: Run) -> None:
    with serving(own) as client:
        before = client.health().fields
        assert before["rows"] == ROWS
        first = ids(client.select(query="number 7").fields)[0]
        assert run("prune", "--demo", first, "-w", own).code == 0
        until(lambda: client.health().fields["rows"] == ROWS - 1)
        assert first not in ids(client.select(query="number 7").fields)
        assert client.health().fields["fingerprint"] != before["fingerprint"]
        assert run("restore", "--demo", first, "-w", own).code == 0
        until(lambda: ids(client.select(query="number 7").fields)[0] == first)


def test_of_a_pool_that_was_pruned_whole_nothing_is_served(own: Path, run: Run) -> None:
    with serving(own) as client:
        assert run("prune", "--source", "s", "-w", own).code == 0
        until(lambda: client.select(query="my card").code == 409)
        assert "the active pool is empty" in client.select(query="my card").fields["error"]
        assert client.health().code == 409
        assert run("restore", "--source", "s", "-w", own).code == 0
        until(lambda: client.select(query="my card").code == 200)


# what is refused


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"query": "a", "K": 1}', "unknown key 'K'"),
        (b"{}", "either 'query' or 'queries'"),
        (b'{"query": "a", "queries": ["b"]}', "either 'query' or 'queries'"),
        (b'{"query": " "}', "empty"),
        (b'{"query": ["a"]}', "empty or not a text"),
        (b'{"query": "a", "k": 101}', "'k' is not a number from 0 to 100"),
        (b'{"query": "a", "k": true}', "'k' is not a whole number"),
        (b'{"query": "a", "k": 1.0}', "'k' is not a whole number"),
        (b'{"query": "a", "k": null}', "'k' is not a whole number"),
        (b'{"query": "a", "k": -1}', "'k' is not"),
        (b'{"query": "a", "method": "bm26"}', "did you mean 'bm25'"),
        (b'{"query": "a", "method": 1}', "'method' is not"),
        (b'{"query": "a", "options": "yes"}', "'options' is not"),
        (b'{"query": "a", "context": 1}', "'context' is not"),
        (b'{"query": "a", "history": "b"}', "'history' is not"),
        (b'{"query": "a", "history": [{"role": "user"}]}', "not exactly 'role' and 'content'"),
        (b'{"query": "a", "history": [{"role": "tool", "content": "b"}]}', "not a text of system or user"),
        (b'{"query": {"input": 1}}', "empty or not a text"),
        (b'{"query": {"tier": "gold"}}', "the query has no 'input'"),
        (b'{"query": {"input": "a"}, "context": "b"}', "'context' stands beside a query that is an object"),
        (b'{"query": {"input": "a", "options": [1]}}', "'options' is not"),
        (b'{"queries": []}', "'queries' is not"),
        (b'{"queries": [1]}', "neither a text nor an object"),
        (b'{"queries": [{"query": "a", "k": 1}]}', "unknown key 'k'"),
        (b'{"queries": ["a"], "options": []}', "'options' stands beside"),
        (b'{"queries": [' + b'"a",' * 1_000 + b'"a"]}', "too many"),
        (b'{"queries": [' + b'"a",' * 500 + b'"a"], "k": 100}', "too many"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(client: Client, body: bytes, what: str) -> None:
    found = client.request("POST", "/select", body)
    assert found.code == 400
    assert what in found.fields["error"] and found.fields["fix"]
    assert set(found.fields) == {"error", "fix"}


def test_a_field_that_is_no_part_of_a_query_is_told_its_place(client: Client) -> None:
    for body in (b'{"query": "a", "tier": "gold"}', b'{"queries": [{"query": "a", "tier": "gold"}]}'):
        fix = client.request("POST", "/select", body).fields["fix"]
        assert '{"input": "\u2026", "tier": \u2026}' in fix


@pytest.mark.parametrize(
    ("verb", "path", "headers", "code"),
    [
        ("GET", "/select", SENT, 405),
        ("POST", "/", SENT, 404),
        ("POST", "/select/", SENT, 404),
        ("POST", "/select", {"Content-Type": "text/plain"}, 415),
    ],
)
def test_other_requests_are_told_what_there_is(
    client: Client, verb: str, path: str, headers: Mapping[str, str], code: int
) -> None:
    found = client.request(verb, path, b"{}", headers)
    assert found.code == code and found.fields["error"] and found.fields["fix"]


def test_a_client_is_told_no_command_of_the_server(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    down = EncoderDown("enc at http://127.0.0.1 fails: HTTP 500", "run the same command again later; vectors are kept")
    monkeypatch.setattr(Service, "answer", lambda self, asks: [down] * len(asks))
    told = client.select(query="my card")
    assert (told.code, told.fields) == (502, {"error": down.what, "fix": "send it again later"})


def test_what_the_workspace_lacks_is_told(client: Client) -> None:
    found = client.select(query="my card", method="dense")
    assert (found.code, found.fields["fix"]) == (409, "icl-curate index --encoder all-MiniLM-L6-v2")


def test_limits_of_body_and_queue(folder: Path) -> None:
    with serving(folder, limits=RequestLimits(body=100, waiting=1)) as client:
        assert client.select(query="x" * 90).code == 413
        refused = client.select(queries=["my card", "my parcel"])
        assert (refused.code, refused.headers["retry-after"]) == (503, "1")
        assert client.select(query="my card").code == 200  # and what was refused no longer counts


def test_a_client_that_has_gone_leaves_nothing_behind(folder: Path) -> None:
    async def ask_and_go(batches: Batches) -> int:
        ask = Ask((Query("my card"),), "bm25", 2)
        gone = asyncio.create_task(batches.ask(ask))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        (found,) = await batches.ask(ask)
        return len(ids(found))

    service = Service(folder, SETTINGS)
    batches = Batches(service, most=1)
    assert asyncio.run(ask_and_go(batches)) == 2
    batches.close()
    service.close()


def test_who_needs_no_encoder_does_not_wait_for_its_server(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"input": f"my card {i}", "output": "x"}) + "\n" for i in range(4)))
    with Server() as encoder, ThreadPoolExecutor(1) as threads:
        access = Access(encoder.url)
        plan = IndexPlan(paths=(str(pool),), encoder="openai:stub", access=access, near_duplicate=1.0)
        index_pool(Workspace.create(tmp_path / "w"), plan)
        settings = replace(SETTINGS, encoder="openai:stub", encoder_url=encoder.url)
        with serving(tmp_path / "w", settings=settings) as client:
            encoder.held = "a question"
            held = threads.submit(client.select, query="a question", method="dense")
            until(lambda: encoder.in_flight > 0)
            assert client.select(query="my card", method="bm25").code == 200
            assert not held.done()
            encoder.let_go()
            assert held.result(PATIENCE).code == 200


# whom it answers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost", "127.0.0.1:1", "localhost.:{port}"]
)
@pytest.mark.parametrize("path", ["/select", "/health", "/"])
def test_under_another_name_nothing_is_answered(client: Client, host: str, path: str) -> None:
    """DNS rebinding: a stranger's name that leads to this machine."""
    found = client.request("POST", path, b'{"query": "a"}', {**SENT, "Host": host.format(port=client.port)})
    assert (found.code, found.fields["error"]) == (403, "not an address of this server")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "select.example", "SELECT.example"])
def test_under_its_own_names_it_answers(client: Client, host: str) -> None:
    assert client.health(Host=f"{host}:{client.port}").code == 200


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Client]:
    with serving(folder, TOKEN) as found:
        yield found


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xff"]
)
def test_without_the_token_nothing_is_selected(guarded: Client, sent: str | None) -> None:
    given = {} if sent is None else {"Authorization": sent}
    found = guarded.request("POST", "/select", b'{"query": "my card"}', SENT | given)
    assert (found.code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert guarded.health(**given).fields == {"status": "ok"}


def test_with_the_token_it_is(guarded: Client) -> None:
    given = {"Authorization": f"Bearer {TOKEN}"}
    found = guarded.request("POST", "/select", b'{"query": "my card"}', SENT | given)
    assert (found.code, len(found.fields["demonstrations"])) == (200, 3)
    seen = guarded.health(**given).fields
    assert seen.pop("fingerprint")
    assert seen == {"status": "ok", "version": VERSION, "method": "bm25", "k": 3, "rows": ROWS}


def test_others_need_a_token_and_a_name() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "select.example", "::"):
        with pytest.raises(UsageError, match="a token is required"):
            names_of(host, ["select.example"], "")
    with pytest.raises(UsageError, match="any page could ask"):
        names_of("127.0.0.1", ["*"], "")
    with pytest.raises(UsageError, match="no name that a client can use"):
        names_of("0.0.0.0", [], TOKEN)
    assert "select.example" in names_of("0.0.0.0", ["select.example"], TOKEN)


@pytest.mark.parametrize(
    ("names", "port", "host", "own"),
    [
        (["a.example"], 80, "a.example", True),
        (["a.example"], 81, "a.example", False),
        (["a.example:443"], 81, "a.example:443", True),
        (["a.example:443"], 81, "a.example:81", False),
        (["::1"], 81, "[::1]:81", True),
        (["*"], 81, "whatever", True),
    ],
)
def test_a_name_stands_with_its_port(names: list[str], port: int, host: str, own: bool) -> None:
    assert is_own([host], own_hosts(names, port)) == own
    assert not is_own([host, host], own_hosts(names, port))


def test_a_reply_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with listener_at("127.0.0.1", 0, "") as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# the command


def test_the_command_refuses_before_it_listens(run: Run, folder: Path, client: Client, tmp_path: Path) -> None:
    def refused(*options: object) -> str:
        done = run("serve", "-m", "bm25", "-w", folder, *options)
        assert (done.code, done.out) == (2, ""), done.err
        return done.err

    short = tmp_path / "token"
    short.write_text("short\n")
    assert "a token is required" in refused("--host", "0.0.0.0")
    assert "16 or more" in refused("--token-file", short)
    assert "cannot read the token" in refused("--token-file", tmp_path / "none")
    assert f"cannot serve on port {client.port}" in refused("--port", client.port)
    assert "unknown method" in refused("-m", "bm26")
    assert "have no vectors" in refused("-m", "dense")
    assert run("serve", "-w", tmp_path / "none").code == 5


# clients that are slow, or many


@contextmanager
def connected(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0)) as client:
        client.sendall(sent)
        yield client


def rest_of(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    try:
        while piece := client.recv(1 << 16):
            found += piece
    except ConnectionError:
        pass
    return found


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


HALF_BODY = (
    b"POST /select HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\nHost: loc", b"\x16\x03\x01"])
def test_who_sends_no_head_is_closed(folder: Path, sent: bytes) -> None:
    with serving(folder, limits=RequestLimits(timeout=0.05)) as client, connected(client.port, sent) as slow:
        assert b"200 OK" not in rest_of(slow)


def test_one_byte_after_the_other_gains_no_time(folder: Path) -> None:
    with (
        serving(folder, limits=RequestLimits(timeout=0.2)) as client,
        connected(client.port, b"GET /health HTTP/1.1\r\n") as slow,
    ):
        until(lambda: is_closed(slow) or not _drip(slow))


def _drip(client: socket.socket) -> bool:
    try:
        return client.send(b"X") == 1
    except ConnectionError:
        return False


def test_after_a_reply_the_next_head_has_its_time(folder: Path) -> None:
    def replies() -> int:
        with connected(client.port, ask % client.port) as slow:
            return rest_of(slow).count(b"200 OK")

    ask = b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\n\r\nG"
    with serving(folder, limits=RequestLimits(timeout=0.2)) as client:
        until(lambda: replies() == 1)  # none where this process was too slow to send the first head


def test_who_sends_half_a_body_is_told_and_closed(folder: Path) -> None:
    limits = RequestLimits(timeout=0.05)
    with serving(folder, "", limits, LIMITS) as client, connected(client.port, HALF_BODY % client.port) as slow:
        reply = rest_of(slow)
        assert reply.startswith(b"HTTP/1.1 408 ") and b"did not arrive within 0.05 seconds" in reply
        assert client.health().code == 200


def test_a_head_without_end_is_closed_before_its_time(folder: Path) -> None:
    with serving(folder, limits=RequestLimits(timeout=600)) as client, connected(client.port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                slow.sendall(b"x" * (1 << 16))


def test_who_does_not_take_its_reply_is_closed() -> None:
    whole = 64 << 20

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(whole)})

    def received() -> int:
        with connected(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") as slow:
            until(lambda: bool(server.server_state.total_requests) and not server.server_state.connections)
            return len(rest_of(slow))

    with (
        listener_at("127.0.0.1", 0, "") as listener,
        running(lambda: app, RequestLimits(timeout=0.5), listener) as server,
    ):
        port = listener.getsockname()[1]
        assert received() < whole


@pytest.mark.parametrize("sent", [b"", b"GET /hea", HALF_BODY])
def test_when_all_places_are_taken_the_longest_wait_ends(folder: Path, sent: bytes) -> None:
    with serving(folder, limits=RequestLimits(timeout=600, connections=8)) as client, ExitStack() as opened:
        sent = sent % client.port if b"%d" in sent else sent
        slow = []
        for i in range(12):
            slow.append(opened.enter_context(connected(client.port, sent)))
            if i >= 4:  # one address has half of the places
                until(partial(is_closed, slow[i - 4]))
        assert client.health().code == 200
        until(partial(is_closed, slow[8]))
        assert not any(map(is_closed, slow[9:]))


def test_one_address_does_not_take_the_places_of_another(folder: Path) -> None:
    with serving(folder, limits=RequestLimits(timeout=600, connections=4)) as client, ExitStack() as opened:
        other = opened.enter_context(connected(client.port, b"GET /health HTTP/1.1\r\n", "127.0.0.2"))
        for _ in range(6):
            opened.enter_context(connected(client.port))
        other.sendall(b"Host: localhost:%d\r\nConnection: close\r\n\r\n" % client.port)
        assert b" 200 " in rest_of(other).partition(b"\r\n")[0]


def test_health_is_told_while_more_connections_are_open_than_files_may_be(folder: Path) -> None:
    command = f"ulimit -n 128; exec {sys.executable} -P -m icl_curate.cli serve -m bm25 --port 0 -w {folder}"
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    client = Client(int(process.stdout.readline().rpartition(":")[2]))
    with ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(connected(client.port, b"GET /hea"))
        assert client.health().code == 200
    process.terminate()
    _, log = process.communicate(timeout=PATIENCE)
    assert (process.returncode, len(log.splitlines()) <= 3) == (0, True), log


def test_an_upload_that_is_broken_off_is_no_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(folder) as client:
        with connected(client.port, HALF_BODY % client.port):
            pass
        assert client.health().code == 200
    assert not caplog.records


def test_what_nobody_waits_for_any_more_is_not_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in front of others, and not counted as waiting."""
    begun, go_on, left, answered = threading.Event(), threading.Event(), threading.Event(), list[str]()
    selected, ask = Service.answer, Batches.ask

    def answer(self: Service, asks: Sequence[Ask]) -> Sequence[Found]:
        begun.set()
        go_on.wait(PATIENCE)
        answered.extend(query.input for ask in asks for query in ask.queries)
        return selected(self, asks)

    async def asked(self: Batches, one: Ask) -> list[dict[str, Any]]:
        try:
            return await ask(self, one)
        finally:
            left.set()

    monkeypatch.setattr(Service, "answer", answer)
    monkeypatch.setattr(Batches, "ask", asked)
    many = 3 * AT_ONCE
    body = json.dumps({"queries": [f"card {n}" for n in range(many)], "method": "bm25"}).encode()
    with serving(folder, limits=RequestLimits(waiting=many)) as client:
        head = f"POST /select HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
        with connected(client.port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body):
            assert begun.wait(PATIENCE)
        assert left.wait(PATIENCE)
        go_on.set()
        assert client.select(query="my card", method="bm25").code == 200
    assert len(answered) == AT_ONCE + 1


def test_what_repeats_is_told_once_a_minute() -> None:
    sparing, told = Sparing(), []
    for second, text in [*((0.01 * i, "out of files") for i in range(1000)), (11, "disk full"), (61, "out of files")]:
        record = logging.makeLogRecord({"msg": text, "levelno": logging.ERROR, "created": 1e9 + second})
        if sparing.filter(record):
            told.append((text, record.again))
    assert told == [("out of files", 0), ("disk full", 0), ("out of files", 999)]


@pytest.mark.parametrize(
    ("origins", "own"),
    [
        ([], True),
        (["http://localhost:8737"], True),
        (["https://select.example"], True),
        (["https://SELECT.example:443"], True),
        (["http://select.example"], False),
        (["https://evil.example"], False),
        (["https://evil.example#https://localhost:8737"], False),
        (["null"], False),
        (["file://"], False),
        (["http://localhost:8737", "https://evil.example"], False),
    ],
)
def test_pages_of_other_sites_are_refused(origins: list[str], own: bool) -> None:
    assert is_own_page(origins, own_hosts([*LOOPBACK, "select.example:443"], 8737)) == own


def test_a_page_of_another_site_gets_nothing(client: Client) -> None:
    body = b'{"query": "my card"}'
    foreign = client.request("POST", "/select", body, SENT | {"Origin": "https://evil.example"})
    assert (foreign.code, foreign.fields["error"]) == (403, "a page of another site asks")
    own = client.request("POST", "/select", body, SENT | {"Origin": f"http://localhost:{client.port}"})
    assert own.code == 200


@pytest.mark.parametrize(
    "ask",
    [
        {"query": "x" * 101},
        {"queries": ["a", {"query": "a", "context": "x" * 101}]},
        {"query": "a", "options": ["x", "x" * 101]},
        {"query": "a", "history": [{"role": "user", "content": "x" * 101}]},
        {"query": {"input": "a", "tier": "x" * 101}},
        {"query": {"input": "a", "tier": [["x" * 95]]}},
    ],
)
def test_a_text_has_a_limit(ask: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a text has 101 characters"):
        read(json.dumps(ask).encode(), SETTINGS, RequestLimits(text=100))


def test_a_worker_of_a_busy_machine_has_time_to_load() -> None:
    assert configured(Starlette).timeout_worker_healthcheck >= 60


def test_what_is_in_flight_at_the_end_is_told_to_come_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def answer(self: Service, asks: Sequence[Ask]) -> list[Any]:
        begun.set()
        go_on.wait(PATIENCE)
        return [[{}] for _ in asks]

    monkeypatch.setattr(Service, "answer", answer)
    monkeypatch.setattr("icl_curate.serving.run.GRACE", 0.1)
    with listener_at("127.0.0.1", 0, "") as listener, ThreadPoolExecutor(1) as threads:
        port = listener.getsockname()[1]
        served = Served(folder, SETTINGS, own_hosts(LOOPBACK, port))
        with running(partial(make_app, served), LIMITS, listener) as server:
            reply = threads.submit(Client(port).select, query="my card")
            assert begun.wait(PATIENCE)
            server.should_exit = True
            try:
                told = reply.result(PATIENCE)
            finally:
                go_on.set()
    assert (told.code, told.fields["error"], told.headers["retry-after"]) == (503, "the server is ending", "1")


@pytest.mark.parametrize("workers", [1, 2])
def test_its_end_does_not_wait_for_an_encoders_server(tmp_path: Path, workers: int) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"input": f"my card {i}", "output": "x"}) + "\n" for i in range(4)))
    with Server() as encoder, ThreadPoolExecutor(1) as threads:
        plan = IndexPlan(paths=(str(pool),), encoder="openai:stub", access=Access(encoder.url), near_duplicate=1.0)
        index_pool(Workspace.create(tmp_path / "w"), plan)
        options = ["-m", "dense", "-w", str(tmp_path / "w"), "--port", "0", "--workers", str(workers)]
        own = {"ENCODER": "openai:stub", "ENCODER_URL": encoder.url, "TIMEOUT": "3600"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "icl_curate.cli", "serve", *options],
            env=os.environ | {f"ICL_CURATE_{name}": value for name, value in own.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        client = Client(int(process.stdout.readline().rpartition(":")[2]))
        encoder.held = "a question"
        asked = threads.submit(client.select, query="a question")
        until(lambda: encoder.in_flight > 0)
        process.send_signal(signal.SIGINT if workers == 1 else signal.SIGTERM)
        if workers == 1:  # a second Ctrl-C does not wait for requests, either
            until(lambda: not _listens(client.port))
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        assert asked.exception(PATIENCE) or asked.result().code == 503
    assert (process.returncode, out) == (0, ""), err
    assert "Traceback" not in err


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(("workers", "ended"), [(1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGTERM)])
def test_it_serves_until_it_is_interrupted(folder: Path, tmp_path: Path, workers: int, ended: signal.Signals) -> None:
    options = ["-m", "bm25", "-w", str(folder), "--port", "0", "--workers", str(workers)]
    token = tmp_path / "token"
    token.write_text(f"{TOKEN.replace(' ', '-')}\n")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "icl_curate.cli", "serve", *options, "--token-file", str(token)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    client = Client(int(process.stdout.readline().rpartition(":")[2]))
    given = {"Authorization": f"Bearer {token.read_text().strip()}"}
    found = client.request("POST", "/select", b'{"query": "number 7"}', SENT | given)
    assert ids(found.fields)[0] == "d7"
    assert client.select(query="number 7").code == 401
    process.send_signal(ended)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, len(err.splitlines())) == (0, "", 1), err
