"""Excel workbooks: the rows of the first sheet under its header."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from ...base.errors import UsageError
from ...base.packages import require
from .records import BadRecord, Record

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
