"""Named fields of queries: a query from a caller's record, and what a prompt may read of one.

A prompt that reads fields of a query is judged on validation and test rows and served to queries of production. So a
field must be there in both (`check_reads`, `require`), and must not tell the answer: rows of a data set often hold it
twice, as ``label`` and ``label_text``, or in ``entities``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

from ..base.errors import UsageError, did_you_mean
from .prompts import system_prompt
from .records import TELLING, Message, Query, untold

OWN = ("input", "options", "context", "history", "system")
"""Names in a caller's record that are no further fields."""
ROLES = ("system", "user", "assistant")


def query_of(asked: Any) -> Query:
    """The query in a text, or in a record: its ``input``, and where it has them ``options``, ``context``, ``history``
    (messages with ``role`` and ``content``, a system prompt first) and ``system``, a system prompt in place of that of
    the history; all else are its fields. A query stays what it is. Raises `UsageError` for a value of another type."""
    if isinstance(asked, Query):
        record: Any = {"input": asked.input}
    else:
        record = {"input": asked} if isinstance(asked, str) else asked
    if not isinstance(record, Mapping):
        raise UsageError(
            f"a query is a text or a record, not a {type(record).__name__}", 'give {"input": "a question"}'
        )
    text, options, context = record.get("input"), record.get("options") or [], record.get("context") or ""
    if not isinstance(text, str) or not text.strip():
        raise UsageError("the query is empty or not a text", 'for example {"input": "a question", "tier": "gold"}')
    if not isinstance(options, list | tuple) or not all(isinstance(one, str) for one in options):
        raise UsageError("'options' is not a list of texts", 'for example "options": ["yes", "no"]')
    if not isinstance(context, str):
        raise UsageError("'context' is not a text", 'for example "context": "a passage"')
    system = record.get("system") or ""
    if not isinstance(system, str):
        raise UsageError("'system' is not a text", 'for example "system": "You answer customers of a bank."')
    if isinstance(asked, Query):
        return asked
    fields = untold({str(name): value for name, value in record.items() if name not in OWN})
    return Query(text, tuple(options), context, history=_history(record.get("history"), system), fields=fields)


def _history(given: Any, system: str) -> tuple[Message, ...] | None:
    opening = (Message("system", system),) if system else ()
    if given is None:
        return opening or None
    fix = 'for example "history": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]'
    if not isinstance(given, list):
        raise UsageError("'history' is not a list of messages", fix)
    turns = []
    for turn in given:
        if not isinstance(turn, dict) or turn.keys() != {"role", "content"}:
            raise UsageError("a message of 'history' has not exactly 'role' and 'content'", fix)
        if turn["role"] not in ROLES or not isinstance(turn["content"], str):
            raise UsageError(f"a message of 'history' is not a text of {' or '.join(ROLES)}", fix)
        turns.append(Message(turn["role"], turn["content"]))
    return *opening, *(turn for turn in turns if not system or turn.role != "system")


def value_of(query: Query, name: str) -> Any:
    """What a prompt reads of a query by this name: one of `OWN`, which but ``system`` are always there, if empty, or a
    field; None if it has no such field."""
    if name == "system":
        return system_prompt(query) or None
    return getattr(query, name) if name in OWN else query.fields.get(name)


RECORD, OPTION = 'give it with the query: {{"input": "…", "{}": "…"}}', "--field {}=…"
"""How a field is given in Python and over HTTP, and on the command line."""


def require(query: Query, reads: Collection[str], give: str = RECORD) -> None:
    """Raise `UsageError` if the query lacks a field that the prompt ``reads``: without it, it would be another prompt
    than the one that was judged. ``give``: how the caller gives one."""
    for name in sorted(reads):
        if value_of(query, name) is None:
            others = [other for other in (*query.fields, *OWN) if other != name]  # it may be there, and null
            raise UsageError(
                f"the query has no field '{name}', which the prompt reads{did_you_mean(name, others)}",
                give.format(name),
            )


PRESENT = 0.99
"""Least share of validation and test rows that must have a field."""
LOOKED_AT, LOOKED_INTO = 1_000, 100_000
"""Maximum of queries, evenly from all, and of characters of a text, in which a field is compared with the outputs."""
FAR, LEAST = 0.25, 5
"""How much more often than the input, as a share and as a number of queries, a field may hold the output."""
NAMED = 10
"""Queries from which it can be seen that the values of a field stand for outputs."""


