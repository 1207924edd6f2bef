"""What `icl-curate verify` is worth: rows drawn at random, verified by one who knows the truth, as the only queries.

    python benchmarks/verify.py WORK --pools DATA [--pool conventions] [--seeds 0,1,2] [--counts 0,30,60] [--llm SPEC]

Of the rows that were not verified, `check` finds so many of the wrong ones, and names so many right ones. With an LLM,
`check prune label` is measured on 100 test queries of the pool, which nobody but this table sees. The pools are those
of `curate.py`; a row whose right output no row of the pool has is passed over as unclear.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

from curate import POOLS, SAMPLE, Remembered
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.decided import prune_found
from icl_curate.engine.checks.results import CheckReport
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.export.verified import Verification
from icl_curate.engine.index.build import index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import client_for
from icl_curate.engine.store.demonstrations import active_labels, active_rows, fetch
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from real_llm import read

QUERIES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(part) for part in text.split(",")]}
    parser.add_argument("work", type=Path)
    parser.add_argument("--pools", type=Path, default=Path())
    parser.add_argument("--pool", choices=list(POOLS), default="support")
    parser.add_argument("--seeds", default=[0, 1, 2], **numbers)
    parser.add_argument("--counts", default=[0, 30, 60, 100], **numbers)
    parser.add_argument("--llm", default="", help="with which to measure what is left; none: no calls")
    chosen = parser.parse_args()
    for seed in chosen.seeds:
        for count in chosen.counts:
            measure(chosen, seed, count)


def measure(chosen: argparse.Namespace, seed: int, count: int) -> None:
    """One line: what `check` finds after so many verdicts."""
    plan, wrong, k = POOLS[chosen.pool](chosen.pools, chosen.work, seed)
    folder = chosen.work / f"{chosen.pool}-{seed}-{count}"
    shutil.rmtree(folder, ignore_errors=True)
    workspace, file = Workspace.create(folder / "w"), folder / "verified.jsonl"
    index_pool(workspace, replace(plan, validation=()))
    verified = judged(workspace, file, count, seed)
    if verified:
        index_pool(workspace, replace(plan, paths=(), test=(), validation=(str(file),)))
    settings = Settings(k=k)
    checked = check_pool(ActivePool(workspace, settings), ("label",))
    found = {row.id for row in checked.rows}
    rest = {row.id for row in fetch(workspace, active_rows(workspace))} - verified
    told = f"{len(found & wrong & rest):,} of {len(wrong & rest):,} found (+{len((found - wrong) & rest):,})"
    print(f"{chosen.pool} {seed}: {len(verified):,} verified: {told}{after(chosen, workspace, checked, k)}", flush=True)


def judged(workspace: Workspace, file: Path, count: int, seed: int) -> set[str]:
    """Verify ``count`` rows by their true outputs; returns their ids."""
    if not count:
        return set()
    told = {row["id"]: row.get("true") for row in read(SAMPLE / "truth_rows.jsonl")}
    labels, rows, passed = active_labels(workspace), Verification(workspace, file, count, seed), 0
    while (row := rows.row) is not None and passed < count:
        if (truth := str(row.metadata.get("truth", told.get(row.id)))) in labels:
            rows.verify(truth)
        else:
            rows.pass_over()
            passed += 1
    return {str(json.loads(line)["id"]).removeprefix("verified-") for line in file.read_text().splitlines()}


def after(chosen: argparse.Namespace, workspace: Workspace, checked: CheckReport, k: int) -> str:
    """Accuracy on test queries as the pool came and pruned, if an LLM is named; answers are kept from pool to pool."""
    if not chosen.llm:
        return ""
    settings, told = Settings(llm=chosen.llm, k=k, dtype="float32"), []
    with client_for(workspace, settings) as opened:
        client = replace(opened, backend=Remembered(opened.backend, chosen.work / "answers.sqlite"))
        for prune in (False, True):
            if prune:
                prune_found(workspace, checked, ("label",))
            plan = EvaluationPlan(methods=("dense",), seeds=1, limit=QUERIES)
            told.append(Evaluation.prepare(client, plan).ask(Budget()).methods["dense"].accuracy)
    return f"; dense {told[0]:.3f} as it came, {told[1]:.3f} pruned"


if __name__ == "__main__":
    main()
