"""Demonstrations from the records of a file: columns found by name, values checked and converted to text.

Known shapes: plain question and answer columns; options as a list, as ``{"label": …, "text": …}``, as one column each
or in one text; Alpaca (instruction, input, output); chat records (``messages``, ``conversations``, or prompt and
completion as messages), in which every user turn with the assistant's answer to it is one demonstration.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from ..errors import UsageError
from ..pool.prompts import letter_of
from ..pool.records import Split
from .readers.records import BadRecord, parse_list

NAMES: Mapping[str, tuple[str, ...]] = {
    "input": ("input", "question", "query", "prompt", "text", "instruction", "problem", "sentence", "utterance"),
    "output": (
        *("output", "answer", "label_text", "label_name", "label", "target", "completion", "response"),
        *("answer_key", "answerkey", "correct_answer", "correct_answers", "solution", "intent"),
    ),
    "answers": ("answers", "aliases", "accepted_answers", "accepted"),
    "options": ("options", "choices"),
    "context": ("context", "contexts", "passage", "passages", "document", "documents"),
    "source": ("source",),
    "id": ("id", "_id", "uid", "guid", "qid"),
    "split": ("split",),
    "messages": ("messages", "conversations", "conversation"),
}
"""Column names of each field, best first; compared case-insensitively, with blanks and hyphens as underscores."""

FIELDS = tuple(name for name in NAMES if name != "messages")
SPLIT_NAMES: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training", "pool"), "pool"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "eval", "evaluation", "heldout", "held_out"), "test"),
}
LONGEST = 1_000_000
"""Maximum characters of a field: several times what any LLM reads at once."""

_OPTION = re.compile(r"(?:option|choice|opt)_?([a-j]|\d{1,2})|([a-e])")
_MARKED = re.compile(r"\s*\(?([A-Za-z]|\d{1,2})[).:]\s+")
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}


def plain_name(column: str) -> str:
    """The form in which column names are compared, see `NAMES`."""
    return column.strip().lower().replace(" ", "_").replace("-", "_")


class Row(NamedTuple):
    """One demonstration from a file; ``id``, ``source`` and ``split`` are None if the file does not give them."""

    id: str | None
    input: str
    output: str
    options: list[str]
    answers: list[str]
    context: str
    source: str | None
    split: Split | None
    metadata: str

    def digest(self, source: str) -> bytes:
        """16 bytes over everything but the split, with the row's final source."""
        parts = (self.id or "", self.input, self.output, self.context, source, self.metadata, str(len(self.options)))
        return hashlib.blake2b("\0".join((*parts, *self.options, *self.answers)).encode(), digest_size=16).digest()


class _BadRow(ValueError):
    """Why a record is not a valid demonstration."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The column of each field; the same for all records with the same columns."""

    fields: Mapping[str, str]
    instruction: str | None
    option_columns: tuple[str, ...]
    rest: tuple[str, ...]
    columns: tuple[str, ...]


def check_mapping(columns: Mapping[str, str]) -> None:
    """Raise `UsageError` for a field that does not exist."""
    for name in columns:
        if name not in FIELDS:
            raise UsageError(f"unknown field '{name}' in --map", f"fields: {', '.join(FIELDS)}")


class Mapper:
    """Makes rows of the records of one file; ``columns`` maps fields to column names."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        check_mapping(columns)
        self._columns = columns
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    def rows(self, record: Mapping[str, Any]) -> list[Row] | list[BadRecord]:
        """The record's demonstrations (one, unless it is a conversation), or why there is none."""
        try:
            return self._rows(record)
        except _BadRow as error:
            return [BadRecord(str(error))]
        except RecursionError:
            return [BadRecord("nested too deeply")]

    def _rows(self, record: Mapping[str, Any]) -> list[Row]:
        layout = self._layout(tuple(record))
        fields = layout.fields
        source = _optional(record, fields.get("source")) or None
        name = _optional(record, fields.get("id")) or None
        part = _optional(record, fields.get("split"))
        split = SPLIT_NAMES.get(part.lower())
        extra = {column: record[column] for column in layout.rest if record[column] is not None}
        if part and split is None:
            extra[fields["split"]] = part  # the user's own split name: kept as an extra column, not used as a split
        turns = _turns(record, fields)
        if turns is not None:
            return _conversation(name, turns, source, split, extra)
        question = _question(record, layout)
        options, marks = _options(record, layout)
        output, answers = _outputs(record, layout)
        if options:
            output = _among(output, options, marks)
        context = _documents(record[fields["context"]]) if "context" in fields else ""
        return [_row(name, question, output, options, answers, context, source, split, extra)]

    def _layout(self, columns: tuple[str, ...]) -> _Layout:
        found = self._layouts.get(columns)
        if found is None:
            if len(self._layouts) > 10_000:  # hardly any two records are alike, so caching is useless
                self._layouts.clear()
            found = self._layouts[columns] = _layout(columns, self._columns)
        return found


