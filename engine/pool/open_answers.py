"""Open answers: which texts are the same answer.

Words are folded as SQuAD folds them. What tells answers apart is not: numbers are compared as numbers, operators are
words of their own, a token with a digit keeps its inside, and an answer in JSON is compared as JSON.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import Any

_THOUGHT = re.compile(r".*</(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE | re.DOTALL)
_THINKS = re.compile(r"<(?:think|thinking|thought|reasoning)\b[^<>]*>", re.IGNORECASE)
_OPENED = re.compile(rf"{_THINKS.pattern}\s*\Z", re.IGNORECASE)
_FENCE = re.compile(r"(?:[^\n]*:[ \t]*\n\s*)?(`{3,}+|~{3,}+)[^\n`]*\n")
_MARKED = re.compile(r"####[ \t]*([^\n]+)|\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_TOLD = re.compile(
    r".*(?:[.!?:\n][^\S\n]*|\b(?:so|thus|hence|therefore),?\s+)[*_]*the\s+(?:final\s+|correct\s+)?answer\s+is\b\s*:?"
    r"([^\n]++)\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
"""The last such sentence: an earlier one may be taken back."""

LETTER = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""What makes a word of the number beside it: not a letter of a script without blanks, nor of Korean, whose particles
follow a number."""
_POWERS = "十百千万萬亿億兆십백천만억조"
"""Numerals that multiply the number before them: 12万 is no 12."""
_UNIT = r"(?:[kcmn]m|[km]?g|[mcd]?l|[kmgt]b|[kmg]?hz|kwh?|mph|ms|min|sec|hrs?|h|ft|in|lbs?|oz)"
_NUMBER = re.compile(r"([+-]?)\$?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(e[+-]?\d{1,4})?")
_JOINED = (
    r"[+-]?\$?\d[\d.,]*(?:[:/-]\$?\d[\d.,]*)+\w*|\d{1,3}(?: \d{3})+(?!\d)[\d.,]*"
    r"|[\d百백]+ ?(?:分[之の]|분의) ?\d[\d.,]*"
)
"""Numbers that are one answer together, and none of them a number by itself: 10:30, 3/4, 2020-01-05, 15 000, 3分之1."""
_LAST = re.compile(
    rf"(?<![.,{_POWERS}])(?<!{LETTER})(?:{_JOINED}|{_NUMBER.pattern}"
    rf"(?:(?={_UNIT}(?!{LETTER}))|(?!,*{LETTER}|(?!千[克米瓦])[{_POWERS}]))(?!\.\d))",  # 千克 is a kilogram
    re.IGNORECASE,
)
TAIL = 10_000
"""Characters at the end of a text in which its last number is looked for: the search grows with their square."""
CURRENCIES = "$€£¥₹"
_DENIED = re.compile(r"(?:(?:\b(?:not|never|no)|n't)\s+|不是?)\S{0,2}$")
"""What stands before a number that is denied: "not 10", "isn't $5"."""
_PADDED = re.compile(r"[+-]?\$?0\d")
_OPERATORS = re.compile(r"([+<>=^%≤≥≠×÷]+|(?:(?<![^\W_])|(?<=\b[^\W_]))[-*/](?=[^\W_]\b))")
_SIGNS = frozenset("+<>=^%≤≥≠×÷-*/")
_SIGNED = re.compile(r"\w*[^\W\d_](?:\+\+?|#|-)")
"""``C++``, ``C#``, ``A+``, ``O-``: a name with a sign of its own."""
_RAISED = re.compile("[⁰¹²³⁴-⁹⁻]+")
_FRACTION = re.compile("(?<=\\d)(?=[¼-¾⅐-⅞])")
_TYPED = str.maketrans({"’": "'", "‘": "'", "–": "-", "−": "-", "—": " - ", "⁄": "/"})
"""What typesetting writes, as it is typed; an em dash is no sign."""
OPENING, CLOSING = "¿¡‹„‚（「『【《〈", "›）」』】》〉。｡、，．：；！？।॥؟،؛۔។៕၊။።"
"""Quotes, brackets and stops that English does not have."""
_PUNCTUATION = str.maketrans("", "", string.punctuation + OPENING + CLOSING)
_ARTICLES = frozenset({"a", "an", "the"})


def after_thinking(text: str) -> str | None:
    """What an LLM says after it has thought: the text after the last ``</think>``; None if it is still thinking."""
    thought = _THOUGHT.match(text) if "</" in text else None
    said = text[thought.end() :] if thought else text
    return None if _THINKS.search(said) else said


def opened_thought(text: str) -> str:
    """The tag at the end of a prompt that has an LLM begin with its thoughts; empty without one."""
    opened = _OPENED.search(text)
    return opened[0] if opened else ""


def unfenced(text: str) -> str:
    """The inside of a fence that is the whole text but for a line before it that ends in a colon."""
    whole = text.strip()
    fence = _FENCE.match(whole)
    if not fence or not whole.endswith(fence[1], fence.end()):
        return text
    return whole[fence.end() : -len(fence[1])].rstrip(" \t").removesuffix("\n")


def bare(text: str) -> str:
    """A text without the quotes, emphasis, brackets and stops around it; signs stay."""
    return text.lstrip("([\"'`*_“‘«" + OPENING).rstrip(")]\"'`*_”’“‘».,;:!?" + CLOSING)


