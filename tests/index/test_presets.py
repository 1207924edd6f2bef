"""Files as other tools write them, read as the demonstrations they mean."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index import files
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.readers.files import expand
from icl_curate.engine.index.readers.formats import Records, records
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import Mapper, Row
from icl_curate.engine.pool.records import Demonstration
from icl_curate.engine.store.demonstrations import active_rows, fetch, queries
from icl_curate.engine.store.workspace import Workspace


def read(path: Path, columns: dict[str, str] | None = None) -> list[Row | BadRecord]:
    mapper = Mapper(columns or {})
    with path.open("rb") as stream:
        written = Records(str(path), stream)
        found = [record for _, record in written]
        mapper.survey([record for record in found if not isinstance(record, BadRecord)], written.kinds())
    return [row for each in found for row in ([each] if isinstance(each, BadRecord) else mapper.rows(each))]


def pairs(path: Path, columns: dict[str, str] | None = None) -> list[tuple[str, str]]:
    rows = read(path, columns)
    return [(row.input, row.output) if isinstance(row, Row) else ("", row.reason) for row in rows]


def task(text: str, *choices: str, **more: Any) -> dict[str, Any]:
    result = [{"from_name": "l", "to_name": "t", "type": "choices", "value": {"choices": list(choices)}}]
    return {"id": 7, "data": {"text": text}, "annotations": [{"result": result, "was_cancelled": False}], **more}


def answered(text: str, *values: object, status: str = "submitted") -> dict[str, Any]:
    given = [{"value": value, "user_id": str(i), "status": status} for i, value in enumerate(values)]
    return {
        "id": text,
        "fields": {"text": text},
        "responses": {"label": given},
        "suggestions": {},
        "metadata": {"n": 1},
    }


SQUAD = {
    "version": "1.1",
    "data": [
        {"title": "T", "paragraphs": [{"context": "c", "qas": [
            {"id": "a", "question": "q1", "answers": [{"text": "x", "answer_start": 0}, {"text": "y"}]},
            {"id": "b", "question": "q2", "answers": [{"text": "z", "answer_start": 1}]},
        ]}]}
    ],
}  # fmt: skip
CSQA = {
    "answerKey": "B", "id": "i",
    "question": {"stem": "q", "choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]},
}  # fmt: skip
PROGRAM = {
    "predict": {"demos": [{"augmented": True, "question": "q", "reasoning": "r", "answer": "a"}], "signature": {}},
    "metadata": {"dependency_versions": {}},
}


ASKED, SAID = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("name", "written", "wanted"),
    [
        ("label studio", [task("t", "pos"), task("u", "neg", "sad")], [("t", "pos"), ("u", "neg, sad")]),
        ("label studio", [task("t", annotations=[])], [("", "the task has no annotation")]),
        (
            "label studio",
            [task("t", annotations=[{"result": [{"value": {"start": 0, "labels": ["PER"]}}]}])],
            [("", "the annotation has no choice and no text")],
        ),
        (
            "label studio, small",
            [{"text": "t", "id": 1, "mood": "pos", "annotator": 1, "annotation_id": 2, "lead_time": 3.0}],
            [("t", "pos")],
        ),
        ("argilla", [answered("t", "pos", "neg", "neg"), answered("u", "pos")], [("t", "neg"), ("u", "pos")]),
        ("argilla", [answered("t", "pos", status="discarded")], [("", "the record has no response")]),
        ("argilla", [answered("t", ["a", "b"]), answered("u", [])], [("t", "a, b"), ("u", "none")]),
        ("langsmith", [{"id": "1", "inputs": {"question": "q"}, "outputs": {"answer": "a"}}], [("q", "a")]),
        ("langsmith", [{"inputs": {"topic": "q"}, "outputs": {"whatever": "a"}}], [("q", "a")]),
        *(
            ("langsmith, messages", [{"inputs": {"messages": [ASKED]}, "outputs": outputs}], [("q", "a")])
            for outputs in ({"answer": "a"}, {"message": SAID}, SAID, {"messages": [SAID]}, {"messages": [ASKED, SAID]})
        ),
        ("langfuse", [{"id": "1", "input": {"q": "x"}, "expectedOutput": "a", "metadata": {}}], [("x", "a")]),
        ("langfuse", [{"input": "x", "expectedOutput": {"city": "Ulm"}}], [("x", "Ulm")]),
        ("langfuse, with a run's output", [{"input": "x", "expectedOutput": "a", "output": "b"}], [("x", "a")]),
        (
            "promptfoo",
            {"prompts": ["{{q}}"], "providers": ["x"], "tests": [
                {"vars": {"q": "x"}, "assert": [{"type": "latency", "threshold": 5}, {"type": "equals", "value": "a"}]},
                {"vars": {"q": "y"}, "assert": [{"type": "is-json"}]},
            ]},
            [("x", "a"), ("", "the test asserts no answer (equals, icontains, contains, …)")],
        ),
        ("squad", SQUAD, [("q1", "x"), ("q2", "z")]),
        ("csqa", [CSQA], [("q", "y")]),
        ("dspy", PROGRAM, [("q", "a")]),
        ("preferences", [{"prompt": "q", "chosen": "a", "rejected": "b"}], [("q", "a")]),
        ("two plain columns", [{"inputs": "q", "outputs": "a"}], [("q", "a")]),
        ("data as a text", [{"data": "d", "question": "q", "answer": "a"}], [("q", "a")]),
    ],
)  # fmt: skip
def test_what_other_tools_write(name: str, written: Any, wanted: list[tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps(written, indent=1))
    assert pairs(tmp_path / "f.json") == wanted
    if isinstance(written, list):
        (tmp_path / "f.jsonl").write_text("".join(json.dumps(record) + "\n" for record in written))
        assert pairs(tmp_path / "f.jsonl") == wanted


@pytest.mark.parametrize(
    "odd",
    [
        {"data": {"text": "x"}, "annotations": [{"result": 5}]},
        {"data": [{"paragraphs": []}, "x"]},
        {"data": [{"paragraphs": [{"qas": "abc"}]}]},
        {
            "data": {},
            "annotations": [{"result": [{"value": {"start": {"a": i}, "end": 2, "labels": ["A"]}} for i in (1, 2)]}],
        },
    ],
)
def test_a_record_with_the_keys_of_a_tool_and_other_values_is_one_bad_record(odd: Any, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (odd, {"input": "q", "output": "a"})))
    first, second = read(tmp_path / "f.jsonl")
    assert isinstance(first, BadRecord) and isinstance(second, Row)


@pytest.mark.parametrize(
    "asked",
    [
        {"input": "q", "expectedOutput": "a"},
        {"input": {"question": "q"}, "expectedOutput": {"answer": "a"}},
        {"inputs": {"question": "q"}, "outputs": {"answer": "a"}},
    ],
)
def test_the_other_columns_of_inputs_and_outputs_are_read_as_anywhere(asked: Any, tmp_path: Path) -> None:
    beside = {"source": "crowd", "context": "c", "option_a": "a", "option_b": "b", "created": "2020"}
    (tmp_path / "f.jsonl").write_text(json.dumps({**asked, **beside}) + "\n")
    [row] = read(tmp_path / "f.jsonl")
    assert isinstance(row, Row)
    assert (row.input, row.output, row.source, row.context, row.options) == ("q", "a", "crowd", "c", ["a", "b"])
    assert json.loads(row.metadata) == {"created": "2020"}


def test_what_a_shape_holds_besides_is_kept(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps(SQUAD))
    first = read(tmp_path / "f.json")[0]
    assert isinstance(first, Row)
    assert (first.id, first.context, first.answers, json.loads(first.metadata)) == ("a", "c", ["y"], {"title": "T"})
    (tmp_path / "g.json").write_text(json.dumps(PROGRAM))
    (demo,) = read(tmp_path / "g.json")
    assert isinstance(demo, Row) and json.loads(demo.metadata) == {"reasoning": "r"}


def test_a_path_leads_into_objects_and_lists(tmp_path: Path) -> None:
    record = {"translation": {"en": "good day", "de": "guten Tag"}, "meta": [{"who": "w"}]}
    (tmp_path / "f.jsonl").write_text(json.dumps(record))
    columns = {"input": "translation.en", "output": "translation.de", "source": "meta.0.who"}
    (row,) = read(tmp_path / "f.jsonl", columns)
    assert isinstance(row, Row)
    assert (row.input, row.output, row.source) == ("good day", "guten Tag", "w")
    ((_, reason),) = pairs(tmp_path / "f.jsonl", {"input": "translation.fr", "output": "translation.de"})
    assert "no column 'translation.fr'" in reason


ROWS = [{"question": "q", "answer": "a", "n": 1}, {"question": "r", "answer": "b", "n": 2}]


@pytest.mark.parametrize("text", [
    "- {question: q, answer: a, n: 1}\n- question: r\n  answer: b\n  n: 2\n",
    "question: q\nanswer: a\nn: 1\n---\nquestion: r\nanswer: b\nn: 2\n",
])  # fmt: skip
def test_yaml(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "f.yaml").write_text(text)
    assert pairs(path) == [("q", "a"), ("r", "b")]
    with path.open("rb") as stream:
        lines = [line for line, _ in records(str(path), stream)]
    assert lines == [1, text.splitlines().index(next(line for line in text.splitlines() if "r" in line.split())) + 1]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_zstandard(suffix: str, tmp_path: Path) -> None:
    plain = {
        ".jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
        ".csv": "question;answer\nq;a\nr;b\n",
    }[suffix]
    path = tmp_path / f"f{suffix}.zst"
    path.write_bytes(pa.Codec("zstd").compress(plain.encode(), asbytes=True))
    assert pairs(path) == [("q", "a"), ("r", "b")]
    assert index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(path),))).demonstrations == 2


def test_the_separator_that_excel_names(tmp_path: Path) -> None:
    (path := tmp_path / "f.csv").write_text("\ufeffsep=|\r\nquestion|answer\r\nq, with; both|a\r\n", encoding="utf-8")
    with path.open("rb") as stream:
        assert [(line, row) for line, row in records(str(path), stream)] == [
            (3, {"question": "q, with; both", "answer": "a"})
        ]


def test_one_long_line_counts_its_records(tmp_path: Path) -> None:
    (path := tmp_path / "f.json").write_text(json.dumps(ROWS))
    with path.open("rb") as stream:
        assert [line for line, _ in records(str(path), stream)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"question": "q", "answer": "a"}, {"question": ]', "element 2: not JSON"),
        ('[{"question": "q", "answer": "a"} {"a": 1}]', "element 2: not JSON: expected ','"),
        ('[{"question": "q", "answer": "a"},', "never ends .element 2."),
        ('[{"question": "q", "answer": "a"},\n{"question": ]', "line 2: not JSON"),
    ],
)
def test_an_error_in_an_array_names_its_place(text: str, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "f.json").write_text(text)
    with path.open("rb") as stream, pytest.raises(UsageError, match=said):
        list(records(str(path), stream))


def test_objects_by_id_in_one_line_are_counted(tmp_path: Path) -> None:
    (path := tmp_path / "f.json").write_text(json.dumps({"x": ROWS[0], "y": ROWS[1]}))
    with path.open("rb") as stream:
        assert [line for line, _ in records(str(path), stream)] == [1, 2]


def test_a_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for cells in ([], ["question", "answer", None, "n"], ["q", "a", "x", 1], [None] * 4, ["r", 7, None, 2]):
        book.active.append(cells)
    book.save(path := tmp_path / "f.xlsx")
    assert pairs(path) == [("q", "a"), ("r", "7")]


@pytest.mark.parametrize("damage", ["sheet", "workbook", "cell", "password", "charts"])
def test_a_damaged_workbook_is_told_in_one_line(damage: str, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["input", "output"])
    book.active.append(["q", "a"])
    if damage == "charts":
        book.create_chartsheet()
        book.remove(book.active)
    book.save(whole := io.BytesIO())
    with ZipFile(whole) as parts, ZipFile(path := tmp_path / "f.xlsx", "w") as damaged:
        for part in parts.infolist():
            data = parts.read(part)
            if f"{damage}.xml" in part.filename or f"{damage}1.xml" in part.filename:
                data = data[: len(data) // 2]
            damaged.writestr(part.filename, data.replace(b'r="A2"', b'r="ZZZZZZ2"') if damage == "cell" else data)
    if damage == "password":  # the flag of each part, where it stands and where it is listed
        flagged = bytearray(path.read_bytes())
        for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            for found in re.finditer(mark, bytes(flagged)):
                flagged[found.start() + at] |= 1
        path.write_bytes(flagged)
    with pytest.raises(UsageError, match=r"f\.xlsx is damaged, encrypted or not an Excel workbook"):
        read(path)


def test_two_columns_of_a_workbook_with_one_name(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for cells in (["question", None, "answer", "question"], ["q", "x", "a", "other"]):
        book.active.append(cells)
    book.save(path := tmp_path / "f.xlsx")
    with path.open("rb") as stream:
        assert [one for _, one in records(str(path), stream)] == [
            {"question": "q", "answer": "a", "question (2)": "other"}
        ]


def test_a_folder_of_the_datasets_library(tmp_path: Path) -> None:
    """Arrow streams and the library's own marks, written here without it."""
    folder = tmp_path / "reviews"
    named = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": named}
    for split, texts in (("train", ["a", "b"]), ("validation", ["c"])):
        (folder / split).mkdir(parents=True)
        (folder / split / "state.json").write_text("{}")
        table = pa.table({"text": texts, "label": [1, 0][: len(texts)]})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        file = folder / split / "data-00000-of-00001.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    assert len(expand([str(folder)])[0]) == 2
    workspace = Workspace.create(tmp_path / "w")
    report = index_pool(workspace, IndexPlan(paths=(str(folder),)))
    assert (report.demonstrations, report.validation) == (2, 1)
    shown = [(d.input, d.output, d.source) for d in _pool(workspace)]
    assert shown == [("a", "pos", "reviews"), ("b", "neg", "reviews")]
    assert [query.answers for query in queries(workspace, "validation")] == [("pos",)]
    assert index_pool(workspace, IndexPlan()).unchanged_files == 2


