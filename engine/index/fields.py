"""Values of a record as text, its options and which of them the answer names, and its conversations.

Of a conversation every user turn with the assistant's answer to it is a demonstration, and what was said before is its
history.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from itertools import chain
from typing import Any, Literal, NamedTuple

from ..pool.open_answers import answer_key
from ..pool.prompts import letter_of
from ..pool.records import Message
from ..pool.sets import LABEL_LENGTH, MOST_LABELS
from .calls import BadCall, calls_of
from .readers.records import BadRecord, parse_list


class BadRow(ValueError):
    """Why a record is not a valid demonstration."""


def optional(record: Mapping[str, Any], column: str | None) -> str:
    """The text of a column that may be missing."""
    if column is None:
        return ""
    value = record[column]
    if type(value) is str:
        return value.strip()
    return "" if value is None else text_of(value, column, empty=True)


def known(value: Any) -> Any:
    """The value, or None for a number that is none or infinite: JSON has no such numbers, and 1e999 is read as one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text_of(value: object, field: str, *, numbers: bool = True, empty: bool = False) -> str:
    """The value as text, without outer white space. Raises `BadRow` if it is not a text."""
    if type(value) is str:
        text = value.strip()
        if not text and not empty:
            raise BadRow(f"empty {field}")
        return text
    if known(value) is None:
        if empty:
            return ""
        raise BadRow(f"empty {field}" if value is None else f"{field} is not a finite number")
    if isinstance(value, bytes):
        try:
            return text_of(value.decode(), field, numbers=numbers, empty=empty)
        except UnicodeDecodeError:
            raise BadRow("not UTF-8") from None
    if numbers and isinstance(value, bool):
        return "true" if value else "false"
    if numbers and isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    raise BadRow(f"{field} is {kind_of(value)}, not text")


