"""Tables of the workspace and the migrations between their versions.

A workspace of an older version is migrated forward when it is opened for writing; one of a newer version is
refused. Each entry of `MIGRATIONS` takes the schema from its index to the next.

A workspace may come from somebody else. A view in place of a table, a macro named like a function, a default or a
generated column would run within our queries. So before anything in a file is queried, what it holds is compared with
what the migrations make (`check_content`).
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..base.errors import WorkspaceError
from ..pool.display import display_line

MIGRATIONS: tuple[str, ...] = (
    # version 1
    """
    CREATE TABLE demonstrations (
        row BIGINT NOT NULL,          -- dense number, given once, never used again
        id VARCHAR NOT NULL,          -- the user's id, or the content hash; unique among rows not retired
        input VARCHAR NOT NULL,
        output VARCHAR NOT NULL,
        options VARCHAR[] NOT NULL,   -- empty where the row brings none
        answers VARCHAR[] NOT NULL,   -- further accepted answers
        context VARCHAR NOT NULL,
        source VARCHAR NOT NULL,
        split VARCHAR NOT NULL,       -- pool, validation or test
        metadata VARCHAR NOT NULL,    -- JSON object: the columns that have no other home
        hash BLOB NOT NULL,           -- 16 bytes over everything above but row and split
        file VARCHAR NOT NULL,
        line BIGINT NOT NULL,
        indexed_at TIMESTAMP NOT NULL,
        retired_at TIMESTAMP          -- set when the row is gone from its file; never deleted
    );
    CREATE TABLE duplicates (         -- one line for each row that repeats an earlier one
        row BIGINT NOT NULL,
        of BIGINT NOT NULL,           -- smallest row number of its group
        kind VARCHAR NOT NULL,        -- exact (same input and output), conflict (same input), near
        similarity DOUBLE NOT NULL    -- Jaccard of character 5-grams of the inputs
    );
    CREATE TABLE files (
        path VARCHAR NOT NULL,        -- from the workspace's parent folder where it lies inside
        digest VARCHAR NOT NULL,      -- of its bytes and of how it was read
        reading VARCHAR NOT NULL,     -- JSON: columns, source, split, fractions
        rows BIGINT NOT NULL,
        indexed_at TIMESTAMP NOT NULL
    );
    CREATE TABLE skipped (file VARCHAR NOT NULL, line BIGINT NOT NULL, reason VARCHAR NOT NULL);
    CREATE TABLE decisions (          -- append-only; undo is a row of its own
        seq BIGINT NOT NULL,
        batch BIGINT NOT NULL,        -- decisions taken together are undone together
        decided_at TIMESTAMP NOT NULL,
        who VARCHAR NOT NULL,
        action VARCHAR NOT NULL,      -- prune, restore, keep, relabel, undo or redo
        scope VARCHAR NOT NULL,       -- source, demonstration, output or batch
        target VARCHAR NOT NULL,
        reason VARCHAR NOT NULL
    );
    CREATE TABLE llm_calls (          -- the cache: what was paid for
        key BLOB PRIMARY KEY,         -- see engine/llm/cache.py
        llm VARCHAR NOT NULL,
        model VARCHAR NOT NULL,       -- as the server resolved it
        text VARCHAR NOT NULL,
        tokens VARCHAR[] NOT NULL,
        logprobs DOUBLE[] NOT NULL,
        option_logprobs DOUBLE[][] NOT NULL,
        finish VARCHAR NOT NULL,
        tokens_in BIGINT NOT NULL,
        tokens_out BIGINT NOT NULL,
        latency DOUBLE NOT NULL,      -- seconds, of the attempt that succeeded
        attempts INTEGER NOT NULL,
        asked_at TIMESTAMP NOT NULL
    );
    CREATE TABLE llm_failures (
        key BLOB NOT NULL, llm VARCHAR NOT NULL, kind VARCHAR NOT NULL, message VARCHAR NOT NULL,
        failed_at TIMESTAMP NOT NULL
    );
    CREATE TABLE llm_capabilities (
        llm VARCHAR PRIMARY KEY, capabilities VARCHAR NOT NULL, probed_at TIMESTAMP NOT NULL
    );
    CREATE TABLE runs (
        run BIGINT NOT NULL,
        kind VARCHAR NOT NULL,        -- evaluate, train-sources, …
        llm VARCHAR NOT NULL,
        settings VARCHAR NOT NULL,    -- JSON: what it was asked to do, with versions
        started_at TIMESTAMP NOT NULL,
        finished_at TIMESTAMP,
        status VARCHAR NOT NULL,      -- running, done, failed, interrupted
        summary VARCHAR NOT NULL      -- JSON: what came out
    );
    CREATE TABLE metrics (run BIGINT NOT NULL, step BIGINT NOT NULL, name VARCHAR NOT NULL, value DOUBLE NOT NULL);
    CREATE TABLE evaluations (
        run BIGINT NOT NULL, method VARCHAR NOT NULL, seed BIGINT NOT NULL, row BIGINT NOT NULL,
        demonstrations BIGINT[] NOT NULL,   -- rows, best first
        dropped INTEGER NOT NULL,           -- shots that did not fit the context
        answer VARCHAR,                     -- NULL: no answer, see failure
        failure VARCHAR NOT NULL,
        correct BOOLEAN, f1 DOUBLE,         -- correct: exact match where the question is open
        uncertainty DOUBLE,
        tokens_in BIGINT NOT NULL, tokens_out BIGINT NOT NULL
    );
    CREATE VIEW undone AS SELECT CAST(target AS BIGINT) AS batch FROM decisions WHERE action = 'undo';
    CREATE VIEW pool AS SELECT * FROM demonstrations WHERE split = 'pool' AND retired_at IS NULL;
    -- A row is pruned if the latest decision on it or on its source, leaving out undone ones, is to prune.
    CREATE VIEW pruned AS
        WITH said AS (
            SELECT p.row, d.seq, d.action FROM pool p JOIN decisions d ON d.scope = 'source' AND d.target = p.source
             WHERE d.batch NOT IN (FROM undone)
            UNION ALL
            SELECT p.row, d.seq, d.action FROM pool p JOIN decisions d ON d.scope = 'demonstration' AND d.target = p.id
             WHERE d.batch NOT IN (FROM undone)
        )
        SELECT row FROM said GROUP BY row HAVING arg_max(action, seq) = 'prune';
    CREATE VIEW active AS SELECT * FROM pool WHERE row NOT IN (SELECT row FROM pruned);
    """,
    # version 2: source importance
    """
    CREATE TABLE source_trials (      -- one demonstration alone, on one validation query
        run BIGINT NOT NULL,
        place BIGINT NOT NULL,        -- order of the trials: query by query, best rank first
        query BIGINT NOT NULL,
        row BIGINT NOT NULL,
        source VARCHAR NOT NULL,
        answer VARCHAR NOT NULL,      -- the option named, or the normalised answer
        correct BOOLEAN NOT NULL
    );
    CREATE TABLE source_weights (
        run BIGINT NOT NULL, source VARCHAR NOT NULL, estimator VARCHAR NOT NULL, score DOUBLE NOT NULL
    );
    """,
    # version 3: the ranker
    """
    CREATE TABLE ranker_steps (       -- one demonstration added to a prompt, and what that did to the answer
        run BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        query BIGINT NOT NULL,
        place INTEGER NOT NULL,       -- shots after it was added
        row BIGINT NOT NULL,          -- the demonstration added
        shown BIGINT[] NOT NULL,      -- rows of the prompt, best first; the last is the one added
        score DOUBLE NOT NULL,        -- the policy's share of it among the candidates
        before BOOLEAN NOT NULL,      -- was the answer right without it
        after BOOLEAN NOT NULL,
        answer_before VARCHAR NOT NULL,
        answer_after VARCHAR NOT NULL
    );
    """,
    # version 4: topics
    """
    CREATE TABLE topics (
        run BIGINT NOT NULL,
        topic BIGINT NOT NULL,        -- its place in the run's predictor
        name VARCHAR NOT NULL,
        knowledge DOUBLE NOT NULL,    -- how often the LLM is right on it without demonstrations, shrunk and clipped
        observations DOUBLE NOT NULL  -- questions behind that, each counted by how much it is about the topic
    );
    CREATE TABLE topic_links (        -- core topics of demonstrations
        run BIGINT NOT NULL,
        row BIGINT NOT NULL,
        topic BIGINT NOT NULL,
        weight FLOAT NOT NULL         -- its distinctiveness, 1 for the most distinctive of the row
    );
    """,
    # version 5: calibration
    """
    ALTER TABLE llm_calls ADD COLUMN entropies DOUBLE[] DEFAULT [];   -- of the tokens' distributions, nats
    CREATE TABLE calibrations (       -- one query walked through rounds under one arm
        run BIGINT NOT NULL,
        arm VARCHAR NOT NULL,         -- full, or an ablation or baseline
        place BIGINT NOT NULL,        -- of the query within the run
        query BIGINT,                 -- its row; NULL for a query that is not indexed
        input VARCHAR NOT NULL,
        over VARCHAR NOT NULL,        -- documents or demonstrations
        final INTEGER,                -- round of the final answer; NULL: no answer
        failure VARCHAR NOT NULL
    );
    CREATE TABLE calibration_documents (
        run BIGINT NOT NULL,
        place BIGINT NOT NULL,
        document INTEGER NOT NULL,    -- from 1, in the order of the prompt's numbers (best first for demonstrations)
        id VARCHAR NOT NULL,
        row BIGINT,                   -- of a demonstration
        text VARCHAR NOT NULL,        -- as it was shown
        relevant BOOLEAN,             -- where that is known
        prompt VARCHAR NOT NULL,      -- JSON messages: the query with this document alone
        answer VARCHAR,               -- NULL: none
        uncertainty DOUBLE,
        score DOUBLE                  -- 0 … 100 within the query
    );
    CREATE TABLE calibration_rounds (
        run BIGINT NOT NULL,
        arm VARCHAR NOT NULL,
        place BIGINT NOT NULL,
        round INTEGER NOT NULL,
        prompt VARCHAR NOT NULL,      -- JSON messages
        answer VARCHAR NOT NULL,
        uncertainty DOUBLE NOT NULL,
        score DOUBLE NOT NULL,        -- 0 … 100 about the set's mean
        correct BOOLEAN, f1 DOUBLE    -- NULL where no reference is known
    );
    CREATE TABLE uncertainty_means (  -- of round 0 over a set of queries, so that a single query can be scored
        llm VARCHAR NOT NULL,         -- the LLM's identity, JSON
        estimator VARCHAR NOT NULL,
        over VARCHAR NOT NULL,
        mean DOUBLE NOT NULL,
        answers BIGINT NOT NULL,
        run BIGINT NOT NULL,
        PRIMARY KEY (llm, estimator, over)
    );
    """,
    # version 6: reviews of calibrated answers
    """
    CREATE TABLE calibration_reviews ( -- append-only; the last word on a query and LLM wins
        seq BIGINT NOT NULL,
        reviewed_at TIMESTAMP NOT NULL,
        who VARCHAR NOT NULL,
        llm VARCHAR NOT NULL,
        query BIGINT NOT NULL,        -- its row
        round INTEGER,                -- of the answer accepted; NULL: none is
        answer VARCHAR NOT NULL,
        note VARCHAR NOT NULL
    );
    """,
    # version 7: the files of a trained model
    """
    CREATE TABLE model_files (
        run BIGINT NOT NULL,
        name VARCHAR NOT NULL,        -- within the run's folder
        digest VARCHAR NOT NULL       -- of the file as it was written; what differs is not used
    );
    """,
    # version 8: answers to the pool's own inputs
    """
    CREATE TABLE row_answers (
        run BIGINT NOT NULL,
        row BIGINT NOT NULL,          -- the demonstration whose input was asked
        shown BIGINT[] NOT NULL,      -- rows in the prompt, best first; none: zero-shot
        answer VARCHAR NOT NULL,
        correct BOOLEAN NOT NULL,     -- is it what the row's own output says
        score DOUBLE                  -- of the row's own output by the LLM, higher is better; NULL: not known
    );
    """,
    # version 9: corrected outputs; demonstrations.output is the one that applies
    """
    CREATE TABLE new_outputs (
        seq BIGINT NOT NULL,          -- of the decision to relabel
        output VARCHAR NOT NULL
    );
    CREATE TABLE outputs_as_read (    -- rows whose output a decision has ever changed
        row BIGINT NOT NULL,
        output VARCHAR NOT NULL       -- as the file has it
    );
    CREATE TABLE output_changes (row BIGINT NOT NULL, changed_at TIMESTAMP NOT NULL, output VARCHAR NOT NULL);
    -- What a run learnt about a row that had another output then than it has now.
    CREATE VIEW outdated AS
        SELECT r.run, o.row FROM runs r CROSS JOIN outputs_as_read o JOIN demonstrations d ON d.row = o.row
          LEFT JOIN output_changes c ON c.row = o.row AND c.changed_at <= r.started_at
         GROUP BY r.run, o.row, o.output, d.output
        HAVING coalesce(arg_max(c.output, c.changed_at), o.output) <> d.output;
    """,
    # version 10: datamodels
    """
    CREATE TABLE prompt_trials (      -- a validation query with a random subset of its candidates
        run BIGINT NOT NULL,
        query BIGINT NOT NULL,
        shown BIGINT[] NOT NULL,      -- rows of the prompt, best first
        correct BOOLEAN NOT NULL
    );
    """,
    # version 11: conversations
    """
    -- JSON: [[role, content], …] before the input; NULL if the row came from no conversation
    ALTER TABLE demonstrations ADD COLUMN history VARCHAR;
    CREATE OR REPLACE VIEW pool AS SELECT * FROM demonstrations WHERE split = 'pool' AND retired_at IS NULL;
    CREATE OR REPLACE VIEW active AS SELECT * FROM pool WHERE row NOT IN (SELECT row FROM pruned);
    """,
    # version 12: states of the pool by name
    """
    CREATE TABLE versions (
        version BIGINT NOT NULL,
        name VARCHAR NOT NULL,        -- unique
        saved_at TIMESTAMP NOT NULL,
        who VARCHAR NOT NULL,
        note VARCHAR NOT NULL,
        decision BIGINT NOT NULL,     -- seq of the latest decision then
        next_row BIGINT NOT NULL      -- rows from this number on were read later
    );
    CREATE TABLE version_rows (version BIGINT NOT NULL, row BIGINT NOT NULL);   -- the active pool
    CREATE TABLE version_outputs (version BIGINT NOT NULL, row BIGINT NOT NULL, output VARCHAR NOT NULL);  -- corrected
    """,
    # version 13: what became of each query of an evaluation
    """
    -- right, wrong, unusable, refused, failed or unjudged; of earlier runs it is not known which answers were unusable
    ALTER TABLE evaluations ADD COLUMN state VARCHAR;
    UPDATE evaluations SET state = CASE
        WHEN correct THEN 'right' WHEN NOT correct THEN 'wrong' WHEN answer IS NOT NULL THEN 'unjudged'
        WHEN split_part(failure, ':', 1) IN ('refusal', 'context', 'request') THEN 'refused' ELSE 'failed' END;
    """,
    # version 14: how good each answer is, from 0 to 1 (NULL in earlier rows: 1 where it is correct, else 0), and what
    # of which reply it is
    """
    ALTER TABLE source_trials ADD COLUMN value DOUBLE;
    ALTER TABLE prompt_trials ADD COLUMN value DOUBLE;
    ALTER TABLE calibration_rounds ADD COLUMN value DOUBLE;
    ALTER TABLE evaluations ADD COLUMN value DOUBLE;
    ALTER TABLE evaluations ADD COLUMN how VARCHAR;     -- the rules by which the answer was read
    ALTER TABLE evaluations ADD COLUMN reply VARCHAR;   -- what the LLM wrote, in part if long; NULL: the answer
    """,
    # version 15: what was undone can be done again
    """
    CREATE OR REPLACE VIEW undone AS
        SELECT TRY_CAST(target AS BIGINT) AS batch FROM decisions
         WHERE scope = 'batch' AND TRY_CAST(target AS BIGINT) IS NOT NULL
         GROUP BY target HAVING arg_max(action, seq) = 'undo';
    """,
    # version 16: whose budget paid for an answer, so that a run that is killed knows its own when it goes on
    "ALTER TABLE llm_calls ADD COLUMN run BIGINT;   -- NULL: nobody will ask",
    # version 17: which rows a correction is about, as an id may go on to another question: of earlier ones the row that
    # got the output first; and which repeats have the same input, until the next comparison nearly
    r"""
    ALTER TABLE new_outputs ADD COLUMN row BIGINT;      -- several if it was carried over; NULL: not known
    UPDATE new_outputs AS n SET row = meant.row FROM (
        SELECT seq, arg_min(p.row, (coalesce(c.changed_at, 'infinity'), -p.row)) AS row
          FROM new_outputs o JOIN decisions d USING (seq)
          JOIN demonstrations p ON p.id = d.target AND p.indexed_at <= d.decided_at
          LEFT JOIN output_changes c ON c.row = p.row AND c.output = o.output AND c.changed_at >= d.decided_at
         GROUP BY seq) meant
     WHERE n.seq = meant.seq;
    ALTER TABLE duplicates ADD COLUMN same BIGINT;      -- first row of the group with exactly this input, or itself
    UPDATE duplicates AS u SET same = texts.same FROM (
        SELECT row, min(row) OVER (PARTITION BY of, lower(regexp_replace(trim(input), '\s+', ' ', 'g'))) AS same
          FROM (SELECT row, of FROM duplicates UNION SELECT of, of FROM duplicates) JOIN demonstrations USING (row)
         ) texts
     WHERE u.row = texts.row;
    """,
)

VERSION = len(MIGRATIONS)
META = "CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)"
"""What every version has: the schema's version among other things."""


