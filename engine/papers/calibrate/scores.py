"""Uncertainty of an answer, and the scores from 0 (certain) to 100 (uncertain) shown in prompts (paper 001, 3.1).

The paper's eq. 1 prints the product of the tokens' probabilities; its eq. 3, its figures 1 and 4 and "the minimal
uncertainty" mean one minus it, which is what `product` returns. Its eq. 2 prints the same denominator twice;
`answer_score` reaches 0 at no uncertainty, 50 at the mean of the set and 100 at full uncertainty; where the mean is
itself 0 or 1, that end has 50, as eq. 2 gives for an answer at the mean.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...base.errors import UsageError
from ...llm.types import Answer
from ...pool.answers import meaning

Key = Callable[[str], str]
"""Of the text of an answer: the same answers share it, and only they."""

UncertaintyFunction = Callable[[Answer, Sequence[Answer], Key], float | None]
"""From an answer, further samples to the same prompt and what tells which are the same to an uncertainty in [0, 1].

None if the answer has too little information. An empty answer is fully uncertain.
"""

Needs = Literal["logprobs", "entropies", "samples"]

MIDDLE = 50.0
NEUTRAL = 0.5
"""The mean that leaves an uncertainty unchanged: `answer_score` is then 100 times it."""


@dataclass(frozen=True, slots=True)
class UncertaintyEstimator:
    """A way to compute uncertainty, and what it needs of the LLM."""

    of: UncertaintyFunction
    needs: Needs
    about: str


def product(answer: Answer, samples: Sequence[Answer], key: Key) -> float | None:
    """1 − Π p over the answer's tokens (eq. 1 and 3), or 1 − the best option's share if options were scored."""
    return _bounded(1.0 if _says_nothing(answer) else answer.uncertainty)


def geometric(answer: Answer, samples: Sequence[Answer], key: Key) -> float | None:
    """As `product`, with the geometric mean of the probabilities, which does not depend on the answer's length."""
    if _says_nothing(answer):
        return 1.0
    if answer.option_logprobs:
        totals = [sum(option) for option in answer.option_logprobs]
        return _bounded(1.0 - answer.token_shares[totals.index(max(totals))])
    if not answer.logprobs:
        return None
    return _bounded(1.0 - math.exp(sum(answer.logprobs) / len(answer.logprobs)))


def entropy(answer: Answer, samples: Sequence[Answer], key: Key) -> float | None:
    """1 − exp(−H), with H the mean entropy in nats of the distributions that the tokens were sampled from (Fomicheva et
    al. 2020), or that of the distribution over scored options."""
    if _says_nothing(answer):
        return 1.0
    if answer.option_logprobs:
        return _bounded(1.0 - math.exp(sum(p * math.log(p) for p in answer.shares if p > 0.0)))
    if not answer.entropies:
        return None
    return _bounded(1.0 - math.exp(-sum(answer.entropies) / len(answer.entropies)))


def self_consistency(answer: Answer, samples: Sequence[Answer], key: Key) -> float | None:
    """1 − the share of samples that agree with the answer (after Wang et al. 2022); needs no log-probabilities."""
    if _says_nothing(answer):
        return 1.0
    if not samples:
        return None
    own = key(answer.text)
    return 1.0 - sum(key(sample.text) == own for sample in samples) / len(samples)


ESTIMATORS: Mapping[str, UncertaintyEstimator] = {
    "product": UncertaintyEstimator(product, "logprobs", "1 − product of token probabilities (as in the paper)"),
    "geometric": UncertaintyEstimator(
        geometric, "logprobs", "1 − geometric mean of token probabilities (length-normalised)"
    ),
    "entropy": UncertaintyEstimator(entropy, "entropies", "1 − exp(−mean token entropy)"),
    "self-consistency": UncertaintyEstimator(self_consistency, "samples", "1 − share of samples that agree"),
}


AUTO = "auto"


def more_spread_estimator(answers: Sequence[Answer]) -> str:
    """``product`` or ``geometric``: the one with the larger interquartile range over the answers; the paper's own,
    ``product``, in a tie. For sentence-long answers, products are nearly all 1. Scored options and unusable answers are
    not counted."""
    drawn = [a for a in answers if not a.option_logprobs and a.logprobs and not _says_nothing(a)]
    if not drawn:
        return "product"
    spread = {
        name: float(
            np.subtract(*np.quantile([ESTIMATORS[name].of(a, (), meaning) or 0.0 for a in drawn], [0.75, 0.25]))
        )
        for name in ("product", "geometric")
    }
    return "geometric" if spread["geometric"] > spread["product"] else "product"


def estimator_named(name: str) -> UncertaintyEstimator:
    """The estimator (for ``auto``, the one it starts with), or `UsageError` with the most similar name."""
    if name == AUTO:
        return ESTIMATORS["product"]
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    near = difflib.get_close_matches(name, ESTIMATORS, 1)
    hint = f", did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"unknown uncertainty '{name}'{hint}", f"use one of: {AUTO}, {', '.join(ESTIMATORS)}")


def answer_score(uncertainty: float, mean: float) -> float:
    """The score 0 to 100 of an answer, 50 at the mean uncertainty of the set (eq. 2), also if that is 0 or 1."""
    if uncertainty < mean:  # eq. 2, from -1 (certain) to 1
        about = (uncertainty - mean) / mean
    else:
        about = (uncertainty - mean) / (1.0 - mean) if mean < 1.0 else 0.0
    return 100.0 * (0.5 + 0.5 * about)


def document_scores(uncertainties: Sequence[float | None]) -> tuple[float | None, ...]:
    """Min-max within one query to 0 … 100 (eq. 3); 50 for all if they are equal, None for a document without
    uncertainty."""
    known = [value for value in uncertainties if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    spread = high - low
    return tuple(
        None if value is None else 100.0 * ((value - low) / spread) if spread > 0.0 else MIDDLE
        for value in uncertainties
    )


def shown(score: float | None) -> int | None:
    """A score as prompts show it."""
    return None if score is None else round(score)


def _says_nothing(answer: Answer) -> bool:
    """Empty answers and answers that repeat their prompt must not become the most certain one. An answer that was cut
    off keeps the uncertainty of its tokens."""
    return not answer.text.strip() or (not answer.usable and answer.finish != "length")


def _bounded(value: float | None) -> float | None:
    return None if value is None else min(max(value, 0.0), 1.0)
