"""Files beside the DuckDB file that make queries fast: embeddings and the lexical index.

Both can be recomputed from the rows, so both are repaired automatically: a row without a vector of its current content
is encoded at the next index run, and a lexical index whose rows differ from the pool's is rebuilt when it is next
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float32s, Int64s
from ..base.errors import WorkspaceError
from ..base.progress import SILENT, Event, Monitor
from ..shards.over import SHARDS
from ..shards.shard import INLINE, Engine, Resources
from ..store.columns import note, numbers
from ..store.demonstrations import content_keys, input_blocks, live_keys, rows_of_inputs, searched_texts
from ..store.settings import Settings
from ..store.workspace import Workspace
from . import bm25
from .bm25 import BM25Index
from .dense import CODED_FROM, Codes, codes_of
from .encoder import Encoder, bound_for, load_encoder
from .served import DEFAULTS, Access, ServedEncoder, is_served
from .vectors import Vectors, folder_of, with_passages
from .weights import DEFAULT_ENCODER

_GPUS = {"auto": None, "cuda": 1.0}
"""GPUs that a shard needs, by the device of its worker; None: one if there are any."""
LEXICAL, LEXICAL_PASSAGES = "lexical", "lexical-passages"


def encoding_lock(workspace: Workspace) -> Path:
    """The lock file that is held from before new rows are in the workspace until they have their vectors."""
    return workspace.path / "tmp" / "encode.lock"


def vectors_of(workspace: Workspace, encoder: str, passages: bool = False) -> Vectors:
    """The stored vectors of an encoder, by name or path, without loading it; ``passages``: those of texts with their
    passages. `WorkspaceError` if there are none."""
    folder = Path(encoder).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else encoder
    if passages:
        name = with_passages(name)
    stored = Vectors.open(folder_of(workspace.path, name))
    if stored.encoder != name:
        raise WorkspaceError(
            f"{stored.folder} contains vectors of {stored.encoder}, not of {name}", f"icl-curate index --encoder {name}"
        )
    return stored


def encode(
    workspace: Workspace,
    encoder: str,
    device: str,
    monitor: Monitor = SILENT,
    *,
    full_precision: bool = False,
    passages: bool = False,
    access: Access = DEFAULTS,
    engine: Engine = INLINE,
) -> int:
    """Encode every row that is not retired and has no vector; returns how many were encoded. ``full_precision`` as in
    `load_encoder`, ``passages`` as in `vectors_of`, ``access`` for encoders behind an API; ``engine`` as in
    `Vectors.fill`.

    First, all existing vectors are read and compared with their checksums; damaged ones, and those of other content
    than the row's current one, are encoded again. Vectors are stored block by block, so an interrupted run continues
    where it stopped. The encoder is loaded only if something is missing.
    """
    with workspace.read() as con:
        rows, keys = live_keys(con)
    done = 0
    if missing(workspace, encoder, rows, keys, reread=True, passages=passages).size:
        here, elsewhere = (device, "") if engine.here else ("cpu", device)
        loaded = opened(workspace.path, encoder, here, access, full_precision=full_precision)
        name = with_passages(loaded.name) if passages else loaded.name
        stored = Vectors.create(folder_of(workspace.path, name), name, loaded.dimension)
        unfit = stored.unfit(rows, keys)
        if unfit:
            monitor.report(Event("encode", note=f"{unfit:,} stored vectors were damaged or outdated: encoded again"))
        lacking = ~stored.holds(rows, keys)
        if isinstance(loaded, ServedEncoder):
            monitor.report(Event("encode", note=loaded.announced(searched_texts(workspace, rows[lacking], passages))))
        try:
            done = stored.fill(
                bound_for(loaded, elsewhere), rows[lacking],
                lambda wanted: searched_texts(workspace, wanted, passages), keys[lacking], monitor,
                engine=engine, need=need_of(elsewhere),
            )  # fmt: skip
        finally:
            if isinstance(loaded, ServedEncoder):
                monitor.report(Event("encode", note=loaded.described()))
        stored.damaged(reread=True)  # remembered for the next process that opens them
    search_codes(vectors_of(workspace, encoder, passages), len(rows), monitor, reread=True)
    with workspace.write() as con:
        note(con, "encoder", encoder)
    return done


def search_codes(stored: Vectors, rows: int, monitor: Monitor = SILENT, *, reread: bool = False) -> Codes | None:
    """The codes by which so many rows are searched; None if the vectors themselves are. ``reread`` as in `codes_of`."""
    if rows < CODED_FROM:
        return None
    try:
        return codes_of(stored, monitor, reread=reread)
    except (OSError, WorkspaceError) as error:
        told = f"the int8 copy of the vectors cannot be stored, so all of them are read: {error}"
        monitor.report(Event("codes", note=told))
        return None


def need_of(elsewhere: str) -> Resources:
    """What encoding a shard needs, by the device of the encoder in a worker; empty inline."""
    return Resources(gpus=_GPUS.get(elsewhere, 0.0), threads=0)


def opened(
    workspace: Path, name: str, device: str = "auto", access: Access = DEFAULTS, *, full_precision: bool = False
) -> Encoder:
    """The encoder of this name; raises as `load_encoder` and `ServedEncoder` do. Nothing is sent yet."""
    if not is_served(name):
        return load_encoder(name, device, full_precision=full_precision)
    dimension = None
    for stored in (name, with_passages(name)):
        with suppress(WorkspaceError):
            kept = Vectors.open(folder_of(workspace, stored))
            if kept.marks[:, 0].any():  # else one odd reply would decide for ever
                dimension = dimension or kept.dimension
    return ServedEncoder(name, access, folder_of(workspace, name), dimension)


def readers_encoder(settings: Settings) -> str:
    """The encoder of the built-in reader: the configured one, unless each of its texts would be paid for."""
    return DEFAULT_ENCODER if is_served(settings.encoder) else settings.encoder


def missing(
    workspace: Workspace,
    encoder: str,
    rows: Int64s,
    keys: NDArray[np.uint64],
    *,
    reread: bool = False,
    passages: bool = False,
) -> Int64s:
    """Those of the rows without a vector that matches ``keys``; ``reread`` as in `Vectors.damaged`."""
    try:
        stored = vectors_of(workspace, encoder, passages)
        stored.damaged(reread=reread)
        return stored.missing(rows, keys)
    except WorkspaceError:
        return rows


def lexical_index(
    workspace: Workspace,
    monitor: Monitor = SILENT,
    *,
    content: NDArray[np.uint64] | None = None,
    reread: bool = False,
    passages: bool = False,
    engine: Engine = INLINE,
) -> BM25Index:
    """BM25 over every row of the pool, pruned ones included: opened, or rebuilt and stored if it is out of date.

    ``content`` is the result of `content_keys`, if it was computed already; ``reread`` reads the whole file, even if it
    is remembered as checked. ``passages``: of texts with their passages. ``engine`` inverts the texts.
    """
    folder = workspace.path / (LEXICAL_PASSAGES if passages else LEXICAL)
    with workspace.read() as con:
        rows = numbers(con, "SELECT row FROM pool ORDER BY row")
    if content is None or rows.max(initial=-1) >= len(content):
        content = content_keys(workspace)
    pool = _digest(rows, content[rows])
    try:
        return bm25.load(folder, pool, reread=reread)
    except WorkspaceError:
        pass
    blocks = input_blocks(workspace, rows, searched=True, passages=passages)
    texts = (text for _, found in blocks for text in found)
    index = bm25.build(rows, texts, monitor, engine=engine, beside=workspace.path / SHARDS)
    try:
        index.save(folder, pool)
    except OSError as error:
        told = f"the lexical index cannot be saved ({error.strerror}): rebuilt when needed"
        monitor.report(Event("bm25-index", note=told))
    return index


def encode_for_reader(workspace: Workspace, settings: Settings) -> Callable[[Sequence[str]], Float32s]:
    """The encoder of the built-in reader: the stored vector if the text is the input of a row, else a vector computed
    now.

    Computed in float32, so that an answer does not depend on which questions share its batch. The encoder is loaded on
    first use.
    """

    @cache
    def encoder() -> Encoder:
        return load_encoder(readers_encoder(settings), settings.device, full_precision=True)

    def encode(texts: Sequence[str]) -> Float32s:
        rows, keys = rows_of_inputs(workspace, texts)
        try:
            stored = vectors_of(workspace, readers_encoder(settings))
        except WorkspaceError:
            return encoder().encode(texts)
        known = stored.holds(rows, keys)
        vectors = np.empty((len(texts), stored.dimension), np.float32)
        vectors[known] = stored.matrix[rows[known]]
        fresh = np.flatnonzero(~known).tolist()
        if fresh:
            vectors[fresh] = encoder().encode([texts[i] for i in fresh])
        return vectors

    return encode


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
