"""Files that are none, that may not be read, or that hold what Python has no value for."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index import staging
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.files import default_source
from icl_curate.engine.index.readers.files import expand, open_input
from icl_curate.engine.index.readers.formats import records
from icl_curate.engine.index.readers.records import BadRecord
from icl_curate.engine.index.rows import Mapper
from icl_curate.engine.papers.sources.audit import read_log
from icl_curate.engine.papers.topics.mining import read_list
from icl_curate.engine.store.demonstrations import active_rows, fetch
from icl_curate.engine.store.settings import resolve
from icl_curate.engine.store.workspace import Workspace

ROW = '{"input": "a", "output": "b"}\n'
KINDS = [
    "pipe",
    "socket",
    "device",
    "link to a device",
    "circle",
    "broken link",
    "folder",
    "forbidden",
    "no folder",
]


@pytest.fixture
def odd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A path of the kind asked for, that nobody can read as a file."""
    path, kind = tmp_path / "odd.jsonl", request.param
    with socket.socket(socket.AF_UNIX) as server:
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "socket":
                server.bind(str(path))
            case "device":
                path = Path("/dev/zero")
            case "link to a device":
                path.symlink_to("/dev/zero")
            case "circle":
                path.symlink_to(path)
            case "broken link":
                path.symlink_to(tmp_path / "nothing")
            case "folder":
                path.mkdir()
            case "forbidden":
                if not os.getuid():
                    pytest.skip("root may read everything")
                path.write_text(ROW)
                path.chmod(0)
            case "no folder":
                (tmp_path / "file").write_text(ROW)
                path = tmp_path / "file" / "odd.jsonl"
        yield path


def _log(path: Path) -> object:
    return read_log(path)


def _config(path: Path) -> object:
    before = os.environ["ICL_CURATE_CONFIG"]
    os.environ["ICL_CURATE_CONFIG"] = str(path)
    try:
        return resolve(None, {})
    finally:
        os.environ["ICL_CURATE_CONFIG"] = before


def _index(path: Path) -> object:
    with tempfile.TemporaryDirectory() as folder:
        store = Workspace.create(Path(folder))
        for place in ("paths", "validation", "test"):
            with pytest.raises(UsageError) as caught:
                index_pool(store, IndexPlan(**{place: (str(path),)}, encoder=None))  # type: ignore[arg-type]
        raise caught.value


@pytest.mark.parametrize("odd", KINDS, indirect=True)
@pytest.mark.parametrize("reader", [_index, _log, read_list, _config], ids=["index", "audit", "topics", "config"])
def test_what_is_no_file_is_refused_in_one_line_and_never_read_on_and_on(
    odd: Path, reader: Any, request: pytest.FixtureRequest
) -> None:
    missing = request.node.callspec.params["odd"] in ("broken link", "no folder")
    if reader is _config and missing:
        assert _config(odd)  # there is none
        return
    with pytest.raises(UsageError) as caught:
        reader(odd)
    assert "odd.jsonl" in caught.value.what or "/dev/zero" in caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.fix


def test_a_glob_passes_over_what_is_no_file_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(ROW)
    os.mkfifo(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").symlink_to("/dev/zero")
    (tmp_path / "d.jsonl").symlink_to(tmp_path / "d.jsonl")
    (tmp_path / "e.jsonl").mkdir()
    pattern = str(tmp_path / "*.jsonl")
    store = Workspace.create(tmp_path / "w")
    report = index_pool(store, IndexPlan(paths=(pattern,), encoder=None))
    assert report.demonstrations == 1
    assert {Path(one.file).name: one.line for one in report.skipped} == {"b.jsonl": 0, "c.jsonl": 0, "d.jsonl": 0}
    assert all("cannot be read" in one.reason for one in report.skipped)
    with pytest.raises(UsageError, match=r"b\.jsonl"):
        index_pool(store, IndexPlan(paths=(pattern,), encoder=None, strict=True))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(UsageError, match="no file matches"):
        expand([pattern])


@pytest.mark.parametrize("command", [["index", "-"], ["preview", "-"], ["calibrate", "query", "-"]])
def test_a_terminals_or_devices_stdin_is_not_read(tmp_path: Path, command: list[str]) -> None:
    Workspace.create(tmp_path / "w")
    words = [sys.executable, "-c", "from icl_curate.cli import main; main()", *command, "-w", str(tmp_path / "w")]
    ours, theirs = pty.openpty()
    zero = os.open("/dev/zero", os.O_RDONLY)
    try:
        for stdin in (theirs, zero) if command[0] == "index" else (zero,):
            done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2
            assert "standard input" in done.stderr
    finally:
        for number in (ours, theirs, zero):
            os.close(number)


def test_a_file_that_changes_while_it_is_read_is_read_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "p.jsonl").write_text(ROW)
    store = Workspace.create(tmp_path / "w")
    real = staging._row_batches

    def meanwhile(*arguments: Any) -> Iterator[list[tuple[Any, ...]]]:
        yield from real(*arguments)
        with path.open("a") as file:
            file.write(ROW.replace("a", "another"))

    monkeypatch.setattr(staging, "_row_batches", meanwhile)
    with pytest.raises(UsageError, match="changed while being read"):
        index_pool(store, IndexPlan(paths=(str(path),), encoder=None))
    monkeypatch.undo()
    assert index_pool(store, IndexPlan(paths=(str(path),), encoder=None)).demonstrations == 2


def test_a_path_that_no_system_takes_is_one_line(tmp_path: Path) -> None:
    for path in ("x" * 5000, f"{tmp_path}/{'y' * 300}.jsonl", "nul\0.jsonl", f"{tmp_path}/*" + "z" * 5000):
        with pytest.raises(UsageError):
            for one in expand([path])[0]:
                with open_input(one):
                    pass


