"""Parquet and Arrow files, and values of Arrow as Python values."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO

from ...base.errors import UsageError
from ...base.packages import arrow
from .records import BadRecord, Record, distinct

BATCH, BYTES = 256, 1 << 24
"""Rows that are Python values at a time, and about how many bytes of them: one text of a megabyte, stored once, may be
in all rows."""
UNPACKED, PACKED = 256 << 20, 1_000
"""Bytes to which a column of a row group may unpack if that is so many times what it takes in the file: Arrow has a
page of it in memory at once, whatever is asked for."""
PACKED_BATCH = 100
"""As `PACKED`, for all columns of a batch in an Arrow file, which is in memory at once."""
SAMPLE = 16
"""Rows of a row group whose texts tell how long its rows are."""
PIECEWISE = {"pre_buffer": False, "buffer_size": 1 << 20}
"""How Arrow reads a row group: page by page. By itself it first reads all of a column, as it is stored."""


def read_parquet(
    path: str,
    stream: BinaryIO,
    groups: range | None = None,
    columns: Callable[[Sequence[str]], list[str] | None] = lambda names: None,
) -> Iterator[Record]:
    """The records of a file, or of some of its row groups; ``columns`` chooses by their names those that are
    read, None for all."""
    pyarrow = arrow(f"{path}: reading Parquet files")
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(stream, **PIECEWISE)
        if not file.metadata.num_rows:
            raise UsageError(f"{path} has no rows", "remove it, or add rows to it")
        names = label_names(file.schema_arrow.metadata)
        number = sum(_rows_by_group(file)[: groups.start]) if groups else 0
        wanted = columns(file.schema_arrow.names)
        for batch in _batches(path, file, stream, groups or range(file.num_row_groups), wanted):
            for number, row in enumerate(plain_rows(batch), number + 1):  # noqa: B020 - goes on from the last batch
                yield number, row if isinstance(row, BadRecord) else _named(row, names)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter: a column name
        message = str(error).splitlines()[0]
        raise UsageError(f"{path} is truncated or not a Parquet file: {message}", "write the file again") from error


def _batches(path: str, file: Any, stream: BinaryIO, groups: range, wanted: list[str] | None) -> Iterator[Any]:
    """The ``wanted`` columns of these row groups. Raises `UsageError` for one that unpacks to far too much."""
    from pyarrow import parquet

    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    # each text once, as stored
    packed = parquet.ParquetFile(stream, metadata=file.metadata, read_dictionary=paths, **PIECEWISE)
    for group in groups:
        claimed = file.metadata.row_group(group)
        read = [claimed.column(i) for i, at in enumerate(paths) if wanted is None or at.partition(".")[0] in wanted]
        _refuse_bomb(path, read)
        size = sum(column.total_uncompressed_size for column in read) / max(claimed.num_rows, 1)
        for sample in islice(packed.iter_batches(batch_size=SAMPLE, row_groups=[group], columns=wanted), 1):
            size += _row_bytes(sample)
        yield from file.iter_batches(batch_size=_at_once(size), row_groups=[group], columns=wanted)


def _refuse_bomb(path: str, columns: Sequence[Any]) -> None:
    for column in columns:
        if column.total_uncompressed_size > max(UNPACKED, PACKED * column.total_compressed_size):
            raise UsageError(
                f"{path}: {column.path_in_schema} unpacks from {column.total_compressed_size >> 10:,} kB to "
                f"{column.total_uncompressed_size >> 20:,} MB",
                "write it with smaller row groups, or as .jsonl",
            )


def _at_once(size: float) -> int:
    """How many rows of ``size`` bytes are Python values at a time."""
    return max(1, min(BATCH, int(BYTES // max(size, 1))))


def _row_bytes(batch: Any) -> float:
    """Bytes of a row as Python values, on average, if texts that are stored once are the longest each time."""
    return float(sum(map(_unpacked, batch.columns)) / max(batch.num_rows, 1))


def _unpacked(array: Any) -> float:
    import pyarrow
    from pyarrow import compute

    with suppress(pyarrow.ArrowNotImplementedError):  # no texts, or nested as a map is
        if pyarrow.types.is_dictionary(array.type):
            return float(len(array) * (compute.max(compute.binary_length(array.dictionary)).as_py() or 0))
        if pyarrow.types.is_struct(array.type):
            return float(sum(map(_unpacked, array.flatten())))
        if pyarrow.types.is_nested(array.type) and hasattr(array, "flatten"):
            return _unpacked(array.flatten())
    return float(array.nbytes)


def rows_by_group(stream: BinaryIO) -> list[int]:
    """How many rows each row group of a Parquet file has; none if it cannot be read."""
    pyarrow = arrow("reading Parquet files")
    from pyarrow import parquet

    try:
        return _rows_by_group(parquet.ParquetFile(stream))
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError):
        return []


def _rows_by_group(file: Any) -> list[int]:
    return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def read_arrow(path: str, stream: BinaryIO) -> Iterator[Record]:
    """Arrow streams and files, as `save_to_disk` of the `datasets` library and Feather (version 2) write them."""
    pyarrow = arrow(f"{path}: reading Arrow files")
    number = 0
    try:
        opened = _opened(stream)
        names = label_names(opened.schema.metadata)
        # a file is a stream between two marks, and is read as one: what was looked at is what is read
        begin, batches = (8, opened.num_record_batches) if hasattr(opened, "num_record_batches") else (0, None)
        stream.seek(begin)
        _refuse_packed(path, stream, batches)
        stream.seek(begin)
        for batch in chain.from_iterable(map(_parts, pyarrow.ipc.open_stream(stream))):
            for number, row in enumerate(plain_rows(batch), number + 1):  # noqa: B020 - goes on from the last batch
                yield number, row if isinstance(row, BadRecord) else _named(row, names)
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        message = (str(error).splitlines() or ["?"])[0]
        raise UsageError(f"{path} is truncated or not an Arrow file: {message}", "write the file again") from error
    if not number:
        raise UsageError(f"{path} has no rows", "remove it, or add rows to it")


def _refuse_packed(path: str, stream: BinaryIO, batches: int | None) -> None:
    """Raise `UsageError` if a batch of a stream unpacks to far too much, or if there are not so many: Arrow unpacks a
    whole batch at once, and says nothing before."""
    import pyarrow

    counted = 0
    with suppress(StopIteration):
        reader = pyarrow.ipc.MessageReader.open_stream(stream)
        while True:
            message = reader.read_next_message()
            counted += message.type == "record batch"
            if message.body is None:
                continue
            unpacked = _unpacked_size(message.metadata.to_pybytes(), message.body)
            if unpacked > max(UNPACKED, PACKED_BATCH * message.body.size):
                raise UsageError(
                    f"{path}: a batch unpacks from {message.body.size >> 10:,} kB to {unpacked >> 20:,} MB",
                    "write it with smaller batches, or as .jsonl",
                )
    if batches is not None and counted != batches:
        raise pyarrow.ArrowInvalid(f"{counted} batches, where it says {batches}")


def _unpacked_size(metadata: bytes, body: Any) -> int:
    """Bytes of the buffers of a batch once they are unpacked; 0 if they are not packed.

    https://arrow.apache.org/docs/format/Columnar.html: a message is a FlatBuffers table; a packed buffer begins with
    its size, -1 if it is stored as it is.
    """

    def read(kind: str, at: int) -> int:
        return int(struct.unpack_from(f"<{kind}", metadata, at)[0])

    def member(table: int, number: int) -> int:
        """Where the table's field of this number lies, 0 if it has none."""
        fields = table - read("i", table)
        offset = read("H", fields + 4 + 2 * number) if 4 + 2 * number < read("H", fields) else 0
        return table + offset if offset else 0

    def target(at: int) -> int:
        return at + read("I", at)

    try:
        message = target(0)
        batch = target(member(message, 2))
        if read("B", member(message, 1)) == 2:  # a dictionary, which is a batch and a number
            batch = target(member(batch, 1))
        if not member(batch, 3):
            return 0
        buffers = target(member(batch, 2))
        places = [struct.unpack_from("<qq", metadata, buffers + 4 + 16 * i) for i in range(read("I", buffers))]
        return sum(max(struct.unpack_from("<q", body, offset)[0], 0) for offset, size in places if size >= 8)
    except struct.error:
        raise OSError("a message is damaged") from None


