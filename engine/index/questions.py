"""Queries from files in every format that ``index`` reads, with answers where there are, and corrected outputs from a
file: a row for each demonstration, with its id and its new output. Nothing is stored.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..base.progress import SILENT, Monitor
from ..pool.records import Query, history_of, untold
from ..pool.sets import set_text
from .fields import BadRow, json_of, text_of, texts_in
from .files import download
from .joins import within, without
from .readers.files import expand, open_input
from .readers.formats import Records, records
from .readers.records import NOT_UTF8, BadRecord, to_utf8
from .rows import NAMES, Mapper, Row, columns_of, plain_name
from .understood import surveyed


@dataclass(frozen=True, slots=True)
class Question:
    """A query, its reference answers filled in where its record has any, and what was ``answered`` in production."""

    query: Query
    answered: str | None = None


@dataclass(frozen=True, slots=True)
class Questions:
    """``asked``: in the order of the files, a random sample if there were more than wanted of the ``total``.
    ``skipped`` records could not be used; ``reason`` is why the first was not."""

    asked: tuple[Question, ...]
    total: int
    skipped: int
    reason: str


def read_questions(
    patterns: Sequence[str],
    columns: Mapping[str, str] = {},
    answer_field: str = "",
    most: int = 20_000,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> Questions:
    """At most ``most`` queries of files, globs, ``hf://NAME`` or standard input (``-``), drawn uniformly (reservoir
    sampling, Vitter 1985, algorithm R); the other ones are not kept in memory.

    ``columns`` maps fields to column names, as in `index`. ``answer_field``: the column with the answer that was given
    in production; it is never taken for the right one. Raises `UsageError` for a file that cannot be read, if no record
    has a query, or none the answer field.
    """
    draw = random.Random(seed)
    drawn: list[tuple[int, Question]] = []
    total = skipped = 0
    reason, answered = "", False
    for place, question in _questions(patterns, columns, answer_field):
        if total % 1000 == 0:
            monitor.check()
        if isinstance(question, BadRecord):
            skipped += 1
            reason = reason or f"{place}: {question.reason}"
            continue
        answered = answered or question.answered is not None
        if len(drawn) < most:
            drawn.append((total, question))
        elif (spot := draw.randrange(total + 1)) < most:
            drawn[spot] = (total, question)
        total += 1
    if not total:
        raise UsageError(f"there is no query{f': {reason}' if reason else ''}", "--map input=COLUMN, or check the file")
    if answer_field and not answered:
        raise UsageError(f"no query has a field '{answer_field}' with a text", "check --answer-field")
    drawn.sort(key=lambda each: each[0])
    return Questions(tuple(question for _, question in drawn), total, skipped, reason)


def _questions(
    patterns: Sequence[str], columns: Mapping[str, str], answer_field: str
) -> Iterator[tuple[str, Question | BadRecord]]:
    """Every query with its place, ``file:line``, or why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        paths, unreadable = expand(download(Path(scratch), patterns))
        yield from ((path, BadRecord(why)) for path, why in unreadable.items())
        for path in paths:
            with open_input(path) as stream:
                for line, found in _of_file(
                    Records(path, stream), Mapper(columns_of(path, columns), questions=True), answer_field
                ):
                    yield f"{path}:{line}", found


def _of_file(records: Records, mapper: Mapper, answer_field: str) -> Iterator[tuple[int, Question | BadRecord]]:
    first = surveyed(records)
    mapper.survey([record for _, record in first if not isinstance(record, BadRecord)], records.kinds())
    for line, record in chain(first, records):
        if isinstance(record, BadRecord):
            yield line, record
            continue
        answered, rest = _taken(record, answer_field)
        rows = mapper.rows(rest)
        for i, row in enumerate(rows, 1):
            if isinstance(row, BadRecord):
                yield line, row
            else:  # of a conversation, what was answered belongs to its last turn
                yield line, Question(_query(row), answered if i == len(rows) else None)


def _taken(record: Mapping[str, Any], field: str) -> tuple[str | None, Mapping[str, Any]]:
    """The text of a field, None if there is none, and the record without it. ``a.b`` is b of the object a."""
    if not field:
        return None, record
    try:
        text = text_of(record[field] if field in record else within(record, field), field, empty=True)
    except BadRow:
        text = ""
    return text or None, without(record, field)


def _query(row: Row) -> Query:
    answers = tuple(dict.fromkeys([row.output, *row.answers])) if row.output else ()
    history, fields = history_of(row.history), untold(json.loads(row.metadata))
    return Query(row.input, tuple(row.options), row.context, answers, row.id or "", None, history, fields)


_SHAPE = 'give each row an id and an output, such as {"id": "a-17", "output": "refund"}'


def read_corrections(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """New outputs by id, from any format that `index` reads, and where each stands, for `relabel`. Raises `UsageError`
    with the line of the first row that has no id or no output, or contradicts an earlier one."""
    outputs: dict[str, str] = {}
    places: dict[str, str] = {}
    with open_input(path) as stream:
        for line, record in records(path, stream):
            if isinstance(record, BadRecord):
                fix = to_utf8(path) if record.reason.startswith(NOT_UTF8) else _SHAPE
                raise UsageError(f"{path}, line {line}: {record.reason}", fix)
            fields = {plain_name(str(column)): value for column, value in record.items()}
            try:
                name, output = (_first(fields, NAMES[field]) for field in ("id", "output"))
            except BadRow as error:
                raise UsageError(f"{path}, line {line}: {error}", _SHAPE) from None
            if name is None or output is None:
                raise UsageError(f"{path}, line {line}: no {'id' if name is None else 'output'}", _SHAPE)
            if outputs.setdefault(name, output) != output:
                raise UsageError(f"{path}, line {line}: a second output for '{name}'", "keep one of them")
            places.setdefault(name, f"{path}, line {line}: ")
    if not outputs:
        raise UsageError(f"{path} has no row, or only the names of columns", _SHAPE)
    return outputs, places


def _first(fields: dict[str, object], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = fields.get(name)
        if (texts := texts_in(value, written=False)) is not None:
            value = set_text(texts)
        elif isinstance(value, list | dict):
            value = json_of(value, name)
        if text := text_of(value, name, empty=True):
            return text
    return None
