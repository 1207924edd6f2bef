"""What is kept beside the DuckDB file so that queries are fast: embeddings and the lexical index.

Both can be made again from the rows, so both mend themselves: rows without a vector are encoded at the next index
run, and a lexical index that does not hold exactly the pool's rows is built anew when it is next needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import WorkspaceError
from ..progress import CancelToken, Report, silent
from ..search import bm25
from ..search.bm25 import BM25Index
from ..search.encoder import Encoder, load_encoder
from ..search.vectors import Vectors, folder_of
from ..settings import Settings
from ..store.demonstrations import rows_of_inputs
from ..store.workspace import Workspace, arrow

LEXICAL = "lexical"


def vectors_of(workspace: Workspace, encoder: str) -> Vectors:
    """The stored vectors of an encoder, by name or path, without loading it. `WorkspaceError` when there are none."""
    return Vectors.open(folder_of(workspace.path, _filed_under(encoder)))


def encode(
    workspace: Workspace, encoder: str, device: str, report: Report = silent, cancel: CancelToken | None = None
) -> int:
    """Give every row that is not retired its vector; returns how many were missing.

    What is finished is on disk block by block, so an interrupted run goes on where it stopped. The encoder is
    loaded only when something is missing.
    """
    rows, texts = _rows(workspace, "demonstrations WHERE retired_at IS NULL")
    lacking = missing(workspace, encoder, rows)
    if lacking.size:
        wanted = np.isin(rows, lacking)
        loaded = load_encoder(encoder, device)
        stored = Vectors.create(folder_of(workspace.path, loaded.name), loaded.name, loaded.dimension)
        stored.fill(loaded, lacking, [text for text, want in zip(texts, wanted, strict=True) if want], report, cancel)
    with workspace.write() as con:
        con.execute("INSERT OR REPLACE INTO meta VALUES ('encoder', ?)", [encoder])
    return int(lacking.size)


def missing(workspace: Workspace, encoder: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the rows that have no vector yet."""
    try:
        return vectors_of(workspace, encoder).missing(rows)
    except WorkspaceError:
        return rows


def lexical_index(workspace: Workspace, report: Report = silent, cancel: CancelToken | None = None) -> BM25Index:
    """BM25 over every row of the pool, pruned ones included: opened, or built and kept when it is out of date."""
    folder = workspace.path / LEXICAL
    with workspace.read() as con:
        rows = np.asarray(con.execute("SELECT row FROM pool ORDER BY row").fetchnumpy()["row"], np.int64)
    try:
        found = bm25.load(folder)
        if np.array_equal(found.rows, rows):
            return found
    except WorkspaceError:
        pass
    index = bm25.build(*_rows(workspace, "pool"), report, cancel)
    index.save(folder)
    return index


def encode_for_reader(workspace: Workspace, settings: Settings) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """What the embedded reader reads with: the stored vector of a text that is some row's input, else one computed now.

    Computed in float32, so that an answer does not depend on which questions share its batch. The encoder is loaded
    when it is first needed.
    """

    @cache
    def encoder() -> Encoder:
        return load_encoder(settings.encoder, settings.device, full_precision=True)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = rows_of_inputs(workspace, texts)
        try:
            stored = vectors_of(workspace, settings.encoder)
        except WorkspaceError:
            return encoder().encode(texts)
        known = (rows >= 0) & np.isin(rows, stored.missing(rows), invert=True)
        vectors = np.empty((len(texts), stored.dimension), np.float32)
        vectors[known] = stored.matrix[rows[known]]
        fresh = np.flatnonzero(~known).tolist()
        if fresh:
            vectors[fresh] = encoder().encode([texts[i] for i in fresh])
        return vectors

    return encode


def _rows(workspace: Workspace, table: str) -> tuple[NDArray[np.int64], list[str]]:
    """Row numbers, ascending, and inputs."""
    with workspace.read() as con:
        found = arrow(con, f"SELECT row, input FROM {table} ORDER BY row")
    return found.column("row").to_numpy().astype(np.int64), found.column("input").to_pylist()


def _filed_under(encoder: str) -> str:
    folder = Path(encoder).expanduser()
    return str(folder.resolve()) if folder.is_dir() else encoder
