"""A model in memory, its forward pass, and its cached prompt prefixes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .tokens import common

if TYPE_CHECKING:
    import torch

ROW_TOKENS = 8192
"""Tokens (rows × length) of a padded batch."""
ROW_TOKENS_CUDA = 32768
"""The same for generation with CUDA, where a step of one token for each row leaves most of the GPU idle: with batches
of 24,000 tokens an H100 answers six times as fast as with 8,192 (0.5 billion parameters)."""

PASS_TOKENS_CPU = 512
"""Tokens of a forward pass over prompts on a CPU, whose matrix units these fill: the cost of attention grows
quadratically."""

KEPT_TOKENS = 4096
"""Tokens of all prefixes cached between batches: at 135 million parameters 190 MB in float32."""


LONG = 512
"""Tokens from which on a prefix is computed anew rather than on the cache of less than a quarter of it: a pass on a
cache needs a mask, and computes all of the attention instead of half. For 1,160 tokens of SmolLM2 it takes 1.4 times as
long."""


@dataclass(slots=True)
class Prefixes:
    """Caches of token sequences that prompts begin with, the most recently used last."""

    kept: list[tuple[list[int], Any]] = field(default_factory=list)

    def longest(self, ids: Sequence[int]) -> tuple[int, Any]:
        """How many leading tokens of ``ids`` are cached, and their cache; 0 and None if none are."""
        best = max(self.kept, key=lambda entry: common([entry[0], list(ids)]), default=None)
        return (common([best[0], list(ids)]), best[1]) if best else (0, None)

    def keep(self, ids: Sequence[int], cache: Any) -> None:
        self.kept = [entry for entry in self.kept if entry[0] != list(ids)]
        self.kept.append((list(ids), cache))
        while sum(len(tokens) for tokens, _ in self.kept) > KEPT_TOKENS:
            self.kept.pop(0)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The transformers model, its configuration and its tokenizer.

    ``check`` is called before every forward pass, and by `watched` between its layers: it raises to end the work.
    """

    name: str
    model: Any
    config: Any
    tokenizer: Any
    check: Callable[[], None] = lambda: None
    prefixes: Prefixes = field(default_factory=Prefixes)

    @property
    def device(self) -> Any:
        return self.model.device

    def forward(self, ids: torch.Tensor, **arguments: Any) -> Any:
        """The model's output for token ids (n, length), moved to its device with all tensors beside them."""
        self.check()
        device = self.device
        moved = {k: v.to(device) if hasattr(v, "to") and hasattr(v, "shape") else v for k, v in arguments.items()}
        moved.setdefault("use_cache", False)
        return self.model(input_ids=ids.to(device), **moved)

    def watched(self) -> Loaded:
        """Itself, with every layer of the model calling ``check`` first, because a pass over a long prompt takes
        seconds."""
        import torch

        for module in self.model.modules():
            if isinstance(module, torch.nn.ModuleList):
                for layer in module:
                    layer.register_forward_pre_hook(lambda *_: self.check())
        return self

    def empty_cache(self) -> Any:
        """Without tokens. Layers that see a window keep all tokens, too: a cache of the window alone could not be cut
        back. What they see is said by their masks."""
        from transformers import DynamicCache, cache_utils

        whole: Any = cache_utils.DynamicLayer
        cache: Any = DynamicCache(config=self.config)
        if self.window is not None:
            cache.layers = [whole() if is_window(layer) else layer for layer in cache.layers]
        return cache

    @property
    def window(self) -> int | None:
        """How many tokens a layer sees that does not see all, the same in all of these; None if all layers see all, or
        some see another part than the latest."""
        windows = {layer.sliding_window for layer in self._layers if is_window(layer)}
        chunked = getattr(self.config.get_text_config(decoder=True), "attention_chunk_size", None)
        return windows.pop() if len(windows) == 1 and not chunked else None

    @property
    def sees_all(self) -> bool:
        """Whether a layer sees all tokens."""
        return not all(map(is_window, self._layers))

    @property
    def _layers(self) -> Sequence[Any]:
        """Of the cache that transformers would make."""
        from transformers import DynamicCache

        return DynamicCache(config=self.config).layers

    def prefix(self, ids: Sequence[int]) -> Any:
        """The cache of the tokens that several prompts begin with. Callers that add to it must remove what they added.

        It extends the longest prefix cached by earlier calls: an instruction with 77 labels is computed once, not once
        per batch. Only for models whose caches can be cut back (`scoring.tree_works`).
        """
        if not ids:
            return self.empty_cache()
        import torch

        cached, cache = self.prefixes.longest(ids)
        if LONG < len(ids) > 4 * cached:
            cached = 0
        if cached < len(ids) or cache.get_seq_length() > cached:
            cache = copy.deepcopy(cache) if cached else self.empty_cache()
            cut_back(cache, cached)
        if cached < len(ids):
            added, positions = torch.tensor([list(ids[cached:])]), torch.arange(cached, len(ids))[None]
            self.forward(added, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self.prefixes.keep(ids, cache)
        return cache


def is_window(layer: Any) -> bool:
    """Whether a layer of a cache keeps the latest tokens alone."""
    from transformers.cache_utils import DynamicSlidingWindowLayer

    return type(layer) is DynamicSlidingWindowLayer


def cut_back(cache: Any, length: int) -> None:
    """Keep the first ``length`` tokens in the cache. After an interrupted pass some layers are longer than others."""
    for layer in cache.layers:
        if (beyond := layer.get_seq_length() - length) > 0:
            layer.crop(-beyond)
