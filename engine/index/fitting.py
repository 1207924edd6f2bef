"""What the columns of a file could be, where none of them is known to be the input, or none the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..pool.sets import LABEL_LENGTH
from .fields import kind_of

EXAMPLE = 40
"""Characters of a value that is shown."""


class Fitting(NamedTuple):
    """``lacking``: of input and output, what no column is. ``texts``: columns that may be the input, by several words
    in most of their values. ``outputs``: columns that may be the output. ``examples``: a value of each column that
    has any."""

    lacking: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    examples: Mapping[str, str] = {}


def fitting(records: Sequence[Mapping[str, Any]], lacking: tuple[str, ...]) -> Fitting:
    """What fits among the columns of ``records`` that no field is in. An output is a column of short values that
    repeat; else one of texts, but the first if an input is to be found as well; else any beside a text."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for column, value in _leaves(record):
            values.setdefault(column, []).append(value)
    texts = [column for column, some in values.items() if 2 * sum(map(_wordy, some)) > len(records)]
    repeating = [column for column, some in values.items() if 2 * len(some) > len(records) and _repeats(some)]
    others = [column for column in values if texts and column not in texts]
    outputs = (repeating or texts["input" in lacking :] or others) if "output" in lacking else []
    inputs = [column for column in texts if column not in outputs] if "input" in lacking else []
    objects = {name: value for record in records for name, value in record.items() if isinstance(value, Mapping)}
    shown = {column: some[0] for column, some in values.items()} | objects
    return Fitting(lacking, tuple(inputs), tuple(outputs), {column: _shown(value) for column, value in shown.items()})


def _leaves(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a record that can be mapped, those in objects by the dotted names that lead to them."""
    for column, value in record.items():
        if isinstance(value, Mapping):
            yield from (
                (f"{column}.{name}", part) for name, part in value.items() if isinstance(part, str | int | float)
            )
        elif value not in (None, ""):
            yield column, value


def _wordy(value: Any) -> bool:
    return isinstance(value, str) and len(value.split(None, 2)) > 1


def _repeats(values: Sequence[Any]) -> bool:
    texts = [str(value) for value in values if isinstance(value, str | int | float)]
    short = len(texts) == len(values) and max(map(len, texts)) <= LABEL_LENGTH
    return short and 1 < len({*texts}) <= len(texts) / 2


def _shown(value: Any) -> str:
    text = " ".join(str(value)[: 2 * EXAMPLE].split()) if isinstance(value, str | int | float) else kind_of(value)
    return text if len(text) <= EXAMPLE else text[: EXAMPLE - 1] + "…"
