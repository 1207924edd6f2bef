"""The evidence in a prompt, how far each piece is trusted, and the form of the result.

Calibration rounds (paper 001) give documents, demonstrations and earlier answers scores s from 0 (certain) to 100. The
reader weights a document's or demonstration's evidence by 1 − DOUBT · s/100, and an earlier answer changes the logit of
that answer by EARLIER · (1 − s/50), with the mean s if it was given more than once. So it applies the scores by a fixed
rule: it shows how rounds run and what document scores can do, not whether an LLM can read them. An earlier answer
without a score has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Float32s, Float64s
from ...pool.prompts import EarlierAnswer, Prompt, documents_of
from ...pool.records import Query
from .texts import Evidence, Sentence, key_of, sentences_of

Vector = Float32s

WIDTH = 0.1
DOUBT = 0.9
EARLIER = 1.0


class Distribution(NamedTuple):
    """Candidate answers with their probabilities (candidates,); the remaining probability is that of "none of
    these"."""

    texts: tuple[str, ...]
    probabilities: Float64s


Lookup = Callable[[Sequence[str]], Vector]
"""From n texts to their vectors (n, d)."""


def evidence_of(query: Query) -> tuple[Evidence, ...]:
    """The documents that belong to the query: the blocks of its context between blank lines, each fully trusted."""
    return tuple(Evidence(document) for document in documents_of(query.context))


def sentences_in(prompt: Prompt) -> list[Sentence]:
    """The sentences of the query's documents, each with the trust of its document."""
    documents = evidence_of(prompt.query)
    scores = prompt.document_scores or (None,) * len(documents)
    return [
        sentence
        for document, score in zip(documents, scores, strict=True)
        for sentence in sentences_of(Evidence(document.text, trust(score)))
    ]


def trust(score: int | None) -> float:
    """The weight of an item shown with an uncertainty score; 1 without one."""
    return 1.0 if score is None else 1.0 - DOUBT * score / 100.0


def shot_trust(prompt: Prompt) -> Float64s:
    """The weight of each demonstration, (demonstrations,)."""
    return np.array([trust(score) for score in prompt.shot_scores or (None,) * len(prompt.demonstrations)])


def shifts_of(earlier: Sequence[EarlierAnswer]) -> dict[str, float]:
    """What earlier answers with scores add to the logit of the same answer, by `key_of`."""
    scores: dict[str, list[int]] = {}
    for answer in earlier:
        if answer.score is not None:
            scores.setdefault(key_of(answer.answer), []).append(answer.score)
    return {key: EARLIER * (1.0 - sum(given) / len(given) / 50.0) for key, given in scores.items()}


def kernel_of(cosines: NDArray[Any]) -> Float64s:
    """The weight of demonstrations by their cosine with the query, 1 for an equal input."""
    kernel: Float64s = np.exp((cosines.astype(np.float64) - 1.0) / WIDTH)
    return kernel


def softmax(logits: Float64s) -> Float64s:
    exponentials = np.exp(logits - logits.max())
    shares: Float64s = exponentials / exponentials.sum()
    return shares