def _layout(columns: tuple[str, ...], given: Mapping[str, str]) -> _Layout:
    plain = {plain_name(column): column for column in reversed(columns)}
    fields = {name: column for name, column in given.items() if column in columns}
    for name, candidates in NAMES.items():
        if name not in given:
            taken = set(fields.values())
            found = [plain[c] for c in candidates if c in plain and plain[c] not in taken]
            if found:
                fields[name] = found[0]
    if "messages" in fields and {"input", "output"} & set(given):
        del fields["messages"]
    instruction = plain.get("instruction")
    if "input" in given or instruction in fields.values():
        instruction = None
    option_columns: tuple[str, ...] = ()
    if "options" not in fields:
        option_columns = tuple(
            column for column in columns if _OPTION.fullmatch(column.strip().lower()) and column not in fields.values()
        )
        option_columns = option_columns if len(option_columns) > 1 else ()
    used = {*fields.values(), *option_columns, instruction}
    return _Layout(fields, instruction, option_columns, tuple(c for c in columns if c not in used), columns)


def _question(record: Mapping[str, Any], layout: _Layout) -> str:
    column = layout.fields.get("input")
    if column is None:
        raise _BadRow(f"missing field: input (columns: {_few(layout.columns)})")
    instruction = _optional(record, layout.instruction).strip()
    value = record[column]
    if instruction and (value is None or value == ""):
        return instruction
    text = _text(value, "input", numbers=False)
    return f"{instruction}\n\n{text}" if instruction else text


def _outputs(record: Mapping[str, Any], layout: _Layout) -> tuple[str, list[str]]:
    """The reference answer and further accepted ones."""
    fields = layout.fields
    column = fields.get("output") or fields.get("answers")
    if column is None:
        raise _BadRow(f"missing field: output (columns: {_few(layout.columns)})")
    further = [] if column == fields.get("answers") or "answers" not in fields else _accepted(record[fields["answers"]])
    value = record[column]
    if isinstance(value, list | dict) or column == fields.get("answers"):
        first = _accepted(value)
        if not first:
            raise _BadRow("empty output" if value in (None, "", [], {}) else "output is not text")
        output, further = first[0], first[1:] + further
    else:
        output = _text(value, "output")
    return output, [answer for answer in dict.fromkeys(further) if answer != output]


def _accepted(value: object) -> list[str]:
    """Texts of a list of answers, in any supported form."""
    if isinstance(value, Mapping):
        value = value.get("text", value.get("value", value.get("aliases")))
    if isinstance(value, str):
        value = parse_list(value) if value.strip().startswith("[") else [value]
    if not isinstance(value, Sequence):
        value = [] if value is None else [value]
    found: list[str] = []
    for part in value:
        if isinstance(part, Mapping):
            part = part.get("text", part.get("value"))
        if isinstance(part, str | int | float) and (text := _text(part, "answers", empty=True)):
            found.append(text)
    return found


def _options(record: Mapping[str, Any], layout: _Layout) -> tuple[list[str], list[str]]:
    """The options and their labels (letters, names); both empty if there are none."""
    value: object
    if layout.option_columns:
        value = [record[column] for column in layout.option_columns if record[column] not in (None, "")]
    elif (column := layout.fields.get("options")) is not None:
        value = record[column]
    else:
        return [], []
    marks: list[str] = []
    if isinstance(value, str):
        value = parse_list(value)
    if value is None:
        return [], []
    if isinstance(value, Mapping):
        texts = value.get("text", value.get("texts"))
        if isinstance(texts, list):
            marks = [str(mark) for mark in value.get("label", value.get("labels")) or ()]
            value = texts
        else:
            marks, value = [str(mark) for mark in value], list(value.values())
    if not isinstance(value, list):
        raise _BadRow(f"options are {_kind(value)}, not a list")
    if value and all(isinstance(option, Mapping) and "text" in option for option in value):
        marks = [str(option.get("label", "")) for option in value]
        value = [option["text"] for option in value]
    options = [_text(option, "option") for option in value]
    marked = [_MARKED.match(option) for option in options]
    letters = [letter_of(i) for i in range(len(options))]
    if len(options) > 1 and [m and m[1].upper() for m in marked] in (
        letters,
        list(map(str, range(1, len(marked) + 1))),
    ):
        options = [option[m.end() :] if m else option for option, m in zip(options, marked, strict=True)]
    return options, marks if len(marks) == len(options) else letters


