"""Indexing: read, validate, compare with the stored rows, and store what changed.

Files are parsed into a staging file first; then one short transaction compares it with the workspace. Rows never
change: new content under an old id is a new row, a row gone from its file is retired, and one that comes back is
revived.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..arrays import Int64s
from ..disk import private
from ..errors import NoWorkspaceError, UsageError
from ..pool.records import TaskKind
from ..progress import CancelToken, Event, Report, silent
from ..retrieval import artefacts, duplicates
from ..store.demonstrations import LEAKS, live_keys, next_row, retire, revive
from ..store.locks import exclusive
from ..store.workspace import Workspace
from .readers import STDIN, Bad, expand, opened, records
from .results import IndexReport, Skipped
from .rows import Mapper, Row, check_mapping

BATCH = 20_000
MOST_LABELS, ROWS_A_LABEL, LABEL_LENGTH = 300, 5, 60
"""Limits of a closed set of labels: number of labels, mean rows per label, characters per label."""

STAGED = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("id", pa.string()),
        ("named", pa.bool_()),
        ("input", pa.string()),
        ("output", pa.string()),
        ("options", pa.list_(pa.string())),
        ("answers", pa.list_(pa.string())),
        ("context", pa.string()),
        ("source", pa.string()),
        ("split", pa.string()),
        ("metadata", pa.string()),
        ("hash", pa.binary()),
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What to read and how.

    Without ``paths`` and query files: every known file again, with its earlier options. ``columns`` maps fields to
    column names. ``validation`` and ``test`` are files of queries; the fractions set aside this share of the pool, by a
    hash of the input, so that a row stays in its split as the pool grows and duplicates are in the same split.
    ``encoder`` None: no vectors.
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


@dataclass(frozen=True, slots=True)
class _Reading:
    """How one file is read; stored with it, so that it can be read in the same way again."""

    split: str | None
    columns: dict[str, str]
    source: str | None
    validation_fraction: float
    test_fraction: float

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    name: str
    reading: _Reading
    digest: str
    stamp: tuple[int, ...]
    """The stamp of the file when ``digest`` was computed; empty for standard input."""


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
    files, passed = _files(workspace, plan)
    changed = _changed(workspace, files)
    counts = 0, 0, 0
    with _staging(workspace) as staging:
        if changed:
            skipped = _stage(changed, staging, plan.strict, report, cancel)
            with workspace.write() as con:
                counts = _merge(con, workspace, changed, staging, skipped, plan.strict)
    if changed or not _repeats_current(workspace, plan.near_duplicate):
        duplicates.update(workspace, plan.near_duplicate, report, cancel)
    artefacts.lexical_index(workspace, report, cancel, reread=True)
    encoded = artefacts.encode(workspace, plan.encoder, plan.device, report, cancel) if plan.encoder else 0
    with workspace.read() as con:
        told = _report(con, files, len(files) - len(changed), counts)
        found = dict(con.execute("SELECT kind, count(*) FROM duplicates GROUP BY kind").fetchall())
        leaking = tuple(name for (name,) in con.execute(LEAKS).fetchall())
    skips = (*passed, *told.skipped)
    return replace(told, skipped=skips, duplicates=found, leaking=leaking, encoded=encoded, encoder=plan.encoder)


def dry_run_index(
    path: Path, plan: IndexPlan, report: Report = silent, cancel: CancelToken | None = None
) -> IndexReport:
    """What `index_pool` would do with the workspace at ``path``, which need not exist; nothing is changed.

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
        files, passed = _files(workspace, plan)
        changed = _changed(workspace, files)
        with _staging(workspace) as staging:
            skipped = _stage(changed, staging, plan.strict, report, cancel)
            try:
                with workspace.write() as con:
                    counts = _merge(con, workspace, changed, staging, skipped, plan.strict)
                    told = _report(con, files, len(files) - len(changed), counts)
                    live, keys = live_keys(con)
                    raise _DryRunEndsError
            except _DryRunEndsError:
                pass
        missing = artefacts.missing(workspace, plan.encoder, live, keys).size if plan.encoder else 0
    return replace(told, skipped=(*passed, *told.skipped), encoded=missing, encoder=plan.encoder, dry_run=True)


class _DryRunEndsError(Exception):
    """Rolls back the transaction of a dry run."""


@contextmanager
def _staging(workspace: Workspace) -> Iterator[Path]:
    """The staging file for the valid rows; removed afterwards, also after a killed run. One at a time."""
    staging = workspace.path / "tmp" / "staged.parquet"
    with exclusive(staging.with_name("index.lock")):
        staging.unlink(missing_ok=True)
        try:
            yield staging
        finally:
            staging.unlink(missing_ok=True)


