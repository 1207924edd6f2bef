"""Rationales that contradict themselves: arithmetic that is wrong, or an answer other than the one arrived at.

Only what is written as ``a op b = c`` in numbers is computed, exactly, and c may be rounded or cut at its last digit.
An expression that may be the end of a longer one (an operator, a bracket or a word such as ``of`` before it) is left
alone, as is one with a unit in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..pool.open_answers import final_of, number_of, number_text
from ..pool.records import RATIONALE, Demonstration
from .results import Fault
from .structure import LEAST, is_usual

RECOMPUTED, CARRIED = 0.9, 0.7
"""Chance that a number computed anew is right where it is used further on, and where it becomes the answer."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30}"
_SIGNS = r"\d.,$£€%()+\-*/×÷−–xX \t"
_STATEMENT = re.compile(
    rf"(?<![{_SIGNS}])(?P<left>[{_SIGNS}]{{3,300}}+)"
    rf"=[ \t]*[$£€]?[ \t]*(?:<<[^<>\n]*+>>)?[$£€]?(?P<right>-?(?:{_NUMBER}))"
    rf"(?![\d.,]*\d)(?![ \t]*+[-+*/×÷−–xX^%:(][ \t]*+[\d($]|[ \t]*+[%/^])"
)
_NUMBERS, _MARKS = re.compile(_NUMBER), re.compile(r"####|\\boxed")
_NOTE = re.compile(rf"<<(?P<left>[^<>=\n]+)=(?P<right>-?(?:{_NUMBER}))>>")
"""A calculation as GSM8K notes it."""
_JOINED = re.compile(r"(?:[\^:=]|\b(?:of|than|half|twice|times|plus|minus|by))[ \t]*$", re.IGNORECASE)
_LEAD = re.compile(r"(?:[.,)]?[ \t])*+")
"""What a sentence before an expression leaves in front of it."""
_TOKEN = re.compile(rf"{_NUMBER}|[-+*/×÷−–xX()%]")
_SHARE = re.compile(rf"[-+−–][ \t]*(?:{_NUMBER})[ \t]*%(?![ \t]*[*/×÷xX])")
_BLANK = re.compile(r"[\s$£€]+")

_MARK = re.compile(r"####[ \t]*$|\\boxed\{$|\bis\b\W*$", re.IGNORECASE)

LONGEST = 10_000
"""Characters of a rationale that are read."""


Exact = int | Fraction


@dataclass(frozen=True, slots=True)
class Statement:
    """``left`` = ``right`` as written at ``start`` to ``end``, the place of the right number; ``value`` is what the
    left side comes to."""

    left: str
    right: str
    value: Exact
    start: int
    end: int

    @property
    def written(self) -> Exact:
        """The right side as a number."""
        return _number(self.right)

    @property
    def holds(self) -> bool:
        """Whether the right side is the value, rounded or cut at its last digit."""
        error = abs(self.value - self.written) * 10 ** len(self.right.partition(".")[2])
        return error < 1 or _scaled(self.value, self.written)

    @property
    def operands(self) -> frozenset[Exact]:
        """The numbers of the left side."""
        return frozenset(_number(token) for token in _TOKEN.findall(self.left) if token[-1].isdigit())


def statements(text: str) -> list[Statement]:
    """What a text states in numbers, in its order."""
    text = text[:LONGEST]
    stated = {}
    for match in (*_STATEMENT.finditer(text), *_NOTE.finditer(text)):
        left = _LEAD.sub("", match["left"], 1).strip()
        if match.re is _STATEMENT and (
            left[:1] in "+*/×÷−–-" or _JOINED.search(text[max(0, match.start() - 12) : match.start() + 1])
        ):
            continue
        value = _value(left)
        if value is not None:
            stated[match.start("right")] = Statement(left, match["right"], value, *match.span("right"))
    return [stated[start] for start in sorted(stated)]


def _number(text: str) -> Exact:
    text = text.replace(",", "")
    return Fraction(text) if "." in text else int(text)


def _scaled(one: Exact, other: Exact) -> bool:
    """Whether two numbers differ as dollars do from cents, shares from percent, or 15 from 15 thousand or million."""
    return any(one == other * scale or other == one * scale for scale in (100, 10**3, 10**6, 10**9))


