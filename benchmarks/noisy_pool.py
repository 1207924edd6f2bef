"""Source importance on a pool with planted noise: are the bad sources found, and what does pruning them gain?

    python benchmarks/noisy_pool.py FOLDER [--queries 300] [--depth 50] [--methods random,bm25,dense]

FOLDER holds train.jsonl, validation.jsonl and test.jsonl. Half of the training rows are moved to five sources of label
noise 0.1, 0.3, 0.5, 0.7 and 0.9 (wrong outputs drawn from the others'); the rest stay in ``original``.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import MethodFigures
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import source_summaries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining, tune

NOISE = (0.1, 0.3, 0.5, 0.7, 0.9)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--queries", type=int, default=300)
    arguments.add_argument("--depth", type=int, default=50)
    arguments.add_argument("--methods", default="random,bm25,dense")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.jsonl"
        plant(given.folder / "train.jsonl", pool)
        workspace = Workspace.create(Path(folder) / "w")
        queries = {name: (str(given.folder / f"{name}.jsonl"),) for name in ("validation", "test")}
        index_pool(workspace, IndexPlan(paths=(str(pool),), encoder="all-MiniLM-L6-v2", **queries))
        settings = Settings()
        methods = tuple(given.methods.split(","))
        before = evaluate(workspace, settings, methods)
        start = time.perf_counter()
        with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
            plan = SourcePlan(depth=given.depth, limit=given.queries)
            done = SourceTraining.prepare(LLMClient(workspace, backend, settings), plan).ask(Budget())
        print(f"trained on {done.usage.calls:,} answers in {time.perf_counter() - start:.0f} s")
        for source in source_summaries(workspace):
            print(f"  {source.source:10s} weight {source.weight:.3f}  reliability {source.reliability:.3f}")
        tuned = tune(workspace, settings)
        print(f"pruned {', '.join(tuned.pruned) or 'nothing'} by {tuned.estimator}: validation vote")
        gain = f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}"
        print(f"  {tuned.validation_before:.3f} to {tuned.validation_after:.3f}, {gain}")
        if tuned.pruned:
            decide(workspace, "prune", "source", tuned.pruned)
        after = evaluate(workspace, settings, methods)
        for name in methods:
            print(f"test, {name:8s} {told(before[name])} before   {told(after[name])} after")


def plant(train: Path, pool: Path) -> None:
    """Write the training rows with their new sources and, in half of them, planted noise."""
    draw = random.Random(17)
    rows = [json.loads(line) for line in train.open(encoding="utf-8")]
    labels = sorted({row["output"] for row in rows})
    moved = set(draw.sample(range(len(rows)), len(rows) // 2))
    with pool.open("w", encoding="utf-8") as file:
        for i, row in enumerate(rows):
            row["source"] = "original"
            if i in moved:
                noise = draw.choice(NOISE)
                row["source"] = f"noise-{noise}"
                if draw.random() < noise:
                    others = row.get("options") or labels
                    row["output"] = draw.choice([label for label in others if label != row["output"]])
            file.write(json.dumps({k: v for k, v in row.items() if k != "split"}) + "\n")


def evaluate(workspace: Workspace, settings: Settings, methods: tuple[str, ...]) -> Mapping[str, MethodFigures]:
    """The table's rows on test."""
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        table = Evaluation.prepare(LLMClient(workspace, backend, settings), EvaluationPlan(methods=methods)).ask(
            Budget()
        )
    return table.methods


def told(row: MethodFigures) -> str:
    return f"{row.accuracy:.3f} ({row.ci95[0]:.3f}–{row.ci95[1]:.3f})"


if __name__ == "__main__":
    main()
