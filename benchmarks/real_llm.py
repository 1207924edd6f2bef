"""What a real LLM answers with each method, on pools that do not come with the project.

    python benchmarks/real_llm.py POOLS WORK [--llm smollm2] [--dtype float32] [--part banking77]

POOLS holds a folder for each data set, with train.jsonl, validation.jsonl and test.jsonl (columns id, input, output,
options, context). WORK keeps the workspaces: a run that was stopped goes on where it was, and asks nothing twice.

- ``banking77``: 15 intents from six sources: two clean, three with 30, 60 and 90 % wrong labels, one off topic. Each
  method on the pool as it came, without its three worst sources, and on its true rows; what training sees.
- ``curation``: the same pool curated by each command, against its true rows.
- ``free-text``: questions without labels, some answers swapped: how well `train rows` finds these.
- ``orders``: messages to be turned into records, some records swapped, curated in each way.
- ``all-intents``: the same with all 77 intents and six times as many rows.
- ``commonsenseqa``, ``pubmedqa``: does the LLM answer them above chance, and do demonstrations help?
- ``hotpotqa``: calibration over ten documents.
- ``fine-tuning``: LoRA on the sample fact set, and what carries over to ``hotpotqa``, after that part.
- ``shots``: the sample pool with 0, 1, 2 and 5 shots, and who flips from zero to five.
- ``template``: the same queries with and without "The answer is" before every answer.
- ``usable``: how many generated replies can be read as an answer, by kind of task.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evidence import ABLATION, INPUTS_ALONE, Workspace, accuracy, curated, restore, rounds_table, table
from icl_curate.engine.evaluate.statistics import compare as paired
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.workspace import Workspace as Store

INTENTS = 15
NOISE = {"clean_a": 0.0, "clean_b": 0.0, "third_wrong": 0.3, "most_wrong": 0.6, "nearly_all_wrong": 0.9}
ROWS = 150
"""Rows of a source; the one off topic has 200."""

UNTRAINED = ("zero", "random", "bm25", "dense", "dpp", "set-bsr")
TRAINED = {"ranker": "ranker, inputs alone", "topick": f"topick, {ABLATION}"}
"""The methods that are trained, and what they are in the tables."""
SHOTS = 4

Row = dict[str, Any]


def banking77(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The noisy pool before and after pruning, and what training says of its sources."""
    files = workspace.folder.parent / "banking77-files"
    truth = noisy_intents(pools, files)
    workspace.run("index", files / "pool.jsonl", *(f"--{n}={files / n}.jsonl" for n in ("validation", "test")))
    restore(workspace)
    workspace.ask("train", "sources", "--depth", 30, "--limit", 60)
    listed = sorted(workspace.run("sources")["sources"], key=lambda row: -(row["reliability"] or 0.0))
    yield table(
        ["source", "wrong labels", "reliability", "weight", "answers"],
        [
            [
                row["source"],
                f"{truth[row['source']]:.0%}",
                *("–" if row[name] is None else f"{row[name]:.3f}" for name in ("reliability", "weight")),
                row["hits"],
            ]
            for row in listed
        ],
    )
    tuned = workspace.run("tune", "vote", "--dry-run")
    yield f"`tune vote` would prune: {', '.join(tuned.get('pruned', ())) or 'nothing'}."
    workspace.ask("train", "ranker", "-k", SHOTS, "--limit", 60, *INPUTS_ALONE)
    workspace.ask("train", "topics", "--no-llm-topics", "--questions", 300)
    before = compare(workspace, (*UNTRAINED, *TRAINED))
    for row in listed[-3:]:
        workspace.run("prune", "--source", row["source"])
    after = compare(workspace, (*UNTRAINED, *TRAINED))
    workspace.run("restore", *(f"--source={row['source']}" for row in listed[-3:]))
    wrong = [row["id"] for row in read(files / "pool.jsonl") if row["output"] != row["truth"]]
    workspace.run("prune", *(f"--demo={name}" for name in wrong))
    clean = compare(workspace, UNTRAINED)
    restore(workspace)
    runs = {"as it came": before, "without the three worst sources": after, "only true rows": clean}
    yield methods_table(runs, (*UNTRAINED, *TRAINED))


