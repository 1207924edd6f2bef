"""Rows from the frames of other libraries, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..engine.base.errors import UsageError
from ..engine.base.files import replace_file
from ..engine.index.readers.records import is_missing, line_of

Rows = Any
"""A frame of pandas, polars, pyarrow or DuckDB, a data set of `datasets`, or mappings, one a row."""

EXACT = 1 << 53
"""Up to here a float is exactly the whole number that it was made of."""


def is_files(data: object) -> bool:
    """Whether these are names of files and not rows."""
    several = isinstance(data, list | tuple) and bool(data) and all(isinstance(one, str | Path) for one in data)
    return several or isinstance(data, str | Path)


def write_rows(data: Rows, path: Path) -> None:
    """Write rows as JSON lines, which `index` reads. Raises `UsageError` for what holds no rows."""
    replace_file(path, lambda file: file.writelines(map(line_of, _rows(data))))


def _rows(data: Rows) -> Iterator[Mapping[str, Any]]:
    if hasattr(data, "features") and hasattr(data, "column_names"):  # datasets: labels are numbers with names
        named = {name: kind.names for name, kind in data.features.items() if hasattr(kind, "names")}
        yield from (_with_names(row, named) for row in data)
    elif hasattr(data, "fetchall") and hasattr(data, "columns"):  # a relation of DuckDB
        names = _names(data.columns)
        yield from (dict(zip(names, row, strict=True)) for row in data.fetchall())
    elif hasattr(data, "iter_rows"):  # polars
        yield from data.iter_rows(named=True)
    elif hasattr(data, "to_pylist") and hasattr(data, "column_names"):  # pyarrow
        _names(data.column_names)
        yield from data.to_pylist()
    elif hasattr(data, "itertuples"):  # pandas
        names, whole = _names(data.columns), [_is_whole(data.iloc[:, place]) for place in range(len(data.columns))]
        for row in data.itertuples(index=False, name=None):
            yield {
                name: int(value) if integral and not is_missing(value) else value
                for name, value, integral in zip(names, row, whole, strict=True)
            }
    elif isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        for row in data:
            if not isinstance(row, Mapping):
                raise UsageError(f"a row is of type {type(row).__name__}", "give mappings, one a row, or a frame")
            yield row
    else:
        raise UsageError(f"a {type(data).__name__} holds no rows", "give a frame, mappings, or names of files")


def _names(columns: Iterable[Any]) -> list[str]:
    """The names of a frame's columns. Raises `UsageError` if some have the same."""
    names = [str(name) for name in columns]
    if several := [name for name, count in Counter(names).items() if count > 1]:
        named = ", ".join(f"'{name}'" for name in several)
        raise UsageError(f"several columns of the frame are called {named}", "give each column a name of its own")
    return names


def _is_whole(column: Any) -> bool:
    """Whether a column of pandas holds whole numbers that are floats only because some are missing."""
    if not str(column.dtype).startswith("float"):
        return False
    there = column.dropna()
    return 0 < len(there) < len(column) and bool(((there % 1 == 0) & (there.abs() < EXACT)).all())


def _with_names(row: Mapping[str, Any], named: Mapping[str, list[str]]) -> dict[str, Any]:
    """The row with names of labels for their numbers; -1 stands for none."""
    return dict(row) | {
        name: names[row[name]] if row[name] >= 0 else None
        for name, names in named.items()
        if isinstance(row[name], int)
    }