@pytest.mark.parametrize(
    ("card", "split"), [("---\nlicense: mit\n---\n", (2, 1)), ("# My project\n", None), (None, None)]
)
def test_a_folder_as_the_hub_has_them(tmp_path: Path, card: str | None, split: tuple[int, int] | None) -> None:
    """Only beside a card do names of files tell splits: elsewhere `data/*.parquet` may all be a pool."""
    (tmp_path / "reviews" / "data").mkdir(parents=True)
    if card:
        (tmp_path / "reviews" / "README.md").write_text(card)
    for name, texts in (
        ("train-00000-of-00002", ["a"]),
        ("train-00001-of-00002", ["b"]),
        ("test-00000-of-00001", ["c"]),
    ):
        table = pa.table({"text": texts, "label": ["pos"]})
        pq.write_table(table, tmp_path / "reviews" / "data" / f"{name}.parquet")
    workspace = Workspace.create(tmp_path / "w")
    if split is None:
        with pytest.raises(UsageError, match="reviews is a directory"):
            index_pool(workspace, IndexPlan(paths=(str(tmp_path / "reviews"),), encoder=None))
        for name in "abc":  # which are no rows
            (tmp_path / "reviews" / "data" / f"{name}.safetensors").touch()
        with pytest.raises(UsageError, match="data is a directory") as refused:
            index_pool(workspace, IndexPlan(paths=(str(tmp_path / "reviews" / "data"),), encoder=None))
        assert refused.value.fix.endswith("data/*.parquet'"), "what its files end in"
    report = index_pool(workspace, IndexPlan(paths=(str(tmp_path / "reviews/data/*.parquet"),), encoder=None))
    assert (report.demonstrations, report.test) == (split or (3, 0))
    if split:
        report = index_pool(workspace, IndexPlan(paths=(str(tmp_path / "reviews"),), encoder=None))
        assert (report.unchanged_files, report.demonstrations, report.test) == (3, 2, 1)


