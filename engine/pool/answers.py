"""Whether an answer is right: options, normalised exact match, SQuAD EM and F1, ROUGE-L, BLEU.

Every function takes texts and returns a float in [0, 1]; none needs an LLM.
"""

from __future__ import annotations

import importlib
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import UsageError
from .prompts import letter_of

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LEAD = re.compile(
    r"^\s*(?:so\s+|therefore\s*,?\s+)?(?:the\s+)?(?:correct\s+|right\s+|best\s+|final\s+)?"
    r"(?:answer|option|choice|label)(?:\s+is)?\s*:?\s*(?:option\s+|choice\s+)?",
    re.IGNORECASE,
)
_MARK = re.compile(r"^\s*[(\[*\"']*\s*([A-Za-z]|\d{1,3})\s*(?:[)\].:*\"']+|$)")


def normalise(text: str) -> str:
    """SQuAD v1.1 normalisation: lower case, no punctuation, no articles, white space folded; Unicode NFKC first."""
    text = unicodedata.normalize("NFKC", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1.0 when the normalised answer equals a normalised accepted one (EM; "NEM" in paper 000)."""
    given = normalise(answer)
    return float(any(given == normalise(reference) for reference in accepted))


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """SQuAD token F1 against the best accepted answer; two empty texts count 1 (SQuAD 2.0)."""
    return max((_f1(normalise(answer).split(), normalise(r).split()) for r in accepted), default=0.0)


def _f1(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def rouge_l(answer: str, accepted: Sequence[str]) -> float:
    """ROUGE-L F-measure (Lin 2004, beta 1) against the best accepted answer, on normalised tokens."""
    return max((_rouge_l(normalise(answer).split(), normalise(r).split()) for r in accepted), default=0.0)


def _rouge_l(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    row = [0] * (len(wanted) + 1)  # longest common subsequence, one row of the table at a time
    for token in given:
        diagonal = 0
        for j, other in enumerate(wanted, 1):
            diagonal, row[j] = row[j], diagonal + 1 if token == other else max(row[j], row[j - 1])
    common = row[-1]
    return 2 * common / (len(given) + len(wanted))


def bleu(answer: str, accepted: Sequence[str]) -> float:
    """Sentence BLEU-4 against the best accepted answer, on normalised tokens (Papineni et al. 2002).

    As sacrebleu's sentence score: orders longer than the answer are left out, and an order without a match counts half
    as much as the one without a match before it ("exponential" smoothing, Chen and Cherry 2014, method 3).
    """
    return max((_bleu(normalise(answer).split(), normalise(r).split()) for r in accepted), default=0.0)


def _bleu(given: list[str], wanted: list[str], orders: int = 4) -> float:
    if not given or not wanted:
        return float(given == wanted)
    logs, smooth = [], 1.0
    for n in range(1, min(orders, len(given)) + 1):
        mine, theirs = _phrases(given, n), _phrases(wanted, n)
        common, total = sum((mine & theirs).values()), sum(mine.values())
        if not common:
            if n == 1:
                return 0.0
            smooth *= 2
        logs.append(math.log((common or 1 / smooth) / total))
    brevity = min(0.0, 1 - len(wanted) / len(given))
    return math.exp(brevity + sum(logs) / len(logs))


def _phrases(words: list[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + length]) for i in range(len(words) - length + 1))


Score = Callable[[str, Sequence[str]], float]
SCORES: Mapping[str, Score] = {"f1": token_f1, "rouge-l": rouge_l, "bleu": bleu}


@dataclass(frozen=True, slots=True)
class Metric:
    """Which answers are right: those whose ``score`` (answer, accepted answers) is at least ``least``; without a score,
    `is_correct`."""

    name: str = "accuracy"
    score: Score | None = None
    least: float = 1.0

    def right(self, answer: str, accepted: Sequence[str], options: Sequence[str] = ()) -> bool:
        if self.score is None:
            return is_correct(answer, accepted, options)
        return self.score(answer, accepted) >= self.least


ACCURACY = Metric()


def metric_named(name: str, least: float) -> Metric:
    """A metric by name: accuracy, f1, rouge-l, bleu, or ``module:function`` of the user's own, which is imported and
    called with an answer and the accepted answers. Raises `UsageError` if there is no such function."""
    if name == "accuracy":
        return ACCURACY
    if ":" not in name:
        if name not in SCORES:
            raise UsageError(f"unknown metric '{name}'", f"use accuracy, {', '.join(SCORES)} or module:function")
        return Metric(name, SCORES[name], least)
    module, _, function = name.partition(":")
    try:
        own = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"no metric {name}: {error}", "set PYTHONPATH to the folder of the module") from error
    if not callable(own):
        raise UsageError(f"{name} is not a function", "give module:function")
    return Metric(name, lambda answer, accepted: _number(name, own(answer, list(accepted))), least)


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{name} returned {value!r}", "return a number for (answer, accepted answers)")
    return float(value)


def choice_of(answer: str, options: Sequence[str]) -> int | None:
    """The option that a free answer names, by text or by letter; accepts ``(B)``, ``B.``, ``the answer is B``.

    Text takes precedence over the letter (an option may be the word "a"). An answer that names two options as whole
    phrases names none, unless one contains the other. Returns the option's index or None.
    """
    folded = _folded(tuple(options))
    lines = answer.strip().splitlines()
    first = _LEAD.sub("", lines[0]) if lines else ""
    given = _fold(first)
    if given in folded:
        return folded.index(given)
    if mark := _MARK.match(first):
        marks = [letter_of(i).lower() for i in range(len(options))]
        rest = _fold(first[mark.end() :])
        if mark[1].lower() in marks and (not rest or rest == folded[marks.index(mark[1].lower())]):
            return marks.index(mark[1].lower())
    named = [i for i, option in enumerate(folded) if option and _holds(given, option)]
    # "new york city" also holds "new york": keep the longest of nested names
    named = [i for i in named if not any(i != j and _holds(folded[j], folded[i]) for j in named)]
    return named[0] if len(named) == 1 else None


def meaning(answer: str, options: Sequence[str] = ()) -> str:
    """A key that equivalent answers share: the option named, else the normalised text."""
    chosen = choice_of(answer, options) if options else None
    return options[chosen] if chosen is not None else normalise(answer)


@lru_cache(maxsize=64)
def _folded(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options as `_fold` has them, kept: the answers to many queries are read against the same labels."""
    return tuple(map(_fold, options))


def _fold(text: str) -> str:
    """Normalised for comparing option names: ``card_arrival`` and ``card arrival`` are equal, "a" is kept."""
    return normalise(re.sub(r"[_\-/]", " ", text)) or text.strip().lower()


def _holds(text: str, phrase: str) -> bool:
    return f" {phrase} " in f" {text} "


def is_correct(answer: str, accepted: Sequence[str], options: Sequence[str] = ()) -> bool:
    """Right or wrong: the named option among the accepted ones, or exact match for an open question."""
    if not options:
        return bool(exact_match(answer, accepted))
    choice = choice_of(answer, options)
    return choice is not None and bool(exact_match(options[choice], accepted))
