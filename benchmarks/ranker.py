"""The ranker and PromptPG on an indexed workspace, against the methods that need no training, and what training costs.

    python benchmarks/ranker.py WORKSPACE [--llm offline] [--seeds 3] [--epochs 5] [--limit N]

Trains both with every seed (in the workspace itself: give it a copy), evaluates on the test split, and prints: accuracy
± standard deviation over seeds, on easy and hard queries; prompts and shots of training, and of its first epoch
against PromptPG's (the paper's figure 8); seconds not spent waiting for the LLM, for 1,000 prompts; the flips that
the ledger holds; the median time of one selection in a warm process, against BM25 alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from icl_curate.engine.checks.ledger import ledger
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.settings import Settings, resolve
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.results import RankerRun

UNTRAINED = ("zero", "random", "bm25", "dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--llm", default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, default=None, help="first validation queries only")
    given = parser.parse_args()
    workspace = Workspace.open(given.workspace)
    settings = resolve(workspace.path, {"llm": given.llm}).settings
    first: dict[str, list[int]] = {"ranker": [], "promptpg": []}
    for seed in range(given.seeds):
        for method in first:
            plan = RankerPlan(method=method, epochs=given.epochs, limit=given.limit)  # type: ignore[arg-type]
            trained = _train(workspace, resolve(workspace.path, {"llm": given.llm, "seed": seed}).settings, plan)
            first[method].append(_report(method, seed, trained))
    share = sum(first["ranker"]) / sum(first["promptpg"])
    print(f"shots of the first epoch, ranker / promptpg: {share:.1%}  (paper: 33.8 to 65.2 %)\n")
    _evaluate(workspace, settings, given.seeds)
    found = ledger(workspace)
    helped, hurt = sum(s.helped for s in found), sum(s.hurt for s in found)
    print(f"\nledger: {len(found)} demonstrations shown, {helped} answers helped, {hurt} hurt")
    asked = queries(workspace, "test")[:200]
    ranker, bm25 = (_latency(workspace, settings, method, asked) for method in ("ranker", "bm25"))
    print(f"one selection, warm: ranker {ranker * 1e3:.1f} ms, {ranker / bm25:.1f} x bm25 (query encoding included)")


def _train(workspace: Workspace, settings: Settings, plan: RankerPlan) -> RankerRun:
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        return RankerTraining.prepare(LLMClient(workspace, backend, settings), plan).ask(Budget())


def _report(method: str, seed: int, trained: RankerRun) -> int:
    metrics = trained.metrics
    own = (metrics.seconds - metrics.seconds_asking) / trained.usage.calls * 1000
    epoch = sum(batch.shots for batch in metrics.batches if batch.epoch == 0)
    held_out = " ".join(f"{judged.measured.accuracy:.3f}" for judged in metrics.epochs)
    print(
        f"{method} seed {seed}: {trained.usage.calls} prompts ({trained.usage.cached_calls} cached), "
        f"{metrics.shots} shots, first epoch {epoch}; held out {held_out}, kept epoch {metrics.best.epoch}; "
        f"{own:.2f} s per 1,000 prompts besides the LLM"
    )
    return epoch


def _evaluate(workspace: Workspace, settings: Settings, seeds: int) -> None:
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        plan = EvaluationPlan(methods=(*UNTRAINED, "promptpg", "ranker"), seeds=seeds)
        found = Evaluation.prepare(LLMClient(workspace, backend, settings), plan).ask(Budget())
    for name, row in found.methods.items():
        easy, hard = ("-" if value is None else f"{value:.3f}" for value in (row.easy, row.hard))
        print(f"{name:10} {row.accuracy:.3f} ± {row.std or 0.0:.3f}  easy {easy}  hard {hard}")


def _latency(workspace: Workspace, settings: Settings, method: str, asked: list[Query]) -> float:
    """Median seconds; queries are passed as texts, so each is encoded."""
    selector = Selector(workspace, method, settings=settings)
    selector.select(asked[0].input)
    seconds = []
    for query in asked:
        started = time.perf_counter()
        selector.select(query.input)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
