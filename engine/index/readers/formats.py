"""The format of a file, and its records: JSON, YAML, and CSV, where a stray quote spoils one record and no more."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from itertools import chain, islice, repeat
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, TypeVar
from zipfile import BadZipFile, ZipFile

from ...base.errors import UsageError
from ...base.packages import arrow, require
from ...base.yamls import ALIASED, aliased, yaml_loader
from .. import exported
from ..exported import kinds_of, kinds_of_schema, manifest_of
from ..rows import NAMES
from .files import COMPRESSED, STDIN, SUFFIXES, Format
from .parquet_format import label_names, read_arrow, read_parquet, schema_metadata
from .presets import OF_LABELS, recognised
from .records import NOT_UTF8, TOO_LONG, BadRecord, Record, at_once, decoded_lines, distinct, encoding_of, text_lines


def read_jsonl(lines: Iterable[tuple[int, str | BadRecord]]) -> Iterator[Record]:
    loads = json.loads
    for number, line in lines:
        if isinstance(line, BadRecord):
            yield number, line
            continue
        try:
            record = loads(line)
        except (ValueError, RecursionError) as error:
            if line and not line.isspace():
                yield number, BadRecord(_json_fault(error, line))
            continue
        yield number, record if type(record) is dict else BadRecord("not a JSON object")


def _json_fault(error: Exception, text: str) -> str:
    if "\0" in text:
        return "contains NUL bytes"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    return "not JSON: nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


_SPACE = " \t\n\r"
ROWS_UNDER = frozenset({"rows", "records", "examples", "data", "items", "samples", "instances", "demonstrations"})
"""Names of an array of rows that stands beside other keys, as a version; an object with an input is a row itself."""


def read_json(path: str, data: bytes) -> Iterator[Record]:
    """An array of objects; an object with one such array, alone or by a name in `ROWS_UNDER` beside other keys; or an
    object id → object. Also JSON Lines with another suffix."""
    encoding = encoding_of(data[:4])
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
        yield from read_jsonl(decoded_lines(io.BytesIO(data)))
        return
    lists = [key for key, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    a_row = recognised(whole) is not None or any(key.lower() in NAMES["input"] for key in whole)
    if len(lists) == 1 and (len(whole) == 1 or (lists[0] in ROWS_UNDER and not a_row)):
        *_, begins = (begins for key, _, _, begins, _ in _entries(text, start) if key == lists[0])  # as `json` has it
        yield from _elements(path, text, begins)
        return
    states = any(isinstance(value, dict) and "demos" in value for value in whole.values())  # a program of DSPy
    if whole and not states and all(isinstance(value, dict) for value in whole.values()):
        yield from _members(text, start)
        return
    yield 1, whole


def _entries(text: str, start: int) -> Iterator[tuple[str, Any, int, int, int]]:
    """Each key of the object that opens at ``start`` with its value, where it stands, and where its value begins and
    ends; a key that stands there twice is told twice."""
    decode = json.JSONDecoder().raw_decode
    position = start
    while text[position] != "}":
        place = _skip_space(text, position + 1)
        key, end = decode(text, place)
        begins = _skip_space(text, _skip_space(text, end) + 1)
        value, end = decode(text, begins)
        yield key, value, place, begins, end
        position = _skip_space(text, end)


def _elements(path: str, text: str, start: int) -> Iterator[Record]:
    """The elements of the array that opens at ``start``, each with its line; with its number from 1 if all stand in one
    line."""
    decode = json.JSONDecoder().raw_decode
    position, counted, line = start + 1, 0, 1
    first = True
    number = 1
    in_one_line = "\n" not in text.rstrip(_SPACE)
    while True:
        position = _skip_space(text, position)
        if text[position : position + 1] == "]":
            return
        if not first:
            if text[position : position + 1] != ",":
                raise _array_fault(path, text, position, "expected ',' or ']'", number)
            position = _skip_space(text, position + 1)
        first = False
        line = number if in_one_line else line + text.count("\n", counted, position)
        number += 1
        counted = position
        try:
            record, end = decode(text, position)
        except json.JSONDecodeError as error:
            raise _array_fault(path, text, error.pos, error.msg, number - 1) from error
        except (ValueError, RecursionError) as error:
            raise _array_fault(path, text, position, str(error), number - 1) from error
        yield line, _checked_object(record, text[position:end])
        position = end


def _members(text: str, start: int) -> Iterator[Record]:
    counted, line = 0, 1
    in_one_line = "\n" not in text.rstrip(_SPACE)
    for number, (key, value, place, begins, end) in enumerate(_entries(text, start), 1):
        line = number if in_one_line else line + text.count("\n", counted, place)
        counted = place
        yield line, _checked_object({"id": key, **value} if isinstance(value, dict) else value, text[begins:end])


def _checked_object(record: object, text: str) -> dict[str, Any] | BadRecord:
    if not isinstance(record, dict):
        return BadRecord("not a JSON object")
    try:
        text.encode()
    except UnicodeEncodeError:
        return BadRecord(NOT_UTF8)
    return record


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in _SPACE and position < len(text):
        position += 1
    return position


def _array_fault(path: str, text: str, position: int, message: str, element: int) -> UsageError:
    """An error of the file at a position; ``element`` is the place in the array, which is named if all of it stands in
    one line."""
    one_line = "\n" not in text.rstrip(_SPACE)
    where = f"element {element}" if one_line else f"line {text.count(chr(10), 0, position) + 1}"
    if not text[position:].strip(_SPACE):
        return UsageError(f"{path} is truncated: the JSON array never ends ({where})", "write the file again")
    what = "element" if one_line else "line"
    return UsageError(
        f"{path}: {where}: not JSON: {message}", f"fix that {what}, or write one object per line as .jsonl"
    )


def read_yaml(path: str, data: bytes) -> Iterator[Record]:
    """Raises `UsageError` for a file that is not YAML, or whose aliases stand for too much."""
    import yaml

    left = ALIASED
    try:
        loader = yaml_loader(data)
        while loader.check_node():
            node = loader.get_node()
            if (left := left - aliased(node)) < 0:
                raise UsageError(
                    f"{path}: its aliases stand for more than {ALIASED >> 20} MB", "write out what is needed"
                )
            parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
            for part in parts:
                record = loader.construct_document(part)
                line = part.start_mark.line + 1
                if isinstance(record, dict):
                    yield line, _with_texts(record)
                else:
                    yield line, BadRecord("not an object")
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f": line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}{where}: not YAML: {what}", "fix that line") from error


def _with_texts(value: Any) -> Any:
    """A value with texts as keys: `on: 1` has another, and so has `2024-01-31: 1`."""
    if isinstance(value, dict):
        return {str(key): _with_texts(part) for key, part in value.items()}
    return [*map(_with_texts, value)] if isinstance(value, list) else value


FIELD_BYTES = 64 << 20
"""Longest CSV field accepted; a longer one is more likely an unclosed quote than a text."""


_SEPARATOR = re.compile(r"\"?sep=(.)\"?\s*")


class _TooLongError(Exception):
    """The next line is too long to be read."""


class _Feed:
    """Lines for `csv.reader` with pushback: lines consumed by a stray quote are read again one by one. Raises
    `_TooLongError` in the place of a line that is too long."""

    def __init__(self, lines: Iterator[bytes | str | BadRecord]) -> None:
        self.lines = lines
        self.again: list[str] = []  # lines to return before new ones, last first
        self.taken: list[str] = []  # lines of the record being read

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = self.again.pop() if self.again else next(self.lines)
        if isinstance(line, BadRecord):
            self.taken.append("")
            raise _TooLongError
        self.taken.append(line.decode(errors="surrogateescape") if isinstance(line, bytes) else line)
        return self.taken[-1]

    def push_back(self, kept: int) -> None:
        """Keep the first ``kept`` lines of this record and return the others again."""
        self.again.extend(reversed(self.taken[kept:]))
        del self.taken[kept:]


def read_csv(path: str, stream: BinaryIO, *, tab: bool) -> Iterator[Record]:
    unescape = exported.manifest_of(path).get(exported.FORMULAS) is True
    csv.field_size_limit(FIELD_BYTES)
    _, lines = text_lines(stream)
    feed = _Feed(lines)
    try:
        first = next(feed, "")
    except _TooLongError:
        raise UsageError(f"{path}: line 1 is not a header row", "put the column names in the first line") from None
    feed.push_back(0)
    number = 1
    if said := _SEPARATOR.fullmatch(first.removeprefix("\ufeff")):  # as Excel writes it in front of the header
        next(feed)
        feed.taken.clear()
        number = 2
    delimiter = said[1] if said else "\t" if tab else max(",;\t", key=re.sub(r'"[^"]*"', "", first).count)
    header: list[str] | None = None
    for fields in _csv_records(feed, delimiter):
        line, number = number, number + len(feed.taken)
        feed.taken.clear()
        if fields == []:
            continue  # a blank line
        if header is None:
            if isinstance(fields, BadRecord) or not any(name.strip() for name in fields):
                raise UsageError(f"{path}: line 1 is not a header row", "put the column names in the first line")
            header = distinct([name.strip() for name in fields])
        elif isinstance(fields, BadRecord):
            yield line, fields
        elif len(fields) != len(header):
            yield line, BadRecord(f"{len(fields)} fields where the header has {len(header)}")
        else:
            yield line, _csv_checked(header, list(map(exported.plain, fields)) if unescape else fields)
    if header is None:
        raise UsageError(f"{path} has no header row", "put the column names in the first line")


def _csv_checked(header: list[str], fields: list[str]) -> dict[str, Any] | BadRecord:
    text = "".join(fields)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return BadRecord(NOT_UTF8)
    if "\0" in text:
        return BadRecord("contains NUL bytes")
    return dict(zip(header, fields, strict=True))


def _csv_records(feed: _Feed, delimiter: str) -> Iterator[list[str] | BadRecord]:
    width = 0
    while True:
        reader = csv.reader(feed, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if len(feed.taken) > 3 and _quote_runs_on(feed.taken, delimiter, width, len(fields) == width):
                    feed.push_back(1)
                    yield BadRecord("unclosed quote")
                    break
                width = width or len(fields)
                yield fields
            else:
                return
        except _TooLongError:
            yield TOO_LONG
        except csv.Error as error:
            stray = len(feed.taken) > 1 or "unexpected end" in str(error)
            feed.push_back(1)
            cells = feed.taken[0].rstrip("\r\n").split("\t")
            if delimiter == "\t" and len(cells) == (width or len(cells)):  # many quote nothing: "Great" she said
                width = len(cells)
                yield cells
            else:
                yield BadRecord("unclosed quote" if stray else f"not CSV: {error}")


def _quote_runs_on(lines: list[str], delimiter: str, width: int, fits: bool) -> bool:
    """Whether a multi-line record consists of rows joined by two stray quotes: all its inner lines, at least two, are
    rows of the right width by themselves. Where it ``fits``, having that width itself, its first and last line must be
    such rows, too, quotes aside: a cell may hold lines like rows."""
    outer = (
        next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE), []) for line in (lines[0], lines[-1])
    )
    inner = (next(csv.reader([line], delimiter=delimiter), []) for line in lines[1:-1])
    return width > 1 and all(len(fields) == width for fields in (chain(outer, inner) if fits else inner))


UNPACKED = 1 << 30
"""Bytes of the parts of a workbook, which are compressed."""
SHEET_ROWS = 1 << 20
"""Rows that a sheet of Excel has; other tools write more, and the number of a row in the file may be any."""


def read_excel(path: str, stream: BinaryIO) -> Iterator[Record]:
    """Raises `UsageError` for a file that is no workbook, and where openpyxl is not installed."""
    header: list[str] | None = None
    for number, cells in enumerate(_rows_of_sheet(path, stream), 1):
        if number > SHEET_ROWS:
            yield number, BadRecord("this and what follows: beyond the last row of a sheet of Excel")
            break
        if all(cell is None for cell in cells):
            continue
        if header is None:
            names = ["" if cell is None else str(cell).strip() for cell in cells]
            own = iter(distinct([name for name in names if name]))
            header = [name and next(own) for name in names] if any(names) else None
            continue
        below = zip(header, chain(cells, repeat(None)), strict=False)
        yield number, {name: _plain(cell) for name, cell in below if name}
    if header is None:
        raise UsageError(f"{path} has no header row", "put the column names in the first row of the first sheet")


def _rows_of_sheet(path: str, stream: BinaryIO) -> Iterator[tuple[Any, ...]]:
    """The cells of the first sheet, of each row up to its last one. Parts of a workbook are read as its rows are."""
    require(f"{path}: reading Excel files", "openpyxl")
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with ZipFile(stream) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > UNPACKED:
            raise UsageError(f"{path} unpacks to more than {UNPACKED >> 20} MB", "save the sheet as .csv")
        sheet = load_workbook(stream, read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # or each row is as wide as the sheet: by one far cell for minutes
        yield from islice(sheet.iter_rows(values_only=True), SHEET_ROWS + 1)  # the next is told
    except (
        *(InvalidFileException, BadZipFile, OSError, LookupError, ValueError, AttributeError, TypeError),
        RuntimeError,  # it is encrypted
        SyntaxError,  # no XML
    ) as error:
        what = f"{path} is damaged, encrypted or not an Excel workbook"
        raise UsageError(what, "save the file again, without a password, or its sheet as .csv") from error


def _plain(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, date | datetime | time) else cell


T = TypeVar("T")

DOCUMENT_UNPACKED = 256 << 20
"""Bytes of a compressed file that is read as a whole, such as a JSON array."""

GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""How compressed files begin."""

