"""The default encoder for a few texts, in numpy.

Importing torch takes two seconds, nearly all the time of a command that encodes one query. This module reads the same
verified weights from a memory map and computes the same BERT (Devlin et al. 2019, post-norm layers, exact GELU) in
float32; vectors agree with sentence-transformers' to float32 rounding. A text's vector does not depend on the texts it
is encoded with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arrays import Float32s, Float64s, one_blas_thread
from ..base.packages import installed
from .checked import map_safetensors

FEW = 32
"""Fewer texts than this are queries, not a pool."""


class MiniLM:
    """all-MiniLM-L6-v2 from its folder: BERT layers, mean pooling."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        self.dimension: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._epsilon = np.float32(config["layer_norm_eps"])
        self._weights = map_safetensors(folder / "model.safetensors")[0]
        self._erf: Callable[[Float32s], Any] = erf
        if installed("scipy"):  # twice as fast
            from scipy import special

            self._erf = special.erf
        self._tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokeniser.no_padding()
        self._tokeniser.enable_truncation(limits["max_seq_length"])

    def sentences(self, texts: Sequence[str]) -> Float32s:
        """The mean of each text's token vectors, (n, dimension); not normalised."""
        pooled = [hidden.mean(axis=0) for hidden in self._all(texts)]
        return np.array(pooled, np.float32).reshape(len(texts), self.dimension)

    def tokens(self, texts: Sequence[str]) -> list[Float32s]:
        """Each text's token vectors without CLS and SEP, (tokens, dimension); not normalised."""
        return [hidden[1:-1] for hidden in self._all(texts)]

    def _all(self, texts: Sequence[str]) -> list[Float32s]:
        with one_blas_thread():
            if len(texts) < FEW:
                return [self._of(text) for text in texts]
            with ThreadPoolExecutor(os.cpu_count()) as pool:  # texts side by side, each on one thread
                return list(pool.map(self._of, texts))

    def _of(self, text: str) -> Float32s:
        return self._hidden(self._tokeniser.encode(text).ids)

    def _hidden(self, ids: list[int]) -> Float32s:
        """The last layer's output for one text, (tokens, dimension)."""
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            attended = self._linear(self._attention(x, f"{name}.attention.self"), f"{name}.attention.output.dense")
            x = self._norm(x + attended, f"{name}.attention.output.LayerNorm")
            inner = self._gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return x

    def _attention(self, x: Float32s, name: str) -> Float32s:
        """Multi-head self-attention over one text, before its output projection."""
        width = self.dimension // self._heads
        query, key, value = (
            self._linear(x, f"{name}.{part}").reshape(len(x), self._heads, width).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) * np.float32(width**-0.5)
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
        mixed: Float32s = (scores @ value).swapaxes(0, 1).reshape(len(x), self.dimension)
        return mixed

    def _linear(self, x: Float32s, name: str) -> Float32s:
        # for the few rows of one text, BLAS takes the weights as they lie a fifth faster
        product: Float32s = np.ascontiguousarray((self._weights[f"{name}.weight"] @ x.T).T)
        product += self._weights[f"{name}.bias"]
        return product

    def _norm(self, x: Float32s, name: str) -> Float32s:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        scaled: Float32s = centred / np.sqrt(variance + self._epsilon)
        shifted: Float32s = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return shifted

    def _gelu(self, x: Float32s) -> Float32s:
        curved: Float32s = x * np.float32(0.5) * (1 + self._erf(x * np.float32(2**-0.5)))
        return curved


_SMALL = (
    (
        9.60497373987051638749, 90.0260197203842689217, 2232.00534594684319226, 7003.32514112805075473,
        55592.3013010394962768,
    ),
    (
        1.0, 33.5617141647503099647, 521.357949780152679795, 4594.32382970980127987, 22629.0000613890934246,
        49267.3942608635921086,
    ),
)  # fmt: skip
_LARGE = (
    (
        2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687, 48.6371970985681366614,
        196.520832956077098242, 526.445194995477358631, 934.528527171957607540, 1027.55188689515710272,
        557.535335369399327526,
    ),
    (
        1.0, 13.2281951154744992508, 86.7072140885989742329, 354.937778887819891062, 975.708501743205489753,
        1823.90916687909736289, 2246.33760818710981792, 1656.66309194161350182, 557.535340817727675546,
    ),
)  # fmt: skip
_FLAT = 7.9
"""From here on it is 1 to the last bit of a double."""


def erf(x: Float32s) -> Float32s:
    """erf(x) of every element, in the shape of ``x``, where scipy is not installed.

    The rational approximations of Cody (1969) as Moshier's Cephes has them, in float64: rounded to float32, the same
    bits as ``scipy.special.erf``.
    """
    wide = x.astype(np.float64)
    size = np.abs(wide)
    found, small = np.empty_like(wide), size < 1
    near, far = wide[small], np.minimum(size[~small], _FLAT)
    found[small] = near * _ratio(_SMALL, near * near)
    found[~small] = np.copysign(1 - np.exp(-far * far) * _ratio(_LARGE, far), wide[~small])
    return found.astype(np.float32)


def _ratio(polynomials: tuple[Sequence[float], Sequence[float]], x: Float64s) -> Float64s:
    above, below = (_polynomial(coefficients, x) for coefficients in polynomials)
    return above / below


def _polynomial(coefficients: Sequence[float], x: Float64s) -> Float64s:
    """By Horner's rule, the highest power first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total
