"""Files of every format read back as they were written, and every fault told with its line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers.files import expand, open_input
from icl_curate.engine.index.readers.formats import records
from icl_curate.engine.index.readers.records import BadRecord, parse_list

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=30)
ROWS = st.lists(st.fixed_dictionaries({"input": TEXT, "output": TEXT, "note": TEXT}), min_size=1, max_size=12)


def read(path: Path) -> list[tuple[int, Any]]:
    with open_input(str(path)) as stream:
        return list(records(str(path), stream))


def write(path: Path, rows: list[dict[str, str]], encoding: str = "utf-8") -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix in {".csv", ".tsv"}:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(
            text, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",", quoting=csv.QUOTE_ALL
        )
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(text.getvalue().encode(encoding))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding, newline="\n")
    else:
        path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(encoding))


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "tsv", "parquet"])
@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, suffix: str, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("r") / f"pool.{suffix}"
    write(path, rows)
    found = read(path)
    assert [record for _, record in found] == rows
    lines = [line for line, _ in found]
    assert lines == sorted(set(lines))


def test_cells_with_line_breaks_that_look_like_rows_when_put_together(tmp_path: Path) -> None:
    rows = [{"input": "\n0", "output": "\n", "note": "\n"}]
    write(tmp_path / "f.csv", rows)
    assert [record for _, record in read(tmp_path / "f.csv")] == rows


def test_a_text_with_lines_that_look_like_rows_is_one_cell(tmp_path: Path) -> None:
    rows = [{"input": "Which row is wrong?\n1,a\n2,b\nAnswer with its number.", "output": "2"}]
    write(tmp_path / "f.csv", rows)
    assert [record for _, record in read(tmp_path / "f.csv")] == rows
    (tmp_path / "stray.csv").write_text('input,output\n"a,b\nc,d\ne,f\ng,h"\n')
    found = read(tmp_path / "stray.csv")
    assert [(line, isinstance(record, BadRecord)) for line, record in found[:3]] == [(2, True), (3, False), (4, False)]


def test_two_stray_quotes_join_no_rows(tmp_path: Path) -> None:
    lines = ["input,output", "first row,A", '"unclosed,A', "second,B", "third,A", 'fourth",B', "ok,A"]
    (tmp_path / "f.csv").write_text("\n".join(lines) + "\n")
    found = read(tmp_path / "f.csv")
    assert [line for line, _ in found] == [2, 3, 4, 5, 6, 7]
    assert [line for line, record in found if record == BadRecord("unclosed quote")] == [3]
    assert [record["output"] for line, record in found if line != 3] == ["A", "B", "A", "B", "A"]

    text = "line\none, two\nthree, four\nend"
    (tmp_path / "g.csv").write_text(f'id,input,output\n1,a,A\n2,"{text}",B\n3,"one, two\n{text}",A\n')
    assert [record["input"] for _, record in read(tmp_path / "g.csv")] == ["a", text, "one, two\n" + text]
    rows = [{"input": f"Which?\n{text}", "output": "B"}, {"input": f"{text}\nfive, six\nor", "output": "A"}]
    write(tmp_path / "h.csv", rows)
    assert [record for _, record in read(tmp_path / "h.csv")] == rows


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_encodings_are_told_by_how_a_file_begins(tmp_path: Path, encoding: str, suffix: str) -> None:
    rows = [{"input": "größer 日本", "output": "ja"}, {"input": "zwei\nZeilen", "output": "nein"}]
    path = tmp_path / f"pool.{suffix}"
    write(path, rows, encoding)
    assert [record for _, record in read(path)] == rows


def test_gzip_is_read_and_a_cut_one_refused(tmp_path: Path) -> None:
    rows = [{"input": f"{i} {i * i}", "output": "x"} for i in range(3000)]
    data = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (whole := tmp_path / "a.jsonl.gz").write_bytes(data)
    assert [record for _, record in read(whole)] == rows
    (cut := tmp_path / "b.jsonl.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match=r"b\.jsonl\.gz is truncated"):
        read(cut)


def test_each_bad_line_is_named_and_the_rest_read(tmp_path: Path) -> None:
    good = b'{"input": "a", "output": "b"}'
    lines = [
        good,
        b'{"input": "caf\xe9"}',
        b"",
        b'{"input": ',
        b"[1]",
        b'{"input": "\0"}',
        b"[" * 100_000,
        good,
        b"7" * 5000,
    ]
    (path := tmp_path / "p.jsonl").write_bytes(b"\n".join(lines))
    found = read(path)
    bad = {line: record.reason for line, record in found if isinstance(record, BadRecord)}
    assert [line for line, record in found if not isinstance(record, BadRecord)] == [1, 8]
    assert set(bad) == {2, 4, 5, 6, 7, 9}
    assert "not UTF-8: byte 0xe9 at byte 15" in bad[2]
    assert "NUL" in bad[6]
    assert all(reason and "\n" not in reason for reason in bad.values())


@pytest.mark.parametrize(
    "stray", ['"never closed,x', 'q,"never closed', '"a" b,x'], ids=["first field", "last field", "text after a quote"]
)
@pytest.mark.parametrize("others", ["plain {i},y{i}", '"quoted, {i}","y ""{i}"""'])
def test_a_stray_quote_costs_its_own_row_alone(tmp_path: Path, stray: str, others: str) -> None:
    rows = [others.format(i=i) for i in range(200)]
    rows[50] = stray
    rows[120] = stray
    (path := tmp_path / "p.csv").write_text("input,output\n" + "\n".join(rows) + "\n")
    found = read(path)
    assert [line for line, record in found if isinstance(record, BadRecord)] == [52, 122]
    assert [line for line, _ in found] == list(range(2, 202))
    wanted = list(csv.DictReader(["input,output", *rows[:50], *rows[51:120], *rows[121:]]))
    assert [record for _, record in found if not isinstance(record, BadRecord)] == wanted


