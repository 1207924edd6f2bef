"""Files of strangers: lines without an end, columns that differ from file to file, values that are no answer."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import Monitor
from icl_curate.engine.base.yamls import VALUE
from icl_curate.engine.index import exported, staging
from icl_curate.engine.index.build import IndexPlan, dry_run_index, index_pool
from icl_curate.engine.index.chosen import ChosenFiles
from icl_curate.engine.index.files import IndexedFile, Reading
from icl_curate.engine.index.readers import formats, parquet_format
from icl_curate.engine.index.readers import records as text
from icl_curate.engine.index.readers.files import open_input
from icl_curate.engine.index.readers.formats import records
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.results import Skipped, as_in_file
from icl_curate.engine.index.staging import read_part, whole
from icl_curate.engine.index.understood import surveyed
from icl_curate.engine.store import workspace
from icl_curate.engine.store.workspace import Workspace
from pyarrow import parquet


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zst}
WRITTEN: dict[str, Callable[[str], str]] = {
    "jsonl": lambda long: (
        f'{{"input": "a", "output": "x"}}\n{{"input": "{long}", "output": "x"}}\n{{"input": "b", "output": "y"}}\n'
    ),
    "csv": lambda long: f"input,output\na,x\n{long},x\nb,y\n",
    "tsv": lambda long: f"input\toutput\na\tx\n{long}\tx\nb\ty\n",
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_beyond_the_limit_is_skipped_and_the_next_is_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, kind: str, packed: str, encoding: str
) -> None:
    monkeypatch.setattr(text, "LINE", 1 << 12)
    path = tmp_path / f"pool.{kind}{packed}"
    path.write_bytes(PACKED[packed](WRITTEN[kind]("long " * 2000).encode(encoding)))
    found = run("index", path, "-w", tmp_path / "w", "--no-encode", "--json").json
    assert (found["demonstrations"], [(one["line"], one["reason"]) for one in found["skipped"]]) == (
        2,
        [(2 if kind == "jsonl" else 3, text.TOO_LONG.reason)],
    )


def test_a_line_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"input": "a" * 100, "output": "x"}) + "\n"
    path = tmp_path / "pool.jsonl"
    for limit, usable in ((len(line) - 1, 0), (len(line), 2), (len(line) + 1, 2)):
        monkeypatch.setattr(text, "LINE", limit)
        path.write_text(2 * line)
        with open_input(str(path)) as stream:
            assert sum(not isinstance(record, BadRecord) for _, record in records(str(path), stream)) == usable


MEASURED = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "icl_curate", *sys.argv[1:]], check=True)
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_a_bomb_takes_no_more_memory_than_a_line_may(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"bomb.jsonl{packed}"
    with gzip.open(path, "wb", 1) if packed == ".gz" else pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(b'{"input": "')
        for _ in range(600):
            stream.write(b"a" * (1 << 20))
        stream.write(b'", "output": "x"}\n{"input": "b", "output": "y"}\n')
    command = [sys.executable, "-c", MEASURED, "index", str(path), "-w", str(tmp_path / "w"), "--no-encode"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "skipped 1 record" in ran.stdout
    (peak,) = re.findall(r"^peak (\d+)$", ran.stdout, re.MULTILINE)
    assert int(peak) < 500 << 10  # kB: the line alone would have 614,400


@pytest.mark.parametrize("name", ["bomb.json.gz", "bomb.jsonl.gz"])
def test_what_unpacks_to_far_more_than_its_size_is_not_one_piece(tmp_path: Path, name: str) -> None:
    with gzip.open(path := tmp_path / name, "wb") as stream:
        stream.write(b'{"input": "a", "output": "x", "more": [' + b"[]," * (6 << 20) + b"[]]}\n")
    with open_input(str(path)) as stream:
        if name.endswith(".json.gz"):
            with pytest.raises(UsageError, match="unpacks to more than 16 MB"):
                list(records(str(path), stream))
        else:
            assert list(records(str(path), stream)) == [(1, BadRecord("the line is longer than 16 MB, compressed"))]


def test_bad_lines_beyond_a_number_are_a_file_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_SKIPPED", 50)
    for name, bad in (("a", 50), ("b", 51)):
        (tmp_path / f"{name}.jsonl").write_text('{"input": "a", "output": "x"}\n' + "x\n" * bad)
    store = Workspace.create(tmp_path / "w")
    assert len(index_pool(store, IndexPlan(paths=(str(tmp_path / "a.jsonl"),))).skipped) == 50
    for names in ("b", "ab"):
        with pytest.raises(UsageError, match=r"more than 50 rows cannot be used, the first in .*jsonl:2: "):
            index_pool(Workspace.create(tmp_path / f"w{names}"), IndexPlan(paths=(str(tmp_path / f"[{names}].jsonl"),)))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json.gz", b'[{"input": "a", "output": "x"}]'), ("a.yaml.gz", b"- {input: a, output: x}\n")],
)
def test_a_file_that_is_read_as_a_whole_unpacks_to_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content))
    for limit in (len(content), len(content) - 1):
        monkeypatch.setattr(formats, "DOCUMENT_UNPACKED", limit)
        with open_input(str(path)) as stream:
            if limit == len(content):
                assert [record for _, record in records(str(path), stream)] == [{"input": "a", "output": "x"}]
            else:
                with pytest.raises(UsageError, match="unpacks to more than"):
                    list(records(str(path), stream))


def test_aliases_stand_for_so_much_in_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ALIASED", 35 * (5 * VALUE + len("input" + "long " * 40 + "output" + "x")))
    row = "- &a {input: " + "long " * 40 + ", output: x}\n"
    rows = {"few": row + "- *a\n" * 30, "many": row + "- *a\n" * 40, "parts": f"{row}- *a\n- *a\n---\n" * 20}
    for name, content in rows.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    few, many, parts = ((tmp_path / f"{name}.yaml") for name in rows)
    with open_input(str(few)) as stream:
        assert len(list(records(str(few), stream))) == 31
    for path in (many, parts):
        with open_input(str(path)) as stream, pytest.raises(UsageError, match="aliases stand for more than"):
            list(records(str(path), stream))


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ("{input: c, output: d, on: x}", ""),
        ("{input: c, output: d, ~: x}", ""),
        ("{input: c, output: 2020-01-01}", ""),
        ("{input: c, output: d, meta: [{2020-01-01: x}]}", ""),
        ("{input: c, output: {x: 1, 2020-01-01: 5}}", ""),
        ("{input: c, output: d, n: 0x" + "f" * 4000 + "}", "cannot be read: Exceeds the limit"),
        ("{input: c, output: 0x" + "f" * 4000 + "}", "cannot be read: Exceeds the limit"),
    ],
)
def test_an_odd_value_of_yaml_costs_its_own_row_alone(tmp_path: Path, odd: str, says: str) -> None:
    (path := tmp_path / "a.yaml").write_text(f"- {{input: a, output: b}}\n- {odd}\n- {{input: e, output: f}}\n")
    report = index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(path),)))
    assert report.demonstrations == (2 if says else 3)
    assert [(skip.line, skip.reason[: len(says)]) for skip in report.skipped] == ([(2, says)] if says else [])


def test_a_manifest_that_no_export_wrote_is_not_read_whole(tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_text('{"input": "a", "output": "x"}\n')
    (manifest := tmp_path / "a.jsonl.manifest.json").write_text("{")
    assert not exported.manifest_of(str(path))
    os.truncate(manifest, exported.LARGEST + 1)  # a hole, which takes no room on the disk
    with pytest.raises(UsageError, match=r"manifest\.json: it has more than") as caught:
        index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(path),)))
    assert caught.value.fix.startswith("remove it")


def test_a_workbook_unpacks_to_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["input", "output"])
    book.active.append(["a", "x"])
    book.save(path := tmp_path / "a.xlsx")
    monkeypatch.setattr(formats, "UNPACKED", 1000)
    with open_input(str(path)) as stream, pytest.raises(UsageError, match="unpacks to more than"):
        list(records(str(path), stream))


def test_a_far_cell_of_a_workbook_costs_no_time(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["input", "output", "note"], ["q", "a"]):
        book.active.append(row)
    book.active["XFD60000"] = " "
    book.save(path := tmp_path / "far.xlsx")
    with path.open("rb") as stream:
        begun = time.process_time()
        found = list(records(str(path), stream))
    empty = {"input": None, "output": None, "note": None}
    assert found == [(2, {"input": "q", "output": "a", "note": None}), (60_000, empty)]
    assert time.process_time() - begun < 5


def test_rows_beyond_the_last_of_a_sheet_are_told_and_a_blank_row_is_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ([" ", ""], ["input", "output"], ["q", "a"], ["r", "b"], ["s", "c"]):
        book.active.append(row)
    book.save(path := tmp_path / "long.xlsx")
    monkeypatch.setattr(formats, "SHEET_ROWS", 3)
    with path.open("rb") as stream:
        (_, record), (line, told) = records(str(path), stream)
    assert record == {"input": "q", "output": "a"}
    assert line == 4 and isinstance(told, formats.BadRecord) and "beyond the last row" in told.reason


def test_what_is_piped_in_is_not_kept_in_memory(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LINE", 1 << 12)
    found = run("index", "-", "-w", tmp_path / "w", "--no-encode", "--json", stdin=WRITTEN["jsonl"]("a" * 5000)).json
    assert (found["demonstrations"], len(found["skipped"])) == (2, 1)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["input", "output"])
def test_what_is_no_finite_number_is_no_value(tmp_path: Path, run: Run, number: str, field: str) -> None:
    odd = {"input": '"a"', "output": '"x"', field: number}
    path = tmp_path / "pool.jsonl"
    path.write_text(
        f'{{"input": {odd["input"]}, "output": {odd["output"]}}}\n{{"input": "b", "output": 2.5, "score": {number}}}\n'
    )
    found = run("index", path, "-w", tmp_path / "w", "--no-encode", "--json").json
    assert [(one["line"], one["reason"]) for one in found["skipped"]] == [(1, f"{field} is not a finite number")]
    (row,) = run("demos", "-w", tmp_path / "w", "--json").json["demonstrations"]
    assert (row["output"], row.get("metadata", {})) == ("2.5", {})


def test_what_is_stored_is_json_and_an_answer_without_text_stops_no_index(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text(
        '{"input": "a", "output": {"x": NaN}}\n{"input": "b", "output": {"x": 1}, "more": [NaN, -1e999, 1]}\n'
        '{"input": "c", "output": ["", "x"]}\n{"input": "d", "output": ["x", NaN]}\n'
    )
    told = run("index", path, "-w", tmp_path / "w", "--no-encode", "--json").json
    assert (1, "output is not a finite number") in [(one["line"], one["reason"]) for one in told["skipped"]]
    assert run("export", tmp_path / "out.jsonl", "-w", tmp_path / "w").code == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    written = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [row["more"] for row in written if row["input"] == "b"] == [[None, None, 1]]


# columns that differ from file to file


@pytest.fixture
def messy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CSV with odd headers, a chat log and a TSV, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk export.csv").write_text(
        "Customer Message,Intent Label\nwhere is it,delivery\nmoney back,refund\n"
    )
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "greeting"}]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    (tmp_path / "old.tsv").write_text("text\tcode\nit broke\tfault\n")
    return tmp_path


DESK = ("--map", "desk*.csv::input=Customer Message", "--map", "desk*.csv::output=Intent Label")


def test_columns_of_some_files_alone(messy: Path, run: Run) -> None:
    options = (*DESK, "--map", "old.tsv::output=code", "--no-encode")
    found = run("index", "desk export.csv", "chat.jsonl", "old.tsv", *options, "--json")
    assert found.code == 0, found.err
    assert (found.json["demonstrations"], found.json["skipped"]) == (4, [])
    rows = run("demos", "--json").json["demonstrations"]
    assert {(row["input"], row["output"]) for row in rows} == {
        ("where is it", "delivery"),
        ("money back", "refund"),
        ("hello", "greeting"),
        ("it broke", "fault"),
    }
    again = run("index", "--json", "--no-encode").json  # as they were read before
    assert (again["unchanged_files"], again["added"]) == (3, 0)


def test_the_command_its_look_ahead_and_the_form_say_the_same(messy: Path, run: Run) -> None:
    """A column for all files that one of them lacks: none of the three may promise what another refuses."""
    files = ("desk export.csv", "chat.jsonl")
    everywhere = ("--map", "input=Customer Message", "--map", "output=Intent Label")
    refused = run("index", *files, *everywhere, "--no-encode")
    assert refused.code == 2
    assert "chat.jsonl has no usable row" in refused.err
    assert "chat.jsonl::input=COLUMN" in refused.err
    peeked = run("index", *files, *everywhere, "--peek", "--json").json["files"]
    assert [(one["read"], one["bad"]) for one in peeked] == [(2, 0), (1, 1)]
    everywhere = {"use": "pool", "input": "Customer Message", "output": "Intent Label"}
    chosen = ChosenFiles({file: dict(everywhere) for file in files})
    chosen.looks |= {wanted: wanted.look() for wanted in chosen.unseen()}
    assert chosen.fault() == ("chat.jsonl", chosen.why("chat.jsonl")) and "no column" in chosen.why("chat.jsonl")
    chosen = ChosenFiles({file: {"use": "pool"} for file in files})
    chosen.looks |= {wanted: wanted.look() for wanted in chosen.unseen()}
    assert chosen.fault() is None
    assert run(*shlex.split(chosen.command()), "--no-encode").code == 0
    assert run(*["index", *files, *DESK, "--no-encode"]).code == 0


def test_a_mapping_that_cannot_be_meant_is_refused(messy: Path, run: Run) -> None:
    twice = run("index", "old.tsv", "--map", "input=text", "--map", "input=code", "--no-encode")
    assert (twice.code, "given twice: text and code" in twice.err) == (2, True)
    nowhere = run("index", "old.tsv", "--map", "new*.tsv::output=code", "--no-encode")
    assert (nowhere.code, "no file matches 'new*.tsv'" in nowhere.err) == (2, True)
    peeked = run("index", "old.tsv", "--map", "new*.tsv::output=code", "--peek")
    assert peeked.code == 2


# outputs that are more than a text


def indexed(run: Run, folder: Path, *rows: Any, name: str = "pool.jsonl", options: tuple[str, ...] = ()) -> Any:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run("index", path, "-w", folder / "w", "--no-encode", "--json", *options)


def test_entities_keep_their_types(tmp_path: Path, run: Run) -> None:
    entities = [{"text": "Bob", "type": "PERSON"}, {"text": "Graz", "type": "CITY"}]
    assert (
        indexed(
            run, tmp_path, {"input": "Bob is in Graz", "entities": entities}, options=("--map", "output=entities")
        ).code
        == 0
    )
    (row,) = run("demos", "-w", tmp_path / "w", "--json").json["demonstrations"]
    assert json.loads(row["output"]) == entities


def test_spans_of_label_studio_keep_their_labels(tmp_path: Path, run: Run) -> None:
    spans = [
        {"start": 0, "end": 3, "text": "Ann", "labels": ["PER"]},
        {"start": 14, "end": 18, "text": "Rome", "labels": ["LOC"]},
    ]
    result = [{"value": span, "type": "labels"} for span in spans]
    task = {"id": 1, "data": {"text": "Ann travels to Rome"}, "annotations": [{"result": result}]}
    assert indexed(run, tmp_path, task).code == 0
    (row,) = run("demos", "-w", tmp_path / "w", "--json").json["demonstrations"]
    assert json.loads(row["output"]) == [
        {"text": "Ann", "type": "PER", "start": 0, "end": 3},
        {"text": "Rome", "type": "LOC", "start": 14, "end": 18},
    ]


def test_several_accepted_answers_stay_answers(tmp_path: Path, run: Run) -> None:
    given = {"input": "where", "answers": [{"text": "Graz", "answer_start": 3}, {"text": "in Graz", "answer_start": 0}]}
    assert indexed(run, tmp_path, given).code == 0
    (row,) = run("demos", "-w", tmp_path / "w", "--json").json["demonstrations"]
    assert row["output"] == "Graz"


@pytest.mark.parametrize(
    "image", ["cat.JPG", "data:image/png;base64,AA==", {"bytes": None, "path": "cat.jpg"}, [{"path": "a.png"}]]
)
def test_rows_with_an_image_are_not_read_without_it(tmp_path: Path, run: Run, image: Any) -> None:
    found = indexed(
        run, tmp_path, {"question": "what is it", "answer": "a cat", "image": image}, {"question": "q", "answer": "a"}
    )
    assert found.json["demonstrations"] == 1
    assert [one["reason"] for one in found.json["skipped"]] == ["an image that would not be read (column image)"]


def test_a_pool_that_would_be_empty_is_refused_and_nothing_changes(tmp_path: Path, run: Run) -> None:
    rows = [{"input": "How many cats are there?", "output": str(i)} for i in range(60)]
    shares = [f"--validation-fraction={share}" for share in (0.2, 0.4, 0.6, 0.8, 0.99)]
    refused = [found for share in shares if (found := indexed(run, tmp_path, *rows, options=(share,))).code]
    assert refused  # rows with one input stay together: one of these shares takes them all
    assert {found.code for found in refused} == {2}
    assert "the pool would be empty: 60 rows in validation" in refused[0].err
    kept = {"input": "one", "output": "1"}
    assert indexed(run, tmp_path, kept, name="kept.jsonl").code == 0


# files that a workspace names


def test_a_workspace_of_a_stranger_has_no_file_of_the_user_read(tmp_path: Path, run: Run) -> None:
    (folder := tmp_path / "theirs").mkdir()
    (secret := tmp_path / "secret.jsonl").write_text('{"input": "my key", "output": "sk-secret"}\n{"input": 3}\n')
    (folder / "pool.jsonl").write_text('{"input": "a", "output": "x"}\n')
    assert run("index", folder / "pool.jsonl", "-w", folder / "w", "--no-encode").code == 0
    names = [str(secret), "../secret.jsonl", "linked.jsonl"]
    (folder / "linked.jsonl").symlink_to(secret)
    for name in names:
        with Workspace.open(folder / "w").write() as con:
            con.execute("UPDATE files SET path = ?", [name])
        refused = run("index", "-w", folder / "w", "--no-encode")
        assert (refused.code, f"outside of its folder: {secret}" in refused.err) == (2, True), refused.err
        with pytest.raises(UsageError, match="outside of its folder"):
            as_in_file(Workspace.open(folder / "w"), Skipped(name, 2, "missing field"))
    assert "sk-secret" not in run("demos", "-w", folder / "w", "--json").out


def test_a_file_outside_that_the_user_has_named_is_read_again_but_not_after_the_workspace_was_moved(
    tmp_path: Path, run: Run
) -> None:
    (folder := tmp_path / "mine").mkdir()
    (pool := tmp_path / "pool.jsonl").write_text('{"input": "a", "output": "x"}\n')
    assert run("index", pool, "-w", folder / "w", "--no-encode").code == 0
    pool.write_text('{"input": "a", "output": "x"}\n{"input": "b", "output": "y"}\n')
    again = run("index", "-w", folder / "w", "--no-encode", "--json")
    assert again.json["demonstrations"] == 2
    folder.rename(tmp_path / "moved")
    moved = run("index", "-w", tmp_path / "moved" / "w", "--no-encode")
    assert (moved.code, str(pool) in moved.err) == (2, True)


LONG = "a" * 999_000
"""A text that may just be."""


def once_for_all(folder: Path, kind: str, rows: int = 64) -> Path:
    """A file that holds one long text once and has it in every row."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([LONG]))
    nested = pa.ListArray.from_arrays(range(rows + 1), texts.cast(pa.large_string()))
    columns = {"arrow": texts, "parquet": texts.cast(pa.large_string()), "nested.parquet": nested}
    table = pa.table({"input": columns[kind], "output": ["x"] * rows})
    path = folder / f"once.{kind}"
    if kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        parquet.write_table(table, path, compression="zstd")
    return path


