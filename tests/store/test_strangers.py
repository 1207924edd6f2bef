"""A workspace from somebody else: nothing in its database runs, and it has nothing else read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from factories.commands import Run
from factories.copies import indexed, lines
from icl_curate.engine.base.errors import WorkspaceError
from icl_curate.engine.select.lock import FILE as LOCK
from icl_curate.engine.store import columns, runs, schema, workspace
from icl_curate.engine.store.overview import overview, suspect_shares
from icl_curate.engine.store.settings import CONFIG
from icl_curate.engine.store.workspace import FILE, Workspace

SECRET = "sk-SECRET-1234567890"

OUTSIDE = "(SELECT content FROM read_text('{secret}'))"
VIEW = """
    CREATE TABLE d0 AS FROM demonstrations; DROP VIEW active; DROP VIEW pool; DROP VIEW outdated; DROP VIEW pruned;
    DROP TABLE demonstrations;
    CREATE VIEW demonstrations AS SELECT * REPLACE ({outside} AS input) FROM d0;
    CREATE VIEW pool AS SELECT * FROM demonstrations WHERE split = 'pool' AND retired_at IS NULL;
    CREATE VIEW pruned AS SELECT row FROM d0 WHERE false;
    CREATE VIEW active AS SELECT * FROM pool;
    CREATE VIEW outdated AS SELECT run, row FROM runs, d0
