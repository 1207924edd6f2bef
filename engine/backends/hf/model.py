"""The backend behind ``hf:``: the model's identity, its loading, and the distribution of requests to scoring and
generation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import LLMError
from ...llm.types import BLOCK_END, DEFAULTS, Answer, Capabilities, Failure, Keep, LLMSettings, Looked, Request, Result
from ...pool.open_answers import after_thinking
from ...pool.prompts import Prompt
from .generation import Generation, generate, generator_of
from .loaded import Loaded
from .loading import device_named, digest_of, dtype_named, fingerprint, load_description, load_weights
from .scoring import WORTH_SHARING, Score, attention_to, score_rows, score_tree, tree_works
from .tokens import Scored, common, context_of, encode, encode_options, render
from .worker import Worker, each, together


class LocalModel:
    """The backend behind ``hf:``. The tokenizer is loaded on first use, the weights with the first request.

    Raises `LLMError`, with a fix, if the model cannot be loaded. All computation is done in one separate thread, off
    the event loop.
    """

    local = True
    max_in_flight = 1

    def __init__(self, name: str, settings: LLMSettings = DEFAULTS, known_as: str = "") -> None:
        """``known_as``: a fixed name for a model whose path differs between machines."""
        self.spec = known_as or f"hf:{name}"
        self.name = name
        self._known_as = known_as or name
        self.batch_size = settings.batch_size
        self._settings = settings
        self._lock = threading.Lock()
        self._worker = Worker("icl-curate-hf")
        self._description: tuple[Any, Any] | None = None
        self._identity: Mapping[str, Any] | None = None
        self._loaded: Loaded | None = None
        self._tree = False

    # description

    def identity(self) -> Mapping[str, Any]:
        """Path, weights fingerprint (or the hub's commit), dtype, and a hash of the chat template."""
        if self._identity is None:
            tokenizer, config = self._described()
            template = tokenizer.chat_template
            self._identity = {
                "backend": "hf",
                "model": self._known_as,
                "weights": fingerprint(self.name, config),
                "dtype": dtype_named(self._settings.dtype, device_named(self._settings.device)),
                "template": digest_of([json.dumps(template, sort_keys=True).encode()]) if template else "text",
            }
        return self._identity

    def count_tokens(self, prompt: Prompt) -> int:
        tokenizer, _ = self._described()
        return len(encode(tokenizer, *render(tokenizer, prompt)))

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence the model was made for; None if its configuration does not say."""
        return context_of(*self._described())

    async def probe(self) -> Capabilities:
        """Load it and score two options of a tiny prompt both ways. Raises `LLMError` if it cannot be loaded."""
        start = time.monotonic()
        loaded = await self._worker.run(self._ready)
        notes = []
        if not self._tree:
            notes.append("its attention takes no tree mask: options are scored one row each")
        if not loaded.tokenizer.chat_template:
            notes.append("has no chat template: prompts are sent as one text")
        return Capabilities(
            logprobs=True,
            scoring=True,
            entropies=True,
            context_tokens=self.context_tokens,
            notes=tuple(notes),
            details={"latency": time.monotonic() - start, "device": str(loaded.device)},
        )

    async def close(self) -> None:
        """Drop the weights; they load again when needed. A running computation ends by itself soon."""
        self._worker.end()
        self._loaded = None

    # requests

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        return await together(self, requests)

    async def ask_each(self, requests: Sequence[Request], keep: Keep) -> None:
        """See `Streams`: results arrive by group of prompts with a common prefix, by forward pass over options, and by
        finished answer."""
        await each(self._worker, lambda given: self._answer(requests, given), keep)

    async def attention(self, looked: Sequence[Looked]) -> list[tuple[float, ...] | None]:
        """See `Attends`."""
        return await self._worker.run(lambda: self._attention(looked))

    def _attention(self, looked: Sequence[Looked]) -> list[tuple[float, ...] | None]:
        import torch

        with torch.inference_mode():
            return [attention_to(self._ready(), each.prompt, each.answer, each.texts) for each in looked]

    def _answer(self, requests: Sequence[Request], keep: Keep) -> None:
        import torch

        waiting = dict(enumerate(requests))
        try:
            loaded = self._ready()
        except LLMError as error:
            keep(dict.fromkeys(waiting, Failure("not_found", error.what)))
            return
        at_once = len(waiting)
        while waiting:
            part = dict(list(waiting.items())[:at_once])
            try:
                with torch.inference_mode():
                    for found in self._answer_all(loaded, part):
                        for place in found:
                            del waiting[place]
                        keep(found)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                if at_once > 1:
                    at_once //= 2
                    continue
                (place,) = part
                del waiting[place]
                keep({place: Failure("context", "the prompt does not fit into the accelerator's memory")})

    def _answer_all(self, loaded: Loaded, requests: Mapping[int, Request]) -> Iterator[Mapping[int, Result]]:
        """Results by position, those that finish together in one mapping."""
        yield from self._score_all(loaded, {i: request for i, request in requests.items() if request.score})
        yield from self._generate_all(loaded, {i: request for i, request in requests.items() if not request.score})

    # loading

    def _described(self) -> tuple[Any, Any]:
        """Tokenizer and configuration, loaded once."""
        with self._lock:
            if self._description is None:
                self._description = load_description(self.name)
        return self._description

    def _ready(self) -> Loaded:
        """Load the weights and test the tree mask on them, once."""
        if self._loaded is None:
            import torch

            tokenizer, config = self._described()
            device = device_named(self._settings.device)
            model = load_weights(self.name, self._settings.dtype, device)
            loaded = Loaded(self._known_as, model, config, tokenizer, self._worker.check)
            with torch.inference_mode():
                self._tree = tree_works(loaded)
            self._loaded = loaded.watched()
        return self._loaded

    # scoring and generation

    def _too_long(self, tokens: int) -> Failure | None:
        limit = self.context_tokens
        if limit is None or tokens <= limit:
            return None
        return Failure("context", f"{tokens:,} tokens, the model's context has {limit:,}")

    def _score_all(self, loaded: Loaded, requests: Mapping[int, Request]) -> Iterator[Mapping[int, Result]]:
        scored: list[Scored] = []
        failed: dict[int, Result] = {}
        for i, request in requests.items():
            rows = encode_options(loaded.tokenizer, i, request.prompt)
            if not rows:
                failed[i] = Failure("request", "nothing to score: the prompt has no choices")
            elif any(row.split >= len(row.ids) or row.split < 1 for row in rows):
                failed[i] = Failure("request", "an option or the prompt has no tokens of its own")
            elif too_long := self._too_long(max(len(row.ids) for row in rows)):
                failed[i] = too_long
            else:
                scored.extend(rows)
        if failed:
            yield failed
        if not scored:
            return
        by_request: dict[int, dict[int, Score]] = {}
        start = time.monotonic()
        for scores in (score_tree if self._tree else score_rows)(loaded, scored):
            for score in scores:
                by_request.setdefault(score[0].request, {})[score[0].option] = score
            whole = [i for i, options in by_request.items() if len(options) == len(requests[i].prompt.choices)]
            share = (time.monotonic() - start) / max(len(whole), 1)
            if whole:
                yield {i: self._scored(requests[i].prompt, by_request.pop(i), share) for i in whole}
                start = time.monotonic()

    def _scored(self, prompt: Prompt, options: Mapping[int, Score], latency: float) -> Answer:
        scores = [options[i] for i in range(len(prompt.choices))]
        totals = [sum(values) for _, values in scores]
        return Answer(
            text=prompt.choices[totals.index(max(totals))],
            option_logprobs=tuple(values for _, values in scores),
            tokens_in=scores[0][0].split + sum(len(row.ids) - row.split for row, _ in scores),
            latency=latency,
            model=self._known_as,
        )

    def _generate_all(self, loaded: Loaded, requests: Mapping[int, Request]) -> Iterator[Mapping[int, Result]]:
        """Generate answers, together for prompts that begin alike."""
        generations: dict[int, Generation] = {}
        failed: dict[int, Result] = {}
        for i, request in requests.items():
            text, chat = render(loaded.tokenizer, request.prompt)
            ids = encode(loaded.tokenizer, text, chat)
            if too_long := self._too_long(len(ids) + request.sampling.max_tokens):
                failed[i] = too_long
            elif not ids:
                failed[i] = Failure("request", "the prompt has no tokens")
            else:
                stops = request.sampling.stop if chat else (BLOCK_END, *request.sampling.stop)
                if request.prompt.one_line and after_thinking(text) is not None:  # else it goes on thinking
                    stops = (*stops, "\n")
                generations[i] = Generation(i, ids, request.sampling, stops, generator_of(request.sampling, text))
        if failed:
            yield failed
        alone: list[Generation] = []
        for group in _groups({i: requests[i] for i in generations}).values():
            if len(group) > 1:
                yield from self._generate(loaded, [generations[i] for i in group])
            else:
                alone.append(generations[group[0]])
        yield from self._generate(loaded, alone)

    def _generate(self, loaded: Loaded, generations: Sequence[Generation]) -> Iterator[Mapping[int, Result]]:
        """Generate answers from the common prefix of their prompts, if that is worth its own pass."""
        shared = 0
        if len(generations) > 1 and self._tree:
            shared = min(common([d.ids for d in generations]), min(len(d.ids) for d in generations) - 1)
        yield from generate(loaded, generations, shared if shared >= WORTH_SHARING else 0)


def _groups(requests: Mapping[int, Request]) -> dict[object, list[int]]:
    """Positions of requests that differ at most in their last turn: same instruction, same demonstrations."""
    groups: dict[object, list[int]] = {}
    for i, request in requests.items():
        groups.setdefault(request.prompt.messages[:-1], []).append(i)
    return groups