def version_of(con: duckdb.DuckDBPyConnection) -> int:
    """The schema version the file was written with; 0 for an empty file."""
    try:  # checking whether the table exists first takes thirty times as long
        stored = con.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except duckdb.CatalogException:
        return 0
    if stored and not re.fullmatch("[0-9]{1,9}", stored[0]):
        raise WorkspaceError("the workspace's schema version is no number", "index its rows into a new workspace")
    return int(stored[0]) if stored else 0


def check_version(version: int) -> None:
    """Raise `WorkspaceError` for a file written by a newer release."""
    if version > VERSION:
        raise WorkspaceError(
            f"the workspace has schema version {version}; this release supports up to {VERSION}",
            "pip install --upgrade icl-curate",
        )


def migrate(con: duckdb.DuckDBPyConnection) -> None:
    """Migrate an open file to `VERSION`, in one transaction."""
    version = version_of(con)
    check_version(version)
    if version == VERSION:
        return
    con.execute("BEGIN")
    try:
        if version == 0:
            con.execute(META)
            con.execute("INSERT INTO meta VALUES ('created_at', ?)", [datetime.now(UTC).isoformat(timespec="seconds")])
        for step in MIGRATIONS[version:]:
            con.execute(step)
        con.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", [str(VERSION)])
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise


