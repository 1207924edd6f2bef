"""Metrics against the published implementations: SQuAD's script written anew, scikit-learn, and recorded values of
rouge-score, sacrebleu and seqeval (`benchmarks/metrics.py` records them and compares thousands of cases)."""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from pathlib import Path

import pytest
from icl_curate.engine.grading.metrics import metric_named
from icl_curate.engine.grading.structured import labels_f1
from icl_curate.engine.pool.records import Query, Task

RECORDED = json.loads((Path(__file__).parent / "published.json").read_text())
SENTENCE = "the a An cat cat, (sat) U.S. 3.5 well-known it's Paris Paris. «Graz» über x_1 50% theatre"
WORDS = SENTENCE.split()


def value(name: str, answer: str, *accepted: str) -> float:
    return metric_named(name).score(answer, Query("q", answers=accepted), Task("open"))


@pytest.mark.parametrize("name", RECORDED)
def test_the_values_are_those_of_the_package(name: str) -> None:
    cases = RECORDED[name]["cases"]
    assert len({theirs for _, _, theirs in cases if 0 < theirs < 1}) > 10
    for answer, accepted, theirs in cases:
        assert value(name, answer, accepted) == pytest.approx(theirs, abs=1e-9), (answer, accepted)


def squad(answer: str, accepted: str) -> tuple[float, float]:
    """EM and F1 of `evaluate-v1.1.py` (Rajpurkar et al. 2016), step by step."""

    def normalised(text: str) -> str:
        bare = "".join(mark for mark in text.lower() if mark not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())

    given, wanted = normalised(answer).split(), normalised(accepted).split()
    same = sum((Counter(given) & Counter(wanted)).values())
    em = float(normalised(answer) == normalised(accepted))
    if same == 0:
        return em, 0.0
    precision, recall = same / len(given), same / len(wanted)
    return em, 2 * precision * recall / (precision + recall)


def test_squad_scores_are_those_of_the_published_script() -> None:
    rng, between = random.Random(0), 0
    for _ in range(2_000):
        accepted = [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(2)]
        answer = " ".join(rng.choices([*WORDS, *accepted], k=rng.randint(1, 3)))
        em, f1 = (max(scores) for scores in zip(*(squad(answer, each) for each in accepted), strict=True))
        if em and not f1:  # of two texts without a word: SQuAD 2.0 counts 1
            f1 = 1.0
        assert (value("squad-em", answer, *accepted), value("f1", answer, *accepted)) == pytest.approx((em, f1))
        between += 0 < f1 < 1
    assert between > 500


def test_sets_of_labels_are_scored_as_scikit_learn_does_by_example() -> None:
    from sklearn.metrics import f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    rng = random.Random(0)
    pairs = [[{label for label in "abcd" if rng.random() < 0.4} for _ in range(2)] for _ in range(2_000)]
    marks = MultiLabelBinarizer(classes=list("abcd")).fit([])
    given, wanted = (marks.transform(sets) for sets in zip(*pairs, strict=True))
    for i, (one, other) in enumerate(pairs):
        theirs = f1_score(wanted[i : i + 1], given[i : i + 1], average="samples", zero_division=1) if i < 50 else None
        assert theirs is None or labels_f1(one, other) == pytest.approx(theirs)
    mean = sum(labels_f1(*pair) for pair in pairs) / len(pairs)
    assert mean == pytest.approx(f1_score(wanted, given, average="samples", zero_division=1))
