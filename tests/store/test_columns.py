"""Arrow columns read and made by their buffers, against what pyarrow itself makes of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from icl_curate.engine.store.columns import blobs_of, column_of, key_table, numbers_of, row_table

BLOBS = [bytes(range(i, i + 4)) for i in range(7)]


@pytest.mark.parametrize("chunks", [[], [[]], [[3, 1, 2]], [[], [3], [1, 2]]])
def test_numbers_are_those_of_the_column_however_it_is_cut(chunks: list[list[int]]) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.int64()) for chunk in chunks], pa.int64())
    assert numbers_of(column).tolist() == column.to_pylist()
    assert numbers_of(column[1:]).tolist() == column[1:].to_pylist()  # as part of a longer one


def test_blobs_of_one_size_are_rows_of_bytes_and_others_are_refused() -> None:
    column = pa.chunked_array([BLOBS[:3], [], BLOBS[3:]], pa.binary())
    assert [bytes(row) for row in blobs_of(column, 4)] == BLOBS
    assert [bytes(row) for row in blobs_of(column.slice(2, 3), 4)] == BLOBS[2:5]
    assert blobs_of(pa.chunked_array([], pa.binary()), 4).shape == (0, 4)
    with pytest.raises(ValueError, match="not all of 8 bytes"):
        blobs_of(column, 8)


def test_tables_hold_what_pyarrow_would_have_put_in() -> None:
    rows = np.arange(10)[::3]  # not contiguous
    assert column_of(rows) == pa.array(rows, pa.int64())
    assert row_table(rows) == pa.table({"row": rows})
    assert row_table(np.empty(0, np.int64)).num_rows == 0
    for keys in ([], [b"", b"a", b"long" * 9]):
        assert key_table(keys) == pa.table({"key": pa.array(keys, pa.binary())})
