"""Answers with parts: JSON values, sets of labels, entities, tool calls, and the F1 of one against another.

Every F1 is that of two multisets of parts, 2 |A ∩ B| / (|A| + |B|); two empty ones count 1. What has to be matched
first, such as the objects of two lists, is matched so that the most parts agree, whatever their order.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ..pool.choices import option_of
from ..pool.open_answers import canonical, unfenced

PAIRS = 10_000
"""Pairs of two lists' members up to which the best matching is looked for; longer lists are compared in their order."""

STARTS = 50
"""Brackets of a text at which a JSON value is looked for."""

_DECODER = json.JSONDecoder(parse_int=Decimal, parse_float=Decimal)
_BRACKET = re.compile(r"[\[{]")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_CITATION = re.compile(r"\[\s*\d+\s*\]")
_SEPARATOR = re.compile(r"[\n;,；，、]")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def json_in(text: str) -> Any:
    """The JSON value that a text is, else that of its last fence, else the first object or list in it; a list of one
    whole number, which may be a citation, only if there is no other. Numbers are `Decimal`. Raises `ValueError` if
    there is none."""
    for part in (unfenced(text), *reversed(_FENCE.findall(text))):
        try:
            return _DECODER.decode(part.strip())
        except (ValueError, ArithmeticError, RecursionError):
            continue
    cited: list[Any] = []
    for bracket, _ in zip(_BRACKET.finditer(text), range(STARTS), strict=False):
        try:
            value = _DECODER.raw_decode(text, bracket.start())[0]
        except (ValueError, ArithmeticError, RecursionError):
            continue
        if not _CITATION.match(text, bracket.start()):
            return value
        cited.append(value)
    if cited:
        return cited[0]
    raise ValueError("no JSON value")


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys and indices with dots between them: ``result.labels.0``. Raises `KeyError` if there
    is none."""
    for key in path.split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            raise KeyError(path)
    return value


def as_text(value: Any) -> str:
    """A JSON value as an answer: a text as it is, anything else in its one form."""
    return value if isinstance(value, str) else canonical(value)


def without(value: Any, ignored: Collection[str]) -> Any:
    """The value without the fields of these names, at any depth."""
    if isinstance(value, Mapping):
        return {key: without(inner, ignored) for key, inner in value.items() if key not in ignored}
    return [without(inner, ignored) for inner in value] if isinstance(value, list) else value


def f1(common: float, given: float, wanted: float) -> float:
    """2 |A ∩ B| / (|A| + |B|)."""
    return 2 * common / (given + wanted) if given + wanted else 1.0


def json_f1(given: Any, wanted: Any) -> float:
    """F1 over the leaves, each with the path to it; lists are compared without their order."""
    return f1(_agreeing(given, wanted), _leaves(given), _leaves(wanted))


def unordered(value: Any) -> Any:
    """The value with every list in one order, so that two whose `json_f1` is 1 are equal."""
    if isinstance(value, Mapping):
        return {key: unordered(inner) for key, inner in value.items()}
    return sorted(map(unordered, value), key=canonical) if isinstance(value, list) else value


def _leaves(value: Any) -> int:
    """The number of leaves; an empty object or list is one."""
    if isinstance(value, Mapping):
        return sum(map(_leaves, value.values())) or 1
    return (sum(map(_leaves, value)) or 1) if isinstance(value, list) else 1


def _agreeing(given: Any, wanted: Any) -> float:
    """The number of leaves on which two values agree."""
    if isinstance(given, Mapping) and isinstance(wanted, Mapping) and given and wanted:
        return sum(_agreeing(given[key], wanted[key]) for key in given.keys() & wanted.keys())
    if isinstance(given, list) and isinstance(wanted, list) and given and wanted:
        if not any(isinstance(inner, (Mapping, list)) for inner in [*given, *wanted]):
            return shared(map(canonical, given), map(canonical, wanted))
        return matched(given, wanted, _agreeing)
    return float(canonical(given) == canonical(wanted))


def shared(given: Iterable[Hashable], wanted: Iterable[Hashable]) -> int:
    """|A ∩ B| of two multisets."""
    return (Counter(given) & Counter(wanted)).total()


def matched(given: Sequence[Any], wanted: Sequence[Any], worth: Callable[[Any, Any], float]) -> float:
    """The worth of the best matching of two lists, each member at most once."""
    if len(given) * len(wanted) > PAIRS:
        return sum(map(worth, given, wanted))
    from scipy.optimize import linear_sum_assignment

    worths = np.array([[worth(one, other) for other in wanted] for one in given], np.float64)
    return float(worths[linear_sum_assignment(worths, maximize=True)].sum()) if worths.size else 0.0


def matched_in_order(given: Sequence[Any], wanted: Sequence[Any], worth: Callable[[Any, Any], float]) -> float:
    """The worth of the best matching that keeps the order of both lists: the longest common subsequence, weighted."""
    best = np.zeros(len(wanted) + 1)
    for one in given:
        diagonal = best.copy()
        for j, other in enumerate(wanted, 1):
            best[j] = max(diagonal[j], best[j - 1], diagonal[j - 1] + worth(one, other))
    return float(best[-1])


# Sets of labels.


def labels_in(text: str, labels: Sequence[str] = ()) -> frozenset[str]:
    """The labels that a text lists: a JSON list, or between commas, semicolons or lines; "none" lists none. Spelled as
    in ``labels`` where it is one of them."""
    try:
        value = json_in(text)
        parts = [as_text(part) for part in value] if isinstance(value, list) else [text]
    except ValueError:
        whole = option_of(text, labels) if labels else None  # a label may hold a comma
        parts = [labels[whole]] if whole is not None else _SEPARATOR.split(text)
    said = (_label(part, labels) for part in parts)
    return frozenset(label for label in said if label and label.lower() != "none")


def _label(part: str, labels: Sequence[str]) -> str:
    """The label of a part. A bullet before it is left out, unless it is the label's own: ``2. Bundesliga``."""
    bare = _BULLET.sub("", part).strip().strip("\"'`.。").strip()
    named = next((i for form in (part, bare) if (i := option_of(form, labels)) is not None), None)
    return bare if named is None else labels[named]


