"""What `index` says of files before it stores anything, against files whose meaning is known."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.peek import Peek, peek, peek_plan
from icl_curate.engine.index.staging import COLUMNS, MOST_TOLD
from icl_curate.engine.store.workspace import Workspace


def written(path: Path, *records: object) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return str(path)


def looked(path: Path, *records: object) -> Peek:
    return peek(written(path, *records), {})


def test_which_column_is_what_and_what_is_left(tmp_path: Path) -> None:
    found = looked(tmp_path / "p.jsonl", {"question": "q?", "choices": ["1", "2", "3"], "answer": 2, "lang": "en"})
    told = found.understood
    assert told.fields == {"input": "question", "options": "choices", "output": "answer"}
    assert (told.others, told.numbers, found.rows[0].row and found.rows[0].row.output) == (("lang",), "from 0", "3")
    assert told.notes == ("numbers among the answers are places of options, counted from 0",)
    assert "output ← answer" in told.line and told.line.endswith("; fields: lang")


def test_options_in_columns_and_instructions(tmp_path: Path) -> None:
    several = {"question": "q?", "A": "x", "B": "y", "answer": "B"}
    assert looked(tmp_path / "a.jsonl", several).understood.fields["options"] == "A, B"
    alpaca = looked(tmp_path / "b.jsonl", {"instruction": "Add", "input": "1 1", "output": "2"})
    assert (alpaca.understood.shape, alpaca.understood.fields["instruction"]) == ("Alpaca", "instruction")


@pytest.mark.parametrize(
    ("record", "shape"),
    [
        (
            {"id": 1, "data": {"text": "t"}, "annotations": [{"result": [{"value": {"choices": ["x"]}}]}]},
            "Label Studio",
        ),
        ({"vars": {"q": "t"}, "assert": [{"type": "equals", "value": "x"}]}, "promptfoo"),
        ({"messages": [{"role": "user", "content": "t"}, {"role": "assistant", "content": "x"}]}, "conversations"),
        ({"prompt": [{"role": "user", "content": "t"}], "completion": "x"}, "conversations"),
        ({"text": "t", "label": "x"}, ""),
    ],
)
def test_the_shape_that_was_recognised(record: dict[str, object], shape: str, tmp_path: Path) -> None:
    found = looked(tmp_path / "p.jsonl", record)
    assert found.understood.shape == shape
    assert found.rows[0].row is not None and found.rows[0].row[1:3] == ("t", "x")


def test_names_of_labels_come_from_the_schema(tmp_path: Path) -> None:
    table = pa.table({"sentence": ["good", "bad"] * 3, "label": [1, 0] * 3})
    features = {"info": {"features": {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "p.parquet")
    found = peek(str(tmp_path / "p.parquet"), {})
    assert found.understood.labels == {"label": ("negative", "positive")}
    assert found.understood.notes == ("labels of label: 0 negative, 1 positive",)
    assert found.warnings == () and [each.row and each.row.output for each in found.rows][:2] == [
        "positive",
        "negative",
    ]


@pytest.mark.parametrize(
    ("labels", "warned"),
    [([0, 1, 2], True), ([1, 2], True), ([-1, 0, 1], True), ([1, 3], False), ([5, 6], False), (["0", "x"], False)],
)
def test_labels_without_names_are_warned_of_as_by_index(labels: list[object], warned: bool, tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "label": labels[n % len(labels)]} for n in range(12)]
    path = written(tmp_path / "p.jsonl", *rows)
    found = peek(path, {}).warnings
    assert bool(found) == warned
    done = index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(path,)))
    assert [text.partition(": ")[2] for text in done.warnings] == [text.partition(": ")[2] for text in found]
    assert peek(path, {}, labels=("a", "b", "c", *"defgh")).warnings == ()


def test_the_command_stores_nothing(tmp_path: Path, run: Run) -> None:
    pool = written(tmp_path / "p.jsonl", {"text": "t\x1b[2J", "label": "x"}, {"text": ""})
    done = run("index", pool, "--validation", pool, "--peek", "-w", tmp_path / "w")
    assert done.code == 0 and not (tmp_path / "w").exists()
    assert done.out.count("input ← text, output ← label") == 2 and "\x1b[2J" not in done.out
    assert "1 of the first 2 rows cannot be used" in done.out
    told = run("index", pool, "--peek", "--json").json["files"]
    assert [each["fields"] for each in told] == [{"input": "text", "output": "label"}]
    assert [(row["line"], row["reason"]) for row in told[0]["rows"]] == [
        (1, ""),
        (2, "empty input"),
    ]
    with pytest.raises(UsageError, match="no file to look at"):
        peek_plan(IndexPlan())


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    image = [{"type": "image_url", "image_url": {"url": "u"}}]
    turns = [{"role": "user", "content": image}, {"role": "assistant", "content": "x"}]
    for path, fix in (
        (written(tmp_path / "i.jsonl", {"messages": turns}), "--peek"),
        (written(tmp_path / "t.jsonl", {"a": 1}), "--map"),
        ("ftp://host.example/p.jsonl", "download it first"),
    ):
        with pytest.raises(UsageError) as caught:
            index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(path,)))
        assert fix in caught.value.fix


def test_index_says_once_how_alike_files_were_understood(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{n}.jsonl", {"text": f"t{n}", "label": "x"}) for n in range(3)]
    paths += [
        written(tmp_path / f"o{n}.jsonl", {"q": 1, "question": f"q{n}", "answer": "x", f"c{n}": 1}) for n in range(9)
    ]
    events: list[Event] = []
    done = index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=tuple(paths)), Monitor(events.append))
    assert [Path(each.path).name for each in done.readings] == ["0.jsonl", *(f"o{n}.jsonl" for n in range(9))]
    told = [event.note for event in events if event.task == COLUMNS]
    assert len(told) == MOST_TOLD and told[0] == f"{paths[0]}: input ← text, output ← label"
    assert type(done).from_json(done.as_json()) == done


def test_a_first_record_of_another_kind_hides_no_column(tmp_path: Path) -> None:
    found = looked(tmp_path / "p.jsonl", {"version": 3}, *({"question": f"q{i}", "answer": "a"} for i in range(2)))
    assert (found.understood.fields, found.bad) == ({"input": "question", "output": "answer"}, 1)


def test_of_the_files_of_a_pattern_one_of_each_kind_is_shown(tmp_path: Path) -> None:
    for name, record in {"a": {"x": "what is it", "y": "r"}, "b": {"text": "who is it", "label": "u"}}.items():
        for i in range(2):
            written(tmp_path / f"{name}{i}.jsonl", record)
    plan = IndexPlan(paths=(str(tmp_path / "*.jsonl"),), columns={"input": "x", "output": "y"})
    files = peek_plan(plan).files
    assert [(Path(file.path).name, file.files) for file in files] == [("a0.jsonl", 2), ("b0.jsonl", 2)]
    assert "--map b0.jsonl::input=text --map b0.jsonl::output=label" in files[1].understood.notes[0]