def test_quotes_among_tabs_and_delimiters_in_a_quoted_header(tmp_path: Path) -> None:
    (path := tmp_path / "p.tsv").write_text('text\tlabel\n"Great" she said\tpos\n"never closed\tneg\nbad\tneg\n')
    assert [tuple(record.values()) for _, record in read(path)] == [
        *(('"Great" she said', "pos"), ('"never closed', "neg"), ("bad", "neg")),
    ]
    (path := tmp_path / "p.csv").write_text('"text, long, very";label\nq;a\n')
    assert read(path) == [(2, {"text, long, very": "q", "label": "a"})]


def test_quotes_inside_a_field_and_ragged_rows(tmp_path: Path) -> None:
    (path := tmp_path / "p.csv").write_text('input;output\na 5" nail;steel\none\nx;y;z\n\nlast;row\n')
    found = read(path)
    assert found[0] == (2, {"input": 'a 5" nail', "output": "steel"})
    assert [(line, isinstance(record, BadRecord)) for line, record in found[1:]] == [(3, True), (4, True), (6, False)]


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_an_export_that_was_compressed_is_still_one(tmp_path: Path, packed: str) -> None:
    (tmp_path / "p.csv.manifest.json").write_text(json.dumps({"formulas_escaped": True}))
    path = tmp_path / f"p.csv.{'gz' if packed == 'gzip' else 'zst'}"
    with pa.CompressedOutputStream(str(path), packed) as stream:
        stream.write(b"input,output\n'=1+1,x\n")
    assert read(path) == [(2, {"input": "=1+1", "output": "x"})]


@pytest.mark.parametrize("escaped", [True, False])
def test_objects_by_ids_that_are_not_ascii_stand_on_their_lines(tmp_path: Path, escaped: bool) -> None:
    rows = {f"café {i}": {"input": f"q {i} " + "x" * 400, "output": "y"} for i in range(4_000)}
    (path := tmp_path / "p.json").write_text(json.dumps(rows, indent=1, ensure_ascii=escaped))
    begun = time.process_time()
    found = read(path)
    assert found == [(2 + 4 * i, {"id": name, **row}) for i, (name, row) in enumerate(rows.items())]
    assert time.process_time() - begun < 2


