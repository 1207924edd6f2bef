"""Tool calls as outputs, and the tools of a row as text.

Calls are one JSON list, ``[{"name": …, "arguments": {…}}]``, empty where none is needed. The tools that a row came with
stand in its system prompt, where any LLM reads them: in the opening of the prompt if all rows have the same, else with
each query and each demonstration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ..pool.records import Message

Calling = Literal["", "some", "most"]
"""How many of the answers in a file call a tool."""

COLUMNS = ("tools", "functions", "function", "available_tools")
"""Columns with the tools of a row."""
NO_CALL = "[]"
SAID = "said"
"""The field for what was said beside a call, or instead of one."""

OPENING = "You can call these tools:"
_FORM = '[{"name": …, "arguments": {…}}]'
ENDINGS: Mapping[Calling, str] = {
    "some": f"Where a tool is needed, answer with a JSON list of calls, {_FORM}, and else in words.",
    "most": f"Answer with a JSON list of the calls that are needed, {_FORM}, or [] if none is, and nothing else.",
}


class BadCall(ValueError):
    """Why a tool call cannot be read."""


def listed(value: Any) -> list[Any] | None:
    """A list, also one that is written as JSON; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def calls_text(calls: Iterable[Any]) -> str:
    """Calls in any known form as an output. Raises `BadCall`."""
    called = [_call(call) for call in calls]
    try:
        return json.dumps(called, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        raise BadCall("output is not a finite number") from None


def _call(value: Any) -> dict[str, Any]:
    value = value.get("function", value) if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise BadCall("a tool call has no name")
    arguments = value.get("arguments", value.get("parameters")) or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise BadCall(f"the arguments of {value['name']} are not JSON") from None
    return {"name": value["name"], "arguments": arguments}


def calls_in(value: Any, empty: bool) -> str | None:
    """The output that calls tools, if the value is a list of calls; with ``empty`` also if it is an empty list."""
    calls = listed(value)
    if calls is None or not (calls or empty):
        return None
    named = [call.get("function", call) if isinstance(call, Mapping) else None for call in calls]
    if not all(isinstance(call, Mapping) and {"name", "arguments"} <= call.keys() for call in named):
        return None
    return calls_text(calls)


def calls_of(message: Mapping[str, Any]) -> str:
    """What an assistant's message calls, empty if it calls nothing. Raises `BadCall`."""
    if message.get("from") == "function_call":  # as ShareGPT has it
        text = message.get("value")
        try:
            value = json.loads(text) if isinstance(text, str) else text
        except (ValueError, RecursionError):
            raise BadCall("a tool call is not JSON") from None
        return calls_text(value if isinstance(value, list) else [value])
    calls = message.get("tool_calls") or message.get("function_call")
    return calls_text(calls if isinstance(calls, list) else [calls]) if calls else ""


def tools_in(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools that one of the columns holds, each with its name; empty if none holds any."""
    for column in COLUMNS:
        tools = listed(record.get(column))
        plain = [tool.get("function", tool) if isinstance(tool, Mapping) else None for tool in tools or ()]
        if plain and all(isinstance(tool, Mapping) and isinstance(tool.get("name"), str) for tool in plain):
            return [tool for tool in plain if isinstance(tool, Mapping)]
    return []


def _told(tools: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([OPENING, *(json.dumps(tool, ensure_ascii=False, default=str) for tool in tools)])


def with_tools(
    history: tuple[Message, ...] | None, tools: Sequence[Mapping[str, Any]], calling: Calling
) -> tuple[Message, ...]:
    """The history with the tools in its system prompt, once."""
    before = history or ()
    system = before[0].content if before and before[0].role == "system" else ""
    told = _told(tools)
    if told in system:
        return before
    content = "\n\n".join(filter(None, [system, f"{told}\n{ENDINGS[calling]}"]))
    return Message("system", content), *before[bool(system) :]


def without_tools(history: tuple[Message, ...], tools: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """A history as it was before `with_tools`."""
    system, *turns = history
    content = system.content.partition(_told(tools))[0].rstrip()
    return (Message("system", content), *turns) if content else tuple(turns)


def written(turns: Sequence[Message], said: str) -> list[dict[str, Any]]:
    """A conversation as OpenAI's chat format has it: calls and their results as messages of their own kind. ``said``:
    what stands beside the calls of the last turn, or instead of them."""
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []
    for place, turn in enumerate(turns, 1):
        last = place == len(turns)
        if turn.role == "tool" and waiting:
            results = turn.content.split("\n") if turn.content.count("\n") + 1 == len(waiting) else [turn.content]
            results += [""] * (len(waiting) - len(results))
            messages += [
                {"role": "tool", "tool_call_id": name, "content": text}
                for name, text in zip(waiting, results, strict=True)
            ]
            waiting = []
            continue
        before, _, line = turn.content.rpartition("\n")
        calls = calls_in(line, empty=last) if turn.role == "assistant" else None
        if calls is None or not (last or turns[place].role == "tool"):
            messages.append({"role": turn.role, "content": turn.content})
            continue
        text = said if last else before
        if calls == NO_CALL:
            messages.append({"role": turn.role, "content": text or NO_CALL})
            continue
        named = [(f"call_{len(messages)}_{i}", call) for i, call in enumerate(json.loads(calls))]
        functions = [(name, {**call, "arguments": json.dumps(call["arguments"])}) for name, call in named]
        tool_calls = [{"id": name, "type": "function", "function": function} for name, function in functions]
        messages.append({"role": turn.role, "content": text or None, "tool_calls": tool_calls})
        waiting = [name for name, _ in named]
    return messages