SETTLED = "b9d2340542f9250325e03f83238e41846af272e5b0763dcb611b47caf4ceae9b"
"""The digest of a file of this release with nothing else in it, where DuckDB is the one of ``constraints.txt``. It
only saves time: for another digest the migrations are run, to compare."""


class Held(NamedTuple):
    """Something that a file holds, with DuckDB's own SQL of it if there is one."""

    kind: str
    schema: str
    name: str
    sql: str


_RELATIONS = (
    "'table', schema_name, table_name, sql FROM duckdb_tables() WHERE true",
    "'view', schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal",
)
_OTHERS = (
    "'schema', schema_name, schema_name, '' FROM duckdb_schemas() WHERE NOT internal",
    "'index', schema_name, index_name, sql FROM duckdb_indexes() WHERE true",
    "'sequence', schema_name, sequence_name, sql FROM duckdb_sequences() WHERE true",
    "'type', schema_name, type_name, '' FROM duckdb_types() WHERE NOT internal",
    "'trigger', schema_name, trigger_name, sql FROM duckdb_triggers() WHERE true",
    "'macro', schema_name, function_name, '' FROM duckdb_functions() WHERE true",
)
_OIDS = "SELECT database_oid - oid FROM duckdb_schemas() WHERE schema_name = 'main' AND database_name = ?"

