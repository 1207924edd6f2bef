"""Encoders: from texts to vectors of length 1."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float32s, Int64s, one_blas_thread
from ..base.packages import installed
from ..base.progress import SILENT, Event, Monitor
from ..http.refusals import storable
from .checked import map_safetensors
from .transformer import Transformer
from .weights import DEFAULT_ENCODER, default_folder

FEW = 32
"""Fewer texts than this are queries, not a pool."""
PACK = 256
"""Tokens of texts that `MiniLM` multiplies together: some 20 queries, and what comes in between fits the cache."""
ROWS = 16
"""Rows of GELU's input at a time, 100 kB."""


class MiniLM:
    """all-MiniLM-L6-v2 from its folder, in numpy: importing torch takes two seconds, nearly all the time of a command
    that encodes one query.

    The same verified weights, from a memory map, and the same BERT (Devlin et al. 2019, post-norm layers, exact GELU)
    in float32, mean pooling; vectors agree with sentence-transformers' to float32 rounding. A text's vector does not
    depend on the texts it is encoded with, but by that rounding if they are multiplied ``together``, which is twice as
    fast.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        self.dimension: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._epsilon = np.float32(config["layer_norm_eps"])
        self._weights = map_safetensors(folder / "model.safetensors")[0]
        self._tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokeniser.no_padding()
        self._tokeniser.enable_truncation(limits["max_seq_length"])

    def sentences(self, texts: Sequence[str], together: bool = False) -> Float32s:
        """The mean of each text's token vectors, (n, dimension); not normalised."""
        pooled = [hidden.mean(axis=0) for hidden in self._all(texts, PACK if together else 0)]
        return np.array(pooled, np.float32).reshape(len(texts), self.dimension)

    def tokens(self, texts: Sequence[str]) -> list[Float32s]:
        """Each text's token vectors without CLS and SEP, (tokens, dimension); not normalised."""
        return [hidden[1:-1] for hidden in self._all(texts)]

    def _all(self, texts: Sequence[str], most: int = 0) -> list[Float32s]:
        """Each text's token vectors, (tokens, dimension), in packs of texts with up to ``most`` tokens."""
        packs: list[list[list[int]]] = []
        for encoding in self._tokeniser.encode_batch([*map(storable, texts)]):
            if not packs or sum(map(len, packs[-1])) + len(encoding.ids) > most:
                packs.append([])
            packs[-1].append(encoding.ids)
        with one_blas_thread():
            if len(packs) < 2:
                return [vectors for pack in packs for vectors in self._hidden(pack)]
            with ThreadPoolExecutor(os.cpu_count()) as pool:  # packs side by side, each on one thread
                return [vectors for pack in pool.map(self._hidden, packs) for vectors in pack]

    def _hidden(self, pack: list[list[int]]) -> list[Float32s]:
        """The last layer's output for each text, (tokens, dimension). Only attention knows where a text ends."""
        w = self._weights
        ends = np.cumsum([len(ids) for ids in pack])
        texts = [*map(slice, [0, *ends[:-1]], ends)]
        tokens, places = np.concatenate(pack), np.concatenate([np.arange(len(ids)) for ids in pack])
        x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.position_embeddings.weight"][places]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            mixed = self._attention(x, texts, f"{name}.attention.self")
            x = self._norm(
                x + self._linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
            )
            inner = self._gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return [x[text] for text in texts]

    def _attention(self, x: Float32s, texts: Sequence[slice], name: str) -> Float32s:
        """Multi-head self-attention within each text, before its output projection."""
        width = self.dimension // self._heads
        query, key, value = (
            self._linear(x, f"{name}.{part}").reshape(len(x), self._heads, width).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        mixed = np.empty_like(x)
        for text in texts:
            scores = query[:, text] @ key[:, text].swapaxes(1, 2) * np.float32(width**-0.5)
            scores = np.exp(scores - scores.max(axis=2, keepdims=True))
            scores /= scores.sum(axis=2, keepdims=True)
            mixed[text] = (scores @ value[:, text]).swapaxes(0, 1).reshape(-1, self.dimension)
        return mixed

    def _linear(self, x: Float32s, name: str) -> Float32s:
        product: Float32s = x @ self._weights[f"{name}.weight"].T
        product += self._weights[f"{name}.bias"]
        return product

    def _norm(self, x: Float32s, name: str) -> Float32s:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        scaled: Float32s = centred / np.sqrt(variance + self._epsilon)
        shifted: Float32s = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return shifted

    def _gelu(self, x: Float32s) -> Float32s:
        """In place, `ROWS` at a time: the memory of some fresh arrays of a megabyte takes longer than their values."""
        for start in range(0, len(x), ROWS):
            part = x[start : start + ROWS]
            part *= np.float32(0.5) * (1 + erf(part * np.float32(2**-0.5)))
        return x


def erf(x: Float32s) -> Float32s:
    """The error function to 7e-7, by Abramowitz and Stegun's formula 7.1.26: for one query in a third of the time of
    scipy's, whose import takes as long as encoding ten queries."""
    t: Float32s = np.reciprocal(1 + np.float32(0.3275911) * np.abs(x))
    powers = np.zeros_like(x)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        powers += np.float32(factor)
        powers *= t
    curve: Float32s = np.copysign(1 - powers * np.exp(-x * x), x)
    return curve


Arrived = Callable[[Int64s, Float32s], None]
"""Takes the positions of some of the texts and their vectors, (n,) and (n, dimension)."""

AT_ONCE = 64
"""Texts between two looks at the cancel token where the default encoder has no torch."""


class Encoder(Protocol):
    """The encoder interface of the engine; `load_encoder` returns one."""

    name: str
    """The hub name, or the absolute path: the stored vectors are filed under it."""

    @property
    def dimension(self) -> int: ...

    def encode(self, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        """One vector of length 1 per text, (n, dimension)."""

    def encode_queries(self, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        """As `encode`, where float32 rounding may depend on the other texts."""

    def encode_tokens(self, texts: Sequence[str], monitor: Monitor = SILENT) -> list[NDArray[np.float16]]:
        """For each text the vectors of its tokens, (tokens, width of the transformer), each of length 1."""

    def encode_each(self, texts: Sequence[str], keep: Arrived, monitor: Monitor = SILENT) -> None:
        """Encode the texts and ``keep`` vectors as soon as they are there, in the caller's thread."""

    @property
    def local(self) -> bool:
        """Whether the workers of an engine can load it. One behind an API is asked by this process alone."""


class Local:
    """What the encoders of this machine have in common."""

    local = True

    def encode_each(self: Encoder, texts: Sequence[str], keep: Arrived, monitor: Monitor = SILENT) -> None:
        """`Encoder.encode_each`: all of them at once."""
        keep(np.arange(len(texts)), self.encode(texts, monitor))

    def encode_queries(self: Encoder, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        return self.encode(texts, monitor)


def load_encoder(name: str = DEFAULT_ENCODER, device: str = "auto", *, full_precision: bool = False) -> SentenceEncoder:
    """Load a sentence-transformers encoder by hub name or path.

    The weights of `DEFAULT_ENCODER` are verified (`weights`); torch is imported when `FEW` texts or more are first
    encoded. Without it these take several times longer.
    ``device`` is a torch device, or ``auto``: cuda, else mps, else cpu. Raises `UsageError` if the encoder or the
    device is not available. ``full_precision`` always uses float32, whatever the number of texts: up to float32
    rounding, a text's vector then does not depend on the texts it is encoded with.
    """
    if name == f"sentence-transformers/{DEFAULT_ENCODER}":
        name = DEFAULT_ENCODER  # one encoder, one folder of vectors
    if name == DEFAULT_ENCODER:
        folder = default_folder()
        encoder = SentenceEncoder(name, str(folder), device, _small(folder), FEW if not full_precision else None)
    else:
        folder = Path(name).expanduser()
        source = str(folder.resolve()) if folder.is_dir() else name
        encoder = SentenceEncoder(source, source, device, None, FEW if not full_precision else None)
    if device not in ("auto", "cpu"):
        encoder.warm()
    encoder.recipe = (name, device, full_precision)
    return encoder


@cache
def _small(folder: Path) -> MiniLM:
    """The default encoder, opened once in a process."""
    return MiniLM(folder)


def bound_for(encoder: Encoder, device: str) -> Encoder:
    """The encoder, which is loaded onto this device where it is unpickled; empty: onto that which it has here."""
    if device and isinstance(encoder, SentenceEncoder):
        encoder.recipe = (encoder.recipe[0], device, encoder.recipe[2])
    return encoder


@lru_cache(maxsize=1)
def kept_encoder(name: str, device: str, full_precision: bool) -> SentenceEncoder:
    """As `load_encoder`, loaded once in a process: what a worker has instead of a pickled encoder."""
    return load_encoder(name, device, full_precision=full_precision)


class SentenceEncoder(Local):
    """A sentence-transformers model; if it is the default one, by light implementations of it. Thread-safe.

    Pickled by its name: the process that unpickles it loads it from its own disk, once.
    """

    def __init__(
        self, name: str, source: str, device: str, small: MiniLM | None = None, reduce_from: int | None = FEW
    ) -> None:
        self._reduce_from = reduce_from
        self.name = name
        self.recipe = (source, device, reduce_from is None)
        self._source = source
        self._device = device
        self._small = small
        self._large: Transformer | None = None
        self._loading = threading.Lock()
        self.dimension: int = small.dimension if small else self.warm().dimension

    def __reduce__(self) -> tuple[Any, ...]:
        return kept_encoder, self.recipe

    def warm(self) -> Transformer:
        """Load torch and the model now rather than at the first large call."""
        with self._loading:
            if self._large is None:
                self._large = Transformer(self._source, self._device, packaged=self._small is not None)
            return self._large

    def encode(self, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        """One vector of length 1 per text: float32 (n, `dimension`).

        From `FEW` texts on, in bfloat16 if the device computes it natively; pooling and normalisation stay in float32,
        and cosines to the float32 vectors are above 0.999. The same texts give the same bits. Reports ``encode``
        events; raises `Cancelled` between batches, `UsageError` if the model cannot be loaded.
        """
        texts = [*map(storable, texts)]
        if self._small and len(texts) < FEW:
            return unit(self._small.sentences(texts))
        if self._small and not installed("torch"):
            return unit(self._slowly(self._small, texts, monitor))
        return unit(self.warm().sentences(texts, self._reduces(texts), monitor))

    def encode_queries(self, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        if self._small and len(texts) < FEW:
            return unit(self._small.sentences(texts, together=True))
        return self.encode(texts, monitor)

    def encode_tokens(self, texts: Sequence[str], monitor: Monitor = SILENT) -> list[NDArray[np.float16]]:
        """For each text its token vectors of length 1: float16 (tokens, width of the transformer).

        The transformer's last layer without the tokens the tokeniser adds (CLS, SEP, padding). Raises as `encode`
        does, and `UsageError` for an encoder that has no token vectors.
        """
        if self._small and (len(texts) < FEW or not installed("torch")):
            vectors = self._small.tokens(texts)
        else:
            vectors = self.warm().tokens(texts, self._reduces(texts), monitor)
        return [unit(tokens).astype(np.float16) for tokens in vectors]

    def _slowly(self, small: MiniLM, texts: Sequence[str], monitor: Monitor) -> Float32s:
        """Sentence vectors (n, dimension) without torch, in float32."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), AT_ONCE):
            monitor.check()
            monitor.report(Event("encode", start, len(texts)))
            vectors[start : start + AT_ONCE] = small.sentences(texts[start : start + AT_ONCE])
        monitor.report(Event("encode", len(texts), len(texts)))
        return vectors

    def _reduces(self, texts: Sequence[str]) -> bool:
        return self._reduce_from is not None and len(texts) >= self._reduce_from


def unit(vectors: Float32s) -> Float32s:
    """Each row (n, d) divided by its Euclidean length; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Float32s = vectors / np.maximum(lengths, np.float32(1e-12))
    return scaled