def batch_sizes(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of a file are Python values at a time."""
    convert, sizes = parquet_format.plain_rows, list[int]()

    def plain_rows(batch: Any) -> list[dict[str, Any] | BadRecord]:
        sizes.append(batch.num_rows)
        return convert(batch)

    monkeypatch.setattr(parquet_format, "plain_rows", plain_rows)
    with open_input(str(path)) as stream:
        assert sum(1 for _ in records(str(path), stream)) == sum(sizes)
    return sizes


@pytest.mark.parametrize("kind", ["parquet", "nested.parquet", "arrow"])
def test_few_rows_of_a_text_that_is_stored_once_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = once_for_all(tmp_path, kind)
    assert path.stat().st_size < 1_100_000
    sizes = batch_sizes(path, monkeypatch)
    assert sum(sizes) == 64 and max(sizes) * len(LONG) <= 1 << 24


@pytest.mark.parametrize("spoilt", [True, False])
def test_a_column_of_parquet_unpacks_to_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: bool) -> None:
    draw = random.Random(0)
    texts = [f"{i}{'a' * 9_999}" if spoilt else draw.randbytes(5_000).hex() for i in range(1_000)]
    path = tmp_path / "bomb.parquet"
    parquet.write_table(
        pa.table({"input": texts, "output": ["x"] * 1_000}), path, compression="zstd", use_dictionary=[]
    )
    monkeypatch.setattr(parquet_format, "UNPACKED", 1 << 20)
    with open_input(str(path)) as stream:
        if not spoilt:
            assert sum(1 for _ in records(str(path), stream)) == 1_000
            return
        with pytest.raises(UsageError, match=r"input unpacks from \d+ kB to 9 MB"):
            list(records(str(path), stream))


def test_a_row_group_is_read_page_by_page(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = pa.table({"input": [draw.randbytes(50_000).hex() for _ in range(100)], "output": ["x"] * 100})
    path = tmp_path / "long.parquet"
    parquet.write_table(rows, path, compression="none", use_dictionary=[], write_batch_size=1)

    class Stream(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1) -> bytes:
            got = super().read(size)
            Stream.largest = max(self.largest, len(got))
            return got

    assert [row["input"] for _, row in records(str(path), Stream(path.read_bytes()))] == rows["input"].to_pylist()  # type: ignore[index]
    assert Stream.largest < 3 << 20 < path.stat().st_size  # a page has a megabyte, the row group ten


def test_long_rows_are_added_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the 250 MiB that DuckDB has here; rows were in it twice before they reached the file."""
    monkeypatch.setattr(workspace, "_memory_mib", lambda: 4 * 250)
    draw, path = random.Random(0), tmp_path / "pool.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(150):
            file.write(json.dumps({"input": draw.randbytes(500_000).hex(), "output": "x"}) + "\n")
    assert dry_run_index(tmp_path / "w", IndexPlan(paths=(str(path),))).added == 150


def test_short_rows_are_read_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "short.parquet"
    parquet.write_table(pa.table({"input": [f"what is {i}" for i in range(600)], "output": ["x"] * 600}), path)
    assert batch_sizes(path, monkeypatch) == [256, 256, 88]


def test_long_rows_are_written_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(40 * (json.dumps({"input": LONG, "output": "x"}) + "\n"))
    (part,) = whole([IndexedFile(str(path), path.name, Reading(None, {}, None, 0, 0), "", ())])
    written: list[int] = []
    read_part(lambda _, rows: written.append(len(rows)), 0, part, lambda _: None, Monitor(lambda _: None))
    assert sum(written) == 40 and max(written) * len(LONG) <= (1 << 25) + len(LONG)


def test_a_file_is_surveyed_until_its_texts_are_long_wherever_they_stand() -> None:
    chat = {"messages": [{"role": "user", "content": LONG}, {"role": "assistant", "content": "x"}]}
    assert len(surveyed((line, chat) for line in range(200))) == 1 + (64 << 20) // len(LONG)
