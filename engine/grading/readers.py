"""Readers: what of a reply is the answer, where the user says so.

``auto`` reads as the task needs (`llm.reading`). The others take the reply after its thoughts and without its fence,
and find a part of it, or nothing: the reply is then unusable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..base.code import failing, imported
from ..base.errors import CurateError, UsageError, did_you_mean
from ..pool.display import display_line
from ..pool.open_answers import final_of, number_text, quantity_of
from ..pool.prompts import CUES, IS, letter_of
from .structured import as_text, at_path, json_in

Find = Callable[[str, Sequence[str]], str | None]
"""From a reply and the choices of its prompt to the answer; None if there is none."""

LONGEST = 100_000
"""Characters of a reply that a user's expression is matched against."""


@dataclass(frozen=True, slots=True)
class Reader:
    """``name`` as on the command line; ``find`` is None for ``auto``. ``one_line``: stopping the LLM at a line break
    loses nothing. ``own``: the user says what to find, which may be what a template writes around an answer."""

    name: str = "auto"
    find: Find | None = None
    one_line: bool = False

    @property
    def own(self) -> bool:
        return self.find is not None and self.name not in READERS


AUTO = Reader(one_line=True)


def _line(reply: str, choices: Sequence[str]) -> str | None:
    return next((line.strip() for line in reply.splitlines() if line.strip()), None)


def _last_line(reply: str, choices: Sequence[str]) -> str | None:
    return _line("\n".join(reversed(reply.splitlines())), choices)


def _final(reply: str, choices: Sequence[str]) -> str | None:
    found = final_of(f"\n{reply}")  # the first sentence may say it, too
    return found if found != f"\n{reply}" else None


def _number(reply: str, choices: Sequence[str]) -> str | None:
    number, quantity = number_text(reply), quantity_of(reply)
    return f"{number}%" if number and quantity and quantity[1] == "%" else number


_LETTER = re.compile(
    r"[(\[（]([A-Z])[)\]）]|\*\*([A-Z])\*\*|^[^\w\n]*([A-Z])(?:[^\w\n]*$|[).:：、])"
    r"|\b(?:[Aa]nswer|[Oo]ption|[Cc]hoice)\W+(?:is\W+)?([A-Z])\b"
    rf"|(?i:{CUES}|[选選])\W{{0,9}}(?i:{IS}?)\W{{0,9}}([A-Z])(?![A-Za-z])",
    re.MULTILINE,
)


def _letter(reply: str, choices: Sequence[str]) -> str | None:
    """The option whose letter is marked last: in brackets, bold, at the start of a line, or after "answer"."""
    by_letter = {letter_of(i): choice for i, choice in enumerate(choices)}
    marked = [
        by_letter[mark[mark.lastindex or 0]]
        for mark in _LETTER.finditer(reply)
        if mark[mark.lastindex or 0] in by_letter
    ]
    return marked[-1] if marked else None


def _json(path: str) -> Find:
    def find(reply: str, choices: Sequence[str]) -> str | None:
        try:
            value = json_in(reply)
            return as_text(at_path(value, path) if path else value)
        except (ValueError, KeyError, RecursionError):
            return None

    return find


def _expression(pattern: str) -> Find:
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"regex:{pattern}: {error}", "give a regular expression of Python") from error

    def find(reply: str, choices: Sequence[str]) -> str | None:
        every = [*compiled.finditer(reply[:LONGEST])]
        return (every[-1][1] if compiled.groups else every[-1][0]) if every else None

    return find


READERS: Mapping[str, tuple[Find, str]] = {
    "text": (lambda reply, choices: reply.strip() or None, "the whole reply"),
    "line": (_line, "its first line with content"),
    "last-line": (_last_line, "its last line with content"),
    "number": (_number, "its last number"),
    "final": (_final, "what follows ####, stands in \\boxed{}, or follows 'the answer is'"),
    "letter": (_letter, "the option whose letter is marked last: (B), B), **B**, answer: B"),
}
"""Readers by name, and what each takes."""


@lru_cache(maxsize=64)
def reader_named(name: str) -> Reader:
    """``auto``, a name in `READERS`, ``json`` or ``json:PATH``, ``regex:PATTERN`` (its first group, in its last match),
    or ``module:function`` of the user's own, which gets the reply and returns the answer, or None. It is imported: the
    caller has made sure that the user named it. Raises `UsageError` for what is none of these."""
    if name == "auto":
        return AUTO
    if name in READERS:
        return Reader(name, READERS[name][0], one_line=name == "line")
    kind, _, rest = name.partition(":")
    if kind == "json":
        return Reader(name, _json(rest))
    if kind == "regex" and rest:
        return Reader(name, _expression(rest))
    if not rest:
        names = ["auto", *READERS, "json", "json:PATH", "regex:PATTERN"]
        meant = did_you_mean(name, names, ",")
        raise UsageError(f"unknown reader '{name}'{meant}", f"use {', '.join(names)} or module:function")
    try:
        own = imported(name, "reader")
    except UsageError as error:
        if meant := did_you_mean(kind, ("json", "regex")).replace("'?", f":{rest}'?"):
            raise UsageError(f"{error.what}{meant}", error.fix) from error
        raise

    def find(reply: str, choices: Sequence[str]) -> str | None:
        try:
            answer = own(reply)
        except CurateError:
            raise
        except Exception as error:  # it is the user's code
            fix = "return a text for every reply, or None where there is no answer"
            raise failing(name, own, f"'{display_line(reply, 40)}'", error, fix) from error
        if answer is not None and not isinstance(answer, str):
            raise UsageError(f"{name} returned {answer!r}", "return a text, or None where there is no answer")
        return answer

    return Reader(name, find)
