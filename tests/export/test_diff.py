"""What changed between two states of a pool, against what was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.export.diff import diff, entries_of_file, entries_of_pool
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.decisions import decide, relabel
from icl_curate.engine.store.workspace import Workspace

ROWS = [{"id": f"r{n}", "input": f"text {n}", "output": "ab"[n % 2], "source": f"s{n % 3}"} for n in range(9)]


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    (tmp_path / "pool.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    return workspace


def test_decisions_between_two_exports_are_their_difference(store: Workspace, tmp_path: Path) -> None:
    export(store, ExportPlan(out=tmp_path / "may.jsonl"))
    decide(store, "prune", "source", ["s0"])
    relabel(store, {"r1": "c"})
    index_pool(store, IndexPlan(paths=(str(_more(tmp_path)),)))
    for out in ("june.jsonl", "june.csv", "june.parquet"):
        export(store, ExportPlan(out=tmp_path / out, format=out.rpartition(".")[2]))
        found = diff(entries_of_file(str(tmp_path / "may.jsonl")), entries_of_file(str(tmp_path / out)))
        assert (found.before, found.after, found.added, found.removed) == (9, 7, 1, 3)
        assert (found.changed, found.outputs) == (1, 1)
        told = {row.id: (row.change, row.before, row.after, row.fields) for row in found.rows}
        assert told == {
            **{f"r{n}": ("removed", "ab"[n % 2], None, ()) for n in (0, 3, 6)},
            "r1": ("changed", "b", "c", ("output",)),
            "n1": ("added", None, "x", ()),
        }
        assert [(each.source, each.before, each.after) for each in found.sources] == [
            ("s0", 3, 0), ("s1", 3, 3), ("s2", 3, 3), ("s9", 0, 1)
        ]  # fmt: skip
    assert diff(entries_of_file(str(tmp_path / "june.csv")), entries_of_pool(store)).rows == ()


def _more(folder: Path) -> Path:
    path = folder / "more.jsonl"
    path.write_text(json.dumps({"id": "n1", "input": "new", "output": "x", "source": "s9"}))
    return path


def test_the_command(store: Workspace, tmp_path: Path, run: Run) -> None:
    decide(store, "prune", "demonstration", ["r2", "r5"])
    told = run("diff", tmp_path / "pool.jsonl", "-w", store.path, "-n", 1)
    assert told.code == 0 and "9 rows before, 7 after: 0 added, 2 removed, 0 changed; 1 more rows" in told.out
    assert run("diff", tmp_path / "pool.jsonl", tmp_path / "pool.jsonl", "--json").json["rows"] == []
    missing = run("diff", tmp_path / "none.jsonl")
    assert missing.code == 2 and "does not exist" in missing.err


def test_a_file_without_a_demonstration(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('{"x": 1}')
    with pytest.raises(UsageError, match="has no demonstration"):
        entries_of_file(str(tmp_path / "f.jsonl"))


def test_of_a_folder_with_all_splits_the_pool_is_compared(store: Workspace, tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps({"id": "q", "input": "asked", "output": "a"}))
    index_pool(store, IndexPlan(test=(str(tmp_path / "asked.jsonl"),)))
    export(store, ExportPlan(out=tmp_path / "all", format="hf"))
    found = diff(entries_of_file(str(tmp_path / "all")), entries_of_pool(store))
    assert (found.before, found.after, found.rows) == (9, 9, ())


def test_rows_are_those_that_index_would_have(tmp_path: Path) -> None:
    same = {"input": "the same thing", "output": "x"}
    rows = [
        same,
        same,
        {"input": "more", "output": "y"},
        {"id": "r1", **same},
        {"id": "r1", "input": "z", "output": "z"},
    ]
    path = tmp_path / "pool.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    found = diff(entries_of_file(str(path)), entries_of_pool(workspace))
    assert (found.before, found.after, found.rows) == (4, 4, ())