"""
STRANGERS = {
    "view in place of a table": (VIEW, "d0"),
    "another view": ("CREATE OR REPLACE VIEW active AS SELECT * REPLACE ({outside} AS input) FROM pool", "active"),
    "view of the environment": (
        "CREATE OR REPLACE VIEW active AS SELECT * REPLACE ("
        "(SELECT content FROM read_blob('/proc/self/environ'))::VARCHAR AS input) FROM pool",
        "active",
    ),
    "macro named like a function": ("CREATE MACRO lower(x) AS {outside}", "lower"),
    "macro that a view of ours calls": ("CREATE MACRO arg_max(a, b) AS {outside}", "arg_max"),
    "macro named like an operator's function": ("CREATE MACRO coalesce(a, b) AS {outside}", "coalesce"),
    "table macro": ("CREATE MACRO unnest(x) AS TABLE FROM read_text('{secret}')", "unnest"),
    "macro that answers what the catalog holds": (
        "CREATE MACRO duckdb_tables() AS TABLE SELECT 'workspace' AS database_name, 'main' AS schema_name,"
        " 'meta' AS table_name, '' AS sql",
        "duckdb_tables",
    ),
    "default": ("ALTER TABLE decisions ALTER reason SET DEFAULT (concat('x', random()))", "decisions"),
    "generated column": ("ALTER TABLE skipped ADD COLUMN more VARCHAR; DROP TABLE skipped; CREATE TABLE skipped "
                         "(file VARCHAR NOT NULL, line BIGINT NOT NULL, reason VARCHAR AS (concat(file, 'x')))",
                         "skipped"),
    "check": ("DROP TABLE skipped; CREATE TABLE skipped (file VARCHAR NOT NULL, line BIGINT NOT NULL,"
              " reason VARCHAR NOT NULL CHECK (length(reason) < 5))", "skipped"),
    "altered type": ("ALTER TABLE skipped ALTER line TYPE INTEGER", "skipped"),
    "extra column": ("ALTER TABLE skipped ADD COLUMN more VARCHAR", "skipped"),
    "extra table": ("CREATE TABLE wanted_keys (key BLOB)", "wanted_keys"),
    "lacking table": ("DROP TABLE skipped", "skipped"),
    "other schema": ("CREATE SCHEMA other; CREATE TABLE other.demonstrations (row BIGINT)", "other"),
    "empty schema": ("CREATE SCHEMA other", "other"),
    "macro in another schema": ("CREATE SCHEMA pg_catalogue; CREATE MACRO pg_catalogue.lower(x) AS {outside}", "lower"),
    "type": ("CREATE TYPE mood AS ENUM ('x')", "mood"),
    "sequence": ("CREATE SEQUENCE numbers", "numbers"),
    "index over an expression": ("CREATE INDEX strange ON skipped (lower(reason))", "strange"),
    "trigger": (
        "CREATE TRIGGER strange AFTER INSERT ON skipped FOR EACH STATEMENT INSERT INTO metrics VALUES (1, 1, 'x', 1)",
        "strange",
    ),
    "a name that a terminal obeys": ('CREATE TABLE "bad\x1b]0;x\x07\nname" (a INT)', "bad"),
    "a table for meta": ("DROP TABLE meta; CREATE VIEW meta AS SELECT 'schema_version' AS key, '12' AS value", "meta"),
}  # fmt: skip


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the user, whose content is in the environment, too."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    return tmp_path / "secret.txt"


def _foreign(tmp_path: Path, secret: Path, sql: str) -> Path:
    pool = [{"input": f"word{i} x", "output": f"o{i % 2}"} for i in range(6)]
    store = indexed(tmp_path / "w", pool=lines(pool), test=lines(pool))
    workspace._lingering.close()
    with duckdb.connect(str(store.database)) as con:
        con.execute(sql.replace("{outside}", OUTSIDE).format(secret=secret))
    return store.path


@pytest.mark.parametrize("name", STRANGERS)
def test_a_file_that_holds_anything_else_is_refused_in_one_line(name: str, tmp_path: Path, secret: Path) -> None:
    sql, culprit = STRANGERS[name]
    path = _foreign(tmp_path, secret, sql)
    before = (path / FILE).read_bytes()
    for use in (Workspace.open, Workspace.create, lambda path: Workspace(path).read().__enter__()):
        with pytest.raises(WorkspaceError) as caught:
            use(path)
        assert culprit in caught.value.what
        assert SECRET not in caught.value.what
        assert caught.value.what.isprintable()
        assert caught.value.fix
    with pytest.raises(WorkspaceError), Workspace(path).write():
        pass
    assert (path / FILE).read_bytes() == before


@pytest.mark.parametrize("name", ["view in place of a table", "another view", "view of the environment"])
@pytest.mark.parametrize(
    "command",
    [
        ["demos", "--json"],
        ["export", "{out}"],
        ["preview", "word1 x", "-m", "bm25", "--json"],
        ["evaluate", "-m", "zero,bm25", "--json"],
        ["status", "--json"],
    ],
)
def test_no_command_hands_out_what_a_view_reads(
    name: str, command: list[str], tmp_path: Path, secret: Path, run: Run
) -> None:
    path = _foreign(tmp_path, secret, STRANGERS[name][0])
    done = run(*(word.format(out=tmp_path / "out.jsonl") for word in command), "-w", path)
    assert done.code == 5, done.err
    assert SECRET not in done.out + done.err
    assert not (tmp_path / "out.jsonl").exists()
    assert done.err.count("\n") <= 2


@pytest.mark.parametrize("version", [1, 4, 9, 11])
def test_an_older_file_is_checked_before_it_is_migrated(version: int, tmp_path: Path, secret: Path) -> None:
    def make(folder: Path, sql: str = "") -> Path:
        folder.mkdir()
        with duckdb.connect(str(folder / FILE)) as con:
            for step in (schema.META, *schema.MIGRATIONS[:version]):
                con.execute(step)
            con.execute("INSERT INTO meta VALUES ('schema_version', ?)", [str(version)])
            con.execute(sql.replace("{outside}", OUTSIDE).format(secret=secret))
        return folder

    with Workspace.open(make(tmp_path / "honest")).read() as con:
        assert schema.version_of(con) == schema.VERSION
    migrated = Workspace.open(tmp_path / "honest")  # is as good as one made now
    assert _digest(migrated) == _digest(Workspace.create(tmp_path / "new"))
    for i, name in enumerate(("another view", "macro that a view of ours calls", "extra table")):
        foreign = make(tmp_path / str(i), STRANGERS[name][0])
        before = (foreign / FILE).read_bytes()
        with pytest.raises(WorkspaceError, match=STRANGERS[name][1]):
            Workspace.open(foreign)
        assert (foreign / FILE).read_bytes() == before


def _digest(store: Workspace) -> str:
    workspace._lingering.close()
    con = workspace._attach(store.database, read_only=True)
    try:
        with con.cursor() as aside:
            oids = aside.execute(schema._OIDS, [workspace._ATTACHED]).fetchone()
            return schema._digest(schema._held(aside, workspace._ATTACHED, *schema._RELATIONS), oids)
    finally:
        workspace._detach(store.database, con)


def test_the_digest_that_saves_time_is_up_to_date(tmp_path: Path) -> None:
    constraints = Path(__file__).parents[2] / "constraints.txt"
    if f"duckdb=={duckdb.__version__}\n" not in constraints.read_text():
        pytest.skip("another DuckDB")
    found = _digest(Workspace.create(tmp_path))
    assert found == schema.SETTLED, f'write SETTLED = "{found}" in engine/store/schema.py'


@pytest.mark.parametrize("told", ["-1", "x", "", "99999999999999999999", "1.5"])
def test_a_version_that_is_no_number_is_one_line(told: str, tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with store.write() as con:
        con.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", [told])
    workspace._lingering.close()
    store._gate.known = ()
    with pytest.raises(WorkspaceError, match="no number"):
        Workspace.open(tmp_path)


def test_queries_reach_no_other_file_and_no_variable_of_the_program(tmp_path: Path, secret: Path) -> None:
    """Should a query of a file ever run, this is what it can do."""
    store = Workspace.create(tmp_path / "w")
    other = Workspace.create(tmp_path / "other")
    (store.path / "link").symlink_to(secret)
    variable = duckdb.sql("SELECT 1 AS a")
    outside = (
        f"FROM read_text('{secret}')",
        f"FROM read_text('{store.path}/../secret.txt')",
        f"FROM read_text('{store.path}/link')",
        f"FROM '{secret}'",
        f"FROM read_csv('{secret}')",
        f"FROM sniff_csv('{secret}')",
        f"FROM glob('{tmp_path}/*')",
        f"FROM query('FROM read_text(''{secret}'')')",
        "FROM read_blob('/proc/self/environ')",
        "SELECT getenv('OPENAI_API_KEY')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"COPY metrics FROM '{secret}'",
        f"ATTACH '{other.database}' AS other",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/']",
        "RESET lock_configuration",
        "LOAD httpfs",
        "INSTALL httpfs",
        "FROM variable",
    )
    with store.read() as con:
        for sql in outside:
            try:
                found = con.execute(sql).fetchall()
            except duckdb.Error:
                continue
            assert found == [], sql
    del variable
    assert not (tmp_path / "out.csv").exists()


def _link_file(folder: Path, secret: Path) -> None:
    (folder / "review.json").symlink_to(secret)


def _link_lock(folder: Path, secret: Path) -> None:
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "tmp" / "index.lock").unlink(missing_ok=True)
    (folder / "tmp" / "index.lock").symlink_to(secret)


def _link_folder(folder: Path, secret: Path) -> None:
    (folder / "models").symlink_to(secret.parent)


def _pipe(folder: Path, secret: Path) -> None:
    (folder / "vectors").mkdir()
    os.mkfifo(folder / "vectors" / "rows.u64")


def _link_database(folder: Path, secret: Path) -> None:
    (folder / FILE).rename(secret.parent / "own.duckdb")
    (folder / FILE).symlink_to(secret.parent / "own.duckdb")


@pytest.mark.parametrize("plant", [_link_file, _link_lock, _link_folder, _pipe, _link_database])
def test_links_out_of_the_folder_and_special_files_are_refused(
    plant: Callable[[Path, Path], None], tmp_path: Path, secret: Path, run: Run
) -> None:
    path = _foreign(tmp_path, secret, "SELECT 1")
    plant(path, secret)
    for command in (["demos"], ["index"], ["preview", "word1 x"]):
        done = run(*command, "-w", path)
        assert done.code == 5, done.err
        assert f"rm {path}" in done.err
        assert SECRET not in done.out + done.err
    assert secret.read_text() == SECRET


def test_links_within_the_folder_are_files_as_all_others(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path / "w")
    (store.path / "kept").write_text("x")
    (store.path / "link").symlink_to("kept")
    (tmp_path / "elsewhere").symlink_to(store.path)
    assert Workspace.open(tmp_path / "elsewhere").path == store.path


@pytest.mark.parametrize("name", [CONFIG, LOCK, "schema.json"])
def test_no_more_of_its_files_is_read_than_they_may_have(name: str, tmp_path: Path, run: Run) -> None:
    store = Workspace.create(tmp_path / "w")
    (store.path / CONFIG).write_text('response_format = "schema:schema.json"\n' * (name == "schema.json"))
    with (store.path / name).open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no disk, and reading all of it would take all memory
    done = run("lock", "--check", "-w", store.path)
    assert done.code == 2 and f"{name}: it has more than" in done.err and len(done.err.splitlines()) == 2, done.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("suspects", value) for value in ("[]", "x", "{}", "[" * 9999)),
        ("suspects", '{"rows": ["a"], "rows_then": 1, "pruned": []}'),
        ("suspects", '{"rows": [1e99], "rows_then": 1, "pruned": 3}'),
        ("exported", "soon"),
    ],
)
def test_notes_that_cannot_be_read_are_none(key: str, value: str, tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    with store.write() as con:
        columns.note(con, key, value)
        columns.note(con, "task", "labels")
    seen = overview(store)
    assert (seen.suspects, seen.exported_since, suspect_shares(store)) == (None, None, [])


def test_a_folder_with_a_number_that_no_job_has_stops_no_run(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path)
    for name in ("9" * 16, "9" * 40, "7"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
    assert runs.start(store, "evaluate", "offline", {}) == 8
