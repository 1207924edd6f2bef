"""Final answers: ``1/2``, ``0.5`` and ``\\frac{1}{2}`` are the same.

An expression is read by a grammar of its own: nothing in it is run, and no name means anything but a function of the
list here or an unknown. Two expressions are the same if they agree where their unknowns take three values each
(Schwartz 1980, Zippel 1979): rational ones exactly, roots to nine digits. Nothing is simplified, so nothing can hang,
and a power is computed only where its result is small.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from ..pool.open_answers import answer_key, final_of, number_of

Value = Fraction | complex

LONGEST = 200
"""Characters of an expression; with a bound on the bits of a number this bounds its depth and its cost."""

BITS = 10_000
"""Of a number that is computed exactly."""

POINTS = 3

_COMMANDS = (
    (re.compile(r"^\s*[A-Za-z]?\s*="), ""),
    (re.compile(r"\\begin\s*\{[pb]?matrix\}"), "["),
    (re.compile(r"\\end\s*\{[pb]?matrix\}"), "]"),
    (re.compile(r"\\\\"), ";"),
    (re.compile(r"\\(?:text|mathrm|mathbf)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|\\?\$|\\[()\[\]]|\^\s*\{?\\circ\}?|°"), ""),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"(\d+)(?:\s*\\frac\s*\{(\d+)\}\s*\{(\d+)\}|\s+(\d+)/(\d+))"), r"(\1+\2\4/\3\5)"),
    (re.compile(r"\\(?:cdot|times)"), "*"),
    (re.compile(r"\\div"), "/"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\leq?(?![A-Za-z])|≤"), "<="),
    (re.compile(r"\\geq?(?![A-Za-z])|≥"), ">="),
    (re.compile("∞"), r"\\infty "),
    (re.compile("π"), r"\\pi "),
    (re.compile(r"\\([{}])"), r"\1"),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
)
"""What LaTeX and Python write otherwise; a whole number before a fraction is added to it."""

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\\?[A-Za-z]+|[-+*/^(){}\[\]])")

_FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "sqrt": cmath.sqrt,
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "exp": cmath.exp,
    "ln": cmath.log,
    "log": cmath.log,
}
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_BREAK = re.compile(r"[()\[\]{}]|[,;&|]|[<>=]+|\\(?:cup|cap|in)(?![A-Za-z])")
"""Brackets, and what stands between the parts of a list."""
_WORD = re.compile(r'"|(?<![\\A-Za-z])[^\W\d_]{2}')
_BLANKS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")


def final_key(text: str) -> str:
    """A text that the same final answers share: equal expressions, lists of such in equal brackets, or else equal texts
    (`answer_key`)."""
    plain = final_of(f"\n{text}")  # the first sentence may say it, too
    for pattern, by in _COMMANDS:
        plain = pattern.sub(by, plain) if len(plain) <= LONGEST else plain
    plain = plain.replace("−", "-").replace("\\%", "%").strip().rstrip(".")
    return _value_key(plain) or _list_key(plain) or answer_key(plain)


def _list_key(text: str) -> str | None:
    """None for a text that is no interval, tuple, set, matrix or relation: one with words, or of one part."""
    if len(text) > LONGEST or _WORD.search(text) or all(sign[0] in "()[]{}" for sign in _BREAK.finditer(text)):
        return None
    return _part_key(text)


def _part_key(text: str) -> str:
    """The value of a part, or its signs and brackets with the keys of what stands between."""
    text, parts, depth, start = text.strip(), list[str](), 0, 0
    for sign in _BREAK.finditer(text):
        depth += (sign[0] in "([{") - (sign[0] in ")]}")
        if not depth and sign[0] not in ")]}":
            parts += [_part_key(text[start : sign.start()]), sign[0]]
            start = sign.end()
    if parts:
        return " ".join([*parts, _part_key(text[start:])])
    if value := _value_key(text):
        return value
    if len(text) > 1 and text[0] in "([{" and text[-1] in ")]}":
        return f"{text[0]}{_part_key(text[1:-1])}{text[-1]}"
    return _BLANKS.sub("", text).lower()


def _value_key(text: str) -> str | None:
    """None for a text that is no expression, is too long, or has no value. A letter alone is a choice, whatever its
    case and brackets."""
    letter = text.strip("()[]{} ")
    if not text or len(text) > LONGEST or (len(letter) == 1 and letter.isalpha()):
        return None
    try:
        if (number := number_of(text, whole=True)) is not None:
            return f"= {_shown(Fraction(number))}"
        values = [_shown(_Reader(text, point).whole()) for point in range(POINTS)]
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return f"= {' '.join(values if len(set(values)) > 1 else values[:1])}"


def _shown(value: Value) -> str:
    """A rational number exactly, also if roots made it, and any other to nine digits."""
    if isinstance(value, Fraction):
        return str(value)
    near = Fraction(value.real).limit_denominator(1000)
    if abs(value - complex(near)) <= 1e-12 * max(1.0, abs(value)):
        return str(near)
    return ",".join(f"{0.0 if abs(part) < 1e-9 * abs(value) else part:.9g}" for part in (value.real, value.imag))


class _Reader:
    """Reads an expression and computes it at once: sum, product, sign, power, from the weakest to the strongest.
    ``point`` gives each unknown its value."""

    def __init__(self, text: str, point: int) -> None:
        self.tokens, end = list[tuple[str, bool]](), 0
        while end < len(text):
            if not (token := _TOKEN.match(text, end)):
                raise ValueError(text)
            self.tokens.append((token[1], token[0] != token[1]))
            end = token.end()
        self.point, self.at = point, 0

    def whole(self) -> Value:
        value = self.sum()
        if self.at < len(self.tokens):
            raise ValueError(self.tokens[self.at])
        return value

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.next
        if not token or (wanted and token != wanted):
            raise ValueError(token)
        self.at += 1
        return token

    def sum(self) -> Value:
        value = self.product()
        while self.next in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return _bounded(value)

    def product(self) -> Value:
        value = self.signed()
        while self.next in ("*", "/") or self.joined():
            if self.next == "/":
                self.take()
                value = value / self.signed()
            else:
                if self.next == "*":
                    self.take()
                value = value * self.signed()
            _bounded(value)
        return value

    def joined(self) -> bool:
        """Whether a factor follows without a sign: 2x, 2(x + 1), but not the words of a sentence."""
        token = self.next
        if not token or token in "+-*/^)}]" or token[0].isdigit() or token[0] == ".":
            return False
        return not self.tokens[self.at][1] or token[0] == "\\"

    def signed(self) -> Value:
        if self.next in ("+", "-"):
            return self.signed() if self.take() == "+" else -self.signed()
        base = self.atom()
        if self.next != "^":
            return base
        self.take()
        return _power(base, self.signed())

    def atom(self) -> Value:
        token = self.take()
        if token in _CLOSING:
            value = self.sum()
            self.take(_CLOSING[token])
            return value
        if token[0].isdigit() or token[0] == ".":
            return Fraction(token)
        name = token.removeprefix("\\")
        if token == "\\frac":
            above = self.atom()
            return above / self.atom()
        if name == "pi":
            return complex(math.pi)
        if name in _FUNCTIONS:
            return self.function(name)
        if len(name) > 1 and token == name:  # a word
            raise ValueError(token)
        return _unknown(name, self.point)

    def function(self, name: str) -> Value:
        root = Fraction(2)
        if name == "sqrt" and self.next == "[":
            self.take()
            index = self.sum()
            self.take("]")
            if not isinstance(index, Fraction):
                raise ValueError(index)
            root = index
        argument = self.atom()
        return _power(argument, 1 / root) if name == "sqrt" else _FUNCTIONS[name](complex(argument))


def _power(base: Value, exponent: Value) -> Value:
    """Exactly where it stays small and rational, roots of squares too; an odd root of a negative number is real."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if base < 0 and exponent.denominator % 2 and exponent.denominator > 1:
            return _power(-base, exponent) * (-1 if exponent.numerator % 2 else 1)
        if exponent.denominator == 1 and _bits(base) * abs(exponent) <= BITS:
            return Fraction(base ** int(exponent))
        if exponent == Fraction(1, 2) and base >= 0:
            above, below = math.isqrt(base.numerator), math.isqrt(base.denominator)
            if above**2 == base.numerator and below**2 == base.denominator:
                return Fraction(above, below)
    if not (power := complex(base) ** complex(exponent)) and base:
        raise OverflowError
    return power


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Value) -> Value:
    """Raises `OverflowError` for a number that is too long, or no number."""
    if _bits(value) > BITS if isinstance(value, Fraction) else not cmath.isfinite(value):
        raise OverflowError
    return value


def _unknown(name: str, point: int) -> Fraction:
    """The value of an unknown at a point: between -4 and 4, the same for the same name."""
    drawn = int.from_bytes(hashlib.blake2b(f"{name} {point}".encode(), digest_size=4).digest(), "big")
    return Fraction(drawn % 8009 - 4004, 1001)
