"""Columns put into DuckDB: every value comes back as it was, whatever its neighbours are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from icl_curate.engine.store.columns import given, insert, of_rows

NAN = math.nan
MANY = 5_000
"""Rows, of which DuckDB would look at 1,000 to guess a type."""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


def kept(con: duckdb.DuckDBPyConnection, kind: str, values: Any) -> list[Any]:
    con.execute(f"CREATE OR REPLACE TABLE kept (place BIGINT, cell {kind})")
    insert(con, "kept", {"cell": values, "place": np.arange(len(values))})
    return [cell for (cell,) in con.execute("SELECT cell FROM kept ORDER BY place").fetchall()]


def same(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Equal in type and value, NaN equal to NaN and 0.0 not to -0.0."""
    return repr(found) == repr(wanted)


def late(usual: Any, other: Any) -> list[Any]:
    """One value that no sample of a thousand finds."""
    return [usual] * (MANY // 2 + 1) + [other] + [usual] * (MANY // 2)


CASES: list[tuple[str, list[Any]]] = [
    ("BIGINT", [0, -1, 2**63 - 1, -(2**63)]),
    ("BIGINT", [None, 2**62, None]),
    ("BIGINT", late(1, 2**40)),
    ("BIGINT", late(None, 2**40)),
    ("INTEGER", [1, None, 2**31 - 1]),
    ("DOUBLE", [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]),
    ("DOUBLE", [NAN, None, 1.0]),
    ("DOUBLE", late(1.0, 2.5)),
    ("BOOLEAN", [True, None, False]),
    ("VARCHAR", ["", "a\0b", "ü😀\u2028", "null", "[1]", "1", "x" * 3_000_000]),
    ("VARCHAR", late(None, "a")),
    ("BLOB", [b"", b"\0\xff" * 8, None, b"'"]),
    ("TIMESTAMP", [datetime(2026, 1, 2, 3, 4, 5, 678901), None]),
    ("BIGINT[]", [[1, 2**62], [], None]),
    ("BIGINT[]", late([1], [2**40])),
    ("DOUBLE[]", [[0.1, NAN, math.inf, -math.inf, -0.0, 5e-324], []]),
    ("DOUBLE[]", late([1.0], [2.5])),
    ("DOUBLE[][]", [[[0.1, -math.inf], []], []]),
    ("VARCHAR[]", [["", "a\0b", 'ü😀"\\\n', "null", "[1]"], [], None]),
    ("VARCHAR[]", late([], ["a"])),
    *((kind, [None, None]) for kind in ("BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB", "TIMESTAMP", "BIGINT[]")),
]


@pytest.mark.parametrize(("kind", "values"), CASES)
def test_values_come_back_as_they_were(con: duckdb.DuckDBPyConnection, kind: str, values: list[Any]) -> None:
    assert same(kept(con, kind, values), values)


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("BIGINT", np.arange(10)[::3], [0, 3, 6, 9]),
        ("BIGINT", np.array([7, 8], np.int32), [7, 8]),
        ("BIGINT", [np.int64(5), 6], [5, 6]),
        ("BOOLEAN", np.array([True, False]), [True, False]),
        ("DOUBLE", np.array([1.5, NAN]), [1.5, NAN]),
        ("DOUBLE", np.ma.masked_array([1.5, NAN, NAN], [False, True, False]), [1.5, None, NAN]),
        ("DOUBLE", [1, 2.5, None], [1.0, 2.5, None]),
        ("FLOAT", np.array([0.1, NAN], np.float32), [float(np.float32(0.1)), NAN]),
        ("TIMESTAMP", np.array(["2026-01-02"], "datetime64[us]"), [datetime(2026, 1, 2)]),
        ("BIGINT[]", [np.array([1, 2]), (np.int64(3),), []], [[1, 2], [3], []]),
        ("VARCHAR", np.array(["a", "bc"]), ["a", "bc"]),
        ("VARCHAR", np.array(["a", None], object), ["a", None]),
    ],
)
def test_arrays_of_numpy_are_values_too(
    con: duckdb.DuckDBPyConnection, kind: str, values: Any, wanted: list[Any]
) -> None:
    assert same(kept(con, kind, values), wanted)


@settings(deadline=None, max_examples=60)
@drawn(
    st.one_of(
        st.tuples(st.just("DOUBLE[]"), st.lists(st.none() | st.lists(st.floats()), min_size=1)),
        st.tuples(st.just("VARCHAR[]"), st.lists(st.none() | st.lists(st.text()), min_size=1)),
        st.tuples(st.just("VARCHAR"), st.lists(st.none() | st.text(), min_size=1)),
        st.tuples(st.just("DOUBLE"), st.lists(st.none() | st.floats(), min_size=1)),
        st.tuples(st.just("BIGINT"), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1)),
    )
)
def test_anything_comes_back_as_it_was(con: duckdb.DuckDBPyConnection, case: tuple[str, list[Any]]) -> None:
    assert same(kept(con, *case), case[1])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("VARCHAR", ["a", "lone \ud800"]),
        ("VARCHAR[]", [["lone \ud800"]]),
        ("BIGINT", ["one"]),
        ("BIGINT", late(1, "one")),
        ("INTEGER", [2**40]),
        ("BIGINT", [2**63]),
        ("BIGINT[]", [["x"]]),
        ("BIGINT[]", [[object()]]),
    ],
)
def test_what_a_column_cannot_hold_is_refused(con: duckdb.DuckDBPyConnection, kind: str, values: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        kept(con, kind, values)
    assert con.execute("SELECT count(*) FROM kept").fetchall() == [(0,)]


def test_columns_go_by_name_and_those_not_given_are_null(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE OR REPLACE TABLE kept (a BIGINT, b VARCHAR, c DOUBLE[])")
    rows = [{"c": [1.5]}, {"a": 3}]
    insert(con, "kept", of_rows(rows))
    insert(con, "kept", of_rows([]))
    insert(con, "kept", {"a": [], "b": np.empty(0)})
    assert con.execute("FROM kept").fetchall() == [(None, None, [1.5]), (3, None, None)]
    with pytest.raises(ValueError, match="different lengths"):
        insert(con, "kept", {"a": [1, 2], "b": ["x"]})


def test_given_columns_are_named_in_queries_until_the_end(con: duckdb.DuckDBPyConnection) -> None:
    for rows in (np.empty(0, np.int64), np.arange(3)):
        with given(con, "asked", {"row": rows, "key": [bytes([row]) * 16 for row in rows.tolist()]}):
            assert con.execute("SELECT row FROM asked ORDER BY row DESC").fetchall() == [(r,) for r in rows[::-1]]
    with pytest.raises(ZeroDivisionError), given(con, "asked", {"row": rows}):
        raise ZeroDivisionError
    with pytest.raises(duckdb.CatalogException):
        con.execute("FROM asked")
