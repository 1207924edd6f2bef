"""The records of a file read in spans are those of the whole file, with the same lines."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers.formats import Records
from icl_curate.engine.index.readers.records import Record
from icl_curate.engine.index.readers.spans import spans_of

LINES = st.one_of(
    st.sampled_from([b"", b" \t", b"\r", b"no JSON", b"[1]", b"\xff\xfe\x00", b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf{}"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
        lambda text: json.dumps({"input": text, "output": "o"}, ensure_ascii=False).encode()
    ),
)


def in_spans(path: str, content: bytes, least: int) -> tuple[int, list[Record]]:
    """How many spans there are, and the records of all."""
    spans = spans_of(path, io.BytesIO(content), len(content), least)
    return len(spans), [record for span in spans for record in Records(path, io.BytesIO(content), span)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(LINES, min_size=1, max_size=30),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 60),
)
def test_lines_are_cut_nowhere_and_keep_their_numbers(
    lines: list[bytes], end: bytes, marked: bool, open_end: bool, least: int
) -> None:
    content = b'{"input": "first", "output": "o"}\n' + end.join(lines) + (b"" if open_end else end)
    content = (b"\xef\xbb\xbf" if marked else b"") + content
    count, found = in_spans("pool.jsonl", content, least)
    assert not count or found == [*Records("pool.jsonl", io.BytesIO(content))]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 70), st.integers(1, 12))
def test_parquet_is_cut_within_row_groups_too(rows: int, group: int, count: int) -> None:
    names = {b"huggingface": json.dumps({"info": {"features": {"output": _CLASSES}}}).encode()}
    table = pa.table({"input": [f"shot {i}" for i in range(rows)], "output": [i % 4 - 1 for i in range(rows)]})
    written = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(names), written, row_group_size=group)
    content = written.getvalue()
    several, found = in_spans("pool.parquet", content, max(1, len(content) // count))
    assert several == (min(rows, count) if count > 1 and rows > 1 else several)
    assert not several or found == [*Records("pool.parquet", io.BytesIO(content))]


_CLASSES = {"_type": "ClassLabel", "names": ["no", "yes", "maybe"]}


def test_a_cell_that_python_has_no_value_for_is_read_in_its_span(tmp_path: Path) -> None:
    instants = pa.array([i * 1001 for i in range(50)], pa.timestamp("ns"))
    table = pa.table({"input": [f"shot {i}" for i in range(50)], "output": ["o"] * 50, "at": instants})
    pq.write_table(table, tmp_path / "pool.parquet", row_group_size=9)
    content = (tmp_path / "pool.parquet").read_bytes()
    count, found = in_spans("pool.parquet", content, len(content) // 7)
    assert count == 7 and found == [*Records("pool.parquet", io.BytesIO(content))]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "utf-16.jsonl", "utf-32.jsonl", "a.csv", "a.json"])
def test_what_can_only_be_read_from_its_beginning_is_not_cut(name: str) -> None:
    text = "".join(f'{{"input": "shot {i}", "output": "o"}}\n' for i in range(100))
    content = text.encode(name.removesuffix(".jsonl") if name.startswith("utf") else "utf-8")
    if name.endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    assert spans_of(name, io.BytesIO(content), len(content), 8) == []


def test_a_compressed_name_with_plain_content_is_cut_and_a_damaged_file_is_not() -> None:
    text = "".join(f'{{"input": "shot {i}", "output": "o"}}\n' for i in range(100)).encode()
    assert in_spans("pool.jsonl.gz", text, 500) == (
        len(text) // 500,
        [*Records("pool.jsonl.gz", io.BytesIO(text))],
    )
    assert spans_of("pool.parquet", io.BytesIO(text), len(text), 500) == []
    with pytest.raises(UsageError, match="unknown format"):
        spans_of("pool", io.BytesIO(b"what?" * 100), 500, 8)
