"""What the papers claim, each in its own setting, with an LLM that can do the task.

    python benchmarks/papers.py WORK --llm hf:qwen2.5-coder-0.5b.gguf [--part ranker] [--pools POOLS]

WORK keeps the workspaces: a run that was stopped goes on where it was, and asks nothing twice.

- ``ranker``: the sample pool, 200 validation queries to train on and 200 test queries, k = 5, three seeds: the ranker
  as its paper prints it, the same without σ, this tool's default, and PromptPG, against dense retrieval and their own
  starts, on easy and hard queries.
- ``ranker-elsewhere``: this tool's default on pools that no setting was chosen on, one a seed: 15 intents of banking77
  from six sources (`real_llm.py`; POOLS as there), k = 4, up to 200 queries of each kind; and what `check` does there.
- ``rounds``, ``demonstrations``: three rounds of calibration over the documents of ``facts``, and over the
  demonstrations of the sample pool, all arms; of the latter also whether their scores tell wrong rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from evidence import Workspace, interval, restore, table, wrong_rows
from icl_curate.engine.base.arrays import Bools, Float64s
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.evaluate.statistics import Comparison, compare
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.settings import resolve
from icl_curate.engine.store.workspace import Workspace as Store
from real_llm import noisy_intents
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict

SEEDS = 3
PRINTED = (
    "--candidates", "bm25", "--preselect", 20, "--sees", "row", "--no-sources", "--credit", "reward",
    "--temperature", 1, "--start", "random", "--held-out", 0, "--patience", 0, "--epochs", 5,
)  # fmt: skip
"""Paper 001 as printed, but for σ."""
FORMS: Mapping[str, tuple[object, ...]] = {
    "as printed": (*PRINTED, "--threshold"),
    "the default": (),
    "PromptPG, the default's inputs": ("--method", "promptpg"),
    "as printed, without σ": (*PRINTED, "--no-threshold"),
}
ARMS = ("full", "answers", "plain", "oracle", "sampling", "vote")


def ranker(workspace: Workspace) -> Iterable[str]:
    """Each form with each seed; values of a query are means over seeds."""
    if not workspace.folder.exists():
        workspace.index("support")
    restore(workspace)
    dense = workspace.ask("evaluate", "-m", "dense", "--split", "test", "--seeds", 1, "-k", 5)
    base = values(workspace, dense["run"], "dense")
    told = [["dense", f"{base.mean():.3f}", interval(dense["methods"]["dense"]["ci95"]), "–", "–",
             hard_and_easy([dense["methods"]["dense"]]), "–", "–"]]  # fmt: skip
    for form, options in FORMS.items():
        method = "promptpg" if form.startswith("PromptPG") else "ranker"
        ends, starts, kept, figures, calls = [], [], [], [], 0
        for seed in range(SEEDS):
            done = workspace.ask("train", "ranker", *options, "--seed", seed, "-k", 5)
            calls += done["calls"] + done["cached_calls"]
            metrics = done["metrics"]
            kept.append("start" if metrics["untrained"] else f"{metrics['best']['epoch']}")
            own = ("--seed", seed, "--seeds", 1)  # of several rankers, that of the seed answers
            found = workspace.ask("evaluate", "-m", f"{method},ranker-untrained", "--split", "test", *own, "-k", 5)
            ends.append(values(workspace, found["run"], method))
            figures.append(found["methods"][method])
            if method == "ranker":
                starts.append(values(workspace, found["run"], "ranker-untrained"))
        end = np.mean(ends, axis=0)
        low, high = np.quantile(resampled(end), (0.025, 0.975))
        own = difference(compare(end, np.mean(starts, axis=0))) if starts else "–"
        each = " ".join(f"{one.mean():.3f}" for one in ends)
        told.append([form, f"{end.mean():.3f} ({each})", interval((low, high)), difference(compare(end, base)), own,
                     hard_and_easy(figures), ", ".join(kept), f"{calls:,}"])  # fmt: skip
        heads = ["ranker", "accuracy (by seed)", "95 %", "over dense", "over its start", "hard, easy", "epoch kept",
                 "prompts"]  # fmt: skip
        yield table(heads, told, f"{len(base)} test queries")


def ranker_elsewhere(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The default on one pool a seed, against retrieval, its start, and retrieval from what `check` leaves."""
    arms: dict[str, list[Float64s]] = {}
    for seed in range(SEEDS):
        world = Workspace(workspace.folder, f"{seed}", workspace.spec, workspace.dtype)
        if not world.folder.exists():
            files = workspace.folder / f"files-{seed}"
            noisy_intents(pools, files, 30 + seed)
            world.run("index", files / "pool.jsonl", *(f"--{n}={files / n}.jsonl" for n in ("validation", "test")))
        restore(world)
        shared = ("--split", "test", "--seed", seed, "--seeds", 1, "--limit", 200, "-k", 4)
        done = world.ask("train", "ranker", "--seed", seed, "--limit", 200, "-k", 4)
        methods = ("dense", "ranker", "ranker-untrained")
        found = world.ask("evaluate", "-m", ",".join(methods), *shared)
        world.run("check", "prune", "label")
        cured = world.ask("evaluate", "-m", "dense", *shared)
        restore(world)
        measured = {name: values(world, found["run"], name) for name in methods}
        for arm, each in (measured | {PRUNED: values(world, cured["run"], "dense")}).items():
            arms.setdefault(arm, []).append(each)
        best = "start" if done["metrics"]["untrained"] else done["metrics"]["best"]["epoch"]
        yield f"pool {seed}: {done['calls'] + done['cached_calls']:,} prompts, epoch kept: {best}"
        joined = {arm: np.concatenate(parts) for arm, parts in arms.items()}
        told = [
            [arm, " ".join(f"{one.mean():.3f}" for one in arms[arm]), f"{all_of.mean():.3f}",
             *(difference(compare(all_of, joined[base])) for base in ("dense", "ranker-untrained", PRUNED))]
            for arm, all_of in joined.items()
        ]  # fmt: skip
        heads = ["method", "by pool", "all", "over dense", "over its start", "over what check leaves"]
        yield table(heads, told, f"{len(joined['dense'])} test queries")


