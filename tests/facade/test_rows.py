"""Rows of frames and mappings as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np
import pandas
import pyarrow
import pytest
from icl_curate import Pool
from icl_curate.engine.base.errors import UsageError
from icl_curate.facade.rows import write_rows


def written(data: Any, folder: Path) -> list[dict[str, Any]]:
    """The rows of the file, which is to be JSON."""

    def none(name: str) -> None:
        raise AssertionError(name)

    write_rows(data, folder / "rows.jsonl")
    return [json.loads(line, parse_constant=none) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_whole_numbers_of_a_column_with_gaps_stay_whole(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"label": [1, None, 2], "part": [1.5, None, 2.0], "full": [1.0, 2.0, 3.0]})
    told = [json.dumps(row) for row in written(frame, tmp_path)]
    assert told == [
        '{"label": 1, "part": 1.5, "full": 1.0}', '{"label": null, "part": null, "full": 2.0}',
        '{"label": 2, "part": 2.0, "full": 3.0}',
    ]  # fmt: skip


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas.DataFrame([["a", "b", "c"]], columns=["input", "input", "output"]),
    "pyarrow": lambda: pyarrow.table([["a"], ["b"], ["c"]], names=["input", "input", "output"]),
    "duckdb": lambda: duckdb.sql("SELECT 'a' AS input, 'b' AS output").project("input, output, input"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_with_one_name_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several columns of the frame are called 'input'"):
        write_rows(FRAMES[kind](), tmp_path / "rows.jsonl")


def test_what_is_no_finite_number_is_null_at_any_depth(tmp_path: Path) -> None:
    row = {
        "input": "NaN and Infinity", "gone": math.inf, "list": [1.0, math.nan, {"deep": -math.inf}],
        "array": np.array([1.0, math.nan]), "none": [pandas.NA, pandas.NaT],
    }  # fmt: skip
    assert written([row], tmp_path) == [
        {
            "input": "NaN and Infinity",
            "gone": None,
            "list": [1.0, None, {"deep": None}],
            "array": [1.0, None],
            "none": [None, None],
        }
    ]


def test_an_empty_cell_is_told_as_one(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"input": ["a", None, "c"], "output": ["x", "y", math.nan]})
    pool = Pool.index(frame, tmp_path / "w", encode=False, progress=False)
    assert [one.reason for one in pool.skipped().skipped] == ["empty input", "empty output"]


def test_what_has_a_form_in_json_is_written_in_it(tmp_path: Path) -> None:
    row = {
        "labels": {"b", "a"}, "day": date(2026, 1, 2), "cost": Decimal("1.50"), "place": Path("a/b"),
        "number": np.int64(3), "deep": {"view": MappingProxyType({"x": frozenset([2, 1])})},
    }  # fmt: skip
    assert written([row], tmp_path) == [
        {"labels": ["a", "b"], "day": "2026-01-02", "cost": "1.50", "place": "a/b", "number": 3,
         "deep": {"view": {"x": [1, 2]}}}
    ]  # fmt: skip


def test_what_json_has_not_is_refused(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, {(1, 2): "a"}, b"text", object(), {"deep": [b"text"]}, {"a", object()}):
        with pytest.raises(UsageError, match="cannot be written as JSON"):
            write_rows([{"input": value}], tmp_path / "rows.jsonl")
