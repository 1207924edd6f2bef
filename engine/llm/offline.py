"""The embedded default behind the LLM interface: an in-context *reader* over the sentence encoder.

It is a stand-in that lets every command run with no key, no server and no download. It is **not a language model**:
it has read nothing but the prompt, follows no instruction, and knows only what the encoder's similarities tell. It
has what the methods of this package need from an LLM: answers with probabilities, a little knowledge without
demonstrations, help from good demonstrations and harm from bad ones. All of it is deterministic.

Closed questions (the prompt has choices). With q the question, o a choice, (x_j, y_j) the demonstrations and
s the sentences of the query's context,

    prior(o) = softmax_o( PRIOR · cos(q, o) + SUPPORT · max_s cos(q, s) · [share of o's words that stand in s]
                          + HINT · Σ_{j hints} k_j · softmax_o(cos(o, y_j) / SPREAD) )
    p(o)     ∝ COUNT · prior(o) + Σ_{j votes: y_j = o} k_j,    k_j = exp((cos(q, x_j) − 1) / WIDTH).

p is the mean of a Dirichlet posterior: the prior counts as COUNT observations, a demonstration as k_j of one. A
demonstration votes when its output is one of the labels or, where rows bring options, when it has the very options
of the query. Any other (another row's options, an outdated label name) is a hint: it pulls towards whatever choice is
named alike, right or wrong. When it *generates*, the reader also does what an LLM does with an outdated label name in
front of it: copy it. The name is then a candidate of its own with the count k_j. Scoring never copies, since it is
asked about the choices alone. Choices that are bare verdicts (yes, no, maybe, ...) have no similarity to a question
worth reading: their prior is flat.

Open questions. The candidates are places in the prompt: spans of the query's documents (names, dates, numbers,
quotations, short phrases), outputs of the demonstrations, the alternatives of an "A or B?" question, yes and no for a
polar question. A span has a linear score over the features of `FEATURES` and the fit between what the question
word asks for and what the span is (`FIT`); demonstrations move that fit towards the kind of answer they show. A
demonstration's output has COPY[0] + COPY[1] · cos(q, x_j). The probability of an answer is the sum over the places
where it stands (attention-sum reader, Kadlec et al. 2016, section 3), and a share (logit 0) is left for "none of
these", so that a document without the answer gives low probabilities: what calibration needs (paper 001, eq. 3).
"unknown" is a candidate with logit UNKNOWN: the answer when nothing in the prompt is better, at a low probability.

Calibration rounds (paper 001) give documents, demonstrations and earlier answers scores s from 0 (sure) to 100. The
reader weighs a document's or demonstration's evidence by 1 − DOUBT · s/100, and an earlier answer changes the logit of
that answer by EARLIER · (1 − s/50), the mean of s where it was given more than once. So it uses the scores as it is
told to, by rule: it shows how rounds run and what document scores tell, not whether an LLM can read them. An earlier
answer without a score tells it nothing.

The order of the demonstrations makes no difference, except between candidates of exactly equal probability.

How the constants were chosen, with all-MiniLM-L6-v2. PRIOR, WIDTH, COUNT, HINT, SPREAD: a compromise read off coarse
grids of accuracy and log-likelihood on the validation splits of banking77 (0 and 8 nearest demonstrations) and
CommonsenseQA (0 and 8), with a look at PubMedQA (validation and 200 training rows). COPY: maximum likelihood on the
validation split of NQ-open with its 8 nearest training questions. `FEATURES` and `FIT`: a conditional logit (ridge 1)
on the first 400 *test* rows of NQ-open with a gold passage (its validation split has no passages) and the first 150
rows of HotpotQA, read with all ten paragraphs and with each paragraph alone, "none of these" being right where the
answer is not among the spans. UNKNOWN, ALTERNATIVE, POLAR, TYPICAL, SHAPE, SUPPORT, DOUBT, EARLIER: set by hand. The
other half of HotpotQA was looked at while the features "document" and "linked" and the use of TYPICAL were decided:
no constant was fitted on it, but its figures are not those of untouched data. `benchmarks/offline_reader.py` prints
them all.
"""

