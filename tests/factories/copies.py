"""Folders that take a while to make: made once in a run of the tests, by whichever worker needs them first."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store import workspace
from icl_curate.engine.store.locks import exclusive
from icl_curate.engine.store.workspace import Workspace

MAKE = workspace._make
"""Makes a database, for tests of that."""

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


def keep_empty(patch: Callable[[object, str, object], None]) -> None:
    """Let `Workspace.create` copy a database without rows that it has made before: to make one takes half as long as to
    index a few rows. ``patch`` is ``monkeypatch.setattr``."""

    def copy(database: Path) -> None:
        with exclusive(database.parent / "tmp" / "create.lock"):
            if not workspace._exists(database):
                draft = database.with_name(f".{workspace.FILE}.new")
                made = made_once("empty", lambda folder: MAKE(folder / workspace.FILE))
                shutil.copyfile(made / workspace.FILE, draft)
                draft.chmod(0o600)
                draft.replace(database)

    patch(workspace, "_make", copy)


def indexed(path: Path, near_duplicate: float | None = None, **texts: str) -> Workspace:
    """The workspace ``path`` with the rows of the files ``pool.jsonl``, ``validation.jsonl`` and ``test.jsonl``, as far
    as their ``texts`` are given, which stand beside it; without vectors. Indexed once for the same texts."""

    def index(folder: Path) -> None:
        files = {name: folder.parent / f"{name}.jsonl" for name in texts}
        for name, file in files.items():
            file.write_text(texts[name], encoding="utf-8")
        found: Mapping[str, tuple[str, ...]] = {name: (str(file),) for name, file in files.items()}
        plan = IndexPlan(paths=found["pool"], validation=found.get("validation", ()), test=found.get("test", ()))
        if near_duplicate is not None:
            plan = replace(plan, near_duplicate=near_duplicate)
        index_pool(Workspace.create(folder), plan)

    digest = sha256(json.dumps([near_duplicate, texts]).encode()).hexdigest()
    return Workspace.open(copied(path, f"indexed {digest[:16]}", index))


def lines(rows: Iterable[Mapping[str, object]]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def copied(path: Path, name: str, make: Callable[[Path], object]) -> Path:
    """``path``, a copy of the folder ``w`` that ``make`` made, and beside it what it was made from; ``name`` tells one
    such folder from others."""
    made = made_once(name, lambda folder: make(folder / "w"))
    shutil.copytree(made / "w", path)
    for file in made.iterdir():
        if file.is_file():
            shutil.copy2(file, path.parent / file.name)
    return path
