"""Rows of databases by a query, held against what the databases' own clients read; files of strangers among them."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.index import databases
from icl_curate.engine.index.build import IndexPlan, dry_run_index, index_pool
from icl_curate.engine.index.databases import write_rows
from icl_curate.engine.index.peek import peek_plan
from icl_curate.engine.index.questions import read_questions
from icl_curate.engine.store.demonstrations import active_rows, fetch, queries
from icl_curate.engine.store.workspace import Workspace

KINDS = ("tickets.duckdb", "tickets.sqlite")
QUERY = "select question, team as answer from tickets"
TICKETS = [("my card was declined", "cards"), ("where is my parcel?", "post"), ("ein Brief für dich", "post")]


def execute(path: Path, *statements: str) -> None:
    connect = duckdb.connect if path.suffix == ".duckdb" else sqlite3.connect
    with closing(connect(str(path))) as con:
        for statement in statements:
            con.execute(statement)
        con.commit()


def made(path: Path, tickets: Sequence[tuple[str, str]] = TICKETS) -> str:
    execute(path, "CREATE TABLE tickets (question VARCHAR, team VARCHAR)")
    execute(path, *(f"INSERT INTO tickets VALUES ('{question}', '{team}')" for question, team in tickets))
    return str(path)


def given(path: str | Path, query: str) -> list[dict[str, object]]:
    out = io.BytesIO()
    write_rows(str(path), query, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def pool(workspace: Workspace) -> list[tuple[str, str, str]]:
    return [(shot.input, shot.output, shot.source) for shot in fetch(workspace, active_rows(workspace))]


@pytest.mark.parametrize("name", KINDS)
def test_a_query_is_indexed_and_asked_again(name: str, tmp_path: Path) -> None:
    path = made(tmp_path / name)
    workspace = Workspace.create(tmp_path / "w")
    assert index_pool(workspace, IndexPlan(paths=(f"sql:{path}?{QUERY}",))).demonstrations == 3
    assert pool(workspace) == [(question, team, "tickets") for question, team in TICKETS]
    execute(tmp_path / name, "CREATE TABLE other AS SELECT 1 AS x")  # the file is another one, its rows are the same
    assert index_pool(workspace, IndexPlan()).unchanged_files == 1
    execute(tmp_path / name, "DELETE FROM tickets WHERE team = 'cards'", "INSERT INTO tickets VALUES ('late', 'post')")
    assert dry_run_index(workspace.path, IndexPlan()).retired == 1
    again = index_pool(workspace, IndexPlan())
    assert (again.demonstrations, again.added, again.retired) == (3, 1, 1)


@pytest.mark.parametrize("name", KINDS)
def test_another_query_takes_the_place_of_the_first_and_queries_are_apart(name: str, tmp_path: Path) -> None:
    path = made(tmp_path / name)
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(f"sql:{path}?{QUERY}",)))
    plan = IndexPlan(
        paths=(f"sql:{path}?{QUERY} where team = 'post'",), validation=(f"sql:{path}?{QUERY} where team = 'cards'",)
    )
    for report in (index_pool(workspace, plan), index_pool(workspace, IndexPlan())):
        assert (report.demonstrations, report.validation) == (2, 1)
    assert [query.input for query in queries(workspace, "validation")] == [TICKETS[0][0]]
    twice = tuple(f"sql:{path}?{QUERY} where team = '{team}'" for team in ("post", "cards"))
    with pytest.raises(UsageError, match="two queries of") as refused:
        index_pool(workspace, IndexPlan(paths=twice))
    assert "UNION ALL" in refused.value.fix


def test_a_workspace_that_was_renamed_asks_again(tmp_path: Path) -> None:
    path = made(tmp_path / "t.sqlite")
    index_pool(Workspace.create(tmp_path / "old"), IndexPlan(paths=(f"sql:{path}?{QUERY}",)))
    (tmp_path / "old").rename(tmp_path / "new")
    workspace = Workspace.open(tmp_path / "new")
    plans = [IndexPlan(), IndexPlan(), IndexPlan(paths=(f"sql:{path}?{QUERY} limit 1",)), IndexPlan()]
    assert [index_pool(workspace, plan).demonstrations for plan in plans] == [3, 3, 1, 1]


def test_a_column_tells_the_split(tmp_path: Path) -> None:
    path = made(tmp_path / "t.sqlite")
    workspace = Workspace.create(tmp_path / "w")
    query = QUERY.replace(" from", ", iif(team = 'cards', 'dev', 'train') as split from")
    report = index_pool(workspace, IndexPlan(paths=(f"sql:{path}?{query}",)))
    assert (report.demonstrations, report.validation) == (2, 1)


def test_types_of_duckdb_are_read_whether_python_has_them_or_not(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    execute(
        path,
        """
        CREATE TABLE t AS SELECT 'q' AS question, ['a', 'b'] AS answers, {'x': 1, 'y': [true]} AS object,
               TIMESTAMPTZ '2026-01-02 03:04:05+00' AS seen, '7fe0ac2e-4d0b-4a45-9f5b-1b0ac04e8d8e'::UUID AS id,
               'high'::ENUM('low', 'high') AS tier, (2::HUGEINT ** 100)::HUGEINT AS big, NULL AS none
        """,
    )
    assert given(path, "select 1 as one, 2 as ROW") == [{"one": 1, "ROW": 2}]
    [row] = given(path, "from t;")
    assert row == {
        "question": "q", "answers": ["a", "b"], "object": {"x": 1, "y": [True]}, "seen": row["seen"],
        "id": "7fe0ac2e-4d0b-4a45-9f5b-1b0ac04e8d8e", "tier": "high", "big": 1 << 100, "none": None,
    }  # fmt: skip
    assert str(row["seen"]).startswith("2026-01-0")


def test_what_is_no_text_in_sqlite_is_told_by_its_row(tmp_path: Path) -> None:
    path = made(tmp_path / "t.sqlite")
    execute(tmp_path / "t.sqlite", "INSERT INTO tickets VALUES (CAST(x'ff41' AS TEXT), 'post'), (x'c3bc', x'89')")
    report = index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(f"sql:{path}?{QUERY}",)))
    assert [(skip.line, skip.reason) for skip in report.skipped] == [
        (line, "not valid Unicode: a lone surrogate") for line in (4, 5)
    ]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "query",
    [
        "delete from tickets",
        "select 1; delete from tickets",
        "attach '{other}' as other",
        "pragma table_info(tickets)",
        "create table x (y int)",
        "update tickets set team = 'x' returning question, team",
    ],
)
def test_only_a_single_select_is_run(name: str, query: str, tmp_path: Path) -> None:
    path = Path(made(tmp_path / name))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="not a single SELECT"):
        given(path, query.replace("{other}", made(tmp_path / f"other{path.suffix}")))
    assert path.read_bytes() == before and len(given(path, f"{QUERY} -- all")) == 3


def test_a_file_of_a_stranger_reads_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("question,team\nkey,sk-secret\n")
    path = tmp_path / "theirs.duckdb"
    execute(
        path,
        f"CREATE VIEW tickets AS FROM read_csv('{secret}')",
        f"CREATE MACRO more() AS TABLE FROM read_csv('{secret}')",
        f"CREATE MACRO content() AS (SELECT content FROM read_text('{secret}'))",
    )
    own = f"select * from read_csv('{secret}')"
    for query in (QUERY, "from more()", "select content()", own, f"from '{secret}'", "select getenv('HOME')"):
        with pytest.raises(UsageError) as refused:
            given(path, query)
        assert "sk-secret" not in str(refused.value) and "\n" not in refused.value.what
    lite = tmp_path / "theirs.sqlite"
    made(lite)
    for query in (f"select readfile('{secret}')", "select load_extension('x')", "select * from pragma_database_list"):
        with pytest.raises(UsageError):
            given(lite, query)


def test_a_view_that_does_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "LARGEST", 1 << 20)
    endless = "WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i AS question FROM r"
    execute(tmp_path / "t.sqlite", f"CREATE VIEW v AS {endless}", "CREATE TABLE t AS SELECT 1")
    execute(tmp_path / "t.duckdb", "CREATE VIEW v AS SELECT i AS question FROM range(1000000000000) r (i)")
    for name in ("t.sqlite", "t.duckdb"):
        with pytest.raises(UsageError, match="gives more than"):
            given(tmp_path / name, "select * from v")
    stopped = CancelToken()
    stopped.cancel()
    with pytest.raises(Cancelled):
        write_rows(str(tmp_path / "t.sqlite"), "select * from v", io.BytesIO(), Monitor(cancel=stopped))


def test_texts_that_a_view_makes_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's own limit does not count them: half a gigabyte each, 64 at a time."""
    monkeypatch.setattr(databases, "MEMORY", 2 << 30)
    path = tmp_path / "bomb.duckdb"
    execute(path, "CREATE VIEW v AS SELECT repeat('x', 500000000) AS input, 'a' AS output FROM range(64)")
    with pytest.raises(UsageError) as refused:
        given(path, "select * from v")
    assert "emory" in refused.value.what and refused.value.fix == databases.CUT
    assert (
        len(given(path, "select left(input, 5) as input, output from (select 'hello' as input, output from v)")) == 64
    )


