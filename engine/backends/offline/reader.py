"""The offline reader as a backend: texts are encoded once, an answer is sampled and returned word by word."""

from __future__ import annotations

import hashlib
import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...llm.types import Answer, Capabilities, Encode, Failure, Keep, Request, Result, Sampling
from ...pool.prompts import Prompt
from ..hf.worker import Worker, each, together
from .closed_questions import choice_index, closed_distribution, in_words
from .evidence import Distribution, Vector, sentences_in, softmax
from .open_questions import open_distribution
from .texts import key_of

READER = 2
"""Version of the reader's rules and constants; it is part of the cache key."""

NOTES = (
    "the offline reader is a stand-in, not an LLM: it matches texts with the sentence encoder",
    "its figures show how a method works; choose --llm openai:MODEL or hf:PATH to learn about an LLM",
)

SOME = 32
"""Requests whose answers are returned together."""
TEXTS = 64
"""Texts encoded in one call: a fraction of a second of work."""

_TINY = 1e-300


def _unchecked() -> None:
    """For a caller that waits until the end."""


class _Memo:
    """Vectors by text; the least recently used are dropped beyond ``capacity`` after each batch."""

    def __init__(self, encode: Encode, capacity: int) -> None:
        self._encode = encode
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vector] = OrderedDict()

    def learn(self, texts: Iterable[str], check: Callable[[], None]) -> None:
        """Encode the texts that are not known yet, `TEXTS` per call, with a ``check`` before each."""
        wanted = dict.fromkeys(texts)
        new = [text for text in wanted if text not in self._vectors]
        for text in wanted:
            if text in self._vectors:
                self._vectors.move_to_end(text)
        for start in range(0, len(new), TEXTS):
            check()
            some = new[start : start + TEXTS]
            # copies of the rows, because a view would keep the whole batch in memory
            self._vectors.update((t, v.copy()) for t, v in zip(some, self._encode(some), strict=True))

    def trim(self) -> None:
        while len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)

    def rows(self, texts: Sequence[str]) -> Vector:
        """The vectors (n, d) of texts encoded before."""
        return np.stack([self._vectors[text] for text in texts])


def texts_of(prompt: Prompt) -> Iterable[str]:
    """Every text of the prompt whose vector the reader looks up."""
    yield prompt.query.input
    for demonstration in prompt.demonstrations:
        yield demonstration.input
    if prompt.choices:
        yield from (in_words(choice) for choice in prompt.choices)
        index = choice_index(prompt.choices)
        own = prompt.query.options
        yield from (in_words(d.output) for d in prompt.demonstrations if own or key_of(d.output) not in index)
    yield from (sentence.titled for sentence in sentences_in(prompt))


