"""The format of a file, and its records."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

from ...errors import UsageError
from .csv_format import read_csv
from .files import STDIN
from .json_formats import read_json, read_jsonl
from .parquet_format import read_parquet
from .records import Record
from .text import decoded_lines

Format = Literal["jsonl", "json", "csv", "tsv", "parquet"]
SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}

_DAMAGE = (EOFError, OSError, zlib.error)


def format_of(path: str, stream: BinaryIO) -> Format:
    """The format by the suffix (ignoring ``.gz``), else by the first bytes; `UsageError` if neither identifies it."""
    if path == STDIN:
        return "jsonl"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() != ".gz"]
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
        f"{path}: unknown format", "name the file .jsonl, .json, .csv, .tsv or .parquet (optionally with .gz)"
    )


def records(path: str, stream: BinaryIO) -> Iterator[Record]:
    """Every record of the file, in order. Raises `UsageError` for an error of the whole file."""
    kind = format_of(path, stream)
    try:
        if kind == "parquet":
            yield from read_parquet(path, stream)
            return
        zipped = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        plain: BinaryIO = gzip.GzipFile(fileobj=stream) if zipped else stream  # type: ignore[assignment]
        if kind == "jsonl":
            yield from read_jsonl(decoded_lines(plain))
        elif kind == "json":
            yield from read_json(path, plain.read())
        else:
            yield from read_csv(path, plain, tab=kind == "tsv")
    except _DAMAGE as error:
        raise UsageError(f"{path} is truncated or damaged: {error}", "write or download the file again") from error
