"""Calibration with the offline reader on questions with ten documents: rounds, ablations, document scores.

python benchmarks/calibration.py DATA [--rows 150] [--rounds 5] [--set hotpotqa|nq] [--uncertainty NAME]

DATA holds hotpotqa_distractor and nq_open as JSONL (rows of input, output, context; meta.jsonl with answers and
supporting_facts). HotpotQA: its second half, since the reader's constants were fitted on the first; relevant are the
documents that its supporting facts name. NQ-open: test rows with a gold passage past the 400 that the reader was
fitted on; the nine other documents are the passages of other rows nearest to the question in which no accepted answer
stands (the paper takes them from the same Wikipedia page, which this data does not bring).

The offline reader is no LLM: it uses the scores by rule. What this shows is how far document scores tell relevant from
other documents, and that the machinery does what it says; not whether an LLM reads the scores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.rounds import ARMS
from icl_curate.engine.pool.answers import normalise
from icl_curate.engine.pool.prompts import documents_of
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.retrieval.encoder import load_encoder
from icl_curate.engine.retrieval.weights import DEFAULT_ENCODER
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render import show

FITTED = {"hotpotqa": 150, "nq": 400}
DISTRACTORS = 9
Rows = list[dict[str, Any]]


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def hotpotqa(data: Path, rows: int) -> Rows:
    folder = data / "hotpotqa_distractor"
    meta = {record["id"]: record for record in read(folder / "meta.jsonl")}
    found = []
    for row in read(folder / "train.jsonl")[FITTED["hotpotqa"] :][:rows]:
        named = {title for title, _ in meta[row["id"]]["supporting_facts"]}
        roles = ["relevant" if text.splitlines()[0] in named else "distractor" for text in documents_of(row["context"])]
        found.append({"id": row["id"], "input": row["input"], "output": row["output"], "context": row["context"],
                      "documents": roles})  # fmt: skip
    return found


def nq(data: Path, rows: int) -> Rows:
    folder = data / "nq_open"
    meta = {record["id"]: record for record in read(folder / "meta.jsonl")}
    with_passage = [row for row in read(folder / "test.jsonl") if row["context"]]
    passages = ["\n".join(line for line in row["context"].splitlines() if line.strip()) for row in with_passage]
    encode = load_encoder(DEFAULT_ENCODER).encode
    asked = with_passage[FITTED["nq"] :][:rows]
    nearest = np.argsort(-(encode([row["input"] for row in asked]) @ encode(passages).T), axis=1, kind="stable")
    found = []
    for i, (row, order) in enumerate(zip(asked, nearest, strict=True), FITTED["nq"]):
        answers = [row["output"], *meta.get(row["id"], {}).get("answers", ())]
        said = [f" {normalise(answer)} " for answer in answers]
        others = [
            passages[j]
            for j in order.tolist()
            if passages[j] != passages[i] and not any(a in f" {normalise(passages[j])} " for a in said)
        ][:DISTRACTORS]
        place = hashlib.blake2b(row["id"].encode()).digest()[0] % (len(others) + 1)
        documents = [*others[:place], passages[i], *others[place:]]
        roles = ["relevant" if j == place else "distractor" for j in range(len(documents))]
        found.append({"id": row["id"], "input": row["input"], "output": row["output"], "answers": answers,
                      "context": "\n\n".join(documents), "documents": roles})  # fmt: skip
    return found


def measure(name: str, rows: Rows, plan: CalibrationPlan, folder: Path) -> None:
    queries, pool = folder / "validation.jsonl", folder / "pool.jsonl"
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pool.write_text(json.dumps({"input": "an unused demonstration", "output": "of no use"}) + "\n", encoding="utf-8")
    store = Workspace.create(folder / "w")
    index_pool(store, IndexPlan(paths=(str(pool),), validation=(str(queries),)))
    settings = Settings()
    with backend_for(settings, encode_for_reader(store, settings)) as backend:
        done = Calibration.prepare(LLMClient(store, backend, settings), queries_of(store, "validation"), plan).ask(
            Budget()
        )
    print(f"\n== {name}: {len(rows)} questions\n", flush=True)
    show(done.kind, done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", choices=["hotpotqa", "nq"], action="append")
    parser.add_argument("--uncertainty", default="product")
    options = parser.parse_args()
    plan = CalibrationPlan(rounds=options.rounds, arms=tuple(ARMS), estimator=options.uncertainty, split="validation")
    for name in options.set or ["hotpotqa", "nq"]:
        rows = (hotpotqa if name == "hotpotqa" else nq)(options.data, options.rows)
        with tempfile.TemporaryDirectory() as folder:
            measure(name, rows, plan, Path(folder))


if __name__ == "__main__":
    main()
