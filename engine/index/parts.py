"""What several processes read of the files: small ones as a whole, of a large one a span each.

What the first records say of a file (`understand`) is found once, so that every span is read as the whole would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..base.errors import CurateError
from .files import IndexedFile, default_source
from .readers.files import open_input
from .readers.formats import Records
from .readers.records import Span
from .readers.spans import spans_of
from .rows import Mapper
from .understood import Understood, understand

APART = 1 << 25
"""Bytes of files from which several processes read them."""
LEAST = 1 << 23
"""Bytes that a process reads at once: to start one takes as long as to read ten megabytes."""
SHARES = 4
"""Shares of the files for each worker, so that none waits long for the last."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or a ``span`` of it, with how the whole was ``understood`` and what makes rows of its records. ``stem``:
    the source of rows that name none; ``size`` in bytes; ``last``: nothing of the file comes after it."""

    file: IndexedFile
    stem: str
    size: int = 0
    last: bool = True
    span: Span | None = None
    understood: Understood | None = None
    mapper: Mapper | None = None


def whole(files: Sequence[IndexedFile]) -> list[Part]:
    """Each file as one part."""
    return [Part(file, default_source(file.path), file.stamp[2] if file.stamp else 0) for file in files]


def divided(files: Sequence[IndexedFile], workers: int) -> tuple[list[Part], list[tuple[int, int]]]:
    """The files in their order, large ones in spans, and the ranges of these parts, of about the same size, that one of
    the ``workers`` each reads. A single range if the files are small together, or if one is standard input, which other
    processes do not have."""
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


def _cut(part: Part, least: int) -> list[Part]:
    """The spans of a file; itself if it is not cut, or if that fails: the process that reads it will say why."""
    if part.size < 2 * least:
        return [part]
    file = part.file
    try:
        with open_input(file.path) as stream:
            spans = spans_of(file.path, stream, part.size, least)
            stream.seek(0)
            mapper = Mapper(file.reading.columns, file.reading.labels)
            told = understand(Records(file.path, stream), mapper)[0] if len(spans) > 1 else None
    except CurateError:
        return [part]
    if told is None:
        return [part]
    size = part.size // len(spans)
    return [
        replace(part, size=size, last=span is spans[-1], span=span, understood=told, mapper=mapper) for span in spans
    ]
