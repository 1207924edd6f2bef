"""The identity of a call, and the conversion between an answer and its row in the workspace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..store.calls import Call, FailedCall
from .types import Answer, Backend, Capabilities, Failure, Request

SCHEMA = 1
"""Version of the key. Raising it invalidates every cached answer, so a golden test pins the key."""


def canonical(value: Any) -> str:
    """JSON with exactly one form for each value: sorted keys, no white space, ASCII, no nan."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def call_key(identity: Mapping[str, Any], request: Request) -> bytes:
    """16 bytes (blake2b) over everything that can change the answer: the backend's identity, the messages, the
    choices, whether they are scored, every sampling field and the repeat, whether an answer is
    one line. Timeouts, retries, prices are not in it.
    """
    sampling = request.sampling
    content = {
        "schema": SCHEMA,
        "llm": dict(identity),
        "messages": [[message.role, message.content] for message in request.prompt.messages],
        "choices": list(request.prompt.choices),
        "score": bool(request.score),
        "sampling": {
            "max_tokens": int(sampling.max_tokens),
            "temperature": float(sampling.temperature),  # 0 and 0.0 are the same temperature
            "top_p": float(sampling.top_p),
            "seed": int(sampling.seed),
            "stop": list(sampling.stop),
            "repeat": int(sampling.repeat),
        },
    }
    if request.prompt.one_line and not request.score:  # a local model stops at the end of the line
        content["one_line"] = True
    return hashlib.blake2b(canonical(content).encode("ascii"), digest_size=16).digest()


def label(backend: Backend) -> str:
    """The LLM's name in tables: its spec, and the server if one was given."""
    server = backend.identity().get("base_url")
    return f"{backend.spec} at {server}" if server else backend.spec


def to_call(key: bytes, llm: str, answer: Answer) -> Call:
    return Call(
        key,
        llm,
        answer.model,
        answer.text,
        answer.tokens,
        answer.logprobs,
        answer.option_logprobs,
        answer.finish,
        answer.tokens_in,
        answer.tokens_out,
        answer.latency,
        answer.attempts,
        answer.entropies,
    )


def to_failed(key: bytes, llm: str, failure: Failure) -> FailedCall:
    return FailedCall(key, llm, failure.kind, failure.message)


def to_answer(call: Call, *, cached: bool = True) -> Answer:
    return Answer(
        text=call.text,
        tokens=call.tokens,
        logprobs=call.logprobs,
        option_logprobs=call.option_logprobs,
        finish=call.finish,
        tokens_in=call.tokens_in,
        tokens_out=call.tokens_out,
        latency=call.latency,
        attempts=call.attempts,
        model=call.model,
        cached=cached,
        entropies=call.entropies,
    )


def dump_capabilities(found: Capabilities) -> str:
    return canonical(asdict(found))


def load_capabilities(text: str) -> Capabilities:
    values = json.loads(text)
    return Capabilities(**{**values, "notes": tuple(values.get("notes", ()))})