def test_json_in_its_other_shapes(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    row = {"input": "a", "output": "b"}
    path.write_text(json.dumps({"data": [row, row]}))
    assert [record for _, record in read(path)] == [row, row]
    other = '{"version": {"records": [0]}, "records":\n[{"input": "x", "output": "y"}], "made by": []'
    path.write_text(f'{other}, "records"\n: [{json.dumps(row)},\n{json.dumps(row)}], "n": 2}}')
    assert read(path) == [(3, row), (4, row)]
    for said in ({**row, "items": [row]}, {"Text": "an invoice", "items": [row]}, {"id": 1, "messages": [row]}):
        path.write_text(json.dumps(said))  # a row of its own
        assert read(path) == [(1, said)]
    path.write_text(json.dumps({"k1": row, "k2": row}, indent=1))
    assert read(path) == [(2, {"id": "k1", **row}), (6, {"id": "k2", **row})]
    path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n{\n")  # JSON Lines by another name
    assert [(line, isinstance(record, BadRecord)) for line, record in read(path)] == [(1, False), (2, False), (3, True)]
    path.write_text(json.dumps([row, row], indent=1)[:-8])
    with pytest.raises(UsageError, match="line"):
        read(path)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("e.jsonl", b"", "is empty"),
        ("e.json", b" \n ", "is empty"),
        ("e.csv", b"\n\n", "header"),
        ("t.parquet", b"PAR1 and then nothing", "truncated"),
        ("t.xlsx", b"PK\x03\x04", "damaged, encrypted or not an Excel workbook"),
        ("t.docx", b"PK\x03\x04", "unknown format"),
        ("t.yaml", b"- a: [1\n", "not YAML"),
        ("t.yaml", b"- input: " + b"[" * 50_000, "more than 500 deep"),
        ("t.arrow", b"ARROW1", "truncated or not an Arrow file"),
        ("t.jsonl.zst", b"\x28\xb5\x2f\xfd1", "truncated"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (path := tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=says) as caught:
        read(path)
    assert name in caught.value.what
    assert caught.value.fix
    assert "\n" not in caught.value.what


def test_a_cut_parquet_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    write(path := tmp_path / "p.parquet", [{"input": "a", "output": "b"}] * 50)
    path.write_bytes(path.read_bytes()[:-20])
    for wrong in (path, tmp_path, tmp_path / "none.jsonl", tmp_path / "nul\0.jsonl"):
        with pytest.raises(UsageError):
            read(wrong)
    with pytest.raises(UsageError, match="no file matches"):
        expand([str(tmp_path / "*.csv")])


def test_globs_are_sorted_and_each_file_comes_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "odd[1].jsonl"):
        (tmp_path / name).write_text("{}")
    star, odd = str(tmp_path / "[ab].jsonl"), str(tmp_path / "odd[1].jsonl")
    assert expand([odd, star, star]) == ([odd, str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], {})


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6))
def test_a_list_in_a_text_is_found_in_either_notation(parts: list[str]) -> None:
    assert parse_list(json.dumps(parts)) == parts
    assert parse_list(repr(parts)) == parts


def test_a_list_in_a_text_between_bars_or_lines() -> None:
    assert parse_list("yes | no |maybe") == ["yes", "no", "maybe"]
    assert parse_list("yes\nno|or\n") == ["yes", "no|or"]
    assert parse_list("  ") is None


def test_labels_of_a_dataset_have_their_names(tmp_path: Path) -> None:
    """As the `datasets` library writes them: numbers, and names in the schema."""
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "tags": {"feature": {"names": ["a", "b"], "_type": "ClassLabel"}, "_type": "List"},
    }
    table = pa.table({"text": ["x", "y", "z"], "label": [1, 0, -1], "tags": [[0, 1], [1], []]})
    written = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(written, tmp_path / "p.parquet")
    pq.write_table(table.replace_schema_metadata({"huggingface": "{"}), tmp_path / "other.parquet")

    def read(name: str) -> list[Any]:
        with (tmp_path / name).open("rb") as stream:
            return [record for _, record in records(str(tmp_path / name), stream)]

    assert [(row["label"], row["tags"]) for row in read("p.parquet")] == [
        ("pos", ["a", "b"]), ("neg", ["b"]), (None, [])
    ]  # fmt: skip
    assert [row["label"] for row in read("other.parquet")] == [1, 0, -1]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_of_two_columns_of_one_name_both_are_kept(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f.{suffix}"
    table = pa.table([["q"], ["first"], ["second"]], names=["input", "output", "output"])
    if suffix == "csv":
        path.write_text("input,output,output\nq,first,second\n")
    elif suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    assert [record for _, record in read(path)] == [{"input": "q", "output": "first", "output (2)": "second"}]


def test_a_header_with_tabs_may_begin_with_a_quoted_word(tmp_path: Path) -> None:
    (path := tmp_path / "a.tsv").write_text('"Question" asked\tanswer\nwhat\tred\n"Great" she said\tblue\n')
    assert [tuple(record.values()) for _, record in read(path)] == [("what", "red"), ('"Great" she said', "blue")]
    assert list(read(path)[0][1]) == ['"Question" asked', "answer"]


def test_a_name_that_stands_twice_in_an_object_of_rows_is_two_rows(tmp_path: Path) -> None:
    (path := tmp_path / "a.json").write_text('{"r": {"input": "i"},\n"r": {"input": "j"}}')
    assert read(path) == [(1, {"id": "r", "input": "i"}), (2, {"id": "r", "input": "j"})]
