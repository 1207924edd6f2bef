"""What is kept beside the DuckDB file so that queries are fast: embeddings and the lexical index.

Both can be made again from the rows, so both mend themselves: rows without a vector are encoded at the next index
run, and a lexical index that does not hold exactly the pool's rows is built anew when it is next needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import WorkspaceError
from ..progress import CancelToken, Report, silent
from ..search import bm25
from ..search.bm25 import BM25Index
from ..search.encoder import load_encoder
from ..search.vectors import Vectors, folder_of
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
    try:
        missing = vectors_of(workspace, encoder).missing(rows)
    except WorkspaceError:
        missing = rows
    if missing.size:
        wanted = np.isin(rows, missing)
        loaded = load_encoder(encoder, device)
        stored = Vectors.create(folder_of(workspace.path, loaded.name), loaded.name, loaded.dimension)
        stored.fill(loaded, missing, [text for text, want in zip(texts, wanted, strict=True) if want], report, cancel)
    with workspace.write() as con:
        con.execute("INSERT OR REPLACE INTO meta VALUES ('encoder', ?)", [encoder])
    return int(missing.size)


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


def _rows(workspace: Workspace, table: str) -> tuple[NDArray[np.int64], list[str]]:
    """Row numbers, ascending, and inputs."""
    with workspace.read() as con:
        found = arrow(con, f"SELECT row, input FROM {table} ORDER BY row")
    return found.column("row").to_numpy().astype(np.int64), found.column("input").to_pylist()


def _filed_under(encoder: str) -> str:
    folder = Path(encoder).expanduser()
    return str(folder.resolve()) if folder.is_dir() else encoder