def test_one_text_has_a_limit_and_all_rows_are_never_in_memory(tmp_path: Path) -> None:
    execute(tmp_path / "t.sqlite", "CREATE VIEW v AS SELECT hex(zeroblob(100000000)) AS question")
    with pytest.raises(UsageError, match="too big"):
        given(tmp_path / "t.sqlite", "select * from v")
    rows = (
        "WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT 20000) SELECT hex(zeroblob(500)) FROM r"
    )
    execute(tmp_path / "t.sqlite", f"CREATE TABLE t AS {rows}")
    execute(tmp_path / "t.duckdb", "CREATE TABLE t AS SELECT repeat('0', 1000) AS x FROM range(20000)")
    for name in ("t.sqlite", "t.duckdb"):
        with (tmp_path / "out").open("wb") as out:
            tracemalloc.start()
            write_rows(str(tmp_path / name), "select * from t", out)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert out.tell() > 20_000_000 > 10 * most


def test_what_a_process_has_only_in_its_log_is_read(tmp_path: Path) -> None:
    """Databases copied while they are written: DuckDB and SQLite keep the last rows beside the file."""
    code = (
        "import duckdb, os, sys\ncon = duckdb.connect(sys.argv[1])\n"
        "con.execute('CREATE TABLE tickets (question VARCHAR, team VARCHAR)')\ncon.execute('CHECKPOINT')\n"
        "con.execute(\"INSERT INTO tickets VALUES ('q', 'a')\")\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.duckdb")], check=True)
    assert (tmp_path / "t.duckdb.wal").stat().st_size
    assert given(tmp_path / "t.duckdb", QUERY) == [{"question": "q", "answer": "a"}]
    with closing(sqlite3.connect(tmp_path / "live.sqlite")) as con:
        con.execute("PRAGMA journal_mode = WAL")
        con.execute("CREATE TABLE begun (x)")
        made(tmp_path / "live.sqlite")
        for log in ("", "-wal"):
            shutil.copy(tmp_path / f"live.sqlite{log}", tmp_path / f"t.sqlite{log}")
    assert len(given(tmp_path / "t.sqlite", QUERY)) == 3


