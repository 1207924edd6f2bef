"""Sixty ways in which a server answers badly, on one query of four; and redirects, keys and prompts to another host.

Judged: no traceback, one error line or a clean result, no raw control byte on a terminal, bounded memory and time, the
key never shown, nothing sent to the second host. Then the server is good again: the command ends well, and what it
had paid for is not asked again.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .harness import (
    KEY,
    Result,
    Tally,
    complaint,
    holds_key,
    raw_bytes,
    scratch,
    wanted,
)
from .server import Call, StubServer, Wire, http
from .world import LABELS, MARKER, World, asking, with_key

LONG = 60.0
"""Seconds a command may take with a patience of 3 s, two attempts, and other work on the machine."""
ROOM = 4 << 30
MEMORY = 1_500_000
"""KiB: the warm parent has some 400,000 already."""
ESCAPES = "\x1b]52;c;aGk=\x07 \x1b[2J\x1b[31m \x9b5m \u202eevil \x07\x08\x7f"
Build = Callable[[Call, StubServer], "bytes | Wire"]


def good(call: Call, server: StubServer) -> dict[str, Any]:
    return server.completion(call)


def changed(**paths: Any) -> Build:
    """A good reply with one place changed: ``choices__0__message__content=…``; a callable gives the value."""

    def build(call: Call, server: StubServer) -> bytes:
        told: Any = good(call, server)
        for path, value in paths.items():
            at: Any = told
            *way, last = [int(part) if part.isdigit() else part for part in path.split("__")]
            for part in way:
                at = at[part]
            at[last] = value
        return http(200, json.dumps(told).encode())

    return build


def body(raw: bytes, status: int = 200, **headers: str | None) -> Build:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call, server: http(status, raw, named)


def error(status: int, message: str, code: str | None = None, **headers: str) -> Build:
    return body(json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode(), status, **headers)


def wire(send: Callable[[socket.socket, bytes], None]) -> Build:
    """Give the connection and a good reply to a function that sends it in its own way."""

    def build(call: Call, server: StubServer) -> Wire:
        whole = http(200, json.dumps(good(call, server)).encode())
        return lambda connection: send(connection, whole)

    return build


def _slow(connection: socket.socket, whole: bytes) -> None:
    for i in range(0, len(whole), 4):
        connection.sendall(whole[i : i + 4])
        time.sleep(0.5)


def _slow_head(connection: socket.socket, whole: bytes) -> None:
    for byte in whole[:60]:
        connection.sendall(bytes([byte]))
        time.sleep(0.5)


def _stall(connection: socket.socket, whole: bytes) -> None:
    time.sleep(30)


def _endless(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    until = time.monotonic() + 45
    while time.monotonic() < until:
        connection.sendall(chunk)
        time.sleep(0.005)


def _endless_fast(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    until = time.monotonic() + 45
    while time.monotonic() < until:
        connection.sendall(b"[" * (1 << 20))
        time.sleep(0.01)


def _endless_head(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    until = time.monotonic() + 45
    while time.monotonic() < until:
        connection.sendall(b"x-more: " + b"y" * 4000 + b"\r\n")


def _continue(connection: socket.socket, whole: bytes) -> None:
    until = time.monotonic() + 45
    while time.monotonic() < until:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


def _huge(connection: socket.socket, whole: bytes) -> None:
    size = 400 << 20
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    connection.sendall(head.encode())
    for _ in range(400):
        connection.sendall(b" " * (1 << 20))


def _dropped(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(whole[: len(whole) // 2])


def _reset(connection: socket.socket, whole: bytes) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _no_http(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(b"\x16\x03\x01\x02\x00 this is no HTTP " + ESCAPES.encode() + b"\r\n\r\n")


def _chunk_lies(connection: socket.socket, whole: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFF\r\n{}\r\n")


def _bomb(levels: int = 1) -> bytes:
    data = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b" " * (1 << 20)
    made = b"".join(data.compress(block) for _ in range(500)) + data.flush()
    for _ in range(levels - 1):
        made = gzip.compress(made)
    return made


def _echoed(status: int) -> Build:
    def build(call: Call, server: StubServer) -> bytes:
        told = {"error": {"message": f"Incorrect API key provided: {call.key}. {ESCAPES}", "code": "invalid_api_key"}}
        return http(status, json.dumps(told).encode())

    return build


def _key_in_text(call: Call, server: StubServer) -> bytes:
    told = good(call, server)
    told["choices"][0]["message"]["content"] = f"your key is {call.key}"
    return http(200, json.dumps(told).encode())


TOKEN = "choices__0__logprobs__content__0__logprob"
TEXT = "choices__0__message__content"
NESTED = b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
KINDS: dict[str, Build] = {
    "lone surrogate in the text": changed(**{TEXT: "refund \ud800"}),
    "escapes in the text": changed(**{TEXT: "refund " + ESCAPES}),
    "NUL in the text": changed(**{TEXT: "refund\0"}),
    "a megabyte of text": changed(**{TEXT: "refund " * 150_000}),
    "text of another type": changed(**{TEXT: 7}),
    "text is a list": changed(**{TEXT: [{"type": "text", "text": "refund"}]}),
    "text is null": changed(**{TEXT: None}),
    "empty text": changed(**{TEXT: ""}),
    "huge prompt_tokens": changed(usage__prompt_tokens=10**30),
    "prompt_tokens of 2 to 63": changed(usage__prompt_tokens=2**63),
    "negative tokens": changed(usage__prompt_tokens=-5),
    "tokens as text": changed(usage__prompt_tokens="many"),
    "tokens not finite": changed(usage__prompt_tokens=float("inf")),
    "tokens NaN": changed(usage__completion_tokens=float("nan")),
    "usage is a list": changed(usage=[]),
    "usage is null": changed(usage=None),
    "NaN log-probability": changed(**{TOKEN: float("nan")}),
    "infinite log-probability": changed(**{TOKEN: float("-inf")}),
    "positive log-probability": changed(**{TOKEN: 5.0}),
    "log-probability as text": changed(**{TOKEN: "x"}),
    "log-probability of 10 to 400": lambda c, s: http(
        200, json.dumps(good(c, s)).replace('"logprob": -', '"logprob": -1' + "0" * 400).encode()
    ),
    "log-probabilities are a number": changed(choices__0__logprobs=3),
    "tokens are null": changed(choices__0__logprobs__content=[None]),
    "surrogate in a token": changed(choices__0__logprobs__content__0__token="\udfff"),
    "surrogate in the model's name": changed(model="stub\udc00"),
    "model's name is a list": changed(model=["x"]),
    "model's name with escapes": changed(model=ESCAPES),
    "no choices": changed(choices=[]),
    "choices null": changed(choices=None),
    "choices of numbers": changed(choices=[1]),
    "choices an object": changed(choices={"0": {}}),
    "message missing": changed(choices=[{"index": 0, "finish_reason": "stop"}]),
    "finish_reason a list": changed(choices__0__finish_reason=[1]),
    "error within 200": body(b'{"error": {"message": "overloaded ' + ESCAPES.encode("unicode_escape") + b'"}}'),
    "error is a number": body(b'{"error": 5}'),
    "nested lists": body(NESTED),
    "nested objects": body(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a number of a million digits": body(b'{"choices": ' + b"9" * 1_000_000 + b"}"),
    "an HTML page": body(b"<html>" + ESCAPES.encode() + b"</html>", content_type="text/html"),
    "empty body": body(b""),
    "half of the JSON": lambda c, s: http(200, json.dumps(good(c, s)).encode()[:-40]),
    "not UTF-8": body(b'{"choices": "\xff\xfe\xfa"}'),
    "UTF-16": lambda c, s: http(200, json.dumps(good(c, s)).encode("utf-16")),
    "an unknown charset": lambda c, s: http(
        200, json.dumps(good(c, s)).encode(), {"content-type": "application/json; charset=klingon"}
    ),
    "a charset that decodes to bytes": lambda c, s: http(
        200, json.dumps(good(c, s)).encode(), {"content-type": "application/json; charset=zlib"}
    ),
    "content-type audio": lambda c, s: http(200, json.dumps(good(c, s)).encode(), {"content-type": "audio/mp3"}),
    "event stream": body(b'data: {"choices": []}\n\ndata: [DONE]\n\n', content_type="text/event-stream"),
    "gzip bomb": body(_bomb(), content_encoding="gzip"),
    "gzip of gzip": body(_bomb(2), content_encoding="gzip, gzip"),
    "not gzip": body(b"plainly not", content_encoding="gzip"),
    "unknown encoding": body(b"{}", content_encoding="br2"),
    "400 with escapes": error(400, "bad " + ESCAPES),
    "400 that is long": error(400, "x" * 300_000),
    "400 with a traceback": error(400, "line one\nline two\nerror: forged\nfix: rm -rf ~"),
    "401 that shows the key": _echoed(401),
    "403 that shows the key": _echoed(403),
    "404 with escapes": error(404, "no model " + ESCAPES, "model_not_found"),
    "text that shows the key": _key_in_text,
    "402": error(402, "pay " + ESCAPES),
    "413": error(413, "too large"),
    "422 of pydantic": body(b'{"detail": [{"loc": ["body", 0], "msg": "\\u001b[2Jbad", "type": 5}]}', 422),
    "429, wait an hour": error(429, "slow down", None, retry_after="3600"),
    "429, wait until a date": error(429, "slow down", None, retry_after="Fri, 31 Dec 2999 23:59:59 GMT"),
    "429, wait nonsense": error(429, "slow down", None, retry_after="NaN\x1b[2J"),
    "429, quota": error(429, "You exceeded your current quota", "insufficient_quota"),
    "500 with escapes": error(500, ESCAPES),
    "503 page": body(b"<html>down</html>", 503, content_type="text/html"),
    "599": error(599, "?"),
    "204": body(b"", 204),
    "slow body": wire(_slow),
    "slow head": wire(_slow_head),
    "stalls": wire(_stall),
    "endless body": wire(_endless),
    "endless fast body": wire(_endless_fast),
    "endless head": wire(_endless_head),
    "continue for ever": wire(_continue),
    "huge body": wire(_huge),
    "dropped mid-body": wire(_dropped),
    "reset": wire(_reset),
    "no HTTP": wire(_no_http),
    "chunk sizes lie": wire(_chunk_lies),
}  # fmt: skip


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("replies")
    names = [name for name in KINDS if wanted(name)][:: 8 if short else 1]
    with ThreadPoolExecutor(workers) as several:
        for name, problems in zip(names, several.map(lambda name: one(world, name), names), strict=True):
            tally.case(name, problems, f"evaluate --llm openai:stub with the reply '{name}' to one query of four")
        probed = names[::3]
        for name, problems in zip(probed, several.map(lambda name: probing(world, name), probed), strict=True):
            tally.case(f"{name}, to the probe", problems, f"llm check --llm openai:stub with the reply '{name}'")
    for status in (301, 302, 307, 308) if wanted("redirect") else ():
        tally.case(f"redirect {status} to another host", redirected(world, status), "evaluate with a redirect")
    return [tally]


def one(world: World, name: str) -> list[str]:
    """Evaluate over four queries of which one is answered badly, on a terminal; then again, answered well."""
    with scratch(world.root, "reply") as folder, StubServer(LABELS, MARKER) as server:
        workspace = world.copy(world.plain, folder)

        unlucky = json.loads(world.test.read_text().splitlines()[1])["input"]
        server.fault = lambda call: KINDS[name](call, server) if unlucky in call.text else None
        words = (*asking(server, "evaluate", "-m", "zero", "--limit", "4"), "-w", workspace)
        first = world.commands.run_on_terminal(*words, environment=with_key(), limit=LONG, memory_more=ROOM)
        problems = judged(first, on_terminal=True)
        server.fault = None
        again = world.commands.run(*words, "--json", environment=with_key(), limit=LONG, memory_more=ROOM)
        problems += [complaint(again) and f"afterwards: {complaint(again)}"]
        if again.code:
            problems.append(f"does not go on: exit code {again.code}: {again.line}")
        if server.paid_twice():
            problems.append(f"answer lost: {server.paid_twice()} were asked again")
        problems += [f"the key is in {path}" for path in holds_key(workspace)]
        return problems


def judged(found: Result, *, on_terminal: bool = False) -> list[str]:
    if on_terminal:  # one stream: the line and the rest
        found.err = found.out
        raw = raw_bytes(found.out)
    else:
        raw = raw_bytes(found.err)
    problems = [complaint(found)]
    if raw and "raw control" not in problems[0]:
        problems.append(f"raw control bytes on the terminal: {sorted(set(raw))}")
    if found.peak > MEMORY:
        problems.append(f"memory: {found.peak >> 10} MiB")
    return problems


def probing(world: World, name: str) -> list[str]:
    with scratch(world.root, "probe") as folder, StubServer(LABELS, MARKER) as server:
        server.fault, server.faulty_probes = lambda call: KINDS[name](call, server), True
        words = ("llm", "check", "--llm", "openai:stub", "--base-url", server.url, "-w", folder / "w")
        found = world.commands.run_on_terminal(*words, environment=with_key(), limit=2 * LONG, memory_more=ROOM)
        return judged(found, on_terminal=True) + [f"the key is in {path}" for path in holds_key(folder)]


def redirected(world: World, status: int) -> list[str]:
    with (
        scratch(world.root, "redirect") as folder,
        StubServer(LABELS, MARKER) as server,
        StubServer(LABELS, MARKER) as other,
    ):
        elsewhere = f"http://localhost:{other.port}/v1/chat/completions"

        server.fault = lambda call: http(status, b"", {"location": elsewhere})
        words = (*asking(server, "evaluate", "-m", "zero", "--limit", "3"), "-w", world.copy(world.plain, folder))
        found = world.commands.run(*words, environment=with_key(), limit=LONG, memory_more=ROOM)
        problems = [complaint(found)]
        if other.calls:
            problems.append(f"prompts sent to another host: {len(other.calls)}")
        if any(KEY in str(call.headers) for call in (*other.calls, *other.other)):
            problems.append("key sent to another host")
        return problems
