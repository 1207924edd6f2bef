"""The options of a record, and which of them its answer names: by text, by label or by number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..pool.prompts import letter_of
from .readers.records import parse_list
from .values import BadRow, kind_of, shortened, text_of

Numbers = Literal["text", "from 0", "from 1"]
"""What a number in the answers of a file means: the option with this text, or its place among the options."""

_MARKED = re.compile(r"\s*\(?([A-Za-z]|\d{1,2})[).:]\s+")
_NUMBER = re.compile(r"[+-]?\d{1,4}(\.0+)?")


class Options(NamedTuple):
    """The options of a record and their labels (letters, names); ``labelled`` if the record gives the labels itself,
    ``typed`` if it writes its options as texts, so that a bare number among its answers is no text."""

    texts: list[str]
    labels: list[str]
    labelled: bool = False
    typed: bool = False


NONE = Options([], [])


def options_of(value: object) -> Options:
    """The options in any of the known forms. Raises `BadRow` for another form."""
    labels: list[str] = []
    if isinstance(value, str):
        value = parse_list(value)
    if value is None:
        return NONE
    if isinstance(value, Mapping):
        texts = value.get("text", value.get("texts"))
        if isinstance(texts, list):
            labels = [str(label) for label in value.get("label", value.get("labels")) or ()]
            value = texts
        else:
            labels, value = [str(label) for label in value], list(value.values())
    if not isinstance(value, list):
        raise BadRow(f"options are {kind_of(value)}, not a list")
    if value and all(isinstance(option, Mapping) and "text" in option for option in value):
        labels = [str(option.get("label", "")) for option in value]
        value = [option["text"] for option in value]
    typed = all(isinstance(option, str) for option in value)
    options = [text_of(option, "option") for option in value]
    marked = [_MARKED.match(option) for option in options]
    letters = [letter_of(i) for i in range(len(options))]
    if len(options) > 1 and [m and m[1].upper() for m in marked] in (
        letters,
        list(map(str, range(1, len(marked) + 1))),
    ):
        options = [option[m.end() :] if m else option for option, m in zip(options, marked, strict=True)]
    labelled = bool(options) and len(labels) == len(options)
    return Options(options, labels if labelled else letters, labelled, typed)


@dataclass(frozen=True, slots=True)
class NumberedAnswer:
    """A number as the answer of a record with options; ``bare``: written as a number, not as a text."""

    number: int
    bare: bool
    options: Options


def numbered(value: object, options: Options) -> NumberedAnswer | None:
    """The answer ``value`` if it is a number that is no label of the options."""
    bare = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(value).strip() if bare or isinstance(value, str) else ""
    if not options.texts or not _NUMBER.fullmatch(text):
        return None
    number = int(float(text))
    if options.labelled and str(number) in options.labels:
        return None
    return NumberedAnswer(number, bare, options)


def meaning_of(answers: Iterable[NumberedAnswer]) -> Numbers:
    """What numbers mean in a file with these answers: the reading under which most of them name an option. Among equals
    a bare number beside options that are texts is a place, counted from 0, and any other number is a text."""
    found = list(answers)
    fits = {
        "text": sum(str(each.number) in each.options.texts for each in found),
        "from 0": sum(0 <= each.number < len(each.options.texts) for each in found),
        "from 1": sum(1 <= each.number <= len(each.options.texts) for each in found),
    }
    places = any(each.bare and each.options.typed for each in found)
    order: Sequence[Numbers] = ("from 0", "from 1", "text") if places else ("text", "from 0", "from 1")
    return max(order, key=lambda name: fits[name])


def named(value: Any, output: str, options: Options, numbers: Numbers) -> str:
    """The option that the answer ``value``, ``output`` as text, names. Raises `BadRow` if there is none."""
    number = numbered(value, options)
    if number is not None and numbers != "text":
        place = number.number - (numbers == "from 1")
        if 0 <= place < len(options.texts):
            return options.texts[place]
    if output in options.texts:
        return output
    plain = _plain(output)
    for option in options.texts:
        if _plain(option) == plain:
            return option
    bare = plain.strip("().:[] ")
    for option, label in zip(options.texts, options.labels, strict=True):
        if label.lower() == bare:
            return option
    if marked := _MARKED.match(output):
        rest = _plain(output[marked.end() :])
        for option in options.texts:
            if _plain(option) == rest:
                return option
    raise BadRow(f"answer not among the options: {shortened(output)}")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
