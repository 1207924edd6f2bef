"""Corrected outputs from a file: a row for each demonstration, with its id and its new output."""

from __future__ import annotations

from ..base.errors import UsageError
from .readers.files import open_input
from .readers.formats import records
from .readers.records import BadRecord
from .rows import NAMES, plain_name

_SHAPE = 'give each row an id and an output, such as {"id": "a-17", "output": "refund"}'


def read_corrections(path: str) -> dict[str, str]:
    """New outputs by id, from any format that `index` reads. Raises `UsageError` with the line of the first row that
    has no id or no output, or contradicts an earlier one."""
    found: dict[str, str] = {}
    with open_input(path) as stream:
        for line, record in records(path, stream):
            if isinstance(record, BadRecord):
                raise UsageError(f"{path}, line {line}: {record.reason}", _SHAPE)
            fields = {plain_name(str(column)): value for column, value in record.items()}
            name, output = (_first(fields, NAMES[field]) for field in ("id", "output"))
            if name is None or output is None:
                raise UsageError(f"{path}, line {line}: no {'id' if name is None else 'output'}", _SHAPE)
            if found.setdefault(name, output) != output:
                raise UsageError(f"{path}, line {line}: a second output for '{name}'", "keep one of them")
    return found


def _first(fields: dict[str, object], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = fields.get(name)
        if value is not None and str(value).strip():
            return str(value)
    return None
