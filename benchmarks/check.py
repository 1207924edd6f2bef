"""Time and memory of `check` and of the list of suspects on a large pool, beside indexing it.

    python benchmarks/check.py [--rows 100000]

The rows are those of the sample pool with words exchanged, so that no two inputs are equal; a tenth has a label of
another row. Seconds are of this machine: compare them with those of the index on the line above.
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
from pathlib import Path

from evidence import SAMPLE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder / "pool.jsonl", rows)
        before = 0.0
        for words in (
            ("index", str(folder / "pool.jsonl")),
            ("check", "-n", "1"),
            ("suspects", "-n", "1"),
        ):
            begun = time.monotonic()
            command = [sys.executable, "-m", "icl_curate.cli", *words, "-w", str(folder / "w"), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            took = time.monotonic() - begun
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            found = json.loads(done.stdout)
            told = found.get("kinds") or {key: found[key] for key in ("demonstrations",) if isinstance(found[key], int)}
            share = f", {took / before:.2f} × the index" if before else ""
            print(f"{' '.join(words[:2]):18} {took:6.1f} s{share}, peak so far {peak:.1f} GiB {told}", flush=True)
            before = before or took


def write(path: Path, count: int) -> None:
    """A pool of ``count`` rows."""
    draw = random.Random(0)
    sample = [
        json.loads(line)
        for file in sorted((SAMPLE / "support" / "pool").glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    words = sorted({word for row in sample for word in row["input"].split()})
    with path.open("w", encoding="utf-8") as out:
        for i in range(count):
            row = sample[i % len(sample)]
            text = [word if draw.random() < 0.7 else draw.choice(words) for word in row["input"].split()]
            label = draw.choice(sample)["output"] if draw.random() < 0.1 else row["output"]
            source = f"s{i % 12}"
            out.write(json.dumps({"id": f"r{i}", "input": " ".join(text), "output": label, "source": source}) + "\n")


if __name__ == "__main__":
    main()
