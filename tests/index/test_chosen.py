"""Files chosen one by one: what is taken unasked, what is doubtful, and the command that says the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from factories.commands import Run
from icl_curate.engine.index.chosen import SHARED, ChosenFiles, Draft
from icl_curate.engine.index.listing import files_here

PAIRS = [(f"where is parcel number {i}", f"label {i % 3}") for i in range(40)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *columns: str, rows: int = 40) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    records = [dict(zip(columns, pair, strict=True)) for pair in PAIRS[:rows]]
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))


def chosen(draft: Draft | None = None) -> ChosenFiles:
    """The files here with what was changed, all of them looked into."""
    files = ChosenFiles(draft if draft is not None else {}, files_here(seconds=60))
    files.looks |= {wanted: wanted.look() for wanted in files.unseen()}
    return files


def test_without_a_choice_all_files_are_used_as_they_are_likely_meant(here: Path, run: Run) -> None:
    write("desk export.jsonl", "Customer Message", "Intent Label")
    write("chats.jsonl", "question", "answer")
    write("questions.jsonl", "question", "answer", rows=9)
    files = chosen()
    assert files.fault() is None
    assert files.command() == (
        "index chats.jsonl 'desk export.jsonl' --validation-fraction 0.1 --test questions.jsonl "
        "--map 'desk export.jsonl::input=Customer Message' --map 'desk export.jsonl::output=Intent Label'"
    )
    assert run(*shlex.split(files.command()), "--no-encode", "--json").json["test"] == 9


def test_a_name_that_looks_like_an_option_stays_a_file(here: Path) -> None:
    write("--engine=ray.jsonl", "question", "answer")
    assert chosen({"--engine=ray.jsonl": {"use": "pool"}}).command().startswith("index ./--engine=ray.jsonl ")


def test_what_is_held_out_follows_the_files(here: Path) -> None:
    write("a.jsonl", "question", "answer")
    write("b.jsonl", "question", "answer")
    held: Mapping[str, dict[str, str]] = {
        "": {"validation": "0.1", "test": "0.1"}, "test": {"validation": "0.1"}, "validation": {},
    }  # fmt: skip
    assert {use: chosen({"b.jsonl": {"use": use}}).shares for use in held} == held
    typed = chosen({SHARED: {"validation": "0", "test": "0.3"}})
    assert typed.shares == {"test": "0.3"} and typed.command().endswith("b.jsonl --test-fraction 0.3")
    for wrong in ("1", "many", "nan", "-1"):
        assert "shares are above 0" in chosen({SHARED: {"test": wrong}}).fault()[1]


def test_a_column_that_all_files_share_is_named_once(here: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(name, "ticket", "team")
    assert chosen().command().endswith("--test-fraction 0.1 --map input=ticket --map output=team")
    other = chosen({"b.jsonl": {"input": "ticket", "output": "ticket"}}).command()
    assert "--map input=ticket" in other and "--map a.jsonl::output=team --map b.jsonl::output=ticket" in other


@pytest.mark.parametrize("name", ["a b.jsonl", "x=1/a.jsonl", "a[1].jsonl", "it's.jsonl", "-a.jsonl", "C:\\a|b.jsonl"])
def test_the_command_reads_each_file_with_its_own_columns(here: Path, run: Run, name: str) -> None:
    write(name, "my text", "a=b")
    write("a1.jsonl", "question", "answer")
    files = chosen()
    assert files.fault() is None
    done = run(*shlex.split(files.command()), "--no-encode", "--json")
    assert done.code == 0, done.err
    assert (done.json["skipped"], done.json["added"]) == ([], 80)


def test_a_fault_stands_at_its_file_and_only_what_is_used_has_to_be_right(here: Path) -> None:
    write("a.jsonl", "question", "answer")
    Path("b.jsonl").write_text('{"a": 1, "b": 2}\n' * 4)
    files = chosen()
    assert files.use("b.jsonl") == "" and files.fault() is None
    files = chosen({"b.jsonl": {"use": "pool"}})
    assert files.fault() == ("b.jsonl", files.why("b.jsonl")) and "2 to choose from" in files.why("b.jsonl")
    assert chosen({"none.csv": {"use": "test"}}).fault()[0] == "none.csv"
    assert chosen({"a.jsonl": {"use": "test"}}).fault() == (SHARED, "no file is for the pool")
    files = chosen({"a.jsonl": {"source": "who"}})
    assert files.fault() is None and "no column 'who' for the source" in files.doubts("a.jsonl")


def test_a_table_without_column_names_is_told_to_get_some(here: Path, run: Run) -> None:
    rows = "I loved this film,positive\nIt was a waste of time,negative\nA great cast,positive\n"
    Path("a.csv").write_text(rows)
    refused = run("index", "a.csv", "-w", "w", "--no-encode")
    told = "if line 1 is a row, put column names above it: input,output"
    assert f"fix: {told}; else map its columns: --map 'a.csv::input=I loved this film'" in refused.err
    assert told in run("index", "a.csv", "--peek").out
    files = chosen()
    assert [*files.doubts("a.csv")] == [f"input and output guessed from what the columns hold; {told}"]
    Path("a.csv").write_text(f"input,output\n{rows}")
    assert run("index", "a.csv", "-w", "w", "--no-encode", "--json").json["demonstrations"] == 3
    assert not [*chosen().doubts("a.csv")]


def test_a_line_that_cannot_be_read_is_told_with_what_it_is(here: Path) -> None:
    write("a.jsonl", "question", "answer")
    with Path("a.jsonl").open("a") as file:
        file.write('{"question": ""}\nnot json\n')
    files = chosen()
    assert list(files.doubts("a.jsonl")) == ["line 41: empty input, skipped, 1 more"]


def test_labels_given_as_numbers_are_named(here: Path) -> None:
    Path("a.csv").write_text("input,output\n" + "".join(f"text {i},{i % 2}\n" for i in range(40)))
    assert "if they stand for labels" in "".join(chosen().doubts("a.csv"))
    named = chosen({SHARED: {"labels": "very bad, good"}})
    assert [row.row and row.row.output for row in named.seen("a.csv").peek.rows] == ["very bad", "good", "very bad"]
    assert named.command().endswith(" --labels 'very bad,good'") and not [*named.doubts("a.csv")]


def test_a_draft_of_somebody_else_changes_nothing_it_cannot(here: Path) -> None:
    write("a.jsonl", "question", "answer")
    files = chosen({"a.jsonl": {"use": "everything", "odd": "x"}, "gone.csv": {"use": ""}})
    assert files.use("a.jsonl") == "pool" and files.paths == ["a.jsonl", "gone.csv"] and files.fault() is None


def test_a_file_whose_column_is_chosen_is_used(here: Path) -> None:
    Path("dev.jsonl").write_text('{"a": 1, "b": 2}\n' * 4)
    write("a.jsonl", "question", "answer")
    files = chosen()
    files.change("dev.jsonl", "output", "a")
    files.looks |= {wanted: wanted.look() for wanted in files.unseen()}
    assert files.use("dev.jsonl") == "validation"
    assert files.why("dev.jsonl") == "no column is the input, 2 to choose from"
    files.change("dev.jsonl", "use", "")
    assert files.use("dev.jsonl") == ""
