"""Metrics against the published implementations, on random cases:

    pip install rouge-score==0.1.2 sacrebleu==2.6.0 seqeval==1.2.2
    python benchmarks/metrics.py [--record tests/grading/published.json]

It prints the largest difference of each metric to its package. With ``--record`` some of the cases and the values of
the packages are written down, which `tests/grading/test_published.py` compares without the packages.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from icl_curate.engine.grading.metrics import metric_named
from icl_curate.engine.pool.records import Query, Task

SENTENCE = (
    "the a an cat Cat sat mat on of U.S. 3.5 1,000 $29.00 well-known it's Paris, (Graz) end. what? 50% AT&T &amp; "
    '"quoted" e.g. 10:30 one/two x_1 über naïve – …'
)
WORDS = SENTENCE.split()
KINDS = ("PER", "LOC", "ORG")
Case = dict[str, Any]


def texts(rng: random.Random) -> tuple[str, str]:
    """An accepted answer of up to 25 words, and an answer that keeps some of them."""
    wanted = rng.choices(WORDS, k=rng.randint(0, 25))
    kept = [word for word in wanted if rng.random() < 0.7] + rng.choices(WORDS, k=rng.randint(0, 4))
    if rng.random() < 0.3:
        rng.shuffle(kept)
    return "".join(word + rng.choice((" ", " ", " ", "\n")) for word in kept), " ".join(wanted)


def tags(rng: random.Random) -> list[str]:
    """A sentence in IOB2, as seqeval reads it."""
    written: list[str] = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.choice((*KINDS, ""))
        written += [f"B-{kind}", *[f"I-{kind}"] * rng.randint(0, 2)] if kind else ["O"]
    return written


def spans(sentence: Sequence[str]) -> list[dict[str, Any]]:
    """The entities of a sentence, with the places of their first word and of the one after their last."""
    found: list[dict[str, Any]] = []
    for i, tag in enumerate(sentence):
        if tag[0] == "B":
            found.append({"type": tag[2:], "start": i, "end": i + 1, "text": f"word {i}"})
        elif tag[0] == "I":
            found[-1]["end"] = i + 1
    return found


def edited(rng: random.Random, sentence: Sequence[str]) -> list[str]:
    """The sentence with some of its entities of another type, or left out."""
    other = {tag[2:]: rng.choice(KINDS) for tag in sentence if tag != "O" and rng.random() < 0.3}
    kept = ["O" if other.get(tag[2:]) == "ORG" else tag for tag in sentence]
    return [f"{tag[:2]}{other[tag[2:]]}" if tag != "O" and tag[2:] in other else tag for tag in kept]


def cases(seed: int, count: int) -> dict[str, list[Case]]:
    """Random cases of each metric. Letters beyond a to z, which rouge-score drops, are left out for it; so are pairs of
    texts that are both empty, which the packages give 0 and we 1."""
    rng = random.Random(seed)
    made: dict[str, list[Case]] = {"rouge-l": [], "bleu": [], "entities@span": []}
    while len(made["entities@span"]) < count:
        answer, accepted = texts(rng)
        if accepted or answer.strip():
            made["bleu"].append({"answer": answer, "accepted": accepted})
        ascii_only = {"answer": answer.encode("ascii", "ignore").decode(), "accepted": accepted}
        ascii_only["accepted"] = accepted.encode("ascii", "ignore").decode()
        if any(map(str.isalnum, "".join(ascii_only.values()))):
            made["rouge-l"].append(ascii_only)
        wanted = tags(rng)
        given = edited(rng, wanted)
        made["entities@span"].append({
            "answer": json.dumps(spans(given)), "accepted": json.dumps(spans(wanted)), "given": given, "wanted": wanted,
        })  # fmt: skip
    return made


def published() -> dict[str, tuple[str, Callable[[Case], float]]]:
    """The package of each metric, and its value."""
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics import BLEU
    from seqeval.metrics import f1_score

    rouge, bleu = RougeScorer(["rougeL"]), BLEU(effective_order=True)
    return {
        "rouge-l": (
            "rouge-score",
            lambda case: rouge.score(case["accepted"], case["answer"])["rougeL"].fmeasure,
        ),
        "bleu": ("sacrebleu", lambda case: bleu.sentence_score(case["answer"], [case["accepted"]]).score / 100),
        "entities@span": ("seqeval", lambda case: f1_score([case["wanted"]], [case["given"]], zero_division=1)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    recorded: dict[str, Any] = {}
    made = cases(0, options.cases)
    for name, (package, value) in published().items():
        score, task = metric_named(name).score, Task("open")
        theirs = [value(case) for case in made[name]]
        ours = [score(case["answer"], Query("", answers=(case["accepted"],)), task) for case in made[name]]
        worst = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        between = sum(0 < one < 1 for one in theirs)
        print(f"{name:<14} {package} {version(package)}: {len(ours):,} cases, {between:,} between 0 and 1, "
              f"largest difference {worst:.1e}")  # fmt: skip
        recorded[name] = {
            "package": f"{package} {version(package)}",
            "cases": [[case["answer"], case["accepted"], one] for case, one in zip(made[name], theirs, strict=True)][
                :60
            ],
        }
    if options.record:
        options.record.write_text(json.dumps(recorded, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
