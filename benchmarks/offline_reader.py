"""What the offline reader knows, gains from demonstrations and loses to bad ones, on pools of JSONL files.

python benchmarks/offline_reader.py DATA [--rows 300] [--pool 3000] [--skip 0] [--encoder NAME]

DATA holds one folder a pool, each with train.jsonl and, where it has them, validation.jsonl, test.jsonl (rows of
input, output, options, context) and meta.jsonl (id, answers, supporting_facts). Pools without a closed set of at most
100 outputs and without options are open. Columns: no demonstration, the 8 nearest of the pool, the 8 nearest with
wrong outputs, and the plain majority vote of the 8 nearest. Open pools show exact match and F1 on the rows that bring
a passage. Further lines give the AUROC with which the answer's probability from one document alone tells supporting
documents from others, and closed questions a second with all vectors remembered.

The reader's constants were fitted on the validation splits, on the first 400 test rows with a passage of NQ-open and
on the first half of HotpotQA, which is its pool here (a pool without other splits is asked its second half);
``--skip`` leaves that many test rows with a passage out of open pools.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.backends.offline.reader import Encode, OfflineReader
from icl_curate.engine.backends.offline.texts import evidence_of
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.pool.answers import exact_match, is_correct, token_f1
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.prompting.template import build_prompt
from icl_curate.engine.retrieval.encoder import load_encoder
from icl_curate.engine.retrieval.weights import DEFAULT_ENCODER

SHOTS = 8
MOST_LABELS = 100


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")] if path.is_file() else []


def demonstration(row: int, record: dict[str, Any]) -> Demonstration:
    return Demonstration(
        row,
        record["id"],
        record["input"],
        record["output"],
        "",
        tuple(record["options"] or ()),
        record["context"] or "",
    )


def task_of(pool: Sequence[Demonstration]) -> Task:
    if any(d.options for d in pool):
        return Task("options")
    labels = tuple(sorted({d.output for d in pool}))
    return Task("labels", labels) if len(labels) <= MOST_LABELS else Task("open")


def spoiled(shots: Sequence[Demonstration], task: Task, rng: np.random.Generator) -> list[Demonstration]:
    """The same inputs with wrong outputs: another option, another label, another shot's answer."""
    others = [[o for o in d.options or task.labels or [s.output for s in shots] if o != d.output] for d in shots]
    return [replace(d, output=str(rng.choice(o))) if o else d for d, o in zip(shots, others, strict=True)]


def asked(reader: OfflineReader, requests: Sequence[Request]) -> list[Answer]:
    step = reader.batch_size
    results: Iterator[Result] = (
        r for i in range(0, len(requests), step) for r in reader.answer(requests[i : i + step])
    )
    return [r for r in results if isinstance(r, Answer)]


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    ranks = np.argsort(np.argsort(np.concatenate([positive, negative]), kind="stable"), kind="stable")
    n, m = len(positive), len(negative)
    return float((ranks[:n].sum() - n * (n - 1) / 2) / (n * m))


def measure(
    reader: OfflineReader, encode: Encode, name: str, queries: Sequence[Query], pool: Sequence[Demonstration]
) -> None:
    task, rng = task_of(pool), np.random.default_rng(0)
    cosines = encode([q.input for q in queries]) @ encode([d.input for d in pool]).T
    nearest = [[pool[i] for i in row] for row in np.argsort(-cosines, axis=1, kind="stable")[:, :SHOTS]]
    cells = []
    nothing: list[list[Demonstration]] = [[] for _ in queries]
    for shown in (nothing, nearest, [spoiled(n, task, rng) for n in nearest]):
        requests = [
            Request(build_prompt(q, n, task), score=bool(task.choices(q))) for q, n in zip(queries, shown, strict=True)
        ]
        answers = asked(reader, requests)
        if task.kind == "open":
            pairs = [
                (exact_match(a.text, q.answers), token_f1(a.text, q.answers))
                for a, q in zip(answers, queries, strict=True)
            ]
            cells.append("{:.3f}/{:.3f}".format(*np.mean(pairs, axis=0)))
        else:
            right = [is_correct(a.text, q.answers, task.choices(q)) for a, q in zip(answers, queries, strict=True)]
            cells.append(f"{np.mean(right):.3f}")
    vote = [Counter(d.output for d in n).most_common(1)[0][0] for n in nearest]
    cells.append(f"{np.mean([v in q.answers for v, q in zip(vote, queries, strict=True)]):.3f}")
    print(f"{name:36} {len(queries):6} " + " ".join(f"{cell:>13}" for cell in cells), flush=True)


