"""CSV and TSV, where a stray quote spoils one record and not the rest, and the first sheet of an Excel workbook."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from ...base.errors import UsageError
from ...base.packages import require
from .. import exported
from .records import TOO_LONG, BadRecord, Record, text_lines

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
    delimiter = said[1] if said else "\t" if tab else max(",;\t", key=first.count)
    header: list[str] | None = None
    for fields in _csv_records(feed, delimiter):
        line, number = number, number + len(feed.taken)
        feed.taken.clear()
        if fields == []:
            continue  # a blank line
        if header is None:
            if isinstance(fields, BadRecord) or not any(name.strip() for name in fields):
                raise UsageError(f"{path}: line 1 is not a header row", "put the column names in the first line")
            header = [name.strip() for name in fields]
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
            return BadRecord("not UTF-8")
    if "\0" in text:
        return BadRecord("contains NUL bytes")
    return dict(zip(header, fields, strict=True))


def _csv_records(feed: _Feed, delimiter: str) -> Iterator[list[str] | BadRecord]:
    width = 0
    while True:
        reader = csv.reader(feed, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if len(feed.taken) > 2 and _quote_runs_on(feed.taken, delimiter, width):
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
            yield BadRecord("unclosed quote" if stray else f"not CSV: {error}")


def _quote_runs_on(lines: list[str], delimiter: str, width: int) -> bool:
    """Whether a multi-line record consists of rows joined by two stray quotes: all its inner lines, at least two, are
    rows of the right width by themselves."""
    inner = lines[1:-1]
    alone = (next(csv.reader([line], delimiter=delimiter), []) for line in inner)
    return width > 1 and len(inner) > 1 and all(len(fields) == width for fields in alone)


UNPACKED = 1 << 30
"""Bytes of the parts of a workbook, which are compressed."""


def read_excel(path: str, stream: BinaryIO) -> Iterator[Record]:
    """Raises `UsageError` for a file that is no workbook, and where openpyxl is not installed."""
    require(f"{path}: reading Excel files", "openpyxl")
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with ZipFile(stream) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > UNPACKED:
            raise UsageError(f"{path} unpacks to more than {UNPACKED >> 20} MB", "save the sheet as .csv")
        book = load_workbook(stream, read_only=True, data_only=True)
    except (InvalidFileException, BadZipFile, KeyError, ValueError, OSError) as error:
        raise UsageError(f"{path} is truncated or not an Excel workbook", "save the file again") from error
    header: list[str] | None = None
    for number, cells in enumerate(book.worksheets[0].iter_rows(values_only=True), 1):
        if all(cell is None for cell in cells):
            continue
        if header is None:
            header = ["" if cell is None else str(cell).strip() for cell in cells]
            continue
        named = {name: _plain(cell) for name, cell in zip(header, cells, strict=False) if name}
        yield number, named or BadRecord("no cell below a column name")
    if header is None:
        raise UsageError(f"{path} has no header row", "put the column names in the first row of the first sheet")


def _plain(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, date | datetime | time) else cell
