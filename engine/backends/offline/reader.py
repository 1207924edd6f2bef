"""The offline reader as a backend: texts are encoded once, an answer is sampled and returned word by word.

Closed questions: the prompt has choices. With q the question, o a choice, (x_j, y_j) the demonstrations and s the
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

Open questions: the candidates are places in the prompt: spans of the query's documents (names, dates, numbers,
quotations, short phrases), outputs of the demonstrations, the alternatives of an "A or B?" question, yes and no for a
polar question. A span has a linear score over the features of `FEATURES` and the fit between the answer type of the
question word and the type of the span (`FIT`); demonstrations move that fit towards their own answer type. A
demonstration's output has COPY[0] + COPY[1] · cos(q, x_j). The probability of an answer is the sum over its places
(attention-sum reader, Kadlec et al. 2016, section 3), and a share (logit 0) is reserved for "none of these", so that a
document without the answer gives low probabilities, as calibration needs (paper 001, eq. 3). "unknown" is a candidate
with logit UNKNOWN: the answer, with a low probability, if nothing in the prompt is better.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import Float64s
from ...llm.types import Answer, Capabilities, Encode, Failure, Keep, Request, Result, Sampling
from ...pool.prompts import Prompt
from ..worker import Computing
from .texts import (
    WORD,
    AnswerSpan,
    Distribution,
    Lookup,
    Sentence,
    Vector,
    alternatives_of,
    asked_kind,
    is_polar,
    kernel_of,
    key_of,
    kind_of,
    sentences_in,
    shifts_of,
    shot_trust,
    softmax,
    spans_of,
    stems_of,
)

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
    counts = COUNT * softmax(logits) + votes  # COUNT · prior(o) + Σ k_j
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


READER = 2
"""Version of the reader's rules and constants; it is part of the cache key."""

NOTES = (
    "the offline reader is a stand-in, not an LLM: it matches texts with the sentence encoder",
    "its figures show how a method works; choose --llm openai:MODEL or hf:PATH to learn about an LLM",
)

SOME = 32
"""Requests whose answers are returned together."""
TEXTS = 256
"""Texts encoded in one call: a fraction of a second of work."""

_TINY = 1e-300


class _Memo:
    """Vectors by text; the least recently used are dropped beyond ``capacity`` after each batch."""

    def __init__(self, encode: Encode, capacity: int) -> None:
        self._encode = encode
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vector] = OrderedDict()

    def learn(self, texts: Iterable[str], check: Callable[[], None] = lambda: None) -> None:
        """Encode the texts that are not known yet, `TEXTS` per call, with a ``check`` before each."""
        wanted = dict.fromkeys(texts)
        new = [text for text in wanted if text not in self._vectors]
        for text in wanted:
            if text in self._vectors:
                self._vectors.move_to_end(text)
        for start in range(0, len(new), TEXTS):
            check()
            some = new[start : start + TEXTS]
            # copies of the rows, because a view would keep the whole batch in memory
            self._vectors.update((t, v.copy()) for t, v in zip(some, self._encode(some), strict=True))

    def trim(self) -> None:
        while len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)

    def rows(self, texts: Sequence[str]) -> Vector:
        """The vectors (n, d) of texts encoded before."""
        return np.stack([self._vectors[text] for text in texts])


def texts_of(prompt: Prompt) -> Iterable[str]:
    """Every text of the prompt whose vector the reader looks up."""
    yield prompt.query.input
    for demonstration in prompt.demonstrations:
        yield demonstration.input
    if prompt.choices:
        yield from (in_words(choice) for choice in prompt.choices)
        index = choice_index(prompt.choices)
        own = prompt.query.options
        yield from (in_words(d.output) for d in prompt.demonstrations if own or key_of(d.output) not in index)
    yield from (sentence.titled for sentence in sentences_in(prompt))


