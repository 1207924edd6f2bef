"""Folders that take a while to make: made once in a session, each test works on its own copy."""

from __future__ import annotations

import shutil
import tempfile
from atexit import register
from collections.abc import Callable
from functools import cache
from pathlib import Path


@cache
def _root() -> Path:
    folder = tempfile.mkdtemp(prefix="icl-curate-tests-")
    register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def copied(path: Path, name: str, make: Callable[[Path], object]) -> Path:
    """``path``, a copy of the folder ``w`` that ``make`` made, and beside it what it was made from; ``name`` tells one
    such folder from others."""
    made = _root() / name
    if not made.exists():
        unfinished = made.with_name(f"{name}, unfinished")
        unfinished.mkdir()
        make(unfinished / "w")
        unfinished.rename(made)
    shutil.copytree(made / "w", path)
    for file in made.iterdir():
        if file.is_file():
            shutil.copy2(file, path.parent / file.name)
    return path
