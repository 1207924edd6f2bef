"""Whether an answer is right, and the published scores of answers: SQuAD EM and F1, ROUGE-L, BLEU.

Which option an answer names is found by `choices`, which open answers are the same by `open_answers`. Every score takes
texts and returns a float in [0, 1]; none needs an LLM.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from .choices import choice_of, option_of
from .open_answers import answer_key
from .words import words_in

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MTEVAL = (
    ("<skipped>", ""),
    ("-\n", ""),
    ("&quot;", '"'),
    ("&amp;", "&"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    (r"([{-~\[-` -&(-+:-@/])", r" \1 "),
    (r"([^0-9])([.,])", r"\1 \2 "),
    (r"([.,])([^0-9])", r" \1 \2"),
    (r"([0-9])(-)", r"\1 \2 "),
)
"""What mteval-v13a replaces, in this order, before it splits a text at its blanks."""


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
    return _best(_f1, lambda text: normalise(text).split(), answer, accepted)


def _best(
    score: Callable[[list[str], list[str]], float],
    tokens: Callable[[str], list[str]],
    answer: str,
    accepted: Sequence[str],
) -> float:
    """The score of the answer's tokens against the best accepted answer. Empty texts agree or do not."""
    given, references = tokens(answer), map(tokens, accepted)
    return max((score(given, r) if given and r else float(given == r) for r in references), default=0.0)


def _f1(given: list[str], wanted: list[str]) -> float:
    common = sum((Counter(given) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def rouge_l(answer: str, accepted: Sequence[str]) -> float:
    """ROUGE-L F-measure (Lin 2004, beta 1) against the best accepted answer, without stemming.

    The words are those of rouge-score, in any script: it drops all letters but a to z.
    """

    def words(text: str) -> list[str]:
        return words_in(unicodedata.normalize("NFKC", text).lower().replace("_", " "))

    return _best(_rouge_l, words, answer, accepted)


def _rouge_l(given: list[str], wanted: list[str]) -> float:
    """2 LCS / (|given| + |wanted|); the longest common subsequence by bits (Hyyrö 2004), 0 where it grew."""
    places: dict[str, int] = {}
    for i, token in enumerate(wanted):
        places[token] = places.get(token, 0) | 1 << i
    row = whole = (1 << len(wanted)) - 1
    for token in given:
        common = row & places.get(token, 0)
        row = (row + common | row - common) & whole
    return 2 * (len(wanted) - row.bit_count()) / (len(given) + len(wanted))


def bleu(answer: str, accepted: Sequence[str]) -> float:
    """Sentence BLEU-4 against the best accepted answer (Papineni et al. 2002), as sacrebleu's with one reference.

    The tokens are those of mteval-v13a, with their case. Orders longer than the answer are left out, and an order
    without a match counts half as much as the one without a match before it ("exponential" smoothing, Chen and Cherry
    2014, method 3).
    """
    return _best(_bleu, _mteval_tokens, answer, accepted)


def _mteval_tokens(text: str) -> list[str]:
    text = f" {text.rstrip()} "
    for pattern, by in _MTEVAL:
        text = re.sub(pattern, by, text)
    return text.split()


def _bleu(given: list[str], wanted: list[str]) -> float:
    logs, smooth = [], 1.0
    for n in range(1, min(4, len(given)) + 1):
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


def is_correct(answer: str, accepted: Sequence[str], options: Sequence[str] = ()) -> bool:
    """Right or wrong: the option it names is an accepted one, or the same answer to an open question."""
    if not options:
        given = answer_key(answer)
        return any(given == answer_key(reference) for reference in accepted)
    chosen = choice_of(answer, options)
    return chosen is not None and any(chosen == option_of(reference, options) for reference in accepted)


def accepted_options(options: Sequence[str], accepted: Sequence[str]) -> list[bool]:
    """Which of the options an LLM scores are accepted answers."""
    return [is_correct(option, accepted, options) for option in options]


def meaning(answer: str, options: Sequence[str] = ()) -> str:
    """A key that the same answers share, and only they: the option named, else `answer_key`."""
    chosen = choice_of(answer, options) if options else None
    return options[chosen] if chosen is not None else answer_key(answer)