def _parts(batch: Any) -> Iterator[Any]:
    rows = _at_once(_row_bytes(batch))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _opened(stream: BinaryIO) -> Any:
    """A reader of an Arrow file or stream."""
    import pyarrow

    head = stream.read(6)
    stream.seek(0)
    if head.startswith(b"FEA1"):
        raise pyarrow.ArrowInvalid("it is Feather of version 1")
    return pyarrow.ipc.open_file(stream) if head == b"ARROW1" else pyarrow.ipc.open_stream(stream)


def schema_metadata(kind: str, stream: BinaryIO) -> Mapping[bytes, bytes] | None:
    """What the schema of a Parquet or Arrow file says of itself; None if it says nothing or the file is damaged."""
    pyarrow = arrow(f"reading {kind.capitalize()} files")
    from pyarrow import parquet

    try:
        schema = parquet.ParquetFile(stream).schema_arrow if kind == "parquet" else _opened(stream).schema
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError):
        return None
    found: Mapping[bytes, bytes] | None = schema.metadata
    return found


def label_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The names of labels by column, from the features that the `datasets` library writes into the schema; lists of
    labels as well."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        found = {column: _names(feature) for column, feature in features.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return {column: names for column, names in found.items() if names}


def _names(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list) and len(feature) == 1:  # as older releases write lists
        feature = feature[0]
    if not isinstance(feature, Mapping):
        return ()
    if feature.get("_type") in ("List", "LargeList", "Sequence"):
        return _names(feature.get("feature"))
    names = feature.get("names")
    return tuple(map(str, names)) if feature.get("_type") == "ClassLabel" and isinstance(names, list) else ()


