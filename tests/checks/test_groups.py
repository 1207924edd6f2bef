"""Groups of rows that repeat each other or a query, and skipped records: what is listed, and what a decision prunes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from factories.commands import Run
from factories.groups_world import QUERIES, ROWS, make_pool
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.checks.groups import open_groups, prunable, read_groups
from icl_curate.engine.index.results import Skipped, as_in_file, reason_of, skipped_records
from icl_curate.engine.store.browse import pruned_rows, row_groups
from icl_curate.engine.store.decisions import decide, history, undo
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    return make_pool(tmp_path / "w")


def test_groups_have_their_rows_with_how_they_are_related(made: Workspace) -> None:
    groups = read_groups(made, row_groups(made, "duplicate"))
    assert [[row.id for row in group.rows] for group in groups] == [["d1", "d2"], ["c1", "c2", "c3"], ["n1", "n2"]]
    told = {row.id: (row.evidence, row.suggestion) for group in groups for row in group.rows}
    assert told["d1"] == told["c1"] == ("", "") and told["d2"] == ("repeats d1", "keep d1")
    assert told["c2"] == ("another output than c1", "") and told["c3"] == ("repeats c2", "keep c2")
    assert told["n2"][0].startswith("nearly repeats n1, similarity 0.")
    [leak] = read_groups(made, row_groups(made, "leak"))
    assert [(row.id, row.split, row.file, row.line) for row in leak.rows] == [
        ("t1", "pool", "pool.jsonl", 8), ("q1", "validation", "queries.jsonl", 1),
    ]  # fmt: skip
    assert leak.prunes == {"t1": "check: leak, repeats the validation query q1"}


def test_the_first_of_each_answer_is_kept_and_the_command_prunes_the_same_rows(made: Workspace, run: Run) -> None:
    wanted = prunable(made, "duplicate")
    assert list(wanted) == ["d2", "c3", "n2"]
    done = run("check", "prune", "duplicate", "--json", "-w", made.path)
    assert done.json["pruned"] == list(wanted)
    with made.read() as con:
        assert dict(con.execute("SELECT target, reason FROM decisions").fetchall()) == wanted
    assert not prunable(made, "duplicate") and len(history(made)) == 1
    undo(made)
    assert list(prunable(made, "duplicate")) == list(wanted)


def test_the_first_is_the_first_that_is_active_and_a_row_that_was_kept_stays(made: Workspace) -> None:
    decide(made, "prune", "demonstration", ["d1", "c2", "n1"])
    assert prunable(made, "duplicate") == {}, "no two active rows say the same"
    assert [group.rows[0].id for group in open_groups(made, "duplicate")] == ["c1"]
    undo(made)
    decide(made, "prune", "demonstration", ["c2"])
    decide(made, "keep", "demonstration", ["d2"])
    assert list(prunable(made, "duplicate")) == ["n2"]
    [first, second, _] = read_groups(made, row_groups(made, "duplicate"))
    assert first.rows[1].kept and not first.rows[1].to_prune
    assert second.first.id == "c1" and [row.pruned for row in second.rows] == [False, True, False]
    decide(made, "prune", "demonstration", ["t1"])
    assert len(row_groups(made, "leak")) == 1 and not len(row_groups(made, "leak", only_open=True))


def test_commands_list_groups_and_skipped_records_and_say_where_they_are(made: Workspace, run: Run) -> None:
    place = ("-w", made.path)
    shown = run("check", "--kind", "duplicate,leak", *place).out
    assert "another output than c1" in shown and "validation query" in shown and "pool.jsonl:8" in shown
    told = " ".join(shown.split())
    assert f"3 groups of duplicates, 3 rows to prune: icl-curate check prune -w {made.path} duplicate" in told
    assert "and 3 more groups" in run("check", "--kind", "duplicate,leak", "-n", "1", *place).out
    decided = run("check", "prune", "duplicate", "--dry-run", *place).out
    assert "repeats d1" in decided and "rows to prune:" not in " ".join(decided.split())
    groups = run("check", "--kind", "duplicate", "--json", *place).json["groups"]
    assert [[row["id"] for row in group["rows"]] for group in groups] == [
        ["d1", "d2"],
        ["c1", "c2", "c3"],
        ["n1", "n2"],
    ]
    assert run("check", "--kind", "label", "--json", *place).json["groups"] == []
    status = run("status", *place).out
    where = f"-w {made.path}"
    for command in (f"check {where} --kind duplicate", f"check {where} --kind leak", f"skipped {where}"):
        assert f"icl-curate {command}" in status
    listed = run("skipped", *place).out
    assert "pool.jsonl    9 missing field: output" in listed and "missing field: output            2" in listed
    found = run("skipped", "--json", *place).json
    assert found["reasons"][0] == {"reason": "missing field: output", "count": 2}
    assert [(one["file"], one["line"]) for one in found["skipped"]] == [("pool.jsonl", line) for line in range(9, 14)]


def test_an_index_with_many_bad_rows_names_the_list(tmp_path: Path, run: Run) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"input": "a", "output": "b"}\n' + '{"input": "a"}\n' * 30)
    assert (
        f"… and 10 more: icl-curate skipped -w {tmp_path / 'w'}"
        in run("index", pool, "--no-encode", "-w", tmp_path / "w").out
    )
    listed = run("skipped", "-w", tmp_path / "w")
    assert f"… and 10 more: icl-curate skipped -w {tmp_path / 'w'} -n 30" in listed.out


def test_a_workspace_without_repeats_and_bad_rows_says_so(tmp_path: Path, run: Run) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"input": "a", "output": "b"}\n')
    run("index", pool, "--no-encode", "-w", tmp_path / "w")
    assert "skipped no record" in run("skipped", "-w", tmp_path / "w").out
    for kinds, told in (("duplicate", "each other"), ("leak", "a query"), ("leak,duplicate", "each other or a query")):
        assert f"no rows that repeat {told}\n" in run("check", "--kind", kinds, "-w", tmp_path / "w").out
    assert "check --kind" not in run("status", "-w", tmp_path / "w").out


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("missing field: input (columns: a, b)", "missing field: input"),
        ("the id [/b] is taken by pool.jsonl:3", "an id that another row has"),
        ("answer not among the options: a: b", "answer not among the options"),
        ("input has 1,000,123 characters, more than 1,000,000", "input has too many characters"),
        ("options are a number, not a list", "options are a number, not a list"),
        ("not UTF-8: byte 0xff at byte 3 of the line", "not UTF-8"),
    ],
)
def test_reasons_are_told_without_what_differs(told: str, reason: str) -> None:
    assert reason_of(told) == reason


def test_a_skipped_record_is_read_from_its_file(made: Workspace, tmp_path: Path) -> None:
    first = skipped_records(made).skipped[0]
    assert json.loads(as_in_file(made, first)) == {"id": "x1", "input": "no output", "source": "s"}
    with pytest.raises(UsageError, match="fewer lines now"):
        as_in_file(made, Skipped(first.file, 999, ""))
    (tmp_path / "other.json").write_text("[{}]")
    with pytest.raises(UsageError, match="not read line by line"):
        as_in_file(made, Skipped("other.json", 1, ""))
    with pytest.raises(UsageError, match="does not exist"):
        as_in_file(made, Skipped("gone.jsonl", 1, ""))
    (tmp_path / "zipped.csv.gz").write_bytes(gzip.compress(b"input,output\nx" + b"y" * 9_000))
    assert len(as_in_file(made, Skipped("zipped.csv.gz", 2, ""))) == 6_000


def test_the_pool_of_these_tests_is_as_it_says(made: Workspace) -> None:
    with made.read() as con:
        assert con.execute("SELECT count(*) FROM pool").fetchone() == (len(ROWS),)
    assert len(QUERIES) == 2 and not len(pruned_rows(made))


def test_the_way_to_more_findings_keeps_what_was_asked(tmp_path: Path, run: Run) -> None:
    pool = tmp_path / "pool.jsonl"
    rows = [{"id": f"r{n}", "input": "the same text", "output": "ab"[n % 2]} for n in range(6)]
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("index", pool, "--no-encode", "-w", tmp_path / "w")
    place = ("-w", tmp_path / "w")
    more, asked = f"more: icl-curate check -w {tmp_path / 'w'}", ("--kind", "conflict,duplicate", "--all")
    assert f"{more} {' '.join(asked)} -n " in run("check", *asked, "-n", "1", *place).out
    assert f"{more} -n " in run("check", "-n", "1", *place).out
