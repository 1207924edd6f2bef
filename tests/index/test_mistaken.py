"""Files and options that are nearly right: nothing is passed over in silence, and what mends it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, IndexReport, dry_run_index, index_pool
from icl_curate.engine.index.peek import peek
from icl_curate.engine.index.rows import SURVEYED
from icl_curate.engine.store.demonstrations import active_rows, fetch
from icl_curate.engine.store.workspace import Workspace


def write(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def index(folder: Path, *paths: str, **plan: object) -> IndexReport:
    return index_pool(Workspace.create(folder / "w"), IndexPlan(paths=paths, **plan))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("agent", "did you mean 'Agent'?"),
        ("Handled By", "did you mean 'handled_by'?"),
        ("xyz", "columns: input, output, Agent, handled_by"),
    ],
)
def test_a_mapped_column_that_no_file_has_is_refused(tmp_path: Path, column: str, told: str) -> None:
    rows = [{"input": f"q {i}", "output": "a", "Agent": "x", "handled_by": "y"} for i in range(3)]
    path, given = write(tmp_path / "p.jsonl", rows), {"source": column}
    [warning] = peek(path, given).warnings
    assert (
        warning.startswith(f"the first records have no column {column!r} (--map source={column}); ") and told in warning
    )
    with pytest.raises(UsageError, match=f"no file has the column '{column}'") as refused:
        index(tmp_path, path, columns=given)
    assert told in refused.value.fix
    with Workspace.open(tmp_path / "w").read() as con:
        assert con.execute("SELECT count(*) FROM demonstrations").fetchall() == [(0,)]
    with pytest.raises(UsageError, match=f"no file has the column '{column}'"):
        dry_run_index(tmp_path / "new", IndexPlan(paths=(path,), columns=given))


def test_a_mapped_column_that_only_a_late_row_has_is_no_mistake(tmp_path: Path) -> None:
    rows = [{"input": f"q {i}", "output": "a"} for i in range(SURVEYED + 5)] + [
        {"input": "q", "output": "a", "by": "x"}
    ]
    report = index(tmp_path, write(tmp_path / "p.jsonl", rows), columns={"source": "by"})
    assert (report.sources, report.warnings) == (2, ())


def test_a_field_that_is_not_to_be_read_is_mapped_to_none(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", [{"input": f"q {i}", "output": "a", "context": "c"} for i in range(3)])
    report = index(tmp_path, path, columns={"context": "none"})
    assert report.warnings == () and not any(one.context for one in fetch(Workspace.open(tmp_path / "w"), [0, 1, 2]))


def test_a_column_that_one_file_has_is_not_missed_in_the_others(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", [{"input": "q", "output": "a"}])
    other = write(tmp_path / "b.jsonl", [{"input": "r", "output": "a"}, {"input": "s", "output": "a", "by": "x"}])
    columns = {"source": "by|agent", "a.jsonl::tier": "{input}"}
    assert index(tmp_path, one, other, columns=columns).warnings == ()
    write(tmp_path / "a.jsonl", [{"input": "q2", "output": "a"}])
    again = index(tmp_path, one, other, columns=columns)
    assert (again.unchanged_files, again.warnings) == (1, ()), "the other file, which has it, was not read"


def test_no_column_of_a_csv_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("input,note,,output,note,\nq,first,second,a,third,fourth\n")
    index(tmp_path, str(tmp_path / "p.csv"))
    store = Workspace.open(tmp_path / "w")
    [row] = fetch(store, active_rows(store))
    assert row.metadata == {"note": "first", "": "second", "note (2)": "third", "column 6": "fourth"}
    (tmp_path / "p.csv").write_text(",input,output,column 5,,a,a,a (2),a\n0,q,a,1,2,3,4,5,6\n")
    index(tmp_path, str(tmp_path / "p.csv"))
    [row] = fetch(store, active_rows(store))
    seen = {"": "0", "column 5": "1", "column 5 (2)": "2", "a": "3", "a (3)": "4", "a (2)": "5", "a (4)": "6"}
    assert row.metadata == seen, "a table of pandas has a first column without a name: its rows keep their ids"


def test_rows_in_another_encoding_are_told_with_what_converts_them(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "my pool.csv"
    path.write_bytes("input,output\ncafé,drink\ntea,drink\nmaté,drink\n".encode("cp1252"))
    done = run("index", path, "--no-encode", "-w", tmp_path / "w")
    assert done.code == 0 and "2 rows are not UTF-8" in done.err
    assert f"iconv -f WINDOWS-1252 -t UTF-8 '{path}' > NEW" in done.err
    path.write_bytes("input,output\ncafé,drink\n".encode("cp1252"))
    refused = run("index", path, "--no-encode", "-w", tmp_path / "w2")
    assert (
        refused.code == 2
        and f"fix: if all of it is Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 '{path}'" in refused.err
    )


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("card_lost Card-Lost cardlost other", "1 label is written in several ways, and each counts as another: "
         "card_lost = Card-Lost = cardlost; write one of them in the files"),
        ("Yes yes No no", "2 labels are written in several ways, and each counts as another: "
         "Yes = yes, No = no; write one of them in the files"),
        ("C C++ C#", None),
        ("1 -1 1-2 12", None),
    ],
)  # fmt: skip
def test_labels_that_differ_only_in_how_they_are_written_are_told(
    tmp_path: Path, labels: str, told: str | None
) -> None:
    names = labels.split()
    rows = [{"input": f"q {i}", "output": name} for i, name in enumerate([*names, *names[:1]] * 6)]
    rows += [{"input": f"r {i}", "output": name} for i, name in enumerate(names) for _ in range(len(names) - i)]
    report = index(tmp_path, write(tmp_path / "p.jsonl", rows))
    assert report.task == "labels" and report.warnings == ((told,) if told else ())
