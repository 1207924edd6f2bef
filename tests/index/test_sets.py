"""Lists of labels, from a file to the pool's task, and back to a file."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.results import IndexReport
from icl_curate.engine.index.rows import Mapper, Row
from icl_curate.engine.store.decisions import relabel
from icl_curate.engine.store.demonstrations import active_rows, fetch, queries, task_of
from icl_curate.engine.store.workspace import Workspace

SETS = [["billing"], ["account", "billing"], [], ["billing", "account"], ["delivery"], ["account", "delivery"]]


def records(n: int, column: str = "labels", sets: list[list[str]] = SETS) -> list[dict[str, Any]]:
    return [{"id": f"{i}", "text": f"message number {i} of many", column: sets[i % len(sets)]} for i in range(n)]


def put(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(store: Workspace, *paths: str, **plan: Any) -> IndexReport:
    return index_pool(store, IndexPlan(paths=paths, **plan))


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


def outputs(store: Workspace) -> list[str]:
    return [row.output for row in fetch(store, active_rows(store))]


def read(rows: list[dict[str, Any]], columns: dict[str, str] | None = None) -> list[str]:
    mapper = Mapper(columns or {})
    mapper.survey(rows)
    found = [row for record in rows for row in mapper.rows(record)]
    return [row.output if isinstance(row, Row) else row.reason for row in found]


def test_a_pool_of_sets_has_single_labels(store: Workspace, tmp_path: Path) -> None:
    report = run(store, put(tmp_path / "pool.jsonl", records(60)))
    assert report.task == "sets"
    assert task_of(store).labels == ("account", "billing", "delivery")
    assert outputs(store)[:4] == ["billing", "account, billing", "none", "billing, account"]
    run(store, put(tmp_path / "pool.jsonl", records(60, sets=[["billing"], ["account"]])))  # one each: plain labels
    assert (task_of(store).kind, task_of(store).labels) == ("labels", ("account", "billing"))


def test_a_pool_in_small_files_is_one_of_sets(store: Workspace, tmp_path: Path) -> None:
    """In none of them has a label five rows."""
    draw = random.Random(0)
    labels = [f"label {i}" for i in range(24)]
    files = []
    for name in ("north", "south", "east"):
        sets = [draw.sample(labels, draw.choice([1, 1, 2])) for _ in range(60)]
        rows = [{"input": f"{name} message {i}", "output": each} for i, each in enumerate(sets)]
        files.append(put(tmp_path / f"{name}.jsonl", rows))
    assert run(store, *files).task == "sets"
    assert task_of(store).labels == tuple(sorted(labels))


def test_texts_with_commas_are_no_sets(store: Workspace, tmp_path: Path) -> None:
    rows = [{"text": f"t{i}", "label": ["Paris, Texas", "Rome, Georgia"][i % 2]} for i in range(30)]
    assert run(store, put(tmp_path / "pool.jsonl", rows)).task == "labels"
    assert task_of(store).labels == ("Paris, Texas", "Rome, Georgia")


def test_files_that_did_not_change_stay_sets(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "pool.jsonl", records(60)))
    more = [{"id": f"m{i}", "text": f"another message {i}", "labels": "billing, delivery"} for i in range(10)]
    assert run(store, put(tmp_path / "more.jsonl", more)).task == "sets"
    put(tmp_path / "pool.jsonl", [{**row, "labels": "billing"} for row in records(60)])
    assert run(store).task == "labels"


def test_lists_of_accepted_answers_are_told_from_sets() -> None:
    aliases = [{"question": "q", "answer": each} for each in (["NYC", "New York"], ["LA", "Los Angeles"])] * 20
    assert read(aliases)[:2] == ["NYC", "LA"]  # each is always beside the same others
    spelled = [{"question": "q", "answer": each} for each in (["yes", "Yes"], ["yes"], ["no"])] * 20
    assert read(spelled)[:2] == ["yes", "yes"]
    assert read([{"input": "q", "target": each} for each in SETS] * 10)[:2] == ["billing", "account, billing"]
    assert read([{"input": "q", "target": each} for each in SETS[:3]])[:2] == ["billing", "account"]  # too few to tell


def test_lists_that_a_table_holds_as_texts() -> None:
    rows = [{"text": "t", "labels": each} for each in ("['a', 'b']", '["c"]', "[]", "d")]
    assert read(rows) == ["a, b", "c", "none", "d"]


def test_columns_of_0_and_1_are_joined_to_a_set() -> None:
    flags = {"output": "toxic+obscene + threat"}
    rows = [
        {"text": "a", "toxic": 1, "obscene": "0", "threat": 1.0},
        {"text": "b", "toxic": "", "obscene": False, "threat": None},
        {"text": "c", "toxic": 2, "obscene": 0, "threat": 0},
        {"text": "d", "toxic": 1},
    ]
    missing = "missing field: output: there is no column 'toxic+obscene + threat' (columns: text, toxic)"
    assert read(rows, flags) == ["toxic, threat", "none", "toxic is '2', and not 0 or 1", missing]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "dspy"])
def test_an_export_is_read_back_as_the_same_sets(store: Workspace, tmp_path: Path, form: str) -> None:
    sets = [*SETS, ["food, drink", "billing"]]
    paths = {"validation": (put(tmp_path / "v.jsonl", records(12, sets=sets)),)}
    run(
        store, put(tmp_path / "pool.jsonl", [{**row, "id": f"p{row['id']}"} for row in records(28, sets=sets)]), **paths
    )
    suffix = "json" if form == "dspy" else form
    before = {row.id: (row.input, row.output) for row in fetch(store, active_rows(store))}
    for split in ("pool", "validation"):  # few rows: their own manifest or schema says what lists are
        out = tmp_path / "out" / f"{split}.{suffix}"
        export(store, ExportPlan(out=out, format=form, split=split))  # type: ignore[arg-type]
    again = Workspace.create(tmp_path / "again")
    report = run(again, str(out.with_name(f"pool.{suffix}")), validation=(str(out),))
    assert (report.task, report.skipped) == ("sets", ())
    assert {row.id: (row.input, row.output) for row in fetch(again, active_rows(again))} == before
    assert [q.answers for q in queries(again, "validation")] == [q.answers for q in queries(store, "validation")]
    assert task_of(again) == task_of(store)


def test_an_export_holds_lists(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "pool.jsonl", records(12)))
    export(store, ExportPlan(out=tmp_path / "o.jsonl"))
    export(store, ExportPlan(out=tmp_path / "o.csv", format="csv"))
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    cells = [json.loads(row["output"]) for row in csv.DictReader((tmp_path / "o.csv").open())]
    assert [line["output"] for line in lines] == cells == [row["labels"] for row in records(12)]


def test_the_features_of_a_data_set_name_the_labels(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "pool.jsonl", records(12)))
    export(store, ExportPlan(out=tmp_path / "hub", format="hf"))
    again = Workspace.create(tmp_path / "again")
    assert run(again, str(tmp_path / "hub" / "data" / "train.parquet")).task == "sets"
    assert outputs(again) == outputs(store)


def test_a_set_is_relabelled_with_known_labels(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "pool.jsonl", records(60)))
    relabel(store, {"0": "delivery, account"}, reason="read")
    assert outputs(store)[0] == "delivery, account"
    with pytest.raises(UsageError, match="no row or query has the label 'biling'"):
        relabel(store, {"1": "account, biling"}, reason="read")
