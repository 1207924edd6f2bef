"""What a server refuses, in one word of `FailureKind`; whether it is asked again, when, and what the user can do.

Every form of an error here was seen from some server (OpenAI, vLLM, SGLang, llama.cpp, Ollama, TGI, LM Studio,
proxies). No text of a server is shown or stored with what looks like a key in it.
"""

from __future__ import annotations

import email.utils
import json
import math
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..base.errors import LLMError

LLM_KEY = "OPENAI_API_KEY"
ENCODER_KEY = "ICL_CURATE_ENCODER_KEY"
"""Environment variables."""

_SECRET = re.compile(r"\b(?:sk|pk|gsk|key|hf)[-_][A-Za-z0-9*_\-]{6,}|Bearer\s+\S+")


def key_in(variable: str) -> str:
    """The key in an environment variable, empty if there is none."""
    return os.environ.get(variable, "").strip()


SENT: set[str] = set()
"""Values of environment variables that went into headers or URLs."""

KEY_SIZE = 16
"""Characters from which such a value is taken for a key: a shorter one (``x``, ``EMPTY``) may be a word of an answer,
or a part of other words."""


def without_keys(text: str, least: int = KEY_SIZE) -> str:
    """The text without the user's own keys and what was `SENT`, of at least so many characters: one shorter than
    `KEY_SIZE` where it stands alone, a longer one inside words, too."""
    keys = {key_in(LLM_KEY), key_in(ENCODER_KEY), *SENT}
    for key in sorted((key for key in keys if len(key) >= least), key=len, reverse=True):
        alone = (r"(?:\b|(?=\W))", r"(?:\b|(?<=\W))") if len(key) < KEY_SIZE else ("", "")
        text = re.sub(re.escape(key).join(alone), "***", text)
    return text


