"""What is sent to an OpenAI-compatible server, and what it replies. Pure functions over parsed JSON.

Servers and models differ in the fields that they accept. Every format of a reply was seen from some server (OpenAI,
vLLM, SGLang, llama.cpp, Ollama, TGI, LM Studio, proxies). Anything inconsistent is a `malformed` failure, never an
answer with an invented number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

from ...http.refusals import Failure, shorten, spelled, storable
from ...llm.reading import inside
from ...llm.types import BLOCK_END, DEFAULTS, Answer, LLMSettings, Request
from ...pool.records import Message
from ...store.request_fields import read_table

_REFUSES = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not allowed|not permitted|extra (?:inputs|fields)|not available"
    r"|not enabled|incompatible|disabled|deprecated|cannot both",
    re.IGNORECASE,
)
"""A field that the model does not accept at all, in contrast to a value out of range."""
_OF_FIELDS = ("request", "not_found")
"""Kinds of failures that may be of a field: "model x: unknown field 'seed'" reads as if there were no such model."""

CONTINUES = {"continue_final_message": True, "add_generation_prompt": False}
"""Has a server go on with the begun answer of a prompt: vLLM needs it said, others do it without or refuse it."""

OPTIONAL_FIELDS = ("top_logprobs", "logprobs", "top_p", "temperature", "seed", "stop", "max_tokens", *CONTINUES)
"""Fields of a request that can be left out, in this order: of two that exclude each other the temperature stays."""

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


MOST_STOPS = 4
"""The maximum of the API; of what the user set all is sent."""


def generation_request(
    model: str, request: Request, dialect: Dialect, settings: LLMSettings = DEFAULTS
) -> tuple[str, dict[str, Any]]:
    """Path and body of a generation. Every sampling field is sent, because servers choose their own values for missing
    ones; what the user set is sent whatever the dialect says."""
    sampling = request.sampling
    chat = dialect.endpoint == "chat"
    stop = list(sampling.stop)
    if not (chat or dialect.thinks or request.prompt.stop or request.prompt.reasons) and len(stop) < MOST_STOPS:
        stop.append(BLOCK_END)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        # samples of one prompt must differ, and an identical seed would make them equal
        "seed": sampling.seed + sampling.repeat,
    }
    if stop:
        body["stop"] = stop
    if sampling.response_format:
        body["response_format"] = json.loads(sampling.response_format)
    if settings.reasoning_effort:
        body["reasoning_effort"] = settings.reasoning_effort
    if chat:
        body["messages"] = chat_messages(request.prompt.messages, settings.system_role)
        body["logprobs"], body["top_logprobs"] = True, LIKELIEST
        body |= CONTINUES if request.prompt.prefill else {}
    else:
        body["prompt"] = request.prompt.text
        body["logprobs"] = 1  # some servers allow no more
    if not dialect.asks_logprobs:
        del body["logprobs"]
        body.pop("top_logprobs", None)
    for field in dialect.without:
        if field == "max_tokens":
            body["max_completion_tokens"] = sampling.max_tokens
        elif field in sampling.fixed:
            continue
        body.pop(field, None)
    return ("/chat/completions" if chat else "/completions"), body | read_table(settings.extra_body)


def chat_messages(messages: Sequence[Message], system_role: str) -> list[dict[str, str]]:
    """The turns, the first under another role if it is the system's; as ``user`` it opens the user's first turn."""
    turns = [{"role": turn.role, "content": turn.content} for turn in messages]
    if system_role != "system" and turns[0]["role"] == "system":
        turns[0]["role"] = system_role
        if system_role == "user" and [turn["role"] for turn in turns[1:2]] == ["user"]:
            turns[:2] = [{"role": "user", "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}]
    return turns


_FAULTY = re.compile(
    _REFUSES.pattern + r"|invalid|valid values|must |expected|too (?:many|long|large|small)|at most|range", re.I
)


def faulted(failure: Failure, request: Request, settings: LLMSettings) -> str | None:
    """The setting of the user that the server refuses by name."""
    if failure.kind not in _OF_FIELDS or not _FAULTY.search(failure.message):
        return None
    words = {field: field for field in sorted(request.sampling.fixed)}
    if "max_tokens" in words:
        words["max_completion_tokens"] = "max_tokens"
    if settings.reasoning_effort:
        words["reasoning_effort"] = "reasoning_effort"
    if settings.system_role == "developer":
        words["developer"] = "system_role"
    words |= dict.fromkeys(read_table(settings.extra_body), "extra_body")
    return next((words[word] for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", failure.message)), None)


def refused_field(failure: Failure, dialect: Dialect, fixed: Collection[str] = ()) -> str | None:
    """The field of our request that the server rejects and that can be omitted, none that is ``fixed``."""
    if failure.kind not in _OF_FIELDS or not _REFUSES.search(failure.message):
        return None
    message = failure.message.lower().replace("'max_completion_tokens'", "")
    if "log probabilit" in message or "logprob" in message or "top_logprobs" in message:
        message += " 'logprobs'"
    for field in OPTIONAL_FIELDS:
        if (
            field in message
            and field not in dialect.without
            and (field == "max_tokens" or field not in fixed)
            and not (field == "logprobs" and not dialect.asks_logprobs)
        ):
            return field
    return None


def has_logprobs(reply: Mapping[str, Any]) -> bool:
    """Whether the first choice of a reply has log-probabilities."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, Mapping) and bool(first.get("logprobs"))


