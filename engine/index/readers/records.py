"""A record of a file, or why it cannot be used; lines of text in UTF-8, UTF-16 or UTF-32; lists written as one text."""

from __future__ import annotations

import ast
import codecs
import gzip
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from shlex import quote
from typing import Any, BinaryIO
from uuid import UUID

from ...base.errors import UsageError


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Why a record cannot be used."""

    reason: str


NOT_UTF8 = "not UTF-8"
"""The reason of a record in another encoding, or how it begins."""


def to_utf8(path: str) -> str:
    """What makes a file in UTF-8 of one in the encoding of Western European Windows; of rows among others in UTF-8 it
    would spoil these."""
    read = quote(path) if Path(path).suffix in (".csv", ".tsv", ".jsonl", ".json", ".txt") else "FILE"
    return f"if all of it is Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 {read} > NEW"


Record = tuple[int, dict[str, Any] | BadRecord]
"""The line a record starts on, and the record. In Parquet, Arrow, Excel and JSON in one line: its number, from 1."""


def line_of(record: Mapping[str, Any]) -> bytes:
    """A record from Python as a line of JSON, null for missing values: numbers of numpy as Python's, sets as sorted
    lists, dates and the like as texts. Raises `UsageError` for what is none of these: its text would say nothing."""
    try:
        text = json_text(dict(record), ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a row cannot be written as JSON: {error}", "give texts, numbers, lists and mappings"
        ) from None
    return (text + "\n").encode(errors="surrogatepass")


def json_text(value: Any, **written: Any) -> str:
    """As `json.dumps`, with null for numbers that JSON has not."""
    text = json.dumps(value, **written)
    if any(name in text for name in ("NaN", "Infinity")):
        text = json.dumps(json.loads(text, parse_constant=lambda _: None), **written)
    return text


def is_missing(value: Any) -> bool:
    """None, what is no finite number, and what pandas has for a missing value."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and not math.isfinite(value))
    )


AS_TEXT = (date, time, timedelta, Decimal, UUID, PurePath)
"""Types whose text says what they are."""


def _plain(value: Any) -> Any:
    """A value that JSON has not as one that it has. Raises `TypeError` for what has no form there."""
    if is_missing(value):
        return None
    if isinstance(value, AS_TEXT):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value is of type {type(value).__name__}")


def distinct(names: Sequence[str]) -> list[str]:
    """The names of columns, the second of one name as ``name (2)`` and the second without a name by its place, so that
    no column takes the place of another. The first keeps its name, even none: rows are known by what they hold."""
    header: dict[str, None] = {}
    taken, times = {*names}, Counter[str]()
    for place, name in enumerate(names, 1):
        own = one = name or (f"column {place}" if "" in header else "")
        while one in header or (one != name and one in taken):
            times[own] += 1
            one = f"{own} ({times[own] + 1})"
        header[one] = None
    return [*header]


def parse_list(text: str) -> list[Any] | None:
    """A list written as one text field: JSON, Python syntax, or parts separated by line breaks or bars."""
    text = text.strip()
    if text.startswith("["):
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            return value if isinstance(value, list) else None
    for separator in ("\n", "|"):
        if separator in text:
            return [part.strip() for part in text.split(separator) if part.strip()]
    return [text] if text else None


LINE = 64 << 20
"""Bytes (characters, in UTF-16 and UTF-32) from which a line is not read: a compressed file of 92 kB can hold one of
three gigabytes."""
TOO_LONG = BadRecord(f"the line is longer than {LINE >> 20} MB")
PACKED, SMALL = 100, 16 << 20
"""How many times its size a compressed file may unpack to in one piece, and bytes that it may in any case: as Python
values short lists take 25 times their bytes."""


def at_once(stream: BinaryIO) -> int:
    """Bytes of a compressed file that may be in memory as one piece."""
    place = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    stream.seek(place)
    return max(SMALL, PACKED * size)


def encoding_of(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return _WITHOUT_MARK.get(tuple(map(bool, head[:4])), "utf-8")


_WITHOUT_MARK: Mapping[tuple[bool, ...], str] = {
    (True, False, True, False): "utf-16-le",
    (False, True, False, True): "utf-16-be",
    (True, False, False, False): "utf-32-le",
    (False, False, False, True): "utf-32-be",
}
"""By which of a file's first four bytes are not zero, where it begins with ASCII characters (RFC 4627, section 3)."""


def text_lines(stream: Any, longest: int = 0) -> tuple[str, Iterator[bytes | str | BadRecord]]:
    """The encoding by how the file begins, and the lines: bytes for UTF-8, text for the others, `TOO_LONG` in the place
    of one that is, or that is as long as ``longest`` if this is given."""
    longest = min(longest or LINE, LINE)
    buffered = stream if isinstance(stream, io.BufferedReader | gzip.GzipFile) else io.BufferedReader(stream)
    head = bytes(buffered.peek(4)[:4])
    encoding = encoding_of(head)
    if encoding != "utf-8":
        return encoding, _decoded(buffered, encoding, longest)
    if head.startswith(codecs.BOM_UTF8):
        buffered.read(3)
    return encoding, _lines(buffered, b"\n", longest)


def _decoded(buffered: Any, encoding: str, longest: int) -> Iterator[bytes | str | BadRecord]:
    text = io.TextIOWrapper(buffered, encoding, errors="replace", newline="\n")
    try:
        yield from _lines(text, "\n", longest)
    finally:
        text.detach()  # or it would close the file with itself


def _lines(stream: Any, end: bytes | str, longest: int) -> Iterator[bytes | str | BadRecord]:
    """The lines of a stream; of one that is as long as ``longest`` no more than this is in memory."""
    while line := stream.readline(longest):
        if len(line) < longest or line.endswith(end):
            yield line
        else:
            skip_line(stream, end)
            yield TOO_LONG if longest == LINE else BadRecord(f"the line is longer than {longest >> 20} MB, compressed")


def skip_line(stream: Any, end: bytes | str = b"\n") -> None:
    """Read to the end of the line that the stream is in."""
    while (more := stream.readline(1 << 20)) and not more.endswith(end):
        pass


def decoded_lines(stream: BinaryIO, longest: int = 0) -> Iterator[tuple[int, str | BadRecord]]:
    """Numbers and texts of all lines, see `text_lines`."""
    encoding, lines = text_lines(stream, longest)
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRecord):
            yield number, line
        elif isinstance(line, bytes):
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                yield (
                    number,
                    BadRecord(f"{NOT_UTF8}: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"),
                )
        else:
            yield number, BadRecord(f"not {encoding.upper()}") if "\ufffd" in line else line
