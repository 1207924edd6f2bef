"""Which files of a folder could be a pool, and how they would be read: quickly, and nothing beyond the folder."""

from __future__ import annotations

import gzip
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from factories.commands import Run
from factories.hostile import HOSTILE
from icl_curate.engine.index import listing
from icl_curate.engine.index.listing import COUNTED, FEW, HEAD, FileHere, files_here, first_look, look, use_of
from icl_curate.engine.index.peek import peek
from icl_curate.engine.pool.display import display_line
from pyarrow import parquet

PAIRS = [(f"where is parcel number {i}", f"label {i % 3}") for i in range(30)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, columns: tuple[str, str] = ("input", "output"), pairs: Sequence[tuple[str, str]] = PAIRS) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(dict(zip(columns, pair, strict=True))) + "\n" for pair in pairs))


def by_path(files: Sequence[FileHere]) -> dict[str, FileHere]:
    return {each.path: each for each in files}


def test_files_are_told_with_their_rows_their_columns_and_their_likely_use(here: Path) -> None:
    write(here / "zendesk export (final).jsonl", ("Customer Message", "Intent Label"))
    write(here / "my-test.jsonl", ("question", "answer"), PAIRS[:8])
    write(here / "dev.jsonl")
    write(here / "numbers.jsonl", ("a", "b"), [("1", "2")] * 4)
    (here / "notes.docx").write_text("no data")
    found = files_here(seconds=60)
    assert [(each.path, each.use) for each in found] == [
        ("zendesk export (final).jsonl", "pool"), ("dev.jsonl", "validation"), ("my-test.jsonl", "test"),
        ("numbers.jsonl", None),
    ]  # fmt: skip
    export, _, test, numbers = (each.look for each in found)
    assert export and (export.rows, export.about) == (30, False)
    assert export.guessed == {"input": "Customer Message", "output": "Intent Label"}
    assert test and test.guessed == {} and test.rows == 8
    assert numbers and not numbers.usable


def test_what_is_looked_into_is_read_as_index_does(here: Path) -> None:
    write(here / "a.jsonl", ("question", "answer"))
    seen = first_look("a.jsonl")
    assert seen and seen.peek == peek("a.jsonl", {}) == look("a.jsonl", {}).peek


def test_a_column_that_was_chosen_is_not_guessed(here: Path) -> None:
    write(here / "a.jsonl", ("message", "team"))
    assert look("a.jsonl", {"input": "message", "output": "team"}).guessed == {}
    assert look("a.jsonl", {"output": "team"}).guessed == {"input": "message"}
    assert look("a.jsonl", {"output": "message"}).guessed == {"input": "team"}
    wrong = look("a.jsonl", {"input": "massage", "output": "team"})
    assert not wrong.usable and wrong.guessed == {}


def test_a_column_whose_name_is_no_mapping_is_not_guessed(here: Path) -> None:
    write(here / "a.jsonl", ("the {message", "team"))
    seen = look("a.jsonl", {})
    assert not seen.usable and seen.guessed == {}


def test_the_folders_of_a_folder_are_patterns(here: Path) -> None:
    for name in ("one", "two"):
        write(here / "pool [a]" / f"{name}.jsonl")
    write(here / "single" / "three.jsonl")
    (here / "single" / "below").mkdir()
    write(here / "single" / "below" / "four.jsonl")
    found = by_path(files_here(seconds=60))
    assert {path: each.files for path, each in found.items()} == {"pool [[]a]/*.jsonl": 2, "single/three.jsonl": 1}
    assert peek("pool [[]a]/*.jsonl", {}).files == 2


def test_many_files_are_one_pattern_beside_those_of_queries(here: Path) -> None:
    for i in range(FEW):
        write(here / f"part-{i:03}.jsonl")
    assert len(files_here(seconds=60)) == FEW
    write(here / "test.jsonl")
    write(here / "table.csv")
    assert {path: each.files for path, each in by_path(files_here(seconds=60)).items()} == {
        "*.jsonl": FEW + 1, "test.jsonl": 1, "table.csv": 1,
    }  # fmt: skip


def test_a_large_file_is_estimated_from_its_first_lines(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "large.jsonl", pairs=[(f"a text of some words {i:08}", "label") for i in range(20_000)])
    assert (here / "large.jsonl").stat().st_size > 4 * HEAD
    read: list[int] = []
    opened = listing.decompressed

    class Counted:
        def __init__(self, stream: object) -> None:
            self.stream = stream

        def read(self, size: int = -1) -> bytes:
            read.append(size)
            return self.stream.read(size)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(listing, "decompressed", lambda path, stream: Counted(opened(path, stream)))
    seen = first_look("large.jsonl")
    assert seen and seen.about and seen.rows and abs(seen.rows - 20_000) < 1_000
    assert read == [HEAD + 1]


