"""Columns into DuckDB and out of it, as numpy arrays.

DuckDB reads numpy arrays where they lie, but guesses the type of Python objects from a sample of 1,000, and takes NaN
for NULL. So numbers are given as arrays of one type, and lists and NaN as text, which DuckDB casts to the type of the
table's column without a loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Int64s

Column = Sequence[Any] | NDArray[Any]
"""(n,) values: numbers, bools, texts, bytes or times, or lists of them; None is NULL, but not within a list."""

_LISTS, _NUMBERS = (list, tuple, np.ndarray), (int, float, np.number, np.bool_)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a list with a {type(value).__name__}")


_json = json.JSONEncoder(check_circular=False, separators=(",", ":"), default=_plain).encode


@contextmanager
def given(con: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, Column]) -> Iterator[list[str]]:
    """The columns as a view that queries of ``con`` can name; lists in it are JSON texts. Yields the SQL that reads
    each column."""
    arrays = {column: _array(values) for column, values in columns.items()}
    sizes = {column: len(array) for column, (array, _) in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"columns of different lengths: {sizes}")
    con.register(name, {column: array for column, (array, _) in arrays.items()})
    try:
        yield [f'CAST("{c}" AS JSON) AS "{c}"' if lists else f'"{c}"' for c, (_, lists) in arrays.items()]
    finally:
        with suppress(duckdb.TransactionException):  # it has failed, and takes the view along
            con.unregister(name)


def number(con: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] = ()) -> int:
    """The one number that a query gives."""
    [(value,)] = con.execute(sql, values).fetchall()
    return int(value)


def numbers(con: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] = ()) -> Int64s:
    """The numbers that a query gives in its one column, (n,)."""
    (column,) = con.execute(sql, values).fetchnumpy().values()
    return np.asarray(column, np.int64)


def among(rows: Iterable[int]) -> str:
    """Row numbers as the list of an IN: with it, DuckDB skips blocks that cannot contain them."""
    return f"({','.join(map(str, {*map(int, rows)}))})"


def noted(con: duckdb.DuckDBPyConnection, key: str) -> str | None:
    """What the table ``meta`` has under a key."""
    row = con.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    return str(row[0]) if row else None


def note(con: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Put a value into the table ``meta``."""
    con.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])


def now() -> datetime:
    """The present time, as the workspace stores it: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def insert(con: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], conflict: str = "") -> None:
    """Append rows to a table, by the names of its columns; ``conflict`` is an ON CONFLICT clause.

    Raises `ValueError`, `TypeError` or `OverflowError` for a value that its column cannot hold, as a lone surrogate.
    """
    if not any(map(len, columns.values())):
        return
    with given(con, "given_columns", columns) as chosen:
        try:
            con.execute(f"INSERT INTO {table} BY NAME SELECT {', '.join(chosen)} FROM given_columns {conflict}")
        except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
            raise ValueError(str(error)) from error


def of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows; what a row lacks is None."""
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [row.get(name) for row in rows] for name in names}


def _array(values: Column) -> tuple[NDArray[Any], bool]:
    """The values as DuckDB reads them, and whether they are lists, as JSON texts."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufM":
        return _with_nan(values), False
    kinds = set(map(type, values)) - {type(None)}
    lists = any(issubclass(kind, _LISTS) for kind in kinds)
    if lists:
        values = [None if value is None else _json(value) if len(value) else "[]" for value in values]
    elif kinds and all(issubclass(kind, _NUMBERS) for kind in kinds):
        return _with_nan(_numbers(values, kinds)), False
    return np.fromiter(values, object, len(values)), lists


def _numbers(values: Column, kinds: set[type]) -> NDArray[Any]:
    """The numbers as one array, masked where they are None."""
    dtype = np.bool_ if kinds <= {bool, np.bool_} else np.int64
    if any(issubclass(kind, float | np.floating) for kind in kinds):
        dtype = np.float64
    absent = [value is None for value in values]
    if not any(absent):
        return np.array(values, dtype)
    return np.ma.masked_array(np.array([0 if value is None else value for value in values], dtype), absent)


def _with_nan(numbers: NDArray[Any]) -> NDArray[Any]:
    """As texts if there is a NaN."""
    if numbers.dtype.kind != "f" or not np.isnan(numbers).any():
        return numbers
    return np.fromiter((None if value is None else repr(value) for value in numbers.tolist()), object, len(numbers))