def _pool(workspace: Workspace) -> list[Demonstration]:
    return fetch(workspace, active_rows(workspace))


def test_a_name_on_the_hub_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match="needs datasets, which is not installed") as caught:
        list(files.download(tmp_path, ["hf://org/name"]))
    assert "icl-curate-core[hub]" in caught.value.fix
    assert list(files.download(tmp_path, ["a.jsonl"])) == ["a.jsonl"]


def test_a_data_set_by_its_name(tmp_path: Path) -> None:
    """The real library, on a local data set: no hub is needed for that."""
    pytest.importorskip("datasets")
    data = tmp_path / "org" / "reviews"
    data.mkdir(parents=True)
    for split, rows in (("train", ROWS), ("test", ROWS[:1])):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    report = index_pool(workspace, IndexPlan(paths=(f"hf://{data}",)))
    assert (report.demonstrations, report.test) == (2, 1)
    assert {row.source for row in _pool(workspace)} == {"train"}
    assert index_pool(workspace, IndexPlan()).unchanged_files == 2  # without the hub
    with pytest.raises(UsageError, match="nosuch"):
        index_pool(workspace, IndexPlan(paths=(f"hf://{data}:nosuch",)))


def test_nothing_of_it_is_imported_for_a_plain_file() -> None:
    code = (
        "import sys\nfrom icl_curate.engine.index.readers.formats import records\n"
        "import icl_curate.engine.index.files\n"
        "assert not {'yaml', 'openpyxl', 'datasets', 'pandas'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
