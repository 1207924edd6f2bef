"""What `check` names among labels that are hard to tell from the text: sentiments, emotions, kinds of questions.

    python benchmarks/hard_labels.py DATA WORK [--seeds 0,1,2] [--set emotions,…] [--rows 720]

DATA holds files of public data sets:

- ``goemotions.tsv``, ``goemotions-labels.txt``: monologg/GoEmotions-pytorch, data/original/train.tsv and labels.txt
- ``TREC.train.all``, ``subj.all``, ``mpqa.all``, ``rt-polarity.all``: AcademiaSinicaNLPLab/sentiment_dataset, data/

Each pool has three sources. In ``clean`` the labels are those of people; in ``source`` half of those of the third
source are drawn anew, in ``even`` 15 % of all. 100 validation queries teach, or none do. WORK keeps the pools.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Query
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from real_llm import read, write

QUERIES = 100
FAULTS = {"clean": lambda source: 0.0, "source": lambda source: 0.5 * (source == "c"), "even": lambda source: 0.15}
"""The share of wrong labels by source."""
EMOTIONS = ("admiration", "anger", "curiosity", "gratitude", "joy", "love", "sadness", "surprise")

Pairs = Iterator[tuple[str, str]]
Rows = Iterator[dict[str, str]]


def emotions(data: Path, wanted: tuple[str, ...] = EMOTIONS) -> Pairs:
    names = (data / "goemotions-labels.txt").read_text().split()
    for line in (data / "goemotions.tsv").read_text(encoding="utf-8").splitlines():
        text, numbers, _ = line.split("\t")
        if len(text) > 15 and numbers.isdigit() and names[int(numbers)] in wanted:
            yield text, names[int(numbers)]


def classified(name: str, *labels: str) -> Callable[[Path], Pairs]:
    """A file of lines with the number of a label, and a text."""

    def pairs(data: Path) -> Pairs:
        for line in (data / name).read_bytes().decode("utf-8", "replace").splitlines():
            number, _, text = line.partition(" ")
            if len(text) > 8:
                yield text.strip(), labels[int(number)]

    return pairs


SETS: dict[str, Callable[[Path], Pairs]] = {
    "emotions": emotions,
    "four emotions": lambda data: emotions(data, ("anger", "joy", "sadness", "fear")),
    "questions": classified(
        "TREC.train.all", "description", "entity", "abbreviation", "person", "number", "place"
    ),
    "subjective": classified("subj.all", "subjective", "objective"),
    "opinions": classified("mpqa.all", "negative", "positive"),
    "reviews": classified("rt-polarity.all", "negative", "positive"),
}  # fmt: skip


def drawn(data: Path, name: str, faults: str, seed: int, count: int) -> tuple[list[dict[str, str]], Rows]:
    """So many rows of a pool, each with its ``truth``, and what is left of the set as queries."""
    draw = random.Random(f"{name} {seed}")
    pairs = list(dict(SETS[name](data)).items())
    draw.shuffle(pairs)
    labels, rows = sorted({label for _, label in pairs}), []
    for i, (text, label) in enumerate(pairs[:count]):
        source = "abc"[i % 3]
        wrong = draw.random() < FAULTS[faults](source)
        given = draw.choice([other for other in labels if other != label]) if wrong else label
        rows.append({"id": f"r{i}", "input": text, "output": given, "source": source, "truth": label})
    return rows, ({"id": f"q{i}", "input": text, "output": of} for i, (text, of) in enumerate(pairs[count:]))


def make(data: Path, folder: Path, name: str, faults: str, seed: int, count: int) -> None:
    """Index a pool of so many rows and its validation queries."""
    rows, asked = drawn(data, name, faults, seed, count)
    folder.mkdir(parents=True)
    write(folder / "pool.jsonl", rows)
    write(folder / "queries.jsonl", islice(asked, QUERIES))
    plan = IndexPlan(
        paths=(str(folder / "pool.jsonl"),), validation=(str(folder / "queries.jsonl"),), encoder=Settings().encoder
    )
    index_pool(Workspace.create(folder / "w"), plan)


def named(folder: Path, teachers: list[Query]) -> tuple[int, int, float | None]:
    """How many wrong and right rows `check` names, and the kappa of the classifiers; None: labels are not judged."""
    pool = ActivePool(Workspace.open(folder / "w"), Settings(), teachers=teachers)
    ids = {row.id for row in check_pool(pool, ("label",)).rows}
    wrong = {row["id"] for row in read(folder / "pool.jsonl") if row["output"] != row["truth"]}
    judged = pool.label_predictions
    return len(ids & wrong), len(ids - wrong), judged.skill.kappa if judged and judged.skill else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", default=",".join(SETS))
    parser.add_argument("--rows", type=int, default=720)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    heads = ("labels", "faults", "wrong rows", "without queries", "kappa", f"{QUERIES} queries", "kappa")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name in given.set.split(","):
        for faults in FAULTS:
            cells, counts = [], []
            for seed in seeds:
                folder = given.work / f"{name}-{faults}-{seed}".replace(" ", "-")
                if not folder.exists():
                    make(given.data, folder, name, faults, seed, given.rows)
                counts.append(sum(row["output"] != row["truth"] for row in read(folder / "pool.jsonl")))
            for taught in (False, True):
                told = []
                for seed in seeds:
                    folder = given.work / f"{name}-{faults}-{seed}".replace(" ", "-")
                    teachers = queries(Workspace.open(folder / "w"), "validation") if taught else []
                    told.append(named(folder, teachers))
                each = ", ".join("–" if kappa is None else f"{bad} (+{good})" for bad, good, kappa in told)
                skills = [kappa for _, _, kappa in told if kappa is not None]
                cells += [each, f"{np.mean(skills):.2f}" if skills else "–"]
            print(f"| {name} | {faults} | {', '.join(map(str, counts))} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