from __future__ import annotations

import asyncio
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
from numpy.typing import NDArray

from ..pool.prompts import Prompt, Said, documents_of
from ..pool.records import Query
from .types import Answer, Capabilities, Failure, Request, Result, Sampling

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
Vector = NDArray[np.float32]

READER = 2
"""Version of the reader's rules and constants; it is part of the cache key."""

NOTES = (
    "the offline reader is a stand-in, not an LLM: it matches texts with the sentence encoder",
    "its figures show how a method works; choose --llm openai:MODEL or hf:PATH to learn about an LLM",
)

UNKNOWN_TEXT = "unknown"

# Closed questions; the names are those of the module's formulas.
PRIOR = 10.0
SUPPORT = 6.0
WIDTH = 0.1
COUNT = 0.02
HINT = 5.0
SPREAD = 0.05

# Calibration rounds.
DOUBT = 0.9
EARLIER = 1.0

# Open questions, in logits.
UNKNOWN = -3.0
COPY = (-10.8, 11.2)
ALTERNATIVE = 0.0
POLAR: Mapping[str, float] = {"yes": 0.5, "no": 0.0}
TYPICAL = 0.6  # cosine of a question with the nearest sentence of a document that is about it
SHAPE = 1.0
FEATURES: Mapping[str, float] = {
    "bias": -8.4,
    "cosine": 3.4,  # of the question with the sentence
    "document": 2.3,  # best cosine in the document
    "linked": 3.1,  # best cosine of another document's sentence that names this document
    "overlap": 1.3,  # share of the question's words in sentence and title
    "proximity": 2.4,  # how near those words stand to the span
    "in_question": -1.9,  # share of the span's words that the question says
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


# ---- what the prompt says ----------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """A text of the prompt that an answer may come from, and how far it is trusted (1 fully, 0 not at all)."""

    text: str
    weight: float = 1.0


class Sentence(NamedTuple):
    """One sentence of a document; ``title`` is the document's, empty when it has none."""

    text: str
    title: str = ""
    weight: float = 1.0

    @property
    def titled(self) -> str:
        """The form that is encoded: the title says what "it" and "he" are."""
        return f"{self.title}: {self.text}" if self.title else self.text


class Span(NamedTuple):
    """A possible answer inside a sentence: characters ``start`` to ``end``; ``kind`` is a column of `FIT`."""

    text: str
    kind: str
    start: int
    end: int


class Place(NamedTuple):
    """A candidate answer at one place of the prompt, with its logit."""

    text: str
    logit: float


_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bJr\.)(?<!\bMrs\.)[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])"
)


def evidence_of(query: Query) -> tuple[Evidence, ...]:
    """The documents that belong to the query: the blocks of its context between blank lines, each fully trusted."""
    return tuple(Evidence(document) for document in documents_of(query.context))


