"""Rows from Python as files of a workspace, which is the only place that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from ..engine.base.errors import UsageError
from ..engine.base.files import private_folder
from ..engine.index.files import Reading, indexed_file
from ..engine.pool.records import Split
from ..engine.store.locks import exclusive
from ..engine.store.workspace import Workspace
from .rows import is_files, write_rows

MADE = "data"
"""Folder in a workspace of the rows that came from Python."""
BEFORE = ".before"
"""After the name of a file that is kept until the one that takes its place has been indexed."""
LONGEST = 200
"""Characters of a file's name; file systems allow 255 bytes."""
Files = Callable[[str, Any, Split], tuple[str, ...]]


@contextmanager
def kept_rows(workspace: Workspace) -> Iterator[Files]:
    """Gives what makes files of rows, by the name of their source and their split; names of files stay as they are.
    Files that have not been indexed at the end, as of a dry run or because of an error, go again, and those that were
    there before take their old names. Raises `UsageError` for what holds no rows."""
    with ExitStack() as stack:
        locked = False

        def files(name: str, data: Any, split: Split) -> tuple[str, ...]:
            nonlocal locked
            if (named := _named(data)) is not None:
                return named
            folder = workspace.path / MADE
            if not locked:
                stack.enter_context(exclusive(workspace.path / "tmp" / "rows.lock"))
                locked = True
                for left in folder.glob(f"*{BEFORE}"):  # by a killed process
                    _settle(workspace, left.with_name(left.name.removesuffix(BEFORE)))
            path = _path(workspace, folder, name, split)
            draft = path.with_name(f"{path.name}.new")
            stack.callback(draft.unlink, missing_ok=True)
            write_rows(data, draft)  # which may read the file of before
            if path.exists():
                path.replace(_before(path))
            stack.callback(_settle, workspace, path)
            draft.replace(path)
            return (str(path),)

        yield files


@contextmanager
def passing_rows(workspace: Workspace, name: str, data: Any) -> Iterator[tuple[str, ...]]:
    """Names of files as they are; rows as a file that goes again. Raises `UsageError` for what holds no rows."""
    if (named := _named(data)) is not None:
        yield named
        return
    private_folder(workspace.path / "tmp")
    with TemporaryDirectory(dir=workspace.path / "tmp") as folder:
        write_rows(data, path := Path(folder) / f"{name}.jsonl")
        yield (str(path),)


def _named(data: Any) -> tuple[str, ...] | None:
    """Names of files, or none at all; None for rows, also for a list of none, as for a frame of none."""
    if data is None or (isinstance(data, tuple) and not data):
        return ()
    return tuple(map(str, data if isinstance(data, list | tuple) else [data])) if is_files(data) else None


def _before(path: Path) -> Path:
    return path.with_name(path.name + BEFORE)


def _path(workspace: Workspace, folder: Path, name: str, split: Split) -> Path:
    """The file of a source, or of the queries of a split. Their names begin alike where they would be the same: with a
    %, which no quoted name does that is not followed by two digits."""
    plain = quote(name, safe="")  # a source may be any text
    if len(plain) > LONGEST:
        plain = f"%-{blake2b(name.encode(), digest_size=16).hexdigest()}"
    path = folder / f"{plain}.jsonl"
    stored = _stored(workspace, path)
    of_another = stored[1] != split if stored else split == "pool" and name in ("validation", "test")
    return path.with_name(f"%-{path.name}") if of_another else path


def _settle(workspace: Workspace, path: Path) -> None:
    """Leave the file if it has been indexed as it is; else the one of before takes its place."""
    stored, before = _stored(workspace, path), _before(path)
    if stored and stored[0] == _digest(workspace, path):
        before.unlink(missing_ok=True)
    elif before.exists():
        before.replace(path)
    else:
        path.unlink(missing_ok=True)


def _stored(workspace: Workspace, path: Path) -> tuple[str, Split] | None:
    """The digest and the split of the file as it was indexed."""
    name = path.relative_to(workspace.path.parent).as_posix()
    with workspace.read() as con:
        stored = con.execute("SELECT digest, reading FROM files WHERE path = ?", [name]).fetchone()
    return (stored[0], Reading.from_text(stored[1]).split or "pool") if stored else None  # type: ignore[return-value]


def _digest(workspace: Workspace, path: Path) -> str:
    """The digest that the file is indexed with; empty for one that cannot be, as it is missing or has no rows."""
    with suppress(UsageError):
        return indexed_file(workspace, str(path), Reading(None, {}, None, 0.0, 0.0)).digest
    return ""
