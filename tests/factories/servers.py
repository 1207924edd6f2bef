"""A small OpenAI-compatible server for tests: over real HTTP on 127.0.0.1, deterministic answers, faults on demand."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .patience import PATIENCE

Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers, body."""

Raw = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes a reply of its own, status line and all, for as long as it likes; then the connection ends."""


def answer_to(text: str) -> str:
    """What the server answers to a prompt: the same words for the same prompt."""
    return "word " + hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def tokens_in(text: str) -> int:
    return len(text) // 4 + 5


def tokenise(text: str) -> list[str]:
    """Words with the white space before them, as byte-level tokenisers do."""
    tokens: list[str] = []
    for character in text:
        if tokens and (character.isalnum() and (tokens[-1][-1].isalnum() or tokens[-1] == " ")):
            tokens[-1] += character
        else:
            tokens.append(character)
    return tokens


def likeliest(text: str, token: str) -> list[dict[str, Any]]:
    """The token and another that takes half of what is left."""
    own = logprob(text, token)
    other = math.log(max((1.0 - math.exp(own)) / 2, 1e-9))
    return [{"token": token, "logprob": own, "bytes": None}, {"token": "other", "logprob": other, "bytes": None}]


def logprob(before: str, token: str) -> float:
    """By a hash of what stands before; the first word of every answer is the likeliest everywhere."""
    if token.strip() == "word":
        return -0.02
    digest = hashlib.blake2b(f"{before[-40:]}|{token}".encode(), digest_size=4).digest()
    return -0.05 - int.from_bytes(digest, "big") / 2**32 * 3


def vector_of(text: str, dimension: int) -> list[float]:
    """The embedding of a text, not of length 1: the share of its words by their hash."""
    vector = [0.01] * dimension
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") % dimension] += 2.0
    return vector


@dataclass
class Call:
    """One request as the server saw it; ``answered`` is set once a good reply is on the wire."""

    path: str
    body: Mapping[str, Any]
    text: str
    at: float
    headers: Mapping[str, str]
    status: int = 0
    answered: bool = False


Fault = Callable[["Server", Call, int], "Reply | Raw | str | None"]
"""Given the call and how often this prompt came before: a reply of its own, "drop", "stall", or None for a good one."""


@dataclass
class Server:
    """Use as a context manager. ``delay``: seconds before a good answer; ``held``: good answers to
    prompts that contain it wait for `let_go`; ``capacity``: calls at once, then 429;
    ``odd_models``: ``fault`` may answer for the list of models, too; ``echoes``: prompts of one request; ``shifted``:
    each token of an echo has the log-probability of the next."""

    fault: Fault = lambda server, call, seen: None
    delay: float = 0.0
    held: str = ""
    capacity: int = 10**9
    logprobs: bool = True
    echo: bool = False
    echoes: int = 1000
    shifted: bool = False
    chat: bool = True
    models: tuple[str, ...] = ("stub",)
    odd_models: bool = False
    max_model_len: int | None = None
    cut: int | None = None
    api_key: str | None = None
    dimension: int = 8
    most_texts: int = 10_000
    charge: int = 1  # tokens counted for each token of a text to encode
    calls: list[Call] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Server:
        self.loop = asyncio.new_event_loop()
        self.writers: set[asyncio.StreamWriter] = set()
        self.released = asyncio.Event()
        started: threading.Event = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self.loop)
            self.listener = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
            self.port = self.listener.sockets[0].getsockname()[1]
            started.set()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(PATIENCE)
        return self

    def let_go(self) -> None:
        """Send the answers that were held, and hold no more."""
        self.held = ""
        self.loop.call_soon_threadsafe(self.released.set)

    def hang_up(self) -> None:
        """Break every connection off."""
        for writer in list(self.writers):
            self.loop.call_soon_threadsafe(writer.transport.abort)

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self.listener.close()
            for writer in list(self.writers):
                writer.transport.abort()
            pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def asked(self, marker: str = "") -> list[Call]:
        """Calls whose prompt contains ``marker``: leaves a client's probes out."""
        return [call for call in self.calls if marker in call.text]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split()[1]
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        call = Call(path, body, _text_of(body), time.monotonic(), headers)
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = await self._reply(call)
        finally:
            self.in_flight -= 1
        if reply == "stall":
            await asyncio.sleep(600)
        if reply == "drop":
            writer.transport.abort()
            return False
        if callable(reply):
            call.status = 200
            await reply(writer)
            return False
        assert not isinstance(reply, str)
        status, extra, content = reply
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", *(f"{k}: {v}" for k, v in extra.items())]
        if "content-type" not in extra:
            lines.append("content-type: application/json")
        call.status = status
        call.answered = status == 200 and b'"choices"' in content
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return True

    async def _reply(self, call: Call) -> Reply | Raw | str:
        path = call.path.partition("?")[0]
        if path.endswith("/models") and self.odd_models and (fault := self.fault(self, call, 0)) is not None:
            return fault
        if path.endswith("/models"):
            extra = {"max_model_len": self.max_model_len} if self.max_model_len else {}
            return ok({"data": [{"id": model, **extra} for model in self.models]})
        if self.api_key and call.headers.get("authorization") != f"Bearer {self.api_key}":
            return error(
                401, "Incorrect API key provided: " + call.headers.get("authorization", "")[7:], "invalid_api_key"
            )
        if call.body.get("model") not in self.models:
            return error(404, f"The model `{call.body.get('model')}` does not exist.", "model_not_found")
        if self.in_flight > self.capacity:
            return error(429, "Rate limit reached", "rate_limit_exceeded", {"retry-after-ms": "50"})
        before = self.seen[call.text]
        self.seen[call.text] += 1
        fault = self.fault(self, call, before)
        if fault is not None:
            return fault
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.held and self.held in call.text:
            await self.released.wait()
        if path.endswith("/embeddings"):
            return self.embeddings(call)
        if path.endswith("/chat/completions"):
            return ok(self.chat_reply(call)) if self.chat else error(404, "Not Found")
        return self._completions(call)

    def embeddings(self, call: Call) -> Reply:
        texts = call.body["input"]
        if len(texts) > self.most_texts:
            return error(413, f"at most {self.most_texts} inputs")
        found = [vector_of(text, call.body.get("dimensions") or self.dimension) for text in texts]
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(found)]
        used = self.charge * sum(map(tokens_in, texts))
        return ok({"model": "stub-1", "data": data[::-1], "usage": {"prompt_tokens": used, "total_tokens": used}})

    def chat_reply(self, call: Call) -> dict[str, Any]:
        text = answer_to(call.text)
        pieces = tokenise(text)
        wanted = call.body.get("top_logprobs") or 0
        content = [
            {"token": t, "logprob": logprob(text, t), "bytes": None, "top_logprobs": likeliest(text, t)[:wanted]}
            for t in pieces
        ]
        with_logprobs = self.logprobs and call.body.get("logprobs")
        return {
            "model": "stub-1",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                    "logprobs": {"content": content} if with_logprobs else None,
                }
            ],
            "usage": self._usage(call.text, len(pieces)),
        }

    def _usage(self, text: str, out: int) -> dict[str, int]:
        count = tokens_in(text)
        return {"prompt_tokens": min(count, self.cut) if self.cut else count, "completion_tokens": out}

    def _completions(self, call: Call) -> Reply:
        prompts = call.body["prompt"] if isinstance(call.body["prompt"], list) else [call.body["prompt"]]
        if len(prompts) > self.echoes:
            return error(500, "assert isinstance(prompt, str)")
        choices, read, written = [], 0, 0
        for i, prompt in enumerate(prompts):
            text = " " + answer_to(prompt)
            out = tokenise(text) if call.body["max_tokens"] > 1 else tokenise(text)[:1]
            echoed = tokenise(prompt) if call.body.get("echo") and self.echo else []
            tokens = echoed + out
            before = "" if echoed else prompt
            values = [logprob(before + "".join(tokens[:j]), t) if j or before else None for j, t in enumerate(tokens)]
            if self.shifted and echoed:
                values = [*values[1:], -0.1]
            found = {"tokens": tokens, "token_logprobs": values, "text_offset": [-1] * len(tokens)}
            choices.append(
                {
                    "index": i,
                    "text": "".join(tokens),
                    "finish_reason": "stop",
                    "logprobs": found if self.logprobs and call.body.get("logprobs") is not None else None,
                }
            )
            read += tokens_in(prompt)
            written += len(out)
        return ok(
            {
                "model": "stub-1",
                "choices": choices[::-1],
                "usage": {"prompt_tokens": read, "completion_tokens": written},
            }
        )


def _text_of(body: Mapping[str, Any]) -> str:
    if "messages" in body:
        return "\n".join(str(message["content"]) for message in body["messages"])
    prompt = body.get("prompt", body.get("input", ""))
    return prompt if isinstance(prompt, str) else "\n".join(prompt)


def ok(body: object) -> Reply:
    return 200, {}, json.dumps(body).encode()


def page(text: str = "<html><body>gateway</body></html>", status: int = 200) -> Reply:
    return status, {"content-type": "text/html"}, text.encode()


def error(status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    return status, headers or {}, json.dumps({"error": {"message": message, "type": "stub", "code": code}}).encode()
