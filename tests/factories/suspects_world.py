"""A small pool of labels with faults planted by hand; it has no vectors, so that no label is judged."""

from __future__ import annotations

import json
from pathlib import Path

from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.workspace import Workspace

from factories.copies import copied

WORDS = ["apple", "brook", "cloud", "dune", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "ledge"]
SOUND = [{"id": f"f{i}", "input": f"filling number {i} {w}", "output": "ab"[i % 2]} for i, w in enumerate(WORDS)]
FAULTY = [
    {"id": "d1", "input": "Where is my parcel today?", "output": "a"},
    {"id": "d2", "input": "where is my  parcel today?", "output": "a"},
    {"id": "c1", "input": "please cancel the order", "output": "a"},
    {"id": "c2", "input": "please cancel the order", "output": "b"},
    {"id": "c3", "input": "Please cancel the order", "output": "b"},
    {"id": "e1", "input": "?!…", "output": "b"},
    {"id": "m1", "input": "It is cafÃ© [/b] time \x1b[5m", "output": "a"},
    {"id": "r1", "input": "a label of its own", "output": "rare"},
]
SUSPECTS = {
    "e1": "empty", "m1": "mojibake", "c1": "conflict", "d2": "duplicate", "c3": "duplicate", "r1": "class",
}  # fmt: skip
"""The kind of each suspect, the worst first but for ties."""


def make_pool(folder: Path) -> Workspace:
    """Index the pool in ``folder``, as one source named ``s``."""
    return Workspace.open(copied(folder, "suspects", _index))


def _index(folder: Path) -> None:
    path = folder.parent / "faulty.jsonl"
    rows = [row | {"source": "s"} for row in (*SOUND, *FAULTY)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    index_pool(Workspace.create(folder), IndexPlan(paths=(str(path),)))
