"""The files of a folder that could be a pool, each with its first rows as ``index`` would read them.

Bounded: of each file no more than a part is read, and of none after `SECONDS`. Links are not followed, so that nothing
outside the folder is read.
"""

from __future__ import annotations

import glob
import io
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from typing import Any

from ..base.errors import CurateError, UsageError
from ..base.files import open_regular
from ..pool.display import display_line
from ..pool.records import Split
from .databases import SQL
from .files import HUB
from .peek import Peek, peek, peek_stream
from .readers.files import COMPRESSED, SUFFIXES
from .readers.formats import decompressed
from .readers.parquet_format import rows_by_group
from .rows import SPLIT_NAMES, Mapper

SECONDS = 0.5
"""After which no further file is looked into."""
PATIENCE = 10.0
"""The same where the files are waited for."""
ENTRIES, FOLDERS = 20_000, 20
"""Entries of a folder that are looked through, and folders in it."""
FEW = 12
"""Files of one ending in a folder that are listed one by one; more are one pattern."""
HEAD, CUT = 1 << 18, 1 << 16
"""Bytes up to which all lines of a file are looked at, and those of a larger one."""
WHOLE = {"json": 1 << 20, "arrow": 1 << 22, "excel": 1 << 18, "yaml": 1 << 16, "parquet": 1 << 62}
"""Sizes up to which a file of another format is looked into: all but Parquet are read whole."""
COUNTED, SAMPLED = 10_000, 100
"""Rows that are counted one by one, and those of Parquet that are read."""
USES: Mapping[str, Split] = {**SPLIT_NAMES, "questions": "test", "queries": "test"}
"""What a word in the name of a file tells of its use."""
ORDER: tuple[Split | None, ...] = ("pool", "validation", "test", None)


@dataclass(frozen=True, slots=True)
class Look:
    """How a file will be read. ``guessed``: columns that were recognised by what they hold, as no name told; they are
    to be mapped. ``rows`` are ``about`` so many if that is an estimate; None: not known."""

    peek: Peek
    guessed: Mapping[str, str]
    examples: Mapping[str, str]
    rows: int | None = None
    about: bool = False

    @property
    def usable(self) -> bool:
        """Whether the file has a row that can be used."""
        return self.peek.read > self.peek.bad


@dataclass(frozen=True, slots=True)
class FileHere:
    """A file, or a pattern for several, as ``index`` takes it; ``size`` in bytes. ``look`` is None if it was not looked
    into, or could not be read: ``why``."""

    path: str
    size: int
    files: int = 1
    look: Look | None = None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """One of ``files`` of ``index --peek --json`` without files."""
        look = self.look
        return {
            "path": self.path, "size": self.size, "files": self.files, "use": self.use, "why": self.why,
            "rows": look.rows if look else None, "about": bool(look and look.about),
            "fields": dict(look.peek.understood.fields) if look else {}, "guessed": dict(look.guessed) if look else {},
        }  # fmt: skip

    @property
    def use(self) -> Split | None:
        """What it is likely for; None: nothing that could be told."""
        likely = self.look is not None and self.look.usable and self.look.peek.read > 1
        return use_of(self.path) if likely else None


def use_of(path: str) -> Split:
    """What the name of a file tells of its use."""
    words = re.findall("[a-z]+", PurePath(path).name.lower())
    return next((USES[word] for word in words if word in USES), "pool")


def files_here(folder: str = ".", seconds: float = SECONDS) -> list[FileHere]:
    """The files of a folder and of the folders in it that could be read, the likely ones first; none of a folder that
    cannot be read."""
    until = time.monotonic() + seconds
    listed = [_looked_into(here, first, until) for here, first in _listed(folder)]
    return sorted(listed, key=lambda here: ORDER.index(here.use))


def look(pattern: str, columns: Mapping[str, str], labels: Sequence[str] = ()) -> Look:
    """How a file, or the first one of a pattern, will be read with these columns, and with those that alone fit where
    no name tells the input or the output. Raises `UsageError` as `peek` does."""
    return _guessing(lambda given: peek(pattern, given, labels=labels), columns)


