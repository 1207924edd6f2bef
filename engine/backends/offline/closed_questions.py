"""Closed questions: the prompt has choices. With q the question, o a choice, (x_j, y_j) the demonstrations and s the
sentences of the query's context,

    prior(o) = softmax_o( PRIOR · cos(q, o) + SUPPORT · max_s cos(q, s) · [share of o's words in s]
                          + HINT · Σ_{j hints} k_j · softmax_o(cos(o, y_j) / SPREAD) )
    p(o)     ∝ COUNT · prior(o) + Σ_{j votes: y_j = o} k_j,    k_j = exp((cos(q, x_j) − 1) / WIDTH).

p is the mean of a Dirichlet posterior: the prior counts as COUNT observations, a demonstration as k_j of one. A
demonstration votes if its output is one of the labels or, if rows have their own options, if it has exactly the options
of the query. Any other (another row's options, an outdated label name) is a hint: it pulls towards choices with a
similar name, right or wrong. When it *generates*, the reader also does what an LLM does with an outdated label name in
its prompt: copy it. The name is then a separate candidate with the count k_j. Scoring never copies, because only the
choices are scored. The similarity of a question to bare verdicts (yes, no, maybe, ...) has no meaning, so their prior
is flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from ...base.arrays import Float64s
from ...pool.prompts import Prompt
from .evidence import Distribution, Lookup, Vector, kernel_of, sentences_in, shifts_of, shot_trust, softmax
from .texts import Sentence, key_of, stems_of

PRIOR = 10.0
SUPPORT = 6.0
COUNT = 0.02
HINT = 5.0
SPREAD = 0.05

_VERDICTS = frozenset({"yes", "no", "maybe", "true", "false", "unknown"})


def in_words(label: str) -> str:
    """A label name as it is encoded: ``card_arrival`` becomes ``card arrival``."""
    return label.replace("_", " ").strip() or label


@lru_cache(maxsize=4096)
def choice_index(choices: tuple[str, ...]) -> Mapping[str, int]:
    """From a choice in comparable form (ignoring case and punctuation) to its index, the first of equal ones."""
    return {key_of(choice): index for index, choice in reversed(list(enumerate(choices)))}


def closed_distribution(prompt: Prompt, lookup: Lookup, copies: bool) -> Distribution:
    """The distribution over the prompt's choices and, with ``copies``, over the outdated label names in it.

    Only labels are copied: if each row has its own options, another row's option is not mistaken for one.
    """
    choices = prompt.choices
    question = lookup([prompt.query.input])[0]
    options = lookup([in_words(choice) for choice in choices])
    votes, foreign = _votes(prompt, question, lookup)
    logits = np.zeros(len(choices))
    if not all(key_of(choice) in _VERDICTS for choice in choices):
        logits += PRIOR * (options @ question)
    if sentences := sentences_in(prompt):
        logits += SUPPORT * _support(choices, sentences, lookup([s.titled for s in sentences]) @ question)
    if foreign:
        likeness = (lookup([in_words(output) for output in foreign]) @ options.T).astype(np.float64)
        logits += HINT * sum(vote * softmax(row / SPREAD) for row, vote in zip(likeness, foreign.values(), strict=True))
    shifts = shifts_of(prompt.earlier)
    counts = COUNT * softmax(logits) + votes
    counts *= np.exp([shifts.get(key_of(choice), 0.0) for choice in choices])
    if copies and foreign and not prompt.query.options:
        counts = np.concatenate([counts, list(foreign.values())])
        return Distribution((*choices, *foreign), counts / counts.sum())
    return Distribution(choices, counts / counts.sum())


def _votes(prompt: Prompt, question: Vector, lookup: Lookup) -> tuple[Float64s, dict[str, float]]:
    """The demonstrations' kernel weights summed by choice (choices,), and by output if that is only a hint."""
    own = frozenset(prompt.query.options)
    votes = np.zeros(len(prompt.choices))
    foreign: dict[str, float] = {}
    if prompt.demonstrations:
        index = choice_index(prompt.choices)
        kernel = kernel_of(lookup([d.input for d in prompt.demonstrations]) @ question) * shot_trust(prompt)
        for demonstration, vote in zip(prompt.demonstrations, kernel.tolist(), strict=True):
            chosen = index.get(key_of(demonstration.output))
            # the right answer among other options may be wrong among these
            if chosen is not None and own == (frozenset(demonstration.options) if own else own):
                votes[chosen] += vote
            else:
                foreign[demonstration.output] = foreign.get(demonstration.output, 0.0) + vote
    return votes, foreign


def _support(choices: Sequence[str], sentences: Sequence[Sentence], cosines: Vector) -> Float64s:
    """The support of the context for each choice (choices,): the most relevant sentence with the choice's words."""
    sentence_stems = [stems_of(sentence.text) for sentence in sentences]
    relevance = [max(float(cosine), 0.0) * sentence.weight for cosine, sentence in zip(cosines, sentences, strict=True)]
    support = np.zeros(len(choices))
    for i, choice in enumerate(choices):
        if wanted := stems_of(in_words(choice)):
            support[i] = max(
                r * len(wanted & words) / len(wanted) for r, words in zip(relevance, sentence_stems, strict=True)
            )
    return support
