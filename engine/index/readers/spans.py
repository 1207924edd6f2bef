"""Where a large file is cut, for several processes to read at once.

JSON Lines are cut at ends of lines, Parquet files between rows. What is compressed can only be read from its beginning,
and in a CSV file a line break may be within quotes.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import pairwise
from typing import BinaryIO

from .formats import GZIP, ZSTANDARD, format_of
from .parquet_format import row_count
from .records import Span, encoding_of, skip_line

_BLOCK = 1 << 20


def spans_of(path: str, stream: BinaryIO, size: int, least: int) -> list[Span]:
    """Spans of about ``least`` bytes that are together the file of ``size`` bytes, in order; none if it is not cut,
    because it is small or for its format. Raises `UsageError` if that is unknown."""
    count = size // least
    kind = format_of(path, stream)
    if count < 2 or kind not in ("jsonl", "parquet"):
        return []
    if kind == "parquet":
        rows = row_count(stream)
        return _cut(i * rows // count for i in range(count + 1))
    head = stream.read(4)
    if head.startswith((GZIP, ZSTANDARD)) or encoding_of(head) != "utf-8":
        return []
    first = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    return _numbered(stream, _cut([first, *_ends_of_lines(stream, size, count)]))


def _cut(places: Iterable[int]) -> list[Span]:
    return [Span(begin, end) for begin, end in pairwise(sorted(set(places)))]


def _ends_of_lines(stream: BinaryIO, size: int, count: int) -> list[int]:
    """Places behind a line break, about as far from each other, and the end of the file."""
    ends = [0]
    for i in range(1, count):
        if (wanted := i * size // count) > ends[-1]:  # a line may be longer than a span
            stream.seek(wanted)
            skip_line(stream)
            ends.append(stream.tell())
    return [*ends[1:], size]


def _numbered(stream: BinaryIO, spans: list[Span]) -> list[Span]:
    """The spans with the numbers of their first lines."""
    found, line = [], 1
    for span in spans:
        found.append(Span(span.begin, span.end, line))
        line += _line_breaks(stream, span)
    return found


def _line_breaks(stream: BinaryIO, span: Span) -> int:
    stream.seek(span.begin)
    left, count = span.end - span.begin, 0
    while left and (block := stream.read(min(_BLOCK, left))):
        left -= len(block)
        count += block.count(b"\n")
    return count
