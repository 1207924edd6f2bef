"""Indexing: read, validate, compare with the stored rows, and store what changed.

Files are parsed into a staging file first; then one short transaction compares it with the workspace. Rows never
change: new content under an old id is a new row, a row gone from its file is retired, and one that comes back is
revived.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any

import duckdb
import numpy as np

from ..base import memory
from ..base.errors import NoWorkspaceError, UsageError, counted
from ..base.files import private
from ..base.progress import CancelToken, Event, Report, silent
from ..grading.forms import form_of, tokens_for
from ..pool.records import STRUCTURED, Task, TaskKind
from ..pool.sets import LABEL_LENGTH, MOST_LABELS, ROWS_A_LABEL, members_of
from ..retrieval import artefacts, duplicates
from ..retrieval.served import Access
from ..shards.shard import INLINE, Engine
from ..store import columns
from ..store.carried import SAID, Carried, carry_over, paired
from ..store.demonstrations import (
    COMPARED,
    FORM,
    LEAKS,
    REPEATS,
    RESPLIT,
    TOKENS,
    encoder_of,
    live_keys,
    next_row,
    retire,
    revive,
    rows_by_split,
    sampled_outputs,
    telling_outputs,
)
from ..store.locks import exclusive
from ..store.outputs import check_labels
from ..store.settings import CONFIG, Settings
from ..store.workspace import Workspace
from .databases import SQL
from .files import (
    IndexedFile,
    Reading,
    changed_files,
    download,
    dropped_files,
    indexed_file,
    known_files,
    rows_file,
    sign_outside,
    split_of,
    stored_query,
    taken_over,
)
from .readers.files import STDIN, expand
from .readers.records import NOT_UTF8, line_of, to_utf8
from .results import IndexReport, Skipped, strictly
from .rows import check_globs, check_mapping, columns_of
from .staging import Staged, stage, staging_folder
from .understood import like_column, name_them, unnamed_labels

LEAST_ALIKE = 0.5
"""The lowest ``near_duplicate``: of less similar pairs too many would be missed."""
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
    _describe(con)
    con.execute("DELETE FROM meta WHERE key = ?", [COMPARED])  # duplicates are out of date now
    con.execute("DROP TABLE staged")
    return counts


def _refuse_absent(staged: Staged, unchanged: bool) -> None:
    """Raise `UsageError` for a column that was mapped and that no file has; an ``unchanged`` one may have it."""
    names = [*dict.fromkeys(column for told in staged.readings for column in told.columns)]
    if not unchanged:
        for column, name in staged.absent.items():
            raise UsageError(f"no file has the column {column!r} (--map {name}={column})", like_column(column, names))


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


def _describe(con: duckdb.DuckDBPyConnection) -> None:
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


ROW_BYTES = 400
"""Memory for each row while hashes and lexical index are made, measured on a million short ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """What to read and how.

    Without ``paths`` and query files: every known file again, with its earlier options but for those given, which are
    its own from now on. ``columns`` maps fields to column names; a key ``GLOB::field`` holds for the files that match
    alone, see `columns_of`. ``validation`` and ``test`` are files of queries; the fractions set aside this share of the
    pool, by a hash of the input, so that a row stays in its split as the pool grows and duplicates are in the same
    split. ``encoder`` None: no vectors. ``access``: to an encoder behind an API. ``passages``: rows are retrieved by
    their passages, too. ``labels``: names of labels that the files give as numbers from 0. ``engine``: what computes
    over the whole pool. ``drop``: known files that are no longer read; their rows are retired. One file in the place of
    another is read as that was, unless columns, source, labels or fractions are given.
    """

    paths: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    source: str | None = None
    strict: bool = False
    near_duplicate: float = 0.8
    encoder: str | None = None
    device: str = "auto"
    full_precision: bool = False
    passages: bool = False
    access: Access = Access()
    labels: tuple[str, ...] = ()
    engine: Engine = INLINE
    drop: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, *, max_cost: float | None = None, **given: Any) -> IndexPlan:
        """A plan with what is ``given``, else as the settings say; ``max_cost`` in US dollars for the encoder."""
        as_set: dict[str, Any] = {
            "near_duplicate": settings.near_duplicate,
            "encoder": settings.encoder,
            "device": settings.device,
            "full_precision": settings.full_precision,
            "passages": settings.passages,
            "access": Access.of(settings, max_cost),
            "engine": Engine.of(settings),
        }
        return cls(**as_set | given)


