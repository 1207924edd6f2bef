"""The records of a Parquet file read by row groups are those of the whole file, with the same numbers."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers.formats import Records
from icl_curate.engine.index.readers.parquet_format import rows_by_group
from icl_curate.engine.index.readers.records import Record

_CLASSES = {"_type": "ClassLabel", "names": ["no", "yes", "maybe"]}


def by_groups(content: bytes, cuts: list[int]) -> list[Record]:
    """The records of the row groups between the ``cuts``."""
    ranges = [range(begin, end) for begin, end in pairwise(cuts)]
    return [record for groups in ranges for record in Records("pool.parquet", io.BytesIO(content), groups)]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 70), st.sets(st.integers(1, 199)))
def test_row_groups_are_read_as_in_the_whole(rows: int, size: int, cuts: set[int]) -> None:
    names = {b"huggingface": json.dumps({"info": {"features": {"output": _CLASSES}}}).encode()}
    table = pa.table({"input": [f"shot {i}" for i in range(rows)], "output": [i % 4 - 1 for i in range(rows)]})
    written = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(names), written, row_group_size=size)
    content = written.getvalue()
    groups = rows_by_group(io.BytesIO(content))
    assert sum(groups) == rows and len(groups) == -(-rows // size)
    read = by_groups(content, [0, *sorted(cut for cut in cuts if cut < len(groups)), len(groups)])
    assert read == [*Records("pool.parquet", io.BytesIO(content))]


def test_a_cell_that_python_has_no_value_for_and_an_empty_group_are_read_in_their_group() -> None:
    instants = pa.array([i * 1001 for i in range(50)], pa.timestamp("ns"))
    table = pa.table({"input": [f"shot {i}" for i in range(50)], "output": ["o"] * 50, "at": instants})
    written = io.BytesIO()
    with pq.ParquetWriter(written, table.schema) as writer:
        for part in (table[:0], table[:20], table[:0], table[20:]):
            writer.write_table(part)
    content = written.getvalue()
    assert rows_by_group(io.BytesIO(content)) == [0, 20, 0, 30]
    assert by_groups(content, [0, 1, 2, 3, 4]) == [*Records("pool.parquet", io.BytesIO(content))]


def test_a_damaged_file_has_no_groups_and_one_without_rows_is_named() -> None:
    assert rows_by_group(io.BytesIO(b"PAR1 and no more" * 100)) == []
    written = io.BytesIO()
    pq.write_table(pa.table({"input": pa.array([], pa.string())}), written)
    with pytest.raises(UsageError, match=r"pool\.parquet has no rows"):
        [*Records("pool.parquet", io.BytesIO(written.getvalue()))]
