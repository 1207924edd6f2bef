"""The backend behind ``hf:``: what the model is, when it is loaded, and requests shared out to scoring and drawing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import LLMError
from ...pool.prompts import Prompt
from ..settings import DEFAULTS, LLMSettings
from ..types import BLOCK_END, Answer, Capabilities, Failure, Request, Result
from .drawing import Drawn, draw, generator_of
from .loaded import Loaded
from .loading import device_named, digest_of, dtype_named, fingerprint, load_description, load_weights
from .scoring import score_rows, score_tree, tree_works
from .tokens import Scored, common, encode, encode_options, render

WORTH_SHARING = 16
"""Fewest common tokens for which a group's prefix is computed apart."""


class LocalModel:
    """The backend behind ``hf:``. The tokenizer loads on first need, the weights on the first question.

    Raises `LLMError`, with what to do, when the model cannot be loaded. All computing happens in one thread of its
    own, off the event loop.
    """

    max_in_flight = 1

    def __init__(self, name: str, settings: LLMSettings = DEFAULTS) -> None:
        self.spec = f"hf:{name}"
        self.name = name
        self.batch_size = settings.batch_size
        self._settings = settings
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._description: tuple[Any, Any] | None = None
        self._identity: Mapping[str, Any] | None = None
        self._loaded: Loaded | None = None
        self._tree = False

    # what it is

    def identity(self) -> Mapping[str, Any]:
        """Path, weights fingerprint (or the hub's commit), dtype, and a hash of the chat template."""
        if self._identity is None:
            tokenizer, config = self._described()
            template = tokenizer.chat_template
            self._identity = {
                "backend": "hf",
                "model": self.name,
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
        """Longest sequence the model was made for; None where its configuration does not say."""
        tokenizer, config = self._described()
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        limits = [getattr(text, "max_position_embeddings", None), tokenizer.model_max_length]
        known = [int(limit) for limit in limits if limit and limit < 1e9]
        return min(known) if known else None

    async def probe(self) -> Capabilities:
        """Load it and score two options of a tiny prompt both ways. Raises `LLMError` when it cannot be loaded."""
        start = time.monotonic()
        loaded: Loaded = await self._in_thread(self._ready)
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
        """Drop the weights; they load again when asked."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)
        self._loaded = None

    # asking

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        results: list[Result] = await self._in_thread(self._answer, list(requests))
        return results

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="icl-curate-hf")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def _answer(self, requests: list[Request]) -> list[Result]:
        import torch

        try:
            loaded = self._ready()
        except LLMError as error:
            return [Failure("not_found", error.what)] * len(requests)
        try:
            with torch.inference_mode():
                return self._answer_all(loaded, requests)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
        if len(requests) == 1:
            return [Failure("context", "the prompt does not fit into the accelerator's memory")]
        half = len(requests) // 2
        return self._answer(requests[:half]) + self._answer(requests[half:])

    def _answer_all(self, loaded: Loaded, requests: list[Request]) -> list[Result]:
        results: dict[int, Result] = {}
        for group in _groups(requests).values():
            self._score_group(loaded, requests, [i for i in group if requests[i].score], results)
        generated = [i for i, request in enumerate(requests) if not request.score]
        self._generate_all(loaded, requests, generated, results)
        return [results[i] for i in range(len(requests))]

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
            loaded = Loaded(self.name, model, config, tokenizer)
            with torch.inference_mode():
                self._tree = tree_works(loaded)
            self._loaded = loaded
        return self._loaded

    # scoring and drawing

    def _too_long(self, tokens: int) -> Failure | None:
        limit = self.context_tokens
        if limit is None or tokens <= limit:
            return None
        return Failure("context", f"{tokens:,} tokens, the model's context has {limit:,}")

    def _score_group(
        self, loaded: Loaded, requests: Sequence[Request], group: Sequence[int], results: dict[int, Result]
    ) -> None:
        """Score requests whose prompts begin alike."""
        start = time.monotonic()
        scored: list[Scored] = []
        for i in group:
            rows = encode_options(loaded.tokenizer, i, requests[i].prompt)
            if not rows:
                results[i] = Failure("request", "nothing to score: the prompt has no choices")
            elif any(row.split >= len(row.ids) or row.split < 1 for row in rows):
                results[i] = Failure("request", "an option or the prompt has no tokens of its own")
            elif too_long := self._too_long(max(len(row.ids) for row in rows)):
                results[i] = too_long
            else:
                scored.extend(rows)
        if not scored:
            return
        values = (score_tree if self._tree else score_rows)(loaded, scored)
        share = (time.monotonic() - start) / len({row.request for row in scored})
        by_request: dict[int, list[tuple[Scored, tuple[float, ...]]]] = {}
        for row, value in zip(scored, values, strict=True):
            by_request.setdefault(row.request, []).append((row, value))
        for i, pairs in by_request.items():
            totals = [sum(value) for _, value in pairs]
            results[i] = Answer(
                text=requests[i].prompt.choices[totals.index(max(totals))],
                option_logprobs=tuple(value for _, value in pairs),
                tokens_in=pairs[0][0].split + sum(len(row.ids) - row.split for row, _ in pairs),
                latency=share,
                model=self.name,
            )

    def _generate_all(
        self, loaded: Loaded, requests: Sequence[Request], which: Sequence[int], results: dict[int, Result]
    ) -> None:
        """Draw the answers of the requests ``which``, those together that begin alike."""
        drawn: list[Drawn] = []
        for i in which:
            request = requests[i]
            text, chat = render(loaded.tokenizer, request.prompt)
            ids = encode(loaded.tokenizer, text, chat)
            if too_long := self._too_long(len(ids) + request.sampling.max_tokens):
                results[i] = too_long
            elif not ids:
                results[i] = Failure("request", "the prompt has no tokens")
            else:
                stops = request.sampling.stop if chat else (BLOCK_END, *request.sampling.stop)
                drawn.append(Drawn(i, ids, request.sampling, stops, generator_of(request.sampling, text)))
        alone: list[Drawn] = []
        for group in _groups([requests[d.request] for d in drawn]).values():
            members = [drawn[g] for g in group]
            shared = min(common([d.ids for d in members]), min(len(d.ids) for d in members) - 1)
            if len(members) > 1 and shared >= WORTH_SHARING and self._tree:
                results.update(draw(loaded, members, shared))
            else:
                alone.extend(members)
        results.update(draw(loaded, alone, 0))


def _groups(requests: Sequence[Request]) -> dict[object, list[int]]:
    """Indices of requests that differ in their last turn at most: same instruction, same demonstrations."""
    groups: dict[object, list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault(request.prompt.messages[:-1], []).append(i)
    return groups