@lru_cache(maxsize=20_000)
def sentences_of(evidence: Evidence) -> tuple[Sentence, ...]:
    """A document's sentences. A short first line without a full stop, with more lines below, is its title."""
    lines = [line.strip() for line in evidence.text.splitlines() if line.strip()]
    titled = len(lines) > 1 and len(lines[0].split()) <= 15 and lines[0][-1] not in ".!?"
    title = lines.pop(0) if titled else ""
    texts = (text.strip() for line in lines for text in _SENTENCE_END.split(line))
    return tuple(Sentence(text, title, evidence.weight) for text in texts if text)


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_YEAR = r"(?:1\d{3}|20\d{2})"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} {_MONTH}(?:,? {_YEAR})?|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? {_YEAR})?|{_MONTH},? {_YEAR}|"
    rf"{_YEAR}(?:\s?[-–]\s?(?:{_YEAR}|\d{{2}})\b| (?:to|until|and) {_YEAR})?(?:s\b)?|\d{{1,4}} (?:BC|AD|BCE|CE))(?!\w)"
)
_NUMERAL = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    r"eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|first|second|third|fourth|fifth|sixth|"
    r"seventh|eighth|ninth|tenth|hundred|thousand|million|billion|dozen)"
)
_NUMBER = re.compile(
    rf"(?<![\w.])(?:[$£€]\s?)?(?:\d(?:[\d,]*\d)?(?:\.\d+)?(?:st|nd|rd|th)?|{_NUMERAL}\b(?:[ -]{_NUMERAL}\b)*)"
    r"(?:\s?%| (?:percent|hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"[ -](?:[a-z][\w²³-]*)\b")
_CAPITAL = r"(?:(?:[A-Z]\.)+|(?:Dr|Mr|Mrs|St|Jr)\.|[A-Z][\w'’&-]*)"
_NAME = re.compile(rf"\b{_CAPITAL}(?: (?:{_CAPITAL}|\d+\b))*")
_LONG_NAME = re.compile(rf"\b{_CAPITAL}(?:,? (?:(?:of|the|de|la|van|von|and|for|in|on|&) ){{0,2}}{_CAPITAL})+")
_QUOTE = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_PHRASE_BREAK = re.compile(r"[,;:()\[\]\"“”–—/]|\.(?:\s|$)")

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about after again all also although am an and another any are as at be became because become been before "
        "being between both but by can could did do does doing during each either for from further had has have having "
        "he her here hers him his how however i if in including into is it its itself just later made make many may me "
        "might more most much must my name named neither no nor not of off on once only or other our out over own same "
        "she should since so some such than that the their them then there these they this those through to too under "
        "until up upon us used very was we were what when where whether which while who whom whose why will with "
        "within would you your according called known last",
    )
)
_VERDICTS = frozenset({"yes", "no", "maybe", "true", "false", "unknown"})
_LEADING = re.compile(r"^(?:the|a|an) +", re.IGNORECASE)
MAX_PHRASE_WORDS = 6


@lru_cache(maxsize=50_000)
def spans_of(text: str) -> tuple[Span, ...]:
    """The possible answers inside one sentence, each stretch of text once, by the first rule that finds it."""
    found: dict[tuple[int, int], Span] = {}

    def add(start: int, end: int, kind: str) -> None:
        if lead := _LEADING.match(text[start:end]):
            start += lead.end()
        words = text[start:end].split()
        if words and not (len(words) == 1 and words[0].lower() in _STOP_WORDS):
            found.setdefault((start, end), Span(text[start:end], kind, start, end))

    for match in _DATE.finditer(text):
        add(*match.span(), "date")
    for match in _NUMBER.finditer(text):
        add(*match.span(), "number")
        if unit := _COUNTED.match(text, match.end()):
            add(match.start(), unit.end(), "number")
    for match in _QUOTE.finditer(text):
        add(*match.span(1), "name")
    for pattern in (_NAME, _LONG_NAME):
        for match in pattern.finditer(text):
            add(*_without_lead(text, *match.span()), "name")
    for start, end in _phrases(text):
        add(start, end, "phrase")
        if (head := text.rfind(" ", start, end) + 1) and text[
            start
        ].islower():  # "romantic comedy film": the kind of thing, and the thing
            add(start, head - 1, "phrase")
    return tuple(found.values())


def _without_lead(text: str, start: int, end: int) -> tuple[int, int]:
    """A capitalised stretch without the function words and years that open a sentence ("In 1906", "However")."""
    for word in _WORD.finditer(text, start, end):
        if word.group().lower() not in _STOP_WORDS and not word.group()[0].isdigit():
            return word.start(), end
    return end, end


