"""Open questions. The candidates are places in the prompt: spans of the query's documents (names, dates, numbers,
quotations, short phrases), outputs of the demonstrations, the alternatives of an "A or B?" question, yes and no for a
polar question. A span has a linear score over the features of `FEATURES` and the fit between the answer type of the
question word and the type of the span (`FIT`); demonstrations move that fit towards their own answer type. A
demonstration's output has COPY[0] + COPY[1] · cos(q, x_j). The probability of an answer is the sum over its places
(attention-sum reader, Kadlec et al. 2016, section 3), and a share (logit 0) is reserved for "none of these", so that a
document without the answer gives low probabilities, as calibration needs (paper 001, eq. 3). "unknown" is a candidate
with logit UNKNOWN: the answer, with a low probability, if nothing in the prompt is better."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...base.arrays import Float64s
from ...pool.prompts import Prompt
from .texts import (
    WORD,
    AnswerSpan,
    Distribution,
    Lookup,
    Sentence,
    alternatives_of,
    asked_kind,
    is_polar,
    kernel_of,
    key_of,
    kind_of,
    sentences_in,
    shifts_of,
    shot_trust,
    spans_of,
    stems_of,
)

UNKNOWN_TEXT = "unknown"

# In logits.
UNKNOWN = -3.0
COPY = (-10.8, 11.2)
ALTERNATIVE = 0.0
POLAR: Mapping[str, float] = {"yes": 0.5, "no": 0.0}
TYPICAL = 0.6  # typical cosine of a question with the nearest sentence of a relevant document
SHAPE = 1.0
FEATURES: Mapping[str, float] = {
    "bias": -8.4,
    "cosine": 3.4,  # of the question and the sentence
    "document": 2.3,  # best cosine in the document
    "linked": 3.1,  # best cosine of another document's sentence that names this document
    "overlap": 1.3,  # share of the question's words in sentence and title
    "proximity": 2.4,  # how near those words are to the span
    "in_question": -1.9,  # share of the span's words that are in the question
    "title": 2.0,  # the span is the document's title
    "alternative": 2.9,  # the span is A or B of "A or B?"
    "words": 0.3,  # log of the span's length in words
}
FIT: Mapping[str, Mapping[str, float]] = {
    "person": {"name": 2.3, "date": -0.9, "number": -1.4, "phrase": -0.9},
    "place": {"name": 1.5, "date": -0.5, "number": -0.5, "phrase": -0.1},
    "date": {"name": -1.0, "date": 3.8, "number": 0.1, "phrase": -1.0},
    "number": {"name": -1.2, "date": -0.1, "number": 1.6, "phrase": -1.2},
    "other": {"name": 0.9, "date": -0.5, "number": -0.4, "phrase": -0.5},
}


class CandidateAnswer(NamedTuple):
    """A candidate answer at one place of the prompt, with its logit."""

    text: str
    logit: float


def open_distribution(prompt: Prompt, lookup: Lookup) -> Distribution:
    """The distribution over the texts in the prompt that may answer an open question, and "unknown"."""
    question = prompt.query.input
    vector = lookup([question])[0]
    alternatives = alternatives_of(question)
    sentences = sentences_in(prompt)
    cosines = (lookup([sentence.titled for sentence in sentences]) @ vector).tolist() if sentences else []
    # these answers have no words in a document: they are as certain as the documents are near
    nearness = (FEATURES["cosine"] + FEATURES["document"]) * (max(cosines) - TYPICAL) if sentences else 0.0
    places = [
        CandidateAnswer(UNKNOWN_TEXT, UNKNOWN),
        *(CandidateAnswer(name, ALTERNATIVE + nearness) for name in alternatives),
    ]
    asked = dict(FIT[asked_kind(question)])
    if prompt.demonstrations:
        likeness = (lookup([d.input for d in prompt.demonstrations]) @ vector).astype(np.float64)
        places += [
            CandidateAnswer(demonstration.output, COPY[0] + COPY[1] * cosine + math.log(weight))
            for demonstration, cosine, weight in zip(
                prompt.demonstrations, likeness.tolist(), shot_trust(prompt).tolist(), strict=True
            )
        ]
        _learn_kind(asked, [d.output for d in prompt.demonstrations], kernel_of(likeness))
    if is_polar(question) and not alternatives:
        places += [CandidateAnswer(text, logit + nearness) for text, logit in POLAR.items()]
    if sentences:
        spans, features, log_weights = features_of(question, sentences, cosines, alternatives)
        logits = features @ np.array(list(FEATURES.values())) + log_weights
        places += [
            CandidateAnswer(span.text, logit + asked[span.kind])
            for span, logit in zip(spans, logits.tolist(), strict=True)
        ]
    return _pooled(places, shifts_of(prompt.earlier))


def _learn_kind(fit: dict[str, float], outputs: Sequence[str], kernel: Float64s) -> None:
    """Learn the expected answer type from the demonstrations' outputs: the most frequent type is unchanged, the others
    lose according to how much rarer they are."""
    shown = dict.fromkeys(fit, 0.0)
    for output, weight in zip(outputs, kernel.tolist(), strict=True):
        shown[kind_of(output)] += weight
    total, top = sum(shown.values()), max(shown.values())
    for kind, weight in shown.items():
        fit[kind] += SHAPE * (weight - top) / total


def _pooled(places: Sequence[CandidateAnswer], shifts: Mapping[str, float]) -> Distribution:
    """One candidate per text (in its best-scoring spelling), its probability the sum over its places, shifted by
    earlier answers; logit 0 is reserved for "none of these"."""
    top = max(0.0, *(place.logit for place in places))
    best: dict[str, CandidateAnswer] = {}
    mass: dict[str, float] = {}
    for place in places:
        key = key_of(place.text)
        mass[key] = mass.get(key, 0.0) + math.exp(place.logit - top)
        if key not in best or place.logit > best[key].logit:
            best[key] = place
    masses = np.array([value * math.exp(shifts.get(key, 0.0)) for key, value in mass.items()])
    return Distribution(tuple(p.text for p in best.values()), masses / (masses.sum() + math.exp(-top)))


def features_of(
    question: str, sentences: Sequence[Sentence], cosines: Sequence[float], alternatives: Sequence[str] = ()
) -> tuple[list[AnswerSpan], Float64s, Float64s]:
    """Every span of the sentences, its features (spans × `FEATURES`) and its document's log-weight (spans,).

    ``cosines`` are those of the question with each sentence.
    """
    asked = stems_of(question)
    folded = f" {' '.join(m.group().lower() for m in WORD.finditer(question))} "
    allowed = {name.lower() for name in alternatives}
    relevance, links = _documents(sentences, cosines)
    spans: list[AnswerSpan] = []
    rows: list[tuple[float, ...]] = []
    weights: list[float] = []
    for sentence, cosine in zip(sentences, cosines, strict=True):
        words = [(m.start(), m.group().lower()[:6]) for m in WORD.finditer(sentence.text)]
        hits = [(position, stem) for position, (_, stem) in enumerate(words) if stem in asked]
        overlap = len(asked & ({stem for _, stem in hits} | stems_of(sentence.title))) / max(len(asked), 1)
        log_weight = math.log(max(sentence.weight, 1e-9))
        for span in spans_of(sentence.text):
            inside = [i for i, (at, _) in enumerate(words) if span.start <= at < span.end] or [0]
            named = span.text.lower() in allowed
            own = [m.group().lower() for m in WORD.finditer(span.text)]
            rows.append(
                (
                    1.0,
                    cosine,
                    relevance[sentence.title],
                    links[sentence.title],
                    overlap,
                    _proximity(inside[0], inside[-1], hits) / max(len(asked), 1),
                    0.0 if named else sum(f" {word} " in folded for word in own) / max(len(own), 1),
                    float(span.text.lower() == sentence.title.lower()),
                    float(named),
                    math.log(len(inside)),
                )
            )
            spans.append(span)
            weights.append(log_weight)
    return spans, np.array(rows, np.float64).reshape(-1, len(FEATURES)), np.array(weights, np.float64)


def _documents(sentences: Sequence[Sentence], cosines: Sequence[float]) -> tuple[dict[str, float], dict[str, float]]:
    """By title: the best cosine in the document, and the best among sentences of other documents that name it (the
    second hop of a question over two documents)."""
    relevance: dict[str, float] = {}
    for sentence, cosine in zip(sentences, cosines, strict=True):
        relevance[sentence.title] = max(cosine, relevance.get(sentence.title, 0.0))
    links = dict.fromkeys(relevance, 0.0)
    names = {title: re.sub(r" \(.*\)$", "", title) for title in relevance if title}
    for sentence, cosine in zip(sentences, cosines, strict=True):
        for title, name in names.items():
            if title != sentence.title and name in sentence.text:
                links[title] = max(cosine, links[title])
    return relevance, links


def _proximity(first: int, last: int, hits: Sequence[tuple[int, str]]) -> float:
    """Σ over the question's words in the sentence of 1/(1 + d/4), d the words between it and the span."""
    nearest: dict[str, int] = {}
    for position, stem in hits:
        if first <= position <= last:
            continue
        distance = first - position if position < first else position - last
        nearest[stem] = min(distance, nearest.get(stem, distance))
    return sum(1.0 / (1.0 + distance / 4.0) for distance in nearest.values())
