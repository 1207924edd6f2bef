"""Values of records as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any


class BadRow(ValueError):
    """Why a record is not a valid demonstration."""


def optional(record: Mapping[str, Any], column: str | None) -> str:
    """The text of a column that may be missing."""
    if column is None:
        return ""
    value = record[column]
    if type(value) is str:
        return value.strip()
    return "" if value is None else text_of(value, column, empty=True)


def known(value: Any) -> Any:
    """The value, or None for a number that is none or infinite: JSON has no such numbers, and 1e999 is read as one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text_of(value: object, field: str, *, numbers: bool = True, empty: bool = False) -> str:
    """The value as text, without outer white space. Raises `BadRow` if it is not a text."""
    if type(value) is str:
        text = value.strip()
        if not text and not empty:
            raise BadRow(f"empty {field}")
        return text
    if known(value) is None:
        if empty:
            return ""
        raise BadRow(f"empty {field}" if value is None else f"{field} is not a finite number")
    if isinstance(value, bytes):
        try:
            return text_of(value.decode(), field, numbers=numbers, empty=empty)
        except UnicodeDecodeError:
            raise BadRow("not UTF-8") from None
    if numbers and isinstance(value, bool):
        return "true" if value else "false"
    if numbers and isinstance(value, int | float | Decimal):
        return str(value)
    raise BadRow(f"{field} is {kind_of(value)}, not text")


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float | Decimal):
        return "a number"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else "text" if isinstance(value, str) else type(value).__name__


def shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")