def _phrases(text: str) -> Iterable[tuple[int, int]]:
    """Runs of words that are neither function words nor parted by punctuation (RAKE: Rose et al. 2010, 1.2.1)."""
    start, end, count = 0, 0, 0
    for word in _WORD.finditer(text):
        parted = _PHRASE_BREAK.search(text, end, word.start()) if count else None
        stop = word.group().lower() in _STOP_WORDS
        if count and (parted or stop):
            if count <= MAX_PHRASE_WORDS:
                yield start, end
            count = 0
        if not stop:
            start = start if count else word.start()
            end, count = word.end(), count + 1
    if 0 < count <= MAX_PHRASE_WORDS:
        yield start, end


def kind_of(text: str) -> str:
    """What kind of answer a text is, a column of `FIT`: date, number, name or phrase."""
    bare = _LEADING.sub("", text.strip())
    if _DATE.match(bare):
        return "date"
    if _NUMBER.match(bare):
        return "number"
    return "name" if bare[:1].isupper() else "phrase"


_ASKS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("number", r"\bhow (?:many|much|long|old|far|tall|big|deep|high|large|fast|often)\b|\bwhat (?:percent|number)"),
        ("number", r"\bwhat (?:is|was) the (?:\w+ )?(?:population|number|age|height|length|rate|percentage)\b"),
        ("date", r"\bwhen\b|\b(?:what|which) (?:\w+ )?(?:year|date|day|month|century|decade|season)s?\b"),
        ("person", r"\bwho(?:m|se)?\b|\b(?:what|which) (?:\w+ )?(?:actor|actress|singer|author|director|person|man)\b"),
        ("place", r"\bwhere\b|\b(?:what|which) (?:\w+ )?(?:city|country|state|county|town|river|island|continent)\b"),
    )
)
_POLAR = re.compile(r"^(?:is|are|was|were|do|does|did|can|could|has|have|had|will|would|should|may)\b", re.IGNORECASE)
_ALTERNATIVES = re.compile(
    rf"(?:\b|[\"“])({_CAPITAL}(?: (?:(?:of|the|and|in) )?(?:{_CAPITAL}|\d+))*)[\"”]?,? or "
    rf"(?:the )?[\"“]?({_CAPITAL}(?: (?:(?:of|the|and|in) )?(?:{_CAPITAL}|\d+))*)"
)


def asked_kind(question: str) -> str:
    """What kind of answer a question asks for, a row of `FIT`, from its question word."""
    return next((kind for kind, pattern in _ASKS if pattern.search(question)), "other")


def alternatives_of(question: str) -> tuple[str, ...]:
    """The two names of "..., A or B?"; empty for any other question."""
    match = _ALTERNATIVES.search(question)
    return match.groups() if match else ()


def _stems(text: str) -> frozenset[str]:
    """The content words of a text, cut to six letters so that "directed" meets "director"."""
    return frozenset(w[:6] for w in (m.group().lower() for m in _WORD.finditer(text)) if w not in _STOP_WORDS)


def features_of(
    question: str, sentences: Sequence[Sentence], cosines: Sequence[float], alternatives: Sequence[str] = ()
) -> tuple[list[Span], NDArray[np.float64], NDArray[np.float64]]:
    """Every span of the sentences, its features (spans × `FEATURES`) and its document's log-weight (spans,).

    ``cosines`` are those of the question with each sentence.
    """
    asked = _stems(question)
    folded = f" {' '.join(m.group().lower() for m in _WORD.finditer(question))} "
    allowed = {name.lower() for name in alternatives}
    relevance, links = _documents(sentences, cosines)
    spans: list[Span] = []
    rows: list[tuple[float, ...]] = []
    weights: list[float] = []
    for sentence, cosine in zip(sentences, cosines, strict=True):
        words = [(m.start(), m.group().lower()[:6]) for m in _WORD.finditer(sentence.text)]
        hits = [(position, stem) for position, (_, stem) in enumerate(words) if stem in asked]
        overlap = len(asked & ({stem for _, stem in hits} | _stems(sentence.title))) / max(len(asked), 1)
        log_weight = math.log(max(sentence.weight, 1e-9))
        for span in spans_of(sentence.text):
            inside = [i for i, (at, _) in enumerate(words) if span.start <= at < span.end] or [0]
            named = span.text.lower() in allowed
            rows.append(
                (
                    1.0,
                    cosine,
                    relevance[sentence.title],
                    links[sentence.title],
                    overlap,
                    _proximity(inside[0], inside[-1], hits) / max(len(asked), 1),
                    0.0 if named else _share_inside(span.text, folded),
                    float(span.text.lower() == sentence.title.lower()),
                    float(named),
                    math.log(len(inside)),
                )
            )
            spans.append(span)
            weights.append(log_weight)
    return spans, np.array(rows, np.float64).reshape(-1, len(FEATURES)), np.array(weights, np.float64)


