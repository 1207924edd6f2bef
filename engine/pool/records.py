"""The records that all parts exchange: plain, frozen, and independent of a workspace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["pool", "validation", "test"]
SPLITS: tuple[Split, ...] = ("pool", "validation", "test")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat: ``role`` is system, user or assistant."""

    role: str
    content: str


def history_text(history: Sequence[Message]) -> str:
    """A history as it is stored: JSON."""
    return json.dumps([[turn.role, turn.content] for turn in history], ensure_ascii=False)


def history_of(text: str | None) -> tuple[Message, ...] | None:
    """The inverse of `history_text`; None stays None."""
    return None if text is None else tuple(Message(role, content) for role, content in json.loads(text))


EARLIER = 3
"""Turns of the user before an input that belong to the text it is retrieved by: "And 3+3?" alone says little."""


def searched_text(input: str, context: str, history: Sequence[Message] | None, passages: bool) -> str:
    """The text that a row or query is retrieved by: its input, the user's last turns before it, the latest first, and
    with ``passages`` its passage. Encoders read the beginning of a text, BM25 all of it."""
    turns = [turn.content for turn in reversed(history or ()) if turn.role == "user"][:EARLIER]
    if not turns:
        return f"{input}\n{context}" if passages and context else input
    return "\n".join([input, *turns, *([context] if passages and context else [])])


RATIONALE = ("rationale", "reasoning", "explanation", "cot")
"""Fields of a row in which its rationale may be."""

TELLING = frozenset({"output", "answers", *RATIONALE})
"""Fields that tell the answer by their name: demonstrations have them, a query never."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question for the LLM.

    ``row`` is the dense row number if the query is indexed (validation, test), else None. ``answers`` are the accepted
    answers, the reference first; empty if unknown. ``context`` is the passage (or the documents, separated by blank
    lines) that belongs to this query. ``history`` are the messages before it, a system prompt first; None unless it
    came from a conversation. ``fields``: what else came with it, by name, never one of `TELLING`; values are JSON.
    """

    input: str
    options: tuple[str, ...] = ()
    context: str = ""
    answers: tuple[str, ...] = ()
    id: str = ""
    row: int | None = None
    history: tuple[Message, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def searched(self, passages: bool) -> str:
        """The text it is retrieved by, see `searched_text`."""
        return searched_text(self.input, self.context, self.history, passages)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An input with its output, shown to an LLM as an example; ``row`` is its dense row number in the workspace,
    ``history`` as in `Query`. ``metadata`` are its further fields."""

    row: int
    id: str
    input: str
    output: str
    source: str
    options: tuple[str, ...] = ()
    context: str = ""
    answers: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Message, ...] | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """What else came with it, by name, as in `Query`, but with its rationale."""
        return self.metadata

    def as_query(self) -> Query:
        """This row asked as a question: its output becomes the first accepted answer."""
        answers = (self.output, *(a for a in self.answers if a != self.output))
        fields = untold(self.metadata)
        return Query(self.input, self.options, self.context, answers, self.id, self.row, self.history, fields)


def untold(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields without those of `TELLING`, in small letters or capitals."""
    if TELLING.isdisjoint(map(str.lower, fields)):
        return fields
    return {name: value for name, value in fields.items() if name.lower() not in TELLING}


class Options(tuple[str, ...]):
    """A closed set of answers that a prompt lists with letters: their letters are answers, too."""

    __slots__ = ()


TaskKind = Literal["options", "labels", "sets", "open"]
Form = Literal["short", "long", "code", "json", "entities", "calls", "final", "boxed"]
"""What open answers look like: a few words, long text, code, JSON of several kinds, or a rationale that ends in its
answer, after ``####`` or in ``\\boxed{}``."""


ANSWER_TOKENS = 64
"""Maximum tokens of an answer, unless the user says otherwise or the outputs of the pool need more."""


STRUCTURED: Sequence[Form] = ("json", "entities", "calls")
"""Forms of outputs that are values of JSON: an LLM may write one over several lines."""


@dataclass(frozen=True, slots=True)
class Task:
    """The kind of answers in the pool.

    ``options``: each row has its own options. ``labels``: every output is one of ``labels``, a closed set. ``sets``:
    every output is any number of ``labels`` (`sets`), which are empty where they are too many to list. ``open``: any
    text. ``one_line``: no output of the pool has a second line, nor could have (`STRUCTURED`), so the first line of a
    reply is the answer. ``form``: that of open answers.
    """

    kind: TaskKind
    labels: tuple[str, ...] = ()
    one_line: bool = True
    form: Form = "short"

    def choices(self, query: Query) -> tuple[str, ...]:
        """The closed set of answers to this query; empty for an open question."""
        if query.options:
            return Options(query.options)
        return self.labels if self.kind == "labels" else ()