@contextmanager
def made_workspace(folder: Path) -> Iterator[Workspace]:
    """The workspace in ``folder``. A new folder goes again if an error comes before any file has been indexed, here or
    by another process, which has a folder for its rows by then."""
    new, workspace = not folder.exists(), Workspace.create(folder)
    try:
        yield workspace
    except BaseException:
        if new:
            with workspace.read() as con:
                new = not con.execute("SELECT path FROM files LIMIT 1").fetchall()
            new = new and not any(path.is_dir() for path in (workspace.path / "tmp").glob("*"))
        if new:
            shutil.rmtree(workspace.path, ignore_errors=True)
        raise


def index_pool(
    workspace: Workspace, plan: IndexPlan, report: Report = silent, cancel: CancelToken | None = None
) -> IndexReport:
    """Bring the workspace up to date with the files of ``plan``.

    A bad row is skipped and reported with file and line; with ``strict`` it is an error. A file that cannot be read at
    all, a mapping without id or a fraction out of range raises `UsageError`, and nothing is changed. Everything but the
    vectors changes in one transaction; vectors are stored block by block. Raises `Cancelled` between batches.
    """
    cancel = cancel or CancelToken()
    _check(plan)
    dropped = dropped_files(workspace, plan.drop)
    files, passed = _files(workspace, plan, report, cancel)
    _tell_gone(workspace, {*(file.name for file in files), *dropped}, report)
    changed = changed_files(workspace, files, dropped)
    changes = Changes()
    staged = Staged([], [], set(), {})
    encoded = 0
    # held until the new rows have their vectors: who needs those waits for it
    with exclusive(artefacts.encoding_lock(workspace)) if plan.encoder else nullcontext():
        with staging_folder(workspace) as staging:
            if changed or dropped:
                staged = stage(workspace, changed, staging, plan.strict, report, cancel, plan.engine)
                _refuse_absent(staged, unchanged=len(files) > len(changed))
                with workspace.write() as con:
                    changes = merge(con, workspace, changed, staging, staged, plan.strict, dropped)
        with workspace.read() as con:
            compared = columns.noted(con, COMPARED) == str(plan.near_duplicate)
            described = columns.noted(con, FORM) is not None
        if not described:  # by an earlier release
            with workspace.write() as con:
                _describe(con)
        if changed or dropped or not compared:
            _tell_memory(workspace, report)
            duplicates.update(workspace, plan.near_duplicate, report, cancel, plan.engine)
        artefacts.lexical_index(workspace, report, cancel, reread=True, passages=plan.passages, engine=plan.engine)
        if plan.encoder:
            encoded = artefacts.encode(
                workspace, plan.encoder, plan.device, report, cancel,
                full_precision=plan.full_precision, passages=plan.passages, access=plan.access,
                engine=plan.engine,
            )  # fmt: skip
    with workspace.read() as con:
        index_report = _report(con, files, passed, len(files) - len(changed), changes, staged)
        repeats = dict(con.execute(REPEATS.format(rows="pool")).fetchall())
        leaking = tuple(name for (name,) in con.execute(LEAKS.format(rows="pool")).fetchall())
    return replace(index_report, duplicates=repeats, leaking=leaking, encoded=encoded, encoder=plan.encoder)