_DAMAGE = (EOFError, OSError, zlib.error)


def database_of(head: bytes) -> str:
    """What database a file is that begins so; empty if it is none."""
    return "SQLite" if head.startswith(b"SQLite format 3\0") else "DuckDB" if head[8:12] == b"DUCK" else ""


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
    if head.startswith(b"ARROW1"):
        return "arrow"
    if database_of(head):
        raise UsageError(
            f"{path} is a database", f"icl-curate index {quote(path)} --sql 'select question, answer from TABLE'"
        )
    if first := head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]:
        if first == b"{":
            return "jsonl"
        if first == b"[":
            return "json"
    raise UsageError(
        f"{path}: unknown format",
        "name it .jsonl, .json, .csv, .tsv, .parquet, .arrow, .feather, .yaml or .xlsx (optionally with .gz or .zst)",
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

    def kinds(self) -> Mapping[str, Any]:
        """The type of each column, if it is an export of ours that tells them, or of a tool that labels."""
        if self.shape in OF_LABELS:
            return {exported.OUTPUT: exported.SETS}
        return self._of_schema(kinds_of_schema, {}) or kinds_of(manifest_of(self.path))

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
            try:
                of_tool = None if isinstance(record, BadRecord) else recognised(record)
            except (TypeError, AttributeError, LookupError, ValueError, RecursionError):
                yield line, BadRecord("not as such a tool writes it")  # it has a tool's keys, not its values
                continue
            if of_tool is None:
                yield line, record
            else:
                self.shape, flat = of_tool
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
        plain = decompressed(path, stream)
        if kind == "excel":
            yield from read_excel(path, io.BytesIO(_whole(path, plain, stream)))
        elif kind == "yaml":
            yield from read_yaml(path, _whole(path, plain, stream))
        elif kind == "jsonl":
            yield from read_jsonl(decoded_lines(plain, 0 if plain is stream else at_once(stream)))
        elif kind == "json":
            yield from read_json(path, _whole(path, plain, stream))
        else:
            yield from read_csv(path, plain, tab=kind == "tsv")
    except _DAMAGE as error:  # that of Zstandard is an `OSError`
        raise UsageError(f"{path} is truncated or damaged: {error}", "write or download the file again") from error


def _whole(path: str, plain: BinaryIO, stream: BinaryIO) -> bytes:
    """All bytes of a file that is not read line by line. Raises `UsageError` for a compressed ``stream`` with more than
    `DOCUMENT_UNPACKED`, or far more than its size."""
    if plain is stream:  # as large as the user sees it on the disk
        return plain.read()
    most = min(DOCUMENT_UNPACKED, at_once(stream))
    if len(data := plain.read(most + 1)) > most:
        raise UsageError(
            f"{path} unpacks to more than {most >> 20} MB", "unpack it, or write one object per line as .jsonl"
        )
    return data


def decompressed(path: str, stream: BinaryIO) -> BinaryIO:
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