def first_look(path: str) -> Look | None:
    """As `look`, at the beginning of a file; None if it would have to be read whole and is large. Raises `UsageError`,
    and `OSError`, if it cannot be read."""
    plain = _plain(path)
    kind = SUFFIXES[PurePath(plain).suffix.lower()]
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if kind in WHOLE and (path != plain or size > WHOLE[kind]):
            return None
        head = None if kind in WHOLE else decompressed(path, stream).read(HEAD + 1)
        lines = b"" if head is None else head if len(head) <= HEAD else head[: head.rfind(b"\n", 0, CUT) + 1]
        if head and not lines:  # the first one is longer
            return None
        most = SAMPLED if kind == "parquet" else COUNTED

        def read(given: Mapping[str, str]) -> Peek:
            stream.seek(0)
            return peek_stream(path, stream if head is None else io.BytesIO(lines), Mapper(given), read=most)

        seen = _guessing(read, {})
        count = seen.peek.read
        if count == most:
            return replace(seen, rows=sum(rows_by_group(stream))) if kind == "parquet" else seen
        if head is None or lines == head:
            return replace(seen, rows=count)
        return replace(seen, rows=size * count // len(lines), about=True) if path == plain else seen


def _guessing(read: Callable[[Mapping[str, str]], Peek], given: Mapping[str, str]) -> Look:
    """What is read with the columns given, and with those that alone fit what is lacking: of the file as it is, so that
    a column given takes no other guess away."""
    seen = read(given)
    first = read({}) if given and seen.understood.lacking else seen
    fits = {**first.understood.fits, **seen.understood.fits}
    free = (name for name in seen.understood.lacking if name not in given)
    guessed = {name: fits[name] for name in free if name in fits and fits[name] not in given.values()}
    if guessed:
        with suppress(UsageError):  # the name of the column cannot be written as a mapping
            with_guess = read({**given, **guessed})
            if with_guess.bad < seen.bad:
                return Look(with_guess, guessed, first.understood.examples)
    return Look(seen, {}, first.understood.examples)


def _looked_into(here: FileHere, first: str, until: float) -> FileHere:
    if time.monotonic() >= until:
        return here
    try:
        return replace(here, look=first_look(first))
    except CurateError as error:
        return replace(here, why=error.what)
    except OSError as error:
        return replace(here, why=f"cannot be read: {error.strerror or error}")


def _listed(folder: str) -> Iterator[tuple[FileHere, str]]:
    """The files of a folder, then those of the folders in it; each with the path of the first one."""
    entries = _entries(folder)
    yield from _in_folder("", entries, FEW)
    below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    for entry in below[:FOLDERS]:
        yield from _in_folder(f"{entry.name}/", _entries(entry.path), 1)


def _in_folder(prefix: str, entries: Sequence[os.DirEntry[str]], few: int) -> Iterator[tuple[FileHere, str]]:
    """Up to ``few`` files of one ending one by one, more as a pattern, but for those whose names tell of queries."""
    by_ending: dict[str, list[FileHere]] = {}
    for entry in entries:
        if (ending := _ending(entry.name)) and entry.is_file(follow_symlinks=False):
            with suppress(OSError):  # it is gone
                here = FileHere(_as_argument(prefix + entry.name), entry.stat(follow_symlinks=False).st_size)
                by_ending.setdefault(ending, []).append(here)
    for ending, files in sorted(by_ending.items()):
        queries = [here for here in files if use_of(here.path) != "pool"]
        several = len(files) > few
        for here in files if not several else queries if len(queries) <= FEW else ():
            yield here, here.path
        if several and len(queries) < len(files):
            pattern = f"{_as_argument(glob.escape(prefix))}*{ending}"
            yield FileHere(pattern, sum(here.size for here in files), len(files)), files[0].path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name, without hidden entries, and those whose names a line of text cannot show."""
    try:
        with os.scandir(folder) as found:
            entries = list(islice(found, ENTRIES))
    except OSError:
        return []
    plain = (entry for entry in entries if entry.name[0] != "." and display_line(entry.name) == entry.name)
    return sorted(plain, key=lambda entry: entry.name)


def _as_argument(path: str) -> str:
    """The path so that a command takes it for a file."""
    return f"./{path}" if path.startswith(("-", SQL, HUB)) else path


def _plain(path: str) -> str:
    """The path without what tells that the file is compressed."""
    return next((path[: -len(ending)] for ending in COMPRESSED if path.lower().endswith(ending)), path)


def _ending(name: str) -> str:
    """That of a file which can be read, as it is written in its name; empty for others."""
    plain = PurePath(_plain(name))
    return name[len(plain.stem) :] if plain.suffix.lower() in SUFFIXES else ""