def documents_apart(reader: OfflineReader, name: str, queries: Sequence[tuple[Query, set[str]]]) -> None:
    pooled: tuple[list[float], list[float]] = ([], [])
    within: list[float] = []
    for query, supporting in queries:
        documents = evidence_of(query)
        prompts = [build_prompt(replace(query, context=d.text), [], Task("open")) for d in documents]
        own: tuple[list[float], list[float]] = ([], [])
        for document, answer in zip(documents, asked(reader, [Request(p) for p in prompts]), strict=True):
            own[document.text.splitlines()[0] not in supporting].append(1.0 - (answer.uncertainty or 0.0))
        if all(own):
            within.append(auroc(*own))
            for scores, more in zip(pooled, own, strict=True):
                scores.extend(more)
    if within:
        print(f"{name}: AUROC of the probability from one document, supporting documents against others:")
        print(f"  all questions pooled {auroc(*pooled):.3f}, mean within a question {np.mean(within):.3f}")


def speed(reader: OfflineReader, queries: Sequence[Query], pool: Sequence[Demonstration]) -> None:
    task = task_of(pool)
    requests = [Request(build_prompt(q, pool[i : i + SHOTS], task), score=True) for i, q in enumerate(queries)]
    asked(reader, requests)
    start = time.perf_counter()
    asked(reader, requests)
    print(f"closed questions a second, vectors remembered: {len(requests) / (time.perf_counter() - start):,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    options = parser.parse_args()

    encode = load_encoder(options.encoder).encode
    reader = OfflineReader(encode, options.encoder)
    print(f"{'pool':36} {'rows':>6} {'no shots':>13} {'8 nearest':>13} {'8 spoiled':>13} {'vote of 8':>13}")
    for folder in sorted(p for p in options.data.iterdir() if (p / "train.jsonl").is_file()):
        train = read(folder / "train.jsonl")
        meta = {record["id"]: record for record in read(folder / "meta.jsonl")}
        splits = {split: read(folder / f"{split}.jsonl") for split in ("validation", "test")}
        if not any(splits.values()):
            train, splits = train[: len(train) // 2], {"second half": train[len(train) // 2 :]}
        pool = [demonstration(i, record) for i, record in enumerate(train[: options.pool])]
        is_open = task_of(pool).kind == "open"
        for split, records in splits.items():
            for passages in (False, True) if is_open else (False,):
                kept = [r for r in records if not is_open or bool(r["context"]) == passages]
                kept = kept[options.skip if passages and split == "test" else 0 :][: options.rows]
                queries = [
                    replace(
                        demonstration(0, r).as_query(), answers=(r["output"], *meta.get(r["id"], {}).get("answers", ()))
                    )
                    for r in kept
                ]
                if not queries:
                    continue
                ids = {q.id for q in queries}
                name = f"{folder.name} {split}" + (" with passage" if passages else "")
                measure(reader, encode, name, queries, [d for d in pool if d.id not in ids])
                facts = [meta.get(q.id, {}).get("supporting_facts") for q in queries]
                told = [(q, {t for t, _ in f}) for q, f in zip(queries, facts, strict=True) if f]
                documents_apart(reader, name, told)
                if task_of(pool).kind == "labels":
                    speed(reader, queries, pool)


if __name__ == "__main__":
    main()
