"""Local LLMs by size: what converting, loading and asking each costs, and how many queries each answers.

    python benchmarks/llms.py FILE.gguf … [--queries 60]

Each file is converted into a cache of its own by the first ``llm check`` and only loaded by the second. Then the first
test queries of the sample pool are answered without demonstrations and with five by ``dense``, 16 labels scored. The
time of the second check, which asks next to nothing, is taken off that of the answers.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from evidence import SAMPLE, table
from sizes import Cost, run

MIB = 1 << 20


def measured(file: Path, queries: int, folder: Path) -> list[str]:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    spec, where = f"hf:{file}", ["-w", str(folder / "w"), "--json"]

    def command(*words: object) -> tuple[Cost, dict[str, Any]]:
        cost = run([*map(str, words), *where], folder, limit=7200)
        if cost.code:
            raise SystemExit(f"{file.name}: {' '.join(map(str, words))}: {cost.said}")
        return cost, json.loads((folder / "out").read_text())

    support = SAMPLE / "support"
    command("index", *sorted((support / "pool").glob("*.jsonl")), "--test", support / "test.jsonl")
    converted, _ = command("llm", "check", "--llm", spec)
    loaded, _ = command("llm", "check", "--llm", spec)
    size = sum(part.stat().st_size for part in (folder / "cache").rglob("*") if part.is_file())
    row = [file.stem, f"{file.stat().st_size / MIB:.0f}", f"{size / MIB:.0f}", f"{converted.wall:.0f}"]
    row += [f"{converted.own / 1024:.0f}", f"{loaded.wall:.1f}"]
    for method in ("zero", "dense"):
        asked, found = command("evaluate", "-m", method, "-k", 5, "--split", "test", "--limit", queries, "--llm", spec)
        told = found["methods"][method]
        seconds = (asked.wall - loaded.wall) / queries
        row += [f"{told['accuracy']:.3f}", f"{seconds:.2f}"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--queries", type=int, default=60)
    chosen = parser.parse_args()
    heads = ["LLM", "file, MiB", "converted, MiB", "converting, s", "its memory, MiB", "loading, s"]
    heads += ["zero", "s a query", "dense", "s a query"]
    rows = []
    for file in chosen.files:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(file.resolve(), chosen.queries, Path(folder)))
        print(rows[-1], flush=True)
    print(table(heads, rows))


if __name__ == "__main__":
    main()
