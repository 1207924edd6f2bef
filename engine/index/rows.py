"""Demonstrations from the records of a file: columns found by name, values checked and converted to text.

Known shapes: plain question and answer columns; options as a list, as ``{"label": …, "text": …}``, as one column each
or in one text; Alpaca (instruction, input, output, with a system prompt and history); chat records (``messages``,
``conversations``, or prompt and completion as messages), in which every user turn with the assistant's answer to it is
one demonstration; several labels; outputs that are JSON objects.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from ..base.errors import UsageError
from ..pool.records import Message, Split, history_text
from ..pool.sets import set_text
from .calls import NO_CALL, SAID, BadCall, Calling, calls_in, tools_in, with_tools
from .exported import JSON, METADATA, OUTPUT, SETS, WRITTEN, unpacked
from .fields import (
    NONE,
    BadRow,
    Exchange,
    Lists,
    NumberedAnswer,
    Numbers,
    RecordOptions,
    are_sets,
    earlier_turns,
    exchanges,
    few,
    json_of,
    known,
    meaning_of,
    messages_in,
    named,
    numbered,
    optional,
    options_of,
    text_of,
    texts_in,
)
from .fitting import Fitting, fitting
from .joins import alternatives, check_join, columns_in, is_made, made_of, without
from .readers.records import BadRecord, json_text, parse_list

_COLUMNS = tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
NAMES: Mapping[str, tuple[str, ...]] = {field: tuple(names) for field, names in _COLUMNS.items()}
"""Column names of each field, best first, see ``columns.toml``."""

FIELDS = tuple(name for name in NAMES if name != "messages")
SPLIT_NAMES: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training", "pool"), "pool"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "eval", "evaluation", "heldout", "held_out"), "test"),
}
ELSEWHERE = frozenset(
    {METADATA, "instruction", *(name for of in ("messages", "system", "history", "split") for name in NAMES[of])}
)
"""Names of columns that are not read as further fields of a row that has its input and its output."""
NO_COLUMN = "none"
"""What a field is mapped to that is not to be read, as `--map context=none`."""
LONGEST = 1_000_000
"""Maximum characters of a field: several times what any LLM reads at once."""

_NUMBERED = re.compile(r"-?\d+(\.\d*)?")
_OPTION = re.compile(r"(?:option|choice|opt)_?([a-j]|\d{1,2})|([a-e])")
SURVEYED = 1_000
"""Records of a file from which it is decided what numbers among its answers mean."""

ANSWER_KEYS = {"text", "value", "aliases", "answer_start"}
"""Keys of an object in a list that is one of several accepted answers, as in SQuAD."""
IMAGES = {"image", "images", "img", "picture"}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")

LABELS = {"label", "labels", "intent", "intents", "category", "categories", "topics", "tags"}
"""Columns in which a list is several labels of one row, not several answers of which each is right."""


def plain_name(column: str) -> str:
    """The form in which column names are compared, see `NAMES`."""
    return column.strip().lower().replace(" ", "_").replace("-", "_")


def is_name_of(field: str, column: str) -> bool:
    """Whether ``column`` can be that of a field, or one of several that are its options, where no better one is."""
    return plain_name(column) in NAMES[field] or (
        field == "options" and _OPTION.fullmatch(column.strip().lower()) is not None
    )


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
    history: str | None = None
    """`history_text` of the messages before the input; None if the row is no conversation."""

    def digest(self, source: str) -> bytes:
        """16 bytes over everything but the split, with the row's final source."""
        parts = (self.id or "", self.input, self.output, self.context, source, self.metadata, str(len(self.options)))
        texts = (*parts, *self.options, *self.answers, *(() if self.history is None else (self.history,)))
        return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).digest()

    def characters(self) -> int:
        """The length of its texts."""
        whole = len(self.input) + len(self.output) + len(self.context) + len(self.metadata) + len(self.history or "")
        return whole + sum(map(len, self.options)) + sum(map(len, self.answers))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The column of each field, and of each ``extra`` one: those ``named`` by the mapping alone, and the ``rest``; the
    same for all records with the same columns."""

    fields: Mapping[str, str]
    named: Mapping[str, str]
    extra: Mapping[str, str]
    instruction: str | None
    option_columns: tuple[str, ...]
    rest: tuple[str, ...]
    columns: tuple[str, ...]
    given: Mapping[str, str]


class _Common(NamedTuple):
    """What a record says of its rows besides their texts."""

    source: str | None
    split: Split | None
    extra: Mapping[str, Any]


ALIKE = 0.8
"""Similarity from which the name of a field is taken for a misspelt one (`difflib`, a ratio of common letters)."""
FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")

OF_FILES = "::"
"""Between a glob and the field in a key of columns."""


def glob_of(key: str) -> str:
    """The files that a key of columns is for; empty: all."""
    return key.rpartition(OF_FILES)[0]


def is_meant(path: str, glob: str) -> bool:
    """Whether a glob names this file: as it was given, or by the end of its path."""
    return path == glob or (PurePath(glob).name != "" and PurePath(path).match(glob))


def columns_of(path: str, columns: Mapping[str, str]) -> dict[str, str]:
    """The column of each field in this file; what a glob says comes before what holds for all files, and the very name
    of the file before a glob: in names, ``[1]`` is no set of letters."""
    ordered = sorted(columns.items(), key=lambda each: (OF_FILES in each[0], glob_of(each[0]) == path))
    return {key.rpartition(OF_FILES)[2]: column for key, column in ordered if is_meant(path, glob_of(key) or path)}


def mismatch(key: str, paths: Sequence[str]) -> str:
    """Why a key of columns is for none of the files; empty if it is for one."""
    glob = glob_of(key)
    return "" if not glob or any(is_meant(path, glob) for path in paths) else f"no file matches '{glob}' of --map"


def check_globs(columns: Mapping[str, str], paths: Sequence[str]) -> None:
    """Raise `UsageError` for columns of files that are not among those to read."""
    for unmatched in filter(None, (mismatch(key, paths) for key in columns)):
        raise UsageError(unmatched, f"files: {few(paths)}")


def check_mapping(columns: Mapping[str, str]) -> None:
    """Raise `UsageError` for a field that is none of `FIELDS`, but is written like one or cannot be a name, or for a
    join that is malformed."""
    for key, column in columns.items():
        name = key.rpartition(OF_FILES)[2]
        like = difflib.get_close_matches(name, FIELDS, 1, ALIKE)
        if name not in FIELDS and (like or not FIELD_NAME.fullmatch(name) or plain_name(name) in NAMES["messages"]):
            hint = f"; did you mean '{like[0]}'?" if like else ""
            raise UsageError(
                f"unknown field '{name}' in --map{hint}",
                f"fields: {', '.join(FIELDS)}; a field of your own has a name of letters, digits and _, unlike these",
            )
        check_join(name, column)


class Mapper:
    """Makes rows of the records of one file; ``columns`` maps fields to column names, ``labels`` are the names of
    labels that the file gives as numbers from 0. Rows of ``questions`` need no answer: the output is empty without
    one. `survey` comes first, if the file has options."""

    def __init__(self, columns: Mapping[str, str], labels: Sequence[str] = (), *, questions: bool = False) -> None:
        check_mapping(columns)
        self.mapped = columns
        self._labels = labels
        self._questions = questions
        self._made = [each for each in map(alternatives, columns.values()) if any(map(is_made, each))]
        outputs = [columns[field] for field in ("output", "answers") if field in columns]
        self._telling = tuple(
            name
            for column in outputs
            if is_made(column) or len(alternatives(column)) > 1
            for name in columns_in(column)
        )
        """What outputs are made of: no further field, for it would tell a query's answer."""
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self.unseen = set(columns.values())
        """Columns of the mapping that no record has had so far, nor what they are made of."""
        self.numbers: Numbers = "text"
        self.numbered = False
        """Whether the records surveyed have a number as the answer beside options."""
        self.lists: Lists = ""
        self.calling: Calling = ""
        """How many of the answers surveyed call a tool."""
        self.objects = False
        """Whether some outputs surveyed are lists of objects, so that an empty list is an output, too."""
        self.kinds: Mapping[str, Any] = {}
        """The type of each column, if the file is an export of ours that tells them, see `exported.kinds_of`."""

    def columns(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The columns of a record, dotted ones that were asked for among them."""
        return tuple(self._with_paths(record))

    def absent(self, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Columns of the mapping that none of the records has, nor what they are made of; `NO_COLUMN` is meant so."""
        every = [self._with_paths(record) for record in records] if self.mapped else []
        return tuple(
            column
            for column in self.mapped.values()
            if column != NO_COLUMN and not any(name in record for record in every for name in alternatives(column))
        )

    def fields(self, columns: tuple[str, ...]) -> Mapping[str, str]:
        """The column of each field that is found among ``columns``; several of them hold the options at times."""
        layout = self._layout(columns)
        found = {"instruction": layout.instruction} if layout.instruction else {}
        found |= {**layout.fields, **layout.named}
        return found | ({"options": ", ".join(layout.option_columns)} if layout.option_columns else {})

    def others(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that no field is in; they are kept as metadata."""
        return self._layout(columns).rest

    def fitting(self, records: Sequence[Mapping[str, Any]]) -> Fitting:
        """What further columns could be, if no column of the records is the input, or none the output. A passage is
        what is left to be the input if nothing else is, or the source, as translations call it."""
        layouts = [self._layout(tuple(self._with_paths(record))) for record in records]
        fields = {field for layout in layouts for field in (*layout.fields, *(["input"] if layout.instruction else []))}
        needed = {"input": {"input", "messages"}, "output": {"output", "answers", "messages"}}
        lacking = tuple(name for name, any_of in needed.items() if layouts and not any_of & fields)
        fits = Fitting()
        for spare in ((), ("context", "source")) if lacking else ():
            some = []
            for record, layout in zip(records, layouts, strict=True):
                free = {*layout.rest, *(layout.fields.get(field) for field in spare)}
                some.append({column: record.get(column) for column in layout.columns if column in free})
            fits = fitting(some, lacking)
            if "input" not in lacking or (fits.texts and (fits.outputs or "output" not in lacking)):
                break
        return fits

    def shape(self, record: Mapping[str, Any]) -> str:
        """The kind of a record that is more than columns; else empty."""
        record = self._with_paths(record)
        layout = self._layout(tuple(record))
        try:
            if messages_in(record, layout.fields) is not None:
                return "conversations"
        except BadRow:
            return ""
        return "Alpaca" if layout.instruction else ""

    def survey(self, records: Iterable[Mapping[str, Any]], kinds: Mapping[str, Any] = {}) -> None:
        """Decide from the first records what numbers and lists among the answers mean, and whether answers call tools,
        the same for the whole file; ``kinds`` are the types of the columns, if the file tells them."""
        self.kinds = kinds
        first = [self._with_paths(record) for record in records]
        answers = [answer for record in first if (answer := self._numbered(record)) is not None]
        self.numbers, self.numbered = meaning_of(answers), bool(answers)
        lists = [each for record in first if (each := self._listed(record)) is not None]
        if lists:
            named = any(self._holds_sets(column) for column, _ in lists)
            self.lists = "labels" if named or are_sets([texts for _, texts in lists]) else "answers"
        self.objects = any(self._is_list_of_objects(record) for record in first)
        calls = [called for record in first for called in self._called(record)]
        self.calling = "" if not any(calls) else "most" if 2 * sum(calls) >= len(calls) else "some"

    def rows(self, record: Mapping[str, Any]) -> Sequence[Row | BadRecord]:
        """The record's demonstrations (one, unless it is a conversation), or why there is none."""
        try:
            return self._rows(record)
        except BadRow as error:
            return [BadRecord(str(error))]
        except RecursionError:
            return [BadRecord("nested too deeply")]
        except (TypeError, ValueError, OverflowError) as error:  # a date as a key, a number of 5,000 digits
            return [BadRecord(f"cannot be read: {error}".splitlines()[0])]

    def _called(self, record: Mapping[str, Any]) -> list[bool]:
        """Of each answer in the record, whether it calls a tool."""
        fields = self._layout(tuple(record)).fields
        try:
            if (messages := messages_in(record, fields)) is not None:
                found = exchanges(messages, questions=self._questions)
                return [bool(each.calls) for each in found if isinstance(each, Exchange)]
            column = fields.get("output") or fields.get("answers")
            return [] if column is None else [calls_in(record[column], empty=False) is not None]
        except (BadRow, BadCall, RecursionError):
            return []

    def _numbered(self, record: Mapping[str, Any]) -> NumberedAnswer | None:
        record = self._with_paths(record)
        layout = self._layout(tuple(record))
        column = layout.fields.get("output")
        try:
            return None if column is None else numbered(record[column], _options(record, layout))
        except (ValueError, RecursionError):
            return None

    def _listed(self, record: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        """The column of the record's output and the texts in it, if it is a list of texts."""
        column = self._layout(tuple(record)).fields.get("output")
        try:
            texts = None if column is None else texts_in(record[column], self._holds_sets(column))
        except BadRow:
            return None
        return None if column is None or texts is None else (column, texts)

    def _is_list_of_objects(self, record: Mapping[str, Any]) -> bool:
        column = self._layout(tuple(record)).fields.get("output")
        return column is not None and isinstance(record[column], list) and _is_structure(record[column])

    def _holds_sets(self, column: str) -> bool:
        """Whether a list in this column is a set of labels whatever it holds."""
        joined = "+" in column and any(column in names for names in self._made)
        return joined or self.kinds.get(OUTPUT) == SETS or plain_name(column) in LABELS

    def _with_made(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """The record with a column for each one of the mapping that is made of others, see `made_of`. Raises `BadRow`
        where one cannot be made."""
        made = {}
        for names in self._made:
            for name in names:
                value = made_of(record, name)
                if value is not None:
                    made[name] = value
                if value is not None or name in record:
                    break
        return {**record, **made} if made else record

    def _with_paths(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `_with_made`, without the columns that cannot be made."""
        try:
            return self._with_made(record)
        except BadRow:
            return record

    def _rows(self, record: Mapping[str, Any]) -> Sequence[Row | BadRecord]:
        record = self._with_made(record)
        layout = self._layout(tuple(record))
        fields = layout.fields
        name = optional(record, fields.get("id")) or None
        part = optional(record, fields.get("split"))
        split = SPLIT_NAMES.get(part.lower())
        extra = {name: value for name, column in layout.extra.items() if (value := known(record[column])) is not None}
        if part and split is None:
            extra[fields["split"]] = part  # the user's own split name: kept as an extra column, not used as a split
        if self.kinds.get(METADATA) == JSON or _is_packed(record, extra):
            extra = unpacked(extra)
        for column in self._telling:
            extra = without(extra, column)
        if image := next((column for column in extra if _is_image(column, extra[column])), ""):
            raise BadRow(f"an image that would not be read (column {image})")
        common = _Common(optional(record, fields.get("source")) or None, split, extra)
        tools = self._tools(record, layout)
        if (messages := messages_in(record, fields)) is not None:
            return self._conversation(name, messages, _system(record, fields), common, tools)
        question = _question(record, layout)
        options = _options(record, layout)
        output, answers = self._answers(record, layout, options)
        context = _documents(record[fields["context"]]) if "context" in fields else ""
        before = _before(record, fields)
        if tools:
            before = with_tools(before, tools, self.calling)
        return [_row(name, question, output, options.texts, answers, context, common, before)]

    def _tools(self, record: Mapping[str, Any], layout: _Layout) -> list[Mapping[str, Any]]:
        """The tools that the record came with, if answers of its file call any."""
        return tools_in({column: record[column] for column in layout.rest}) if self.calling else []

    def _conversation(
        self,
        name: str | None,
        messages: Sequence[Any],
        system: tuple[Message, ...],
        common: _Common,
        tools: Sequence[Mapping[str, Any]],
    ) -> list[Row | BadRecord]:
        """A row for each answer. Where most answers of the file call tools, one that does not is an empty list."""
        parsed = exchanges(messages, questions=self._questions)
        several = len(parsed) > 1
        rows: list[Row | BadRecord] = []
        for i, exchange in enumerate(parsed, 1):
            if isinstance(exchange, BadRecord):
                rows.append(exchange)
                continue
            history = (*system, *(turn for turn in exchange.history if not system or turn.role != "system"))
            if tools:
                history = with_tools(history, tools, self.calling)
            output, own = exchange.answered, common
            if exchange.calls or (exchange.answered and tools and self.calling == "most"):
                output, said = exchange.calls or NO_CALL, exchange.answered
                if said and said != NO_CALL:
                    own = common._replace(extra={**common.extra, SAID: said})
            place = f"{name}#{i}" if name and several else name
            rows.append(_row(place, exchange.asked, output, [], [], "", own, history))
        return rows

    def _answers(self, record: Mapping[str, Any], layout: _Layout, options: RecordOptions) -> tuple[str, list[str]]:
        """As `_outputs`, an option by its text; for questions, an answer that cannot be used is none."""
        try:
            output, answers = self._outputs(record, layout)
            if options.texts:
                value = record[layout.fields["output"]] if "output" in layout.fields else output
                output = named(value, output, options, self.numbers)
        except BadRow:
            if not self._questions:
                raise
            return "", []
        return output, answers

    def _outputs(self, record: Mapping[str, Any], layout: _Layout) -> tuple[str, list[str]]:
        """The reference answer and further accepted ones. A set of labels is one answer, and an object is its JSON."""
        fields = layout.fields
        column = fields.get("output") or fields.get("answers")
        if column is None:
            raise BadRow(_missing("output", layout))
        lone = column == fields.get("answers")
        further = [] if lone or "answers" not in fields else _accepted(record[fields["answers"]])
        value = record[column]
        if (calls := _calls(value, self.calling != "" or self.objects)) is not None:
            return calls, []
        if self._labels:
            value = _label_named(value, self._labels)
        certain = self._holds_sets(column)
        if (certain or self.lists == "labels") and (texts := texts_in(value, certain)) is not None:
            value = set_text(texts)
        if not lone and _is_structure(value):
            value = json_of(value, "output")
        if isinstance(value, list | dict) or lone:
            first = _accepted(value)
            if not first:
                raise BadRow("empty output" if value in (None, "", [], {}) else "output is not text")
            output, further = first[0], first[1:] + further
        else:
            output = text_of(value, "output")
        return output, [answer for answer in dict.fromkeys(further) if answer != output]

    def _layout(self, columns: tuple[str, ...]) -> _Layout:
        layout = self._layouts.get(columns)
        if layout is None:
            if len(self._layouts) > 10_000:  # hardly any two records are alike, so caching is useless
                self._layouts.clear()
            layout = self._layouts[columns] = _layout(columns, self.mapped)
            self.unseen -= {each for each in self.unseen if any(name in columns for name in alternatives(each))}
        return layout


def _layout(columns: tuple[str, ...], given: Mapping[str, str]) -> _Layout:
    given = {name: next((one for one in alternatives(each) if one in columns), each) for name, each in given.items()}
    plain = {plain_name(column): column for column in reversed(columns)}
    fields = {name: column for name, column in given.items() if column in columns and name in NAMES}
    named = {name: column for name, column in given.items() if column in columns and name not in NAMES}
    for name, candidates in NAMES.items():
        if name not in given:
            taken = {*fields.values(), *named.values()}
            if present := [plain[c] for c in candidates if c in plain and plain[c] not in taken]:
                fields[name] = present[0]
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
    used = {*fields.values(), *named.values(), *option_columns, instruction}
    rest = tuple(column for column in columns if column not in used)
    extra = dict(zip(rest, rest, strict=True)) | named
    return _Layout(fields, named, extra, instruction, option_columns, rest, columns, given)


def _missing(field: str, layout: _Layout) -> str:
    wanted = f": there is no column '{layout.given[field]}'" if field in layout.given else ""
    return f"missing field: {field}{wanted} (columns: {few(layout.columns)})"


def _question(record: Mapping[str, Any], layout: _Layout) -> str:
    column = layout.fields.get("input")
    if column is None:
        raise BadRow(_missing("input", layout))
    instruction = optional(record, layout.instruction).strip()
    value = record[column]
    if instruction and (value is None or value == ""):
        return instruction
    text = text_of(value, "input", numbers=False)
    return f"{instruction}\n\n{text}" if instruction else text


def _label_named(value: Any, labels: Sequence[str]) -> Any:
    """The names of labels given as numbers from 0, 1.0 as 1. Raises `BadRow` for a number without a name."""
    if isinstance(value, list):
        return [_label_named(label, labels) for label in value]
    text = str(value).strip()
    if known(value) is None or not (isinstance(value, int | float) or _NUMBERED.fullmatch(text)):
        return value
    number = re.fullmatch(r"(\d+)(\.0+)?", text)
    if number is None or int(number[1]) >= len(labels):
        unlabelled = ": the row is not labelled" if re.fullmatch(r"-1(\.0+)?", text) else ""
        raise BadRow(f"label {text} has no name{unlabelled}")
    return labels[int(number[1])]


def _is_structure(value: object) -> bool:
    """Is it an object, or a list of objects, that says more than answers in the forms of `_accepted`?"""
    if isinstance(value, Mapping):
        return "aliases" not in value and not set(value) <= ANSWER_KEYS
    objects = [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []
    return any(not set(part) <= ANSWER_KEYS for part in objects)


def _is_packed(record: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
    """Whether the column `METADATA` holds what an export wrote apart from the other columns, and nothing else: rows in
    a frame, or in a file without its manifest, do not say so."""
    packed = extra.get(METADATA)
    return (
        isinstance(packed, Mapping)
        and len(packed) > 0
        and record.keys() >= {*WRITTEN[:4]}
        and packed.keys() & extra.keys() <= {METADATA}
        and all(name in WRITTEN or plain_name(str(name)) in ELSEWHERE for name in packed)
    )


def _is_image(column: str, value: object) -> bool:
    """Whether a column holds a picture: in the form of the `datasets` library or as a data URL, and in one of `IMAGES`
    as bytes or as an address; of several, the first counts."""
    if isinstance(value, list):
        value = value[0] if value else None
    named = plain_name(column) in IMAGES
    if isinstance(value, Mapping):
        return set(value) == {"bytes", "path"} or (named and bool({"bytes", "path"} & set(value)))
    if isinstance(value, str):
        return value.startswith("data:image/") or (named and value.lower().endswith(IMAGE_SUFFIXES))
    return named and isinstance(value, bytes)


def _options(record: Mapping[str, Any], layout: _Layout) -> RecordOptions:
    if layout.option_columns:
        return options_of([record[column] for column in layout.option_columns if record[column] not in (None, "")])
    column = layout.fields.get("options")
    return NONE if column is None else options_of(record[column])


def _system(record: Mapping[str, Any], fields: Mapping[str, str]) -> tuple[Message, ...]:
    text = optional(record, fields.get("system"))
    return (Message("system", text),) if text else ()


def _before(record: Mapping[str, Any], fields: Mapping[str, str]) -> tuple[Message, ...] | None:
    """The system prompt and the turns before the input, if columns hold them."""
    turns = earlier_turns(record[fields["history"]]) if "history" in fields else None
    system = _system(record, fields)
    return None if turns is None and not system else (*system, *(turns or ()))


def _calls(value: Any, empty: bool) -> str | None:
    try:
        return calls_in(value, empty)
    except BadCall as error:
        raise BadRow(str(error)) from None


def _accepted(value: object) -> list[str]:
    """Texts of a list of answers, in any supported form."""
    if isinstance(value, Mapping):
        value = value.get("text", value.get("value", value.get("aliases")))
    if isinstance(value, str):
        value = parse_list(value) if value.strip().startswith("[") else [value]
    if not isinstance(value, Sequence):
        value = [] if value is None else [value]
    texts: list[str] = []
    for part in value:
        if isinstance(part, Mapping):
            part = part.get("text", part.get("value"))
        if isinstance(part, str | int | float) and (text := text_of(part, "answers", empty=True)):
            texts.append(text)
    return texts


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
        return text_of(value, "context", empty=True)
    return "\n\n".join(filter(None, map(_document, value)))


def _document(value: object) -> str:
    if isinstance(value, Mapping):
        text = next((value[key] for key in ("text", "passage", "contents", "content", "document") if key in value), "")
        return "\n".join(filter(None, (_document(value.get("title")), _document(text))))
    if isinstance(value, list):  # a title and its text, or its sentences
        if len(value) == 2 and isinstance(value[1], list):
            return f"{_document(value[0])}\n{_document(value[1])}"
        return " ".join(filter(None, map(_document, value)))
    return text_of(value, "context", empty=True)


def _row(
    name: str | None,
    question: str,
    output: str,
    options: list[str],
    answers: list[str],
    context: str,
    common: _Common,
    before: tuple[Message, ...] | None,
) -> Row:
    history = None if before is None else history_text(before)
    texts = (name or "", question, output, context, common.source or "", history or "", *options, *answers)
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        raise BadRow("contains NUL bytes")
    if len(joined) > LONGEST:
        fields = {"input": question, "output": output, "context": context, "history": history or ""}
        for field, text in fields.items():
            if len(text) > LONGEST:
                raise BadRow(f"{field} has {len(text):,} characters, more than {LONGEST:,}")
    metadata = json_text(common.extra, default=str) if common.extra else "{}"
    further = json.dumps(json.loads(metadata), ensure_ascii=False) if "\\ud" in metadata else ""
    if further or not joined.isascii():
        try:
            f"{joined}{further}".encode()
        except UnicodeEncodeError:
            raise BadRow("not valid Unicode: a lone surrogate") from None
    return Row(name, question, output, options, answers, context, common.source, common.split, metadata, history)
