"""``serve``: what it selects, whom it answers, and that it follows its workspace, over real HTTP on 127.0.0.1."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Query
from icl_curate.engine.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.version import VERSION

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
import uvicorn
from icl_curate.serving.app import Served, make_app
from icl_curate.serving.batches import Batches
from icl_curate.serving.hosts import LOOPBACK, is_own, listener_at, own_hosts
from icl_curate.serving.requests import Limits
from icl_curate.serving.run import LIMITS, configured, names_of
from icl_curate.serving.service import Ask, Service

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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
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
def serving(path: Path, token: str = "", limits: Limits = LIMITS) -> Iterator[Client]:
    """The application in a thread of this process."""
    listener = listener_at("127.0.0.1", 0, "")
    port = listener.getsockname()[1]
    service = Service(path, SETTINGS, looks=0.01)
    served = Served(path, SETTINGS, own_hosts([*LOOPBACK, "select.example"], port), token, limits)
    server = uvicorn.Server(configured(partial(make_app, served, service)))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Client(port)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("serving")
    pool = root / "pool.jsonl"
    rows = [
        {"id": f"d{i}", "input": f"my {WORDS[i % 5]} number {i} {WORDS[i % 3]}", "output": WORDS[i % 5], "source": "s"}
        for i in range(ROWS)
    ]
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index_pool(Workspace.create(root / "w"), IndexPlan((str(pool),), encoder=None, near_duplicate=1.0))
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
    deadline = time.monotonic() + 30
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
    for i in (0, 63, 64, 149):
        alone = client.select(query=asked[i], k=2).fields
        assert found["results"][i] == {key: alone[key] for key in alone if key != "k"}


def test_earlier_turns_of_a_query_are_searched(client: Client) -> None:
    turns = [{"role": "user", "content": "where is my parcel"}, {"role": "assistant", "content": "on its way"}]
    found = client.select(query="and the other?", history=turns, k=1).fields["demonstrations"]
    assert "parcel" in {one["word"] for one in found[0]["words"]}
    alone = client.select(query="and the other?", k=1).fields["demonstrations"]
    assert "parcel" not in {one["word"] for shot in alone for one in shot.get("words", [])}


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
        (b'{"query": "a", "k": true}', "'k' is not"),
        (b'{"query": "a", "k": -1}', "'k' is not"),
        (b'{"query": "a", "method": "bm26"}', "did you mean 'bm25'"),
        (b'{"query": "a", "method": 1}', "'method' is not"),
        (b'{"query": "a", "options": "yes"}', "'options' is not"),
        (b'{"query": "a", "context": 1}', "'context' is not"),
        (b'{"query": "a", "history": "b"}', "'history' is not"),
        (b'{"query": "a", "history": [{"role": "user"}]}', "not exactly 'role' and 'content'"),
        (b'{"query": "a", "history": [{"role": "tool", "content": "b"}]}', "not a text of system or user"),
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


@pytest.mark.parametrize(
    ("verb", "path", "headers", "code"),
    [("GET", "/select", SENT, 405), ("POST", "/", SENT, 404), ("POST", "/select", {"Content-Type": "text/plain"}, 415)],
)
def test_other_requests_are_told_what_there_is(
    client: Client, verb: str, path: str, headers: Mapping[str, str], code: int
) -> None:
    found = client.request(verb, path, b"{}", headers)
    assert found.code == code and found.fields["error"] and found.fields["fix"]


def test_what_the_workspace_lacks_is_told(client: Client) -> None:
    found = client.select(query="my card", method="dense")
    assert (found.code, found.fields["fix"]) == (409, "icl-curate index --encoder all-MiniLM-L6-v2")


def test_limits_of_body_and_queue(folder: Path) -> None:
    with serving(folder, limits=Limits(body=100, waiting=1)) as client:
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
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, len(err.splitlines())) == (0, "", 1), err
