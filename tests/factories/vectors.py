"""Vectors of texts encoded before, kept for a run of the tests: the same texts stand in many of them."""

from __future__ import annotations

import os
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.base.arrays import Float32s
from icl_curate.engine.base.progress import SILENT, Event, Monitor
from icl_curate.engine.retrieval.encoder import FEW, SentenceEncoder
from icl_curate.engine.retrieval.transformer import Transformer

from factories.copies import VARIABLE

from .patience import PATIENCE

Patch = Callable[[object, str, object], None]

COMPUTED: dict[str, Callable[..., Any]] = {
    "encode": SentenceEncoder.encode,
    "encode_queries": SentenceEncoder.encode_queries,
    "encode_tokens": SentenceEncoder.encode_tokens,
    "warm": SentenceEncoder.warm,
}
"""The methods themselves, for tests of the encoder."""

_KEPT: dict[str, Any] = {}
"""Vectors by digest of what was computed; `_shared` has those of the other workers, too."""

_LOADED: dict[tuple[str, str], Transformer] = {}


def keep_vectors(patch: Patch) -> None:
    """Let `SentenceEncoder` load each model and compute each text once in a process; ``patch`` is
    ``monkeypatch.setattr``.

    Few and many texts are computed in different ways and kept apart.
    """

    def encode(self: SentenceEncoder, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        found = _kept("sentence", self, texts, COMPUTED["encode"], monitor)
        return np.stack(found) if found else np.zeros((0, self.dimension), np.float32)

    def encode_tokens(self: SentenceEncoder, texts: Sequence[str], monitor: Monitor = SILENT) -> list[Any]:
        return _kept("tokens", self, texts, COMPUTED["encode_tokens"], monitor)

    def warm(self: SentenceEncoder) -> Transformer:
        key = (self._source, self._device)
        if key not in _LOADED:
            _LOADED[key] = COMPUTED["warm"](self)
        return _LOADED[key]

    patch(SentenceEncoder, "encode", encode)
    patch(SentenceEncoder, "encode_queries", encode)
    patch(SentenceEncoder, "warm", warm)
    patch(SentenceEncoder, "encode_tokens", encode_tokens)


def compute_vectors(patch: Patch) -> None:
    """Undo `keep_vectors`."""
    for name, method in COMPUTED.items():
        patch(SentenceEncoder, name, method)


def keep_whole(patch: Patch) -> None:
    """Let `SentenceEncoder` compute all texts together, as without `keep_vectors`, and keep their vectors for those who
    encode some of them."""

    def encode(self: SentenceEncoder, texts: Sequence[str], monitor: Monitor = SILENT) -> Float32s:
        found: Float32s = COMPUTED["encode"](self, texts, monitor)
        _keep(dict(zip(_keys("sentence", self, texts), found, strict=True)))
        return found

    patch(SentenceEncoder, "encode", encode)


def _kept(
    what: str, encoder: SentenceEncoder, texts: Sequence[str], compute: Callable[..., Sequence[Any]], monitor: Monitor
) -> list[Any]:
    many = len(texts) >= FEW
    keys = _keys(what, encoder, texts)
    _recall(sorted({key for key in keys if key not in _KEPT}))
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in _KEPT}
    if missing:
        asked = list(missing.values())
        if many and len(asked) < FEW:
            asked += list(texts)[: FEW - len(asked)]  # few alone would be computed in the other way
        _keep(dict(zip(missing, compute(encoder, asked, monitor), strict=False)))
    else:
        monitor.check()
        monitor.report(Event("encode", len(texts), len(texts)))
    return [_KEPT[key] for key in keys]


def _keys(what: str, encoder: SentenceEncoder, texts: Sequence[str]) -> list[str]:
    """A digest of each text and of how its vector is computed."""
    way = repr((what, encoder.name, encoder._reduce_from, len(texts) >= FEW))
    return [sha256(f"{way} {text}".encode(errors="surrogatepass")).hexdigest() for text in texts]


def _shared() -> sqlite3.Connection:
    """The vectors of all workers."""
    con = sqlite3.connect(Path(os.environ[VARIABLE]) / "vectors.sqlite", timeout=PATIENCE)
    con.execute("PRAGMA synchronous = off")
    con.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB)")
    return con


def _recall(keys: Sequence[str]) -> None:
    if keys:
        with closing(_shared()) as con:
            for key in keys:
                for (found,) in con.execute("SELECT vector FROM vectors WHERE key = ?", [key]):
                    _KEPT[key] = pickle.loads(found)


def _keep(computed: dict[str, Any]) -> None:
    _KEPT.update(computed)
    with closing(_shared()) as con, con:
        con.executemany(
            "INSERT OR IGNORE INTO vectors VALUES (?, ?)",
            [(key, pickle.dumps(found)) for key, found in computed.items()],
        )
