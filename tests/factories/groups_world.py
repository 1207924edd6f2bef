"""A small pool with rows that repeat each other, one that a query repeats, and records that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.workspace import Workspace

from factories.copies import copied

ROWS = [
    {"id": "d1", "input": "Where is my parcel today?", "output": "a"},
    {"id": "d2", "input": "where is my  parcel today?", "output": "a"},
    {"id": "c1", "input": "please cancel [/b] the order", "output": "a"},
    {"id": "c2", "input": "please cancel [/b] the order", "output": "b"},
    {"id": "c3", "input": "Please cancel [/b] the order", "output": "b"},
    {"id": "n1", "input": "the lamp in the living room flickers whenever I switch the heating on", "output": "b"},
    {"id": "n2", "input": "the lamp in the living room flickers whenever I switch my heating on", "output": "b"},
    {"id": "t1", "input": "is this watering can still under warranty after two years", "output": "b"},
]
BAD = [
    json.dumps({"id": "x1", "input": "no output", "source": "s"}),
    json.dumps({"id": "x2", "input": "", "output": "a", "source": "s"}),
    json.dumps({"id": "d1", "input": "an id that is taken", "output": "b", "source": "s"}),
    json.dumps({"id": "x3", "input": "no output [/b] \x1b[5m either", "source": "s"}),
    "{not json",
]
QUERIES = [
    {"id": "q1", "input": "Is this watering can still under warranty after two years", "output": "b"},
    {"id": "q2", "input": "a question of its own", "output": "a"},
]


def make_pool(folder: Path) -> Workspace:
    """Index the pool in ``folder``, as one source named ``s``, without vectors."""
    return Workspace.open(copied(folder, "groups", _index))


def _index(folder: Path) -> None:
    pool, queries = folder.parent / "pool.jsonl", folder.parent / "queries.jsonl"
    lines = [*(json.dumps(row | {"source": "s"}) for row in ROWS), *BAD]
    pool.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    queries.write_text("".join(json.dumps(row) + "\n" for row in QUERIES), encoding="utf-8")
    index_pool(Workspace.create(folder), IndexPlan(paths=(str(pool),), validation=(str(queries),)))