def _tell_gone(workspace: Workspace, named: Collection[str], report: Report) -> None:
    """Say of which known files that are not ``named`` now the rows stay, though the file is gone."""
    with workspace.read() as con:
        known = con.execute("SELECT path FROM files WHERE path <> ? ORDER BY path", [STDIN]).fetchall()
    for (name,) in known:
        if name not in named and not os.path.lexists(workspace.path.parent / name):
            stay = f"{name} is gone, its rows stay; to leave them out: icl-curate index --drop {quote(name)}"
            report(Event("index", note=stay))


def _tell_memory(workspace: Workspace, report: Report) -> None:
    """Say so if hashes and lexical index are likely not to fit into memory."""
    with workspace.read() as con:
        needed = ROW_BYTES * next_row(con)
    fix = "stop with Ctrl+C and index on a machine with more, or a part of the rows in each workspace"
    memory.warn(report, "near duplicates and lexical index take", needed, fix)


def dry_run_index(
    path: Path, plan: IndexPlan, report: Report = silent, cancel: CancelToken | None = None
) -> IndexReport:
    """What `index_pool` would do with the workspace at ``path``, which need not exist; nothing is changed, but what
    is no file is downloaded or asked for.

    Everything is read, validated and compared as in a real run, but duplicates and leaks are not searched for, and
    nothing is encoded: ``encoded`` counts the texts that would be. Raises what `index_pool` raises.
    """
    cancel = cancel or CancelToken()
    _check(plan)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            workspace = Workspace.open(path)
        except NoWorkspaceError:
            workspace = Workspace.create(Path(scratch) / "workspace")
        dropped = dropped_files(workspace, plan.drop)
        files, passed = _files(workspace, plan, report, cancel)
        changed = changed_files(workspace, files, dropped)
        with staging_folder(workspace) as staging:
            staged = stage(workspace, changed, staging, plan.strict, report, cancel, plan.engine)
            _refuse_absent(staged, unchanged=len(files) > len(changed))
            with workspace.write(dry_run=True) as con:
                changes = merge(con, workspace, changed, staging, staged, plan.strict, dropped)
                index_report = _report(con, files, passed, len(files) - len(changed), changes, staged)
                live, keys = live_keys(con)
        missing = 0
        if plan.encoder:
            missing = artefacts.missing(workspace, plan.encoder, live, keys, passages=plan.passages).size
    return replace(index_report, encoded=missing, encoder=plan.encoder, dry_run=True)


