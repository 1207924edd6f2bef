"""``openai:MODEL``: any OpenAI-compatible server, over HTTP.

What such a server supports depends on its software, its version and the model, so nothing is assumed: `probe` tests it
with a few tiny calls, and every reply is parsed by `wire`. The official client is used below its typed layer
(``client.post`` and plain JSON): the same authentication, timeouts and errors at a fraction of the CPU time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_plus

from ...base.errors import BudgetError, LLMError, UsageError
from ...http.address import NO_KEY, Address, filled
from ...http.refusals import SENT, error_in, failure_of, key_in, pause, shorten, without_keys
from ...llm.budget import SPREAD, Budget
from ...llm.pace import AT_FIRST, explain, key_fix
from ...llm.types import DEFAULTS, Answer, Capabilities, Failure, LLMSettings, Outgoing, Request, Result, Sampling
from ...pool.open_answers import after_thinking
from ...pool.prompts import Prompt
from ...pool.records import Message, Query
from ...store.request_fields import VARIABLE, read_table
from . import wire
from .wire import Dialect

if TYPE_CHECKING:
    import openai

_Reply = TypeVar("_Reply", Result, "Mapping[str, Any] | Failure")

_PROBE_ANSWER = 16
"""Tokens that a call of the probe may generate."""

_CHARACTERS_PER_TOKEN = 4.0
_TOKENS_PER_MESSAGE = 4
_CUT = 0.7
"""If the server counts less than this share of the fewest prompt tokens, the prompt was cut."""
_CUT_FLOOR = 1000
"""Below this many estimated tokens the count is too rough to detect a cut."""
_WIDE = re.compile("[\u2e80-\U0010ffff]")
"""Characters of which one is half a token or more: Chinese, Japanese, Korean, emoji."""


class OpenAIServer:
    """The backend behind ``openai:MODEL``, and behind those of other `VENDORS`. One event loop at a time may use it;
    call `close` before that loop ends.

    The key is read from the vendor's variable at the first call; it is never stored, shown or part of the identity.
    Raises `UsageError` for an invalid base URL.
    """

    local = False
    batch_size = 1

    def __init__(self, model: str, settings: LLMSettings = DEFAULTS, vendor: str = "openai") -> None:
        self.spec = f"{vendor}:{model}"
        self.model = model
        if vendor != "openai":  # those are for the user's own server
            settings = replace(settings, headers="", query_params="")
        self.settings = settings
        self.max_in_flight = settings.concurrency
        self.address = Address.of(settings.base_url or "", vendor)
        self._dialect = Dialect("completions" if settings.endpoint == "completions" else "chat")
        self._taken: set[Sampling] = set()
        self._client: openai.AsyncOpenAI | None = None
        self._with: Any = {}  # the headers and the parameters of each request
        self._loop: asyncio.AbstractEventLoop | None = None

    def identity(self) -> Mapping[str, Any]:
        settings = self.settings
        told = {
            "backend": "openai",
            "model": self.model,
            "base_url": str(self.address),
            "endpoint": settings.endpoint,
        }
        headers = {name.lower(): value for name, value in read_table(settings.headers).items()}
        said = {name: value for name, value in headers.items() if not VARIABLE.search(value)}  # no secrets
        more = {
            "system_role": settings.system_role.removeprefix("system"),
            "reasoning_effort": settings.reasoning_effort,
            "extra_body": settings.extra_body,
            "headers": ", ".join(sorted(headers)),
            "header_values": _digest(json.dumps(said, sort_keys=True)) if said else "",
            "query_params": _digest(settings.query_params),  # a value may be a key
        }
        return told | {name: value for name, value in more.items() if value}

    def count_tokens(self, prompt: Prompt) -> int:
        """An estimate: UTF-8 bytes over 4, corrected by the server's counts in the probe."""
        return max(1, round(_estimate(prompt.messages) * self._dialect.tokens_ratio))

    def _tokens_of(self, text: str) -> int:
        """An estimate for an answer, none of which may be seen: what it thought is not in it."""
        return max(1, round(_bytes(text) / _CHARACTERS_PER_TOKEN * self._dialect.tokens_ratio))

    def adopt(self, capabilities: Capabilities) -> None:
        """Use the dialect found by an earlier probe (see `Charges`)."""
        probed = capabilities.details.get("dialect")
        if isinstance(probed, Mapping):
            self._dialect = Dialect(**{**probed, "without": tuple(probed.get("without", ()))})

    async def close(self) -> None:
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            await client.close()

    # requests

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """One result per request; they are sent together (the runner sends one at a time)."""
        asked = [self._score(request.prompt) if request.score else self._generate(request) for request in requests]
        return list(await asyncio.gather(*asked))

    async def _generate(self, request: Request) -> Result:
        for _ in range(len(wire.OPTIONAL_FIELDS)):
            dialect, start = self._dialect, time.monotonic()
            reply = await self._post(*wire.generation_request(self.model, request, dialect, self.settings))
            refused = wire.refused_field(reply, dialect, request.sampling.fixed) if isinstance(reply, Failure) else None
            if refused is None:
                break
            if refused not in self._dialect.without:  # unless another call in flight has found it already
                self._dialect = replace(self._dialect, without=(*self._dialect.without, refused))
        if isinstance(reply, Failure):
            # where the same was taken before, it is the prompt that is refused
            users = wire.faulted(reply, request, self.settings) if request.sampling not in self._taken else None
            return Failure("setting", f"the server refuses {users}: {reply.message}") if users else reply
        self._taken.add(request.sampling)
        read = wire.chat_answer if dialect.endpoint == "chat" else wire.completion_answer
        try:
            # before a probe it is unknown whether this server gives log-probabilities: accept both
            answer = read(reply, bool(dialect.logprobs) or wire.has_logprobs(reply))
        except wire.Malformed as error:
            answer = Failure("malformed", str(error))
        if isinstance(answer, Failure):
            tokens_in, tokens_out = wire.usage_of(reply)
            return replace(answer, tokens_in=tokens_in, tokens_out=tokens_out)
        if dialect.endpoint == "completions":
            answer = replace(answer, text=answer.text.strip())
        return self._counted(answer, request.prompt, time.monotonic() - start)

    def _counted(self, answer: Answer, prompt: Prompt, latency: float) -> Result:
        expected = self.count_tokens(prompt)
        least = _CUT * _estimate(prompt.messages, _fewest) * self._dialect.tokens_ratio
        if expected >= _CUT_FLOOR and 0 < answer.tokens_in < least:
            return Failure(
                "context",
                f"the server read {answer.tokens_in:,} of at least {least:,.0f} prompt tokens: it truncated the prompt",
                tokens_in=answer.tokens_in,
                tokens_out=answer.tokens_out,
            )
        written = answer.tokens_out or self._tokens_of(answer.text)  # a server that says nothing is paid all the same
        return replace(answer, latency=latency, tokens_in=answer.tokens_in or expected, tokens_out=written)

    async def _score(self, prompt: Prompt) -> Result:
        if not self._dialect.scoring or self.settings.endpoint == "chat":
            return Failure("capability", f"{self.spec} does not score given text")
        start = time.monotonic()
        text, options = prompt.scored(prompt.text, chat=False)
        if not options:
            return Failure("request", "nothing to score: the prompt has no choices")
        echoed = await self._echoed(text, options, self._dialect.several)
        if isinstance(echoed, Failure):
            return echoed
        scores, replies = echoed
        tokens_in, tokens_out = wire.usage_of_all(replies)
        totals = [sum(option) for option in scores]
        return Answer(
            text=prompt.choices[totals.index(max(totals))],
            option_logprobs=tuple(scores),
            tokens_in=tokens_in or self.count_tokens(prompt) * len(options),
            tokens_out=tokens_out,
            latency=time.monotonic() - start,
            model=wire.name_of(replies[0].get("model")),
            calls=len(replies),
        )

    def outgoing(self, request: Request) -> list[Outgoing]:
        """See `Sends`: the bodies are made by what makes those that are sent."""
        settings = self.settings
        if request.score:
            path, (text, options) = "/completions", request.prompt.scored(request.prompt.text, chat=False)
            bodies = [body for _, body in self._echoes(text, options, self._dialect.several)]
        else:
            path, body = wire.generation_request(self.model, request, self._dialect, settings)
            bodies = [body]
        headers: dict[str, str | None] = {"Content-Type": "application/json"}
        if self._key or not settings.headers:
            headers["Authorization"] = f"Bearer {self._key if self._key == NO_KEY else f'${{{self.address.variable}}}'}"
        for name, value in read_table(settings.headers).items():
            headers = {other: text for other, text in headers.items() if other.lower() != name.lower()}
            headers[name] = value if VARIABLE.search(value) else None
        query = "&".join(
            f"{quote_plus(name)}={_quoted(value)}" for name, value in read_table(settings.query_params).items()
        )
        url = f"{self.address}{path}".replace("$", "%24")  # no variable: it may be a stranger's
        return [Outgoing(f"{url}{query and f'?{query}'}", headers, body) for body in bodies]

    # HTTP

    @property
    def _key(self) -> str:
        """What is sent as the key; empty without one, and where only headers say who asks."""
        key = key_in(self.address.variable)
        return key if self.settings.headers else self.address.key(key)

    async def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | Failure:
        """Send once; returns the parsed JSON object, or the classified failure. Never raises for a server's
        behaviour."""
        import httpx2

        try:
            client = self._connected()
        except LLMError as error:
            return Failure("auth", error.what)
        except UsageError as error:
            return Failure("setting", f"{error.what}: {error.fix}")
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await client.post(path, cast_to=httpx2.Response, body=body, options=self._with)
        except Exception as error:
            return failure_of(error, self.settings.timeout)
        try:
            # before the reply is parsed: an answer that repeats the key would be stored with it
            parsed = wire.parse_body(without_keys(wire.decoded(response.content)))
        except wire.Malformed as error:
            return Failure("malformed", str(error))
        if (failure := error_in(parsed)) is None:
            return parsed
        tokens_in, tokens_out = wire.usage_of(parsed)
        return replace(failure, tokens_in=tokens_in, tokens_out=tokens_out)

    def _connected(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return self._client
        from openai import Omit

        from ...http import client

        settings, key = self.settings, self._key
        headers, query = filled("headers", settings.headers), filled("query_params", settings.query_params)
        if not key and not headers:
            raise LLMError(f"{self.address.variable} is not set", key_fix(self.spec))
        SENT.update({key} - {"", NO_KEY})
        sent = {name.title(): value for name, value in headers.items()}  # as the client spells those of its own
        # without a key the headers say who asks
        self._with = {"headers": sent if key else {"Authorization": Omit(), **sent}, "params": query}
        self._client = client.connected_loop(self.address, key or NO_KEY, settings.timeout, settings.concurrency)
        self._loop = loop
        return self._client

    # probing

    async def probe(self) -> Capabilities:
        """A few tiny calls: reachability, endpoint, log-probabilities, echo, context, token counts."""
        return await self.probe_within(Budget())

    async def probe_within(self, budget: Budget) -> Capabilities:
        """See `Charges`."""
        self._budget = budget
        self._dialect = Dialect("completions" if self.settings.endpoint == "completions" else "chat")
        first = await self._probe_generation()
        logprobs = bool(first.logprobs)
        ratio, notes = await self._probe_counting(first)
        self._dialect = await self._probe_echo()
        context = await self._probe_context()
        thinks = after_thinking(first.text) != first.text
        self._dialect = replace(self._dialect, logprobs=logprobs, tokens_ratio=ratio, thinks=thinks)
        if not logprobs:
            notes.append("gives no log-probabilities: methods that need uncertainty are unavailable")
        if self._dialect.scoring and self._dialect.endpoint == "chat":
            notes.append("scores options after plain text, without its chat template: only with --answers score")
        if "temperature" in self._dialect.without:
            notes.append("does not accept a temperature: answers may differ between runs")
        if thinks or (not first.text and first.finish == "length"):
            notes.append("is a reasoning model: allow more tokens per answer")
        return Capabilities(
            logprobs=logprobs,
            scoring=self._dialect.scoring,
            entropies=bool(first.entropies),
            context_tokens=context,
            notes=tuple(notes),
            details={"dialect": asdict(self._dialect), "model": first.model, "latency": first.latency},
            apart=self._dialect.endpoint == "chat",
        )

    async def _probe_generation(self) -> Answer:
        request = _probe_request(_QUESTION)
        answer = await self._generated(request)
        missing_chat = isinstance(answer, Failure) and answer.kind in ("not_found", "request")
        if missing_chat and self.settings.endpoint == "auto" and not await self._others():
            self._dialect = replace(self._dialect, endpoint="completions", without=())
            second = await self._generated(request)
            answer = second if isinstance(second, Answer) else answer
        # a single reply without them may be an error of the server: ask again before excluding a whole group of methods
        for _ in range(2):
            if isinstance(answer, Failure) or answer.logprobs or not self._dialect.asks_logprobs:
                break
            again = await self._generated(request)
            answer = again if isinstance(again, Answer) else answer
        if isinstance(answer, Failure):
            raise await self._unusable(answer)
        return answer

    async def _generated(self, request: Request) -> Result:
        """As `_generate`, for probing: with a few retries."""
        return await self._patiently(partial(self._generate, request), request.prompt.messages, 4)

    async def _completed(self, body: Mapping[str, Any]) -> Mapping[str, Any] | Failure:
        """As `_post`, for probing: with a few retries, soon."""
        texts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        echoed = [Message("user", text) for text in texts]
        return await self._patiently(partial(self._post, "/completions", body), echoed, 3, longest=10.0)

    async def _patiently(
        self, send: Callable[[], Awaitable[_Reply]], messages: Sequence[Message], attempts: int, longest: float = 60.0
    ) -> _Reply:
        """A call of the probe, with retries, half as many of a server that is not reached and more of one that is busy,
        after pauses of at most so many seconds; paid work is retried by the runner."""
        started = time.monotonic()
        for attempt in count(1):
            reply = await self._paid(send, messages)
            if not isinstance(reply, Failure) or not reply.retryable or (reply.retry_after or 0.0) > AT_FIRST:
                break
            # a job of the same user may take all that a minute allows, and what is found is kept
            busy = reply.busy and time.monotonic() - started < AT_FIRST
            if attempt >= (attempts // 2 if reply.unreachable else attempts) and not busy:
                break
            await asyncio.sleep(min(pause(attempt, reply.retry_after), longest))
        return reply

    async def _paid(self, send: Callable[[], Awaitable[_Reply]], messages: Sequence[Message]) -> _Reply:
        """A call of the probe, within its budget."""
        budget, tokens_in = self._budget, _estimate(messages) * SPREAD[1]
        while (reservation := budget.reserve(tokens_in, _PROBE_ANSWER)) is None:
            if not budget.in_flight:
                raise BudgetError(
                    f"the budget is used up ({budget.describe()}) before {self.spec} was probed",
                    "run the same command again with a higher --max-calls or --max-cost",
                )
            await asyncio.sleep(0.02)
        reply: _Reply | None = None
        try:
            reply = await send()
        finally:
            if isinstance(reply, Mapping):
                tokens_in, tokens_out = wire.usage_of(reply)
                budget.settle(reservation, Answer("", tokens_in=tokens_in, tokens_out=tokens_out))
            else:
                budget.settle(reservation, reply)
        return reply

    async def _probe_counting(self, first: Answer) -> tuple[float, list[str]]:
        """The ratio of this server's token count to our estimate, from two prompts of different length."""
        short, longer = _probe_request(_QUESTION), _probe_request(f"{_PASSAGE}\n{_QUESTION}")
        second = await self._generated(longer)
        if isinstance(second, Failure) or not first.tokens_in or second.tokens_in <= first.tokens_in:
            return 1.0, ["does not count prompt tokens: truncated prompts go unnoticed"]
        predicted = _estimate(longer.prompt.messages) - _estimate(short.prompt.messages)
        return max((second.tokens_in - first.tokens_in) / predicted, 0.25), []

    async def _probe_echo(self) -> Dialect:
        """The dialect with what completions return for given text.

        It counts only if the echo of the likeliest next token has the log-probability with which the server generates
        it: some servers shift the values by one token, and their scores still differ from option to option. That token
        must also beat an unlikely one.
        """
        dialect = replace(self._dialect, scoring=False)
        if self.settings.endpoint == "chat":  # echoes come from the other one
            return dialect
        for text in _UNFINISHED:
            likely = await self._next_token(text)
            if isinstance(likely, Failure):
                return dialect
            if likely is None:
                continue
            token, value = likely
            for several in (True, False):
                echoed = await self._echoed(text, [token, _UNLIKELY], several, patiently=True)
                if not isinstance(echoed, Failure):
                    own, other = (sum(values) for values in echoed[0])
                    return replace(dialect, scoring=abs(own - value) <= _ALIGNED and own > other, several=several)
                if echoed.unreachable:
                    return dialect
            return dialect
        return dialect

    async def _next_token(self, text: str) -> tuple[str, float] | Failure | None:
        """The likeliest token after a text and its log-probability, None if the reply does not tell them."""
        asked = wire.echo_request(self.model, [text], self.settings)
        reply = await self._completed({**asked, "prompt": text, "echo": False})
        if isinstance(reply, Failure):
            return reply
        try:
            answer = wire.completion_answer(reply, True)
        except wire.Malformed:
            return None
        return (answer.text, answer.logprobs[0]) if isinstance(answer, Answer) and len(answer.logprobs) == 1 else None

    async def _echoed(
        self, text: str, options: Sequence[str], several: bool, patiently: bool = False
    ) -> tuple[list[tuple[float, ...]], list[Mapping[str, Any]]] | Failure:
        """The log-probabilities of each option after ``text``, and the replies; ``several``: prompts in one request."""
        send = self._completed if patiently else partial(self._post, "/completions")
        scores: list[tuple[float, ...]] = []
        replies: list[Mapping[str, Any]] = []
        for part, body in self._echoes(text, options, several):  # one after another: each call has one slot
            reply = await send(body)
            if not isinstance(reply, Failure):
                replies.append(reply)
                try:
                    scores += wire.echoed_options(reply, text, part)
                    continue
                except wire.Malformed as error:
                    reply = Failure("malformed", str(error))
            calls = len(replies) + (reply.kind == "timeout")
            tokens_in, tokens_out = wire.usage_of_all(replies)
            tokens_in, tokens_out = reply.tokens_in + tokens_in, reply.tokens_out + tokens_out
            return replace(reply, calls=calls, tokens_in=tokens_in, tokens_out=tokens_out)
        return scores, replies

    def _echoes(self, text: str, options: Sequence[str], several: bool) -> list[tuple[Sequence[str], dict[str, Any]]]:
        """The bodies of the requests for the log-probabilities of options after a text, each with its options."""
        if several:
            return [(options, wire.echo_request(self.model, [text + option for option in options], self.settings))]
        return [
            ([option], {**wire.echo_request(self.model, [text], self.settings), "prompt": text + option})
            for option in options
        ]

    async def _probe_context(self) -> int | None:
        """The maximum prompt length, if the list of models gives it (vLLM, OpenRouter and others do)."""
        fields = ("max_model_len", "context_length", "max_context_length", "context_window")
        entries = [entry for entry in await self._models() if entry.get("id") == self.model]
        limits = [wire.count_of(entry.get(field)) for entry in entries for field in fields]
        return next(filter(None, limits), None)

    async def _models(self) -> list[Mapping[str, Any]]:
        import httpx2

        patience = min(self.settings.timeout, 15.0)
        try:
            async with asyncio.timeout(patience):
                response = await self._connected().get("/models", cast_to=httpx2.Response, options=self._with)
            listed = wire.parse_body(wire.decoded(response.content)).get("data")
        except (LLMError, UsageError, wire.Malformed):
            return []
        except Exception as error:
            failure_of(error, patience)
            return []
        return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []

    async def _others(self) -> list[str]:
        """The names of the models that the server lists, none if this one is among them."""
        names = [name for entry in await self._models() if isinstance(name := entry.get("id"), str)]
        return [] if self.model in names else names

    async def _unusable(self, failure: Failure) -> LLMError:
        if failure.kind == "not_found" and (names := await self._others()):
            some = ", ".join(shorten(name, 80) for name in names[:8])
            return LLMError(f"{self.address} has no model '{self.model}'", f"use one of: {some}")
        return explain(failure, f"{self.spec} at {self.address}")


def _quoted(value: str) -> str:
    """A value as it stands in a URL, with the variables that it names as they are."""
    parts = enumerate(VARIABLE.split(value))
    return "".join(f"${{{part}}}" if i % 2 else quote_plus(part) for i, part in parts)


def _digest(text: str) -> str:
    return text and hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _fewest(text: str) -> int:
    """The size of the fewest tokens: a character, of three bytes in many scripts, has as many as in English, and twice
    as many where each is a syllable or a word."""
    return len(text) + len(_WIDE.findall(text))


def _estimate(messages: Sequence[Message], size: Callable[[str], int] = _bytes) -> float:
    whole = sum(size(message.content) for message in messages)
    return whole / _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE * len(messages)


def _probe_request(text: str) -> Request:
    return Request(Prompt((Message("user", text),), Query(text)), sampling=Sampling(max_tokens=_PROBE_ANSWER))


_QUESTION = "Reply with one word: is the sky blue?"
_UNFINISHED = (
    "Question: What is the capital of France?\nAnswer:",
    "one, two, three, four,",
    "Once upon a time, there was a",
)
"""Texts that a model goes on with; the first one after which it does not end."""
_UNLIKELY = " seventeen"
_ALIGNED = 0.5
"""Maximum difference, in nats, between the log-probabilities of one token as generated and as echoed: batches differ in
rounding, and a value of another token by several nats."""

_PASSAGE = (
    "The harbour lies at the mouth of the river, where barges bring timber and grain down from the hills. In spring "
    "the water rises by almost two metres, and the lower quay is closed until the middle of May. Fishing boats leave "
    "before dawn and come back in the early afternoon; their catch is sold in the covered market behind the customs "
    "house. A ferry crosses to the island four times a day, except on Sundays, when it runs only in the morning. "
    "Visitors usually climb the old lighthouse, which was built in 1871 and is still in use, because its gallery "
    "shows the whole bay as far as the salt works. "
)