def json_of(value: object, field: str) -> str:
    """The value as JSON. Raises `BadRow` for one with a number that JSON has not."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        raise BadRow(f"{field} is not a finite number") from None


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float | Decimal):
        return "a number"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else "text" if isinstance(value, str) else type(value).__name__


def shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")


Numbers = Literal["text", "from 0", "from 1"]
"""What a number in the answers of a file means: the option with this text, or its place among the options."""

_MARKED = re.compile(r"\s*\(?([A-Za-z]|\d{1,2})[).:]\s+")
_NUMBER = re.compile(r"[+-]?\d{1,4}(\.0+)?")


class RecordOptions(NamedTuple):
    """The options of a record and their labels (letters, names); ``labelled`` if the record gives the labels itself,
    ``typed`` if it writes its options as texts, so that a bare number among its answers is no text."""

    texts: list[str]
    labels: list[str]
    labelled: bool = False
    typed: bool = False


NONE = RecordOptions([], [])


def options_of(value: object) -> RecordOptions:
    """The options in any of the known forms. Raises `BadRow` for another form."""
    labels: list[str] = []
    if isinstance(value, str):
        value = parse_list(value)
    if value is None:
        return NONE
    if isinstance(value, Mapping):
        texts = value.get("text", value.get("texts"))
        if isinstance(texts, list):
            labels = [str(label) for label in value.get("label", value.get("labels")) or ()]
            value = texts
        else:
            labels, value = [str(label) for label in value], list(value.values())
    if not isinstance(value, list):
        raise BadRow(f"options are {kind_of(value)}, not a list")
    if value and all(isinstance(option, Mapping) and "text" in option for option in value):
        labels = [str(option.get("label", "")) for option in value]
        value = [option["text"] for option in value]
    typed = all(isinstance(option, str) for option in value)
    options = [text_of(option, "option") for option in value]
    marked = [_MARKED.match(option) for option in options]
    letters = [letter_of(i) for i in range(len(options))]
    if len(options) > 1 and [m and m[1].upper() for m in marked] in (
        letters,
        list(map(str, range(1, len(marked) + 1))),
    ):
        options = [option[m.end() :] if m else option for option, m in zip(options, marked, strict=True)]
    labelled = bool(options) and len(labels) == len(options)
    return RecordOptions(options, labels if labelled else letters, labelled, typed)


@dataclass(frozen=True, slots=True)
class NumberedAnswer:
    """A number as the answer of a record with options; ``bare``: written as a number, not as a text."""

    number: int
    bare: bool
    options: RecordOptions


def numbered(value: object, options: RecordOptions) -> NumberedAnswer | None:
    """The answer ``value`` if it is a number that is no label of the options."""
    bare = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(value).strip() if bare or isinstance(value, str) else ""
    if not options.texts or not _NUMBER.fullmatch(text):
        return None
    number = int(float(text))
    if options.labelled and str(number) in options.labels:
        return None
    return NumberedAnswer(number, bare, options)


def meaning_of(answers: Iterable[NumberedAnswer]) -> Numbers:
    """What numbers mean in a file with these answers: the reading under which most of them name an option. Among equals
    a bare number beside options that are texts is a place, counted from 0, and any other number is a text."""
    numbered_answers = list(answers)
    fits = {
        "text": sum(str(each.number) in each.options.texts for each in numbered_answers),
        "from 0": sum(0 <= each.number < len(each.options.texts) for each in numbered_answers),
        "from 1": sum(1 <= each.number <= len(each.options.texts) for each in numbered_answers),
    }
    places = any(each.bare and each.options.typed for each in numbered_answers)
    order: Sequence[Numbers] = ("from 0", "from 1", "text") if places else ("text", "from 0", "from 1")
    return max(order, key=lambda name: fits[name])


def named(value: Any, output: str, options: RecordOptions, numbers: Numbers) -> str:
    """The option that the answer ``value``, ``output`` as text, names. Raises `BadRow` if there is none."""
    number = numbered(value, options)
    if number is not None and numbers != "text":
        place = number.number - (numbers == "from 1")
        if 0 <= place < len(options.texts):
            return options.texts[place]
    if output in options.texts:
        return output
    plain = _plain(output)
    for option in options.texts:
        if _plain(option) == plain:
            return option
    bare = plain.strip("().:[] ")
    for option, label in zip(options.texts, options.labels, strict=True):
        if label.lower() == bare:
            return option
    if marked := _MARKED.match(output):
        rest = _plain(output[marked.end() :])
        for option in options.texts:
            if _plain(option) == rest:
                return option
    raise BadRow(f"answer not among the options: {shortened(output)}")


Lists = Literal["", "labels", "answers"]
"""What a list as the output means in a file: a set of labels, or answers of which each is right; empty: none is one."""


def texts_in(value: Any, written: bool) -> list[str] | None:
    """The texts of a list of texts or numbers; None if it is none. ``written``: also of a list in one text."""
    if written and isinstance(value, str) and value.lstrip().startswith("["):
        value = parse_list(value)
    if not isinstance(value, list) or any(label is None or isinstance(label, list | Mapping) for label in value):
        return None
    return [text_of(label, "label") for label in value]


LISTS_A_LABEL = 2
"""Mean lists per label from which they are sets. Answers to questions seldom come again; and a file may be a small part
of its pool, so `ROWS_A_LABEL` would be too many."""


def are_sets(lists: Sequence[Sequence[str]]) -> bool:
    """Whether lists in a file are sets of labels, and not answers of which each is right: labels come again, and in the
    company of several others; other answers are always beside the same ones, or spell them again."""
    count = Counter(chain.from_iterable(lists))
    beside = Counter(chain.from_iterable({tuple(sorted(texts)) for texts in lists}))
    return (
        0 < len(count) <= MOST_LABELS
        and len(count) * LISTS_A_LABEL <= count.total()
        and max(map(len, count)) <= LABEL_LENGTH
        and max(map(len, lists)) > 1
        and max(beside.values()) > 1
        and all(len(set(map(answer_key, texts))) == len(texts) for texts in lists)
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


ROLES = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "developer": "system",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
}
"""Names of roles in other formats."""


class Turn(NamedTuple):
    """One message. ``unread``: why its content is not text alone; ``counts`` is False for an answer with weight 0,
    which an LLM is not to learn; ``calls``: the tool calls in it, see `calls`."""

    role: str
    text: str
    unread: str
    counts: bool
    calls: str = ""

    @property
    def whole(self) -> str:
        """All of it as one text."""
        return "\n".join(filter(None, (self.text, self.calls)))


class Exchange(NamedTuple):
    """A user turn, its answer, the messages before them, the system prompt first, if there is one, and the tool calls
    of the answer."""

    asked: str
    answered: str
    history: tuple[Message, ...]
    calls: str = ""


def messages_in(record: Mapping[str, Any], fields: Mapping[str, str]) -> list[Any] | None:
    """The messages of a record, or None if it is no conversation: from one column, or from a prompt and a completion
    that are messages."""
    if (column := fields.get("messages")) is not None and record[column] is not None:
        value = record[column]
        if isinstance(value, str):
            value = parse_list(value)
        if isinstance(value, Mapping):  # such as {"conversation": {"messages": […]}}
            lists = [inner for inner in value.values() if isinstance(inner, list)]
            value = lists[0] if len(lists) == 1 else value
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
    dialogue: list[Turn] = []
    for turn in turns:
        if turn.role == "tool" and dialogue and dialogue[-1].role == "tool":  # results of several calls are one turn
            turn = turn._replace(text="\n".join(filter(None, (dialogue.pop().text, turn.text))))
        if turn.role != "system":
            dialogue.append(turn)
    opening = (Message("system", system),) if system else ()
    outcomes: list[Exchange | BadRecord] = []
    passed = 0
    if questions and dialogue and dialogue[-1].role == "user":
        dialogue.append(Turn("assistant", "", "", True))
    for i in range(len(dialogue) - 1):
        asked, answered = dialogue[i], dialogue[i + 1]
        if (asked.role, answered.role) != ("user", "assistant"):
            continue
        unread = next((turn.unread for turn in dialogue[: i + 2] if turn.unread), "")
        if unread:
            outcomes.append(BadRecord(unread))
        elif not asked.text or not (questions or (answered.counts and answered.whole)):
            passed += 1
        else:
            before = tuple(Message(turn.role, turn.whole) for turn in dialogue[:i] if turn.whole)
            told = (answered.text, answered.calls) if answered.counts else ("", "")
            outcomes.append(Exchange(asked.text, told[0], opening + before, told[1]))
    if not outcomes:
        raise BadRow("every answer has weight 0 or is empty" if passed else "no user message with an answer")
    return outcomes


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
    return tuple(Message(turn.role, turn.whole) for turn in turns if turn.whole)


def _turn(message: object) -> Turn:
    if not isinstance(message, Mapping):
        raise BadRow("a message is not an object")
    role = str(message.get("role", message.get("from", ""))).lower()
    role = ROLES.get(role, role)
    content = message.get("content", message.get("value"))
    unread = calls = ""
    try:
        calls = calls_of(message)
    except BadCall as error:
        unread = str(error)
    if calls and "value" in message:  # the call is all that the message says
        content = ""
    if isinstance(content, list):  # parts
        other = [str(part.get("type", "?")) for part in content if isinstance(part, Mapping) and "text" not in part]
        if other:
            unread = f"a message has parts that are not text: {', '.join(dict.fromkeys(other))}"
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    text = text_of(content, "message", empty=True)
    return Turn(role, text, unread, message.get("weight", 1) != 0, calls)
