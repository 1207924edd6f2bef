"""What `check` finds in the pools of `tasks.py` without an LLM, and what it names in clean ones.

    python benchmarks/check_tasks.py DATA WORK [--task entities,calls,…] [--seeds 10,11] [--rows 300] [--queries 100]

DATA as for `tasks.py`, whose reported pools have the seed 0. Each pool is indexed twice: with wrong rows, and without
any. Named are rows with any finding, in brackets the right ones among them. Corrected are those that `check relabel`
gives another output; rightly, the right one.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check_outputs import same
from evidence import Workspace, table
from icl_curate.engine.checks.results import RELABEL
from real_llm import read
from tasks import TASKS, WRONG, planted

LIKELY = 0.5
"""Probability from which on `check relabel` takes a correction."""


def checked(name: str, given: argparse.Namespace, seed: int) -> Iterator[list[object]]:
    """A line of the table for the clean pool, and one for that with wrong rows."""
    right: dict[str, Any] = {}
    for pool, share in (("clean", 0.0), ("spoilt", WRONG)):
        files = given.work / f"{name}-{seed}-{pool}"
        wrong = planted(name, given.data, files, given.rows, given.queries, seed, share)
        paths = sorted((files / "pool").glob("*.jsonl"))
        right = right or {row["id"]: row["output"] for path in paths for row in read(path)}
        here = Workspace(files, "workspace", "offline")
        if not here.folder.exists():
            here.run("index", *paths, "--validation", files / "validation.jsonl")
        begun = time.monotonic()
        rows = here.run("check")["rows"]
        took, named, corrected = time.monotonic() - begun, {row["id"] for row in rows}, dict[str, str]()
        kinds = Counter(kind for kind, row in {(row["kind"], row["id"]) for row in rows} if row in wrong)
        for row in rows:
            if row["suggestion"].startswith(RELABEL) and row["numbers"]["suggested"] >= LIKELY:
                corrected.setdefault(row["id"], row["suggestion"].removeprefix(RELABEL))
        rightly = sum(same(output, right[row]) for row, output in corrected.items())
        found = f"{len(named & wrong)} of {len(wrong)} (+{len(named - wrong)})"
        told = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        yield [name, seed, pool, found, told, f"{rightly} of {len(corrected)}", f"{took:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--task", default=",".join(TASKS))
    parser.add_argument("--seeds", default="10,11")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--queries", type=int, default=100)
    given = parser.parse_args()
    lines = []
    for name in given.task.split(","):
        for seed in map(int, given.seeds.split(",")):
            for line in checked(name, given, seed):
                print(*line, sep=" | ", flush=True)
                lines.append(line)
    print(table(["task", "seed", "pool", "wrong rows named", "by kind", "corrected rightly", "seconds"], lines))


if __name__ == "__main__":
    main()
