"""What several processes read of the files: each a whole one, or row groups of a large Parquet file.

What the first records say of a file (`understand`) is found once, so that every part is read as the whole would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..base.errors import CurateError
from .files import IndexedFile, default_source
from .readers.files import open_input
from .readers.formats import Records, format_of
from .readers.parquet_format import rows_by_group
from .rows import Mapper
from .understood import Understood, understand

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