# Parquet.

_MOMENT = 1_600_000_000_123_456_789
_STRUCT = pa.struct([("when", pa.timestamp("ns")), ("list", pa.list_(pa.timestamp("ns")))])
EXOTIC: dict[str, pa.Array] = {
    "nanoseconds": pa.array([_MOMENT, None], pa.timestamp("ns")),
    "nanoseconds of a zone": pa.array([_MOMENT, 0], pa.timestamp("ns", "Europe/Berlin")),
    "no such zone": pa.array([1, 2], pa.timestamp("us", "Nowhere/Land")),
    "beyond the year 9999": pa.array([2**60, 0], pa.timestamp("us")),
    "time": pa.array([86_399_999_999_999, 1], pa.time64("ns")),
    "duration": pa.array([1, 2**62], pa.duration("ns")),
    "decimal": pa.array([Decimal("1.10"), None], pa.decimal128(20, 2)),
    "wide decimal": pa.array([Decimal(10) ** 60, Decimal(1)], pa.decimal256(70, 2)),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    "map of moments": pa.array([[("k", _MOMENT)], []], pa.map_(pa.string(), pa.timestamp("ns"))),
    "struct of moments": pa.array([{"when": _MOMENT, "list": [_MOMENT]}, None], _STRUCT),
    "large binary": pa.array([b"\xff\x00", b"ok"], pa.large_binary()),
    "large text": pa.array(["a", "b"], pa.large_string()),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    "half": pa.array([1.5, None], pa.float16()),
    "day": pa.array([dt.date(2020, 1, 1), None], pa.date64()),
    "nested": pa.array([[[{"a": [1]}]], []], pa.list_(pa.list_(pa.struct([("a", pa.list_(pa.int8()))])))),
    "null": pa.nulls(2),
}


def test_columns_of_every_type_are_kept_beside_a_row(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"input": ["a", "b"], "output": ["x", "y"], **EXOTIC}), path)
    store = Workspace.create(tmp_path / "w")
    report = index_pool(store, IndexPlan(paths=(str(path),), encoder=None))
    assert report.skipped == ()
    kept = fetch(store, active_rows(store))[0].metadata
    assert set(kept) == set(EXOTIC) - {"null"}
    for kind in ("nanoseconds", "nanoseconds of a zone", "map of moments", "struct of moments"):
        assert "123456789" in json.dumps(kept[kind])
    assert kept["unsigned"] == 2**64 - 1


@pytest.mark.parametrize("kind", EXOTIC)
@pytest.mark.parametrize("field", ["output", "options", "context", "messages", "id", "source"])
def test_columns_of_every_type_in_every_place_are_used_or_skipped_with_a_reason(
    tmp_path: Path, kind: str, field: str
) -> None:
    path = tmp_path / "p.parquet"
    plain = {"input": pa.array(["a", "b"]), "output": pa.array(["x", "y"])}
    pq.write_table(pa.table(plain | {field: EXOTIC[kind]}), path)
    mapper = Mapper({})
    with open_input(str(path)) as stream:
        for _, record in records(str(path), stream):
            for row in (record,) if isinstance(record, BadRecord) else mapper.rows(record):
                if isinstance(row, BadRecord):
                    assert row.reason and "\n" not in row.reason
                else:
                    assert row.input


def test_text_that_is_none_costs_its_own_row_alone(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff\xfe", b"c"]).view(pa.string())
    pq.write_table(pa.table({"input": texts, "output": ["x"] * 3}), tmp_path / "p.parquet")
    with open_input(str(tmp_path / "p.parquet")) as stream:
        found = [record for _, record in records(str(tmp_path / "p.parquet"), stream)]
    assert [isinstance(record, BadRecord) for record in found] == [False, True, False]
    lists = {name: [["x"]] * 3 for name in ("correct_answers", "retrieved_sources")}
    answers = pa.ListArray.from_arrays([0, 1, 2, 3], texts)
    pq.write_table(pa.table({"retrieved_answers": answers, **lists}), tmp_path / "log.parquet")
    with pytest.raises(UsageError, match="row 2"):
        read_log(tmp_path / "log.parquet")


def test_moments_in_a_log_are_text(tmp_path: Path) -> None:
    columns: dict[str, Any] = {name: [["x"]] for name in ("correct_answers", "retrieved_answers", "retrieved_sources")}
    columns["retrieved_answers"] = pa.array([[_MOMENT]], pa.list_(pa.timestamp("ns")))
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    assert "123456789" in read_log(tmp_path / "log.parquet").answers[0][0]


def test_a_config_of_a_strange_content_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for text in (b"k = " + b"9" * 5000, b"x = " + b"[" * 100_000, b"\xff", b"timeout = 1" + b"0" * 400, b"k = [1]"):
        path.write_bytes(text)
        with pytest.raises(UsageError, match=r"config\.toml") as caught:
            _config(path)
        assert "\n" not in caught.value.what


@pytest.mark.parametrize("depth", [100, 480, 900, 990])
def test_a_value_nested_deeply_costs_its_own_row_alone(depth: int) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = [deep]
    for field in ("extra", "output", "options", "context", "messages"):
        for row in Mapper({}).rows({"input": "a", "output": "b", field: deep}):
            assert not isinstance(row, BadRecord) or row.reason


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("crowd.jsonl", "crowd"),
        ("v1.2-clean.jsonl", "v1.2-clean"),
        ("v1.3.CSV.gz", "v1.3"),
        (".hidden.jsonl.zst", ".hidden"),
        ("rows.v2", "rows.v2"),
        (".jsonl", ".jsonl"),
        ("-", "stdin"),
    ],
)
def test_the_source_of_a_file_is_its_name_without_its_ending(name: str, source: str) -> None:
    assert default_source(name) == source