def _check(plan: IndexPlan) -> None:
    check_mapping(plan.columns)
    for name in ("validation_fraction", "test_fraction"):
        if not 0 <= getattr(plan, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {getattr(plan, name)}", "use a fraction from 0 to below 1")
    if plan.validation_fraction + plan.test_fraction >= 1:
        raise UsageError("the fractions leave no rows in the pool", "use fractions that add up to less than 1")


# which files, and which of them changed


def _files(workspace: Workspace, plan: IndexPlan) -> tuple[list[_File], list[Skipped]]:
    """The files to read, and the unreadable files that globs matched, which are an error with ``strict``."""
    if not plan.paths and not plan.validation and not plan.test:
        return _known_files(workspace), []
    columns = dict(sorted(plan.columns.items()))
    pool = _Reading(None, columns, plan.source, plan.validation_fraction, plan.test_fraction)
    wanted: dict[str, _Reading] = {}
    unread: dict[str, str] = {}
    for patterns, reading in (
        (plan.paths, pool),
        (plan.validation, _Reading("validation", columns, plan.source, 0.0, 0.0)),
        (plan.test, _Reading("test", columns, plan.source, 0.0, 0.0)),
    ):
        # a later, more specific argument wins: `index data/*.jsonl --test data/test.jsonl`
        paths, passed = expand(patterns)
        wanted |= dict.fromkeys(paths, reading)
        unread |= passed
    if unread and plan.strict:
        path, reason = next(iter(unread.items()))
        raise UsageError(f"{path} {reason}", "remove it, or omit --strict to skip it")
    files = [_file(workspace, path, reading) for path, reading in wanted.items()]
    return files, [Skipped(path, 0, reason) for path, reason in unread.items()]


def _known_files(workspace: Workspace) -> list[_File]:
    with workspace.read() as con:
        known = con.execute("SELECT path, reading FROM files WHERE path <> ? ORDER BY path", [STDIN]).fetchall()
    if not known:
        raise UsageError("no file has been indexed yet", "icl-curate index POOL.jsonl")
    return [
        _file(workspace, str(workspace.path.parent / path), _Reading(**json.loads(reading))) for path, reading in known
    ]


def _file(workspace: Workspace, path: str, reading: _Reading) -> _File:
    if path == STDIN:
        return _File(STDIN, STDIN, reading, "", ())
    with opened(path) as stream:
        stamp = _stamp(stream)
        digest = hashlib.file_digest(stream, _digest)  # type: ignore[arg-type]  # BinaryIO has readinto, its stub not
    full = Path(path).resolve()
    root = workspace.path.parent
    name = full.relative_to(root).as_posix() if full.is_relative_to(root) else str(full)
    return _File(path, name, reading, digest.hexdigest(), stamp)


def _stamp(stream: BinaryIO) -> tuple[int, ...]:
    """Changes if the file is modified or replaced."""
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


def _changed(workspace: Workspace, files: list[_File]) -> list[_File]:
    with workspace.read() as con:
        known = {path: (d, r) for path, d, r in con.execute("SELECT path, digest, reading FROM files").fetchall()}
    return [file for file in files if known.get(file.name) != (file.digest, file.reading.text())]


# parsing into the staging file


def _stage(files: list[_File], staging: Path, strict: bool, report: Report, cancel: CancelToken) -> list[Skipped]:
    """Write the valid rows and return the bad ones, which are an error with ``strict``."""
    skipped: list[Skipped] = []
    done = 0
    with (
        open(staging, "wb", opener=private) as sink,
        pq.ParquetWriter(sink, STAGED, compression="lz4") as writer,
    ):
        for file in files:
            with opened(file.path) as stream:
                for batch in _batches(file, stream, skipped):
                    cancel.check()
                    batch = [(done + i, *row) for i, row in enumerate(batch)]
                    done += len(batch)
                    writer.write_table(pa.table([*zip(*batch, strict=True)], schema=STAGED))
                    report(Event("read", done))
                if file.stamp and _stamp(stream) != file.stamp:
                    raise UsageError(
                        f"{file.path} changed while being read", "run the same command again when it is complete"
                    )
    if strict and skipped:
        first = skipped[0]
        raise UsageError(
            f"{len(skipped):,} bad row(s), the first at {first.file}:{first.line}: {first.reason}",
            "fix the rows, or omit --strict to skip them",
        )
    return skipped


def _batches(file: _File, stream: BinaryIO, skipped: list[Skipped]) -> Iterator[list[tuple[Any, ...]]]:
    mapper = Mapper(file.reading.columns)
    stem = "stdin" if file.path == STDIN else Path(file.path).name.split(".")[0]
    batch: list[tuple[Any, ...]] = []
    good = 0
    first_bad = len(skipped)
    for line, record in records(file.path, stream):
        for row in (record,) if isinstance(record, Bad) else mapper.rows(record):
            if isinstance(row, Bad):
                skipped.append(Skipped(file.name, line, row.reason))
                continue
            batch.append(_staged(row, file, stem, line))
            good += 1
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
    if not good:
        why = f": line {skipped[first_bad].line}: {skipped[first_bad].reason}" if len(skipped) > first_bad else ""
        raise UsageError(
            f"{file.path} has no usable row{why}", "map its columns: --map input=COLUMN --map output=COLUMN"
        )


def _staged(row: Row, file: _File, stem: str, line: int) -> tuple[Any, ...]:
    source = file.reading.source or row.source or stem
    digest = row.digest(source)
    return (
        row.id or digest[:8].hex(), bool(row.id), row.input, row.output, row.options, row.answers, row.context, source,
        _split_of(row, file.reading), row.metadata, digest, file.name, line,
    )  # fmt: skip


def _split_of(row: Row, reading: _Reading) -> str:
    split = reading.split or row.split or "pool"
    if split != "pool" or not (reading.validation_fraction or reading.test_fraction):
        return split
    digest = hashlib.blake2b(duplicates.normalised(row.input).encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    if share < reading.validation_fraction:
        return "validation"
    return "test" if share < reading.validation_fraction + reading.test_fraction else "pool"


# the one transaction


def _merge(
    con: duckdb.DuckDBPyConnection,
    workspace: Workspace,
    files: list[_File],
    staging: Path,
    skipped: list[Skipped],
    strict: bool,
) -> tuple[int, int, int]:
    """Bring the tables up to date with the staged rows; returns how many rows were added, retired and revived."""
    names = [file.name for file in files]
    con.execute("DELETE FROM skipped WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    if skipped:
        con.register("bad", pa.Table.from_pylist([asdict(one) for one in skipped]))
        con.execute("INSERT INTO skipped SELECT file, line, reason FROM bad")
        con.unregister("bad")
    _load(con, workspace, staging, names)
    _refuse_taken_ids(con, strict)
    counts = _apply(con, names)
    con.execute("DELETE FROM files WHERE path IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names])
    for file in files:
        con.execute(
            """
            INSERT INTO files SELECT ?, ?, ?, count(*), now() AT TIME ZONE 'UTC' FROM demonstrations
             WHERE file = ? AND retired_at IS NULL
            """,
            [file.name, file.digest, file.reading.text(), file.name],
        )
    con.execute("INSERT OR REPLACE INTO meta VALUES ('task', ?)", [_task(con)])
    con.execute("DELETE FROM meta WHERE key = 'near_duplicate'")  # duplicates are out of date now
    con.execute("DROP TABLE staged")
    return counts


def _load(con: duckdb.DuckDBPyConnection, workspace: Workspace, staging: Path, names: list[str]) -> None:
    """The staged rows with complete ids; ids of files that no longer exist are released."""
    con.execute(
        """
        CREATE TEMP TABLE staged AS
        SELECT * REPLACE (
            CASE WHEN named THEN id
                 ELSE id || CASE WHEN row_number() OVER same > 1 THEN '~' || row_number() OVER same ELSE '' END
            END AS id)
          FROM read_parquet(?) WINDOW same AS (PARTITION BY named, id ORDER BY ordinal)
        """,
        [str(staging)],
    )
    others = con.execute(
        "SELECT path FROM files WHERE path NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))", [names]
    ).fetchall()
    gone = [path for (path,) in others if path != STDIN and not (workspace.path.parent / path).exists()]
    if gone:
        con.execute(
            """
            UPDATE demonstrations AS d SET file = s.file, line = s.line FROM staged s
             WHERE d.id = s.id AND d.retired_at IS NULL AND d.file IN (SELECT unnest(CAST(? AS VARCHAR[])))
            """,
            [gone],
        )


def _refuse_taken_ids(con: duckdb.DuckDBPyConnection, strict: bool) -> None:
    """An id belongs to one row: the first in this run, or the one that another file already has."""
    con.execute(
        """
        CREATE TEMP TABLE refused AS
        SELECT s.ordinal, s.file, s.line,
               'the id ' || s.id || ' is taken by '
               || coalesce(o.file || ':' || o.line, f.file || ':' || f.line) AS reason
          FROM staged s
          LEFT JOIN demonstrations o ON o.id = s.id AND o.retired_at IS NULL
               AND o.file NOT IN (SELECT DISTINCT file FROM staged)
          LEFT JOIN (SELECT id, min(ordinal) AS ordinal, arg_min(file, ordinal) AS file, arg_min(line, ordinal) AS line
                       FROM staged GROUP BY id) f ON f.id = s.id AND f.ordinal < s.ordinal
         WHERE o.id IS NOT NULL OR f.id IS NOT NULL
        """
    )
    first = con.execute("SELECT file, line, reason, count(*) OVER () FROM refused ORDER BY ordinal LIMIT 1").fetchone()
    if first and strict:
        raise UsageError(
            f"{first[3]:,} bad row(s), the first at {first[0]}:{first[1]}: {first[2]}",
            "fix the rows, or omit --strict to skip them",
        )
    con.execute("INSERT INTO skipped SELECT file, line, reason FROM refused ORDER BY ordinal")
    con.execute("DELETE FROM staged WHERE ordinal IN (SELECT ordinal FROM refused)")
    con.execute("DROP TABLE refused")


def _apply(con: duckdb.DuckDBPyConnection, names: list[str]) -> tuple[int, int, int]:
    """Retire, revive and add; returns (added, retired, revived)."""
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
    gone = _numbers(con, "SELECT row FROM before WHERE live AND row NOT IN (SELECT row FROM same) ORDER BY row")
    back = _numbers(con, "SELECT row FROM same WHERE NOT live ORDER BY row")
    retire(con, gone)
    revive(con, back)
    con.execute(
        """
        UPDATE demonstrations AS d SET split = s.split, file = s.file, line = s.line
          FROM same m JOIN staged s USING (ordinal)
         WHERE d.row = m.row AND (d.split, d.file, d.line) <> (s.split, s.file, s.line)
        """
    )
    added = con.execute(
        """
        INSERT INTO demonstrations
        SELECT ? + row_number() OVER (ORDER BY ordinal) - 1, id, input, output, options, answers, context, source,
               split, metadata, hash, file, line, now() AT TIME ZONE 'UTC', NULL
          FROM staged WHERE ordinal NOT IN (SELECT ordinal FROM same) ORDER BY ordinal
        """,
        [next_row(con)],
    ).fetchone()
    con.execute("DROP TABLE before; DROP TABLE same")
    return int(added[0]) if added else 0, int(gone.size), int(back.size)


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
    if total and distinct <= MOST_LABELS and distinct * ROWS_A_LABEL <= total and longest <= LABEL_LENGTH:
        return "labels"
    return "open"


# what to report


def _repeats_current(workspace: Workspace, threshold: float) -> bool:
    with workspace.read() as con:
        found = con.execute("SELECT value FROM meta WHERE key = 'near_duplicate'").fetchone()
    return found == (str(threshold),)


def _report(
    con: duckdb.DuckDBPyConnection, files: list[_File], unchanged: int, counts: tuple[int, int, int]
) -> IndexReport:
    splits = dict(
        con.execute("SELECT split, count(*) FROM demonstrations WHERE retired_at IS NULL GROUP BY split").fetchall()
    )
    sources = con.execute("SELECT count(DISTINCT source) FROM pool").fetchone()
    skipped = con.execute(
        """
        SELECT file, line, reason FROM skipped
         WHERE file IN (SELECT unnest(CAST(? AS VARCHAR[]))) ORDER BY file, line
        """,
        [[file.name for file in files]],
    ).fetchall()
    task = con.execute("SELECT value FROM meta WHERE key = 'task'").fetchone()
    added, retired, revived = counts
    return IndexReport(
        demonstrations=splits.get("pool", 0),
        sources=sources[0] if sources else 0,
        validation=splits.get("validation", 0),
        test=splits.get("test", 0),
        skipped=tuple(Skipped(*row) for row in skipped),
        duplicates=None,
        leaking=None,
        added=added,
        retired=retired,
        revived=revived,
        unchanged_files=unchanged,
        task=task[0] if task else "open",
        encoded=0,
        encoder=None,
    )


def _numbers(con: duckdb.DuckDBPyConnection, sql: str) -> Int64s:
    return np.asarray(con.execute(sql).fetchnumpy()["row"], np.int64)
