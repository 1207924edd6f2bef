"""A small OpenAI-compatible server on 127.0.0.1: counts what it is asked, and answers as badly as it is told."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Wire = Callable[[socket.socket], None]
"""Sends a reply itself; the connection is closed behind it."""
Fault = Callable[["Call"], "bytes | Wire | None"]
"""A reply of its own, whole with its head, or None for a good one."""


@dataclass
class Call:
    """One request for an answer. ``answered`` is set when a good reply was written to the socket."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    text: str
    at: float
    nth: int = 0
    answered: float = 0.0

    @property
    def key(self) -> str:
        """The bearer token that came with it."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass
class StubServer:
    """A context manager. ``marker``: what stands in every prompt of the work, and in no probe.

    The answer depends on the prompt alone, so a run that was killed and went on can be compared with one that was not.
    """

    labels: tuple[str, ...]
    marker: str
    delay: float = 0.0
    fault: Fault | None = None
    faulty_probes: bool = False
    calls: list[Call] = field(default_factory=list)
    other: list[Call] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> StubServer:
        self._lock = threading.Lock()
        self._open = True
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def good(self) -> Counter[str]:
        """Good answers written, by prompt."""
        return Counter(call.text for call in self.calls if call.answered)

    def paid_twice(self) -> int:
        return sum(count - 1 for count in self.good().values())

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(120)
        with connection, suppress(OSError, ValueError, KeyError), connection.makefile("rb") as stream:
            while self._one(connection, stream):
                pass

    def _one(self, connection: socket.socket, stream: Any) -> bool:
        first = stream.readline(65536).decode("latin-1")
        if not first:
            return False
        headers: dict[str, str] = {}
        while line := stream.readline(65536).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = stream.read(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        call = Call(first.split()[1], headers, body, text_of(body), time.monotonic())
        asks = self.marker in call.text
        with self._lock:
            (self.calls if asks else self.other).append(call)
            call.nth = self.seen[call.text]
            self.seen[call.text] += 1
        if self.fault is not None and (asks or self.faulty_probes):
            reply = self.fault(call)
            if callable(reply):
                reply(connection)
                return False
            if reply is not None:
                connection.sendall(reply)
                return True
        if not call.path.endswith("/chat/completions"):
            known = call.path.endswith("/models")
            connection.sendall(http(200 if known else 404, b'{"data": [{"id": "stub"}]}' if known else b"{}"))
            return True
        if self.delay:
            time.sleep(self.delay * (0.5 + digest(call.text) % 100 / 100))
        connection.sendall(http(200, json.dumps(self.completion(call)).encode()))
        call.answered = time.monotonic()
        return True

    def label(self, text: str) -> str:
        return self.labels[digest(text) % len(self.labels)]

    def completion(self, call: Call) -> dict[str, Any]:
        """A good reply, to be sent or spoilt."""
        text = self.label(call.text)
        pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
        tokens = [
            {
                "token": piece,
                "logprob": -0.05 - digest(call.text + piece) % 100 / 300,
                "bytes": None,
                "top_logprobs": [],
            }
            for piece in pieces
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "logprobs": {"content": tokens},
        }
        usage = {"prompt_tokens": len(call.text) // 4 + 5, "completion_tokens": len(pieces)}
        return {"id": "chat-1", "model": "stub-1", "choices": [choice], "usage": usage}


def digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=4).digest(), "big")


def text_of(body: Mapping[str, Any]) -> str:
    if "messages" in body:
        return "\n".join(str(message.get("content")) for message in body["messages"])
    prompt = body.get("prompt", "")
    return prompt if isinstance(prompt, str) else "\n".join(map(str, prompt))


def http(status: int, body: bytes, headers: Mapping[str, str] | None = None, *, length: int | None = None) -> bytes:
    """A whole HTTP/1.1 reply. A header of None is left out."""
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body) if length is None else length),
    } | dict(headers or {})
    lines = [f"HTTP/1.1 {status} Reply", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