_made: dict[int, frozenset[Held]] = {}
"""What files of a version hold; filled as needed."""


def check_content(con: duckdb.DuckDBPyConnection, catalog: str, database: Path) -> int:
    """The schema version of the file ``database``, which is attached as ``catalog``. Raises `WorkspaceError` if the
    file is of a newer release, or holds anything but what the migrations up to its version make.

    ``con`` must not use the catalog yet, whose macros would come before DuckDB's own functions; it does afterwards.

    Listing all that there is takes DuckDB 15 ms, most of it for functions, and running the migrations as long. A file
    with the digest `SETTLED` needs neither: while DuckDB attaches a file it numbers all that is in it, and then the
    file, so that with tables and views as they should be those numbers leave no room for anything else.
    """
    held = _held(con, catalog, *_RELATIONS)
    settled = _digest(held, con.execute(_OIDS, [catalog]).fetchone()) == SETTLED
    if not settled and (held := held | _held(con, catalog, *_OTHERS)):
        _demand(frozenset(one for one in held if one.name == "meta"), _made_by(con, 0), database)
    con.execute(f"USE {catalog}")
    version = version_of(con)
    check_version(version)
    if held and not (settled and version == VERSION):
        _demand(held, _made_by(con, version), database)
    return version


def _held(con: duckdb.DuckDBPyConnection, catalog: str, *lists: str) -> frozenset[Held]:
    query = " UNION ALL ".join(f"SELECT {one} AND database_name = $catalog" for one in lists)
    return frozenset(Held(*row) for row in con.execute(query, {"catalog": catalog}).fetchall())