def _among(output: str, options: list[str], marks: list[str]) -> str:
    """The option that the output names: by its text, its label or its index from 0. Raises `_BadRow`."""
    if output in options:
        return output
    folded = _folded(output)
    for option in options:
        if _folded(option) == folded:
            return option
    bare = folded.strip("().:[] ")
    for option, mark in zip(options, marks, strict=True):
        if mark.lower() == bare:
            return option
    if bare.isdecimal() and int(bare) < len(options):
        return options[int(bare)]
    if marked := _MARKED.match(output):
        rest = _folded(output[marked.end() :])
        for option in options:
            if _folded(option) == rest:
                return option
    raise _BadRow(f"answer not among the options: {_short(output)}")


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _documents(value: object) -> str:
    """A passage, or several separated by blank lines."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Mapping):
        titles, sentences = value.get("title"), value.get("sentences", value.get("contexts"))
        if isinstance(titles, list) and isinstance(sentences, list):
            value = [[title, text] for title, text in zip(titles, sentences, strict=False)]
        elif isinstance(sentences, list):
            value = sentences
        else:
            value = [value]
    if not isinstance(value, list):
        return _text(value, "context", empty=True)
    return "\n\n".join(filter(None, map(_document, value)))


def _document(value: object) -> str:
    if isinstance(value, Mapping):
        text = next((value[key] for key in ("text", "passage", "contents", "content", "document") if key in value), "")
        return "\n".join(filter(None, (_document(value.get("title")), _document(text))))
    if isinstance(value, list):  # a title and its text, or its sentences
        if len(value) == 2 and isinstance(value[1], list):
            return f"{_document(value[0])}\n{_document(value[1])}"
        return " ".join(filter(None, map(_document, value)))
    return _text(value, "context", empty=True)


# --- conversations ------------------------------------------------------------------------------------------------


def _turns(record: Mapping[str, Any], fields: Mapping[str, str]) -> list[Any] | None:
    if (column := fields.get("messages")) is not None and record[column] is not None:
        value = record[column]
        if isinstance(value, str):
            value = parse_list(value)
        if not isinstance(value, list):
            raise _BadRow(f"messages are {_kind(record[column])}, not a list")
        return value
    prompt = record[fields["input"]] if "input" in fields else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping) and {"role", "from"} & set(prompt[0]):
        answer = record[fields["output"]] if "output" in fields else None
        return [*prompt, *(answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}])]
    return None


def _conversation(
    name: str | None, turns: list[Any], source: str | None, split: Split | None, extra: dict[str, Any]
) -> list[Row]:
    texts: list[tuple[str, str]] = []
    for turn in turns:
        if not isinstance(turn, Mapping):
            raise _BadRow("a message is not an object")
        role = str(turn.get("role", turn.get("from", ""))).lower()
        texts.append((_ROLES.get(role, role), _content(turn.get("content", turn.get("value")))))
    system = "\n\n".join(text for role, text in texts if role in ("system", "developer") and text)
    dialogue = [(role, text) for role, text in texts if role not in ("system", "developer")]
    pairs = [
        (asked, answered)
        for (role, asked), (next_role, answered) in pairwise(dialogue)
        if role == "user" and next_role == "assistant" and asked.strip() and answered.strip()
    ]
    if not pairs:
        raise _BadRow("no user message with an answer")
    if system:
        extra = {**extra, "system": system}
    several = len(pairs) > 1
    return [
        _row(f"{name}#{i}" if name and several else name, asked, answered, [], [], "", source, split, extra)
        for i, (asked, answered) in enumerate(pairs, 1)
    ]


def _content(value: object) -> str:
    if isinstance(value, list):  # parts: only text can be shown as a demonstration
        return "\n".join(
            part["text"] for part in value if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return _text(value, "message", empty=True)


# --- values -------------------------------------------------------------------------------------------------------


def _row(
    name: str | None,
    question: str,
    output: str,
    options: list[str],
    answers: list[str],
    context: str,
    source: str | None,
    split: Split | None,
    extra: dict[str, Any],
) -> Row:
    texts = (name or "", question, output, context, source or "", *options, *answers)
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        raise _BadRow("contains NUL bytes")
    if len(joined) > LONGEST:
        _check_lengths({"input": question, "output": output, "context": context})
    if not joined.isascii():
        try:
            joined.encode()
        except UnicodeEncodeError:
            raise _BadRow("not valid Unicode: a lone surrogate") from None
    metadata = json.dumps(extra, default=str) if extra else "{}"
    return Row(name, question, output, options, answers, context, source, split, metadata)


def _check_lengths(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if len(text) > LONGEST:
            raise _BadRow(f"{name} has {len(text):,} characters, more than {LONGEST:,}")


def _optional(record: Mapping[str, Any], column: str | None) -> str:
    """The text of a column that may be missing."""
    if column is None:
        return ""
    value = record[column]
    if type(value) is str:
        return value.strip()
    return "" if value is None else _text(value, column, empty=True)


def _text(value: object, field: str, *, numbers: bool = True, empty: bool = False) -> str:
    """The value as text, without outer white space. Raises `_BadRow` if it is not a text."""
    if type(value) is str:
        text = value.strip()
        if not text and not empty:
            raise _BadRow(f"empty {field}")
        return text
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if empty:
            return ""
        raise _BadRow(f"empty {field}")
    if isinstance(value, bytes):
        try:
            return _text(value.decode(), field, numbers=numbers, empty=empty)
        except UnicodeDecodeError:
            raise _BadRow("not UTF-8") from None
    if numbers and isinstance(value, bool):
        return "true" if value else "false"
    if numbers and isinstance(value, int | float | Decimal):
        return str(value)
    raise _BadRow(f"{field} is {_kind(value)}, not text")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float | Decimal):
        return "a number"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else "text" if isinstance(value, str) else type(value).__name__


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")