def _value(text: str) -> Exact | None:
    """The value of an expression of numbers, + - * / and brackets; None if it is malformed."""
    tokens = _TOKEN.findall(text)[::-1]
    if "".join(tokens[::-1]) != _BLANK.sub("", text) or len(tokens) < 3:
        return None
    if tokens.count("/") > 1 or _SHARE.search(text):
        return None  # 50 / 1/2 and 50 + 10% are read in two ways

    def factor() -> Exact:
        token = tokens.pop()
        if token == "(":
            value = terms()
            if tokens.pop() != ")":
                raise ValueError
        else:
            value = _number(token)
        while tokens and tokens[-1] == "%":
            tokens.pop()
            value = Fraction(value) / 100
        return value

    def product() -> Exact:
        value = factor()
        while tokens and tokens[-1] in "*×xX/÷":
            value = value * factor() if tokens.pop() in "*×xX" else Fraction(value) / factor()
        return value

    def terms() -> Exact:
        sign = -1 if tokens[-1] in "-−–" and tokens.pop() else 1
        value = sign * product()
        while tokens and tokens[-1] in "+-−–":
            value = value + product() if tokens.pop() == "+" else value - product()
        return value

    try:
        value = terms()
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    return None if tokens else value


def _spelled(value: Exact, like: str) -> str:
    """A number written with as many digits as it needs, or else as the one in its place; its commas kept."""
    digits = len(like.partition(".")[2])
    exact = next((n for n in range(7) if (value * 10**n).denominator == 1), digits or 2)
    commas = "," if "," in like else ""
    return f"{float(value):{commas}.{exact}f}" if exact else f"{round(value):{commas}}"


def rationale_faults(rows: Sequence[Demonstration], verified: Sequence[Demonstration] = ()) -> Iterator[Fault]:
    """Faults of rows whose outputs are rationales that end in a number, or have one in a field."""
    if len(rows) < LEAST:
        return
    stated = [statements(_rationale(row)) for row in rows]
    arrives = [not said or _arrives(row, said[-1]) for row, said in zip(rows, stated, strict=True)]
    right = [_arrives(row, said[-1]) for row in verified if (said := statements(_rationale(row)))]
    must = is_usual([arrived for arrived, said in zip(arrives, stated, strict=True) if said], right)
    for place, (row, said) in enumerate(zip(rows, stated, strict=True)):
        if wrong := [one for one in said if not one.holds]:
            first = wrong[0]
            told = f"says {first.left} = {first.right}, which is {_spelled(first.value, first.right)}"
            yield Fault(place, "rationale", True, told, *_recomputed(row, said, wrong))
        elif must and said and not arrives[place]:
            last, final = said[-1], final_of(row.output)
            told = f"arrives at {last.left} = {last.right}, but answers {final[:40]}"
            yield Fault(place, "rationale", True, told, *_answering(row.output, last.right))


def _rationale(row: Demonstration) -> str:
    texts = (row.output, *(row.metadata.get(name) for name in RATIONALE))
    return max((text for text in texts if isinstance(text, str)), key=len)


def _arrives(row: Demonstration, last: Statement) -> bool:
    """Whether the answer is what the last statement comes to, or what the words after it say."""
    text = _rationale(row)
    _, final, _ = text.rpartition(final_of(row.output))
    end = len(text) - len(final) if text == row.output else len(text)
    told = {_number(number) for number in _NUMBERS.findall(_MARKS.split(text[last.end : end])[0])} - {last.written}
    answer = _answer(row.output)
    return bool(told) or answer in (None, last.written) or _scaled(answer, last.written)


def _answer(output: str) -> Exact | None:
    number = number_of(final_of(output))
    return None if number is None else Fraction(number)


def _answering(output: str, number: str) -> tuple[str, float]:
    """The output with another final number, and the chance that it is right."""
    head, final, tail = output.rpartition(final_of(output))
    given = number_text(final)
    if given is None or given not in final or (head.strip() and not _MARK.search(head)):  # not as it is written
        return "", 0.0
    before, _, after = final.rpartition(given)
    return f"{head}{before}{number}{after}{tail}", CARRIED


def _recomputed(row: Demonstration, said: Sequence[Statement], wrong: Sequence[Statement]) -> tuple[str, float]:
    """The output with the wrong number computed anew, and the chance that it is right: where the right one is used
    further on, it was only miswritten; where it is the last, it is also the answer. Else which number is wrong is
    open."""
    first, text = wrong[0], row.output
    if _rationale(row) != text or len({(statement.value, statement.written) for statement in wrong}) > 1:
        return "", 0.0
    right = _spelled(first.value, first.right)
    later = {number for statement in said if statement.start > wrong[-1].end for number in statement.operands}
    answer = _answer(text)
    carried = said[-1] == wrong[-1] and answer == first.written
    if not carried and (first.written in later or first.value not in {answer, *later}):
        return "", 0.0
    places = {statement.start for statement in wrong}
    for statement in wrong:  # GSM8K writes the result once more after its note
        if text.startswith(f">>{statement.right}", statement.end):
            places.add(statement.end + 2)
    for start in sorted(places, reverse=True):
        text = text[:start] + right + text[start + len(first.right) :]
    return _answering(text, right) if carried else (text, RECOMPUTED)