def test_a_workspace_of_a_stranger_has_no_database_of_the_user_asked(tmp_path: Path, run: Run) -> None:
    (mine := tmp_path / "mine").mkdir()
    path = made(tmp_path / "own.sqlite")
    inside = made(mine / "in.sqlite")
    assert run("index", path, inside, "--sql", QUERY, "-w", mine / "w", "--no-encode").code == 0
    assert run("index", "-w", mine / "w", "--no-encode").code == 0  # this user has named it
    with Workspace.open(mine / "w").write() as con:
        con.execute("UPDATE files SET reading = replace(reading, 'from tickets', 'from tickets where 1')")
    refused = run("index", "-w", mine / "w", "--no-encode")
    assert refused.code == 2 and f"outside of its folder: {path}" in refused.err and "--sql" in refused.err
    mine.rename(theirs := tmp_path / "theirs")
    refused = run("index", "-w", theirs / "w", "--no-encode")
    assert refused.code == 2 and f"outside of its folder: {path}" in refused.err


@pytest.mark.parametrize("split", ["../../escaped", "{here}/escaped"])
def test_where_the_rows_of_a_query_are_kept_is_not_said_by_a_workspace(split: str, tmp_path: Path) -> None:
    path = made(tmp_path / "t.sqlite")
    (victim := tmp_path / "victim.jsonl").write_text("mine")
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(f"sql:{path}?{QUERY}",)))
    before = sorted(tmp_path.rglob("*.jsonl"))
    with workspace.write() as con:
        con.execute("UPDATE files SET path = 'victim.jsonl'")
        con.execute(
            "UPDATE files SET reading = replace(reading, '\"split\": null', ?)",
            [f'"split": "{split.format(here=tmp_path)}"'],
        )
    index_pool(workspace, IndexPlan())
    assert victim.read_text() == "mine" and sorted(tmp_path.rglob("*.jsonl")) == before


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_database_is_told_in_a_line(name: str, tmp_path: Path) -> None:
    path = Path(made(tmp_path / name))
    whole = path.read_bytes()
    for damaged in (whole[:20], whole[:100] + b"\xff" * (len(whole) - 100)):
        path.write_bytes(damaged)
        with pytest.raises(UsageError) as refused:
            given(path, QUERY)
        assert str(path) in refused.value.what and "\n" not in refused.value.what