def rounds(workspace: Workspace) -> Iterable[str]:
    """All arms over ten documents a query."""
    if not workspace.folder.exists():
        workspace.index("facts")
    done = workspace.ask("calibrate", "--split", "validation", "-r", 3, "--arms", ",".join(ARMS))
    yield arms_table(done)


def demonstrations(workspace: Workspace) -> Iterable[str]:
    """All arms over five demonstrations a query, and the scores of wrong rows against those of right ones."""
    if not workspace.folder.exists():
        workspace.index("support")
    over = ("--over", "demonstrations", "-m", "dense", "-k", 5, "--limit", 100)
    done = workspace.ask("calibrate", "--split", "validation", "-r", 3, *over, "--arms", ",".join(ARMS))
    yield arms_table(done)
    store = Store.open(workspace.folder)
    with store.read() as con:
        scores = dict(
            con.execute(
                "SELECT id, avg(score) FROM calibration_documents WHERE run = ? AND score IS NOT NULL GROUP BY id",
                [done["run"]],
            ).fetchall()
        )
    found = row_evidence(ActivePool(store, resolve(store.path, {}).settings)).rows
    known = {row.id: row.posterior for row in found if row.id in scores}
    wrong = set(wrong_rows())
    bad = np.array([name in wrong for name in known])
    score, check = np.array([scores[name] for name in known]), np.clip([*known.values()], 1e-6, 1 - 1e-6)
    odds = np.log(check / (1 - check))
    alone, both = (_log_loss(np.stack(parts, 1), bad) for parts in ([odds], [odds, score]))
    yield (
        f"{bad.size} rows scored, {bad.sum()} wrong. AUROC of wrong rows: by score {roc_auc_score(bad, score):.2f}, "
        f"by `check` {roc_auc_score(bad, check):.3f}. Log loss, cross-fitted, {alone:.3f}, with it {both:.3f}."
    )


def _log_loss(parts: Float64s, bad: Bools) -> float:
    """Of a logistic regression on standardised ``parts`` (n, p), over ten folds."""
    x = (parts - parts.mean(0)) / parts.std(0)
    return float(log_loss(bad, cross_val_predict(LogisticRegression(), x, bad, cv=10, method="predict_proba")[:, 1]))


def arms_table(done: Mapping[str, Any]) -> str:
    """Final answers of each arm, and how well their uncertainty tells right from wrong."""
    rows = [
        [
            name,
            f"{arm['accuracy']:.3f}",
            interval(arm["ci95"]),
            f"{arm['f1']:.3f}",
            f"{arm['auroc']:.2f}",
            f"{arm['reliability']['error']:.2f}",
        ]
        for name, arm in done["arms"].items()
    ]
    first = done["arms"]["full"]["rounds"][0]
    note = f"first answers {first['accuracy']:.3f}, AUROC {first['auroc']:.2f}; {done['calls']:,} answers"
    return table(["arm", "exact match", "95 %", "F1", "AUROC", "calibration error"], rows, note)


def values(workspace: Workspace, run: int, method: str) -> Float64s:
    """The value of each query's answer, by query."""
    found = sorted(outcomes(Store.open(workspace.folder), run, method), key=lambda each: each.row)
    return np.array([each.right for each in found], float)


def resampled(each: Float64s) -> Float64s:
    draw = np.random.default_rng(0).integers(0, each.size, (10_000, each.size))
    return np.asarray(each[draw].mean(axis=1), float)


def hard_and_easy(figures: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds."""
    return ", ".join(f"{np.mean([each[kind] for each in figures]):.3f}" for kind in ("hard", "easy"))


def difference(found: Comparison) -> str:
    return f"{found.difference:+.3f} ({found.low:+.2f} to {found.high:+.2f})"


PARTS: Mapping[str, Callable[[Workspace], Iterable[str]]] = {
    "ranker": ranker,
    "rounds": rounds,
    "demonstrations": demonstrations,
}
ELSEWHERE = "ranker-elsewhere"
PRUNED = "dense, after check prune label"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--pools", type=Path)
    parser.add_argument("--part", choices=[*PARTS, ELSEWHERE], action="append")
    asked = parser.parse_args()
    parts = {**PARTS, ELSEWHERE: partial(ranker_elsewhere, asked.pools)} if asked.pools else PARTS
    for name in asked.part or parts:
        print(f"\n## {name}, {asked.llm}", flush=True)
        workspace = Workspace(asked.work, name, asked.llm, asked.dtype)
        for told in parts[name](workspace):
            print(f"\n{told}", flush=True)


if __name__ == "__main__":
    main()
