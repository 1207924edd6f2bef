"""Where a local model looks while it answers: the share of its attention that goes to each document of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...pool.prompts import Prompt
from .loaded import Loaded
from .tokens import encode, render


def attention_to(loaded: Loaded, prompt: Prompt, answer: str, texts: Sequence[str]) -> tuple[float, ...] | None:
    """For each of ``texts``, which the prompt contains in this order, the share of attention it gets from the positions
    that predict the answer's tokens: the mean over these, all layers and all heads. None if a text is not found.

    The prompt is run without attention weights, which would be quadratic in its length, and the answer on its cache.
    """
    import torch

    text, chat = render(loaded.tokenizer, prompt)
    spans = _spans(text, texts)
    if spans is None:
        return None
    encoded = loaded.tokenizer(text, add_special_tokens=not chat, return_offsets_mapping=True, verbose=False)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    said = encode(loaded.tokenizer, answer if chat else f" {answer}", True)[:-1]
    cache, before = loaded.empty_cache(), len(ids) - 1
    shown: dict[str, Any] = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
    loaded.forward(torch.tensor([ids[:before]]), **shown)
    after = torch.tensor([[ids[before], *said]])
    positions = torch.arange(before, before + after.shape[1])[None]
    usual = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")  # the only one that returns its weights
    try:
        layers = loaded.forward(after, position_ids=positions, output_attentions=True, **shown).attentions
    finally:
        loaded.model.set_attn_implementation(usual)
    weights = torch.stack([layer[0].float().mean((0, 1)) for layer in layers]).mean(0).tolist()
    return tuple(
        sum(weight for weight, (a, b) in zip(weights, offsets, strict=False) if a < end and b > start)
        for start, end in spans
    )


def _spans(text: str, texts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Start and end of each text in the whole, one after the other."""
    found, at = [], 0
    for each in texts:
        start = text.find(each, at)
        if start < 0:
            return None
        at = start + len(each)
        found.append((start, at))
    return found
