"""States of the pool by name, against what the pool was when they were saved."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from factories import copies
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.export.diff import diff, entries_of_pool, entries_of_version
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store import schema
from icl_curate.engine.store.decisions import decide, history, relabel, undo
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.versions import (
    delete_version,
    restore_version,
    save_version,
    state_of,
    version_detail,
    versions,
)
from icl_curate.engine.store.workspace import Workspace

ROWS = [{"id": f"r{n}", "input": f"text {n}", "output": "ab"[n % 2], "source": f"s{n % 3}"} for n in range(9)]


def indexed(folder: Path, rows: list[dict[str, str]]) -> Workspace:
    (folder / "pool.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    workspace = Workspace.create(folder / "w")
    index_pool(workspace, IndexPlan(paths=(str(folder / "pool.jsonl"),)))
    return workspace


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return copies.indexed(tmp_path / "w", pool=copies.lines(ROWS))


def pool(workspace: Workspace) -> dict[str, str]:
    return {name: entry.output for name, entry in entries_of_pool(workspace).items()}


def of(workspace: Workspace, name: str) -> dict[str, str]:
    return {key: entry.output for key, entry in entries_of_version(workspace, name).items()}


def test_a_version_stays_as_the_pool_was_and_is_restored_and_undone(store: Workspace, tmp_path: Path) -> None:
    decide(store, "prune", "demonstration", ["r0"])
    relabel(store, {"r1": "a"})
    then = pool(store)
    assert (save_version(store, "may", "first").rows, versions(store)[0].corrected) == (8, 1)

    decide(store, "prune", "source", ["s1"])
    decide(store, "restore", "demonstration", ["r0"])
    relabel(store, {"r1": "c", "r2": "b", "r0": "b"}, new=True)
    indexed(tmp_path, [*ROWS, {"id": "new", "input": "later", "output": "a", "source": "s9"}])
    now = pool(store)
    assert of(store, "may") == then != now
    detail = version_detail(store, "may")
    assert (detail.active, detail.gone, detail.new, detail.differing, detail.retired) == (7, 3, 2, 1, 0)
    assert [(each.source, each.rows) for each in detail.sources] == [("s0", 2), ("s1", 3), ("s2", 3)]

    assert restore_version(store, "may", dry_run=True).change.active_after == 8 and pool(store) == now
    done = restore_version(store, "may")
    assert (pool(store), done.missing, done.change.active_after) == (then, 0, 8)
    assert history(store)[0].action == "prune and relabel and restore" and history(store)[0].reason == "version may"
    with pytest.raises(UsageError, match="as it was in that version"):
        restore_version(store, "may")
    undo(store)
    assert pool(store) == now


def test_rows_gone_from_their_file_stay_in_the_version(store: Workspace, tmp_path: Path) -> None:
    save_version(store, "may")
    decide(store, "prune", "demonstration", ["r8"])
    indexed(tmp_path, ROWS[3:])
    assert len(of(store, "may")) == 9 and version_detail(store, "may").retired == 3
    assert restore_version(store, "may").missing == 3
    with pytest.raises(UsageError, match="in that version, but for 'r0' and 2 other rows: no longer in the files"):
        restore_version(store, "may")
    assert pool(store).keys() == {f"r{n}" for n in range(3, 9)}
    export(store, ExportPlan(out=tmp_path / "may.jsonl", version="may"))
    written = [json.loads(line) for line in (tmp_path / "may.jsonl").read_text().splitlines()]
    assert written == ROWS


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet", "hf"])
def test_an_export_of_a_version_has_its_rows_and_outputs(store: Workspace, tmp_path: Path, format: str) -> None:
    relabel(store, {"r1": "z"}, new=True)
    decide(store, "prune", "source", ["s2"])
    save_version(store, "may")
    undo(store)
    relabel(store, {"r1": "a"})
    out = tmp_path / f"o.{format}"
    manifest = export(store, ExportPlan(out=out, format=format, sources=("s1", "s0"), version="may")).written
    assert manifest is not None and manifest["pool_version"]["name"] == "may"
    assert manifest["relabelled"] == [{"id": "r1", "from": "b", "to": "z"}]
    assert [each["exported"] for each in manifest["sources"]] == [3, 3, 0]
    if format == "hf":
        table = pq.read_table(out / "data" / "train.parquet")
        names = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]["output"]
        outputs = [names["names"][n] if "names" in names else n for n in table["output"].to_pylist()]
        assert dict(zip(table["id"].to_pylist(), outputs, strict=True)) == of(store, "may")
    else:
        from icl_curate.engine.export.diff import entries_of_file

        assert diff(entries_of_file(str(out)), entries_of_version(store, "may")).rows == ()
    with pytest.raises(UsageError, match="no queries"):
        export(store, ExportPlan(out=tmp_path / "x.jsonl", split="test", version="may"))


def test_the_manifest_of_a_version_counts_rows_that_are_queries_now(store: Workspace, tmp_path: Path) -> None:
    relabel(store, {"r1": "z"}, new=True)
    save_version(store, "may")
    moved = [row | {"split": "test" if row["id"] == "r1" else "train"} for row in ROWS]
    indexed(tmp_path, moved)
    manifest = export(store, ExportPlan(out=tmp_path / "o.jsonl", version="may")).written
    assert manifest is not None and manifest["relabelled"] == [{"id": "r1", "from": "b", "to": "z"}]
    assert sum(each["exported"] for each in manifest["sources"]) == manifest["counts"]["exported"]["pool"] == 9


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", ".hidden", "x" * 65, "a/b", "a\nb", "a\x1b"])
def test_names_that_are_refused(store: Workspace, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a version"):
        save_version(store, name)
    assert versions(store) == []


def test_names_are_taken_replaced_and_forgotten(store: Workspace) -> None:
    save_version(store, "may")
    decide(store, "prune", "source", ["s0"])
    with pytest.raises(UsageError, match="a version 'may' already"):
        save_version(store, "may")
    assert len(of(store, "may")) == 9
    save_version(store, "may", force=True)
    save_version(store, "Juni-ä.2")
    assert [(each.name, each.rows) for each in versions(store)] == [("Juni-ä.2", 6), ("may", 6)]
    assert [each.name for each in overview(store).versions] == ["Juni-ä.2", "may"]
    delete_version(store, "may")
    for use in (state_of, restore_version, version_detail, delete_version):
        with pytest.raises(UsageError, match="no version 'may'"):
            use(store, "may")  # type: ignore[operator]
    with store.read() as con:
        assert con.execute("SELECT count(DISTINCT version) FROM version_rows").fetchone() == (1,)
    decide(store, "prune", "source", ["s1"])
    decide(store, "prune", "source", ["s2"])
    with pytest.raises(UsageError, match="nothing to save"):
        save_version(store, "none")
    assert len(versions(store)) == 1


def test_a_kill_after_saving_loses_nothing(store: Workspace) -> None:
    child = os.fork()
    if not child:
        save_version(store, "may")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert [each.rows for each in versions(store)] == [9] and len(of(store, "may")) == 9


def test_an_older_workspace_gets_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:11])
        patch.setattr(schema, "VERSION", 11)
        Workspace.create(tmp_path / "w")
    reopened = indexed(tmp_path, ROWS)
    assert versions(reopened) == [] and save_version(reopened, "may").rows == 9


def test_the_commands(store: Workspace, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("-w", store.path)
    monkeypatch.chdir(tmp_path)
    assert "saved version may: 9 demonstrations" in run("version", "save", "may", "--note", "n", *where).out
    decide(store, "prune", "demonstration", ["r3"])
    assert run("version", "save", "june", "--json", *where).json["rows"] == 8
    listed = run("version", "list", "--json", *where).json["versions"]
    assert [(each["name"], each["rows"], each["note"]) for each in listed] == [("june", 8, ""), ("may", 9, "n")]
    assert run("version", *where).out == run("version", "list", *where).out != ""
    found = run("diff", "may", "june", "--json", *where).json
    assert [(row["id"], row["change"]) for row in found["rows"]] == [("r3", "removed")]
    assert run("diff", "may", "--json", *where).json["removed"] == 1
    assert "1 fewer" in run("version", "show", "may", *where).out
    assert run("version", "restore", "may", "--dry-run", *where).out.startswith("restore version may: would leave 9")
    assert run("version", "restore", "may", "--json", *where).json["missing"] == 0
    assert len(pool(store)) == 9 and "may" in run("status", *where).out
    assert run("undo", *where).code == 0 and len(pool(store)) == 8

    (tmp_path / "may").write_text(json.dumps(ROWS[0]))
    both = run("diff", "may", *where)
    assert both.code == 2 and "is a file and a version" in both.err
    assert run("diff", "./may", "june", "--json", *where).json["before"] == 1
    neither = run("diff", "july", *where)
    assert neither.code == 2 and "neither a file nor a version" in neither.err
    assert run("export", "o.jsonl", "--version", "may", *where).code == 0
    assert "deleted version may" in run("version", "delete", "may", *where).out
    assert run("version", "show", "may", *where).code == 2


def test_a_shell_completes_the_names(store: Workspace, tmp_path: Path) -> None:
    import typer.main
    from icl_curate import cli
    from icl_curate.commands.decide import known_versions

    save_version(store, "may")
    save_version(store, "june")
    export_command = typer.main.get_command(cli.app).commands["export"]  # type: ignore[attr-defined]
    context = typer.Context(export_command)
    context.params = {"workspace": store.path}
    assert known_versions(context, "") == ["june", "may"] and known_versions(context, "m") == ["may"]
    context.params = {"workspace": tmp_path / "none"}
    assert known_versions(context, "") == []
