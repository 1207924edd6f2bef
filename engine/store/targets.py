"""Files and folders that a command writes for its user: what is there is not lost."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..base.errors import UsageError
from .demonstrations import indexed_names
from .workspace import FILE, Workspace

ANOTHER = "choose another name"
LITTER = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))
"""Files that file managers leave in a folder that was only looked at."""


def check_no_input(workspace: Workspace, out: Path) -> None:
    """Raise `UsageError` if ``out`` is a file that the workspace was made from, or a folder with one."""
    target = out.resolve()
    for name in indexed_names(workspace):
        if (file := (workspace.path.parent / name).resolve()) == target or target in file.parents:
            raise UsageError(f"{out} is what this workspace was made from: {file}", ANOTHER)


def check_file(out: Path, force: bool) -> None:
    """Raise `UsageError` if a file is there that must not be overwritten: without ``force`` any, and one in a
    workspace; or what is no file."""
    if not out.exists():
        return
    if not out.is_file():
        raise UsageError(f"{out} exists and is no file", ANOTHER)
    _check_taken(out, force)
    for folder in out.resolve().parents:  # who works in a workspace's folder keeps files of their own there
        if (folder / FILE).is_file() and (out.name.startswith(FILE) or not Path.cwd().is_relative_to(folder)):
            raise UsageError(f"{out} is part of the workspace {folder}", ANOTHER)


def check_folder(out: Path, force: bool, own: Collection[str]) -> None:
    """Raise `UsageError` if a folder is there that must not be replaced: without ``force`` any, and one with other
    files than ``own``, by their paths in it, and `LITTER`; or what is no folder."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"{out} exists and is no folder", ANOTHER)
    _check_taken(out, force)
    for path in out.rglob("*"):
        name = path.relative_to(out).as_posix()
        if name not in own and path.name not in LITTER and not (path.is_dir() and not path.is_symlink()):
            raise UsageError(f"{out} holds {name}, which this command does not write and would delete", ANOTHER)


def _check_taken(out: Path, force: bool) -> None:
    if not force:
        raise UsageError(f"{out} exists", f"{ANOTHER}, or overwrite it with --force")
