"""How requests to an OpenAI-compatible server are written: servers and models differ in the fields they accept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...llm.types import BLOCK_END, Failure, Request
from . import replies

_REFUSES = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not allowed|not permitted|extra (?:inputs|fields)|not available"
    r"|not enabled|incompatible|disabled",
    re.IGNORECASE,
)
"""A field that the model does not accept at all, in contrast to a value out of range."""

OPTIONAL_FIELDS = ("top_logprobs", "logprobs", "temperature", "top_p", "seed", "stop", "max_tokens")
"""Fields of a request that can be left out."""

LIKELIEST = 5
"""Number of most likely tokens requested at each position of a chat answer, for its entropy; llama.cpp gives no
log-probabilities without them."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests to this server and model must be written. ``without``: fields that they refuse;
    ``several``: echoed prompts can share a request; ``thinks``: it writes what it thinks in front of its answers."""

    endpoint: str = "chat"
    without: tuple[str, ...] = ()
    logprobs: bool | None = None
    scoring: bool = False
    several: bool = True
    thinks: bool = False
    tokens_ratio: float = 1.0

    @property
    def asks_logprobs(self) -> bool:
        """Whether requests ask for log-probabilities."""
        return self.logprobs is not False and "logprobs" not in self.without


def generation_request(model: str, request: Request, dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Path and body of a generation. Every sampling field is sent, because servers choose their own values for missing
    ones."""
    sampling = request.sampling
    chat = dialect.endpoint == "chat"
    stop = list(sampling.stop) if chat or dialect.thinks else [BLOCK_END, *sampling.stop]
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        # samples of one prompt must differ, and an identical seed would make them equal
        "seed": sampling.seed + sampling.repeat,
    }
    if stop:
        body["stop"] = stop[:4]  # the maximum of the API
    if chat:
        body["messages"] = [{"role": m.role, "content": m.content} for m in request.prompt.messages]
        body["logprobs"], body["top_logprobs"] = True, LIKELIEST
    else:
        body["prompt"] = request.prompt.text
        body["logprobs"] = 1  # some servers allow no more
    if not dialect.asks_logprobs:
        del body["logprobs"]
        body.pop("top_logprobs", None)
    for field in dialect.without:
        if field == "max_tokens":
            body["max_completion_tokens"] = sampling.max_tokens
        body.pop(field, None)
    return ("/chat/completions" if chat else "/completions"), body


def refused_field(failure: Failure, dialect: Dialect) -> str | None:
    """The field of our request that the server rejects and that can be omitted."""
    if failure.kind != "request" or not _REFUSES.search(failure.message):
        return None
    message = failure.message.lower().replace("'max_completion_tokens'", "")
    if "log probabilit" in message or "logprob" in message or "top_logprobs" in message:
        message += " 'logprobs'"
    for field in OPTIONAL_FIELDS:
        if (
            field in message
            and field not in dialect.without
            and not (field == "logprobs" and not dialect.asks_logprobs)
        ):
            return field
    return None


def without_field(dialect: Dialect, field: str) -> Dialect:
    """The dialect for a server that refuses ``field``."""
    if field in dialect.without:  # another call in flight has found it already
        return dialect
    return replace(dialect, without=(*dialect.without, field))


def has_logprobs(reply: Mapping[str, Any]) -> bool:
    """Whether the first choice of a reply has log-probabilities."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, Mapping) and bool(first.get("logprobs"))


def echo_request(model: str, texts: Sequence[str]) -> dict[str, Any]:
    """Body of a request for the log-probabilities of ``texts``, given with one generated token."""
    return {"model": model, "prompt": list(texts), "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0.0}


def echoed_options(reply: Mapping[str, Any], text: str, options: Sequence[str]) -> list[tuple[float, ...]]:
    """The log-probabilities of each option after ``text``; raises `Malformed`."""
    choices = replies.choices_of(reply, len(options))
    return [replies.echoed_option(choice, text, option) for choice, option in zip(choices, options, strict=True)]