def echo_request(model: str, texts: Sequence[str], settings: LLMSettings = DEFAULTS) -> dict[str, Any]:
    """Body of a request for the log-probabilities of ``texts``, given with one generated token."""
    body = {"model": model, "prompt": list(texts), "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0.0}
    return body | read_table(settings.extra_body)


OUTSIDE_TOP = -9999.0
"""OpenAI's value for a token outside the most likely ones: not a log-probability."""

LONGEST = 4 << 20
"""Maximum characters of an answer, some million tokens. One of 50 MB was read for a minute, by each command anew."""

MOST_TOKENS = 10**9
"""A larger number is not a valid token count."""


class Malformed(Exception):
    """A reply that is not a valid answer."""


def decoded(content: bytes) -> str:
    """The text of a body: JSON is UTF-8 (or UTF-16, which is detected), whatever a header says."""
    return content.decode(json.detect_encoding(content), "replace")


def parse_body(text: str) -> Mapping[str, Any]:
    """The JSON object of a 200 reply, every string of it `storable`; `Malformed` for HTML, a bare string, and the
    like."""
    try:
        try:
            body = json.loads(text)
        except ValueError:  # a paid answer is not discarded for a raw line break in it, or a number of 5,000 digits
            body = json.loads(text, strict=False, parse_int=lambda digits: (int if len(digits) < 20 else float)(digits))
        if "\\ud" in text or "\\uD" in text:
            body = _storable(body)
    except RecursionError as error:
        raise Malformed("the server answered 200 with JSON that is nested too deeply") from error
    except ValueError as error:
        kind = "an HTML page" if "<html" in text[:500].lower() or "<!doctype" in text[:100].lower() else "no JSON"
        raise Malformed(f"the server answered 200 with {kind}") from error
    if not isinstance(body, Mapping):
        raise Malformed(f"the server answered 200 with a JSON {type(body).__name__}")
    return body


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    return value


def choices_of(body: Mapping[str, Any], count: int) -> list[Mapping[str, Any]]:
    """The reply's choices in their index order."""
    choices = body.get("choices")
    if not isinstance(choices, list) or len(choices) != count or not all(isinstance(c, Mapping) for c in choices):
        raise Malformed(f"expected {count} choice(s) in the reply")
    if count == 1:  # a wrong index does not matter if there is only one choice
        return choices
    by_index = {index: choice for i, choice in enumerate(choices) if type(index := choice.get("index", i)) is int}
    if by_index.keys() != set(range(count)):
        raise Malformed("the reply's choices are not numbered 0, 1, …")
    return [by_index[i] for i in range(count)]


class Token(NamedTuple):
    """A token of a reply, its log-probability, and the entropy in nats of the distribution it was sampled from."""

    text: str
    logprob: float
    entropy: float | None = None


def chat_answer(body: Mapping[str, Any], want_logprobs: bool) -> Answer | Failure:
    """A chat completion's answer; raises `Malformed`."""
    choice = choices_of(body, 1)[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise Malformed("the reply has no message")
    finish = name_of(choice.get("finish_reason")) or "stop"
    if message.get("refusal") or finish == "content_filter":
        return Failure("refusal", shorten(spelled(message.get("refusal") or "stopped by the server's content filter")))
    content = message.get("content")
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is None and finish == "length":
        content = ""  # a reasoning model that used up its tokens before answering
    if not isinstance(content, str):
        raise Malformed("the reply's message has no text")
    return _answer(body, content, finish, _token_logprobs(choice.get("logprobs")), want_logprobs)


def completion_answer(body: Mapping[str, Any], want_logprobs: bool) -> Answer | Failure:
    """A text completion's answer; raises `Malformed`."""
    choice = choices_of(body, 1)[0]
    text = choice.get("text")
    if not isinstance(text, str):
        raise Malformed("the reply has no text")
    finish = name_of(choice.get("finish_reason")) or "stop"
    if finish == "content_filter":
        return Failure("refusal", "stopped by the server's content filter")
    return _answer(body, text, finish, _token_logprobs(choice.get("logprobs")), want_logprobs)


def _answer(body: Mapping[str, Any], text: str, finish: str, tokens: list[Token], want_logprobs: bool) -> Answer:
    if len(text) > LONGEST:
        raise Malformed(f"the answer has {len(text):,} characters, which no LLM writes")
    if want_logprobs and text and not tokens:
        raise Malformed("the reply lacks the log-probabilities that were asked for")
    tokens = within(tokens, text) if want_logprobs else []
    entropies = [token.entropy for token in tokens if token.entropy is not None]
    tokens_in, tokens_out = usage_of(body)
    return Answer(
        text=text,
        tokens=tuple(token.text for token in tokens),
        logprobs=tuple(token.logprob for token in tokens),
        finish=finish,
        tokens_in=tokens_in,
        tokens_out=tokens_out or len(tokens),
        model=name_of(body.get("model")),
        entropies=tuple(entropies) if len(entropies) == len(tokens) else (),
    )


def usage_of(body: Mapping[str, Any]) -> tuple[int, int]:
    """Prompt and completion tokens; 0 if the server does not report them."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return 0, 0
    return count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))


def usage_of_all(bodies: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """As `usage_of`, of several replies."""
    usages = [usage_of(body) for body in bodies]
    return sum(read for read, _ in usages), sum(written for _, written in usages)


def count_of(value: object) -> int:
    """A number of tokens, 0 for an invalid value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST_TOKENS:
        return 0
    return int(value)


def name_of(value: object) -> str:
    """A model's name or a finish reason: a short text, empty for an invalid value."""
    return shorten(value, 200) if isinstance(value, str) else ""


def _token_logprobs(logprobs: object) -> list[Token]:
    """Tokens with their log-probabilities from either format: chat's ``content`` list, completions' parallel arrays."""
    if not isinstance(logprobs, Mapping):
        return []
    content = logprobs.get("content")
    if isinstance(content, list):
        if not all(isinstance(entry, Mapping) for entry in content):
            raise Malformed("a token of the reply is no object")
        return [
            Token(_token(entry.get("token", "")), _finite(entry.get("logprob")), _entropy(_likeliest(entry)))
            for entry in content
        ]
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if tokens is None and values is None:
        return []
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        raise Malformed("the reply's tokens and log-probabilities differ in number")
    top = logprobs.get("top_logprobs")
    likeliest = top if isinstance(top, list) and len(top) == len(tokens) else [None] * len(tokens)
    return [
        Token(_token(token), _finite(value), _entropy(some.values() if isinstance(some, Mapping) else ()))
        for token, value, some in zip(tokens, values, likeliest, strict=True)
    ]


def _likeliest(entry: Mapping[str, Any]) -> list[object]:
    top = entry.get("top_logprobs")
    return [other.get("logprob") for other in top if isinstance(other, Mapping)] if isinstance(top, list) else []


def _entropy(logprobs: Iterable[object]) -> float | None:
    """Entropy in nats of a distribution known by its most likely tokens, all others counted as one: at most the true
    one. None if fewer than two are known."""
    shares = [math.exp(min(float(v), 0.0)) for v in logprobs if isinstance(v, (int, float)) and not math.isnan(v)]
    if len(shares) < 2:
        return None
    shares.append(max(1.0 - sum(shares), 0.0))
    total = sum(shares)
    return -sum(share / total * math.log(share / total) for share in shares if share > 0.0)


def _token(value: object) -> str:
    if not isinstance(value, str):
        raise Malformed("a token of the reply is no text")
    return value


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Malformed("a token of the reply has no log-probability")
    if not OUTSIDE_TOP < value <= 1e-3:  # also excludes NaN
        raise Malformed("a number of the reply is no log-probability")
    return min(float(value), 0.0)


def within(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens of ``text``: servers also list end-of-turn, stop and reasoning tokens.

    All tokens are kept if ``text`` is not found in their concatenation (tokens that are part of a character).
    """
    texts = [token.text for token in tokens]
    start = "".join(texts).rfind(text)
    if not text or start < 0:
        return list(tokens)
    return list(compress(tokens, inside(texts, start, start + len(text))))


def echoed_option(choice: Mapping[str, Any], prompt: str, option: str) -> tuple[float, ...]:
    """Log-probabilities of the tokens of ``option`` in an echo of ``prompt + option``; raises `Malformed`.

    The split is found in the echoed tokens themselves, because neither a separate count nor ``text_offset`` is
    reliable. A token across the boundary belongs to the option. An empty slice is malformed: its sum would be 0, the
    best possible score.
    """
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("tokens") if isinstance(logprobs, Mapping) else None
    values = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        raise Malformed("no echoed tokens with log-probabilities")
    texts = [_readable(_token(token)) for token in tokens]
    joined = "".join(texts)
    tail = prompt[-120:]  # enough, and little in which characters may be split
    start = joined.rfind(tail + option) + len(tail)
    end = start + len(option)
    if start < len(tail):
        start, end = _place_among_split(joined, tail, option)
    chosen = list(compress(values, inside(texts, start, end)))
    if not chosen:
        raise Malformed("no token of the option was echoed")
    return tuple(_finite(value) for value in chosen)


SPLIT = "\ufffd"
"""Part of a character that is split among tokens."""


def _readable(token: str) -> str:
    """A token as most servers write it: OpenAI's ``bytes: \\xf0\\x9f`` has parts of characters."""
    return re.sub(r"\\x[0-9a-f]{2}", SPLIT, token[6:]) if token.startswith("bytes:") and "\\x" in token else token


def _place_among_split(joined: str, tail: str, option: str) -> tuple[int, int]:
    """Start and end of the option after ``tail`` in an echo, where characters may be split; raises `Malformed`."""
    first = max(len(joined) - 4 * len(tail + option) - 1000, 0)  # it is near the end: only one generated token follows
    starts = _after(tail, joined, range(first, len(joined)))
    places = [(start, max(ends)) for start in starts if (ends := _after(option, joined, [start]))]
    if not places:
        raise Malformed("the server did not echo the prompt")
    start, end = max(places)
    if joined[: start + 1].endswith(SPLIT * 2):
        raise Malformed("prompt and option cannot be told apart in the echo")
    return start, end


def _after(text: str, joined: str, places: Iterable[int]) -> Iterable[int]:
    """The places after ``text`` in an echo that has it at one of ``places``."""
    for character in text:
        spelled = [character] if character.isascii() else [character, *(SPLIT * n for n in range(1, 5))]
        places = {place + len(part) for place in places for part in spelled if joined.startswith(part, place)}
    return places


def echoed_options(reply: Mapping[str, Any], text: str, options: Sequence[str]) -> list[tuple[float, ...]]:
    """The log-probabilities of each option after ``text``; raises `Malformed`."""
    choices = choices_of(reply, len(options))
    return [echoed_option(choice, text, option) for choice, option in zip(choices, options, strict=True)]
