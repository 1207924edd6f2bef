"""Exports: read back by other tools, whole or not at all, with a manifest that tells the truth."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories.commands import Run
from factories.copies import indexed, lines
from factories.patience import PATIENCE
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.export import corpus
from icl_curate.engine.export.corpus import ExportPlan, export, format_of
from icl_curate.engine.export.results import ExportReport
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.exported import escaped, plain
from icl_curate.engine.prompting.template import FileTemplate
from icl_curate.engine.store.decisions import decide, relabel
from icl_curate.engine.store.demonstrations import active_rows, fetch
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.versions import save_version
from icl_curate.engine.store.workspace import Workspace
from pyarrow import csv as arrow_csv

PASSAGE = {"output": "no", "options": ["yes", "no"], "context": "one.\n\ntwo.", "source": "s2"}
ROWS = [
    {"id": "a", "input": 'says "hi", twice\nand more', "output": "yes", "options": ["yes", "no|maybe"], "lang": "en"},
    {"id": "b", "input": "größer, ∑ 日本語 \U0001f600", "output": "nein", "options": ["ja", "nein"], "n": 3},
    {"id": "c", "input": "with a passage"} | PASSAGE,
    {"id": "d", "input": "with a passage."} | PASSAGE,
]
ROWS = [{"source": "s1"} | row for row in ROWS]


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return indexed(tmp_path / "w", pool=lines(ROWS))


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_an_export_indexed_again_is_the_same_pool(store: Workspace, tmp_path: Path, format: str) -> None:
    out = tmp_path / f"out.{format}"
    assert format_of(out) == format
    export(store, ExportPlan(out=out, format=format))
    again = Workspace.create(tmp_path / "again")
    report = index_pool(again, IndexPlan(paths=(str(out),), encoder=None))
    assert report.skipped == ()
    before = [replace(d, row=0) for d in fetch(store, active_rows(store))]
    after = [replace(d, row=0) for d in fetch(again, active_rows(again))]
    assert after == before
    assert [d.metadata for d in after] == [{"lang": "en"}, {"n": 3}, {}, {}]


TYPED = [
    {"id": "007", "input": "NA", "output": "1", "source": "0"},
    {"id": "1e5", "input": "null", "output": "-1", "source": "0", "aliases": ["1.0"], "answers": []},
    {"id": "true", "input": "2024-01-01", "output": "007", "source": "0", "a": 1, "b": 2, "options": []},
    {"id": "x", "input": "#N/A", "output": "None", "source": "0", "passage": "p", "context": ""},
    {"id": "y", "input": "nan", "output": "1", "source": "0", "deep": {"n": [1, None, 0.5, "007"], "metadata": "m"}},
    {"id": "z", "input": "a\r\nb", "output": "1", "source": "0", "metadata": '{"not": "ours"}', "empty": ""},
]
"""Rows whose texts other readers take for numbers, dates, nothing; whose columns could be taken for other fields."""


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet", "dspy", "hf"])
def test_types_survive_a_round_trip(tmp_path: Path, format: str) -> None:
    (tmp_path / "pool.jsonl").write_text("\n".join(json.dumps(row) for row in TYPED))
    store, again = (Workspace.create(tmp_path / name) for name in ("w", "again"))
    index_pool(store, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), encoder=None))
    out = tmp_path / f"out.{'json' if format == 'dspy' else format}"
    export(store, ExportPlan(out=out, format=format))
    written = out / "data" / "train.parquet" if format == "hf" else out
    assert index_pool(again, IndexPlan(paths=(str(written),), encoder=None)).skipped == ()
    before, after = ([replace(d, row=0) for d in fetch(each, active_rows(each))] for each in (store, again))
    assert after == before and [d.input for d in after] == [row["input"] for row in TYPED]
    assert before[4].metadata == {"deep": TYPED[4]["deep"]} and before[1].metadata == {"aliases": ["1.0"]}


def test_a_table_has_no_column_that_is_empty_throughout(tmp_path: Path) -> None:
    """Other readers take such a column for one of numbers; the types of the others are in the manifest."""
    rows = [{"id": f"00{n}", "input": text, "output": "1"} for n, text in enumerate(["NA", "1", ""]) if text]
    (tmp_path / "pool.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), encoder=None))
    out = tmp_path / "out.csv"
    manifest = export(store, ExportPlan(out=out, format="csv")).written
    assert manifest is not None and manifest["columns"] == dict.fromkeys(("id", "source", "input", "output"), "text")
    expected = [[row["id"], "pool", row["input"], "1"] for row in rows]
    as_pandas = pandas.read_csv(out, dtype="string", keep_default_na=False)
    assert [[*row] for row in as_pandas.itertuples(index=False)] == expected
    texts = arrow_csv.ConvertOptions(column_types={name: pa.string() for name in manifest["columns"]})
    as_arrow = arrow_csv.read_csv(out, convert_options=texts)
    assert [[*row.values()] for row in as_arrow.to_pylist()] == expected
    assert [[*row] for row in duckdb.read_csv(str(out), all_varchar=True).fetchall()] == expected
    assert str(pandas.read_csv(out).dtypes["source"]) != "float64"


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


TALK = said(("system", "Count."), ("user", "2+2?"), ("assistant", "4"), ("user", "And 3+3?"), ("assistant", "6"))
PLAIN = said(("user", "hello"), ("assistant", "hi"))


@pytest.fixture
def conversations(tmp_path: Path) -> Workspace:
    pool = tmp_path / "talk.jsonl"
    rows = [{"id": name, "messages": messages} for name, messages in (("a", TALK), ("b", PLAIN))]
    pool.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    workspace = Workspace.create(tmp_path / "talking")
    index_pool(workspace, IndexPlan(paths=(str(pool),), encoder=None))
    return workspace


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_what_was_said_before_comes_back_with_its_row(conversations: Workspace, tmp_path: Path, format: str) -> None:
    out = tmp_path / f"out.{format}"
    export(conversations, ExportPlan(out=out, format=format))
    again = Workspace.create(tmp_path / "again")
    assert index_pool(again, IndexPlan(paths=(str(out),), encoder=None)).skipped == ()
    before = [replace(d, row=0, metadata={}) for d in fetch(conversations, active_rows(conversations))]
    after = [replace(d, row=0, metadata={}) for d in fetch(again, active_rows(again))]
    assert after == before
    told = [None if d.history is None else [(turn.role, turn.content) for turn in d.history] for d in after]
    first = ("system", "Count.")
    assert told == [[first], [first, ("user", "2+2?"), ("assistant", "4")], []]


def test_conversations_are_exported_as_they_came(conversations: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    export(conversations, ExportPlan(out=out, format="chat"))
    found = [json.loads(line)["messages"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert found == [TALK[:3], TALK, PLAIN]


def test_progress_is_reported_batch_by_batch(store: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BATCH", 3)
    events: list[tuple[int, int | None]] = []
    out = tmp_path / "out.jsonl"
    export(store, ExportPlan(out=out), monitor=Monitor(lambda event: events.append((event.done, event.total))))
    assert events == [(3, 4), (4, 4)]
    assert [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()] == ["a", "b", "c", "d"]


def test_sources_restrict_the_pool_but_not_the_queries(tmp_path: Path) -> None:
    rows = {"pool": ROWS, "queries": [row | {"id": f"v{i}", "input": f"other {i}"} for i, row in enumerate(ROWS)]}
    for name, content in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    store = Workspace.create(tmp_path / "w")
    plan = IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), validation=(str(tmp_path / "queries.jsonl"),), encoder=None)
    index_pool(store, plan)
    written = {}
    for split in ("pool", "validation"):
        out = tmp_path / f"{split}-out.jsonl"
        export(store, ExportPlan(out=out, split=split, sources=("s2",)))
        written[split] = [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert written == {"pool": ["c", "d"], "validation": ["v0", "v1", "v2", "v3"]}


def test_the_manifest_names_schema_and_task_of_the_workspace_and_nothing_private(
    store: Workspace, tmp_path: Path
) -> None:
    export(store, ExportPlan(out=tmp_path / "out.jsonl"))
    manifest = json.loads((tmp_path / "out.jsonl.manifest.json").read_text(encoding="utf-8"))
    assert manifest["workspace"].keys() <= {"schema_version", "encoder", "task"}
    assert {"schema_version", "task"} <= manifest["workspace"].keys()


def test_jsonl_keeps_the_columns_that_came_with_a_row(store: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    export(store, ExportPlan(out=out))
    rows = {row["id"]: row for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    assert (rows["a"]["lang"], rows["b"]["n"]) == ("en", 3)
    assert "context" not in rows["a"]


def test_csv_and_parquet_are_read_by_other_readers(store: Workspace, tmp_path: Path) -> None:
    export(store, ExportPlan(out=tmp_path / "out.csv", format="csv"))
    export(store, ExportPlan(out=tmp_path / "out.parquet", format="parquet"))
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [r["input"] for r in rows] == [r["input"] for r in table] == [r["input"] for r in ROWS]
    assert [json.loads(r["options"]) for r in rows] == [r["options"] for r in table]


def test_chat_lines_are_what_trainers_read(store: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    export(store, ExportPlan(out=out, format="chat"))
    for line, row in zip(out.read_text(encoding="utf-8").splitlines(), ROWS, strict=True):
        messages = json.loads(line)["messages"]
        assert [m["role"] for m in messages] == ["system", "user", "assistant"]
        assert row["input"] in messages[1]["content"]
        assert messages[2]["content"] == row["output"]


def test_an_export_carries_the_prefix_of_answers(store: Workspace, tmp_path: Path) -> None:
    template = FileTemplate(answer_prefix="The answer is")
    export(store, ExportPlan(out=tmp_path / "chat.jsonl", format="chat", template=template))
    lines = (tmp_path / "chat.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["messages"][-1]["content"] for line in lines] == [
        f"The answer is {row['output']}" for row in ROWS
    ]
    manifest = json.loads((tmp_path / "chat.jsonl.manifest.json").read_text(encoding="utf-8"))
    assert FileTemplate(**manifest["template"]) == template


def test_dspy_examples_are_flat_and_name_their_inputs(store: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "demos.json"
    manifest = export(store, ExportPlan(out=out, format="dspy")).written
    examples = json.loads(out.read_text(encoding="utf-8"))
    assert [e["output"] for e in examples] == [r["output"] for r in ROWS]
    assert set(manifest["input_keys"]) <= {"input", "options", "context", "history"}


def test_the_hf_folder_names_its_files_in_the_card(store: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    export(store, ExportPlan(out=out, format="hf"))
    assert pq.read_table(out / "data" / "train.parquet").num_rows == 4
    assert "path: data/train.parquet" in (out / "README.md").read_text(encoding="utf-8")
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["exported"] == {"pool": 4, "validation": 0, "test": 0}


def test_labels_of_the_hf_folder_are_a_class_and_come_back_by_name(tmp_path: Path) -> None:
    rows = [{"input": f"text {n}", "output": ("neg", "pos")[n % 2], "source": f"s{n % 3}"} for n in range(66)]
    for name, some in (("pool", rows[:60]), ("test", rows[60:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in some))
    store = Workspace.create(tmp_path / "w")
    index_pool(
        store, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), test=(str(tmp_path / "test.jsonl"),), encoder=None)
    )
    decide(store, "prune", "source", ["s2"])
    out = tmp_path / "dataset"
    export(store, ExportPlan(out=out, format="hf", licence="apache-2.0"))
    table = pq.read_table(out / "data" / "train.parquet")
    assert table.column("output").to_pylist() == [rows.index(row) % 2 for row in rows[:60] if row["source"] != "s2"]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["output"] == {"names": ["neg", "pos"], "_type": "ClassLabel"}
    assert set(features) == set(table.column_names)
    card = (out / "README.md").read_text(encoding="utf-8")
    header, left_out = ("license: apache-2.0", "- text-classification", "- n<1K"), "20 rows of the pool were left out"
    for line in (*header, left_out, "| s2 | 20 | 0 |"):
        assert line in card
    again = Workspace.create(tmp_path / "again")
    report = index_pool(again, IndexPlan(paths=(str(out),), encoder=None))  # by its folder, every file as its split
    assert (report.demonstrations, report.test) == (40, 6)
    assert {row.output for row in fetch(again, active_rows(again))} == {"neg", "pos"}
    assert {row.source for row in fetch(again, active_rows(again))} == {"s0", "s1"}


def test_the_library_loads_the_folder(store: Workspace, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(store, ExportPlan(out=tmp_path / "dataset", format="hf"))
    (found,) = datasets.load_dataset(str(tmp_path / "dataset")).values()
    assert [row["input"] for row in found] == [row["input"] for row in ROWS]
    assert found[0]["options"] == ROWS[0]["options"]


def test_the_manifest_of_a_chat_file_has_the_entry_for_llama_factory(store: Workspace, tmp_path: Path) -> None:
    manifest = export(store, ExportPlan(out=tmp_path / "sft.jsonl", format="chat")).written
    assert manifest["llama_factory"]["sft"]["file_name"] == "sft.jsonl"
    assert manifest["llama_factory"]["sft"]["formatting"] == "sharegpt"


def test_the_manifest_tells_what_was_taken_out(store: Workspace, tmp_path: Path) -> None:
    decide(store, "prune", "source", ["s1"], "wrong labels", "ada")
    out = tmp_path / "out.jsonl"
    manifest = export(store, ExportPlan(out=out, deduplicate=True)).written
    assert manifest["counts"] == {"pool": 4, "active": 2, "retired": 0, "exported": {"pool": 1}}
    assert manifest["files"] == {"out.jsonl": hashlib.sha256(out.read_bytes()).hexdigest()}
    assert manifest["sources"][0] == {"source": "s1", "demonstrations": 2, "active": 0, "exported": 0}
    assert (manifest["decisions"][0]["reason"], manifest["decisions"][0]["who"]) == ("wrong labels", "ada")
    assert json.loads((tmp_path / "out.jsonl.manifest.json").read_text(encoding="utf-8")) == manifest


ASKED = " for Hana, who asked for them twice since Monday, and has had neither them nor any word of why they are late"


def test_deduplicating_keeps_what_says_something_else_as_check_does(tmp_path: Path) -> None:
    said = [("a", "Yes"), ("a", "yes "), ("a", "no"), ("b", "yes"), ("a", "no"), ("c", "yes")]
    rows = [{"id": f"r{i}", "input": f"{text} apples" + ASKED, "output": out} for i, (text, out) in enumerate(said)]
    store = indexed(tmp_path / "w", pool=lines(rows))
    plan = ExportPlan(out=tmp_path / "out.jsonl", deduplicate=True)
    found = check_pool(ActivePool(store, Settings()), ["duplicate"]).rows
    assert {row["id"] for row in corpus.records(store, plan)} == {f"r{i}" for i in range(6)} - {f.id for f in found}
    save_version(store, "v")
    relabel(store, {"r2": "yes"})
    assert [row["id"] for row in corpus.records(store, plan)] == ["r0", "r4"]
    assert [row["id"] for row in corpus.records(store, replace(plan, version="v"))] == ["r0", "r2"]


def test_filters_that_leave_nothing_are_an_error(store: Workspace, tmp_path: Path) -> None:
    decide(store, "prune", "source", ["s1", "s2"])
    with pytest.raises(UsageError, match="nothing to export"):
        export(store, ExportPlan(out=tmp_path / "out.jsonl"))
    with pytest.raises(UsageError, match="no source"):
        export(store, ExportPlan(out=tmp_path / "out.jsonl", sources=("s9",)))


@pytest.mark.parametrize("format", ["jsonl", "hf"])
def test_a_dry_run_counts_what_would_be_written_and_writes_nothing(
    store: Workspace, tmp_path: Path, format: str
) -> None:
    decide(store, "prune", "demonstration", ["a"])
    plan = ExportPlan(out=tmp_path / "out", format=format, deduplicate=True)
    before = set(tmp_path.iterdir())
    told = export(store, replace(plan, dry_run=True))
    assert set(tmp_path.iterdir()) == before
    written = export(store, plan)
    assert told.exported == written.exported
    assert told.exported["pool"] == 2
    for report in (told, written):
        assert ExportReport.from_json(report.as_json()).as_json() == report.as_json()
    with pytest.raises(UsageError, match="exists"):
        export(store, replace(plan, dry_run=True))


@pytest.mark.parametrize("format", ["jsonl", "hf"])
def test_what_stood_there_stays_when_writing_fails(
    store: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    out = tmp_path / "kept"
    export(store, ExportPlan(out=out, format=format))
    before = _content(out)
    with pytest.raises(UsageError, match="exists"):
        export(store, ExportPlan(out=out, format=format))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus.os, "fsync", full)
    with pytest.raises(CurateError, match="No space left"):
        export(store, ExportPlan(out=out, format=format, force=True))
    cancelled = CancelToken()
    cancelled.cancel()
    with pytest.raises(CurateError):
        export(store, ExportPlan(out=out, format=format, force=True), monitor=Monitor(cancel=cancelled))
    assert _content(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"pool.jsonl", "w", "kept"} | (
        {"kept.manifest.json"} if format == "jsonl" else set()
    )


@pytest.mark.parametrize("format", ["jsonl", "hf"])
def test_a_file_in_the_path_is_said_to_be_one(store: Workspace, tmp_path: Path, format: str) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "out", tmp_path / "file" / "deeper" / "out"):
        with pytest.raises(CurateError, match=f"cannot write {out}: part of its path is a file") as refused:
            export(store, ExportPlan(out=out, format=format))
        assert "choose another location" in refused.value.fix
    assert {path.name for path in tmp_path.iterdir()} == {"pool.jsonl", "w", "file"}


_KILLED = """
import sys
sys.path += [sys.argv[1], sys.argv[1] + "/export"]
from pathlib import Path
from factories.killing import killed_at
from test_export import publish_text

