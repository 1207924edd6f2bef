"""Folders that take a while to make: made once in a run of the tests, by whichever worker needs them first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from icl_curate.engine.store.locks import exclusive

VARIABLE = "ICL_CURATE_TESTS_MADE"
"""In the environment of all workers: the folder that holds what was made; ``conftest.py`` makes and removes it."""


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder called ``name`` with what ``make`` put there; not to be written to."""
    root = Path(os.environ[VARIABLE])
    made = root / name
    with exclusive(root / f"{name}.lock"):
        if not made.exists():
            unfinished = root / f"{name}, unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(made)
    return made


def copied(path: Path, name: str, make: Callable[[Path], object]) -> Path:
    """``path``, a copy of the folder ``w`` that ``make`` made, and beside it what it was made from; ``name`` tells one
    such folder from others."""
    made = made_once(name, lambda folder: make(folder / "w"))
    shutil.copytree(made / "w", path)
    for file in made.iterdir():
        if file.is_file():
            shutil.copy2(file, path.parent / file.name)
    return path
