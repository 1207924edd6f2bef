"""Prompts by code of the user's: a function that writes the turns, and what a program is given.

Code gets plain values, in dictionaries of its own. The ``query`` has ``input``, ``options`` (a list of texts),
``context`` (a text), ``history`` (a list of ``{"role": …, "content": …}``, a system prompt first), each of them empty
if there is none, and the further fields that the code says it reads. The ``shots``, in the order in which they are
shown, have the same, and ``id``, ``output``, ``source`` and all their further fields; there may be none.

What the code says of itself are attributes of the function or object: ``icl_reads``, names of further fields of the
query; ``icl_version``, to be used instead of a hash of its sources; and those of `FunctionTemplate`, by which versions
are told apart, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from ..base.code import imported, line, version_of
from ..base.errors import UsageError
from ..base.registry import Registry
from ..pool.fields import require
from ..pool.prompts import AnswerForm
from ..pool.records import Demonstration, Message, Query, Task, untold
from .template import answer_form

ROLES = ("system", "developer", "user", "assistant", "tool")

Use = Literal["template", "program"]


@dataclass(frozen=True, slots=True)
class Adapter:
    """From an object of a library to a function of ``(query, shots)`` that writes its prompts, or that runs it."""

    template: Callable[[Any], Callable[..., Any]]
    program: Callable[[Any], Callable[..., Any]]


ADAPTERS: Registry[Adapter] = Registry("adapters")
"""By the library in which a class of the object is defined."""


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """Code of the user's by its ``name``, ready to be called. ``identity``: what tells it from another version of it,
    in values of JSON; ``reads``: the further fields of a query that it gets."""

    name: str
    call: Callable[..., Any]
    identity: Mapping[str, Any]
    reads: frozenset[str]

    @property
    def digest(self) -> str:
        return hashlib.blake2b(json.dumps(self.identity, sort_keys=True).encode(), digest_size=6).hexdigest()

    def given(self, query: Query, shots: Sequence[Demonstration]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The values that it is called with. Raises `UsageError` for a query without a field that it reads."""
        require(query, self.reads)
        fields = {name: value for name, value in untold(query.fields).items() if name in self.reads}
        return _values(query, fields), [
            _values(shot, shot.fields) | {"id": shot.id, "output": shot.output, "source": shot.source} for shot in shots
        ]


def _values(row: Query | Demonstration, fields: Mapping[str, Any]) -> dict[str, Any]:
    history = [{"role": turn.role, "content": turn.content} for turn in row.history or ()]
    own = {"input": row.input, "options": list(row.options), "context": row.context, "history": history}
    return {**deepcopy(dict(fields)), **own}


@lru_cache(maxsize=64)
def own(name: str, use: Use) -> Own:
    """The code of this name, as the prompt ``template`` or the ``program`` that it is to be. It is imported: the caller
    has made sure that the user named it. Raises `UsageError` if that fails, or if it cannot be called."""
    value = imported(name, use)
    for base in type(value).__mro__:
        if (library := base.__module__.partition(".")[0]) in ADAPTERS:
            value = getattr(ADAPTERS[library], use)(value)
            break
    if not callable(value):
        raise UsageError(f"{name} is not a function", "name a function of (query, shots): module:function")
    reads = getattr(value, "icl_reads", ())
    if isinstance(reads, str) or not all(isinstance(field, str) for field in reads):
        raise UsageError(f"{name}: icl_reads is {reads!r}", "give a list of names of fields")
    state = getattr(value, "icl_state", None)
    return Own(name, value, {**version_of(name), **({} if state is None else {"state": state})}, frozenset(reads))


