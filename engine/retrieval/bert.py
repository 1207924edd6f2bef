"""The default encoder for many texts, in torch alone.

Importing transformers and sentence-transformers takes five seconds, more than the vectors of a thousand texts. This is
the BERT of `minilm` on padded batches, on any torch device. Its operations are those of transformers' BERT with
PyTorch's attention, in their order: the vectors are the same to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, linear, normalize, scaled_dot_product_attention

PAD = 0
"""The id of the token that fills a batch."""

WORDS = "embeddings.word_embeddings.weight"


def load_bert(folder: Path, device: torch.device) -> Bert:
    """all-MiniLM-L6-v2 from its folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
    tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokeniser.enable_truncation(limits["max_seq_length"])
    tokeniser.enable_padding(pad_id=PAD)
    layers = Layers(
        load_file(folder / "model.safetensors", str(device)),
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["layer_norm_eps"],
    )
    added = sorted({PAD, *tokeniser.encode("").ids})
    return Bert(tokeniser, layers, config["hidden_size"], added)


@dataclass(frozen=True)
class Layers:
    """The transformer: adds ``token_embeddings`` (texts, tokens, width) to token ids and mask, both (texts, tokens)."""

    weights: Mapping[str, Tensor]
    layers: int
    heads: int
    epsilon: float
    precision: torch.dtype = torch.float32

    def __call__(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        ids, own = features["input_ids"], features["attention_mask"].bool()
        mask = None if bool(own.all()) else own[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        w = self.weights
        x = embedding(ids, w[WORDS]).to(self.precision)
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._norm(x, "embeddings.LayerNorm")
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            mixed = self._linear(self._attention(x, mask, f"{name}.attention.self"), f"{name}.attention.output.dense")
            x = self._norm(mixed + x, f"{name}.attention.output.LayerNorm")
            inner = gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(self._linear(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        return {**features, "token_embeddings": x}

    def _attention(self, x: Tensor, mask: Tensor | None, name: str) -> Tensor:
        """Multi-head self-attention, before its output projection."""
        query, key, value = (
            self._linear(x, f"{name}.{part}").view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        return scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).reshape(x.shape)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.epsilon)


@dataclass(frozen=True)
class Bert:
    """Tokeniser, transformer, mean over the tokens: a `transformer.Model`."""

    tokeniser: Tokenizer
    head: Layers
    dimension: int
    added: list[int]

    def halved(self) -> Layers:
        half = torch.bfloat16  # words are converted as they are looked up: they are half of the weights
        weights = {name: w if name == WORDS else w.to(half) for name, w in self.head.weights.items()}
        return replace(self.head, weights=weights, precision=half)

    def features(self, texts: Sequence[str]) -> dict[str, Tensor]:
        found = self.tokeniser.encode_batch(texts)
        return {
            "input_ids": torch.tensor([one.ids for one in found]),
            "attention_mask": torch.tensor([one.attention_mask for one in found]),
        }

    def pooled(self, features: dict[str, Tensor]) -> Tensor:
        mask = features["attention_mask"].unsqueeze(-1).to(torch.float32)
        total = (features["token_embeddings"] * mask).sum(dim=1)
        return normalize(total / mask.sum(dim=1))
