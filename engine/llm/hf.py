"""``hf:NAME_OR_PATH``: a causal language model of the transformers library, on this machine.

What few-shot prompts have in common is computed once: requests whose prompts differ only in the last turn share
their leading tokens, which are run through the model a single time. Options are then scored as a tree on
that cached prefix: one row holds the rest of a prompt and all of its options, and an attention mask lets each option
see the prompt and itself alone. The log-probabilities are those of encoding prompt and option together and running
each pair alone (the tests hold the two against each other).

Every number comes from a float32 log-softmax over unprocessed logits, at temperature 1, whatever the sampling.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LLMError
from ..pool.prompts import Message, Prompt
from ..pool.records import Query
from .settings import DEFAULTS, LLMSettings
from .types import BLOCK_END, Answer, Capabilities, Failure, Request, Result, Sampling

if TYPE_CHECKING:
    import torch

TREE_TOKENS = 1024
"""Tokens of a forward pass over a tree: enough to fill the matrix units, and the mask stays small."""
ROW_TOKENS = 8192
"""Tokens (rows × length) of a padded batch."""
WORTH_SHARING = 16
"""Fewest common tokens for which a group's prefix is computed apart."""
TREE_TOLERANCE = 0.05
"""Largest difference, in nats, between tree and plain scores of the self-test; wide enough for bfloat16."""

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
_DESCRIPTIONS = ("config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja")
_SAMPLES, _SAMPLE = 64, 1 << 16


@dataclass(slots=True)
class _Scored:
    """One option of one request: token ids of prompt and option, and where the option begins."""

    request: int
    option: int
    ids: list[int]
    split: int


