"""Columns by file and the first of several columns: `--map` with names that hold its own signs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.rows import Mapper, columns_of

TEXTS = ["where is it", "refund please"]


def write(path: Path, input_column: str, output_column: str) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [{input_column: text, output_column: f"label {i}"} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


NAMES = ("a b.jsonl", "year=2024/a.jsonl", "C:\\data\\a.jsonl", "12:30.jsonl", "a::b.jsonl", "a|b.jsonl", "[1].jsonl")
COLUMNS = ("my text", "a=b", "a|b", "x::y", "C:\\text", "a:b")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", NAMES)
def test_files_and_columns_may_hold_the_signs_of_a_mapping(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, column: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name, column, "said")
    (read,) = run("index", name, "--map", f"{name}::input={column}", "--map", "output=said", "--peek", "--json").json[
        "files"
    ]
    assert [row["input"] for row in read["rows"]] == TEXTS
    assert read["fields"] == {"input": column, "output": "said"}


def test_the_very_name_of_a_file_comes_before_a_glob() -> None:
    columns = {"a[1].csv::input": "own", "*.csv::input": "all", "input": "any"}
    assert [columns_of(path, columns)["input"] for path in ("a[1].csv", "a1.csv", "b.tsv")] == ["own", "all", "any"]
    with_glob_first = dict(reversed(columns.items()))
    assert columns_of("a[1].csv", with_glob_first) == {"input": "own"}


def test_a_glob_that_names_no_file_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", "text", "label")
    done = run("index", "a.jsonl", "--map", ".::input=text", "--peek")
    assert (done.code, "no file matches '.' of --map" in done.err) == (2, True)


def rows(record: dict[str, object], **columns: str) -> list[tuple[str, str, dict[str, object]]]:
    mapper = Mapper(columns)
    mapper.survey([record])
    return [(row.input, row.output, json.loads(row.metadata)) for row in mapper.rows(record)]  # type: ignore[union-attr]


def test_the_first_column_that_a_record_has_is_taken() -> None:
    both = {"input": "Message | ticket.text", "output": "intent|label"}
    assert rows({"Message": "m", "intent": "a"}, **both) == [("m", "a", {})]
    assert rows({"ticket": {"text": "t"}, "label": "b"}, **both)[0][:2] == ("t", "b")
    assert rows({"Message": "m", "ticket": {"text": "t"}, "label": "b"}, **both)[0][0] == "m"
    assert rows({"a|b": "own name", "a": "part", "label": "b"}, input="a|b", output="label")[0][0] == "own name"
    assert rows({"x": "1", "y": "2", "label": "b"}, input="{x} | {y}", output="label")[0][0] == "1 | 2"


def test_another_column_of_the_answer_is_no_field_of_the_query() -> None:
    record = {"q": "m", "intent": "a", "code": 7, "team": "t"}
    assert rows(record, input="q", output="intent|code")[0][2] == {"team": "t"}


def test_what_no_record_has_is_told_as_it_was_typed(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", "text", "label")
    done = run("index", "a.jsonl", "--map", "input=body|subject", "--no-encode")
    assert (done.code, "there is no column 'body|subject'" in done.err) == (2, True)


def test_files_with_other_names_for_their_columns_are_one_pool(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "desk.jsonl", "Customer Message", "Intent Label")
    write(tmp_path / "old.jsonl", "body", "code")
    either = ("--map", "input=Customer Message|body", "--map", "output=Intent Label|code")
    assert run("index", "desk.jsonl", "old.jsonl", *either, "--no-encode", "--json").json["added"] == 4


def test_a_mapping_without_a_field_or_a_column_is_refused(run: Run) -> None:
    for pair in ("input", "input=", "=text", "a.csv::input="):
        done = run("index", "a.csv", "--map", pair)
        assert (done.code, "--map takes FIELD=COLUMN" in done.err) == (2, True), pair
    with pytest.raises(UsageError, match="braces around nothing"):
        Mapper({"input": "{}"})
