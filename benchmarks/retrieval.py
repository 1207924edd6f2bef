"""Paper 003 in its own setting, with an LLM that can be had: questions answered from retrieved documents, of which some
sources keep spoiled copies.

    python benchmarks/retrieval.py WORK --llm hf:qwen2.5-coder-0.5b.gguf [--dtype bfloat16] [--choose 8]

The corpus are the documents of all queries of ``sample_data/facts``; the ten nearest to a question are its list. The
LLM answers the question from each of them alone, and from its spoiled copy, in which the right answer is another one of
the same kind. Then the published noise protocol (`wikifact.py`): 50 sources in five groups, of which those of group g
keep the true copy with probability g/5; half of the questions choose, the other half are reported, 64 seeds. *Clean* is
the vote over the same lists without a spoiled copy. WORK keeps the answers: a stopped run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evidence import SAMPLE, Workspace, table
from icl_curate.engine.retrieval.encoder import load_encoder
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.workspace import Workspace as Store
from icl_curate.engine.trials.votes import vote
from wikifact import COLUMNS, SEEDS, K, Rows, halves, one_seed, with_noise

DEPTH = 10
"""Documents of a list."""


def questions() -> Rows:
    return [
        json.loads(line)
        for split in ("validation", "test")
        for line in (SAMPLE / "facts" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def retrieved(asked: Rows) -> list[list[str]]:
    """The nearest documents of each question, of the documents of all."""
    corpus = sorted({document for one in asked for document in one["context"].split("\n\n")})
    encoder = load_encoder()
    cosines = encoder.encode([one["input"] for one in asked]) @ encoder.encode(corpus).T
    return [[corpus[i] for i in np.argsort(-row, kind="stable")[:DEPTH]] for row in cosines]


def spoiled(document: str, accepted: Sequence[str], other: str) -> str:
    """With ``other`` in the place of each right answer, the longest first. A number of up to three digits stands for
    other things, too, so where there is a longer answer it does not count."""
    named = [name for name in accepted if not re.fullmatch(r"\d{1,3}", name)] or accepted
    named = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    return re.sub(rf"\b(?:{named})\b", lambda _: other, document)


def ask(workspace: Workspace, asked: Rows) -> Rows:
    """The lists of answers, in the form of the recorded ones: what is right reads as the reference."""
    others: dict[str, list[str]] = {}
    for one in asked:
        others.setdefault(one["relation"], []).append(one["output"])
    prompts: dict[str, dict[str, Any]] = {}
    lists: list[list[list[str]]] = []
    draw = random.Random(0)
    for one, documents in zip(asked, retrieved(asked), strict=True):
        other = draw.choice([name for name in others[one["relation"]] if name not in one["answers"]])
        pairs: list[list[str]] = []
        asks = {key: one[key] for key in ("input", "output", "answers")}
        for document in documents:
            pairs.append([])
            for copy in (document, spoiled(document, one["answers"], other)):
                name = hashlib.sha256(f"{one['id']}\n{copy}".encode()).hexdigest()[:16]
                pairs[-1].append(name)
                prompts[name] = asks | {"id": name, "context": copy}
        lists.append(pairs)
    file = workspace.folder.parent / "prompts.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in prompts.values()), encoding="utf-8")
    workspace.run("index", *sorted((SAMPLE / "facts" / "pool").glob("*.jsonl")), "--test", file)
    done = workspace.ask("evaluate", "-m", "zero", "--split", "test", "--seeds", 1)
    heard = {each.id: each for each in outcomes(Store.open(workspace.folder), done["run"], "zero")}

    def answer(name: str, reference: str) -> str:
        found = heard[name]
        return reference if found.right == 1 else " ".join((found.answer or "").lower().split())

    return [
        {
            "correct_answers": [one["output"]],
            "retrieved_answers": [answer(clean, one["output"]) for clean, _ in pairs],
            "noise_answers": [answer(noisy, one["output"]) for _, noisy in pairs],
        }
        for one, pairs in zip(asked, lists, strict=True)
    ]


def told(rows: Rows, choose: int) -> Iterable[str]:
    """Test accuracies over the seeds."""
    flat: dict[str, list[bool]] = {kind: [] for kind in ("retrieved_answers", "noise_answers")}
    for row in rows:
        for kind, answers in flat.items():
            answers += [answer in row["correct_answers"] for answer in row[kind]]
    differ = sum(a != b for row in rows for a, b in zip(row["retrieved_answers"], row["noise_answers"], strict=True))
    yield (
        f"{len(rows)} questions, {DEPTH} documents each: {np.mean(flat['retrieved_answers']):.3f} of the answers are "
        f"right, {np.mean(flat['noise_answers']):.3f} from spoiled copies; {differ} differ between the two."
    )
    results, clean = [], []
    for number, seed in enumerate(SEEDS):
        lists = with_noise(rows, seed, DEPTH)
        chosen_on, tested_on = halves(len(rows), seed)
        results.append(one_seed(lists, chosen_on, tested_on, number < choose)[0])
        true = with_noise([row | {"noise_answers": row["retrieved_answers"]} for row in rows], seed, DEPTH)
        clean.append(float(vote(true.take(tested_on), K).mean()))
    found = np.column_stack([np.array(results), clean])
    lines = []
    for name, column in zip((*COLUMNS, "clean"), found.T, strict=True):
        run = ~np.isnan(column)
        over = (column - found[:, 0])[run]
        spread = f"{over.mean():+.4f} ± {over.std():.4f}, above in {(over > 0).sum()} of {run.sum()}"
        lines.append([name, f"{column[run].mean():.4f}", "" if name == COLUMNS[0] else spread])
    yield table(
        ["what", "test accuracy", "over the baseline"], lines, f"± by seed; chosen with {min(choose, len(SEEDS))} seeds"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--choose", type=int, default=8, help="seeds for which a setting is chosen")
    options = parser.parse_args()
    workspace = Workspace(options.work, "retrieval", options.llm, options.dtype)
    rows: list[dict[str, Any]] = ask(workspace, questions())
    for line in told(rows, options.choose):
        print(line, flush=True)


if __name__ == "__main__":
    main()
