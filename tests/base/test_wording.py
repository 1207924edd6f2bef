"""Counts in sentences."""

from __future__ import annotations

import pytest
from icl_curate.engine.base.errors import counted


@pytest.mark.parametrize(
    ("count", "what", "verb", "told"),
    [
        (0, "row", (), "0 rows"),
        (1, "row", (), "1 row"),
        (1200, "row", (), "1,200 rows"),
        (1, "query", ("is", "are"), "1 query is"),
        (2, "query", ("is", "are"), "2 queries are"),
    ],
)
def test_one_is_told_otherwise_than_many(count: int, what: str, verb: tuple[str, ...], told: str) -> None:
    assert counted(count, what, *verb) == told
