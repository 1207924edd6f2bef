"""Records of a file, each with the line it starts on.

An error in one record is yielded as `Bad` in its place and reading continues; an error of the whole file (missing, a
directory or a device, empty, truncated, wrong format) raises `UsageError`. Text files are decoded row by row.
"""

from __future__ import annotations

import ast
import codecs
import csv
import glob
import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ..disk import open_regular
from ..errors import UsageError
from . import formulas

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
STDIN = "-"
FIELD_BYTES = 64 << 20
"""Longest CSV field accepted; a longer one is more likely an unclosed quote than a text."""
_DAMAGE = (EOFError, OSError, zlib.error)


@dataclass(frozen=True, slots=True)
class Bad:
    """Why a record cannot be used."""

    reason: str


Record = tuple[int, dict[str, Any] | Bad]
"""The line (in Parquet: the row, from 1) a record starts on, and the record."""


def expand(patterns: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Paths as the user wrote them, with globs replaced by the matching files, sorted; each path once. Also the
    unreadable files that globs matched (a pipe, a device, a broken link, another user's file), with the reason.

    Folders that a glob matches are skipped. Raises `UsageError` for a pattern that matches nothing readable.
    """
    paths: dict[str, None] = {}
    passed: dict[str, str] = {}
    for pattern in patterns:
        if pattern == STDIN or os.path.lexists(pattern) or not glob.has_magic(pattern):
            paths[pattern] = None
            continue
        matches = 0
        for path in sorted(_glob(pattern)):
            if Path(path).is_dir():
                continue
            try:
                open_regular(path).close()
            except OSError as error:
                passed[path] = f"cannot be read: {error.strerror or error}"
                continue
            paths[path] = None
            matches += 1
        if not matches:
            raise UsageError(f"no file matches {pattern}", "check the pattern, and quote it if the shell changed it")
    return list(paths), passed


def _glob(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file's bytes (`-`: standard input); raises `UsageError` unless it is a readable, non-empty file."""
    if path == STDIN:
        data = piped("pipe JSON Lines into: icl-curate index -")
        if not data.strip():
            raise UsageError("standard input is empty", "pipe JSON Lines into: icl-curate index -")
        yield io.BytesIO(data)
        return
    file = Path(path)
    try:
        if file.is_dir():
            raise UsageError(f"{path} is a directory", f"icl-curate index '{file / '*.jsonl'}'")
        stream = open_regular(path)
    except FileNotFoundError:
        gone = "is a broken link" if os.path.islink(path) else "does not exist"  # noqa: PTH114
        raise UsageError(f"{path} {gone}", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}", "give a readable file, or pipe into -") from error
    with stream:
        if not stream.read(1):
            raise UsageError(f"{path} is empty", "remove it, or add rows to it")
        stream.seek(0)
        yield stream


def piped(fix: str) -> bytes:
    """All of standard input. Raises `UsageError` with ``fix`` if nothing is piped in: reading a terminal would block,
    and a device has no end."""
    if sys.stdin is None:  # closed
        return b""
    stream = sys.stdin.buffer
    try:
        mode = os.fstat(stream.fileno())
    except (OSError, ValueError):  # not a file but bytes in memory
        return stream.read()
    if stat.S_ISCHR(mode.st_mode) and not os.path.samestat(mode, os.stat(os.devnull)):  # noqa: PTH116
        raise UsageError("standard input is a terminal or a device, not a pipe", fix)
    return stream.read()


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
            yield from _parquet(path, stream)
            return
        zipped = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        plain: BinaryIO = gzip.GzipFile(fileobj=stream) if zipped else stream  # type: ignore[assignment]
        if kind == "jsonl":
            yield from _jsonl(_strict_lines(plain))
        elif kind == "json":
            yield from _json(path, plain.read())
        else:
            yield from _csv(path, plain, tab=kind == "tsv")
    except _DAMAGE as error:
        raise UsageError(f"{path} is truncated or damaged: {error}", "write or download the file again") from error


# --- text ---------------------------------------------------------------------------------------------------------


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8"


def _text_lines(stream: Any) -> tuple[str, Iterable[bytes | str]]:
    """The encoding by byte order mark, and the lines: bytes for UTF-8, text for the others."""
    buffered = stream if isinstance(stream, io.BufferedReader | gzip.GzipFile) else io.BufferedReader(stream)
    head = bytes(buffered.peek(4)[:4])
    encoding = _encoding(head)
    if encoding != "utf-8":
        return encoding, io.TextIOWrapper(buffered, encoding, errors="replace", newline="\n")
    if head.startswith(codecs.BOM_UTF8):
        buffered.read(3)
    return encoding, buffered


def _strict_lines(stream: BinaryIO) -> Iterator[tuple[int, str | Bad]]:
    encoding, lines = _text_lines(stream)
    for number, line in enumerate(lines, 1):
        if isinstance(line, bytes):
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                yield number, Bad(f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line")
        else:
            yield number, Bad(f"not {encoding.upper()}") if "\ufffd" in line else line


def _jsonl(lines: Iterable[tuple[int, str | Bad]]) -> Iterator[Record]:
    loads = json.loads
    for number, line in lines:
        if isinstance(line, Bad):
            yield number, line
            continue
        try:
            record = loads(line)
        except (ValueError, RecursionError) as error:
            if line and not line.isspace():
                yield number, Bad(_json_fault(error, line))
            continue
        yield number, record if type(record) is dict else Bad("not a JSON object")


def _json_fault(error: Exception, text: str) -> str:
    if "\0" in text:
        return "contains NUL bytes"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "not JSON: nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


_SPACE = " \t\n\r"


def _json(path: str, data: bytes) -> Iterator[Record]:
    """An array of objects, an object with one such array, or an object id → object; also JSON Lines with another
    suffix."""
    encoding = _encoding(data[:4])
    if encoding == "utf-8":
        data = data.removeprefix(codecs.BOM_UTF8)
        text = data.decode(errors="surrogateescape")  # decoding errors are reported record by record
    else:
        text = data.decode(encoding, errors="replace")
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        raise UsageError(f"{path} is empty", "remove it, or add rows to it")
    if text[start] == "[":
        yield from _elements(path, text, start)
        return
    try:
        whole, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        whole, end = None, 0
        if "\n" not in text[start:].rstrip():
            raise UsageError(f"{path}: {_json_fault(error, text)}", "fix the file") from error
    if not isinstance(whole, dict) or text[end:].strip(_SPACE):
        yield from _jsonl(_strict_lines(io.BytesIO(data)))
        return
    lists = [key for key, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if lists and len(whole) == 1:
        yield from _elements(path, text, text.index("[", text.index(":", start + len(lists[0]) + 2)))
        return
    if whole and all(isinstance(value, dict) for value in whole.values()):
        yield from _members(text, whole)
        return
    yield 1, whole


def _elements(path: str, text: str, start: int) -> Iterator[Record]:
    """The elements of the array that opens at ``start``, each with its line."""
    decode = json.JSONDecoder().raw_decode
    position, counted, line = start + 1, 0, 1
    first = True
    while True:
        position = _skip_space(text, position)
        if text[position : position + 1] == "]":
            return
        if not first:
            if text[position : position + 1] != ",":
                raise _array_fault(path, text, position, "expected ',' or ']'")
            position = _skip_space(text, position + 1)
        first = False
        line += text.count("\n", counted, position)
        counted = position
        try:
            record, end = decode(text, position)
        except json.JSONDecodeError as error:
            raise _array_fault(path, text, error.pos, error.msg) from error
        except (ValueError, RecursionError) as error:
            raise _array_fault(path, text, position, str(error)) from error
        yield line, _checked(record, text[position:end])
        position = end


def _members(text: str, whole: dict[str, Any]) -> Iterator[Record]:
    position, line = 0, 1
    for key, record in whole.items():
        found = text.find(json.dumps(key, ensure_ascii=False), position)
        if found >= 0:
            line += text.count("\n", position, found)
            position = found
        yield line, _checked({"id": key, **record}, json.dumps(record, ensure_ascii=False))


def _checked(record: object, text: str) -> dict[str, Any] | Bad:
    if not isinstance(record, dict):
        return Bad("not a JSON object")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Bad("not UTF-8")
    return record


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in _SPACE and position < len(text):
        position += 1
    return position


def _array_fault(path: str, text: str, position: int, message: str) -> UsageError:
    line = text.count("\n", 0, position) + 1
    if not text[position:].strip(_SPACE):
        return UsageError(f"{path} is truncated: the JSON array never ends (line {line})", "write the file again")
    return UsageError(
        f"{path}: line {line}: not JSON: {message}", "fix that line, or write one object per line as .jsonl"
    )


# --- CSV ----------------------------------------------------------------------------------------------------------


class _Feed:
    """Lines for `csv.reader` with pushback: lines consumed by a stray quote are read again one by one."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines = lines
        self.again: list[str] = []  # lines to return before new ones, last first
        self.taken: list[str] = []  # lines of the record being read

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = self.again.pop() if self.again else next(self.lines)
        self.taken.append(line)
        return line

    def give_back(self, kept: int) -> None:
        """Keep the first ``kept`` lines of this record and return the others again."""
        self.again.extend(reversed(self.taken[kept:]))
        del self.taken[kept:]


def _csv(path: str, stream: BinaryIO, *, tab: bool) -> Iterator[Record]:
    unescape = formulas.are_escaped(path)
    csv.field_size_limit(FIELD_BYTES)
    _, lines = _text_lines(stream)
    feed = _Feed(line.decode(errors="surrogateescape") if isinstance(line, bytes) else line for line in lines)
    first = next(feed, "")
    feed.give_back(0)
    delimiter = "\t" if tab else max(",;\t", key=first.count)
    number = 1
    header: list[str] | None = None
    for fields in _csv_records(feed, delimiter):
        line, number = number, number + len(feed.taken)
        feed.taken.clear()
        if fields == []:
            continue  # a blank line
        if header is None:
            if isinstance(fields, Bad) or not any(name.strip() for name in fields):
                raise UsageError(f"{path}: line 1 is not a header row", "put the column names in the first line")
            header = [name.strip() for name in fields]
        elif isinstance(fields, Bad):
            yield line, fields
        elif len(fields) != len(header):
            yield line, Bad(f"{len(fields)} fields where the header has {len(header)}")
        else:
            yield line, _csv_checked(header, list(map(formulas.plain, fields)) if unescape else fields)
    if header is None:
        raise UsageError(f"{path} has no header row", "put the column names in the first line")


def _csv_checked(header: list[str], fields: list[str]) -> dict[str, Any] | Bad:
    text = "".join(fields)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return Bad("not UTF-8")
    if "\0" in text:
        return Bad("contains NUL bytes")
    return dict(zip(header, fields, strict=True))


def _csv_records(feed: _Feed, delimiter: str) -> Iterator[list[str] | Bad]:
    width = 0
    while True:
        reader = csv.reader(feed, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if len(feed.taken) > 2 and _swallowed(feed.taken, delimiter, width):
                    feed.give_back(1)
                    yield Bad("unclosed quote")
                    break
                width = width or len(fields)
                yield fields
            else:
                return
        except csv.Error as error:
            stray = len(feed.taken) > 1 or "unexpected end" in str(error)
            feed.give_back(1)
            yield Bad("unclosed quote" if stray else f"not CSV: {error}")


def _swallowed(lines: list[str], delimiter: str, width: int) -> bool:
    """Whether a multi-line record consists of rows joined by two stray quotes: all its inner lines, at least two, are
    rows of the right width by themselves."""
    inner = lines[1:-1]
    return (
        width > 1 and len(inner) > 1 and all(len(fields) == width for fields in csv.reader(inner, delimiter=delimiter))
    )


# --- Parquet ------------------------------------------------------------------------------------------------------


def _parquet(path: str, stream: BinaryIO) -> Iterator[Record]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        file = parquet.ParquetFile(stream)
        for batch in file.iter_batches(batch_size=4096):
            for number, row in enumerate(plain_rows(batch), number + 1):  # noqa: B020 - goes on from the last batch
                yield number, row
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter: a column name
        message = str(error).splitlines()[0]
        raise UsageError(f"{path} is truncated or not a Parquet file: {message}", "write the file again") from error
    if not number:
        raise UsageError(f"{path} has no rows", "remove it, or add rows to it")


def plain_rows(batch: Any) -> list[dict[str, Any] | Bad]:
    """The rows of an Arrow batch as Python values. A value without a Python equivalent, such as a timestamp in
    nanoseconds or beyond the year 9999, becomes its text; a row that cannot be converted is `Bad`."""
    try:
        rows: list[dict[str, Any] | Bad] = batch.to_pylist()
    except _UNTOLD:
        return [_plain_row(batch, i) for i in range(batch.num_rows)]
    return rows


_UNTOLD = (ValueError, OverflowError, TypeError, LookupError, ImportError, NotImplementedError)
"""What Arrow raises for a value without a Python equivalent."""


def _plain_row(batch: Any, index: int) -> dict[str, Any] | Bad:
    row: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = _plain_value(column[index])
        except UnicodeDecodeError:
            return Bad("not UTF-8")
        except _UNTOLD as error:
            return Bad(f"column {name} cannot be read: {error}".splitlines()[0])
    return row


def _plain_value(cell: Any) -> Any:
    """The value of an Arrow scalar, converted part by part if it cannot be converted as a whole."""
    import pyarrow

    try:
        return cell.as_py()
    except UnicodeDecodeError:
        raise
    except _UNTOLD:
        if pyarrow.types.is_struct(cell.type):
            return {name: _plain_value(part) for name, part in cell.items()}
        if pyarrow.types.is_nested(cell.type):
            return [_plain_value(part) for part in cell.values]
        if pyarrow.types.is_timestamp(cell.type) and cell.type.tz:
            cell = pyarrow.scalar(cell.value, pyarrow.timestamp(cell.type.unit, "UTC"))  # its own zone may not exist
        return cell.cast(pyarrow.string()).as_py()


def listed(text: str) -> list[Any] | None:
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
