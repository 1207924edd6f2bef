"""How fast a pool is read, and how many near duplicates are found.

    python benchmarks/index.py POOL.jsonl [POOL.jsonl …] [--rows 100000]

Makes a pool of the wanted size from the inputs of the given files (two inputs joined, one in ten rows an edited copy
of another), indexes it without an encoder, and indexes it again unchanged. Ratios are to reading the same lines with
``json.loads`` in the same run.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.retrieval.duplicates import Repeats, jaccards, min_hashes, normalised
from icl_curate.engine.store.demonstrations import groups
from icl_curate.engine.store.workspace import Workspace


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    done = work()
    return time.perf_counter() - start, done


def pool(files: list[Path], rows: int, draw: random.Random) -> tuple[list[dict[str, str]], list[tuple[int, int]]]:
    """Rows, and the pairs (copy, original) of row numbers among them."""
    seeds = [json.loads(line) for file in files for line in file.open(encoding="utf-8")]
    made: list[dict[str, str]] = []
    copies = []
    for i in range(rows):
        if i % 10 == 9:
            original = draw.randrange(i)
            words = made[original]["input"].split()
            for _ in range(draw.randint(1, max(1, len(words) // 8))):
                words[draw.randrange(len(words))] = draw.choice(draw.choice(seeds)["input"].split() or ["x"])
            text, output = " ".join(words), made[original]["output"]
            copies.append((i, original))
        else:
            first, second = draw.choice(seeds), draw.choice(seeds)
            text, output = f"{first['input']} {second['input']}", first["output"]
        made.append({"id": str(i), "input": text, "output": output, "source": f"s{i % 20}"})
    return made, copies


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--rows", type=int, default=100_000)
    given = arguments.parse_args()
    rows, copies = pool(given.files, given.rows, random.Random(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        store = Workspace.create(Path(folder) / "w")
        plan = IndexPlan(paths=(str(path),))
        base, _ = timed(lambda: [json.loads(line) for line in path.open("rb")])
        first, report = timed(lambda: index_pool(store, plan))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        again, _ = timed(lambda: index_pool(store, plan))
        command = [sys.executable, "-c", "from icl_curate.cli import main; main()", "index", str(path), "--no-encode"]
        process, _ = timed(lambda: subprocess.run([*command, "-w", str(store.path)], check=True, capture_output=True))
        print(f"{len(rows):,} rows, {path.stat().st_size / 1e6:.0f} MB; json.loads of the same lines: {base:.2f} s")
        for name, seconds in (
            ("first index", first),
            ("again, unchanged", again),
            ("the whole command again", process),
        ):
            print(f"{name:28} {seconds:7.2f} s  {seconds / base:6.1f} x  {seconds / len(rows) * 1e6:6.1f} us a row")
        print(f"peak memory {peak:,.0f} MiB; repeats {report.duplicates}")

        group = groups(store)
        alike = jaccards([normalised(row["input"]) for row in rows], np.array(copies))
        found = np.array([group[a] == group[b] for a, b in copies])
        for low, high in ((0.9, 1.01), (0.8, 0.9), (0.7, 0.8), (0.0, 0.7)):
            chosen = (alike >= low) & (alike < high)
            if chosen.any():
                print(
                    f"edited copies of Jaccard {low:.1f} to {min(high, 1):.1f}: "
                    f"{found[chosen].mean():.3f} of {chosen.sum():,} grouped"
                )

        texts = [normalised(row["input"]) for row in rows]
        hashing, _ = timed(lambda: min_hashes(texts))
        repeats = Repeats.open(store, 0.8)
        asked = [timed(lambda text=row["input"]: repeats.of_text(text + " x"))[0] for row in rows[:200]]
        print(
            f"MinHash {hashing / len(rows) * 1e6:.1f} us a row; "
            f"the repeats of one text: {np.median(asked) * 1e3:.1f} ms (median)"
        )


if __name__ == "__main__":
    main()