@dataclass(slots=True)
class _Drawn:
    """One answer being generated."""

    request: int
    ids: list[int]
    sampling: Sampling
    stops: tuple[str, ...]
    generator: Any
    out: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: str = ""


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
        self._tokenizer: Any = None
        self._config: Any = None
        self._identity: Mapping[str, Any] | None = None
        self._model: Any = None
        self._tree: bool | None = None

    # what it is

    def identity(self) -> Mapping[str, Any]:
        """Path, weights fingerprint (or the hub's commit), dtype, and a hash of the chat template."""
        if self._identity is None:
            tokenizer, config = self._described()
            template = tokenizer.chat_template
            self._identity = {
                "backend": "hf",
                "model": self.name,
                "weights": _fingerprint(self.name, config),
                "dtype": self._dtype_name(),
                "template": _digest([json.dumps(template, sort_keys=True).encode()]) if template else "text",
            }
        return self._identity

    def count_tokens(self, prompt: Prompt) -> int:
        return len(self._encode_prompt(prompt))

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
        await self._in_thread(self._ready)
        notes = []
        if not self._tree:
            notes.append("its attention takes no tree mask: options are scored one row each")
        if not self._tokenizer.chat_template:
            notes.append("has no chat template: prompts are sent as one text")
        return Capabilities(
            logprobs=True,
            scoring=True,
            entropies=True,
            context_tokens=self.context_tokens,
            notes=tuple(notes),
            details={"latency": time.monotonic() - start, "device": str(self._model.device)},
        )

    async def close(self) -> None:
        """Drop the weights; they load again when asked."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)
        self._model = None
        self._tree = None

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
            self._ready()
        except LLMError as error:
            return [Failure("not_found", error.what)] * len(requests)
        try:
            with torch.inference_mode():
                return self._answer_all(requests)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
        if len(requests) == 1:
            return [Failure("context", "the prompt does not fit into the accelerator's memory")]
        half = len(requests) // 2
        return self._answer(requests[:half]) + self._answer(requests[half:])

    def _answer_all(self, requests: list[Request]) -> list[Result]:
        results: dict[int, Result] = {}
        for group in _groups(requests).values():
            self._score_group(requests, [i for i in group if requests[i].score], results)
        self._generate_all(requests, [i for i, request in enumerate(requests) if not request.score], results)
        return [results[i] for i in range(len(requests))]

    # loading

    def _described(self) -> tuple[Any, Any]:
        """Tokenizer and configuration; light beside the weights."""
        with self._lock:
            if self._tokenizer is None:
                import transformers

                with _loading(self.name), _quiet():
                    self._config = transformers.AutoConfig.from_pretrained(self._source)
                    tokenizer = transformers.AutoTokenizer.from_pretrained(self._source)
                if not getattr(tokenizer, "is_fast", False):
                    raise LLMError(
                        f"{self.spec} has only a slow tokenizer, which cannot tell where an option begins",
                        "save it with a tokenizer.json (AutoTokenizer.from_pretrained(…).save_pretrained(…))",
                    )
                self._tokenizer = tokenizer
        return self._tokenizer, self._config

    @property
    def _source(self) -> str:
        path = Path(self.name).expanduser()
        return str(path) if path.exists() else self.name

    def _ready(self) -> None:
        """Load the weights and test the tree mask on them, once."""
        if self._model is not None:
            return
        import torch
        import transformers

        self._described()
        device = self._device()
        with _loading(self.name), _quiet():
            model = transformers.AutoModelForCausalLM.from_pretrained(self._source, dtype=self._dtype(device))
            model.to(device).eval()  # type: ignore[arg-type]
        self._model = model
        with torch.inference_mode():
            self._tree = self._tree_works()

    def _device(self) -> str:
        if self._settings.device != "auto":
            return self._settings.device
        import torch

        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"

    def _dtype(self, device: str) -> Any:
        import torch

        asked = self._settings.dtype
        if asked == "auto":
            return torch.float32 if device == "cpu" else "auto"
        return getattr(torch, asked)

    def _dtype_name(self) -> str:
        asked = self._settings.dtype
        return asked if asked != "auto" else "float32" if self._device() == "cpu" else "auto"

    # prompts to tokens

    def _render(self, prompt: Prompt) -> tuple[str, bool]:
        """The prompt as text, and whether it came out of the chat template (which writes its own special tokens)."""
        tokenizer, _ = self._described()
        if not tokenizer.chat_template:
            return prompt.text, False
        from jinja2 import TemplateError

        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        try:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        except TemplateError:  # many templates know no system turn: it then opens the first user turn
            text = tokenizer.apply_chat_template(_without_system(messages), add_generation_prompt=True, tokenize=False)
        return str(text), True

    def _encode_prompt(self, prompt: Prompt) -> list[int]:
        text, chat = self._render(prompt)
        return list(self._tokenizer(text, add_special_tokens=not chat, verbose=False)["input_ids"])

    def _encode_options(self, index: int, prompt: Prompt) -> list[_Scored]:
        """Each option encoded together with the prompt: encoding it alone gives other tokens at the boundary."""
        text, chat = self._render(prompt)
        rows = []
        for j, choice in enumerate(prompt.choices):
            whole = text + (choice if chat else f" {choice}")
            encoded = self._tokenizer(
                whole,
                add_special_tokens=not chat,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                verbose=False,
            )
            ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
            while ids and offsets[len(ids) - 1][1] <= len(text) and encoded["special_tokens_mask"][len(ids) - 1]:
                ids.pop()  # an end-of-text token that the tokenizer adds is no part of the option
            split = next((k for k in range(len(ids)) if offsets[k][1] > len(text)), len(ids))
            rows.append(_Scored(index, j, ids, split))
        return rows

    def _too_long(self, tokens: int) -> Failure | None:
        limit = self.context_tokens
        if limit is None or tokens <= limit:
            return None
        return Failure("context", f"{tokens:,} tokens, the model's context has {limit:,}")

    # scoring

    def _score_group(self, requests: Sequence[Request], group: Sequence[int], results: dict[int, Result]) -> None:
        """Score requests whose prompts begin alike."""
        start = time.monotonic()
        scored: list[_Scored] = []
        for i in group:
            rows = self._encode_options(i, requests[i].prompt)
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
        values = self._score_tree(scored) if self._tree else self._score_rows(scored)
        share = (time.monotonic() - start) / len({row.request for row in scored})
        by_request: dict[int, list[tuple[_Scored, tuple[float, ...]]]] = {}
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

    def _score_rows(self, rows: Sequence[_Scored]) -> list[tuple[float, ...]]:
        """The plain way: prompt and option in a row each, padded on the right. Slow, and what the tree must equal."""
        import torch

        values: list[tuple[float, ...]] = [()] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
        while order:
            longest = len(rows[order[0]].ids)
            count = max(1, ROW_TOKENS // longest)
            batch, order = order[:count], order[count:]
            keep = longest - min(rows[i].split for i in batch)
            ids = torch.zeros((len(batch), longest - 1), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for r, i in enumerate(batch):
                inputs = rows[i].ids[:-1]  # the last token is only ever a target
                ids[r, : len(inputs)] = torch.tensor(inputs)
                mask[r, : len(inputs)] = 1
            positions = torch.arange(longest - 1).expand(len(batch), -1)
            logits = self._forward(ids, attention_mask=mask, position_ids=positions, logits_to_keep=keep).logits
            first = longest - 1 - logits.shape[1]
            for r, i in enumerate(batch):
                row = rows[i]
                window = logits[r, row.split - 1 - first : len(row.ids) - 1 - first]
                values[i] = tuple(_logprobs_of(window, row.ids[row.split :]))
        return values

    def _score_tree(self, rows: Sequence[_Scored]) -> list[tuple[float, ...]]:
        """All options of requests that begin alike: the common tokens once, the rest as trees on their cache."""
        shared = min(_common([row.ids for row in rows]), min(row.split for row in rows) - 1)
        cache = self._prefill(rows[0].ids[:shared]) if shared else self._empty_cache()
        values: dict[tuple[int, int], tuple[float, ...]] = {}
        for pack in _packs(rows, shared):
            values.update(self._score_pack(pack, shared, cache))
        return [values[row.request, row.option] for row in rows]

    def _score_pack(
        self, pack: Sequence[_Scored], shared: int, cache: Any
    ) -> Iterator[tuple[tuple[int, int], tuple[float, ...]]]:
        """One forward pass over a forest: for each request a stem (its prompt's rest), for each option a branch."""
        import torch

        forks = {
            request: min(_common([row.ids for row in siblings]), min(row.split for row in siblings))
            for request, siblings in _by_request(pack).items()
        }
        tokens: list[int] = []
        depth: list[int] = []
        spans: list[tuple[int, int, int, int]] = []  # for each node run: start, end, its stem's start and end
        stems: dict[int, tuple[int, int]] = {}
        paths: list[tuple[_Scored, list[int]]] = []
        for row in pack:
            fork = forks[row.request]
            if row.request not in stems:
                stems[row.request] = (len(tokens), len(tokens) + fork - shared)
                spans.append((*stems[row.request], *stems[row.request]))
                tokens.extend(row.ids[shared:fork])
                depth.extend(range(shared, fork))
            start, stem = len(tokens), stems[row.request]
            tokens.extend(row.ids[fork:-1])
            depth.extend(range(fork, len(row.ids) - 1))
            spans.append((start, len(tokens), *stem))
            # the node whose logits predict the token at position p stands at position p − 1
            nodes = [
                stem[0] + p - 1 - shared if p - 1 < fork else start + p - 1 - fork
                for p in range(row.split, len(row.ids))
            ]
            paths.append((row, nodes))
        needed = sorted({node for _, nodes in paths for node in nodes})
        logits = self._forward(
            torch.tensor([tokens]),
            attention_mask=self._tree_mask(len(tokens), shared, spans),
            position_ids=torch.tensor([depth]),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(needed, device=self._model.device),
        ).logits[0]
        cache.crop(-len(tokens))
        at = {node: i for i, node in enumerate(needed)}
        lines = [at[node] for _, nodes in paths for node in nodes]
        targets = [token for row, _ in paths for token in row.ids[row.split :]]
        flat = iter(_logprobs_of(logits[torch.tensor(lines, device=logits.device)], targets))
        for row, nodes in paths:
            yield (row.request, row.option), tuple(next(flat) for _ in nodes)

    def _tree_mask(self, size: int, shared: int, spans: Sequence[tuple[int, int, int, int]]) -> torch.Tensor:
        """Additive mask of shape (1, 1, size, shared + size): 0 for what a node sees, the dtype's minimum elsewhere."""
        import torch

        allowed = torch.zeros((size, shared + size), dtype=torch.bool)
        allowed[:, :shared] = True
        for start, end, stem_start, stem_end in spans:
            own = torch.ones((end - start, end - start), dtype=torch.bool).tril()
            if start != stem_start:
                allowed[start:end, shared + stem_start : shared + stem_end] = True
            allowed[start:end, shared + start : shared + end] = own
        dtype = self._model.dtype
        mask = torch.zeros((size, shared + size), dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
        return mask[None, None].to(self._model.device)

    def _tree_works(self) -> bool:
        """Whether the tree gives this model's plain scores: not every architecture takes a mask of one's own.

        Layers that keep only a window or a state cannot be cut back to the prefix and are not even tried.
        """
        from transformers.cache_utils import DynamicLayer

        prompt = Prompt((Message("user", "Is a rose a flower or a stone?"),), Query(""), choices=("a flower", "stone"))
        rows = self._encode_options(0, prompt)
        rows += self._encode_options(
            1, Prompt((Message("user", "Is it a flower?"),), Query(""), choices=("yes it is", "no"))
        )
        rows = [row for row in rows if 1 <= row.split < len(row.ids)]
        try:
            cache = self._prefill(rows[0].ids[:1])
            if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
                return False
            tree, plain = self._score_tree(rows), self._score_rows(rows)
        except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False
        pairs = [(a, b) for x, y in zip(tree, plain, strict=True) for a, b in zip(x, y, strict=True)]
        return all(abs(a - b) <= TREE_TOLERANCE for a, b in pairs)

    # generating

    def _generate_all(self, requests: Sequence[Request], which: Sequence[int], results: dict[int, Result]) -> None:
        drawn: list[_Drawn] = []
        for i in which:
            request = requests[i]
            text, chat = self._render(request.prompt)
            ids = list(self._tokenizer(text, add_special_tokens=not chat, verbose=False)["input_ids"])
            if too_long := self._too_long(len(ids) + request.sampling.max_tokens):
                results[i] = too_long
            elif not ids:
                results[i] = Failure("request", "the prompt has no tokens")
            else:
                stops = request.sampling.stop if chat else (BLOCK_END, *request.sampling.stop)
                drawn.append(_Drawn(i, ids, request.sampling, stops, _generator(request.sampling, text)))
        alone: list[_Drawn] = []
        for group in _groups([requests[d.request] for d in drawn]).values():
            members = [drawn[g] for g in group]
            shared = min(_common([d.ids for d in members]), min(len(d.ids) for d in members) - 1)
            if len(members) > 1 and shared >= WORTH_SHARING and self._tree:
                self._draw(members, shared, results)
            else:
                alone.extend(members)
        self._draw(alone, 0, results)

    def _draw(self, drawn: Sequence[_Drawn], shared: int, results: dict[int, Result]) -> None:
        """Generate in padded batches, longest first, on the cache of the ``shared`` leading tokens."""
        order = sorted(drawn, key=lambda d: -len(d.ids))
        prefix = self._prefill(order[0].ids[:shared]) if shared else None
        while order:
            count = max(1, ROW_TOKENS // (len(order[0].ids) + order[0].sampling.max_tokens))
            batch, order = order[:count], order[count:]
            start = time.monotonic()
            self._draw_batch(batch, shared, prefix)
            share = (time.monotonic() - start) / len(batch)
            for d in batch:
                results[d.request] = self._finished(d, share)

    def _draw_batch(self, batch: Sequence[_Drawn], shared: int, prefix: Any) -> None:
        import copy

        import torch

        device = self._model.device
        rests = [d.ids[shared:] for d in batch]
        width = max(len(rest) for rest in rests)
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        mask = torch.ones((len(batch), shared + width), dtype=torch.long)
        for r, rest in enumerate(rests):
            ids[r, width - len(rest) :] = torch.tensor(rest)
            mask[r, shared : shared + width - len(rest)] = 0
        # not left to the model: a forward pass counts padding as positions
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, shared:]
        if prefix is None:
            cache = self._empty_cache()
        else:
            cache = copy.deepcopy(prefix)
            cache.batch_repeat_interleave(len(batch))
        mask = mask.to(device)
        alive = list(batch)
        lengths = [len(d.ids) for d in batch]
        while True:
            logits = self._forward(
                ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            self._step(alive, logits)
            kept = [r for r, d in enumerate(alive) if not d.finish]
            if not kept:
                return
            if len(kept) < len(alive):
                rows = torch.tensor(kept, device=device)
                cache.batch_select_indices(rows)
                mask = mask[rows]
                lengths = [lengths[r] for r in kept]
                alive = [alive[r] for r in kept]
            ids = torch.tensor([[d.out[-1]] for d in alive])
            positions = torch.tensor([[length] for length in lengths])
            lengths = [length + 1 for length in lengths]
            mask = torch.cat([mask, torch.ones((len(alive), 1), dtype=mask.dtype, device=device)], dim=1)

    def _step(self, alive: Sequence[_Drawn], logits: torch.Tensor) -> None:
        """Choose the next token of each row, with its log-probability under the unchanged model."""
        import torch

        logprobs = logits.float().log_softmax(-1)
        greedy = logprobs.argmax(-1).tolist()
        entropies = torch.special.entr(logprobs.exp()).sum(-1).tolist()
        for r, d in enumerate(alive):
            row = logprobs[r]
            token = greedy[r] if d.sampling.temperature <= 0 else _sample(row, d.sampling, d.generator)
            if token in self._end_tokens():
                d.finish = "stop"
                continue
            d.out.append(token)
            d.logprobs.append(float(row[token]))
            d.entropies.append(entropies[r])
            if d.stops and _stopped(self._tokenizer.decode(d.out), d.stops) is not None:
                d.finish = "stop"
            elif len(d.out) >= d.sampling.max_tokens:
                d.finish = "length"

    def _end_tokens(self) -> set[int]:
        ends: set[int] = set()
        for holder in (getattr(self._model, "generation_config", None), self._config, self._tokenizer):
            found = getattr(holder, "eos_token_id", None)
            ends.update(found if isinstance(found, (list, tuple)) else [] if found is None else [found])
        return ends

    def _finished(self, d: _Drawn, latency: float) -> Answer:
        """The answer, cut before its stop text; tokens wholly past the cut are no part of it."""
        text = self._tokenizer.decode(d.out, skip_special_tokens=True)
        cut = _stopped(text, d.stops)
        kept = len(d.out)
        if cut is not None:
            text = text[:cut]
            while kept and len(self._tokenizer.decode(d.out[: kept - 1], skip_special_tokens=True)) >= cut:
                kept -= 1
        return Answer(
            text=text.strip(),
            tokens=tuple(self._tokenizer.decode([token]) for token in d.out[:kept]),
            logprobs=tuple(d.logprobs[:kept]),
            entropies=tuple(d.entropies[:kept]),
            finish=d.finish,
            tokens_in=len(d.ids),
            tokens_out=len(d.out),
            latency=latency,
            model=self.name,
        )

    # the model

    def _forward(self, ids: torch.Tensor, **arguments: Any) -> Any:
        device = self._model.device
        moved = {k: v.to(device) if hasattr(v, "to") and hasattr(v, "shape") else v for k, v in arguments.items()}
        moved.setdefault("use_cache", False)
        return self._model(input_ids=ids.to(device), **moved)

    def _empty_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._config)

    def _prefill(self, ids: Sequence[int]) -> Any:
        import torch

        cache = self._empty_cache()
        positions = torch.arange(len(ids))[None]
        self._forward(
            torch.tensor([list(ids)]), position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        return cache


def _groups(requests: Sequence[Request]) -> dict[object, list[int]]:
    """Indices of requests that differ in their last turn at most: same instruction, same demonstrations."""
    groups: dict[object, list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault(request.prompt.messages[:-1], []).append(i)
    return groups


def _common(sequences: Sequence[list[int]]) -> int:
    """Length of the longest common prefix. The least and the greatest sequence differ where any two do."""
    low, high = min(sequences), max(sequences)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def _by_request(rows: Sequence[_Scored]) -> dict[int, list[_Scored]]:
    found: dict[int, list[_Scored]] = {}
    for row in rows:
        found.setdefault(row.request, []).append(row)
    return found


def _packs(rows: Sequence[_Scored], shared: int) -> Iterator[list[_Scored]]:
    """Whole requests in forests of about `TREE_TOKENS` tokens; a request with very many options spans several."""
    pack: list[_Scored] = []
    size = 0
    previous = -1
    for row in rows:
        stem = row.split - shared if row.request != previous or not pack else 0
        cost = stem + len(row.ids) - row.split
        if pack and size + cost > TREE_TOKENS:
            yield pack
            pack, size = [], 0
            cost = len(row.ids) - shared
        pack.append(row)
        size += cost
        previous = row.request
    if pack:
        yield pack


def _logprobs_of(logits: torch.Tensor, targets: Sequence[int]) -> list[float]:
    """Natural log-probability of ``targets[i]`` under row i of ``logits``, shape (n, vocabulary); in float32, since
    a log-softmax in bfloat16 leaves a few distinct values; in blocks, since the vocabulary is wide."""
    import torch

    wanted = torch.tensor(targets, device=logits.device)
    values: list[float] = []
    for start in range(0, len(targets), 256):
        block = logits[start : start + 256].float()
        chosen = block.gather(1, wanted[start : start + 256, None])[:, 0]
        values.extend((chosen - block.logsumexp(1)).tolist())
    return [min(value, 0.0) for value in values]


def _generator(sampling: Sampling, text: str) -> Any:
    """Random numbers of a request's own, so that neither its batch nor its place in it changes what is drawn."""
    if sampling.temperature <= 0:
        return None
    import torch

    content = json.dumps([sampling.seed, sampling.repeat, text]).encode()
    seed = int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")
    return torch.Generator().manual_seed(seed)


def _sample(logprobs: torch.Tensor, sampling: Sampling, generator: Any) -> int:
    """Draw from the fewest tokens that hold ``top_p`` of the mass at the temperature (Holtzman et al. 2020)."""
    import torch

    scaled = (logprobs.cpu() / sampling.temperature).double().softmax(-1)
    ordered, index = scaled.sort(descending=True)
    before = ordered.cumsum(0) - ordered
    ordered = torch.where(before < max(sampling.top_p, 1e-12), ordered, 0.0)
    mass = ordered.cumsum(0)
    point = torch.rand((), generator=generator, dtype=torch.float64) * mass[-1]
    place = int(torch.searchsorted(mass, point, right=True))
    return int(index[min(place, int((ordered > 0).sum()) - 1)])


def _stopped(text: str, stops: Iterable[str]) -> int | None:
    """Where the first stop text begins, not counting white space that opens the answer."""
    lead = len(text) - len(text.lstrip())
    places = [place for stop in stops if stop and (place := text.find(stop, lead)) >= 0]
    return min(places) if places else None


def _without_system(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The system turn's text at the head of the first user turn."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [dict(m) for m in messages if m["role"] != "system"]
    if rest and system:
        rest[0]["content"] = f"{system}\n\n{rest[0]['content']}"
    return rest


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Say what is wrong with a model that does not load, without its loader's traceback."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        where = Path(name).expanduser()
        if where.exists():
            fix = f"give a folder written by save_pretrained, with config.json and tokenizer: ls {name}"
        else:
            fix = "check the name; without a connection, give the path of a local copy: --llm hf:/path/to/model"
        raise LLMError(f"cannot load hf:{name}: {reason}", fix) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars on a terminal that belongs to someone else."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _fingerprint(name: str, config: Any) -> str:
    """The hub's commit, or a hash over a local folder: descriptions in full, of each weights file its size and 64
    samples of 64 KiB (training touches every tensor, and whole files of tens of gigabytes would take minutes)."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None) or "unknown")
    pieces: list[bytes] = []
    for file in sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)}):
        size = file.stat().st_size
        pieces.append(f"{file.name}:{size}".encode())
        with file.open("rb") as stream:
            for i in range(_SAMPLES if size > _SAMPLES * _SAMPLE else 1):
                stream.seek(i * (size - _SAMPLE) // (_SAMPLES - 1) if size > _SAMPLES * _SAMPLE else 0)
                pieces.append(stream.read(_SAMPLE if size > _SAMPLES * _SAMPLE else size))
    pieces.extend((folder / name).read_bytes() for name in _DESCRIPTIONS if (folder / name).is_file())
    return _digest(pieces)


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