def test_a_file_that_would_be_read_whole_is_not_looked_into_if_it_is_large(here: Path) -> None:
    rows = [{"input": f"text {i}", "output": "x" * 1_000} for i in range(2_000)]
    (here / "large.json").write_text(json.dumps(rows))
    (here / "small.json").write_text(json.dumps(rows[:3]))
    (here / "small.json.gz").write_bytes(gzip.compress(json.dumps(rows[:3]).encode()))
    found = by_path(files_here(seconds=60))
    assert found["large.json"].look is None and found["large.json"].size > 1 << 20 and found["large.json"].use is None
    assert found["small.json"].look and found["small.json"].look.rows == 3
    assert found["small.json.gz"].look is None


def test_compressed_lines_and_parquet_are_looked_into(here: Path) -> None:
    write(here / "a.jsonl")
    (here / "a.jsonl.gz").write_bytes(gzip.compress((here / "a.jsonl").read_bytes()))
    table = pa.table({"question": [f"text {i}" for i in range(COUNTED)], "answer": ["x"] * COUNTED})
    parquet.write_table(table, here / "b.parquet")
    found = by_path(files_here(seconds=60))
    assert [found[name].look and found[name].look.rows for name in ("a.jsonl.gz", "b.parquet")] == [30, COUNTED]


def test_a_line_without_an_end_is_not_looked_into(here: Path) -> None:
    (here / "a.jsonl").write_text('{"input": "' + "x" * 2 * HEAD)
    (here / "b.csv").write_text("x" * 2 * HEAD)
    assert [each.look for each in files_here(seconds=60)] == [None, None]


def test_after_the_time_there_are_names_and_sizes_alone(here: Path) -> None:
    write(here / "a.jsonl")
    assert [(each.path, each.size > 0, each.look) for each in files_here(seconds=0)] == [("a.jsonl", True, None)]


def test_links_pipes_and_hidden_files_are_left_alone(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    write(outside / "secret.jsonl")
    (here / "link.jsonl").symlink_to(outside / "secret.jsonl")
    (here / "folder").symlink_to(outside)
    os.mkfifo(here / "pipe.jsonl")
    write(here / ".hidden.jsonl")
    write(here / ".venv" / "a.jsonl")
    assert files_here(seconds=60) == []


def test_broken_files_say_why(here: Path) -> None:
    (here / "empty.csv").write_text("")
    (here / "bytes.csv").write_bytes(bytes(range(256)) * 40)
    (here / "bytes.parquet").write_bytes(bytes(range(256)) * 40)
    found = by_path(files_here(seconds=60))
    assert "empty.csv has no header row" in found["empty.csv"].why
    assert "not a Parquet file" in found["bytes.parquet"].why
    assert {each.use for each in found.values()} == {None}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads all files")
def test_a_file_of_somebody_else_says_so(here: Path) -> None:
    write(here / "a.jsonl")
    (here / "a.jsonl").chmod(0)
    assert "cannot be read" in files_here(seconds=60)[0].why


def test_hostile_names_are_left_out_and_hostile_texts_are_read(here: Path) -> None:
    for i, text in enumerate(HOSTILE.values()):
        name = f"{i} {text[:40]}.jsonl".translate({ord("/"): None, 0: None}).encode(errors="ignore").decode()
        (here / name).write_text(json.dumps({"input": text, "output": "x"}) * 2)
    write(here / "-x.csv")
    write(here / "sql:a.csv")
    plain = {path.name for path in here.glob("*.jsonl") if display_line(path.name) == path.name}
    assert 0 < len(plain) < len(HOSTILE) // 2
    assert {each.path for each in files_here(seconds=60)} == {"./-x.csv", "./sql:a.csv", *plain}


def test_a_folder_that_cannot_be_read_has_no_files(here: Path) -> None:
    assert files_here(str(here / "none"), seconds=60) == []


def test_what_a_file_is_for_is_told_by_the_words_of_its_name() -> None:
    names = ("latest.csv", "my_Test.v2.csv", "dev-set.jsonl", "test/a.csv", "questions.csv", "train.csv")
    assert [use_of(name) for name in names] == ["pool", "test", "validation", "pool", "test", "pool"]


def test_the_command_lists_the_files_as_the_first_screen_does(here: Path, run: Run) -> None:
    assert "no file here that could be read" in run("index", "--peek").out
    write(here / "tickets.jsonl", ("Customer Message", "Intent Label"))
    write(here / "test.jsonl", pairs=PAIRS[:8])
    told = run("index", "--peek").out.splitlines()
    options = ["--map", "input=Customer Message", "--map", "output=Intent Label"]
    assert shlex.split(told[1])[:6] == ["tickets.jsonl", "30", *options], "what index needs, as it does not guess"
    assert run("index", "tickets.jsonl", *options, "--dry-run").code == 0
    assert "where is parcel number 0 → label 0" in told[1]
    listed = run("index", "--peek", "--json").json["files"]
    assert [(each["path"], each["use"], each["rows"]) for each in listed] == [
        (each.path, each.use, each.look and each.look.rows) for each in files_here(seconds=60)
    ]
    assert set(listed[0]) == {"path", "size", "files", "use", "why", "rows", "about", "fields", "guessed"}
    assert listed[0]["guessed"] == {"input": "Customer Message", "output": "Intent Label"}
    assert not (here / ".icl-curate").exists()
