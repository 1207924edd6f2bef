"""Pools with natural label errors: the labels are written by LLMs of three sizes, by keyword rules and by a classifier.

    python benchmarks/labelled.py POOLS OUT --llm small=hf:FILE.gguf --llm large=hf:FILE.gguf [--seeds 0,1,2]

Each pool, OUT/labelled/SEED, has 15 intents of banking77 and a source for each labeller:

- ``people``: 75 rows, five of an intent, with their own labels;
- ``keywords``: 150 rows, the label whose name has the most words of the text;
- ``classifier``: 150 rows, a logistic regression on words, learnt from the rows of ``people``;
- one of 150 rows for each ``--llm``: what it answers without demonstrations.

``truth`` is the row's own label in banking77; the intents of each seed are drawn anew.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from pathlib import Path

from evidence import Workspace
from icl_curate.engine.pool.words import fold
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.workspace import Workspace as Store
from real_llm import INTENTS, Row, planted, read, write
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

OF_PEOPLE, EACH = 5, 150


def by_keywords(rows: list[Row], labels: list[str]) -> list[str]:
    words = {label: set(fold(label.replace("_", " ")).split()) for label in labels}
    return [max(labels, key=lambda label: len(words[label] & set(fold(row["input"]).split()))) for row in rows]


def by_classifier(rows: list[Row], seen: list[Row]) -> list[str]:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model.fit([row["input"] for row in seen], [row["output"] for row in seen])
    return list(model.predict([row["input"] for row in rows]))


def by_llm(rows: list[Row], people: Path, work: Path, name: str, spec: str) -> list[str]:
    """Its answers without demonstrations; of a row that it did not answer, the first label."""
    asked = work / f"{name}.jsonl"
    write(asked, ({key: row[key] for key in ("id", "input", "output")} for row in rows))
    workspace = Workspace(work, name, spec, "auto")
    workspace.run("index", people, "--test", asked)
    done = workspace.ask("evaluate", "-m", "zero", "--split", "test", "--seeds", 1)
    told = {each.id: each.answer for each in outcomes(Store.open(workspace.folder), done["run"], "zero")}
    labels = sorted({row["output"] for row in rows})
    return [told.get(row["id"]) or labels[0] for row in rows]


def labelled(pools: Path, out: Path, seed: int, llms: Mapping[str, str]) -> None:
    """Write a pool, its queries and, of each source, how many labels are wrong."""
    draw = random.Random(f"labelled {seed}")
    rows = {name: read(pools / "banking77" / f"{name}.jsonl") for name in ("train", "validation", "test")}
    labels = sorted(draw.sample(sorted({row["output"] for row in rows["train"]}), INTENTS))
    mine = [row for row in rows["train"] if row["output"] in labels]
    draw.shuffle(mine)
    people = [row for label in labels for row in [row for row in mine if row["output"] == label][:OF_PEOPLE]]
    taken = {row["id"] for row in people}
    rest = [row for row in mine if row["id"] not in taken]
    parts = {name: rest[EACH * i : EACH * (i + 1)] for i, name in enumerate(("keywords", "classifier", *llms))}
    folder = out / "labelled" / str(seed)
    pool = [planted(row, "people", row["output"]) for row in people]
    write(folder / "people.jsonl", pool)
    for name, part in parts.items():
        if name == "keywords":
            said = by_keywords(part, labels)
        elif name == "classifier":
            said = by_classifier(part, people)
        else:
            said = by_llm(part, folder / "people.jsonl", folder / "work", name, llms[name])
        pool += [planted(row, name, label) for row, label in zip(part, said, strict=True)]
        wrong = sum(row["output"] != label for row, label in zip(part, said, strict=True))
        print(f"{seed} {name}: {wrong} of {len(part)} wrong", flush=True)
    write(folder / "pool.jsonl", pool)
    for name in ("validation", "test"):
        kept = [row for row in rows[name] if row["output"] in labels]
        random.Random(f"labelled {seed} {name}").shuffle(kept)  # they come sorted by intent
        write(folder / f"{name}.jsonl", ({key: row[key] for key in ("id", "input", "output")} for row in kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--llm", action="append", default=[], type=lambda text: text.split("=", 1))
    parser.add_argument("--seeds", default=[0, 1, 2], type=lambda text: [int(one) for one in text.split(",")])
    chosen = parser.parse_args()
    for seed in chosen.seeds:
        labelled(chosen.pools, chosen.out, seed, dict(chosen.llm))


if __name__ == "__main__":
    main()