def labels_f1(given: Collection[str], wanted: Collection[str]) -> float:
    """F1 of two sets of labels, by example."""
    return f1(len(set(given) & set(wanted)), len(set(given)), len(set(wanted)))


# Entities.


def entities_in(text: str) -> list[Mapping[str, Any]]:
    """The entities of a text: a JSON list of objects with text and type, one such object, or an object of lists of
    texts by type. Raises `ValueError` if it is none of these."""
    value = json_in(text)
    if isinstance(value, Mapping) and {"text", "type"} <= value.keys():
        value = [value]
    elif isinstance(value, Mapping):
        value = [{"type": kind, "text": name} for kind, names in value.items() for name in _listed(names)]
    if not isinstance(value, list) or not all(isinstance(one, Mapping) and "text" in one for one in value):
        raise ValueError("no list of entities")
    return value


def _listed(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def compared(entities: Iterable[Mapping[str, Any]], span: bool) -> list[tuple[str, ...]]:
    """What is compared of entities, sorted: (text, type) of each; with ``span`` (start, end, type)."""
    names = ("start", "end", "type") if span else ("text", "type")
    return sorted(tuple(as_text(each.get(name)) for name in names) for each in entities)


def entities_f1(given: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]], span: bool) -> float:
    """F1 of two multisets of entities, see `compared`."""
    one, other = compared(given, span), compared(wanted, span)
    return f1(shared(one, other), len(one), len(other))


# Tool calls.


def calls_in(text: str) -> list[Mapping[str, Any]]:
    """The calls of a text, each with its name and arguments: a JSON list, also as the ``tool_calls`` of a message, or
    one call; a text without JSON calls nothing. Raises `ValueError` if the JSON is no call."""
    try:
        value = json_in(text)
    except ValueError:
        return []
    if isinstance(value, Mapping) and "tool_calls" in value:
        value = value["tool_calls"] or []
    return [_call(one) for one in (value if isinstance(value, list) else [value])]


def _call(value: Any) -> Mapping[str, Any]:
    value = value.get("function", value) if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ValueError("no tool call")
    arguments = value.get("arguments", value.get("parameters")) or {}  # servers write "" for none
    return {"name": value["name"], "arguments": json_in(arguments) if isinstance(arguments, str) else arguments}


def calls_f1(given: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], ordered: bool) -> float:
    """F1 of two lists of calls; two of one name agree as far as the leaves of their arguments do."""

    def worth(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return json_f1(one["arguments"], other["arguments"]) if one["name"] == other["name"] else 0.0

    return f1((matched_in_order if ordered else matched)(given, wanted, worth), len(given), len(wanted))
