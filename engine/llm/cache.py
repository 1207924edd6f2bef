"""The identity of a call, and what the workspace keeps of LLMs: answers, capabilities, and the dearest bill of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

from ..pool.prompts import AnswerForm
from ..store import calls
from ..store.calls import Call
from ..store.workspace import Workspace
from .budget import Budget
from .types import Answer, Backend, Capabilities, Request

SCHEMA = 1
"""Version of the key. Raising it invalidates every cached answer, so a golden test pins the key."""

_STORED = tuple(field.name for field in fields(Call) if field.name not in ("key", "llm"))
"""What the row of an answer has of it."""


def canonical(value: Any) -> str:
    """JSON with exactly one form for each value: sorted keys, no white space, ASCII, no nan."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def call_key(identity: Mapping[str, Any], request: Request) -> bytes:
    """16 bytes (blake2b) over everything that can change the answer: the backend's identity, the messages, the
    choices, whether they are scored, every sampling field and the repeat, whether an answer is one line. Fields of
    later releases are in it where they are set. Timeouts, retries, prices are not in it.
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
    prompt = request.prompt
    if prompt.stop or prompt.reasons:  # a completion then ends at no blank line
        content["ends"] = False
    if request.score and prompt.form != AnswerForm():
        content["written"] = [prompt.form.write(choice) for choice in prompt.choices]
    if sampling.response_format:
        content["response_format"] = sampling.response_format
    if prompt.one_line and not request.score and not (prompt.reasons and _ends_lines(identity)):
        content["one_line"] = True
    return hashlib.blake2b(canonical(content).encode("ascii"), digest_size=16).digest()


def other_key(identity: Mapping[str, Any], request: Request) -> bytes | None:
    """The key that the same request has if its answer is one line for only one of two readers; None for an LLM that
    stops at the end of the line, or where options are scored. To a server or a program it is the same request."""
    if request.score or _ends_lines(identity):
        return None
    prompt = replace(request.prompt, one_line=not request.prompt.one_line)
    return call_key(identity, replace(request, prompt=prompt))


def _ends_lines(identity: Mapping[str, Any]) -> bool:
    """Whether the LLM stops at the end of the line where an answer is one, and gives no reasons before it."""
    return identity.get("backend") not in ("openai", "program")


def label(backend: Backend) -> str:
    """The LLM's name in tables: its spec, and the server if one was given."""
    server = backend.identity().get("base_url")
    return f"{backend.spec} at {server}" if server else backend.spec


def to_call(key: bytes, llm: str, answer: Answer) -> Call:
    return Call(key, llm, **{name: getattr(answer, name) for name in _STORED})


def to_answer(call: Call, *, cached: bool = True) -> Answer:
    return Answer(**{name: getattr(call, name) for name in _STORED}, cached=cached)


def dump_capabilities(capabilities: Capabilities) -> str:
    return canonical(asdict(capabilities))


def load_capabilities(text: str) -> Capabilities:
    values = json.loads(text)
    before = values.get("details", {}).get("dialect")  # of a server that was probed when ``apart`` was not stored
    apart = values.get("apart", isinstance(before, Mapping) and before.get("endpoint") == "chat")
    return Capabilities(**{**values, "notes": tuple(values.get("notes", ())), "apart": apart})


@contextmanager
def bills_known(workspace: Workspace, budget: Budget) -> Iterator[None]:
    """The budget knows the dearest bill of its LLM, from its answers and from earlier runs; a dearer one that comes
    inside the block is kept. Without a limit of cost, and of a program, nothing is read or written."""
    if budget.max_cost is None or budget.price is None or budget.price.billed:
        yield
        return
    name = canonical({"dearest bill": budget.llm})  # beside the probe: a call may be paid and give no answer
    prices = (budget.price.input_per_million, budget.price.output_per_million)
    if (answered := calls.dearest(workspace, budget.llm, *prices)) is not None:
        budget.learn(*answered)
    if (stored := calls.capabilities(workspace, name)) is not None:
        budget.learn(*json.loads(stored))
    before = budget.dearest
    try:
        yield
    finally:
        bill = budget.dearest
        if bill is not None and bill.cost > (before.cost if before else 0.0):
            calls.save_capabilities(workspace, name, json.dumps([bill.tokens_in, bill.tokens_out]))