def answer_key(text: str) -> str:
    """A text that only the same answers share. Kept for texts of late: a reference is compared with every reply, and a
    reply is graded, counted and voted with."""
    return (_key_of_short if len(text) <= _SHORT else _key_of_long)(text)


def _key_of(text: str) -> str:
    said = after_thinking(text)
    text = unfenced(text if said is None else said)
    final = final_of(text)
    form = json_form(text) or json_form(final)
    plain = " ".join(_plain(final).split())
    return form or " ".join(_tokens(final)) or bare(plain) or plain


_SHORT = 2_000
"""Characters up to which thousands of texts are kept with their keys: 16 MB at most."""
_key_of_short, _key_of_long = lru_cache(maxsize=4_096)(_key_of), lru_cache(maxsize=8)(_key_of)


def final_of(text: str) -> str:
    """The answer at which a rationale arrives: after ``####``, in ``\\boxed{}``, or after "the answer is" in its last
    sentence; the text itself if it has none of them."""
    if marked := _MARKED.findall(text):
        return "".join(marked[-1]).strip()
    told = _TOLD.match(text)
    return told[1].strip() if told else text


def number_of(text: str, whole: bool = False) -> Decimal | None:
    """The last number of a text, or the number that it is as a ``whole``; None if there is none."""
    number = _NUMBER.fullmatch(bare(_plain(text).strip())) if whole else _last_number(_plain(text))
    return _decimal(number) if number else None


def quantity_of(text: str) -> tuple[Decimal, str] | None:
    """The last number of a text with its unit, ``%``, one of `CURRENCIES` or none; None if there is none, or if the
    text says that it is not this one."""
    plain = _plain(text)[-TAIL:]
    if (number := _last_number(plain)) is None or _DENIED.search(plain[: number.start()]):
        return None
    before, after = plain[: number.end()].split()[-1], plain[number.end() :].lstrip(" \\")
    currency = next((sign for sign in CURRENCIES if sign in before or after.startswith(sign)), "")
    return _decimal(number), "%" if after.startswith(("%", "percent")) else currency


def number_text(text: str) -> str | None:
    """The last number of a text, as it is written but for its sign; None if there is none."""
    number = _last_number(_plain(text))
    return number[0] if number else None


def _last_number(text: str) -> re.Match[str] | None:
    last = next(iter([*_LAST.finditer(text[-TAIL:])][::-1]), None)
    return last if last and last[2] else None


def _decimal(number: re.Match[str]) -> Decimal:
    sign, digits, power = number.groups()
    return Decimal(f"{sign}{digits.replace(',', '')}{power or ''}")


def json_form(text: str) -> str | None:
    """The one form of a JSON object or list, keys sorted and numbers as numbers; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return canonical(json.loads(text, parse_int=Decimal, parse_float=Decimal))
    except (ValueError, ArithmeticError, RecursionError):
        return None


def canonical(value: Any) -> str:
    """The one form of a JSON value whose numbers are `Decimal`."""
    if isinstance(value, dict):
        fields = (f"{json.dumps(key, ensure_ascii=False)}: {canonical(value[key])}" for key in sorted(value))
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return "[" + ", ".join(map(canonical, value)) + "]"
    return _as_number(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _as_number(value: Decimal) -> str:
    """The shortest form of a number, exact."""
    value = Context(prec=max(len(value.as_tuple().digits), 1), Emax=MAX_EMAX, Emin=MIN_EMIN).normalize(value)
    return "0" if not value else f"{value:f}" if abs(value.adjusted()) < 30 else str(value)


def _plain(text: str) -> str:
    raised = _FRACTION.sub(" ", _RAISED.sub(lambda digits: f"^{digits[0]}", text))
    return unicodedata.normalize("NFKC", raised).translate(_TYPED).lower()


def _tokens(text: str) -> list[str]:
    """What tells an answer apart: folded words, numbers, operators."""
    chunks = _plain(text).split()
    tokens: list[str] = []
    for i, chunk in enumerate(chunks):
        if any(map(str.isalnum, chunk)):
            said = bare(chunk)
            whole = _NUMBER.fullmatch(said) or _SIGNED.fullmatch(said)
            for piece in (said,) if whole else _OPERATORS.split(said):
                tokens += _token(piece)
        elif _OPERATORS.fullmatch(chunk) or chunk.translate(_PUNCTUATION):
            tokens.append(chunk)
        elif 0 < i < len(chunks) - 1 and _is_operand(chunks[i - 1]) and _is_operand(chunks[i + 1]):
            tokens.append(chunk)  # x - 1, but "Paris - the city"
    return tokens


def _token(piece: str) -> Sequence[str]:
    if _SIGNED.fullmatch(piece) or (piece and _SIGNS.issuperset(piece)):
        return (piece,)
    if any(map(str.isdigit, piece)):
        number = None if _PADDED.match(piece) else _NUMBER.fullmatch(piece)  # 007 is no 7
        if number is None:
            return (bare(piece.lstrip("$#")),)
        return (_as_number(_decimal(number)),)
    word = piece.translate(_PUNCTUATION)
    return (word,) if word and word not in _ARTICLES else ()


def _is_operand(chunk: str) -> bool:
    said = bare(chunk)
    return len(said) == 1 or any(map(str.isdigit, said))
