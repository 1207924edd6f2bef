"""Files that a cluster reads, large ones of Parquet by row groups: the workspace is that of reading here."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.base.progress import SILENT, Event, Monitor
from icl_curate.engine.index import staging
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.files import IndexedFile, Reading, indexed_file
from icl_curate.engine.index.results import IndexReport
from icl_curate.engine.shards.shard import Engine, Shard, WorkerFailure, attempt
from icl_curate.engine.store.workspace import Workspace

TABLES = {
    "demonstrations": "row, id, input, output, options, answers, context, source, split, metadata, hash, file, line, "
    "retired_at IS NULL, history",
    "skipped": "file, line, reason",
    "files": "path, digest, reading, rows",
    "duplicates": '"row", "of", kind, similarity',
}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files of a test were large."""
    monkeypatch.setattr(staging, "APART", 0)
    monkeypatch.setattr(staging, "LEAST", 300)
    monkeypatch.setattr(staging, "CLUSTER", 6)
    monkeypatch.setattr(staging, "BATCH", 7)


def engines(cluster: Any, folder: Path) -> tuple[Engine, Engine]:
    """This process, and a cluster that sees the folder."""
    return Engine(), Engine("ray", cluster.address, str(folder))


def indexed(folder: Path, engine: Engine, **plan: Any) -> tuple[IndexReport, list[str], dict[str, list[Any]]]:
    """What an index of the files pool-* reports, tells of the files and stores."""
    workspace = Workspace.create(folder / engine.kind)
    told: list[str] = []

    def note(event: Event) -> None:
        if event.task == staging.COLUMNS:
            told.append(event.note)

    report = index_pool(workspace, IndexPlan(paths=(str(folder / "pool-*"),), engine=engine, **plan), Monitor(note))
    with workspace.read() as con:
        stored = {name: con.execute(f"SELECT {c} FROM {name} ORDER BY ALL").fetchall() for name, c in TABLES.items()}
    return report, told, stored


def lines_of(*records: object, end: str = "\n") -> bytes:
    return "".join((r if isinstance(r, str) else json.dumps(r)) + end for r in records).encode()


@pytest.mark.ray
@pytest.mark.usefixtures("_small")
def test_files_read_by_a_cluster_are_stored_as_read_by_this_process(cluster: Any, tmp_path: Path) -> None:
    for number in range(9):
        rows = [{"input": f"shot {number} {i * i}", "output": f"o{i % 3}"} for i in range(5 * number + 1)]
        rows += [
            {"id": "same", "input": f"an id in file {number}", "output": "o"},
            {"input": "the same", "output": "o"},
        ]
        lines = [*map(json.dumps, rows), "no record" if number % 2 else "", json.dumps({"output": "no input"})]
        (tmp_path / f"pool-{number}.jsonl").write_text("\n".join(lines))
    (tmp_path / "pool-4.csv").write_text("question,answer\nwhich kind?,a table\n")
    here, there = (indexed(tmp_path, engine, test_fraction=0.2) for engine in engines(cluster, tmp_path))
    assert there == here
    assert len(here[2]["demonstrations"]) == sum(5 * n + 1 for n in range(9)) + 9 + 1 + 1
    assert len(here[2]["skipped"]) == 9 + 4 + 8


