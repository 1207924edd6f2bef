"""Indexing: read, validate, compare with the stored rows, and store what changed.

Files are parsed into a staging file first; then one short transaction compares it with the workspace (`merge`).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import duckdb

from ..base import memory
from ..base.errors import NoWorkspaceError, UsageError, counted
from ..base.files import private
from ..base.progress import SILENT, Event, Monitor
from ..retrieval import artefacts, duplicates
from ..retrieval.served import Access
from ..shards.shard import INLINE, Engine
from ..store import columns
from ..store.carried import Carried
from ..store.demonstrations import (
    COMPARED,
    FORM,
    LEAKS,
    REPEATS,
    encoder_of,
    live_keys,
    next_row,
    rows_by_split,
)
from ..store.locks import exclusive
from ..store.outputs import check_labels
from ..store.settings import CONFIG, Settings
from ..store.workspace import Workspace
from .databases import SQL
from .fields import few
from .files import (
    IndexedFile,
    Reading,
    changed_files,
    download,
    dropped_files,
    indexed_file,
    known_files,
    rows_file,
    split_of,
    stored_query,
    taken_over,
)
from .merge import Changes, describe, merge
from .readers.files import STDIN, expand
from .readers.records import NOT_UTF8, line_of, to_utf8
from .results import IndexReport, Skipped
from .rows import check_globs, check_mapping, columns_of
from .staging import Staged, stage, staging_folder
from .understood import like_column, name_them, unnamed_labels

LEAST_ALIKE = 0.5
"""The lowest ``near_duplicate``: of less similar pairs too many would be missed."""


def _refuse_absent(staged: Staged, unchanged: bool) -> None:
    """Raise `UsageError` for a column that was mapped and that no file has; an ``unchanged`` one may have it."""
    names = [*dict.fromkeys(column for told in staged.readings for column in told.columns)]
    if not unchanged:
        for column, name in staged.absent.items():
            raise UsageError(f"no file has the column {column!r} (--map {name}={column})", like_column(column, names))


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


def index_pool(workspace: Workspace, plan: IndexPlan, monitor: Monitor = SILENT) -> IndexReport:
    """Bring the workspace up to date with the files of ``plan``.

    A bad row is skipped and reported with file and line; with ``strict`` it is an error. A file that cannot be read at
    all, a mapping without id or a fraction out of range raises `UsageError`, and nothing is changed. Everything but the
    vectors changes in one transaction; vectors are stored block by block. Raises `Cancelled` between batches.
    """
    _check(plan)
    dropped = dropped_files(workspace, plan.drop)
    files, passed = _files(workspace, plan, monitor)
    _tell_gone(workspace, {*(file.name for file in files), *dropped}, monitor)
    changed = changed_files(workspace, files, dropped)
    changes = Changes()
    staged = Staged([], [], set(), {})
    encoded = 0
    # held until the new rows have their vectors: who needs those waits for it
    with exclusive(artefacts.encoding_lock(workspace)) if plan.encoder else nullcontext():
        with staging_folder(workspace) as staging:
            if changed or dropped:
                staged = stage(workspace, changed, staging, plan.strict, monitor, plan.engine)
                _refuse_absent(staged, unchanged=len(files) > len(changed))
                with workspace.write() as con:
                    changes = merge(con, workspace, changed, staging, staged, plan.strict, dropped)
        with workspace.read() as con:
            compared = columns.noted(con, COMPARED) == str(plan.near_duplicate)
            described = columns.noted(con, FORM) is not None
        if not described:  # by an earlier release
            with workspace.write() as con:
                describe(con)
        if changed or dropped or not compared:
            _tell_memory(workspace, monitor)
            duplicates.update(workspace, plan.near_duplicate, monitor, plan.engine)
        artefacts.lexical_index(workspace, monitor, reread=True, passages=plan.passages, engine=plan.engine)
        if plan.encoder:
            encoded = artefacts.encode(
                workspace, plan.encoder, plan.device, monitor,
                full_precision=plan.full_precision, passages=plan.passages, access=plan.access,
                engine=plan.engine,
            )  # fmt: skip
    with workspace.read() as con:
        index_report = _report(con, files, passed, len(files) - len(changed), changes, staged)
        repeats = dict(con.execute(REPEATS.format(rows="pool")).fetchall())
        leaking = tuple(name for (name,) in con.execute(LEAKS.format(rows="pool")).fetchall())
    return replace(index_report, duplicates=repeats, leaking=leaking, encoded=encoded, encoder=plan.encoder)


def _tell_gone(workspace: Workspace, named: Collection[str], monitor: Monitor) -> None:
    """Say of which known files that are not ``named`` now the rows stay, though the file is gone."""
    with workspace.read() as con:
        known = con.execute("SELECT path FROM files WHERE path <> ? ORDER BY path", [STDIN]).fetchall()
    for (name,) in known:
        if name not in named and not os.path.lexists(workspace.path.parent / name):
            stay = f"{name} is gone, its rows stay; to leave them out: icl-curate index --drop {quote(name)}"
            monitor.report(Event("index", note=stay))


def _tell_memory(workspace: Workspace, monitor: Monitor) -> None:
    """Say so if hashes and lexical index are likely not to fit into memory."""
    with workspace.read() as con:
        needed = ROW_BYTES * next_row(con)
    fix = "stop with Ctrl+C and index on a machine with more, or a part of the rows in each workspace"
    memory.warn(monitor, "near duplicates and lexical index take", needed, fix)


def dry_run_index(path: Path, plan: IndexPlan, monitor: Monitor = SILENT) -> IndexReport:
    """What `index_pool` would do with the workspace at ``path``, which need not exist; nothing is changed, but what
    is no file is downloaded or asked for.

    Everything is read, validated and compared as in a real run, but duplicates and leaks are not searched for, and
    nothing is encoded: ``encoded`` counts the texts that would be. Raises what `index_pool` raises.
    """
    _check(plan)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            workspace = Workspace.open(path)
        except NoWorkspaceError:
            workspace = Workspace.create(Path(scratch) / "workspace")
        dropped = dropped_files(workspace, plan.drop)
        files, passed = _files(workspace, plan, monitor)
        changed = changed_files(workspace, files, dropped)
        with staging_folder(workspace) as staging:
            staged = stage(workspace, changed, staging, plan.strict, monitor, plan.engine)
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


def _files(workspace: Workspace, plan: IndexPlan, monitor: Monitor) -> tuple[list[IndexedFile], list[Skipped]]:
    """The files to read, and the unreadable files that globs matched, which are an error with ``strict``."""
    if not plan.paths and not plan.validation and not plan.test:
        known = known_files(workspace, monitor, dropped_files(workspace, plan.drop))
        check_globs(plan.columns, [file.path for file in known])
        return [replace(file, reading=_changed_by(plan, file)) for file in known], []
    wanted: list[tuple[str, Reading]] = []
    unread: dict[str, str] = {}
    for part, patterns in {"pool": plan.paths, "validation": plan.validation, "test": plan.test}.items():
        shares = (plan.validation_fraction, plan.test_fraction) if part == "pool" else (0.0, 0.0)
        reading = Reading(None if part == "pool" else part, {}, plan.source, *shares, plan.labels)
        paths, passed = expand(list(download(workspace.path, patterns, monitor, part)))
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
            *_labels_alike(con),
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


def _by_name(verb: str, rows: Sequence[str]) -> str:
    """The command that decides on rows with these ids, or on the first of many."""
    names = " ".join(f"--demo {quote(name)}" for name in rows[:NAMED])
    return (f"the first {NAMED}: " if len(rows) > NAMED else "") + f"icl-curate {verb} {names}"


def _carried(carried: Carried) -> Iterator[str]:
    """A line for each way in which decisions do not stand as they were made."""
    if carried.lapsed:
        lapse = counted(carried.lapsed, "correction", "no longer stands", "no longer stand")
        yield f"{lapse}: the files say something new about the rows"
    if stay := carried.stay:
        still = counted(len(stay), "pruned row", "has changed and stays", "have changed and stay")
        yield f"{still} pruned: {_by_name('restore', stay)}"
    if carried.gone:
        gone = counted(carried.gone, "row", "is", "are")
        yield f"{gone} gone from the files, with decisions that apply again when they come back: icl-curate history"
    if took := carried.took:
        new = f"{counted(len(took), 'row')} of the same content ({few(took)})"
        yield f"decisions on rows that were gone hold for {new}: icl-curate history"
    if left := carried.left:
        are = counted(len(left), "row", "of a pruned source has", "of pruned sources have")
        yield f"{are} another source now, which is not pruned: {_by_name('prune', left)}"
    if joined := carried.joined:
        of = counted(len(joined), "new row", "is of a pruned source", "are of pruned sources")
        yield f"{of}, and pruned as well: {_by_name('restore', joined)}"
    for name, now in carried.sources:
        other = f"{now} has rows that say the same" if now else "if it has another name"
        fix = f"icl-curate prune --source {quote(now) if now else 'NAME'}"
        yield f"the pruned source {name} has no row now; {other}: {fix}"


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


_JOINED = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
"""What joins words of a label: between letters alone, for ``-1`` and ``1-2`` are not ``1`` and ``12``."""


def _labels_alike(con: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """A line if labels differ only in their case, or in what joins their words: an answer with another one is wrong."""
    if columns.noted(con, "task") == "labels":
        alike = defaultdict[str, list[str]](list)
        for (label,) in con.execute(
            "SELECT output FROM demonstrations WHERE retired_at IS NULL GROUP BY output ORDER BY count(*) DESC, output"
        ).fetchall():
            alike[_JOINED.sub("", label.casefold())].append(label)
        if several := [" = ".join(labels) for labels in alike.values() if len(labels) > 1]:
            are = f"{counted(len(several), 'label', 'is', 'are')} written in several ways, and each counts as another"
            yield f"{are}: {few(several)}; write one of them in the files"


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
