"""The types that every backend takes and returns, and the settings of the access to an LLM. Nothing here imports a
backend.

No setting changes an answer, so none is in the cache key, except those that a backend includes in its identity (base
URL, endpoint, dtype).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..base.arrays import Float32s
from ..http.refusals import Failure as Failure
from ..pool.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is sampled; every field but ``fixed`` is sent and is part of the cache key.

    ``repeat`` distinguishes several samples of one prompt at a temperature above 0. ``response_format``: the field of
    that name as JSON text, empty where it is not sent. ``fixed``: the fields that the user set; a server that refuses
    one ends the work, where others are left out.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    repeat: int = 0
    response_format: str = ""
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Request:
    """One call: generate an answer to ``prompt``, or, with ``score``, return the log-probability of each of the
    prompt's choices as the answer."""

    prompt: Prompt
    score: bool = False
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the LLM.

    ``logprobs`` are natural logarithms, one for each of ``tokens``; both empty if the backend gives none.
    ``entropies``, in nats, are those of the distributions the tokens were sampled from, empty if unknown.
    ``option_logprobs`` (scoring only) has the per-token log-probabilities of each choice, in the prompt's order;
    ``text`` is then the best choice. ``latency`` is in seconds, of the attempt that succeeded. ``usable``, ``how`` (the
    rules by which ``text`` was found) and the whole ``reply`` are set when the answer is read (`reading.read`), not
    stored, nor are the ``calls`` that it took and its ``cost`` in US dollars, None if that follows from the tokens.
    """

    text: str
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    option_logprobs: tuple[tuple[float, ...], ...] = ()
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    latency: float = 0.0
    attempts: int = 1
    model: str = ""
    cached: bool = False
    entropies: tuple[float, ...] = ()
    usable: bool = True
    how: str = field(default="", compare=False)
    reply: str = field(default="", compare=False)
    calls: int = field(default=1, compare=False)
    cost: float | None = field(default=None, compare=False)

    @property
    def shares(self) -> list[float]:
        """The softmax over the choices' total log-probabilities, in the prompt's order."""
        return _softmax([sum(option) for option in self.option_logprobs])

    @property
    def token_means(self) -> list[float]:
        """The mean log-probability of each choice's tokens."""
        return [sum(option) / max(len(option), 1) for option in self.option_logprobs]

    @property
    def token_shares(self) -> list[float]:
        """The softmax over `token_means`: it does not depend on the choices' lengths."""
        return _softmax(self.token_means)

    @property
    def uncertainty(self) -> float | None:
        """1 − Π p over the answer's tokens (paper 001, eq. 1 and 3; see `calibrate.scores`), or, for scored choices, 1
        − the best choice's share. None without log-probabilities."""
        if self.option_logprobs:
            return 1.0 - max(self.shares)
        return 1.0 - math.exp(sum(self.logprobs)) if self.logprobs else None  # 1 − Π p