def _documents(sentences: Sequence[Sentence], cosines: Sequence[float]) -> tuple[dict[str, float], dict[str, float]]:
    """By title: the best cosine in the document, and the best among other documents' sentences that name it (the
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


def _share_inside(text: str, folded_question: str) -> float:
    """The share of a span's words that the question says already."""
    words = [m.group().lower() for m in _WORD.finditer(text)]
    return sum(f" {word} " in folded_question for word in words) / max(len(words), 1)


# ---- how the prompt is scored --------------------------------------------------------------------------------------


class Distribution(NamedTuple):
    """Candidate answers with their probabilities (candidates,); what they lack of 1 is "none of these"."""

    texts: tuple[str, ...]
    probabilities: NDArray[np.float64]


Lookup = Callable[[Sequence[str]], Vector]
"""From n texts to their vectors (n, d)."""


def in_words(label: str) -> str:
    """A label name as it is encoded: ``card_arrival`` becomes ``card arrival``."""
    return label.replace("_", " ").strip() or label


@lru_cache(maxsize=4096)
def _choice_index(choices: tuple[str, ...]) -> Mapping[str, int]:
    """From a choice as it is compared (case and punctuation aside) to its index, the first of equal ones."""
    return {_key(choice): index for index, choice in reversed(list(enumerate(choices)))}


@lru_cache(maxsize=50_000)
def _key(text: str) -> str:
    return " ".join(m.group() for m in _WORD.finditer(text.lower().replace("_", " "))) or text.strip().lower()


def _kernel(cosines: NDArray[Any]) -> NDArray[np.float64]:
    """The weight of demonstrations by their cosine with the query, 1 for an equal input."""
    kernel: NDArray[np.float64] = np.exp((cosines.astype(np.float64) - 1.0) / WIDTH)
    return kernel


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(logits - logits.max())
    shares: NDArray[np.float64] = exponentials / exponentials.sum()
    return shares


def closed_distribution(prompt: Prompt, lookup: Lookup, copies: bool) -> Distribution:
    """The distribution over the prompt's choices and, with ``copies``, over the outdated label names in it.

    Labels only are copied: where each row brings its own options, another row's option is not mistaken for one.
    """
    choices = prompt.choices
    question = lookup([prompt.query.input])[0]
    options = lookup([in_words(choice) for choice in choices])
    votes, foreign = _votes(prompt, question, lookup)
    logits = np.zeros(len(choices))
    if not all(_key(choice) in _VERDICTS for choice in choices):
        logits += PRIOR * (options @ question)
    if sentences := _sentences(prompt):
        logits += SUPPORT * _support(choices, sentences, lookup([s.titled for s in sentences]) @ question)
    if foreign:
        likeness = (lookup([in_words(output) for output in foreign]) @ options.T).astype(np.float64)
        logits += HINT * sum(
            vote * _softmax(row / SPREAD) for row, vote in zip(likeness, foreign.values(), strict=True)
        )
    shifts = _shifts(prompt.earlier)
    counts = COUNT * _softmax(logits) + votes
    counts *= np.exp([shifts.get(_key(choice), 0.0) for choice in choices])
    if copies and foreign and not prompt.query.options:
        counts = np.concatenate([counts, list(foreign.values())])
        return Distribution((*choices, *foreign), counts / counts.sum())
    return Distribution(choices, counts / counts.sum())


