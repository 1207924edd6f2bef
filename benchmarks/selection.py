"""Selection in a warm process: latency of every method on a large pool, and what the pool costs in time and memory.

    python benchmarks/selection.py POOL.jsonl [POOL.jsonl …] [--rows 100000] [--workspace FOLDER]

Makes a pool of the wanted size from the given files (two inputs joined), indexes and encodes it once (kept with
``--workspace``), then asks each method for 8 demonstrations of 100 unseen queries, one at a time, after ten others.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from icl_curate import Selector
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.store.workspace import Workspace


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--workspace", type=Path)
    given = arguments.parse_args()
    draw = random.Random(11)
    seeds = [json.loads(line) for file in given.files for line in file.open(encoding="utf-8")]
    asked = [f"{draw.choice(seeds)['input']} {draw.choice(seeds)['input']}" for _ in range(110)]
    with tempfile.TemporaryDirectory() as folder:
        root = given.workspace or Path(folder) / "w"
        if not (root / "workspace.duckdb").exists():
            prepare(root, seeds, given.rows, draw, Path(folder))
        for method in METHODS:
            selector = Selector(root, method, 8)
            start = time.perf_counter()
            selector.select(asked[0])
            first = time.perf_counter() - start
            for query in asked[:10]:
                selector.select(query)
            took = []
            for query in asked[10:]:
                begun = time.perf_counter()
                selector.select(query)
                took.append(time.perf_counter() - begun)
            median, tail = np.percentile(np.array(took) * 1e3, [50, 95])
            print(f"{method:8s} first {first:6.2f} s   warm median {median:7.2f} ms   95 % {tail:7.2f} ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def prepare(root: Path, seeds: list[dict[str, str]], rows: int, draw: random.Random, folder: Path) -> None:
    """Write, index and encode the pool, telling how long each took."""
    pool = folder / "pool.jsonl"
    with pool.open("w", encoding="utf-8") as file:
        for i in range(rows):
            first, second = draw.choice(seeds), draw.choice(seeds)
            text = f"{first['input']} {second['input']}"
            file.write(
                json.dumps({"id": str(i), "input": text, "output": first["output"], "source": f"s{i % 20}"}) + "\n"
            )
    workspace = Workspace.create(root)
    for name, encoder in (("ingest", None), ("encode", "all-MiniLM-L6-v2"), ("again", "all-MiniLM-L6-v2")):
        start = time.perf_counter()
        index_pool(workspace, IndexPlan(paths=(str(pool),), encoder=encoder))
        took = time.perf_counter() - start
        print(f"{name:8s} {took:8.2f} s   {rows / took:10,.0f} rows/s", flush=True)


if __name__ == "__main__":
    main()
