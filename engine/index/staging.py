"""Valid rows of all files, parsed into Parquet files: here, or large files by the workers of an engine.

Several processes read a whole file each, or row groups of a large Parquet file. What the first records say of a file
(`understand`) is found once, so that every part is read as the whole would be.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, NamedTuple

from ..base.errors import CurateError, UsageError
from ..base.files import private_folder
from ..base.progress import Event, Monitor
from ..retrieval import duplicates
from ..shards import storage
from ..shards.ray_pool import RayPool
from ..shards.shard import INLINE, ONE_CPU, Engine, Shard, cores, host
from ..store import columns
from ..store.locks import exclusive
from ..store.workspace import Workspace, quoted
from .files import IndexedFile, Reading, default_source, stamp_of
from .readers.files import open_input
from .readers.formats import Records, format_of
from .readers.parquet_format import rows_by_group
from .readers.records import NOT_UTF8, BadRecord, to_utf8
from .results import Skipped, strictly
from .rows import Mapper, Row
from .understood import Understood, nameless, rows_of, understand

APART = 1 << 25
"""Bytes of files from which several processes read them."""
LEAST = 1 << 23
"""Bytes that a process reads at once: to start one takes as long as to read ten megabytes."""
SHARES = 4
"""Shares of the files for each worker, so that none waits long for the last."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or row ``groups`` of it, with how the whole was ``understood`` and what makes rows of its records.
    ``stem``: the source of rows that name none; ``size`` in bytes; ``last``: nothing of the file comes after it."""

    file: IndexedFile
    stem: str
    size: int = 0
    last: bool = True
    groups: range | None = None
    understood: Understood | None = None
    mapper: Mapper | None = None


def whole(files: Sequence[IndexedFile]) -> list[FilePart]:
    """Each file as one part."""
    return [FilePart(file, default_source(file.path), file.stamp[2] if file.stamp else 0) for file in files]


def divided(files: Sequence[IndexedFile], workers: int) -> tuple[list[FilePart], list[tuple[int, int]]]:
    """The files in their order, large ones of Parquet in parts, and the ranges of these parts, of about the same size,
    that one of the ``workers`` each reads. A single range if the files are small together, or if one is standard input,
    which other processes do not have."""
    parts = whole(files)
    total = sum(part.size for part in parts)
    if total < APART or not all(file.stamp for file in files):
        return parts, [(0, len(parts))]
    least = max(LEAST, total // (SHARES * workers))
    parts = [piece for part in parts for piece in _cut(part, least)]
    ends, size = [0], 0
    for number, part in enumerate(parts, 1):
        size += part.size
        if size >= least or number == len(parts):
            ends.append(number)
            size = 0
    return parts, [*pairwise(ends)]


def _cut(part: FilePart, least: int) -> list[FilePart]:
    """A Parquet file by its row groups, of about ``least`` bytes each. Itself for another format, which can only be
    read from its beginning, and if it cannot be read: the process that reads it will say why."""
    if part.size < 2 * least:
        return [part]
    file = part.file
    try:
        with open_input(file.path) as stream:
            if format_of(file.path, stream) != "parquet" or len(rows := rows_by_group(stream)) < 2:
                return [part]
            stream.seek(0)
            mapper = Mapper(file.reading.columns, file.reading.labels)
            told = understand(Records(file.path, stream), mapper)[0]
    except CurateError:
        return [part]
    pieces, begin, size = [], 0, 0
    for end, count in enumerate(rows, 1):
        size += part.size * count // max(sum(rows), 1)
        if size >= least or end == len(rows):
            groups = range(begin, end)
            pieces.append(
                replace(part, size=size, last=end == len(rows), groups=groups, understood=told, mapper=mapper)
            )
            begin, size = end, 0
    return pieces


BATCH, CHARACTERS = 20_000, 1 << 25
"""Rows that are written at once, and about how many characters of them: all may be a megabyte."""
TASK = "read"

STAGED = {
    "ordinal": "BIGINT",
    "id": "VARCHAR",
    "named": "BOOLEAN",
    "input": "VARCHAR",
    "output": "VARCHAR",
    "options": "VARCHAR[]",
    "answers": "VARCHAR[]",
    "context": "VARCHAR",
    "source": "VARCHAR",
    "split": "VARCHAR",
    "metadata": "VARCHAR",
    "hash": "BLOB",
    "file": "VARCHAR",
    "line": "BIGINT",
    "history": "VARCHAR",
}


Write = Callable[[str, Sequence[tuple[Any, ...]]], None]
"""Writes rows into a new file of this name."""


@contextmanager
def writing(workspace: Workspace, folder: Path, scratch: Path, threads: int = 0) -> Iterator[Write]:
    """A function that writes into ``folder``. What does not fit into memory is put into ``scratch``, by
    ``threads`` (0: as many as there are cores)."""
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in STAGED.items())
    with workspace.scratch(scratch) as con:
        if threads:
            con.execute(f"SET threads = {threads}")

        def write(file: str, rows: Sequence[tuple[Any, ...]]) -> None:
            values = zip(*rows, strict=True) if rows else repeat(())
            with columns.given(con, "staged", dict(zip(STAGED, values, strict=False))) as chosen:
                con.execute(
                    f"""
                    COPY (SELECT {typed} FROM (SELECT {", ".join(chosen)} FROM staged))
                      TO {quoted(folder / f"{file}.parquet")} (FORMAT parquet, COMPRESSION lz4)
                    """
                )

        yield write


@dataclass(frozen=True, slots=True)
class PartRead:
    """A part whose valid ``rows`` are written."""

    part: FilePart
    rows: int
    skipped: list[Skipped]
    understood: Understood


def read_part(
    write: Write, number: int, part: FilePart, understood: Callable[[Understood], None], monitor: Monitor
) -> PartRead:
    """Write the valid rows of a part, the ``number``-th; their ordinals tell the order of parts and rows. How it is
    ``understood`` is told before. Raises `UsageError` for a file that cannot be read or changes meanwhile."""
    skipped: list[Skipped] = []
    done = 0
    with open_input(part.file.path) as stream:
        told, rows, mapper = _understood(part, stream)
        understood(told)
        for several, batch in enumerate(_row_batches(part, rows, skipped)):
            monitor.check()
            write(f"{number:08}-{several:08}", [((number << 40) + done + i, *row) for i, row in enumerate(batch)])
            done += len(batch)
            monitor.report(Event(TASK, done))
        check_unchanged(part.file, stream)
    absent = tuple(column for column in told.absent if column in mapper.unseen)
    return PartRead(part, done, skipped, replace(told, absent=absent))


def check_unchanged(file: IndexedFile, stream: BinaryIO) -> None:
    """Raise `UsageError` if the open file is not what it was when its digest was computed."""
    if file.stamp and stamp_of(stream) != file.stamp:
        raise UsageError(f"{file.path} changed while being read", "run the same command again when it is complete")


def _understood(part: FilePart, stream: BinaryIO) -> tuple[Understood, Iterator[tuple[int, Row | BadRecord]], Mapper]:
    """How the file is understood, the rows of a part of it, and what makes them."""
    file = part.file
    if part.understood is None or part.mapper is None:
        mapper = Mapper(file.reading.columns, file.reading.labels)
        return *understand(Records(file.path, stream), mapper), mapper
    return part.understood, rows_of(Records(file.path, stream, part.groups), part.mapper), part.mapper


def _row_batches(
    part: FilePart, rows: Iterable[tuple[int, Row | BadRecord]], skipped: list[Skipped]
) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    characters = 0
    for line, row in rows:
        if isinstance(row, BadRecord):
            skipped.append(Skipped(part.file.name, line, row.reason))
            _refuse_too_many(skipped)
            continue
        batch.append(_staged(row, part.file, part.stem, line))
        characters += row.characters()
        if len(batch) >= BATCH or characters >= CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _refuse_too_many(skipped: Sequence[Skipped]) -> None:
    """Raise `UsageError` for so many bad rows that they would fill the memory."""
    if len(skipped) > MOST_SKIPPED:
        first = skipped[0]
        raise UsageError(
            f"more than {MOST_SKIPPED:,} rows cannot be used, the first in {first.file}:{first.line}: {first.reason}",
            "correct the files or give --map; see how they are read: icl-curate index --peek FILE",
        )


def _staged(row: Row, file: IndexedFile, stem: str, line: int) -> tuple[Any, ...]:
    source = file.reading.source or row.source or stem
    digest = row.digest(source)
    return (
        row.id or digest[:8].hex(), bool(row.id), row.input, row.output, row.options, row.answers, row.context, source,
        _split_of(row, file.reading), row.metadata, digest, file.name, line, row.history,
    )  # fmt: skip


def _split_of(row: Row, reading: Reading) -> str:
    split = reading.split or row.split or "pool"
    if split != "pool" or not (reading.validation_fraction or reading.test_fraction):
        return split
    digest = hashlib.blake2b(duplicates.normalised(row.input).encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    if share < reading.validation_fraction:
        return "validation"
    return "test" if share < reading.validation_fraction + reading.test_fraction else "pool"


CLUSTER = 256
"""Workers for which files are divided where the cluster at an address is not connected yet."""


@dataclass(frozen=True, slots=True)
class Site:
    """Workers that see the files. ``mounted`` is the folder by which those of other machines see them, and ``own`` the
    one in it for what they write; None on this machine, where they write into the workspace."""

    engine: Engine
    workers: int
    mounted: Path | None = None
    own: Path | None = None

    @classmethod
    def of(cls, engine: Engine, workspace: Workspace, files: Sequence[IndexedFile]) -> Site | None:
        """The site of an engine, None if its workers do not see the files: a cluster at an address sees those in the
        storage, if that is a folder."""
        if engine.here:
            return None
        if not engine.address:
            return cls(engine, cores())
        if not engine.storage or storage.remote(engine.storage):
            return None
        mounted = Path(storage.own(engine.storage, workspace.path))
        root = mounted.parent
        if not all(file.stamp and Path(file.path).resolve().is_relative_to(root.resolve()) for file in files):
            return None
        return cls(engine, CLUSTER, root, mounted / "staged")

    def seen(self, file: IndexedFile) -> IndexedFile:
        """The file at its path for the workers, who have other folders than this process."""
        if self.mounted:
            path = self.mounted / Path(file.path).resolve().relative_to(self.mounted.resolve())
            return replace(file, path=str(path))
        return replace(file, path=str(Path(file.path).absolute()))

    def clear(self) -> None:
        """Remove what the workers of a cluster have written."""
        if self.own:
            shutil.rmtree(self.own, ignore_errors=True)
            with suppress(OSError):  # it was never made
                self.own.parent.rmdir()


def read_apart(
    site: Site,
    workspace: Workspace,
    parts: Sequence[FilePart],
    ranges: Sequence[tuple[int, int]],
    staging: Path,
    monitor: Monitor,
) -> Iterator[PartRead]:
    """Read the parts, a range by each worker, into the folder ``staging``. They come back in their order, and so does
    the first error among them."""
    files = {part.file.path: site.seen(part.file) for part in parts}
    sent = tuple(replace(part, file=files[part.file.path]) for part in parts)
    step = partial(read_shard, workspace.path, sent, tuple(ranges), str(site.mounted or ""))
    pool = RayPool(step, site.engine.address, ONE_CPU)
    monitor.report(Event(TASK, note=f"{TASK}: {len(ranges):,} parts on {pool.where}"))
    place = site.own or staging
    shards = [Shard(TASK, i, "", str(place / f"read-{i}"), 0) for i in range(len(ranges))]
    reads: dict[int, Sequence[PartRead | CurateError]] = {}
    site.clear()  # of a driver that was killed
    try:
        for shard, written in pool.map(shards, monitor=monitor.quiet):
            _collect(written, staging)
            reads[shard.index] = written.reads
            monitor.report(
                Event(TASK, sum(read.rows for some in reads.values() for read in some if isinstance(read, PartRead)))
            )
        for i, (begin, end) in enumerate(ranges):
            for part, read in zip(parts[begin:end], reads[i], strict=False):
                if isinstance(read, CurateError):
                    raise read
                if site.mounted and part.last:
                    with open_input(part.file.path) as stream:
                        check_unchanged(part.file, stream)
                yield replace(read, part=part, understood=replace(read.understood, path=part.file.path))
    finally:
        site.clear()


@dataclass(frozen=True, slots=True)
class Written:
    """What a worker has read, up to the first part that cannot be: the sizes of its files in ``folder`` by name."""

    reads: Sequence[PartRead | CurateError]
    folder: Path
    sizes: Mapping[str, int]


def read_shard(
    workspace: Path,
    parts: Sequence[FilePart],
    ranges: Sequence[tuple[int, int]],
    mounted: str,
    shard: Shard,
    monitor: Monitor,
) -> Written:
    """Write the valid rows of a range of parts. Raises `UsageError` if files below the folder ``mounted`` are not those
    that the driver sees."""
    mine = range(*ranges[shard.index])
    for number in mine if mounted else ():
        _check_seen(parts[number].file, mounted)
    folder = Path(f"{shard.output}-{host()}-{os.getpid()}")  # its own: one that counts as lost may still write
    shutil.rmtree(folder, ignore_errors=True)
    private_folder(folder)
    reads: list[PartRead | CurateError] = []
    with writing(Workspace(workspace), folder, folder, threads=1) as write:
        for number in mine:
            part = parts[number]
            if mounted:  # inodes and fractions of seconds may be others here: the driver compares them
                part = replace(part, file=replace(part.file, stamp=()))
            try:
                reads.append(read_part(write, number, part, lambda told: None, monitor))
            except CurateError as error:
                reads.append(error)
                break
    return Written(reads, folder, {path.name: path.stat().st_size for path in folder.glob("*.parquet")})


def _check_seen(file: IndexedFile, mounted: str) -> None:
    fix = f"mount {mounted}, with the same files, on every node"
    try:
        seen = os.stat(file.path)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"no access to {file.path}", fix) from error
    if (seen.st_size, seen.st_mtime_ns // 10**9) != (file.stamp[2], file.stamp[3] // 10**9):
        raise UsageError(f"{file.path} is not the file that the command sees", fix)


def _collect(written: Written, staging: Path) -> None:
    """Move the files of a worker to the staging folder."""
    for name, size in written.sizes.items():
        source, target = written.folder / name, staging / name
        try:
            shutil.move(source, target)
            complete = target.stat().st_size == size
        except FileNotFoundError:
            complete = False
        if not complete:
            raise CurateError(f"{source} is not what a worker wrote", "check that all nodes share the storage")
    shutil.rmtree(written.folder, ignore_errors=True)


MOST_SKIPPED = 200_000
"""Bad rows of one run that are kept with their reasons, about 150 MB; more of them are a file of another kind."""
COLUMNS = "columns"
"""The task of events that say how a file was understood."""
MOST_TOLD = 5
"""Of how many kinds of files this is reported."""


class Staged(NamedTuple):
    """What was read: the bad rows, how the files were understood, one of each kind, the names of those whose outputs
    are sets of labels, and the columns that were mapped and are ``absent`` from all files, with their fields."""

    skipped: list[Skipped]
    readings: list[Understood]
    of_sets: set[str]
    absent: dict[str, str]


@contextmanager
def staging_folder(workspace: Workspace) -> Iterator[Path]:
    """The folder for the Parquet files of valid rows; removed afterwards, also after a killed run. One at a time."""
    folder = workspace.path / "tmp" / "staged"
    with exclusive(folder.with_name("index.lock")):
        shutil.rmtree(folder, ignore_errors=True)
        private_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def stage(
    workspace: Workspace,
    files: list[IndexedFile],
    staging: Path,
    strict: bool,
    monitor: Monitor,
    engine: Engine = INLINE,
) -> Staged:
    """Write the valid rows. Bad ones are an error with ``strict``. Large files are read by the workers of the
    ``engine`` where these see them."""
    skipped: list[Skipped] = []
    readings = _Readings(monitor)
    of_sets, mapped, there = set[str](), dict[str, str](), set[str]()
    done = 0
    with writing(workspace, staging, staging) as write:
        write("none", [])  # so that there is a file to read, even if there is none to index
        elsewhere = Site.of(engine, workspace, files)
        parts, ranges = divided(files, elsewhere.workers) if elsewhere else (whole(files), [])
        if elsewhere and len(ranges) > 1:
            found = read_apart(elsewhere, workspace, parts, ranges, staging, monitor)
        else:
            found = _read_here(write, parts, readings, monitor)
        for read in _usable(found):
            skipped += read.skipped
            _refuse_too_many(skipped)
            done += read.rows
            readings.add(read.understood)
            if read.understood.lists == "labels":
                of_sets.add(read.part.file.name)
            for name, column in read.part.file.reading.columns.items():
                mapped[column] = name
                there |= {column} - {*read.understood.absent}
    if done:
        monitor.report(Event(TASK, done, done))
    if strict and skipped:
        raise strictly(skipped[0], len(skipped))
    absent = {column: name for column, name in mapped.items() if column not in there}
    return Staged(skipped, readings.kinds, of_sets, absent)


def _read_here(write: Write, parts: Sequence[FilePart], readings: _Readings, monitor: Monitor) -> Iterator[PartRead]:
    done = 0
    for number, part in enumerate(parts):
        read = read_part(write, number, part, readings.add, monitor.within(done, None))
        done += read.rows
        yield read


def _usable(found: Iterable[PartRead]) -> Iterator[PartRead]:
    """The parts in their order. Raises `UsageError` behind the last of a file that has no valid row."""
    rows, first_bad = 0, None
    for read in found:
        rows += read.rows
        first_bad = first_bad or next(iter(read.skipped), None)
        yield read
        if not read.part.last:
            continue
        if not rows:
            path, told = read.part.file.path, read.understood
            why = f": line {first_bad.line}: {first_bad.reason}" if first_bad else ""
            if first_bad and first_bad.reason.startswith(NOT_UTF8):
                raise UsageError(f"{path} has no usable row{why}", to_utf8(path))
            if not told.lacking:
                raise UsageError(f"{path} has no usable row{why}", f"icl-curate index {quote(path)} --peek")
            first = nameless(told.format, told.lacking)
            raise UsageError(
                f"{path} has no usable row{why.partition(' (columns: ')[0]} ({told.shown})",
                f"{first and f'{first}; else '}map its columns: {told.mapping(f'{Path(path).name}::')}",
            )
        rows, first_bad = 0, None


class _Readings:
    """How the files were understood: the first of each kind, reported if it is among the first kinds."""

    def __init__(self, monitor: Monitor) -> None:
        self._report = monitor.report
        self.kinds: list[Understood] = []

    def add(self, told: Understood) -> None:
        if any(known.is_like(told) for known in self.kinds):
            return
        self.kinds.append(told)
        if len(self.kinds) <= MOST_TOLD:
            for line in (told.line, *told.notes):
                self._report(Event(COLUMNS, note=f"{told.path}: {line}"))
