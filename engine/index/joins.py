"""Columns that ``--map`` makes of others: the text at a dotted path, a text with several columns, a set of 0/1 ones;
and the first of several that a record has."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any

from ..base.errors import UsageError
from .fields import BadRow, shortened, text_of

_MADE = re.compile(r"[.+{]")


def is_made(column: str) -> bool:
    """Whether a column of this name may be made of others."""
    return _MADE.search(column) is not None


def alternatives(column: str) -> tuple[str, ...]:
    """The columns of which the first that a record has is meant: itself, as its name may have a bar, then those between
    the bars. In a text with braces, bars are part of it."""
    if "{" in column or "|" not in column:
        return (column,)
    return (column, *filter(None, (part.strip() for part in column.split("|"))))


def check_join(field: str, column: str) -> None:
    """Raise `UsageError` for a malformed join of columns."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(column) if name is not None]
    except ValueError as error:
        raise UsageError(f"--map {field}={column}: {error}", "write a literal brace twice: {{") from error
    if not all(name.removesuffix("?") for name in names):
        raise UsageError(f"--map {field}={column}: braces around nothing", "--map 'input={premise} / {hypothesis}'")


def columns_in(column: str) -> tuple[str, ...]:
    """The columns and dotted paths that a column of a mapping is made of, itself if it is none of others."""
    if "{" in column:
        return tuple(name.removesuffix("?") for _, name, _, _ in string.Formatter().parse(column) if name)
    return tuple(part.strip() for each in alternatives(column) for part in each.split("+"))


def without(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The fields without the one at a dotted path; a list that the path leads into is left out whole."""
    if path in fields:
        return {name: value for name, value in fields.items() if name != path}
    name, dot, rest = path.partition(".")
    if not dot or name not in fields:
        return dict(fields)
    inner = without(fields[name], rest) if isinstance(fields[name], Mapping) else None
    return {**fields, name: inner} if inner else without(fields, name)


_ON = frozenset({"1", "1.0", "true", "yes"})
_OFF = frozenset({"", "0", "0.0", "false", "no"})


def made_of(record: Mapping[str, Any], name: str) -> Any:
    """A column that is made of others, None if it is one itself or others are missing: ``data.text`` is the text of the
    object data; ``{premise} / {hypothesis}`` the text with these columns, ``{hint?}`` one that may be missing; and
    ``toxic+threat`` those of the columns that are 1 and not 0. Raises `BadRow` for other values."""
    if name in record:
        return None
    if "{" in name:
        return _filled(record, name)
    if "+" not in name:
        return within(record, name)
    columns = [column.strip() for column in name.split("+")]
    return [c for c in columns if _is_on(record[c], c)] if all(column in record for column in columns) else None


def _filled(record: Mapping[str, Any], pattern: str) -> str | None:
    text = ""
    for literal, name, _, _ in string.Formatter().parse(pattern):
        text += literal
        if name is not None:
            column = name.removesuffix("?")
            value = record[column] if column in record else within(record, column)
            if value is None and column == name:
                return None
            text += text_of(value, column, empty=column != name)
    return text


def _is_on(value: Any, column: str) -> bool:
    text = text_of(value, column, empty=True).lower()
    if text not in _ON | _OFF:
        raise BadRow(f"{column} is {shortened(text)}, and not 0 or 1")
    return text in _ON


def within(record: Any, path: str) -> Any:
    """The value at a dotted path of keys and positions; None if there is none."""
    for key in path.split("."):
        if isinstance(record, Mapping):
            record = record.get(key)
        elif isinstance(record, list) and key.isdecimal() and int(key) < len(record):
            record = record[int(key)]
        else:
            return None
    return record