@pytest.mark.ray
@pytest.mark.usefixtures("_small")
def test_row_groups_of_a_file_are_stored_as_the_whole(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows that several files have, bad rows, turns of conversations, and answers that are numbers, of which the
    last rows of a file alone would say something else than its first."""
    chosen = [
        {"question": f"which {i}?", "options": ["a", "b", "c"], "answer": 1 + i % 3 if i < 1100 else i % 2, "note": i}
        for i in range(1300)
    ]
    pq.write_table(pa.Table.from_pylist(chosen), tmp_path / "pool-g.parquet", 100, compression="none")
    chosen = chosen[:90]
    bad = ["", "  ", "no JSON", {"question": "no answer?"}, "[3]"]
    (tmp_path / "pool-a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines_of(*chosen[:40], *bad, *chosen[40:], end="\r\n"))
    talks = [
        {
            "id": f"t{i}",
            "messages": [
                {"role": ("user", "assistant")[j % 2], "content": f"äöü {i} {j} 🙂"} for j in range(2 * (1 + i % 4))
            ],
        }
        for i in range(40)
    ]
    (tmp_path / "pool-b.jsonl").write_bytes(
        "\n".join(json.dumps(talk, ensure_ascii=False) for talk in talks).encode() + b'\n{"messages": \xff}\n'
    )
    kinds = {b"huggingface": b'{"info": {"features": {"label": {"_type": "ClassLabel", "names": ["no", "yes"]}}}}'}
    table = pa.table({"text": [f"shot {i // 2}" for i in range(600)], "label": [i % 3 - 1 for i in range(600)]})
    pq.write_table(
        table.replace_schema_metadata(kinds), tmp_path / "pool-c.parquet", 150, compression="none", use_dictionary=False
    )
    plain = lines_of(*({"input": f"of {i}", "output": f"o{i}"} for i in range(300)))
    (tmp_path / "pool-d.jsonl").write_bytes(plain)
    (tmp_path / "pool-e.jsonl.gz").write_bytes(gzip.compress(plain, 0))
    (tmp_path / "pool-f.csv").write_text("input,output\n" + "".join(f'"of\n{i}",o\n' for i in range(300)))
    seen: list[list[staging.FilePart]] = []
    divided = staging.divided
    monkeypatch.setattr(staging, "divided", lambda *given: (seen.append(divided(*given)[0]), divided(*given))[1])
    here, there = (indexed(tmp_path, engine, validation_fraction=0.1) for engine in engines(cluster, tmp_path))
    assert there == here
    cut = [Path(part.file.path).name[5] for part in seen[0]]
    assert [cut.count(name) > 1 for name in "abcdefg"] == [False, False, True, False, False, False, True]
    assert {line for _, line, _ in here[2]["skipped"]} >= {43, 44, 45}
    assert any("counted from 1" in note for note in here[1]) and any(
        "labels of label: 0 no" in note for note in here[1]
    )
    assert sum(row[4] == [] and "äöü" in row[2] for row in here[2]["demonstrations"]) == sum(
        1 + i % 4 for i in range(40)
    )


@pytest.mark.ray
@pytest.mark.usefixtures("_small")
def test_a_file_without_a_usable_row_is_named_by_its_first(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "pool-1.jsonl").write_bytes(lines_of(*({"input": f"shot {i}", "output": "o"} for i in range(80))))
    (tmp_path / "pool-2.jsonl").write_bytes(lines_of("", *({"label": i} for i in range(200))))
    (tmp_path / "pool-3.jsonl").write_bytes(lines_of(*({"label": i} for i in range(200))))
    said = []
    for engine in engines(cluster, tmp_path):
        with pytest.raises(UsageError) as caught:
            indexed(tmp_path, engine)
        said.append((caught.value.what, caught.value.fix))
        with Workspace.open(tmp_path / engine.kind).read() as con:
            assert con.execute("SELECT count(*) FROM demonstrations").fetchall() == [(0,)]
        assert not (tmp_path / engine.kind / "tmp" / "staged").exists()
    assert said[0] == said[1] and "pool-2.jsonl has no usable row: line 2: missing field: input" in said[0][0]


@pytest.mark.ray
@pytest.mark.usefixtures("_small")
def test_the_first_file_that_cannot_be_read_is_named_whichever_process_reads_it(cluster: Any, tmp_path: Path) -> None:
    for number in range(6):
        good = {"input": f"shot {number}", "output": "o" * 400}
        (tmp_path / f"pool-{number}.jsonl").write_text(json.dumps({"label": 3} if number in (2, 5) else good))
    (tmp_path / "pool-7.parquet").write_bytes(b"PAR1" + bytes(5000))
    said = []
    for engine in engines(cluster, tmp_path):
        with pytest.raises(UsageError) as caught:
            indexed(tmp_path, engine)
        said.append((caught.value.what, caught.value.fix))
    assert said[0] == said[1] and "pool-2.jsonl" in said[0][0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 8))
def test_every_part_is_in_one_range(sizes: list[int], count: int) -> None:
    reading = Reading(None, {}, None, 0.0, 0.0)
    files = [IndexedFile(f"absent-{i}", str(i), reading, "", (0, 0, size, 0)) for i, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "APART", 0)
        patch.setattr(staging, "LEAST", 1)
        found, ranges = staging.divided(files, count)
        stdin = staging.divided([IndexedFile("-", "-", reading, "", ()), *files], count)
    assert [part.file for part in found] == files
    assert [i for begin, end in ranges for i in range(begin, end)] == [*range(len(files))]
    assert all(begin < end for begin, end in ranges) and len(ranges) <= count * staging.SHARES * 2 + 1
    assert stdin[1] == [(0, len(files) + 1)]


def test_a_cluster_reads_what_lies_in_a_storage_that_is_a_folder(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "also").symlink_to(shared)
    (shared / "pool.jsonl").write_bytes(lines_of({"input": "a", "output": "b"}))
    (tmp_path / "here.jsonl").write_bytes(lines_of({"input": "a", "output": "b"}))
    (shared / "link.jsonl").symlink_to(tmp_path / "here.jsonl")
    reading = Reading(None, {}, None, 0.0, 0.0)

    def site(engine: Engine, *names: str) -> staging.Site | None:
        return staging.Site.of(engine, workspace, [indexed_file(workspace, str(tmp_path / n), reading) for n in names])

    address = "10.0.0.1:6379"
    there = site(Engine("ray", address, str(tmp_path / "also")), "shared/pool.jsonl")
    assert there and there.own and there.own.is_relative_to(tmp_path / "also")
    seen = there.seen(indexed_file(workspace, str(shared / "pool.jsonl"), reading))
    assert seen.path == str(tmp_path / "also" / "pool.jsonl")  # by the path that all nodes have
    assert site(Engine("ray", address, str(shared)), "also/pool.jsonl")
    assert not site(Engine("ray", address, str(shared)), "shared/pool.jsonl", "here.jsonl")
    assert not site(Engine("ray", address, str(shared)), "shared/link.jsonl")
    assert not site(Engine("ray", address, "s3://bucket"), "shared/pool.jsonl")
    assert not site(Engine("ray", address), "shared/pool.jsonl")
    assert not site(Engine(), "here.jsonl")
    assert site(Engine("ray"), "here.jsonl")


def test_a_node_that_sees_other_files_is_named(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    (path := tmp_path / "pool.jsonl").write_bytes(lines_of({"input": "a", "output": "b"}))
    (part,) = staging.whole([indexed_file(workspace, str(path), Reading(None, {}, None, 0.0, 0.0))])
    step = partial(staging.read_shard, workspace.path, (part,), ((0, 1),), str(tmp_path))
    shard = Shard("read", 0, "", str(tmp_path / "node" / "read-0"), 0)

    def read() -> staging.Written | WorkerFailure:
        return attempt(lambda: step(shard, SILENT), shard, "on node7")

    written = read()
    assert isinstance(written, staging.Written) and [*written.sizes] == ["00000000-00000000.parquet"]
    staged = tmp_path / "staged"
    staged.mkdir()
    staging._collect(written, staged)
    assert [path.name for path in staged.iterdir()] == [*written.sizes] and not written.folder.exists()
    with pytest.raises(CurateError, match="is not what a worker wrote"):
        staging._collect(written, staged)
    path.write_bytes(lines_of({"input": "other", "output": "b"}))
    fix = f"mount {tmp_path}, with the same files, on every node"
    assert read() == WorkerFailure(f"on node7: {path} is not the file that the command sees", fix, 2)
    path.unlink()
    assert read() == WorkerFailure(f"on node7: no access to {path}", fix, 2)
