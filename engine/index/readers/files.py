"""Which files are read: paths and globs, standard input, folders that `save_to_disk` of the `datasets` library wrote
(Arrow files, those of each split in a folder of their own), and folders as the hub has them, `export --format hf`, too
(a card, and ``data/SPLIT.parquet`` or ``data/SPLIT-00000-of-00001.parquet``).
"""

from __future__ import annotations

import glob
import io
import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import BinaryIO, Literal, cast

from ...base.errors import UsageError
from ...base.files import open_regular

SPLITS = "dataset_dict.json"
"""The file in a folder that has a folder for each split."""


def saved_files(path: str) -> list[str]:
    """The files of a data set that is a folder, split by split; none of another folder."""
    folder = Path(path)
    if any((folder / name).is_file() for name in (SPLITS, "state.json")):
        return sorted(map(str, folder.glob("**/data-*.arrow")))
    return sorted(map(str, folder.glob("data/*.parquet"))) if has_card(folder) else []


def has_card(folder: Path) -> bool:
    """Whether a folder has a card as those of the hub: they begin with a header."""
    try:
        with open_regular(str(folder / "README.md")) as card:
            return card.readline(5).rstrip() == b"---"
    except OSError:
        return False


def source_of(path: str) -> str | None:
    """The name of the data set that an Arrow file of such a folder belongs to; None for other files."""
    folder = Path(path).parent
    if not path.endswith(".arrow") or not (folder / "state.json").is_file():
        return None
    return (folder.parent if (folder.parent / SPLITS).is_file() else folder).name


Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow", "yaml", "excel"]
SUFFIXES: Mapping[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".xlsx": "excel",
}
COMPRESSED = (".gz", ".zst")

STDIN = "-"


def expand(patterns: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Paths as the user wrote them, with globs replaced by the matching files, sorted; each path once. Also the
    unreadable files that globs matched (a pipe, a device, a broken link, another user's file), with the reason.

    Folders that a glob matches are skipped. Raises `UsageError` for a pattern that matches nothing readable.
    """
    paths: dict[str, None] = {}
    passed: dict[str, str] = {}
    for pattern in patterns:
        if os.path.isdir(pattern) and (saved := saved_files(pattern)):  # noqa: PTH112 - Path raises for a long name
            paths |= dict.fromkeys(saved)
            continue
        if pattern == STDIN or os.path.lexists(pattern) or not glob.has_magic(pattern):
            paths[pattern] = None
            continue
        matches = 0
        for path in sorted(glob.glob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
            if Path(path).is_dir():
                continue
            try:
                open_regular(path).close()
            except OSError as error:
                passed[path] = f"cannot be read: {error.strerror or error}"
                continue
            paths[path] = None
            matches += 1
        if not matches:
            raise UsageError(f"no file matches {pattern}", "check the pattern, and quote it if the shell changed it")
    return list(paths), passed


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """The file's bytes (`-`: standard input); raises `UsageError` unless it is a readable, non-empty file."""
    if path == STDIN:
        with tempfile.TemporaryFile() as piped:  # as large as it likes
            shutil.copyfileobj(_piped("pipe JSON Lines into: icl-curate index -"), piped)
            piped.seek(0)
            if not any(map(bytes.strip, iter(lambda: piped.read(1 << 20), b""))):
                raise UsageError("standard input is empty", "pipe JSON Lines into: icl-curate index -")
            piped.seek(0)
            yield cast(BinaryIO, piped)
        return
    file = Path(path)
    try:
        if file.is_dir():
            read = {*SUFFIXES, *COMPRESSED}
            endings = Counter(one.suffix for one in file.iterdir() if one.suffix in read and one.name[0] != ".")
            [(ending, _)] = endings.most_common(1) or [(".jsonl", 0)]
            raise UsageError(f"{path} is a directory", f"icl-curate index {quote(str(file / f'*{ending}'))}")
        stream = open_regular(path)
    except FileNotFoundError:
        gone = "is a broken link" if os.path.islink(path) else "does not exist"  # noqa: PTH114
        fix = "download it first; data sets on the hub are hf://org/name" if "://" in path else "check the path"
        raise UsageError(f"{path} {gone}", fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}", "give a readable file, or pipe into -") from error
    with stream:
        if not stream.read(1):
            raise UsageError(f"{path} is empty", "remove it, or add rows to it")
        stream.seek(0)
        yield stream


def read_stdin(fix: str) -> bytes:
    """All of standard input, see `_piped`."""
    return _piped(fix).read()


def _piped(fix: str) -> BinaryIO:
    """Standard input. Raises `UsageError` with ``fix`` if nothing is piped in: reading a terminal would block, and a
    device has no end."""
    if sys.stdin is None:  # closed
        return io.BytesIO()
    stream = sys.stdin.buffer
    try:
        mode = os.fstat(stream.fileno())
    except (OSError, ValueError):  # not a file but bytes in memory
        return stream
    if stat.S_ISCHR(mode.st_mode) and not os.path.samestat(mode, os.stat(os.devnull)):  # noqa: PTH116
        raise UsageError("standard input is a terminal or a device, not a pipe", fix)
    return stream