def _named(row: dict[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The row with its labels by name; -1, which marks a row without a label, is empty."""
    for column, known in names.items():
        if column in row:
            row[column] = _label(row[column], known)
    return row


def _label(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_label(part, names) for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    return value


def plain_rows(batch: Any) -> list[dict[str, Any] | BadRecord]:
    """The rows of an Arrow batch as Python values. A value without a Python equivalent, such as a timestamp in
    nanoseconds or beyond the year 9999, becomes its text; a row that cannot be converted is `BadRecord`."""
    if len({*batch.schema.names}) < batch.num_columns:
        batch = type(batch).from_arrays(batch.columns, names=distinct(batch.schema.names))
    try:
        rows: list[dict[str, Any] | BadRecord] = batch.to_pylist()
    except _UNREADABLE_CELL:
        return [_plain_row(batch, i) for i in range(batch.num_rows)]
    return rows


_UNREADABLE_CELL = (ValueError, OverflowError, TypeError, LookupError, ImportError, NotImplementedError)
"""What Arrow raises for a value without a Python equivalent."""


def _plain_row(batch: Any, index: int) -> dict[str, Any] | BadRecord:
    row: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = _plain_value(column[index])
        except UnicodeDecodeError:
            return BadRecord("not UTF-8")
        except _UNREADABLE_CELL as error:
            return BadRecord(f"column {name} cannot be read: {error}".splitlines()[0])
    return row


def _plain_value(cell: Any) -> Any:
    """The value of an Arrow scalar, converted part by part if it cannot be converted as a whole."""
    import pyarrow

    try:
        return cell.as_py()
    except UnicodeDecodeError:
        raise
    except _UNREADABLE_CELL:
        if pyarrow.types.is_struct(cell.type):
            return {name: _plain_value(part) for name, part in cell.items()}
        if pyarrow.types.is_nested(cell.type):
            return [_plain_value(part) for part in cell.values]
        if pyarrow.types.is_timestamp(cell.type) and cell.type.tz:
            cell = pyarrow.scalar(cell.value, pyarrow.timestamp(cell.type.unit, "UTC"))  # its own zone may not exist
        return cell.cast(pyarrow.string()).as_py()
