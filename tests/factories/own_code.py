"""Modules of a user's, found on the path of one test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

_number = count()

Make = Callable[[str], str]
"""From the text of a module to its name, a new one each time: modules stay loaded."""


def modules(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes modules in a folder on the path."""
    folder.mkdir(exist_ok=True)
    patch.syspath_prepend(folder)
    made: list[str] = []

    def make(text: str) -> str:
        made.append(f"own_code_{next(_number)}")
        (folder / f"{made[-1]}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return made[-1]

    yield make
    for name in made:
        sys.modules.pop(name, None)
