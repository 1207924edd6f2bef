"""The format of a file, and its records."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from ...base.errors import UsageError
from ...base.packages import arrow
from ..exported import is_packed, is_packed_schema, manifest_of
from .csv_format import read_csv, read_excel
from .files import STDIN
from .json_formats import read_json, read_jsonl, read_yaml
from .parquet_format import label_names, read_arrow, read_parquet, schema_metadata
from .presets import recognised
from .records import BadRecord, Record, decoded_lines

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow", "yaml", "excel"]
SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".xlsx": "excel",
}
COMPRESSED = (".gz", ".zst")

T = TypeVar("T")

UNPACKED = 256 << 20
"""Bytes of a compressed file that is read as a whole, such as a JSON array."""

GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""How compressed files begin."""

_DAMAGE = (EOFError, OSError, zlib.error)


def format_of(path: str, stream: BinaryIO) -> Format:
    """The format by the suffix (ignoring `COMPRESSED`), else by the first bytes; `UsageError` if neither identifies
    it."""
    if path == STDIN:
        return "jsonl"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in COMPRESSED]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    head = stream.read(64)
    stream.seek(0)
    if head.startswith(b"PAR1"):
        return "parquet"
    if first := head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]:
        if first == b"{":
            return "jsonl"
        if first == b"[":
            return "json"
    raise UsageError(
        f"{path}: unknown format",
        "name the file .jsonl, .json, .csv, .tsv, .parquet, .arrow, .yaml or .xlsx (optionally with .gz or .zst)",
    )


class Records:
    """Every record of a file, or of row ``groups`` of a Parquet file, in order, those of other tools as flat records.
    Iterating raises `UsageError` for an error of the whole file. ``shape`` is the tool that wrote the records read so
    far, empty for plain ones."""

    def __init__(self, path: str, stream: BinaryIO, groups: range | None = None) -> None:
        self.path, self._stream, self._groups = path, stream, groups
        self.format: Format = format_of(path, stream)
        self.shape = ""
        self._found = self._flat()

    def __iter__(self) -> Iterator[Record]:
        return self._found

    def label_names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of labels by column, if the file itself holds them."""
        return self._of_schema(label_names, {})

    def is_packed(self) -> bool:
        """Whether it is an export of ours whose metadata is one column."""
        if self.format in ("csv", "tsv"):
            return is_packed(manifest_of(self.path))
        return self._of_schema(is_packed_schema, False)

    def _of_schema(self, read: Callable[[Mapping[bytes, bytes] | None], T], none: T) -> T:
        """What the schema of a Parquet or Arrow file says; ``none`` for other formats."""
        if self.format not in ("parquet", "arrow"):
            return none
        place = self._stream.tell()
        try:
            self._stream.seek(0)
            return read(schema_metadata(self.format, self._stream))
        finally:
            self._stream.seek(place)

    def _flat(self) -> Iterator[Record]:
        for line, record in _as_written(self.path, self._stream, self.format, self._groups):
            known = None if isinstance(record, BadRecord) else recognised(record)
            if known is None:
                yield line, record
            else:
                self.shape, flat = known
                yield from ((line, each) for each in flat)


def records(path: str, stream: BinaryIO) -> Iterator[Record]:
    """The records alone, see `Records`."""
    return iter(Records(path, stream))


def _as_written(path: str, stream: BinaryIO, kind: Format, groups: range | None) -> Iterator[Record]:
    try:
        if kind == "parquet":
            yield from read_parquet(path, stream, groups)
            return
        if kind == "arrow":
            yield from read_arrow(path, stream)
            return
        plain = _decompressed(path, stream)
        if kind == "excel":
            yield from read_excel(path, io.BytesIO(_whole(path, plain, stream)))
        elif kind == "yaml":
            yield from read_yaml(path, _whole(path, plain, stream))
        elif kind == "jsonl":
            yield from read_jsonl(decoded_lines(plain))
        elif kind == "json":
            yield from read_json(path, _whole(path, plain, stream))
        else:
            yield from read_csv(path, plain, tab=kind == "tsv")
    except _DAMAGE as error:  # that of Zstandard is an `OSError`
        raise UsageError(f"{path} is truncated or damaged: {error}", "write or download the file again") from error


def _whole(path: str, plain: BinaryIO, stream: BinaryIO) -> bytes:
    """All bytes of a file that is not read line by line. Raises `UsageError` for a compressed ``stream`` with more than
    `UNPACKED`."""
    if plain is stream:  # as large as the user sees it on the disk
        return plain.read()
    if len(data := plain.read(UNPACKED + 1)) > UNPACKED:
        raise UsageError(
            f"{path} unpacks to more than {UNPACKED >> 20} MB", "unpack it, or write one object per line as .jsonl"
        )
    return data


def _decompressed(path: str, stream: BinaryIO) -> BinaryIO:
    """The bytes of a file in gzip or Zstandard, recognised by how it begins; else the stream itself."""
    head = stream.read(4)
    stream.seek(0)
    if head.startswith(GZIP):
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if head == ZSTANDARD:
        pyarrow = arrow(f"{path}: reading Zstandard")
        return io.BufferedReader(pyarrow.CompressedInputStream(_KeptOpen(stream), "zstd"))
    return stream


class _KeptOpen(io.RawIOBase):
    """A stream that whoever reads it cannot close: Arrow closes what it has read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
