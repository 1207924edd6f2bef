"""Feather and Arrow files: read as pyarrow reads them, with a limit for what a batch unpacks to."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.readers import parquet_format
from icl_curate.engine.index.readers.files import open_input
from icl_curate.engine.index.readers.formats import records
from icl_curate.engine.store.workspace import Workspace
from pyarrow import feather

DRAW = random.Random(0)
PLAIN = pa.table({"input": [DRAW.randbytes(500).hex() for _ in range(2_000)], "output": ["x", "y"] * 1_000})
BOMB = pa.table({"input": [f"{i} {'a' * 9_990}" for i in range(2_000)], "output": ["x", "y"] * 1_000})
CODED = pa.table({"input": PLAIN["input"], "output": BOMB["input"].combine_chunks().dictionary_encode()})


def read(path: Path) -> list[Any]:
    with open_input(str(path)) as stream:
        return [record for _, record in records(str(path), stream)]


@pytest.mark.parametrize("suffix", [".feather", ".arrow", ".ipc", ""])
@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_a_file_is_read_as_by_its_own_library(suffix: str, compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"pool{suffix}"
    feather.write_feather(PLAIN, str(path), compression=compression, chunksize=300)
    assert read(path) == feather.read_table(str(path)).to_pylist() == PLAIN.to_pylist()


def test_feather_is_indexed(tmp_path: Path) -> None:
    feather.write_feather(PLAIN.slice(0, 10), str(tmp_path / "pool.feather"))
    plan = IndexPlan(paths=(str(tmp_path / "pool.feather"),))
    assert index_pool(Workspace.create(tmp_path / "w"), plan).demonstrations == 10


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize(("table", "refused"), [(PLAIN, False), (BOMB, True), (CODED, True)])
def test_a_batch_unpacks_to_so_much(
    table: pa.Table, refused: bool, kind: str, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_format, "UNPACKED", 1 << 20)
    monkeypatch.setattr(parquet_format, "PACKED_BATCH", 10)
    path = tmp_path / "pool.arrow"
    opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with opened(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as written:
        written.write_table(table)
    if refused:
        with pytest.raises(UsageError, match=r"a batch unpacks from [\d,]+ kB to \d+ MB"):
            read(path)
    else:
        assert len(read(path)) == 2_000


@pytest.mark.parametrize("table", [PLAIN, BOMB, CODED, pa.table({"a": [[1, None], [], None], "b": [{"c": "x"}] * 3})])
def test_the_size_is_what_arrow_takes(table: pa.Table) -> None:
    """Buffers are padded to 8 bytes before they are packed, and Arrow takes 64 bytes at a time."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=options) as written:
        written.write_table(table.combine_chunks())
    reader = pa.ipc.MessageReader.open_stream(io.BytesIO(sink.getvalue()))
    messages = [message for message in reader if message.body is not None]
    said = sum(parquet_format._unpacked_size(each.metadata.to_pybytes(), each.body) for each in messages)
    [batch] = pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()
    assert said == pytest.approx(batch.get_total_buffer_size(), rel=0.01, abs=64 * 8)


def test_a_file_that_says_other_batches_than_it_has(tmp_path: Path) -> None:
    def written(batches: int) -> bytes:
        sink = io.BytesIO()
        feather.write_feather(PLAIN, sink, chunksize=len(PLAIN) // batches)
        return sink.getvalue()

    one, two = written(1), written(2)
    footer = int.from_bytes(two[-10:-6], "little") + 10
    own = int.from_bytes(one[-10:-6], "little") + 10
    for damaged in (one[:-own] + two[-footer:], one[:-1], one[: len(one) // 2], b"FEA1" + one[4:]):
        (tmp_path / "pool.feather").write_bytes(damaged)
        with pytest.raises(UsageError, match="truncated or not an Arrow file"):
            read(tmp_path / "pool.feather")


def test_a_damaged_message_is_told() -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, BOMB.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as written:
        written.write_table(BOMB)
    *_, message = (each for each in pa.ipc.MessageReader.open_stream(io.BytesIO(sink.getvalue())))
    metadata = bytearray(message.metadata.to_pybytes())
    for place in range(0, len(metadata), 4):
        spoilt = bytearray(metadata)
        spoilt[place : place + 4] = b"\xff\xff\xff\x7f"
        try:
            parquet_format._unpacked_size(bytes(spoilt), message.body)
        except OSError as error:
            assert str(error) == "a message is damaged"