def _made_by(con: duckdb.DuckDBPyConnection, version: int) -> frozenset[Held]:
    """What the migrations up to a version make, tried in memory."""
    if version not in _made:
        with con.cursor() as aside:
            aside.execute("BEGIN")
            for step in (META, *MIGRATIONS[:version]):
                aside.execute(step)
            _made[version] = _held(aside, "memory", *_RELATIONS, *_OTHERS)
            aside.execute("ROLLBACK")
    return _made[version]


def _digest(held: frozenset[Held], oids: object) -> str:
    told = (duckdb.__version__, META, MIGRATIONS, sorted(held), oids)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _demand(held: frozenset[Held], made: frozenset[Held], database: Path) -> None:
    """Raise `WorkspaceError` unless both are the same."""
    if held == made:
        return
    one = min(held - made or made - held)
    what = f"{one.kind} '{display_line(one.name, 60)}'"
    if one not in held:
        why = f"lacks the {what}"
    elif any(one[:3] == other[:3] for other in made):
        why = f"has another {what} than icl-curate makes"
    else:
        why = f"holds a {what} that icl-curate did not make"
    raise WorkspaceError(
        f"{database} {why}, so nothing in it is read",
        "ask whoever made it for the rows as a file, then: icl-curate index FILE --workspace NEW",
    )