def _check(plan: IndexPlan) -> None:
    check_mapping(plan.columns)
    for name in ("validation_fraction", "test_fraction"):
        if not 0 <= getattr(plan, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {getattr(plan, name)}", "use a fraction from 0 to below 1")
    if plan.validation_fraction + plan.test_fraction >= 1:
        raise UsageError("the fractions leave no rows in the pool", "use fractions that add up to less than 1")
    if not LEAST_ALIKE <= plan.near_duplicate <= 1:
        raise UsageError(
            f"near_duplicate is {plan.near_duplicate}",
            f"use a Jaccard similarity from .5 to 1, by --near-duplicate, ICL_CURATE_NEAR_DUPLICATE or in {CONFIG}",
        )


def _files(
    workspace: Workspace, plan: IndexPlan, report: Report, cancel: CancelToken
) -> tuple[list[IndexedFile], list[Skipped]]:
    """The files to read, and the unreadable files that globs matched, which are an error with ``strict``."""
    if not plan.paths and not plan.validation and not plan.test:
        known = known_files(workspace, cancel, dropped_files(workspace, plan.drop))
        check_globs(plan.columns, [file.path for file in known])
        return [replace(file, reading=_changed_by(plan, file)) for file in known], []
    wanted: list[tuple[str, Reading]] = []
    unread: dict[str, str] = {}
    for part, patterns in {"pool": plan.paths, "validation": plan.validation, "test": plan.test}.items():
        shares = (plan.validation_fraction, plan.test_fraction) if part == "pool" else (0.0, 0.0)
        reading = Reading(None if part == "pool" else part, {}, plan.source, *shares, plan.labels)
        paths, passed = expand(list(download(workspace.path, patterns, report, cancel, part)))
        queries = {
            str(rows_file(workspace.path, pattern, part)): stored_query(workspace.path, pattern)
            for pattern in patterns
            if pattern.startswith(SQL)
        }
        for path in paths:
            split = split_of(path) if reading.split is None else None
            read = replace(
                reading,
                columns=dict(sorted(columns_of(path, plan.columns).items())),
                split=split if split in ("validation", "test") else reading.split,
                query=queries.get(path, ""),
            )
            wanted.append((path, read))
        unread |= passed
    check_globs(plan.columns, [path for path, _ in wanted])
    if unread and plan.strict:
        path, reason = next(iter(unread.items()))
        raise UsageError(f"{path} {reason}", "remove it, or omit --strict to skip it")
    files: dict[str, IndexedFile] = {}
    if len(wanted) == 1 and len(plan.drop) == 1:
        wanted = [(path, taken_over(workspace, read, *dropped_files(workspace, plan.drop))) for path, read in wanted]
    for path, reading in wanted:
        # a later, more specific argument wins: `index data/*.jsonl --test data/test.jsonl`, however the path is written
        file = indexed_file(workspace, path, reading)
        files[file.name] = file
    return [*files.values()], [Skipped(path, 0, reason) for path, reason in unread.items()]


def _changed_by(plan: IndexPlan, file: IndexedFile) -> Reading:
    """How a known file is read from now on: as before, but for what the plan gives."""
    before = file.reading
    if before.split is None:
        validation, test = plan.validation_fraction, plan.test_fraction
        before = replace(
            before,
            validation_fraction=validation or before.validation_fraction,
            test_fraction=test or before.test_fraction,
        )
    return replace(
        before,
        columns=dict(sorted((before.columns | columns_of(file.path, plan.columns)).items())),
        source=before.source if plan.source is None else plan.source,
        labels=plan.labels or before.labels,
    )


def _report(
    con: duckdb.DuckDBPyConnection,
    files: list[IndexedFile],
    passed: Sequence[Skipped],
    unchanged: int,
    changes: Changes,
    staged: Staged,
) -> IndexReport:
    """The state of the workspace and what the files changed in it; nothing is encoded or compared yet."""
    splits = rows_by_split(con)
    skipped = con.execute(
        """
        SELECT file, line, reason FROM skipped
         WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[]))) ORDER BY file, line
        """,
        [[file.name for file in files]],
    ).fetchall()
    return IndexReport(
        demonstrations=splits.get("pool", 0),
        sources=columns.number(con, "SELECT count(DISTINCT source) FROM pool"),
        validation=splits.get("validation", 0),
        test=splits.get("test", 0),
        skipped=(*passed, *(Skipped(*row) for row in skipped)),
        duplicates=None,
        leaking=None,
        added=changes.added,
        retired=changes.retired,
        revived=changes.revived,
        unchanged_files=unchanged,
        task=columns.noted(con, "task") or "open",
        encoded=0,
        encoder=None,
        warnings=(
            *_released(changes),
            *_carried(changes.carried),
            *_unnamed_labels(con, files),
            *_not_utf8(staged, files),
        ),
        readings=tuple(staged.readings),
        moved=changes.moved,
    )


def _released(changes: Changes) -> Iterator[str]:
    """A line if queries may now be shown as demonstrations."""
    if changes.released:
        are = counted(changes.released, "held-out query", "is", "are")
        yield f"{are} in the pool now; to hold rows out: icl-curate index --validation-fraction 0.1 --test-fraction 0.1"


NAMED = 5
"""Ids in a suggested command."""


def _carried(carried: Carried) -> Iterator[str]:
    """A line for each way in which decisions do not stand as they were made."""
    if carried.lapsed:
        lapse = counted(carried.lapsed, "correction", "no longer stands", "no longer stand")
        yield f"{lapse}: the files say something new about the rows"
    if stay := carried.stay:
        still = counted(len(stay), "pruned row", "has changed and stays", "have changed and stay")
        names = " ".join(f"--demo {quote(name)}" for name in stay[:NAMED])
        first = f"the first {NAMED}: " if len(stay) > NAMED else ""
        yield f"{still} pruned: {first}icl-curate restore {names}"
    if carried.gone:
        gone = counted(carried.gone, "row", "is", "are")
        yield f"{gone} gone from the files, with decisions that apply again when they come back: icl-curate history"
    for name in carried.sources:
        yield f"the pruned source {name} has no row now; if it has another name: icl-curate prune --source NAME"


def _not_utf8(staged: Staged, files: Sequence[IndexedFile]) -> Iterator[str]:
    """A line for each file with rows in another encoding, which is not guessed: a wrong guess looks like text."""
    paths = {file.name: file.path for file in files}
    for file, rows in Counter(one.file for one in staged.skipped if one.reason.startswith(NOT_UTF8)).items():
        yield f"{counted(rows, 'row', 'is', 'are')} {NOT_UTF8}, in {file}: {to_utf8(paths.get(file, file))}"


def _unnamed_labels(con: duckdb.DuckDBPyConnection, files: list[IndexedFile]) -> list[str]:
    """A line for each file whose outputs are numbers without the names of their labels."""
    rows = con.execute(
        """
        SELECT file, list(DISTINCT output), count(*) FROM demonstrations
         WHERE retired_at IS NULL AND file IN (SELECT unnest(CAST($1 AS VARCHAR[])))
         GROUP BY file HAVING max(len(options)) = 0 AND max(length(output)) < 4 ORDER BY file
        """,
        [[file.name for file in files]],
    ).fetchall()
    return [name_them(file, *found) for file, outputs, count in rows if (found := unnamed_labels(outputs, count))]


ADDED = "added.jsonl"
"""The first of the files in a workspace that hold what was added; `index` reads them again like any other."""
LARGEST_ADDED = 1 << 18
"""Bytes of a file from which another one is begun: each addition reads its file again."""


def add_demonstration(
    workspace: Workspace, settings: Settings, record: Mapping[str, Any], new_label: bool = False
) -> None:
    """Index ``record`` as one more row, with a vector if the other rows have one. Without an id it gets one.

    Raises `UsageError` for a record that `index_pool` would skip, or with a label that no row has, unless it is a
    ``new_label``, and changes nothing then.
    """
    if not record.get("options"):
        with workspace.read() as con:
            try:
                check_labels(con, {"": str(record.get("output", ""))}, new_label)
            except UsageError as error:
                raise UsageError(
                    f"the demonstration was not added: {error.what}", "new_label=True allows it"
                ) from error
    line = line_of({"id": uuid.uuid4().hex[:16], **record})
    encoder = encoder_of(workspace)
    with exclusive(workspace.path / "tmp" / "add.lock"):
        path = _latest_added(workspace.path)
        plan = IndexPlan.of(settings, paths=(str(path),), strict=True, encoder=encoder, engine=INLINE)
        _check(plan)
        if path.exists():  # one that was killed may have left a part of its line, by which no other could be read
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        with open(path, "ab", opener=private) as file:
            before = file.tell()
            file.write(line)
        try:
            index_pool(workspace, plan)
        except BaseException as error:
            os.truncate(path, before)
            if not before:
                path.unlink()
            if isinstance(error, UsageError):
                raise UsageError(f"the demonstration was not added: {error.what}", "correct its fields") from error
            raise


def _latest_added(folder: Path) -> Path:
    """The file to add to."""
    path, number = folder / ADDED, 1
    while path.exists() and path.stat().st_size >= LARGEST_ADDED:
        number += 1
        path = path.with_name(f"{Path(ADDED).stem}-{number}.jsonl")
    return path