step = 1
out = Path(sys.argv[2]) / "1" / "out"
publish_text(out, sys.argv[3], "old")
while killed_at(step, lambda: publish_text(out, sys.argv[3], "new")):
    step += 1
    out = Path(sys.argv[2]) / str(step) / "out"
    publish_text(out, sys.argv[3], "old")
print(step)
"""


DATA = "data/train.parquet"


def publish_text(out: Path, format: str, text: str) -> None:
    """Publish one file with ``text`` as an export does it."""
    plan = ExportPlan(out=out, format=format, force=True)

    def write(path: Path) -> dict[str, Any]:
        file = path / DATA if format == "hf" else path
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        return {"files": {"data.txt": corpus.settled_digest(file)}}

    corpus.check_target(plan)
    corpus.publish(plan, {}, write)


@pytest.mark.parametrize("format", ["jsonl", "hf"])
def test_a_kill_leaves_no_file_with_a_manifest_of_another(tmp_path: Path, format: str) -> None:
    """Killed before each of its steps on the disk, an export leaves old or new, whole; the next one tidies up."""
    words = [sys.executable, "-c", _KILLED, str(Path(__file__).parents[1]), str(tmp_path), format]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps > 6
    left = set()
    for step in range(1, steps):
        plan = ExportPlan(out=tmp_path / str(step) / "out", format=format, force=True)
        corpus.check_target(plan)  # as the next export begins
        file, manifest = (plan.out / DATA if format == "hf" else plan.out), corpus.manifest_path(plan)
        assert file.read_text() in ("old", "new")
        left.add(file.read_text())
        if manifest.exists():
            told = json.loads(manifest.read_text(encoding="utf-8"))["files"]["data.txt"]
            assert told == hashlib.sha256(file.read_bytes()).hexdigest()
        publish_text(plan.out, format, "newer")
        assert file.read_text() == "newer"
        assert {path.name for path in plan.out.parent.iterdir()} == {plan.out.name, manifest.name} - (
            {manifest.name} if format == "hf" else set()
        )
    assert left == {"old", "new"}


def test_a_living_exports_unfinished_file_is_let_be(store: Workspace, tmp_path: Path) -> None:
    mine, dead = tmp_path / ".out.jsonl.1.part", tmp_path / f".out.jsonl.{_dead()}.part"
    other = tmp_path / f".another.jsonl.{_dead()}.part"
    for path in (mine, dead, other):
        path.touch()
    export(store, ExportPlan(out=tmp_path / "out.jsonl"))
    assert (mine.exists(), dead.exists(), other.exists()) == (True, False, True)


def _dead() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_device_is_never_replaced(store: Workspace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match="exists and is no file"):
        export(store, ExportPlan(out=tmp_path / "pipe.jsonl", force=True))


@pytest.mark.parametrize("name", ["out.csv.gz", "out.csv.ZST"])
def test_no_file_is_named_as_compressed_that_is_not(store: Workspace, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="named as compressed") as told:
        export(store, ExportPlan(out=tmp_path / name, format="csv"))
    assert told.value.fix == f"export to {tmp_path / 'out.csv'} and then compress it"
    assert not (tmp_path / name).exists()


# Formulas.

FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "'=kept", "''-kept", "-5", "+3.5e-7", "-", "it's", "'tis", "＝1"]


def test_a_csv_runs_nothing_in_a_spreadsheet_and_reads_back_the_same(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    rows = [{"id": f"={i}", "input": f"{text} x", "output": text, "source": "@s"} for i, text in enumerate(FORMULAS)]
    pool.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(str(pool),), encoder=None))
    manifest = export(store, ExportPlan(out=tmp_path / "out.csv", format="csv")).written
    assert manifest["formulas_escaped"] is True
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@＝\t\r") and cell not in ("-5", "+3.5e-7")]
    again = Workspace.create(tmp_path / "again")
    index_pool(again, IndexPlan(paths=(str(tmp_path / "out.csv"),), encoder=None))
    assert [(d.id, d.input, d.output, d.source) for d in fetch(again, active_rows(again))] == [
        (row["id"], row["input"], row["output"], row["source"]) for row in rows
    ]
    kept = export(store, ExportPlan(out=tmp_path / "raw.csv", format="csv", escape_formulas=False)).written
    assert kept["formulas_escaped"] is False
    with (tmp_path / "raw.csv").open(encoding="utf-8", newline="") as file:
        assert [row["output"] for row in csv.DictReader(file)] == FORMULAS
    index_pool(again, IndexPlan(paths=(str(tmp_path / "raw.csv"),), encoder=None))


@given(st.text(st.sampled_from("'=+-@\t\r\n＝5.e%x "), max_size=6))
def test_what_is_escaped_is_told_apart_and_taken_back(text: str) -> None:
    assert plain(escaped(text)) == text
    number = text not in ("",) and re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?%?", text)
    assert number or escaped(text)[:1] not in tuple("=+-@\t\r\n＝")


def _content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path.parent)): p.read_bytes() for p in files}


ODD = ("__class__", "input", "Output", "instruction", "messages", "system", "history", "answers", "options", "context")
OWN = {"input": "utt", "output": "lab", **dict.fromkeys(("context", "answers", "options", "history", "system"), "none")}


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_fields_of_any_name_and_size_survive_a_round_trip(tmp_path: Path, format: str) -> None:
    odd = {name: f"a value of {name}" for name in (*ODD, "metadata", "{x}", "tools", "question", "label")}
    rows = [
        {"id": "1", "source": "s", "utt": "hello", "lab": "x", **odd},
        {"id": "2", "utt": "b", "lab": "x", "n": [1]},
    ]
    rows.append({"id": "3", "source": "s", "utt": "c", "lab": "x", "large": "long " * 2_000_000})
    (tmp_path / "pool.jsonl").write_text(lines(rows))
    store, again = (Workspace.create(tmp_path / name) for name in ("w", "again"))
    index_pool(store, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),), columns=OWN, encoder=None))
    out = tmp_path / f"out.{format}"
    export(store, ExportPlan(out=out, format=format))
    assert index_pool(again, IndexPlan(paths=(str(out),), encoder=None)).skipped == ()
    before, after = ([replace(d, row=0) for d in fetch(each, active_rows(each))] for each in (store, again))
    assert after == before and [d.input for d in after] == ["hello", "b", "c"]
    assert after[0].fields == odd and after[1].fields == {"n": [1]} and len(after[2].fields["large"]) == 10_000_000
    asked = after[0].as_query()
    assert asked.input == "hello" and asked.fields.keys() == odd.keys() - {"Output", "answers"}


def test_force_deletes_nothing_that_an_export_did_not_write(tmp_path: Path, run: Run) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"input": "one", "output": "a"}\n{"input": "two", "output": "b"}\n')
    workspace = tmp_path / "held" / "w"
    run("index", pool, "--no-encode", "-w", workspace)
    written, other = tmp_path / "written", tmp_path / "other"
    export_to = lambda out, *more: run("export", out, "--force", "-w", workspace, *more)  # noqa: E731
    assert export_to(written, "--format", "hf").code == 0
    (written / ".DS_Store").write_text("what a file manager leaves")
    assert export_to(written, "--format", "hf").code == 0
    (written / ".git").mkdir()
    (written / ".git" / "config").write_text("theirs")
    (other / "deep").mkdir(parents=True)
    assert export_to(other, "--format", "hf").code == 0  # empty folders
    (other / "link").symlink_to(tmp_path)
    for folder in (workspace, workspace.parent, written, other):
        refused = export_to(folder, "--format", "hf")
        assert refused.code == 2 and "would delete" in refused.err
    for file in (workspace / "workspace.duckdb", *workspace.rglob("*.safetensors")):
        refused = export_to(file, "--format", "jsonl")
        assert refused.code == 2 and "part of the workspace" in refused.err
    assert (written / ".git" / "config").read_text() == "theirs" and (other / "link").is_symlink()
    assert run("status", "-w", workspace).code == 0


@pytest.mark.parametrize("format", ["jsonl", "hf"])
def test_what_has_no_name_is_no_target(store: Workspace, format: str) -> None:
    with pytest.raises(UsageError, match=r"'\.' is no name of a file"):
        export(store, ExportPlan(out=Path(), format=format, force=True))


def test_the_first_record_of_a_version_is_its_own(store: Workspace, tmp_path: Path) -> None:
    save_version(store, "before")
    decide(store, "prune", "demonstration", ["a"])
    first = corpus.first_record(store, ExportPlan(out=tmp_path / "out.jsonl", version="before"))
    assert json.loads(first)["id"] == "a"


def test_the_name_of_a_file_may_be_any_bytes(store: Workspace, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"\xff.jsonl")
    done = export(store, ExportPlan(out=out))
    assert json.loads(Path(done.manifest).read_bytes())["files"].keys() == {out.name}


def test_what_the_workspace_was_made_from_is_never_overwritten(tmp_path: Path, run: Run) -> None:
    (tmp_path / "data").mkdir()
    for name in ("pool", "validation"):
        rows = [{"id": f"{name}{i}", "input": f"{name} text {i}", "output": "ab"[i % 2]} for i in range(12)]
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pool, validation = (tmp_path / "data" / f"{name}.jsonl" for name in ("pool", "validation"))
    run("index", pool, "--validation", validation, "--no-encode", "-w", tmp_path / "w")
    run("prune", "--demo", "pool1", "-w", tmp_path / "w")
    before = pool.read_bytes(), validation.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for target in (pool, validation, tmp_path / "link" / "pool.jsonl"):
        refused = run("export", target, "--force", "-w", tmp_path / "w")
        assert refused.code == 2 and "what this workspace was made from" in refused.err
    assert run("export", tmp_path / "data", "--format", "hf", "--force", "-w", tmp_path / "w").code == 2
    assert (pool.read_bytes(), validation.read_bytes()) == before
    assert run("export", tmp_path / "data" / "new.jsonl", "-w", tmp_path / "w").code == 0
