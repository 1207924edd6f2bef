"""JSON Lines, JSON files with many records, and YAML: a list of objects, or one object a document."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ...base.errors import UsageError
from .records import BadRecord, Record, decoded_lines, encoding_of


def read_jsonl(lines: Iterable[tuple[int, str | BadRecord]]) -> Iterator[Record]:
    loads = json.loads
    for number, line in lines:
        if isinstance(line, BadRecord):
            yield number, line
            continue
        try:
            record = loads(line)
        except (ValueError, RecursionError) as error:
            if line and not line.isspace():
                yield number, BadRecord(_json_fault(error, line))
            continue
        yield number, record if type(record) is dict else BadRecord("not a JSON object")


def _json_fault(error: Exception, text: str) -> str:
    if "\0" in text:
        return "contains NUL bytes"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    return "not JSON: nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


_SPACE = " \t\n\r"


def read_json(path: str, data: bytes) -> Iterator[Record]:
    """An array of objects, an object with one such array, or an object id → object; also JSON Lines with another
    suffix."""
    encoding = encoding_of(data[:4])
    if encoding == "utf-8":
        data = data.removeprefix(codecs.BOM_UTF8)
        text = data.decode(errors="surrogateescape")  # decoding errors are reported record by record
    else:
        text = data.decode(encoding, errors="replace")
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        raise UsageError(f"{path} is empty", "remove it, or add rows to it")
    if text[start] == "[":
        yield from _elements(path, text, start)
        return
    try:
        whole, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        whole, end = None, 0
        if "\n" not in text[start:].rstrip():
            raise UsageError(f"{path}: {_json_fault(error, text)}", "fix the file") from error
    if not isinstance(whole, dict) or text[end:].strip(_SPACE):
        yield from read_jsonl(decoded_lines(io.BytesIO(data)))
        return
    lists = [key for key, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if lists and len(whole) == 1:
        yield from _elements(path, text, text.index("[", text.index(":", start + len(lists[0]) + 2)))
        return
    states = any(isinstance(value, dict) and "demos" in value for value in whole.values())  # a program of DSPy
    if whole and not states and all(isinstance(value, dict) for value in whole.values()):
        yield from _members(text, whole)
        return
    yield 1, whole


def _elements(path: str, text: str, start: int) -> Iterator[Record]:
    """The elements of the array that opens at ``start``, each with its line; with its number from 1 if all stand in one
    line."""
    decode = json.JSONDecoder().raw_decode
    position, counted, line = start + 1, 0, 1
    first = True
    number = 1
    in_one_line = "\n" not in text.rstrip(_SPACE)
    while True:
        position = _skip_space(text, position)
        if text[position : position + 1] == "]":
            return
        if not first:
            if text[position : position + 1] != ",":
                raise _array_fault(path, text, position, "expected ',' or ']'", number)
            position = _skip_space(text, position + 1)
        first = False
        line = number if in_one_line else line + text.count("\n", counted, position)
        number += 1
        counted = position
        try:
            record, end = decode(text, position)
        except json.JSONDecodeError as error:
            raise _array_fault(path, text, error.pos, error.msg, number - 1) from error
        except (ValueError, RecursionError) as error:
            raise _array_fault(path, text, position, str(error), number - 1) from error
        yield line, _checked_object(record, text[position:end])
        position = end


def _members(text: str, whole: dict[str, Any]) -> Iterator[Record]:
    position, line = 0, 1
    in_one_line = "\n" not in text.rstrip(_SPACE)
    for number, (key, record) in enumerate(whole.items(), 1):
        found = text.find(json.dumps(key, ensure_ascii=False), position)
        if found >= 0:
            line += text.count("\n", position, found)
            position = found
        written = json.dumps(record, ensure_ascii=False)
        yield number if in_one_line else line, _checked_object({"id": key, **record}, written)


def _checked_object(record: object, text: str) -> dict[str, Any] | BadRecord:
    if not isinstance(record, dict):
        return BadRecord("not a JSON object")
    try:
        text.encode()
    except UnicodeEncodeError:
        return BadRecord("not UTF-8")
    return record


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in _SPACE and position < len(text):
        position += 1
    return position


def _array_fault(path: str, text: str, position: int, message: str, element: int) -> UsageError:
    """An error of the file at a position; ``element`` is the place in the array, which is named if all of it stands in
    one line."""
    one_line = "\n" not in text.rstrip(_SPACE)
    where = f"element {element}" if one_line else f"line {text.count(chr(10), 0, position) + 1}"
    if not text[position:].strip(_SPACE):
        return UsageError(f"{path} is truncated: the JSON array never ends ({where})", "write the file again")
    what = "element" if one_line else "line"
    return UsageError(
        f"{path}: {where}: not JSON: {message}", f"fix that {what}, or write one object per line as .jsonl"
    )


def read_yaml(path: str, data: bytes) -> Iterator[Record]:
    """Raises `UsageError` for a file that is not YAML."""
    import yaml

    Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = Loader(data)
        while loader.check_node():
            node = loader.get_node()
            parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
            for part in parts:
                record = loader.construct_document(part)
                line = part.start_mark.line + 1
                yield line, record if isinstance(record, dict) else BadRecord("not an object")
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f": line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}{where}: not YAML: {what}", "fix that line") from error