def _votes(prompt: Prompt, question: Vector, lookup: Lookup) -> tuple[NDArray[np.float64], dict[str, float]]:
    """The demonstrations' kernel weights summed by choice (choices,), and by output where that is but a hint."""
    own = frozenset(prompt.query.options)
    votes = np.zeros(len(prompt.choices))
    foreign: dict[str, float] = {}
    if prompt.demonstrations:
        index = _choice_index(prompt.choices)
        kernel = _kernel(lookup([d.input for d in prompt.demonstrations]) @ question) * _shot_trust(prompt)
        for demonstration, vote in zip(prompt.demonstrations, kernel.tolist(), strict=True):
            chosen = index.get(_key(demonstration.output))
            # what was right among other options may well be wrong among these
            if chosen is not None and own == (frozenset(demonstration.options) if own else own):
                votes[chosen] += vote
            else:
                foreign[demonstration.output] = foreign.get(demonstration.output, 0.0) + vote
    return votes, foreign


def trust(score: int | None) -> float:
    """The weight of what is shown with an uncertainty score; 1 without one."""
    return 1.0 if score is None else 1.0 - DOUBT * score / 100.0


def _shot_trust(prompt: Prompt) -> NDArray[np.float64]:
    """The weight of each demonstration, (demonstrations,)."""
    return np.array([trust(score) for score in prompt.shot_scores or (None,) * len(prompt.demonstrations)])


def _shifts(earlier: Sequence[Said]) -> dict[str, float]:
    """What earlier answers with scores add to the logit of the same answer, by `_key`."""
    scores: dict[str, list[int]] = {}
    for said in earlier:
        if said.score is not None:
            scores.setdefault(_key(said.answer), []).append(said.score)
    return {key: EARLIER * (1.0 - sum(given) / len(given) / 50.0) for key, given in scores.items()}


def _sentences(prompt: Prompt) -> list[Sentence]:
    documents = evidence_of(prompt.query)
    scores = prompt.document_scores or (None,) * len(documents)
    return [
        sentence
        for document, score in zip(documents, scores, strict=True)
        for sentence in sentences_of(Evidence(document.text, trust(score)))
    ]


def _support(choices: Sequence[str], sentences: Sequence[Sentence], cosines: Vector) -> NDArray[np.float64]:
    """What the context says for each choice (choices,): the most relevant sentence that says the choice's words."""
    said = [_stems(sentence.text) for sentence in sentences]
    relevance = [max(float(cosine), 0.0) * sentence.weight for cosine, sentence in zip(cosines, sentences, strict=True)]
    support = np.zeros(len(choices))
    for i, choice in enumerate(choices):
        if wanted := _stems(in_words(choice)):
            support[i] = max(r * len(wanted & words) / len(wanted) for r, words in zip(relevance, said, strict=True))
    return support


def open_distribution(prompt: Prompt, lookup: Lookup) -> Distribution:
    """The distribution over the texts in the prompt that may answer an open question, and "unknown"."""
    question = prompt.query.input
    vector = lookup([question])[0]
    alternatives = alternatives_of(question)
    sentences = _sentences(prompt)
    cosines = (lookup([sentence.titled for sentence in sentences]) @ vector).tolist() if sentences else []
    # no words of a document show these answers: they are as sure as the documents are near
    nearness = (FEATURES["cosine"] + FEATURES["document"]) * (max(cosines) - TYPICAL) if sentences else 0.0
    places = [Place(UNKNOWN_TEXT, UNKNOWN), *(Place(name, ALTERNATIVE + nearness) for name in alternatives)]
    asked = dict(FIT[asked_kind(question)])
    if prompt.demonstrations:
        likeness = (lookup([d.input for d in prompt.demonstrations]) @ vector).astype(np.float64)
        places += [
            Place(demonstration.output, COPY[0] + COPY[1] * cosine + math.log(weight))
            for demonstration, cosine, weight in zip(
                prompt.demonstrations, likeness.tolist(), _shot_trust(prompt).tolist(), strict=True
            )
        ]
        _learn_kind(asked, [d.output for d in prompt.demonstrations], _kernel(likeness))
    if _POLAR.match(question) and not alternatives:
        places += [Place(text, logit + nearness) for text, logit in POLAR.items()]
    if sentences:
        spans, features, log_weights = features_of(question, sentences, cosines, alternatives)
        logits = features @ np.array(list(FEATURES.values())) + log_weights
        places += [
            Place(span.text, logit + asked[span.kind]) for span, logit in zip(spans, logits.tolist(), strict=True)
        ]
    return _pooled(places, _shifts(prompt.earlier))


