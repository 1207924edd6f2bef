"""A record of a file, or why it cannot be used; lists written as one text."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Why a record cannot be used."""

    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """What lies between ``begin`` and ``end`` in a file. Of JSON Lines these are bytes, of whole lines, and ``line`` is
    the number of the first; of Parquet they are rows, counted from 0."""

    begin: int
    end: int
    line: int = 1


Record = tuple[int, dict[str, Any] | BadRecord]
"""The line a record starts on, and the record. In Parquet, Arrow, Excel and JSON in one line: its number, from 1."""


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