class OfflineReader(Computing):
    """The `Backend` of the spec ``offline``.

    ``encode`` takes n texts and returns float32 vectors (n, d) of unit length; a text's vector must not depend on the
    others (in reduced precision the answers' probabilities would depend on the batch). ``encoder_name`` is part of the
    cache key. ``memory`` bounds how many texts' vectors are kept between batches (1.5 kB each at d = 384).
    """

    spec = "offline"
    batch_size = 256

    def __init__(self, encode: Encode, encoder_name: str = "", memory: int = 200_000) -> None:
        self._encoder_name = encoder_name
        self._memo = _Memo(encode, memory)
        self._lock = threading.Lock()
        super().__init__("icl-curate-reader")

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "offline", "reader": READER, "encoder": self._encoder_name}

    def count_tokens(self, prompt: Prompt) -> int:
        """Words separated by white space: the reader has no tokenizer."""
        return len(prompt.text.split())

    async def probe(self) -> Capabilities:
        details = self.identity()
        return Capabilities(logprobs=True, scoring=True, entropies=True, instructs=False, notes=NOTES, details=details)

    def compute(self, requests: Sequence[Request], keep: Keep) -> None:
        """`SOME` requests at a time; a request to score a prompt without choices gives a `Failure`."""
        for start in range(0, len(requests), SOME):
            keep(dict(enumerate(self.answer(requests[start : start + SOME], self._worker.check), start)))

    def distributions(self, prompts: Sequence[Prompt], copies: bool = True) -> list[Distribution]:
        """The distribution behind each prompt's answer; ``copies`` as in `closed_distribution`."""
        with self._lock:
            self._memo.learn(text for prompt in prompts for text in texts_of(prompt))
            read = [self._read(prompt, copies) for prompt in prompts]
            self._memo.trim()
        return read

    def answer(self, requests: Sequence[Request], check: Callable[[], None] = lambda: None) -> list[Result]:
        """`ask` for callers without an event loop; ``check`` is called from time to time and may raise to end it."""
        started = time.perf_counter()
        with self._lock:
            self._memo.learn((text for request in requests for text in texts_of(request.prompt)), check)
            answers: list[Result] = []
            for request in requests:
                check()
                answers.append(self._answer(request))
            self._memo.trim()
        latency = (time.perf_counter() - started) / max(len(requests), 1)
        return [replace(a, latency=latency) if isinstance(a, Answer) else a for a in answers]

    def _read(self, prompt: Prompt, copies: bool) -> Distribution:
        if prompt.choices:
            return closed_distribution(prompt, self._memo.rows, copies)
        return open_distribution(prompt, self._memo.rows)

    def _answer(self, request: Request) -> Result:
        prompt = request.prompt
        if request.score and not prompt.choices:
            return Failure("request", "the prompt has no choices to score")
        distribution = self._read(prompt, copies=not request.score)
        tokens_in = self.count_tokens(prompt)
        if request.score:
            scores = tuple((score,) for score in np.log(np.maximum(distribution.probabilities, _TINY)).tolist())
            text = distribution.texts[int(np.argmax(distribution.probabilities))]
            words = len(text.split())
            return Answer(text, option_logprobs=scores, tokens_in=tokens_in, tokens_out=words, model=self.spec)
        chosen = _draw(distribution, request.sampling, prompt)
        text, probability = distribution.texts[chosen], float(distribution.probabilities[chosen])
        return _as_tokens(text, probability, entropy_of(distribution), request.sampling, tokens_in)


def _draw(distribution: Distribution, sampling: Sampling, prompt: Prompt) -> int:
    """The most probable candidate, the first in a tie, or, at a temperature, one sampled from p^(1/T) within ``top_p``;
    the sample depends only on the seed, the repeat and the prompt."""
    if sampling.temperature <= 0.0:
        return int(np.argmax(distribution.probabilities))
    softened = softmax(np.log(np.maximum(distribution.probabilities, _TINY)) / sampling.temperature)
    order = np.argsort(-softened, kind="stable")
    cumulated = np.cumsum(softened[order])  # of p^(1/T), the most probable first
    kept = int(np.searchsorted(cumulated, min(sampling.top_p, 1.0))) + 1
    cumulated = cumulated[:kept]
    key = f"{sampling.seed}\x1f{sampling.repeat}\x1f{prompt.text}".encode()
    draw = random.Random(hashlib.blake2b(key, digest_size=16).digest()).random()
    return int(order[min(int(np.searchsorted(cumulated, draw * cumulated[-1], side="right")), len(cumulated) - 1)])


def entropy_of(distribution: Distribution) -> float:
    """Entropy in nats, with "none of these" counted as one more answer."""
    probabilities = np.append(distribution.probabilities, max(0.0, 1.0 - distribution.probabilities.sum()))
    kept = probabilities[probabilities > 0.0]
    return float(-(kept * np.log(kept)).sum())


def _as_tokens(text: str, probability: float, entropy: float, sampling: Sampling, tokens_in: int) -> Answer:
    """The answer word by word; each word has an equal part of log p(answer) and of the entropy, at any sampling
    temperature, as servers report it."""
    finish = "stop"
    for stop in filter(None, sampling.stop):
        text = text.split(stop, 1)[0]
    words = text.split()
    share = math.log(max(probability, _TINY)) / max(len(words), 1)
    entropy /= max(len(words), 1)
    if len(words) > sampling.max_tokens:
        words, finish = words[: sampling.max_tokens], "length"
        text = " ".join(words)
    return Answer(
        text,
        tokens=tuple(words),
        logprobs=(share,) * len(words),
        entropies=(entropy,) * len(words),
        finish=finish,
        tokens_in=tokens_in,
        tokens_out=len(words),
        model="offline",
    )
