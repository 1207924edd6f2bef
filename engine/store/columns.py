"""Arrow columns to and from numpy by their buffers.

`pa.array`, `pa.table` and `to_numpy` import pandas wherever it is installed, and `cast` imports all functions of Arrow,
which takes a process that selects a quarter of a second. These do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..arrays import Int64s

ROWS = pa.schema([("row", pa.int64())])
KEYS = pa.schema([("key", pa.binary())])


def numbers_of(column: pa.ChunkedArray) -> Int64s:
    """A column of BIGINTs without nulls, (n,); read-only."""
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(np.from_dlpack(whole), np.int64)


def blobs_of(column: pa.ChunkedArray, size: int) -> NDArray[np.uint8]:
    """A column of BLOBs of ``size`` bytes each, without nulls, (n, size). Raises `ValueError` for another
    size."""
    parts = [_bytes_of(chunk, size) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty((0, size), np.uint8)


def _bytes_of(chunk: pa.BinaryArray, size: int) -> NDArray[np.uint8]:
    _, offsets, data = chunk.buffers()
    starts = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    if (np.diff(starts) != size).any():
        raise ValueError(f"not all of {size} bytes")
    return np.frombuffer(data, np.uint8)[starts[0] : starts[-1]].reshape(len(chunk), size)


def column_of(numbers: Int64s) -> pa.Int64Array:
    """Numbers (n,) as an Arrow array."""
    held = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)])


def row_table(rows: Int64s) -> pa.Table:
    """A table with the column ``row``."""
    return pa.Table.from_arrays([column_of(rows)], schema=ROWS)


def key_table(keys: Sequence[bytes]) -> pa.Table:
    """A table with the column ``key``; its bytes must be less than 2 GiB together."""
    ends = np.cumsum([0, *map(len, keys)], dtype=np.int64).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(keys))]
    return pa.Table.from_arrays([pa.Array.from_buffers(pa.binary(), len(keys), buffers)], schema=KEYS)
