"""Metrics: how good an answer is, a value from 0 to 1; and the metric that fits a pool's outputs.

A metric is named as on the command line, its parameter after an @: ``number@0.01``, ``json-f1@ignore=id,ts``,
``entities@span``, ``calls@ordered``; or ``module:function`` of the user's own. An answer is right where its value is at
least the metric's ``least``: 1 for metrics whose values are 0 or 1, else .5 unless the user says otherwise.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, SupportsFloat

from ..base.code import failing, imported
from ..base.errors import CurateError, UsageError, did_you_mean
from ..pool.answers import bleu, exact_match, is_correct, meaning, rouge_l, token_f1
from ..pool.display import display_line
from ..pool.open_answers import answer_key, canonical, final_of, number_of, quantity_of
from ..pool.records import Query, Task
from ..pool.sets import labels_of, members_of
from .expressions import final_key
from .structured import (
    calls_f1,
    calls_in,
    compared,
    entities_f1,
    entities_in,
    json_f1,
    json_in,
    labels_f1,
    labels_in,
    unordered,
    without,
)

Score = Callable[[str, Query, Task], float]
Key = Callable[[str, Query, Task], str]
Pair = Callable[[str, str], float]
"""The score of an answer against one accepted answer."""

LEAST = 0.5
"""Value from which an answer is right by a metric with values between, if the user names none."""

JUDGES: Mapping[str, Mapping[str, float]] = {
    "judge": {"yes": 1.0, "no": 0.0},
    "judge-scale": {str(mark): mark / 4 for mark in range(5)},
}
"""The metrics whose values are verdicts of an LLM, see `judge`, and what each verdict is worth."""


def _meaning(answer: str, query: Query, task: Task) -> str:
    return meaning(answer, task.choices(query))


@dataclass(frozen=True, slots=True)
class Metric:
    """``score`` (answer, query, task) in [0, 1]; ``key`` of the same: the same answers share it, and only they.

    ``binary``: all values are 0 or 1. ``least``: the value from which an answer is right.
    """

    name: str
    score: Score
    binary: bool = False
    least: float = LEAST
    key: Key = _meaning

    def is_right(self, value: float) -> bool:
        """Whether an answer of this value is right, wherever only right and wrong are known."""
        return value >= self.least


def _best(pair: Pair) -> Score:
    """The score against the accepted answer that is nearest."""
    return lambda answer, query, task: max((pair(answer, accepted) for accepted in query.answers), default=0.0)


def _parsed(read: Callable[[str], Any], compare: Callable[[Any, Any], float]) -> Pair:
    """A score of parsed answers: 0 where one cannot be parsed."""

    def pair(answer: str, accepted: str) -> float:
        try:
            return compare(read(answer), read(accepted))
        except (ValueError, RecursionError):
            return 0.0

    return pair


def _accuracy(answer: str, query: Query, task: Task) -> float:
    return float(is_correct(answer, query.answers, task.choices(query)))


def _labels(answer: str, query: Query, task: Task) -> float:
    labels = _known(task)

    def pair(accepted: str) -> float:
        known = labels or (members_of(accepted) if task.kind == "sets" else tuple(labels_in(accepted)))
        return labels_f1(labels_in(answer, known), labels_in(accepted, known))

    return max(map(pair, query.answers), default=0.0)


def _labels_key(answer: str, query: Query, task: Task) -> str:
    return canonical(sorted(labels_in(answer, _known(task))))


def _known(task: Task) -> tuple[str, ...]:
    return task.labels if task.kind == "sets" else _members(task.labels)


@lru_cache(maxsize=16)
def _members(outputs: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of which a pool's outputs are sets, where it is read as one of single labels."""
    return labels_of("sets", outputs)


def _exact(answer: str, accepted: str) -> float:
    """The same text but for blanks at the ends of lines and of the whole."""
    one, other = ([line.rstrip() for line in text.strip().splitlines()] for text in (answer, accepted))
    return float(one == other)


def _number(tolerance: str) -> Pair:
    allowed = _tolerance(tolerance)

    def pair(answer: str, accepted: str) -> float:
        given, wanted = quantity_of(final_of(answer)), quantity_of(final_of(accepted))
        if given is None or wanted is None:
            return float(answer_key(answer) == answer_key(accepted))
        (one, unit), (other, of) = given, wanted
        same = unit == of or ("" in (unit, of) and "%" not in (unit, of))  # $5 is 5, and 5 % is not
        return float(same and abs(one - other) <= allowed * abs(other))

    return pair


def _number_key(answer: str, query: Query, task: Task) -> str:
    """The number, and whether it is a share; a currency may be left out, and so tells nothing apart."""
    if (quantity := quantity_of(final_of(answer))) is None:
        return answer_key(answer)
    return canonical(quantity[0]) + "%" * (quantity[1] == "%")


def _tolerance(text: str) -> Decimal:
    try:
        allowed = Decimal(text or 0)
    except ArithmeticError:
        allowed = Decimal(-1)
    if not allowed >= 0 or not allowed.is_finite():
        raise UsageError(f"number@{text}: no tolerance", "give the relative error that is allowed: number@0.01")
    return allowed


