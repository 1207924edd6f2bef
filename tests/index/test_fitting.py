"""What is said of a file whose columns have names that are not known: what they hold, and the mapping to copy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.peek import peek
from icl_curate.engine.store.workspace import Workspace


def written(path: Path, records: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def several(**columns: Any) -> list[dict[str, Any]]:
    """Twelve rows, ``{}`` in texts being their numbers, and values of a list by turns."""

    def value(given: Any, i: int) -> Any:
        return given[i % len(given)] if isinstance(given, list) else given.format(i)

    return [{name: value(given, i) for name, given in columns.items()} for i in range(12)]


PAIR = {"premise": "it is {}", "hypothesis": "there are {}"}
JOIN = "input={premise} / {hypothesis}"
MAPPED = [
    (several(**PAIR, label=[0, 1, 2]), JOIN, ""),
    (several(**PAIR, verdict=["not sure", "yes"]), JOIN, "output=verdict"),
    (several(report="a long text {}", headline="short text {}"), "input=report", "output=headline"),
    (several(document="a long text {}", headline="short text {}"), "input=document", "output=headline"),
    (several(document="a long text {}", summary="short text {}"), "input=document", ""),
    (several(source="good day number {}", target="guten Tag Nummer {}"), "input=source", ""),
    (several(document="a long text {}", claim="it is {}", verdict=["yes", "no"]), "input=claim", "output=verdict"),
    (several(prompt="write {} lines", program="def f{}(): pass"), "", "output=program"),
    (several(review="it was {}", score=[1.0, 2.0, 3.0]), "input=review", "output=score"),
    ([{"translation": {"en": "good day", "de": "guten Tag"}}], "input=translation.en", "output=translation.de"),
    ([{"my prompt": "what is it?", "gold answer": "a cat"}], "input=my prompt", "output=gold answer"),
]


@pytest.mark.parametrize(("rows", "asked", "answered"), MAPPED)
def test_the_mapping_to_copy_is_one_with_which_the_file_is_read(
    rows: list[dict[str, Any]], asked: str, answered: str, tmp_path: Path, run: Run
) -> None:
    path = written(tmp_path / "p.jsonl", rows)
    refused = run("index", path, "-w", tmp_path / "w", "--no-encode")
    assert refused.code == 2
    fix = refused.err.rpartition("fix: map its columns: ")[2]
    options = [word for each in (asked, answered) if each for word in ("--map", f"p.jsonl::{each}")]
    assert shlex.split(fix) == options
    assert run("index", path, *shlex.split(fix), "-w", tmp_path / "w", "--no-encode", "--json").json["skipped"] == []


@pytest.mark.parametrize(
    ("rows", "fix"),
    [
        (several(body="it was {}", lang=["en", "de"], stars=[1, 2, 3]), "p.jsonl::input=body p.jsonl::output=COLUMN"),
        ([{"a": 1}], "p.jsonl::input=COLUMN p.jsonl::output=COLUMN"),
        ([{"question": "what?", "a": 1, "b": 2}], "p.jsonl::output=COLUMN"),
    ],
)
def test_where_no_column_or_several_fit_it_is_left_to_choose(rows: list[Any], fix: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(written(tmp_path / "p.jsonl", rows),)))
    assert caught.value.fix == f"map its columns: {' '.join(f'--map {each}' for each in fix.split())}"


def test_each_column_is_shown_with_a_value(tmp_path: Path, run: Run) -> None:
    rows = [{"body": "", "n": None}, {"body": "x " * 900, "n": 7, "parts": [1], "deep": {"tier": "gold\x1b[2J"}}]
    path = written(tmp_path / "p.jsonl", rows)
    refused = run("index", path, "-w", tmp_path / "w", "--no-encode")
    assert f"(body: {'x ' * 19}x…; n: 7; parts: a list; deep.tier: gold" in refused.err and "\x1b" not in refused.err
    assert "; deep: an object)" in refused.err, "a record may be the output as it is"
    told = peek(path, {}).understood
    assert told.lacking == ("input", "output") and "no column is the input and none the output: --map" in told.notes[0]


def test_a_file_whose_columns_are_known_is_not_said_to_lack_any(tmp_path: Path) -> None:
    known = peek(written(tmp_path / "p.jsonl", [{"text": "t", "label": "x"}]), {}).understood
    assert (known.lacking, known.notes, known.examples) == ((), (), {})
    empty = written(tmp_path / "q.jsonl", [{"text": "", "label": "x"}])
    with pytest.raises(UsageError, match="has no usable row: line 1: empty input") as caught:
        index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(empty,)))
    assert caught.value.fix == f"icl-curate index {empty} --peek"