def test_the_command(tmp_path: Path, run: Run) -> None:
    path, where = made(tmp_path / "t.duckdb"), ("-w", tmp_path / "w", "--no-encode")
    plain = run("index", path, *where)
    assert plain.code == 2 and "is a database" in plain.err and f" {path} --sql" in plain.err
    wrong = run("index", path, "--sql", "select * from nosuch", *where)
    assert wrong.code == 2 and "nosuch does not exist" in wrong.err and "tables: tickets" in wrong.err
    assert "no database is named" in run("index", "--sql", QUERY, *where).err
    assert "there is no query" in run("index", f"sql:{path}", *where).err
    assert "gives no row" in run("index", path, "--sql", f"{QUERY} where false", *where).err
    (tmp_path / "p.jsonl").write_text("{}\n")
    assert "no database" in run("index", tmp_path / "p.jsonl", "--sql", QUERY, *where).err
    assert run("index", path, "--sql", QUERY, "--peek").out.count("cards") == 1
    assert run("index", path, "--sql", QUERY, "--json", *where).json["demonstrations"] == 3


def test_the_form_of_a_name_stands_wherever_files_are_named(tmp_path: Path) -> None:
    path = made(tmp_path / "t.sqlite")
    found = read_questions([f"sql:{path}?{QUERY}"])
    assert [question.query.input for question in found.asked] == [question for question, _ in TICKETS]
    told = peek_plan(IndexPlan(paths=(f"sql:{path}?{QUERY}",), test=(f"sql:{path}?{QUERY} limit 1",)))
    assert [each.read for each in told.files] == [3, 1]


@pytest.mark.parametrize("name", KINDS)
def test_of_two_columns_of_one_name_both_are_kept(name: str, tmp_path: Path) -> None:
    [row] = given(
        made(tmp_path / name, TICKETS[:1]), "select question as q, team as answer, 'x' as answer from tickets"
    )
    assert [*row.values()] == [*TICKETS[0], "x"] and row["answer"] == "cards"