def _json_fields(parameter: str) -> Callable[[str], Any]:
    """Reads the fields that count."""
    _, _, names = _only(parameter, "json-f1", "ignore=").partition("=")
    ignored = frozenset(filter(None, names.split(",")))
    return lambda text: without(json_in(text), ignored)


def _only(parameter: str, name: str, allowed: str) -> str:
    """The parameter, if the metric knows it. Raises `UsageError` if not."""
    if parameter and not (parameter.startswith(allowed) if allowed.endswith("=") else parameter == allowed):
        raise UsageError(f"{name} knows no @{parameter}", f"use {name} or {name}@{allowed}")
    return parameter


def _entities(parameter: str) -> Pair:
    span = bool(_only(parameter, "entities", "span"))
    return _parsed(entities_in, lambda given, wanted: entities_f1(given, wanted, span))


def _calls(parameter: str) -> Pair:
    ordered = bool(_only(parameter, "calls", "ordered"))
    return _parsed(calls_in, lambda given, wanted: calls_f1(given, wanted, ordered))


def _form_key(form: Callable[[str], Any]) -> Key:
    """The key of answers that are read into the same form."""

    def key(answer: str, query: Query, task: Task) -> str:
        try:
            return canonical(form(answer))
        except (ValueError, RecursionError):
            return f"{_meaning(answer, query, task)} (no JSON)"  # in a vote "[0" is no voice for 0

    return key


def _calls_form(parameter: str) -> Callable[[str], Any]:
    if parameter:
        return lambda text: [unordered(call) for call in calls_in(text)]
    return lambda text: unordered(calls_in(text))


@dataclass(frozen=True, slots=True)
class Kind:
    """A metric before its parameter is known."""

    about: str
    score: Callable[[str], Score]
    binary: bool = False
    parameter: bool = False
    key: Callable[[str], Key] = lambda _: _meaning


def _plain(pair: Callable[[str, Sequence[str]], float]) -> Callable[[str], Score]:
    return lambda _: lambda answer, query, task: pair(answer, query.answers)


METRICS: Mapping[str, Kind] = {
    "accuracy": Kind("the right option or label, or the same answer", lambda _: _accuracy, binary=True),
    "exact": Kind("the same text, line by line", lambda _: _best(_exact), binary=True),
    "squad-em": Kind("exact match as SQuAD normalises it", _plain(exact_match), binary=True),
    "f1": Kind("token F1 of SQuAD", _plain(token_f1)),
    "rouge-l": Kind("the longest common subsequence of words", _plain(rouge_l)),
    "bleu": Kind("phrases of up to four words in common", _plain(bleu)),
    "number": Kind(
        "the same number, or one within a relative error",
        lambda at: _best(_number(at)),
        binary=True,
        parameter=True,
        key=lambda _: _number_key,
    ),
    "final": Kind(
        "the same final answer: a number, an expression of LaTeX or plain text, or words",
        lambda _: _best(lambda answer, accepted: float(final_key(answer) == final_key(accepted))),
        binary=True,
        key=lambda _: lambda answer, query, task: final_key(answer),
    ),
    "json": Kind(
        "the same JSON value",
        lambda _: _best(_parsed(json_in, lambda one, other: float(canonical(one) == canonical(other)))),
        binary=True,
        key=lambda _: _form_key(json_in),
    ),
    "json-f1": Kind(
        "the fields of a JSON value",
        lambda at: _best(_parsed(_json_fields(at), json_f1)),
        parameter=True,
        key=lambda at: _form_key(lambda text: unordered(_json_fields(at)(text))),
    ),
    "labels": Kind("the labels of a set", lambda _: _labels, key=lambda _: _labels_key),
    "entities": Kind(
        "entities by text and type",
        lambda at: _best(_entities(at)),
        parameter=True,
        key=lambda at: _form_key(lambda text: [*map(list, compared(entities_in(text), bool(at)))]),
    ),
    "calls": Kind(
        "tool calls by name and arguments",
        lambda at: _best(_calls(at)),
        parameter=True,
        key=lambda at: _form_key(_calls_form(at)),
    ),
}


ACCURACY = Metric("accuracy", _accuracy, binary=True, least=1.0)


def metric_named(name: str, least: float | None = None) -> Metric:
    """The metric of a name, with the user's ``least``. A ``module:function`` is imported: the caller has made sure that
    the user named it. Raises `UsageError` for an unknown name or parameter, and if there is no such function."""
    kind_name, at, parameter = name.partition("@")
    if kind := METRICS.get(kind_name):
        if at and not kind.parameter:
            raise UsageError(f"{kind_name} has no parameter", f"--metric {kind_name}")
        return Metric(
            name,
            kind.score(parameter),
            kind.binary,
            1.0 if kind.binary else LEAST if least is None else least,
            kind.key(parameter),
        )
    if ":" not in name:
        names = [*METRICS, *JUDGES]
        raise UsageError(
            f"unknown metric '{name}'{did_you_mean(name, names, ',')}", f"use {', '.join(names)} or module:function"
        )
    return Metric(name, _own(name), least=LEAST if least is None else least)