def shorten(text: str, limit: int = 300) -> str:
    """One line without anything that looks like a key, in a form that can be stored."""
    line = _SECRET.sub("***", " ".join(storable(without_keys(text[:10_000], 1)).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def storable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate: JSON can contain them, UTF-8 (the workspace, a file) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


FIRST, LONGEST = 0.5, 30.0
"""Seconds of the first and of the longest pause before another attempt."""

_CONTEXT = re.compile(
    r"context[_ ]length|maximum context|context (?:size|window)|exceed_context_size|max_model_len"
    r"|prompt is too long|input is too long|longer than the maximum|too many (?:input )?tokens"
    r"|inputs?\W{1,3}(?:tokens|length).{0,80}must be",
    re.IGNORECASE | re.DOTALL,
)
_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
_FLAGGED = {"reasons", "flagged_input"}
"""What OpenRouter says of a prompt that it refuses, as ``metadata`` of an error that has the status of a wrong key."""
_REFUSAL_CODES = {"content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation_blocked"}
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_credits"}
_UNPAID = re.compile(r"credit balance is too low|insufficient (?:credits|balance)", re.IGNORECASE)
_NO_KEY = re.compile(r"api[ _]key (?:is )?(?:not valid|invalid)", re.IGNORECASE)
_MODEL_MISSING = re.compile(
    r"model.{0,120}(?:not exist|not found|no such|unknown|not supported here)|model_not_found", re.S
)

FailureKind = Literal[
    "rate_limit",
    "transient",
    "timeout",
    "context",
    "refusal",
    "auth",
    "quota",
    "not_found",
    "redirect",
    "capability",
    "setting",
    "missing",
    "malformed",
    "raised",
    "budget",
    "cancelled",
    "request",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer; ``missing``: a recording has none; ``setting``: what the user set is refused, or cannot
    be sent; ``raised``: a program failed. ``retry_after`` is the pause requested by the server, in seconds;
    ``unreachable``: no server replied at all (connection refused or closed). ``tokens_in`` and ``tokens_out`` are those
    of the reply, 0 if it does not tell them; ``calls``: the calls that it took, 0 if as many as an answer;
    ``status``: that of HTTP of a failure that may pass, 0 if there is none."""

    kind: FailureKind
    message: str
    retry_after: float | None = None
    attempts: int = 1
    unreachable: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    status: int = field(default=0, compare=False)

    @property
    def retryable(self) -> bool:
        return self.kind in {"rate_limit", "transient", "timeout", "malformed"}

    @property
    def paid(self) -> bool:
        """The server may charge for it: it read the prompt, or it may have."""
        return self.kind in {"timeout", "malformed", "refusal", "raised"} or self.tokens_in + self.tokens_out > 0

    @property
    def fatal(self) -> bool:
        """No other request of the run can succeed: stop the run."""
        return self.kind in {"auth", "quota", "not_found", "redirect", "capability", "setting"}

    @property
    def busy(self) -> bool:
        """The server has too many requests, or is not ready."""
        return self.kind == "rate_limit" or self.status in (503, 529)

    @property
    def gone(self) -> bool:
        """No server was found, or none behind a proxy."""
        return self.unreachable or self.status in (502, 504)


class Refused(Exception):
    """A rejected reply."""

    def __init__(self, kind: Literal["malformed", "redirect"], message: str) -> None:
        super().__init__(message)
        self.kind: Literal["malformed", "redirect"] = kind


def explained(failure: Failure, server: str, fixes: Mapping[str, str]) -> LLMError:
    """The error for a failure that ends the work. ``fixes``: by its kind, for a server that asks to ``wait``, and for
    ``unreachable`` ones."""
    if failure.kind == "timeout":
        return LLMError(f"{server} is too slow: {failure.message}", fixes["timeout"])
    if failure.retry_after is not None and failure.retry_after >= 1.0:
        what = f"{server} asks for a pause of {failure.retry_after:,.0f} s: {failure.message}"
        return LLMError(what, fixes["wait"])
    if failure.unreachable:
        return LLMError(f"{server} does not answer: {failure.message}", fixes["unreachable"])
    if failure.kind == "transient":
        return LLMError(f"{server} fails: {failure.message}", fixes["transient"])
    return LLMError(f"{server}: {failure.message}", fixes.get(failure.kind, "check the server's log"))


def pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the attempt after number ``attempt`` (1, 2, …): doubling from half a second up to thirty, with
    jitter so that calls that failed together are not retried together. The server's own request is the minimum: one
    that always asks for the same short pause would else see all attempts at once."""
    own = min(FIRST * 2.0 ** (attempt - 1), LONGEST) * random.uniform(0.5, 1.0)
    if retry_after is None:
        return own
    return max(own, retry_after + random.uniform(0.0, min(0.1 * retry_after + 0.05, 1.0)))


def failure_of(error: Exception, timeout: float) -> Failure:
    """Classify what a client of `client` raised for a request that had ``timeout`` seconds; raises what is none of the
    server's."""
    import httpx2
    import openai

    if isinstance(error, Refused):
        return Failure(error.kind, str(error))
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Failure("timeout", f"no answer within {timeout:g} s")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return Failure("transient", shorten(f"{type(cause).__name__}: {cause}"), unreachable=True)
    if isinstance(error, openai.APIStatusError):
        body = error.body if error.body is not None else error.response.text
        return failure_of_status(error.status_code, error.response.headers, body)
    if isinstance(error, UnicodeEncodeError):
        return Failure("request", f"the text is not valid Unicode: {error.reason}")
    if isinstance(error, openai.OpenAIError | httpx2.HTTPError):
        return Failure("malformed", shorten(f"{type(error).__name__}: {error}"))
    if isinstance(error, RecursionError):  # the official client serialises an error's body
        return Failure("malformed", "the error reply is nested too deeply")
    raise error


def failure_of_status(status: int, headers: Mapping[str, str], body: object) -> Failure:
    """Classify an HTTP error reply. ``body`` is the parsed JSON, or the text if it is not JSON."""
    error = _error_of(body)
    message = _message(status, error, body)
    codes = {str(error.get(field) or "").lower() for field in ("code", "type")}
    retry_after = retry_after_of(headers) if (delay := _delay_in(error)) is None else delay
    if _looks_like_context(status, codes, message):
        return Failure("context", message)
    metadata = error.get("metadata")
    if codes & _REFUSAL_CODES or (isinstance(metadata, Mapping) and metadata.keys() & _FLAGGED):
        return Failure("refusal", message)
    if codes & _QUOTA_CODES or status == 402 or (status == 400 and _UNPAID.search(message)):
        return Failure("quota", message)
    if status == 429:
        return Failure("rate_limit", message, retry_after, status=status)
    if status in (401, 403) or (status == 400 and _NO_KEY.search(message)):
        return Failure("auth", message)
    if status in (404, 405, 501) or (400 <= status < 500 and _MODEL_MISSING.search(message.lower())):
        return Failure("not_found", message)
    if status in (408, 409, 425) or status >= 500:
        return Failure("transient", message, retry_after, status=status)
    return Failure("request", message)


def _looks_like_context(status: int, codes: set[str], message: str) -> bool:
    if codes & _CONTEXT_CODES:
        return True
    if status in (413, 429) and "request too large for" in message.lower():  # more tokens than OpenAI allows a minute
        return True
    # a 429 may also mention "tokens", and a gateway's 502 page may contain anything
    return status in (400, 413, 422, 500) and bool(_CONTEXT.search(message))


def _error_of(body: object) -> Mapping[str, Any]:
    """The error object in its various wrappings; empty if there is none."""
    if isinstance(body, list) and body:  # Gemini's
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    error = body.get("error", body)
    if isinstance(error, str):
        return {**body, "message": error}
    return error if isinstance(error, Mapping) else {}


def _message(status: int, error: Mapping[str, Any], body: object) -> str:
    text = spelled(error.get("message") or error.get("detail") or (body if isinstance(body, str) else ""))
    if "<html" in text[:500].lower():
        text = "an HTML page"
    return f"HTTP {status}: {shorten(text)}" if text.strip() else f"HTTP {status}"


def spelled(message: object) -> str:
    """The value of a field that should be text, as text."""
    if isinstance(message, str):
        return message
    try:
        return json.dumps(message, default=str)
    except (RecursionError, ValueError):  # nested too deeply, or a number with thousands of digits
        return "(not to be read)"


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or as a date."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _seconds_until(value)
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def _delay_in(error: Mapping[str, Any]) -> float | None:
    """The pause that Gemini asks for, as ``{"retryDelay": "17s"}`` among its details."""
    details = error.get("details")
    told = (
        [detail.get("retryDelay") for detail in details if isinstance(detail, Mapping)]
        if isinstance(details, list)
        else []
    )
    delays = [re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?)s", delay) for delay in told if isinstance(delay, str)]
    return max((float(delay[1]) for delay in delays if delay), default=None)


def _seconds_until(date: str) -> float:
    try:
        return max(email.utils.parsedate_to_datetime(date).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def error_in(body: Mapping[str, Any]) -> Failure | None:
    """An error reply that came with status 200, as some proxies send it, or a generation that broke off."""
    choices = body.get("choices")
    kind: FailureKind = "malformed"
    if choices:
        first = choices[0] if isinstance(choices, list) else None
        if not isinstance(first, Mapping) or not (first.get("error") or first.get("finish_reason") == "error"):
            return None
        body, kind = (first if first.get("error") else body), "transient"
    elif not body.get("error"):
        return None
    error = _error_of(body)
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return failure_of_status(code, {}, body)
    told = error.get("message") or body.get("error") or "the generation broke off"
    return Failure(kind, f"an error with status 200: {shorten(spelled(told))}")
