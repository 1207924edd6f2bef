"""How often each way of curating prunes a pool in which nothing is wrong.

    python benchmarks/null_pools.py [--pools 100] [--queries 60]

Each pool holds the right rows of the sample pool, with sources drawn at random, so that no source and no row is worse
than another but by chance; the validation queries are drawn, too. The LLM is the stand-in: what is tested is the rule
that decides, which knows nothing of the LLM.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from evidence import SAMPLE, Workspace
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.evidence import SURE, row_evidence
from icl_curate.engine.curate.tune import Tuning, TuningPlan
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace as Stored
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining, tune

SOURCES = 6
SETTINGS = Settings(method="dense", k=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=100)
    parser.add_argument("--queries", type=int, default=60)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clean(folder)
        found: dict[str, list[float]] = {}
        begun = time.monotonic()
        for seed in range(chosen.pools):
            shutil.copytree(folder / "clean", folder / "null")
            for name, share in pruned(drawn(folder / "null", chosen.queries, seed)).items():
                found.setdefault(name, []).append(share)
            shutil.rmtree(folder / "null")
            print(f"{seed + 1} pools, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    print("| decision | pools pruned | 95 % | rows pruned, mean | at most |")
    print("|---|---|---|---|---|")
    for name, shares in found.items():
        hits = sum(share > 0 for share in shares)
        low, high = interval(hits, len(shares))
        print(
            f"| {name} | {hits} of {len(shares)} | {low:.1%}–{high:.1%} | {np.mean(shares):.2%} | {max(shares):.1%} |"
        )


def clean(folder: Path) -> None:
    """A workspace with the right rows of the sample pool."""
    rows = [json.loads(line) for line in (SAMPLE / "support" / "truth_rows.jsonl").read_text().splitlines()]
    right = {row["id"] for row in rows if row["correct"]}
    lines = [
        line
        for path in sorted((SAMPLE / "support" / "pool").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if json.loads(line)["id"] in right
    ]
    (folder / "pool.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    here = Workspace(folder, "clean", "offline")
    here.run("index", folder / "pool.jsonl", "--validation", SAMPLE / "support" / "validation.jsonl")


def drawn(path: Path, queries: int, seed: int) -> Stored:
    """The workspace with sources and validation queries drawn at random."""
    workspace, draw = Stored.open(path), np.random.default_rng(seed)
    with workspace.write() as con:
        for split in ("pool", "validation"):
            rows = [row for (row,) in con.execute("SELECT row FROM demonstrations WHERE split = ?", [split]).fetchall()]
            if split == "pool":
                sources = [f"s{i}" for i in draw.integers(0, SOURCES, len(rows))]
                con.execute(
                    "UPDATE demonstrations AS d SET source = s.source"
                    " FROM (SELECT unnest(?::BIGINT[]) AS row, unnest(?::VARCHAR[]) AS source) s WHERE s.row = d.row",
                    [rows, sources],
                )
            else:
                others = draw.permutation(rows)[queries:].tolist()
                con.execute(
                    "UPDATE demonstrations SET split = 'test' WHERE row IN (SELECT unnest(?::BIGINT[]))", [others]
                )
    return workspace


def pruned(workspace: Stored) -> dict[str, float]:
    """The share of the rows that each decision prunes."""
    with backend_for(SETTINGS, encode_for_reader(workspace, SETTINGS)) as backend:
        llm = LLMClient(workspace, backend, SETTINGS)
        SourceTraining.prepare(llm, SourcePlan(depth=10)).ask(Budget())
        served = Tuning.prepare(llm, TuningPlan()).ask(Budget())
    pool = ActivePool(workspace, SETTINGS)
    everything = len(pool.rows)
    of_source: Callable[[str], int] = [row.source for row in pool.rows].count
    rows = sum(map(of_source, served.pruned)) + len(served.pruned_rows)
    return {
        "`tune`": rows / everything,
        "`tune vote`": sum(map(of_source, tune(workspace, SETTINGS).pruned)) / everything,
        "`suspects prune`": len(row_evidence(pool).suspects(SURE)) / everything,
        "`check prune label`": len(check_pool(pool, ["label"]).rows) / everything,
        "`check relabel`": len(check_pool(pool, ["label"]).relabelled(0.5)) / everything,
    }


def interval(hits: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z, share = 1.96, hits / tried
    middle = (share + z * z / (2 * tried)) / (1 + z * z / tried)
    half = z / (1 + z * z / tried) * (share * (1 - share) / tried + z * z / (4 * tried**2)) ** 0.5
    return middle - half, middle + half


if __name__ == "__main__":
    main()