def _own(name: str) -> Score:
    """A function of the user's: (answer, accepted answers), and the query by name if it asks for it."""
    own = imported(name, "metric")
    if not callable(own) or inspect.iscoroutinefunction(own):
        raise UsageError(
            f"{name} is {'async' if callable(own) else 'not a function'}", "give module:function, not async"
        )
    asks = "query" in inspect.signature(own).parameters

    def score(answer: str, query: Query, task: Task) -> float:
        try:
            value = own(answer, list(query.answers), **({"query": query} if asks else {}))
            grade = float(value) if isinstance(value, SupportsFloat) else math.nan  # also one of numpy or torch
        except CurateError:
            raise
        except Exception as error:  # it is the user's code
            fix = "return a number from 0 to 1 for (answer, accepted answers), whatever the answer is"
            raise failing(name, own, f"'{display_line(answer, 40)}'", error, fix) from error
        if not 0 <= grade <= 1:
            raise UsageError(f"{name} returned {value!r}", "return a number from 0 to 1 for (answer, accepted answers)")
        return grade

    return score


# The metric that fits the outputs.

MOST = 0.95
"""Share of the outputs from which they are of a kind."""

_WORDS = 12
"""Words, at the 95th percentile, up to which an output is a short answer."""

_MARKED = re.compile(r"####|\\boxed\{")
_ONE = re.compile(r"\D*\d[\d.,]*\D*")
"""A text with one number, such as ``$5`` or ``12 apples``."""

_FORMULA = re.compile(r"(?:####|\\boxed\{)[^\n]*(?:\\[a-z]|[\^/=]|[A-Za-z]\s*[+*-])")
"""A final answer that is more than a number."""


_CODE = re.compile(
    r"^(?:```|#include\b|#!/|@\w+|(?:async )?def \w+\(|class \w+|import \w+|from [\w.]+ import\b|SELECT\b|WITH\b|"
    r"CREATE\b|package \w+|(?:export |async )*(?:function|const|let|var|fn|func|public|private|static)\b.*[({=;])|"
    r"[;{}]$",
    re.MULTILINE,
)


BY_KIND: Mapping[str, tuple[str, str]] = {
    "options": ("accuracy", "the outputs are options"),
    "labels": ("accuracy", "the outputs are labels"),
    "sets": ("labels", "the outputs are sets of labels"),
}
"""What `metric_for` gives for kinds of answers whose metric does not depend on the outputs."""


def metric_for(task: Task, outputs: Sequence[str]) -> tuple[str, str]:
    """The name of the metric that fits the outputs of a pool, and why, as the rest of a sentence."""
    if found := BY_KIND.get(task.kind):
        return found
    for name, about, is_one in _KINDS:
        share = sum(map(is_one, outputs)) / len(outputs) if outputs else 0.0
        if share >= MOST:
            return name, f"{share:.0%} of the outputs are {about}"
    words = sorted(len(output.split()) for output in outputs)
    one_line = task.one_line or not any("\n" in output.strip() for output in outputs)
    if not words or (words[math.ceil(MOST * len(words)) - 1] <= _WORDS and one_line):
        return "accuracy", "the outputs are short answers"
    if sum(_CODE.search(output) is not None for output in outputs) >= MOST * len(outputs):
        return "exact", "the outputs are code: --metric module:function that runs it is better"
    return "rouge-l", "the outputs are long texts: a weak measure, --metric judge is a better one"


def _is_json(kind: type, names: str) -> Callable[[str], bool]:
    """Whether a text is JSON of this type, its objects with these fields."""

    def is_one(text: str) -> bool:
        if text.lstrip()[:1] not in ("{", "["):
            return False
        try:
            value = json_in(text)
        except ValueError:
            return False
        objects = value if isinstance(value, list) else [value]
        wanted = names.split()
        return isinstance(value, kind) and all(
            isinstance(one, Mapping) and one.keys() >= set(wanted) for one in objects
        )

    return is_one


def _is_number(text: str) -> bool:
    final = final_of(text)
    if number_of(final, whole=True) is not None:
        return True
    marked = _MARKED.search(text) and _ONE.fullmatch(final) and not _FORMULA.search(text)
    return bool(marked) and number_of(final) is not None


_KINDS: Sequence[tuple[str, str, Callable[[str], bool]]] = (
    ("calls", "tool calls", _is_json(list, "name arguments")),
    ("entities", "lists of entities", _is_json(list, "text type")),
    ("json-f1", "JSON objects", _is_json(dict, "")),
    ("json-f1", "lists of JSON objects", _is_json(list, "")),
    ("number", "numbers or end in one", _is_number),
    ("final", "rationales that end in their answer", lambda text: bool(_MARKED.search(text))),
)