class OfflineReader:
    """The `Backend` of the spec ``offline``; the computation is in `closed_questions` and `open_questions`.

    ``encode`` takes n texts and returns float32 vectors (n, d) of unit length; a text's vector must not depend on the
    others (in reduced precision the answers' probabilities would depend on the batch). ``encoder_name`` is part of the
    cache key. ``memory`` bounds how many texts' vectors are kept between batches (1.5 kB each at d = 384).
    """

    spec = "offline"
    local = True
    max_in_flight = 1
    batch_size = 256

    def __init__(self, encode: Encode, encoder_name: str = "", memory: int = 200_000) -> None:
        self._encoder_name = encoder_name
        self._memo = _Memo(encode, memory)
        self._lock = threading.Lock()
        self._worker = Worker("icl-curate-reader")

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "offline", "reader": READER, "encoder": self._encoder_name}

    def count_tokens(self, prompt: Prompt) -> int:
        """Words separated by white space: the reader has no tokenizer."""
        return len(prompt.text.split())

    async def probe(self) -> Capabilities:
        return Capabilities(
            logprobs=True, scoring=True, entropies=True, instructs=False, notes=NOTES, details=self.identity()
        )

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """Answers in the requests' order; a request to score a prompt without choices gives a `Failure`.

        Runs in a thread, so it does not block the caller's event loop.
        """
        return await together(self, requests)

    async def ask_each(self, requests: Sequence[Request], keep: Keep) -> None:
        """See `Streams`: `SOME` requests at a time."""

        def answer(given: Keep) -> None:
            for start in range(0, len(requests), SOME):
                given(dict(enumerate(self.answer(requests[start : start + SOME], self._worker.check), start)))

        await each(self._worker, answer, keep)

    async def close(self) -> None:
        """Nothing to release: the encoder belongs to the caller."""
        self._worker.end()

    def distributions(self, prompts: Sequence[Prompt], copies: bool = True) -> list[Distribution]:
        """The distribution behind each prompt's answer; ``copies`` as in `closed_distribution`."""
        with self._lock:
            self._memo.learn((text for prompt in prompts for text in texts_of(prompt)), _unchecked)
            found = [self._read(prompt, copies) for prompt in prompts]
            self._memo.trim()
        return found

    def answer(self, requests: Sequence[Request], check: Callable[[], None] = _unchecked) -> list[Result]:
        """`ask` for callers without an event loop; ``check`` is called from time to time and may raise to end it."""
        started = time.perf_counter()
        with self._lock:
            self._memo.learn((text for request in requests for text in texts_of(request.prompt)), check)
            answers: list[Result] = []
            for request in requests:
                check()
                answers.append(self._answer(request))
            self._memo.trim()
        latency = (time.perf_counter() - started) / max(len(requests), 1)
        return [replace(a, latency=latency) if isinstance(a, Answer) else a for a in answers]

    def _read(self, prompt: Prompt, copies: bool) -> Distribution:
        if prompt.choices:
            return closed_distribution(prompt, self._memo.rows, copies)
        return open_distribution(prompt, self._memo.rows)

    def _answer(self, request: Request) -> Result:
        prompt = request.prompt
        if request.score and not prompt.choices:
            return Failure("request", "the prompt has no choices to score")
        distribution = self._read(prompt, copies=not request.score)
        tokens_in = self.count_tokens(prompt)
        if request.score:
            scores = np.log(np.maximum(distribution.probabilities, _TINY)).tolist()
            text = distribution.texts[int(np.argmax(distribution.probabilities))]
            return Answer(
                text,
                option_logprobs=tuple((score,) for score in scores),
                tokens_in=tokens_in,
                tokens_out=len(text.split()),
                model=self.spec,
            )
        chosen = _draw(distribution, request.sampling, prompt)
        return _as_tokens(
            distribution.texts[chosen],
            float(distribution.probabilities[chosen]),
            entropy_of(distribution),
            request.sampling,
            tokens_in,
        )


def _draw(distribution: Distribution, sampling: Sampling, prompt: Prompt) -> int:
    """The most probable candidate, the first in a tie, or, at a temperature, one sampled from p^(1/T) within ``top_p``;
    the sample depends only on the seed, the repeat and the prompt."""
    if sampling.temperature <= 0.0:
        return int(np.argmax(distribution.probabilities))
    softened = softmax(np.log(np.maximum(distribution.probabilities, _TINY)) / sampling.temperature)
    order = np.argsort(-softened, kind="stable")
    cumulated = np.cumsum(softened[order])
    kept = int(np.searchsorted(cumulated, min(sampling.top_p, 1.0))) + 1
    cumulated = cumulated[:kept]
    key = f"{sampling.seed}\x1f{sampling.repeat}\x1f{prompt.text}".encode()
    draw = random.Random(hashlib.blake2b(key, digest_size=16).digest()).random()
    return int(order[min(int(np.searchsorted(cumulated, draw * cumulated[-1], side="right")), len(cumulated) - 1)])


def entropy_of(distribution: Distribution) -> float:
    """Entropy in nats, with "none of these" counted as one more answer."""
    probabilities = np.append(distribution.probabilities, max(0.0, 1.0 - distribution.probabilities.sum()))
    kept = probabilities[probabilities > 0.0]
    return float(-(kept * np.log(kept)).sum())


def _as_tokens(text: str, probability: float, entropy: float, sampling: Sampling, tokens_in: int) -> Answer:
    """The answer word by word; each word has an equal part of log p(answer) and of the entropy, at any sampling
    temperature, as servers report it."""
    finish = "stop"
    for stop in filter(None, sampling.stop):
        text = text.split(stop, 1)[0]
    words = text.split()
    share = math.log(max(probability, _TINY)) / max(len(words), 1)
    entropy /= max(len(words), 1)
    if len(words) > sampling.max_tokens:
        words, finish = words[: sampling.max_tokens], "length"
        text = " ".join(words)
    return Answer(
        text,
        tokens=tuple(words),
        logprobs=(share,) * len(words),
        entropies=(entropy,) * len(words),
        finish=finish,
        tokens_in=tokens_in,
        tokens_out=len(words),
        model="offline",
    )