def options(name: str, rows: int, shots: int, queries: int) -> Callable[[Path, Workspace], Iterable[str]]:
    """A part that answers questions with options, with ``rows`` demonstrations in the pool."""

    def part(pools: Path, workspace: Workspace) -> Iterable[str]:
        files = workspace.folder.parent / f"{name}-files"
        write(files / "pool.jsonl", read(pools / name / "train.jsonl")[:rows])
        workspace.run("index", files / "pool.jsonl", "--test", pools / name / "test.jsonl")
        found = workspace.ask("evaluate", "-m", "zero,random,bm25,dense", "--limit", queries, "--seeds", 1, "-k", shots)
        asked = read(pools / name / "test.jsonl")[:queries]
        yield methods_table({"accuracy": found["methods"]}, ("zero", "random", "bm25", "dense"))
        chance = sum(1 / len(row["options"]) for row in asked) / len(asked)
        outputs = [row["output"] for row in asked]
        share = max(map(outputs.count, set(outputs))) / len(asked)
        yield f"{len(asked)} test queries, k = {shots}; by chance {chance:.3f}, the commonest answer {share:.3f}."

    return part


def hotpotqa(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Calibration rounds over ten documents."""
    files = workspace.folder.parent / "hotpotqa-files"
    rows = read(pools / "hotpotqa_distractor" / "train.jsonl")
    write(files / "pool.jsonl", rows[:-40])
    write(files / "validation.jsonl", rows[-40:])
    workspace.run("index", files / "pool.jsonl", "--validation", files / "validation.jsonl")
    yield rounds_table(workspace.ask("calibrate", "--split", "validation", "--limit", 16, "--rounds", 3))


def usable(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Replies of free generation that can be read as an answer."""
    files = workspace.folder.parent / "usable-files"
    write(files / "commonsenseqa.jsonl", read(pools / "commonsenseqa" / "train.jsonl")[:500])
    options = (files / "commonsenseqa.jsonl", f"--test={pools / 'commonsenseqa' / 'test.jsonl'}")
    worlds = {"labels": "support", "options": "", "open": "facts"}
    rows = []
    for kind, world in worlds.items():
        here = Workspace(workspace.folder, kind, workspace.spec, workspace.dtype)
        if world:
            here.index(world)
        else:
            here.run("index", *options)
        found = here.ask("evaluate", "-m", "zero,dense", "--limit", 40, "--seeds", 1, "-k", 3, "--answers", "generate")
        for method, row in found["methods"].items():
            share = 1 - row["unusable"] / max(row["calls"], 1)
            rows.append([kind, method, f"{share:.0%}", *accuracy(row)])
    yield table(["task", "method", "usable replies", "accuracy", "95 %"], rows)


def shots(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The sample pool by number of shots, and what the most shots turned right and wrong."""
    workspace.index("support")
    counts = (0, 1, 2, 5)
    asked = ("--limit", 100, "--seeds", 1, "--sweep", f"k={','.join(map(str, counts))}", "--flips")
    points = workspace.ask("evaluate", "-m", "bm25,dense", *asked)["points"]
    rows = [
        [name, count, *accuracy(point["methods"][name])]
        for name in ("bm25", "dense")
        for count, point in zip(counts, points, strict=True)
    ]
    yield table(["method", "shots", "accuracy", "95 %"], rows)
    told = []
    for name, each in points[-1]["flips"].items():
        hard, easy = (f"{each[turned]:.0f} of {each[kind]}" for turned, kind in
                      (("turned_right", "hard"), ("turned_wrong", "easy")))  # fmt: skip
        low, high = each["ci95"]
        told.append([name, hard, easy, f"{each['changed']:.2f}", f"{low:.2f}–{high:.2f}", f"{each['hard_share']:.2f}"])
    yield table(["method", "hard, now right", "easy, now wrong", "changed", "95 %", "of hard"], told)


def template(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Accuracy with and without "The answer is", paired by query."""
    files, base = workspace.folder.parent / "template-files", workspace.folder
    write(files / "commonsenseqa.jsonl", read(pools / "commonsenseqa" / "train.jsonl")[:2000])
    rows = []
    for kind, answers, count in (("labels", "score", 200), ("labels", "generate", 100), ("options", "score", 100)):
        here = Workspace(base, f"{kind}-{answers}", workspace.spec, workspace.dtype)
        if kind == "labels":
            here.index("support")
        else:
            here.run("index", files / "commonsenseqa.jsonl", "--test", pools / "commonsenseqa" / "test.jsonl")
        done = []
        for setting in ("", 'answer_prefix = "The answer is"\n'):
            (here.folder / "config.toml").write_text(setting, encoding="utf-8")
            asked = ("--limit", count, "--seeds", 1, "-k", 5, "--answers", answers)
            done.append(here.ask("evaluate", "-m", "zero,dense", *asked))
        for method in ("zero", "dense"):
            off, on = (
                np.array([each.right for each in sorted(found, key=lambda each: each.row)], float)
                for found in (outcomes(Store.open(here.folder), run["run"], method) for run in done)
            )
            change = paired(on, off)
            told = f"{change.difference:+.3f}", f"{change.low:+.2f} to {change.high:+.2f}", f"{change.p:.2f}"
            rows.append([kind, answers, count, method, f"{off.mean():.3f}", f"{on.mean():.3f}", *told])
    yield table(["task", "answers", "queries", "method", "without", "with", "difference", "95 %", "p"], rows)


def curation(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The noisy intents of ``banking77``, curated in each way; goes on in the workspace of that part."""
    here = Workspace(workspace.folder.parent, "banking77", workspace.spec, workspace.dtype)
    rows = read(workspace.folder.parent / "banking77-files" / "pool.jsonl")
    wrong = [row["id"] for row in rows if row["output"] != row["truth"]]
    yield curated(here, wrong, ("bm25", "dense"), 100, SHOTS, (60,))


def all_intents(pools: Path, workspace: Workspace) -> Iterable[str]:
    """All 77 intents, six times as many rows, curated in each way."""
    files = workspace.folder.parent / "all_intents-files"
    noisy_intents(pools, files, intents=77, each=6 * ROWS)
    workspace.run("index", files / "pool.jsonl", *(f"--{n}={files / n}.jsonl" for n in ("validation", "test")))
    restore(workspace)
    workspace.ask("train", "sources", "--depth", 10, "--limit", 200)
    wrong = [row["id"] for row in read(files / "pool.jsonl") if row["output"] != row["truth"]]
    yield curated(workspace, wrong, ("bm25", "dense"), 300, SHOTS, (60, 200))


def free_text(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Questions with answers swapped among rows: how well the evidence finds these, where no label can be checked."""
    from sklearn.metrics import average_precision_score

    files, draw = workspace.folder.parent / "free-text-files", random.Random(0)
    rows = draw.sample(read(pools / "nq_open" / "train.jsonl"), 600)
    shares = {"clean": 0.0, "third_wrong": 0.3, "most_wrong": 0.7}
    pool = [
        {"id": row["id"], "input": row["input"], "output": draw.choice(rows)["output"] if wrong else row["output"],
         "source": source, "wrong": wrong}
        for i, row in enumerate(rows)
        for source in [list(shares)[i % len(shares)]]
        for wrong in [draw.random() < shares[source]]
    ]  # fmt: skip
    write(files / "pool.jsonl", pool)
    workspace.run("index", files / "pool.jsonl")
    restore(workspace)
    wrong = {row["id"]: row["wrong"] for row in pool}
    told = []
    for evidence in ("source only", "and `train rows`"):
        if evidence != "source only":
            workspace.ask("train", "rows", "-k", 3)
        found = workspace.run("suspects", "-n", len(pool))["demonstrations"]
        truth, bad = [wrong[row["id"]] for row in found], [row["posterior"] for row in found]
        likely = [wrong[row["id"]] for row in found if row["posterior"] >= 0.5]
        share = f"{sum(likely) / len(likely):.0%} of {len(likely)}" if likely else "–"
        told.append([evidence, f"{average_precision_score(truth, bad):.3f}", share])
    yield table(["evidence", "average precision", "wrong at .5 and more"], told)
    yield f"{sum(wrong.values())} of {len(pool)} answers are wrong."


ORDERS = (
    "Hi, this is {name} from {town}. Please send us {n} {item} by {day}.",
    "{n} {item} for the {town} office, needed on {day}. Thanks, {name}",
    "Could {town} get {n} more {item}? {day} would be fine. {name}",
    "{name} here. We are out of {item} in {town} and need {n} of them before {day}.",
    "Order from {town}: {item}, {n} pieces, delivery {day}. Contact: {name}",
    "By {day} the team in {town} must have {n} {item}. Ask {name} about the door code.",
)
RECORD = "{n} {item} to {town}, {day} ({name})"
FIELDS = {
    "name": "Anna Ben Carla David Elena Felix Grace Henry Irene Jonas Karin Louis Maria Nils Olga Peter Rosa Simon",
    "town": "Leeds York Bath Derby Exeter Lincoln Oxford Ripon Truro Wells Durham Carlisle Chester Hereford Norwich",
    "item": "chairs desks lamps monitors keyboards notebooks folders staplers markers whiteboards cables headsets mugs",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
}


def orders(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Free text whose outputs follow from their inputs: orders as records. The records of 0, 30, 60 and 90 % of
    the rows of four sources are those of other rows."""
    files, draw = workspace.folder.parent / "orders-files", random.Random(0)

    def order(name: str) -> Row:
        found = {field: draw.choice(values.split()) for field, values in FIELDS.items()} | {"n": draw.randint(2, 60)}
        return {"id": name, "input": draw.choice(ORDERS).format(**found), "output": RECORD.format(**found)}

    rows = [order(f"pool-{i}") for i in range(480)]
    shares = {"clean": 0.0, "third_wrong": 0.3, "most_wrong": 0.6, "nearly_all_wrong": 0.9}
    pool = []
    for i, row in enumerate(rows):
        source = list(shares)[i % len(shares)]
        wrong = draw.random() < shares[source]
        pool.append(planted(row, source, draw.choice(rows)["output"] if wrong else row["output"]))
    write(files / "pool.jsonl", pool)
    for split, size in (("validation", 200), ("test", 100)):
        write(files / f"{split}.jsonl", [order(f"{split}-{i}") for i in range(size)])
    workspace.run("index", files / "pool.jsonl", *(f"--{n}={files / n}.jsonl" for n in ("validation", "test")))
    restore(workspace)
    workspace.ask("train", "sources", "--depth", 10, "--limit", 60)
    workspace.ask("train", "rows", "-k", 3)
    wrong_ids = [row["id"] for row in pool if row["output"] != row["truth"]]
    yield f"{len(wrong_ids)} of {len(pool)} records are wrong."
    yield curated(workspace, wrong_ids, ("bm25", "dense"), 60, SHOTS, (60, 150), "mismatch")


def fine_tuning(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The LLM fine-tuned on plain answers of the fact set, then on its own rounds, and all three on hotpotqa."""
    here, there = workspace.folder, workspace.folder.parent / "hotpotqa"
    if not here.exists():
        workspace.index("facts")
    specs = [workspace.spec, *(f"hf:{here.parent / name}" for name in ("answers-adapter", "rounds-adapter"))]
    trainings = (
        ("--on", "answers", "--split", "pool", "--limit", 64, "--epochs", 1, "--rate", 1e-3),
        ("--split", "validation", "--epochs", 3, "--rate", 5e-4),
    )
    for i, (before, after) in enumerate(itertools.pairwise(specs)):
        if i:
            own = ("--split", "validation", "--limit", 40, "--rounds", 1, "--until-correct", "--llm", before)
            workspace.run("calibrate", *own)
        out = after.removeprefix("hf:")
        done = workspace.run("train", "calibration", *trainings[i], "--batch", 4, "--llm", before, "--out", out)
        losses = [step["loss"] for step in done["metrics"]["steps"]]
        yield f"{after}: {done['metrics']['examples']} examples, loss {losses[0]:.2f} to {losses[-1]:.2f}."
    for folder, asked in ((here, ("test", "--limit", 40)), (there, ("validation", "--limit", 16))):
        if folder.exists():
            in_turn = Workspace(folder.parent, folder.name, workspace.spec, workspace.dtype)
            for spec in specs:
                in_turn.run("calibrate", "--split", *asked, "--rounds", 1, "--llm", spec)
            yield compared_llms(in_turn.run("calibrate", "runs", "--split", asked[0]))


def compared_llms(found: Mapping[str, Any]) -> str:
    """First and final answers of each LLM."""
    rows = []
    for run in found["runs"]:
        for name in ("first", "final"):
            own = run[name]
            low, high = own["ci95"]
            rows.append([run["llm"], name, f"{own['accuracy']:.3f}", f"{low:.2f}–{high:.2f}", f"{own['f1']:.3f}"])
    return table(["LLM", "answers", "exact match", "95 %", "F1"], rows)


PARTS: Mapping[str, Callable[[Path, Workspace], Iterable[str]]] = {
    "banking77": banking77,
    "commonsenseqa": options("commonsenseqa", 2000, 5, 100),
    "pubmedqa": options("pubmedqa", 400, 2, 60),
    "hotpotqa": hotpotqa,
    "shots": shots,
    "template": template,
    "usable": usable,
    "curation": curation,
    "all-intents": all_intents,
    "free-text": free_text,
    "orders": orders,
    "fine-tuning": fine_tuning,
}


def noisy_intents(
    pools: Path, files: Path, seed: int = 0, intents: int = INTENTS, each: int = ROWS
) -> dict[str, float]:
    """Write the noisy pool, with ``each`` rows of a source, and its queries; the share of wrong labels by source."""
    draw = random.Random(seed)
    rows = {name: read(pools / "banking77" / f"{name}.jsonl") for name in ("train", "validation", "test")}
    labels = sorted(draw.sample(sorted({row["output"] for row in rows["train"]}), intents))
    mine = [row for row in rows["train"] if row["output"] in labels]
    draw.shuffle(mine)
    pool: list[Row] = []
    for source, noise in NOISE.items():
        for row in mine[len(pool) : len(pool) + each]:
            wrong = draw.random() < noise
            pool.append(planted(row, source, other(draw, labels, row["output"]) if wrong else row["output"]))
    off_topic = draw.sample(read(pools / "commonsenseqa" / "train.jsonl"), 200)
    pool += [planted(row, "off_topic", draw.choice(labels)) for row in off_topic]
    write(files / "pool.jsonl", pool)
    for name in ("validation", "test"):
        kept = [row for row in rows[name] if row["output"] in labels]
        random.Random(f"{seed} {name}").shuffle(kept)  # they come sorted by intent: the first 100 would be of three
        write(files / f"{name}.jsonl", ({key: row[key] for key in ("id", "input", "output")} for row in kept))
    return {
        source: sum(row["output"] != row["truth"] for row in pool if row["source"] == source)
        / sum(row["source"] == source for row in pool)
        for source in (*NOISE, "off_topic")
    }


def planted(row: Row, source: str, output: str) -> Row:
    return {"id": row["id"], "input": row["input"], "output": output, "source": source, "truth": row["output"]}


def other(draw: random.Random, labels: Sequence[str], own: str) -> str:
    return draw.choice([label for label in labels if label != own])


def compare(workspace: Workspace, methods: Sequence[str]) -> Mapping[str, Any]:
    """The figures of each method on the first 100 test queries."""
    found = workspace.ask("evaluate", "-m", ",".join(methods), "--limit", 100, "--seeds", 1, "-k", SHOTS)
    figures: Mapping[str, Any] = found["methods"]
    return figures


def methods_table(runs: Mapping[str, Mapping[str, Any]], methods: Sequence[str]) -> str:
    heads = ["method", *(head for name in runs for head in (name, "95 %"))]
    rows = [
        [
            TRAINED.get(method, method),
            *(cell for found in runs.values() for cell in (accuracy(found[method]) if method in found else ("–", "–"))),
        ]
        for method in methods
    ]
    return table(heads, rows)


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def write(path: Path, rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--part", choices=list(PARTS), action="append")
    chosen = parser.parse_args()
    for name in chosen.part or PARTS:
        print(f"\n## {name}, {chosen.llm}, {chosen.dtype}", flush=True)
        workspace = Workspace(chosen.work, name, chosen.llm, chosen.dtype)
        for told in PARTS[name](chosen.pools, workspace):
            print(f"\n{told}", flush=True)


if __name__ == "__main__":
    main()
