"""Whether a prompt is the one that production sends: the first byte in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..base.files import read_regular
from ..pool.prompts import Prompt
from ..pool.records import Message, Query

SHOWN = 24
"""Bytes shown of both from where they differ."""
FIX = "give the body that production sends, as JSON"
LARGEST = 8 << 20
"""Bytes of a file with a request."""


def request_in(path: Path) -> Mapping[str, Any]:
    """The request in a file of JSON. Raises `UsageError` if it cannot be read, or is no object."""
    try:
        request = json.loads(read_regular(path, LARGEST))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", FIX) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}", FIX) from error
    if not isinstance(request, dict):
        raise UsageError(f"{path} is no object of JSON", FIX)
    return request


def differs(expected: Mapping[str, Any], messages: Sequence[Message]) -> str | None:
    """Where ``messages`` are not those of a request to an OpenAI-compatible server, which has ``messages``, or a
    ``prompt`` for completions; None if they are the same, byte for byte. Raises `UsageError` if it is no request."""
    if isinstance(expected.get("prompt"), str):
        return _difference("the prompt", expected["prompt"], Prompt(tuple(messages), Query(""), cue="").text)
    if not isinstance(expected.get("messages"), list):
        raise _malformed("there is neither a list of messages nor a prompt")
    turns = [_turn(i, turn) for i, turn in enumerate(expected["messages"], 1)]
    for i, (theirs, ours) in enumerate(zip(turns, messages, strict=False), 1):
        if theirs.role != ours.role:
            return f"turn {i}: expected {theirs.role}, not {ours.role}"
        if difference := _difference(f"turn {i} ({ours.role})", theirs.content, ours.content):
            return difference
    if len(turns) != len(messages):
        return f"expected {len(turns)} turns, not {len(messages)}"
    return None


def _turn(i: int, turn: object) -> Message:
    if not isinstance(turn, Mapping) or not isinstance(turn.get("role"), str):
        raise _malformed(f"turn {i} has no role")
    if calls := sorted({"tool_calls", "function_call"} & turn.keys()):
        raise _malformed(f"turn {i} has {calls[0]}, and a template writes text alone")
    content = turn.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        content = "".join(str(part["text"]) for part in content)
    if not isinstance(content, str):
        raise _malformed(f"the content of turn {i} is no text")
    return Message(turn["role"], content)


def _malformed(what: str) -> UsageError:
    return UsageError(f"the expected request: {what}", FIX)


def _difference(where: str, theirs: str, ours: str) -> str | None:
    expected, got = (text.encode("utf-8", "surrogatepass") for text in (theirs, ours))
    if expected == got:
        return None
    pairs = enumerate(zip(expected, got, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(got)))
    shown = [part[at : at + SHOWN].decode("utf-8", "backslashreplace") for part in (expected, got)]
    return f"{where}, byte {at}: expected {shown[0]!r}, not {shown[1]!r}"