def check_reads(reads: Collection[str], asked: Sequence[Query], optional: Collection[str] = ()) -> None:
    """Raise `UsageError` for a field that a prompt ``reads`` of its query and must not: one of `TELLING`; one that less
    than `PRESENT` of the ``asked``, the validation and test queries with their answers, have; or one that leaks the
    answer. One that is ``optional`` may be missing. A passage leaks nothing: it is the query's ``context``."""
    every = sorted({*reads, *optional})
    for name in every:
        if name.lower() in TELLING:
            raise UsageError(f"a query has no field '{name}': it tells the answer", f"of demonstrations: shot.{name}")
        have = sum(value_of(query, name) is not None for query in asked)
        if name in reads and have < PRESENT * len(asked):
            known = Counter(field for query in asked for field in query.fields)
            raise UsageError(
                f"{have / len(asked):.1%} of {len(asked):,} validation and test queries have the field '{name}', which "
                f"the prompt reads, not {PRESENT:.0%}{did_you_mean(name, [*known, *OWN])}",
                f"map its column where it has another name: index … --map {quote(f'{name}=COLUMN')}, or do not read it",
            )
    step = max(-(-len(asked) // LOOKED_AT), 1)
    compared = [query for query in asked[::step] if query.answers]
    for name in every:
        if name not in OWN and (why := leak(name, compared)):
            raise UsageError(
                f"the field '{name}' tells the answer: {why}",
                f"do not read it of the query; if it is a passage or the options: index … --map "
                f"{quote(f'context={name}')}, or {quote(f'options={name}')}",
            )


def leak(name: str, asked: Sequence[Query]) -> str:
    """In what a field of queries with answers leaks them, empty if in nothing.

    It holds the reference output (all words of it, in their order) in a share of the queries, less that in which it
    holds the output of another query: an output such as "no" is in many texts. It leaks if this exceeds the same figure
    of the input by `FAR`, in at least `LEAST` queries. And it leaks if its values are other names of the outputs, such
    as the numbers of labels: each output that occurs twice has a value of its own, in `PRESENT` of the queries with it.
    """
    outputs = [query.answers[0] for query in asked]
    texts = [_text(query.fields.get(name)) for query in asked]
    field, own = _held(texts, outputs), _held([_words(query.input) for query in asked], outputs)
    if field - own > max(FAR * len(asked), LEAST - 1):
        shares = [f"{max(count, 0) / len(asked):.0%}" for count in (field, own)]
        return f"it holds the output in {shares[0]} of the queries, their input in {shares[1]}"
    if _names(texts, outputs):
        return "each of its values stands for one output"
    return ""


def _held(texts: Sequence[str], outputs: Sequence[str]) -> int:
    """How many texts hold their own output, less how many hold that of another row."""
    parts = [[*map(_words, _parts(output))] for output in outputs]
    parts = [[part if part.isascii() else part.strip() for part in of] for of in parts]  # scripts without blanks
    half = len(outputs) // 2
    count = 0
    for i, text in enumerate(texts):
        others = (j % len(outputs) for j in range(i + half, i + half + 10))
        other = next((j for j in others if outputs[j] != outputs[i]), None)
        if other is not None and parts[i] and parts[other]:  # else there is nothing to tell it from
            count += all(part in text for part in parts[i]) - all(part in text for part in parts[other])
    return count


def _names(values: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether the values stand for outputs, see `leak`."""
    pairs = Counter(zip(values, outputs, strict=True))
    repeated = {output: count for output, count in Counter(outputs).items() if count > 1}
    commonest: dict[str, tuple[str, int]] = {}
    for (value, output), count in pairs.most_common():
        if output in repeated:
            commonest.setdefault(output, (value, count))
    alone = len({value for value, _ in commonest.values()}) == len(repeated) > 1
    total, agree = sum(repeated.values()), sum(count for _, count in commonest.values())
    return alone and total >= NAMED and agree >= PRESENT * total


def _text(value: Any) -> str:
    return _words(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_WORD = re.compile(r"[^\W_]+")


def _words(text: str) -> str:
    """The words of a text between blanks; all of it if it has no word."""
    return f" {' '.join(_WORD.findall(text[:LOOKED_INTO].casefold())) or text[:LOOKED_INTO].strip()} "


def _parts(output: str) -> Sequence[str]:
    """The texts in an output that is JSON, else the output."""
    if output[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return [*_leaves(json.loads(output))]
    return [output]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each)
    else:
        yield value if isinstance(value, str) else json.dumps(value)