def _softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits, default=0.0)
    weights = [math.exp(logit - top) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a program of the user's may return instead of a text: its answer, the tokens and the number of the calls of
    LLMs that it made, and what they cost in US dollars, None if it does not know."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    calls: int = 1


Result = Answer | Failure

BLOCK_END = "\n\n"
"""Where the answer to `Prompt.text` ends: its blocks are separated by a blank line, and a completion LLM would
otherwise continue with the next question."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a backend (probed, stored per LLM and server, checked before a plan runs).

    ``logprobs``: log-probabilities of generated tokens. ``scoring``: log-probabilities of given choices; ``apart``: of
    a plain text, without the template that a chat server puts around the prompt that is served. ``entropies``: those
    of the distributions that generated tokens were sampled from. ``context_tokens``: maximum prompt length,
    None if unknown. ``instructs``: follows free instructions (the built-in reader does not). ``notes``: lines for the
    user.
    """

    logprobs: bool
    scoring: bool
    instructs: bool = True
    context_tokens: int | None = None
    entropies: bool = False
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = False

    @property
    def scores_served(self) -> bool:
        """Whether what it scores is the prompt that is served."""
        return self.scoring and not self.apart


class Backend(Protocol):
    """One LLM. `ask` never raises for a single request's failure; it returns a `Failure` in its place."""

    spec: str
    """As the user wrote it: ``offline``, ``openai:MODEL``, ``hf:PATH``."""

    local: bool
    """Computes on this machine: a call costs time but no money, and its tokens are counted exactly."""

    max_in_flight: int
    """Maximum useful number of batches in flight (1 for a local model)."""

    @property
    def batch_size(self) -> int:
        """Maximum requests per `ask` (1 for a server)."""

    def identity(self) -> Mapping[str, Any]:
        """Everything besides the request that changes the answers (server, model, revision, dtype, template); it is
        part of the cache key. Never a secret."""

    def count_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt: exact for a local model, an estimate for a server."""

    async def probe(self) -> Capabilities:
        """Test what the LLM can do with a few tiny calls. Raises `LLMError` if it cannot be reached."""

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """One result per request, in order."""

    async def close(self) -> None:
        """Release connections or memory."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent over HTTP for a request. ``headers``: what the user or the key adds to those of every client, by
    name, as a shell writes the value: with variables of the environment in it; None for one that is not to be shown."""

    url: str
    headers: Mapping[str, str | None]
    body: Mapping[str, Any]


@runtime_checkable
class Sends(Protocol):
    """A backend that sends its requests to a server."""

    def outgoing(self, request: Request) -> list[Outgoing]:
        """What `Backend.ask` would send for it, by what is known of the server. Nothing is sent."""


@runtime_checkable
class Renders(Protocol):
    """A backend that turns a prompt into one text for its model."""

    def rendered(self, prompt: Prompt) -> str:
        """That text. Raises `LLMError` if the model's files cannot be read."""


Encode = Callable[[Sequence[str]], Float32s]
"""Texts to vectors of unit length, shape (texts, dim)."""

Keep = Callable[[Mapping[int, Result]], None]
"""Receives results by the positions of their requests."""


@runtime_checkable
class Streams(Protocol):
    """A backend whose results of one `ask` arrive at different times, as those of a local model do."""

    async def ask_each(self, requests: Sequence[Request], keep: Keep) -> None:
        """`Backend.ask`, but ``keep`` is called, on the event loop, with each result as soon as it is available. When
        cancelled, it stops computing as soon as possible."""


@dataclass(frozen=True, slots=True)
class Looked:
    """An answered prompt, and ``texts`` that it contains in this order."""

    prompt: Prompt
    answer: str
    texts: tuple[str, ...]


@runtime_checkable
class Attends(Protocol):
    """A backend that can tell where it looks, as a local model can."""

    async def attention(self, looked: Sequence[Looked]) -> list[tuple[float, ...] | None]:
        """For each prompt the share of attention that each of its texts gets while the answer is written; None if a
        text is not in the prompt. Raises `LLMError` if the model cannot be loaded."""


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """All settings of an LLM except its name.

    ``base_url``: the server of ``openai:`` specs (else ``OPENAI_BASE_URL``, else the vendor's own). ``timeout``:
    seconds for one call. ``concurrency``: maximum calls in flight; the runner increases up to it and backs off if the
    server asks for it. ``attempts`` and ``max_wait`` (seconds) bound how often and how long one request is tried;
    of a server that is busy or away it may be tried more often than that (`pace.Retries`), if not only once. ``grace``:
    seconds for calls already sent, and so paid for, to finish after an interruption. ``endpoint``: ``auto`` uses chat
    completions and falls back to completions. ``system_role``: that of a prompt's first message.
    ``reasoning_effort`` and the fields of ``extra_body`` (JSON text) go into the bodies of all requests, and
    ``headers`` and ``query_params`` (JSON text; ``${NAME}`` in a value is a variable of the environment) with them.
    ``device`` and ``dtype`` belong to ``hf:`` specs (``auto``: see `hf.loading.dtype_named`); ``batch_size``: maximum
    requests that a local model takes at once.
    """

    base_url: str | None = None
    timeout: float = 120.0
    concurrency: int = 64
    attempts: int = 6
    max_wait: float = 600.0
    grace: float = 5.0
    endpoint: str = "auto"
    system_role: str = "system"
    reasoning_effort: str = ""
    extra_body: str = ""
    headers: str = ""
    query_params: str = ""
    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32


DEFAULTS = LLMSettings()
