"""What a prompt's texts hold: sentences and how far each is trusted, possible answers, the answer type of a question.

Calibration rounds (paper 001) give documents, demonstrations and earlier answers scores s from 0 (certain) to 100. The
reader weights a document's or demonstration's evidence by 1 − DOUBT · s/100, and an earlier answer changes the logit of
that answer by EARLIER · (1 − s/50), with the mean s if it was given more than once. So it applies the scores by a fixed
rule: it shows how rounds run and what document scores can do, not whether an LLM can read them. An earlier answer
without a score has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Float32s, Float64s
from ...pool.prompts import EarlierAnswer, Prompt, documents_of
from ...pool.records import Query


class Evidence(NamedTuple):
    """A text of the prompt that an answer may come from, and its trust (1 full, 0 none)."""

    text: str
    weight: float = 1.0


class Sentence(NamedTuple):
    """One sentence of a document; ``title`` is the document's, empty if it has none."""

    text: str
    title: str = ""
    weight: float = 1.0

    @property
    def titled(self) -> str:
        """The form that is encoded: the title resolves "it" and "he"."""
        return f"{self.title}: {self.text}" if self.title else self.text


class AnswerSpan(NamedTuple):
    """A possible answer inside a sentence: characters ``start`` to ``end``; ``kind`` is a column of
    `reader.FIT`."""

    text: str
    kind: str
    start: int
    end: int


_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bJr\.)(?<!\bMrs\.)[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])"
)


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
WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
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
_LEADING = re.compile(r"^(?:the|a|an) +", re.IGNORECASE)
MAX_PHRASE_WORDS = 6


@lru_cache(maxsize=50_000)
def spans_of(text: str) -> tuple[AnswerSpan, ...]:
    """The possible answers inside one sentence, each stretch of text once, by the first rule that finds it."""
    spans: dict[tuple[int, int], AnswerSpan] = {}

    def add(start: int, end: int, kind: str) -> None:
        if lead := _LEADING.match(text[start:end]):
            start += lead.end()
        words = text[start:end].split()
        if words and not (len(words) == 1 and words[0].lower() in _STOP_WORDS):
            spans.setdefault((start, end), AnswerSpan(text[start:end], kind, start, end))

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
        head = text.rfind(" ", start, end) + 1
        if head and text[start].islower():  # "romantic comedy film": the type, and the thing
            add(start, head - 1, "phrase")
    return tuple(spans.values())


def _without_lead(text: str, start: int, end: int) -> tuple[int, int]:
    """A capitalised phrase without leading function words and years ("In 1906", "However")."""
    for word in WORD.finditer(text, start, end):
        if word.group().lower() not in _STOP_WORDS and not word.group()[0].isdigit():
            return word.start(), end
    return end, end


def _phrases(text: str) -> Iterable[tuple[int, int]]:
    """Runs of words without function words or punctuation between them (RAKE: Rose et al. 2010, 1.2.1)."""
    start, end, count = 0, 0, 0
    for word in WORD.finditer(text):
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
    """The answer type of a text, a column of `reader.FIT`: date, number, name or phrase."""
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
    """The answer type that a question asks for, a row of `reader.FIT`, from its question word."""
    return next((kind for kind, pattern in _ASKS if pattern.search(question)), "other")


def alternatives_of(question: str) -> tuple[str, ...]:
    """The two names of "..., A or B?"; empty for any other question."""
    match = _ALTERNATIVES.search(question)
    return match.groups() if match else ()


def is_polar(question: str) -> bool:
    """Whether a question is answered by yes or no."""
    return bool(_POLAR.match(question))


def stems_of(text: str) -> frozenset[str]:
    """The content words of a text, cut to six letters so that "directed" matches "director"."""
    return frozenset(w[:6] for w in (m.group().lower() for m in WORD.finditer(text)) if w not in _STOP_WORDS)


@lru_cache(maxsize=50_000)
def key_of(text: str) -> str:
    """The comparable form of a text, ignoring case and punctuation."""
    return " ".join(m.group() for m in WORD.finditer(text.lower().replace("_", " "))) or text.strip().lower()


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
    return np.asarray(np.exp((cosines.astype(np.float64) - 1.0) / WIDTH))


def softmax(logits: Float64s) -> Float64s:
    exponentials = np.exp(logits - logits.max())
    return np.asarray(exponentials / exponentials.sum())
