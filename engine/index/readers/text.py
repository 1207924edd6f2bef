"""Lines of text files in UTF-8, UTF-16 or UTF-32."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from .records import BadRecord, Span


def encoding_of(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8"


def text_lines(stream: Any) -> tuple[str, Iterable[bytes | str]]:
    """The encoding by byte order mark, and the lines: bytes for UTF-8, text for the others."""
    buffered = stream if isinstance(stream, io.BufferedReader | gzip.GzipFile) else io.BufferedReader(stream)
    head = bytes(buffered.peek(4)[:4])
    encoding = encoding_of(head)
    if encoding != "utf-8":
        return encoding, io.TextIOWrapper(buffered, encoding, errors="replace", newline="\n")
    if head.startswith(codecs.BOM_UTF8):
        buffered.read(3)
    return encoding, buffered


def lines_within(stream: BinaryIO, span: Span) -> Iterator[bytes]:
    """The lines of a span of a file in UTF-8."""
    left = span.end - stream.seek(span.begin)
    for line in stream:
        yield line
        left -= len(line)
        if left <= 0:
            return


def decoded_lines(stream: BinaryIO, span: Span | None = None) -> Iterator[tuple[int, str | BadRecord]]:
    """Numbers and texts of all lines, or of those of a span of a file in UTF-8."""
    encoding, lines = text_lines(stream) if span is None else ("utf-8", lines_within(stream, span))
    for number, line in enumerate(lines, span.line if span else 1):
        if isinstance(line, bytes):
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                yield (
                    number,
                    BadRecord(f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"),
                )
        else:
            yield number, BadRecord(f"not {encoding.upper()}") if "\ufffd" in line else line