class FunctionTemplate:
    """A `Template` whose turns a function of the user's writes: ``(query, shots)`` as above to one text, which is a
    turn of the user's, or to a list of messages, ``{"role": …, "content": …}`` each.

    It must write the same for the same values: that is tried at its first use. ``icl_answer``
    ("<team>{{ output }}</team>"), ``icl_stop`` (a list of texts) and ``icl_reasons`` say what the head of a file does.
    """

    cue = ""
    marks = False
    optional = frozenset[str]()

    def __init__(self, name: str) -> None:
        self.own = own(name, "template")
        self.reads = self.own.reads
        answer, stop = getattr(self.own.call, "icl_answer", "{{ output }}"), getattr(self.own.call, "icl_stop", ())
        if isinstance(stop, str) or not all(isinstance(text, str) and text for text in stop):
            raise UsageError(f"{name}: icl_stop is {stop!r}", "give a list of texts")
        what, fix = f"{name}: icl_answer", 'write it as "<team>{{ output }}</team>"'
        self.form = answer if isinstance(answer, AnswerForm) else answer_form(str(answer), what, fix)
        self.stop, self.reasons = tuple(stop), bool(getattr(self.own.call, "icl_reasons", False))
        # a version is that of its messages: what is read of a reply may change without it
        said = {"answer": self.form.as_json(), "stop": self.stop, "reasons": self.reasons}
        self.digest = replace(self.own, identity={**self.own.identity, **said}).digest
        self._tried = False

    def render(
        self, query: Query, shots: Sequence[Demonstration], task: Task, marks: Sequence[str] = (), earlier: str = ""
    ) -> tuple[Message, ...]:
        """See `Template`. Raises `UsageError`, in one line, for whatever the function raises, too."""
        if any(marks) or earlier:
            raise UsageError(f"{self.own.name} shows no scores of calibration rounds", "--template auto, or a file")
        turns = self._called(query, shots)
        if not self._tried and self._called(query, shots) != turns:
            raise UsageError(
                f"{self.own.name} writes other messages when it is called again with the same values",
                "let it depend on query and shots alone: no time, no random number, no order of a set",
            )
        self._tried = True
        return turns

    def _called(self, query: Query, shots: Sequence[Demonstration]) -> tuple[Message, ...]:
        name = self.own.name
        try:
            written = self.own.call(*self.own.given(query, shots))
        except UsageError:
            raise
        except KeyError as error:
            raise UsageError(f"{name} fails: KeyError: {line(error)}", _lacking(error, name, query)) from error
        except (Exception, SystemExit) as error:  # it is somebody's program
            raise UsageError(f"{name} fails: {type(error).__name__}: {line(error)}", "correct it") from error
        if isinstance(written, str):
            return (Message("user", written),)
        if isinstance(written, Coroutine):
            written.close()  # nobody waits for it
        turns = [_turn(turn) for turn in written] if isinstance(written, list | tuple) else []
        if not turns or None in turns:
            raise UsageError(
                f"{name} returned {type(written).__name__} {repr(written)[:80]}",
                'return a text, or a list of {"role": "user", "content": "…"}; roles: ' + ", ".join(ROLES),
            )
        return tuple(filter(None, turns))


def _lacking(error: KeyError, name: str, query: Query) -> str:
    field = error.args[0] if error.args else None
    if field in query.fields:
        return f"name the fields that it reads of the query: {name.rpartition(':')[2]}.icl_reads = [{field!r}]"
    return "correct it"


def _turn(turn: Any) -> Message | None:
    role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, Mapping) else (None, None)
    return Message(role, content) if role in ROLES and isinstance(role, str) and isinstance(content, str) else None


class ProgramTemplate:
    """What a program is given, as one message of JSON: all that its answer may depend on, and so its call's key."""

    cue, form, stop, marks, reasons = "", AnswerForm(), (), False, False
    optional = frozenset[str]()

    def __init__(self, name: str) -> None:
        self.own = own(name, "program")
        self.digest, self.reads = self.own.digest, self.own.reads

    def render(
        self, query: Query, shots: Sequence[Demonstration], task: Task, marks: Sequence[str] = (), earlier: str = ""
    ) -> tuple[Message, ...]:
        """See `Template`."""
        if any(marks) or earlier:
            raise UsageError(f"the program {self.own.name} gets no scores of calibration rounds", "--llm openai:MODEL")
        asked, shown = self.own.given(query, shots)
        text = json.dumps({"query": asked, "shots": shown}, ensure_ascii=False, sort_keys=True)
        return (Message("user", text),)


function_template = lru_cache(maxsize=16)(FunctionTemplate)
program_template = lru_cache(maxsize=16)(ProgramTemplate)
