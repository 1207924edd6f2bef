"""``serve`` with clients that are slow, many, or pages of other sites: who is closed, who is answered, what is logged.

Judged: every slow connection ends, ``/health`` answers within a few seconds meanwhile, pages of others get 403, and the
log stays short.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .harness import Tally, wanted
from .world import World

OPTIONS = ("--timeout", "2")
FILES = 128
"""The limit of open files that the server runs under."""
ENDS, ANSWERS = 30.0, 5.0
"""Seconds within which a slow connection must end, and a prompt one be answered."""
LINES = 5
TOKEN = "a-token-of-the-fault-suite"
ASK = b"POST /select HTTP/1.1\r\nHost: localhost:%d\r\nAuthorization: Bearer " + TOKEN.encode()
BODY = ASK + b"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
SENT: dict[str, bytes] = {
    "nothing": b"",
    "one byte": b"G",
    "half a head": b"GET /health HTTP/1.1\r\nHost: loc",
    "half a head with the token": ASK,
    "a head and no body": BODY,
    "one byte of a body": BODY + b"{",
    "a body without the token": b"POST /select HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 100\r\n\r\n{",
    "a chunk without end": ASK + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    "the hello of TLS": b"\x16\x03\x01\x02\x00\x01",
    "a websocket": b"GET /select HTTP/1.1\r\nHost: localhost:%d\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
}
ORIGINS = ("https://evil.example", "null", "file://", "http://localhost:1", "http://localhost.evil.example", "x", "")


@dataclass
class Serving:
    port: int
    log: Path

    def answer(self, *headers: str, path: str = "/health") -> int:
        """The status of a prompt request, 0 for none in time."""
        head = "\r\n".join([f"GET {path} HTTP/1.1", f"Host: localhost:{self.port}", "Connection: close", *headers])
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), ANSWERS) as client:
            client.sendall(f"{head}\r\n\r\n".encode())
            return int(client.recv(100).split()[1])
        return 0

    def healthy(self) -> str:
        return "" if self.answer() == 200 else f"no answer within {ANSWERS:g} s"

    def quiet(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[1:]
        return "" if len(lines) <= LINES else f"{len(lines):,} lines in the log, the first: {lines[0][:100]}"


@contextmanager
def serving(world: World, name: str) -> Iterator[Serving]:
    words = [sys.executable, "-P", "-m", "icl_curate.cli", "serve", "-m", "bm25", "--port", "0", "-w", str(world.plain)]
    log = world.root / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *words, *OPTIONS],
            stdout=subprocess.PIPE, stderr=errors, env=world.commands.environment | {"ICL_CURATE_TOKEN": TOKEN},
        )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Serving(int(process.stdout.readline().rpartition(b":")[2]), log)
    finally:
        process.terminate()
        process.wait(30)


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("slow")
    draw = random.Random(seed)
    cases: dict[str, Callable[[Serving], list[str]]] = {}
    for name, sent in SENT.items():
        cases[f"{name}, once"] = lambda server, sent=sent: _ends(server, sent)
        cases[f"{name}, byte after byte"] = lambda server, sent=sent: _ends(server, sent, drip=True)
        for count in (200, 900):
            cases[f"{name}, {count} at once"] = lambda server, sent=sent, count=count: _many(server, sent, count)
    cases["a head without end"] = lambda server: _ends(server, b"GET / HTTP/1.1\r\nX: ", drip=True, piece=b"x" * 65536)
    cases["uploads broken off"] = _broken
    for origin in ORIGINS:
        for path in ("/health", "/select"):
            cases[f"Origin {origin!r} at {path}"] = lambda server, origin=origin, path=path: _foreign(
                server, origin, path
            )
    chosen = [name for name in cases if wanted(name)]
    for i, name in enumerate(draw.sample(chosen, len(chosen) // 8 or 1) if short else chosen):
        with serving(world, f"slow-{i}") as server:
            problems = cases[name](server)
            tally.case(name, [*problems, server.healthy(), server.quiet()], f"serve -m bm25 {' '.join(OPTIONS)}")
    return [tally]


def _open(server: Serving, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), ENDS)
    with suppress(OSError):
        client.sendall(sent % server.port if b"%d" in sent else sent)
    return client


def _ends(server: Serving, sent: bytes, drip: bool = False, piece: bytes = b"x") -> list[str]:
    latest = time.monotonic() + ENDS
    with _open(server, sent) as client, suppress(ConnectionError):
        client.settimeout(0.2)
        while time.monotonic() < latest:
            with suppress(TimeoutError):
                if drip:
                    client.sendall(piece)
                if not client.recv(65536):
                    return []
        return [f"open after {ENDS:g} s"]
    return []


def _many(server: Serving, sent: bytes, count: int) -> list[str]:
    with ExitStack() as opened:
        for _ in range(count):
            with suppress(OSError):
                opened.enter_context(_open(server, sent))
        return [server.healthy()]


def _broken(server: Serving) -> list[str]:
    for _ in range(50):
        _open(server, BODY + b"{").close()
    problem = server.healthy()
    log = server.log.read_text(errors="replace")
    return [problem, "ClientDisconnect in the log" if "ClientDisconnect" in log else ""]


def _foreign(server: Serving, origin: str, path: str) -> list[str]:
    status = server.answer(f"Origin: {origin}", f"Authorization: Bearer {TOKEN}", path=path)
    return [] if status == 403 else [f"answered {status}"]
