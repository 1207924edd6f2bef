"""Columns that ``--map`` makes of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import Mapper, Row

PAIR = {"premise": "It rains.", "hypothesis": "It is wet.", "label": "yes", "meta": {"hint": "soil"}, "{odd}": "x"}


def read(record: dict[str, Any], pattern: str) -> str:
    (row,) = Mapper({"input": pattern}).rows(record)
    return row.input if isinstance(row, Row) else row.reason


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("{premise} / {hypothesis}", "It rains. / It is wet."),
        ("{premise}\n{meta.hint?}{nothing?}", "It rains.\nsoil"),
        ("{{{premise}}}", "{It rains.}"),
        ("{odd}", "x"),
        ("meta.hint", "soil"),
    ],
)
def test_columns_in_one_text(pattern: str, text: str) -> None:
    assert read(PAIR, pattern) == text


def test_what_is_joined_stays_metadata_and_what_is_missing_is_told() -> None:
    (row,) = Mapper({"input": "{premise} / {hypothesis}"}).rows(PAIR)
    assert isinstance(row, Row)
    assert {"premise", "hypothesis"} <= json.loads(row.metadata).keys()
    assert "there is no column '{premise} / {other}'" in read(PAIR, "{premise} / {other}")
    (bad,) = Mapper({"input": "{premise} / {hypothesis}"}).rows(PAIR | {"hypothesis": " "})
    assert bad == BadRecord("empty hypothesis")


@pytest.mark.parametrize("pattern", ["{premise", "{} / {x}", "{?}"])
def test_a_malformed_join_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Mapper({"input": pattern})


def test_a_field_given_twice_names_the_join(tmp_path: Path, run: Run) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(PAIR) + "\n")
    twice = run("index", tmp_path / "p.jsonl", "--map", "input=premise", "--map", "input=hypothesis")
    assert (twice.code, "--map 'input={premise} / {hypothesis}'" in twice.err) == (2, True)