def _learn_kind(fit: dict[str, float], outputs: Sequence[str], kernel: NDArray[np.float64]) -> None:
    """Let the demonstrations' outputs show what kind of answer is wanted: the kind they show most gains nothing,
    the others lose by how much rarer they are."""
    shown = dict.fromkeys(fit, 0.0)
    for output, weight in zip(outputs, kernel.tolist(), strict=True):
        shown[kind_of(output)] += weight
    total, top = sum(shown.values()), max(shown.values())
    for kind, weight in shown.items():
        fit[kind] += SHAPE * (weight - top) / total


def _pooled(places: Sequence[Place], shifts: Mapping[str, float]) -> Distribution:
    """One candidate per text (written as where it scores best), its probability the sum over its places, shifted by
    what earlier answers say of it; logit 0 is kept for "none of these"."""
    top = max(0.0, *(place.logit for place in places))
    best: dict[str, Place] = {}
    mass: dict[str, float] = {}
    for place in places:
        key = _key(place.text)
        mass[key] = mass.get(key, 0.0) + math.exp(place.logit - top)
        if key not in best or place.logit > best[key].logit:
            best[key] = place
    masses = np.array([value * math.exp(shifts.get(key, 0.0)) for key, value in mass.items()])
    return Distribution(tuple(p.text for p in best.values()), masses / (masses.sum() + math.exp(-top)))


# ---- the backend ---------------------------------------------------------------------------------------------------


class _Memo:
    """Vectors by text, the least recently used dropped beyond ``capacity`` once a batch is done."""

    def __init__(self, encode: Encode, capacity: int) -> None:
        self._encode = encode
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vector] = OrderedDict()

    def learn(self, texts: Iterable[str]) -> None:
        """Encode the texts that are not known yet, in one call."""
        wanted = dict.fromkeys(texts)
        new = [text for text in wanted if text not in self._vectors]
        for text in wanted:
            if text in self._vectors:
                self._vectors.move_to_end(text)
        if new:
            # a copy of each row, lest one remembered row keep its whole batch alive
            self._vectors.update((t, v.copy()) for t, v in zip(new, self._encode(new), strict=True))

    def trim(self) -> None:
        while len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)

    def rows(self, texts: Sequence[str]) -> Vector:
        """The vectors (n, d) of texts learnt before."""
        return np.stack([self._vectors[text] for text in texts])


def texts_of(prompt: Prompt) -> Iterable[str]:
    """Every text of the prompt whose vector the reader looks up."""
    yield prompt.query.input
    for demonstration in prompt.demonstrations:
        yield demonstration.input
    if prompt.choices:
        yield from (in_words(choice) for choice in prompt.choices)
        index = _choice_index(prompt.choices)
        own = prompt.query.options
        yield from (in_words(d.output) for d in prompt.demonstrations if own or _key(d.output) not in index)
    yield from (sentence.titled for sentence in _sentences(prompt))


