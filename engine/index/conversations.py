"""Conversations: every user turn with the assistant's answer to it is a demonstration, and what was said before is its
history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..pool.records import Message
from .readers.records import BadRecord, parse_list
from .values import BadRow, kind_of, text_of

ROLES = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "developer": "system",
    "function": "tool",
    "observation": "tool",
    "function_call": "tool",
}
"""Names of roles in other formats."""


class Turn(NamedTuple):
    """One message. ``unread``: why its content is not text alone; ``counts`` is False for an answer with weight 0,
    which an LLM is not to learn."""

    role: str
    text: str
    unread: str
    counts: bool


class Exchange(NamedTuple):
    """A user turn, its answer, and the messages before them: the system prompt first, if there is one."""

    asked: str
    answered: str
    history: tuple[Message, ...]


def messages_in(record: Mapping[str, Any], fields: Mapping[str, str]) -> list[Any] | None:
    """The messages of a record, or None if it is no conversation: from one column, or from a prompt and a completion
    that are messages."""
    if (column := fields.get("messages")) is not None and record[column] is not None:
        value = record[column]
        if isinstance(value, str):
            value = parse_list(value)
        if not isinstance(value, list):
            raise BadRow(f"messages are {kind_of(record[column])}, not a list")
        return value
    prompt = record[fields["input"]] if "input" in fields else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping) and {"role", "from"} & set(prompt[0]):
        answer = record[fields["output"]] if "output" in fields else None
        return [*prompt, *(answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}])]
    return None


def exchanges(messages: Sequence[Any], *, questions: bool = False) -> list[Exchange | BadRecord]:
    """The demonstrations in a conversation, and for each answer that cannot be one the reason. Of ``questions``, what
    the user asked is enough: a missing answer, or one with weight 0, is empty. Raises `BadRow` if there is none."""
    turns = [_turn(message) for message in messages]
    system = "\n\n".join(turn.text for turn in turns if turn.role == "system" and turn.text)
    dialogue = [turn for turn in turns if turn.role != "system"]
    opening = (Message("system", system),) if system else ()
    found: list[Exchange | BadRecord] = []
    passed = 0
    if questions and dialogue and dialogue[-1].role == "user":
        dialogue.append(Turn("assistant", "", "", True))
    for i in range(len(dialogue) - 1):
        asked, answered = dialogue[i], dialogue[i + 1]
        if (asked.role, answered.role) != ("user", "assistant"):
            continue
        unread = next((turn.unread for turn in dialogue[: i + 2] if turn.unread), "")
        if unread:
            found.append(BadRecord(unread))
        elif not asked.text or not (questions or (answered.counts and answered.text)):
            passed += 1
        else:
            before = tuple(Message(turn.role, turn.text) for turn in dialogue[:i] if turn.text)
            found.append(Exchange(asked.text, answered.text if answered.counts else "", opening + before))
    if not found:
        raise BadRow("every answer has weight 0 or is empty" if passed else "no user message with an answer")
    return found


def earlier_turns(value: object) -> tuple[Message, ...] | None:
    """The turns in a ``history`` column: pairs of question and answer, as LLaMA-Factory has them, or messages; None if
    it is empty. Raises `BadRow` for another form."""
    if isinstance(value, str):
        value = parse_list(value)
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadRow(f"history is {kind_of(value)}, not a list")
    if all(isinstance(turn, Mapping) for turn in value):
        turns = [_turn(turn) for turn in value]
    elif all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        turns = [
            Turn(role, text_of(text, "history", empty=True), "", True)
            for pair in value
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
    else:
        raise BadRow("history has neither messages nor pairs of question and answer")
    for turn in turns:
        if turn.unread:
            raise BadRow(turn.unread)
    return tuple(Message(turn.role, turn.text) for turn in turns if turn.text)


def _turn(message: object) -> Turn:
    if not isinstance(message, Mapping):
        raise BadRow("a message is not an object")
    role = str(message.get("role", message.get("from", ""))).lower()
    role = ROLES.get(role, role)
    content = message.get("content", message.get("value"))
    unread = "a message calls a tool" if message.get("tool_calls") or message.get("function_call") else ""
    if role == "tool":
        unread = "a message has the result of a tool"
    if isinstance(content, list):  # parts
        other = [str(part.get("type", "?")) for part in content if isinstance(part, Mapping) and "text" not in part]
        if other:
            unread = f"a message has parts that are not text: {', '.join(dict.fromkeys(other))}"
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    text = text_of(content, "message", empty=True)
    return Turn(role, text, unread, message.get("weight", 1) != 0)
