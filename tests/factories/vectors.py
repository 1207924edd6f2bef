"""Vectors of texts encoded before, kept for the run of a worker: the same texts stand in many tests."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from icl_curate.engine.arrays import Float32s
from icl_curate.engine.progress import CancelToken, Event, Report, silent
from icl_curate.engine.retrieval.encoder import FEW, SentenceEncoder
from icl_curate.engine.retrieval.transformer import Transformer

Patch = Callable[[object, str, object], None]

COMPUTED: dict[str, Callable[..., Any]] = {
    "encode": SentenceEncoder.encode,
    "encode_tokens": SentenceEncoder.encode_tokens,
    "warm": SentenceEncoder.warm,
}
"""The methods themselves, for tests of the encoder."""

_KEPT: dict[Hashable, Any] = {}
_LOADED: dict[tuple[str, str], Transformer] = {}


def keep_vectors(patch: Patch) -> None:
    """Let `SentenceEncoder` load each model and compute each text once in a process; ``patch`` is
    ``monkeypatch.setattr``.

    Few and many texts are computed in different ways and kept apart.
    """

    def encode(
        self: SentenceEncoder, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None
    ) -> Float32s:
        found = _kept("sentence", self, texts, COMPUTED["encode"], report, cancel)
        return np.stack(found) if found else np.zeros((0, self.dimension), np.float32)

    def encode_tokens(
        self: SentenceEncoder, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None
    ) -> list[Any]:
        return _kept("tokens", self, texts, COMPUTED["encode_tokens"], report, cancel)

    def warm(self: SentenceEncoder) -> Transformer:
        key = (self._source, self._device)
        if key not in _LOADED:
            _LOADED[key] = COMPUTED["warm"](self)
        return _LOADED[key]

    patch(SentenceEncoder, "encode", encode)
    patch(SentenceEncoder, "warm", warm)
    patch(SentenceEncoder, "encode_tokens", encode_tokens)


def compute_vectors(patch: Patch) -> None:
    """Undo `keep_vectors`."""
    for name, method in COMPUTED.items():
        patch(SentenceEncoder, name, method)


def _kept(
    what: str,
    encoder: SentenceEncoder,
    texts: Sequence[str],
    compute: Callable[..., Sequence[Any]],
    report: Report,
    cancel: CancelToken | None,
) -> list[Any]:
    many = len(texts) >= FEW
    keys = [(what, encoder.name, encoder._reduce_from, many, text) for text in texts]
    missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in _KEPT}.values())
    if missing:
        if many and len(missing) < FEW:
            missing += list(texts)[: FEW - len(missing)]  # few alone would be computed in the other way
        for text, vector in zip(missing, compute(encoder, missing, report, cancel), strict=True):
            _KEPT[(what, encoder.name, encoder._reduce_from, many, text)] = vector
    else:
        if cancel:
            cancel.check()
        report(Event("encode", len(texts), len(texts)))
    return [_KEPT[key] for key in keys]