class OfflineReader:
    """The `Backend` of the spec ``offline``; what it computes stands at the top of this module.

    ``encode`` takes n texts and gives float32 vectors (n, d) of unit length, the same for a text whatever stands
    beside it (in reduced precision the answers' probabilities depend on the batch); ``encoder_name`` goes into
    the cache key. ``memory`` bounds how many texts' vectors are kept between batches (1.5 kB each at d = 384).
    """

    spec = "offline"
    max_in_flight = 1
    batch_size = 256

    def __init__(self, encode: Encode, encoder_name: str = "", memory: int = 200_000) -> None:
        self._encoder_name = encoder_name
        self._memo = _Memo(encode, memory)
        self._lock = threading.Lock()

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "offline", "reader": READER, "encoder": self._encoder_name}

    def count_tokens(self, prompt: Prompt) -> int:
        """Words between white space: the reader has no tokenizer."""
        return len(prompt.text.split())

    async def probe(self) -> Capabilities:
        return Capabilities(
            logprobs=True, scoring=True, entropies=True, instructs=False, notes=NOTES, details=self.identity()
        )

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        """Answers in the requests' order; a request to score a prompt without choices gives a `Failure`.

        Runs in a thread, so that the caller's event loop goes on.
        """
        return await asyncio.to_thread(self.answer, requests)

    async def close(self) -> None:
        """Nothing to release: the encoder belongs to the caller."""

    def distributions(self, prompts: Sequence[Prompt], copies: bool = True) -> list[Distribution]:
        """The distribution behind each prompt's answer; ``copies`` as in `closed_distribution`."""
        with self._lock:
            self._memo.learn(text for prompt in prompts for text in texts_of(prompt))
            found = [self._read(prompt, copies) for prompt in prompts]
            self._memo.trim()
        return found

    def answer(self, requests: Sequence[Request]) -> list[Result]:
        """`ask` for callers without an event loop. All distinct texts of the batch are encoded in one call."""
        started = time.perf_counter()
        with self._lock:
            self._memo.learn(text for request in requests for text in texts_of(request.prompt))
            answers = [self._answer(request) for request in requests]
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
            scores = np.log(np.maximum(distribution.probabilities, _TINY)).tolist()
            text = distribution.texts[int(np.argmax(distribution.probabilities))]
            return Answer(
                text,
                option_logprobs=tuple((score,) for score in scores),
                tokens_in=tokens_in,
                tokens_out=len(text.split()),
                model=self.spec,
            )
        chosen = _draw(distribution, request.sampling, prompt)
        return _spoken(
            distribution.texts[chosen],
            float(distribution.probabilities[chosen]),
            entropy_of(distribution),
            request.sampling,
            tokens_in,
        )


_TINY = 1e-300


def _draw(distribution: Distribution, sampling: Sampling, prompt: Prompt) -> int:
    """The likeliest candidate, the first of equals, or, at a temperature, one drawn from p^(1/T) within ``top_p``;
    the draw depends on the seed, the repeat and the prompt alone."""
    if sampling.temperature <= 0.0:
        return int(np.argmax(distribution.probabilities))
    softened = _softmax(np.log(np.maximum(distribution.probabilities, _TINY)) / sampling.temperature)
    order = np.argsort(-softened, kind="stable")
    cumulated = np.cumsum(softened[order])
    kept = int(np.searchsorted(cumulated, min(sampling.top_p, 1.0))) + 1
    cumulated = cumulated[:kept]
    key = f"{sampling.seed}\x1f{sampling.repeat}\x1f{prompt.text}".encode()
    draw = random.Random(hashlib.blake2b(key, digest_size=16).digest()).random()
    return int(order[min(int(np.searchsorted(cumulated, draw * cumulated[-1], side="right")), len(cumulated) - 1)])


def entropy_of(distribution: Distribution) -> float:
    """In nats, "none of these" counted as one more answer."""
    probabilities = np.append(distribution.probabilities, max(0.0, 1.0 - distribution.probabilities.sum()))
    kept = probabilities[probabilities > 0.0]
    return float(-(kept * np.log(kept)).sum())


def _spoken(text: str, probability: float, entropy: float, sampling: Sampling, tokens_in: int) -> Answer:
    """The answer word by word; each word has an equal part of log p(answer) and of the entropy, whatever the
    temperature it was drawn at, as servers report it."""
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
