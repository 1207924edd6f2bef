"""One transaction from staged rows to the tables: compare them with the stored rows, then add, retire, revive and move.

Rows never change: new content under an old id is a new row, a row gone from its file is retired, and one that comes
back is revived.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote

import duckdb
import numpy as np

from ..base.errors import UsageError, counted
from ..grading.forms import form_of, tokens_for
from ..pool.records import STRUCTURED, Task, TaskKind
from ..pool.sets import LABEL_LENGTH, MOST_LABELS, ROWS_A_LABEL, members_of
from ..store import columns
from ..store.carried import SAID, Carried, carry_over, paired
from ..store.demonstrations import (
    COMPARED,
    FORM,
    RESPLIT,
    TOKENS,
    next_row,
    retire,
    revive,
    rows_by_split,
    sampled_outputs,
    telling_outputs,
)
from ..store.workspace import Workspace
from .files import IndexedFile, sign_outside
from .readers.files import STDIN
from .results import Skipped, strictly
from .staging import Staged

TOGETHER = 1 << 25
"""Bytes of staged files, compressed, whose rows are added at once."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How many rows were added, retired and revived, how many ``moved`` to another split, and how many of these were
    ``released``: queries before, rows of the pool now; what became of decisions on them."""

    added: int = 0
    retired: int = 0
    revived: int = 0
    moved: int = 0
    released: int = 0
    carried: Carried = Carried()


def merge(
    con: duckdb.DuckDBPyConnection,
    workspace: Workspace,
    files: list[IndexedFile],
    staging: Path,
    staged: Staged,
    strict: bool,
    dropped: Sequence[str] = (),
) -> Changes:
    """Bring the tables up to date with the staged rows of ``files``, and forget those ``dropped``."""
    names = [*(file.name for file in files), *dropped]
    con.execute("DELETE FROM skipped WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    if staged.skipped:
        columns.insert(con, "skipped", columns.of_rows([asdict(one) for one in staged.skipped]))
    _load(con, workspace, staging, [file.name for file in files])  # one that is gone and dropped may have a new name
    _refuse_taken_ids(con, names, strict)
    counts = _apply(con, staging, names)
    if dropped or any(file.reading.split is None for file in files):
        _refuse_empty_pool(con, dropped)
    con.execute("DELETE FROM files WHERE path IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    for file in files:
        con.execute(
            """
            INSERT INTO files SELECT ?, ?, ?, count(*), now() AT TIME ZONE 'UTC' FROM demonstrations
             WHERE file = ? AND retired_at IS NULL
            """,
            [file.name, file.digest, file.reading.text(), file.name],
        )
    sign_outside(con, workspace, files)
    before = (columns.noted(con, OF_SETS) or "").split("\0")
    columns.note(con, OF_SETS, "\0".join(sorted({*staged.of_sets, *before} - ({*names} - {*staged.of_sets}) - {""})))
    describe(con)
    con.execute("DELETE FROM meta WHERE key = ?", [COMPARED])  # duplicates are out of date now
    con.execute("DROP TABLE staged")
    return counts


def _refuse_empty_pool(con: duckdb.DuckDBPyConnection, dropped: Sequence[str]) -> None:
    """Raise `UsageError` if files of the pool leave no row in it."""
    splits = rows_by_split(con)
    if not splits.get("pool"):
        held_out = " and ".join(f"{counted(rows, 'row')} in {split}" for split, rows in sorted(splits.items()))
        raise UsageError(
            f"the pool would be empty: {held_out or 'no row'}",
            f"if {dropped[0]} has another name now, index that, too: icl-curate index FILE --drop {quote(dropped[0])}"
            if dropped
            else "rows with the same input are held out together: give queries as files, --validation FILE",
        )


def _load(con: duckdb.DuckDBPyConnection, workspace: Workspace, staging: Path, names: list[str]) -> None:
    """The staged rows with complete ids, without their texts; ids of files that no longer exist are released."""
    con.execute(
        """
        CREATE TEMP TABLE staged AS
        SELECT ordinal, id, named, split, hash, file, line FROM read_parquet(?, hive_partitioning = false)
        """,
        [sorted(map(str, staging.glob("*.parquet")))],
    )
    others = con.execute(
        "SELECT path FROM files WHERE path NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names]
    ).fetchall()
    gone = [path for (path,) in others if path != STDIN and not os.path.lexists(workspace.path.parent / path)]
    _give_ids(con, staging, [*names, *gone])
    if gone:
        con.execute(
            """
            UPDATE demonstrations AS d SET file = s.file, line = s.line
              FROM (SELECT DISTINCT ON (l.row) l.row, s.file, s.line FROM staged s JOIN demonstrations l USING (id)
                     WHERE l.retired_at IS NULL AND l.file IN (SELECT unnest(CAST(? AS VARCHAR[])))
                     ORDER BY l.row, s.hash <> l.hash, s.ordinal) s
             WHERE d.row = s.row
            """,
            [gone],
        )


def _give_ids(con: duckdb.DuckDBPyConnection, staging: Path, files: list[str]) -> None:
    """Give rows without ids those of rows of the ``files`` that are equal, else of those that only say the same (a
    column came or went, or the file has another name): decisions on them stay. What is new has its hash, and equal
    ones are told apart by numbers, the first that no row has."""
    con.execute(
        """
        CREATE TEMP TABLE unnamed AS
        SELECT ordinal AS row, id AS base, hash, file, line, split, CAST(NULL AS VARCHAR) AS source,
               CAST(NULL AS VARCHAR) AS said
          FROM staged WHERE NOT named
        """
    )
    con.execute(
        """
        CREATE TEMP TABLE earlier AS
        SELECT row, id, hash, file, line, split, source, CAST(NULL AS VARCHAR) AS said,
               row IN (FROM pruned) AS is_out
          FROM demonstrations
         WHERE retired_at IS NULL AND file IN (SELECT unnest(CAST(? AS VARCHAR[])))
           AND id NOT IN (SELECT id FROM staged WHERE named)
        """,
        [files],
    )
    con.execute("CREATE TEMP TABLE kept (ordinal BIGINT, row BIGINT, id VARCHAR)")
    _keep_ids(con, "hash, file")
    if columns.number(con, "SELECT least((SELECT count(*) FROM earlier), (SELECT count(*) FROM unnamed))"):
        con.execute(
            f"""
            UPDATE unnamed AS u SET source = p.source, said = md5(CAST(({SAID}, output) AS VARCHAR))
              FROM read_parquet(?, hive_partitioning = false) p WHERE p.ordinal = u.row
            """,
            [sorted(map(str, staging.glob("*.parquet")))],
        )
        con.execute(
            f"""
            UPDATE earlier AS e SET said = md5(CAST(({SAID}, coalesce(r.output, d.output)) AS VARCHAR))
              FROM demonstrations d LEFT JOIN outputs_as_read r USING (row) WHERE d.row = e.row
            """
        )
        for alike in ("said, file, source", "said, file", "said, split, source", "said, split", "said"):
            _keep_ids(con, alike)
    con.execute(
        """
        WITH places AS (
            SELECT row AS ordinal, base, row_number() OVER (PARTITION BY base ORDER BY row) AS place FROM unnamed
        ), used AS (
            SELECT id FROM kept
             UNION SELECT id FROM demonstrations
             WHERE retired_at IS NULL AND file NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))
        ), taken AS (
            SELECT split_part(id, '~', 1) AS base, coalesce(TRY_CAST(split_part(id, '~', 2) AS BIGINT), 1) AS n
              FROM used WHERE split_part(id, '~', 1) IN (SELECT base FROM unnamed)
        ), most AS (
            SELECT base, count(*) AS n FROM (SELECT base FROM unnamed UNION ALL SELECT base FROM taken)
             WHERE base IN (SELECT base FROM taken) GROUP BY base
        ), free AS (
            SELECT base, n, row_number() OVER (PARTITION BY base ORDER BY n) AS place
              FROM (SELECT base, unnest(range(1, n + 1)) AS n FROM most) ANTI JOIN taken USING (base, n)
        )
        INSERT INTO kept
        SELECT ordinal, NULL, base || '~' || coalesce(n, place) FROM places LEFT JOIN free USING (base, place)
         WHERE coalesce(n, place) > 1
        """,
        [files],
    )
    con.execute("UPDATE staged AS s SET id = k.id FROM kept k WHERE k.ordinal = s.ordinal")
    con.execute("DROP TABLE unnamed; DROP TABLE earlier; DROP TABLE kept")


def _keep_ids(con: duckdb.DuckDBPyConnection, alike: str) -> None:
    """Rows keep the ids of those that agree with them in ``alike``, see `paired`; neither is there for others then."""
    con.execute(f"INSERT INTO kept SELECT n.row, o.row, o.id FROM {paired('earlier', 'unnamed', alike)}")
    con.execute("DELETE FROM unnamed WHERE row IN (SELECT ordinal FROM kept)")
    con.execute("DELETE FROM earlier WHERE row IN (SELECT row FROM kept)")


def _refuse_taken_ids(con: duckdb.DuckDBPyConnection, names: list[str], strict: bool) -> None:
    """An id belongs to one row: the one that a file not among ``names`` already has, else that of the file that has it,
    else one equal to the row that has it, else the first in this run."""
    con.execute(
        """
        CREATE TEMP TABLE refused AS
        SELECT s.ordinal, s.file, s.line,
               'the id ' || s.id || ' is taken by '
               || coalesce(o.file || ':' || o.line, f.file || ':' || f.line) AS reason
          FROM staged s
          LEFT JOIN demonstrations o ON o.id = s.id AND o.retired_at IS NULL
               AND o.file NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))
          LEFT JOIN (SELECT DISTINCT ON (r.id) r.id, r.ordinal, r.file, r.line
                       FROM staged r LEFT JOIN demonstrations l ON l.id = r.id AND l.retired_at IS NULL
                      WHERE r.id IN (SELECT id FROM staged GROUP BY id HAVING count(*) > 1)
                      ORDER BY r.id, CASE WHEN l.file = r.file THEN 0 WHEN l.hash = r.hash THEN 1 ELSE 2 END, r.ordinal
                    ) f ON f.id = s.id AND f.ordinal <> s.ordinal
         WHERE o.id IS NOT NULL OR f.id IS NOT NULL
        """,
        [names],
    )
    first = con.execute("SELECT file, line, reason, count(*) OVER () FROM refused ORDER BY ordinal LIMIT 1").fetchone()
    if first and strict:
        raise strictly(Skipped(*first[:3]), first[3])
    con.execute("INSERT INTO skipped SELECT file, line, reason FROM refused ORDER BY ordinal")
    con.execute("DELETE FROM staged WHERE ordinal IN (SELECT ordinal FROM refused)")
    con.execute("DROP TABLE refused")


def _apply(con: duckdb.DuckDBPyConnection, staging: Path, names: list[str]) -> Changes:
    """Retire, revive, move and add."""
    con.execute(
        """
        CREATE TEMP TABLE before AS
        SELECT row, id, hash, retired_at IS NULL AS live FROM demonstrations
         WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[])))
            OR (retired_at IS NOT NULL AND id IN (SELECT id FROM staged))
        """,
        [names],
    )
    # a row may have been retired and added again several times: use the latest equal one
    con.execute(
        """
        CREATE TEMP TABLE same AS
        SELECT s.ordinal, max(b.row) AS row, arg_max(b.live, b.row) AS live
          FROM staged s JOIN before b ON b.id = s.id AND b.hash = s.hash GROUP BY s.ordinal
        """
    )
    gone = columns.numbers(con, "SELECT row FROM before WHERE live AND row NOT IN (SELECT row FROM same) ORDER BY row")
    back = columns.numbers(con, "SELECT row FROM same WHERE NOT live ORDER BY row")
    retire(con, gone)
    revive(con, back)
    moved, released = con.execute(
        "SELECT count(*), count(*) FILTER (s.split = 'pool') FROM same m JOIN staged s USING (ordinal)"
        " JOIN demonstrations d ON d.row = m.row WHERE m.live AND d.split <> s.split"
    ).fetchone() or (0, 0)
    if moved or back.size:  # neither has a time of its own
        columns.note(con, RESPLIT, str(columns.now()))
    con.execute(
        """
        UPDATE demonstrations AS d SET split = s.split, file = s.file, line = s.line
          FROM same m JOIN staged s USING (ordinal)
         WHERE d.row = m.row AND (d.split, d.file, d.line) <> (s.split, s.file, s.line)
        """
    )
    con.execute(
        """
        CREATE TEMP TABLE added AS
        SELECT ordinal, id, ? + row_number() OVER (ORDER BY ordinal) - 1 AS row
          FROM staged ANTI JOIN same USING (ordinal) ORDER BY ordinal
        """,
        [next_row(con)],
    )
    for paths in _together(sorted(staging.glob("*.parquet"))):
        con.execute(
            """
            INSERT INTO demonstrations
            SELECT a.row, a.id, input, output, options, answers, context, source, split, metadata, hash, file, line,
                   now() AT TIME ZONE 'UTC', NULL, history
              FROM read_parquet(?, hive_partitioning = false) JOIN added a USING (ordinal) ORDER BY a.row
            """,
            [paths],
        )
    added = columns.numbers(con, "SELECT row FROM added")
    con.execute("DROP TABLE before; DROP TABLE same; DROP TABLE added")
    carried = carry_over(con, gone, np.concatenate([back, added]))
    return Changes(int(added.size), int(gone.size), int(back.size), moved, released, carried)


def _together(files: Sequence[Path]) -> Iterator[list[str]]:
    """The files in their order, as many at once as have `TOGETHER` bytes: their rows are sorted in memory."""
    parts = np.cumsum([file.stat().st_size for file in files]) // TOGETHER
    for _, part in groupby(zip(parts.tolist(), files, strict=True), key=itemgetter(0)):
        yield [str(file) for _, file in part]


def describe(con: duckdb.DuckDBPyConnection) -> None:
    """Note the kind of answers in the pool, their form, and how many tokens they take."""
    kind, form = _task(con), form_of(Task("open", one_line=False), telling_outputs(con))
    if kind == "labels" and form in STRUCTURED:  # few of them, but with parts
        kind = "open"
    columns.note(con, "task", kind)
    columns.note(con, FORM, form if kind == "open" else "short")
    columns.note(con, TOKENS, str(tokens_for(sampled_outputs(con), form)))


OF_SETS = "files_of_sets"
"""Key of the names of the files whose outputs are sets of labels: an output alone does not tell "Paris, Texas" from two
labels."""


def _task(con: duckdb.DuckDBPyConnection) -> TaskKind:
    """The kind of answers in the pool, see `Task`."""
    counted = con.execute(
        """
        SELECT count(*), count(*) FILTER (len(options) > 0), count(DISTINCT output), max(length(output))
          FROM demonstrations WHERE retired_at IS NULL AND split = 'pool'
        """
    ).fetchone()
    total, with_options, distinct, longest = counted or (0, 0, 0, 0)
    if total and with_options * 2 > total:
        return "options"
    sets = con.execute(
        """
        SELECT output, count(*) FROM demonstrations WHERE retired_at IS NULL AND split = 'pool'
           AND file IN (SELECT unnest(string_split((SELECT value FROM meta WHERE key = $1), chr(0)))) GROUP BY output
        """,
        [OF_SETS],
    ).fetchall()
    if sum(rows for _, rows in sets) * 2 > total and any(len(members_of(output)) > 1 for output, _ in sets):
        return "sets"
    if total and distinct <= MOST_LABELS and distinct * ROWS_A_LABEL <= total and longest <= LABEL_LENGTH:
        return "labels"
    return "open"
